/* The C++ of formats/: functions of simdjson and the C++17 standard library, for C. No exception leaves this
 * file: every function called is noexcept or returns an error code. */
#include "formats/text_simd.h"

#include <charconv>
#include <cmath>
#include <simdjson.h>

extern "C" bool text_is_utf8(const char *data, size_t length)
{
    return simdjson::validate_utf8(data, length);
}

/* Whether a number outside the range of doubles is too small, not too large. Decided by the power of ten of
 * its first digit that is not 0. */
static bool is_tiny(const char *at, const char *end)
{
    int64_t power = 0, exponent = 0;
    bool is_behind_point = false, is_found = false;
    for (; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.')
            is_behind_point = true;
        is_found |= *at >= '1' && *at <= '9';
        if (is_found && !is_behind_point && *at != '.')
            power++;
        if (!is_found && is_behind_point && *at == '0')
            power--;
    }
    if (at < end) {
        bool is_negative = at[1] == '-';
        for (at++; at < end; at++)
            if (*at >= '0' && *at <= '9' && exponent < INT32_MAX)
                exponent = exponent * 10 + (*at - '0');
        exponent = is_negative ? -exponent : exponent;
    }
    return power + exponent < 0;
}

extern "C" bool text_to_double(const char *data, size_t length, double *value)
{
    std::from_chars_result result = std::from_chars(data, data + length, *value);
    if (result.ec == std::errc::result_out_of_range) {
        if (!is_tiny(data, data + length))
            return false;
        *value = *data == '-' ? -0.0 : 0.0;
        return true;
    }
    return result.ec == std::errc() && std::isfinite(*value);
}

extern "C" size_t text_from_double(double value, char *out)
{
    double size = std::fabs(value);
    bool is_plain = value == 0 || (size >= 1e-5 && size < 1e15);
    return (size_t)((is_plain ? std::to_chars(out, out + 32, value, std::chars_format::fixed)
                              : std::to_chars(out, out + 32, value, std::chars_format::scientific))
                        .ptr -
                    out);
}
