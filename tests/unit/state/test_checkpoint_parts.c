/* Parts of heads: which of them pruning keeps while heads come, fail, or are in doubt, in one life and over several. */
#include "checkpoint_fixture.h"

#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct run_id job = {{7}};
static const struct checkpoint_keep keep_one = {.last = 1};

/* Begins a life of the worker; parent: its part of the head, epoch 0: it has none. */
static void begin(struct fixture *f, uint32_t generation, struct checkpoint_id parent)
{
    struct checkpoint_part_start start = {
        .parent = parent, .run = job, .generation = generation, .awaits_head = true};
    checkpoint_dir_close(f->dir);
    fixture_open(f, false);
    assert_true(checkpoint_start_part(f->dir, &start, &f->diags));
}

/* Writes a part, says what becomes of it, and prunes. */
static void write_part(struct fixture *f, uint64_t epoch, bool is_base, enum part_fate fate)
{
    uint32_t removed;
    assert_true(fixture_write(f, epoch, is_base));
    if (fate == PART_NAMED)
        checkpoint_part_named(f->dir, epoch);
    else if (fate == PART_VOID)
        checkpoint_part_void(f->dir, epoch);
    assert_true(checkpoint_prune(f->dir, &keep_one, &removed, &f->diags));
}

/* The checkpoints in the directory are these, newest first: "2-7 1-3 1-2". */
static void has(struct fixture *f, const char *expected)
{
    uint32_t count;
    char found[512] = "";
    struct checkpoint_id *ids = checkpoint_ids(f->dir, &count);
    for (uint32_t i = 0; i < count; i++)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%u-%llu", i == 0 ? "" : " ",
                 ids[i].generation, (unsigned long long)ids[i].epoch);
    free(ids);
    assert_string_equal(found, expected);
}

static bool opens(struct fixture *f, struct checkpoint_id id)
{
    struct checkpoint *checkpoint = checkpoint_open(f->dir, id, &f->diags);
    checkpoint_close(checkpoint);
    return checkpoint != NULL;
}

/* However many heads fail, the part of the newest head stays with its chain, and so does the chain on which the next part builds; nothing
 * else. */
static void test_failing_heads(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f);
    begin(&f, 1, (struct checkpoint_id){0});
    write_part(&f, 1, true, PART_NAMED);
    write_part(&f, 2, false, PART_NAMED);
    for (uint64_t epoch = 3; epoch <= 22; epoch++) {
        write_part(&f, epoch, epoch % 4 == 3, PART_VOID);
        assert_true(opens(&f, (struct checkpoint_id){1, 2}));
    }
    has(&f, "1-22 1-21 1-20 1-19 1-2 1-1");
    write_part(&f, 23, true,
               PART_NAMED); /* a base; of another chain `keep` has the part of the head before */
    has(&f, "1-23 1-2 1-1");
    write_part(&f, 24, false, PART_VOID);
    write_part(&f, 25, false, PART_NAMED); /* a delta on a part of no head */
    has(&f, "1-25 1-24 1-23 1-2 1-1");
    assert_true(opens(&f, (struct checkpoint_id){1, 25}));
    fixture_free(&f);
}

/* A part in doubt stays until a newer one is named. */
static void test_doubt(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f);
    begin(&f, 1, (struct checkpoint_id){0});
    write_part(&f, 1, true, PART_IN_DOUBT);
    write_part(&f, 2, true, PART_IN_DOUBT);
    has(&f, "1-2 1-1");
    write_part(&f, 3, true, PART_NAMED);
    has(&f, "1-3");
    write_part(&f, 4, true, PART_IN_DOUBT);
    write_part(&f, 5, true, PART_VOID);
    write_part(&f, 6, true, PART_IN_DOUBT);
    has(&f, "1-6 1-4 1-3");
    write_part(&f, 7, true, PART_NAMED);
    has(&f, "1-7 1-3");
    fixture_free(&f);
}

/* What a life finds that is newer than the head with which it begins stays until it has a part that a head names. */
static void test_restart(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f);
    begin(&f, 1, (struct checkpoint_id){0});
    write_part(&f, 1, true, PART_NAMED);
    write_part(&f, 2, true, PART_IN_DOUBT);
    write_part(&f, 3, false, PART_NAMED);
    begin(&f, 2, (struct checkpoint_id){1, 1}); /* the head is an older one, as after a loss */
    write_part(&f, 4, true, PART_VOID);
    write_part(&f, 5, true, PART_IN_DOUBT);
    has(&f, "2-5 1-3 1-2 1-1");
    begin(&f, 3, (struct checkpoint_id){2, 5}); /* the answer was lost: it was the head */
    write_part(&f, 6, true, PART_IN_DOUBT);
    has(&f, "3-6 2-5 1-3 1-2 1-1");
    write_part(&f, 7, true, PART_NAMED);
    has(&f, "3-7 2-5");
    fixture_free(&f);
}

/* Lives that end before their first head do not fill the disk; the part of the head stays, whatever the worker is called. */
static void test_dying_lives(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f);
    begin(&f, 1, (struct checkpoint_id){0});
    write_part(&f, 1, true, PART_NAMED);
    for (uint32_t generation = 2; generation <= 9; generation++) {
        begin(&f, generation, (struct checkpoint_id){1, 1});
        write_part(&f, 2, true, PART_IN_DOUBT);
        write_part(&f, 3, false, PART_IN_DOUBT);
    }
    has(&f, "9-3 9-2 8-3 8-2 7-3 7-2 6-3 6-2 1-1");
    begin(&f, 10, (struct checkpoint_id){0}); /* this worker has no part of the head now */
    write_part(&f, 4, true, PART_IN_DOUBT);
    has(&f, "10-4 9-3 9-2 8-3 8-2 7-3 7-2 1-1");
    write_part(&f, 5, true, PART_NAMED);
    has(&f, "10-5");
    fixture_free(&f);
}

/* A directory knows with which head its newest life began, and whether it has a checkpoint that counts. */
static void test_begun(void **state)
{
    struct fixture f;
    struct byte_buffer manifest = {0};
    (void)state;
    fixture_init(&f);
    fixture_open(&f, false);
    assert_false(checkpoint_newest_head(f.dir, &manifest) || checkpoint_has_named(f.dir));
    begin(&f, 1, (struct checkpoint_id){0});
    assert_false(checkpoint_newest_head(f.dir, &manifest));
    write_part(&f, 1, true, PART_IN_DOUBT);
    assert_false(checkpoint_has_named(f.dir));
    write_part(&f, 2, true, PART_NAMED);
    assert_true(checkpoint_has_named(f.dir));
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    struct checkpoint_part_start start = {.run = job, .generation = 4, .head = STR("a manifest")};
    assert_true(checkpoint_start_part(f.dir, &start, &f.diags));
    assert_true(checkpoint_newest_head(f.dir, &manifest));
    assert_true(str_is((struct str){manifest.data, manifest.length}, "a manifest"));
    assert_false(checkpoint_has_named(f.dir));
    assert_true(fixture_write(&f, 1, true)); /* of a run that is alone: it counts at once */
    assert_true(checkpoint_has_named(f.dir));
    buffer_free(&manifest);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failing_heads), cmocka_unit_test(test_doubt),
                                       cmocka_unit_test(test_restart), cmocka_unit_test(test_dying_lives),
                                       cmocka_unit_test(test_begun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
