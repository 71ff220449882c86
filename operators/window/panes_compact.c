/* Drops panes that are not needed any more, and makes room in an entry. */
#include "operators/window/panes_entry.h"

enum { DROP_AT_LEAST = 8, GARBAGE_AT_LEAST = 256, ROOM_AT_LEAST = 1 << 20 };

/* Appends the referenced bytes to panes->partial and makes the reference point there. */
static void copy_variable(struct panes *panes, char *data, struct reference *reference)
{
    const char *bytes = heap_of(panes, data) + reference->offset;
    reference->offset = (uint32_t)panes->partial.length;
    reference->capacity = reference->length;
    buffer_append(&panes->partial, bytes, reference->length);
}

void panes_copy_pane(struct panes *panes, char *data, uint32_t i, struct byte_buffer *out)
{
    size_t at = out->length;
    buffer_append(out, pane_at(panes, data, i), panes->stride);
    for (uint32_t k = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++)
        if (is_variable(&panes->aggregates->items[k]))
            copy_variable(panes, data,
                          (struct reference *)(void *)(out->data + at + sizeof(int64_t) +
                                                       panes->aggregates->items[k].offset));
}

/* Appends the unused room that a list of `count` items has behind its items. */
static void add_room(struct byte_buffer *out, uint32_t count, uint32_t stride)
{
    size_t bytes = (size_t)(list_room(count) - count) * stride;
    memset(buffer_reserve(out, bytes), 0, bytes);
    out->length += bytes;
}

/* Keeps the runs and nodes whose panes are all alive: no reader asks for the others. */
static uint32_t copy_runs(const struct panes *panes, char *data, int64_t first_alive, struct byte_buffer *out)
{
    uint32_t first = 0, count = head_of(data)->runs;
    while (first < count && run_first(panes, run_at(panes, data, first)->index) < first_alive)
        first++;
    buffer_append(out, run_at(panes, data, first), (size_t)(count - first) * panes->run_stride);
    add_room(out, count - first, panes->run_stride);
    return count - first;
}

static uint32_t copy_nodes(struct panes *panes, char *data, int64_t first_alive, uint32_t lowest_level,
                           struct byte_buffer *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < head_of(data)->nodes; i++) {
        struct node_head *node = node_at(panes, data, i);
        if (node->level < lowest_level || block_first(node->end, node->level) < first_alive)
            continue;
        size_t at = out->length;
        buffer_append(out, node, panes->node_stride);
        for (uint32_t v = 0; v < panes->aggregates->variable; v++)
            copy_variable(panes, data, node_reference((struct node_head *)(void *)(out->data + at), v));
        kept++;
    }
    add_room(out, kept, panes->node_stride);
    return kept;
}

void panes_compact(struct panes *panes, struct keyed_slot *slot, int64_t first_alive, uint32_t lowest_level)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    struct head head = *head_of(data);
    struct byte_buffer *out = &panes->scratch, *heap = &panes->partial;
    buffer_clear(out);
    buffer_clear(heap);
    buffer_append(out, data, panes_offset(data));
    uint32_t first = lower_bound(panes, data, first_alive);
    for (uint32_t i = first; i < head.panes; i++)
        panes_copy_pane(panes, data, i, out);
    head.panes -= first;
    add_room(out, head.panes, panes->stride);
    head.used_bytes = (uint32_t)heap->length;
    head.runs = copy_runs(panes, data, first_alive, out);
    head.nodes = copy_nodes(panes, data, first_alive, lowest_level, out);
    buffer_append(out, heap->data, heap->length);
    head.heap_bytes = (uint32_t)heap->length;
    head.garbage_bytes = 0;
    memcpy(out->data, &head, sizeof(head));
    data = keyed_write(panes->table, slot, (uint32_t)out->length, TIME_MIN);
    memcpy(data, out->data, out->length);
}

/* Bytes of an entry with nothing but the panes from `first` on: no runs, no nodes, no unused room. */
static size_t needed(const struct panes *panes, char *data, uint32_t first)
{
    const struct head *head = head_of(data);
    size_t bytes = panes_offset(data) + (size_t)(head->panes - first) * panes->stride + head->used_bytes;
    for (uint32_t i = 0; i < first && panes->aggregates->variable > 0; i++)
        for (uint32_t k = 0; k < panes->aggregates->count; k++)
            if (is_variable(&panes->aggregates->items[k]))
                bytes -= variable_at(panes, data, pane_partials(panes, data, i), &panes->aggregates->items[k])
                             .length;
    return bytes;
}

/* Runs and nodes may make an entry longer than PANES_BYTES_MAX. If it would exceed PANES_ENTRY_MAX, nodes are
 * dropped from the lowest level up: low nodes are many and save a reader the least. ROOM_AT_LEAST more bytes
 * are freed, so that nodes are seldom dropped. */
bool panes_make_room(struct panes *panes, struct keyed_slot *slot, const struct panes_row *row)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    uint32_t dead = lower_bound(panes, data, row->first_alive), count = head_of(data)->panes;
    uint32_t garbage = head_of(data)->garbage_bytes;
    size_t growth = panes_growth(panes, data, row);
    if (bytes + growth > PANES_BYTES_MAX && needed(panes, data, dead) + growth > PANES_BYTES_MAX)
        return false;
    growth += (size_t)(list_room(count + 1) - list_room(count)) * panes->stride;
    bool is_short = bytes + growth > PANES_ENTRY_MAX;
    if (is_short || (dead >= DROP_AT_LEAST && dead >= count / 4) ||
        (garbage > GARBAGE_AT_LEAST && garbage > head_of(data)->heap_bytes / 2))
        panes_compact(panes, slot, row->first_alive, 1);
    keyed_read(slot, &bytes);
    for (uint32_t level = 2; is_short && bytes + growth > PANES_ENTRY_MAX - ROOM_AT_LEAST; level++) {
        if (level > panes->levels + 1)
            break;
        panes_compact(panes, slot, row->first_alive, level);
        keyed_read(slot, &bytes);
    }
    return true;
}
