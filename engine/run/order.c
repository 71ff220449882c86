#include "run/order.h"

#include <stdlib.h>
#include <unistd.h>

/* --- Entries --- */

/* Whether a log of live sources is replayed: the log that the replay writes then says so, too. */
static bool obeys_live(const struct run *run)
{
    return run->order->script.is_live;
}

static void put_partition(struct run *run, const struct partition *p, enum order_tag tag,
                          struct byte_buffer *out)
{
    const struct plan_node *node = &run->plan->nodes[run->plan->sources[p->source]];
    struct order_partition entry = {.id = p->id,
                                    .source = node->name,
                                    .name = sequencer_partition_name(run, p),
                                    .records = p->records,
                                    .time = p->order_max,
                                    .offset = p->offset};
    entry.is = (p->is_over ? ORDER_HAS_ENDED : 0) | (node->is_live || obeys_live(run) ? ORDER_IS_LIVE : 0) |
               (node->source_kind->has_offsets ? ORDER_HAS_OFFSETS : 0);
    entry.source.length = MIN(entry.source.length, ORDER_NAME_MAX);
    entry.name.length = MIN(entry.name.length, ORDER_NAME_MAX);
    order_put_partition(out, tag, &entry);
}

static void put_partitions(struct run *run, struct byte_buffer *out)
{
    struct sequencer *s = &run->sequencer;
    buffer_clear(out);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        put_partition(run, &s->partitions[i], ORDER_PARTITION, out);
}

static void piece_begin(struct run *run, struct order_piece *piece, uint64_t first)
{
    put_partitions(run, &piece->partitions);
    buffer_clear(&piece->entries);
    if (run->sequencer.load != ORDER_LOAD_MAX)
        order_put_load(&piece->entries, run->sequencer.load);
    piece->first = piece->next = first;
    piece->slices = piece->records = 0;
}

static void piece_free(struct order_piece *piece)
{
    buffer_free(&piece->partitions);
    buffer_free(&piece->entries);
}

static struct str text_of(const struct byte_buffer *buffer)
{
    return (struct str){buffer->data, buffer->length};
}

void order_ended(struct run *run, const struct partition *p)
{
    if (run->order->is_written)
        order_put_of(&run->order->open.entries, ORDER_ENDED, p->id);
}

void order_idle(struct run *run, const struct partition *p)
{
    if (run->order->is_written)
        order_put_of(&run->order->open.entries, ORDER_IDLE, p->id);
}

void order_tick(struct run *run, int64_t time)
{
    if (run->order->is_written)
        order_put_tick(&run->order->open.entries, time);
}

void order_load(struct run *run, uint32_t level)
{
    if (run->order->is_written)
        order_put_load(&run->order->open.entries, level);
}

void order_added(struct run *run, struct partition *p)
{
    p->order_logged = p->order_max;
    p->offset_logged = p->offset;
    if (run->order->is_written)
        put_partition(run, p, ORDER_ADDED, &run->order->open.entries);
}

void order_number(struct run *run, const struct slot *slot, const struct partition *cut)
{
    struct order_piece *open = &run->order->open;
    if (!run->order->is_written)
        return;
    for (uint32_t i = 0; i < slot->slices_count;) {
        struct partition *p = slot->slices[i].partition;
        uint64_t records = 0;
        /* In a replay a slice of the log may span several batches. */
        for (; i < slot->slices_count && slot->slices[i].partition == p; i++)
            records += slot->slices[i].end - slot->slices[i].begin;
        struct order_slice slice = {.partition = p->id,
                                    .records = records,
                                    .time = p->order_max,
                                    .time_before = p->order_logged,
                                    .offset = p->offset - 1,
                                    .offset_before = p->offset_logged};
        slice.has_offset = run->plan->nodes[run->plan->sources[p->source]].source_kind->has_offsets;
        order_put_slice(&open->entries, &slice);
        p->order_logged = p->order_max;
        p->offset_logged = p->offset;
        open->slices++;
        open->records += records;
    }
    if (cut != NULL)
        order_put_of(&open->entries, ORDER_CUT, cut->id);
    else
        order_put(&open->entries, slot->is_final ? ORDER_LAST : ORDER_NUMBER);
    open->next = slot->number + 1;
}

void order_barrier(struct run *run)
{
    struct run_order *order = run->order;
    struct order_piece *open = &order->open, *sealed = &order->sealed;
    if (sealed->entries.length == 0) {
        struct order_piece empty = *sealed;
        *sealed = *open;
        *open = empty;
    } else { /* sealed is of an abandoned checkpoint: it is continued */
        buffer_append(&sealed->entries, open->entries.data, open->entries.length);
        sealed->next = open->next;
        sealed->slices += open->slices;
        sealed->records += open->records;
    }
    piece_begin(run, open, sealed->next);
}

bool order_is_full(const struct run *run)
{
    return run->order->open.entries.length > ORDER_HELD_BYTES;
}

/* --- Segments --- */

struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags)
{
    struct run_order *order = run->order;
    const struct order_piece *sealed = &order->sealed;
    struct order_head head = {.epoch = epoch, .first = sealed->first, .next = sealed->next};
    buffer_clear(&order->segment);
    order_seal(&head, text_of(&sealed->partitions), text_of(&sealed->entries), (struct str){"", 0},
               sealed->slices, sealed->records, &order->segment);
    if (order->file_path != NULL && !order_file_append(run, head.first, diags))
        return (struct str){NULL, 0};
    return text_of(&order->segment);
}

void order_published(struct run *run)
{
    struct run_order *order = run->order;
    buffer_clear(&order->sealed.entries);
    if (order->file_path != NULL)
        order_file_published(order);
}

/* Writes a segment to the file of --record-order. Without checkpoints it counts as soon as it is written. */
static bool file_segment(struct run *run, struct diag_list *diags)
{
    order_barrier(run);
    uint64_t epoch = run->order->sealed.first; /* there are no epochs here: a rising number will do */
    if (order_segment(run, epoch, diags).data == NULL)
        return false;
    order_published(run);
    return true;
}

bool order_finish(struct run *run)
{
    struct run_order *order = run->order;
    if (order == NULL || order->file_path == NULL || run->checkpoints != NULL ||
        order->open.next == order->open.first)
        return true;
    return file_segment(run, run->diags);
}

bool order_keep_up(struct run *run)
{
    size_t length = run->order->open.entries.length;
    if (run->checkpoints != NULL && length > ORDER_EPOCH_BYTES)
        barrier_ask(run);
    if (run->checkpoints != NULL || length < ORDER_FILE_SEGMENT)
        return true;
    pthread_mutex_lock(&run->diags_mutex);
    bool is_good = file_segment(run, run->diags);
    pthread_mutex_unlock(&run->diags_mutex);
    if (!is_good)
        run_fail(run);
    return is_good;
}

/* --- Beginning and end --- */

bool order_init(struct run *run)
{
    struct run_order *order = calloc(1, sizeof(*order));
    leat_assert(order != NULL);
    run->order = order;
    order->file_fd = order->script.fd = -1;
    order->file_path = run->options.record_order;
    order->is_written = (run->checkpoints != NULL || order->file_path != NULL) && run->trace == NULL;
    return script_init(run);
}

bool order_begin(struct run *run)
{
    struct run_order *order = run->order;
    if (!run->was_finished && !obey_begin(run))
        return false;
    for (uint32_t i = 0; i < run->sequencer.partitions_count; i++) {
        struct partition *p = &run->sequencer.partitions[i];
        p->order_logged = p->order_max;
        p->offset_logged = p->offset;
    }
    if (order->is_written)
        piece_begin(run, &order->open, run->sequencer.first);
    return order->file_path == NULL || run->was_finished || order_file_open(run);
}

void order_free(struct run *run)
{
    struct run_order *order = run->order;
    if (order == NULL)
        return;
    obey_free(run);
    piece_free(&order->open);
    piece_free(&order->sealed);
    buffer_free(&order->segment);
    free(order->part_path);
    if (order->file_fd >= 0)
        close(order->file_fd);
    free(order);
    run->order = NULL;
}
