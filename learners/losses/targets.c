/*
 * A step's targets: draws, the list of distinct items, losses. targets_rows.c makes the gradients of the rows.
 *
 * Dense numbers are small, so the index of an item is read from an array of all numbers, which is cleared behind a
 * step by the step's own list. Targets are pieces of work for the team; the list is made by one thread, in order.
 */
#include "learners/losses/targets.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/losses/internal.h"
#include "learners/losses/popular.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRAW_TARGETS = 16, LOSS_TARGETS = 8 }; /* of a piece */

/* The most places of a step. */
static uint64_t places_of(const struct targets_options *o)
{
    uint64_t others = o->losses.in_batch ? (uint64_t)o->targets_max : 0;
    uint64_t draws = o->loss->takes_all_items ? 0 : (uint64_t)o->losses.negatives;
    return (uint64_t)o->targets_max * (1 + draws + others);
}

size_t targets_plan(const struct targets_options *o)
{
    enum { PLACE_BYTES = 28 }; /* and half as much more where steps grew */
    return (size_t)places_of(o) * PLACE_BYTES * 3 / 2;
}

bool targets_check(const struct targets_options *o, char reason[LOSSES_REASON])
{
    uint64_t places = places_of(o);
    reason[0] = '\0';
    if (places <= TARGETS_PLACES_MAX)
        return true;
    snprintf(reason, LOSSES_REASON,
             "a step of up to %" PRIu32 " targets would make %" PRIu64
             " pairs of a target and an item, expected up to %d: lower `batch` or the number of negatives",
             o->targets_max, places, TARGETS_PLACES_MAX);
    return false;
}

/* Bytes of scratch memory that the kernels of a thread need. */
static size_t scratch_bytes(const struct targets_options *o)
{
    struct batch_update update = {.in = {.n = TARGETS_PLACES_MAX, .d = o->dim}};
    struct batch_segment_reduce reduce = {.in = update.in};
    o->batch->update(&update, NULL);
    o->batch->segment_reduce(&reduce, NULL);
    size_t bytes = MAX(update.scratch_bytes, reduce.scratch_bytes);
    return o->loss->takes_all_items ? MAX(bytes, losses_softmax_scratch(o->batch, o->dim)) : bytes;
}

struct targets *targets_create(const struct targets_options *o)
{
    leat_assert(o->dim > 0 && o->dim <= BATCH_DIM_MAX && o->dim % 4 == 0);
    leat_assert(o->losses.temperature > 0.0 && o->losses.negatives >= 0 &&
                places_of(o) <= TARGETS_PLACES_MAX);
    leat_assert(o->popular == NULL || !o->losses.correct);
    struct targets *t = mem_calloc(1, sizeof(*t));
    t->o = *o;
    t->scratch_bytes = (scratch_bytes(o) + 63) / 64 * 64;
    if (o->losses.in_batch)
        frequencies_init(&t->frequencies, o->rate, o->initial);
    for (unsigned who = 0; who < SHARE_THREADS; who++)
        t->threads[who].scratch = mem_aligned(64, t->scratch_bytes);
    return t;
}

static void thread_free(struct targets_thread *thread)
{
    losses_work_free(&thread->work);
    free(thread->rows);
    free(thread->numbers);
    free(thread->log_q);
}

void targets_free(struct targets *t)
{
    if (t == NULL)
        return;
    for (unsigned who = 0; who < SHARE_THREADS; who++) {
        thread_free(&t->threads[who]);
        free(t->threads[who].scratch);
    }
    for (unsigned i = 0; i < TARGETS_ARRAYS; i++)
        free(t->arrays[i].at);
    frequencies_free(&t->frequencies);
    free(t);
}

size_t targets_bytes(const struct targets *t)
{
    size_t bytes = sizeof(*t) + SHARE_THREADS * t->scratch_bytes;
    for (unsigned i = 0; i < TARGETS_ARRAYS; i++)
        bytes += t->arrays[i].bytes;
    for (unsigned who = 0; who < SHARE_THREADS; who++) {
        size_t negatives = t->threads[who].negatives_max;
        bytes += (3 * sizeof(double) + 2 * sizeof(float)) * (negatives + 1); /* losses_work */
        bytes += (sizeof(float *) + sizeof(uint32_t) + sizeof(double)) * negatives;
    }
    return bytes;
}

void *targets_grow(struct targets *t, unsigned array, size_t count, size_t size)
{
    struct targets_array *a = &t->arrays[array];
    if (a->at == NULL || count * size > a->bytes) {
        size_t more =
            a->bytes + a->bytes / 2; /* sizes of steps vary: not a new block for each that is a bit larger */
        a->bytes = MAX(count * size, more);
        a->at = mem_realloc(a->at, a->bytes);
    }
    return a->at;
}

/* Makes lists of up to `negatives` for both threads. */
static void grow_threads(struct targets *t, uint32_t negatives)
{
    for (unsigned who = 0; who < SHARE_THREADS; who++) {
        struct targets_thread *thread = &t->threads[who];
        if (thread->rows != NULL && negatives <= thread->negatives_max)
            continue;
        thread_free(thread);
        thread->negatives_max = negatives;
        losses_work_init(&thread->work, negatives);
        thread->rows = mem_calloc(negatives, sizeof(*thread->rows));
        thread->numbers = mem_calloc(negatives, sizeof(*thread->numbers));
        thread->log_q = mem_calloc(negatives, sizeof(*thread->log_q));
    }
}

/* --- The items of a step --- */

/* Makes room for dense numbers below `numbers`. */
static void grow_numbers(struct targets *t, uint32_t numbers)
{
    if (numbers <= t->numbers)
        return;
    uint32_t *index_of = targets_grow(t, TARGETS_INDEX_OF, numbers, sizeof(*index_of));
    targets_grow(t, TARGETS_ITEMS, numbers, sizeof(uint32_t));
    for (uint32_t i = t->numbers; i < numbers; i++)
        index_of[i] = BATCH_NONE;
    t->numbers = numbers;
}

/* The index of an item, which becomes one of the step. */
static inline uint32_t index_of_item(uint32_t *index_of, uint32_t *items, uint32_t *count, uint32_t number)
{
    if (index_of[number] == BATCH_NONE) {
        items[*count] = number;
        index_of[number] = (*count)++;
    }
    return index_of[number];
}

static void clear_items(struct targets *t)
{
    uint32_t *index_of = t->arrays[TARGETS_INDEX_OF].at, *items = t->arrays[TARGETS_ITEMS].at;
    for (uint32_t u = 0; u < t->items; u++)
        index_of[items[u]] = BATCH_NONE;
    t->items = 0;
}

/* Numbers are below the result. */
static uint32_t numbers_of(const struct targets_step *s)
{
    uint32_t last = 0;
    if (s->live_count > 0)
        last = s->live != NULL ? s->live[s->live_count - 1] : s->live_count - 1;
    for (uint32_t i = 0; i < s->count; i++)
        last = MAX(last, s->positives[i]);
    leat_assert(last < UINT32_MAX);
    return last + 1;
}

/* Replaces the numbers that were drawn by indices, and gives those of the positives. */
static void list_items(struct targets *t, const struct targets_step *s)
{
    uint32_t *index_of = t->arrays[TARGETS_INDEX_OF].at, *items = t->arrays[TARGETS_ITEMS].at;
    uint32_t *at = t->arrays[TARGETS_INDICES].at, count = 0;
    if (t->o.loss->takes_all_items) {
        for (uint32_t i = 0; i < s->live_count; i++)
            index_of_item(index_of, items, &count, s->live != NULL ? s->live[i] : i);
        for (uint32_t i = 0; i < s->count; i++)
            leat_assert(index_of[s->positives[i]] != BATCH_NONE);
    }
    for (uint32_t i = 0; i < s->count; i++) {
        *at++ = index_of_item(index_of, items, &count, s->positives[i]);
        for (uint32_t k = 0; k < t->draws; k++, at++)
            *at = index_of_item(index_of, items, &count, *at);
    }
    t->items = count;
}

void targets_add_items(struct targets *t, const uint32_t *numbers, uint32_t n)
{
    uint32_t last = 0, before = t->items;
    for (uint32_t i = 0; i < n; i++)
        last = numbers[i] != BATCH_NONE ? MAX(last, numbers[i]) : last;
    grow_numbers(t, last + 1);
    for (uint32_t i = 0; i < n; i++)
        if (numbers[i] != BATCH_NONE)
            index_of_item(t->arrays[TARGETS_INDEX_OF].at, t->arrays[TARGETS_ITEMS].at, &t->items, numbers[i]);
    leat_assert(!t->o.loss->takes_all_items || t->items == before); /* their order is that of the tiles */
}

const uint32_t *targets_items(const struct targets *t, uint32_t *count)
{
    *count = t->items;
    return t->arrays[TARGETS_ITEMS].at;
}

/* --- Draws --- */

struct draw_call {
    struct targets *t;
    const struct targets_step *s;
    struct negatives negatives;
};

static bool has_log_q(const struct targets *t)
{
    return t->o.losses.correct && t->draws > 0 && (t->o.draw != NEGATIVES_UNIFORM || t->others > 0);
}

/* How often the item is expected among the others of a batch. */
static double expected_in_batch(const struct targets *t, uint32_t number)
{
    return num_exp(frequencies_log_q(&t->frequencies, number, t->others));
}

static void draw_piece(void *of, uint32_t number, unsigned who)
{
    const struct draw_call *c = of;
    struct targets *t = c->t;
    uint32_t end = MIN((number + 1) * DRAW_TARGETS, t->count);
    (void)who;
    for (uint32_t i = number * DRAW_TARGETS; i < end; i++) {
        uint32_t *drawn = (uint32_t *)t->arrays[TARGETS_INDICES].at + (size_t)i * (1 + t->draws) + 1;
        double *log_q = has_log_q(t) ? (double *)t->arrays[TARGETS_LOG_Q].at + (size_t)i * t->draws : NULL;
        if (t->o.popular != NULL && t->o.popular->total > 0) {
            popularity_draws(t->o.popular, t->o.seed, c->s->identities[i], t->draws, drawn);
            continue;
        }
        negatives_draw(&c->negatives, c->s->identities[i], t->draws, drawn, log_q);
        for (uint32_t k = 0; log_q != NULL && t->others > 0 && k < t->draws; k++)
            log_q[k] = num_log(num_exp(log_q[k]) + expected_in_batch(t, drawn[k]));
    }
}

/* The place of a number in `live`; live_count: it is not there. */
static uint32_t live_place(const struct targets_step *s, uint32_t number)
{
    uint32_t low = 0, high = s->live_count;
    if (s->live == NULL)
        return MIN(number, s->live_count);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->live[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->live_count && s->live[low] == number ? low : s->live_count;
}

/* log_q of the batch's own items: of two samples that are compared together, the draws and the batch, an item is
 * expected as often as in both. */
static void expect_others(const struct draw_call *c)
{
    struct targets *t = c->t;
    double *log_q = targets_grow(t, TARGETS_OTHERS, t->count, sizeof(*log_q));
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t number = c->s->positives[i];
        uint32_t place = t->draws > 0 ? live_place(c->s, number) : c->s->live_count;
        log_q[i] = frequencies_log_q(&t->frequencies, number, t->others);
        if (place < c->s->live_count)
            log_q[i] = num_log(num_exp(negatives_log_q(&c->negatives, place, t->draws)) +
                               expected_in_batch(t, number));
    }
}

void targets_draw(struct targets *t, const struct targets_step *s)
{
    leat_assert(s->count <= t->o.targets_max && (s->live_count > 0 || s->count == 0));
    struct draw_call call = {t, s, {t->o.seed, t->o.draw, s->live, s->live_count}};
    clear_items(t);
    t->judged = 0;
    t->count = s->count;
    t->draws = t->o.loss->takes_all_items ? 0 : (uint32_t)t->o.losses.negatives;
    t->others = t->o.losses.in_batch && s->count > 1 ? s->count - 1 : 0;
    t->log_q = t->draws > 0 && s->count > 0 ? negatives_log_q(&call.negatives, 0, t->draws) : 0.0;
    grow_numbers(t, numbers_of(s));
    targets_grow(t, TARGETS_INDICES, (size_t)s->count * (1 + t->draws), sizeof(uint32_t));
    if (has_log_q(t))
        targets_grow(t, TARGETS_LOG_Q, (size_t)s->count * t->draws, sizeof(double));
    if (t->draws > 0)
        share_run(t->o.team, (s->count + DRAW_TARGETS - 1) / DRAW_TARGETS, draw_piece, &call);
    if (t->others > 0)
        expect_others(&call);
    list_items(t, s);
    for (uint32_t i = 0; t->o.losses.in_batch && i < s->count; i++)
        frequencies_add(&t->frequencies, s->positives[i], s->time + i);
}

/* --- Losses --- */

struct loss_call {
    struct targets *t;
    const struct targets_step *s;
    const float *const *rows;
    uint32_t from, to;      /* the targets of this call */
    float *query_gradients; /* softmax: compact */
};

/* Lists the negatives of target i: its draws, then the items of the other targets. Returns the log_q of its own. */
static double list_negatives(const struct loss_call *c, uint32_t i, struct targets_thread *thread)
{
    struct targets *t = c->t;
    const uint32_t *indices = t->arrays[TARGETS_INDICES].at, *items = t->arrays[TARGETS_ITEMS].at;
    const uint32_t *drawn = indices + (size_t)i * (1 + t->draws) + 1;
    const double *expected = t->arrays[TARGETS_OTHERS].at;
    for (uint32_t k = 0; k < t->draws; k++) {
        thread->rows[k] = c->rows[drawn[k]];
        thread->numbers[k] = items[drawn[k]];
    }
    if (has_log_q(t))
        memcpy(thread->log_q, (const double *)t->arrays[TARGETS_LOG_Q].at + (size_t)i * t->draws,
               t->draws * sizeof(*thread->log_q));
    for (uint32_t k = 0; k < t->others; k++) {
        uint32_t other = k < i ? k : k + 1, u = indices[(size_t)other * (1 + t->draws)];
        thread->rows[t->draws + k] = c->rows[u];
        thread->numbers[t->draws + k] = items[u];
        thread->log_q[t->draws + k] = expected[other];
    }
    return t->others > 0 ? expected[i] : 0.0;
}

static void loss_piece(void *of, uint32_t number, unsigned who)
{
    const struct loss_call *c = of;
    struct targets *t = c->t;
    const struct targets_step *s = c->s;
    struct targets_thread *thread = &t->threads[who];
    const uint32_t *indices = t->arrays[TARGETS_INDICES].at;
    uint32_t begin = c->from + number * LOSS_TARGETS, end = MIN(begin + LOSS_TARGETS, c->to),
             stride = s->query_stride > 0 ? s->query_stride : t->o.dim;
    for (uint32_t i = begin; i < end; i++) {
        const float *query = (const float *)t->arrays[TARGETS_VECTORS].at + (size_t)i * t->o.dim;
        struct losses_target target = {.query = query,
                                       .positive = c->rows[indices[(size_t)i * (1 + t->draws)]],
                                       .negatives = thread->rows,
                                       .count = t->draws + t->others,
                                       .d = t->o.dim,
                                       .number = s->positives[i],
                                       .numbers = thread->numbers,
                                       .positive_log_q = list_negatives(c, i, thread),
                                       .log_q = thread->log_q,
                                       .items = s->live_count};
        struct losses_result result = {.query_gradient = s->query_gradients + (size_t)i * stride,
                                       .row_scales =
                                           (float *)t->arrays[TARGETS_SCALES].at + i * targets_stride(t)};
        double weight = s->weights != NULL ? (double)s->weights[i] : 1.0;
        s->is_rejected[i] =
            !losses_at(t->o.loss, &t->o.losses, t->o.kernels, &target, weight, &thread->work, &result);
        s->losses[i] = result.loss;
    }
}

static void softmax_piece(void *of, uint32_t number, unsigned who)
{
    const struct loss_call *c = of;
    uint32_t begin = c->from + number * SOFTMAX_TARGETS, end = MIN(begin + SOFTMAX_TARGETS, c->to);
    losses_softmax_targets(&c->t->softmax, begin, end, c->t->threads[who].scratch);
}

/* All items: rows by dense number, and gradients that lie side by side. */
static void begin_softmax(struct loss_call *c, bool is_compact)
{
    struct targets *t = c->t;
    const struct targets_step *s = c->s;
    const uint32_t *items = t->arrays[TARGETS_ITEMS].at, dim = t->o.dim;
    uint32_t numbers = t->items > 0 ? items[t->items - 1] + 1 : 0;
    const float **rows = targets_grow(t, TARGETS_ROWS, numbers, sizeof(*rows));
    float *gradients = s->query_gradients;
    if (!is_compact)
        gradients = targets_grow(t, TARGETS_COMPACT, (size_t)s->count * dim, sizeof(*gradients));
    memset(rows, 0, numbers * sizeof(*rows));
    for (uint32_t u = 0; u < t->items; u++)
        rows[items[u]] = c->rows[u];
    t->softmax = (struct softmax_step){.kernels = t->o.kernels,
                                       .batch = t->o.batch,
                                       .rows = rows,
                                       .items = numbers,
                                       .d = dim,
                                       .queries = t->arrays[TARGETS_VECTORS].at,
                                       .targets = s->count,
                                       .positives = s->positives,
                                       .weights = s->weights,
                                       .temperature = t->o.losses.temperature,
                                       .losses = s->losses,
                                       .is_rejected = s->is_rejected,
                                       .query_gradients = gradients};
    t->softmax.points = targets_grow(t, TARGETS_POINTS, s->count, sizeof(struct softmax_point));
}

static void softmax_losses(struct loss_call *c)
{
    const struct targets_step *s = c->s;
    uint32_t dim = c->t->o.dim;
    bool is_compact = s->query_stride == 0 || s->query_stride == dim;
    if (c->from == 0)
        begin_softmax(c, is_compact);
    share_run(c->t->o.team, (c->to - c->from + SOFTMAX_TARGETS - 1) / SOFTMAX_TARGETS, softmax_piece, c);
    for (uint32_t i = c->from; !is_compact && i < c->to; i++)
        memcpy(s->query_gradients + (size_t)i * s->query_stride,
               c->t->softmax.query_gradients + (size_t)i * dim, dim * sizeof(*s->query_gradients));
}

void targets_gradients(struct targets *t, const struct targets_step *s, const float *const *rows)
{
    targets_gradients_of(t, s, rows, 0, s->count);
}

void targets_gradients_of(struct targets *t, const struct targets_step *s, const float *const *rows,
                          uint32_t from, uint32_t to)
{
    struct loss_call call = {.t = t, .s = s, .rows = rows, .from = from, .to = to};
    uint32_t dim = t->o.dim, stride = s->query_stride > 0 ? s->query_stride : dim;
    leat_assert(s->count == t->count && stride >= dim && from == t->judged && to <= s->count);
    float *vectors = targets_grow(t, TARGETS_VECTORS, (size_t)s->count * dim, sizeof(*vectors));
    for (uint32_t i = from; i < to; i++)
        memcpy(vectors + (size_t)i * dim, s->queries + (size_t)i * stride, dim * sizeof(*vectors));
    t->judged = to;
    if (t->o.loss->takes_all_items) {
        softmax_losses(&call);
        return;
    }
    grow_threads(t, t->draws + t->others);
    targets_grow(t, TARGETS_SCALES, s->count * targets_stride(t), sizeof(float));
    for (unsigned who = 0; who < SHARE_THREADS && !has_log_q(t); who++)
        for (uint32_t k = 0; k < t->draws; k++)
            t->threads[who].log_q[k] = t->log_q;
    share_run(t->o.team, (to - from + LOSS_TARGETS - 1) / LOSS_TARGETS, loss_piece, &call);
}

void targets_set_team(struct targets *t, struct team *team)
{
    t->o.team = team;
}

/* --- Frequencies --- */

void targets_forget(struct targets *t, uint32_t number)
{
    frequencies_forget(&t->frequencies, number);
}

void targets_save(const struct targets *t, struct byte_buffer *out)
{
    frequencies_save(&t->frequencies, out);
}

bool targets_restore(struct targets *t, const void *bytes, size_t length, uint32_t numbers_max, uint64_t time,
                     char reason[FREQUENCIES_REASON])
{
    return frequencies_restore(&t->frequencies, bytes, length, t->o.losses.in_batch ? numbers_max : 0, time,
                               reason);
}
