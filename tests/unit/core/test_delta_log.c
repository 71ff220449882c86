/* The delta log: what a reader finds of what a writer has written, while it writes and after it has closed,
 * broken or died. An entry's bytes follow from its number, so that each can be checked by itself. */
#include "cmocka_all.h"
#include "core/delta_log_format.h"
#include "core/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GENERATION = 7, PATTERN = 1 << 20 };

static char root[] = "/tmp/leat-delta-XXXXXX", directory[64];
static struct arena arena;
static struct diag_list diags;
static char pattern[PATTERN + 256];

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "%s/log/deep", root);
    assert_int_equal(os_remove_tree(directory), 0);
    diag_list_init(&diags, &arena);
    return 0;
}

static int make_root(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (char)(i * 31 + i / 251);
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    arena_free(&arena);
    return os_remove_tree(root);
}

static void rest_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* --- Writing and reading --- */

static struct delta_log *open_log(uint32_t generation, uint64_t budget, uint64_t segment)
{
    struct delta_log_options options = {directory, generation, STR("run-1"), budget, segment};
    return delta_log_open(&options, &diags);
}

static struct str bytes_of(uint64_t number, size_t length)
{
    return (struct str){pattern + number % 256, length};
}

static bool put(struct delta_log *log, uint64_t number, size_t length)
{
    struct delta_entry entry = {.kind = (uint16_t)(number % 5), .part = 3, .number = number};
    entry.bytes = bytes_of(number, length / 3);
    entry.more = (struct str){entry.bytes.data + length / 3, length - length / 3};
    return delta_log_append(log, &entry);
}

static void check_entry(const struct delta_entry *entry)
{
    assert_int_equal(entry->kind, entry->number % 5);
    assert_int_equal(entry->part, 3);
    assert_true(str_equal(entry->bytes, bytes_of(entry->number, entry->bytes.length)));
}

static struct delta_tail *open_tail(uint32_t generation)
{
    struct delta_tail *tail = delta_tail_open(directory, generation, &diags);
    assert_non_null(tail);
    return tail;
}

/* Reads up to the end, whatever it is; *count: entries, *last: the number of the last of them. */
static enum delta_tail_status finish(struct delta_tail *tail, uint32_t *count, uint64_t *last)
{
    struct delta_entry entry;
    enum delta_tail_status status;
    *count = 0;
    for (int waits = 0; (status = delta_tail_next(tail, &entry)) <= DELTA_NOTHING_YET;) {
        if (status == DELTA_NOTHING_YET) {
            assert_true(waits++ < 5000);
            rest_ms(1);
            continue;
        }
        check_entry(&entry);
        if (last != NULL) {
            assert_true(*count == 0 || entry.number == *last + 1);
            *last = entry.number;
        }
        ++*count;
    }
    assert_int_equal(delta_tail_next(tail, &entry), status);
    return status;
}

static void must_finish(uint32_t generation, enum delta_tail_status expected, uint32_t entries)
{
    struct delta_tail *tail = open_tail(generation);
    uint32_t count;
    assert_int_equal(finish(tail, &count, NULL), expected);
    assert_int_equal(count, entries);
    delta_tail_close(tail);
}

static uint32_t files_in(const char *path, const char *prefix)
{
    uint32_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *one = readdir(dir); one != NULL; one = readdir(dir))
        count += strncmp(one->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return count;
}

static const char *segment_path(uint64_t segment)
{
    static char path[DELTA_PATH_BYTES];
    assert_true(delta_segment_path(directory, GENERATION, segment, path));
    return path;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(os_write_all(fd, data, bytes, NULL), 0);
    close(fd);
}

/* --- Tests --- */

static void test_round_trip(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 100000, 0, 65536 - 40, 65536, PATTERN, 3};
    int64_t begin = os_wall_us();
    struct delta_log *log = open_log(GENERATION, 1 << 26, 1 << 26);
    struct delta_tail *tail = open_tail(GENERATION);
    struct delta_entry entry;
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_NOTHING_YET);
    for (uint64_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        assert_true(put(log, i, lengths[i]));
        if (i % 2 == 0) /* two at once every other time */
            continue;
        for (uint64_t k = i - 1; k <= i; k++) {
            assert_int_equal(delta_tail_next(tail, &entry), DELTA_ENTRY);
            assert_int_equal(entry.number, k);
            assert_int_equal(entry.bytes.length, lengths[k]);
            assert_in_range(entry.time_us, begin, os_wall_us());
            check_entry(&entry);
        }
        assert_int_equal(delta_tail_next(tail, &entry), DELTA_NOTHING_YET);
    }
    assert_true(str_is(delta_tail_run(tail), "run-1"));
    rest_ms(120);
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_NOTHING_YET); /* the writer lives */
    assert_true(put(log, 99, 10));
    struct delta_log_figures figures;
    delta_log_figures(log, &figures);
    assert_int_equal(figures.entries, ARRAY_COUNT(lengths) + 1);
    assert_int_equal(figures.held_bytes, os_file_bytes(segment_path(1)));
    assert_true(figures.bytes == figures.held_bytes && figures.segment == 1);
    assert_null(delta_log_error(log));
    delta_log_close(log);
    uint32_t count;
    assert_int_equal(finish(tail, &count, NULL), DELTA_CLOSED);
    assert_int_equal(count, 1);
    delta_tail_close(tail);
    delta_log_close(NULL); /* allowed */
}

/* Segments that a reader has open are read to their end; what it has not opened is gone. */
static void test_budget(void **state)
{
    (void)state;
    enum { BUDGET = 64 << 10, SEGMENT = 8 << 10, ENTRIES = 1000, LENGTH = 1000 };
    struct delta_log *log = open_log(GENERATION, BUDGET, SEGMENT);
    struct delta_tail *slow = open_tail(GENERATION), *quick = open_tail(GENERATION);
    struct delta_entry entry;
    struct delta_log_figures figures;
    for (uint64_t i = 0; i < ENTRIES; i++) {
        assert_true(put(log, i, LENGTH));
        assert_int_equal(delta_tail_next(quick, &entry), DELTA_ENTRY);
        assert_int_equal(entry.number, i);
        delta_log_figures(log, &figures);
        assert_true(figures.held_bytes <= BUDGET);
    }
    assert_true(figures.held_bytes > BUDGET - 2 * SEGMENT);
    assert_int_equal(files_in(directory, "gen-"), figures.segment - figures.dropped);
    assert_int_equal(os_file_bytes(segment_path(1)), -1);
    assert_true(os_file_bytes(segment_path(figures.dropped + 1)) >= SEGMENT);
    uint32_t count;
    uint64_t last;
    assert_int_equal(finish(slow, &count, &last), DELTA_GONE);
    assert_in_range(count, SEGMENT / (LENGTH + 40), SEGMENT / LENGTH + 1);
    assert_int_equal(last, count - 1);
    delta_log_close(log);
    assert_true(finish(quick, &count, NULL) == DELTA_CLOSED && count == 0);
    delta_tail_close(slow);
    delta_tail_close(quick);
    struct delta_tail *late = open_tail(GENERATION);
    assert_int_equal(finish(late, &count, &last), DELTA_CLOSED);
    assert_int_equal(last, ENTRIES - 1);
    assert_in_range(count, (BUDGET - 2 * SEGMENT) / (LENGTH + 40), BUDGET / LENGTH);
    delta_tail_close(late);
}

static void test_large_entry(void **state)
{
    (void)state;
    struct delta_log *log = open_log(GENERATION, 1 << 16, 1 << 14);
    for (uint64_t i = 0; i < 5; i++)
        assert_true(put(log, i, PATTERN)); /* each is larger than the budget */
    assert_int_equal(files_in(directory, "gen-"), 1);
    delta_log_close(log);
    size_t most = DELTA_ENTRY_MAX;
    char *zeros = calloc(1, most);
    struct delta_entry entry = {.bytes = {zeros, most}};
    log = open_log(GENERATION, 1 << 16, 1 << 14);
    struct delta_tail *tail = open_tail(GENERATION);
    assert_true(delta_log_append(log, &entry));
    free(zeros);
    assert_true(put(log, 1, 10));
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_ENTRY);
    assert_int_equal(entry.bytes.length, most);
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_ENTRY);
    check_entry(&entry);
    delta_tail_close(tail);
    delta_log_close(log);
}

struct appender {
    struct delta_log *log;
    uint16_t part;
};

enum { APPENDERS = 3, APPENDED = 3000 };

static void *append_all(void *argument)
{
    const struct appender *appender = argument;
    for (uint64_t i = 0; i < APPENDED; i++) {
        struct delta_entry entry = {
            .part = appender->part, .number = i, .bytes = bytes_of(i, i * 37 % 20000)};
        if (!delta_log_append(appender->log, &entry))
            return argument;
    }
    return NULL;
}

/* A reader keeps up with writers; segments are small and kept, so that it crosses many. */
static void test_threads(void **state)
{
    (void)state;
    struct delta_log *log = open_log(GENERATION, 1 << 30, 1 << 16);
    struct delta_tail *tail = open_tail(GENERATION);
    struct appender appenders[APPENDERS];
    pthread_t threads[APPENDERS];
    uint64_t next[APPENDERS] = {0};
    for (uint16_t i = 0; i < APPENDERS; i++) {
        appenders[i] = (struct appender){log, i};
        assert_int_equal(pthread_create(&threads[i], NULL, append_all, &appenders[i]), 0);
    }
    int64_t before = 0;
    for (uint32_t left = APPENDERS * APPENDED; left > 0;) {
        struct delta_entry entry;
        enum delta_tail_status status = delta_tail_next(tail, &entry);
        if (status == DELTA_NOTHING_YET)
            continue;
        if (status != DELTA_ENTRY)
            fail_msg("status %d: %s", (int)status, delta_tail_why(tail));
        assert_true(entry.part < APPENDERS);
        assert_int_equal(entry.number, next[entry.part]++);
        assert_int_equal(entry.bytes.length, entry.number * 37 % 20000);
        assert_true(str_equal(entry.bytes, bytes_of(entry.number, entry.bytes.length)));
        assert_true(entry.time_us >= before - 1000000);
        before = entry.time_us;
        left--;
    }
    for (int i = 0; i < APPENDERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    delta_log_close(log);
    uint32_t count;
    assert_int_equal(finish(tail, &count, NULL), DELTA_CLOSED);
    delta_tail_close(tail);
}

static void test_restart(void **state)
{
    (void)state;
    struct delta_log *log = open_log(GENERATION, 1 << 20, 1 << 14);
    struct delta_tail *tail = open_tail(GENERATION);
    struct delta_log_figures figures;
    assert_true(put(log, 0, 10) && put(log, 1, 20000));
    assert_true(delta_log_restart(log));
    assert_int_equal(files_in(directory, "gen-"), 1);
    assert_true(put(log, 2, 10));
    delta_log_figures(log, &figures);
    assert_int_equal(figures.segment, 2);
    assert_int_equal(figures.held_bytes, os_file_bytes(segment_path(2)));
    uint32_t count;
    uint64_t last;
    assert_int_equal(finish(tail, &count, &last), DELTA_GONE);
    assert_int_equal(count, 2);
    assert_true(delta_tail_why(tail)[0] != '\0');
    delta_tail_close(tail);
    delta_log_close(log);
    must_finish(GENERATION, DELTA_CLOSED, 1);
}

static void test_generations(void **state)
{
    (void)state;
    must_finish(GENERATION, DELTA_ENDED, 0); /* no log yet, and nobody who writes one */
    struct delta_tail *early = open_tail(GENERATION), *later = open_tail(GENERATION + 1);
    struct delta_log *log = open_log(GENERATION, 1 << 20, 1 << 14);
    assert_true(put(log, 0, 10));
    struct delta_tail *tail = open_tail(GENERATION);
    struct delta_entry entry;
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_ENTRY);
    assert_int_equal(delta_tail_next(early, &entry), DELTA_ENTRY);
    assert_int_equal(delta_tail_next(later, &entry), DELTA_NOTHING_YET);
    assert_null(open_log(GENERATION + 1, 1 << 20, 1 << 14)); /* one writer */
    assert_true(diags.count == 1 && diags.items[0].code == DIAG_DIRECTORY_IN_USE);
    assert_int_equal(files_in(directory, "gen-"), 1);
    assert_true(put(log, 1, 10));
    delta_log_close(log);
    log = open_log(GENERATION + 1, 1 << 20, 1 << 14);
    assert_non_null(log);
    assert_int_equal(files_in(directory, "gen-000007"), 0);
    assert_int_equal(files_in(directory, "gen-000008-000000000001"), 1);
    must_finish(GENERATION, DELTA_GONE, 0);
    uint32_t count;
    assert_int_equal(finish(tail, &count, NULL), DELTA_CLOSED); /* it had the segment open */
    assert_int_equal(count, 1);
    assert_true(put(log, 5, 10));
    assert_int_equal(delta_tail_next(later, &entry), DELTA_ENTRY);
    delta_log_close(log);
    delta_tail_close(early);
    delta_tail_close(later);
    delta_tail_close(tail);
}

/* --- A writer that is killed --- */

static void kill_self(int number)
{
    (void)number;
    kill(getpid(), SIGKILL);
}

/* Killed at any time, and (run 0) where a file may have no more bytes, in the middle of the fourth entry. */
static void test_killed(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {3 * PATTERN + PATTERN / 2, RLIM_INFINITY};
            struct delta_log *log = open_log(GENERATION, 1 << 28, 1 << 24);
            if (run == 0 && (signal(SIGXFSZ, kill_self) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0))
                _exit(1);
            for (uint64_t i = 0; log != NULL && put(log, i, PATTERN); i++) {
            }
            _exit(1);
        }
        while (os_file_bytes(segment_path(run == 0 ? 1 : 2)) < PATTERN)
            rest_ms(1);
        struct delta_tail *tail = open_tail(GENERATION);
        rest_ms(run * 3);
        if (run > 0)
            kill(child, SIGKILL);
        uint32_t count;
        uint64_t last, segment, offset;
        int status;
        assert_int_equal(finish(tail, &count, &last), DELTA_ENDED);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        delta_tail_place(tail, &segment, &offset);
        assert_true(run > 0 ? count > 10 : count == 3 && os_file_bytes(segment_path(1)) > (int64_t)offset);
        delta_tail_close(tail);
        assert_int_equal(os_remove_tree(directory), 0);
    }
}

/* Two segments, closed; the first has two entries, the second one. */
static void write_two_segments(char **first, size_t *bytes)
{
    struct delta_log *log = open_log(GENERATION, 1 << 20, DELTA_SEGMENT_LEAST);
    assert_true(put(log, 0, 13) && put(log, 1, DELTA_SEGMENT_LEAST - 200) && put(log, 2, 5));
    assert_int_equal(files_in(directory, "gen-"), 1);
    assert_true(put(log, 3, 200) && put(log, 4, 21));
    delta_log_close(log);
    assert_int_equal(os_read_file(segment_path(1), 1 << 20, first, bytes), 0);
    must_finish(GENERATION, DELTA_CLOSED, 5);
}

static enum delta_tail_status status_of(uint32_t *count)
{
    struct delta_tail *tail = open_tail(GENERATION);
    enum delta_tail_status status = finish(tail, count, NULL);
    assert_int_equal(status == DELTA_CLOSED, delta_tail_why(tail)[0] == '\0');
    delta_tail_close(tail);
    return status;
}

static void test_flipped(void **state)
{
    (void)state;
    for (int segment = 1; segment <= 2; segment++) {
        char *data, *other;
        size_t bytes;
        uint32_t count;
        write_two_segments(&other, &bytes);
        free(other);
        assert_int_equal(os_read_file(segment_path((uint64_t)segment), 1 << 20, &data, &bytes), 0);
        for (size_t i = 0; i < bytes; i += i < 400 || i + 400 > bytes ? 1 : 41)
            for (int bit = 0; bit < 8; bit++) {
                data[i] ^= (char)(1 << bit);
                write_file(segment_path((uint64_t)segment), data, bytes);
                if (status_of(&count) != DELTA_DAMAGED)
                    fail_msg("segment %d, byte %zu, bit %d", segment, i, bit);
                data[i] ^= (char)(1 << bit);
            }
        free(data);
    }
}

static void test_truncated(void **state)
{
    (void)state;
    char *data;
    size_t bytes;
    uint32_t count;
    write_two_segments(&data, &bytes);
    for (size_t length = 0; length < bytes; length += length < 400 || length + 400 > bytes ? 1 : 41) {
        write_file(segment_path(1), data, length);
        if (status_of(&count) != DELTA_DAMAGED) /* the second segment has begun */
            fail_msg("length %zu", length);
    }
    write_file(segment_path(1), data, bytes);
    free(data);
    assert_int_equal(os_read_file(segment_path(2), 1 << 20, &data, &bytes), 0);
    for (size_t length = 0; length < bytes; length++) {
        write_file(segment_path(2), data, length);
        if (status_of(&count) != DELTA_ENDED)
            fail_msg("length %zu", length);
    }
    assert_int_equal(unlink(segment_path(2)), 0);
    assert_int_equal(status_of(&count), DELTA_GONE);
    free(data);
}

/* Entries that are lost, doubled or swapped; a segment in the place of another. */
static void test_spliced(void **state)
{
    (void)state;
    char *data;
    size_t bytes, head = sizeof(struct delta_segment_head), first = sizeof(struct delta_entry_head) + 16;
    uint32_t count;
    write_two_segments(&data, &bytes);
    char *spliced = calloc(1, 2 * bytes);
    assert_non_null(spliced);
    memcpy(spliced, data, head);
    memcpy(spliced + head, data + head + first, bytes - head - first);
    write_file(segment_path(1), spliced, bytes - first);
    assert_true(status_of(&count) == DELTA_DAMAGED && count == 0);
    memcpy(spliced, data, head + first);
    memcpy(spliced + head + first, data + head, bytes - head);
    write_file(segment_path(1), spliced, bytes + first);
    assert_true(status_of(&count) == DELTA_DAMAGED && count == 1);
    write_file(segment_path(1), data, bytes);
    write_file(segment_path(2), data, bytes);
    assert_true(status_of(&count) == DELTA_DAMAGED && count == 3);
    free(spliced);
    free(data);
}

/* A length that the file does not hold costs no memory. */
static void test_huge_length(void **state)
{
    (void)state;
    struct delta_log *log = open_log(GENERATION, 1 << 20, 1 << 14);
    struct delta_tail *tail = open_tail(GENERATION);
    char *data;
    size_t bytes;
    assert_int_equal(os_read_file(segment_path(1), 1 << 20, &data, &bytes), 0);
    struct delta_segment_head *segment = (struct delta_segment_head *)(void *)data;
    struct delta_entry_head head = {.length = DELTA_ENTRY_MAX};
    head.check = delta_entry_check(&head, segment->digest);
    int fd = open(segment_path(1), O_WRONLY | O_APPEND);
    assert_int_equal(os_write_all(fd, &head, sizeof(head), NULL), 0);
    struct delta_entry entry;
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_NOTHING_YET);
    assert_true(mallinfo2().hblkhd < DELTA_ENTRY_MAX / 2);
    close(fd);
    delta_tail_close(tail);
    head.length++; /* more than an entry can have */
    head.check = delta_entry_check(&head, segment->digest);
    write_file(segment_path(1), data, bytes);
    fd = open(segment_path(1), O_WRONLY | O_APPEND);
    assert_int_equal(os_write_all(fd, &head, sizeof(head), NULL), 0);
    close(fd);
    tail = open_tail(GENERATION);
    assert_int_equal(delta_tail_next(tail, &entry), DELTA_DAMAGED);
    delta_tail_close(tail);
    free(data);
    delta_log_close(log);
}

/* --- A full disk --- */

static bool survives(struct delta_log *log)
{
    struct delta_tail *tail = delta_tail_open(directory, GENERATION, &diags);
    uint64_t put_first = 0;
    uint32_t count = 0;
    struct delta_log_figures figures;
    struct delta_entry entry;
    for (; put_first < 100 && put(log, put_first, 3000); put_first++)
        count += delta_tail_next(tail, &entry) == DELTA_ENTRY;
    bool is_broken = put_first < 100 && delta_log_error(log) != NULL && !put(log, 9, 1);
    bool is_empty = files_in(directory, "gen-") == 0;
    enum delta_tail_status status = delta_tail_next(tail, &entry);
    delta_tail_close(tail);
    delta_log_figures(log, &figures);
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    bool is_whole = delta_log_restart(log) && put(log, 0, 3000) && delta_log_error(log) == NULL;
    delta_log_close(log);
    return is_broken && is_empty && status == DELTA_GONE && count == put_first && figures.is_broken &&
           figures.held_bytes == 0 && is_whole;
}

/* In a process of its own. limit: bytes of a file at most, 0: none; failpoints: NULL: none. */
static void check_full(rlim_t limit, const char *failpoints, const char *what)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        if (failpoints != NULL)
            setenv("LEAT_FAILPOINTS", failpoints, 1);
        if (!failpoints_init(&diags))
            _exit(2);
        struct delta_log *log = open_log(GENERATION, 1 << 20, 1 << 14);
        struct rlimit full = {limit, RLIM_INFINITY};
        if (log == NULL || (limit != 0 && setrlimit(RLIMIT_FSIZE, &full) != 0))
            _exit(3);
        _exit(survives(log) ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: status %x", what, (unsigned)status);
    must_finish(GENERATION, DELTA_CLOSED, 1);
    assert_int_equal(os_remove_tree(directory), 0);
}

static void test_disk_full(void **state)
{
    (void)state;
    check_full(10000, NULL, "within an entry");
    check_full(96 + 3 * 3040 + 20, NULL, "within an entry's head");
    check_full(96 + 6 * 3040, NULL, "before the end entry");
    for (int at = 2; at < 15; at++) { /* of the entries, the end entry, and the head of the next segment */
        char failpoints[64];
        snprintf(failpoints, sizeof(failpoints), "log.write=error:ENOSPC@%d", at);
        check_full(0, failpoints, failpoints);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(test_##name, set_up)
    const struct CMUnitTest tests[] = {TEST(round_trip), TEST(budget),      TEST(large_entry),
                                       TEST(threads),    TEST(restart),     TEST(generations),
                                       TEST(killed),     TEST(flipped),     TEST(truncated),
                                       TEST(spliced),    TEST(huge_length), TEST(disk_full)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
