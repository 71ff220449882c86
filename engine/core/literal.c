/* Literals with units; part of core/option.h. */
#include "core/option.h"

#include <errno.h>
#include <stdlib.h>

const struct literal_unit literal_duration_units[] = {
    {"us", 1},          {"ms", 1000},      {"s", US_PER_SECOND},  {"m", US_PER_MINUTE},
    {"h", US_PER_HOUR}, {"d", US_PER_DAY}, {"w", 7 * US_PER_DAY}, {NULL, 0},
};

const struct literal_unit literal_byte_units[] = {
    {"B", 1},         {"KB", 1000},     {"MB", 1000000},  {"GB", 1000000000},        {"TB", 1000000000000},
    {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", INT64_C(1) << 40}, {NULL, 0},
};

bool literal_int(struct str text, int64_t *value)
{
    size_t i = 0;
    bool negative = text.length > 0 && text.data[0] == '-';
    i += negative;
    if (i == text.length)
        return false;
    uint64_t sum = 0;
    for (; i < text.length; i++) {
        if (text.data[i] == '_' && i > negative && i + 1 < text.length)
            continue;
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        if (__builtin_mul_overflow(sum, UINT64_C(10), &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(text.data[i] - '0'), &sum))
            return false;
    }
    if (sum > (uint64_t)INT64_MAX + negative)
        return false;
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return true;
}

bool literal_float(struct str text, double *value)
{
    char copy[64];
    if (text.length == 0 || text.length >= sizeof(copy))
        return false;
    char first = text.data[0];
    if (!(first == '-' || first == '.' || (first >= '0' && first <= '9')))
        return false;
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    if (memchr(copy, 'x', text.length) != NULL || memchr(copy, 'X', text.length) != NULL)
        return false;
    char *end;
    errno = 0;
    *value = strtod(copy, &end);
    return end == copy + text.length && (errno != ERANGE || (*value < 1 && *value > -1)) &&
           __builtin_isfinite(*value);
}

/* Parses a number directly followed by a unit. A fraction is allowed if the result is whole: 1.5h. */
static bool parse_unit(struct str text, const struct literal_unit *units, int64_t *value)
{
    size_t digits = 0;
    while (digits < text.length &&
           ((text.data[digits] >= '0' && text.data[digits] <= '9') || text.data[digits] == '.' ||
            text.data[digits] == '_' || (digits == 0 && text.data[0] == '-')))
        digits++;
    struct str number = {text.data, digits};
    struct str name = {text.data + digits, text.length - digits};
    for (size_t i = 0; units[i].name != NULL; i++) {
        if (!str_is(name, units[i].name))
            continue;
        int64_t whole;
        if (literal_int(number, &whole))
            return !__builtin_mul_overflow(whole, units[i].factor, value);
        double real;
        if (!literal_float(number, &real))
            return false;
        real *= (double)units[i].factor;
        if (!(real > -9e15 && real < 9e15) || real != (double)(int64_t)real)
            return false;
        *value = (int64_t)real;
        return true;
    }
    return false;
}

bool literal_duration(struct str text, int64_t *microseconds)
{
    return parse_unit(text, literal_duration_units, microseconds);
}

bool literal_bytes(struct str text, int64_t *bytes)
{
    return parse_unit(text, literal_byte_units, bytes);
}
