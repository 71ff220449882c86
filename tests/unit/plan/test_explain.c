/* The plan for people: its text, and its picture, in which nothing overlaps. */
#include "toys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char job[] =
    "job ctr { workers: 2, memory: 2GiB, checkpoint: { every: 10s, dir: \"state/ctr\" } }\n"
    "source imps = rows { event_time: ts, max_delay: 5s }\n"
    "source clicks = rows { event_time: ts, max_delay: 1m, idle_after: 30s }\n"
    "stream features = imps | pass | keyed by user | with hour = 1\n"
    "stream examples = features | keyed from clicks by id hold 30m\n"
    "stream hourly = features | aggregate by user hold 1h\n"
    "learner model = guess from examples { label: item, inputs: [user, hour] }\n"
    "sink scored = out from model.predictions\n"
    "sink late = out from hourly.late\n"
    "sink dead = out from dead_letters\n";

static char *explain(const char *text, void (*form)(const struct plan *, struct byte_buffer *))
{
    struct toy_job toy;
    toy_plan(&toy, &toy_registry, text);
    if (toy.plan == NULL)
        fail_msg("%s was refused: %s", text, toy_codes(&toy));
    struct byte_buffer out = {0};
    form(toy.plan, &out);
    buffer_append(&out, "", 1);
    toy_free(&toy);
    return out.data;
}

static void test_text(void **state)
{
    (void)state;
    static const char expected[] =
        "\nstage 0, sources: any lane takes the next rows\n"
        "  imps      source rows  event time ts, up to 5s late\n"
        "        columns id: int, user: int, item: int, ts: time\n"
        "  clicks    source rows  event time ts, up to 1m late, idle after 30s\n"
        "        columns id: int, user: int, item: int, ts: time\n"
        "  features  pass\n"
        "        from imps\n"
        "\n"
        "stage 1, by user: one instance per lane\n"
        "  <- stage 0: features, by user\n"
        "  features  keyed  by: user\n"
        "        memory: keeps state\n"
        "  features  with  hour = 1\n"
        "        + hour: int\n"
        "  hourly    aggregate  by: user hold: 1h\n"
        "        + n: int\n"
        "        - id, item, ts, hour\n"
        "        memory: keeps state\n"
        "        watermark: holds rows back for 1h; in all 1h 5s behind the newest event\n"
        "\n"
        "stage 2, by id: one instance per lane\n"
        "  <- stage 1: features, by id\n"
        "  <- stage 0: clicks, by id\n"
        "  examples  keyed  by: id from: clicks hold: 30m\n"
        "        memory: keeps state\n"
        "        watermark: holds rows back for 30m; in all 31m behind the newest event\n"
        "\n"
        "stage 3, one lane: all rows, in order\n"
        "  <- stage 2: examples, to one lane\n"
        "  model     learner guess  label: item inputs: [user, hour]\n"
        "        + prediction: float\n"
        "  scored    sink out\n"
        "\n"
        "stage 4, one lane: all rows, in order\n"
        "  <- stage 1: hourly.late, to one lane\n"
        "  late      sink out\n"
        "\n"
        "stage 5, one lane: all rows, in order\n"
        "  <- every stage: dead_letters, to one lane\n"
        "  dead      sink out\n"
        "        from dead_letters\n";
    char *text = explain(job, plan_explain);
    const char *head = "job ctr: 2 sources, 5 steps, 1 learner, 3 sinks in 6 stages\n  workers     2\n"
                       "  memory      2GiB; equal shares, each split among its instances, for: features "
                       "keyed (stage 1),\n              "
                       "examples keyed (stage 2), hourly aggregate (stage 1)\n"
                       "  checkpoint  every 10s into state/ctr\n  fingerprint ";
    assert_memory_equal(text, head, strlen(head));
    assert_string_equal(strstr(text, "\n\n") + 1, expected);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(text);
}

static void test_dot(void **state)
{
    (void)state;
    char *text = explain(job, plan_dot);
    assert_memory_equal(text, "digraph \"ctr\" {", 15);
    assert_non_null(strstr(text, "subgraph cluster_2 {"));
    assert_non_null(strstr(text, "[style=bold, label=\"by id\"];"));
    assert_non_null(strstr(text, "label=\"examples\\nkeyed by: id from: clicks hold: 30m\"];"));
    free(text);
}

/* --- The picture --- */

struct rectangle {
    double x, y, width, height;
};

enum { RECTANGLES_MAX = 600, BENDS = 24 };

static uint32_t find_rectangles(const char *svg, const char *class, struct rectangle *found)
{
    uint32_t count = 0;
    char start[64];
    snprintf(start, sizeof(start), "<rect class=\"%s\" ", class);
    for (const char *at = svg; (at = strstr(at, start)) != NULL; at++) {
        struct rectangle *r = &found[count++];
        assert_true(count < RECTANGLES_MAX);
        assert_int_equal(sscanf(at + strlen(start), "x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &r->x,
                                &r->y, &r->width, &r->height),
                         4);
    }
    return count;
}

static bool overlap(const struct rectangle *a, const struct rectangle *b, double margin)
{
    return a->x + margin < b->x + b->width && b->x + margin < a->x + a->width &&
           a->y + margin < b->y + b->height && b->y + margin < a->y + a->height;
}

static bool is_inside(const struct rectangle *r, double x, double y)
{
    return x > r->x + 1 && x < r->x + r->width - 1 && y > r->y + 1 && y < r->y + r->height - 1;
}

struct drawn {
    struct rectangle boxes[RECTANGLES_MAX], labels[RECTANGLES_MAX];
    uint32_t boxes_count, labels_count;
};

static void check_point(const struct drawn *drawn, uint32_t wire, double x, double y)
{
    for (uint32_t i = 0; i < drawn->boxes_count; i++)
        if (is_inside(&drawn->boxes[i], x, y))
            fail_msg("arrow %u runs through box %u", wire, i);
    for (uint32_t i = 0; i < drawn->labels_count; i++)
        if (i != wire && is_inside(&drawn->labels[i], x, y))
            fail_msg("arrow %u runs through label %u", wire, i);
}

/* Follows the SVG path of a wire ("M x yV yC ...") and checks points along it. */
static void follow_wire(const struct drawn *drawn, uint32_t wire, const char *path)
{
    double x = 0, y = 0;
    int used;
    while (*path != '"') {
        double p[6];
        if (sscanf(path, "M%lf %lf%n", &p[0], &p[1], &used) == 2) {
            x = p[0];
            y = p[1];
        } else if (sscanf(path, "V%lf%n", &p[0], &used) == 1) {
            for (int i = 0; i <= BENDS; i++)
                check_point(drawn, wire, x, y + (p[0] - y) * i / BENDS);
            y = p[0];
        } else {
            assert_int_equal(
                sscanf(path, "C%lf %lf %lf %lf %lf %lf%n", &p[0], &p[1], &p[2], &p[3], &p[4], &p[5], &used),
                6);
            for (int i = 0; i <= BENDS; i++) {
                double t = (double)i / BENDS, u = 1 - t;
                double a = u * u * u, b = 3 * u * u * t, c = 3 * u * t * t, d = t * t * t;
                check_point(drawn, wire, a * x + b * p[0] + c * p[2] + d * p[4],
                            a * y + b * p[1] + c * p[3] + d * p[5]);
            }
            x = p[4];
            y = p[5];
        }
        path += used;
    }
}

static void check_picture(const char *svg)
{
    static struct drawn drawn;
    drawn.boxes_count = find_rectangles(svg, "box", drawn.boxes);
    drawn.labels_count = find_rectangles(svg, "label", drawn.labels);
    double width, height;
    assert_int_equal(sscanf(strstr(svg, "viewBox="), "viewBox=\"0 0 %lf %lf\"", &width, &height), 2);
    for (uint32_t i = 0; i < drawn.boxes_count + drawn.labels_count; i++) {
        const struct rectangle *a =
            i < drawn.boxes_count ? &drawn.boxes[i] : &drawn.labels[i - drawn.boxes_count];
        assert_true(a->x >= 0 && a->y >= 0 && a->x + a->width <= width && a->y + a->height <= height);
        for (uint32_t k = 0; k < i; k++) {
            const struct rectangle *b =
                k < drawn.boxes_count ? &drawn.boxes[k] : &drawn.labels[k - drawn.boxes_count];
            if (overlap(a, b, 0.2))
                fail_msg("%u and %u lie over each other", i, k);
        }
    }
    uint32_t wire = 0;
    static const char start[] = "<path class=\"wire\" d=\"";
    for (const char *at = svg; (at = strstr(at, start)) != NULL; at++)
        follow_wire(&drawn, wire++, at + strlen(start));
    assert_int_equal(wire, drawn.labels_count);
}

static void test_svg(void **state)
{
    (void)state;
    char *svg = explain(job, plan_svg);
    check_picture(svg);
    assert_non_null(strstr(svg, "<title>The plan of job ctr</title>"));
    assert_non_null(strstr(svg, ">by id</tspan>"));
    assert_non_null(strstr(svg, "dead letters of every stage"));
    free(svg);
}

static void test_svg_of_random_jobs(void **state)
{
    (void)state;
    struct test_random random = {5};
    for (int round = 0; round < 200; round++) {
        struct byte_buffer text = {0};
        toy_random_job(&random, &text);
        char *svg = explain(text.data, plan_svg);
        check_picture(svg);
        free(svg);
        buffer_free(&text);
    }
}

/* Texts of a job are escaped in the picture and in the dot text. */
static void test_escapes(void **state)
{
    (void)state;
    static const char hostile[] =
        "source a = rows { event_time: ts }\n"
        "stream s = a | with x = concat(\"</text><script>&\\\"\\u{1}\", \"\xC3\xA4\xC3\xB6"
        "\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2"
        "\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\")\n"
        "sink out = out from s\n";
    char *svg = explain(hostile, plan_svg);
    assert_null(strstr(svg, "<script>"));
    assert_non_null(strstr(svg, "&lt;/text&gt;&lt;script&gt;&amp;"));
    assert_null(strchr(svg, 1));
    char *dot = explain(hostile, plan_dot);
    assert_non_null(strstr(dot, "&\\\\\\\"")); /* the job's \" with both characters escaped */
    free(svg);
    free(dot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_dot),
        cmocka_unit_test(test_svg),     cmocka_unit_test(test_svg_of_random_jobs),
        cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
