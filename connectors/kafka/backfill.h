/* Option `backfill` of the source: what a recording has of a partition is read before its topic. Private to
 * connectors/kafka.
 *
 * A partition's records are those of the recording, up to its end, and then those of the topic, from the next
 * offset on: one sequence, in which a position means the same wherever the record lies. There is no end in
 * between, and nothing quiet: while the recording is read there is more, and behind it the topic is late
 * until it has answered. Whether both are of one topic is seen twice: their offsets must meet, and the
 * recording's last record, where the topic still has it, is compared. */
#ifndef LEAT_CONNECTORS_KAFKA_BACKFILL_H
#define LEAT_CONNECTORS_KAFKA_BACKFILL_H

#include "connectors/kafka/partition.h"
#include "connectors/kafka/recording_feed.h"
#include "connectors/kafka/start.h"

/* Reads the manifests, and sees that the recording and the topics meet; what it has of other topics is left
 * alone. ranges: of the places, whose first offset becomes the recording's. False after a diagnostic. */
LEAT_CHECKED bool kafka_backfill_open(struct recording *recording, struct texts paths,
                                      const struct kafka_topics *topics, struct source *source,
                                      const struct kafka_place *places, uint32_t count,
                                      struct kafka_range *ranges);
/* Before the first read or seek: what the recording has of the partition, if anything. */
LEAT_CHECKED bool kafka_backfill_attach(struct kafka_partition *partition, const struct recording *recording);
void kafka_backfill_free(struct kafka_partition *partition); /* without one too */
/* Whether the recording has that position, from which reading then goes on. *is_good: false after a
 * diagnostic. */
bool kafka_backfill_seek(struct kafka_partition *partition, const struct source_position *position,
                         bool *is_good);
/* As source_kind.read; READ_END: the topic's turn. */
enum read_status kafka_backfill_read(struct kafka_partition *partition, struct raw_batch *raw);

#endif
