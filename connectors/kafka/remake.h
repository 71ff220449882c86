/* Rows that are out already and come again: a job fell back to a checkpoint older than what was sent, and its
 * numbers are executed again just as they were. Their records are compared with what the progress topic says
 * was sent, part by part, and not sent. */
#ifndef LEAT_CONNECTORS_KAFKA_REMAKE_H
#define LEAT_CONNECTORS_KAFKA_REMAKE_H

#include "connectors/kafka/progress.h"
#include "connectors/kafka/record.h"

struct remake {
    bool is_on;
    struct progress_part *parts; /* those that come again, in order; malloc'd */
    uint32_t count, at;
    uint64_t seen;   /* records of parts[at].first and the numbers after it */
    uint64_t passed; /* records that were out before any part that is known; for the figures */
    XXH3_state_t state;
};

/* What a checkpoint keeps of it. */
struct remake_saved {
    uint64_t first, from, seen; /* of the part in work; first UINT64_MAX: none */
    XXH3_state_t state;
};

/* Numbers from `next` on come again, or saved (NULL: none) says where in a part the job stands. NULL, or what
 * is wrong. is_on stays false where nothing is out beyond `next`. */
const char *remake_begin(struct remake *remake, const struct progress *progress, uint64_t next,
                         const struct remake_saved *saved);
/* The number behind those that come again. */
uint64_t remake_next(const struct remake *remake);

/* A record of that number, of which it is the index-th. */
enum remake_verdict {
    REMAKE_OUT,     /* it is out: not sent again */
    REMAKE_NEW,     /* it was not sent: is_on is false from now on */
    REMAKE_DIFFERS, /* what comes again is not what was sent */
};
enum remake_verdict remake_record(struct remake *remake, uint64_t number, uint64_t index,
                                  const struct kafka_record *record);
/* At the barrier behind number next - 1: false: rows that are out did not come again. */
bool remake_barrier(struct remake *remake, uint64_t next);
void remake_save(const struct remake *remake, struct remake_saved *saved);
/* False: no such state can be. */
bool remake_load(struct remake_saved *saved, struct str data);
/* Records of numbers below are out. */
uint64_t remake_floor(const struct remake *remake);
void remake_free(struct remake *remake);

#endif
