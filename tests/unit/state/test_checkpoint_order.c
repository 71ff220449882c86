/* Order logs in a checkpoint directory: the segments that pruning keeps, and those that a fall
 * back executes again. */
#include "checkpoint_fixture.h"

#include "core/order_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

/* Opens a checkpoint. The order log of epoch e has the micro-batches 10 (e - 1) .. 10 e - 1. */
static struct checkpoint *open_at(struct fixture *f, uint32_t generation, uint64_t epoch)
{
    struct checkpoint *checkpoint =
        checkpoint_open(f->dir, (struct checkpoint_id){generation, epoch}, &f->diags);
    assert_non_null(checkpoint);
    return checkpoint;
}

static void remove_checkpoint_files(struct fixture *f, uint64_t epoch, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-%012llu/%s", f->path, (unsigned long long)epoch, name);
    assert_int_equal(unlink(path), 0);
}

/* The generation that was started must execute the micro-batches [first, next) again, by `count` segments
 * that follow each other. */
static void check_redo(struct fixture *f, uint32_t count, uint64_t first, uint64_t next)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *path = checkpoint_redo(f->dir, i);
        char *text;
        size_t bytes;
        struct order_figures figures;
        assert_non_null(path);
        assert_int_equal(os_read_file(path, 1 << 20, &text, &bytes), 0);
        assert_null(order_figures((struct str){text, bytes}, &figures));
        free(text);
        assert_true(figures.head.first <= first && figures.head.next > first);
        first = figures.head.next;
    }
    assert_null(checkpoint_redo(f->dir, count));
    assert_int_equal(first, next);
}

static void start(struct fixture *f, const struct checkpoint *from, uint64_t number)
{
    checkpoint_redo_find(f->dir, number, &f->diags);
    assert_true(checkpoint_start_generation(f->dir, from, &f->diags));
}

static void begin(struct fixture *f, uint64_t epochs, uint32_t chain)
{
    fixture_init(f);
    fixture_open(f, false);
    assert_true(checkpoint_start_generation(f->dir, NULL, &f->diags));
    for (uint64_t epoch = 1; epoch <= epochs; epoch++)
        assert_true(fixture_write(f, epoch, epoch % chain == 1));
}

static uint32_t loose_segments(struct fixture *f, uint32_t generation)
{
    char path[PATH_BYTES];
    uint32_t count;
    path_generation(f->dir, generation, path);
    free(numbers_list(path, "order-", &count));
    return count;
}

/* The log reaches back to the oldest checkpoint kept, and no further. */
static void test_pruning_keeps_segments(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t removed;
    begin(&f, 10, 3);
    struct checkpoint_keep keep = {.last = 1};
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    assert_int_equal(removed, 6); /* kept: 10, a base; and 9, of the chain before, with 8 and 7 */
    assert_int_equal(loose_segments(&f, 1), 0);
    for (uint64_t epoch = 11; epoch <= 15; epoch++)
        assert_true(fixture_write(&f, epoch, epoch == 13));
    fixture_set_time(&f, 7, 1); /* the newest of its hour and day */
    keep = (struct checkpoint_keep){.last = 1, .daily = 3};
    assert_true(checkpoint_prune(f.dir, &keep, &removed, &f.diags));
    assert_int_equal(loose_segments(&f, 1), 2); /* of 8 and 9; checkpoints 7 and 10 to 15 are kept */
    assert_true(checkpoint_verify(f.dir, (struct checkpoint_id){1, 15}, &f.diags));
    struct byte_buffer shown = {0};
    assert_true(checkpoint_show(f.dir, (struct checkpoint_id){1, 15}, &shown, &f.diags));
    buffer_append(&shown, "", 1);
    assert_non_null(strstr(shown.data, "  order log: micro-batches 140 to 149, 22 entries, 10 slices"));
    assert_non_null(strstr(shown.data, "2 segments (0 damaged) with micro-batches 70 to 89"));
    buffer_free(&shown);
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    struct checkpoint *seventh = open_at(&f, 1, 7);
    start(&f, seventh, 70);
    check_redo(&f, 8, 70, 150);
    assert_int_equal(f.diags.count, 0);
    checkpoint_close(seventh);
    fixture_free(&f);
}

/* A fall back takes the segments of the order log along. A crash before the first checkpoint of the
 * new generation loses none of them; after a checkpoint in the middle of a segment the next life
 * goes on there. */
static void test_falls_back(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 6, 3);
    remove_checkpoint_files(&f, 4, "state.bin"); /* the base of 5 and 6 */
    for (int life = 0; life < 2; life++) {
        struct checkpoint *found;
        checkpoint_dir_close(f.dir);
        fixture_open(&f, false);
        assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
        assert_int_equal(checkpoint_info(found)->id.epoch, 3);
        start(&f, found, 30);
        check_redo(&f, 3, 30, 60);
        checkpoint_close(found);
    }
    struct checkpoint *found;
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    start(&f, found, 30);
    checkpoint_close(found);
    fixture_write_numbers(&f, 4, true, 30, 45);
    checkpoint_redo_passed(f.dir, 45);
    check_redo(&f, 3, 30, 60); /* not all of them were executed yet */
    uint32_t removed;
    assert_true(checkpoint_prune(f.dir, &(struct checkpoint_keep){.last = 1}, &removed, &f.diags));
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    assert_int_equal(checkpoint_info(found)->id.epoch, 4);
    start(&f, found, 45);
    check_redo(&f, 2, 45, 60);
    fixture_write_numbers(&f, 5, true, 45, 60);
    checkpoint_redo_passed(f.dir, 60);
    assert_null(checkpoint_redo(f.dir, 0));
    checkpoint_close(found);
    checkpoint_dir_close(f.dir);
    /* No micro-batches are left to execute again. */
    fixture_open(&f, false);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    start(&f, found, 60);
    assert_null(checkpoint_redo(f.dir, 0));
    checkpoint_close(found);
    fixture_free(&f);
}

/* If a segment is damaged, micro-batches are executed again only up to it, with a warning. */
static void test_damaged_segments(void **state)
{
    (void)state;
    struct fixture f;
    char path[PATH_BYTES];
    begin(&f, 5, 9);
    checkpoint_dir_close(f.dir);
    fixture_open(&f, false);
    struct checkpoint *first = open_at(&f, 1, 1);
    path_order(f.dir, (struct checkpoint_id){1, 4}, path);
    fixture_patch(path, (size_t)os_file_bytes(path) - 20, 'X');
    start(&f, first, 10);
    check_redo(&f, 2, 10, 30);
    assert_int_equal(f.diags.count, 2);
    assert_true(f.diags.errors == 0 && f.diags.items[0].path != NULL);
    assert_non_null(strstr(f.diags.items[0].message, "digest"));
    assert_non_null(strstr(f.diags.items[1].message, "micro-batches 30 to 49"));
    checkpoint_close(first);
    fixture_free(&f);
}

/* The micro-batches of a checkpoint that a process could not publish, because another had taken over, are
 * not executed again. */
static void test_zombies(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2, 9);
    struct checkpoint_dir *zombie = f.dir;
    fixture_open(&f, true);
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    start(&f, found, 20);
    checkpoint_close(found);
    struct checkpoint_dir *owner = f.dir;
    f.dir = zombie;
    assert_false(fixture_write(&f, 3, false));
    checkpoint_dir_close(zombie);
    checkpoint_dir_close(owner);
    fixture_open(&f, false);
    assert_int_equal(checkpoint_find(f.dir, &found, &f.diags), CHECKPOINT_FOUND);
    start(&f, found, 20);
    assert_null(checkpoint_redo(f.dir, 0));
    checkpoint_close(found);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruning_keeps_segments),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_damaged_segments),
        cmocka_unit_test(test_zombies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
