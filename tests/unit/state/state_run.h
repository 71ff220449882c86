/* A run with a table and a time queue, and a folder with its object store and what is restored, for tests of pieces and key
 * groups. */
#ifndef LEAT_TESTS_UNIT_STATE_STATE_RUN_H
#define LEAT_TESTS_UNIT_STATE_STATE_RUN_H

#include "state/checkpoint_store_files.h"
#include "state/stores.h"

#include "checkpoint_fixture.h"

enum {
    ENTRIES = 40000,
    VALUE_BYTES = 100,
    PLENTY = 64 << 20, /* a budget with which nothing is evicted */
    LITTLE = 1 << 20   /* one with which most is */
};

struct run {
    struct fixture f;   /* with the run's directory */
    size_t budget;      /* of the table, and of the queue */
    uint32_t entries;   /* that run_change goes through */
    uint32_t databases; /* state stores: the first has the table's database, the last the queue's */
    uint32_t meanwhile; /* of so many entries one changes while a checkpoint is written */
    uint32_t records;   /* of so many changes one adds a record */
    struct state_stores stores;
    struct keyed_table *table;
    struct time_queue *queue;
    char folder[TEMPORARY_PATH_BYTES]; /* of the object store, and of what is restored */
    struct checkpoint_store *store;
    struct checkpoint_dir *reader; /* the run's directory, for checkpoint_store_put */
};

/* Begins a run with a directory, and nothing in its state. */
void run_begin_with(struct run *r, size_t budget, uint32_t entries, uint32_t databases);
static inline void run_begin(struct run *r, size_t budget, uint32_t entries)
{
    run_begin_with(r, budget, entries, 1);
}
void run_end(struct run *r);
/* Opens the stores, from a checkpoint or empty, and the table and the queue with these key groups; r->budget is set. */
void run_open_state(struct run *r, struct checkpoint *from, const struct group_set *groups);
void run_close_state(struct run *r);
/* Writes every `step`th entry, and pushes records. */
void run_change(struct run *r, uint32_t step, char seed);
/* Publishes a checkpoint, while entries change. */
void run_publish(struct run *r, uint64_t epoch, bool is_base);
/* The MANIFEST of a checkpoint of generation 1, in the fixture's arena. */
void run_read_manifest(struct run *r, uint64_t epoch, struct manifest *manifest);
void run_write_manifest(struct run *r, const struct manifest *manifest);

#endif
