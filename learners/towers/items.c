/* Items: what is known of them, and their rows in the index. */
#include "learners/towers/internal.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/tables/inline.h"

#include <stdlib.h>

/* --- The table `about` --- */

static uint32_t ids_room(const struct towers_options *o, uint32_t feature)
{
    return o->is_list[feature] ? o->list_max : 1;
}

/* All bytes are zeroed, so that equal items are equal rows. */
static void init_about(void *argument, uint64_t key, void *payload)
{
    const struct towers *t = argument;
    (void)key;
    memset(payload, 0, t->about.options.payload_bytes);
}

static void forget(void *of, uint32_t number)
{
    struct towers *t = of;
    struct towers_about *about = t->about_of[number];
    const struct table_row *row = (const void *)((const unsigned char *)about - TABLE_ROW_HEADER);
    uint64_t key = row->key;
    table_remove(&t->about, key, table_hash(&t->about, key));
    t->about_of[number] = NULL;
    targets_forget(t->targets, number);
    if (t->options.history > 0) {
        popularity_forget(&t->popular, number);
        if (table_find(&t->query.tables[0], key) != NULL)
            table_remove(&t->query.tables[0], key, table_hash(&t->query.tables[0], key));
    }
    if (t->options.removed != NULL)
        t->options.removed(t->options.removed_of, number);
}

void towers_make_items(struct towers *t)
{
    const struct towers_options *o = &t->options;
    size_t at = sizeof(struct towers_about);
    for (uint32_t f = 0; f < o->features; f++) {
        t->ids_at[f] = at;
        at += ids_room(o, f) * sizeof(uint64_t);
    }
    t->vector_at = at;
    at = (at + towers_width(o) * sizeof(float) + 7) / 8 * 8;
    struct table_options about = {.payload_bytes = at,
                                  .align = 8,
                                  .shards = o->shards,
                                  .seed = num_mix(o->seed ^ 0xab01),
                                  .init = init_about,
                                  .init_argument = t};
    table_init(&t->about, &about);
    t->items = catalogue_create(&(struct catalogue_options){.kernels = o->kernels,
                                                            .dim = o->dim,
                                                            .optimizer = o->rows,
                                                            .init = o->init,
                                                            .numbers_max = o->items_max,
                                                            .expire_after_us = o->expire_after_us,
                                                            .shards = o->shards,
                                                            .seed = num_mix(o->seed + 0x17e5),
                                                            .index_dims = towers_width(o),
                                                            .removed = forget,
                                                            .removed_of = t});
}

static void numbers_room(struct towers *t, uint32_t number)
{
    if (number < t->numbers_room)
        return;
    uint32_t before = t->numbers_room;
    t->numbers_room = MAX(number + 1, MAX(2 * before, 1024U));
    t->about_of = mem_realloc(t->about_of, t->numbers_room * sizeof(*t->about_of));
    t->encoded_in = mem_realloc(t->encoded_in, t->numbers_room * sizeof(*t->encoded_in));
    memset(t->about_of + before, 0, (t->numbers_room - before) * sizeof(*t->about_of));
    memset(t->encoded_in + before, 0, (t->numbers_room - before) * sizeof(*t->encoded_in));
}

void towers_know(struct towers *t, uint64_t key, uint32_t number)
{
    numbers_room(t, number);
    table_begin(&t->about);
    struct table_row *row = table_find_or_admit(&t->about, key, table_hash(&t->about, key), TABLE_STEP_NONE,
                                                true, false, t->about.stride);
    t->about_of[number] = (void *)table_payload(row);
}

/* Before the payload changes. */
static void change_about(struct towers *t, struct towers_about *about)
{
    struct table_row *row = (void *)((unsigned char *)about - TABLE_ROW_HEADER);
    if (row->epoch != t->about.epoch)
        table_mark_changed(&t->about, row);
}

static uint64_t *ids_of(const struct towers *t, struct towers_about *about, uint32_t feature)
{
    return (uint64_t *)(void *)((unsigned char *)about + t->ids_at[feature]);
}

const float *towers_encoded(const struct towers *t, const struct towers_about *about)
{
    return (const float *)(const void *)((const unsigned char *)about + t->vector_at);
}

bool towers_set_features(struct towers *t, uint32_t number, const struct towers_ids *features)
{
    struct towers_about *about = t->about_of[number];
    const uint64_t *ids = features->ids;
    bool is_equal = true;
    for (uint32_t f = 0; f < t->options.features; f++) {
        uint32_t count = features->counts[f];
        leat_assert(count <= ids_room(&t->options, f));
        is_equal = is_equal && about->counts[f] == count &&
                   (count == 0 || memcmp(ids_of(t, about, f), ids, count * sizeof(*ids)) == 0);
        ids += count;
    }
    if (is_equal)
        return false;
    change_about(t, about);
    ids = features->ids;
    for (uint32_t f = 0; f < t->options.features; f++) {
        uint32_t count = features->counts[f];
        memset(ids_of(t, about, f), 0, ids_room(&t->options, f) * sizeof(*ids));
        if (count > 0)
            memcpy(ids_of(t, about, f), ids, count * sizeof(*ids));
        about->counts[f] = (uint16_t)count;
        ids += count;
    }
    return true;
}

/* --- The item tower's input --- */

/* Field 0 is the item itself; `of` is the model. */
static const uint64_t *item_ids(const void *of, uint32_t row, uint32_t field, uint32_t *count)
{
    const struct towers *t = of;
    *count = 1;
    if (field == 0)
        return &t->item_ids[row];
    struct towers_about *about = t->about_of[t->at_work[row]];
    *count = about->counts[field - 1];
    return ids_of(t, about, field - 1);
}

static uint32_t item_seen(const void *of, uint32_t row)
{
    const struct towers *t = of;
    const float *floats = catalogue_rows(t->items)[t->at_work[row]];
    return ((const struct table_row *)(const void *)((const unsigned char *)floats - TABLE_ROW_HEADER))->seen;
}

void towers_bring_items(struct towers *t, const uint32_t *numbers, uint32_t n)
{
    struct tower_source source = {.of = t, .ids = item_ids, .seen = item_seen};
    leat_assert(n <= t->items_room);
    t->at_work = numbers;
    for (uint32_t i = 0; i < n; i++)
        t->item_ids[i] = (uint64_t)numbers[i] + 1;
    tower_bags(&t->item, n, &source);
}

/* --- The index --- */

static void store(struct towers *t, uint32_t number, const float *vector)
{
    struct towers_about *about = t->about_of[number];
    size_t bytes = t->item.width * sizeof(*vector);
    change_about(t, about);
    about->is_encoded = 1;
    memcpy((unsigned char *)about + t->vector_at, vector, bytes);
    if (!items_index_put(catalogue_index(t->items), number, vector))
        (void)items_index_remove(catalogue_index(t->items), number); /* its older row, if there was one */
}

void towers_want(struct towers *t, uint32_t number)
{
    if (t->wanted_count == t->wanted_room) {
        t->wanted_room = MAX(2 * t->wanted_room, 1024U);
        t->wanted = mem_realloc(t->wanted, t->wanted_room * sizeof(*t->wanted));
    }
    t->wanted[t->wanted_count++] = number;
}

/* Vectors of items that are there, and whether each has one. */
static void encode_some(struct towers *t, const uint32_t *numbers, uint32_t n)
{
    if (t->options.history > 0) {
        towers_alike_encode(t, numbers, n, t->item_vectors, t->item_taught);
        return;
    }
    towers_bring_items(t, numbers, n);
    tower_look(&t->item);
    tower_encode(&t->item, 0, n, t->item_vectors);
    memset(t->item_taught, 1, n);
}

void towers_encode_wanted(struct towers *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->wanted_count; i++) {
        uint32_t number = t->wanted[i];
        if (number < t->numbers_room && t->about_of[number] != NULL) /* an item may be gone again */
            t->wanted[n++] = number;
    }
    for (size_t at = 0; at < n; at += t->item.pass) {
        uint32_t count = (uint32_t)MIN(n - at, (size_t)t->item.pass);
        encode_some(t, t->wanted + at, count);
        for (uint32_t i = 0; i < count; i++)
            if (t->item_taught[i])
                store(t, t->wanted[at + i], t->item_vectors + (size_t)i * t->item.width);
    }
    t->wanted_count = 0;
}

/* The place in `live`, which rises, of the first number that is not below `number`. */
static uint32_t place_from(const uint32_t *live, uint32_t count, uint32_t number)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (live[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void towers_encode_after(struct towers *t, const uint32_t *numbers, uint32_t n)
{
    uint32_t count, stamp = (uint32_t)t->steps + 1;
    const uint32_t *live = catalogue_live(t->items, &count);
    for (uint32_t i = 0; i < n; i++) {
        if (t->encoded_in[numbers[i]] != stamp)
            towers_want(t, numbers[i]);
        t->encoded_in[numbers[i]] = stamp;
    }
    uint32_t turns = MIN(t->options.refresh, count), at = place_from(live, count, t->cursor);
    for (uint32_t i = 0; i < turns; i++, at++) {
        uint32_t number = live[at % count];
        if (t->encoded_in[number] != stamp)
            towers_want(t, number);
        t->cursor = number + 1;
    }
    towers_encode_wanted(t);
}

/* --- Items that come and go --- */

bool towers_put(struct towers *t, const struct items_value *item, const struct towers_ids *features,
                int64_t time_us)
{
    struct items_ref ref;
    enum items_added added =
        catalogue_add(t->items, item, history_seconds(time_us), (uint32_t)t->steps + 1, &ref);
    if (added != ITEMS_FOUND && added != ITEMS_NEW) {
        t->unnumbered++;
        return false;
    }
    if (added == ITEMS_NEW)
        towers_know(t, item->key, ref.number);
    if (towers_set_features(t, ref.number, features) || added == ITEMS_NEW)
        towers_want(t, ref.number);
    return true;
}

bool towers_remove(struct towers *t, uint64_t key)
{
    return catalogue_remove(t->items, key);
}

void towers_encode_new(struct towers *t)
{
    towers_encode_wanted(t);
}
