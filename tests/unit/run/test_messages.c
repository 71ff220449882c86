/* Wrong messages to a worker: it takes none that the job cannot have, and none ends the process or keeps it from coming to rest.
 * The test also runs under ASan. */
#include "arrivals.h"
#include "core/batch_codec_format.h"
#include "core/mem.h"
#include "later.h"
#include "run/base/peers.h"
#include "talk.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORD = sizeof(uint64_t), RISEN = 8 /* of enum offer_state */ };

/* One partition of each of two sources on each of two workers, rows of both at each instance. */
static const char text[] = "source a = sequence { count: 40, keys: 9, rate: 900, event_time: ts }\n"
                           "source b = sequence { count: 30, keys: 9, rate: 300, seed: 4, event_time: ts }\n"
                           "stream u = a | union b\n"
                           "stream w = u | dedup by key within 1s\n"
                           "stream l = w | later 2\n"
                           "sink l = null from l\n";

/* One partition on each of two workers, of which one waits for the other. */
static const char text_that_waits[] =
    "source a = arrivals { partitions: 2, count: 27, batch: 8, delay: 20ms, late: 3ms, event_time: ts, align: 5ms }\n"
    "stream w = a | dedup by key within 4ms\n"
    "stream l = w | later 2\n"
    "sink l = null from l\n";

/* One partition, and another one that both workers find while the job runs. */
static const char text_that_grows[] =
    "source a = growing { partitions: 2, count: 12, batch: 8, event_time: ts }\n"
    "stream w = a | dedup by key within 4ms\n"
    "stream l = w | later 2\n"
    "sink l = null from l\n";

static const char log_path[] = "messages.order", log_that_waits[] = "waits.order";

static struct talk_job jobs[] = {
    {.text = text, .workers = 2, .lanes = 1, .self = 0, .leader = 0}, /* the leader */
    {.text = text,
     .workers = 2,
     .lanes = 1,
     .self = 0,
     .leader = 1}, /* another worker, with the single stages of even numbers */
    {.text = text,
     .workers = 2,
     .lanes = 2,
     .self = 1,
     .leader = 0}, /* and with those of odd ones, and two instances of each keyed stage */
    {.text = text, .workers = 3, .lanes = 1, .self = 1, .leader = 1},
    {.text = text, .workers = 3, .lanes = 1, .self = 1, .leader = 2},
    {.text = text,
     .workers = 2,
     .lanes = 1,
     .self = 0,
     .leader = 0,
     .replays = log_path}, /* a replay, and what follows behind the log */
    {.text = text, .workers = 2, .lanes = 1, .self = 0, .leader = 1, .replays = log_path},
    {.text = text_that_waits, .workers = 2, .lanes = 1, .self = 0, .leader = 0},
    {.text = text_that_waits, .workers = 2, .lanes = 1, .self = 0, .leader = 1},
    {.text = text_that_waits, .workers = 2, .lanes = 1, .self = 0, .leader = 0, .replays = log_that_waits},
    {.text = text, .workers = 2, .lanes = 1, .self = 0, .leader = 0, .is_tight = true},
    {.text = text, .workers = 2, .lanes = 2, .self = 1, .leader = 0, .is_tight = true},
    {.text = text_that_grows, .workers = 2, .lanes = 1, .self = 0, .leader = 0},
    {.text = text_that_grows, .workers = 2, .lanes = 1, .self = 1, .leader = 0},
};

static uint64_t word(const struct told *told, size_t index)
{
    uint64_t value;
    memcpy(&value, told->bytes.data + index * WORD, WORD);
    return value;
}

static void set_word(struct told *told, size_t index, uint64_t value)
{
    memcpy(told->bytes.data + index * WORD, &value, WORD);
}

/* Words of a message; of PEER_ROWS those before the batch, of PEER_FIGURES those before the counters of stages and nodes. */
static size_t words_of(const struct told *told)
{
    return word(told, 0) == PEER_ROWS ? 6 : word(told, 0) == PEER_FIGURES ? 14 : told->bytes.length / WORD;
}

/* A script of which a message is changed. */
struct changed {
    const struct talk_job *job;
    struct script script;
    uint32_t at; /* the message */
    const char *what;
    size_t index;
    uint64_t value; /* for a failure's message */
};

typedef void (*change)(struct changed *c);

/* Calls it for each message of each job. */
static void for_each(const char *what, change each)
{
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
        struct changed c = {.job = &jobs[j], .what = what};
        talk_record(&jobs[j], &c.script);
        assert_true(c.script.count > 8);
        for (c.at = 0; c.at < c.script.count; c.at++)
            each(&c);
        script_free(&c.script);
    }
}

static struct told *told_of(const struct changed *c)
{
    return &c->script.items[c->at];
}

static void must_be(const struct changed *c, bool is_so)
{
    if (is_so)
        return;
    fprintf(stderr,
            "%s: message %u of tag %llu to worker %u of %u, whose leader is %u: word %zu, value %llx\n",
            c->what, c->at, (unsigned long long)word(told_of(c), 0), c->job->self, c->job->workers,
            c->job->leader, c->index, (unsigned long long)c->value);
    fail();
}

static void must_be_refused(const struct changed *c)
{
    must_be(c, talk_give(c->job, &c->script) == TALK_REFUSED);
}

/* The messages as they were said take the worker to the end of the job. */
static void test_as_it_was_said(void **state)
{
    bool has_tag[PEER_TAGS] = {false};
    (void)state;
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
        struct script script;
        talk_record(&jobs[j], &script);
        for (uint32_t i = 0; i < script.count; i++)
            has_tag[word(&script.items[i], 0)] = true;
        assert_int_equal(talk_give(&jobs[j], &script), TALK_ENDED);
        script_free(&script);
    }
    for (int tag = 0; tag < PEER_TAGS; tag++)
        assert_true(has_tag[tag] || tag == PEER_STOP || tag == PEER_DIFFERS ||
                    (tag >= PEER_PIECE && tag <= PEER_HEAD)); /* these jobs take no checkpoints */
}

/* --- Length --- */

static void shorten(struct changed *c)
{
    struct byte_buffer *bytes = &told_of(c)->bytes;
    size_t whole = bytes->length;
    for (bytes->length = 0; bytes->length < whole; bytes->length += WORD / 2) {
        c->index = bytes->length / WORD;
        must_be_refused(c);
    }
    buffer_append(bytes, &(uint64_t){0}, WORD);
    must_be_refused(c);
    bytes->length = whole;
}

static void test_length(void **state)
{
    (void)state;
    for_each("shorten", shorten);
}

/* --- Words --- */

/* Whether another worker could say any value there, as far as this one knows: times, and what ends with no micro-batch. waits: the
 * sources wait for each other; then the first event time behind what is offered, or cut, is said where there is one. */
static bool is_free(const struct told *told, size_t index, bool waits)
{
    enum {
        AT_ENDS = 3,
        AT_SLICES = 3,
        AT_BOUND = 3,
        AT_HIGHEST,
        AT_LAST,
        AT_DONE = 5,
        AT_LISTS = 7,
        AT_OFFSET = 7,
        AT_FIGURES = 4
    };
    uint64_t count = word(told, 2);
    size_t begin = AT_LISTS, slice = waits ? 6 : 4;
    switch (word(told, 0)) {
    case PEER_OFFERS:
        if (index < AT_ENDS + 3 * count)
            return index >= AT_ENDS && (index - AT_ENDS) % 3 != 1;
        begin = AT_ENDS + 3 * count;
        if (waits && count > 0 && index < begin + 2)
            return index == begin + 1 && word(told, begin) == 1;
        return index == begin + (waits && count > 0 ? 3 : 1);
    case PEER_NUMBER:
        if (index <= AT_LAST)
            return index == AT_BOUND || index == AT_HIGHEST || (index == AT_LAST && count != 1);
        for (size_t list = 0; list < 3; list++)
            begin += 1 + word(told, begin);
        begin += 3; /* of a replay: each slice has five words; the leader is told where its records differ */
        return index >= begin && (index - begin) % 5 >= 1 && (index - begin) % 5 <= 3;
    case PEER_PARTITION:
        return index == AT_OFFSET || index > AT_OFFSET + 1; /* its name: by its place it is known */
    case PEER_CUT:
        if (index < AT_SLICES + slice * count) {
            size_t within = index < AT_SLICES ? 0 : (index - AT_SLICES) % slice;
            return within == 2 || within == 3 || (within == 5 && word(told, index - 1) == 1);
        }
        index -=
            AT_SLICES +
            slice * count; /* then the arrival, and five words of each source: a holder is none, or known */
        return index == 0 || ((index - 1) % 5 != 0 && (index - 1) % 5 != 2);
    case PEER_FIGURES: return index >= AT_FIGURES;
    case PEER_FORMED: return index > AT_DONE + word(told, AT_DONE);
    default: return false;
    }
}

static void replace(struct changed *c)
{
    struct told *told = told_of(c);
    for (c->index = 0; c->index < words_of(told); c->index++) {
        uint64_t was = word(told, c->index);
        bool can_be = is_free(told, c->index, c->job->text == text_that_waits);
        const uint64_t values[] = {UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, was + (1ULL << 32), PEER_TAGS};
        for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
            c->value = values[i];
            if (c->value == was || (c->index > 0 && c->value == PEER_TAGS))
                continue;
            set_word(told, c->index, c->value);
            bool is_refused = talk_give(c->job, &c->script) == TALK_REFUSED;
            set_word(told, c->index, was);
            must_be(c, can_be || is_refused);
        }
    }
}

static void test_words(void **state)
{
    (void)state;
    for_each("replace", replace);
}

/* A source whose records have no offsets has no position that rises without records. */
static void rise(struct changed *c)
{
    struct told *told = told_of(c);
    if (word(told, 0) != PEER_OFFERS)
        return;
    c->index = 3 + 3 * word(told, 2);
    c->value = word(told, c->index) | RISEN;
    set_word(told, c->index, c->value);
    must_be_refused(c);
    set_word(told, c->index, c->value & ~(uint64_t)RISEN);
}

static void test_rises(void **state)
{
    (void)state;
    for_each("rise", rise);
}

/* Watermarks never fall, a micro-batch comes in its turn, what ends a micro-batch is what the owner has offered, and a worker holds by
 * what it has. */
static void near_by(struct changed *c)
{
    struct told *told = told_of(c);
    uint64_t tag = word(told, 0);
    if (tag < PEER_NUMBER && tag != PEER_HOLD)
        return;
    c->index = 1;
    for (int by = -1; by <= 1; by += 2) {
        uint64_t was = word(told, c->index);
        c->value = was + (uint64_t)(int64_t)by;
        set_word(told, c->index, c->value);
        must_be(c, talk_give(c->job, &c->script) != TALK_ENDED);
        set_word(told, c->index, was);
    }
    if (tag != PEER_FORMED || word(told, 1) == 0)
        return;
    for (c->index = 6 + word(told, 5); c->index < words_of(told); c->index++) {
        uint64_t was = word(told, c->index);
        if (was == (uint64_t)TIME_MIN)
            continue;
        c->value = was - 1000000000;
        set_word(told, c->index, c->value);
        must_be_refused(c);
        set_word(told, c->index, was);
    }
}

static void test_near_by(void **state)
{
    (void)state;
    for_each("near by", near_by);
}

static uint32_t cuts_seen[2]; /* without a row behind the cut, and with one */

/* What is said of the row behind a cut: its event time does not fall behind what was offered; where all that was offered is cut, no
 * row is there. */
static void wait_for_another(struct changed *c)
{
    struct told *told = told_of(c);
    if (word(told, 0) != PEER_CUT || word(told, 2) != 1 || c->job->text != text_that_waits ||
        c->job->replays != NULL)
        return;
    c->index = 7;
    uint64_t was[] = {word(told, c->index), word(told, c->index + 1)};
    c->value = was[0] == 1 ? (uint64_t)INT64_MIN : INT64_MAX;
    set_word(told, c->index, 1);
    set_word(told, c->index + 1, c->value);
    must_be_refused(c);
    set_word(told, c->index, was[0]);
    set_word(told, c->index + 1, was[1]);
    cuts_seen[was[0]]++;
}

static void test_next_rows(void **state)
{
    (void)state;
    for_each("wait for another", wait_for_another);
    assert_true(cuts_seen[0] > 0 && cuts_seen[1] > 1);
}

/* --- Senders, and turns --- */

static void send_by_another(struct changed *c)
{
    struct told *told = told_of(c);
    uint32_t was = told->from;
    const uint32_t others[] = {c->job->self, c->job->workers, UINT32_MAX, 3 - c->job->self - was};
    for (size_t i = 0; i < (c->job->workers == 3 ? 4 : 3); i++) {
        c->value = told->from = others[i];
        must_be_refused(c);
    }
    told->from = was;
}

static void test_senders(void **state)
{
    (void)state;
    for_each("send by another", send_by_another);
}

static void say_twice_and_not(struct changed *c)
{
    struct script *script = &c->script, less = {0}, more = {0};
    uint64_t tag = word(told_of(c), 0);
    less.items = mem_alloc(script->count * sizeof(*less.items));
    more.items = mem_alloc((script->count + 1) * sizeof(*more.items));
    for (uint32_t i = 0; i < script->count; i++) {
        if (i != c->at)
            less.items[less.count++] = script->items[i];
        else
            more.items[more.count++] = script->items[i];
        more.items[more.count++] = script->items[i];
    }
    /* There may be more offers, rows, answers and figures; the transport knows which came twice. */
    bool can_be = tag == PEER_OFFERS || tag == PEER_ROWS || tag == PEER_ANSWER || tag == PEER_FIGURES;
    bool is_last = true; /* of its tag: behind the end of the job, nothing is looked at */
    for (uint32_t i = c->at + 1; i < script->count; i++)
        is_last &= word(&script->items[i], 0) != tag;
    enum talk_outcome outcome = talk_give(c->job, &more);
    must_be(c, can_be || outcome == TALK_REFUSED || (is_last && tag >= PEER_CUT && outcome == TALK_ENDED));
    /* Of holds, the leader goes by their ends, too. */
    bool is_needed = tag >= PEER_NUMBER ||
                     (tag == PEER_HOLD && (word(told_of(c), 1) != 0 || c->job->self == c->job->leader));
    must_be(c, !is_needed || talk_give(c->job, &less) != TALK_ENDED);
    free(less.items);
    free(more.items);
}

static void test_turns(void **state)
{
    (void)state;
    for_each("say twice and not", say_twice_and_not);
}

/* --- Rows --- */

static void damage(struct changed *c)
{
    struct told *told = told_of(c);
    enum { HEAD = 6 * WORD };
    if (word(told, 0) != PEER_ROWS)
        return;
    for (size_t i = HEAD; i < told->bytes.length; i += 2) {
        told->bytes.data[i] ^= (char)0xa5;
        (void)talk_give(c->job, &c->script); /* a value is another one, or there is no batch */
        told->bytes.data[i] ^= (char)0xa5;
    }
    /* Without rows, of any length: one of them is a good batch. */
    struct byte_buffer *bytes = &told->bytes;
    size_t whole = bytes->length;
    struct wire_head head;
    memcpy(&head, bytes->data + HEAD, sizeof(head));
    struct wire_head empty = head;
    empty.rows = 0;
    empty.flags = WIRE_ORDER;
    memcpy(bytes->data + HEAD, &empty, sizeof(empty));
    memset(bytes->data + HEAD + sizeof(empty), 0, whole - HEAD - sizeof(empty));
    for (bytes->length = HEAD + sizeof(empty); bytes->length < whole; bytes->length++)
        must_be_refused(c);
    bytes->length = whole;
}

static void test_rows(void **state)
{
    (void)state;
    for_each("damage", damage);
}

/* Rows that go to another instance than the one that has their keys. */
static void send_elsewhere(struct changed *c)
{
    struct told *told = told_of(c);
    bool is_keyed = word(told, 0) == PEER_ROWS && word(told, 1) < 2 && c->job->lanes == 2;
    c->index = 4;
    if (!is_keyed)
        return;
    c->value = word(told, c->index) ^ 1;
    set_word(told, c->index, c->value);
    must_be_refused(c);
    set_word(told, c->index, c->value ^ 1);
}

static void test_consumers(void **state)
{
    (void)state;
    for_each("send elsewhere", send_elsewhere);
}

/* Rows before all other messages: they wait, where they are their sender's, and a slot is free for them. */
static void come_first(struct changed *c)
{
    struct told *told = told_of(c);
    uint32_t was = told->from;
    bool is_of_sources = word(told, 0) == PEER_ROWS && word(told, 1) == 0 && word(told, 2) == 0;
    if (!is_of_sources || word(told, 5) != 0)
        return;
    uint64_t done[] = {PEER_DONE, 0, 0};
    struct told both[2] = {{.from = was}, *told};
    buffer_append(&both[0].bytes, done, sizeof(done));
    must_be(c, talk_give(c->job, &(struct script){told, 1}) == TALK_WAITS);
    for (c->value = SLOTS - 1; c->value <= SLOTS; c->value++) { /* the first micro-batch has not run here */
        set_word(told, 2, c->value);
        must_be(c, (talk_give(c->job, &(struct script){both, 2}) == TALK_REFUSED) == (c->value == SLOTS));
    }
    set_word(told, 2, 0);
    told->from = c->job->workers == 3 ? 3 - c->job->self - was : c->job->self;
    must_be(c, talk_give(c->job, &(struct script){told, 1}) == TALK_REFUSED);
    told->from = was;
    buffer_free(&both[0].bytes);
}

static void test_first(void **state)
{
    (void)state;
    for_each("come first", come_first);
}

static void test_stop(void **state)
{
    (void)state;
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
        uint64_t words[] = {PEER_STOP, 0};
        struct told told = {.from = 1 - MIN(jobs[j].self, 1)};
        struct script script = {&told, 1};
        bool is_leader = jobs[j].self == jobs[j].leader;
        buffer_append(&told.bytes, words, WORD);
        assert_int_equal(talk_give(&jobs[j], &script), is_leader ? TALK_WAITS : TALK_REFUSED);
        buffer_append(&told.bytes, words + 1, WORD);
        assert_int_equal(talk_give(&jobs[j], &script), TALK_REFUSED);
        buffer_free(&told.bytes);
    }
}

/* The leader takes no partitions of a source that cannot gain any. */
static void test_found(void **state)
{
    (void)state;
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
        const uint64_t words[] = {PEER_FOUND, 0, PARTITIONS_MAX};
        struct told told = {.from = 1 - MIN(jobs[j].self, 1)};
        buffer_append(&told.bytes, words, sizeof(words));
        bool is_taken = jobs[j].self == jobs[j].leader && jobs[j].text == text_that_grows;
        assert_int_equal(talk_give(&jobs[j], &(struct script){&told, 1}),
                         is_taken ? TALK_WAITS : TALK_REFUSED);
        buffer_free(&told.bytes);
    }
}

/* Another worker says that its records are not the log's, in place of what it has cut. */
static void differ(struct changed *c)
{
    struct told *told = told_of(c);
    if (word(told, 0) != PEER_CUT || word(told, 2) != 1 || c->job->replays == NULL)
        return;
    struct byte_buffer was = told->bytes;
    const uint64_t words[] = {PEER_DIFFERS, word(told, 1), 0, word(told, 3), 1, 2, 3, 0, 4, 5};
    told->bytes = (struct byte_buffer){0};
    buffer_append(&told->bytes, words, sizeof(words));
    must_be_refused(c); /* with what differs */
    replace(c);
    shorten(c);
    buffer_free(&told->bytes);
    told->bytes = was;
}

static void test_differs(void **state)
{
    (void)state;
    for_each("differ", differ);
}

/* Writes the log of the job's first 20 ms. */
static void record_log(const char *of, const char *path)
{
    struct talk_job logged = jobs[0];
    struct script script;
    logged.text = of;
    logged.order = path;
    logged.until_us = 20000;
    talk_record(&logged, &script);
    script_free(&script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_it_was_said), cmocka_unit_test(test_length),    cmocka_unit_test(test_words),
        cmocka_unit_test(test_near_by),        cmocka_unit_test(test_senders),   cmocka_unit_test(test_turns),
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_consumers), cmocka_unit_test(test_first),
        cmocka_unit_test(test_stop),           cmocka_unit_test(test_rises),     cmocka_unit_test(test_found),
        cmocka_unit_test(test_differs),        cmocka_unit_test(test_next_rows)};
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++)
        jobs[j].registry = registry_with_arrivals(registry_with_later());
    char folder[TEMPORARY_PATH_BYTES];
    temporary_make(folder);
    if (setenv("TMPDIR", ".", 1) != 0 /* of each run's store */ || chdir(folder) != 0)
        return 2;
    record_log(text, log_path);
    record_log(text_that_waits, log_that_waits);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return (unlink(log_path) | unlink(log_that_waits)) != 0 || chdir("/") != 0 || rmdir(folder) != 0 ? 2
                                                                                                     : failed;
}
