#include "live_rig.h"

#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- Source `drip`: rows that the test gives --- */

struct drip drip = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct drip_source {
    int64_t unused;
};

static const struct option drip_options[] = {
    OPTION_INT(struct drip_source, unused, "unused", 0, "0", "0", "1", "nothing"),
    OPTIONS_END,
};

static bool drip_bind(struct source_bind *bind)
{
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, 2);
    schema_add(schema, STR("id"), type_of(TYPE_INT));
    schema_add(schema, STR("ts"), type_of(TYPE_TIME));
    bind->schema = schema;
    bind->is_live = bind->is_replayable = bind->has_arrival = true;
    return true;
}

static bool drip_open(struct source *source)
{
    source->partitions_count = drip.partitions;
    drip.wake = source->wake;
    drip.engine = source->engine;
    return true;
}

static const char *drip_partition_name(struct source *source, uint32_t partition)
{
    (void)source;
    static const char *const names[PARTITIONS] = {"drip/0", "drip/1", "drip/2", "drip/3"};
    return names[drip.is_turned ? drip.partitions - 1 - partition : partition];
}

static bool drip_discover(struct source *source)
{
    pthread_mutex_lock(&drip.mutex);
    source->partitions_count = drip.partitions;
    pthread_mutex_unlock(&drip.mutex);
    return true;
}

static int64_t offset_of(uint32_t partition, uint32_t row)
{
    return drip.offsets[partition][row] + (row >= drip.gap ? 2 : 0);
}

/* The offset after the row before `row`. A test may set drip.read to any value before a seek. */
static int64_t behind(uint32_t partition, uint32_t row)
{
    row = MIN(row, drip.given[partition]);
    return row == 0 ? 0 : offset_of(partition, row - 1) + 1;
}

/* The rows of a batch: raw_batch.extra. */
struct drip_batch {
    uint32_t partition;
    struct drip_row rows[BATCH_ROWS];
};

static void drip_begin(struct source *source, uint32_t partition, struct source_position *position)
{
    (void)source, (void)partition;
    *position = (struct source_position){.b = drip.least[partition]};
}

static bool drip_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    (void)source;
    uint32_t row = 0;
    if (position->b < drip.least[partition]) {
        diag_error(source->diags, DIAG_RECORDS_GONE, (struct span){0, 0},
                   "the drip begins behind offset %lld", (long long)position->b);
        return false;
    }
    while (row < drip.given[partition] && offset_of(partition, row) < position->b)
        row++;
    drip.read[partition] = row;
    drip.records[partition] = position->record;
    drip.share[partition] = batch_share_of(position);
    return true;
}

/* The number of rows of the batch that begins with the record; with is_random some are short, as
 * with long records. */
static uint32_t whole_batch(uint64_t record)
{
    struct test_random random = {record};
    bool is_short = drip.is_random && random_chance(&random, 50);
    return is_short ? 1 + random_below(&random, drip.batch_max) : drip.batch_max;
}

/* Puts the partition's next rows into `raw`. Returns READ_BATCH, or `status` if there are none. is_cut: where
 * batches end depends on the records alone, as in a recording. */
static enum read_status fill(uint32_t partition, enum read_status status, bool is_cut, struct raw_batch *raw)
{
    struct drip_batch *batch = arena_alloc(&raw->arena, sizeof(*batch));
    int64_t *offsets = arena_alloc(&raw->arena, BATCH_ROWS * sizeof(*offsets));
    uint32_t *read = &drip.read[partition], max = drip.batch_max;
    struct batch_share *share = &drip.share[partition];
    if (is_cut)
        max = whole_batch(drip.records[partition] - share->records) - share->records;
    else if (drip.is_random)
        max = 1 + (uint32_t)random_below(&drip.random, max);
    int64_t first = behind(partition, *read);
    raw->count = 0;
    for (; *read < drip.given[partition] && raw->count < max; ++*read) {
        if (drip.is_gone[partition][*read])
            continue;
        offsets[raw->count] = offset_of(partition, *read);
        batch->rows[raw->count++] = drip.rows[partition][*read];
    }
    raw->next.b = MAX(behind(partition, *read), drip.ends[partition]);
    if (raw->count == 0) {
        drip.asked[partition]++;
        return status;
    }
    batch->partition = partition;
    raw->position =
        (struct source_position){.a = batch_share_put(*share), .b = first, .record = drip.records[partition]};
    raw->next.b = offsets[raw->count - 1] + 1;
    raw->next.record = drip.records[partition] += raw->count;
    share->records = is_cut && raw->count < max ? share->records + raw->count : 0;
    raw->next.a = batch_share_put(*share);
    raw->records = NULL;
    raw->path = "drip";
    raw->first_line = raw->first_offset = -1;
    raw->extra = batch;
    raw->offsets = offsets;
    return READ_BATCH;
}

static enum read_status drip_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    (void)source;
    pthread_mutex_lock(&drip.mutex);
    enum read_status status = drip.has_ended ? READ_END : drip.is_late[partition] ? READ_LATER : READ_QUIET;
    status = fill(partition, status, false, raw);
    pthread_mutex_unlock(&drip.mutex);
    return status;
}

static void drip_decode(struct source *source, void *decoder, struct raw_batch *raw,
                        struct decode_output *output)
{
    (void)source, (void)decoder;
    struct batch *batch = output->batch;
    const struct drip_batch *from = raw->extra;
    const struct drip_row *rows = from->rows;
    batch->arrival_time = arena_alloc(&batch->arena, raw->count * sizeof(int64_t));
    for (uint32_t i = 0; i < raw->count; i++) {
        batch->columns[0].ints[i] = rows[i].id;
        batch->arrival_time[i] = rows[i].arrival_us;
        batch->columns[1].ints[i] = rows[i].arrival_us - drip.delay[from->partition] - rows[i].late_us;
    }
}

static const struct source_kind source_drip = {.name = "drip",
                                               .options = drip_options,
                                               .size = sizeof(struct drip_source),
                                               .has_offsets = true,
                                               .bind = drip_bind,
                                               .open = drip_open,
                                               .partition_name = drip_partition_name,
                                               .discover = drip_discover,
                                               .begin = drip_begin,
                                               .seek = drip_seek,
                                               .read = drip_read,
                                               .decode = drip_decode};

/* --- Source `tank`: a recording of all rows that were given --- */

void forget_reading(void)
{
    memset(drip.read, 0, sizeof(drip.read));
    memset(drip.records, 0, sizeof(drip.records));
    memset(drip.share, 0, sizeof(drip.share));
}

static bool tank_bind(struct source_bind *bind)
{
    drip_bind(bind);
    bind->is_live = false;
    bind->is_bounded = true;
    return true;
}

static bool tank_open(struct source *source)
{
    forget_reading();
    return drip_open(source);
}

static bool tank_discover(struct source *source)
{
    (void)source;
    return true;
}

static bool tank_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    if (position->b < 2 * drip.missing) {
        diag_error(source->diags, DIAG_RECORDS_GONE, (struct span){0, 0},
                   "the tank begins behind offset %lld", (long long)position->b);
        return false;
    }
    return drip_seek(source, partition, position);
}

static enum read_status tank_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    (void)source;
    return fill(partition, READ_END, true, raw);
}

static const struct source_kind source_tank = {.name = "tank",
                                               .options = drip_options,
                                               .size = sizeof(struct drip_source),
                                               .has_offsets = true,
                                               .bind = tank_bind,
                                               .open = tank_open,
                                               .partition_name = drip_partition_name,
                                               .discover = tank_discover,
                                               .begin = drip_begin,
                                               .seek = tank_seek,
                                               .read = tank_read,
                                               .decode = drip_decode};

void give(uint32_t partition, int64_t id, int64_t arrival_us)
{
    pthread_mutex_lock(&drip.mutex);
    drip.rows[partition][drip.given[partition]++] = (struct drip_row){id, arrival_us, 0};
    drip.is_late[partition] = false;
    pthread_mutex_unlock(&drip.mutex);
    drip.wake(drip.engine);
}

void end_drip(void)
{
    pthread_mutex_lock(&drip.mutex);
    drip.has_ended = true;
    pthread_mutex_unlock(&drip.mutex);
    drip.wake(drip.engine);
}

static uint32_t times_asked(uint32_t partition)
{
    pthread_mutex_lock(&drip.mutex);
    uint32_t times = drip.asked[partition];
    pthread_mutex_unlock(&drip.mutex);
    return times;
}

void wait_until_asked(uint32_t partition, uint32_t times)
{
    uint32_t until = times_asked(partition) + times;
    for (int64_t since = 0; times_asked(partition) < until; wait_more(&since))
        drip.wake(drip.engine);
}

void lull(int64_t microseconds)
{
    usleep((useconds_t)microseconds);
}

/* --- Sink `cup`: keeps rows in the order in which they come --- */

struct cup cup = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool cup_open(struct sink_context *context)
{
    cup.context = context;
    context->sends_checkpoints = cup.sends_checkpoints;
    return true;
}

static bool cup_write(struct sink_context *context, const struct batch *batch)
{
    (void)context;
    pthread_mutex_lock(&cup.mutex);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        leat_assert(cup.count < ARRAY_COUNT(cup.ids));
        cup.ids[cup.count++] = batch->columns[0].ints[row];
        for (uint32_t k = 0; k < batch->schema->count; k++)
            cup.hash = (cup.hash ^ (uint64_t)batch->columns[k].ints[row]) * 0x9E3779B97F4A7C15u;
    }
    pthread_mutex_unlock(&cup.mutex);
    return true;
}

static bool cup_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    (void)context;
    pthread_mutex_lock(&cup.mutex);
    cup.snapshots = cup.count;
    pthread_mutex_unlock(&cup.mutex);
    return snapshot_put(writer, SNAPSHOT_GLOBAL, "cup", 3);
}

static bool cup_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    (void)context;
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        assert_int_equal(record.length, 3);
    return true;
}

static bool cup_committed(struct sink_context *context, uint64_t epoch, struct str order)
{
    (void)context;
    assert_true(order.length > 0);
    pthread_mutex_lock(&cup.mutex);
    cup.committed = epoch;
    cup.committed_rows = cup.rows_at[epoch % CUP_EPOCHS] = cup.snapshots;
    pthread_mutex_unlock(&cup.mutex);
    return true;
}

static const struct sink_kind sink_cup = {.name = "cup",
                                          .options = drip_options,
                                          .size = sizeof(struct drip_source),
                                          .open = cup_open,
                                          .write = cup_write,
                                          .snapshot = cup_snapshot,
                                          .restore = cup_restore,
                                          .committed = cup_committed};

uint32_t cup_count(const uint32_t *counter)
{
    pthread_mutex_lock(&cup.mutex);
    uint32_t count = *counter;
    pthread_mutex_unlock(&cup.mutex);
    return count;
}

void wait_for(const uint32_t *counter, uint32_t count)
{
    for (int64_t since = 0; cup_count(counter) < count; wait_more(&since)) {
    }
    assert_int_equal(cup_count(counter), count);
}

/* --- Runs --- */

enum { OPERATORS_MAX = 128 };

/* The built-in operators, and those of this file. */
static const struct operator_kind *const *operators(void)
{
    static const struct operator_kind *list[OPERATORS_MAX];
    uint32_t count = 0;
    for (; builtin_registry.operators[count] != NULL; count++) {
        assert_true(count < OPERATORS_MAX - 4);
        list[count] = builtin_registry.operators[count];
    }
    list[count++] = &operator_lamp;
    list[count++] = &operator_watermarks;
    list[count] = &operator_scale;
    return list;
}

static const struct source_kind *const sources[] = {&source_drip, &source_tank, NULL};
static const struct sink_kind *const sinks[] = {&sink_cup, NULL};

void reset_cup(void)
{
    forget_reading();
    lamp.count = lamp.micro_batches = 0;
    cup.count = cup.committed_rows = cup.snapshots = 0;
    cup.committed = cup.hash = 0;
    cup.sends_checkpoints = false;
}

void reset(uint32_t partitions)
{
    memset(drip.given, 0, sizeof(drip.given));
    memset(drip.delay, 0, sizeof(drip.delay));
    memset(drip.is_late, 0, sizeof(drip.is_late));
    memset(drip.is_gone, 0, sizeof(drip.is_gone));
    memset(drip.ends, 0, sizeof(drip.ends));
    memset(drip.least, 0, sizeof(drip.least));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        for (uint32_t row = 0; row < ROWS_MAX; row++)
            drip.offsets[p][row] = 2 * row;
    drip.is_random = false;
    drip.partitions = partitions;
    drip.batch_max = BATCH_ROWS;
    drip.missing = 0;
    drip.gap = UINT32_MAX;
    drip.has_ended = drip.is_turned = false;
    reset_cup();
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

struct live *begin(const char *text, const struct run_options *options)
{
    struct live *live = make(text, options);
    if (live->run == NULL)
        fail_by_diags(live, text);
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
    assert_int_equal(cup.count, count);
    for (uint32_t i = 0; i < count; i++)
        if (cup.ids[i] != ids[i])
            fail_msg("row %u is %lld, not %lld", i, (long long)cup.ids[i], (long long)ids[i]);
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
