/* Compares rows that are made again with those already out. A job may fall back to a checkpoint older than
 * the rows it has sent; a replay of the order log then executes the same micro-batches again. Their records
 * are not sent again, but compared, part by part, with the digests in the progress topic. */
#ifndef LEAT_CONNECTORS_KAFKA_REMAKE_H
#define LEAT_CONNECTORS_KAFKA_REMAKE_H

#include "connectors/kafka/progress.h"
#include "connectors/kafka/record.h"

struct remake {
    bool is_on;
    struct progress_part *parts; /* parts of the progress topic that are made again, in order; malloc'd */
    uint32_t count, at;          /* at: index of the part being compared */
    uint64_t seen;               /* records made so far of parts[at].first and the micro-batches after it */
    uint64_t passed; /* records that are out but have no known part to compare with; for the figures */
    XXH3_state_t state;
};

/* The state of the comparison in a checkpoint. */
struct remake_saved {
    uint64_t first, from, seen; /* of the part being compared; first UINT64_MAX: none */
    XXH3_state_t state;
};

/* Begins the comparison with micro-batch `next`, or within a part as `saved` says (NULL: not saved). Returns
 * NULL, or what is wrong. is_on stays false if nothing from `next` on is out. */
const char *remake_begin(struct remake *remake, const struct progress *progress, uint64_t next,
                         const struct remake_saved *saved);
/* Number of the first micro-batch behind those that are made again. */
uint64_t remake_next(const struct remake *remake);

/* Compares one record. micro_batch, index: it is the index-th record of that micro-batch. */
enum remake_verdict {
    REMAKE_OUT,     /* it is out already: do not send it */
    REMAKE_NEW,     /* it is not out: send it; is_on is false from now on */
    REMAKE_DIFFERS, /* it differs from what was sent */
};
enum remake_verdict remake_record(struct remake *remake, uint64_t micro_batch, uint64_t index,
                                  const struct kafka_record *record);
/* Call at the barrier behind micro-batch next - 1. Returns false if rows that are out were not made again. */
bool remake_barrier(struct remake *remake, uint64_t next);
void remake_save(const struct remake *remake, struct remake_saved *saved);
/* Returns false if `data` is not a valid state. */
bool remake_load(struct remake_saved *saved, struct str data);
/* All records of micro-batches below the returned number are out. */
uint64_t remake_floor(const struct remake *remake);
void remake_free(struct remake *remake);

#endif
