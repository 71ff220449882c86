/* Exchanges: packets of batches from the instances of one stage to those of another, one packet per
 * micro-batch, producer and consumer.
 *
 * All packets of a run share a memory budget (base/spill.h). A batch that exceeds the budget is written to a
 * spill file at once, and read back when its consumer needs its rows: so a window that closes a million rows
 * in one micro-batch, or an unnest that fans out a thousandfold, costs disk, not memory. */
#include "run/lanes/internal.h"

#include "core/batch_codec.h"
#include "core/mem.h"
#include "run/base/peers.h"

#include <stdlib.h>

enum { UNITE_MAX = 16 }; /* views of one batch that can be united without comparing rows one by one */

void batch_list_add(struct batch_list *list, struct batch *batch)
{
    batch->next = NULL;
    if (list->first == NULL)
        list->first = batch;
    else
        list->last->next = batch;
    list->last = batch;
    list->count++;
}

void batch_list_release(struct batch_list *list)
{
    for (struct batch *batch = list->first, *next; batch != NULL; batch = next) {
        next = batch->next;
        batch_release(batch);
    }
    *list = (struct batch_list){0};
}

/* Over all workers. */
static uint32_t instances_of(const struct run *run, uint32_t stage)
{
    return run->plan->stages[stage].tag == STAGE_SINGLE ? 1 : peers_instances(run);
}

void exchange_init(struct run *run)
{
    const struct plan *plan = run->plan;
    run->lanes->exchanges = arena_array(&run->arena, struct exchange, MAX(plan->exchanges_count, 1));
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        struct exchange *x = &run->lanes->exchanges[i];
        x->plan = &plan->exchanges[i];
        bool is_dead = x->plan->from.output == PLAN_OUTPUT_DEAD;
        x->schema =
            is_dead ? &plan_dead_schema : plan->nodes[x->plan->from.node].outputs[x->plan->from.output];
        uint32_t own = run->stage_instances[x->plan->from_stage];
        x->producers = x->plan->from_stage == 0 ? peers_count(run) : instances_of(run, x->plan->from_stage);
        x->consumers = instances_of(run, x->plan->to_stage);
        x->taken = run->stage_instances[x->plan->to_stage];
        x->taken_first = x->consumers == 1 ? 0 : peers_first_instance(run);
        x->packets = mem_calloc((size_t)SLOTS * x->producers * MAX(x->taken, 1), sizeof(*x->packets));
        x->own_spills = own;
        x->spills_count = own + (peers_count(run) > 1 ? peers_count(run) : 0);
        x->spills = arena_array(&run->arena, struct spill_file, MAX(x->spills_count, 1));
        for (uint32_t k = 0; k < x->spills_count; k++)
            spill_init(&x->spills[k]);
        if (peers_count(run) > 1)
            x->sent = arena_array(&run->arena, struct packet_sent, (size_t)MAX(own, 1) * x->consumers);
    }
}

/* Frees the rows in a packet that its consumer has not taken. */
static void empty_packet(struct packet *packet)
{
    for (uint32_t i = 0; i < packet->count; i++) {
        batch_release(packet->entries[i].batch);
        free(packet->entries[i].bytes);
    }
    packet->count = packet->runs = 0;
    packet->bytes = 0;
}

static void free_packet(struct packet *packet)
{
    empty_packet(packet);
    free(packet->entries);
}

void exchange_free(struct run *run)
{
    for (uint32_t i = 0; run->lanes->exchanges != NULL && i < run->plan->exchanges_count; i++) {
        struct exchange *x = &run->lanes->exchanges[i];
        for (size_t k = 0; x->packets != NULL && k < (size_t)SLOTS * x->producers * x->taken; k++)
            free_packet(&x->packets[k]);
        free(x->packets);
        for (uint32_t k = 0; x->spills != NULL && k < x->spills_count; k++)
            spill_free(&x->spills[k]);
    }
}

struct packet *exchange_packet(struct exchange *x, uint64_t micro_batch, uint32_t producer, uint32_t consumer)
{
    return &x->packets[((micro_batch & (SLOTS - 1)) * x->producers + producer) * x->taken + consumer];
}

struct packet_entry *exchange_entry(struct packet *packet)
{
    if (packet->count == packet->capacity) {
        packet->capacity = MAX(4, packet->capacity * 2);
        packet->entries = mem_realloc(packet->entries, packet->capacity * sizeof(*packet->entries));
    }
    return &packet->entries[packet->count];
}

/* --- Spilling --- */

/* Writes the batch to the spill file, and its offset and length in the file to `entry`. Returns false after
 * an error, which stops the run. */
static bool spill(struct run *run, struct spill_file *file, const struct batch *batch,
                  struct packet_entry *entry)
{
    struct byte_buffer bytes = {0};
    batch_write(batch, &bytes);
    *entry = (struct packet_entry){.spill_bytes = bytes.length};
    bool is_good = spill_write(run, file, (struct str){bytes.data, bytes.length}, &entry->spill_offset);
    buffer_free(&bytes);
    return is_good;
}

/* Whether the batch of another worker has rows, and the first of them is the consumer's by its key. (A look at each row would
 * cost as much as the key's hash in the operator; what is sent to a wrong place is so as a whole.) */
static bool is_for(const struct exchange *x, const struct placement *placement, uint32_t consumer,
                   const struct batch *batch)
{
    struct key key;
    if (batch->selected == 0)
        return false;
    if (x->consumers == 1 || x->plan->mode != EXCHANGE_HASH)
        return true;
    struct batch first = *batch;
    uint16_t sel[] = {(uint16_t)batch_row(batch, 0)};
    first.sel = sel;
    first.selected = 1;
    key_encode(&first, x->plan->key_columns, x->plan->key_count, &key, NULL);
    return placement_instance(placement, key_hash(key)) == consumer;
}

/* Of another worker. NULL after an error, which stops the run. */
static struct batch *unpack(const struct fan_in *fan_in, const struct exchange *x, struct packet_entry *entry)
{
    struct run *run = fan_in->run;
    struct batch *batch =
        batch_read(run->pool, x->schema, (struct str){entry->bytes, entry->spill_bytes}, PARTITIONS_MAX);
    free(entry->bytes);
    entry->bytes = NULL;
    if (batch != NULL && is_for(x, fan_in->placement, x->taken_first + fan_in->local, batch))
        return batch;
    batch_release(batch);
    remote_damaged(run, x);
    return NULL;
}

/* NULL after an error, which stops the run. */
static struct batch *unspill(const struct fan_in *fan_in, struct exchange *x,
                             const struct packet_entry *entry)
{
    struct run *run = fan_in->run;
    struct spill_file *file = &x->spills[entry->spill_file];
    char *data = mem_alloc(entry->spill_bytes);
    size_t got;
    struct batch *batch = NULL;
    bool is_read = spill_read(run, file, entry->spill_offset, entry->spill_bytes, data, &got);
    if (is_read && got == entry->spill_bytes)
        batch = batch_read(run->pool, x->schema, (struct str){data, got}, PARTITIONS_MAX);
    if (is_read && batch == NULL)
        spill_damaged(run, entry->spill_offset, entry->spill_bytes, "batch of the stream's rows");
    free(data);
    spill_done(file);
    if (batch == NULL || entry->spill_file < x->own_spills ||
        is_for(x, fan_in->placement, x->taken_first + fan_in->local, batch))
        return batch;
    batch_release(batch);
    remote_damaged(run, x);
    return NULL;
}

/* --- Pushing --- */

/* Adds the batch to the packet, in memory, where it counts as so many bytes, or spilled. Takes over the caller's reference to the
 * batch. */
static void add_entry(struct exchange *x, struct stage_instance *from, uint32_t producer, uint32_t consumer,
                      struct batch *batch, size_t bytes)
{
    struct run *run = from->run;
    struct packet *packet = exchange_packet(x, from->slot->micro_batch, producer, consumer);
    struct packet_entry *entry = exchange_entry(packet);
    struct row_order first = batch_order(batch, batch_row(batch, 0));
    if (packet->count == 0 || row_order_compare(&packet->last, &first) > 0)
        packet->runs++;
    packet->last = batch_order(batch, batch_row(batch, batch->selected - 1));
    if (!spill_take_room(run, bytes)) {
        bool is_spilled = spill(run, &x->spills[from->local], batch, entry);
        entry->spill_file = from->local;
        batch_release(batch);
        if (!is_spilled)
            return;
    } else {
        *entry = (struct packet_entry){.batch = batch};
        packet->bytes += bytes;
    }
    entry->run = packet->runs - 1;
    packet->count++;
}

/* Gives the batch to a consumer, by its number over all workers. bytes: of memory, which it holds while it waits here. Takes over the
 * caller's reference to the batch. */
static void give_to(struct exchange *x, struct stage_instance *from, uint32_t producer, uint32_t consumer,
                    struct batch *batch, size_t bytes)
{
    if (likely(consumer - x->taken_first < x->taken)) {
        add_entry(x, from, producer, consumer - x->taken_first, batch, bytes);
        return;
    }
    remote_push(x, from, producer, consumer, batch);
    batch_release(batch);
}

static void push_by_key(struct exchange *x, struct stage_instance *from, uint32_t producer,
                        struct batch *batch)
{
    struct key keys[BATCH_ROWS];
    uint32_t lanes[BATCH_ROWS];
    uint32_t counts[PLACEMENT_INSTANCES_MAX] = {0};
    const struct placement *placement = from->slot->placement;
    struct exchange_load *load = x->load == NULL ? NULL : &x->load[from->local];
    leat_assert(x->consumers == placement->instances);
    key_encode(batch, x->plan->key_columns, x->plan->key_count, keys, NULL);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t group = key_group(key_hash(keys[i]));
        lanes[i] = placement->instance[group];
        counts[lanes[i]]++;
        if (load != NULL)
            atomic_store_explicit(&load->rows[group],
                                  atomic_load_explicit(&load->rows[group], memory_order_relaxed) + 1,
                                  memory_order_relaxed);
    }
    if (load != NULL)
        load_vote(x, load, batch, keys);
    struct batch *views[PLACEMENT_INSTANCES_MAX];
    uint16_t *sels[PLACEMENT_INSTANCES_MAX];
    for (uint32_t lane = 0; lane < x->consumers; lane++) {
        if (counts[lane] == 0)
            continue;
        views[lane] = batch_derive(batch, batch->schema);
        sels[lane] = arena_alloc(&views[lane]->arena, counts[lane] * sizeof(uint16_t));
        views[lane]->sel = sels[lane];
        views[lane]->selected = counts[lane];
    }
    for (uint32_t i = 0; i < batch->selected; i++)
        *sels[lanes[i]]++ = (uint16_t)batch_row(batch, i);
    size_t taken = 0; /* rows that stay here: each holds its part of the batch, however few they are */
    for (uint32_t lane = x->taken_first; lane < x->taken_first + x->taken; lane++)
        taken += counts[lane];
    size_t held = batch_held_bytes(batch);
    for (uint32_t lane = 0; lane < x->consumers; lane++)
        if (counts[lane] > 0)
            give_to(x, from, producer, lane, views[lane], held * counts[lane] / MAX(taken, 1));
}

void exchange_push(struct exchange *x, struct stage_instance *from, struct batch *batch)
{
    uint32_t producer = from->index == 0 ? peers_self(from->run) : from->instance;
    leat_assert(producer < x->producers && batch->selected > 0);
    if (x->consumers > 1 && x->plan->mode == EXCHANGE_HASH) {
        push_by_key(x, from, producer, batch);
        return;
    }
    /* Rows of stage 0 stay on their worker. */
    bool is_spread = from->index == 0 && x->consumers > 1;
    uint32_t consumer = is_spread ? x->taken_first + (uint32_t)(from->slot->micro_batch % x->taken)
                                  : from->instance % x->consumers;
    batch_hold(batch);
    give_to(x, from, producer, consumer, batch, batch_held_bytes(batch));
}

/* --- Taking: merges the rows of packets by row_order --- */

/* One run of one packet: its entries with packet_entry.run = run, whose rows are in row_order. */
struct fan_in_input {
    struct exchange *exchange;
    uint32_t run;
    struct packet *packet;
    uint32_t next;       /* index of the next entry */
    struct batch *batch; /* batch of the current entry */
    uint32_t at;         /* selected index of the current row in `batch` */
    struct row_order order;
};

static void load_entry(struct fan_in *fan_in, struct fan_in_input *input)
{
    struct packet *packet = input->packet;
    while (input->next < packet->count && packet->entries[input->next].run != input->run)
        input->next++;
    input->batch = NULL;
    input->at = 0;
    if (input->next == packet->count)
        return;
    struct packet_entry *entry = &packet->entries[input->next++];
    input->batch = entry->batch != NULL   ? entry->batch
                   : entry->bytes != NULL ? unpack(fan_in, input->exchange, entry)
                                          : unspill(fan_in, input->exchange, entry);
    entry->batch = NULL;
}

static void load_order(struct fan_in_input *input)
{
    if (input->batch != NULL)
        input->order = batch_order(input->batch, batch_row(input->batch, input->at));
}

void fan_in_open(struct node_instance *node, uint32_t input, struct fan_in *fan_in)
{
    struct stage_instance *stage = node->stage;
    *fan_in = (struct fan_in){.run = stage->run, .placement = stage->slot->placement, .local = stage->local};
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->exchanges_count[input]; i++)
        for (uint32_t p = 0; p < node->exchanges[input][i]->producers; p++)
            count +=
                exchange_packet(node->exchanges[input][i], stage->slot->micro_batch, p, stage->local)->runs;
    fan_in->inputs = arena_array(&stage->number_arena, struct fan_in_input, count);
    for (uint32_t i = 0; i < node->exchanges_count[input]; i++) {
        struct exchange *x = node->exchanges[input][i];
        fan_in->schema = x->schema;
        for (uint32_t p = 0; p < x->producers; p++) {
            struct packet *packet = exchange_packet(x, stage->slot->micro_batch, p, stage->local);
            for (uint32_t run = 0; run < packet->runs; run++) {
                struct fan_in_input *in = &fan_in->inputs[fan_in->count++];
                *in = (struct fan_in_input){.exchange = x, .run = run, .packet = packet};
                load_entry(fan_in, in);
                load_order(in);
            }
        }
    }
}

/* Call when all rows were read, or some cannot be read and the run has failed: empties the packets. */
static void close_fan_in(struct fan_in *fan_in)
{
    for (uint32_t i = 0; i < fan_in->count; i++) {
        struct packet *packet = fan_in->inputs[i].packet;
        spill_give_room(fan_in->run, packet->bytes);
        empty_packet(packet);
    }
    fan_in->count = 0;
}

/* The input whose current row is first in row_order; of inputs with equal rows the one with the lower index.
 * *alive: the number of inputs that have rows left. */
static struct fan_in_input *first_input(struct fan_in *fan_in, uint32_t *alive)
{
    struct fan_in_input *best = NULL;
    *alive = 0;
    for (uint32_t i = 0; i < fan_in->count; i++) {
        struct fan_in_input *in = &fan_in->inputs[i];
        if (in->batch == NULL)
            continue;
        ++*alive;
        if (best == NULL || row_order_compare(&in->order, &best->order) < 0)
            best = in;
    }
    return best;
}

/* The rest of the input's current batch, without copying rows. */
static struct batch *take_rest(struct fan_in *fan_in, struct fan_in_input *input)
{
    struct batch *batch = input->batch;
    if (input->at > 0) {
        struct batch *rest = batch_derive(batch, batch->schema);
        uint16_t *sel = arena_alloc(&rest->arena, batch->selected * sizeof(*sel));
        rest->selected = 0;
        for (uint32_t i = input->at; i < batch->selected; i++)
            sel[rest->selected++] = (uint16_t)batch_row(batch, i);
        rest->sel = sel;
        batch_release(batch);
        batch = rest;
    }
    load_entry(fan_in, input);
    load_order(input);
    return batch;
}

/* Whether all rows of the input behind its current batch are known to come after `last`. */
static bool goes_on_after(const struct fan_in_input *input, const struct row_order *last)
{
    const struct packet *packet = input->packet;
    uint32_t next = input->next;
    while (next < packet->count && packet->entries[next].run != input->run)
        next++;
    if (next == packet->count)
        return true;
    const struct batch *batch = packet->entries[next].batch; /* NULL: spilled */
    if (batch == NULL)
        return false;
    struct row_order order = batch_order(batch, batch_row(batch, 0));
    return row_order_compare(&order, last) > 0;
}

/* Joins the views into which push_by_key has split one batch, and which now lie in several inputs, to one
 * batch again. Only if no row of another batch comes between their rows; else returns NULL, and the rows must
 * be merged one by one. */
static struct batch *unite(struct fan_in *fan_in, const struct fan_in_input *first)
{
    struct fan_in_input *inputs[UNITE_MAX];
    struct batch *views[UNITE_MAX];
    uint32_t from[UNITE_MAX], count = 0;
    for (uint32_t i = 0; i < fan_in->count; i++) {
        struct fan_in_input *in = &fan_in->inputs[i];
        if (in->batch == NULL || !batch_are_same_rows(in->batch, first->batch))
            continue;
        if (count == UNITE_MAX)
            return NULL;
        inputs[count] = in;
        views[count] = in->batch;
        from[count++] = in->at;
    }
    if (count == 1)
        return NULL;
    uint32_t last_row = 0;
    for (uint32_t k = 0; k < count; k++)
        last_row = MAX(last_row, batch_row(views[k], views[k]->selected - 1));
    struct row_order last = batch_order(first->batch, last_row);
    for (uint32_t i = 0; i < fan_in->count; i++) {
        const struct fan_in_input *in = &fan_in->inputs[i];
        bool is_part = in->batch != NULL && batch_are_same_rows(in->batch, first->batch);
        if (in->batch != NULL &&
            (is_part ? !goes_on_after(in, &last) : row_order_compare(&in->order, &last) <= 0))
            return NULL;
    }
    struct batch *united = batch_unite(views, from, count);
    for (uint32_t k = 0; united != NULL && k < count; k++) {
        batch_release(views[k]);
        load_entry(fan_in, inputs[k]);
        load_order(inputs[k]);
    }
    return united;
}

struct batch *fan_in_next(struct fan_in *fan_in)
{
    uint32_t alive;
    struct fan_in_input *input = first_input(fan_in, &alive);
    if (input == NULL) {
        close_fan_in(fan_in);
        return NULL;
    }
    if (alive == 1)
        return take_rest(fan_in, input);
    struct batch *united = unite(fan_in, input);
    if (united != NULL)
        return united;
    struct batch *sources[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    struct batch *drained[BATCH_ROWS];
    uint32_t count = 0, drained_count = 0;
    while (count < BATCH_ROWS && alive > 1) {
        sources[count] = input->batch;
        rows[count++] = (uint16_t)batch_row(input->batch, input->at);
        if (++input->at == input->batch->selected) {
            drained[drained_count++] = input->batch;
            load_entry(fan_in, input);
        }
        load_order(input);
        input = first_input(fan_in, &alive);
    }
    struct batch *merged = batch_merge(fan_in->run->pool, fan_in->schema, sources, rows, count);
    for (uint32_t i = 0; i < drained_count; i++)
        batch_release(drained[i]);
    return merged;
}
