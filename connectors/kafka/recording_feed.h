/* Reads a recorded partition as raw batches, exactly as the live source makes them: same columns, same
 * positions. Private to connectors/kafka. One thread at a time, except for marks and figures. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDING_FEED_H
#define LEAT_CONNECTORS_KAFKA_RECORDING_FEED_H

#include "connectors/kafka/intake.h"

#include "core/connector.h"
#include "formats/payload.h"

struct recording_feed;

/* All arguments must outlive the feed. payload: schemas of payloads; NULL: the format needs none. diags:
 * written under the mutex. */
struct recording_feed *recording_feed_new(const struct recording_partition *partition,
                                          const struct kafka_meta *meta, struct payload *payload,
                                          struct diag_list *diags, pthread_mutex_t *mutex);
void recording_feed_free(struct recording_feed *feed); /* NULL is allowed */

/* As source_kind.seek, mark, mark_check: position.b is the offset, and marks are those of the live source. */
LEAT_CHECKED bool recording_feed_seek(struct recording_feed *feed, const struct source_position *position);
size_t recording_feed_mark(struct recording_feed *feed, const struct source_position *position,
                           char out[SOURCE_MARK_BYTES]);
LEAT_CHECKED bool recording_feed_mark_check(struct recording_feed *feed, struct str mark);

/* As source_kind.read. Batches have BATCH_ROWS records, or fewer where their bytes exceed SOURCE_BATCH_BYTES:
 * they are cut by the records alone, not by spans. READ_LATER: a schema is being fetched. raw->extra: a
 * struct kafka_frame, for kafka_meta_decode. */
enum read_status recording_feed_read(struct recording_feed *feed, struct raw_batch *raw);

/* Where the next batch begins; partition->next after READ_END. */
struct source_position recording_feed_position(const struct recording_feed *feed);
int64_t recording_feed_done_bytes(const struct recording_feed *feed); /* bytes on disk; any thread */

#endif
