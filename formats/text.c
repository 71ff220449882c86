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
