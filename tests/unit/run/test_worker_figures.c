/* Figures of several workers: what the leader takes of the others and what it refuses, how it adds them up, and what it shows before
 * they are there. */
#include "core/buffer.h"
#include "core/mem.h"
#include "run/base/peer_figures.h"
#include "run/base/peers.h"
#include "run/lanes/internal.h"
#include "workers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEADER, OTHER, ANOTHER, WORKERS };

static const char job[] = "source s = sequence { count: 100, keys: 5, rate: 10, event_time: ts }\n"
                          "stream w = s | window by key over tumbling(1s) { n: count() }\n"
                          "sink w = null from w\n";

enum { SOURCE, WINDOW, SINK, NODES };

static struct run_stats *own, *sent; /* figures of the leader; those that another worker sends */

static void put(const struct run *run, uint32_t from, bool is_last, struct byte_buffer *out)
{
    uint64_t word = from;
    buffer_clear(out);
    peer_figures_put(run, sent, is_last, out);
    memcpy(out->data + sizeof(word), &word, sizeof(word));
}

static bool give(struct run *run, uint32_t from, const struct byte_buffer *message)
{
    char *copy = mem_alloc(
        MAX(message->length, (size_t)1)); /* of its own size: ASan sees what is read behind the end */
    memcpy(copy, message->data, message->length);
    bool is_taken = run_receive(run, from, (struct str){copy, message->length});
    free(copy);
    return is_taken;
}

enum {
    WORD = sizeof(uint64_t),
    WORKER = 16,
    QUEUES = WORKER + 9
}; /* words before those of the worker alone, and of the stages' queues */

static void set_word(struct byte_buffer *message, uint32_t index, uint64_t value)
{
    memcpy(message->data + index * WORD, &value, WORD);
}

static bool say(struct run *run, uint32_t from, bool is_last)
{
    struct byte_buffer message = {0};
    put(run, from, is_last, &message);
    bool is_taken = give(run, from, &message);
    buffer_free(&message);
    return is_taken;
}

static void add_examples(const char *const *texts, const int64_t *times, uint32_t count)
{
    sent->dead_count = count;
    for (uint32_t i = 0; i < count; i++) {
        sent->dead[i].order = (struct row_order){.time = times[i], .partition = 7};
        snprintf(sent->dead[i].text, sizeof(sent->dead[i].text), "%s", texts[i]);
    }
}

/* Figures with something of everything. */
static void fill(const struct run *run)
{
    struct report *report = &sent->nodes[SOURCE].report;
    assert_int_equal(run->plan->nodes_count, NODES);
    *sent = (struct run_stats){.lanes = 1, .nodes_count = NODES, .records_life = 40, .bytes_life = 9};
    sent->checkpoint_bytes = 100;
    sent->checkpoint_stop_us = 5;
    sent->checkpoint_stop_max_us = 70;
    sent->store_bytes = 5000;
    sent->store_retries = 3;
    sent->moved_groups = 4;
    sent->moved_operators = 1;
    sent->moved_bytes = 3000;
    sent->moved_changes = 200;
    sent->move_stop_us = 90;
    sent->queue_fill[1] = 0.5;
    sent->per_worker[run->options.peers->self] = (struct run_worker_stats){.partitions = 6,
                                                                           .groups = 77,
                                                                           .busy_share = 0.25,
                                                                           .traffic = {1000, 20, 3000, 150},
                                                                           .waiting_bytes = 700,
                                                                           .spilled_bytes = 90000};
    for (uint32_t i = 0; i < NODES; i++)
        sent->nodes[i].dead_reason = "";
    sent->nodes[WINDOW].counters = (struct counters){.in = 30, .absorbed = 32, .held = UINT64_MAX - 1};
    sent->nodes[WINDOW].begin_in = 3;
    sent->nodes[WINDOW].dead_reason = "no key";
    sent->nodes[SINK].is_full = true;
    strcpy(sent->nodes[SINK].note, "12 rows");
    strcpy(sent->nodes[SINK].report.error, "the disk is full");
    report_add(report, "rows", 3, false);
    report_add(report, "lag_seconds", 2.5, false);
    report_add(report, "began_us", 90, false);
    report_add(report, "bayes_auc", 0.75, false);
    report_add_text(report, "hot_key", "\"a\"");
    report->items[report->count - 1].value = 4;
    report_add(report, "auc", 0.5, true);
    add_examples((const char *const[]){"first", "third"}, (const int64_t[]){1, 3}, 2);
}

static double value_of(uint32_t node, const char *name)
{
    const struct report_item *item = report_find(&own->nodes[node].report, name);
    assert_non_null(item);
    return item->value;
}

/* --- What the leader refuses --- */

static void refuse(struct run *run)
{
    struct byte_buffer message = {0};
    fill(run);
    put(run, OTHER, false, &message);
    assert_true(give(run, OTHER, &message));
    assert_true(give(run, OTHER, &message)); /* newer ones take their place */
    size_t whole = message.length;
    for (message.length = 0; message.length < whole; message.length++)
        assert_false(give(run, OTHER, &message));
    message.length = whole;
    assert_false(give(run, ANOTHER, &message)); /* not its own */
    assert_false(give(run, LEADER, &message));
    assert_false(give(run, WORKERS, &message));
    buffer_append(&message, "", 1);
    assert_false(give(run, OTHER, &message));
    message.length = whole;
    char *note = memmem(message.data, whole, sent->nodes[SINK].note, strlen(sent->nodes[SINK].note));
    assert_non_null(note);
    for (size_t i = 0; i <= strlen(sent->nodes[SINK].note); i++) { /* a text has one NUL, at its end */
        char was = note[i];
        note[i] = was == '\0' ? 'x' : '\0';
        assert_false(give(run, OTHER, &message));
        note[i] = was;
    }
    for (size_t i = sizeof(uint64_t); i < whole; i++) { /* a value is another one, or there are no figures */
        message.data[i] ^= (char)0xa5;
        if (give(run, OTHER, &message))
            run_stats(run, own);
        message.data[i] ^= (char)0xa5;
    }
    put(run, ANOTHER, false, &message);
    set_word(&message, QUEUES + 1, SLOTS + 1);
    assert_false(give(run, ANOTHER, &message));
    set_word(&message, QUEUES + 1, SLOTS);
    assert_true(give(run, ANOTHER, &message));
    set_word(&message, QUEUES + run->plan->stages_count, NODES + 1);
    assert_false(give(run, ANOTHER, &message));
    double too_busy = 1.5;
    uint64_t busy, beyond[][2] = {{0, UINT64_C(1) << 32}, {1, KEY_GROUPS + 1}, {2, 0}, {6, (uint64_t)-2}};
    memcpy(&busy, &too_busy, sizeof(busy));
    beyond[2][1] = busy;
    for (size_t i = 0; i < ARRAY_COUNT(beyond); i++) {
        put(run, ANOTHER, false, &message);
        assert_true(give(run, ANOTHER, &message));
        set_word(&message, WORKER + (uint32_t)beyond[i][0], beyond[i][1]);
        assert_false(give(run, ANOTHER, &message));
    }
    sent->lanes = 2;
    assert_false(say(run, ANOTHER, false));
    sent->lanes = 1;
    /* One more example than there may be, behind those without a text. */
    enum { EXAMPLE = 7 * WORD + 1, WITH_TEXT = EXAMPLE + 5 };
    size_t count_at = 2 * WITH_TEXT + (RUN_DEAD_EXAMPLES - 2) * EXAMPLE + WORD; /* from the end */
    sent->dead_count = RUN_DEAD_EXAMPLES;
    put(run, ANOTHER, false, &message);
    assert_true(give(run, ANOTHER, &message));
    assert_int_equal(message.data[message.length - count_at], RUN_DEAD_EXAMPLES);
    message.data[message.length - count_at]++;
    char example[EXAMPLE];
    memcpy(example, message.data + message.length - EXAMPLE, EXAMPLE);
    buffer_append(&message, example, EXAMPLE);
    assert_false(give(run, ANOTHER, &message));
    buffer_free(&message);
    assert_true(say(run, ANOTHER, true));
    assert_false(say(run, ANOTHER, true)); /* nothing comes behind the last ones */
    assert_false(say(run, ANOTHER, false));
}

static void test_refused(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){0}, refuse);
}

static void refuse_all(struct run *run)
{
    fill(run);
    assert_false(say(run, LEADER, false));
    assert_false(say(run, ANOTHER, false));
    assert_true(run_has_all_figures(run)); /* it waits for none */
}

static void test_not_the_leader(void **state)
{
    (void)state;
    workers_look(job, WORKERS, OTHER, &(struct way){0}, refuse_all);
}

/* A report of more items than a message has room for: the others are there. */
static void fill_up(struct run *run)
{
    static char names[REPORT_ITEMS_MAX][2 * FIGURES_TEXT_BYTES];
    struct byte_buffer message = {0};
    fill(run);
    for (uint32_t node = 0; node < NODES; node++)
        for (uint32_t i = 0; i < REPORT_ITEMS_MAX; i++) {
            memset(names[i], 'a' + (int)(i % 26), sizeof(names[i]) - 1);
            snprintf(names[i], 9, "%08u", i);
            names[i][8] = 'n';
            report_add_text(&sent->nodes[node].report, names[i], names[i]);
        }
    put(run, OTHER, false, &message);
    assert_in_range(message.length, FIGURES_ITEMS_BYTES, FIGURES_ITEMS_BYTES + 4096);
    assert_true(give(run, OTHER, &message));
    run_stats(run, own);
    assert_int_equal(own->nodes[SOURCE].report.count, REPORT_ITEMS_MAX);
    assert_int_equal(own->nodes[WINDOW].counters.in, 30);
    assert_string_equal(own->nodes[SINK].note, "12 rows");
    const struct report_item *last = &own->nodes[SOURCE].report.items[REPORT_ITEMS_MAX - 1];
    assert_int_equal(strlen(last->text), FIGURES_TEXT_BYTES - 1);
    buffer_free(&message);
}

static void test_full(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){0}, fill_up);
}

/* Figures without anything, but for so many items of each node's report, with texts of so many bytes. */
static void put_items(const struct run *run, uint32_t items, size_t bytes, struct byte_buffer *out)
{
    enum {
        NODE = (COUNTERS_COUNT + 3) * WORD + 3 * (WORD + 1)
    }; /* the bytes of a node before its items, without texts */
    static char text[FIGURES_TEXT_BYTES + 1];
    struct byte_buffer empty = {0};
    *sent = (struct run_stats){.lanes = 1, .nodes_count = run->plan->nodes_count};
    for (uint32_t i = 0; i < sent->nodes_count; i++)
        sent->nodes[i].dead_reason = "";
    put(run, OTHER, false, &empty);
    size_t head = (QUEUES + run->plan->stages_count + 1) * WORD;
    memset(text, 0, sizeof(text));
    memset(text, 'a', bytes - 1);
    buffer_clear(out);
    buffer_append(out, empty.data, head);
    for (uint32_t node = 0; node < sent->nodes_count; node++) {
        buffer_append(out, empty.data + head + node * (NODE + WORD), NODE);
        words_put(out, items);
        for (uint32_t i = 0; i < items; i++) {
            words_put_text(out, (struct str){text, bytes});
            words_put(out, 0);
            words_put(out, 0);
            words_put(out, 1);
            words_put_text(out, (struct str){text, bytes});
        }
    }
    words_put(out, 0);
    buffer_free(&empty);
}

/* More than the leader keeps of a worker. */
static void send_much(struct run *run)
{
    struct byte_buffer message = {0};
    put_items(run, REPORT_ITEMS_MAX, 9, &message);
    assert_true(give(run, OTHER, &message));
    put_items(run, REPORT_ITEMS_MAX + 1, 9, &message);
    assert_false(give(run, OTHER, &message));
    put_items(run, 200, FIGURES_TEXT_BYTES, &message);
    assert_in_range(message.length, FIGURES_BYTES_MAX / 2, FIGURES_BYTES_MAX);
    assert_true(give(run, OTHER, &message));
    put_items(run, REPORT_ITEMS_MAX, FIGURES_TEXT_BYTES, &message);
    assert_true(message.length > FIGURES_BYTES_MAX);
    assert_false(give(run, OTHER, &message));
    put_items(run, 1, FIGURES_TEXT_BYTES, &message);
    assert_true(give(run, OTHER, &message));
    put_items(run, 1, FIGURES_TEXT_BYTES + 1, &message);
    assert_false(give(run, OTHER, &message));
    buffer_free(&message);
}

static void test_much(void **state)
{
    static const char wide[] = "source s = sequence { count: 100, keys: 5, rate: 10, event_time: ts }\n"
                               "stream a = s | where value > 0.1\n"
                               "stream b = a | where value > 0.2\n"
                               "sink b = null from b\n";
    (void)state;
    workers_look(wide, WORKERS, LEADER, &(struct way){0}, send_much);
}

/* --- How they add up --- */

static void add(struct run *run)
{
    struct report *report = &sent->nodes[SOURCE].report;
    fill(run);
    run_stats(run, own);
    assert_int_equal(own->records + own->lanes, 1);
    assert_false(run_has_all_figures(run));
    assert_true(say(run, OTHER, true));
    assert_false(run_has_all_figures(run));
    run_stats(run, own);
    assert_int_equal(own->nodes[WINDOW].counters.held, 0); /* it is below zero */
    sent->nodes[WINDOW].counters.held = 5;
    sent->nodes[WINDOW].counters.absorbed = 25;
    sent->nodes[WINDOW].dead_reason = "another";
    strcpy(sent->nodes[SINK].note, "another");
    sent->checkpoint_stop_us = 7;
    sent->checkpoint_stop_max_us = 7;
    sent->move_stop_us = 8;
    sent->queue_fill[1] = 0.25;
    report->items[0].value = 8;
    report->items[1].value = 1;
    report->items[2].value = 80;
    report->items[3].value = (double)NAN;
    report->items[4].text = "\"b\"";
    report->items[4].value = 6;
    report->items[5].value = 1;
    add_examples((const char *const[]){"zeroth", "second", "fourth", "fifth"}, (const int64_t[]){0, 2, 4, 5},
                 4);
    assert_true(say(run, ANOTHER, true));
    assert_true(run_has_all_figures(run));
    for (int again = 0; again < 2; again++) { /* it keeps what was sent */
        run_stats(run, own);
        assert_int_equal(own->records, 80);
        assert_int_equal(own->records_life, 80);
        assert_int_equal(own->lanes, 3);
        assert_int_equal(own->workers, WORKERS);
        assert_int_equal(own->bytes_life, 18);
        assert_int_equal(own->checkpoint_bytes, 200);
        assert_int_equal(own->checkpoint_stop_us, 7);
        assert_int_equal(own->checkpoint_stop_max_us, 70);
        assert_true(own->store_bytes == 10000 && own->store_retries == 6);
        assert_true(own->moved_groups == 8 && own->moved_operators == 2);
        assert_true(own->moved_bytes == 6000 && own->moved_changes == 400 && own->move_stop_us == 90);
        assert_true(own->queue_fill[1] == 0.5);
        const struct run_node_stats *window = &own->nodes[WINDOW];
        assert_int_equal(window->counters.in, 60);
        assert_int_equal(window->counters.absorbed, 57);
        assert_int_equal(window->counters.held, 3);
        assert_int_equal(window->begin_in, 6);
        assert_string_equal(window->dead_reason, "no key");
        assert_true(own->nodes[SINK].is_full && !window->is_full);
        assert_string_equal(own->nodes[SINK].note, "12 rows");
        assert_string_equal(own->nodes[SINK].report.error, "the disk is full");
        assert_true(value_of(SOURCE, "rows") == 11 && value_of(SOURCE, "lag_seconds") == 2.5);
        assert_true(value_of(SOURCE, "began_us") == 80 && value_of(SOURCE, "bayes_auc") == 0.75);
        assert_string_equal(report_find(&own->nodes[SOURCE].report, "hot_key")->text, "\"b\"");
        assert_true(report_find(&own->nodes[SOURCE].report, "auc")->is_window);
        assert_int_equal(own->dead_count, RUN_DEAD_EXAMPLES);
        static const char *const texts[] = {"zeroth", "first", "second", "third", "fourth"};
        for (uint32_t i = 0; i < RUN_DEAD_EXAMPLES; i++)
            assert_string_equal(own->dead[i].text, texts[i]);
    }
}

static void test_added(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){0}, add);
}

/* What is told of each worker is not added; of one that has said nothing there is nothing. */
static void tell_apart(struct run *run)
{
    const struct run_peers *before = run->options.peers;
    struct run_peers peers = *before;
    static const char *const addresses[WORKERS] = {"one", "two", "three"};
    peers.addresses = addresses;
    run->options.peers = &peers;
    fill(run);
    assert_true(say(run, OTHER, false));
    run_stats(run, own);
    const struct run_worker_stats *of = own->per_worker;
    assert_true(of[LEADER].is_known && of[OTHER].is_known && !of[ANOTHER].is_known);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_string_equal(of[i].address, addresses[i]);
    assert_int_equal(of[OTHER].partitions, 6);
    assert_int_equal(of[OTHER].groups, 77);
    assert_true(of[OTHER].busy_share > 0.2 && of[OTHER].busy_share < 0.3);
    assert_int_equal(of[OTHER].records_life, 40);
    assert_int_equal(of[OTHER].traffic.sent_bytes, 1000);
    assert_int_equal(of[OTHER].traffic.sent_frames, 20);
    assert_int_equal(of[OTHER].traffic.received_bytes, 3000);
    assert_int_equal(of[OTHER].traffic.round_trip_us, 150);
    assert_int_equal(of[OTHER].waiting_bytes, 700);
    assert_int_equal(of[OTHER].spilled_bytes, 90000);
    assert_in_range(of[LEADER].groups, KEY_GROUPS / WORKERS, KEY_GROUPS / WORKERS + 1);
    run->options.peers = before;
}

static void test_apart(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){0}, tell_apart);
}

/* Several workers know what is one's alone. */
static void add_known(struct run *run)
{
    fill(run);
    assert_true(say(run, OTHER, false) && say(run, ANOTHER, false));
    run_stats(run, own);
    assert_true(isnan(value_of(SOURCE, "bayes_auc")));
}

static void test_known(void **state)
{
    (void)state;
    workers_look(job, WORKERS, LEADER, &(struct way){0}, add_known);
}

/* --- What another worker sends --- */

static uint32_t messages;
static const uint64_t below_zero = UINT64_MAX - 4;

static bool count_message(void *engine, uint32_t to, struct str message)
{
    uint64_t words[3];
    (void)engine;
    assert_int_equal(to, LEADER);
    memcpy(words, message.data, sizeof(words));
    assert_int_equal(words[0], PEER_FIGURES);
    assert_int_equal(words[1], OTHER);
    assert_int_equal(words[2], 0);
    assert_non_null(memmem(message.data, message.length, &below_zero, sizeof(below_zero)));
    messages++;
    return true;
}

static void send_some(struct run *run)
{
    static struct run_peers peers; /* until the run is freed */
    peers = *run->options.peers;
    peers.send = count_message;
    run->options.peers = &peers;
    messages = 0;
    /* Of rows that an earlier life held, the counter is at another worker: this one shows none, and sends what it has. */
    struct stage_instance *stage =
        run->lanes->stages[run->lanes->stage_first[run->plan->nodes[WINDOW].stage]];
    atomic_store(&stage->nodes[0].shown[offsetof(struct counters, held) / sizeof(uint64_t)], below_zero);
    for (int i = 0; i < 3; i++)
        run_stats(run, own);
    assert_true(own->is_part);
    assert_int_equal(own->nodes[WINDOW].counters.held, 0);
    assert_int_equal(messages, 1); /* a second has not passed */
}

static void test_sent(void **state)
{
    (void)state;
    workers_look(job, WORKERS, OTHER, &(struct way){0}, send_some);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_not_the_leader),
                                       cmocka_unit_test(test_full),    cmocka_unit_test(test_much),
                                       cmocka_unit_test(test_added),   cmocka_unit_test(test_apart),
                                       cmocka_unit_test(test_known),   cmocka_unit_test(test_sent)};
    own = mem_calloc(1, sizeof(*own));
    sent = mem_calloc(1, sizeof(*sent));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(own);
    free(sent);
    return failed;
}
