/* Option `backfill` of the source: reads a partition's records from a recording before its topic. Private to
 * connectors/kafka.
 *
 * The recording's records, up to its end, and the topic's records from the next offset on are one sequence,
 * in which a position means the same wherever the record is stored. The partition neither ends nor is quiet
 * in between: it has more records while the recording is read, and then it is late (READ_LATER) until brokers
 * have answered. Two checks show that both belong to one topic: their offsets must meet, and the recording's
 * last record is compared with the topic's, if the topic still has it. */
#ifndef LEAT_CONNECTORS_KAFKA_BACKFILL_H
#define LEAT_CONNECTORS_KAFKA_BACKFILL_H

#include "connectors/kafka/partition.h"
#include "connectors/kafka/recording_feed.h"
#include "connectors/kafka/start.h"

/* Reads the manifests and checks that the recordings and the topics meet; ignores recordings of other topics.
 * ranges: of the places; `first` becomes the recording's first offset. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_backfill_open(struct recording *recording, struct texts paths,
                                      const struct kafka_topics *topics, struct source *source,
                                      const struct kafka_place *places, uint32_t count,
                                      struct kafka_range *ranges);
/* Attaches the partition's recording, if there is one; call before the first read or seek. Returns false
 * after a diagnostic. */
LEAT_CHECKED bool kafka_backfill_attach(struct kafka_partition *partition, const struct recording *recording);
void kafka_backfill_free(struct kafka_partition *partition); /* also without a recording */
/* Returns whether the recording has that position; reading then goes on in the recording. *is_good: false
 * after a diagnostic. */
bool kafka_backfill_seek(struct kafka_partition *partition, const struct source_position *position,
                         bool *is_good);
/* As source_kind.read; READ_END: go on with the topic. */
enum read_status kafka_backfill_read(struct kafka_partition *partition, struct raw_batch *raw);

#endif
