#include "run/order/internal.h"

#include "core/mem.h"
#include "run/base/peers.h"

#include <stdlib.h>
#include <unistd.h>

/* --- Entries --- */

static struct str text_of(const struct byte_buffer *buffer)
{
    return (struct str){buffer->data, buffer->length};
}

bool order_is_written(const struct run *run)
{
    return run->order->is_written;
}

void order_open_piece(struct run *run)
{
    struct order *order = run->order;
    struct order_piece *open = &order->open;
    buffer_clear(&open->partitions);
    buffer_clear(&open->entries);
    open->first = open->next = order->sealed.next;
    open->slices = open->records = 0;
}

void order_partition(struct run *run, enum order_tag tag, const struct order_partition *partition)
{
    struct order_piece *open = &run->order->open;
    if (run->order->is_written)
        order_put_partition(tag == ORDER_PARTITION ? &open->partitions : &open->entries, tag, partition);
}

void order_of(struct run *run, enum order_tag tag, uint32_t partition)
{
    if (run->order->is_written)
        order_put_of(&run->order->open.entries, tag, partition);
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

void order_slice(struct run *run, const struct order_slice *slice)
{
    struct order_piece *open = &run->order->open;
    if (!run->order->is_written)
        return;
    order_put_slice(&open->entries, slice);
    open->slices++;
    open->records += slice->records;
}

void order_end(struct run *run, uint64_t micro_batch, enum order_tag tag, uint32_t partition)
{
    struct order_piece *open = &run->order->open;
    if (!run->order->is_written)
        return;
    if (tag == ORDER_CUT)
        order_put_of(&open->entries, ORDER_CUT, partition);
    else
        order_put(&open->entries, tag);
    open->next = micro_batch + 1;
}

void order_seal_piece(struct run *run)
{
    struct order_piece *open = &run->order->open, *sealed = &run->order->sealed;
    run->order->sealed_bytes += open->entries.length;
    if (sealed->entries.length == 0) {
        struct order_piece empty = *sealed;
        *sealed = *open;
        *open = empty;
    } else { /* `sealed` belongs to an abandoned checkpoint: continue it */
        buffer_append(&sealed->entries, open->entries.data, open->entries.length);
        sealed->next = open->next;
        sealed->slices += open->slices;
        sealed->records += open->records;
    }
}

bool order_place_now(const struct run *run, uint64_t *micro_batch, uint64_t *bytes)
{
    const struct order *order = run->order;
    *micro_batch = order->open.next;
    *bytes = order->sealed_bytes + order->open.entries.length;
    return order->is_written;
}

bool order_wants_barrier(const struct run *run)
{
    return run->order->open.entries.length > ORDER_EPOCH_BYTES;
}

bool order_is_full(const struct run *run)
{
    return run->order->open.entries.length > ORDER_HELD_BYTES;
}

bool order_wants_segment(const struct run *run)
{
    return run->barrier == NULL && run->order->open.entries.length >= ORDER_FILE_SEGMENT;
}

/* --- Segments --- */

struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags)
{
    struct order *order = run->order;
    const struct order_piece *sealed = &order->sealed;
    struct order_head head = {.epoch = epoch, .first = sealed->first, .next = sealed->next};
    buffer_clear(&order->segment);
    order_seal(&head, text_of(&sealed->partitions), text_of(&sealed->entries), (struct str){"", 0},
               sealed->slices, sealed->records, &order->segment);
    if (order->file_path != NULL && !order_file_append(run, head.first, diags))
        return (struct str){NULL, 0};
    return text_of(&order->segment);
}

uint64_t order_published(struct run *run)
{
    struct order *order = run->order;
    buffer_clear(&order->sealed.entries);
    if (order->file_path != NULL)
        order_file_published(order);
    return order->sealed.next;
}

bool order_write(struct run *run, struct diag_list *diags)
{
    order_seal_piece(run);
    uint64_t epoch = run->order->sealed.first; /* no checkpoints, so no epochs: any rising number */
    if (order_segment(run, epoch, diags).data == NULL)
        return false;
    (void)order_published(run);
    return true;
}

bool order_finish(struct run *run)
{
    const struct order *order = run->order;
    return order == NULL || order->file_path == NULL || run->barrier != NULL ||
           order->open.next == order->open.first || order_write(run, run->diags);
}

/* --- Beginning and end --- */

bool order_init(struct run *run)
{
    struct order *order = mem_calloc(1, sizeof(*order));
    run->order = order;
    order->file_fd = order->files.fd = -1;
    order->file_path = peers_is_leader(run) ? run->options.record_order : NULL;
    order->is_written =
        (run->barrier != NULL || order->file_path != NULL) && run->trace == NULL && peers_is_leader(run);
    return replay_log_choose(run);
}

bool order_begin(struct run *run, uint64_t first)
{
    struct order *order = run->order;
    order->first = order->sealed.next = first;
    return order->file_path == NULL || run_was_over(run) || order_file_open(run);
}

void order_free(struct run *run)
{
    struct order *order = run->order;
    if (order == NULL)
        return;
    replay_log_free(order);
    buffer_free(&order->open.partitions);
    buffer_free(&order->open.entries);
    buffer_free(&order->sealed.partitions);
    buffer_free(&order->sealed.entries);
    buffer_free(&order->segment);
    free(order->part_path);
    if (order->file_fd >= 0)
        close(order->file_fd);
    free(order);
    run->order = NULL;
}
