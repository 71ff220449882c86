/* Copies of the delta log: a reader of the copy finds what a reader of the log finds, in whatever pieces it comes. */
#include "cmocka_all.h"
#include "core/delta_log.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GENERATION = 3, ENTRY_MAX = 3000 };

static char root[] = "/tmp/leat-copy-XXXXXX", log_directory[64], copy_directory[64];
static struct arena arena;
static struct diag_list diags;
static char pattern[ENTRY_MAX + 256];
static uint64_t random_state;

static uint64_t below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static int make_root(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (char)(i * 29 + i / 199);
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    arena_free(&arena);
    return os_remove_tree(root);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(log_directory, sizeof(log_directory), "%s/log", root);
    snprintf(copy_directory, sizeof(copy_directory), "%s/copy/log", root);
    random_state = 7;
    assert_int_equal(os_remove_tree(log_directory), 0);
    assert_int_equal(os_remove_tree(copy_directory), 0);
    diag_list_init(&diags, &arena);
    return 0;
}

/* --- A log, its copy, and a reader of the copy --- */

struct pair {
    struct delta_log *log;
    struct delta_copy *copy;
    struct delta_tail *tail; /* of the copy */
    uint64_t written, read;  /* entries */
};

static struct pair begin(uint64_t budget, uint64_t copy_budget, uint64_t segment)
{
    struct delta_log_options options = {log_directory, GENERATION, STR("run-1"), budget, segment};
    struct pair pair = {.log = delta_log_open(&options, &diags),
                        .copy = delta_copy_open(copy_directory, copy_budget, &diags)};
    assert_non_null(pair.log);
    assert_non_null(pair.copy);
    assert_int_equal(delta_copy_begin(pair.copy, GENERATION), 0);
    pair.tail = delta_tail_open(copy_directory, GENERATION, &diags);
    assert_non_null(pair.tail);
    return pair;
}

static void end(struct pair *pair)
{
    delta_log_close(pair->log);
    delta_tail_close(pair->tail);
    delta_copy_close(pair->copy);
}

static void put(struct pair *pair)
{
    struct delta_entry entry = {.kind = 1, .number = pair->written};
    entry.bytes = (struct str){pattern + pair->written % 256, (size_t)below(ENTRY_MAX)};
    assert_true(delta_log_append(pair->log, &entry));
    pair->written++;
}

/* Copies one piece of at most `room` bytes. */
static struct delta_piece copy_piece(struct pair *pair, size_t room)
{
    static char data[1 << 16];
    struct delta_piece piece;
    uint64_t segment, offset;
    delta_copy_place(pair->copy, &segment, &offset);
    if (segment == 0)
        segment = delta_log_oldest(log_directory, GENERATION);
    assert_int_equal(delta_log_piece(log_directory, GENERATION, segment, offset, data, room, &piece), 0);
    assert_true(piece.got <= room);
    if (!piece.is_gone)
        assert_int_equal(delta_copy_append(pair->copy, segment, data, &piece), 0);
    return piece;
}

/* Reads what the copy has; the status behind it. */
static enum delta_tail_status read_copy(struct pair *pair)
{
    struct delta_entry entry;
    enum delta_tail_status status;
    while ((status = delta_tail_next(pair->tail, &entry)) == DELTA_ENTRY) {
        assert_int_equal(entry.number, pair->read);
        assert_memory_equal(entry.bytes.data, pattern + entry.number % 256, entry.bytes.length);
        pair->read++;
    }
    return status;
}

static void copy_all(struct pair *pair)
{
    struct delta_piece piece;
    do
        piece = copy_piece(pair, 1 << 16);
    while (piece.got > 0 || piece.is_complete);
}

/* Entries, pieces and reads in any order; segments of a few entries. */
static void test_any_order(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 8192);
    for (int i = 0; i < 4000; i++) {
        uint64_t what = below(8);
        if (what < 3)
            put(&pair);
        else if (what < 7)
            (void)copy_piece(&pair, 1 + (size_t)below(what == 3 ? 50 : 6000));
        else
            assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    }
    copy_all(&pair);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_true(pair.read == pair.written && pair.read > 1000);
    delta_log_close(pair.log);
    pair.log = NULL;
    copy_all(&pair);
    assert_int_equal(read_copy(&pair), DELTA_CLOSED);
    end(&pair);
}

/* The writer dies: once all was copied, who reads the copy learns it, and not before. */
static void test_writer_ends(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 8192);
    uint32_t generation;
    assert_true(delta_log_writer(log_directory, &generation));
    assert_int_equal(generation, GENERATION);
    for (int i = 0; i < 20; i++)
        put(&pair);
    (void)copy_piece(&pair, 5000);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_true(delta_log_writer(copy_directory, &generation));
    assert_int_equal(generation, GENERATION);
    copy_all(&pair);
    delta_copy_pause(pair.copy);
    assert_false(delta_log_writer(copy_directory, &generation));
    nanosleep(&(struct timespec){.tv_nsec = 150 * 1000000}, NULL); /* a tail looks every 100 ms */
    assert_int_equal(read_copy(&pair), DELTA_ENDED);
    assert_int_equal(pair.read, 20);
    end(&pair);
}

/* Goes on after a pause: the writer only seemed to have ended. */
static void test_pause_and_more(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 8192);
    uint32_t generation;
    put(&pair);
    copy_all(&pair);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    delta_copy_pause(pair.copy);
    put(&pair);
    copy_all(&pair);
    assert_true(delta_log_writer(copy_directory, &generation));
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_int_equal(pair.read, 2);
    end(&pair);
}

/* Begun anew, the copy has nothing of before; its readers learn it. */
static void test_begun_anew(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 4096);
    for (int i = 0; i < 30; i++)
        put(&pair);
    copy_all(&pair);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_int_equal(delta_copy_begin(pair.copy, GENERATION), 0);
    assert_int_equal(read_copy(&pair), DELTA_GONE);
    assert_int_equal(delta_log_oldest(copy_directory, GENERATION), 0);
    assert_int_equal(delta_copy_begin(pair.copy, GENERATION + 1), 0);
    assert_int_equal(delta_copy_generation(pair.copy), GENERATION + 1);
    uint32_t generation;
    assert_true(delta_log_writer(copy_directory, &generation));
    assert_int_equal(generation, GENERATION + 1);
    end(&pair);
}

/* A segment that the log has dropped is gone; what the copy holds stays within its budget. */
static void test_budgets(void **state)
{
    (void)state;
    enum { SEGMENT = 8192, BUDGET = 40000 };
    struct pair pair = begin(UINT64_C(1) << 40, BUDGET, SEGMENT);
    for (int i = 0; i < 300; i++) {
        put(&pair);
        copy_all(&pair);
        assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    }
    assert_int_equal(pair.read, 300);
    uint64_t held = 0;
    char path[320];
    DIR *dir = opendir(copy_directory);
    assert_non_null(dir);
    for (const struct dirent *one; (one = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", copy_directory, one->d_name);
        held += strncmp(one->d_name, "gen-", 4) == 0 ? (uint64_t)os_file_bytes(path) : 0;
    }
    closedir(dir);
    assert_in_range(held, BUDGET / 2, BUDGET + SEGMENT + ENTRY_MAX);
    assert_true(delta_log_oldest(copy_directory, GENERATION) > 10);
    struct delta_piece piece;
    char data[100];
    assert_int_equal(delta_log_piece(log_directory, GENERATION, 9999, 0, data, sizeof(data), &piece), 0);
    assert_true(piece.is_gone && piece.got == 0);
    assert_int_equal(delta_log_piece(log_directory, GENERATION, 1, INT64_MAX, data, sizeof(data), &piece),
                     EINVAL);
    end(&pair);
}

/* A second process's copy in the same directory is refused, and the first one's segments stay. */
static void test_directory_in_use(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 8192);
    put(&pair);
    copy_all(&pair);
    assert_null(
        delta_copy_open(copy_directory, 1 << 20, &diags)); /* another open file: as another process's */
    assert_int_equal(diags.items[diags.count - 1].code, DIAG_DIRECTORY_IN_USE);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_int_equal(pair.read, 1);
    end(&pair);
}

/* A copy that cannot be written says so, and can be begun anew. */
static void test_broken(void **state)
{
    (void)state;
    struct pair pair = begin(UINT64_C(1) << 40, UINT64_C(1) << 40, 8192);
    put(&pair);
    char data[16] = {0};
    struct delta_piece piece = {.got = sizeof(data)};
    copy_all(&pair);
    uint64_t segment, offset;
    delta_copy_place(pair.copy, &segment, &offset);
    char path[128];
    snprintf(path, sizeof(path), "%s/gen-%06u-%012llu", copy_directory, GENERATION,
             (unsigned long long)(segment + 1));
    assert_int_equal(mkdir(path, 0777), 0); /* the next segment's file cannot be made */
    piece.has_next = true;
    assert_int_not_equal(delta_copy_append(pair.copy, segment, data, &piece), 0);
    assert_int_equal(rmdir(path), 0);
    delta_copy_forget(pair.copy);
    assert_int_equal(delta_copy_generation(pair.copy), 0);
    assert_int_equal(delta_copy_begin(pair.copy, GENERATION), 0);
    delta_tail_close(pair.tail);
    pair.tail = delta_tail_open(copy_directory, GENERATION, &diags);
    copy_all(&pair);
    assert_int_equal(read_copy(&pair), DELTA_NOTHING_YET);
    assert_int_equal(pair.read, 1);
    end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_any_order, set_up),
        cmocka_unit_test_setup(test_writer_ends, set_up),
        cmocka_unit_test_setup(test_pause_and_more, set_up),
        cmocka_unit_test_setup(test_begun_anew, set_up),
        cmocka_unit_test_setup(test_budgets, set_up),
        cmocka_unit_test_setup(test_directory_in_use, set_up),
        cmocka_unit_test_setup(test_broken, set_up),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
