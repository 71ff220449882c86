/* Numbers, rows and the index of items, kept together; catalogue.h tells the rules. */
#include "learners/items/catalogue.h"

#include "core/mem.h"
#include "learners/tables/inline.h"

#include <stdlib.h>

enum { POINTS = 64, ROOM_LEAST = 1024, WALK_AHEAD = 16 };

struct catalogue {
    struct catalogue_options options;
    struct table table;
    struct items_numbers *numbers;
    struct items_index *index;
    size_t state_at, state_floats; /* offset of the optimizer's state in a payload; its floats */
    float state_init;
    /* Arrays with room for `room` numbers: */
    float **rows;      /* by number: where the row's floats lie; NULL: nobody has the number */
    uint64_t *changed; /* bits by number: the row is to be put into the index */
    uint32_t *live;    /* [live_count] numbers of all items */
    uint32_t room, used, live_count;
    bool live_is_old;    /* `live` has to be made anew */
    bool has_changed;    /* `changed` has a bit */
    bool all_changed;    /* all rows are to be put, whatever `changed` has */
    uint32_t all_epoch;  /* epoch of the table in which all rows were marked; 0: none */
    uint32_t searchable; /* items in the index, and all items, after the last refresh */
    uint32_t refreshed;
    int64_t watermark_us, interval_us; /* INT64_MIN: none yet; between two points */
};

/* The row of an item that is there. */
static struct table_row *row_of(const struct catalogue *c, uint32_t number)
{
    leat_assert(number < c->used && c->rows[number] != NULL);
    return (struct table_row *)(void *)((unsigned char *)c->rows[number] - TABLE_ROW_HEADER);
}

static void init_row(void *argument, uint64_t key, void *payload)
{
    const struct catalogue *c = argument;
    const struct catalogue_options *o = &c->options;
    memset(payload, 0, c->table.options.payload_bytes);
    o->kernels->init_uniform(payload, num_mix(o->seed ^ key), o->init, o->dim);
    float *state = (float *)(void *)((unsigned char *)payload + c->state_at);
    for (size_t i = 0; i < c->state_floats; i++)
        state[i] = c->state_init;
}

static void check_options(const struct catalogue_options *o)
{
    leat_assert(o->kernels != NULL && o->dim > 0 && o->dim % 4 == 0 && o->dim <= BATCH_DIM_MAX);
    leat_assert(o->optimizer.kind < OPT_KINDS && o->optimizer.kind != OPT_NEWTON);
    leat_assert(o->expire_after_us >= 0);
}

struct catalogue *catalogue_create(const struct catalogue_options *o)
{
    check_options(o);
    struct catalogue *c = mem_calloc(1, sizeof(*c));
    c->options = *o;
    c->state_at = row_weight_bytes(ROW_FP32, o->dim);
    c->state_floats = opt_state_floats(o->optimizer.kind, o->dim);
    c->state_init = opt_state_init(o->optimizer.kind, o->optimizer.accumulator);
    c->watermark_us = INT64_MIN;
    c->interval_us = MAX(o->expire_after_us / POINTS, US_PER_SECOND);
    struct table_options table = {.payload_bytes = row_bytes(ROW_FP32, o->dim, c->state_floats),
                                  .read_first = c->state_at,
                                  .align = 64,
                                  .shards = o->shards,
                                  .seed = o->seed,
                                  .init = init_row,
                                  .init_argument = c};
    table_init(&c->table, &table);
    struct items_index_options index = {.kernels = o->kernels,
                                        .dims = o->index_dims > 0 ? o->index_dims : o->dim,
                                        .numbers_max = o->numbers_max,
                                        .overfetch = o->overfetch};
    c->index = items_index_create(&index);
    c->numbers = items_numbers_create(o->numbers_max);
    return c;
}

void catalogue_free(struct catalogue *c)
{
    if (c == NULL)
        return;
    table_free(&c->table);
    items_numbers_free(c->numbers);
    items_index_free(c->index);
    free(c->rows);
    free(c->live);
    free(c->changed);
    free(c);
}

struct table *catalogue_table(struct catalogue *c)
{
    return &c->table;
}

struct items_numbers *catalogue_numbers(struct catalogue *c)
{
    return c->numbers;
}

struct items_index *catalogue_index(struct catalogue *c)
{
    return c->index;
}

/* --- Marks --- */

static void mark_for_index(struct catalogue *c, uint32_t number)
{
    if (c->options.index_dims > 0)
        return;
    bit_set(c->changed, number);
    c->has_changed = true;
}

void catalogue_change(struct catalogue *c, uint32_t number)
{
    struct table_row *row = row_of(c, number);
    if (row->epoch != c->table.epoch)
        table_mark_changed(&c->table, row);
    mark_for_index(c, number);
}

void catalogue_change_all(struct catalogue *c)
{
    c->all_changed = c->options.index_dims == 0;
    if (c->all_epoch == c->table.epoch)
        return; /* rows that came since are marked, too */
    for (uint32_t i = 0; i < c->used; i++) {
        if (c->rows[i] != NULL && row_of(c, i)->epoch != c->table.epoch)
            table_mark_changed(&c->table, row_of(c, i));
    }
    c->all_epoch = c->table.epoch;
}

void catalogue_spare(struct catalogue *c, uint32_t number, uint32_t step)
{
    row_of(c, number)->step = step;
}

/* --- Items that come and go --- */

/* Room in the arrays for `used` numbers. */
static void need_room(struct catalogue *c, uint32_t used)
{
    if (likely(used <= c->room))
        return;
    uint32_t before = c->room, limit = c->options.numbers_max;
    c->room = MAX(used, MIN(before < limit / 2 ? MAX(2 * before, (uint32_t)ROOM_LEAST) : limit, limit));
    c->rows = mem_realloc(c->rows, c->room * sizeof(*c->rows));
    c->live = mem_realloc(c->live, c->room * sizeof(*c->live));
    size_t words = BIT_WORDS((size_t)before), words_now = BIT_WORDS((size_t)c->room);
    c->changed = mem_realloc(c->changed, words_now * sizeof(*c->changed));
    memset(c->changed + words, 0, (words_now - words) * sizeof(*c->changed));
    memset(c->rows + before, 0, (c->room - before) * sizeof(*c->rows));
}

/* An item of a new number: its row. */
static void put_row(struct catalogue *c, uint32_t number, struct table_row *row)
{
    bool is_last = number >= c->used;
    need_room(c, number + 1);
    c->rows[number] = table_payload(row);
    c->used = MAX(c->used, number + 1);
    if (!is_last)
        c->live_is_old = true;
    else if (!c->live_is_old)
        c->live[c->live_count++] = number;
}

enum items_added catalogue_add(struct catalogue *c, const struct items_value *value, uint32_t seconds,
                               uint32_t step, struct items_ref *ref)
{
    enum items_added added = items_numbers_add(c->numbers, value, ref);
    if (added != ITEMS_FOUND && added != ITEMS_NEW)
        return added;
    if (added == ITEMS_NEW) {
        table_begin(&c->table);
        uint64_t hash = table_hash(&c->table, value->key);
        put_row(c, ref->number,
                table_find_or_admit(&c->table, value->key, hash, step, true, false, c->table.stride));
    }
    table_touch(&c->table, row_of(c, ref->number), seconds, step, 1);
    mark_for_index(c, ref->number);
    return added;
}

bool catalogue_find(const struct catalogue *c, uint64_t key, struct items_ref *ref)
{
    return items_numbers_find(c->numbers, key, ref);
}

bool catalogue_remove(struct catalogue *c, uint64_t key)
{
    struct items_ref ref;
    if (!items_numbers_remove(c->numbers, key, &ref))
        return false;
    table_remove(&c->table, key, table_hash(&c->table, key));
    (void)items_index_remove(c->index, ref.number); /* it may not have been put yet */
    c->rows[ref.number] = NULL;
    c->live_is_old = true;
    if (c->options.removed != NULL)
        c->options.removed(c->options.removed_of, ref.number);
    return true;
}

bool catalogue_is_live(const struct catalogue *c, struct items_ref ref)
{
    struct items_value value;
    return items_numbers_value(c->numbers, ref, &value);
}

/* --- Expiry --- */

/* Removes the items whose newest occurrence is before a time in seconds. */
static void remove_expired(struct catalogue *c, uint32_t expired_before, uint32_t step_in_progress)
{
    for (uint32_t i = 0; i < c->used; i++) {
        if (i + WALK_AHEAD < c->used && c->rows[i + WALK_AHEAD] != NULL)
            prefetch_line(row_of(c, i + WALK_AHEAD));
        if (c->rows[i] == NULL)
            continue;
        const struct table_row *row = row_of(c, i);
        bool is_spared = step_in_progress != TABLE_STEP_NONE && row->step == step_in_progress;
        if (row->seen < expired_before && !is_spared)
            c->table.stats.expired += catalogue_remove(c, row->key);
    }
}

/* The number of the last point that a watermark has passed; rounded towards minus infinity. */
static int64_t point_of(const struct catalogue *c, int64_t watermark_us)
{
    return watermark_us / c->interval_us - (watermark_us % c->interval_us < 0);
}

void catalogue_set_watermark(struct catalogue *c, int64_t watermark_us, uint32_t step_in_progress)
{
    if (watermark_us <= c->watermark_us)
        return;
    int64_t before = c->watermark_us, point = point_of(c, watermark_us);
    c->watermark_us = watermark_us;
    if (before == INT64_MIN || point == point_of(c, before) || c->options.expire_after_us == 0)
        return;
    if (point < 0 || watermark_us == TIME_MAX)
        return;
    uint32_t expired_before = table_expiry(point * c->interval_us, c->options.expire_after_us);
    if (expired_before > 0)
        remove_expired(c, expired_before, step_in_progress);
}

/* --- All items --- */

float *const *catalogue_rows(const struct catalogue *c)
{
    return c->rows;
}

uint32_t catalogue_used(const struct catalogue *c)
{
    return c->used;
}

const uint32_t *catalogue_live(struct catalogue *c, uint32_t *count)
{
    if (c->live_is_old) {
        c->live_count = 0;
        for (uint32_t i = 0; i < c->used; i++) {
            c->live[c->live_count] = i;
            c->live_count += c->rows[i] != NULL;
        }
        c->live_is_old = false;
    }
    *count = c->live_count;
    return c->live;
}

/* --- The index --- */

static void refresh(struct catalogue *c, uint32_t number)
{
    const float *row = c->rows[number];
    if (row != NULL && !items_index_put(c->index, number, row))
        (void)items_index_remove(c->index, number); /* its older row, if there was one */
}

static void refresh_all(struct catalogue *c)
{
    for (uint32_t i = 0; i < c->used; i++)
        refresh(c, i);
    memset(c->changed, 0, BIT_WORDS((size_t)c->used) * sizeof(*c->changed));
}

/* By rising number, whatever the order of changes: neighbours share cache lines of the index. */
static void refresh_changed(struct catalogue *c)
{
    for (size_t w = 0; w < BIT_WORDS((size_t)c->used); w++) {
        for (uint64_t bits = c->changed[w]; bits != 0; bits &= bits - 1)
            refresh(c, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits));
        c->changed[w] = 0;
    }
}

void catalogue_refresh(struct catalogue *c)
{
    if (c->all_changed)
        refresh_all(c);
    else if (c->has_changed)
        refresh_changed(c);
    c->has_changed = c->all_changed = false;
    c->searchable = (uint32_t)items_index_live(c->index);
    c->refreshed = items_numbers_counts(c->numbers).live;
}

uint32_t catalogue_unsearchable(const struct catalogue *c)
{
    return c->refreshed - c->searchable;
}

size_t catalogue_top(struct catalogue *c, struct items_search *search, const float *queries, size_t count,
                     size_t k, struct items_scored *top)
{
    catalogue_refresh(c);
    return items_index_top(c->index, search, queries, count, k, top);
}

bool catalogue_rank(struct catalogue *c, struct items_search *search, const float *query, uint32_t number,
                    const uint32_t *left_out, size_t n, double *rank)
{
    catalogue_refresh(c);
    return items_index_rank(c->index, search, query, number, left_out, n, rank);
}

/* --- After a restore --- */

/* As if nobody had a number. */
static void forget_all(struct catalogue *c)
{
    for (uint32_t i = 0; i < c->used; i++) {
        (void)items_index_remove(c->index, i);
        c->rows[i] = NULL;
    }
    c->used = c->live_count = c->all_epoch = c->searchable = c->refreshed = 0;
}

const char *catalogue_check(struct catalogue *c)
{
    forget_all(c);
    struct items_counts counts = items_numbers_counts(c->numbers);
    need_room(c, counts.used);
    for (uint32_t i = 0; i < c->table.rows_used; i++) {
        struct table_row *row = table_row_at(&c->table, i);
        struct items_ref ref;
        if (row->key == 0)
            continue;
        if (!items_numbers_find(c->numbers, row->key, &ref))
            return "a row of the items' table belongs to no item";
        c->rows[ref.number] = table_payload(row);
    }
    /* A key has one row and one number, so that equal counts leave no item without a row. */
    if (c->table.stats.rows != counts.live)
        return "an item has no row in the items' table";
    c->used = counts.used;
    c->live_is_old = true;
    c->all_changed = c->options.index_dims == 0;
    return NULL;
}

size_t catalogue_bytes(const struct catalogue *c)
{
    size_t each = sizeof(*c->rows) + sizeof(*c->live);
    return sizeof(*c) + table_bytes(&c->table) + items_numbers_counts(c->numbers).bytes +
           items_index_bytes(c->index) + c->room * each + BIT_WORDS((size_t)c->room) * sizeof(*c->changed);
}
