/* Records of a learner's checkpoint; checkpoint.c lists them, tables/records.h has those of rows. */
#ifndef LEAT_LEARNERS_LEARNER_RECORDS_H
#define LEAT_LEARNERS_LEARNER_RECORDS_H

#include "learners/learner/internal.h"
#include "learners/tables/records.h"

#include <stdatomic.h>

_Static_assert(MODEL_FIELDS_MAX <= UINT8_MAX, "record_head");

/* A snapshot being written. Owned by the lane; the writer's thread reads it until it sets `outcome`. */
struct learner_snapshot {
    struct learner_state *state;
    uint32_t fields, epoch;
    struct table_snapshot *tables[MODEL_FIELDS_MAX];
    const struct table_keys *removed[MODEL_FIELDS_MAX];
    atomic_int outcome; /* 0: not known; 1: published; 2: abandoned */
};

/* records.c: writes the rows of a struct learner_snapshot, the keys removed and the counts, as snapshot_defer
 * calls it: on the checkpoint's thread. */
bool learner_write_rows(void *snapshot, struct snapshot_writer *out);

#endif
