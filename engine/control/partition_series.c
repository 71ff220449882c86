#include "control/partition_series.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <stdlib.h>

static const char OTHERS[] = "other", CUT[] = "...";

struct partition_watch {
    struct run_partitions partitions;
    uint32_t *series_of; /* of each partition; UINT32_MAX: none, because it has no name */
    uint32_t seen;       /* partitions that have their entry in series_of */
    struct partition_series *series;
    uint32_t count, room;
    uint32_t named[PLAN_NODES_MAX]; /* series of each node, without that of the others */
};

struct partition_watch *partition_watch_new(void)
{
    return mem_calloc(1, sizeof(struct partition_watch));
}

void partition_watch_free(struct partition_watch *watch)
{
    if (watch == NULL)
        return;
    run_partitions_free(&watch->partitions);
    free(watch->series_of);
    free(watch->series);
    free(watch);
}

/* The name as a label: its last bytes, and `?` in place of bytes that are no UTF-8. */
static void make_label(const char *name, char label[PARTITION_NAME_BYTES_MAX + 8])
{
    size_t length = strlen(name), at = 0;
    bool is_cut = length > PARTITION_NAME_BYTES_MAX;
    if (is_cut)
        name += length - PARTITION_NAME_BYTES_MAX;
    while (is_cut && ((unsigned char)*name & 0xc0) == 0x80)
        name++; /* not within a character */
    length = (size_t)snprintf(label, PARTITION_NAME_BYTES_MAX + 8, "%s%s", is_cut ? CUT : "", name);
    while ((at += utf8_error(label + at, length - at)) < length)
        label[at] = '?';
}

/* The node's series of that name, else a new one. */
static uint32_t find_or_add(struct partition_watch *watch, uint32_t node, const char *name, bool *is_new)
{
    *is_new = false;
    for (uint32_t i = 0; i < watch->count; i++)
        if (watch->series[i].node == node && strcmp(watch->series[i].name, name) == 0)
            return i;
    if (watch->count == watch->room) {
        watch->room = MAX(16, watch->room * 2);
        watch->series = mem_realloc(watch->series, watch->room * sizeof(*watch->series));
    }
    struct partition_series *series = &watch->series[watch->count];
    *series = (struct partition_series){.node = node};
    snprintf(series->name, sizeof(series->name), "%s", name);
    *is_new = true;
    return watch->count++;
}

static uint32_t choose(struct partition_watch *watch, const struct run_partition *partition)
{
    char label[PARTITION_NAME_BYTES_MAX + 8];
    bool is_new = false;
    make_label(partition->name, label);
    if (label[0] == '\0')
        return UINT32_MAX;
    bool is_named = watch->named[partition->node] < PARTITION_SERIES_MAX && strcmp(label, OTHERS) != 0;
    uint32_t found = find_or_add(watch, partition->node, is_named ? label : OTHERS, &is_new);
    watch->named[partition->node] += is_named && is_new;
    return found;
}

void partition_watch_look(struct partition_watch *watch, struct run *run)
{
    struct run_partitions *partitions = &watch->partitions;
    run_partitions(run, partitions);
    if (partitions->count > watch->seen)
        watch->series_of = mem_realloc(watch->series_of, partitions->count * sizeof(*watch->series_of));
    for (; watch->seen < partitions->count; watch->seen++)
        watch->series_of[watch->seen] = choose(watch, &partitions->items[watch->seen]);
    for (uint32_t i = 0; i < watch->count; i++)
        watch->series[i].records = 0;
    for (uint32_t i = 0; i < partitions->count; i++)
        if (watch->series_of[i] != UINT32_MAX)
            watch->series[watch->series_of[i]].records += partitions->items[i].records;
}

const struct partition_series *partition_watch_series(const struct partition_watch *watch, uint32_t *count)
{
    *count = watch == NULL ? 0 : watch->count;
    return watch == NULL ? NULL : watch->series;
}
