/* Reading one JSON value, for json_*.c. README.md says what makes a record bad. engine/serve reads requests
 * with json_skip, json_text and json_fail, which use of `rows` the heap alone. */
#ifndef LEAT_FORMATS_JSON_READ_H
#define LEAT_FORMATS_JSON_READ_H

#include "formats/rows.h"

/* How deep values may nest in a member that the schema does not name. */
enum { JSON_DEPTH_MAX = 1000 };

/* The record in progress. Bytes up to 64 behind `end` may be loaded, but mean nothing. */
struct json_reader {
    struct rows *rows;
    const char *begin, *end;
    struct arena *arena; /* for reasons */
    const char *reason;  /* set by a function that fails: why; in the arena */
    const char *at;      /* set with `reason`: the byte where the record goes wrong */
};

/* Each function takes `at`, the first byte of what it reads, and returns the byte behind it, or NULL after
 * setting reason and at of the reader. `at` may be `end`; a value that is cut off is a failure. */

/* Checks any value and drops it. */
const char *json_skip(struct json_reader *reader, const char *at);
/* Reads a text whose opening quote is before `at`. Leaves the text, escapes resolved, at rows->heap, which is
 * not moved; *length: its bytes. */
const char *json_text(struct json_reader *reader, const char *at, size_t *length);
/* Reads a value of the column's type, or null, into `row`. list: the list that has the column; NULL: the
 * batch has the column. */
const char *json_value(struct json_reader *reader, struct row_column *column, uint32_t row,
                       const struct row_list *list, const char *at);
/* Reads the members of an object whose opening brace is before `at`, up to and with the closing brace. */
const char *json_members(struct json_reader *reader, struct row_fields *fields, uint32_t row,
                         const struct row_list *list, const char *at);
/* Reads `"name" :` of a member and returns the first byte of the value. *column: the column of that name, or
 * NULL. guess: index of the column whose name is compared first. */
const char *json_name(struct json_reader *reader, struct row_fields *fields, uint32_t guess,
                      struct row_column **column, const char *at);

/* Sets reason and at, and returns NULL. The text goes to the arena. */
const char *json_fail(struct json_reader *reader, const char *at, const char *format, ...) LEAT_PRINTF(3, 4);

static inline const char *json_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* The byte at `at`, or 0 at the end. */
static inline char json_peek(const struct json_reader *reader, const char *at)
{
    return at < reader->end ? *at : '\0';
}

#endif
