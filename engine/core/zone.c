#include "core/zone.h"

#include "core/diag.h"
#include "core/os.h"

#include <errno.h>
#include <stdlib.h>

enum {
    HEADER_BYTES = 44,
    TYPE_BYTES_EACH = 6,
    NAME_MAX_BYTES = 64,
    FILE_BYTES_MAX = 1 << 20,
    NAMES_MAX = 1024,
    SECONDS_PER_DAY = 86400,
    FIRST_YEAR = 1970,
    LAST_YEAR = 2400,
};

/* Upper bound on how far any wall clock is ahead of or behind UTC. */
#define OFFSET_MAX_US (26 * US_PER_HOUR)

/* From the instant from_us on, the wall clock is ahead_us ahead of UTC. */
struct zone_span {
    int64_t from_us, ahead_us;
};

struct zone {
    struct zone_span *spans; /* rising by from_us; the first begins at TIME_MIN */
    uint32_t count;
};

/* --- The rule after the last known change: CET-1CEST,M3.5.0,M10.5.0/3 (POSIX, TZ) --- */

/* A day of each year and a time on that day, in seconds by the wall clock. */
struct rule_day {
    /* 'M': month, week, and in `day` the weekday, Sunday = 0; 'J': `day` is 1 to 365 and never 29 February;
     * 'D': `day` is 0 to 365. */
    char kind;
    int month, week, day;
    int64_t second;
};

struct rule {
    int64_t ahead_s, summer_ahead_s;
    bool has_summer;
    struct rule_day begin, end;
};

struct text {
    const char *at, *end;
};

static bool take(struct text *text, char c)
{
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

static bool take_number(struct text *text, int max, int *number)
{
    const char *begin = text->at;
    for (*number = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if ((*number = *number * 10 + (*text->at - '0')) > max)
            return false;
    return text->at > begin;
}

/* Reads a zone abbreviation: CET, or <+0330>. */
static bool take_name(struct text *text)
{
    const char *begin = text->at;
    if (take(text, '<')) {
        while (text->at < text->end && *text->at != '>')
            text->at++;
        return take(text, '>');
    }
    while (text->at < text->end &&
           ((*text->at >= 'A' && *text->at <= 'Z') || (*text->at >= 'a' && *text->at <= 'z')))
        text->at++;
    return text->at - begin >= 3;
}

/* Reads [+-]hh[:mm[:ss]]; hh is at most hours_max. */
static bool take_clock(struct text *text, int hours_max, int64_t *seconds)
{
    bool is_negative = take(text, '-');
    int hours, minutes = 0, rest = 0;
    if (!is_negative)
        (void)take(text, '+');
    if (!take_number(text, hours_max, &hours) || (take(text, ':') && !take_number(text, 59, &minutes)) ||
        (take(text, ':') && !take_number(text, 59, &rest)))
        return false;
    *seconds = hours * INT64_C(3600) + minutes * 60 + rest;
    if (is_negative)
        *seconds = -*seconds;
    return true;
}

static bool take_day(struct text *text, struct rule_day *day)
{
    *day = (struct rule_day){.kind = 'D', .second = 2 * 3600};
    bool is_good;
    if (take(text, 'M')) {
        day->kind = 'M';
        is_good = take_number(text, 12, &day->month) && day->month >= 1 && take(text, '.') &&
                  take_number(text, 5, &day->week) && day->week >= 1 && take(text, '.') &&
                  take_number(text, 6, &day->day);
    } else {
        day->kind = take(text, 'J') ? 'J' : 'D';
        is_good = take_number(text, 365, &day->day) && (day->kind == 'D' || day->day >= 1);
    }
    return is_good && (!take(text, '/') || take_clock(text, 167, &day->second));
}

static bool rule_parse(struct text text, struct rule *rule)
{
    *rule = (struct rule){0};
    int64_t behind; /* POSIX offsets count to the west: positive is behind UTC */
    if (!take_name(&text) || !take_clock(&text, 24, &behind))
        return false;
    rule->ahead_s = -behind;
    if (text.at == text.end)
        return true;
    rule->has_summer = true;
    rule->summer_ahead_s = rule->ahead_s + 3600;
    if (!take_name(&text))
        return false;
    if (text.at < text.end && *text.at != ',') {
        if (!take_clock(&text, 24, &behind))
            return false;
        rule->summer_ahead_s = -behind;
    }
    return take(&text, ',') && take_day(&text, &rule->begin) && take(&text, ',') &&
           take_day(&text, &rule->end) && text.at == text.end;
}

static bool is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Days from 1970-01-01 to January 1 of `year`; year >= 1970. */
static int64_t year_begin(int64_t year)
{
    return 365 * (year - 1970) + (year - 1969) / 4 - (year - 1901) / 100 + (year - 1601) / 400;
}

/* The rule's time in that year, in seconds since 1970 by the wall clock. */
static int64_t rule_second(const struct rule_day *rule, int64_t year)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t day = year_begin(year);
    if (rule->kind == 'D')
        return (day + rule->day) * SECONDS_PER_DAY + rule->second;
    if (rule->kind == 'J') {
        day += rule->day - 1 + (is_leap(year) && rule->day > 59);
        return day * SECONDS_PER_DAY + rule->second;
    }
    for (int month = 1; month < rule->month; month++)
        day += lengths[month - 1] + (month == 2 && is_leap(year));
    int length = lengths[rule->month - 1] + (rule->month == 2 && is_leap(year));
    int64_t weekday = (day + 4) % 7; /* 1970-01-01 was a Thursday; Sunday = 0 */
    int64_t in_month = (rule->day - weekday + 7) % 7 + 7 * (rule->week - 1);
    if (in_month >= length)
        in_month -= 7;
    return (day + in_month) * SECONDS_PER_DAY + rule->second;
}

static void add_span(struct zone *zone, int64_t from_s, int64_t ahead_s)
{
    int64_t from_us;
    if (__builtin_mul_overflow(from_s, US_PER_SECOND, &from_us))
        from_us = from_s < 0 ? TIME_MIN : TIME_MAX;
    if (zone->count > 0 && zone->spans[zone->count - 1].from_us >= from_us)
        zone->count--; /* the span before lasts no time */
    zone->spans[zone->count++] = (struct zone_span){from_us, ahead_s * US_PER_SECOND};
}

/* Adds the changes that the rule makes after the last known change. */
static void add_rule(struct zone *zone, const struct rule *rule)
{
    int64_t known = zone->spans[zone->count - 1].from_us;
    if (!rule->has_summer)
        return;
    for (int64_t year = FIRST_YEAR; year <= LAST_YEAR; year++) {
        int64_t begin = rule_second(&rule->begin, year) - rule->ahead_s;
        int64_t end = rule_second(&rule->end, year) - rule->summer_ahead_s;
        bool is_south = end < begin;
        for (int i = 0; i < 2; i++) {
            bool is_begin = (i == 0) != is_south;
            int64_t second = is_begin ? begin : end;
            if (known == TIME_MIN || second * US_PER_SECOND > known)
                add_span(zone, second, is_begin ? rule->summer_ahead_s : rule->ahead_s);
        }
    }
}

/* --- TZif --- */

static uint64_t big_endian(const char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value = value << 8 | (unsigned char)bytes[i];
    return value;
}

struct block {
    uint32_t utc, standard, leaps, times, types, letters;
    size_t bytes; /* size of the data after the header */
};

/* Reads the header at the beginning of `bytes`. width: bytes of a time, 4 or 8. */
static bool read_header(struct str bytes, size_t width, struct block *block)
{
    if (bytes.length < HEADER_BYTES || memcmp(bytes.data, "TZif", 4) != 0)
        return false;
    uint32_t *const fields[] = {&block->utc,   &block->standard, &block->leaps,
                                &block->times, &block->types,    &block->letters};
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        *fields[i] = (uint32_t)big_endian(bytes.data + 20 + 4 * i, 4);
        if (*fields[i] > FILE_BYTES_MAX)
            return false;
    }
    block->bytes = block->times * (width + 1) + block->types * (size_t)TYPE_BYTES_EACH + block->letters +
                   block->leaps * (width + 4) + block->standard + block->utc;
    return block->types > 0 && bytes.length - HEADER_BYTES >= block->bytes;
}

static bool read_types(const char *types, uint32_t type, uint32_t count, int64_t *ahead_s)
{
    if (type >= count)
        return false;
    *ahead_s = (int32_t)(uint32_t)big_endian(types + (size_t)type * TYPE_BYTES_EACH, 4);
    return *ahead_s * US_PER_SECOND<OFFSET_MAX_US && * ahead_s * US_PER_SECOND> - OFFSET_MAX_US;
}

static bool read_block(struct zone *zone, const char *data, const struct block *block)
{
    const char *indices = data + (size_t)block->times * 8, *types = indices + block->times;
    int64_t ahead_s, before = INT64_MIN;
    if (!read_types(types, 0, block->types, &ahead_s))
        return false;
    zone->spans[zone->count++] = (struct zone_span){TIME_MIN, ahead_s * US_PER_SECOND};
    for (uint32_t i = 0; i < block->times; i++) {
        int64_t from_s = (int64_t)big_endian(data + (size_t)i * 8, 8);
        if ((i > 0 && from_s <= before) ||
            !read_types(types, (unsigned char)indices[i], block->types, &ahead_s))
            return false;
        before = from_s;
        add_span(zone, from_s, ahead_s);
    }
    zone->spans[0].from_us = TIME_MIN;
    return true;
}

/* Reads the file's second part (version 2 and later), with times of 8 bytes, and the rule after it. Files of
 * version 1 only, which are no longer made, are refused. */
const struct zone *zone_parse(struct arena *arena, struct str bytes)
{
    struct block block;
    if (!read_header(bytes, 4, &block) || bytes.data[4] < '2')
        return NULL;
    bytes.data += HEADER_BYTES + block.bytes;
    bytes.length -= HEADER_BYTES + block.bytes;
    if (!read_header(bytes, 8, &block))
        return NULL;
    const char *data = bytes.data + HEADER_BYTES, *end = bytes.data + bytes.length;
    struct text text = {data + block.bytes, end};
    struct rule rule = {0};
    if (!take(&text, '\n'))
        return NULL;
    const char *line = memchr(text.at, '\n', (size_t)(end - text.at));
    if (line == NULL)
        return NULL;
    text.end = line;
    bool has_rule = text.at < text.end;
    if (has_rule && !rule_parse(text, &rule))
        return NULL;
    struct zone *zone = arena_new(arena, struct zone);
    size_t spans = 1 + block.times + 2 * (LAST_YEAR - FIRST_YEAR + 1);
    *zone = (struct zone){.spans = arena_array(arena, struct zone_span, spans)};
    if (!read_block(zone, data, &block))
        return NULL;
    if (has_rule)
        add_rule(zone, &rule);
    return zone;
}

/* --- Files --- */

/* A name has letters, digits, _ + - and single inner slashes: it cannot lead out of ZONE_DIRECTORY. */
static bool is_name(struct str name)
{
    if (name.length == 0 || name.length > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        bool is_inside = i > 0 && i + 1 < name.length && name.data[i - 1] != '/';
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '+' || c == '-' || (c == '/' && is_inside)))
            return false;
    }
    return true;
}

enum zone_status zone_load(struct arena *arena, struct str name, const struct zone **zone)
{
    char path[sizeof(ZONE_DIRECTORY) + NAME_MAX_BYTES + 1], *data = NULL;
    size_t bytes = 0;
    *zone = NULL;
    if (!is_name(name))
        return ZONE_UNKNOWN;
    memcpy(path, ZONE_DIRECTORY "/", sizeof(ZONE_DIRECTORY));
    memcpy(path + sizeof(ZONE_DIRECTORY), name.data, name.length);
    path[sizeof(ZONE_DIRECTORY) + name.length] = '\0';
    if (os_read_file(path, FILE_BYTES_MAX, &data, &bytes) != 0)
        return os_file_bytes(ZONE_DIRECTORY "/Europe") < 0 ? ZONE_NO_DATA : ZONE_UNKNOWN;
    *zone = zone_parse(arena, (struct str){data, bytes});
    free(data);
    return *zone == NULL ? ZONE_DAMAGED : ZONE_GOOD;
}

/* Lines of zone1970.tab: country codes, coordinates, zone name, comment; separated by tabs. */
const char *zone_nearest(struct arena *arena, struct str name)
{
    char *data = NULL;
    size_t bytes = 0;
    if (os_read_file(ZONE_DIRECTORY "/zone1970.tab", FILE_BYTES_MAX, &data, &bytes) != 0)
        return NULL;
    const char **names = arena_array(arena, const char *, NAMES_MAX);
    size_t count = 0;
    for (char *line = data; line != NULL && *line != '\0' && count < NAMES_MAX;) {
        char *next = strchr(line, '\n');
        char *at = strchr(line, '\t');
        at = at == NULL ? NULL : strchr(at + 1, '\t');
        if (*line != '#' && at != NULL && (next == NULL || at < next))
            names[count++] = arena_strndup(arena, at + 1, strcspn(at + 1, "\t\n"));
        line = next == NULL ? NULL : next + 1;
    }
    free(data);
    return diag_nearest(name, names, count);
}

/* --- Conversion --- */

/* Index of the last span that begins at or before the time. */
static uint32_t span_at(const struct zone *zone, int64_t time)
{
    uint32_t low = 0, high = zone->count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (zone->spans[middle].from_us <= time)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t zone_wall(const struct zone *zone, int64_t time)
{
    return time_add(time, zone->spans[span_at(zone, time)].ahead_us);
}

int64_t zone_instant(const struct zone *zone, int64_t wall)
{
    /* Spans before span i end before the clock can show `wall`. */
    uint32_t i = span_at(zone, time_add(wall, -OFFSET_MAX_US));
    for (;; i++) {
        int64_t time = time_add(wall, -zone->spans[i].ahead_us);
        if (i + 1 == zone->count || time < zone->spans[i + 1].from_us)
            return MAX(time, zone->spans[i].from_us);
    }
}
