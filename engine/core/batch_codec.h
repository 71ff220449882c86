/* A batch as bytes and back: for batches that an exchange spills to disk, and for the rows in the delta log
 * (core/delta_log.h). No format for long: only processes of the same program on the same machine read the
 * bytes. Rows keep event time, arrival time, origin and order. */
#ifndef LEAT_CORE_BATCH_CODEC_H
#define LEAT_CORE_BATCH_CODEC_H

#include "core/batch.h"
#include "core/buffer.h"

/* Appends the batch's selected rows to `out`. Any thread. */
void batch_write(const struct batch *batch, struct byte_buffer *out);
/* Returns a dense batch of the rows. bytes: what batch_write appended in this process, for the same schema.
 */
struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes);

/* Appends of the selected rows the columns that are true in `columns` (schema->count of them), and the rows' times; not
 * their origin and order, which rows that are read back do not have: they come in the batch's order. */
void batch_write_columns(const struct batch *batch, const bool *columns, struct byte_buffer *out);
/* A dense batch of the whole schema, in which the columns that are false in `columns` are null in every row; columns
 * NULL: all are there. The bytes come from outside and are checked in full: NULL if neither function above can have
 * written them for this schema and these columns. Not checked, because any value is possible: times, the rows' origins
 * and orders, and whether a text is UTF-8. `bytes` need not outlive the call. */
struct batch *batch_read_columns(struct batch_pool *pool, const struct schema *schema, const bool *columns,
                                 struct str bytes);

#endif
