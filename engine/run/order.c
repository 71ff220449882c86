#include "run/order.h"

#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* --- What was decided
 * ---------------------------------------------------------------------------------------------- */

static void put_partition(struct run *run, const struct partition *p, enum order_tag tag,
                          struct byte_buffer *out)
{
    const struct plan_node *node = &run->plan->nodes[run->plan->sources[p->source]];
    struct order_partition entry = {.id = p->id,
                                    .source = node->name,
                                    .name = sequencer_partition_name(run, p),
                                    .records = p->records,
                                    .time = p->order_max,
                                    .has_ended = p->is_over};
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

void order_added(struct run *run, struct partition *p)
{
    p->order_logged = p->order_max;
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
        for (; i < slot->slices_count && slot->slices[i].partition == p;
             i++) /* of several batches, obeying */
            records += slot->slices[i].end - slot->slices[i].begin;
        order_put_slice(&open->entries, p->id, records, p->order_max, p->order_logged);
        p->order_logged = p->order_max;
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
    } else { /* of a checkpoint that was abandoned */
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

/* --- The order file
 * ------------------------------------------------------------------------------------------------ */

static bool file_failed(struct run_order *order, int error, const char *what, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, error == ENOSPC || error == EDQUOT ? DIAG_E0608 : DIAG_E0605,
                                (struct span){0}, "the order log `%s` cannot be %s", order->file_path, what);
    diag_errno(diags, d, error);
    diag_hint(diags, d, "mend the cause, or run without --record-order");
    return false;
}

/* Behind what is published; a part that is there from an attempt that failed goes. */
static bool file_append(struct run_order *order, struct diag_list *diags)
{
    int error = ftruncate(order->file_fd, (off_t)order->file_end) == 0 ? 0 : errno;
    if (error == 0)
        error = os_pwrite_all(order->file_fd, order->segment.data, order->segment.length, order->file_end,
                              "sink.write");
    if (error == 0)
        error = os_fsync(order->file_fd, "sink.fsync");
    return error == 0 || file_failed(order, error, "written", diags);
}

static bool file_is_short(struct run *run, uint64_t next)
{
    struct diag *d =
        diag_error(run->diags, DIAG_E0603, (struct span){0},
                   "the order log `%s` has the numbers up to %llu, and the run goes on at %llu",
                   run->order->file_path, (unsigned long long)next, (unsigned long long)run->sequencer.first);
    diag_hint(run->diags, d, "name the file that this run has written so far, or run without --record-order");
    return false;
}

/* A resume keeps the segments up to its checkpoint. */
static bool file_resume(struct run *run)
{
    struct run_order *order = run->order;
    uint64_t next = 0;
    while (next < run->sequencer.first) {
        char text[ORDER_HEAD_BYTES];
        size_t got = 0;
        struct order_head head;
        int error = os_pread_all(order->file_fd, text, sizeof(text), order->file_end, &got);
        if (error != 0)
            return file_failed(order, error, "read", run->diags);
        if (order_head_read((struct str){text, got}, &head) != NULL || head.first != next ||
            head.next > run->sequencer.first || head.next == next)
            return file_is_short(run, next);
        next = head.next;
        order->file_end += order_segment_bytes(&head);
    }
    return true;
}

static bool file_open(struct run *run)
{
    struct run_order *order = run->order;
    bool may_exist = run->is_resumed || run->replaces_parts;
    order->file_fd = open(order->file_path, O_RDWR | O_CREAT | O_CLOEXEC | (may_exist ? 0 : O_EXCL), 0666);
    if (order->file_fd < 0 && errno == EEXIST) {
        struct diag *d = diag_error(run->diags, DIAG_E0606, (struct span){0},
                                    "the order log `%s` exists already", order->file_path);
        diag_hint(run->diags, d, "remove it, or give --record-order another name");
        return false;
    }
    if (order->file_fd < 0)
        return file_failed(order, errno, "opened", run->diags);
    return file_resume(run);
}

struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags)
{
    struct run_order *order = run->order;
    const struct order_piece *sealed = &order->sealed;
    struct order_head head = {.epoch = epoch, .first = sealed->first, .next = sealed->next};
    buffer_clear(&order->segment);
    order_seal(&head, text_of(&sealed->partitions), text_of(&sealed->entries), (struct str){"", 0},
               sealed->slices, sealed->records, &order->segment);
    if (order->file_path != NULL && !file_append(order, diags))
        return (struct str){NULL, 0};
    return text_of(&order->segment);
}

void order_published(struct run *run)
{
    struct run_order *order = run->order;
    buffer_clear(&order->sealed.entries);
    if (order->file_path != NULL)
        order->file_end += order->segment.length;
}

/* Without checkpoints nothing is published: each segment stands when it is written. */
static bool file_segment(struct run *run, struct diag_list *diags)
{
    order_barrier(run);
    uint64_t epoch = run->order->sealed.first; /* there are none: rising is enough */
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

/* --- Beginning and end
 * --------------------------------------------------------------------------------------------- */

bool order_init(struct run *run)
{
    struct run_order *order = calloc(1, sizeof(*order));
    leat_assert(order != NULL);
    run->order = order;
    order->file_fd = order->script.fd = -1;
    order->file_path = run->options.record_order;
    order->is_written = run->checkpoints != NULL || order->file_path != NULL;
    return obey_init(run);
}

bool order_begin(struct run *run)
{
    struct run_order *order = run->order;
    for (uint32_t i = 0; i < run->sequencer.partitions_count; i++)
        run->sequencer.partitions[i].order_logged = run->sequencer.partitions[i].order_max;
    if (order->is_written)
        piece_begin(run, &order->open, run->sequencer.first);
    return order->file_path == NULL || run->was_finished || file_open(run);
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
    if (order->file_fd >= 0)
        close(order->file_fd);
    free(order);
    run->order = NULL;
}
