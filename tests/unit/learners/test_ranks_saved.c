/* The saved state of ranks: loaded by changed options; bytes that were cut or changed, at random and by field. */
#include "ranks_model.h"

static void fill(struct ranks *r, const struct ranks_config *c, uint32_t events)
{
    struct test_random random = {11};
    model_start(c);
    for (uint32_t n = 0; n < events; n++) {
        struct event e = random_event(&random);
        (void)!add(r, &e, ranks_has_by(c));
        model_add(&e);
    }
}

/* With another window the window begins anew, with other figures all does. */
static void test_changed_options(void **state)
{
    (void)state;
    struct rig g, other;
    struct byte_buffer saved = {0};
    assert_true(rig_open(&g, all_options));
    struct ranks *r = ranks_create(&g.config);
    fill(r, &g.config, 2500);
    ranks_save(r, &saved);
    assert_true(rig_open(&other, "metrics_at: [1, 5, 20], metrics_by: country, window: 1600"));
    struct ranks *fresh = ranks_create(&other.config);
    assert_null(ranks_load(fresh, saved.data, saved.length));
    struct ranks_figures found = ranks_figures(fresh, false, ITEMS), expected = model_figures(0, false);
    assert_figures(&found, &expected);
    found = ranks_figures(fresh, true, ITEMS);
    assert_true(found.examples == 0 && isnan(found.hr[0]) && isnan(found.coverage[0]));
    ranks_free(fresh);
    rig_close(&other);
    static const char *const others[] = {"metrics_at: [1, 5, 21], metrics_by: country",
                                         "metrics_at: [1, 5, 20]",
                                         "metrics_at: [1, 5, 20], metrics_by: level"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(rig_open(&other, others[i]));
        fresh = ranks_create(&other.config);
        assert_null(ranks_load(fresh, saved.data, saved.length));
        assert_int_equal(ranks_figures(fresh, false, ITEMS).examples, 0);
        ranks_free(fresh);
        rig_close(&other);
    }
    buffer_free(&saved);
    ranks_free(r);
    rig_close(&g);
}

/* Loads bytes, which may be damaged, and goes on with what came of it. Returns whether they were taken. */
static bool go_on(struct rig *g, struct ranks *r, const char *data, size_t bytes)
{
    char *copy = malloc(bytes + (bytes == 0)); /* of exactly this size, so that a sanitizer sees its end */
    memcpy(copy, data, bytes);
    const char *reason = ranks_load(r, copy, bytes);
    free(copy);
    struct ranks_figures f = ranks_figures(r, false, ITEMS);
    if (reason != NULL)
        assert_int_equal(f.examples, 0);
    for (uint32_t k = 0; k < g->config.at.count && f.examples > 0; k++)
        assert_true(f.hr[k] >= 0.0 && f.hr[k] <= 1.0 && f.ndcg[k] >= 0.0 && f.ndcg[k] <= 1.001);
    struct test_random random = {1};
    for (int i = 0; i < 3; i++) {
        struct event e = random_event(&random);
        (void)!add(r, &e, ranks_has_by(&g->config));
    }
    ranks_emit(r, &g->context, 1, ITEMS);
    return reason == NULL;
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const options[] = {all_options, "metrics_at: [2], window: 16"};
    for (size_t o = 0; o < 2; o++) {
        struct rig g;
        struct byte_buffer saved = {0};
        struct test_random random = {o};
        assert_true(rig_open(&g, options[o]));
        struct ranks *r = ranks_create(&g.config);
        fill(r, &g.config, 1500);
        ranks_save(r, &saved);
        size_t covered = (size_t)ITEMS * g.config.at.count, head = saved.length - covered;
        for (size_t bytes = 0; bytes < head;
             bytes += 1 + (bytes > 100 ? random_below(&random, o == 0 ? 900 : 9) : 0))
            assert_false(go_on(&g, r, saved.data, bytes));
        uint32_t refused = 0;
        for (uint32_t i = 0; i < 8000; i++) {
            uint32_t place = random_below(&random, (uint32_t)(i % 2 ? saved.length : 200)),
                     bit = 1U << (i / 2 % 8);
            saved.data[place] = (char)(saved.data[place] ^ (char)bit);
            refused += !go_on(&g, r, saved.data, saved.length);
            saved.data[place] = (char)(saved.data[place] ^ (char)bit);
        }
        assert_true(refused > 1000);
        char last = saved.data[saved.length - 1];
        saved.data[saved.length - 1] = 18; /* no state of an item */
        assert_false(go_on(&g, r, saved.data, saved.length));
        saved.data[saved.length - 1] = last;
        assert_true(go_on(&g, r, saved.data, saved.length - g.config.at.count));
        if (g.config.at.count > 1)
            assert_false(go_on(&g, r, saved.data, saved.length - 1));
        buffer_free(&saved);
        ranks_free(r);
        rig_close(&g);
    }
}

/* Values that no run saves, each in bytes that are else as they were. */
static void test_impossible(void **state)
{
    (void)state;
    struct rig g;
    assert_true(rig_open(&g, "metrics_at: [2], window: 1600"));
    struct ranks *r = ranks_create(&g.config);
    fill(r, &g.config, 1500);
    struct byte_buffer saved = {0};
    ranks_save(r, &saved);
    static const struct {
        size_t at;
        uint64_t value;
    } changes[] = {
        {0, 1},                              /* magic, and no values */
        {16, 1},                             /* events of a slice */
        {24, 1501},                          /* events when rows were emitted last */
        {40, 16},                            /* slice */
        {48, 1025},                          /* events of the blocks: no multiple */
        {48, UINT64_C(1) << 60},             /* too many */
        {56, 1025},                          /* more misses than events */
        {72, 1025},                          /* more hits than events */
        {80, 1},                             /* hits for a k that is not there */
        {104, UINT64_C(0x7ff8000000000000)}, /* NaN */
        {104, UINT64_C(0x40c0000000000000)}, /* more gain than hits */
        {104, UINT64_C(0xbff0000000000000)}, /* negative */
        {136, UINT64_C(0x7ff0000000000000)}, /* infinite */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        uint64_t before;
        memcpy(&before, saved.data + changes[i].at, 8);
        assert_true(before != changes[i].value);
        memcpy(saved.data + changes[i].at, &changes[i].value, 8);
        if (go_on(&g, r, saved.data, saved.length))
            fail_msg("change %zu was taken", i);
        memcpy(saved.data + changes[i].at, &before, 8);
    }
    assert_true(go_on(&g, r, saved.data, saved.length));
    buffer_free(&saved);
    ranks_free(r);
    rig_close(&g);
}

/* Likewise of values of metrics_by. The saved state is a head of 48 bytes; sums of 120 bytes, for each scope two and
 * one for each slice; values of 24 bytes and a text; then items. */
static void test_impossible_values(void **state)
{
    (void)state;
    struct rig g;
    assert_true(rig_open(&g, "metrics_at: [2], window: 1600, metrics_by: country"));
    struct ranks *r = ranks_create(&g.config);
    fill(r, &g.config, 500);
    struct byte_buffer saved = {0};
    ranks_save(r, &saved);
    size_t sums = 120, scope = (2 + RANKS_SLICES) * sums, values = 48 + SCOPES * scope, first = values;
    while (saved.data[first + 16] != 7) /* to a value whose text is `value N` */
        first += 24 + (size_t)(unsigned char)saved.data[first + 16];
    size_t next = first + 24 + 7, null = values, last = 48;
    while (saved.data[null + 16] != 0)
        null += 24 + (size_t)(unsigned char)saved.data[null + 16];
    uint32_t kept, more;
    memcpy(&kept, saved.data + 44, 4);
    for (size_t at = values; at < values + kept; at += 24 + (size_t)(unsigned char)saved.data[at + 16])
        last = at;
    static const struct {
        int from; /* 0: a value; 1: the next one; 2: scope 0; 3: scope 1; 4: null */
        size_t at, bytes;
        const char *data;
    } changes[] = {
        {0, 16, 4, "\x01\x01\0\0"},     /* 257 bytes of text */
        {0, 16, 4, "\xff\xff\xff\xff"}, /* beyond the end */
        {0, 20, 1, "\1"},               /* null, and a text */
        {0, 8, 1, "\1"},                /* an integer, and a text */
        {0, 25, 1, "\xff"},             /* no UTF-8 */
        {1, 0, 8, NULL},                /* the hash of another value */
        {2, 2 * 120, 120, ""},          /* a slice without events, of which values have some */
        {3, 2 * 120, 120, ""},          /* a slice in which a value lacks its events */
        {3, 120, 120, ""},              /* a value that never came */
        {4, 20, 1, "\2"},               /* neither null nor a value */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        size_t from[] = {first, next, 48, 48 + scope, null}, at = from[changes[i].from] + changes[i].at;
        char before[120], zeros[120] = {0};
        const char *data = changes[i].data == NULL ? saved.data + first : changes[i].data;
        memcpy(before, saved.data + at, changes[i].bytes);
        memcpy(saved.data + at, data[0] == '\0' ? zeros : data, changes[i].bytes);
        assert_memory_not_equal(before, saved.data + at, changes[i].bytes);
        if (go_on(&g, r, saved.data, saved.length))
            fail_msg("change %zu was taken", i);
        memcpy(saved.data + at, before, changes[i].bytes);
    }
    assert_true(go_on(&g, r, saved.data, saved.length));
    more = kept + 1; /* an item's byte behind the values */
    memcpy(saved.data + 44, &more, 4);
    assert_false(go_on(&g, r, saved.data, saved.length));
    memcpy(saved.data + 44, &kept, 4);
    saved.data[last + 16] = 80; /* a text that ends behind all bytes */
    assert_false(go_on(&g, r, saved.data, values + kept));
    saved.length = values + kept;
    for (uint32_t i = 0; i < 30000; i++)
        buffer_append(&saved, "x", 1);
    more = kept + 30000, kept = 25000; /* a text that is longer than all texts together */
    memcpy(saved.data + 44, &more, 4);
    memcpy(saved.data + first + 16, &kept, 4);
    assert_false(go_on(&g, r, saved.data, saved.length));
    buffer_free(&saved);
    ranks_free(r);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_options),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_impossible_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
