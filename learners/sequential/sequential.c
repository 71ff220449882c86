/* Makes and frees a model; each call; what is saved of it beside its tables. */
#include "learners/sequential/internal.h"
#include "learners/sequential/values.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

/* --- Making --- */

void sequential_plan(const struct sequential_options *options, struct sequential_plan *plan)
{
    struct sequential *s = mem_calloc(1, sizeof(*s));
    size_t tokens = (size_t)options->batch * (1 + options->rehearse) * options->history;
    tokens *= options->masked_share > 0.0 ? 2 : 1;
    size_t row = options->dim * sizeof(float);
    s->options = *options;
    sequential_shape_net(s);
    *plan = (struct sequential_plan){.input = s->memory.parts[TRAIN_INPUT],
                                     .activations = s->memory.parts[TRAIN_ACTIVATIONS],
                                     .parameters = s->memory.parts[TRAIN_PARAMETERS],
                                     .scratch = s->memory.parts[TRAIN_SCRATCH]};
    /* tokens with their gradients; each may be a target, with its query and that one's gradient */
    plan->step = tokens * (sizeof(struct history_entry) + row + 8) + tokens * (2 * row + 40);
    if (options->device != NULL)
        plan->pinned = s->memory.parts[TRAIN_INPUT] +
                       s->pass_rows * (s->net.input->stride + s->net.output->stride) * sizeof(float);
    struct targets_options targets = sequential_targets(options);
    plan->step += targets_plan(&targets);
    tokens = (size_t)SEQUENTIAL_CALL_MAX * options->history;
    plan->call = tokens * (sizeof(struct history_entry) + sizeof(uint32_t));
    free(s->net.second);
    free(s);
}

static void forget(void *of, uint32_t number);

static struct catalogue *make_catalogue(struct sequential *s, uint32_t number, uint32_t numbers_max,
                                        int64_t expire_after_us)
{
    const struct sequential_options *o = &s->options;
    return catalogue_create(&(struct catalogue_options){.kernels = o->kernels,
                                                        .dim = o->dim,
                                                        .optimizer = o->rows,
                                                        .init = o->init,
                                                        .numbers_max = numbers_max,
                                                        .expire_after_us = expire_after_us,
                                                        .shards = o->shards,
                                                        .seed = num_mix(o->seed + 0x17e5 + number),
                                                        .removed = number == 0 ? forget : NULL,
                                                        .removed_of = s});
}

static void forget(void *of, uint32_t number)
{
    const struct sequential *s = of;
    targets_forget(s->targets, number);
    if (s->options.removed != NULL)
        s->options.removed(s->options.removed_of, number);
}

static void make_rows(struct sequential *s)
{
    const struct sequential_options *o = &s->options;
    struct histories_options histories = {.history = o->history,
                                          .sides = o->sides + o->marks,
                                          .expire_after_us = o->expire_after_us,
                                          .shards = o->shards,
                                          .seed = num_mix(o->seed ^ 0x4157)};
    s->histories = histories_create(&histories);
    s->items = make_catalogue(s, 0, o->items_max, o->expire_after_us);
    for (uint32_t k = 0; k < o->sides; k++)
        s->sides[k] = make_catalogue(s, 1 + k, SEQUENTIAL_VALUES_MAX, 0);
    for (uint32_t k = 0; k < o->contexts; k++)
        s->contexts[k] = make_catalogue(s, 1 + SEQUENTIAL_SIDES_MAX + k, SEQUENTIAL_VALUES_MAX, 0);
}

struct sequential *sequential_new(const struct sequential_options *options)
{
    struct sequential *s = mem_calloc(1, sizeof(*s));
    s->options = *options;
    s->watermark_us = TIME_MIN;
    leat_assert(options->batch > 0 && options->batch <= SEQUENTIAL_BATCH_MAX && options->history > 0);
    sequential_make_net(s);
    s->offsets = mem_calloc(s->pass_windows + 1, sizeof(*s->offsets));
    s->seconds = mem_calloc(s->pass_rows, sizeof(*s->seconds));
    s->identities = mem_calloc(s->pass_windows, sizeof(*s->identities));
    s->keys = mem_calloc(SEQUENTIAL_CALL_MAX, sizeof(*s->keys));
    s->views = mem_calloc(SEQUENTIAL_CALL_MAX, sizeof(*s->views));
    s->queries = mem_calloc((size_t)SEQUENTIAL_CALL_MAX * options->dim, sizeof(*s->queries));
    make_rows(s);
    sequential_masks_make(s);
    struct targets_options targets = sequential_targets(options);
    s->targets = targets_create(&targets);
    s->values = values_new(batch_beside(options->kernels), options->dim);
    return s;
}

struct targets_options sequential_targets(const struct sequential_options *o)
{
    uint64_t windows = (uint64_t)o->batch * (o->passes > 0 ? 1 : 1 + o->rehearse), most = o->batch;
    if (o->passes > 0)
        most *= MAX(o->history - 1, 1U);
    else
        most *= 1 + (uint64_t)o->rehearse * (o->history - 1);
    most += windows * sequential_masked_targets(o);
    return (struct targets_options){.kernels = o->kernels,
                                    .batch = batch_beside(o->kernels),
                                    .loss = o->loss,
                                    .losses = o->losses,
                                    .dim = o->dim,
                                    .targets_max = (uint32_t)MIN(most, (uint64_t)UINT32_MAX),
                                    .draw = NEGATIVES_UNIFORM,
                                    .seed = num_mix(o->seed ^ 0x7a59),
                                    .rate = 0.01,
                                    .initial = 1000.0};
}

void sequential_free(struct sequential *s)
{
    if (s == NULL)
        return;
    sequential_cache_free(s);
    targets_free(s->targets);
    values_free(s->values);
    histories_free(s->histories);
    catalogue_free(s->items);
    for (uint32_t k = 0; k < SEQUENTIAL_SIDES_MAX; k++)
        catalogue_free(s->sides[k]);
    for (uint32_t k = 0; k < SEQUENTIAL_CONTEXTS_MAX; k++)
        catalogue_free(s->contexts[k]);
    sequential_step_free(s);
    windows_free(&s->call);
    windows_free(&s->pending);
    windows_free(&s->unlabelled);
    sequential_masks_free(s);
    free(s->offsets), free(s->seconds), free(s->identities);
    free(s->keys), free(s->views), free(s->queries), free(s->history_numbers);
    free(s->passes.users);
    sequential_free_net(s);
    free(s);
}

void sequential_set_team(struct sequential *s, struct team *team)
{
    s->net.team = s->options.device == NULL ? team : NULL;
    targets_set_team(s->targets, team);
}

/* --- Calls --- */

uint32_t sequential_piece(const struct sequential *s, const struct sequential_event *events, uint32_t n)
{
    if (s->options.passes > 0) /* no step is made while events come */
        return MIN(n, (uint32_t)SEQUENTIAL_CALL_MAX);
    uint32_t room = s->options.batch - s->pending.count - s->unlabelled.count, i = 0;
    for (; i < MIN(n, (uint32_t)SEQUENTIAL_CALL_MAX) && room > 0; i++)
        room -= events[i].teaches;
    return i;
}

void sequential_give_queries(struct sequential *s, uint32_t n, const uint8_t *wants,
                             struct sequential_seen *seen)
{
    sequential_encode(s, &s->call, wants, s->queries);
    for (uint32_t i = 0; i < n; i++)
        if (wants[i] && seen[i].length > 0)
            seen[i].query = s->queries + (size_t)i * s->options.dim;
}

void sequential_read(struct sequential *s, const struct sequential_event *events, uint32_t n,
                     const uint8_t *wants, struct sequential_seen *seen)
{
    sequential_windows_read(s, events, n, true, seen);
    s->events_count = n;
    if (wants != NULL)
        sequential_give_queries(s, n, wants, seen);
}

/* Adds the windows of the events that teach to those that wait for the step. */
static void add_pending(struct sequential *s)
{
    if (s->options.passes > 0)
        return;
    for (uint32_t i = 0; i < s->events_count; i++) {
        const struct sequential_window *window = &s->call.items[i];
        if (!s->events[i].teaches || window->length == 0)
            continue;
        struct sequential_window known = *window;
        memcpy(known.contexts, s->events[i].contexts, sizeof(known.contexts));
        windows_copy(s->events[i].is_unlabelled ? &s->unlabelled : &s->pending, &known,
                     s->call.tokens + window->first);
    }
}

static void append(struct sequential *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->events_count; i++) {
        if (!s->events[i].is_appended)
            continue;
        s->keys[n] = s->events[i].user;
        s->append_steps[n] = (uint32_t)s->steps + 1;
        s->append_entries[n++] = s->events[i].entry;
    }
    histories_append(s->histories, s->keys, s->append_steps, s->append_entries, n, NULL);
}

void sequential_take(struct sequential *s)
{
    add_pending(s);
    append(s);
    s->events_count = 0;
    uint32_t waiting = s->pending.count + s->unlabelled.count;
    leat_assert(waiting <= s->options.batch);
    if (waiting == s->options.batch && s->options.passes == 0)
        sequential_step(s);
}

void sequential_set_watermark(struct sequential *s, int64_t watermark_us)
{
    /* no row needs to be spared: a step has copies of its windows, and asks whether their items are there */
    if (watermark_us < TIME_MAX) /* the end of input expires nothing, nor after a restore */
        s->watermark_us = MAX(s->watermark_us, watermark_us);
    histories_set_watermark(s->histories, watermark_us, TABLE_STEP_NONE);
    catalogue_set_watermark(s->items, watermark_us, TABLE_STEP_NONE);
}

void sequential_set_rates(struct sequential *s, float rows, float dense)
{
    s->options.rows.params.rate = rows;
    s->options.dense.params.rate = dense;
}

struct catalogue *sequential_items(struct sequential *s)
{
    return s->items;
}

struct sequential_counts sequential_counts(const struct sequential *s)
{
    return (struct sequential_counts){.steps = s->steps,
                                      .targets = s->targets_learned,
                                      .masked = s->masks.learned,
                                      .rejected = s->targets_rejected,
                                      .rows_refused = s->rows_refused,
                                      .pending = s->pending.count + s->unlabelled.count,
                                      .loss = s->loss,
                                      .masked_loss = s->masks.loss};
}
