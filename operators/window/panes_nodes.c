/* Merged values of several panes: runs of fixed partials, nodes of variable ones. */
#include "operators/window/panes_entry.h"

enum {
    MERGED_UNTIL = PANES_ENTRY_MAX - (256 << 10), /* bytes up to which runs and nodes may lengthen an entry */
    /* bytes up to which nodes up to LOW_LEVEL may lengthen an entry: low nodes are many, and save a reader
     * little */
    LOW_UNTIL = PANES_ENTRY_MAX - (2 << 20),
    LOW_LEVEL = 3,
    FEW_PANES = 4,
    FEW_BYTES = 256
};

/* Whether the entry stays within `until` bytes if a list of `count` items gets one more. */
static bool has_room(const struct keyed_slot *slot, uint32_t count, uint32_t stride, uint32_t until)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    return bytes + (size_t)(list_room(count + 1) - list_room(count)) * stride <= until;
}

/* --- Runs --- */

uint32_t panes_find_run(const struct panes *panes, char *data, int64_t index, bool *found)
{
    uint32_t low = 0, high = head_of(data)->runs;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (run_at(panes, data, middle)->index < index)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < head_of(data)->runs && run_at(panes, data, low)->index == index;
    return low;
}

void panes_merge_fixed(const struct aggregates *aggregates, char *into, const char *from)
{
    if (aggregates->is_additive) {
        int64_t *a = (int64_t *)(void *)into;
        const int64_t *b = (const int64_t *)(const void *)from;
        for (uint32_t i = 0; i < aggregates->bytes / sizeof(int64_t); i++)
            a[i] += b[i];
        return;
    }
    for (uint32_t i = 0; i < aggregates->count; i++) {
        const struct aggregate *aggregate = &aggregates->items[i];
        if (!is_variable(aggregate))
            aggregate->kind->merge(into + aggregate->offset, from + aggregate->offset);
    }
}

/* Computes the run's partials from its panes. */
static void fill_run(const struct panes *panes, char *data, uint32_t at)
{
    struct run_head *run = run_at(panes, data, at);
    char *partials = (char *)(run + 1);
    int64_t last = run_last(panes, run->index);
    uint32_t first = lower_bound(panes, data, run_first(panes, run->index)), count = 0;
    memset(partials, 0, panes->aggregates->bytes);
    for (; first + count < head_of(data)->panes && index_at(panes, data, first + count) <= last; count++)
        panes_merge_fixed(panes->aggregates, partials, pane_partials(panes, data, first + count));
    run->panes = count;
}

/* Updates the stored run that contains pane i. is_left: pane i is new and last; if the pane before belongs to
 * another run, that run is complete now and is stored. */
static char *mend_runs(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t i, bool is_left)
{
    bool found;
    int64_t index = index_at(panes, data, i) >> panes->shift;
    uint32_t at = panes_find_run(panes, data, index, &found);
    if (found)
        fill_run(panes, data, at);
    if (!is_left)
        return data;
    int64_t previous = index_at(panes, data, i - 1) >> panes->shift;
    at = panes_find_run(panes, data, previous, &found);
    if (previous == index || found || !has_room(slot, head_of(data)->runs, panes->run_stride, MERGED_UNTIL))
        return data;
    data = panes_insert_run(panes, slot, data, at);
    run_at(panes, data, at)->index = previous;
    fill_run(panes, data, at);
    return data;
}

/* --- Nodes --- */

static uint32_t find_node(const struct panes *panes, char *data, int64_t end, uint32_t level, bool *found)
{
    uint32_t count = head_of(data)->nodes, low = 0, high = count;
    if (count > 0 && node_at(panes, data, count - 1)->end < end)
        low = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct node_head *node = node_at(panes, data, middle);
        if (node->end < end || (node->end == end && node->level < level))
            low = middle + 1;
        else
            high = middle;
    }
    *found =
        low < count && node_at(panes, data, low)->end == end && node_at(panes, data, low)->level == level;
    return low;
}

static void combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str partial)
{
    if (partial.length > 0)
        aggregate->kind->combine(aggregate, into, partial);
}

/* Merges the values of the parts of a block of `level` that begins with pane i. Returns the first pane behind
 * the block. */
static uint32_t combine_parts(const struct panes *panes, char *data, uint32_t i, uint32_t level,
                              uint32_t which, uint32_t variable, struct byte_buffer *into)
{
    int64_t last = block_last(index_at(panes, data, i), level);
    while (i < head_of(data)->panes && index_at(panes, data, i) <= last)
        i = panes_combine_block(panes, data, i, level - 1, which, variable, into);
    return i;
}

uint32_t panes_combine_block(const struct panes *panes, char *data, uint32_t i, uint32_t level,
                             uint32_t which, uint32_t variable, struct byte_buffer *into)
{
    const struct aggregate *aggregate = &panes->aggregates->items[which];
    if (level == 0) {
        combine(aggregate, into, variable_at(panes, data, pane_partials(panes, data, i), aggregate));
        return i + 1;
    }
    bool found;
    uint32_t at = find_node(panes, data, block_last(index_at(panes, data, i), level), level, &found);
    if (found) {
        struct node_head *node = node_at(panes, data, at);
        const struct reference *reference = node_reference(node, variable);
        if (!reference->is_absent) {
            combine(aggregate, into,
                    (struct str){heap_of(panes, data) + reference->offset, reference->length});
            return i + node->panes;
        }
    }
    struct byte_buffer *block = &panes->blocks[level];
    buffer_clear(block);
    i = combine_parts(panes, data, i, level, which, variable, block);
    combine(aggregate, into, (struct str){block->data, block->length});
    return i;
}

/* Drops the node's value of one aggregate. */
static void forget(char *data, struct reference *reference)
{
    head_of(data)->garbage_bytes += reference->capacity;
    *reference = (struct reference){.is_absent = true};
}

/* Bytes of one aggregate's partials in the panes first .. end - 1. */
static size_t bytes_of_panes(const struct panes *panes, char *data, uint32_t first, uint32_t end,
                             const struct aggregate *aggregate)
{
    size_t bytes = 0;
    for (; first < end; first++)
        bytes += variable_at(panes, data, pane_partials(panes, data, first), aggregate).length;
    return bytes;
}

/* Whether the panes first .. end - 1 are so few and so small that they are read as fast as a node. */
static bool are_few(const struct panes *panes, char *data, uint32_t first, uint32_t end)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < panes->aggregates->count && end - first <= FEW_PANES; k++)
        if (is_variable(&panes->aggregates->items[k]))
            bytes += bytes_of_panes(panes, data, first, end, &panes->aggregates->items[k]);
    return end - first <= FEW_PANES && bytes <= FEW_BYTES;
}

/* Whether the merged set of these panes is not much smaller than their sets together: then merging the panes
 * is as fast as reading a node. */
static bool is_large_set(const struct panes *panes, char *data, uint32_t first, uint32_t end,
                         const struct aggregate *aggregate, size_t length)
{
    return aggregate->kind->is_set && 4 * length > 3 * bytes_of_panes(panes, data, first, end, aggregate);
}

/* Sets the node's value of one aggregate. Stores no value if room is short, or if the value is a large
 * set. */
static char *fill_node(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at, uint32_t which,
                       uint32_t variable)
{
    const struct aggregate *aggregate = &panes->aggregates->items[which];
    struct node_head *node = node_at(panes, data, at);
    struct reference *reference = node_reference(node, variable);
    uint32_t bytes, first = lower_bound(panes, data, block_first(node->end, node->level));
    buffer_clear(&panes->partial);
    uint32_t end = combine_parts(panes, data, first, node->level, which, variable, &panes->partial);
    size_t length = panes->partial.length;
    node->panes = end - first;
    reference->is_absent = false;
    keyed_read(slot, &bytes);
    if (bytes + length <= MERGED_UNTIL && !is_large_set(panes, data, first, end, aggregate, length))
        return panes_keep(panes, slot, data, (size_t)((char *)reference - data), 0);
    forget(data, reference);
    return data;
}

/* Updates or makes the node of the block that contains the index. No node is made for a block of few panes,
 * or if the entry has no room: readers then merge the block's parts. */
static char *mend_node(struct panes *panes, struct keyed_slot *slot, char *data, int64_t index,
                       uint32_t level)
{
    bool found;
    uint32_t first = lower_bound(panes, data, block_first(index, level));
    int64_t last = block_last(index, level);
    uint32_t at = find_node(panes, data, last, level, &found);
    if (!found) {
        uint32_t end = first + 1, count = head_of(data)->panes;
        while (end < count && end <= first + FEW_PANES && index_at(panes, data, end) <= last)
            end++;
        if (count <= PANES_MERGED_ABOVE || are_few(panes, data, first, end) ||
            !has_room(slot, head_of(data)->nodes, panes->node_stride,
                      level <= LOW_LEVEL ? LOW_UNTIL : MERGED_UNTIL))
            return data;
        data = panes_insert_node(panes, slot, data, at);
        node_at(panes, data, at)->end = last;
        node_at(panes, data, at)->level = level;
    }
    for (uint32_t k = 0, v = 0; k < panes->aggregates->count; k++)
        if (is_variable(&panes->aggregates->items[k]))
            data = fill_node(panes, slot, data, at, k, v++);
    return data;
}

/* Updates the nodes over pane i. is_left: pane i is new and last; the blocks that end before pane i get their
 * nodes. Only blocks with a later pane behind them have nodes. */
static void mend_nodes(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t i, bool is_left)
{
    int64_t index = index_at(panes, data, i), newest = index_at(panes, data, head_of(data)->panes - 1);
    for (uint32_t level = 1; level <= panes->levels && block_last(index, level) < newest; level++)
        data = mend_node(panes, slot, data, index, level);
    int64_t previous = is_left ? index_at(panes, data, i - 1) : index;
    for (uint32_t level = 1; level <= panes->levels && block_last(previous, level) < index; level++)
        data = mend_node(panes, slot, data, previous, level);
}

void panes_mend(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t i, bool is_new)
{
    uint32_t count = head_of(data)->panes;
    bool is_left = is_new && i > 0 && i + 1 == count;
    if (panes->shift > 0)
        data = mend_runs(panes, slot, data, i, is_left && count > PANES_MERGED_ABOVE);
    if (panes->levels > 0)
        mend_nodes(panes, slot, data, i, is_left);
}
