/*
 * The cache of keys and values (learners/train/kv_cache.h): what it gives equals full passes, bit for bit, while
 * windows grow and turn, users are evicted and begin anew, weights change, and keys come more than once in a call;
 * its budget and counts; bf16.
 */
#include "sequence_rig.h"

#include "learners/histories/histories.h"
#include "learners/train/kv_cache.h"

#include <math.h>

/* Events of a setup; lists that are compared. A sanitizer is slow, and further ones run the same code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY = 5000, LISTS = 20 };
#else
enum { MANY = 10000, LISTS = 200 };
#endif

enum { USERS = 40, EVENTS_MAX = 1200, REQUESTS_MAX = 12, DIM = 32 };

static const struct sasrec_network one_head = {
    .layers = 2, .heads = 1, .dim = DIM, .hidden = DIM, .is_causal = true, .dropout = 0.2F};
static const struct sasrec_network two_heads = {
    .layers = 2, .heads = 2, .dim = DIM, .hidden = DIM, .is_causal = true, .attention_dropout = 0.1F};
static const struct hstu_network hstu_one = {.layers = 2, .heads = 1, .dim = DIM, .dropout = 0.2F};
static const struct hstu_network hstu_two = {.layers = 2, .heads = 2, .dim = DIM};

/* budget: pages. */
struct setup {
    const char *name;
    const struct network *network;
    const void *own;
    uint32_t history, events, pages;
    bool is_bf16;
};

static const struct setup setups[] = {
    {"sasrec, 1 head", &network_sasrec, &one_head, 150, MANY, 90, false},
    {"hstu, 2 heads", &network_hstu, &hstu_two, 150, MANY, 90, false},
    {"sasrec, 2 heads, short", &network_sasrec, &two_heads, 21, 4000, 30, false},
    {"hstu, 1 head, all kept", &network_hstu, &hstu_one, 40, 2000, 400, false},
    {"sasrec, nothing kept", &network_sasrec, &two_heads, 40, 1000, 0, false},
    {"sasrec, bf16", &network_sasrec, &two_heads, 90, 2000, 25, true},
    {"hstu, bf16", &network_hstu, &hstu_two, 90, 2000, 25, true},
};

/* first: with the cache under test; second: full passes. */
static struct rig first, second;

/* --- Users --- */

struct user {
    uint64_t count;
    uint32_t seconds[EVENTS_MAX];
};
static struct user users[USERS];
static uint64_t draws, cut;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(num_mix(++draws * 77) >> 33) % below;
}

static void append(struct user *u)
{
    if (u->count == EVENTS_MAX || draw(700) == 0) { /* expired: begins anew, later */
        u->seconds[0] = u->seconds[u->count - 1] + 100000;
        u->count = 0;
    }
    uint32_t before = u->count > 0 ? u->seconds[u->count - 1] : u->seconds[0];
    u->seconds[u->count++] = before + 1 + draw(1U << draw(20));
}

/* A call's requests; `windows` are those of the users of these numbers. */
struct call {
    struct kv_request requests[REQUESTS_MAX];
    size_t n;
};

static void fill_rows(void *argument, size_t request, uint32_t from, uint32_t to, float *rows, size_t stride)
{
    const struct call *call = argument;
    const struct kv_request *q = &call->requests[request];
    for (uint32_t r = from; r < to; r++, rows += stride) {
        uint64_t token = num_mix(q->key + num_mix(q->start + r + num_mix(q->seconds[r] + cut))) + 1000 * r;
        for (uint32_t c = 0; c < DIM; c++)
            rows[c] = rig_uniform(9, token * 256 + c);
    }
}

/* The window that a user had `ago` events ago. */
static struct kv_request request_of(uint32_t number, uint32_t ago, uint32_t history)
{
    const struct user *u = &users[number];
    struct history_window w = history_window(u->count - ago, history);
    return (struct kv_request){number + 1, w.start, w.length, u->seconds + w.start};
}

/* Appends events of some users, and asks for the users; returns how many events there are. */
static uint32_t next_call(struct call *call, uint32_t history)
{
    uint32_t events = 0;
    for (call->n = 1 + draw(REQUESTS_MAX), events = 0; events < call->n; events++) {
        /* most requests are those of some users, so that there are kept rows */
        uint32_t number = draw(3) ? draw(USERS / 4) : draw(USERS);
        append(&users[number]);
        for (uint32_t more = draw(4) ? 0 : draw(6); more > 0; more--)
            append(&users[number]);
    }
    for (size_t i = 0; i < call->n; i++) {
        uint32_t number = draw(3) ? draw(USERS / 4) : draw(USERS), ago = draw(12) ? 0 : draw(3);
        if (users[number].count == 0)
            append(&users[number]);
        call->requests[i] = request_of(number, ago < users[number].count ? ago : 0, history);
        if (i > 0 && draw(8) == 0)
            call->requests[i] = call->requests[draw((uint32_t)i)];
    }
    return events;
}

/* --- Full passes --- */

static void full_pass(const struct setup *s, struct call *call, struct kv_cache *none, float *out)
{
    struct net *net = &second.net;
    if (s->is_bf16) {
        kv_cache_encode(none, net, call->requests, call->n, fill_rows, call, out);
        return;
    }
    uint32_t rows = 0;
    for (size_t i = 0; i < call->n; i++) {
        const struct kv_request *q = &call->requests[i];
        assert_true(rows + q->length <= net->events_max);
        fill_rows(call, i, 0, q->length, net->input->values + (size_t)rows * net->input->stride,
                  net->input->stride);
        memcpy(second.seconds + rows, q->seconds, q->length * sizeof(*q->seconds));
        second.offsets[i + 1] = rows += q->length;
    }
    net->windows = (struct net_windows){
        .offsets = second.offsets, .count = (uint32_t)call->n, .seconds = second.seconds};
    net_forward(net, rows);
    for (size_t i = 0; i < call->n; i++)
        memcpy(out + i * DIM, net->output->values + (size_t)(second.offsets[i + 1] - 1) * DIM,
               DIM * sizeof(*out));
}

/* --- Tests --- */

static size_t page_cost(void)
{
    struct kv_cache *cache = kv_cache_new(&(struct kv_cache_options){1 << 22, false}, &first.net);
    struct call call = {.n = 1, .requests = {{1, 0, 1, (const uint32_t[]){5}}}};
    float out[DIM];
    kv_cache_encode(cache, &first.net, call.requests, 1, fill_rows, &call, out);
    size_t bytes = kv_cache_count(cache).bytes;
    kv_cache_free(cache);
    return bytes;
}

static void begin_rigs(const struct setup *s)
{
    struct net_options o = rig_options(s->network, s->own, DIM, s->history);
    rig_begin(&first, &o, 600, false);
    rig_begin(&second, &o, REQUESTS_MAX * 150, false);
    rig_stir(&first);
    rig_stir(&second);
}

static void end_rigs(void)
{
    rig_end(&first);
    rig_end(&second);
}

/* counts: those of a fresh cache after `requests` requests, whose windows but the repeated ones have `rows` rows. */
static void check_counts(const struct setup *s, const struct kv_cache_counts *c, uint64_t requests)
{
    assert_int_equal(c->hits + c->misses + c->repeated, requests);
    assert_true(c->refused <= c->misses && c->users <= USERS);
    if (s->pages == 0) {
        assert_true(c->refused == requests && c->bytes == 0 && c->rows_kept == 0);
        return;
    }
    assert_true(c->hits > requests / 10 && c->turned > 10 && c->repeated > 10 && c->refused > 10);
    assert_true(c->rows_kept > c->rows_encoded);
    if (s->pages != 400 && c->evicted <= 100)
        fail_msg("%s: %u evicted", s->name, (unsigned)c->evicted);
    assert_true(s->pages == 400 ? c->evicted == 0 && c->users == USERS : c->evicted > 100);
}

static void run_setup(const struct setup *s)
{
    static float out[REQUESTS_MAX * DIM], expected[REQUESTS_MAX * DIM];
    begin_rigs(s);
    struct kv_cache_options options = {s->pages * page_cost(), s->is_bf16};
    struct kv_cache *cache = kv_cache_new(&options, &first.net);
    struct kv_cache *none = kv_cache_new(&(struct kv_cache_options){0, s->is_bf16}, &second.net);
    struct call call;
    uint64_t requests = 0, rows = 0;
    memset(users, 0, sizeof(users));
    for (uint32_t events = 0; events < s->events;) {
        events += next_call(&call, s->history);
        if (draw(60) == 0) { /* a new cut */
            rig_stir(&first);
            rig_stir(&second);
            cut++;
            kv_cache_clear(cache);
            assert_int_equal(kv_cache_count(cache).bytes, 0);
        }
        struct kv_cache_counts before = kv_cache_count(cache);
        memset(out, 0xff, sizeof(out));
        kv_cache_encode(cache, &first.net, call.requests, call.n, fill_rows, &call, out);
        full_pass(s, &call, none, expected);
        for (size_t i = 0; i < call.n; i++)
            if (memcmp(out + i * DIM, expected + i * DIM, DIM * sizeof(*out)) != 0)
                fail_msg("%s: after %u events request %zu, of user %u, differs", s->name, events, i,
                         (unsigned)call.requests[i].key);
        struct kv_cache_counts after = kv_cache_count(cache);
        assert_true(after.bytes <= options.budget_bytes);
        requests += call.n;
        rows += after.rows_encoded + after.rows_kept - before.rows_encoded - before.rows_kept;
    }
    struct kv_cache_counts counts = kv_cache_count(cache);
    check_counts(s, &counts, requests);
    assert_int_equal(counts.rows_encoded + counts.rows_kept, rows);
    kv_cache_free(cache);
    kv_cache_free(none);
    end_rigs();
}

static void test_full_passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(setups); i++)
        run_setup(&setups[i]);
}

/* Who goes: the user who was asked for least recently, and nobody more than needed. */
static void test_evicted(void **state)
{
    (void)state;
    static uint32_t seconds[48];
    struct setup s = {.network = &network_sasrec, .own = &one_head, .history = 48};
    float out[4 * DIM];
    begin_rigs(&s);
    /* users 1, 2, 3 have 1, 2 and 1 pages of 4; user 1 is asked for again; user 4 needs 1: 2 goes */
    struct kv_cache *cache = kv_cache_new(&(struct kv_cache_options){4 * page_cost(), false}, &first.net);
    struct call calls[] = {
        {.n = 3, .requests = {{1, 0, 16, seconds}, {2, 0, 17, seconds}, {3, 0, 5, seconds}}},
        {.n = 1, .requests = {{1, 0, 16, seconds}}},
        {.n = 1, .requests = {{4, 0, 1, seconds}}},
        {.n = 3, .requests = {{1, 0, 16, seconds}, {3, 0, 5, seconds}, {4, 0, 2, seconds}}},
        {.n = 1, .requests = {{2, 0, 48, seconds}}}, /* three pages: one is left, 1 and 3 go */
        {.n = 1, .requests = {{5, 0, 16, seconds}}}, /* 4 goes */
        {.n = 2,
         .requests = {{2, 0, 48, seconds}, {6, 0, 17, seconds}}}, /* 5 goes, 6 gets none: 2 must stay */
    };
    static const uint64_t hits[] = {0, 1, 1, 4, 4, 4, 5}, evicted[] = {0, 0, 1, 1, 3, 4, 5};
    static const uint64_t refused[] = {0, 0, 0, 0, 0, 0, 1}, in_use[] = {4, 4, 3, 3, 4, 4, 3};
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        kv_cache_encode(cache, &first.net, calls[i].requests, calls[i].n, fill_rows, &calls[i], out);
        struct kv_cache_counts c = kv_cache_count(cache);
        if (c.hits != hits[i] || c.evicted != evicted[i] || c.refused != refused[i] ||
            c.bytes != in_use[i] * page_cost())
            fail_msg("call %zu: %u hits, %u evicted, %u refused, %zu pages", i, (unsigned)c.hits,
                     (unsigned)c.evicted, (unsigned)c.refused, c.bytes / page_cost());
    }
    kv_cache_free(cache);
    kv_cache_free(NULL);
    end_rigs();
}

/* What is kept is of no use for another start, though the times are the same; for other times, though the start is;
 * and after a new cut, though both are. */
static void test_stale(void **state)
{
    (void)state;
    static uint32_t zeros[40], others[40];
    struct setup s = {.network = &network_hstu, .own = &hstu_one, .history = 40};
    float out[DIM], expected[DIM];
    begin_rigs(&s);
    others[3] = 1;
    struct kv_cache *cache = kv_cache_new(&(struct kv_cache_options){1 << 22, false}, &first.net);
    struct kv_cache *none = kv_cache_new(&(struct kv_cache_options){0, false}, &second.net);
    struct call calls[] = {
        {.n = 1, .requests = {{1, 0, 20, zeros}}},  {.n = 1, .requests = {{1, 0, 22, zeros}}},
        {.n = 1, .requests = {{1, 7, 23, zeros}}},  {.n = 1, .requests = {{1, 7, 24, others}}},
        {.n = 1, .requests = {{1, 7, 25, others}}}, {.n = 1, .requests = {{1, 7, 26, others}}}};
    static const uint64_t hits[] = {0, 1, 1, 1, 1, 2}, turned[] = {0, 0, 1, 2, 2, 2};
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        if (i == 4) {
            cut++;
            kv_cache_clear(cache);
        }
        kv_cache_encode(cache, &first.net, calls[i].requests, 1, fill_rows, &calls[i], out);
        kv_cache_encode(none, &second.net, calls[i].requests, 1, fill_rows, &calls[i], expected);
        assert_memory_equal(out, expected, sizeof(out));
        assert_int_equal(kv_cache_count(cache).hits, hits[i]);
        assert_int_equal(kv_cache_count(cache).turned, turned[i]);
    }
    kv_cache_free(cache);
    kv_cache_free(none);
    end_rigs();
}

/* --- bf16 --- */

enum { ITEMS = 1000, TOP = 10 };

static void top_of(const float *query, const float *items, uint32_t top[TOP])
{
    static float scores[ITEMS];
    for (uint32_t i = 0; i < ITEMS; i++) {
        scores[i] = 0.0F;
        for (uint32_t c = 0; c < DIM; c++)
            scores[i] += query[c] * items[i * DIM + c];
    }
    for (uint32_t t = 0; t < TOP; t++) {
        top[t] = 0;
        for (uint32_t i = 1; i < ITEMS; i++)
            top[t] = scores[i] > scores[top[t]] ? i : top[t];
        scores[top[t]] = -INFINITY;
    }
}

static uint32_t overlap(const float *a, const float *b, const float *items)
{
    uint32_t x[TOP], y[TOP], both = 0;
    top_of(a, items, x);
    top_of(b, items, y);
    for (uint32_t i = 0; i < TOP; i++)
        for (uint32_t j = 0; j < TOP; j++)
            both += x[i] == y[j];
    return both;
}

static void test_bf16(void **state)
{
    (void)state;
    static float items[ITEMS * DIM], exact[DIM], rounded[DIM];
    static uint32_t seconds[200];
    for (size_t i = 0; i < ARRAY_COUNT(items); i++)
        items[i] = rig_uniform(21, i);
    for (uint32_t i = 0; i < ARRAY_COUNT(seconds); i++)
        seconds[i] = 1000 + i * i * 60;
    for (size_t kind = 0; kind < 2; kind++) {
        struct setup s = {.network = kind ? &network_hstu : &network_sasrec, .history = 200};
        s.own = kind ? (const void *)&hstu_two : &two_heads;
        begin_rigs(&s);
        struct kv_cache *a = kv_cache_new(&(struct kv_cache_options){1 << 26, false}, &first.net);
        struct kv_cache *b = kv_cache_new(&(struct kv_cache_options){1 << 26, true}, &first.net);
        uint32_t both = 0;
        double differences = 0.0, squares = 0.0;
        for (uint32_t i = 0; i < 2 * LISTS; i++) { /* of each user first most of the window, then all of it */
            struct call call = {.n = 1, .requests = {{i / 2 + 1, 0, 100 + i / 2 % 90 + i % 2 * 10, seconds}}};
            kv_cache_encode(a, &first.net, call.requests, 1, fill_rows, &call, exact);
            kv_cache_encode(b, &first.net, call.requests, 1, fill_rows, &call, rounded);
            for (uint32_t c = 0; c < DIM; c++) {
                double difference = (double)exact[c] - (double)rounded[c];
                differences += difference * difference;
                squares += (double)exact[c] * (double)exact[c];
            }
            both += i % 2 ? overlap(exact, rounded, items) : 0;
        }
        assert_int_equal(kv_cache_count(b).hits, LISTS);
        assert_int_equal(kv_cache_count(a).rows_kept, kv_cache_count(b).rows_kept);
        assert_true(kv_cache_count(b).bytes < kv_cache_count(a).bytes * 6 / 10);
        double error = sqrt(differences / squares), share = both / (double)(LISTS * TOP);
        if (error == 0.0 || error > 2e-3 || share < 0.99)
            fail_msg("%s: relative error %g, overlap %g", s.network->name, error, share);
        kv_cache_free(a);
        kv_cache_free(b);
        end_rigs();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_passes),
        cmocka_unit_test(test_evicted),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
