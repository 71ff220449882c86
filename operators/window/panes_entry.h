/* Private to panes*.c: where the parts of an entry lie. panes.h describes them. */
#ifndef LEAT_OPERATORS_WINDOW_PANES_ENTRY_H
#define LEAT_OPERATORS_WINDOW_PANES_ENTRY_H

#include "operators/window/panes.h"

/* Each list has room for more items than it holds (list_room), so that the parts behind it move seldom. */
struct head {
    uint32_t panes, runs, nodes;
    uint32_t prefix_bytes;
    uint32_t heap_bytes, garbage_bytes;
    uint32_t used_bytes; /* bytes of the heap used by partials of panes */
    uint32_t spare;
};

/* The place of a variable partial in the heap, in bytes. */
struct reference {
    uint32_t offset, length, capacity;
    uint32_t is_absent; /* of a node: no value is stored; readers merge its parts */
};

/* Followed by the fixed partials, as in a pane. */
struct run_head {
    int64_t index;
    uint32_t panes, spare; /* panes: how many panes are merged in the run */
};

/* Followed by a reference for each variable aggregate. Nodes are sorted by rising end, then by rising level,
 * so that a new node most often goes last. */
struct node_head {
    int64_t end;           /* index of the block's last pane */
    uint32_t level, panes; /* panes: how many panes are merged in the node */
};

/* How many items a list of `count` items has room for: four steps to a doubling. */
static inline uint32_t list_room(uint32_t count)
{
    enum { EXACT_MAX = 8 };
    if (count <= EXACT_MAX)
        return count;
    uint32_t step = UINT32_C(1) << (31 - __builtin_clz(count - 1) - 2);
    return (count + step - 1) / step * step;
}

static inline struct head *head_of(char *data)
{
    return (struct head *)(void *)data;
}

static inline size_t panes_offset(const char *data)
{
    return sizeof(struct head) + ((((const struct head *)(const void *)data)->prefix_bytes + 7) & ~(size_t)7);
}

static inline size_t runs_offset(const struct panes *panes, char *data)
{
    return panes_offset(data) + (size_t)list_room(head_of(data)->panes) * panes->stride;
}

static inline size_t nodes_offset(const struct panes *panes, char *data)
{
    return runs_offset(panes, data) + (size_t)list_room(head_of(data)->runs) * panes->run_stride;
}

static inline size_t heap_offset(const struct panes *panes, char *data)
{
    return nodes_offset(panes, data) + (size_t)list_room(head_of(data)->nodes) * panes->node_stride;
}

static inline char *pane_at(const struct panes *panes, char *data, uint32_t i)
{
    return data + panes_offset(data) + (size_t)i * panes->stride;
}

static inline char *pane_partials(const struct panes *panes, char *data, uint32_t i)
{
    return pane_at(panes, data, i) + sizeof(int64_t);
}

static inline int64_t index_at(const struct panes *panes, char *data, uint32_t i)
{
    return *(int64_t *)(void *)pane_at(panes, data, i);
}

static inline struct run_head *run_at(const struct panes *panes, char *data, uint32_t i)
{
    return (struct run_head *)(void *)(data + runs_offset(panes, data) + (size_t)i * panes->run_stride);
}

static inline struct node_head *node_at(const struct panes *panes, char *data, uint32_t i)
{
    return (struct node_head *)(void *)(data + nodes_offset(panes, data) + (size_t)i * panes->node_stride);
}

/* which: index among the variable aggregates. */
static inline struct reference *node_reference(struct node_head *node, uint32_t which)
{
    return (struct reference *)(void *)(node + 1) + which;
}

static inline char *heap_of(const struct panes *panes, char *data)
{
    return data + heap_offset(panes, data);
}

/* The first pane with an index of at least `index`, or the number of panes. The shortcuts serve the usual
 * cases: the last pane, or none. */
static inline uint32_t lower_bound(const struct panes *panes, char *data, int64_t index)
{
    uint32_t low = 0, high = head_of(data)->panes;
    if (high == 0 || index_at(panes, data, 0) >= index)
        return 0;
    if (index_at(panes, data, high - 1) < index)
        return high;
    if (high > 1 && index_at(panes, data, high - 2) < index)
        return high - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (index_at(panes, data, middle) < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline struct str variable_at(const struct panes *panes, char *data, const char *partials,
                                     const struct aggregate *aggregate)
{
    struct reference reference;
    memcpy(&reference, partials + aggregate->offset, sizeof(reference));
    return (struct str){heap_of(panes, data) + reference.offset, reference.length};
}

/* First and last pane of a run. */
static inline int64_t run_first(const struct panes *panes, int64_t run)
{
    return run * (INT64_C(1) << panes->shift);
}

static inline int64_t run_last(const struct panes *panes, int64_t run)
{
    return run_first(panes, run) + ((INT64_C(1) << panes->shift) - 1);
}

/* First and last pane of the block of that level that contains pane `index`. */
static inline int64_t block_first(int64_t index, uint32_t level)
{
    return index & ~((INT64_C(1) << (level * PANES_LEVEL_BITS)) - 1);
}

static inline int64_t block_last(int64_t index, uint32_t level)
{
    return index | ((INT64_C(1) << (level * PANES_LEVEL_BITS)) - 1);
}

static inline bool is_variable(const struct aggregate *aggregate)
{
    return aggregate->kind->bytes == 0;
}

/* --- panes.c --- */

/* Insert a zeroed item before the at-th one of a list, or remove the at-th. Return the value, which may have
 * moved. */
char *panes_insert_pane(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at);
char *panes_insert_run(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at);
char *panes_insert_node(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at);
char *panes_remove_pane(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at);
/* Stores panes->partial as the variable partial whose reference is at byte `place` of the value, with `spare`
 * bytes of room to grow. Returns the value, which may have moved. */
char *panes_keep(struct panes *panes, struct keyed_slot *slot, char *data, size_t place, uint32_t spare);
/* The same for a partial of a pane, whose length is counted in used_bytes. */
char *panes_keep_used(struct panes *panes, struct keyed_slot *slot, char *data, size_t place, uint32_t spare);
/* Counts the heap bytes that a pane's references hold as garbage. */
void panes_note_garbage(const struct panes *panes, char *data, const char *partials);
/* The most bytes that the row can add to the entry. */
size_t panes_growth(const struct panes *panes, char *data, const struct panes_row *row);

/* --- panes_compact.c --- */

/* Appends a pane to `out`, and the heap bytes that it refers to to panes->partial. */
void panes_copy_pane(struct panes *panes, char *data, uint32_t i, struct byte_buffer *out);
/* Rewrites the entry without panes below first_alive, their runs and nodes, nodes below lowest_level, and
 * garbage in the heap. */
void panes_compact(struct panes *panes, struct keyed_slot *slot, int64_t first_alive, uint32_t lowest_level);
/* Compacts the entry if that pays, or if the row would make it longer than PANES_ENTRY_MAX. Returns false,
 * with nothing changed, if the panes that are alive leave no room for the row. */
bool panes_make_room(struct panes *panes, struct keyed_slot *slot, const struct panes_row *row);

/* --- panes_nodes.c --- */

/* Call after pane i was changed or inserted: updates the runs and nodes that contain it, and stores those
 * that are complete because it is new. */
void panes_mend(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t i, bool is_new);
void panes_merge_fixed(const struct aggregates *aggregates, char *into, const char *from);
/* The run with that index (*found is true), or the place to insert it. */
uint32_t panes_find_run(const struct panes *panes, char *data, int64_t index, bool *found);
/* Merges the panes of the block of `level` that begins with pane i into the partial `into`. which: the
 * aggregate's index; variable: its index among the variable ones. Returns the first pane behind the block. */
uint32_t panes_combine_block(const struct panes *panes, char *data, uint32_t i, uint32_t level,
                             uint32_t which, uint32_t variable, struct byte_buffer *into);

#endif
