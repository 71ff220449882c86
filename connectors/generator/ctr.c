/* Source `ctr`: a click stream with known click probabilities, generated as it is read. */
#include "connectors/generator/ctr_clicks.h"
#include "core/connector.h"
#include "core/operator.h"
#include "core/refused.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

enum { STREAM_IMPRESSIONS, STREAM_CLICKS, STREAM_LABELLED };

#define NO_MEMORY_FOR_CLICKS "no memory for the clicks of an hour: lower the rate"

/* Each row has its text at a fixed offset in a column's heap. */
enum { TEXT_BYTES = 8 };

struct ctr_decoder {
    struct ctr *ctr;
    struct ctr_maker *maker;
    pthread_mutex_t lock; /* guards `truth`, which the report reads while lanes decode */
    struct ctr_truth truth;
    struct ctr_decoder *next;
};

struct ctr {
    int64_t events, seed;
    double rate;
    int stream;

    struct ctr_world *world;
    pthread_mutex_t lock; /* guards `clicks`, the list of decoders, and `past` */
    bool has_lock;
    uint64_t read; /* records returned so far */
    struct ctr_clicks *clicks;
    struct ctr_decoder *decoders;
    struct ctr_truth *past; /* sum of the decoders that are freed */
};

static const struct option ctr_options[] = {
    OPTION_INT(struct ctr, events, "events", 0, "1000000", "1", "1000000000000", "number of impressions"),
    OPTION_INT(struct ctr, seed, "seed", 0, "7", "0", "9223372036854775807",
               "seed of the random numbers; another seed gives other users, items and weights"),
    OPTION_ENUM(struct ctr, stream, "stream", 0, "labelled", "impressions|clicks|labelled",
                "impressions alone, the clicks on them, or impressions with a column `clicked`"),
    OPTION_FLOAT(
        struct ctr, rate, "rate", 0, CTR_RATE_TEXT, "0.001", "100000",
        "impressions per second of event time; at the default rate a million impressions span seven days"),
    OPTIONS_END,
};

static const struct schema *make_schema(struct arena *arena, int stream)
{
    const struct schema empty = {0};
    struct schema *schema = schema_copy(arena, &empty, CTR_FIELDS + CTR_DENSE + 2);
    if (stream != STREAM_LABELLED)
        schema_add(schema, STR("imp_id"), type_of(TYPE_INT));
    schema_add(schema, STR("ts"), (struct type){.tag = TYPE_TIME, .unit = TIME_UNIT_MS});
    uint32_t fields =
        stream == STREAM_CLICKS ? CTR_ITEM + 1 : CTR_FIELDS; /* a click has only the fields user and item */
    for (uint32_t f = 0; f < fields; f++)
        schema_add(schema, str_from(ctr_fields[f].name),
                   type_of(ctr_fields[f].prefix ? TYPE_TEXT : TYPE_INT));
    for (uint32_t d = 0; d < CTR_DENSE && stream != STREAM_CLICKS; d++)
        schema_add(schema, str_from(ctr_dense_names[d]), type_of(TYPE_FLOAT));
    if (stream == STREAM_LABELLED)
        schema_add(schema, STR("clicked"), type_of(TYPE_INT));
    return schema;
}

static bool ctr_bind(struct source_bind *bind)
{
    struct ctr *ctr = bind->config;
    bind->schema = make_schema(bind->arena, ctr->stream);
    bind->is_bounded = true;
    bind->is_replayable = true;
    if (bind->declared != NULL) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span, "source `ctr` defines its own columns");
        diag_hint(bind->diags, diag, "leave `schema:` out; `leat explain` shows the columns");
        return false;
    }
    if (ctr->events > CTR_SPAN_MAX_US / ctr_gap_us(ctr->rate)) {
        struct diag *diag =
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                       "%" PRId64 " events at this rate span more than 100 years", ctr->events);
        diag_hint(bind->diags, diag, "choose fewer `events`, or a higher `rate`");
        return false;
    }
    return true;
}

static bool ctr_open(struct source *source)
{
    struct ctr *ctr = source->config;
    source->partitions_count = 1;
    ctr->has_lock = pthread_mutex_init(&ctr->lock, NULL) == 0;
    ctr->world = ctr_world_new((uint64_t)ctr->seed, ctr_gap_us(ctr->rate));
    ctr->past = refused_ask_zeroed(1, sizeof(*ctr->past));
    bool is_open = ctr->has_lock && ctr->world != NULL && ctr->past != NULL;
    if (is_open && ctr->stream == STREAM_CLICKS) {
        ctr->clicks = refused_ask_zeroed(1, sizeof(*ctr->clicks));
        is_open = ctr->clicks != NULL && ctr_clicks_open(ctr->clicks, ctr->world, (uint64_t)ctr->events);
    }
    if (!is_open)
        diag_error(source->diags, DIAG_STATE_TOO_LARGE, (struct span){0},
                   "no memory for the generator's world (60 MB)");
    return is_open;
}

static const char *ctr_partition_name(struct source *source, uint32_t partition)
{
    (void)source, (void)partition;
    return "ctr";
}

static bool ctr_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    struct ctr *ctr = source->config;
    (void)partition;
    bool is_there = position->a >= 0 && position->a <= ctr->events && position->b >= 0;
    if (is_there && ctr->clicks != NULL) {
        pthread_mutex_lock(&ctr->lock);
        is_there = ctr_clicks_seek(ctr->clicks, (uint64_t)position->a, (uint64_t)position->b);
        pthread_mutex_unlock(&ctr->lock);
    } else if (is_there) {
        is_there = (uint64_t)position->a == position->record;
    }
    ctr->read = position->record;
    if (ctr->clicks != NULL && ctr->clicks->is_out_of_memory)
        diag_error(source->diags, DIAG_STATE_TOO_LARGE, (struct span){0}, NO_MEMORY_FOR_CLICKS);
    else if (!is_there)
        diag_error(source->diags, DIAG_FILE_CHANGED, (struct span){0},
                   "the generator was never at impression %" PRId64
                   ": its `events`, `seed` or `rate` have changed since the checkpoint",
                   position->a);
    return is_there;
}

/* Generates a batch of clicks, in order; decode copies them into columns. */
static uint32_t read_clicks(struct ctr *ctr, struct raw_batch *raw)
{
    struct ctr_click *clicks = arena_array(&raw->arena, struct ctr_click, BATCH_ROWS);
    uint32_t count = 0;
    pthread_mutex_lock(&ctr->lock);
    raw->position = (struct source_position){
        .a = (int64_t)ctr->clicks->next, .b = (int64_t)ctr->clicks->last, .record = ctr->read};
    while (count < BATCH_ROWS && ctr_clicks_next(ctr->clicks, &clicks[count]))
        count++;
    pthread_mutex_unlock(&ctr->lock);
    raw->extra = clicks;
    return count;
}

static enum read_status ctr_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    struct ctr *ctr = source->config;
    (void)partition;
    raw->path = "ctr";
    raw->first_line = raw->first_offset = -1;
    raw->data = arena_calloc(&raw->arena, 1, RAW_PADDING);
    raw->data_bytes = 0;
    raw->extra = NULL;
    if (ctr->clicks != NULL) {
        raw->count = read_clicks(ctr, raw);
        if (ctr->clicks->is_out_of_memory) {
            diag_error(source->diags, DIAG_STATE_TOO_LARGE, (struct span){0}, NO_MEMORY_FOR_CLICKS);
            return READ_ERROR;
        }
    } else {
        raw->count = (uint32_t)MIN((uint64_t)BATCH_ROWS, (uint64_t)ctr->events - ctr->read);
        raw->position = (struct source_position){.a = (int64_t)ctr->read, .record = ctr->read};
    }
    raw->records = arena_array(&raw->arena, struct raw_record, raw->count);
    ctr->read += raw->count;
    return raw->count == 0 ? READ_END : READ_BATCH;
}

static void *ctr_decoder_new(struct source *source)
{
    struct ctr *ctr = source->config;
    struct ctr_decoder *decoder = refused_ask_zeroed(1, sizeof(*decoder));
    if (decoder == NULL || (decoder->maker = ctr_maker_new(ctr->world)) == NULL) {
        free(decoder);
        return NULL;
    }
    decoder->ctr = ctr;
    pthread_mutex_init(&decoder->lock, NULL);
    pthread_mutex_lock(&ctr->lock);
    decoder->next = ctr->decoders;
    ctr->decoders = decoder;
    pthread_mutex_unlock(&ctr->lock);
    return decoder;
}

static void ctr_decoder_free(void *pointer)
{
    struct ctr_decoder *decoder = pointer;
    if (decoder == NULL)
        return;
    struct ctr *ctr = decoder->ctr;
    pthread_mutex_lock(&ctr->lock);
    ctr_truth_merge(ctr->past, &decoder->truth);
    struct ctr_decoder **link = &ctr->decoders;
    while (*link != decoder)
        link = &(*link)->next;
    *link = decoder->next;
    pthread_mutex_unlock(&ctr->lock);
    pthread_mutex_destroy(&decoder->lock);
    ctr_maker_free(decoder->maker);
    free(decoder);
}

static void decode_clicks(const struct raw_batch *raw, struct batch *batch)
{
    const struct ctr_click *clicks = raw->extra;
    for (uint32_t i = 0; i < raw->count; i++) {
        batch->columns[0].ints[i] = (int64_t)clicks[i].imp_id;
        batch->columns[1].ints[i] = clicks[i].ts_ms * 1000;
        batch->columns[2].ints[i] = clicks[i].user;
        batch->columns[3].ints[i] = clicks[i].item;
    }
}

/* Writes prefix and id, "a39", at `to`. Returns its length. */
static uint32_t write_id(char *to, char prefix, uint32_t id)
{
    char digits[10];
    uint32_t count = 0, length = 0;
    do {
        digits[count++] = (char)('0' + id % 10);
        id /= 10;
    } while (id != 0);
    to[length++] = prefix;
    while (count > 0)
        to[length++] = digits[--count];
    return length;
}

static void put_event(struct batch *batch, const struct ctr_event *event, int stream, char *const *heaps,
                      uint32_t row)
{
    struct column *column = batch->columns;
    if (stream != STREAM_LABELLED)
        (column++)->ints[row] = (int64_t)event->imp_id;
    (column++)->ints[row] = event->ts_ms * 1000;
    for (uint32_t f = 0; f < CTR_FIELDS; f++, column++) {
        if (heaps[f] == NULL) {
            column->ints[row] = event->field[f];
            continue;
        }
        uint32_t offset = row * TEXT_BYTES;
        uint32_t length = write_id(heaps[f] + offset, ctr_fields[f].prefix, event->field[f]);
        column->texts[row] = (struct text_ref){offset, length};
    }
    for (uint32_t d = 0; d < CTR_DENSE; d++)
        (column++)->floats[row] = event->dense[d] / 1000.0;
    if (stream == STREAM_LABELLED)
        column->ints[row] = event->is_clicked;
}

static void ctr_decode(struct source *source, void *pointer, struct raw_batch *raw,
                       struct decode_output *output)
{
    struct ctr *ctr = source->config;
    struct ctr_decoder *decoder = pointer;
    struct batch *batch = output->batch;
    output->bad_count = 0;
    if (ctr->stream == STREAM_CLICKS) {
        decode_clicks(raw, batch);
        return;
    }
    char *heaps[CTR_FIELDS] = {NULL};
    uint32_t first_field = ctr->stream == STREAM_LABELLED ? 1 : 2;
    for (uint32_t f = 0; f < CTR_FIELDS; f++) {
        if (ctr_fields[f].prefix != 0)
            batch->columns[first_field + f].heap = heaps[f] =
                arena_alloc(&batch->arena, raw->count * TEXT_BYTES);
    }
    struct ctr_event event;
    pthread_mutex_lock(&decoder->lock);
    for (uint32_t row = 0; row < raw->count; row++) {
        uint64_t number = (uint64_t)raw->position.a + row;
        if (ctr->stream == STREAM_LABELLED)
            ctr_make(decoder->maker, number, &event, &decoder->truth);
        else
            ctr_make_impression(decoder->maker, number, &event);
        put_event(batch, &event, ctr->stream, heaps, row);
    }
    pthread_mutex_unlock(&decoder->lock);
}

static void ctr_progress(struct source *source, struct source_progress *progress)
{
    struct ctr *ctr = source->config;
    progress->bytes_total = progress->bytes_done = -1;
    progress->records_total = ctr->stream == STREAM_CLICKS ? -1 : ctr->events;
}

static void ctr_report(struct source *source, struct report *report)
{
    struct ctr *ctr = source->config;
    struct ctr_truth *sum = refused_ask_zeroed(1, sizeof(*sum));
    if (sum == NULL || ctr->stream == STREAM_IMPRESSIONS) {
        free(sum);
        return;
    }
    pthread_mutex_lock(&ctr->lock);
    ctr_truth_merge(sum, ctr->clicks != NULL ? &ctr->clicks->truth : ctr->past);
    for (struct ctr_decoder *decoder = ctr->decoders; decoder != NULL; decoder = decoder->next) {
        pthread_mutex_lock(&decoder->lock);
        ctr_truth_merge(sum, &decoder->truth);
        pthread_mutex_unlock(&decoder->lock);
    }
    pthread_mutex_unlock(&ctr->lock);
    struct ctr_scores scores = ctr_truth_scores(sum);
    free(sum);
    report_add(report, "bayes_logloss", scores.logloss, false);
    report_add(report, "bayes_auc", scores.auc, false);
    report_add(report, "base_logloss", scores.base_logloss, false);
}

static void ctr_close(struct source *source)
{
    struct ctr *ctr = source->config;
    if (ctr->clicks != NULL)
        ctr_clicks_close(ctr->clicks);
    free(ctr->clicks);
    free(ctr->past);
    ctr_world_free(ctr->world);
    if (ctr->has_lock)
        pthread_mutex_destroy(&ctr->lock);
    ctr->clicks = NULL;
    ctr->past = NULL;
    ctr->world = NULL;
    ctr->has_lock = false;
}

const struct source_kind source_ctr = {
    .name = "ctr",
    .summary = "a generated click stream whose true click probabilities are known",
    .example = "source imps = ctr { events: 1000, seed: 7, stream: impressions, event_time: ts }",
    .details =
        "Users, items and sites follow Zipf's law; a hidden factorization model over twelve fields and four "
        "numbers decides who clicks, and its weights drift. The same seed gives the same records on any "
        "machine. `impressions` and `clicks` of one seed belong together: a click names its impression and "
        "comes up to an hour later, most within minutes. `clicks` and `labelled` report the logloss of a "
        "model that knew each probability (bayes_logloss), over the records that this process generated.",
    .options = ctr_options,
    .size = sizeof(struct ctr),
    .bind = ctr_bind,
    .open = ctr_open,
    .partition_name = ctr_partition_name,
    .seek = ctr_seek,
    .read = ctr_read,
    .decode = ctr_decode,
    .decoder_new = ctr_decoder_new,
    .decoder_free = ctr_decoder_free,
    .progress = ctr_progress,
    .report = ctr_report,
    .close = ctr_close,
};
