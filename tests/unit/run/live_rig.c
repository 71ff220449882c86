#include "live_rig.h"

#include "cli/commands.h"
#include "later.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- Source `fake_source`: rows that the test gives --- */

struct fake_source fake_source = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct fake_source_source {
    int64_t unused;
};

static const struct option fake_source_options[] = {
    OPTION_INT(struct fake_source_source, unused, "unused", 0, "0", "0", "1", "nothing"),
    OPTIONS_END,
};

static bool fake_source_bind(struct source_bind *bind)
{
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, 2);
    schema_add(schema, STR("id"), type_of(TYPE_INT));
    schema_add(schema, STR("ts"), type_of(TYPE_TIME));
    bind->schema = schema;
    bind->is_live = bind->is_replayable = bind->has_arrival = true;
    return true;
}

static bool fake_source_open(struct source *source)
{
    source->partitions_count = fake_source.partitions;
    fake_source.wake = source->wake;
    fake_source.engine = source->engine;
    return true;
}

static const char *fake_source_partition_name(struct source *source, uint32_t partition)
{
    (void)source;
    static const char *const names[PARTITIONS] = {"fake_source/0", "fake_source/1", "fake_source/2",
                                                  "fake_source/3"};
    return names[fake_source.is_turned ? fake_source.partitions - 1 - partition : partition];
}

static bool fake_source_discover(struct source *source)
{
    pthread_mutex_lock(&fake_source.mutex);
    source->partitions_count = fake_source.partitions;
    pthread_mutex_unlock(&fake_source.mutex);
    return true;
}

static int64_t offset_of(uint32_t partition, uint32_t row)
{
    return fake_source.offsets[partition][row] + (row >= fake_source.gap ? 2 : 0);
}

/* The offset after the row before `row`. A test may set fake_source.read to any value before a seek. */
static int64_t behind(uint32_t partition, uint32_t row)
{
    row = MIN(row, fake_source.given[partition]);
    return row == 0 ? 0 : offset_of(partition, row - 1) + 1;
}

/* The rows of a batch: raw_batch.extra. */
struct fake_source_batch {
    uint32_t partition;
    struct fake_source_row rows[BATCH_ROWS];
};

static void fake_source_begin(struct source *source, uint32_t partition, struct source_position *position)
{
    (void)source, (void)partition;
    *position = (struct source_position){.b = fake_source.least[partition]};
}

static bool fake_source_seek(struct source *source, uint32_t partition,
                             const struct source_position *position)
{
    (void)source;
    uint32_t row = 0;
    if (position->b < fake_source.least[partition]) {
        diag_error(source->diags, DIAG_RECORDS_GONE, (struct span){0, 0},
                   "the fake_source begins behind offset %lld", (long long)position->b);
        return false;
    }
    while (row < fake_source.given[partition] && offset_of(partition, row) < position->b)
        row++;
    fake_source.read[partition] = row;
    fake_source.records[partition] = position->record;
    fake_source.share[partition] = batch_share_of(position);
    return true;
}

/* The number of rows of the batch that begins with the record; with is_random some are short, as
 * with long records. */
static uint32_t whole_batch(uint64_t record)
{
    struct test_random random = {record};
    bool is_short = fake_source.is_random && random_chance(&random, 50);
    return is_short ? 1 + random_below(&random, fake_source.batch_max) : fake_source.batch_max;
}

/* Puts the partition's next rows into `raw`. Returns READ_BATCH, or `status` if there are none. is_cut: where
 * batches end depends on the records alone, as in a recording. */
static enum read_status fill(uint32_t partition, enum read_status status, bool is_cut, struct raw_batch *raw)
{
    struct fake_source_batch *batch = arena_alloc(&raw->arena, sizeof(*batch));
    int64_t *offsets = arena_alloc(&raw->arena, BATCH_ROWS * sizeof(*offsets));
    uint32_t *read = &fake_source.read[partition], max = fake_source.batch_max;
    struct batch_share *share = &fake_source.share[partition];
    if (is_cut)
        max = whole_batch(fake_source.records[partition] - share->records) - share->records;
    else if (fake_source.is_random)
        max = 1 + (uint32_t)random_below(&fake_source.random, max);
    int64_t first = behind(partition, *read);
    raw->count = 0;
    for (; *read < fake_source.given[partition] && raw->count < max; ++*read) {
        if (fake_source.is_gone[partition][*read])
            continue;
        offsets[raw->count] = offset_of(partition, *read);
        batch->rows[raw->count++] = fake_source.rows[partition][*read];
    }
    raw->next.b = MAX(behind(partition, *read), fake_source.ends[partition]);
    if (raw->count == 0) {
        fake_source.asked[partition]++;
        return status;
    }
    batch->partition = partition;
    raw->position = (struct source_position){
        .a = batch_share_put(*share), .b = first, .record = fake_source.records[partition]};
    raw->next.b = offsets[raw->count - 1] + 1;
    raw->next.record = fake_source.records[partition] += raw->count;
    share->records = is_cut && raw->count < max ? share->records + raw->count : 0;
    raw->next.a = batch_share_put(*share);
    raw->records = NULL;
    raw->path = "fake_source";
    raw->first_line = raw->first_offset = -1;
    raw->extra = batch;
    raw->offsets = offsets;
    return READ_BATCH;
}

static enum read_status fake_source_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    (void)source;
    pthread_mutex_lock(&fake_source.mutex);
    enum read_status status = fake_source.has_ended            ? READ_END
                              : fake_source.is_late[partition] ? READ_LATER
                                                               : READ_QUIET;
    status = fill(partition, status, false, raw);
    pthread_mutex_unlock(&fake_source.mutex);
    return status;
}

static void fake_source_decode(struct source *source, void *decoder, struct raw_batch *raw,
                               struct decode_output *output)
{
    (void)source, (void)decoder;
    struct batch *batch = output->batch;
    const struct fake_source_batch *from = raw->extra;
    const struct fake_source_row *rows = from->rows;
    batch->arrival_time = arena_alloc(&batch->arena, raw->count * sizeof(int64_t));
    for (uint32_t i = 0; i < raw->count; i++) {
        batch->columns[0].ints[i] = rows[i].id;
        batch->arrival_time[i] = rows[i].arrival_us;
        batch->columns[1].ints[i] = rows[i].arrival_us - fake_source.delay[from->partition] - rows[i].late_us;
    }
}

static const struct source_kind source_fake = {.name = "fake_source",
                                               .options = fake_source_options,
                                               .size = sizeof(struct fake_source_source),
                                               .has_offsets = true,
                                               .bind = fake_source_bind,
                                               .open = fake_source_open,
                                               .partition_name = fake_source_partition_name,
                                               .discover = fake_source_discover,
                                               .begin = fake_source_begin,
                                               .seek = fake_source_seek,
                                               .read = fake_source_read,
                                               .decode = fake_source_decode};

/* --- Source `fake_recording`: a recording of all rows that were given --- */

void forget_reading(void)
{
    memset(fake_source.read, 0, sizeof(fake_source.read));
    memset(fake_source.records, 0, sizeof(fake_source.records));
    memset(fake_source.share, 0, sizeof(fake_source.share));
}

static bool fake_recording_bind(struct source_bind *bind)
{
    fake_source_bind(bind);
    bind->is_live = false;
    bind->is_bounded = true;
    return true;
}

static bool fake_recording_open(struct source *source)
{
    forget_reading();
    return fake_source_open(source);
}

static bool fake_recording_discover(struct source *source)
{
    (void)source;
    return true;
}

static bool fake_recording_seek(struct source *source, uint32_t partition,
                                const struct source_position *position)
{
    if (position->b < 2 * fake_source.missing) {
        diag_error(source->diags, DIAG_RECORDS_GONE, (struct span){0, 0},
                   "the fake_recording begins behind offset %lld", (long long)position->b);
        return false;
    }
    return fake_source_seek(source, partition, position);
}

static enum read_status fake_recording_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    (void)source;
    return fill(partition, READ_END, true, raw);
}

static const struct source_kind source_fake_recorded = {.name = "fake_recording",
                                                        .options = fake_source_options,
                                                        .size = sizeof(struct fake_source_source),
                                                        .has_offsets = true,
                                                        .bind = fake_recording_bind,
                                                        .open = fake_recording_open,
                                                        .partition_name = fake_source_partition_name,
                                                        .discover = fake_recording_discover,
                                                        .begin = fake_source_begin,
                                                        .seek = fake_recording_seek,
                                                        .read = fake_recording_read,
                                                        .decode = fake_source_decode};

void give(uint32_t partition, int64_t id, int64_t arrival_us)
{
    pthread_mutex_lock(&fake_source.mutex);
    fake_source.rows[partition][fake_source.given[partition]++] = (struct fake_source_row){id, arrival_us, 0};
    fake_source.is_late[partition] = false;
    pthread_mutex_unlock(&fake_source.mutex);
    fake_source.wake(fake_source.engine);
}

void end_fake_source(void)
{
    pthread_mutex_lock(&fake_source.mutex);
    fake_source.has_ended = true;
    pthread_mutex_unlock(&fake_source.mutex);
    fake_source.wake(fake_source.engine);
}

static uint32_t times_asked(uint32_t partition)
{
    pthread_mutex_lock(&fake_source.mutex);
    uint32_t times = fake_source.asked[partition];
    pthread_mutex_unlock(&fake_source.mutex);
    return times;
}

void wait_until_asked(uint32_t partition, uint32_t times)
{
    uint32_t until = times_asked(partition) + times;
    for (int64_t since = 0; times_asked(partition) < until; wait_more(&since))
        fake_source.wake(fake_source.engine);
}

void wait_until_read(void)
{
    bool are_read = false;
    for (int64_t since = 0; !are_read; wait_more(&since)) {
        pthread_mutex_lock(&fake_source.mutex);
        are_read = memcmp(fake_source.read, fake_source.given, sizeof(fake_source.read)) == 0;
        pthread_mutex_unlock(&fake_source.mutex);
    }
}

void lull(int64_t microseconds)
{
    usleep((useconds_t)microseconds);
}

/* --- Sink `fake_sink`: keeps rows in the order in which they come --- */

struct fake_sink fake_sink = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool fake_sink_open(struct sink_context *context)
{
    fake_sink.context = context;
    context->sends_checkpoints = fake_sink.sends_checkpoints;
    return true;
}

static bool fake_sink_write(struct sink_context *context, const struct batch *batch)
{
    (void)context;
    pthread_mutex_lock(&fake_sink.mutex);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        leat_assert(fake_sink.count < ARRAY_COUNT(fake_sink.ids));
        fake_sink.ids[fake_sink.count++] = batch->columns[0].ints[row];
        for (uint32_t k = 0; k < batch->schema->count; k++)
            fake_sink.hash = (fake_sink.hash ^ (uint64_t)batch->columns[k].ints[row]) * 0x9E3779B97F4A7C15u;
    }
    pthread_mutex_unlock(&fake_sink.mutex);
    return true;
}

static bool fake_sink_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    (void)context;
    pthread_mutex_lock(&fake_sink.mutex);
    fake_sink.snapshots = fake_sink.count;
    pthread_mutex_unlock(&fake_sink.mutex);
    return snapshot_put(writer, SNAPSHOT_GLOBAL, "fake_sink", 3);
}

static bool fake_sink_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    (void)context;
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        assert_int_equal(record.length, 3);
    return true;
}

static bool fake_sink_committed(struct sink_context *context, uint64_t epoch, struct str order)
{
    (void)context;
    assert_true(order.length > 0);
    pthread_mutex_lock(&fake_sink.mutex);
    fake_sink.committed = epoch;
    fake_sink.committed_rows = fake_sink.rows_at[epoch % CUP_EPOCHS] = fake_sink.snapshots;
    pthread_mutex_unlock(&fake_sink.mutex);
    return true;
}

static const struct sink_kind sink_fake = {.name = "fake_sink",
                                           .options = fake_source_options,
                                           .size = sizeof(struct fake_source_source),
                                           .open = fake_sink_open,
                                           .write = fake_sink_write,
                                           .snapshot = fake_sink_snapshot,
                                           .restore = fake_sink_restore,
                                           .committed = fake_sink_committed};

uint32_t fake_sink_count(const uint32_t *counter)
{
    pthread_mutex_lock(&fake_sink.mutex);
    uint32_t count = *counter;
    pthread_mutex_unlock(&fake_sink.mutex);
    return count;
}

void wait_for(const uint32_t *counter, uint32_t count)
{
    for (int64_t since = 0; fake_sink_count(counter) < count; wait_more(&since)) {
    }
    assert_int_equal(fake_sink_count(counter), count);
}

/* --- Runs --- */

enum { OPERATORS_MAX = 128 };

/* The built-in operators, and those of this file. */
static const struct operator_kind *const *operators(void)
{
    static const struct operator_kind *list[OPERATORS_MAX];
    uint32_t count = 0;
    for (; builtin_registry.operators[count] != NULL; count++) {
        assert_true(count < OPERATORS_MAX - 5);
        list[count] = builtin_registry.operators[count];
    }
    list[count++] = &operator_lamp;
    list[count++] = &operator_watermarks;
    list[count++] = &operator_scale;
    list[count] = &operator_later;
    return list;
}

static const struct source_kind *const sources[] = {&source_fake, &source_fake_recorded, NULL};
static const struct sink_kind *const sinks[] = {&sink_fake, NULL};

void reset_fake_sink(void)
{
    forget_reading();
    lamp.count = lamp.micro_batches = lamp.ended = 0;
    fake_sink.count = fake_sink.committed_rows = fake_sink.snapshots = 0;
    fake_sink.committed = fake_sink.hash = 0;
    fake_sink.sends_checkpoints = false;
}

void reset(uint32_t partitions)
{
    memset(fake_source.given, 0, sizeof(fake_source.given));
    memset(fake_source.delay, 0, sizeof(fake_source.delay));
    memset(fake_source.is_late, 0, sizeof(fake_source.is_late));
    memset(fake_source.is_gone, 0, sizeof(fake_source.is_gone));
    memset(fake_source.ends, 0, sizeof(fake_source.ends));
    memset(fake_source.least, 0, sizeof(fake_source.least));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        for (uint32_t row = 0; row < ROWS_MAX; row++)
            fake_source.offsets[p][row] = 2 * row;
    fake_source.is_random = false;
    fake_source.partitions = partitions;
    fake_source.batch_max = BATCH_ROWS;
    fake_source.missing = 0;
    fake_source.gap = UINT32_MAX;
    fake_source.has_ended = fake_source.is_turned = false;
    reset_fake_sink();
}

/* Makes a run of the job; ->run: NULL if it could not be made, with diagnostics. */
static struct live *make(const char *text, const struct run_options *options)
{
    static struct registry registry;
    registry = builtin_registry;
    registry.sources = sources;
    registry.sinks = sinks;
    registry.operators = operators();
    struct live *live = calloc(1, sizeof(*live));
    assert_non_null(live);
    diag_list_init(&live->diags, &live->arena);
    struct job_file *job = lang_parse(&live->arena, &live->diags, &registry, str_from(text));
    struct plan_options plan_options = {.registry = &registry};
    bool is_good = lang_expand(job, &live->arena, &live->diags, NULL);
    struct plan *plan = is_good ? plan_make(job, &plan_options, &live->arena, &live->diags) : NULL;
    live->run = plan != NULL ? run_new(plan, options, &live->diags) : NULL;
    return live;
}

static void fail_by_diags(struct live *live, const char *text)
{
    struct diag_source source = {"job", str_from(text)};
    diag_print(stderr, &live->diags, &source, false);
    fail();
}

struct live *prepare(const char *text, const struct run_options *options)
{
    struct live *live = make(text, options);
    if (live->run == NULL)
        fail_by_diags(live, text);
    return live;
}

struct live *begin(const char *text, const struct run_options *options)
{
    struct live *live = prepare(text, options);
    assert_true(run_start(live->run));
    return live;
}

struct live *begin_stopped(const char *text, const struct run_options *options)
{
    struct live *live = make(text, options);
    if (live->run == NULL)
        fail_by_diags(live, text);
    run_stop(live->run);
    assert_true(run_start(live->run));
    return live;
}

static void free_live(struct live *live)
{
    run_free(live->run);
    arena_free(&live->arena);
    free(live);
}

void end(struct live *live)
{
    if (!run_wait(live->run))
        fail_by_diags(live, "");
    free_live(live);
}

static void assert_says(struct live *live, const char *const *says)
{
    assert_true(live->diags.errors > 0);
    const struct diag *d = &live->diags.items[0];
    while (d->severity != DIAG_ERROR)
        d++;
    for (; *says != NULL; says++)
        if (strstr(d->message, *says) == NULL && (d->hint == NULL || strstr(d->hint, *says) == NULL))
            fail_msg("no `%s` in: %s", *says, d->message);
    free_live(live);
}

void begin_refused(const char *text, const struct run_options *options, const char *const *says)
{
    struct live *live = make(text, options);
    assert_null(live->run);
    assert_says(live, says);
}

void end_failed(struct live *live, const char *const *says)
{
    assert_false(run_wait(live->run));
    assert_says(live, says);
}

struct run_options on(uint32_t lanes)
{
    return (struct run_options){.lanes = lanes, .until_us = TIME_MAX};
}

void assert_order(const int64_t *ids, uint32_t count)
{
    assert_int_equal(fake_sink.count, count);
    for (uint32_t i = 0; i < count; i++)
        if (fake_sink.ids[i] != ids[i])
            fail_msg("row %u is %lld, not %lld", i, (long long)fake_sink.ids[i], (long long)ids[i]);
}

void new_directory(char path[64])
{
    strcpy(path, "/tmp/test_live-XXXXXX");
    assert_non_null(mkdtemp(path));
}

void new_path(char path[64])
{
    new_directory(path);
    rmdir(path);
}
