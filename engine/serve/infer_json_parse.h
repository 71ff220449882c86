/* The reader of inference requests as JSON, for infer_json_*.c: it goes forward over the text, by the
 * readers of the json format, so that requests and records are held to the same rules.
 *
 * Functions take `at`, the first byte of what they read, and return the byte behind it; NULL after a
 * problem. */
#ifndef LEAT_SERVE_INFER_JSON_PARSE_H
#define LEAT_SERVE_INFER_JSON_PARSE_H

#include "formats/json_read.h"
#include "serve/infer_json.h"
#include "serve/infer_model.h"

/* A member of an object that the reader knows. */
struct infer_member {
    struct str name; /* a literal, of less than RAW_PADDING bytes, with nothing in it that JSON escapes */
};

struct infer_parse {
    struct json_reader reader;
    struct rows rows; /* of it the heap alone */
    struct arena *arena;
    struct infer_problem *problem;
    struct infer_request *request;
    struct str binary; /* what is left of the binary data */
    uint32_t inputs_capacity, wishes_capacity;
    uint64_t *wished_binary; /* bit i: wish i says itself whether it is binary */
};

/* Sets the problem, and is NULL. */
#define INFER_BAD(p, ...) ((void)infer_refuse((p)->problem, (p)->arena, INFER_BAD_REQUEST, __VA_ARGS__), NULL)

/* Refuses the text at that byte: "the request is not valid JSON at byte 13: ...". */
const char *infer_parse_fail(struct infer_parse *p, const char *at, const char *what);
/* An input in messages: by its name, if that came before; else by its number. */
const char *infer_parse_input(struct infer_parse *p, const struct infer_tensor *tensor);

static inline const char *infer_parse_space(struct infer_parse *p, const char *at)
{
    return json_space(at, p->reader.end);
}
/* Whether the word stands there. */
bool infer_parse_is(struct infer_parse *p, const char *at, const char *word);
/* Checks any value and drops it. */
const char *infer_parse_skip(struct infer_parse *p, const char *at);
/* Reads a text that is not kept; it is valid until the next text is read. */
const char *infer_parse_peek(struct infer_parse *p, const char *at, struct str *text);
/* Reads a text into the arena. */
const char *infer_parse_text(struct infer_parse *p, const char *at, struct str *text);
/* Reads a whole number without fraction and exponent. what: for messages. */
const char *infer_parse_whole(struct infer_parse *p, const char *at, const char *what, int64_t *value);
const char *infer_parse_flag(struct infer_parse *p, const char *at, bool *value);

/* Goes to the next item of an object or list. *at: behind the opening bracket, or behind the item before.
 * False: the closing bracket was read, and *at is behind it; or *at is NULL after a problem. */
bool infer_parse_item(struct infer_parse *p, char close, bool *is_first, const char **at);
/* Goes to the value of the next member of an object that has one of the names; other members are passed
 * over. *found: index in `members`. *seen: the bits of members that the object had; it must have none
 * twice. False: as infer_parse_item. */
bool infer_parse_member(struct infer_parse *p, const struct infer_member *members, uint32_t count,
                        bool *is_first, uint32_t *seen, uint32_t *found, const char **at);

/* --- Data (infer_json_data.c); name, type, rank, shape and count of the tensor are known --- */

/* Reads the elements of `data`. */
const char *infer_data_read(struct infer_parse *p, struct infer_tensor *tensor, const char *at);
/* Takes the tensor's elements from the front of the binary data. */
LEAT_CHECKED bool infer_data_take(struct infer_parse *p, struct infer_tensor *tensor, int64_t bytes);

#endif
