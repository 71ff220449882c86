/* utf8.h, hex.h, varint.h, base64.h. */
#include "core/base64.h"
#include "core/buffer.h"
#include "core/hex.h"
#include "core/utf8.h"
#include "core/varint.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static bool is_repaired(const char *text, const char *expected)
{
    struct byte_buffer out = {0};
    utf8_repair(str_from(text), &out);
    bool is_equal = str_is((struct str){out.data, out.length}, expected);
    buffer_free(&out);
    return is_equal;
}

static void test_utf8_repair(void **state)
{
    (void)state;
    assert_true(is_repaired("", "") && is_repaired("a\xc3\xa4\xe2\x82\xac", "a\xc3\xa4\xe2\x82\xac"));
    assert_true(is_repaired("\xff", "\xef\xbf\xbd"));
    assert_true(is_repaired("a\xe2\x82z\x80", "a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd"));
}

static bool is_surrogate(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdfff;
}

/* Every code point comes back, and no part of it is one. */
static void test_utf8_of_each_code_point(void **state)
{
    (void)state;
    char bytes[UTF8_BYTES_MAX];
    for (uint32_t code = 0, found; code <= 0x10ffff; code++) {
        if (is_surrogate(code))
            continue;
        size_t length = utf8_encode(code, bytes);
        assert_int_equal(length, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(bytes, length, &found), length);
        assert_int_equal(found, code);
        for (size_t left = 1; left < length; left++)
            assert_int_equal(utf8_decode(bytes, left, &found), 0);
    }
}

/* All four bytes that could matter: what decodes is what the code point is encoded as, so nothing overlong. */
static void test_utf8_takes_nothing_else(void **state)
{
    (void)state;
    static const unsigned char later[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    size_t good = 0;
    for (uint32_t two = 0; two < 0x10000; two++)
        for (size_t i = 0; i < ARRAY_COUNT(later) * ARRAY_COUNT(later); i++) {
            char bytes[4] = {(char)(two >> 8), (char)two, (char)later[i % ARRAY_COUNT(later)],
                             (char)later[i / ARRAY_COUNT(later)]};
            char again[UTF8_BYTES_MAX];
            uint32_t code;
            size_t length = utf8_decode(bytes, sizeof(bytes), &code);
            if (length == 0)
                continue;
            good++;
            assert_true(code <= 0x10ffff && !is_surrogate(code));
            assert_int_equal(utf8_encode(code, again), length);
            assert_memory_equal(again, bytes, length);
        }
    assert_true(good > 0x80 * 256 * ARRAY_COUNT(later));
}

static void test_utf8_error(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t error;
    } cases[] = {{"", 0},      {"plain", 5},          {"\xc3\xa9t\xc3\xa9", 5},
                 {"a\xc3", 1}, {"ab\xed\xa0\x80", 2}, {"\xf0\x9f\x98\x80\x80", 4}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct str text = str_from(cases[i].text);
        assert_int_equal(utf8_error(text.data, text.length), cases[i].error);
        assert_int_equal(utf8_is_valid(text), cases[i].error == text.length);
    }
}

static void test_hex(void **state)
{
    (void)state;
    char text[33], whole[513];
    unsigned char bytes[256];
    for (int c = 0; c < 256; c++) {
        char digit[2] = {(char)c, '\0'}, *end;
        long value = strtol(digit, &end, 16);
        assert_int_equal(hex_value((char)c), *end == '\0' && end > digit ? value : -1);
        bytes[c] = (unsigned char)c;
    }
    hex_text(bytes, 256, whole);
    assert_int_equal(strlen(whole), 512);
    for (int c = 0; c < 256; c++)
        assert_int_equal(hex_value(whole[2 * c]) << 4 | hex_value(whole[2 * c + 1]), c);
    hex_text("\x00\x7f\xAB", 3, text);
    assert_string_equal(text, "007fab");
    hex_text(NULL, 0, text);
    assert_string_equal(text, "");
}

static void check_varint(uint64_t value, size_t length)
{
    char bytes[2 * VARINT_BYTES_MAX];
    uint64_t found = 0;
    memset(bytes, 0xff, sizeof(bytes));
    assert_ptr_equal(varint_put(bytes, value), bytes + length);
    assert_ptr_equal(varint_take(bytes, bytes + length, &found), bytes + length);
    assert_int_equal(found, value);
    assert_ptr_equal(varint_take_padded(bytes, bytes + sizeof(bytes), &found), bytes + length);
    assert_int_equal(found, value);
    for (size_t cut = 0; cut < length; cut++) {
        assert_null(varint_take(bytes, bytes + cut, &found));
        assert_null(varint_take_padded(bytes, bytes + cut, &found));
    }
    assert_int_equal(unzigzag(zigzag(value)), value);
}

static void test_varint(void **state)
{
    (void)state;
    struct test_random random = {17};
    uint64_t found;
    check_varint(0, 1);
    for (unsigned bits = 1; bits <= 64; bits++) {
        uint64_t top = UINT64_C(1) << (bits - 1);
        check_varint(top, (bits + 6) / 7);
        check_varint(top | (top - 1), (bits + 6) / 7);
        check_varint(top | (random_next(&random) & (top - 1)), (bits + 6) / 7);
    }
    /* More than 64 bits, and more than ten bytes; zeros at the end are allowed. */
    static const char wide[] = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00";
    assert_null(varint_take(wide, wide + 11, &found));
    static const char long_zero[] = "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00";
    assert_null(varint_take(long_zero, long_zero + 11, &found));
    assert_ptr_equal(varint_take(long_zero + 1, long_zero + 11, &found), long_zero + 11);
    assert_int_equal(found, 0);
    assert_int_equal(zigzag((uint64_t)-1), 1);
    assert_int_equal(zigzag(1), 2);
    assert_int_equal(zigzag((uint64_t)INT64_MIN), UINT64_MAX);
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"\xff\xfe", "//4="},
                                           {"\xfb\xf0", "+/A="}};
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "Zg==Zg==", "Zg=g", "Zm9v\n", "-_8="};
    char out[64];
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct str plain = str_from(pairs[i][0]), coded = str_from(pairs[i][1]);
        struct byte_buffer buffer = {0};
        base64_encode(plain.data, plain.length, &buffer);
        assert_true(str_equal((struct str){buffer.data, buffer.length}, coded));
        buffer_free(&buffer);
        assert_int_equal(base64_decode(coded.data, coded.length, out), plain.length);
        assert_memory_equal(out, plain.data, plain.length);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_equal(base64_decode(bad[i], strlen(bad[i]), out), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_of_each_code_point),
        cmocka_unit_test(test_utf8_repair),
        cmocka_unit_test(test_utf8_takes_nothing_else),
        cmocka_unit_test(test_utf8_error),
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_varint),
        cmocka_unit_test(test_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
