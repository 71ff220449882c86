/* What checkpoints and cuts have of a model: its tables, and the parts beside them (learners/stored). */
#include "core/buffer.h"
#include "core/mem.h"
#include "learners/stored/stored.h"
#include "learners/towers/internal.h"

#include <stdlib.h>

uint32_t towers_tables(struct towers *t, struct table **tables)
{
    uint32_t n = 0;
    tables[n++] = catalogue_table(t->items);
    tables[n++] = &t->about;
    for (uint32_t f = 0; f < t->options.query_fields; f++)
        tables[n++] = &t->query.tables[f];
    for (uint32_t f = 1; f <= t->options.features; f++)
        tables[n++] = &t->item.tables[f];
    for (size_t i = 0; t->options.history > 0 && i < histories_tables(t->histories); i++)
        tables[n++] = histories_table(t->histories, i);
    leat_assert(n <= STORED_TABLES_MAX);
    return n;
}

/* --- The step in progress --- */

struct saved_step {
    uint64_t steps, targets_learned, targets_rejected, unnumbered, refused[2];
    int64_t watermark_us;
    double loss;
    uint64_t waiting, ids;
    uint64_t cursor;
};

struct saved_waiting {
    uint64_t identity;
    uint32_t number, generation, seconds, unused;
    uint16_t counts[TOWERS_QUERY_MAX];
};

static void save_step(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct towers *t = of;
    struct saved_step head = {.steps = t->steps,
                              .targets_learned = t->targets_learned,
                              .targets_rejected = t->targets_rejected,
                              .unnumbered = t->unnumbered,
                              .refused = {t->query.rows_refused, t->item.rows_refused},
                              .watermark_us = t->watermark_us,
                              .loss = t->loss,
                              .waiting = t->waiting_count,
                              .ids = t->waiting_ids_count,
                              .cursor = t->cursor};
    buffer_append(out, &head, sizeof(head));
    for (uint32_t i = 0; i < t->waiting_count; i++) {
        const struct towers_waiting *w = &t->waiting[i];
        struct saved_waiting saved = {.identity = w->identity,
                                      .number = w->item.number,
                                      .generation = w->item.generation,
                                      .seconds = w->seconds};
        memcpy(saved.counts, w->counts, sizeof(saved.counts));
        buffer_append(out, &saved, sizeof(saved));
    }
    if (t->waiting_ids_count > 0)
        buffer_append(out, t->waiting_ids, t->waiting_ids_count * sizeof(*t->waiting_ids));
}

/* The events that wait; their ids lie behind them, and are all theirs. */
static const char *load_waiting(struct towers *t, uint64_t count, uint64_t ids, const char *at)
{
    uint64_t first = 0;
    for (uint64_t i = 0; i < count; i++, at += sizeof(struct saved_waiting)) {
        struct saved_waiting saved;
        memcpy(&saved, at, sizeof(saved));
        struct towers_waiting *w = &t->waiting[i];
        *w = (struct towers_waiting){.identity = saved.identity,
                                     .item = {saved.number, (uint16_t)saved.generation},
                                     .seconds = saved.seconds,
                                     .first = first};
        if (t->options.history > 0 && saved.counts[0] != 1)
            return "a pair of the step does not have one first item";
        for (uint32_t f = 0; f < t->options.query_fields; f++) {
            if (saved.counts[f] > TOWERS_LIST_MAX)
                return "an event of the step has too many ids";
            first += w->counts[f] = saved.counts[f];
        }
    }
    if (first != ids)
        return "the events of the step have other ids than are there";
    t->waiting_ids_room = t->waiting_ids_count = ids;
    t->waiting_ids = mem_realloc(t->waiting_ids, MAX(ids, 1U) * sizeof(*t->waiting_ids));
    memcpy(t->waiting_ids, at, ids * sizeof(*t->waiting_ids));
    for (uint64_t i = 0; i < ids; i++)
        if (t->waiting_ids[i] == 0)
            return "an event of the step has an id of 0";
    t->waiting_count = (uint32_t)count;
    return NULL;
}

static const char *load_step(void *of, const void *data, size_t bytes)
{
    struct towers *t = of;
    struct saved_step head;
    if (bytes < sizeof(head))
        return "the state of the step is cut off";
    memcpy(&head, data, sizeof(head));
    if (head.waiting >= t->options.batch)
        return "a step has more events than `batch`";
    if (head.ids > head.waiting * TOWERS_QUERY_MAX * TOWERS_LIST_MAX ||
        bytes != sizeof(head) + head.waiting * sizeof(struct saved_waiting) + head.ids * sizeof(uint64_t))
        return "the events of the step are cut off";
    t->steps = head.steps, t->targets_learned = head.targets_learned;
    t->targets_rejected = head.targets_rejected, t->unnumbered = head.unnumbered;
    t->query.rows_refused = head.refused[0], t->item.rows_refused = head.refused[1];
    t->watermark_us = head.watermark_us, t->loss = head.loss;
    t->cursor = (uint32_t)head.cursor;
    t->waiting_count = 0, t->waiting_ids_count = 0;
    return load_waiting(t, head.waiting, head.ids, (const char *)data + sizeof(head));
}

/* Of the step a follower needs the watermark alone, by which rows of the query expire; items are removed as cuts say. */
static void save_step_reader(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct towers *t = of;
    buffer_append(out, &t->watermark_us, sizeof(t->watermark_us));
}

static const char *load_step_reader(void *of, const void *data, size_t bytes)
{
    struct towers *t = of;
    int64_t watermark_us;
    if (bytes != sizeof(watermark_us))
        return "the watermark cannot be read";
    memcpy(&watermark_us, data, sizeof(watermark_us));
    for (uint32_t f = 0; f < t->options.query_fields; f++)
        table_set_watermark(&t->query.tables[f], watermark_us, TABLE_STEP_NONE);
    if (t->options.history > 0)
        histories_set_watermark(t->histories, watermark_us, TABLE_STEP_NONE);
    return NULL;
}

/* --- How often items occur --- */

static void save_frequencies(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct towers *t = of;
    if (t->options.history > 0)
        towers_alike_save(t, out);
    else
        targets_save(t->targets, out);
}

/* Behind the part of the step, which says how many targets were learned. */
static const char *load_frequencies(void *of, const void *data, size_t bytes)
{
    struct towers *t = of;
    char reason[FREQUENCIES_REASON];
    if (t->options.history > 0)
        return towers_alike_load(t, data, bytes);
    return targets_restore(t->targets, data, bytes, t->options.items_max, t->targets_learned, reason)
               ? NULL
               : "how often items occurred cannot be read";
}

/* --- All parts --- */

uint32_t towers_parts(struct towers *t, struct stored_part *parts)
{
    uint32_t n = 0;
    parts[n++] = stored_weights("query", &t->query.net);
    parts[n++] = stored_weights("item", &t->item.net);
    parts[n++] = (struct stored_part){.name = "step",
                                      .of = t,
                                      .save = save_step,
                                      .load = load_step,
                                      .is_for_readers = true,
                                      .save_reader = save_step_reader,
                                      .load_reader = load_step_reader};
    parts[n++] = (struct stored_part){
        .name = "frequencies", .of = t, .save = save_frequencies, .load = load_frequencies};
    parts[n++] = stored_numbers("items", catalogue_numbers(t->items));
    return n;
}

/* What is known of each item belongs to it, and its row goes into the index. */
static const char *check_about(struct towers *t)
{
    uint32_t count;
    const uint32_t *live = catalogue_live(t->items, &count);
    for (uint32_t i = 0; i < t->numbers_room; i++)
        t->about_of[i] = NULL;
    if (t->about.stats.rows != count)
        return "other items are known than there are";
    for (uint32_t i = 0; i < count; i++) {
        const float *floats = catalogue_rows(t->items)[live[i]];
        uint64_t key =
            ((const struct table_row *)(const void *)((const unsigned char *)floats - TABLE_ROW_HEADER))->key;
        if (table_find(&t->about, key) == NULL)
            return "nothing is known of an item";
        towers_know(t, key, live[i]);
        struct towers_about *about = t->about_of[live[i]];
        for (uint32_t f = 0; f < t->options.features; f++)
            if (about->counts[f] > (t->options.is_list[f] ? t->options.list_max : 1))
                return "an item has too many values of a feature";
        if (about->is_encoded &&
            !items_index_put(catalogue_index(t->items), live[i], towers_encoded(t, about)))
            (void)items_index_remove(catalogue_index(t->items), live[i]);
    }
    return NULL;
}

const char *towers_check(struct towers *t)
{
    const char *why = catalogue_check(t->items);
    if (why == NULL)
        why = check_about(t);
    if (why == NULL && t->options.history > 0)
        why = towers_alike_check(t);
    if (why == NULL)
        towers_set_watermark(t, t->watermark_us);
    return why;
}
