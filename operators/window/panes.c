/* Panes: making entries, and adding rows to them. */
#include "operators/window/panes_entry.h"

#include "core/mem.h"

#include <stdlib.h>

enum { VARIABLE_BYTES = 4096 + 64 };

void panes_init(struct panes *panes, const struct aggregates *aggregates, struct keyed_table *table,
                uint64_t window_panes)
{
    *panes = (struct panes){.aggregates = aggregates, .table = table};
    panes->stride = (uint32_t)sizeof(int64_t) + aggregates->bytes;
    panes->run_stride = (uint32_t)sizeof(struct run_head) + aggregates->bytes;
    panes->node_stride =
        (uint32_t)(sizeof(struct node_head) + aggregates->variable * sizeof(struct reference));
    panes->blocks = mem_calloc(PANES_LEVELS_MAX + 1, sizeof(*panes->blocks));
    if (window_panes <= PANES_MERGED_ABOVE)
        return;
    /* Runs of about the square root of the window's panes: then a read merges the fewest pieces. */
    while (aggregates->variable < aggregates->count && (UINT64_C(1) << (2 * panes->shift)) < window_panes)
        panes->shift++;
    while (aggregates->variable > 0 && panes->levels < PANES_LEVELS_MAX &&
           (UINT64_C(1) << ((panes->levels + 1) * PANES_LEVEL_BITS)) <= window_panes)
        panes->levels++;
}

void panes_free(struct panes *panes)
{
    for (uint32_t i = 0; panes->blocks != NULL && i <= PANES_LEVELS_MAX; i++)
        buffer_free(&panes->blocks[i]);
    free(panes->blocks);
    panes->blocks = NULL;
    buffer_free(&panes->scratch);
    buffer_free(&panes->partial);
}

/* --- Lists --- */

/* Makes room for `gap` zeroed bytes at `offset` of the value. The entry counts as changed even if gap is
 * 0. */
static char *open_gap(struct panes *panes, struct keyed_slot *slot, size_t offset, size_t gap)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    char *data = keyed_write(panes->table, slot, bytes + (uint32_t)gap, TIME_MIN);
    if (gap == 0)
        return data;
    memmove(data + offset + gap, data + offset, bytes - offset);
    memset(data + offset, 0, gap);
    return data;
}

/* Makes room for one more item, before the at-th, in the list of `count` items that begins at `offset`. The
 * caller counts the item. Returns the value, which may have moved. */
static char *insert_item(struct panes *panes, struct keyed_slot *slot, char *data, size_t offset,
                         uint32_t stride, uint32_t count, uint32_t at)
{
    uint32_t room = list_room(count), more = list_room(count + 1) - room;
    data = open_gap(panes, slot, offset + (size_t)room * stride, (size_t)more * stride);
    char *item = data + offset + (size_t)at * stride;
    memmove(item + stride, item, (size_t)(count - at) * stride);
    memset(item, 0, stride);
    return data;
}

char *panes_insert_pane(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at)
{
    data = insert_item(panes, slot, data, panes_offset(data), panes->stride, head_of(data)->panes, at);
    head_of(data)->panes++;
    return data;
}

char *panes_insert_run(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at)
{
    data =
        insert_item(panes, slot, data, runs_offset(panes, data), panes->run_stride, head_of(data)->runs, at);
    head_of(data)->runs++;
    return data;
}

char *panes_insert_node(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at)
{
    data = insert_item(panes, slot, data, nodes_offset(panes, data), panes->node_stride, head_of(data)->nodes,
                       at);
    head_of(data)->nodes++;
    return data;
}

char *panes_remove_pane(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t at)
{
    uint32_t bytes, count = head_of(data)->panes, room = list_room(count), less = room - list_room(count - 1);
    size_t gap = (size_t)less * panes->stride;
    char *pane = pane_at(panes, data, at), *end = pane_at(panes, data, room);
    panes_note_garbage(panes, data, pane + sizeof(int64_t));
    memmove(pane, pane + panes->stride, (size_t)(count - at - 1) * panes->stride);
    keyed_read(slot, &bytes);
    memmove(end - gap, end, bytes - (size_t)(end - data));
    head_of(data)->panes--;
    return keyed_write(panes->table, slot, bytes - (uint32_t)gap, TIME_MIN);
}

/* --- The heap --- */

static char *make_entry(struct panes *panes, struct keyed_slot *slot, struct str prefix)
{
    uint32_t room = (uint32_t)((prefix.length + 7) & ~(size_t)7);
    char *data = keyed_write(panes->table, slot, (uint32_t)sizeof(struct head) + room, TIME_MIN);
    *head_of(data) = (struct head){.prefix_bytes = (uint32_t)prefix.length};
    if (prefix.length > 0)
        memcpy(data + sizeof(struct head), prefix.data, prefix.length);
    return data;
}

/* Whether the partial is the last one in the heap. */
static bool is_last(char *data, const struct reference *reference)
{
    return reference->capacity > 0 && reference->offset + reference->capacity == head_of(data)->heap_bytes;
}

char *panes_keep(struct panes *panes, struct keyed_slot *slot, char *data, size_t place, uint32_t spare)
{
    const struct byte_buffer *partial = &panes->partial;
    struct reference *reference = (struct reference *)(void *)(data + place);
    if (partial->length > reference->capacity) {
        uint32_t bytes, capacity = ((uint32_t)partial->length + spare + 7) & ~7U;
        capacity = MIN(capacity, (uint32_t)partial->length + VARIABLE_BYTES);
        /* The last partial in the heap grows in place; any other moves to the heap's end. */
        bool grows_there = is_last(data, reference);
        uint32_t more = grows_there ? capacity - reference->capacity : capacity;
        head_of(data)->garbage_bytes += grows_there ? 0 : reference->capacity;
        keyed_read(slot, &bytes);
        data = open_gap(panes, slot, bytes, more);
        reference = (struct reference *)(void *)(data + place);
        if (!grows_there)
            reference->offset = head_of(data)->heap_bytes;
        reference->capacity = capacity;
        head_of(data)->heap_bytes += more;
    }
    reference->length = (uint32_t)partial->length;
    if (partial->length > 0)
        memcpy(heap_of(panes, data) + reference->offset, partial->data, partial->length);
    return data;
}

char *panes_keep_used(struct panes *panes, struct keyed_slot *slot, char *data, size_t place, uint32_t spare)
{
    const struct reference *reference = (const struct reference *)(const void *)(data + place);
    head_of(data)->used_bytes += (uint32_t)panes->partial.length - reference->length;
    return panes_keep(panes, slot, data, place, spare);
}

void panes_note_garbage(const struct panes *panes, char *data, const char *partials)
{
    for (uint32_t k = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++) {
        struct reference reference;
        if (!is_variable(&panes->aggregates->items[k]))
            continue;
        memcpy(&reference, partials + panes->aggregates->items[k].offset, sizeof(reference));
        head_of(data)->garbage_bytes += reference.capacity;
        head_of(data)->used_bytes -= reference.length;
    }
}

/* --- Updating --- */

static struct aggregate_row row_for(const struct panes *panes, uint32_t which, const struct panes_row *row)
{
    const struct aggregate *aggregate = &panes->aggregates->items[which];
    return (struct aggregate_row){.argument = &row->arguments[which],
                                  .by = aggregate->by == NULL ? NULL : &row->arguments[aggregate->by_column],
                                  .row = row->row,
                                  .time = row->time};
}

/* Adds the row to one variable partial of pane i: in place if it fits, else in a copy that is then stored. */
static char *update_variable(struct panes *panes, struct keyed_slot *slot, char *data, uint32_t i,
                             uint32_t which, const struct panes_row *row)
{
    const struct aggregate *aggregate = &panes->aggregates->items[which];
    struct aggregate_row from = row_for(panes, which, row);
    char *partials = pane_partials(panes, data, i);
    struct reference *reference = (struct reference *)(void *)(partials + aggregate->offset);
    if (aggregate->kind->absorb_here != NULL && reference->length > 0) {
        uint32_t length = aggregate->kind->absorb_here(aggregate, heap_of(panes, data) + reference->offset,
                                                       reference->length, reference->capacity, &from);
        if (length != ABSORB_ELSEWHERE) {
            head_of(data)->used_bytes += length - reference->length;
            reference->length = length;
            return data;
        }
    }
    struct str before = variable_at(panes, data, partials, aggregate);
    struct byte_buffer *partial = &panes->partial;
    buffer_clear(partial);
    buffer_append(partial, before.data, before.length);
    aggregate->kind->absorb(aggregate, partial, &from);
    /* No room to grow for a pane's first rows: often there are no others. */
    uint32_t spare = reference->capacity == 0 ? 0 : (uint32_t)partial->length / 2;
    return panes_keep_used(panes, slot, data, (size_t)(partials - data) + aggregate->offset, spare);
}

size_t panes_growth(const struct panes *panes, char *data, const struct panes_row *row)
{
    const struct aggregates *aggregates = panes->aggregates;
    uint32_t i = lower_bound(panes, data, row->pane);
    bool is_there = i < head_of(data)->panes && index_at(panes, data, i) == row->pane;
    size_t bytes = panes->stride + panes->run_stride;
    for (uint32_t k = 0; k < aggregates->count && aggregates->variable > 0; k++) {
        const struct aggregate *aggregate = &aggregates->items[k];
        if (!is_variable(aggregate) || !aggregate_has_value(aggregates, k, row->arguments, row->row))
            continue;
        struct aggregate_row from = row_for(panes, k, row);
        if (aggregate->kind->growth == NULL) {
            bool is_text =
                aggregate->argument_type.tag == TYPE_TEXT || aggregate->argument_type.tag == TYPE_BYTES;
            bytes += 2 * VARIABLE_BYTES + (is_text ? 2 * column_text(from.argument, from.row).length : 0);
            continue;
        }
        struct reference reference = {0};
        if (is_there)
            memcpy(&reference, pane_partials(panes, data, i) + aggregate->offset, sizeof(reference));
        struct str partial = {heap_of(panes, data) + reference.offset, reference.length};
        uint32_t more = aggregate->kind->growth(aggregate, partial, &from);
        if (more > 0)
            bytes += more + VARIABLE_BYTES + (is_last(data, &reference) ? 0 : reference.length);
    }
    return bytes;
}

/* Whether a row of that pane changes the last pane in place, without need for room: so do most rows where all
 * partials are fixed. */
static bool is_last_pane(const struct panes *panes, char *data, int64_t pane)
{
    uint32_t count = head_of(data)->panes;
    return panes->aggregates->variable == 0 && count > 0 && index_at(panes, data, count - 1) == pane;
}

bool panes_update(struct panes *panes, struct keyed_slot *slot, struct panes_row *row)
{
    const struct aggregates *aggregates = panes->aggregates;
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    if (bytes == 0)
        make_entry(panes, slot, row->prefix);
    else if (!is_last_pane(panes, data, row->pane) && !panes_make_room(panes, slot, row))
        return false;
    data = keyed_read(slot, &bytes);
    uint32_t i = lower_bound(panes, data, row->pane);
    bool is_new = i == head_of(data)->panes || index_at(panes, data, i) != row->pane;
    row->is_new = is_new;
    if (is_new) {
        data = panes_insert_pane(panes, slot, data, i);
        *(int64_t *)(void *)pane_at(panes, data, i) = row->pane;
        keyed_read(slot, &bytes);
    }
    data = keyed_write(panes->table, slot, bytes, row->expire_us);
    char *partials = pane_partials(panes, data, i);
    for (uint32_t k = 0; k < aggregates->count; k++) {
        const struct aggregate *aggregate = &aggregates->items[k];
        const struct column *argument = aggregate->argument == NULL ? row->own : &row->arguments[k];
        if (!aggregate_has_value(aggregates, k, row->arguments, row->row))
            continue;
        if (!is_variable(aggregate)) {
            aggregate->kind->update(partials + aggregate->offset, argument, row->row, row->time);
        } else {
            data = update_variable(panes, slot, data, i, k, row);
            partials = pane_partials(panes, data, i);
        }
    }
    if (panes->shift > 0 || panes->levels > 0)
        panes_mend(panes, slot, data, i, is_new);
    return true;
}

/* --- What an entry has --- */

uint32_t panes_count(const struct keyed_slot *slot)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    return bytes == 0 ? 0 : head_of(data)->panes;
}

int64_t panes_index(const struct panes *panes, const struct keyed_slot *slot, uint32_t i)
{
    uint32_t bytes;
    return index_at(panes, keyed_read(slot, &bytes), i);
}

uint32_t panes_below(const struct panes *panes, const struct keyed_slot *slot, int64_t index)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    return bytes == 0 ? 0 : lower_bound(panes, data, index);
}

char *panes_partials(const struct panes *panes, const struct keyed_slot *slot, uint32_t i)
{
    uint32_t bytes;
    return pane_partials(panes, keyed_read(slot, &bytes), i);
}

struct str panes_prefix(const struct keyed_slot *slot)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    return (struct str){data + sizeof(struct head), head_of(data)->prefix_bytes};
}
