/* A replay from a recording, by the order log of a live run, gives the same rows at any number of lanes. The
 * live run has several lives, partitions that are found later or become idle, and lulls. */
#include "live_rig.h"

#include "core/order_log.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Running counts, and windows over them, which leave out late rows: the result depends on the order of the
 * rows and on watermarks; and on the load of each row's micro-batch. */
#define STREAMS                                                                                              \
    "stream counted = s | scale | with k = id %% 5 | feature by k over 1h every 1m { n: count() }\n"         \
    "stream closed = counted | window by k over tumbling(5ms) { rows: count(), most: max(n), loads: "        \
    "sum(load) }\n"                                                                                          \
    "sink out = fake_sink from closed {}\n"

enum { TEXT = 2048, LIFE = 400, STEP_US = 500 };

static char folder[64];
typedef char part_text[1 << 20];

static const char *at(const char *name)
{
    static char paths[8][96];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static const char *job(char text[TEXT], const char *source, const char *state, const char *keep)
{
    snprintf(text, TEXT,
             "job j { checkpoint: { dir: \"%s\", every: 20ms, min_free: 0B, keep: { last: %s } } }\n"
             "source s = %s { event_time: ts, idle_after: 40ms }\n" STREAMS,
             state, keep, source);
    return text;
}

/* Gives LIFE rows, not in the order of their arrival times: partitions other than 0 lag. */
static void feed(uint32_t first, uint32_t partitions)
{
    for (uint32_t i = first; i < first + LIFE; i++) {
        uint32_t partition = i * 7 % partitions;
        int64_t lag = partition == 0 ? 0 : (int64_t)partition * 3 * STEP_US;
        give(partition, i, 1000000 + (int64_t)i * STEP_US - lag);
        if (i % 16 == 0)
            lull(i % 64 == 0 ? 3000 : 100);
    }
}

struct result {
    uint32_t count;
    uint64_t hash, records;
};

static struct result result_of(struct live *live)
{
    while (!run_has_ended(live->run))
        usleep(500);
    run_stats(live->run, &live->stats);
    struct result result = {.records = live->stats.records};
    end(live);
    result.count = fake_sink.count;
    result.hash = fake_sink.hash;
    return result;
}

static void assert_same(struct result found, struct result expected)
{
    assert_int_equal(found.records, expected.records);
    assert_int_equal(found.count, expected.count);
    assert_true(found.hash == expected.hash);
}

/* One life of the live run, with a lull at its end in which partitions become idle. */
static struct result live_life(const char *text, const struct run_options *options, uint32_t life)
{
    struct live *live = begin(text, options);
    if (life == 1) { /* a partition is found while rows come */
        feed(life * LIFE, fake_source.partitions);
        pthread_mutex_lock(&fake_source.mutex);
        fake_source.partitions++;
        pthread_mutex_unlock(&fake_source.mutex);
        feed((life + 1) * LIFE, fake_source.partitions);
    } else {
        feed(life == 0 ? 0 : (life + 1) * LIFE,
             life == 0 ? fake_source.partitions : 1); /* in life 2 all partitions but one are idle */
    }
    lull(120000);
    run_stop(live->run);
    return result_of(live);
}

enum { LIVES = 3 };

/* Runs the live job in LIVES lives, with checkpoints in `live` and the order log in `order`; results:
 * after each life. */
static void live_run(const char *keep, struct result results[LIVES])
{
    char text[TEXT];
    new_directory(folder);
    reset(2);
    job(text, "fake_source", at("live"), keep);
    struct run_options options = on(2);
    char order[96];
    snprintf(order, sizeof(order), "%s/", at("order"));
    options.record_order = order;
    for (uint32_t life = 0; life < LIVES; life++) {
        results[life] = live_life(text, &options, life);
        memset(fake_source.read, 0x7f, sizeof(fake_source.read)); /* the next life must seek */
    }
    assert_true(results[0].count > 10 && results[0].count < results[1].count);
}

static struct result replay(const char *order, const char *state, uint32_t lanes)
{
    char text[TEXT];
    struct run_options options = on(lanes);
    job(text, "fake_recording", state, "3");
    options.order = order;
    return result_of(begin(text, &options));
}

static struct str read_part(uint32_t life, char path[128], part_text text)
{
    DIR *stream = opendir(at("order"));
    struct dirent *entry;
    size_t bytes = 0;
    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL && strtoul(entry->d_name, NULL, 10) != life)
        continue;
    assert_non_null(entry);
    snprintf(path, 128, "%s/%.40s", at("order"), entry->d_name);
    closedir(stream);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    bytes = fread(text, 1, sizeof(part_text), file);
    fclose(file);
    return (struct str){text, bytes};
}

/* Appends to the order log of life 1 what a process may write that was thought dead, after life 2 had begun:
 * micro-batches without rows. */
static void zombie_writes(void)
{
    static part_text text;
    char path[128];
    struct order_reader reader;
    struct order_entry entry;
    struct byte_buffer segment = {0};
    assert_true(order_open(&reader, read_part(2, path, text)));
    const char *begin = reader.at, *behind = begin;
    while (order_next(&reader, &entry) && entry.tag == ORDER_PARTITION)
        behind = reader.at;
    struct order_head head = {.epoch = 99, .first = reader.head.first, .next = reader.head.first + 3};
    order_seal(&head, (struct str){begin, (size_t)(behind - begin)}, STR("\4\4\4"), STR(""), 0, 0, &segment);
    order_close(&reader);
    (void)read_part(1, path, text);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(segment.data, 1, segment.length, file), segment.length);
    fclose(file);
    buffer_free(&segment);
}

static void test_the_live_rows(void **state)
{
    (void)state;
    struct result expected[LIVES];
    char own[16];
    live_run("1000", expected);
    zombie_writes();
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        reset_fake_sink();
        snprintf(own, sizeof(own), "own-%u", lanes);
        assert_same(replay(at("order"), at(own), lanes), expected[LIVES - 1]);
        reset_fake_sink();
        snprintf(own, sizeof(own), "own-c-%u", lanes);
        assert_same(replay(at("live"), at(own), lanes), expected[LIVES - 1]);
    }
    os_remove_tree(folder);
}

/* A replay that is stopped and started again gives the same rows. Its own order log is that of the live run:
 * a replay by it gives the rows once more. */
static void test_stopped(void **state)
{
    (void)state;
    struct result expected[LIVES];
    char text[TEXT];
    live_run("1000", expected);
    reset_fake_sink();
    job(text, "fake_recording", at("own"), "3");
    struct run_options options = on(2);
    options.order = at("order");
    options.record_order = at("again");
    uint32_t lives = 0;
    for (bool has_run_out = false; !has_run_out; lives++) {
        struct live *live = begin(text, &options);
        if (lives < 4)
            lull(lives * 700);
        if (lives < 4)
            run_stop(live->run);
        while (!run_has_ended(live->run))
            usleep(500);
        run_stats(live->run, &live->stats);
        has_run_out = live->stats.has_order_run_out;
        end(live);
    }
    assert_int_equal(fake_sink.count, expected[LIVES - 1].count);
    assert_true(fake_sink.hash == expected[LIVES - 1].hash);
    /* The log has run out: another run adds nothing. */
    struct live *live = begin(text, &options);
    assert_int_equal(result_of(live).count, expected[LIVES - 1].count);
    reset_fake_sink();
    assert_same(replay(at("again"), at("third"), 3), expected[LIVES - 1]);
    os_remove_tree(folder);
}

/* Puts the rows of an earlier result back into the fake_sink, so that the next run adds to them. */
static void put_back(const struct result *kept)
{
    fake_sink.count = kept->count;
    fake_sink.hash = kept->hash;
}

/* While a live job goes on and its order log grows, the replay goes on, too. */
static void test_follows(void **state)
{
    (void)state;
    struct result live_result = {0}, replayed = {0};
    char text[TEXT], order[96];
    new_directory(folder);
    reset(2);
    snprintf(order, sizeof(order), "%s/", at("order"));
    for (uint32_t life = 0; life < LIVES; life++) {
        struct run_options options = on(2);
        options.record_order = order;
        job(text, "fake_source", at("live"), "2");
        put_back(&live_result);
        live_result = live_life(text, &options, life);
        reset_fake_sink();
        put_back(&replayed);
        replayed = replay(order, at("own"), 1 + life);
        assert_same(replayed, live_result);
    }
    os_remove_tree(folder);
}

/* Damages all but the `whole` oldest checkpoints of the live run; returns how many. */
static uint32_t damage_checkpoints(uint32_t whole)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/gen-*/ckpt-*/state.bin", at("live"));
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    uint32_t count = 0;
    for (size_t i = whole; i < found.gl_pathc; i++, count++) {
        FILE *file = fopen(found.gl_pathv[i], "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 100, SEEK_SET), 0);
        int byte = fgetc(file);
        fseek(file, 100, SEEK_SET);
        fputc(byte ^ 1, file);
        fclose(file);
    }
    globfree(&found);
    return count;
}

/* After a fall back, micro-batches whose rows are out are executed again, one by one. A stop first completes
 * the next of them, so that a later run goes on there, and the order log still fits the rows. */
static void test_stopped_while_executing_again(void **state)
{
    (void)state;
    char text[TEXT];
    new_directory(folder);
    reset(2);
    job(text, "fake_source", at("live"), "1000");
    struct run_options options = on(2);
    char order[96];
    snprintf(order, sizeof(order), "%s/", at("order"));
    options.record_order = order;
    struct live *first = begin(text, &options);
    /* At least one checkpoint for each part, however slow the machine is. */
    for (uint32_t part = 0; part < 4; part++) {
        uint32_t before = fake_sink_count(&fake_sink.snapshots);
        feed(part * LIFE, fake_source.partitions);
        for (int64_t since = 0; fake_sink_count(&fake_sink.snapshots) == before; wait_more(&since)) {
        }
    }
    for (uint32_t p = 0; p < fake_source.partitions; p++)
        wait_until_asked(p, 20);
    run_stop(first->run);
    struct result expected = result_of(first);
    assert_true(damage_checkpoints(1) > 1);
    bool is_redone = false;
    for (uint32_t lives = 0; !is_redone; lives++) {
        memset(fake_source.read, 0x7f, sizeof(fake_source.read));
        struct live *live = lives < 3 ? begin_stopped(text, &options) : begin(text, &options);
        if (lives >= 3)
            wait_until_asked(0, 1);
        run_stop(live->run);
        while (!run_has_ended(live->run))
            usleep(500);
        run_stats(live->run, &live->stats);
        is_redone = live->stats.redo_next == 0;
        assert_true(!is_redone || lives > 3);
        end(live);
    }
    reset_fake_sink();
    struct result found = replay(order, at("own"), 3);
    assert_same(found, expected);
    os_remove_tree(folder);
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_misfits(void **state)
{
    (void)state;
    struct result expected[LIVES];
    char text[TEXT], order[96];
    live_run("2", expected);
    struct run_options options = on(2);
    snprintf(order, sizeof(order), "%s", at("order"));
    options.order = order;
    job(text, "fake_recording", at("own"), "3");

    reset_fake_sink();
    fake_source.missing = 5;
    begin_refused(text, &options, SAYS("begins behind offset 0"));
    fake_source.missing = 0;

    fake_source.partitions = 1;
    begin_refused(text, &options, SAYS("it has `fake_source/1`", "which this job does not read"));
    fake_source.partitions = 3;

    reset_fake_sink();
    fake_source.gap = 100;
    end_failed(begin(text, &options),
               SAYS("does not fit", "offset", "fake_source/", "the recording that the order log"));
    fake_source.gap = UINT32_MAX;
    os_remove_tree(at("own"));

    reset_fake_sink();
    fake_source.given[0] -= 5;
    end_failed(begin(text, &options), SAYS("does not fit", "fake_source/0", "the input is shorter"));
    fake_source.given[0] += 5;
    os_remove_tree(at("own"));

    reset_fake_sink();
    fake_source.partitions = 4; /* a partition that the live run never had */
    assert_same(replay(order, at("own"), 2), expected[LIVES - 1]);
    fake_source.partitions = 3;

    /* Old checkpoints were removed, and their part of the order log with them. */
    options.order = at("live");
    job(text, "fake_recording", at("own-2"), "3");
    begin_refused(text, &options, SAYS("contain the order from micro-batch", "--from", "--record-order DIR"));
    options.order = at("nothing");
    assert_int_equal(os_mkdirs(options.order), 0);
    begin_refused(text, &options,
                  SAYS("it is neither a directory of --record-order nor a checkpoint directory"));

    /* A directory of --record-order belongs to one run. */
    options = on(2);
    options.record_order = order;
    job(text, "fake_source", at("other"), "3");
    begin_refused(text, &options, SAYS("is of another run", "--record-order"));
    os_remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_live_rows), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_follows),       cmocka_unit_test(test_stopped_while_executing_again),
        cmocka_unit_test(test_misfits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
