/*
 * Items alike (item2vec: Barkan and Koenigstein 2016, Item2Vec: Neural Item Embedding for Collaborative Filtering,
 * arXiv:1603.04259; skip-gram with negative sampling, Mikolov et al. 2013). Each item has two vectors: its own, a row of
 * the query tower's table under the item's key, and one as a neighbour of others, its row of the catalogue.
 *
 * An event's item makes two pairs with each item of its user's window, the last events before it: (new, old) and
 * (old, new). So over time each two events within a window are paired in both directions, as in the paper's symmetric
 * window. A pair is a target of a step: the own vector of the first item is the query, the neighbour's vector of the
 * second the positive. With q the query, p the positive and n the drawn ones (popular.h), all neighbours' vectors,
 *
 *   loss = -log sigmoid(q . p) - sum of log sigmoid(-q . n)
 *
 * which is the loss bce. An item makes no pair with itself; a drawn item that is the positive is left out.
 *
 * Items that occur often make fewer pairs (equation 5 of the paper): an occurrence counts with probability
 * sqrt(subsample / share), by a hash of its user, item and second, so that it counts with all of its window or none.
 * What does not count is part of the window all the same, for predictions.
 *
 * The index has each item's own vector, of length 1, as it was after the last step that changed it; an item that has no
 * own vector yet is not in it, nor one that had occurred less than occurrences_min times then: vectors that few pairs have
 * moved point where most do, and so they would be near to every mean. A query is the mean of the own vectors of the
 * window's items, of length 1: scores are cosines.
 */
#include "learners/towers/internal.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

/* What chance is for: (seed ^ use, identity, place). */
static const uint64_t CHANCE_PAIR = UINT64_C(0x9a17), CHANCE_COUNTS = UINT64_C(0x5ab5);

void towers_alike_make(struct towers *t)
{
    const struct towers_options *o = &t->options;
    struct histories_options histories = {.history = o->history,
                                          .expire_after_us = o->expire_after_us,
                                          .shards = o->shards,
                                          .seed = num_mix(o->seed ^ 0x4157)};
    t->histories = histories_create(&histories);
    t->centers = mem_calloc(o->batch, sizeof(*t->centers));
    popularity_init(&t->popular);
}

void towers_alike_free(struct towers *t)
{
    histories_free(t->histories);
    popularity_free(&t->popular);
    free(t->centers), free(t->past), free(t->past_keys), free(t->past_numbers);
}

/* --- Windows --- */

static void past_room(struct towers *t, size_t count)
{
    if (t->past_room - t->past_count >= count)
        return;
    t->past_room = MAX(2 * t->past_room, t->past_count + count);
    t->past = mem_realloc(t->past, t->past_room * sizeof(*t->past));
    t->past_keys = mem_realloc(t->past_keys, t->past_room * sizeof(*t->past_keys));
    t->past_numbers = mem_realloc(t->past_numbers, t->past_room * sizeof(*t->past_numbers));
}

/* The catalogue's row of an item that is there: its key, and how often it has occurred. */
static const struct table_row *row_of(const struct towers *t, uint32_t number)
{
    const unsigned char *floats = (const unsigned char *)catalogue_rows(t->items)[number];
    return (const struct table_row *)(const void *)(floats - TABLE_ROW_HEADER);
}

void towers_alike_read(struct towers *t, uint32_t i, bool joins)
{
    const struct towers_event *e = &t->events[i];
    struct history_view view;
    struct history_entry entry;
    uint32_t step = (uint32_t)t->steps + 1;
    if (i == 0)
        t->past_count = 0;
    t->past_at[i] = t->past_count;
    histories_find(t->histories, &e->user, 1, step, &view);
    past_room(t, view.length);
    for (uint32_t k = 0; k < view.length && history_next(&view, &entry); k++) {
        if (!catalogue_is_live(t->items, entry.item))
            continue;
        t->past[t->past_count] = entry;
        t->past_keys[t->past_count] = row_of(t, entry.item.number)->key;
        t->past_numbers[t->past_count++] = entry.item.number;
    }
    t->past_counts[i] = (uint16_t)(t->past_count - t->past_at[i]);
    if (!joins)
        return;
    leat_assert(e->user != 0);
    entry = (struct history_entry){.item = t->call_items[i], .seconds = history_seconds(e->time_us)};
    histories_append(t->histories, &e->user, &step, &entry, 1, NULL);
}

bool towers_alike_ids(const struct towers *t, uint32_t i, struct towers_ids *ids, struct towers_seen *seen)
{
    static const uint16_t one = 1;
    const struct towers_event *e = &t->events[i];
    struct items_ref ref;
    seen->window = t->past_numbers + t->past_at[i];
    seen->window_count = t->past_counts[i];
    seen->is_asked = e->asked != 0 && catalogue_find(t->items, e->asked, &ref);
    seen->asked = seen->is_asked ? ref.number : 0;
    *ids = e->asked != 0 ? (struct towers_ids){&e->asked, &one}
                         : (struct towers_ids){t->past_keys + t->past_at[i], &t->past_counts[i]};
    return e->asked != 0 ? seen->is_asked : seen->window_count > 0;
}

/* --- Pairs --- */

/* Whether an occurrence makes pairs. */
static bool counts(const struct towers *t, uint64_t user, uint32_t number, uint64_t key, uint32_t seconds)
{
    double subsample = t->options.subsample, share = popularity_share(&t->popular, number);
    if (!(subsample > 0.0) || share <= subsample)
        return true;
    uint64_t hash = num_chance(t->options.seed ^ CHANCE_COUNTS, user ^ num_mix(key), seconds);
    double u = (double)(hash >> 11) * 0x1p-53;
    return u * u * share < subsample;
}

static void add_pair(struct towers *t, const struct towers_event *e, uint64_t center, struct items_ref other,
                     uint32_t place)
{
    static const uint16_t one = 1;
    towers_add_waiting(t, num_chance(t->options.seed ^ CHANCE_PAIR, e->identity, place), other,
                       history_seconds(e->time_us), &(struct towers_ids){&center, &one});
    if (t->waiting_count == t->options.batch)
        towers_step(t);
}

void towers_alike_take(struct towers *t, uint32_t i)
{
    const struct towers_event *e = &t->events[i];
    struct items_ref new = t->call_items[i];
    popularity_add(&t->popular, new.number, t->occurrences++,
                   items_numbers_counts(catalogue_numbers(t->items)).live);
    if (!counts(t, e->user, new.number, e->item.key, history_seconds(e->time_us)))
        return;
    for (uint32_t k = 0; k < t->past_counts[i]; k++) {
        const struct history_entry *old = &t->past[t->past_at[i] + k];
        uint64_t key = t->past_keys[t->past_at[i] + k];
        if (old->item.number == new.number || !counts(t, e->user, old->item.number, key, old->seconds))
            continue;
        add_pair(t, e, e->item.key, old->item, 2 * k);
        add_pair(t, e, key, new, 2 * k + 1);
    }
}

/* --- The index --- */

static const uint64_t *own_id(const void *of, uint32_t row, uint32_t field, uint32_t *count)
{
    const struct towers *t = of;
    (void)field;
    *count = 1;
    return &t->item_ids[row];
}

static uint32_t no_time(const void *of, uint32_t row)
{
    (void)of, (void)row;
    return 0; /* tower_look reads none */
}

void towers_alike_encode(struct towers *t, const uint32_t *numbers, uint32_t n, float *vectors,
                         uint8_t *is_there)
{
    struct tower_source source = {.of = t, .ids = own_id, .seen = no_time};
    leat_assert(n <= t->items_room);
    for (uint32_t i = 0; i < n; i++)
        t->item_ids[i] = row_of(t, numbers[i])->key;
    tower_bags(&t->query, n, &source);
    tower_look(&t->query);
    tower_encode(&t->query, 0, n, vectors);
    for (uint32_t i = 0; i < n; i++) {
        is_there[i] = t->query.rows[i] != NULL && row_of(t, numbers[i])->count >= t->options.occurrences_min;
        (void)tower_normalize(vectors + (size_t)i * t->query.width, t->query.width);
    }
}

/* --- What is saved, besides tables --- */

struct saved_alike {
    uint64_t occurrences, without_history;
};

void towers_alike_save(const struct towers *t, struct byte_buffer *out)
{
    struct saved_alike head = {.occurrences = t->occurrences, .without_history = t->without_history};
    buffer_append(out, &head, sizeof(head));
    popularity_save(&t->popular, out);
}

const char *towers_alike_load(struct towers *t, const void *data, size_t bytes)
{
    struct saved_alike head;
    char reason[FREQUENCIES_REASON];
    if (bytes < sizeof(head))
        return "how often items occurred is cut off";
    memcpy(&head, data, sizeof(head));
    if (!popularity_restore(&t->popular, (const char *)data + sizeof(head), bytes - sizeof(head),
                            t->options.items_max, head.occurrences, reason))
        return "how often items occurred cannot be read";
    t->occurrences = head.occurrences, t->without_history = head.without_history;
    return NULL;
}

const char *towers_alike_check(struct towers *t)
{
    /* the watermark first: of users who have expired, some rows are removed and others are not */
    histories_set_watermark(t->histories, t->watermark_us, TABLE_STEP_NONE);
    for (uint32_t i = 0; i < t->popular.frequencies.count;
         i++) /* cuts do not say what followers need not know */
        if (i >= t->numbers_room || t->about_of[i] == NULL)
            popularity_forget(&t->popular, i);
    return histories_check(t->histories);
}
