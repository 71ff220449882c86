/* Messages of a link: what is written is read as it was, and nothing else is taken. */
#include "../core/cmocka_all.h"
#include "serve/link_format.h"

static void test_asks(void **state)
{
    (void)state;
    const struct link_ask asks[] = {
        {.kind = LINK_CHECKPOINT, .job = STR("ctr"), .fingerprint = STR("0a1b"), .wants = true},
        {.kind = LINK_CHECKPOINT,
         .job = STR("ctr"),
         .fingerprint = STR("0a1b"),
         .have = {7, 42},
         .run = STR("ffee")},
        {.kind = LINK_FILE,
         .job = STR("a"),
         .fingerprint = STR("b"),
         .pack = INT64_MAX,
         .file = 3,
         .offset = UINT64_C(1) << 40},
        {.kind = LINK_LOG,
         .job = STR("a"),
         .fingerprint = STR("b"),
         .generation = UINT32_MAX,
         .segment = 12,
         .offset = 4096},
    };
    for (size_t i = 0; i < ARRAY_COUNT(asks); i++) {
        struct byte_buffer text = {0};
        struct link_ask found;
        link_ask_write(&asks[i], &text);
        const char *question = memchr(text.data, '?', text.length);
        struct str path = {text.data, (size_t)(question - text.data)};
        struct str query = {question + 1, text.length - path.length - 1};
        assert_true(link_ask_parse(path, query, &found));
        assert_int_equal(found.kind, asks[i].kind);
        assert_true(str_equal(found.job, asks[i].job) && str_equal(found.fingerprint, asks[i].fingerprint));
        assert_true(str_equal(found.run, asks[i].run) && found.wants == asks[i].wants);
        assert_true(found.have.generation == asks[i].have.generation &&
                    found.have.epoch == asks[i].have.epoch);
        assert_true(found.generation == asks[i].generation && found.segment == asks[i].segment);
        assert_true(found.pack == asks[i].pack && found.file == asks[i].file &&
                    found.offset == asks[i].offset);
        buffer_free(&text);
    }
}

static void test_bad_asks(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"/link/v2/log", "job=a"},         {"/link/v1/logs", "job=a"},
        {"/link/v1/log", "job"},           {"/link/v1/log", "&job=a"},
        {"/link/v1/log", "name=a"},        {"/link/v1/log", "generation=4294967296"},
        {"/link/v1/log", "segment=-1"},    {"/link/v1/log", "segment=9223372036854775808"},
        {"/link/v1/log", "segment="},      {"/link/v1/log", "segment=1x"},
        {"/link/v1/checkpoint", "have=7"}, {"/link/v1/checkpoint", "have=0-1"},
    };
    struct link_ask ask;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(link_ask_parse(str_from(bad[i][0]), str_from(bad[i][1]), &ask));
}

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"gen-000007/ckpt-000000000042/MANIFEST",
                                       "gen-000007/ckpt-000000000042/db/000012.sst",
                                       "tables/3/versions_1.csv"};
    static const char *const bad[] = {"",
                                      "MANIFEST",
                                      "/etc/passwd",
                                      "gen-000007/GENERATION",
                                      "gen-000007/ckpt-000000000042/",
                                      "gen-000007/ckpt-000000000042",
                                      "gen-/ckpt-1/a",
                                      "gen-1/ckpt-/a",
                                      "gen-1/ckpt-1x/a",
                                      "gen-000007/ckpt-000000000042/../../../x",
                                      "gen-000007/ckpt-000000000042/.x",
                                      "gen-000007/ckpt-000000000042//x",
                                      "gen-000007/ckpt-000000000042/a b",
                                      "gen-1/ckpt-1/a\nb",
                                      "tables/",
                                      "tables/..",
                                      "tables/../gen-1/ckpt-1/a",
                                      "tablets/a",
                                      "log/gen-000001-000000000001"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        assert_true(link_name_is_good(str_from(good[i])));
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        if (link_name_is_good(str_from(bad[i])))
            fail_msg("`%s` is taken", bad[i]);
    char longest[LINK_NAME_MAX + 2] = "tables/";
    memset(longest + 7, 'x', sizeof(longest) - 8);
    assert_false(link_name_is_good(str_from(longest)));
    assert_true(link_name_is_good((struct str){longest, LINK_NAME_MAX}));
    assert_int_equal(link_name_checkpoint(str_from(good[0])), 28);
    assert_int_equal(link_name_checkpoint(str_from(good[2])), 0);
}

static void test_lists(void **state)
{
    (void)state;
    struct byte_buffer text = {0};
    struct link_file file;
    bool is_good;
    link_list_add(&text, &(struct link_file){.name = str_from("gen-1/ckpt-2/MANIFEST"), .bytes = 17});
    link_list_add(&text, &(struct link_file){
                             .name = str_from("tables/1/a"), .bytes = INT64_MAX, .changed_us = INT64_MAX});
    struct str list = {text.data, text.length};
    assert_true(link_list_take(&list, &file, &is_good) && is_good);
    assert_true(str_is(file.name, "gen-1/ckpt-2/MANIFEST") && file.bytes == 17 && file.changed_us == 0);
    assert_true(link_list_take(&list, &file, &is_good) && is_good);
    assert_true(str_is(file.name, "tables/1/a") && file.bytes == INT64_MAX && file.changed_us == INT64_MAX);
    assert_false(link_list_take(&list, &file, &is_good));
    assert_true(is_good);
    buffer_free(&text);
    static const char *const bad[] = {"17 0 tables/a",
                                      "tables/a\n",
                                      " tables/a\n",
                                      "17 tables/a\n",
                                      "17 -1 tables/a\n",
                                      "-1 0 tables/a\n",
                                      "1 0 /etc/passwd\n",
                                      "\n",
                                      "1 \n",
                                      "1 0 \n",
                                      "1 99999999999999999999 tables/a\n",
                                      "99999999999999999999 0 tables/a\n"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        list = str_from(bad[i]);
        assert_false(link_list_take(&list, &file, &is_good));
        assert_false(is_good);
    }
}

/* Each byte of an answer counts. */
static void test_heads(void **state)
{
    (void)state;
    static const char bytes[] = "some bytes of a segment";
    struct link_head head = {.kind = LINK_LOG,
                             .flags = LINK_WRITTEN,
                             .generation = 3,
                             .place = 9,
                             .offset = 77},
                     found;
    char body[sizeof(head) + sizeof(bytes)];
    struct str behind;
    link_head_seal(&head, (struct str){bytes, sizeof(bytes)});
    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), bytes, sizeof(bytes));
    assert_null(link_head_open((struct str){body, sizeof(body)}, LINK_LOG, &found, &behind));
    assert_memory_equal(&found, &head, sizeof(head));
    assert_true(behind.length == sizeof(bytes) && behind.data == body + sizeof(head));
    assert_non_null(link_head_open((struct str){body, sizeof(body)}, LINK_FILE, &found, &behind));
    for (size_t length = 0; length < sizeof(body); length++)
        assert_non_null(link_head_open((struct str){body, length}, LINK_LOG, &found, &behind));
    for (size_t bit = 0; bit < sizeof(body) * 8; bit++) {
        body[bit / 8] ^= (char)(1 << bit % 8);
        assert_non_null(link_head_open((struct str){body, sizeof(body)}, LINK_LOG, &found, &behind));
        body[bit / 8] ^= (char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks),  cmocka_unit_test(test_bad_asks), cmocka_unit_test(test_names),
        cmocka_unit_test(test_lists), cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
