#include "formats/text_write.h"
#include "formats/text.h"

#include "core/civil.h"

#include <math.h>

/* A double below this times a million is less than 1e15. Two different decimals of at most 15 digits never
 * read as the same double, so a decimal with six places that reads back is the shortest there is. */
static const double plain_limit = 1e9;

static char *write_unsigned(char *out, uint64_t value)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    char digits[20], *at = digits + sizeof(digits);
    while (value >= 100) {
        at -= 2;
        memcpy(at, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        at -= 2;
        memcpy(at, pairs + value * 2, 2);
    } else {
        *--at = (char)('0' + value);
    }
    size_t length = (size_t)(digits + sizeof(digits) - at);
    memcpy(out, at, length);
    return out + length;
}

char *text_write_int(char *out, int64_t value)
{
    uint64_t size = (uint64_t)value;
    if (value < 0) {
        *out++ = '-';
        size = 0 - size;
    }
    return write_unsigned(out, size);
}

char *text_write_float(char *out, double value)
{
    double size = fabs(value);
    if (size < plain_limit && (value != 0 || !signbit(value))) {
        double millionths = nearbyint(size * 1e6);
        if (millionths / 1e6 == size) {
            uint64_t whole = (uint64_t)millionths;
            if (value < 0)
                *out++ = '-';
            out = write_unsigned(out, whole / 1000000);
            uint64_t part = whole % 1000000;
            if (part == 0)
                return out;
            *out++ = '.';
            for (uint64_t scale = 100000; part != 0; scale /= 10) {
                *out++ = (char)('0' + part / scale);
                part %= scale;
            }
            return out;
        }
    }
    return out + text_from_double(value, out);
}

char *text_write_time(char *out, int64_t microseconds, enum time_unit unit)
{
    int64_t unit_us = text_unit_us(unit);
    if (unit_us == 0)
        return out + civil_format(microseconds, out);
    __int128 units = time_to_units(microseconds, unit_us);
    if (units >= INT64_MIN && units <= INT64_MAX)
        return text_write_int(out, (int64_t)units);
    out = text_write_int(out, microseconds); /* nanoseconds beyond 64 bits: the microseconds, then 000 */
    memcpy(out, "000", 3);
    return out + 3;
}
