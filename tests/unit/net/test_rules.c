#include "net/rules.h"
#include "unit/core/cmocka_all.h"

static int target(const char *text, bool is_http2, const char *path, const char *query)
{
    char copy[4096];
    struct str found_path = {NULL, 0}, found_query = {NULL, 0};
    size_t length = strlen(text);
    memcpy(copy, text, length + 1);
    struct broken_rule broken =
        rules_target(copy, length, STR("here:80"), is_http2, &found_path, &found_query);
    if (broken.status == 0 && path != NULL) {
        assert_true(str_is(found_path, path));
        assert_true(str_is(found_query, query));
    }
    return broken.status;
}

static void test_targets(void **state)
{
    (void)state;
    assert_int_equal(target("/", false, "/", ""), 0);
    assert_int_equal(target("/a%20b%c3%A4?x=%20?y", false, "/a b\xC3\xA4", "x=%20?y"), 0);
    assert_int_equal(target("/%2541%2f", true, "/%41/", ""), 0);
    assert_int_equal(target("/..a/a../...", true, "/..a/a../...", ""), 0);
    assert_int_equal(target("http://HERE:80/x?y", false, "/x", "y"), 0);
    static const char *const bad[] = {"",
                                      "*",
                                      "a",
                                      "?",
                                      "/%",
                                      "/%4",
                                      "/%4g",
                                      "/%00",
                                      "/a b",
                                      "/\xC3\xA4",
                                      "/%ff",
                                      "/%c0%af",
                                      "/%ed%a0%80",
                                      "/..",
                                      "/../a",
                                      "/a/..",
                                      "/a/%2e%2E/b",
                                      "/a%2f..",
                                      "/%0a",
                                      "/%7F",
                                      "/a#b",
                                      "http://here/x",
                                      "http://here:80",
                                      "http://here:80?x",
                                      "http://other:80/",
                                      "ftp://here:80/",
                                      "http:///x",
                                      "/?\x01"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        if (target(bad[i], false, NULL, NULL) != 400)
            fail_msg("taken: %s", bad[i]);
    }
    assert_int_equal(target("http://here:80/x", true, NULL, NULL), 400);
    char longest[NET_PATH_BYTES_MAX + 2] = "/";
    memset(longest + 1, 'a', NET_PATH_BYTES_MAX - 1);
    assert_int_equal(target(longest, false, longest, ""), 0);
    longest[NET_PATH_BYTES_MAX] = 'a';
    assert_int_equal(target(longest, false, NULL, NULL), 414);
}

static void test_methods(void **state)
{
    (void)state;
    assert_int_equal(rules_method(STR("GET")).status, 0);
    assert_int_equal(rules_method(STR("HEAD")).status, 0);
    assert_int_equal(rules_method(STR("POST")).status, 0);
    assert_int_equal(rules_method(STR("OPTIONS")).status, 0);
    assert_int_equal(rules_method(STR("DELETE")).status, 405);
    assert_int_equal(rules_method(STR("get")).status, 501);
    assert_int_equal(rules_method(STR("GETS")).status, 501);
    assert_int_equal(rules_method(STR("")).status, 501);
}

static void test_authorities(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {
        {"a", "a", -1},       {"a.b-c_d:80", "a.b-c_d", 80}, {"1.2.3.4:0", "1.2.3.4", 0},
        {"[::1]", "::1", -1}, {"[::1]:65535", "::1", 65535}, {"[::ffff:1.2.3.4]:7", "::ffff:1.2.3.4", 7}};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct authority found;
        assert_true(authority_parse(str_from(good[i].text), &found));
        assert_true(str_is(found.host, good[i].host));
        assert_int_equal(found.port, good[i].port);
    }
    static const char *const bad[] = {"",    ":80",  "a:", "a:x",    "a:65536", "a:000080", "a b",   "a/b",
                                      "u@a", "[::1", "[]", "[::1]x", "[a-b]",   "::1",      "a:8:9", "a,b"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct authority found;
        if (authority_parse(str_from(bad[i]), &found))
            fail_msg("taken: %s", bad[i]);
    }
}

static void test_loopback(void **state)
{
    (void)state;
    static const char *const loopback[] = {"localhost",   "LocalHost", "127.0.0.1",
                                           "127.255.1.2", "::1",       "0:0:0:0:0:0:0:1"};
    for (size_t i = 0; i < ARRAY_COUNT(loopback); i++)
        assert_true(host_is_loopback(str_from(loopback[i])));
    static const char *const other[] = {
        "",      "localhost.", "a.localhost", "128.0.0.1",        "0.0.0.0",
        "127.1", "::2",        "::",          "::ffff:127.0.0.1", "127.0.0.1.a"};
    for (size_t i = 0; i < ARRAY_COUNT(other); i++)
        assert_false(host_is_loopback(str_from(other[i])));
}

static bool same(const char *origin, const char *host)
{
    struct authority authority;
    assert_true(authority_parse(str_from(host), &authority));
    return origin_is_of(str_from(origin), &authority);
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(same("http://a:8000", "A:8000"));
    assert_true(same("https://a", "a"));
    assert_true(same("https://a", "a:443"));
    assert_true(same("http://a:80", "a"));
    assert_true(same("http://[::1]:8", "[::1]:8"));
    assert_false(same("https://a", "a:80"));
    assert_false(same("http://a", "a:443"));
    assert_false(same("http://a:8000", "a:8001"));
    assert_false(same("http://b:8000", "a:8000"));
    assert_false(same("a:8000", "a:8000"));
    assert_false(same("null", "null"));
    assert_false(same("", "a"));
    assert_false(same("http://", "a"));
    assert_false(same("http://a/", "a"));
    assert_false(same("http://a http://b", "a"));
}

static void test_tokens(void **state)
{
    (void)state;
    uint8_t digest[32];
    token_digest(STR("abc"), digest);
    assert_true(authorization_is_good(STR("Bearer abc"), digest));
    assert_true(authorization_is_good(STR("bearer   abc"), digest));
    static const char *const bad[] = {"",          "abc",         "Bearer",      "Bearer ",
                                      "Bearer ab", "Bearer abcd", "Bearer abc ", "Basic abc",
                                      "Bearerabc", "Bearer Abc"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(authorization_is_good(str_from(bad[i]), digest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),  cmocka_unit_test(test_methods), cmocka_unit_test(test_authorities),
        cmocka_unit_test(test_loopback), cmocka_unit_test(test_origins), cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
