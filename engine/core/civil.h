/* Civil time in UTC <-> microseconds. Parsers take bytes from outside and check everything. Any thread. */
#ifndef LEAT_CORE_CIVIL_H
#define LEAT_CORE_CIVIL_H

#include "core/base.h"

/* Parses 2015-09-12T00:46:58.771Z; also with a space instead of the T, with an offset (+02:00), with fewer or
 * more fraction digits (cut to microseconds), or without a zone (then UTC); or a date alone. Years 0001 to
 * 9999. A leap second, 23:59:60 UTC at the end of a month, becomes the next second, as in POSIX: every day
 * has 86,400 seconds. false: not such a time. */
bool civil_parse(struct str text, int64_t *microseconds);
/* Writes YYYY-MM-DDTHH:MM:SS[.ffffff]Z, at most 27 bytes, not terminated; returns the length. The fraction
 * has no, 3 or 6 digits, as needed. Outside years 0001 to 9999 it writes the number of microseconds. */
size_t civil_format(int64_t microseconds, char out[32]);

struct civil {
    int64_t year;
    int month, day, hour, minute, second, microsecond; /* month, day from 1 */
    int weekday;                                       /* Monday = 1 ... Sunday = 7 */
};
struct civil civil_from(int64_t microseconds);

#endif
