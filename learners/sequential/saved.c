/* What checkpoints and cuts have of a model: its tables, and the parts beside them (learners/stored). */
#include "learners/sequential/internal.h"

#include "core/buffer.h"
#include "learners/stored/stored.h"

uint32_t sequential_tables(struct sequential *s, struct table **tables)
{
    uint32_t n = 0;
    tables[n++] = catalogue_table(s->items);
    for (uint32_t k = 0; k < s->options.sides; k++)
        tables[n++] = catalogue_table(s->sides[k]);
    for (uint32_t k = 0; k < s->options.contexts; k++)
        tables[n++] = catalogue_table(s->contexts[k]);
    for (size_t i = 0; i < histories_tables(s->histories); i++)
        tables[n++] = histories_table(s->histories, i);
    return n;
}

/* --- The step in progress --- */

struct saved_step {
    uint64_t steps, targets_learned, targets_rejected, rows_refused, unnumbered;
    int64_t watermark_us;
    double loss;
    uint64_t pass, pass_at; /* where the passes stand */
    uint64_t windows;
};

struct saved_window {
    uint64_t identity;
    struct items_ref target;
    uint32_t length;
    uint32_t contexts[SEQUENTIAL_CONTEXTS_MAX];
};

static void save_windows(const struct sequential_windows *w, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct sequential_window *window = &w->items[i];
        struct saved_window saved = {.identity = window->identity, .length = window->length};
        saved.target.number = window->target.number, saved.target.generation = window->target.generation;
        memcpy(saved.contexts, window->contexts, sizeof(saved.contexts));
        buffer_append(out, &saved, sizeof(saved));
        buffer_append(out, w->tokens + window->first, window->length * sizeof(*w->tokens));
    }
}

static void save_step(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct sequential *s = of;
    struct saved_step head = {.steps = s->steps,
                              .targets_learned = s->targets_learned,
                              .targets_rejected = s->targets_rejected,
                              .rows_refused = s->rows_refused,
                              .unnumbered = s->unnumbered,
                              .watermark_us = s->watermark_us,
                              .loss = s->loss,
                              .pass = s->passes.pass,
                              .pass_at = s->passes.at,
                              .windows = s->pending.count};
    buffer_append(out, &head, sizeof(head));
    save_windows(&s->pending, out);
}

static const char *load_windows(const struct sequential *s, struct sequential_windows *w, uint64_t count,
                                const char *at, size_t left)
{
    windows_clear(w);
    for (uint64_t i = 0; i < count; i++) {
        struct saved_window saved;
        if (left < sizeof(saved))
            return "a window of the step is cut off";
        memcpy(&saved, at, sizeof(saved));
        at += sizeof(saved), left -= sizeof(saved);
        size_t bytes = saved.length * sizeof(struct history_entry);
        if (saved.length == 0 || saved.length > s->options.history || left < bytes)
            return "a window of the step is too long";
        struct sequential_window *window = windows_add(w);
        window->identity = saved.identity, window->length = saved.length, window->target = saved.target;
        memcpy(window->contexts, saved.contexts, sizeof(window->contexts));
        memcpy(windows_room(w, saved.length), at, bytes);
        w->tokens_count += saved.length;
        at += bytes, left -= bytes;
    }
    return left == 0 ? NULL : "there is more behind the windows of the step";
}

static const char *load_step(void *of, const void *data, size_t bytes)
{
    struct sequential *s = of;
    struct saved_step head;
    if (bytes < sizeof(head))
        return "the state of the step is cut off";
    memcpy(&head, data, sizeof(head));
    if (head.windows >= s->options.batch)
        return "a step has more windows than `batch`";
    windows_clear(&s->unlabelled); /* the part of hidden items is behind this one */
    s->passes.pass = head.pass, s->passes.at = head.pass_at;
    s->steps = head.steps, s->targets_learned = head.targets_learned,
    s->targets_rejected = head.targets_rejected;
    s->rows_refused = head.rows_refused, s->unnumbered = head.unnumbered;
    s->watermark_us = head.watermark_us, s->loss = head.loss;
    return load_windows(s, &s->pending, head.windows, (const char *)data + sizeof(head),
                        bytes - sizeof(head));
}

/* Of the step a follower needs the watermark alone, by which users expire; items it removes as the cuts say. */
static void save_step_reader(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct sequential *s = of;
    buffer_append(out, &s->watermark_us, sizeof(s->watermark_us));
}

static const char *load_step_reader(void *of, const void *data, size_t bytes)
{
    struct sequential *s = of;
    int64_t watermark_us;
    if (bytes != sizeof(watermark_us))
        return "the watermark cannot be read";
    memcpy(&watermark_us, data, sizeof(watermark_us));
    histories_set_watermark(s->histories, watermark_us, TABLE_STEP_NONE);
    return NULL;
}

/* --- What learns by hidden items: the row that stands for them, windows that wait --- */

struct saved_masked {
    uint64_t learned;
    double loss;
    uint64_t windows;
};

static void save_masked(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct sequential *s = of;
    struct saved_masked head = {
        .learned = s->masks.learned, .loss = s->masks.loss, .windows = s->unlabelled.count};
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, s->masks.row, s->masks.row_bytes);
    save_windows(&s->unlabelled, out);
}

/* Behind the part of the step. */
static const char *load_masked(void *of, const void *data, size_t bytes)
{
    struct sequential *s = of;
    struct saved_masked head;
    size_t first = sizeof(head) + s->masks.row_bytes;
    if (bytes < first)
        return "the state of hidden items is cut off";
    memcpy(&head, data, sizeof(head));
    if (head.windows >= s->options.batch - s->pending.count)
        return "a step has more windows than `batch`";
    memcpy(s->masks.row, (const char *)data + sizeof(head), s->masks.row_bytes);
    s->masks.learned = head.learned, s->masks.loss = head.loss;
    return load_windows(s, &s->unlabelled, head.windows, (const char *)data + first, bytes - first);
}

/* A follower has the row, for who looks at its model. */
static void save_masked_reader(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct sequential *s = of;
    buffer_append(out, s->masks.row, s->options.dim * sizeof(*s->masks.row));
}

static const char *load_masked_reader(void *of, const void *data, size_t bytes)
{
    struct sequential *s = of;
    if (bytes != s->options.dim * sizeof(*s->masks.row))
        return "the row of hidden items cannot be read";
    memcpy(s->masks.row, data, bytes);
    return NULL;
}

/* --- How often items occur --- */

static void save_frequencies(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    targets_save(((const struct sequential *)of)->targets, out);
}

/* Behind the part of the step, which says how many targets were learned. */
static const char *load_frequencies(void *of, const void *data, size_t bytes)
{
    struct sequential *s = of;
    char reason[FREQUENCIES_REASON];
    return targets_restore(s->targets, data, bytes, s->options.items_max, s->targets_learned, reason)
               ? NULL
               : "how often items occurred cannot be read";
}

/* --- All parts --- */

uint32_t sequential_parts(struct sequential *s, struct stored_part *parts)
{
    static const char *const sides[SEQUENTIAL_SIDES_MAX] = {"with0", "with1", "with2", "with3"};
    static const char *const contexts[SEQUENTIAL_CONTEXTS_MAX] = {"context0", "context1", "context2",
                                                                  "context3"};
    uint32_t n = 0;
    parts[n++] = stored_weights("weights", &s->net);
    parts[n++] = (struct stored_part){.name = "step",
                                      .of = s,
                                      .save = save_step,
                                      .load = load_step,
                                      .is_for_readers = true,
                                      .save_reader = save_step_reader,
                                      .load_reader = load_step_reader};
    if (s->options.masked_share > 0.0)
        parts[n++] = (struct stored_part){.name = "masked",
                                          .of = s,
                                          .save = save_masked,
                                          .load = load_masked,
                                          .is_for_readers = true,
                                          .save_reader = save_masked_reader,
                                          .load_reader = load_masked_reader};
    parts[n++] = (struct stored_part){
        .name = "frequencies", .of = s, .save = save_frequencies, .load = load_frequencies};
    parts[n++] = stored_numbers("items", catalogue_numbers(s->items));
    for (uint32_t k = 0; k < s->options.sides; k++)
        parts[n++] = stored_numbers(sides[k], catalogue_numbers(s->sides[k]));
    for (uint32_t k = 0; k < s->options.contexts; k++)
        parts[n++] = stored_numbers(contexts[k], catalogue_numbers(s->contexts[k]));
    return n;
}

const char *sequential_check(struct sequential *s)
{
    const char *why = catalogue_check(s->items);
    for (uint32_t k = 0; k < s->options.sides && why == NULL; k++)
        why = catalogue_check(s->sides[k]);
    for (uint32_t k = 0; k < s->options.contexts && why == NULL; k++)
        why = catalogue_check(s->contexts[k]);
    /* the watermark first: of users who have expired, some rows are removed and others are not */
    histories_set_watermark(s->histories, s->watermark_us, TABLE_STEP_NONE);
    if (why == NULL)
        why = histories_check(s->histories);
    if (why == NULL)
        sequential_set_watermark(s, s->watermark_us);
    return why;
}
