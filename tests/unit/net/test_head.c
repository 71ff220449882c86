/* The strict check of HTTP/1 heads, and chunked bodies. */
#include "net/chunked.h"
#include "net/head.h"
#include "unit/core/cmocka_all.h"

static enum head_end find(const char *text, size_t *length)
{
    struct head_scan scan = {0};
    enum head_end end = head_find_end(&scan, text, strlen(text));
    *length = scan.scanned;
    return end;
}

static void test_end(void **state)
{
    (void)state;
    size_t length = 0;
    assert_int_equal(find("GET / HTTP/1.1\r\na: b\r\n\r\nrest\n", &length), HEAD_WHOLE);
    assert_int_equal(length, 24);
    static const char *const open[] = {
        "", "G", "GET / HTTP/1.1\r", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\r", "\r"};
    for (size_t i = 0; i < ARRAY_COUNT(open); i++)
        assert_int_equal(find(open[i], &length), HEAD_OPEN);
    static const char *const broken[] = {"\n", "\r\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\n\n",
                                         "GET / HTTP/1.1\r\na\n"};
    for (size_t i = 0; i < ARRAY_COUNT(broken); i++)
        assert_int_equal(find(broken[i], &length), HEAD_BROKEN);
}

static void test_end_in_parts(void **state)
{
    (void)state;
    const char *text = "GET / HTTP/1.1\r\na: b\r\n\r\n\r\n";
    struct head_scan scan = {0};
    for (size_t count = 1; count < 24; count++)
        assert_int_equal(head_find_end(&scan, text, count), HEAD_OPEN);
    assert_int_equal(head_find_end(&scan, text, 26), HEAD_WHOLE);
    assert_int_equal(scan.scanned, 24);
}

static int status_of(const char *text, size_t count, struct head *head)
{
    struct broken_rule broken = head_check(text, count, head);
    assert_true((broken.status == 0) == (broken.text == NULL));
    return broken.status;
}

static int status(const char *text, struct head *head)
{
    return status_of(text, strlen(text), head);
}

static void test_good(void **state)
{
    (void)state;
    struct head head;
    assert_int_equal(status("POST /a?b HTTP/1.1\r\nHOST: x\r\ncontent-LENGTH: \t17 \t\r\n\r\n", &head), 0);
    assert_true(str_is(head.method, "POST"));
    assert_int_equal(head.minor_version, 1);
    assert_int_equal(head.content_length, 17);
    assert_false(head.is_chunked || head.must_continue);
    assert_int_equal(status("G!$%&'*+-.^_`|~9Z / HTTP/1.0\r\nexpect: nothing\r\n\r\n", &head), 0);
    assert_int_equal(head.minor_version, 0);
    assert_int_equal(head.content_length, -1);
    assert_int_equal(
        status("GET / HTTP/1.1\r\nhost:\r\nTransfer-Encoding: Chunked\r\nexpect:100-Continue\r\n\r\n", &head),
        0);
    assert_true(head.is_chunked && head.must_continue);
    assert_int_equal(
        status("GET / HTTP/1.1\r\nhost: a\r\nx: \t\x80\xFF ~\r\ncontent-lengths: x\r\n\r\n", &head), 0);
    assert_int_equal(status("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999999999999999\r\n\r\n", &head),
                     0);
    assert_true(head.content_length == 999999999999999999);
}

static void test_bad(void **state)
{
    (void)state;
    struct head head;
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: +7\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 7, 7\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000000000000\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\nContent-Length: 7\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\n x: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\n: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx@y: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx\x80: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx: \x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nhost: a\r\nx: \x7F\r\n\r\n"},
        {400, "GET /\x7F HTTP/1.1\r\nhost: a\r\n\r\n"},
        {400, "GET /\t HTTP/1.1\r\nhost: a\r\n\r\n"},
        {400, "GET /  HTTP/1.1\r\nhost: a\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {400, " GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1x\r\nhost: a\r\n\r\n"},
        {400, "GET /\r\nhost: a\r\n\r\n"},
        {400, "GET\r\nhost: a\r\n\r\n"},
        {400, "G(T / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {505, "GET / HTTP/1.2\r\nhost: a\r\n\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\n"},
        {417, "GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue, x\r\n\r\n"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        int found = status(cases[i].text, &head);
        if (found != cases[i].status)
            fail_msg("%s: %d", cases[i].text, found);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n";
    assert_int_equal(status_of(nul, sizeof(nul) - 1, &head), 400);
}

/* --- Chunks --- */

/* Decodes in parts of `part` bytes; the number of bytes used, or -1: broken. */
static int decode(const char *text, size_t count, size_t part, char *data, size_t *length)
{
    struct chunked chunked = {0};
    *length = 0;
    for (size_t at = 0; at < count;) {
        size_t from = 0, until = 0;
        size_t left = MIN(part, count - at);
        enum chunked_found found = chunked_next(&chunked, text + at, left, &from, &until);
        if (found == CHUNKED_BROKEN)
            return -1;
        assert_true(from <= until && until <= left);
        if (found == CHUNKED_DATA) {
            memcpy(data + *length, text + at + from, until - from);
            *length += until - from;
        }
        at += until;
        if (found == CHUNKED_END)
            return (int)at;
    }
    return 0;
}

static void test_chunks(void **state)
{
    (void)state;
    static const char text[] = "3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0000\r\nt: u\r\nv: w\r\n\r\nGET /";
    char data[64];
    size_t length = 0, count = sizeof(text) - 1;
    for (size_t part = 1; part <= count; part++) {
        assert_int_equal(decode(text, count, part, data, &length), count - 5);
        assert_int_equal(length, 13);
        assert_memory_equal(data, "abc0123456789", 13);
    }
    for (size_t cut = 0; cut < count - 5; cut++)
        assert_int_equal(decode(text, cut, 7, data, &length), 0);
}

static void test_bad_chunks(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "3\n",  "\r\n",    ";a\r\n",   "3\r\nabcd",      "3\r\nabc\n",   "3\r\nabc\rx", "123456789",  "3\rx",
        "3;\n", "0\r\n\n", "0\r\n\rx", "0\r\n a: b\r\n", "0\r\na\x01\r", "3;\x7F\r\n",  "0\r\na: b\n"};
    char data[64];
    size_t length = 0;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        if (decode(bad[i], strlen(bad[i]), 1, data, &length) != -1)
            fail_msg("taken: %s", bad[i]);
    }
    /* All extensions of a body count together. */
    static char extras[CHUNK_EXTRAS_MAX + 64], into[CHUNK_EXTRAS_MAX];
    memcpy(extras, "1;", 2);
    memset(extras + 2, 'e', sizeof(extras) - 2);
    assert_int_equal(decode(extras, CHUNK_EXTRAS_MAX + 2, SIZE_MAX, into, &length), 0);
    assert_int_equal(decode(extras, CHUNK_EXTRAS_MAX + 3, SIZE_MAX, into, &length), -1);
    for (size_t i = 2000; i + 8 < sizeof(extras); i += 2000)
        memcpy(extras + i, "\r\nx\r\n1;", 7);
    assert_int_equal(decode(extras, CHUNK_EXTRAS_MAX + 2 + 2 * 7, SIZE_MAX, into, &length), 0);
    assert_int_equal(decode(extras, CHUNK_EXTRAS_MAX + 3 + 2 * 7, SIZE_MAX, into, &length), -1);
    assert_int_equal(length, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end), cmocka_unit_test(test_end_in_parts), cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad), cmocka_unit_test(test_chunks),       cmocka_unit_test(test_bad_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
