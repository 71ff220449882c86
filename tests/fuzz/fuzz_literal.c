/* Arbitrary bytes as one literal: a number, duration, size, time, base64, text. Each parser is compared with
 * a simple one: numbers with strtod and 128-bit integers, times with timegm, UTF-8 with a decoder by RFC
 * 3629. Times and base64 are read back the same once they are written. */
#include "core/base64.h"
#include "core/buffer.h"
#include "core/civil.h"
#include "core/option.h"
#include "core/utf8.h"
#include "formats/text.h"
#include "fuzz.h"

#include <float.h>
#include <math.h>
#include <time.h>

enum { TEXT_MAX = 200 };

/* The definition of literal_int: digits with _ between them. */
static bool plain_int(const char *text, size_t length, int64_t *value)
{
    __int128 sum = 0;
    size_t i = length > 0 && text[0] == '-';
    bool negative = i == 1;
    if (i == length || text[length - 1] == '_' || text[i] == '_')
        return false;
    for (; i < length; i++) {
        if (text[i] == '_')
            continue;
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (sum < (__int128)1 << 70) /* beyond that the int is too large anyway */
            sum = sum * 10 + (text[i] - '0');
    }
    if (sum > (__int128)INT64_MAX + negative)
        return false;
    *value = (int64_t)(negative ? -sum : sum);
    return true;
}

static void check_numbers(struct str text)
{
    char copy[TEXT_MAX + 1];
    int64_t value = 0, expected = 0;
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    bool is_int = literal_int(text, &value);
    must(is_int == plain_int(text.data, text.length, &expected) && value == expected, "an int is that int");
    double real;
    if (literal_float(text, &real)) {
        must(isfinite(real), "a float is finite");
        must(real == strtod(copy, NULL), "a float is that float");
    }
    int64_t duration, bytes;
    if (literal_duration(text, &duration))
        must(text.length > 1 && !literal_int(text, &value), "a duration has a unit");
    if (literal_bytes(text, &bytes))
        must(text.length > 1 && text.data[text.length - 1] == 'B', "a size has a unit");
}

static void check_json_number(struct str text)
{
    struct text_number number;
    const char *end = text.data + text.length, *behind = text_number(text.data, end, &number);
    char copy[TEXT_MAX + 1];
    if (behind == NULL)
        return;
    must(behind > text.data && behind <= end && number.begin == text.data && number.end == behind,
         "a number lies in its text");
    size_t length = (size_t)(behind - text.data);
    memcpy(copy, text.data, length);
    copy[length] = '\0';
    char *stop;
    double expected = strtod(copy, &stop), real;
    must(stop == copy + length, "JSON's numbers are C's");
    if (text_number_double(&number, &real) == TEXT_GOOD)
        must(real == expected && signbit(real) == signbit(expected), "a double is that double");
    else
        must(isinf(expected), "only what no double reaches is out of range");
    int64_t value;
    if (text_number_int(&number, &value) == TEXT_GOOD)
        must(!number.has_exponent && (double)value == expected, "a whole number is that number");
    static const struct {
        enum time_unit unit;
        double us;
    } units[] = {{TIME_UNIT_S, 1e6}, {TIME_UNIT_MS, 1e3}, {TIME_UNIT_US, 1}, {TIME_UNIT_NS, 1e-3}};
    for (size_t i = 0; i < ARRAY_COUNT(units); i++)
        if (text_number_time(&number, units[i].unit, &value) == TEXT_GOOD && fabs(expected) < 1e9) {
            /* What is below a microsecond is cut off; the double and its product are rounded, too. */
            double us = expected * units[i].us;
            must(fabs((double)value - us) <= 1 + fabs(us) * 2 * DBL_EPSILON, "a time is that time");
        }
}

/* A date and time in UTC is parsed to just these fields, never to a day of another month. */
static void check_shown(struct str text, const struct civil *civil)
{
    int year, month, day, hour, minute, second;
    char copy[TEXT_MAX + 1];
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    if (text.length < 20 || copy[text.length - 1] != 'Z' ||
        sscanf(copy, "%4d-%2d-%2d%*1c%2d:%2d:%2d", &year, &month, &day, &hour, &minute, &second) != 6)
        return;
    if (second == 60)
        return; /* a leap second is read as the second after it */
    must(civil->year == year && civil->month == month && civil->day == day, "a date is that date");
    must(civil->hour == hour && civil->minute == minute && civil->second == second, "a time is that time");
}

static void check_time(struct str text)
{
    int64_t time, again;
    char written[32];
    if (!civil_parse(text, &time))
        return;
    struct civil civil = civil_from(time);
    struct tm tm = {.tm_year = (int)civil.year - 1900,
                    .tm_mon = civil.month - 1,
                    .tm_mday = civil.day,
                    .tm_hour = civil.hour,
                    .tm_min = civil.minute,
                    .tm_sec = civil.second};
    must(timegm(&tm) * US_PER_SECOND + civil.microsecond == time, "a civil time is that of the libc");
    must((tm.tm_wday + 6) % 7 + 1 == civil.weekday, "a weekday is that of the libc");
    check_shown(text, &civil);
    size_t length = civil_format(time, written);
    must(length < sizeof(written), "a time fits");
    if (civil.year >= 1 && civil.year <= 9999)
        must(civil_parse((struct str){written, length}, &again) && again == time,
             "a time that is written reads back");
}

/* The bytes of the UTF-8 character at `at` (RFC 3629), or 0 if none begins there. left: bytes
 * that are left. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    uint32_t letter = length == 1 ? at[0] : at[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (at[i] >> 6 != 2)
            return 0;
        letter = letter << 6 | (at[i] & 0x3f);
    }
    return letter < least[length] || letter > 0x10ffff || (letter >= 0xd800 && letter < 0xe000) ? 0 : length;
}

static void check_text(struct str text)
{
    size_t at = 0, length;
    const unsigned char *bytes = (const unsigned char *)text.data;
    while (at < text.length && (length = utf8_length(bytes + at, text.length - at)) > 0)
        at += length;
    size_t error = utf8_error(text.data, text.length);
    must((error == text.length) == (at == text.length), "UTF-8 is UTF-8");
    must(error >= at && error <= text.length, "the first wrong byte is in the first wrong character");
    must(text_is_utf8(text.data, text.length) == (at == text.length), "both ways to look at UTF-8 agree");
}

static void check_base64(struct str text)
{
    char bytes[TEXT_MAX + 4];
    struct byte_buffer out = {0};
    size_t length = base64_decode(text.data, text.length, bytes);
    if (length != SIZE_MAX) {
        must(length <= text.length / 4 * 3, "base64 is longer than its bytes");
        base64_encode(bytes, length, &out);
        char again[TEXT_MAX + 4];
        must(base64_decode(out.data, out.length, again) == length && memcmp(again, bytes, length) == 0,
             "bytes come back through base64");
    }
    buffer_clear(&out);
    base64_encode(text.data, text.length, &out);
    char *back = malloc(out.length + 1);
    must(back != NULL && base64_decode(out.data, out.length, back) == text.length &&
             memcmp(back, text.data, text.length) == 0,
         "any bytes come back through base64");
    free(back);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + MIN(size, (size_t)TEXT_MAX)};
    struct str text = fuzz_take(&input, TEXT_MAX);
    check_numbers(text);
    check_json_number(text);
    check_time(text);
    check_text(text);
    if (text.length > 0)
        check_base64(text);
    free((char *)(uintptr_t)text.data);
    return 0;
}
