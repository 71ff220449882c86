/* The bytes of one record in a recording. Private to connectors/kafka. Any thread.
 *
 * JSON:
 *
 *     {"offset":17,"time":1700000000000,"key":"k","headers":[["trace","abc"],["none",null]],"value":{"n":1}}
 *
 * - key: a text; null or left out if the record has none; {"base64":"..."} if it is not UTF-8;
 * - headers: pairs of name and value, each written like a key; left out if there are none;
 * - value: the payload as it is, if it is one JSON value without line ends or blanks around it;
 * - text: else, the payload, if it is UTF-8;
 * - base64: else, the payload.
 *
 * "value":null: no payload (a tombstone); the payload `null` is written as `text`. Members may come in any
 * order, with blanks between them.
 *
 * msgpack: the members offset, time, key, headers and value, in this order; keys, header values and payloads
 * have the type bin, or nil. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDING_FORM_H
#define LEAT_CONNECTORS_KAFKA_RECORDING_FORM_H

#include "connectors/kafka/recording.h"

/* Append the record; JSON with its line end. */
void recorded_put_json(const struct recorded *record, struct byte_buffer *out);
void recorded_put_msgpack(const struct recorded *record, struct byte_buffer *out);

/* Parses a line without its line end. The record's bytes are in the line or in the arena; its partition is
 * left unset. Returns NULL, or what is wrong. */
const char *recorded_from_json(struct str line, struct arena *arena, struct recorded *record);
/* Parses the first record of the bytes. used: its length; 0: more bytes are needed. Result: NULL, or what is
 * wrong. */
const char *recorded_from_msgpack(struct str bytes, struct arena *arena, struct recorded *record,
                                  size_t *used);

/* Convert headers (record_put_header) to a JSON list of pairs, and back. Taking returns false if the text is
 * not such a list. */
void recorded_put_headers(struct str headers, struct byte_buffer *out);
LEAT_CHECKED bool recorded_take_headers(struct str json, struct arena *arena, struct str *headers);

/* --- JSON's grammar (json_scan.c) --- */

/* Finds the end of the JSON value that begins at `at`: the byte behind it; NULL if no valid value ends before
 * `end`, or it is nested deeper than 64. Does not check UTF-8. */
const char *json_scan(const char *at, const char *end);
const char *json_skip_blanks(const char *at, const char *end);
/* Removes quotes and escapes from a JSON string. The text is in the arena, or in `quoted` if there are no
 * escapes. Returns false if it is not valid. */
LEAT_CHECKED bool json_unescape(struct str quoted, struct arena *arena, struct str *text);
/* Takes the next member of an object. at: behind `{` or behind a member. name: without escapes; value: the
 * JSON text. Returns false at the object's end (*at is behind it), or if the text is not valid (*at NULL). */
bool json_next_member(const char **at, const char *end, struct arena *arena, struct str *name,
                      struct str *value);
/* Likewise for the next element of a list. */
bool json_next_element(const char **at, const char *end, struct str *value);

#endif
