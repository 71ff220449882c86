/* Days <-> civil dates: Howard Hinnant, "chrono-compatible low-level date algorithms" (public domain). */
#include "core/civil.h"

#include <stdio.h>

static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static int days_in_month(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && is_leap);
}

/* Reads exactly `count` digits at *at into *value and moves *at behind them. */
static bool take_digits(struct str text, size_t *at, int count, int *value)
{
    if (text.length - *at < (size_t)count)
        return false;
    int sum = 0;
    for (int i = 0; i < count; i++) {
        char c = text.data[*at + (size_t)i];
        if (c < '0' || c > '9')
            return false;
        sum = sum * 10 + (c - '0');
    }
    *at += (size_t)count;
    *value = sum;
    return true;
}

static bool take(struct str text, size_t *at, char c)
{
    if (*at >= text.length || text.data[*at] != c)
        return false;
    ++*at;
    return true;
}

/* Reads a fraction like .123456789, 1 to 18 digits, if there is a point; cuts digits below a microsecond. */
static bool take_fraction(struct str text, size_t *at, int *microseconds)
{
    *microseconds = 0;
    if (!take(text, at, '.'))
        return true;
    size_t begin = *at;
    int scale = 100000;
    while (*at < text.length && text.data[*at] >= '0' && text.data[*at] <= '9') {
        *microseconds += scale * (text.data[*at] - '0');
        scale /= 10;
        ++*at;
    }
    return *at > begin && *at - begin <= 18;
}

/* Reads Z, +02:00, +0200 or nothing. *offset_us: how far the zone is ahead of UTC. */
static bool take_zone(struct str text, size_t *at, int64_t *offset_us)
{
    *offset_us = 0;
    if (*at == text.length || take(text, at, 'Z') || take(text, at, 'z'))
        return true;
    bool is_negative = text.data[*at] == '-';
    if (!is_negative && text.data[*at] != '+')
        return false;
    ++*at;
    int hours, minutes;
    if (!take_digits(text, at, 2, &hours))
        return false;
    take(text, at, ':');
    if (!take_digits(text, at, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *offset_us = (hours * US_PER_HOUR + minutes * US_PER_MINUTE) * (is_negative ? -1 : 1);
    return true;
}

/* Whether second 60 is a valid leap second in a text that stands for the time `microseconds`: leap seconds
 * are inserted at the end of months, in UTC. */
static bool may_leap(int64_t microseconds)
{
    struct civil c = civil_from(microseconds);
    return c.year <= 9999 && c.day == 1 && c.hour == 0 && c.minute == 0 && c.second == 0;
}

bool civil_parse(struct str text, int64_t *microseconds)
{
    size_t at = 0;
    int year, month, day, hour = 0, minute = 0, second = 0, fraction = 0;
    int64_t offset = 0;
    if (!take_digits(text, &at, 4, &year) || !take(text, &at, '-') || !take_digits(text, &at, 2, &month) ||
        !take(text, &at, '-') || !take_digits(text, &at, 2, &day))
        return false;
    if (at < text.length) {
        if (!take(text, &at, 'T') && !take(text, &at, ' ') && !take(text, &at, 't'))
            return false;
        if (!take_digits(text, &at, 2, &hour) || !take(text, &at, ':') || !take_digits(text, &at, 2, &minute))
            return false;
        if (take(text, &at, ':') &&
            (!take_digits(text, &at, 2, &second) || !take_fraction(text, &at, &fraction)))
            return false;
        if (!take_zone(text, &at, &offset))
            return false;
    }
    if (at != text.length || year < 1 || month < 1 || month > 12 || day < 1 ||
        day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 60)
        return false;
    *microseconds = days_from_civil(year, month, day) * US_PER_DAY + hour * US_PER_HOUR +
                    minute * US_PER_MINUTE + second * US_PER_SECOND + fraction - offset;
    return second < 60 || may_leap(*microseconds);
}

struct civil civil_from(int64_t microseconds)
{
    int64_t days = microseconds / US_PER_DAY, rest = microseconds % US_PER_DAY;
    if (rest < 0) {
        rest += US_PER_DAY;
        days--;
    }
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153;
    int month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
    int64_t weekday = (days % 7 + 10) % 7 + 1; /* 1970-01-01 was a Thursday */
    return (struct civil){
        .year = year_of_era + era * 400 + (month <= 2),
        .month = month,
        .day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1),
        .hour = (int)(rest / US_PER_HOUR),
        .minute = (int)(rest / US_PER_MINUTE % 60),
        .second = (int)(rest / US_PER_SECOND % 60),
        .microsecond = (int)(rest % US_PER_SECOND),
        .weekday = (int)weekday,
    };
}

static char *put_digits(char *out, int64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        out[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return out + count;
}

size_t civil_format(int64_t microseconds, char out[32])
{
    struct civil c = civil_from(microseconds);
    if (c.year < 1 || c.year > 9999)
        return (size_t)snprintf(out, 32, "%lld", (long long)microseconds);
    char *at = put_digits(out, c.year, 4);
    *at++ = '-';
    at = put_digits(at, c.month, 2);
    *at++ = '-';
    at = put_digits(at, c.day, 2);
    *at++ = 'T';
    at = put_digits(at, c.hour, 2);
    *at++ = ':';
    at = put_digits(at, c.minute, 2);
    *at++ = ':';
    at = put_digits(at, c.second, 2);
    if (c.microsecond != 0) {
        *at++ = '.';
        at = c.microsecond % 1000 == 0 ? put_digits(at, c.microsecond / 1000, 3)
                                       : put_digits(at, c.microsecond, 6);
    }
    *at++ = 'Z';
    return (size_t)(at - out);
}
