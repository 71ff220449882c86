/* Live sources, driven by hand: what numbers wait for, what they go on without, who is idle, what is found
 * while running, and what full sinks hold up. The same on several lanes, and under TSan. */
#include "cli/commands.h"
#include "core/order_log.h"
#include "core/os.h"
#include "run/run.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { PARTITIONS = 4, ROWS_MAX = 4096, WAIT_US = 20 * US_PER_SECOND };

/* --- Source `drip`: rows that the test gives it --- */

struct drip_row {
    int64_t id, arrival_us;
};

static struct {
    pthread_mutex_t mutex;
    struct drip_row rows[PARTITIONS][ROWS_MAX];
    uint32_t given[PARTITIONS], read[PARTITIONS];
    bool is_late[PARTITIONS]; /* there is more, it says, than it has */
    uint32_t partitions;
    bool has_ended;
    void (*wake)(void *);
    void *engine;
} drip = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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
    bind->is_live = bind->is_replayable = true;
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
    return names[partition];
}

static bool drip_discover(struct source *source)
{
    pthread_mutex_lock(&drip.mutex);
    source->partitions_count = drip.partitions;
    pthread_mutex_unlock(&drip.mutex);
    return true;
}

static bool drip_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    (void)source;
    drip.read[partition] = (uint32_t)position->b;
    return true;
}

static enum read_status drip_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    (void)source;
    pthread_mutex_lock(&drip.mutex);
    uint32_t read = drip.read[partition], there = drip.given[partition] - read;
    enum read_status status = drip.has_ended ? READ_END : drip.is_late[partition] ? READ_LATER : READ_QUIET;
    if (there > 0) {
        status = READ_BATCH;
        raw->count = MIN(there, BATCH_ROWS);
        raw->records = NULL;
        raw->position = (struct source_position){.b = read, .record = read};
        raw->next = (struct source_position){.b = read + raw->count, .record = read + raw->count};
        raw->path = "drip";
        raw->first_line = raw->first_offset = -1;
        raw->extra = &drip.rows[partition][read];
        drip.read[partition] += raw->count;
    }
    pthread_mutex_unlock(&drip.mutex);
    return status;
}

static void drip_decode(struct source *source, void *decoder, struct raw_batch *raw,
                        struct decode_output *output)
{
    (void)source, (void)decoder;
    struct batch *batch = output->batch;
    const struct drip_row *rows = raw->extra;
    batch->arrival_time = arena_alloc(&batch->arena, raw->count * sizeof(int64_t));
    for (uint32_t i = 0; i < raw->count; i++) {
        batch->columns[0].ints[i] = rows[i].id;
        batch->columns[1].ints[i] = batch->arrival_time[i] = rows[i].arrival_us;
    }
}

static const struct source_kind source_drip = {.name = "drip",
                                               .options = drip_options,
                                               .size = sizeof(struct drip_source),
                                               .bind = drip_bind,
                                               .open = drip_open,
                                               .partition_name = drip_partition_name,
                                               .discover = drip_discover,
                                               .seek = drip_seek,
                                               .read = drip_read,
                                               .decode = drip_decode};

static void give(uint32_t partition, int64_t id, int64_t arrival_us)
{
    pthread_mutex_lock(&drip.mutex);
    drip.rows[partition][drip.given[partition]++] = (struct drip_row){id, arrival_us};
    drip.is_late[partition] = false;
    pthread_mutex_unlock(&drip.mutex);
    drip.wake(drip.engine);
}

static void end_drip(void)
{
    pthread_mutex_lock(&drip.mutex);
    drip.has_ended = true;
    pthread_mutex_unlock(&drip.mutex);
    drip.wake(drip.engine);
}

/* --- Sink `cup`: what came, in its order; full when told --- */

static struct {
    pthread_mutex_t mutex;
    int64_t ids[PARTITIONS * ROWS_MAX];
    uint32_t count, committed_rows;
    uint64_t committed;
    uint32_t snapshots;
    bool sends_checkpoints;
    struct sink_context *context;
} cup = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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
    for (uint32_t i = 0; i < batch->selected; i++)
        cup.ids[cup.count++] = batch->columns[0].ints[batch_row(batch, i)];
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
    cup.committed_rows = cup.snapshots;
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

static uint32_t cup_count(const uint32_t *counter)
{
    pthread_mutex_lock(&cup.mutex);
    uint32_t count = *counter;
    pthread_mutex_unlock(&cup.mutex);
    return count;
}

/* Waits until the counter is there; fails when that takes far too long. */
static void wait_for(const uint32_t *counter, uint32_t count)
{
    for (int64_t begin = os_monotonic_us(); cup_count(counter) < count; usleep(1000))
        if (os_monotonic_us() - begin > WAIT_US)
            fail_msg("%u came, not %u", cup_count(counter), count);
    assert_int_equal(cup_count(counter), count);
}

/* --- Runs --- */

static const struct source_kind *const sources[] = {&source_drip, NULL};
static const struct sink_kind *const sinks[] = {&sink_cup, NULL};

struct live {
    struct arena arena;
    struct diag_list diags;
    struct run *run;
    struct run_stats stats;
};

static void reset(uint32_t partitions)
{
    memset(drip.given, 0, sizeof(drip.given));
    memset(drip.read, 0, sizeof(drip.read));
    memset(drip.is_late, 0, sizeof(drip.is_late));
    drip.partitions = partitions;
    drip.has_ended = false;
    cup.count = cup.committed_rows = cup.snapshots = 0;
    cup.committed = 0;
    cup.sends_checkpoints = false;
}

static struct live *begin(const char *text, const struct run_options *options)
{
    static struct registry registry;
    registry = builtin_registry;
    registry.sources = sources;
    registry.sinks = sinks;
    struct live *live = calloc(1, sizeof(*live));
    assert_non_null(live);
    diag_list_init(&live->diags, &live->arena);
    struct job_file *job = lang_parse(&live->arena, &live->diags, &registry, str_from(text));
    struct plan_options plan_options = {.registry = &registry};
    bool is_good = lang_expand(job, &live->arena, &live->diags, NULL);
    struct plan *plan = is_good ? plan_make(job, &plan_options, &live->arena, &live->diags) : NULL;
    live->run = plan != NULL ? run_new(plan, options, &live->diags) : NULL;
    if (live->run == NULL) {
        struct diag_source source = {"job", str_from(text)};
        diag_print(stderr, &live->diags, &source, false);
        fail();
    }
    assert_true(run_start(live->run));
    return live;
}

static void end(struct live *live)
{
    if (!run_wait(live->run)) {
        diag_print(stderr, &live->diags, &(struct diag_source){"job", {"", 0}}, false);
        fail();
    }
    run_free(live->run);
    arena_free(&live->arena);
    free(live);
}

static struct run_options on(uint32_t lanes)
{
    return (struct run_options){.lanes = lanes, .until_us = TIME_MAX};
}

#define JOB(options) "source s = drip { event_time: ts" options " }\nsink out = cup from s {}\n"

static void assert_order(const int64_t *ids, uint32_t count)
{
    assert_int_equal(cup.count, count);
    for (uint32_t i = 0; i < count; i++)
        if (cup.ids[i] != ids[i])
            fail_msg("row %u is %lld, not %lld", i, (long long)cup.ids[i], (long long)ids[i]);
}

static void test_goes_on_without_the_quiet(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset(2);
        struct run_options options = on(lanes);
        struct live *live = begin(JOB(""), &options);
        for (uint32_t i = 0; i < 100; i++) {
            give(i % 7 == 0, i, 1000 + i);
            wait_for(&cup.count, i + 1);
        }
        end_drip();
        end(live);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(cup.ids[i], i);
    }
}

/* One partition is behind, and says so: the other's rows wait, and all come in the order of their arrival. */
static void test_waits_for_the_late(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset(2);
        drip.is_late[1] = true;
        struct run_options options = on(lanes);
        struct live *live = begin(JOB(""), &options);
        for (uint32_t i = 0; i < 50; i++)
            give(0, 2 * i, 1000 + 2 * i);
        usleep(100000);
        assert_int_equal(cup_count(&cup.count), 0);
        pthread_mutex_lock(&drip.mutex);
        for (uint32_t i = 0; i < 50; i++)
            drip.rows[1][drip.given[1]++] = (struct drip_row){2 * i + 1, 1000 + 2 * i + 1};
        pthread_mutex_unlock(&drip.mutex);
        give(1, 100, 2000);
        wait_for(&cup.count, 101);
        end_drip();
        end(live);
        for (uint32_t i = 0; i < 101; i++)
            assert_int_equal(cup.ids[i], i);
    }
}

static void test_waits_no_longer_than_told(void **state)
{
    (void)state;
    reset(2);
    drip.is_late[1] = true;
    struct run_options options = on(2);
    struct live *live = begin(JOB(", order_wait: 50ms"), &options);
    give(0, 1, 1000);
    wait_for(&cup.count, 1);
    give(1, 2, 900);
    wait_for(&cup.count, 2);
    end_drip();
    end(live);
    assert_order((const int64_t[]){1, 2}, 2);
}

/* Figures are read while lanes write them: stale, not torn, but that TSan does not know. */
#ifdef __SANITIZE_THREAD__
enum { CAN_LOOK = 0 };
#else
enum { CAN_LOOK = 1 };
#endif

static int64_t watermark(struct live *live)
{
    run_stats(live->run, &live->stats);
    return live->stats.watermark;
}

static void wait_for_watermark(struct live *live, int64_t expected)
{
    int64_t found = TIME_MIN;
    if (!CAN_LOOK) {
        usleep(150000);
        return;
    }
    for (int64_t begin = os_monotonic_us(); os_monotonic_us() - begin < WAIT_US && found != expected;
         usleep(1000))
        found = watermark(live);
    assert_int_equal(found, expected);
}

/* A partition without rows holds the watermark, until it has been quiet for `idle_after`; its next row counts
 * again. */
static void test_idle(void **state)
{
    (void)state;
    reset(2);
    struct run_options options = on(2);
    struct live *live = begin(JOB(""), &options);
    give(0, 1, 5000);
    wait_for(&cup.count, 1);
    usleep(100000);
    if (CAN_LOOK)
        assert_int_equal(watermark(live), TIME_MIN);
    end_drip();
    end(live);

    reset(2);
    live = begin(JOB(", idle_after: 60ms"), &options);
    give(0, 1, 5000);
    wait_for_watermark(live, 5000);
    give(1, 2, 5500);
    give(0, 3, 6000);
    wait_for(&cup.count, 3);
    wait_for_watermark(live, 6000); /* of the one that is idle last */
    end_drip();
    end(live);
}

static void test_found_while_running(void **state)
{
    (void)state;
    char path[] = "/tmp/test_live-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    reset(1);
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(JOB(""), &options);
    give(0, 1, 1000);
    wait_for(&cup.count, 1);
    pthread_mutex_lock(&drip.mutex);
    drip.partitions = 3;
    pthread_mutex_unlock(&drip.mutex);
    give(2, 2, 2000);
    wait_for(&cup.count, 2);
    give(1, 3, 2500);
    wait_for(&cup.count, 3);
    end_drip();
    end(live);
    assert_order((const int64_t[]){1, 2, 3}, 3);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static char text[1 << 16];
    size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    unlink(path);
    struct order_reader reader;
    struct order_entry entry;
    uint32_t added = 0;
    assert_true(order_open(&reader, (struct str){text, bytes}));
    while (order_next(&reader, &entry))
        added += entry.tag == ORDER_ADDED;
    assert_null(reader.why);
    assert_int_equal(added, 2);
    order_close(&reader);
}

/* What a live run did is done again by its order log: numbers without rows, idle partitions, and rows in an
 * order that the records alone would not give. */
static void test_done_again_by_the_log(void **state)
{
    (void)state;
    char path[] = "/tmp/test_live-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    reset(2);
    struct run_options options = on(2);
    options.record_order = path;
    struct live *live = begin(JOB(", idle_after: 30ms"), &options);
    for (int64_t i = 0; i < 40; i++) {
        give(i % 3 == 0, i, 10000 - 10 * i); /* against the order of arrival */
        wait_for(&cup.count, (uint32_t)i + 1);
        if (i % 10 == 9)
            usleep(80000); /* idle, both */
    }
    end_drip();
    end(live);
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        memset(drip.read, 0, sizeof(drip.read));
        cup.count = 0;
        options = on(lanes);
        options.order = path;
        end(begin(JOB(", idle_after: 30ms"), &options));
        assert_int_equal(cup.count, 40);
        for (uint32_t i = 0; i < 40; i++)
            assert_int_equal(cup.ids[i], i);
    }
    unlink(path);
}

static void with_checkpoints(const char *every, const char *path, char *text, size_t room)
{
    snprintf(text, room, "job j { checkpoint: { dir: \"%s\", every: %s, min_free: 0B } }\n%s", path, every,
             JOB(""));
}

/* The last rows before a lull are committed too: a checkpoint gets a number without rows. */
static void test_commits_in_a_lull(void **state)
{
    (void)state;
    char path[] = "/tmp/test_live-XXXXXX", text[512];
    assert_non_null(mkdtemp(path));
    with_checkpoints("50ms", path, text, sizeof(text));
    reset(2);
    struct run_options options = on(2);
    struct live *live = begin(text, &options);
    for (uint32_t i = 0; i < 3; i++) {
        give(0, i, 1000 + i);
        wait_for(&cup.committed_rows, i + 1);
    }
    uint64_t committed = cup.committed;
    usleep(300000);
    assert_int_equal(cup.committed, committed); /* and nothing is, where nothing happened */
    end_drip();
    end(live);
    os_remove_tree(path);
}

/* A full sink holds the sources; one that sends by checkpoints gets one soon, though the next turn is far. */
static void test_full_sink(void **state)
{
    (void)state;
    char path[] = "/tmp/test_live-XXXXXX", text[512];
    assert_non_null(mkdtemp(path));
    with_checkpoints("1h", path, text, sizeof(text));
    reset(1);
    cup.sends_checkpoints = true;
    struct run_options options = on(2);
    struct live *live = begin(text, &options);
    give(0, 0, 1000);
    wait_for(&cup.count, 1);
    atomic_store(&cup.context->is_full, true);
    for (uint32_t i = 1; i <= 10; i++)
        give(0, i, 1000 + i);
    wait_for(&cup.committed_rows, 1);
    usleep(100000);
    assert_int_equal(cup_count(&cup.count), 1);
    atomic_store(&cup.context->is_full, false);
    cup.context->wake(cup.context->engine);
    wait_for(&cup.count, 11);
    end_drip();
    end(live);
    os_remove_tree(path);
}

/* A resume has the partitions of its checkpoint by name, and takes in those that came since. */
static void test_resume(void **state)
{
    (void)state;
    char path[] = "/tmp/test_live-XXXXXX", text[512];
    assert_non_null(mkdtemp(path));
    with_checkpoints("50ms", path, text, sizeof(text));
    reset(2);
    struct run_options options = on(2);
    struct live *live = begin(text, &options);
    give(0, 0, 1000);
    give(1, 1, 1001);
    wait_for(&cup.committed_rows, 2);
    run_stop(live->run);
    end(live);
    drip.partitions = 3;
    drip.read[0] = drip.read[1] = 77; /* seek says where to begin */
    cup.count = cup.committed_rows = 0;
    live = begin(text, &options);
    give(2, 2, 1002);
    wait_for(&cup.count, 1);
    give(1, 3, 1003);
    wait_for(&cup.count, 2);
    end_drip();
    end(live);
    assert_order((const int64_t[]){2, 3}, 2);
    os_remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_without_the_quiet),
        cmocka_unit_test(test_waits_for_the_late),
        cmocka_unit_test(test_waits_no_longer_than_told),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_found_while_running),
        cmocka_unit_test(test_done_again_by_the_log),
        cmocka_unit_test(test_commits_in_a_lull),
        cmocka_unit_test(test_full_sink),
        cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
