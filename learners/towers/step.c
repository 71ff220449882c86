/*
 * A step: the events that wait go through the query tower, their items and the drawn ones through the item tower, in
 * passes of some rows; the losses' gradients go back through both; then the rows and the layers make one step each.
 * Where there are several passes, an item is encoded a second time before its gradients go back, so that activations
 * need memory for one pass alone.
 */
#include "learners/towers/internal.h"

#include "core/mem.h"

#include <stdlib.h>

/* --- The events --- */

static const uint64_t *query_ids(const void *of, uint32_t row, uint32_t field, uint32_t *count)
{
    const struct towers *t = of;
    const struct towers_waiting *w = &t->waiting[row];
    const uint64_t *ids = t->waiting_ids + w->first;
    for (uint32_t f = 0; f < field; f++)
        ids += w->counts[f];
    *count = w->counts[field];
    return ids;
}

static uint32_t query_seen(const void *of, uint32_t row)
{
    return ((const struct towers *)of)->waiting[row].seconds;
}

/* Whether the event's item is there, and of a pair the first item, too, which is target n's center. */
static bool is_whole(struct towers *t, const struct towers_waiting *w, uint32_t n)
{
    struct items_ref ref;
    if (!catalogue_is_live(t->items, w->item))
        return false;
    if (t->options.history == 0)
        return true;
    bool is_there = catalogue_find(t->items, t->waiting_ids[w->first], &ref);
    t->centers[n] = is_there ? ref.number : 0;
    return is_there;
}

/* Leaves out the events whose items have gone. */
static uint32_t list_targets(struct towers *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->waiting_count; i++) {
        const struct towers_waiting *w = &t->waiting[i];
        if (!is_whole(t, w, n))
            continue;
        t->numbers[n] = w->item.number;
        t->identities[n] = w->identity;
        t->waiting[n++] = *w;
    }
    for (uint32_t i = 0; i < n; i++)
        t->weights[i] = 1.0F / (float)n;
    return n;
}

/* --- The items --- */

static void items_room(struct towers *t, uint32_t count)
{
    if (count <= t->items_room)
        return;
    t->items_room = MAX(count, 2 * t->items_room);
    size_t room = t->items_room, floats = room * t->item.width;
    t->item_vectors = mem_realloc(t->item_vectors, floats * sizeof(*t->item_vectors));
    t->item_gradients = mem_realloc(t->item_gradients, floats * sizeof(*t->item_gradients));
    t->item_rows = mem_realloc(t->item_rows, room * sizeof(*t->item_rows));
    t->item_taught = mem_realloc(t->item_taught, room * sizeof(*t->item_taught));
    t->item_ids = mem_realloc(t->item_ids, room * sizeof(*t->item_ids));
}

void towers_step_begin(struct towers *t)
{
    size_t batch = t->options.batch, floats = batch * t->query.width;
    t->numbers = mem_calloc(batch, sizeof(*t->numbers));
    t->identities = mem_calloc(batch, sizeof(*t->identities));
    t->weights = mem_calloc(batch, sizeof(*t->weights));
    t->vectors = mem_calloc(floats, sizeof(*t->vectors));
    t->gradients = mem_calloc(floats, sizeof(*t->gradients));
    t->losses = mem_calloc(batch, sizeof(*t->losses));
    t->is_rejected = mem_calloc(batch, sizeof(*t->is_rejected));
    t->taught = mem_calloc(batch, sizeof(*t->taught));
    items_room(t, TOWER_PASS);
}

void towers_step_free(struct towers *t)
{
    free(t->numbers), free(t->identities), free(t->weights), free(t->vectors), free(t->gradients);
    free(t->losses), free(t->is_rejected), free(t->taught);
    free(t->item_vectors), free(t->item_gradients), free(t->item_rows), free(t->item_taught);
    free(t->item_ids);
}

static void encode_items(struct towers *t, const uint32_t *items, uint32_t count)
{
    uint32_t width = t->item.width;
    items_room(t, count);
    towers_bring_items(t, items, count);
    tower_resolve(&t->item, (uint32_t)t->steps + 1);
    for (uint32_t from = 0; from < count; from += t->item.pass)
        tower_encode(&t->item, from, MIN(count - from, t->item.pass), t->item_vectors + (size_t)from * width);
    for (uint32_t u = 0; u < count; u++)
        t->item_rows[u] = t->item_vectors + (size_t)u * width;
}

static void back_items(struct towers *t, uint32_t count)
{
    uint32_t width = t->item.width;
    for (uint32_t from = 0; from < count; from += t->item.pass) {
        uint32_t n = MIN(count - from, t->item.pass);
        float *vectors = t->item_vectors + (size_t)from * width;
        if (count > t->item.pass)
            tower_encode(&t->item, from, n, vectors);
        tower_back(&t->item, from, n, vectors, t->item_gradients + (size_t)from * width);
    }
}

/* --- The step --- */

/* Which rows have a gradient: one of zeros teaches nothing, and moves nothing. */
static void find_taught(const float *gradients, uint32_t n, uint32_t width, uint8_t *taught)
{
    for (uint32_t i = 0; i < n; i++) {
        bool has_any = false;
        for (uint32_t c = 0; c < width && !has_any; c++)
            has_any = gradients[(size_t)i * width + c] != 0.0F;
        taught[i] = has_any;
    }
}

static void count_targets(struct towers *t, uint32_t n)
{
    double loss = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        loss += t->losses[i];
        t->targets_rejected += t->is_rejected[i];
    }
    t->targets_learned += n;
    t->loss = loss;
}

static void learn(struct towers *t, uint32_t n)
{
    struct targets_step step = {.queries = t->vectors,
                                .positives = t->numbers,
                                .weights = t->weights,
                                .identities = t->identities,
                                .count = n,
                                .time = t->targets_learned,
                                .query_gradients = t->gradients,
                                .losses = t->losses,
                                .is_rejected = t->is_rejected};
    struct tower_source source = {.of = t, .ids = query_ids, .seen = query_seen};
    uint32_t count;
    step.live = catalogue_live(t->items, &step.live_count);
    optimizer_begin_step(&t->options.rows, t->steps);
    optimizer_begin_step(&t->options.dense, t->steps);
    tower_bags(&t->query, n, &source);
    tower_resolve(&t->query, (uint32_t)t->steps + 1);
    tower_encode(&t->query, 0, n, t->vectors);
    targets_draw(t->targets, &step);
    const uint32_t *items = targets_items(t->targets, &count);
    encode_items(t, items, count);
    targets_gradients(t->targets, &step, t->item_rows);
    targets_item_gradients(t->targets, &step, t->item_gradients);
    find_taught(t->gradients, n, t->query.width, t->taught);
    find_taught(t->item_gradients, count, t->item.width, t->item_taught);
    tower_back(&t->query, 0, n, t->vectors, t->gradients);
    back_items(t, count);
    tower_update(&t->query, t->taught, &t->options.rows, &t->options.dense);
    tower_update(&t->item, t->item_taught, &t->options.rows, &t->options.dense);
    count_targets(t, n);
    if (t->options.history > 0)
        towers_encode_after(t, t->centers, n);
    else
        towers_encode_after(t, items, count);
}

void towers_step(struct towers *t)
{
    uint32_t n = list_targets(t);
    if (n > 0)
        learn(t, n);
    t->steps++;
    t->waiting_count = 0;
    t->waiting_ids_count = 0;
}
