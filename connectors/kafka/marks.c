#include "connectors/kafka/marks.h"

void marks_init(struct kafka_marks *marks)
{
    pthread_mutex_init(&marks->mutex, NULL);
}

void marks_free(struct kafka_marks *marks)
{
    pthread_mutex_destroy(&marks->mutex);
}

void marks_add(struct kafka_marks *marks, const struct kafka_mark *mark)
{
    pthread_mutex_lock(&marks->mutex);
    marks->items[marks->count++ % KAFKA_MARKS] = *mark;
    pthread_mutex_unlock(&marks->mutex);
}

size_t marks_before(struct kafka_marks *marks, int64_t offset, char out[SOURCE_MARK_BYTES])
{
    size_t bytes = 0;
    pthread_mutex_lock(&marks->mutex);
    uint64_t oldest = marks->count > KAFKA_MARKS ? marks->count - KAFKA_MARKS : 0;
    for (uint64_t i = marks->count; bytes == 0 && i > oldest; i--) {
        const struct kafka_mark *mark = &marks->items[(i - 1) % KAFKA_MARKS];
        if (mark->offset < offset) {
            bytes = sizeof(*mark);
            memcpy(out, mark, bytes);
        }
    }
    pthread_mutex_unlock(&marks->mutex);
    return bytes;
}

size_t marks_first(struct kafka_marks *marks, char out[SOURCE_MARK_BYTES])
{
    pthread_mutex_lock(&marks->mutex);
    size_t bytes = marks->count > 0 && marks->count <= KAFKA_MARKS ? sizeof(marks->items[0]) : 0;
    memcpy(out, &marks->items[0], bytes);
    pthread_mutex_unlock(&marks->mutex);
    return bytes;
}

struct kafka_mark mark_of(int64_t offset, int64_t time_ms, struct str payload)
{
    size_t bytes = MIN(payload.length, (size_t)SOURCE_RECORD_BYTES_MAX + 1);
    return (struct kafka_mark){offset, MAX(time_ms, 0), XXH3_64bits(payload.data, bytes)};
}

bool mark_is(const struct kafka_mark *a, const struct kafka_mark *b)
{
    return a->offset == b->offset && a->time == b->time && a->digest == b->digest;
}
