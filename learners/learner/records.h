/* Records of a learner's checkpoint; checkpoint.c lists them. */
#ifndef LEAT_LEARNERS_LEARNER_RECORDS_H
#define LEAT_LEARNERS_LEARNER_RECORDS_H

#include "learners/learner/internal.h"
#include "learners/tables/inline.h"

#include <stdatomic.h>

enum {
    STATE_VERSION = 6,
    STATE_VERSION_FROM = 5, /* taken through --from: a table had one shard */
};

struct record_head {
    uint8_t kind;
    uint8_t version;
    uint8_t field;       /* 's': 1 in the last piece, else 0 */
    uint8_t shard;       /* 'R', 'D', 'C': of the table (kernels/shards.h), to which all items belong */
    uint32_t item_bytes; /* bytes of an item: 'R': a stored row; 'D': a key; 'C': a block */
};
_Static_assert(MODEL_FIELDS_MAX <= UINT8_MAX && TABLE_SHARDS_MAX <= UINT8_MAX, "record_head");

/* A snapshot being written. Owned by the lane; the writer's thread reads it until it sets `outcome`. */
struct learner_snapshot {
    struct learner_state *state;
    uint32_t fields, epoch;
    struct table_snapshot *tables[MODEL_FIELDS_MAX];
    const struct table_keys *removed[MODEL_FIELDS_MAX];
    atomic_int outcome; /* 0: not known; 1: published; 2: abandoned */
};

/* Shards of a table. */
static inline uint32_t record_shards(const struct table *table)
{
    return MAX(table->options.shards, 1U);
}

/* The shard of an item: a row or key by its key, a block of counts by its number. */
static inline uint32_t record_shard(const struct table *table, uint8_t kind, const unsigned char *item)
{
    uint64_t number;
    memcpy(&number, item, sizeof(number));
    size_t blocks = sketch_blocks(&table->sketch) / record_shards(table); /* 0: no sketch */
    return kind == 'C' ? (uint32_t)(number / MAX(blocks, 1)) : table_shard(table, number);
}

/* records.c: writes the rows of a struct learner_snapshot, the keys removed and the counts, as snapshot_defer
 * calls it: on the checkpoint's thread. */
bool learner_write_rows(void *snapshot, struct snapshot_writer *out);

#endif
