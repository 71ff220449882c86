#include "formats/text.h"

static const uint64_t powers_int[] = {1, 10, 100, 1000, 10000, 100000, 1000000};

static bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

const char *text_number(const char *at, const char *end, struct text_number *number)
{
    *number = (struct text_number){.begin = at};
    if (at < end && *at == '-') {
        number->is_negative = true;
        at++;
    }
    number->digits = at;
    while (at < end && is_digit(*at))
        at++;
    number->whole = (uint32_t)(at - number->digits);
    if (number->whole == 0 || (number->whole > 1 && number->digits[0] == '0'))
        return NULL;
    if (at < end && *at == '.') {
        const char *fraction = ++at;
        while (at < end && is_digit(*at))
            at++;
        number->fraction = (uint32_t)(at - fraction);
        if (number->fraction == 0)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->has_exponent = true;
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        const char *exponent = at;
        while (at < end && is_digit(*at))
            at++;
        if (at == exponent)
            return NULL;
    }
    number->end = at;
    return at;
}

/* The whole part, with its sign. The sum is kept negative, because INT64_MIN has no positive counterpart. */
static bool whole_part(const struct text_number *number, int64_t *value)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < number->whole; i++)
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_sub_overflow(sum, number->digits[i] - '0', &sum))
            return false;
    if (!number->is_negative && sum == INT64_MIN)
        return false;
    *value = number->is_negative ? sum : -sum;
    return true;
}

enum text_result text_number_int(const struct text_number *number, int64_t *value)
{
    const char *fraction = number->digits + number->whole + 1;
    for (uint32_t i = 0; i < number->fraction; i++)
        if (fraction[i] != '0')
            return TEXT_NOT_WHOLE;
    if (number->has_exponent)
        return TEXT_NOT_WHOLE;
    return whole_part(number, value) ? TEXT_GOOD : TEXT_OUT_OF_RANGE;
}

enum text_result text_number_double(const struct text_number *number, double *value)
{
    return text_to_double(number->begin, (size_t)(number->end - number->begin), value) ? TEXT_GOOD
                                                                                       : TEXT_OUT_OF_RANGE;
}

enum text_result text_number_time(const struct text_number *number, enum time_unit unit,
                                  int64_t *microseconds)
{
    uint32_t places = unit == TIME_UNIT_S ? 6 : unit == TIME_UNIT_MS ? 3 : 0;
    int64_t whole, part = 0;
    if (number->has_exponent)
        return TEXT_NOT_WHOLE;
    if (!whole_part(number, &whole) || !time_from_units(whole, text_unit_us(unit), microseconds))
        return TEXT_OUT_OF_RANGE;
    const char *fraction = number->digits + number->whole + 1;
    for (uint32_t i = 0; i < number->fraction && i < places; i++)
        part += (int64_t)powers_int[places - 1 - i] * (fraction[i] - '0');
    if (__builtin_add_overflow(*microseconds, number->is_negative ? -part : part, microseconds))
        return TEXT_OUT_OF_RANGE;
    return TEXT_GOOD;
}

/* Length of the well-formed UTF-8 sequence at `at`, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_sequence(const unsigned char *at, size_t left)
{
    unsigned char first = at[0], low = 0x80, high = 0xbf;
    if (first < 0x80)
        return 1;
    size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                    : first >= 0xe0 && first <= 0xef ? 3
                    : first >= 0xf0 && first <= 0xf4 ? 4
                                                     : 0;
    if (length == 0 || left < length)
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    if (first == 0xed)
        high = 0x9f;
    if (first == 0xf0)
        low = 0x90;
    if (first == 0xf4)
        high = 0x8f;
    if (at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    return length;
}

size_t text_utf8_error(const char *data, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t step = utf8_sequence((const unsigned char *)data + at, length - at);
        if (step == 0)
            return at;
        at += step;
    }
    return length;
}

/* The value of a base64 digit, 0 to 63, or -1. */
static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

size_t text_from_base64(const char *text, size_t length, char *out)
{
    if (length % 4 != 0)
        return SIZE_MAX;
    size_t written = 0;
    for (size_t i = 0; i < length; i += 4) {
        size_t padding = i + 4 < length || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t bits = 0;
        for (size_t j = 0; j < 4; j++) {
            int digit = j >= 4 - padding ? 0 : base64_digit(text[i + j]);
            if (digit < 0)
                return SIZE_MAX;
            bits = bits << 6 | (uint32_t)digit;
        }
        if ((padding == 1 && (bits & 0xff) != 0) || (padding == 2 && (bits & 0xffff) != 0))
            return SIZE_MAX;
        for (size_t j = 0; j < 3 - padding; j++)
            out[written++] = (char)(bits >> (16 - 8 * j));
    }
    return written;
}

void text_to_base64(const char *data, size_t length, struct byte_buffer *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *to = buffer_reserve(out, (length + 2) / 3 * 4);
    for (size_t i = 0; i < length; i += 3) {
        size_t count = MIN(length - i, 3);
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (j < count ? (unsigned char)data[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            *to++ = j <= count ? alphabet[bits >> (18 - 6 * j) & 63] : '=';
    }
    out->length = (size_t)(to - out->data);
}
