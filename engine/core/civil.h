/* Civil time in UTC <-> microseconds. Parsers take bytes from outside and check everything. Any thread. */
#ifndef LEAT_CORE_CIVIL_H
#define LEAT_CORE_CIVIL_H

#include "core/base.h"

/* 2015-09-12T00:46:58.771Z, also with a space for the T, an offset (+02:00), fewer or more fraction digits
 * (cut to microseconds), or no zone at all (UTC). Years 0001 to 9999. A leap second, 23:59:60 at the end of a
 * month in UTC, is the second behind it, as in POSIX: no day here has more seconds than others. */
bool civil_parse(struct str text, int64_t *microseconds);
/* Writes YYYY-MM-DDTHH:MM:SS[.ffffff]Z (fraction only as needed: none, 3 or 6 digits), at most 27 bytes, not
 * terminated; returns the length. Outside years 0001 to 9999: the number of microseconds. */
size_t civil_format(int64_t microseconds, char out[32]);

struct civil {
    int64_t year;
    int month, day, hour, minute, second, microsecond; /* month, day from 1 */
    int weekday;                                       /* Monday = 1 ... Sunday = 7 */
};
struct civil civil_from(int64_t microseconds);

#endif
