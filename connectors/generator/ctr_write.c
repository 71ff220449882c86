#include "connectors/generator/ctr_write.h"

#include "connectors/generator/ctr_clicks.h"
#include "connectors/generator/ctr_draw.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROGRESS_EVENTS = 1 << 16, WITHIN_MS = 30 * 60 * 1000 };

struct writer {
    const struct ctr_write_options *options;
    struct ctr_world *world;
    struct ctr_maker *maker;
    struct ctr_plants plants;
    struct ctr_lines events, clicks, truth_file;
    struct ctr_click_heap heap;
    struct ctr_truth *truth, *end_truth; /* truth: of all events but the last fifth; end_truth: of the
                                            last fifth, and once all are made, of all events */
    struct ctr_scores scores, end_scores;
    uint64_t clicks_within; /* clicks within WITHIN_MS of their impression */
    int64_t first_ms, last_ms;
    struct diag_list *diags;
};

static char *put_text(char *to, const char *text, size_t length)
{
    memcpy(to, text, length);
    return to + length;
}
#define PUT(to, literal) put_text((to), (literal), sizeof(literal) - 1)

static char *put_number(char *to, uint64_t value)
{
    char digits[20];
    size_t first = sizeof(digits);
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    return put_text(to, digits + first, sizeof(digits) - first);
}

/* Writes -1234 as -1.234. */
static char *put_thousandths(char *to, int32_t value)
{
    if (value < 0)
        *to++ = '-';
    uint32_t size = (uint32_t)(value < 0 ? -value : value);
    to = put_number(to, size / 1000);
    *to++ = '.';
    *to++ = (char)('0' + size / 100 % 10);
    *to++ = (char)('0' + size / 10 % 10);
    *to++ = (char)('0' + size % 10);
    return to;
}

static char *put_key(char *to, const char *name)
{
    to = PUT(to, ",\"");
    to = put_text(to, name, strlen(name));
    return PUT(to, "\":");
}

static void write_event(struct writer *writer, const struct ctr_event *event)
{
    char *line = ctr_lines_room(&writer->events), *to = line;
    if (writer->options->is_labelled) {
        to = PUT(to, "{\"ts\":");
    } else {
        to = put_number(PUT(to, "{\"imp_id\":"), event->imp_id);
        to = PUT(to, ",\"ts\":");
    }
    size_t ts_at = (size_t)(to - line);
    to = put_number(to, (uint64_t)event->ts_ms);
    for (uint32_t f = 0; f < CTR_FIELDS; f++) {
        to = put_key(to, ctr_fields[f].name);
        if (ctr_fields[f].prefix == 0) {
            to = put_number(to, event->field[f]);
            continue;
        }
        *to++ = '"';
        *to++ = ctr_fields[f].prefix;
        to = put_number(to, event->field[f]);
        *to++ = '"';
    }
    for (uint32_t d = 0; d < CTR_DENSE; d++)
        to = put_thousandths(put_key(to, ctr_dense_names[d]), event->dense[d]);
    if (writer->options->is_labelled)
        to = event->is_clicked ? PUT(to, ",\"clicked\":1") : PUT(to, ",\"clicked\":0");
    to = PUT(to, "}\n");
    ctr_lines_add(&writer->events, (size_t)(to - line), event->ts_ms, ts_at);
}

static void write_click(struct writer *writer, const struct ctr_click *click)
{
    char *line = ctr_lines_room(&writer->clicks), *to = line;
    to = put_number(PUT(to, "{\"imp_id\":"), click->imp_id);
    to = PUT(to, ",\"ts\":");
    size_t ts_at = (size_t)(to - line);
    to = put_number(to, (uint64_t)click->ts_ms);
    to = put_number(put_key(to, ctr_fields[CTR_USER].name), click->user);
    to = put_number(put_key(to, ctr_fields[CTR_ITEM].name), click->item);
    to = PUT(to, "}\n");
    ctr_lines_add(&writer->clicks, (size_t)(to - line), click->ts_ms, ts_at);
}

static bool write_clicks_until(struct writer *writer, int64_t until_ms)
{
    struct ctr_click click;
    while (ctr_click_pop(&writer->heap, until_ms, &click))
        write_click(writer, &click);
    return !writer->clicks.has_failed;
}

static bool no_memory(struct writer *writer)
{
    struct diag *d =
        diag_error(writer->diags, DIAG_STATE_TOO_LARGE, (struct span){0}, "no memory for the generator");
    diag_hint(writer->diags, d,
              "the generator needs 60 MB: free some memory, or raise the limit (ulimit -v)");
    return false;
}

static bool write_events(struct writer *writer)
{
    const struct ctr_write_options *options = writer->options;
    uint64_t last_fifth = options->events - options->events / 5;
    struct ctr_event event;
    for (uint64_t i = 0; i < options->events; i++) {
        ctr_make(writer->maker, i, &event, i < last_fifth ? writer->truth : writer->end_truth);
        if (i == 0)
            writer->first_ms = event.ts_ms;
        writer->last_ms = MAX(writer->last_ms, event.ts_ms);
        write_event(writer, &event);
        if (event.is_clicked && !options->is_labelled) {
            writer->clicks_within += event.click_ms - event.ts_ms <= WITHIN_MS;
            if (!ctr_click_push(&writer->heap, ctr_click_on(&event)))
                return no_memory(writer);
        }
        if (i % PROGRESS_EVENTS != PROGRESS_EVENTS - 1)
            continue;
        if (!write_clicks_until(writer, ctr_floor_ms(writer->world, i)) || writer->events.has_failed)
            return false;
        if (options->on_progress != NULL)
            options->on_progress(i + 1, options->events);
    }
    if (!write_clicks_until(writer, INT64_MAX))
        return false;
    writer->end_scores = ctr_truth_scores(writer->end_truth);
    ctr_truth_merge(writer->end_truth, writer->truth);
    writer->scores = ctr_truth_scores(writer->end_truth);
    if (options->on_progress != NULL)
        options->on_progress(options->events, options->events);
    return true;
}

static void put_counts(struct byte_buffer *out, const char *name, const struct ctr_line_counts *counts)
{
    buffer_printf(out,
                  " \"%s\": {\"lines\": %" PRIu64 ", \"rows\": %" PRIu64 ", \"duplicates\": %" PRIu64
                  ", \"late\": %" PRIu64 ", \"malformed\": %" PRIu64 "},\n",
                  name, counts->lines, counts->rows, counts->duplicates, counts->late, counts->malformed);
}

static void put_truth(struct writer *writer, struct byte_buffer *out)
{
    const struct ctr_write_options *options = writer->options;
    const struct ctr_scores *all = &writer->scores, *end = &writer->end_scores;
    buffer_printf(out,
                  "{\"generator\": \"ctr\", \"events\": %" PRIu64 ", \"seed\": %" PRIu64
                  ", \"gap_us\": %" PRId64 ",\n",
                  options->events, options->seed, ctr_world_gap_us(writer->world));
    buffer_printf(out, " \"first_ms\": %" PRId64 ", \"last_ms\": %" PRId64 ", \"late_ms\": %" PRId64 ",\n",
                  writer->first_ms, writer->last_ms, writer->plants.late_ms);
    put_counts(out, options->is_labelled ? "ctr.jsonl" : "impressions.jsonl", &writer->events.counts);
    if (!options->is_labelled) {
        put_counts(out, "clicks.jsonl", &writer->clicks.counts);
        buffer_printf(out, " \"clicks_within_30m\": %" PRIu64 ",\n", writer->clicks_within);
    }
    buffer_printf(out, " \"clicks\": %" PRIu64 ", \"ctr\": %.6f,\n", writer->end_truth->clicks, all->ctr);
    buffer_printf(out, " \"bayes_logloss\": %.6f, \"bayes_logloss_expected\": %.6f, \"bayes_auc\": %.5f,\n",
                  all->logloss, all->logloss_expected, all->auc);
    buffer_printf(out, " \"base_rate_logloss\": %.6f,\n", all->base_logloss);
    buffer_printf(out,
                  " \"last_fifth\": {\"ctr\": %.6f, \"bayes_logloss\": %.6f, \"bayes_auc\": %.5f, "
                  "\"base_rate_logloss\": %.6f}}\n",
                  end->ctr, end->logloss, end->auc, end->base_logloss);
}

static bool finish(struct writer *writer)
{
    if (!ctr_lines_finish(&writer->events) ||
        (!writer->options->is_labelled && !ctr_lines_finish(&writer->clicks)))
        return false;
    put_truth(writer, &writer->truth_file.out);
    return ctr_lines_finish(&writer->truth_file);
}

/* Sets which rows may be late. Returns false after a diagnostic if the stream is too short for late rows. */
static bool check_plants(struct writer *writer)
{
    const struct ctr_write_options *options = writer->options;
    struct ctr_plants *plants = &writer->plants;
    *plants =
        (struct ctr_plants){options->duplicates, options->late, options->malformed, options->late_ms, 0};
    if (plants->late == 0.0)
        return true;
    int64_t span_ms = (int64_t)options->events * ctr_gap_us(options->rate) / 1000;
    plants->late_before_ms = CTR_START_MS + span_ms - 2 * plants->late_ms;
    if (plants->late_before_ms > CTR_START_MS)
        return true;
    struct diag *diag =
        diag_error(writer->diags, DIAG_OPTIONS_CLASH, (struct span){0},
                   "the stream spans %" PRId64 " s: too short for rows that are %" PRId64 " s late",
                   span_ms / 1000, plants->late_ms / 1000);
    diag_hint(writer->diags, diag, "choose more --events, a lower --rate, or a smaller --late-by");
    return false;
}

static bool open_file(struct writer *writer, struct ctr_lines *lines, uint64_t purpose, const char *name)
{
    const struct ctr_write_options *options = writer->options;
    lines->plants = &writer->plants;
    lines->seed = options->seed;
    lines->purpose = purpose;
    return ctr_lines_open(lines, options->directory, name, options->is_forced, writer->diags);
}

static bool prepare(struct writer *writer)
{
    const struct ctr_write_options *options = writer->options;
    if (!check_plants(writer))
        return false;
    int error = os_mkdirs(options->directory);
    if (error != 0) {
        struct diag *diag = diag_error(writer->diags, DIAG_OUTPUT_FAILED, (struct span){0},
                                       "cannot create the directory %s", options->directory);
        diag_errno(writer->diags, diag, error);
        return false;
    }
    const char *name = options->is_labelled ? "ctr.jsonl" : "impressions.jsonl";
    bool is_open = open_file(writer, &writer->events, PURPOSE_PLANTED_IMPRESSIONS, name) &&
                   (options->is_labelled ||
                    open_file(writer, &writer->clicks, PURPOSE_PLANTED_CLICKS, "clicks.jsonl")) &&
                   open_file(writer, &writer->truth_file, PURPOSE_PLANTED_CLICKS, "truth.json");
    if (!is_open)
        return false;
    writer->world = ctr_world_new(options->seed, ctr_gap_us(options->rate));
    writer->maker = writer->world == NULL ? NULL : ctr_maker_new(writer->world);
    writer->truth = mem_calloc(1, sizeof(*writer->truth));
    writer->end_truth = mem_calloc(1, sizeof(*writer->end_truth));
    return writer->maker != NULL || no_memory(writer);
}

bool ctr_write(const struct ctr_write_options *options, struct diag_list *diags)
{
    leat_assert(options->events > 0 && options->late_ms > 0);
    struct writer writer = {.options = options, .diags = diags};
    bool is_written = prepare(&writer) && write_events(&writer) && finish(&writer);
    ctr_lines_close(&writer.events);
    ctr_lines_close(&writer.clicks);
    ctr_lines_close(&writer.truth_file);
    ctr_click_heap_free(&writer.heap);
    ctr_maker_free(writer.maker);
    ctr_world_free(writer.world);
    free(writer.truth);
    free(writer.end_truth);
    return is_written;
}
