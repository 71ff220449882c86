/* Marks of the last records read of a partition: a resume compares a mark with the record that the topic then
 * has at the mark's offset. Private to connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_MARKS_H
#define LEAT_CONNECTORS_KAFKA_MARKS_H

#include "connectors/kafka/recording.h"

#include "core/connector.h"

enum { KAFKA_MARKS = 64 }; /* more batches than the engine reads ahead */

/* Marks of the last records of the newest batches. Zero it and call marks_init. */
struct kafka_marks {
    pthread_mutex_t mutex;
    struct kafka_mark items[KAFKA_MARKS];
    uint64_t count;
};

void marks_init(struct kafka_marks *marks);
void marks_free(struct kafka_marks *marks);
void marks_add(struct kafka_marks *marks, const struct kafka_mark *mark);
/* As source_kind.mark: copies the newest mark before the offset. Returns its bytes; 0: there is none. */
size_t marks_before(struct kafka_marks *marks, int64_t offset, char out[SOURCE_MARK_BYTES]);

/* Copies the mark of the very first batch. Returns its bytes; 0: it is not kept any more. */
size_t marks_first(struct kafka_marks *marks, char out[SOURCE_MARK_BYTES]);

/* Makes a mark. time_ms: 0 or less if the broker knows none; stored as 0. The digest covers at most
 * SOURCE_RECORD_BYTES_MAX + 1 bytes of the payload, as much as is read of a record that is too long. */
struct kafka_mark mark_of(int64_t offset, int64_t time_ms, struct str payload);
bool mark_is(const struct kafka_mark *a, const struct kafka_mark *b);

#endif
