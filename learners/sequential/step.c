/*
 * A step: windows of events that came, older ones of users drawn from all, and both again with hidden items (masked.c),
 * go through the network in passes of whole windows; the losses' gradients go back the same way; then the rows of items,
 * of what stands beside them, of contexts, of hidden items, and the network's weights make one step each. Passes depend
 * on the step's windows alone.
 */
#include "learners/sequential/internal.h"
#include "learners/sequential/values.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

/* What chance is for: (seed ^ use, step, place). */
static const uint64_t CHANCE_DROPOUT = UINT64_C(0xd50f), CHANCE_WINDOW = UINT64_C(0x3170);

/* --- Older windows --- */

/* Whether what a token's event did is a target of the token before it: a mark beside it says if not. */
static bool may_teach(const struct sequential *s, const struct history_entry *token)
{
    return !s->options.marks || token->sides[s->options.sides] == MARK_TEACHES;
}

/* A window without a target of the next item is learned by its hidden items alone. */
void sequential_add_older(struct sequential *s, struct history_view *view, uint64_t identity)
{
    struct sequential_windows *w = &s->pending;
    struct sequential_window *window = windows_decode(w, view);
    bool has_target = s->options.masked_share == 0.0;
    window->has_all = true;
    window->identity = identity;
    for (uint32_t p = 1; p < window->length && !has_target; p++)
        has_target = may_teach(s, &w->tokens[window->first + p]);
    if (has_target)
        return;
    windows_copy(&s->unlabelled, window, w->tokens + window->first);
    w->tokens_count -= window->length;
    w->count--;
}

/* Adds `rehearse` times as many windows as there are, of users drawn from all. A user's window is what the history has
 * now; one of less than two tokens has no target. */
static void add_rehearsed(struct sequential *s)
{
    uint32_t wanted = (s->pending.count + s->unlabelled.count) * s->options.rehearse, n = 0;
    const struct histories *all[] = {s->histories};
    struct histories_draw draw;
    histories_draw_begin(all, 1, &draw);
    for (uint32_t place = 0; place < wanted; place += n) {
        for (n = 0; n < SEQUENTIAL_CALL_MAX && place + n < wanted; n++)
            if (!histories_draw(&draw, s->options.seed, s->steps + 1, place + n, &s->keys[n]))
                return;
        histories_find(s->histories, s->keys, n, (uint32_t)s->steps + 1, s->views);
        for (uint32_t i = 0; i < n; i++)
            sequential_add_older(s, &s->views[i],
                                 num_chance(s->options.seed ^ CHANCE_WINDOW, s->steps, place + i));
    }
}

/* --- Targets --- */

static void targets_room(struct sequential *s, uint32_t count)
{
    struct sequential_targets *t = &s->step;
    size_t dim = s->options.dim;
    if (count <= t->room)
        return;
    t->room = MAX(count, 2 * t->room);
#define GROW(array, each) t->array = mem_realloc(t->array, (size_t)t->room * (each) * sizeof(*t->array))
    GROW(rows, 1);
    GROW(numbers, 1);
    GROW(windows, 1);
    GROW(identities, 1);
    GROW(weights, 1);
    GROW(queries, dim);
    GROW(gradients, dim);
    GROW(losses, 1);
    GROW(is_rejected, 1);
#undef GROW
}

void sequential_step_free(struct sequential *s)
{
    struct sequential_targets *t = &s->step;
    free(t->rows), free(t->numbers), free(t->windows), free(t->identities), free(t->weights);
    free(t->queries), free(t->gradients), free(t->losses), free(t->is_rejected);
    free(s->token_gradients);
    free(s->tokens_numbers), free(s->tokens_windows);
    free(s->item_rows);
    *t = (struct sequential_targets){0};
}

static void add_target(struct sequential *s, uint32_t window, uint32_t position, struct items_ref item)
{
    const struct sequential_window *of = &s->pending.items[window];
    struct sequential_targets *t = &s->step;
    if (!catalogue_is_live(s->items, item))
        return;
    t->rows[t->count] = (uint32_t)of->first + position;
    t->numbers[t->count] = item.number;
    t->windows[t->count] = window;
    t->identities[t->count++] = num_chance(s->options.seed, of->identity, position);
}

/* Behind those of the next item come the hidden items, whose windows are the last of the step. */
static void list_masked(struct sequential *s)
{
    struct sequential_targets *t = &s->step;
    uint32_t next = t->count;
    for (uint32_t i = 0; i < s->masks.count; i++)
        add_target(s, s->masks.places[i].window, s->masks.places[i].position, s->masks.places[i].item);
    t->masked = t->count - next;
    for (uint32_t i = 0; i < next; i++)
        t->weights[i] = 1.0F / (float)next;
    for (uint32_t i = next; i < t->count; i++)
        t->weights[i] = (float)s->options.masked_weight / (float)t->masked;
}

static void list_targets(struct sequential *s)
{
    const struct sequential_windows *w = &s->pending;
    targets_room(s, (uint32_t)w->tokens_count);
    s->step.count = 0;
    for (uint32_t window = 0; window < w->count; window++) {
        const struct sequential_window *of = &w->items[window];
        const struct history_entry *tokens = w->tokens + of->first;
        for (uint32_t p = 0; of->has_all && p + 1 < of->length; p++)
            if (may_teach(s, &tokens[p + 1]))
                add_target(s, window, p, tokens[p + 1].item);
        if (!of->has_all && !of->is_masked && of->length > 0)
            add_target(s, window, of->length - 1, of->target);
    }
    list_masked(s);
}

/* The items of all tokens take part; those that are gone do not. */
static void list_tokens(struct sequential *s)
{
    const struct sequential_windows *w = &s->pending;
    size_t count = w->tokens_count, floats = count * s->options.dim;
    if (s->token_gradients_room < floats) {
        s->token_gradients_room = MAX(floats, 2 * s->token_gradients_room);
        size_t tokens = s->token_gradients_room / s->options.dim;
        s->token_gradients = mem_realloc(s->token_gradients, s->token_gradients_room * sizeof(float));
        s->tokens_numbers = mem_realloc(s->tokens_numbers, tokens * sizeof(*s->tokens_numbers));
        s->tokens_windows = mem_realloc(s->tokens_windows, tokens * sizeof(*s->tokens_windows));
    }
    for (uint32_t window = 0; window < w->count; window++) {
        const struct sequential_window *of = &w->items[window];
        for (size_t k = of->first; k < of->first + of->length; k++) {
            bool is_there = catalogue_is_live(s->items, w->tokens[k].item);
            s->tokens_numbers[k] = is_there ? w->tokens[k].item.number : BATCH_NONE;
            s->tokens_windows[k] = window;
        }
    }
}

/* --- Passes --- */

/* Targets of windows begin .. end - 1: from s->step's `from` on; returns the number behind them. */
static uint32_t targets_end(const struct sequential *s, uint32_t from, uint32_t end)
{
    while (from < s->step.count && s->step.windows[from] < end)
        from++;
    return from;
}

static bool is_finite(const float *x, size_t n)
{
    bool is_good = true;
    for (size_t i = 0; i < n; i++)
        is_good &= isfinite(x[i]) != 0;
    return is_good;
}

/* Finds the pass's windows whose outputs are not finite, because a row that they read is too large: all their tokens
 * are rejected, and so are their targets. Their values are zeroed, since 0 * NaN in a sum of the backward pass would
 * reach the weights of all. */
static void reject_windows(struct sequential *s, const struct sequential_pass *pass)
{
    size_t stride = s->net.output->stride;
    bool is_any = false;
    for (uint32_t w = 0; w < pass->count; w++) {
        size_t from = s->offsets[w], rows = s->offsets[w + 1] - from;
        bool is_rejected = !is_finite(s->rows.out + from * stride, rows * stride);
        memset(s->rows.is_rejected + from, is_rejected, rows);
        is_any |= is_rejected;
    }
    if (is_any)
        sequential_reject(s, pass);
}

/* The queries of targets from .. to - 1, of a rejected window not a number. first: the pass's first token in the
 * step. */
static void take_queries(struct sequential *s, uint32_t from, uint32_t to, size_t first)
{
    size_t dim = s->options.dim, stride = s->net.output->stride;
    for (uint32_t i = from; i < to; i++) {
        float *query = s->step.queries + i * dim;
        memcpy(query, s->rows.out + (s->step.rows[i] - first) * stride, dim * sizeof(*query));
        if (s->rows.is_rejected[s->step.rows[i] - first])
            query[0] = NAN;
        const struct sequential_window *window = &s->pending.items[s->step.windows[i]];
        if (!window->has_all)
            sequential_add_contexts(s, window, query);
    }
}

static void give_gradients(struct sequential *s, uint32_t from, uint32_t to, size_t first, uint32_t rows)
{
    size_t dim = s->options.dim, stride = s->net.output->stride;
    float *gradients = s->rows.out_gradients;
    memset(gradients, 0, rows * stride * sizeof(*gradients));
    for (uint32_t i = from; i < to; i++)
        memcpy(gradients + (s->step.rows[i] - first) * stride, s->step.gradients + i * dim,
               dim * sizeof(*gradients));
}

/* All windows forward and backward; the gradients by the tokens are left in s->token_gradients. */
static void run_passes(struct sequential *s, const struct targets_step *step, const float *const *rows)
{
    struct net *net = &s->net;
    uint32_t target = 0, windows = 0;
    net->slices = batch_slices_of(s->pending.count, 0);
    for (uint32_t begin = 0, end; begin < s->pending.count; begin = end) {
        struct sequential_pass pass;
        end = sequential_pass_fill(s, &s->pending, begin, NULL, &pass);
        if (pass.count == 0)
            continue;
        size_t first = s->pending.items[begin].first;
        net->windows.drops = true;
        net->windows.chance = num_chance(s->options.seed ^ CHANCE_DROPOUT, s->steps, 0);
        sequential_forward(s, &pass);
        reject_windows(s, &pass);
        uint32_t to = targets_end(s, target, end);
        take_queries(s, target, to, first);
        targets_gradients_of(s->targets, step, rows, target, to);
        give_gradients(s, target, to, first, pass.rows);
        net->event = windows;
        sequential_backward(s, &pass, s->token_gradients + first * s->options.dim);
        target = to;
        windows += pass.count;
    }
    net->event = 0;
}

/* --- The rows' steps --- */

static void update_items(struct sequential *s, const struct targets_step *step)
{
    uint32_t count;
    const uint32_t *items = targets_items(s->targets, &count);
    float *const *rows = catalogue_rows(s->items);
    struct targets_tokens tokens = {.numbers = s->tokens_numbers,
                                    .gradients = s->token_gradients,
                                    .windows = s->tokens_windows,
                                    .n = (uint32_t)s->pending.tokens_count,
                                    .scale = sqrtf((float)s->options.dim)};
    if (s->options.loss->takes_all_items)
        catalogue_change_all(s->items);
    for (uint32_t u = 0; u < count; u++) {
        if (!s->options.loss->takes_all_items)
            catalogue_change(s->items, items[u]);
        s->item_rows[u] = rows[items[u]];
    }
    s->rows_refused += targets_update(s->targets, step, &tokens, (void *const *)s->item_rows,
                                      s->options.rows.kind, &s->options.rows.params);
}

static void update_sides(struct sequential *s)
{
    const struct sequential_windows *w = &s->pending;
    for (uint32_t k = 0; k < s->options.sides; k++) {
        values_begin(s->values, w->tokens_count);
        for (size_t i = 0; i < w->tokens_count; i++)
            values_add(s->values, w->tokens[i].sides[k], (uint32_t)i);
        s->rows_refused += values_update(s->values, s->sides[k], s->token_gradients, &s->options.rows);
    }
}

static void update_contexts(struct sequential *s)
{
    for (uint32_t k = 0; k < s->options.contexts; k++) {
        values_begin(s->values, s->step.count);
        for (uint32_t i = 0; i < s->step.count; i++) {
            const struct sequential_window *window = &s->pending.items[s->step.windows[i]];
            values_add(s->values, window->has_all ? 0 : window->contexts[k], i);
        }
        s->rows_refused += values_update(s->values, s->contexts[k], s->step.gradients, &s->options.rows);
    }
}

/* --- The step --- */

/* The rows of the step's items, in the order of targets_items. */
static void find_rows(struct sequential *s)
{
    uint32_t count;
    const uint32_t *items = targets_items(s->targets, &count);
    float *const *rows = catalogue_rows(s->items);
    if (s->item_rows_room < count) {
        s->item_rows_room = MAX(count, 2 * s->item_rows_room);
        s->item_rows = mem_realloc(s->item_rows, s->item_rows_room * sizeof(*s->item_rows));
    }
    for (uint32_t u = 0; u < count; u++)
        s->item_rows[u] = rows[items[u]];
}

static void count_targets(struct sequential *s)
{
    double loss = 0.0, masked = 0.0;
    uint32_t next = s->step.count - s->step.masked;
    for (uint32_t i = 0; i < s->step.count; i++) {
        *(i < next ? &loss : &masked) += s->step.losses[i];
        s->targets_rejected += s->step.is_rejected[i];
    }
    s->targets_learned += s->step.count;
    s->masks.learned += s->step.masked;
    if (next > 0)
        s->loss = loss;
    if (s->step.masked > 0)
        s->masks.loss = masked / s->options.masked_weight;
}

static void learn(struct sequential *s)
{
    struct targets_step step = {.queries = s->step.queries,
                                .positives = s->step.numbers,
                                .weights = s->step.weights,
                                .identities = s->step.identities,
                                .windows = s->step.windows,
                                .count = s->step.count,
                                .time = s->targets_learned,
                                .query_gradients = s->step.gradients,
                                .losses = s->step.losses,
                                .is_rejected = s->step.is_rejected};
    step.live = catalogue_live(s->items, &step.live_count);
    optimizer_begin_step(&s->options.rows, s->steps);
    optimizer_begin_step(&s->options.dense, s->steps);
    s->net.options.params = s->options.dense.params;
    targets_draw(s->targets, &step);
    targets_add_items(s->targets, s->tokens_numbers, (uint32_t)s->pending.tokens_count);
    find_rows(s);
    run_passes(s, &step, (const float *const *)s->item_rows);
    update_items(s, &step);
    update_sides(s);
    update_contexts(s);
    sequential_masks_update(s);
    sequential_update(s);
    count_targets(s);
}

void sequential_step(struct sequential *s)
{
    add_rehearsed(s);
    sequential_add_masked(s);
    list_targets(s);
    list_tokens(s);
    if (s->step.count > 0)
        learn(s);
    s->steps++;
    windows_clear(&s->pending);
    windows_clear(&s->unlabelled);
}
