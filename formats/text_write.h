/* Values as text, for the encoders of JSON and CSV. Each function writes at `out`, where the caller provides
 * TEXT_WRITE_MAX bytes of room, and returns the byte behind the text. Any thread. */
#ifndef LEAT_FORMATS_TEXT_WRITE_H
#define LEAT_FORMATS_TEXT_WRITE_H

#include "core/schema.h"

enum { TEXT_WRITE_MAX = 40 };

char *text_write_int(char *out, int64_t value);
/* The shortest decimal that reads back as the same double. Finite values only. */
char *text_write_float(char *out, double value);
/* Writes a time as a count of units, rounded towards the past, or as RFC 3339. */
char *text_write_time(char *out, int64_t microseconds, enum time_unit unit);

#endif
