/* Makes and frees a model; each call. */
#include "learners/towers/towers.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/towers/internal.h"

#include <stdlib.h>

/* --- Making --- */

/* The options of the query tower, or of the item tower. */
static struct tower_options tower_of(const struct towers_options *o, bool is_item, struct catalogue *items)
{
    bool has_owner = !is_item && o->history > 0; /* an item's own vector goes with the item */
    return (struct tower_options){.kernels = o->kernels,
                                  .fields = is_item ? 1 + o->features : o->query_fields,
                                  .dim = o->dim,
                                  .has_layers = o->has_layers,
                                  .network = o->network,
                                  .normalize = o->normalize,
                                  .rows = o->rows,
                                  .dense = o->dense,
                                  .init = o->init,
                                  .clip_norm = o->clip_norm,
                                  .items = items,
                                  .expire_after_us = is_item || has_owner ? 0 : o->expire_after_us,
                                  .is_bounded = has_owner,
                                  .shards = o->shards,
                                  .seed = num_mix(o->seed ^ (is_item ? 0x17e3 : 0x93e2))};
}

size_t towers_step_bytes(const struct towers_options *o)
{
    /* items with their vectors, gradients, ids and rows; and pairs of a target and an item that it is compared with */
    enum { PLACE_BYTES = 72, PAIR_BYTES = 42 };
    size_t items = (size_t)o->batch * (1 + (size_t)o->losses.negatives), places = 1;
    size_t pairs = items + (o->losses.in_batch ? (size_t)o->batch * o->batch : 0);
    for (uint32_t f = 0; f < o->features; f++)
        places += o->is_list[f] ? o->list_max : 1;
    size_t floats = 2 * towers_width(o) + (1 + o->features) * o->dim;
    return items * (floats * sizeof(float) + places * PLACE_BYTES) + pairs * PAIR_BYTES;
}

void towers_plan(const struct towers_options *o, struct towers_plan *plan)
{
    struct tower_plan query, item;
    struct tower_options options = tower_of(o, false, NULL);
    tower_plan(&options, &query);
    options = tower_of(o, true, NULL);
    tower_plan(&options, &item);
    *plan = (struct towers_plan){.activations = query.activations + item.activations,
                                 .parameters = query.parameters + item.parameters,
                                 .scratch = query.scratch + item.scratch,
                                 .step = towers_step_bytes(o)};
}

/* Frequencies (negatives.h): an item is taken to be rare until it has occurred twice, and ten occurrences tell how often
 * it does. With slower estimates popular items count as rarer than they are, and what `correct` gains is lost. */
struct targets_options towers_targets(const struct towers_options *o)
{
    return (struct targets_options){.kernels = o->kernels,
                                    .batch = batch_beside(o->kernels),
                                    .loss = o->loss,
                                    .losses = o->losses,
                                    .dim = towers_width(o),
                                    .targets_max = o->batch,
                                    .draw = NEGATIVES_UNIFORM,
                                    .seed = num_mix(o->seed ^ 0x7a59),
                                    .rate = 0.1,
                                    .initial = 100000.0};
}

struct towers *towers_new(const struct towers_options *o)
{
    struct towers *t = mem_calloc(1, sizeof(*t));
    t->options = *o;
    t->watermark_us = TIME_MIN;
    leat_assert(o->batch > 0 && o->batch <= TOWERS_BATCH_MAX && o->features <= TOWERS_FEATURES_MAX);
    leat_assert(!o->loss->takes_all_items && o->list_max <= TOWERS_LIST_MAX);
    leat_assert(o->history <= TOWERS_HISTORY_MAX);
    towers_make_items(t);
    if (o->history > 0)
        towers_alike_make(t);
    struct tower_options query = tower_of(o, false, NULL), item = tower_of(o, true, t->items);
    tower_init(&t->query, &query);
    tower_init(&t->item, &item);
    struct targets_options targets = towers_targets(o);
    targets.popular = o->history > 0 ? &t->popular : NULL;
    t->targets = targets_create(&targets);
    t->queries = mem_calloc((size_t)TOWERS_CALL_MAX * t->query.width, sizeof(*t->queries));
    t->waiting = mem_calloc(o->batch, sizeof(*t->waiting));
    towers_step_begin(t);
    return t;
}

void towers_free(struct towers *t)
{
    if (t == NULL)
        return;
    targets_free(t->targets);
    tower_free(&t->query);
    tower_free(&t->item);
    catalogue_free(t->items);
    table_free(&t->about);
    towers_step_free(t);
    free(t->about_of), free(t->encoded_in), free(t->queries), free(t->waiting), free(t->waiting_ids);
    free(t->wanted);
    towers_alike_free(t);
    free(t);
}

void towers_set_team(struct towers *t, struct team *team)
{
    t->query.net.team = t->item.net.team = team;
    targets_set_team(t->targets, team);
}

/* --- Calls --- */

uint32_t towers_piece(const struct towers *t, const struct towers_event *events, uint32_t n)
{
    uint32_t room = t->options.batch - t->waiting_count, i = 0;
    uint32_t most = t->options.history > 0 ? 2 * t->options.history : 1; /* that an event adds to the step */
    for (; i < MIN(n, (uint32_t)TOWERS_CALL_MAX) && room > 0; i++)
        room -= MIN(room, events[i].teaches ? most : 0);
    return i;
}

static const uint64_t *call_ids(const void *of, uint32_t row, uint32_t field, uint32_t *count)
{
    const struct towers *t = of;
    const struct towers_ids *all = &t->call_ids[row];
    const uint64_t *ids = all->ids;
    for (uint32_t f = 0; f < field; f++)
        ids += all->counts[f];
    *count = all->counts[field];
    return ids;
}

static uint32_t call_seen(const void *of, uint32_t row)
{
    return ((const struct towers *)of)->call_seconds[row];
}

/* Where the query of event i comes from; false: there is none. */
static bool query_of(const struct towers *t, uint32_t i, struct towers_ids *ids, struct towers_seen *seen)
{
    if (t->options.history > 0)
        return towers_alike_ids(t, i, ids, seen);
    *ids = t->events[i].query;
    return true;
}

/* The queries of the call's events that are wanted. */
static void give_queries(struct towers *t, uint32_t n, const uint8_t *wants, struct towers_seen *seen)
{
    struct tower_source source = {.of = t, .ids = call_ids, .seen = call_seen};
    uint32_t count = 0, width = t->query.width;
    for (uint32_t i = 0; i < n; i++) {
        if (!wants[i] || !query_of(t, i, &t->call_ids[count], &seen[i]))
            continue;
        t->call_seconds[count] = history_seconds(t->events[i].time_us);
        seen[i].query = t->queries + (size_t)count++ * width;
    }
    if (count == 0)
        return;
    tower_bags(&t->query, count, &source);
    tower_look(&t->query);
    tower_encode(&t->query, 0, count, t->queries);
    for (uint32_t i = 0, at = 0; i < n && t->options.history > 0; i++)
        if (seen[i].query != NULL && tower_normalize(t->queries + (size_t)at++ * width, width) == 0.0F)
            seen[i].query = NULL; /* no step has had these items yet */
}

/* The item of an event: it may be new, and have other features. */
static void take_item(struct towers *t, const struct towers_event *e, uint32_t i, struct towers_seen *seen)
{
    struct items_ref *ref = &t->call_items[i];
    seen->is_known = catalogue_find(t->items, e->item.key, ref);
    seen->teaches = e->teaches && (seen->is_known || !t->options.is_listed);
    if (seen->teaches) {
        enum items_added added =
            catalogue_add(t->items, &e->item, history_seconds(e->time_us), (uint32_t)t->steps + 1, ref);
        seen->teaches = added == ITEMS_FOUND || added == ITEMS_NEW;
        t->unnumbered += !seen->teaches;
        if (added == ITEMS_NEW)
            towers_know(t, e->item.key, ref->number);
        if (seen->teaches && e->has_features)
            (void)towers_set_features(t, ref->number, &e->features);
    }
    seen->number = ref->number;
    t->call_teaches[i] = seen->teaches;
}

void towers_read(struct towers *t, const struct towers_event *events, uint32_t n, const uint8_t *wants,
                 struct towers_seen *seen)
{
    leat_assert(n <= TOWERS_CALL_MAX);
    t->events = events, t->events_count = n;
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = (struct towers_seen){0};
        take_item(t, &events[i], i, &seen[i]);
        if (t->options.history > 0)
            towers_alike_read(t, i, seen[i].is_known || seen[i].teaches);
        t->without_history += t->options.history > 0 && t->past_counts[i] == 0;
    }
    give_queries(t, n, wants, seen);
}

void towers_add_waiting(struct towers *t, uint64_t identity, struct items_ref item, uint32_t seconds,
                        const struct towers_ids *ids)
{
    leat_assert(t->waiting_count < t->options.batch);
    struct towers_waiting *w = &t->waiting[t->waiting_count++];
    size_t count = 0;
    *w = (struct towers_waiting){.identity = identity, .item = item, .seconds = seconds};
    for (uint32_t f = 0; f < t->options.query_fields; f++)
        count += w->counts[f] = ids->counts[f];
    if (t->waiting_ids_room < t->waiting_ids_count + count) {
        t->waiting_ids_room = MAX(2 * t->waiting_ids_room, t->waiting_ids_count + count);
        t->waiting_ids = mem_realloc(t->waiting_ids, t->waiting_ids_room * sizeof(*t->waiting_ids));
    }
    w->first = t->waiting_ids_count;
    if (count > 0)
        memcpy(t->waiting_ids + w->first, ids->ids, count * sizeof(*t->waiting_ids));
    t->waiting_ids_count += count;
}

void towers_take(struct towers *t)
{
    for (uint32_t i = 0; i < t->events_count; i++) {
        const struct towers_event *e = &t->events[i];
        if (t->call_teaches[i] && t->options.history > 0)
            towers_alike_take(t, i);
        else if (t->call_teaches[i])
            towers_add_waiting(t, e->identity, t->call_items[i], history_seconds(e->time_us), &e->query);
    }
    t->events_count = 0;
    if (t->waiting_count == t->options.batch)
        towers_step(t);
}

void towers_ask(struct towers *t, const struct towers_event *events, uint32_t n, const uint8_t *wants,
                struct towers_seen *seen)
{
    leat_assert(n <= TOWERS_CALL_MAX);
    t->events = events, t->events_count = 0;
    if (t->options.history > 0)
        histories_guests_begin(t->histories);
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = (struct towers_seen){0};
        if (t->options.history > 0)
            towers_alike_read(t, i, false);
    }
    give_queries(t, n, wants, seen);
    if (t->options.history > 0)
        histories_guests_end(t->histories);
}

void towers_set_watermark(struct towers *t, int64_t watermark_us)
{
    /* no row needs to be spared: the waiting events have copies of their ids, and ask whether their items are there */
    if (watermark_us < TIME_MAX) /* the end of input expires nothing, nor after a restore */
        t->watermark_us = MAX(t->watermark_us, watermark_us);
    for (uint32_t f = 0; f < t->options.query_fields; f++)
        table_set_watermark(&t->query.tables[f], watermark_us, TABLE_STEP_NONE);
    if (t->options.history > 0)
        histories_set_watermark(t->histories, watermark_us, TABLE_STEP_NONE);
    catalogue_set_watermark(t->items, watermark_us, TABLE_STEP_NONE);
}

void towers_set_rates(struct towers *t, float rows, float dense)
{
    t->options.rows.params.rate = rows;
    t->options.dense.params.rate = dense;
}

struct catalogue *towers_items(struct towers *t)
{
    return t->items;
}

struct towers_counts towers_counts(const struct towers *t)
{
    return (struct towers_counts){.steps = t->steps,
                                  .targets = t->targets_learned,
                                  .rejected = t->targets_rejected,
                                  .pending = t->waiting_count,
                                  .loss = t->loss};
}
