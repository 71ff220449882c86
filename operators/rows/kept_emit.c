/* Emits kept rows: those of a window at its end, or the changes of a micro-batch. */
#include "operators/rows/kept.h"

#include "core/mem.h"

#include <stdlib.h>

enum { LOOK_GROUPS = 256, LOOK_BYTES = 4 << 20 };

/* --- Rows into batches --- */

/* The output batch being filled, and the values that are not stored with the rows. */
struct emission {
    struct kept *kept;
    struct operator_context *context;
    struct batch *batch; /* NULL: no row yet */
    struct row_order *orders;
    int64_t *ranks;           /* of the rank column; NULL: there is none */
    struct text_ref *changes; /* of the column `_op`; NULL: there is none */
    int64_t time;             /* event time of the rows, with ends_windows */
    int64_t order_us;         /* `time` in the rows' row_order */
    struct row_order last;
};

static const char change_texts[] = "insertupdatedelete";
enum { CHANGE_BYTES = 6 };

static void begin_emission(struct emission *e)
{
    const struct kept_options *options = &e->kept->options;
    struct batch *batch = e->batch = batch_new(e->context->pool, e->context->output, BATCH_ROWS);
    packed_begin(&e->kept->released, batch);
    e->orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*e->orders));
    e->ranks = options->rank_column < 0 ? NULL : batch->columns[options->rank_column].ints;
    e->changes = options->change_column < 0 ? NULL : batch->columns[options->change_column].texts;
    if (e->changes != NULL)
        batch->columns[options->change_column].heap = change_texts;
}

static void end_emission(struct emission *e)
{
    struct batch *batch = e->batch;
    const struct kept_options *options = &e->kept->options;
    e->batch = NULL;
    if (batch == NULL)
        return;
    uint32_t count = e->kept->released.count;
    packed_end(&e->kept->released);
    for (uint32_t i = 0; i < count && options->ends_windows; i++)
        batch->event_time[i] = e->time;
    batch->orders = e->orders;
    e->context->counters.emitted += count;
    operator_emit(e->context, 0, batch);
}

static void emit_row(struct emission *e, struct str bytes, uint64_t hash, uint32_t rank, enum change change)
{
    if (e->batch == NULL)
        begin_emission(e);
    struct kept *kept = e->kept;
    uint32_t row = kept->released.count;
    packed_add(&kept->released, bytes);
    e->orders[row] = row_order_of_timer(&e->last, 1 + e->context->place, e->order_us, hash);
    if (e->ranks != NULL)
        e->ranks[row] = rank;
    if (e->changes != NULL)
        e->changes[row] = (struct text_ref){(uint32_t)change * CHANGE_BYTES, CHANGE_BYTES};
    if (packed_is_full(&kept->released))
        end_emission(e);
}

/* The rank of the i-th best row. before: rank of the row before it. takes_ties: equal rows share a rank. */
static uint32_t rank_of(const struct kept *kept, const struct kept_head *list, uint32_t i, uint32_t before)
{
    if (i == 0 || !kept->options.takes_ties)
        return i + 1;
    struct order_key own = kept_key(kept, list, i), other = kept_key(kept, list, i - 1);
    return ordering_compare(kept->options.ordering, &own, &other) == 0 ? before : i + 1;
}

/* --- Copies of lists --- */

static struct kept_copy *add_copy(struct kept_copies *copies)
{
    if (copies->count == copies->capacity) {
        copies->capacity = MAX(copies->capacity * 2, 256);
        copies->items = mem_realloc(copies->items, copies->capacity * sizeof(*copies->items));
    }
    return &copies->items[copies->count++];
}

static int by_hash(const void *a, const void *b)
{
    const struct kept_copy *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int order = memcmp(&x->key, &y->key, sizeof(x->key));
    return order != 0 ? order : x->window < y->window ? -1 : x->window > y->window;
}

static void sort_copies(struct kept_copies *copies)
{
    if (copies->count > 1)
        qsort(copies->items, copies->count, sizeof(*copies->items), by_hash);
}

static const struct kept_head *list_at(const struct byte_buffer *lists, size_t at)
{
    return at == SIZE_MAX ? NULL : (const struct kept_head *)(const void *)(lists->data + at);
}

struct visit {
    struct kept *kept;
    int64_t window;
};

static void visit_group(void *argument, const struct keyed_slot *slot)
{
    struct visit *visit = argument;
    struct kept *kept = visit->kept;
    const struct kept_head *list = kept_find(slot, visit->window);
    if (list == NULL)
        return;
    *add_copy(&kept->copies) = (struct kept_copy){.hash = key_hash(slot->key),
                                                  .key = slot->key,
                                                  .window = visit->window,
                                                  .at = kept->lists.length,
                                                  .before = SIZE_MAX};
    buffer_append(&kept->lists, list, list->bytes);
}

void kept_emit_window(struct kept *kept, struct operator_context *context, int64_t window, int64_t end)
{
    struct emission e = {.kept = kept, .context = context, .time = end - 1, .order_us = end};
    struct visit visit = {kept, window};
    const struct group_set *groups = context->groups;
    for (uint32_t group = group_set_next(groups, 0); group < KEY_GROUPS;
         group = group_set_next(groups, group + 1)) {
        buffer_clear(&kept->lists);
        kept->copies.count = 0;
        keyed_scan_group(kept->table, group, visit_group, &visit);
        sort_copies(&kept->copies);
        for (uint32_t k = 0; k < kept->copies.count; k++) {
            const struct kept_copy *copy = &kept->copies.items[k];
            const struct kept_head *list = list_at(&kept->lists, copy->at);
            for (uint32_t i = 0, rank = 0; i < list->count; i++) {
                rank = rank_of(kept, list, i, rank);
                emit_row(&e, kept_bytes(kept, list, i), copy->hash, rank, CHANGE_INSERT);
            }
        }
    }
    end_emission(&e);
}

/* --- Changes --- */

/* How many rows of the list `before` are still in the list now: always the best rows of `before`. */
static uint32_t count_left(const struct kept *kept, const struct kept_head *before,
                           const struct kept_head *list)
{
    uint32_t left = 0;
    for (uint32_t i = 0; list != NULL && i < list->count; i++)
        left += kept_place(kept, list, i)->sequence - before->sequence > UINT32_MAX / 2;
    return left;
}

/* Emits the change of a list with is_one: the new row is an insert or an update of the old one. */
static void emit_replaced(struct emission *e, const struct kept_copy *change, const struct kept_head *before,
                          const struct kept_head *list)
{
    bool is_same = before != NULL && list != NULL &&
                   kept_place(e->kept, before, 0)->sequence == kept_place(e->kept, list, 0)->sequence;
    if (list != NULL && !is_same)
        emit_row(e, kept_bytes(e->kept, list, 0), change->hash, 1,
                 before == NULL ? CHANGE_INSERT : CHANGE_UPDATE);
}

/* Emits the change of a list: deletes of the rows that left, then, from the best row on, rows that are new or
 * have another rank. */
static void emit_change(struct emission *e, const struct kept_copy *change, const struct kept_head *before,
                        const struct kept_head *list)
{
    const struct kept *kept = e->kept;
    uint32_t left = before == NULL ? 0 : count_left(kept, before, list), rank = 0;
    uint32_t *ranks = arena_alloc(e->context->scratch, MAX(left, 1) * sizeof(*ranks));
    for (uint32_t i = 0; before != NULL && i < before->count; i++) {
        rank = rank_of(kept, before, i, rank);
        if (i < left)
            ranks[i] = rank;
        else
            emit_row(e, kept_bytes(kept, before, i), change->hash, rank, CHANGE_DELETE);
    }
    uint32_t old = 0;
    rank = 0;
    for (uint32_t i = 0; list != NULL && i < list->count; i++) {
        rank = rank_of(kept, list, i, rank);
        bool is_old =
            before != NULL && kept_place(kept, list, i)->sequence - before->sequence > UINT32_MAX / 2;
        bool is_moved = is_old && kept->options.rank_column >= 0 && ranks[old] != rank;
        old += is_old;
        if (!is_old || is_moved)
            emit_row(e, kept_bytes(kept, list, i), change->hash, rank,
                     is_old ? CHANGE_UPDATE : CHANGE_INSERT);
    }
}

/* Copies the current lists of the changed groups from kept->changes[first] on into kept->lists. Returns how
 * many changes it covered: at least one. */
static uint32_t look_at_groups(struct kept *kept, struct operator_context *context, uint32_t first)
{
    struct kept_copy *changes = kept->changes.items + first;
    uint32_t count = MIN(kept->changes.count - first, LOOK_GROUPS), done = 0;
    struct key *keys = arena_alloc(context->scratch, count * sizeof(*keys));
    uint64_t *hashes = arena_alloc(context->scratch, count * sizeof(*hashes));
    struct keyed_slot *slots[LOOK_GROUPS];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = changes[i].key;
        hashes[i] = changes[i].hash;
    }
    buffer_clear(&kept->lists);
    keyed_look(kept->table, keys, hashes, count, slots);
    for (; done < count && kept->lists.length < LOOK_BYTES; done++) {
        const struct kept_head *list =
            slots[done] == NULL ? NULL : kept_find(slots[done], changes[done].window);
        if (list == NULL)
            continue;
        changes[done].at = kept->lists.length;
        buffer_append(&kept->lists, list, list->bytes);
    }
    keyed_end(kept->table);
    return done;
}

void kept_emit_changes(struct kept *kept, struct operator_context *context)
{
    struct emission e = {.kept = kept, .context = context};
    sort_copies(&kept->changes);
    for (uint32_t first = 0; first < kept->changes.count;) {
        uint32_t count = look_at_groups(kept, context, first);
        for (uint32_t i = first; i < first + count; i++) {
            const struct kept_copy *change = &kept->changes.items[i];
            const struct kept_head *before = list_at(&kept->befores, change->before);
            const struct kept_head *list = list_at(&kept->lists, change->at);
            if (kept->options.is_one)
                emit_replaced(&e, change, before, list);
            else
                emit_change(&e, change, before, list);
        }
        first += count;
    }
    end_emission(&e);
    kept->changes.count = 0;
    buffer_clear(&kept->befores);
}

/* --- Shape, description --- */

void kept_shape(const struct operator_bind *bind, const struct kept_options *options, struct byte_buffer *out)
{
    buffer_printf(out, "=rows: the best %u%s%s\n", options->limit, options->takes_ties ? ", with ties" : "",
                  options->last_wins ? ", the last of equal ones" : "");
    const struct operator_input *input = &bind->inputs[0];
    for (uint32_t i = 0; i < input->key_count; i++) {
        const struct field *field = &input->schema->fields[input->key_columns[i]];
        buffer_printf(out, "=by %.*s: %s\n", STR_ARGS(field->name), type_name(bind->arena, &field->type));
    }
    held_shape(options->input, bind->arena, out);
}

static void describe_row(struct kept *kept, struct operator_context *context, struct str bytes, uint32_t rank,
                         struct describe *out)
{
    struct batch *batch = batch_new(context->pool, kept->options.input, BATCH_ROWS);
    packed_begin(&kept->released, batch);
    packed_add(&kept->released, bytes);
    packed_end(&kept->released);
    describe_record(out, NULL);
    describe_int(out, "rank", rank);
    held_describe_columns(kept->options.input, batch, context, out);
    describe_close(out);
    batch_release(batch);
}

bool kept_describe(struct kept *kept, struct operator_context *context, const struct keyed_slot *slot,
                   const struct kept_windows *windows, struct describe *out)
{
    uint32_t bytes = 0;
    const char *value = slot == NULL ? NULL : keyed_read(slot, &bytes);
    describe_list(out, windows == NULL ? "kept" : "windows");
    for (size_t at = 0; at < bytes && !describe_is_full(out);) {
        const struct kept_head *list = (const struct kept_head *)(const void *)(value + at);
        if (windows != NULL) {
            describe_record(out, NULL);
            describe_time(out, "start", windows->start(windows->argument, list->window));
            describe_time(out, "end", windows->end(windows->argument, list->window));
            describe_list(out, "kept");
        }
        for (uint32_t i = 0, rank = 0; i < list->count && !describe_is_full(out); i++) {
            rank = rank_of(kept, list, i, rank);
            describe_row(kept, context, kept_bytes(kept, list, i), rank, out);
        }
        if (windows != NULL) {
            describe_close(out);
            describe_close(out);
        }
        at += list->bytes;
    }
    describe_close(out);
    return bytes > 0;
}
