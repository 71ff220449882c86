/*
 * The items of a learner that chooses items. An item has, all kept together here:
 *   - a dense number, and the value that names it (numbers.h);
 *   - a row of a table (learners/tables/table.h) under the item's key: its floats, which are learned, and the
 *     optimizer's state;
 *   - a place in the exact index (index.h), once a search has asked for it.
 *
 * The rules:
 *   - An item comes with the first occurrence of its key, gets the lowest free number, and begins with floats
 *     that depend on (seed, key) alone. Of several values with one key, the first names it.
 *   - All rows stay in memory, since softmax and the exact index need them: the table has neither a limit of
 *     rows, nor a cold store, nor expiry of its own.
 *   - An item goes when catalogue_remove is asked to, or by expiry: newest occurrence + expire_after <= the
 *     point. Points are the multiples of max(expire_after / 64, 1 s) in event time. A watermark that passes
 *     points removes what has expired at the last of them, by rising number. Between points nothing expires,
 *     so an item whose occurrences are all old, which came late, stays until the next point. The first
 *     watermark passes no point; it says where the catalogue stands. So a run that was restored, and is told
 *     the watermark that it had, removes the same items at the same records as one that was not stopped.
 *   - Items of the step in progress are spared (row->step). The step of a row is no part of a checkpoint:
 *     after a restore catalogue_spare says it again for the items of the step's events.
 *   - Rows go into the index when a search, a rank or catalogue_refresh comes: those that changed since the
 *     last one. A row with a value that is not within ITEMS_VALUE_MAX (NaN, infinite or too large) is not in
 *     the index, nor is an older state of it: no search returns the item until its row is in range again.
 *
 * One thread owns a catalogue. Between its calls any number of threads may read: catalogue_find, _is_live,
 * _rows, _used, and searches of catalogue_index after catalogue_refresh. catalogue_top, _rank and _live are
 * no reads: they bring index and list up to date.
 */
#ifndef LEAT_LEARNERS_ITEMS_CATALOGUE_H
#define LEAT_LEARNERS_ITEMS_CATALOGUE_H

#include "learners/items/index.h"
#include "learners/items/numbers.h"
#include "learners/options.h"

struct table;

struct catalogue_options {
    const struct kernels *kernels;
    uint32_t
        dim; /* floats of a row: a multiple of 4, at most BATCH_DIM_MAX; without index_dims INT8_DIMS_MAX */
    /* The state behind a row's floats: a payload is that of row_bytes(ROW_FP32), for batch_update
     * (kernels/batch.h). Not OPT_NEWTON. */
    struct optimizer_options optimizer;
    float init;              /* rows begin uniform in +- init */
    uint32_t numbers_max;    /* most items: 1..ITEMS_NUMBERS_MAX */
    int64_t expire_after_us; /* 0: never */
    uint32_t shards;         /* of the table (kernels/shards.h); 0: as 1 */
    uint64_t seed;
    /* Floats of a row of the index, if others put these rows (towers): then the catalogue only removes them,
     * with their items. 0: the rows of the table are searched. */
    uint32_t index_dims;
    uint32_t overfetch; /* of the index; 0: its own default */
    /* Told when an item has gone: the number is free. It may not call the catalogue. NULL: nobody is told. */
    void (*removed)(void *of, uint32_t number);
    void *removed_of;
};

struct catalogue;

/* The caller frees the result with catalogue_free, which takes NULL. */
struct catalogue *catalogue_create(const struct catalogue_options *options);
void catalogue_free(struct catalogue *catalogue);

/* The parts, for checkpoints and cuts (the table's rows and the numbers; the index is made from them), and
 * for towers, which put rows into the index. Items are added and removed by the catalogue alone. */
struct table *catalogue_table(struct catalogue *catalogue);
struct items_numbers *catalogue_numbers(struct catalogue *catalogue);
struct items_index *catalogue_index(struct catalogue *catalogue);

/*
 * An occurrence of an item at `seconds` (event time, history_seconds) in a step: gives it a number and a row
 * if it is new, counts, and marks the row as catalogue_change does. *ref is set if the result is ITEMS_FOUND
 * or ITEMS_NEW; otherwise nothing has changed.
 */
enum items_added catalogue_add(struct catalogue *catalogue, const struct items_value *value, uint32_t seconds,
                               uint32_t step, struct items_ref *ref) LEAT_CHECKED;

/* Whether the key has an item. */
bool catalogue_find(const struct catalogue *catalogue, uint64_t key, struct items_ref *ref) LEAT_CHECKED;

/* Removes an item at once: its number, row and place in the index. Returns false if the key has none. An item
 * of the step in progress goes, too: the step asks catalogue_is_live before it uses a reference. */
bool catalogue_remove(struct catalogue *catalogue, uint64_t key);

/* Whether the reference means an item that is there; one of an older generation does not. */
bool catalogue_is_live(const struct catalogue *catalogue, struct items_ref ref);

/* The floats of all rows by number, [catalogue_used]; NULL: nobody has the number. The list is valid until
 * the next call that adds, removes or sets the watermark; a row does not move while its item is there. */
float *const *catalogue_rows(const struct catalogue *catalogue);
uint32_t catalogue_used(const struct catalogue *catalogue);

/* The numbers of all items, rising; *count: how many. Valid as catalogue_rows. Made anew after a removal and
 * after a number that is used again; new numbers are appended. */
const uint32_t *catalogue_live(struct catalogue *catalogue, uint32_t *count);

/*
 * Before the floats or the state of an item's row change: marks the row for the next checkpoint and cut,
 * whose writer may have to copy it first, and for the index. A mark holds until the next snapshot, cut or
 * search begins. `number` is that of an item that is there. catalogue_change_all: of all items.
 */
void catalogue_change(struct catalogue *catalogue, uint32_t number);
void catalogue_change_all(struct catalogue *catalogue);

/* The step uses an item that is there, though it does not occur: expiry spares it while the step is in
 * progress. */
void catalogue_spare(struct catalogue *catalogue, uint32_t number, uint32_t step);

/* Puts the changed rows into the index; with index_dims there is nothing to put. */
void catalogue_refresh(struct catalogue *catalogue);

/* Items that had no row in the index after the last refresh: their rows are not in range or, with index_dims,
 * were not put yet. */
uint32_t catalogue_unsearchable(const struct catalogue *catalogue);

/* catalogue_refresh, then items_index_top and items_index_rank, with their results. */
size_t catalogue_top(struct catalogue *catalogue, struct items_search *search, const float *queries,
                     size_t count, size_t k, struct items_scored *top) LEAT_CHECKED;
bool catalogue_rank(struct catalogue *catalogue, struct items_search *search, const float *query,
                    uint32_t number, const uint32_t *left_out, size_t n, double *rank) LEAT_CHECKED;

/* Advances event time and removes what expires by that; an older watermark is ignored, and the end of input
 * (TIME_MAX) expires nothing. step_in_progress: TABLE_STEP_NONE if there is none. */
void catalogue_set_watermark(struct catalogue *catalogue, int64_t watermark_us, uint32_t step_in_progress);

/*
 * After a restore of the table's rows (and table_restored) and of the numbers, which come apart; before other
 * calls. The index is empty then: the next search puts all rows into it, or who has put them does so again.
 * Returns NULL, or why the two do not belong together, as static text: then the catalogue has no use but to
 * be freed. After it catalogue_set_watermark is to be told the watermark that was saved, if there was one.
 */
const char *catalogue_check(struct catalogue *catalogue) LEAT_CHECKED;

/* Memory of all parts. */
size_t catalogue_bytes(const struct catalogue *catalogue);

#endif
