/* What was read of a partition last: a resume compares it with what is there then. Private to
 * connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_MARKS_H
#define LEAT_CONNECTORS_KAFKA_MARKS_H

#include "connectors/kafka/recording.h"

#include "core/connector.h"

enum { KAFKA_MARKS = 64 }; /* more than the engine reads ahead */

/* The last records of the newest batches. Zeroed and marks_init. */
struct kafka_marks {
    pthread_mutex_t mutex;
    struct kafka_mark items[KAFKA_MARKS];
    uint64_t count;
};

void marks_init(struct kafka_marks *marks);
void marks_free(struct kafka_marks *marks);
void marks_add(struct kafka_marks *marks, const struct kafka_mark *mark);
/* As source_kind.mark: the newest before the offset. */
size_t marks_before(struct kafka_marks *marks, int64_t offset, char out[SOURCE_MARK_BYTES]);

/* Of the first batch of all, while it is among those kept; 0: it is not. */
size_t marks_first(struct kafka_marks *marks, char out[SOURCE_MARK_BYTES]);

/* Of the payload as much as is read of one that is too long (SOURCE_RECORD_BYTES_MAX, and a byte); a time
 * that brokers do not know is 0. */
struct kafka_mark mark_of(int64_t offset, int64_t time_ms, struct str payload);
bool mark_is(const struct kafka_mark *a, const struct kafka_mark *b);

#endif
