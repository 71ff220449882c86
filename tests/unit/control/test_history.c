/* The rings of a run's history: roll-up, going round, gaps, lives, and files that are damaged, foreign or cannot be
 * written. */
#include "control/history.h"
#include "control/history_query.h"

#include "core/mem.h"
#include "core/os.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t DAWN = INT64_C(1700000000) * US_PER_SECOND;

static const struct history_column columns[] = {
    {"", 4, {HISTORY_MEAN, HISTORY_LAST, HISTORY_MAX}},
    {"s", 0, {HISTORY_MEAN, HISTORY_LAST, HISTORY_MAX}},
    {"features/dedup", 1, {HISTORY_MEAN, HISTORY_LAST, HISTORY_MAX}},
};
enum { COLUMNS = ARRAY_COUNT(columns), ROW_BYTES = 32 + COLUMNS * 32, HEAD_BYTES = 96 };

struct place {
    char folder[64], path[96];
    struct history *history;
    struct byte_buffer said;
    struct history_point *points;
    float values[COLUMNS * HISTORY_FIGURES];
};

static int set_up(void **state)
{
    struct place *place = mem_calloc(1, sizeof(*place));
    snprintf(place->folder, sizeof(place->folder), "/tmp/leat-history-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->path, sizeof(place->path), "%s/history", place->folder);
    place->points = mem_alloc(HISTORY_POINTS_MAX * sizeof(*place->points));
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    history_close(place->history);
    buffer_free(&place->said);
    free(place->points);
    assert_int_equal(os_remove_tree(place->folder), 0);
    free(place);
    return 0;
}

/* A life that begins `away` seconds after DAWN. */
static void begin(struct place *place, int64_t away)
{
    history_close(place->history);
    buffer_clear(&place->said);
    place->history = history_open(place->folder, columns, COLUMNS, DAWN + away * US_PER_SECOND, &place->said);
    assert_non_null(place->history);
}

/* A row: 1 + column * 100 + value in the first three figures of each column, the others not known. */
static void add(struct place *place, uint64_t tick, int64_t wall_s, float value)
{
    for (uint32_t i = 0; i < COLUMNS * HISTORY_FIGURES; i++)
        place->values[i] = i % HISTORY_FIGURES < 3 ? (float)(i / HISTORY_FIGURES) * 100 + value : NAN;
    history_add(place->history, tick, 1, DAWN + wall_s * US_PER_SECOND, place->values, &place->said);
}

static uint32_t points(struct place *place, uint32_t ring, uint32_t column)
{
    struct history_ask ask = {.ring = ring, .column = column};
    return history_read(place->history, &ask, place->points);
}

static void is_quiet(const struct place *place)
{
    if (place->said.length > 0)
        fail_msg("%.*s", (int)place->said.length, place->said.data);
}

static void says(struct place *place, const char *what)
{
    buffer_append(&place->said, "", 1);
    if (strstr(place->said.data, what) == NULL)
        fail_msg("expected `%s`, found `%s`", what, place->said.data);
}

static void flip(const struct place *place, int64_t offset)
{
    int fd = open(place->path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void test_roll_up(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 1210; tick++)
        add(place, tick, (int64_t)tick,
            tick % 10 == 3 ? 50 : (float)(tick % 10)); /* the highest is no end of ten */
    assert_int_equal(points(place, 0, 0), 1210);
    assert_int_equal(place->points[1209].tick, 1210);
    assert_int_equal(place->points[1209].wall_us, DAWN + 1210 * US_PER_SECOND);
    assert_int_equal(points(place, 1, 2), 121);
    const struct history_point *ten = &place->points[1]; /* 10 to 19: 0, 1, 2, 50, 4 ... 9 */
    assert_int_equal(ten->tick, 1);
    assert_int_equal(ten->wall_us, DAWN + 19 * US_PER_SECOND);
    assert_float_equal(ten->values[0], 209.2F, 1e-4F); /* mean */
    assert_float_equal(ten->values[1], 209, 1e-4F);    /* last */
    assert_float_equal(ten->values[2], 250, 1e-4F);    /* highest */
    assert_true(isnan(ten->values[3]));
    assert_int_equal(points(place, 2, 1), 2);
    assert_int_equal(place->points[1].tick, 1); /* 600 to 1199 */
    assert_float_equal(place->points[1].values[0], 109.2F, 1e-4F);
    assert_float_equal(place->points[1].values[2], 150, 1e-4F);
    is_quiet(place);
}

static void test_figures_that_are_not_known(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 10; tick <= 20; tick++)
        add(place, tick, (int64_t)tick, tick < 14 ? 8 : NAN);
    assert_int_equal(points(place, 1, 0), 1);
    assert_float_equal(place->points[0].values[0], 8, 1e-6F); /* the mean of four seconds, not of ten */
    assert_float_equal(place->points[0].values[1], 8, 1e-6F);
    assert_float_equal(place->points[0].values[2], 8, 1e-6F);
}

static void test_rings_go_round(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 10000; tick++)
        add(place, tick, (int64_t)tick, (float)tick);
    for (int life = 0; life < 2; life++) { /* the second one reads the file */
        assert_int_equal(points(place, 0, 0), life == 0 ? 3600 : 3599);
        for (uint32_t i = 0; i < 3599; i++) {
            const struct history_point *point = &place->points[i + (life == 0)];
            assert_int_equal(point->tick, 6402 + i);
            assert_float_equal(point->values[0], (float)(6402 + i), 0);
        }
        assert_int_equal(points(place, 1, 0), 1000);
        if (life == 0)
            begin(place, 10000);
        is_quiet(place);
    }
}

static void test_lives_and_gaps(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 25; tick++)
        if (tick < 11 || tick > 14)
            add(place, tick, (int64_t)tick, 7);
    assert_int_equal(points(place, 0, 1), 22);
    assert_true(place->points[10].is_gap && place->points[10].tick == 11 &&
                isnan(place->points[10].values[0]));
    assert_false(place->points[9].is_gap || place->points[11].is_gap);
    begin(place, 85); /* killed, and begun again a minute later */
    for (uint64_t tick = 1; tick <= 5; tick++)
        add(place, tick, 85 + (int64_t)tick, 9);
    is_quiet(place);
    assert_int_equal(points(place, 0, 1), 22 + 1 + 5);
    assert_true(place->points[22].is_gap);
    assert_int_equal(place->points[22].tick, 26);
    assert_int_equal(place->points[23].tick, 86);
    assert_float_equal(place->points[23].values[0], 109, 1e-4F);
    /* What the first life had gathered for the ten seconds from 20 on is there. */
    assert_int_equal(points(place, 1, 1), 3 + 1 + 1);
    assert_int_equal(place->points[2].tick, 2);
    assert_float_equal(place->points[2].values[0], 107, 1e-4F);
    assert_true(place->points[3].is_gap);
    assert_int_equal(place->points[4].tick, 8);
}

static void test_the_clock_is_set_back(void **state)
{
    struct place *place = *state;
    struct history_ask ask = {.has_to = true, .to_us = DAWN};
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 20; tick++)
        add(place, tick, tick <= 10 ? (int64_t)tick : (int64_t)tick - 3600, (float)tick);
    begin(place, -7200);
    add(place, 1, -7199, 21);
    is_quiet(place);
    assert_int_equal(points(place, 0, 0), 20 + 1 + 1);
    for (uint32_t i = 0; i < 20; i++)
        assert_float_equal(place->points[i].values[0], (float)(i + 1), 0);
    assert_true(place->points[20].is_gap && place->points[21].tick == 22);
    assert_int_equal(place->points[21].wall_us, DAWN - 7199 * US_PER_SECOND);
    assert_int_equal(history_read(place->history, &ask, place->points), 10 + 1 + 1);
    begin(place, INT64_C(4000000000)); /* and far ahead */
    add(place, 1, INT64_C(4000000001), 22);
    assert_int_equal(points(place, 0, 0), 1);
    ask = (struct history_ask){.has_from = true, .from_us = 0};
    assert_int_equal(history_read(place->history, &ask, place->points), 20 + 1 + 1 + 1 + 1);
}

static void test_ranges(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 100; tick++)
        add(place, tick, (int64_t)tick, (float)tick);
    struct history_ask ask = {.has_from = true,
                              .has_to = true,
                              .from_us = DAWN + 40 * US_PER_SECOND,
                              .to_us = DAWN + 50 * US_PER_SECOND};
    assert_int_equal(history_read(place->history, &ask, place->points), 10);
    assert_int_equal(place->points[0].tick, 40);
    assert_int_equal(place->points[9].tick, 49);
}

/* Of each ring some rows, but for the newest, are damaged in each of their parts: each time one row is lost, and no more. */
static void test_each_damaged_row_is_found(void **state)
{
    struct place *place = *state;
    static const struct {
        uint32_t rows, step;
    } rings[HISTORY_RINGS] = {{1900, 211}, {190, 33}, {3, 1}};
    static const uint32_t parts[] = {0, 8, 16, 24, 28, 31, 32, ROW_BYTES - 1};
    char *whole;
    size_t bytes;
    int64_t offset = HEAD_BYTES;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 1900; tick++)
        add(place, tick, (int64_t)tick, 5);
    assert_int_equal(os_read_file(place->path, 4 << 20, &whole, &bytes), 0);
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        for (uint32_t slot = 0; slot + 1 < rings[ring].rows; slot += rings[ring].step)
            for (uint32_t p = 0; p < ARRAY_COUNT(parts); p++) {
                int fd = open(place->path, O_WRONLY);
                assert_int_equal(os_pwrite_all(fd, whole, bytes, 0, NULL), 0);
                close(fd);
                flip(place, offset + slot * ROW_BYTES + parts[p]);
                begin(place, 1901);
                says(place, "1 rows of the run's history are damaged");
                for (uint32_t other = 0; other < HISTORY_RINGS; other++) {
                    uint32_t rows =
                        rings[other].rows - (other == ring && slot == 0); /* else a gap is in its place */
                    assert_int_equal(points(place, other, 0), rows);
                    for (uint32_t i = 0; i < rows; i++)
                        assert_true(place->points[i].is_gap == (other == ring && slot > 0 && i == slot));
                }
                begin(place, 1902);
                is_quiet(place);
            }
        offset += (int64_t)history_rings[ring].rows * ROW_BYTES;
    }
    free(whole);
}

/* The end of the process may tear the row that is written: it is no damage, and only that row is lost. */
static void test_a_torn_row(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 30; tick++)
        add(place, tick, (int64_t)tick, 5);
    flip(place, HEAD_BYTES + 29 * ROW_BYTES + 40);
    begin(place, 31);
    is_quiet(place);
    assert_int_equal(points(place, 0, 0), 29);
}

static void begins_anew(struct place *place, const char *why)
{
    begin(place, 100);
    says(place, why);
    assert_int_equal(points(place, 0, 0), 0);
    add(place, 1, 101, 5);
    assert_true(history_is_on_disk(place->history));
    begin(place, 200);
    is_quiet(place);
    assert_int_equal(points(place, 0, 0), 1);
}

static void test_a_file_that_cannot_be_used(void **state)
{
    struct place *place = *state;
    static const struct {
        int64_t offset;
        const char *why;
    } bytes[] = {
        {0, "does not begin as a history"}, {8, "another version"},     {12, "its head is damaged"},
        {16, "its head is damaged"},        {20, "its size"},           {24, "its rings have other sizes"},
        {40, "its head is damaged"},        {57, "its head is damaged"}};
    for (size_t i = 0; i < ARRAY_COUNT(bytes); i++) {
        begin(place, 0);
        add(place, 1, 1, 5);
        flip(place, bytes[i].offset);
        begins_anew(place, bytes[i].why);
        assert_int_equal(unlink(place->path), 0);
    }
    begin(place, 0);
    add(place, 1, 1, 5);
    assert_int_equal(truncate(place->path, 100000), 0);
    begins_anew(place, "its size");
    assert_int_equal(truncate(place->path, 0), 0);
    begins_anew(place, "does not begin as a history");
}

static void test_no_file(void **state)
{
    struct place *place = *state;
    assert_int_equal(mkdir(place->path, 0700), 0);
    begin(place, 0);
    says(place, "cannot be written: Is a directory; the run goes on");
    assert_false(history_is_on_disk(place->history));
    for (uint64_t tick = 1; tick <= 20; tick++)
        add(place, tick, (int64_t)tick, 5);
    assert_int_equal(points(place, 0, 0), 20);
    assert_int_equal(points(place, 1, 0), 2);
    history_close(place->history);
    buffer_clear(&place->said);
    place->history = history_open(NULL, columns, COLUMNS, DAWN, &place->said);
    add(place, 1, 1, 5);
    assert_int_equal(points(place, 0, 0), 1);
    assert_false(history_is_on_disk(place->history));
    is_quiet(place);
}

static void test_a_changed_plan(void **state)
{
    struct place *place = *state;
    static const struct history_column changed[] = {
        {"", 4, {0}}, {"new", 1, {0}}, {"features/dedup", 1, {0}}, {"s", 3, {0}}};
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 30; tick++)
        add(place, tick, (int64_t)tick, 5);
    history_close(place->history);
    place->history = history_open(place->folder, changed, ARRAY_COUNT(changed), DAWN, &place->said);
    is_quiet(place);
    static const float expected[] = {5, NAN, 205, NAN}; /* `s` has another meaning now */
    for (uint32_t column = 0; column < ARRAY_COUNT(changed); column++)
        for (uint32_t ring = 0; ring < 2; ring++) {
            uint32_t count = points(place, ring, column);
            assert_int_equal(count, ring == 0 ? 30 : 3);
            if (isnan(expected[column]))
                assert_true(isnan(place->points[2].values[0]));
            else
                assert_float_equal(place->points[2].values[0], expected[column], 1e-4F);
        }
}

/* A process that was replaced goes on writing: its successor's file stays as it is. */
static void test_a_process_that_was_replaced(void **state)
{
    struct place *place = *state;
    begin(place, 0);
    for (uint64_t tick = 1; tick <= 5; tick++)
        add(place, tick, (int64_t)tick, 5);
    struct history *old = place->history;
    place->history = NULL;
    begin(place, 6);
    add(place, 1, 7, 6);
    for (uint64_t tick = 6; tick <= 40; tick++)
        history_add(old, tick, 1, DAWN, place->values, &place->said);
    history_close(old);
    begin(place, 8);
    is_quiet(place);
    assert_int_equal(points(place, 0, 0), 5 + 1 + 1);
}

static void test_queries(void **state)
{
    (void)state;
    struct history_query query;
    assert_null(history_query_parse(STR(""), &query));
    assert_true(query.node[0] == '\0' && query.ask.ring == 0 && !query.ask.has_from && !query.ask.has_to);
    assert_null(history_query_parse(STR("node=features%2Fdedup.2&span=30d&from=5&to=1700000000000"), &query));
    assert_string_equal(query.node, "features/dedup.2");
    assert_true(query.ask.ring == 2 && query.ask.from_us == 5000 && query.ask.to_us == DAWN);
    static const char *const bad[] = {"&",
                                      "node",
                                      "node=",
                                      "node=a&",
                                      "node=a&node=a",
                                      "span=2h",
                                      "span=",
                                      "span=1h&span=1h",
                                      "x=1",
                                      "from=",
                                      "from=-1",
                                      "from=+1",
                                      "from=1e3",
                                      "from=99999999999999999999",
                                      "from=253402300800000",
                                      "from=0x1",
                                      "from=5&to=5",
                                      "to=1_0",
                                      "node=%",
                                      "node=%0",
                                      "node=%00",
                                      "node=%ff",
                                      "node=a%2",
                                      "Node=a",
                                      "from=1&from=1"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        if (history_query_parse(str_from(bad[i]), &query) == NULL)
            fail_msg("`%s` was taken", bad[i]);
    char text[HISTORY_NODE_BYTES_MAX + 8] = "node=";
    memset(text + 5, 'a', HISTORY_NODE_BYTES_MAX);
    assert_null(history_query_parse(str_from(text), &query));
    text[5 + HISTORY_NODE_BYTES_MAX] = 'a';
    assert_non_null(history_query_parse(str_from(text), &query));
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {CASE(test_roll_up),
                                       CASE(test_figures_that_are_not_known),
                                       CASE(test_rings_go_round),
                                       CASE(test_lives_and_gaps),
                                       CASE(test_the_clock_is_set_back),
                                       CASE(test_ranges),
                                       CASE(test_each_damaged_row_is_found),
                                       CASE(test_a_torn_row),
                                       CASE(test_a_file_that_cannot_be_used),
                                       CASE(test_no_file),
                                       CASE(test_a_changed_plan),
                                       CASE(test_a_process_that_was_replaced),
                                       cmocka_unit_test(test_queries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
