/* Checkpoint storage: what is written is read back, damage is found, and a write that fails is abandoned. */
#include "checkpoint_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* --- Writing and reading --- */

static void test_records_come_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_dir_is_empty(f.dir));
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    for (uint64_t epoch = 1; epoch <= 5; epoch++)
        assert_true(fixture_write(&f, epoch, epoch == 1));
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    const struct checkpoint_info *info = checkpoint_info(found);
    assert_int_equal(info->id.epoch, 5);
    assert_true(str_is(info->sources, "positions") && str_is(info->profile, "cpu"));
    for (uint32_t lanes = 0; lanes <= 3; lanes++) {
        uint32_t records = 0;
        struct placement placement;
        struct group_set groups;
        if (lanes == 2)
            placement_scatter(&placement, lanes, 7);
        else
            placement_ranges(&placement, MAX(lanes, 1));
        for (uint32_t lane = 0; lane < MAX(lanes, 1); lane++) {
            placement_groups(&placement, lane, &groups);
            records += fixture_read(&f, found, "op/1/", lanes == 0 ? NULL : &groups);
        }
        /* The global record of each part comes to every lane. */
        assert_int_equal(records, 5 * 2 * (FIXTURE_RECORDS + MAX(lanes, 1)));
    }
    assert_int_equal(fixture_read(&f, found, "op/", NULL), 5 * 3 * (FIXTURE_RECORDS + 1));
    assert_int_equal(fixture_read(&f, found, "nothing/", NULL), 0);
    checkpoint_close(found);
    assert_int_equal(f.diags.count, 0);
    fixture_free(&f);
}

/* A checkpoint with three databases of a table file each; the bytes that were read or written for it. */
static uint64_t write_databases(struct fixture *f, uint64_t epoch, const char *content, size_t bytes)
{
    struct checkpoint_writer *writer = checkpoint_begin(f->dir, epoch, epoch == 1, &f->diags);
    assert_non_null(writer);
    for (uint32_t number = 0; number < 3; number++) {
        char path[CHECKPOINT_PATH_BYTES], file[CHECKPOINT_PATH_BYTES + 16];
        checkpoint_writer_database(writer, number, path);
        assert_int_equal(mkdir(path, 0777), 0);
        snprintf(file, sizeof(file), "%s/%06u.sst", path, number + 10);
        fixture_write_file(file, content, bytes);
    }
    assert_true(checkpoint_write(writer, 3, &f->diags));
    uint64_t taken = checkpoint_written_bytes(writer);
    struct checkpoint_info info = {0};
    assert_true(checkpoint_publish(writer, &info, &f->diags));
    return taken;
}

/* Of a table file that the checkpoint before has, too, the digests are known: no database's file is read again. */
static void test_digests_are_known(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    char *content = calloc(1, BYTES + 1);
    assert_in_range(write_databases(&f, 1, content, BYTES), 3 * BYTES, 4 * BYTES);
    for (uint64_t epoch = 2; epoch <= 3; epoch++)
        assert_in_range(write_databases(&f, epoch, content, BYTES), 0, BYTES / 2);
    assert_in_range(write_databases(&f, 4, content, BYTES + 1), 3 * BYTES, 4 * BYTES); /* they are others */
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_int_equal(checkpoint_info(found)->id.epoch, 4);
    checkpoint_close(found);
    free(content);
    fixture_free(&f);
}

/* A record of 16 MiB, many small ones, none at all. */
static void test_sizes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    struct checkpoint_writer *writer = checkpoint_begin(f.dir, 1, true, &f.diags);
    char *large = calloc(1, 16 << 20);
    large[12345] = 'x';
    struct snapshot_writer *part = checkpoint_part(writer, "large");
    assert_true(snapshot_put(part, 719, large, 16 << 20));
    for (uint32_t i = 0; i < 300000; i++)
        assert_true(snapshot_put(part, i % 720, &i, i % 5));
    checkpoint_part(writer, "empty");
    struct checkpoint_info info = {0};
    assert_true(checkpoint_write(writer, 0, &f.diags) && checkpoint_publish(writer, &info, &f.diags));
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    struct snapshot_reader *reader = checkpoint_reader(found, "large", NULL, &f.diags);
    uint32_t group, count = 0;
    struct str data;
    assert_true(snapshot_get(reader, &group, &data) && data.length == 16 << 20 && group == 719);
    assert_memory_equal(data.data, large, data.length);
    while (snapshot_get(reader, &group, &data))
        assert_true(data.length == count % 5 && group == count % 720 &&
                    memcmp(data.data, &count, data.length) == 0 && ++count > 0);
    assert_int_equal(count, 300000);
    assert_true(checkpoint_reader_close(reader));
    assert_int_equal(fixture_read(&f, found, "empty", NULL), 0);
    checkpoint_close(found);
    free(large);
    fixture_free(&f);
}

/* --- Damage --- */

/* After damage to the newest checkpoint: it is skipped with a warning and the one before is found, or nothing
 * that matters has changed. Returns whether it was skipped. */
static bool is_detected(struct fixture *f, const char *what, size_t offset)
{
    arena_reset(&f->arena);
    diag_list_init(&f->diags, &f->arena);
    struct checkpoint *found;
    enum checkpoint_found outcome = checkpoint_find(f->dir, &found, &f->diags);
    if (outcome != CHECKPOINT_FOUND)
        fail_msg("%s at %zu: the older checkpoint was not found", what, offset);
    bool is_skipped = checkpoint_info(found)->id.epoch == 1;
    if (is_skipped)
        assert_true(f->diags.count > 0 && f->diags.items[0].path != NULL);
    else if (fixture_read(f, found, "op/", NULL) != 2 * 3 * (FIXTURE_RECORDS + 1))
        fail_msg("%s at %zu: damage was not noticed", what, offset);
    checkpoint_close(found);
    return is_skipped;
}

static void every_byte(struct fixture *f, const char *name, bool must_detect)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/gen-000001/%s", f->path, name);
    char *text;
    size_t bytes;
    assert_int_equal(os_read_file(path, 1 << 24, &text, &bytes), 0);
    for (size_t i = 0; i < bytes; i++) {
        char bit = (char)(1 << (i % 8));
        fixture_patch(path, i, (char)(text[i] ^ bit));
        if (must_detect)
            assert_true(is_detected(f, name, i));
        else
            (void)is_detected(f, name, i);
        fixture_patch(path, i, text[i]);
    }
    for (size_t length = 0; length < bytes; length += 1 + bytes / 2000) {
        assert_int_equal(truncate(path, (off_t)length), 0);
        if (must_detect)
            assert_true(is_detected(f, name, length));
        else
            (void)is_detected(f, name, length);
        fixture_write_file(path, text, bytes);
    }
    assert_false(is_detected(f, name, 0));
    free(text);
}

static void test_damage(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    assert_true(fixture_write(&f, 1, true) && fixture_write(&f, 2, false));
    every_byte(&f, "ckpt-000000000002/MANIFEST", true);
    every_byte(&f, "ckpt-000000000002/state.bin", true);
    every_byte(&f, "ckpt-000000000002/order.log", true);
    every_byte(&f, "GENERATION", false);
    fixture_free(&f);
}

/* If the base of a chain is damaged, the chain before it is found; if that is damaged, too, nothing is. */
static void test_damaged_base(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    for (uint64_t epoch = 1; epoch <= 6; epoch++)
        assert_true(fixture_write(&f, epoch, epoch % 3 == 1));
    char path[4096];
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000004/state.bin", f.path);
    fixture_patch(path, 20, 'X');
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_int_equal(checkpoint_info(found)->id.epoch, 3);
    checkpoint_close(found);
    assert_int_equal(f.diags.count, 3); /* 6, 5 and 4 were skipped */
    assert_false(checkpoint_verify(f.dir, (struct checkpoint_id){1, 6}, &f.diags));
    assert_true(checkpoint_verify(f.dir, (struct checkpoint_id){1, 2}, &f.diags));
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/state.bin", f.path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_REFUSED);
    assert_non_null(fixture_diag(&f, DIAG_NO_CHECKPOINT));
    fixture_free(&f);
}

/* --- Refusals --- */

static void test_foreign_and_newer(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    assert_true(fixture_write(&f, 1, true));
    checkpoint_dir_close(f.dir);
    struct checkpoint *found;
    f.dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){.path = f.path, .fingerprint = STR("another job")}, &f.diags);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_REFUSED);
    assert_non_null(fixture_diag(&f, DIAG_OTHER_JOB));
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    char path[4096], *text;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/MANIFEST", f.path);
    assert_int_equal(os_read_file(path, 1 << 20, &text, &bytes), 0);
    const size_t at = 8 + 3; /* after the magic number and the array's head */
    assert_int_equal(text[at], CHECKPOINT_FORMAT);
    static const char others[] = {CHECKPOINT_FORMAT + 1, CHECKPOINT_FORMAT - 1}; /* newer, older */
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        text[at] = others[i];
        manifest_seal(text, bytes);
        fixture_write_file(path, text, bytes);
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_REFUSED);
        assert_int_equal(f.diags.items[f.diags.count - 1].code, DIAG_OTHER_VERSION);
        assert_true(f.diags.errors == 2 + i);
    }
    free(text);
    fixture_free(&f);
}

static void test_locks(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    assert_true(fixture_write(&f, 1, true));
    struct checkpoint_dir *zombie = f.dir;
    struct checkpoint_dir_options options = {.path = f.path, .fingerprint = STR("job")};
    assert_null(checkpoint_dir_open(&options, &f.diags));
    const struct diag *diag = fixture_diag(&f, DIAG_DIRECTORY_IN_USE);
    assert_true(diag != NULL && strstr(diag->message, "pid ") != NULL && diag->hint != NULL);
    /* Read-only needs no lock. */
    options.read_only = true;
    struct checkpoint_dir *reader = checkpoint_dir_open(&options, &f.diags);
    assert_non_null(reader);
    checkpoint_dir_close(reader);
    /* The directory is taken over: what the former owner publishes from now on is never found. */
    fixture_open(&f, true);
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_true(checkpoint_start_generation(f.dir, found, &f.diags));
    checkpoint_close(found);
    struct checkpoint_dir *owner = f.dir;
    char holder[CHECKPOINT_HOLDER_BYTES];
    assert_int_equal(checkpoint_dir_check(owner), 0);
    assert_int_equal(checkpoint_dir_check(zombie), ESTALE);
    checkpoint_dir_holder(zombie, holder);
    assert_non_null(strstr(holder, "pid "));
    assert_non_null(checkpoint_dir_taken_from(owner));
    f.dir = zombie;
    uint32_t removed;
    assert_false(fixture_write(&f, 2, false));
    assert_false(checkpoint_prune(f.dir, NULL, &removed, &f.diags));
    f.dir = owner;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_int_equal(checkpoint_info(found)->id.epoch, 1);
    checkpoint_close(found);
    assert_true(fixture_write(&f, 2, true));
    checkpoint_dir_close(zombie); /* does not free the lock of the new owner */
    assert_null(checkpoint_dir_open(&(struct checkpoint_dir_options){.path = f.path}, &f.diags));
    fixture_free(&f);
    /* A path that is no checkpoint directory. */
    fixture_init(&f);
    char path[4096];
    snprintf(path, sizeof(path), "%s/thesis.tex", f.path);
    fixture_write_file(path, "x", 1);
    options = (struct checkpoint_dir_options){.path = f.path};
    assert_null(checkpoint_dir_open(&options, &f.diags));
    assert_non_null(fixture_diag(&f, DIAG_FOREIGN_DIRECTORY));
    f.dir = NULL;
    fixture_free(&f);
}

/* A process that publishes three checkpoints and is stopped by the failpoint `point` in the next step, a
 * publication or a removal, until it is woken. Returns whether the publication then still succeeds, but a
 * removal and every later step are refused. */
static bool sleep_and_wake(struct fixture *f, const char *point, bool is_publication)
{
    char rule[64];
    uint32_t removed;
    const struct checkpoint_keep newest = {.last = 1};
    fixture_open(f, false);
    bool is_good = checkpoint_start_generation(f->dir, NULL, &f->diags);
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        is_good = is_good && fixture_write(f, epoch, true);
    snprintf(rule, sizeof(rule), "%s=stop@1", point);
    setenv("LEAT_FAILPOINTS", rule, 1);
    is_good = is_good && failpoints_init(&f->diags);
    is_good = is_good && (!is_publication || fixture_write(f, 4, true));
    is_good = is_good && checkpoint_prune(f->dir, &newest, &removed, &f->diags) == false;
    return is_good && !fixture_write(f, 5, true);
}

/* A process sleeps between checkpoint_dir_check and its step (checkpoint_lock.c), and is replaced in that
 * moment: the step, which comes too late, changes nothing for its successor. */
static void test_steps_that_come_too_late(void **state)
{
    (void)state;
    static const char *const points[] = {"ckpt.rename", "ckpt.prune"};
    for (size_t i = 0; i < ARRAY_COUNT(points); i++) {
        struct fixture f;
        struct checkpoint *found;
        uint32_t removed;
        int status;
        fixture_init(&f);
        pid_t sleeper = fork();
        if (sleeper == 0)
            _exit(sleep_and_wake(&f, points[i], i == 0) ? 0 : 1);
        assert_int_equal(waitpid(sleeper, &status, WUNTRACED), sleeper);
        assert_true(WIFSTOPPED(status));
        fixture_open(&f, true);
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(checkpoint_info(found)->id.epoch, 3);
        assert_true(checkpoint_start_generation(f.dir, found, &f.diags));
        checkpoint_close(found);
        kill(sleeper, SIGCONT);
        assert_int_equal(waitpid(sleeper, &status, 0), sleeper);
        assert_int_equal(status, 0);
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(checkpoint_info(found)->id.epoch, 3);
        checkpoint_close(found);
        assert_true(fixture_write(&f, 4, true));
        assert_true(checkpoint_prune(f.dir, NULL, &removed, &f.diags));
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(checkpoint_info(found)->id.generation, 2);
        checkpoint_close(found);
        fixture_free(&f);
    }
}

/* --- Failing steps --- */

/* A process that was killed holds its lock a little longer: opening the directory waits for it. */
static void test_lock_of_the_dying(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, false);
    checkpoint_dir_close(f.dir);
    char path[4096];
    snprintf(path, sizeof(path), "%s/LOCK", f.path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    pid_t dying = fork();
    if (dying == 0) {
        usleep(200 * 1000);
        _exit(0);
    }
    close(fd); /* now the child alone holds the lock */
    fixture_open(&f, false);
    assert_non_null(f.dir);
    assert_int_equal(waitpid(dying, NULL, 0), dying);
    fixture_free(&f);
}

static void test_failing_steps(void **state)
{
    (void)state;
    static const char *const points[] = {"ckpt.write",  "ckpt.order",           "ckpt.manifest",
                                         "ckpt.fsync",  "ckpt.fsync_directory", "ckpt.pre_rename",
                                         "ckpt.rename", "ckpt.post_rename",     "ckpt.fsync_parent"};
    for (size_t i = 0; i < ARRAY_COUNT(points); i++) {
        struct fixture f;
        char rule[128];
        fixture_init(&f);
        fixture_open(&f, false);
        assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
        assert_true(fixture_write(&f, 1, true));
        snprintf(rule, sizeof(rule), "%s=error:EIO", points[i]);
        setenv("LEAT_FAILPOINTS", rule, 1);
        assert_true(failpoints_init(&f.diags));
        if (fixture_write(&f, 2, false))
            fail_msg("%s", points[i]);
        assert_non_null(fixture_diag(&f, DIAG_CHECKPOINT_FAILED));
        assert_int_equal(f.done_abandoned, 1);
        snprintf(rule, sizeof(rule), "%s=sleep:0", points[i]);
        setenv("LEAT_FAILPOINTS", rule, 1);
        assert_true(failpoints_init(&f.diags));
        /* The abandoned checkpoint is not found, and the next one follows the first. */
        diag_list_init(&f.diags, &f.arena);
        struct checkpoint *found;
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(checkpoint_info(found)->id.epoch, 1);
        checkpoint_close(found);
        assert_true(fixture_write(&f, 3, false));
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(fixture_read(&f, found, "op/", NULL), 2 * 3 * (FIXTURE_RECORDS + 1));
        checkpoint_close(found);
        assert_int_equal(f.done_published, 2);
        fixture_free(&f);
    }
}

/* --- Pruning --- */

static void count_kept(struct fixture *f, uint32_t expected, uint64_t newest, uint64_t oldest)
{
    struct checkpoint_list list;
    assert_true(checkpoint_list(f->dir, &f->arena, &list, &f->diags));
    assert_int_equal(list.count, expected);
    assert_int_equal(list.items[0].id.epoch, newest);
    assert_int_equal(list.items[list.count - 1].id.epoch, oldest);
    for (uint32_t i = 0; i < list.count; i++)
        assert_true(!list.is_damaged[i] && checkpoint_verify(f->dir, list.items[i].id, &f->diags));
}

static void test_keeping(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t removed;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_true(checkpoint_start_generation(f.dir, NULL, &f.diags));
    /* Chains of four, half an hour apart. */
    for (uint64_t epoch = 1; epoch <= 16; epoch++) {
        assert_true(fixture_write(&f, epoch, epoch % 4 == 1));
        fixture_set_time(&f, epoch, (int64_t)epoch * US_PER_HOUR / 2 + 1);
    }
    /* Kept: the newest two, 16 and 15, and what they need, 14 and 13; one of the chain before, 12, and
     * what it needs. */
    struct checkpoint_keep keep = {.last = 2};
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    assert_int_equal(removed, 8);
    count_kept(&f, 8, 16, 9);
    for (uint64_t epoch = 17; epoch <= 24; epoch++) {
        assert_true(fixture_write(&f, epoch, true));
        fixture_set_time(&f, epoch, (int64_t)epoch * US_PER_HOUR / 2 + 1);
    }
    keep = (struct checkpoint_keep){.last = 1, .hourly = 3};
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    count_kept(&f, 3, 24, 21); /* the newest of three hours; 23 is also the one of the chain before */
    /* The wall clock jumped forward and back by an hour: of each hour one is kept, also of the oldest. */
    for (uint64_t epoch = 25; epoch <= 30; epoch++) {
        assert_true(fixture_write(&f, epoch, true));
        fixture_set_time(&f, epoch, (int64_t)(12 + epoch % 2) * US_PER_HOUR + 2);
    }
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    count_kept(&f, 3, 30, 23); /* 30 of the hour 12:00, 29 of 13:00, 23 of 11:00 */
    keep = (struct checkpoint_keep){.last = 1};
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    count_kept(&f, 2, 30, 29);
    char orphan[4096];
    snprintf(orphan, sizeof(orphan), "%s/gen-000001/ckpt-000000000099.tmp", f.path);
    checkpoint_dir_close(f.dir);
    assert_int_equal(mkdir(orphan, 0777), 0);
    fixture_open(&f, false);
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_true(checkpoint_start_generation(f.dir, found, &f.diags));
    checkpoint_close(found);
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    assert_int_equal(os_file_bytes(orphan), -1);
    struct byte_buffer text = {0};
    assert_true(checkpoint_show(f.dir, (struct checkpoint_id){1, 30}, &text, &f.diags));
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "state.bin"));
    assert_non_null(strstr(text.data, "op/1/0"));
    buffer_free(&text);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records_come_back),
                                       cmocka_unit_test(test_digests_are_known),
                                       cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_damaged_base),
                                       cmocka_unit_test(test_foreign_and_newer),
                                       cmocka_unit_test(test_locks),
                                       cmocka_unit_test(test_lock_of_the_dying),
                                       cmocka_unit_test(test_steps_that_come_too_late),
                                       cmocka_unit_test(test_failing_steps),
                                       cmocka_unit_test(test_keeping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
