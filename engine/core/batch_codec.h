/* The wire format of batches: a batch as bytes and back, for batches that an exchange spills, for rows in the delta log
 * (core/delta_log.h) and in checkpoints, and between processes. Bytes are checked in full before they are used: a reader
 * gives NULL instead of a batch for bytes that it cannot have as they should be, and never asserts on them.
 *
 * All words are little-endian, and nothing is aligned.
 *
 *   head      u16 rows, u8 flags (enum wire_flag), u8 version (BATCH_WIRE_VERSION), u16 columns
 *   rows      none if rows = 0, else sequences of `rows` integers:
 *             event time; arrival time (WIRE_ARRIVAL);
 *             with WIRE_ORDER also of each row: partition + 1 (0: PARTITION_NONE), record, and of its order: place,
 *             depth, partition less that of the origin, time (less event time, or less arrival time by flag), tie less
 *             record, sub
 *   columns   for each: u8 type (enum type_tag), + WIRE_NULLS if it has nulls; the bits of its `valid` where it has
 *             (rows bits, then zeros up to a whole byte); its data
 *   data      int, time, float: 8 bytes a value
 *             bool: a bit a value, then zeros up to a whole byte
 *             text, bytes: lengths, then the bytes of all values one behind the other
 *             list: lengths; if any list has elements, the columns of its elements, as above: as many rows as the
 *             lengths' sum
 *   lengths   u8 width (1, 2 or 4), then so many bytes a value
 *   sequence  u8 form << 4 | width. WIRE_ZEROS: every integer is 0. Otherwise u8 bytes of `base` | bytes of `step` << 4,
 *             then base and step, zigzag, in so many bytes.
 *             WIRE_LINE (width 0): integer i is base + i * step.
 *             WIRE_VALUES: base is the least integer; then `rows` integers less base, `width` bytes each.
 *             WIRE_DELTAS: base is the first integer, step the least difference of two neighbours; then rows - 1
 *             differences less step, `width` bytes each.
 *             Sums and differences are modulo 2^64.
 *
 * Of rows that follow each other in a partition nothing is written for each row but times: of 1,024 rows within a second
 * about 4 bytes a row, arrival times included (bench/wire). A sequence never takes more than 8 bytes a row, and its head 18. */
#ifndef LEAT_CORE_BATCH_CODEC_H
#define LEAT_CORE_BATCH_CODEC_H

#include "core/batch.h"
#include "core/buffer.h"

enum { BATCH_WIRE_VERSION = 2 };

/* Appends the batch's selected rows to `out`. Any thread. */
void batch_write(const struct batch *batch, struct byte_buffer *out);
/* A dense batch of the rows that batch_write wrote, with one reference; without `origins` and `orders` where the rows follow
 * each other in one partition. NULL: batch_write cannot have written the bytes for this schema, or a row says that it is of a
 * partition >= `partitions` (UINT32_MAX: any; PARTITION_NONE is always good). Not checked, because any value is possible:
 * times, records, orders, and whether a text is UTF-8. Takes no more memory than BATCH_ROWS rows of the schema's numbers and
 * about 9 times `bytes`, which need not outlive the call. Any thread. */
struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes,
                         uint32_t partitions);

/* Appends of the selected rows the columns that are true in `columns` (schema->count of them), and the rows' times; not
 * their origin and order, which rows that are read back do not have: they come in the batch's order. Any thread. */
void batch_write_columns(const struct batch *batch, const bool *columns, struct byte_buffer *out);
/* A dense batch of the whole schema, in which the columns that are false in `columns` are null in every row; columns
 * NULL: all are there. Otherwise like batch_read: NULL if batch_write_columns cannot have written the bytes for this schema
 * and these columns. */
struct batch *batch_read_columns(struct batch_pool *pool, const struct schema *schema, const bool *columns,
                                 struct str bytes);

#endif
