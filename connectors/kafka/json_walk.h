/* Walks over JSON without building it: each value is given as the bytes that stand there. Recordings and
 * `leat produce` pass payloads on as they are, so only the grammar is judged, neither UTF-8 nor surrogates:
 * that is what decoders do (formats/json_read.h). Private to connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_JSON_WALK_H
#define LEAT_CONNECTORS_KAFKA_JSON_WALK_H

#include "core/arena.h"

/* The byte behind the JSON value that begins at `at`; NULL if no valid value ends before `end`, or it is
 * nested deeper than 64. */
const char *json_walk_value(const char *at, const char *end);
const char *json_walk_blanks(const char *at, const char *end);
/* Takes the next member of an object. at: behind `{` or behind a member. name: without escapes; value: the
 * JSON text. Returns false at the object's end (*at is behind it), or if the text is not valid (*at NULL). */
bool json_walk_member(const char **at, const char *end, struct arena *arena, struct str *name,
                      struct str *value);
/* Likewise for the next element of a list. */
bool json_walk_element(const char **at, const char *end, struct str *value);
/* Removes quotes and escapes from a JSON text. The result is in the arena, or in `quoted` if there are no
 * escapes. Returns false if it is not valid. */
LEAT_CHECKED bool json_walk_text(struct str quoted, struct arena *arena, struct str *text);

#endif
