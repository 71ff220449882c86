/* Positions in partitions whose offsets have gaps: a position is the next offset to read, never a count
 * of records. Logs with random gaps are read in random batches by runs that end anywhere; between the
 * runs the logs are compacted and lose their beginning. Each record that is still there and was not read
 * is read once. */
#include "live_rig.h"

#include "state/checkpoint.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT = 1024, ROUNDS = 6, LIVES_MAX = 6 };

static struct test_random chance;
static char folder[64];

/* Calls `round` for each seed, with a new `folder`. LEAT_TEST_SEEDS=FIRST-LAST: these seeds instead of
 * 1 to ROUNDS. */
static void each_round(void (*round)(uint64_t seed))
{
    unsigned long long first = 1, last = ROUNDS;
    const char *seeds = getenv("LEAT_TEST_SEEDS");
    if (seeds != NULL)
        assert_int_equal(sscanf(seeds, "%llu-%llu", &first, &last), 2);
    for (uint64_t seed = first; seed <= last; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        chance = (struct test_random){seed * 77};
        new_directory(folder);
        round(seed);
        os_remove_tree(folder);
    }
}

#define COPIES "sink out = fake_sink from s {}\n"
/* Running counts, and windows over them, which leave out late rows: the result depends on the order of the
 * rows and on watermarks. */
#define WINDOWS                                                                                              \
    "stream counted = s | with k = id %% 5 | feature by k over 1h every 1m { n: count() }\n"                 \
    "stream closed = counted | window by k over tumbling(5ms) { rows: count(), most: max(n) }\n"             \
    "sink out = fake_sink from closed {}\n"

static const char *job(const char *source, const char *streams)
{
    static char text[TEXT];
    int length = snprintf(
        text, TEXT,
        "job j { checkpoint: { dir: \"%s/state\", every: 10ms, min_free: 0B, keep: { last: 1000 } } }\n"
        "source s = %s { event_time: ts }\n",
        folder, source);
    snprintf(text + length, TEXT - (size_t)length, streams, 0); /* makes % of %% */
    return text;
}

static struct live *start(const char *text)
{
    struct run_options options = on(1 + random_below(&chance, 3));
    forget_reading();
    return begin(text, &options);
}

/* Fills the fake_source with a random log: offsets with gaps, and markers after the last record. A row's id is
 * partition * ROWS_MAX + row. */
static void make_log(uint32_t partitions, uint32_t rows_max)
{
    reset(partitions);
    fake_source.random = (struct test_random){random_next(&chance)};
    fake_source.is_random = true;
    fake_source.batch_max = 1 + random_below(&chance, 200);
    for (uint32_t p = 0; p < partitions; p++) {
        int64_t offset = random_below(&chance, 3), time = 1000000 + p;
        fake_source.given[p] = random_below(&chance, rows_max);
        for (uint32_t row = 0; row < fake_source.given[p]; row++) {
            time += random_below(&chance, 400);
            fake_source.rows[p][row] =
                (struct fake_source_row){p * ROWS_MAX + row, time, random_below(&chance, 9000)};
            fake_source.offsets[p][row] = offset;
            offset += 1 + (random_chance(&chance, 30) ? random_below(&chance, 20) : 0);
        }
        fake_source.ends[p] = offset + random_below(&chance, 3);
    }
}

/* --- Each record once --- */

static bool was_read[PARTITIONS][ROWS_MAX];

/* Notes in `was_read` which rows the fake_sink has; none may be there twice, and a partition's rows must
 * be in order. */
static void note_read(void)
{
    int64_t last[PARTITIONS] = {-1, -1, -1, -1};
    memset(was_read, 0, sizeof(was_read));
    for (uint32_t i = 0; i < fake_sink.count; i++) {
        uint32_t p = (uint32_t)(fake_sink.ids[i] / ROWS_MAX), row = (uint32_t)(fake_sink.ids[i] % ROWS_MAX);
        if (was_read[p][row] || fake_sink.ids[i] < last[p])
            fail_msg("record %u of partition %u was read twice, or behind others", row, p);
        was_read[p][row] = true;
        last[p] = fake_sink.ids[i];
    }
}

/* The next offset of each partition in the newest checkpoint, as `leat` shows it to people; 0:
 * it has none. */
static void next_offsets(int64_t next[PARTITIONS])
{
    struct arena arena = {0};
    struct diag_list diags;
    struct checkpoint *found;
    struct byte_buffer shown = {0};
    char state[128];
    snprintf(state, sizeof(state), "%s/state", folder);
    diag_list_init(&diags, &arena);
    struct checkpoint_dir *dir =
        checkpoint_dir_open(&(struct checkpoint_dir_options){.path = state, .read_only = true}, &diags);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        next[p] = 0;
    if (checkpoint_find(dir, &found, &diags) == CHECKPOINT_FOUND) {
        run_describe_positions(checkpoint_info(found)->sources, &shown);
        buffer_append(&shown, "", 1);
        const char *at = shown.data;
        for (unsigned p; (at = strstr(at, "next offset ")) != NULL; at++) {
            long long offset;
            assert_int_equal(sscanf(at, "next offset %lld  watermark %*s  fake_source/%u", &offset, &p), 2);
            next[p] = offset;
        }
        checkpoint_close(found);
    }
    checkpoint_dir_close(dir);
    buffer_free(&shown);
    arena_free(&arena);
}

/* `next` must be after the last record that was read, at most the first that was not, and at most the end
 * of the log. */
static void check_next(uint32_t p, int64_t next)
{
    for (uint32_t row = 0; row < fake_source.given[p]; row++) {
        if (was_read[p][row])
            assert_true(fake_source.offsets[p][row] < next);
        else if (!fake_source.is_gone[p][row])
            assert_true(fake_source.offsets[p][row] >= next);
    }
    int64_t last = fake_source.given[p] == 0 ? 0 : fake_source.offsets[p][fake_source.given[p] - 1] + 1;
    assert_true(next <= MAX(last, fake_source.ends[p]));
}

/* Checks the next offsets of the newest checkpoint, then loses records: by compaction each with a chance of
 * `percent`; by retention, in some cases, those before an offset that is at most the next one. */
static void lose(uint32_t percent)
{
    int64_t next[PARTITIONS];
    next_offsets(next);
    for (uint32_t p = 0; p < fake_source.partitions; p++) {
        check_next(p, next[p]);
        if (random_chance(&chance, 50))
            fake_source.least[p] = MAX(fake_source.least[p], next[p] - random_below(&chance, 3));
        for (uint32_t row = 0; row < fake_source.given[p]; row++)
            if (random_chance(&chance, percent) || fake_source.offsets[p][row] < fake_source.least[p])
                fake_source.is_gone[p][row] = true;
    }
}

static uint32_t rows_left(void)
{
    uint32_t left = 0;
    note_read();
    for (uint32_t p = 0; p < fake_source.partitions; p++)
        for (uint32_t row = 0; row < fake_source.given[p]; row++)
            left += !fake_source.is_gone[p][row] && !was_read[p][row];
    return left;
}

/* Removes the newest checkpoint, as if the process had died before it, and from the fake_sink the rows that came
 * after the checkpoint before it. */
static void forget_newest(void)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/state/gen-*/ckpt-*[0-9]", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    const char *newest = found.gl_pathv[found.gl_pathc - 1];
    uint64_t epoch = strtoull(strstr(newest, "ckpt-") + 5, NULL, 10);
    bool is_same_life =
        found.gl_pathc > 1 && strncmp(found.gl_pathv[found.gl_pathc - 2], newest, strlen(newest) - 12) == 0;
    if (is_same_life && epoch > 1) {
        os_remove_tree(newest);
        fake_sink.count = fake_sink.rows_at[(epoch - 1) % CUP_EPOCHS];
    }
    globfree(&found);
}

/* Gives more rows of each partition, or all. Some partitions then say that they are late: micro-batches wait
 * for them, with batches of other partitions taken in part. */
static void give_some(const uint32_t *rows, const int64_t *ends, bool are_all)
{
    for (uint32_t p = 0; p < fake_source.partitions; p++) {
        uint32_t least = fake_source.given[p];
        fake_source.given[p] = are_all ? rows[p] : least + random_below(&chance, rows[p] - least + 1);
        fake_source.is_late[p] = !are_all && random_chance(&chance, 50);
        fake_source.ends[p] = fake_source.given[p] == rows[p] ? ends[p] : 0;
    }
}

/* A live run in several lives, which end anywhere. */
static void once_each(uint64_t seed)
{
    (void)seed;
    uint32_t rows[PARTITIONS], lives = 1 + random_below(&chance, LIVES_MAX);
    int64_t ends[PARTITIONS];
    make_log(1 + random_below(&chance, 3), 400);
    memcpy(rows, fake_source.given, sizeof(rows));
    memcpy(ends, fake_source.ends, sizeof(ends));
    memset(fake_source.given, 0, sizeof(fake_source.given));
    const char *text = job("fake_source", COPIES);
    memset(was_read, 0, sizeof(was_read));
    for (uint32_t life = 0; life < lives; life++) {
        give_some(rows, ends, false);
        struct live *live = start(text);
        lull(5000 + random_below(&chance, 20000));
        run_stop(live->run);
        end(live);
        if (random_chance(&chance, 40))
            forget_newest();
        note_read();
        lose(random_chance(&chance, 60) ? random_below(&chance, 95) : 0);
    }
    give_some(rows, ends, true);
    uint32_t count = fake_sink.count, left = rows_left();
    struct live *live = start(text);
    wait_for(&fake_sink.count, count + left);
    wait_until_asked(0, 3);
    run_stop(live->run);
    end(live);
    assert_int_equal(rows_left(), 0);
    assert_int_equal(fake_sink.count, count + left);
}

static void test_each_record_once(void **state)
{
    (void)state;
    each_round(once_each);
}

/* --- A bounded source gives the same again, bit for bit --- */

struct outcome {
    uint32_t count;
    uint64_t hash;
};

static struct outcome to_the_end(const char *text)
{
    end(start(text));
    return (struct outcome){fake_sink.count, fake_sink.hash};
}

/* Where a bounded source's batches end depends on its records alone: after a stop inside a batch the rest of
 * it ends where the whole would have ended, and watermarks advance at the same records. */
static void the_same_again(uint64_t seed)
{
    (void)seed;
    make_log(1 + random_below(&chance, 3), 4000);
    fake_source.batch_max = BATCH_ROWS;
    const char *text = job("fake_recording", WINDOWS);
    struct outcome expected = to_the_end(text);
    char state[128];
    snprintf(state, sizeof(state), "%s/state", folder);
    os_remove_tree(state);
    reset_fake_sink();
    uint32_t lives = 0;
    for (bool is_finished = false; !is_finished; lives++) {
        struct live *live = start(text);
        lull(random_below(&chance, 3000));
        if (lives < 20)
            run_stop(live->run);
        while (!run_has_ended(live->run))
            usleep(200);
        run_stats(live->run, &live->stats);
        is_finished = live->stats.is_finished;
        end(live);
    }
    assert_int_equal(fake_sink.count, expected.count);
    assert_true(fake_sink.hash == expected.hash);
}

static void test_the_same_again(void **state)
{
    (void)state;
    each_round(the_same_again);
}

/* --- Executing again --- */

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void damage_newest(void)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/state/gen-*/ckpt-*[0-9]/state.bin", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc > 1);
    for (size_t i = 1; i < found.gl_pathc; i++)
        assert_int_equal(truncate(found.gl_pathv[i], 50), 0);
    globfree(&found);
}

/* Makes a live run with several checkpoints and damages all but the first, so that the next run falls back to
 * that. Returns the job; *first: the rows in the fake_sink at the first checkpoint. */
static const char *fall_back(uint32_t *first)
{
    do
        make_log(2, 300);
    while (fake_source.given[0] < 100 || fake_source.given[1] < 100);
    fake_source.ends[0] = fake_source.ends[1] = 0; /* more records follow */
    uint32_t given[2] = {fake_source.given[0], fake_source.given[1]};
    const char *text = job("fake_source", COPIES);
    for (uint32_t step = 1; step <= 4; step++) {
        fake_source.given[0] = given[0] * step / 4;
        fake_source.given[1] = given[1] * step / 4;
        struct live *live = start(text);
        wait_for(&fake_sink.count, fake_source.given[0] + fake_source.given[1]);
        lull(15000); /* for a checkpoint or two beside the last */
        run_stop(live->run);
        end(live);
        if (step == 1)
            *first = fake_sink.rows_at[1];
    }
    damage_newest();
    return text;
}

/* If the records are still there, executing them again gives the same rows, with gaps in the
 * offsets or without. */
static void again_by_the_log(uint64_t seed)
{
    (void)seed;
    uint32_t first = 0;
    const char *text = fall_back(&first);
    uint32_t all = fake_sink.count;
    static int64_t ids[PARTITIONS * ROWS_MAX];
    memcpy(ids, fake_sink.ids, all * sizeof(*ids));
    fake_sink.count = first;
    struct live *live = start(text);
    wait_for(&fake_sink.count, all);
    run_stop(live->run);
    end(live);
    assert_order(ids, all);
}

static void test_again_by_the_log(void **state)
{
    (void)state;
    each_round(again_by_the_log);
}

/* If some of the records are gone, the run fails at once and says so, wherever they were. */
static void not_again(uint64_t seed)
{
    uint32_t first = 0, p = (uint32_t)(seed % 2);
    const char *text = fall_back(&first);
    uint32_t row = fake_source.given[p] - 1 - random_below(&chance, fake_source.given[p] / 2);
    for (uint32_t i = row; i < fake_source.given[p]; i++) /* one row, or all from there on */
        fake_source.is_gone[p][i] = i == row || seed % 3 == 0;
    struct run_options options = on(2);
    forget_reading();
    end_failed(begin(text, &options),
               SAYS("does not fit", "compacted away or deleted since", "`backfill`", "--from"));
}

static void test_what_is_gone_is_not_done_again(void **state)
{
    (void)state;
    each_round(not_again);
}

/* --- In a lull --- */

static uint64_t committed(void)
{
    pthread_mutex_lock(&fake_sink.mutex);
    uint64_t epoch = fake_sink.committed;
    pthread_mutex_unlock(&fake_sink.mutex);
    return epoch;
}

/* If the end of the log moves after the last checkpoint without a record, one more checkpoint keeps the new
 * end; no further ones follow. */
static void test_the_end_of_the_log_is_kept(void **state)
{
    (void)state;
    new_directory(folder);
    reset(2);
    chance.state = 1;
    const char *text = job("fake_source", COPIES);
    struct live *live = start(text);
    give(0, 1, 1000);
    wait_for(&fake_sink.committed_rows, 1);
    lull(50000);
    uint64_t before = committed();
    pthread_mutex_lock(&fake_source.mutex);
    fake_source.ends[0] = 17;
    fake_source.ends[1] = 3;
    pthread_mutex_unlock(&fake_source.mutex);
    fake_source.wake(fake_source.engine);
    for (int64_t since = 0; committed() == before; wait_more(&since)) {
    }
    lull(150000);
    assert_in_range(committed() - before, 1, 2); /* one may belong to what was before */
    run_stop(live->run);
    end(live);
    fake_source.least[0] = 17;
    fake_source.least[1] = 3;
    live = start(text);
    run_stop(live->run);
    end(live);
    fake_source.least[1] = 4;
    struct run_options options = on(1);
    begin_refused(text, &options, SAYS("begins behind offset 3"));
    os_remove_tree(folder);
}

/* --- Positions of another version of leat --- */

static void copy_part(struct checkpoint *from, struct checkpoint_writer *to, const char *name,
                      struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(from, name, NULL, diags);
    struct snapshot_writer *part = checkpoint_part(to, name);
    uint32_t group;
    struct str data;
    while (snapshot_get(reader, &group, &data))
        assert_true(snapshot_put(part, group, data.data, data.length));
    assert_true(checkpoint_reader_close(reader));
}

/* Publishes the newest checkpoint once more, with its positions marked as of format `version`. */
static void publish_as(uint64_t version)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct checkpoint *found;
    struct byte_buffer positions = {0};
    char state[128];
    snprintf(state, sizeof(state), "%s/state", folder);
    diag_list_init(&diags, &arena);
    struct checkpoint_dir_options options = {.path = state, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    assert_int_equal(checkpoint_find(dir, &found, &diags), CHECKPOINT_FOUND);
    const struct checkpoint_info *info = checkpoint_info(found);
    options.read_only = false;
    options.fingerprint = arena_str(&arena, info->fingerprint);
    options.profile = arena_str(&arena, info->profile);
    checkpoint_close(found);
    checkpoint_dir_close(dir);
    dir = checkpoint_dir_open(&options, &diags);
    assert_int_equal(checkpoint_find(dir, &found, &diags), CHECKPOINT_FOUND);
    info = checkpoint_info(found);
    buffer_append(&positions, info->sources.data, info->sources.length);
    memcpy(positions.data + sizeof(version), &version, sizeof(version));
    uint64_t epoch = info->id.epoch + 1;
    assert_true(checkpoint_start_generation(dir, found, &diags));
    struct checkpoint_writer *writer = checkpoint_begin(dir, epoch, true, &diags);
    assert_non_null(writer);
    copy_part(found, writer, "parts", &diags);
    checkpoint_close(found);
    assert_true(checkpoint_write(writer, 0, &diags));
    struct checkpoint_info other = {.sources = {positions.data, positions.length}, .notes = STR("j")};
    assert_true(checkpoint_publish(writer, &other, &diags));
    checkpoint_dir_close(dir);
    struct byte_buffer shown = {0};
    run_describe_positions(other.sources, &shown);
    buffer_append(&shown, "", 1);
    assert_non_null(strstr(shown.data, "of another version of leat"));
    buffer_free(&shown);
    buffer_free(&positions);
    arena_free(&arena);
}

static void test_positions_of_another_version(void **state)
{
    (void)state;
    static const uint64_t versions[] = {6, 8};
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++) {
        new_directory(folder);
        reset(1);
        const char *text = job("fake_source", COPIES);
        struct run_options options = on(1);
        struct live *live = begin(text, &options);
        give(0, 1, 1000);
        wait_for(&fake_sink.count, 1);
        run_stop(live->run);
        end(live);
        publish_as(versions[i]);
        begin_refused(text, &options,
                      versions[i] == 6 ? SAYS("positions are of format 6", "reads format 7",
                                              "the version of leat that wrote", "--fresh")
                                       : SAYS("positions are of format 8", "reads format 7",
                                              "the version of leat that wrote"));
        os_remove_tree(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_record_once),
        cmocka_unit_test(test_the_same_again),
        cmocka_unit_test(test_again_by_the_log),
        cmocka_unit_test(test_what_is_gone_is_not_done_again),
        cmocka_unit_test(test_the_end_of_the_log_is_kept),
        cmocka_unit_test(test_positions_of_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
