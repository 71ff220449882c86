/* Panes whose indices move: sessions, which grow at both ends and merge; all time. */
#include "operators/window/panes_entry.h"

bool panes_join(struct panes *panes, struct keyed_slot *slot, uint32_t i, const struct panes_row *row)
{
    uint32_t bytes;
    panes_compact(panes, slot, INT64_MIN, 1);
    char *data = keyed_read(slot, &bytes);
    /* A merged partial, or one that the row makes longer, has up to twice the bytes of its parts. */
    size_t factor = panes->aggregates->variable > 0 ? 5 : 2;
    if (factor * bytes + panes_growth(panes, data, row) > PANES_BYTES_MAX)
        return false;
    panes_merge_fixed(panes->aggregates, pane_partials(panes, data, i), pane_partials(panes, data, i + 1));
    for (uint32_t k = 0, v = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++) {
        const struct aggregate *aggregate = &panes->aggregates->items[k];
        if (!is_variable(aggregate))
            continue;
        buffer_clear(&panes->partial);
        (void)panes_combine_block(panes, data, i, 0, k, v, &panes->partial);
        (void)panes_combine_block(panes, data, i + 1, 0, k, v++, &panes->partial);
        size_t place = (size_t)(pane_partials(panes, data, i) - data) + aggregate->offset;
        data = panes_keep_used(panes, slot, data, place, 0);
    }
    panes_remove(panes, slot, i + 1);
    return true;
}

bool panes_fold(struct panes *panes, struct keyed_slot *slot, uint32_t count)
{
    uint32_t bytes, last = count - 1;
    char *data = keyed_read(slot, &bytes);
    leat_assert(head_of(data)->runs == 0 && head_of(data)->nodes == 0 && count > 0 &&
                count <= head_of(data)->panes);
    /* Merged partials are built beside their parts, with room to grow. */
    if ((panes->aggregates->variable > 0 ? 3 : 1) * (size_t)bytes > PANES_BYTES_MAX)
        return false;
    data = keyed_write(panes->table, slot, bytes, TIME_MIN);
    char *first = pane_partials(panes, data, 0), *into = pane_partials(panes, data, last);
    for (uint32_t i = 1; i < count; i++)
        panes_merge_fixed(panes->aggregates, first, pane_partials(panes, data, i));
    for (uint32_t k = 0; k < panes->aggregates->count; k++) {
        const struct aggregate *aggregate = &panes->aggregates->items[k];
        if (!is_variable(aggregate))
            memmove(into + aggregate->offset, first + aggregate->offset, aggregate->kind->bytes);
    }
    for (uint32_t k = 0, v = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++) {
        const struct aggregate *aggregate = &panes->aggregates->items[k];
        if (!is_variable(aggregate))
            continue;
        buffer_clear(&panes->partial);
        for (uint32_t i = 0; i < count; i++)
            (void)panes_combine_block(panes, data, i, 0, k, v, &panes->partial);
        size_t place = (size_t)(pane_partials(panes, data, last) - data) + aggregate->offset;
        data = panes_keep_used(panes, slot, data, place, 0);
        v++;
    }
    panes_compact(panes, slot, index_at(panes, data, last), 1);
    return true;
}

void panes_move(struct panes *panes, struct keyed_slot *slot, uint32_t i, int64_t index)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    char *data = keyed_write(panes->table, slot, bytes, TIME_MIN);
    *(int64_t *)(void *)pane_at(panes, data, i) = index;
}

void panes_remove(struct panes *panes, struct keyed_slot *slot, uint32_t i)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    char *data = keyed_write(panes->table, slot, bytes, TIME_MIN);
    leat_assert(head_of(data)->runs == 0 && head_of(data)->nodes == 0 && i < head_of(data)->panes);
    (void)panes_remove_pane(panes, slot, data, i);
}

void panes_drop(struct panes *panes, struct keyed_slot *slot, int64_t first)
{
    panes_compact(panes, slot, first, 1);
}

void panes_extract(struct panes *panes, const struct keyed_slot *slot, uint32_t i, struct byte_buffer *out)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    struct head head = *head_of(data);
    size_t begin = out->length;
    leat_assert(head.runs == 0 && head.nodes == 0 && i < head.panes);
    buffer_append(out, data, panes_offset(data));
    buffer_clear(&panes->partial);
    panes_copy_pane(panes, data, i, out);
    buffer_append(out, panes->partial.data, panes->partial.length);
    head.panes = 1;
    head.heap_bytes = head.used_bytes = (uint32_t)panes->partial.length;
    head.garbage_bytes = 0;
    memcpy(out->data + begin, &head, sizeof(head));
}
