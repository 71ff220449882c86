/* Records, one behind the other, in chunks of memory: what the outbox's epochs consist of. */
#ifndef LEAT_CONNECTORS_KAFKA_CHUNK_H
#define LEAT_CONNECTORS_KAFKA_CHUNK_H

#include "connectors/kafka/record.h"

enum { CHUNK_BYTES = 1 << 20, CHUNK_BYTES_MAX = 512 << 20, CHUNK_ALIGNMENT = 8 };

/* A record lies whole in one chunk; a chunk is as large as its record where that is larger than CHUNK_BYTES.
 */
struct chunk {
    struct chunk *following;
    uint32_t used, capacity;
    uint32_t records;
    char data[] __attribute__((aligned(CHUNK_ALIGNMENT)));
};

/* A chunk behind the last, which may be NULL: then it is the first too. */
struct chunk *chunk_add(struct chunk **first, struct chunk **last, uint32_t capacity);
/* Copies the record; returns the bytes that it takes. */
uint32_t chunk_append(struct chunk **first, struct chunk **last, const struct kafka_record *record);
/* Gives back what the only chunk has left over. */
void chunk_trim(struct chunk **first, struct chunk **last);
/* Whether the bytes, which come from outside, are the records that the chunk says it has. */
bool chunk_is_whole(const struct chunk *chunk);
void chunks_free(struct chunk *first);

/* Where a walk stands. */
struct chunk_cursor {
    const struct chunk *chunk;
    uint32_t offset;
};
/* The next record, which must be there; valid as long as its chunk. */
struct kafka_record chunk_next(struct chunk_cursor *cursor);

#endif
