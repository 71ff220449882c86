/* Bytes -> columns -> text, for the tests of formats and connectors. */
#ifndef LEAT_TESTS_UNIT_FORMATS_HARNESS_H
#define LEAT_TESTS_UNIT_FORMATS_HARNESS_H

#include "formats/formats.h"

/* Reads a schema like "a int, b text!, c ms, l [int], r [{x int, y text}]". Types: int float bool text bytes
 * ns us ms s rfc3339 datetime; `!`: required. In the arena. */
const struct schema *harness_schema(struct arena *arena, const char *text);

/* Decodes the bytes of one file in batches of at most `at_once` records. Each record becomes a line of `out`:
 * its columns as JSON, or `!BYTE REASON` for a bad record, with the position of the error or -1. Damage
 * becomes a line `?DAMAGE`. */
void harness_decode(const struct format_kind *format, const struct schema *schema, const void *config,
                    const char *data, size_t bytes, uint32_t at_once, struct byte_buffer *out);
/* The same for a terminated text; returns the lines as a malloc'd, terminated text. */
char *harness_text(const struct format_kind *format, const struct schema *schema, const void *config,
                   const char *text);

/* Decodes payloads as one batch and appends a line for each, as harness_decode does. Their memory ends right
 * after the padding that a decoder may read. */
void harness_payloads(const struct format_kind *format, const struct schema *schema, const void *config,
                      const struct str *payloads, uint32_t count, struct byte_buffer *out);
/* Writes the bytes that a text like "82 a161 01" gives in hex to `out`; returns their number. */
size_t harness_from_hex(const char *hex, char *out);

/* Appends the rows of a decoded batch, bad ones included, as harness_decode does. */
void harness_render(const struct schema *schema, const struct decode_output *output, struct byte_buffer *out);

/* Appends one row of a decoded batch and a terminator that `length` does not count: every bit of every value
 * as text, as reference_read writes it; a bad row is `!BYTE REASON`. */
void harness_exact(const struct decode_output *output, uint32_t row, struct byte_buffer *out);

/* A batch of random values and nulls, lists included; the same for the same seed. */
struct batch *harness_batch(struct batch_pool *pool, const struct schema *schema, uint32_t rows,
                            uint64_t seed);

/* Appends the selected rows as JSON lines. */
void harness_json(const struct batch *batch, struct byte_buffer *out);

#endif
