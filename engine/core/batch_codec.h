/* A batch as bytes and back: for what an exchange spills to disk. Not a file format: it is read by the
 * process that wrote it, and never outlives it. Rows keep event time, arrival, origin and order. */
#ifndef LEAT_CORE_BATCH_CODEC_H
#define LEAT_CORE_BATCH_CODEC_H

#include "core/batch.h"
#include "core/buffer.h"

/* Appends the selected rows of the batch. */
void batch_write(const struct batch *batch, struct byte_buffer *out);
/* A dense batch of the rows; `bytes` must be what batch_write appended, for the same schema. */
struct batch *batch_read(struct batch_pool *pool, const struct schema *schema, struct str bytes);

#endif
