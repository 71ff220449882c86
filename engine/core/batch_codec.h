/* A batch as bytes and back, for batches that an exchange spills to disk. Not a file format: only the process
 * that wrote the bytes reads them. Rows keep event time, arrival time, origin and order. */
#ifndef LEAT_CORE_BATCH_CODEC_H
#define LEAT_CORE_BATCH_CODEC_H

#include "core/batch.h"
#include "core/buffer.h"

/* Appends the batch's selected rows to `out`. */
void batch_write(const struct batch *batch, struct byte_buffer *out);
/* Returns a dense batch of the rows. bytes: what batch_write appended, for the same schema. */
struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes);

#endif
