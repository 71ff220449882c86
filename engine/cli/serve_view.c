#include "cli/serve_view.h"

#include "control/summary.h"
#include "core/mem.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_LEAST = 20, WIDTH_USUAL = 100, NAME_WIDTH = 16 };

/* --- What a model did --- */

void serve_past_free(struct serve_past *past)
{
    free(past->figures);
    *past = (struct serve_past){0};
}

void serve_plain_text(struct str text, char *out, size_t bytes)
{
    size_t length = MIN(text.length, bytes - 1);
    for (size_t i = 0; i < length; i++)
        out[i] = text.data[i] < ' ' || text.data[i] > '~' ? '?' : text.data[i];
    out[length] = '\0';
}

/* Requests of the phase since `before`. */
static struct histogram since(const struct histogram *now, const struct histogram *before)
{
    struct histogram new = {.count = now->count - before->count};
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        new.counts[i] = now->counts[i] - before->counts[i];
    return new;
}

static void take_moment(const struct server_status *model, const struct figures *before,
                        struct serve_moment *moment)
{
    const struct figures *now = model->figures;
    const char *doing = model->reason != NULL ? model->reason : model->doing;
    serve_plain_text(model->name, moment->name, sizeof(moment->name));
    serve_plain_text(doing == NULL ? (struct str){"", 0} : str_from(doing), moment->doing,
                     sizeof(moment->doing));
    moment->requests = now->requests - before->requests;
    moment->rows = now->rows_answered - before->rows_answered;
    for (uint32_t i = 0; i < OUTCOMES; i++) {
        moment->outcomes[i] = now->outcomes[i] - before->outcomes[i];
        moment->totals[i] = now->outcomes[i];
    }
    for (uint32_t i = 0; i < PHASES; i++) {
        struct histogram phase = since(&now->phases[i], &before->phases[i]);
        moment->p99_ms[i] = histogram_quantile(&phase, 0.99) / 1e6;
        if (i == PHASE_ALL)
            moment->p50_ms = histogram_quantile(&phase, 0.5) / 1e6;
    }
    moment->waiting_rows = model->waiting_rows;
    moment->staleness_ms = model->staleness_ms;
}

void serve_moments(struct serve_past *past, const struct server_status *models, uint32_t count,
                   int64_t now_us, struct serve_moment *moments)
{
    if (past->figures == NULL) {
        past->figures = mem_calloc(MAX(count, 1), sizeof(*past->figures));
        past->count = count;
    }
    leat_assert(count == past->count);
    double seconds = past->at_us == 0 ? 1.0 : (double)MAX(now_us - past->at_us, 1) / 1e6;
    past->at_us = now_us;
    for (uint32_t i = 0; i < count; i++) {
        moments[i] = (struct serve_moment){.seconds = seconds};
        take_moment(&models[i], &past->figures[i], &moments[i]);
        past->figures[i] = *models[i].figures;
    }
}

/* --- A line --- */

static void add_times(const struct serve_moment *moment, bool is_whole, struct byte_buffer *out)
{
    uint32_t slowest = 0;
    if (moment->p50_ms <= 0.0)
        return;
    buffer_printf(out, "  p50 %.2f ms  p99 %.2f (", moment->p50_ms, moment->p99_ms[PHASE_ALL]);
    for (uint32_t i = 0; i < PHASE_ALL; i++) {
        if (is_whole)
            buffer_printf(out, "%s%s %.2f", i == 0 ? "" : ", ", phase_name((enum phase)i), moment->p99_ms[i]);
        if (moment->p99_ms[i] > moment->p99_ms[slowest])
            slowest = i;
    }
    if (!is_whole)
        buffer_printf(out, "%s %.2f", phase_name((enum phase)slowest), moment->p99_ms[slowest]);
    buffer_printf(out, ")");
}

static void add_line(const struct serve_moment *moment, unsigned name_width, bool is_whole,
                     struct byte_buffer *out)
{
    char rate[32], rows[32];
    buffer_printf(out, "%-*s", (int)(is_whole ? name_width : 0), moment->name);
    if (moment->doing[0] != '\0')
        buffer_printf(out, "  %s", moment->doing);
    buffer_printf(out, "  %s%s", is_whole ? "requests " : "",
                  format_rate((double)moment->requests / moment->seconds, rate));
    if (is_whole)
        buffer_printf(out, "  rows %s", format_rate((double)moment->rows / moment->seconds, rows));
    add_times(moment, is_whole, out);
    for (uint32_t i = OUTCOME_FILTERED; i < OUTCOMES; i++)
        if (moment->outcomes[i] > 0)
            buffer_printf(out, "  %s %" PRIu64, outcome_name((enum outcome)i), moment->outcomes[i]);
    if (moment->waiting_rows > 0)
        buffer_printf(out, "  waiting rows %" PRIu64, moment->waiting_rows);
    if (moment->staleness_ms >= 0)
        buffer_printf(out, "  %.*f s old", moment->staleness_ms < 10000 ? 2 : 0,
                      (double)moment->staleness_ms / 1e3);
}

void serve_moment_line(const struct serve_moment *moment, unsigned name_width, unsigned width,
                       struct byte_buffer *out)
{
    size_t begin = out->length;
    add_line(moment, name_width, true, out);
    if (out->length - begin > width) {
        out->length = begin;
        add_line(moment, name_width, false, out);
    }
    out->length = MIN(out->length, begin + width);
}

/* --- The picture --- */

struct serve_view {
    FILE *file;
    struct serve_past past;
    struct serve_moment *moments;
    atomic_uint lines; /* of the last picture, over which the next one is drawn */
    struct byte_buffer out;
};

struct serve_view *serve_view_new(FILE *file)
{
    if (!isatty(fileno(file)))
        return NULL;
    struct serve_view *view = mem_calloc(1, sizeof(*view));
    view->file = file;
    return view;
}

void serve_view_free(struct serve_view *view)
{
    if (view == NULL)
        return;
    buffer_free(&view->out);
    serve_past_free(&view->past);
    free(view->moments);
    free(view);
}

void serve_view_leave(struct serve_view *view)
{
    if (view != NULL)
        atomic_store(&view->lines, 0);
}

static unsigned terminal_width(FILE *file)
{
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col >= WIDTH_LEAST)
        return size.ws_col;
    return WIDTH_USUAL;
}

void serve_view_draw(struct serve_view *view, const struct server_status *models, uint32_t count,
                     int64_t now_us)
{
    if (view->moments == NULL)
        view->moments = mem_calloc(MAX(count, 1), sizeof(*view->moments));
    serve_moments(&view->past, models, count, now_us, view->moments);
    unsigned width = terminal_width(view->file), lines = atomic_load(&view->lines);
    buffer_clear(&view->out);
    if (lines > 0)
        buffer_printf(&view->out, "\x1b[%uA\r", lines);
    for (uint32_t i = 0; i < count; i++) {
        serve_moment_line(&view->moments[i], NAME_WIDTH, width - 1, &view->out);
        buffer_printf(&view->out, "\x1b[K\n");
    }
    atomic_store(&view->lines, count);
    fwrite(view->out.data, 1, view->out.length, view->file);
    fflush(view->file);
}
