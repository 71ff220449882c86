/* The state stores of a run: one for all instances of its operators, or one for each instance, with a database of its own.
 * The latter is how instances live in different processes; then a key group that moves takes its rows with it
 * (core/placement.h). Control thread, unless a function says otherwise. */
#ifndef LEAT_STATE_STORES_H
#define LEAT_STATE_STORES_H

#include "state/checkpoint.h"
#include "state/state.h"

struct state_stores {
    uint32_t count; /* 0: not open */
    struct state_store *items[PLACEMENT_INSTANCES_MAX];
    /* So many of them have taken over databases of the checkpoint as they were: those from number taken_first on. */
    uint32_t taken, taken_first;
    /* The checkpoint's databases, to import from, until state_stores_imported. */
    uint32_t foreign_count;
    struct state_store *foreign[PLACEMENT_INSTANCES_MAX];
    char *path;
};

struct state_stores_options {
    const char *
        path; /* directory of the first store's database; the next ones are PATH-1, PATH-2, ...; NULL: all stays in memory */
    uint32_t count;          /* 1 to PLACEMENT_INSTANCES_MAX */
    size_t memory_bytes;     /* for all of them together (state_store_open) */
    struct checkpoint *from; /* whose databases are restored; NULL: none */
    /* Of a checkpoint of several parts (checkpoint_join): the one of whose databases the stores are to have all rows; from 1 on; 0:
     * none. */
    uint32_t part;
    /* Which databases have other rows that the stores are to have: a bit for each; NULL: any may. */
    const uint64_t *needed;
    bool are_shared;  /* several instances use one store */
    bool are_of_some; /* the stores are to have rows of some key groups alone, those of a worker */
};

/* One store takes over one database of the checkpoint as it is, if that has its rows and no others; of a part with as many databases as
 * there are stores, or none, each one takes over that of its number. Else all stores begin empty. The owner, when its tables, queues
 * and cold stores are made, lets each table and queue import what is its own from each of `foreign`, does the same for cold stores
 * (state_stores_import_cold), and calls state_stores_imported. So no store ever holds rows of a group that lies elsewhere in the same
 * stay. False after a diagnostic; state_stores_close is allowed. */
LEAT_CHECKED bool state_stores_open(struct state_stores *stores, const struct state_stores_options *options,
                                    struct diag_list *diags);
/* The next store from which an owner of `own` imports, *at from 0 on; NULL: no more. */
struct state_store *state_stores_next(const struct state_stores *stores, const struct state_store *own,
                                      uint32_t *at);
void state_stores_import_cold(struct state_stores *stores);
void state_stores_imported(struct state_stores *stores);
void state_stores_close(struct state_stores *stores);

/* state_store_checkpoint, for all of them; afterwards checkpoint_write gets stores->count. Writer thread. */
LEAT_CHECKED bool state_stores_checkpoint(struct state_stores *stores, const struct checkpoint_writer *writer,
                                          struct diag_list *diags);
/* Any thread. */
static inline struct state_store *state_stores_of(const struct state_stores *stores, uint32_t instance)
{
    return stores->count == 0 ? NULL : stores->items[instance % stores->count];
}
void state_stores_release(struct state_stores *stores);
const char *state_stores_error(const struct state_stores *stores);
size_t state_stores_pressure(const struct state_stores *stores);

#endif
