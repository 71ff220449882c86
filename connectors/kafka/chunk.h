/* Chunks of memory with consecutive records: an outbox epoch is a list of them. */
#ifndef LEAT_CONNECTORS_KAFKA_CHUNK_H
#define LEAT_CONNECTORS_KAFKA_CHUNK_H

#include "connectors/kafka/record.h"

enum { CHUNK_BYTES = 1 << 20, CHUNK_BYTES_MAX = 512 << 20, CHUNK_ALIGNMENT = 8 };

/* A record never spans two chunks; a record larger than CHUNK_BYTES gets a chunk of its own size. */
struct chunk {
    struct chunk *following;
    uint32_t used, capacity;
    uint32_t records;
    char data[] __attribute__((aligned(CHUNK_ALIGNMENT)));
};

/* Adds a chunk behind the last one. *last NULL: the list is empty, and the chunk becomes its first, too. */
struct chunk *chunk_add(struct chunk **first, struct chunk **last, uint32_t capacity);
/* Copies the record into the last chunk or a new one. Returns the bytes that it takes. */
uint32_t chunk_append(struct chunk **first, struct chunk **last, const struct kafka_record *record);
/* Releases the unused memory of a list's only chunk. */
void chunk_trim(struct chunk **first, struct chunk **last);
/* Whether the chunk's bytes, which come from a checkpoint, are `records` whole records. */
bool chunk_is_whole(const struct chunk *chunk);
void chunks_free(struct chunk *first);

/* The position of a walk through the chunks. */
struct chunk_cursor {
    const struct chunk *chunk;
    uint32_t offset;
};
/* Returns the next record, which must exist; its bytes are valid as long as its chunk. */
struct kafka_record chunk_next(struct chunk_cursor *cursor);

#endif
