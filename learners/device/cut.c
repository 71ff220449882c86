/*
 * Cuts of tables on a GPU (table.h): the changed rows and blocks come by way of staging, as those of a checkpoint do
 * (snapshot.h), with staging of their own, so that a checkpoint may be on its way meanwhile. The GPU finds them by their
 * epochs, so that noting costs nothing; a row that leaves for the cold store is noted as it leaves.
 */
#include "learners/tables/cut.h"
#include "learners/device/internal.h"

#include "core/mem.h"

#include <stdlib.h>

static const uint64_t STAGING_BYTES = 8 << 20; /* of a set of tables */

void device_cut_free(struct device_table *t)
{
    if (t->cut == NULL)
        return;
    device_snapshot_free(&t->cut->changed);
    for (uint32_t i = 0; i < t->options.tables; i++) {
        struct device_cut_part *part = &t->cut->parts[i];
        free(part->removed.items);
        buffer_free(&part->rows);
        buffer_free(&part->blocks);
    }
    free(t->cut->parts);
    free(t->cut);
    t->cut = NULL;
}

bool device_table_cut_note(struct device_table *t, bool is_on, uint32_t closing, struct gpu_error *error)
{
    device_cut_free(t);
    if (!is_on)
        return true;
    if (!device_collect_removed(t, error)) /* what was removed before is in no cut */
        return false;
    t->cut = mem_calloc(1, sizeof(*t->cut));
    t->cut->parts = mem_calloc(t->options.tables, sizeof(*t->cut->parts));
    t->cut->since = closing;
    if (device_snapshot_init(&t->cut->changed, t, STAGING_BYTES, error))
        return true;
    device_cut_free(t);
    return false;
}

void device_cut_moved(struct device_table *t, const struct gpu_row_head *head, const unsigned char *stored)
{
    if (t->cut != NULL && head->epoch > t->cut->since)
        buffer_append(&t->cut->parts[head->table].rows, stored, t->stored_bytes);
}

static bool take_rows(void *argument, uint32_t table, const void *rows, size_t count)
{
    struct device_table *t = argument;
    buffer_append(&t->cut->parts[table].rows, rows, count * t->stored_bytes);
    return true;
}

static bool take_blocks(void *argument, uint32_t table, const void *blocks, size_t count)
{
    struct device_table *t = argument;
    buffer_append(&t->cut->parts[table].blocks, blocks, count * sizeof(struct sketch_block));
    return true;
}

/* Sets rows_all of tables with a cold store. */
static bool count_rows(struct device_table *t, struct gpu_error *error)
{
    for (uint32_t i = 0; i < t->options.tables; i++) {
        struct gpu_table_stats stats = {0};
        if (t->stores[i] == NULL)
            continue;
        if (!t->api->tables->stats(t->tables, t->stream, i, &stats, error))
            return false;
        struct device_table_below below = device_table_below(t, i);
        t->cut->parts[i].rows_all = stats.rows + below.pinned + below.cold;
    }
    return true;
}

bool device_table_cut(struct device_table *t, uint32_t closing, struct gpu_error *error)
{
    struct device_cut *cut = t->cut;
    leat_assert(cut != NULL && !device_table_is_held(t));
    bool is_good = device_collect_removed(t, error) && count_rows(t, error) &&
                   device_snapshot_select(&cut->changed, cut->since, closing, error) &&
                   device_snapshot_write(&cut->changed, take_rows, take_blocks, t, error);
    cut->since = closing;
    return is_good;
}

void device_table_cut_write(struct device_table *t, uint32_t table, const struct table *shape,
                            struct byte_buffer *out)
{
    struct device_cut_part *part = &t->cut->parts[table];
    leat_assert(table_stored_bytes(shape) == t->stored_bytes);
    table_cut_put(shape, &part->removed, &part->rows, &part->blocks, part->rows_all, out);
    part->removed.count = 0;
    buffer_clear(&part->rows);
    buffer_clear(&part->blocks);
}
