/* Values as text, for the encoders of JSON and CSV. Each writes at `out` and returns the byte behind; room is
 * the caller's affair: TEXT_WRITE_MAX bytes suffice for one value. Any thread. */
#ifndef LEAT_FORMATS_TEXT_WRITE_H
#define LEAT_FORMATS_TEXT_WRITE_H

#include "core/schema.h"

enum { TEXT_WRITE_MAX = 40 };

char *text_write_int(char *out, int64_t value);
/* The shortest decimal that reads back as the same double. Finite values only. */
char *text_write_float(char *out, double value);
/* As a number of units, cut towards the past, or RFC 3339. */
char *text_write_time(char *out, int64_t microseconds, enum time_unit unit);

#endif
