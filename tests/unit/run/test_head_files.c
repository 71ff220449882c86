/* Manifests of heads as files: whole and durable or not there, never written over, refused where they are damaged, removed when old. */
#include "core/os.h"
#include "run/head.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct arena arena;
static struct diag_list diags;

/* Encodes a head of so many parts. */
static void encode(uint32_t incarnation, uint64_t epoch, uint32_t parts, struct byte_buffer *out)
{
    struct run_head head = {.epoch = epoch, .count = parts};
    for (uint32_t i = 0; i < parts; i++)
        head.parts[i] =
            (struct run_head_part){.worker = i, .id = {incarnation, epoch}, .directory = STR("many/0")};
    buffer_clear(out);
    run_head_encode(&head, out);
}

static void forget(void)
{
    arena_reset(&arena);
    diag_list_init(&diags, &arena);
}

static bool write_head(uint32_t incarnation, uint64_t epoch, uint32_t parts)
{
    struct byte_buffer manifest = {0};
    encode(incarnation, epoch, parts, &manifest);
    bool is_good =
        run_head_write("heads", incarnation, epoch, (struct str){manifest.data, manifest.length}, &diags);
    buffer_free(&manifest);
    return is_good;
}

/* The code with which a load is refused; DIAG_NONE: it is good, and of that epoch. */
static enum diag_code load(const char *path, uint64_t epoch)
{
    struct byte_buffer manifest = {0};
    struct run_head head;
    forget();
    bool is_good = run_head_load(path, &manifest, &head, &diags);
    assert_true(is_good ? head.epoch == epoch && str_is(head.parts[0].directory, "many/0")
                        : diags.items[0].hint != NULL);
    buffer_free(&manifest);
    return is_good ? DIAG_NONE : diags.items[0].code;
}

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "heads/%s", name);
    return access(path, F_OK) == 0;
}

static void remove_all(void)
{
    assert_int_equal(os_remove_tree("heads"), 0);
    forget();
}

/* From now on the step fails; NULL: none does. */
static void fail_at(const char *point)
{
    static const char *last;
    char text[64];
    last = point == NULL ? last : point;
    snprintf(text, sizeof(text), "%s=error:EIO%s", last, point == NULL ? "@1000000" : "");
    assert_int_equal(setenv("LEAT_FAILPOINTS", text, 1), 0);
    assert_true(failpoints_init(&diags));
}

static void test_write(void **state)
{
    (void)state;
    assert_true(write_head(3, 17, 2));
    assert_true(exists("head-000003-000000000017"));
    assert_int_equal(load("heads/head-000003-000000000017", 17), DIAG_NONE);
    assert_true(write_head(3, 17, 2)); /* the leader tries again */
    assert_false(write_head(3, 17, 1));
    assert_int_equal(diags.items[0].code, DIAG_CHECKPOINT_FAILED);
    assert_int_equal(load("heads/head-000003-000000000017", 17), DIAG_NONE);
    assert_false(exists("head-000003-000000000017.tmp"));
    assert_true(write_head(4000000000U, RUN_EPOCH_MAX, RUN_WORKERS_MAX));
    assert_int_equal(load("heads/head-4000000000-9223372036854775807", RUN_EPOCH_MAX), DIAG_NONE);
    remove_all();
}

/* A step that fails leaves no file with the name, or a whole one; the next attempt is good. */
static void test_failing_steps(void **state)
{
    static const char *const points[] = {"head.write", "head.fsync", "head.rename", "head.fsync_directory"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(points); i++) {
        fail_at(points[i]);
        assert_false(write_head(3, 17, 2));
        assert_int_equal(diags.items[0].code, DIAG_CHECKPOINT_FAILED);
        assert_int_equal(exists("head-000003-000000000017"), i == ARRAY_COUNT(points) - 1);
        forget();
        fail_at(NULL);
        assert_true(write_head(3, 17, 2));
        assert_int_equal(load("heads/head-000003-000000000017", 17), DIAG_NONE);
        remove_all();
    }
    assert_true(write_head(3, 17, 2));
    fail_at("head.fsync_directory"); /* that it is there does not say that it is durable */
    assert_false(write_head(3, 17, 2));
    fail_at(NULL);
    remove_all();
}

static void test_load(void **state)
{
    static char large[RUN_HEAD_BYTES_MAX + 1];
    static const char path[] = "heads/head-000003-000000000017";
    (void)state;
    assert_int_equal(load(path, 17), DIAG_NO_CHECKPOINT);
    assert_true(write_head(3, 17, 2) && write_head(3, 18, 2));
    assert_int_equal(load("heads", 17), DIAG_NO_CHECKPOINT);
    assert_int_equal(rename("heads/head-000003-000000000018", path), 0);
    assert_int_equal(load(path, 17), DIAG_CHECKPOINT_DAMAGED); /* of another epoch */
    assert_int_equal(rename(path, "heads/head-000004-000000000018"), 0);
    assert_int_equal(load("heads/head-000004-000000000018", 18), DIAG_CHECKPOINT_DAMAGED);
    assert_int_equal(rename("heads/head-000004-000000000018", "heads/copy"), 0);
    assert_int_equal(load("heads/copy", 18), DIAG_NONE); /* a name of another form says nothing */
    assert_int_equal(truncate("heads/copy", 40), 0);
    assert_int_equal(load("heads/copy", 18), DIAG_CHECKPOINT_DAMAGED);
    assert_int_equal(truncate("heads/copy", 0), 0);
    assert_int_equal(load("heads/copy", 18), DIAG_CHECKPOINT_DAMAGED);
    assert_int_equal(os_write_file("heads/copy", large, sizeof(large), NULL, NULL), 0);
    assert_int_equal(load("heads/copy", 18), DIAG_CHECKPOINT_DAMAGED);
    assert_non_null(strstr(diags.items[0].message, "too large")); /* it was not read */
    remove_all();
}

static void test_prune(void **state)
{
    static const struct {
        uint32_t incarnation;
        uint64_t epoch;
    } heads[] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {3, 4}, {3, 5}, {3, 6}, {10, 6}};
    uint32_t removed;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        assert_true(write_head(heads[i].incarnation, heads[i].epoch, 2));
    static const char *const others[] = {"heads/head-000001-000000000009.tmp",
                                         "heads/head-000002-000000000003.tmp",
                                         "heads/head-1-1",
                                         "heads/HEAD",
                                         "heads/head-000001-000000000001-2",
                                         "heads/head-000003-000000000007.tmp"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        assert_int_equal(os_write_file(others[i], "x", 1, NULL, NULL), 0);
    assert_true(run_head_prune("heads", 3, 5, 100, &removed, &diags));
    /* The third incarnation began with 1-3: neither 1-4 nor 1-5 was a head, as far as 3-4 was one. */
    assert_int_equal(removed, 4);
    assert_true(exists("head-000003-000000000004") && exists("head-000001-000000000003"));
    assert_false(exists("head-000002-000000000003.tmp"));
    assert_false(exists("head-000001-000000000004") || exists("head-000001-000000000005"));
    assert_true(run_head_prune("heads", 3, 5, 2, &removed, &diags));
    assert_int_equal(removed, 2);
    assert_true(exists("head-000003-000000000004") && exists("head-000001-000000000003"));
    assert_true(run_head_prune("heads", 3, 5, 0, &removed, &diags));
    assert_int_equal(removed, 2);
    assert_true(exists("head-000003-000000000005")); /* the head, and what is newer */
    assert_true(exists("head-000003-000000000006") && exists("head-000010-000000000006"));
    assert_true(exists("head-000003-000000000007.tmp"));
    for (size_t i = 2; i < ARRAY_COUNT(others); i++)
        assert_int_equal(access(others[i], F_OK), 0);
    fail_at("head.prune");
    assert_false(run_head_prune("heads", 10, 6, 0, &removed, &diags));
    assert_int_equal(diags.items[0].code, DIAG_CHECKPOINT_FAILED);
    fail_at(NULL);
    forget();
    assert_true(run_head_prune("heads", 10, 6, 0, &removed, &diags));
    assert_int_equal(removed, 3);
    remove_all();
    assert_false(run_head_prune("heads", 10, 6, 0, &removed, &diags)); /* there is no folder */
    forget();
}

static bool is_read(struct str manifest)
{
    struct run_head head;
    const char *why = NULL;
    bool is_good = run_head_decode(manifest, &head, &why);
    assert_true(is_good || why != NULL);
    return is_good;
}

/* Encodes the head anew, and reads it. */
static bool is_taken(const struct run_head *head)
{
    struct byte_buffer out = {0};
    run_head_encode(head, &out);
    bool is_good = is_read((struct str){out.data, out.length});
    buffer_free(&out);
    return is_good;
}

/* A manifest comes from outside: one that is cut off, has another byte, or names what cannot be, is refused. */
static void test_manifest(void **state)
{
    struct run_head head = {.epoch = 7, .leader = 1, .count = 2};
    struct byte_buffer out = {0};
    (void)state;
    for (uint32_t i = 0; i < head.count; i++)
        head.parts[i] = (struct run_head_part){
            .worker = i, .id = {3, 7}, .bytes = 1000 + i, .directory = STR("state/part")};
    run_head_encode(&head, &out);
    struct str whole = {out.data, out.length};
    assert_true(is_read(whole));
    for (size_t i = 0; i < whole.length; i++) {
        assert_false(is_read((struct str){whole.data, i}));
        out.data[i] ^= 1;
        assert_false(is_read(whole));
        out.data[i] ^= 1;
    }
    buffer_free(&out);
    struct run_head bad = head;
    bad.leader = 2;
    assert_false(is_taken(&bad));
    bad = head;
    bad.parts[1].directory.length = 0;
    assert_false(is_taken(&bad));
    bad = head;
    bad.parts[0].id.generation = 0;
    assert_false(is_taken(&bad));
    bad = head;
    bad.parts[0].directory = (struct str){"a\0b", 3};
    assert_false(is_taken(&bad));
    bad = head;
    bad.epoch = 0;
    assert_false(is_taken(&bad));
    assert_true(is_taken(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_write), cmocka_unit_test(test_failing_steps),
                                       cmocka_unit_test(test_load), cmocka_unit_test(test_prune),
                                       cmocka_unit_test(test_manifest)};
    char folder[] = "head-files-XXXXXX";
    diag_list_init(&diags, &arena);
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}
