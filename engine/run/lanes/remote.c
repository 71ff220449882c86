/* Rows that go to instances of other workers, and come from these. A message has a batch; its receiver puts it into the packet of
 * its micro-batch, as bytes, which are counted and spilled as the lanes' own are, and the lane that takes the packet reads the batch. A sender's word that it has run the micro-batch
 * (PEER_DONE) comes behind its rows. */
#include "run/lanes/internal.h"

#include "core/batch_codec.h"
#include "core/mem.h"
#include "run/base/peers.h"

#include <stdlib.h>

static uint32_t worker_of(const struct run *run, const struct exchange *x, uint32_t consumer)
{
    return x->consumers == 1 ? peers_home(run, x->plan->to_stage) : consumer / run->lanes_count;
}

void remote_push(struct exchange *x, struct stage_instance *from, uint32_t producer, uint32_t consumer,
                 const struct batch *batch)
{
    struct run *run = from->run;
    struct packet_sent *sent = &x->sent[from->local * x->consumers + consumer];
    struct row_order first = batch_order(batch, batch_row(batch, 0));
    if (sent->micro_batch != from->slot->micro_batch || sent->count == 0)
        *sent = (struct packet_sent){.micro_batch = from->slot->micro_batch};
    if (sent->count == 0 || row_order_compare(&sent->last, &first) > 0)
        sent->runs++;
    sent->count++;
    sent->last = batch_order(batch, batch_row(batch, batch->selected - 1));
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_ROWS);
    words_put(&message, (uint64_t)(x - run->lanes->exchanges));
    words_put(&message, from->slot->micro_batch);
    words_put(&message, producer);
    words_put(&message, consumer);
    words_put(&message, sent->runs - 1);
    batch_write(batch, &message);
    peers_post(run, worker_of(run, x, consumer), &message);
    buffer_free(&message);
}

/* The worker whose instance of the stage is the producer, by its number in packets. */
static uint32_t worker_of_producer(const struct run *run, const struct exchange *x, uint32_t producer)
{
    uint32_t stage = x->plan->from_stage;
    return stage == 0                                     ? producer
           : run->plan->stages[stage].tag == STAGE_SINGLE ? peers_home(run, stage)
                                                          : producer / run->lanes_count;
}

/* Whether the consumer's packets of the micro-batch are empty or of that micro-batch: it has run the slot's earlier one. That it
 * has not run this one follows from the producer's turn, for which it waits. */
static bool has_room(struct run *run, const struct exchange *x, uint32_t local, uint64_t micro_batch)
{
    const struct stage_instance *to = lanes_instance(run, x->plan->to_stage, local);
    return micro_batch < atomic_load_explicit(&to->next, memory_order_acquire) + SLOTS;
}

/* Keeps the rows that came from a worker, in memory or spilled. False: they are no rows of the exchange. What is spilled is read once
 * before, so that bytes which come back otherwise are the disk's. */
static bool keep(struct run *run, struct exchange *x, uint32_t worker, struct str rows,
                 struct packet_entry *entry, size_t *in_memory)
{
    entry->spill_bytes = rows.length;
    if (spill_take_room(run, rows.length)) {
        *in_memory += rows.length;
        entry->bytes = mem_alloc(rows.length);
        memcpy(entry->bytes, rows.data, rows.length);
        return true;
    }
    struct batch *batch = batch_read(run->pool, x->schema, rows, PARTITIONS_MAX);
    if (batch == NULL)
        return false;
    batch_release(batch);
    entry->spill_file = x->own_spills + worker;
    return spill_write(run, &x->spills[entry->spill_file], rows, &entry->spill_offset);
}

bool lanes_receive(struct run *run, uint32_t worker, struct words *message)
{
    uint64_t index = words_take(message), micro_batch = words_take(message), producer = words_take(message),
             consumer = words_take(message), in_run = words_take(message);
    if (message->is_short || message->left.length == 0 || index >= run->plan->exchanges_count)
        return false;
    struct exchange *x = &run->lanes->exchanges[index];
    uint64_t local = consumer - x->taken_first;
    if (producer >= x->producers || worker_of_producer(run, x, (uint32_t)producer) != worker ||
        local >= x->taken ||
        !peers_is_in_turn(run, x->plan->from_stage, worker, sequencer_first(run), micro_batch) ||
        !has_room(run, x, (uint32_t)local, micro_batch))
        return false;
    struct packet *packet = exchange_packet(x, micro_batch, (uint32_t)producer, (uint32_t)local);
    if (in_run > packet->runs || in_run + 1 < packet->runs)
        return false;
    struct packet_entry *entry = exchange_entry(packet);
    *entry = (struct packet_entry){.run = (uint32_t)in_run};
    if (!keep(run, x, worker, message->left, entry, &packet->bytes))
        return run_has_failed(run);
    packet->runs = MAX(packet->runs, (uint32_t)in_run + 1);
    packet->count++;
    return true;
}

void remote_damaged(struct run *run, const struct exchange *x)
{
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d =
        diag_error(run->diags, DIAG_FILE_DAMAGED, (struct span){0},
                   "rows that another worker sent from stage %u to stage %u are no rows of this job",
                   x->plan->from_stage, x->plan->to_stage);
    diag_hint(run->diags, d, "start all workers with the same job and the same version of leat");
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}
