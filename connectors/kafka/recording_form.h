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

/* Convert headers (record_put_header) to a JSON list of pairs, and back. recorded_take_headers returns false
 * if the text is not such a list. */
void recorded_put_headers(struct str headers, struct byte_buffer *out);
LEAT_CHECKED bool recorded_take_headers(struct str json, struct arena *arena, struct str *headers);

#endif
