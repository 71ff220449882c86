/* Writes the sequencer's decisions as entries of the order log (core/order_log.h). Under the sequencer's
 * mutex. */
#include "run/sequencer/internal.h"

#include "run/base/barrier.h"
#include "run/order/order.h"

static void put_partition(struct run *run, const struct partition *p, enum order_tag tag)
{
    const struct plan_node *node = run_source_node(run, p->source);
    /* A replay of a log of live sources writes a log of live sources. */
    bool is_live = node->is_live || order_replay_log(run)->is_live;
    struct order_partition entry = {.id = p->id,
                                    .source = node->name,
                                    .name = sequencer_partition_name(run, p),
                                    .records = p->logged.records,
                                    .time = p->logged.order,
                                    .offset = p->logged.offset};
    entry.is = (p->logged.is_over ? ORDER_HAS_ENDED : 0) | (is_live ? ORDER_IS_LIVE : 0) |
               (p->has_offsets ? ORDER_HAS_OFFSETS : 0);
    entry.source.length = MIN(entry.source.length, ORDER_NAME_MAX);
    entry.name.length = MIN(entry.name.length, ORDER_NAME_MAX);
    order_partition(run, tag, &entry);
}

void log_begin(struct run *run)
{
    const struct sequencer *s = run->sequencer;
    if (!order_is_written(run))
        return;
    order_open_piece(run);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        put_partition(run, &s->partitions[i], ORDER_PARTITION);
    if (s->load != ORDER_LOAD_MAX)
        order_load(run, s->load);
}

void log_ended(struct run *run, struct partition *p)
{
    p->logged.is_over = true;
    order_of(run, ORDER_ENDED, p->id);
}

void log_idle(struct run *run, const struct partition *p)
{
    order_of(run, ORDER_IDLE, p->id);
}

void log_known(struct partition *p)
{
    p->logged.records = p->records;
    p->logged.order = p->order_max;
    p->logged.offset = p->offset;
    p->logged.is_over = p->is_over;
}

void log_added(struct run *run, struct partition *p)
{
    log_known(p);
    if (order_is_written(run))
        put_partition(run, p, ORDER_ADDED);
}

void log_micro_batch(struct run *run, const struct number *number, const struct cut *cut)
{
    for (uint32_t i = 0; i < cut->slices_count; i++) {
        const struct cut_slice *taken = &cut->slices[i];
        struct partition *p = &run->sequencer->partitions[taken->partition];
        struct order_slice slice = {.partition = p->id,
                                    .records = taken->records,
                                    .time = taken->time,
                                    .time_before = p->logged.order,
                                    .offset = taken->offset - 1,
                                    .offset_before = p->logged.offset,
                                    .has_offset = p->has_offsets};
        order_slice(run, &slice);
        p->logged.records += taken->records;
        p->logged.order = taken->time;
        p->logged.offset = taken->offset;
    }
    enum order_tag tag = number->cut != NO_PARTITION ? ORDER_CUT
                         : number->is_final          ? ORDER_LAST
                         : number->has_work          ? ORDER_ENDED_ALL
                                                     : ORDER_MICRO_BATCH;
    order_end(run, number->micro_batch, tag, number->cut != NO_PARTITION ? number->cut : 0);
}

void log_seal(struct run *run)
{
    order_seal_piece(run);
    log_begin(run);
}

bool log_keep_up(struct run *run)
{
    if (run->barrier != NULL && order_wants_barrier(run))
        barrier_ask(run);
    if (!order_wants_segment(run))
        return true;
    pthread_mutex_lock(&run->diags_mutex);
    bool is_good = order_write(run, run->diags);
    pthread_mutex_unlock(&run->diags_mutex);
    log_begin(run);
    if (!is_good)
        run_fail(run);
    return is_good;
}
