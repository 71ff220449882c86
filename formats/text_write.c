#include "formats/text_write.h"
#include "formats/text.h"

#include "core/civil.h"

#include <math.h>

/* Doubles below this times a million are exact integers of at most 15 digits; two decimals of at most 15
 * digits never read as the same double, so a decimal with six places that reads back is the shortest there
 * is. */
static const double plain_limit = 1e9;
/* 1.5 * 2^52: what is added to it and taken away again, up to 2^51, is rounded to an integer. */
static const double nearest = 6755399441055744.0;

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                            "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                            "8081828384858687888990919293949596979899";

static char *write_unsigned(char *out, uint64_t value)
{
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

static const uint64_t powers[] = {
    /* of ten, shifted until the highest bit is set */
    0x8000000000000000, 0xa000000000000000, 0xc800000000000000, 0xfa00000000000000, 0x9c40000000000000,
    0xc350000000000000, 0xf424000000000000, 0x9896800000000000, 0xbebc200000000000, 0xee6b280000000000,
    0x9502f90000000000, 0xba43b74000000000, 0xe8d4a51000000000, 0x9184e72a00000000, 0xb5e620f480000000,
    0xe35fa931a0000000, 0x8e1bc9bf04000000, 0xb1a2bc2ec5000000, 0xde0b6b3a76400000, 0x8ac7230489e80000,
    0xad78ebc5ac620000, 0xd8d726b7177a8000};

/* digits * 10^-places */
struct decimal {
    uint64_t digits;
    int places;
};

/*
 * The shortest decimal that reads back as `size`, the nearest of those: Giulietti's Schubfach (2020). It
 * scales the double and the ends of the interval that reads back as it, in quarters of the last place, by a
 * power of ten, and takes the multiple of ten or of one that lies within. Between exact_from and exact_to the
 * powers are those from 10^1 to 10^21, which 64 bits hold without their zeros: the products below are exact.
 */
static const double exact_from = 1e-5, exact_to = 1e15;

static struct decimal shortest(double size)
{
    uint64_t bits;
    memcpy(&bits, &size, sizeof(bits));
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1), whole = fraction | UINT64_C(1) << 52;
    int power = (int)(bits >> 52) - 1075; /* size is whole * 2^power */
    bool is_power = fraction == 0;        /* the double below is nearer than the one above */
    uint64_t is_odd = whole & 1;          /* then the interval's ends read back as others */
    int places =
        -((power * 1262611 - (is_power ? 524031 : 0)) >> 22); /* of log10(2^power), or of 3/4 of it */
    int shift = power + (places * 1741647 >> 19) + 1;         /* log2(10^places) */
    uint64_t quarters[3], ends[3] = {4 * whole - 2 + is_power, 4 * whole, 4 * whole + 2};
    for (int i = 0; i < 3; i++) {
        __uint128_t product = (__uint128_t)powers[places] * (ends[i] << shift);
        quarters[i] = (uint64_t)(product >> 64) | ((uint64_t)product != 0); /* odd: something was cut off */
    }
    uint64_t from = quarters[0] + is_odd, to = quarters[2] - is_odd, one = quarters[1] / 4, ten = one / 10;
    bool is_below = from <= 40 * ten, is_above = 40 * ten + 40 <= to;
    if (is_below != is_above)
        return (struct decimal){ten + is_above, places - 1};
    is_below = from <= 4 * one, is_above = 4 * one + 4 <= to;
    if (is_below != is_above)
        return (struct decimal){one + is_above, places};
    uint64_t middle = 4 * one + 2;
    bool is_up = quarters[1] > middle || (quarters[1] == middle && (one & 1) != 0);
    return (struct decimal){one + is_up, places};
}

static inline void write_8(char *out, uint32_t value)
{
    uint32_t high = value / 10000, low = value % 10000;
    memcpy(out, pairs + high / 100 * 2, 2);
    memcpy(out + 2, pairs + high % 100 * 2, 2);
    memcpy(out + 4, pairs + low / 100 * 2, 2);
    memcpy(out + 6, pairs + low % 100 * 2, 2);
}

/* The integer part is that of `size`: an integer within the interval would be what it reads back as. */
static char *write_decimal(char *out, double size, struct decimal d)
{
    enum { DIGITS = 24, BLOCK = 100000000 };
    uint64_t whole = (uint64_t)size;
    if (whole == 0) {
        *out++ = '0';
    } else {
        out = write_unsigned(out, whole);
        d.digits -= whole * (powers[d.places] >> (63 - (d.places * 1741647 >> 19)));
    }
    while (d.places > 0 && d.digits % 10 == 0)
        d.digits /= 10, d.places--;
    if (d.places == 0)
        return out;
    char digits[2 * DIGITS] = {0}; /* copied whole, whatever their number: TEXT_WRITE_MAX has room for it */
    write_8(digits, (uint32_t)(d.digits / BLOCK / BLOCK));
    write_8(digits + 8, (uint32_t)(d.digits / BLOCK % BLOCK));
    write_8(digits + 16, (uint32_t)(d.digits % BLOCK));
    *out++ = '.';
    memcpy(out, digits + DIGITS - d.places, DIGITS);
    return out + d.places;
}

char *text_write_float(char *out, double value)
{
    double size = fabs(value);
    if (size < plain_limit && (value != 0 || !signbit(value))) {
        double millionths = size * 1e6 + nearest - nearest;
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
    if (size < exact_from || size >= exact_to)
        return out + text_from_double(value, out);
    if (value < 0)
        *out++ = '-';
    return write_decimal(out, size, shortest(size));
}

char *text_write_time(char *out, int64_t microseconds, enum time_unit unit)
{
    int64_t unit_us = text_unit_us(unit);
    if (unit_us == 0)
        return out + civil_format(microseconds, out);
    int64_t whole = microseconds / unit_us;
    return text_write_int(out, whole - (microseconds % unit_us < 0));
}
