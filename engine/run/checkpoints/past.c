/* What became of the checkpoints that this process took; with those in the directory, the list for people who look
 * (run/checkpoint_list.h). */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/positions.h"

#include <stdio.h>
#include <stdlib.h>

void past_add(struct checkpoints *c, const struct past_checkpoint *taken)
{
    c->past.taken[c->past.taken_count++ % RUN_CHECKPOINTS_MAX] = *taken;
}

void past_add_failure(struct checkpoints *c, const char *reason)
{
    struct run_checkpoint_failure *failed =
        &c->past.failed[c->past.failed_count++ % RUN_CHECKPOINTS_FAILED_MAX];
    failed->time_us = os_wall_us();
    snprintf(failed->reason, sizeof(failed->reason), "%s", reason);
}

struct run_checkpoint_list *run_checkpoint_list_new(const struct run *run)
{
    struct run_checkpoint_list *list = mem_calloc(1, sizeof(*list));
    list->run = run;
    return list;
}

void run_checkpoint_list_free(struct run_checkpoint_list *list)
{
    free(list);
}

static bool is_item(const struct run_checkpoint *item, struct checkpoint_id id)
{
    return item->generation == id.generation && item->epoch == id.epoch;
}

/* Reads the MANIFEST. False: it is damaged, or the checkpoint is gone. */
static bool read_item(const struct run *run, struct checkpoint_id id, struct run_checkpoint *item)
{
    struct arena arena = {0};
    struct checkpoint_info info;
    uint64_t written = 0;
    bool is_good = checkpoint_look(run->dir, id, &arena, &info, &written);
    if (is_good)
        *item = (struct run_checkpoint){.generation = id.generation,
                                        .epoch = id.epoch,
                                        .previous_generation = info.previous.generation,
                                        .previous_epoch = info.previous.epoch,
                                        .created_us = info.created_us,
                                        .bytes = info.bytes,
                                        .written_bytes = written,
                                        .duration_us = -1,
                                        .stop_us = -1,
                                        .micro_batch = positions_micro_batch(info.sources)};
    arena_free(&arena);
    return is_good;
}

/* Adds what this process knows of the checkpoints that it took, and why others failed. */
static void add_past(struct run_checkpoint_list *list)
{
    const struct run *run = list->run;
    const struct checkpoints *c = run->checkpoints;
    uint32_t generation = checkpoint_generation(run->dir);
    pthread_mutex_lock(&run->barrier->mutex);
    for (uint64_t i = 0; i < MIN(c->past.taken_count, (uint64_t)RUN_CHECKPOINTS_MAX); i++)
        for (uint32_t k = 0; k < list->count; k++) {
            const struct past_checkpoint *taken = &c->past.taken[i];
            if (!is_item(&list->items[k], (struct checkpoint_id){generation, taken->epoch}))
                continue;
            list->items[k].duration_us = taken->duration_us;
            list->items[k].stop_us = taken->stop_us;
            list->items[k].written_bytes = taken->bytes;
        }
    list->failed_count = (uint32_t)MIN(c->past.failed_count, (uint64_t)RUN_CHECKPOINTS_FAILED_MAX);
    for (uint32_t i = 0; i < list->failed_count; i++)
        list->failed[i] = c->past.failed[(c->past.failed_count - 1 - i) % RUN_CHECKPOINTS_FAILED_MAX];
    pthread_mutex_unlock(&run->barrier->mutex);
}

void run_checkpoint_list_look(struct run_checkpoint_list *list)
{
    const struct run *run = list->run;
    uint32_t ids_count, count = 0;
    if (run->dir == NULL || run->barrier == NULL)
        return;
    /* One that is in the directory and not told of yet: the coordinator is about to tell what it took, or takes it back. */
    uint64_t told = barrier_published(run);
    uint32_t generation = checkpoint_generation(run->dir);
    struct checkpoint_id *ids = checkpoint_ids(run->dir, &ids_count);
    struct run_checkpoint *items = mem_alloc(sizeof(list->items));
    for (uint32_t i = 0; i < ids_count && count < RUN_CHECKPOINTS_MAX; i++) {
        const struct run_checkpoint *known = NULL;
        if (ids[i].generation == generation && ids[i].epoch > told)
            continue;
        for (uint32_t k = 0; k < list->count && known == NULL; k++)
            known = is_item(&list->items[k], ids[i]) ? &list->items[k] : NULL;
        if (known != NULL)
            items[count++] = *known;
        else
            count += read_item(run, ids[i], &items[count]);
    }
    memcpy(list->items, items, count * sizeof(*items));
    list->count = count;
    free(items);
    free(ids);
    add_past(list);
}
