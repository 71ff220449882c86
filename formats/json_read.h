/* Reading one JSON value; private to json_*.c. What is strict, and what is a bad record, is told in
 * README.md. */
#ifndef LEAT_FORMATS_JSON_READ_H
#define LEAT_FORMATS_JSON_READ_H

#include "formats/rows.h"

/* Nesting of values that the schema does not name. */
enum { JSON_DEPTH_MAX = 1000 };

/* The record in progress. Bytes up to 64 behind `end` may be loaded, but mean nothing. */
struct json_reader {
    struct rows *rows;
    const char *begin, *end;
    const char *reason; /* set where a function fails */
    const char *at;
};

/* Each takes the first byte of what it reads and returns the byte behind it, or NULL after setting reason and
 * at. The caller may pass `at` == end; a value that is cut off is a failure. */

/* Any value, checked and forgotten. */
const char *json_skip(struct json_reader *reader, const char *at);
/* Behind the opening quote; leaves the text, escapes resolved, at rows->heap without taking it. */
const char *json_text(struct json_reader *reader, const char *at, size_t *length);
/* A value of the column's type, or null. list: the list that the column is an element of, or NULL. */
const char *json_value(struct json_reader *reader, struct row_column *column, uint32_t row,
                       const struct row_list *list, const char *at);
/* One object; a byte behind the opening brace. */
const char *json_members(struct json_reader *reader, struct row_fields *fields, uint32_t row,
                         const struct row_list *list, const char *at);
/* `"name" :` of a member: at the quote; then at the value. The field is NULL where the schema has none. */
const char *json_name(struct json_reader *reader, struct row_fields *fields, uint32_t guess,
                      struct row_column **column, const char *at);

/* Sets the failure and returns NULL. The text goes to the batch's arena. */
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
