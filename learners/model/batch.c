/*
 * A step over a batch (`batch` > 1): the forward pass of every event uses the same weights, and a row that
 * this step makes counts as absent. Gradients are summed by row in the order of the events (stable sort,
 * segmented sum), and each row makes one optimizer step.
 */
#include "learners/model/internal.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

static void *room(size_t count, size_t size)
{
    void *p = mem_aligned(64, (count * size + 127) / 64 * 64);
    memset(p, 0, (count * size + 127) / 64 * 64);
    return p;
}

void model_batch_init(struct model *m)
{
    size_t entries = (size_t)m->options.batch * m->entries_max;
    size_t weights = entries + m->options.dense + 1 + 16, vectors = entries * m->vector_floats;
    m->batch = (struct model_batch){
        .entries = room(entries, sizeof(struct model_entry)),
        .sorted = room(entries, sizeof(struct model_entry)),
        .keys = room(entries, sizeof(uint64_t)),
        .seen = room(entries, sizeof(uint32_t)),
        .found = room(entries, sizeof(void *)),
        .is_known = room(entries, sizeof(uint8_t)),
        .order = room(entries, sizeof(uint32_t)),
        .starts = room(entries + 1, sizeof(uint32_t)),
        .scales = room(entries, sizeof(float)),
        .gradients = room(vectors, sizeof(float)),
        .sums = room(vectors, sizeof(float)),
        .rows = room(entries, sizeof(struct opt_row)),
        .places = room(weights, sizeof(void *)),
        .weight_gradients = room(weights, sizeof(float)),
        .weights = room(3 * weights, sizeof(float)),
        .weights64 = room(m->options.linear_is_double ? 4 * weights : 0, sizeof(double)),
    };
}

size_t model_batch_bytes(const struct model *m)
{
    size_t entries = (size_t)m->options.batch * m->entries_max, vectors = entries * m->vector_floats;
    const struct model_batch *b = NULL;
    return entries *
               (2 * sizeof(*b->entries) + sizeof(*b->keys) + sizeof(*b->seen) + sizeof(*b->found) +
                sizeof(*b->is_known) + sizeof(*b->order) + sizeof(*b->starts) + sizeof(*b->scales) +
                sizeof(*b->rows) + sizeof(*b->places) + sizeof(*b->weight_gradients) +
                3 * sizeof(*b->weights) + (m->options.linear_is_double ? 4 * sizeof(*b->weights64) : 0)) +
           2 * vectors * sizeof(float);
}

void model_batch_free(struct model *m)
{
    struct model_batch *b = &m->batch;
    free(b->entries);
    free(b->sorted);
    free(b->keys);
    free(b->seen);
    free(b->found);
    free(b->is_known);
    free(b->order);
    free(b->starts);
    free(b->scales);
    free(b->gradients);
    free(b->sums);
    free(b->rows);
    free(b->places);
    free(b->weight_gradients);
    free(b->weights);
    free(b->weights64);
    *b = (struct model_batch){0};
}

/* Counts entries. first[f]: index of field f's first entry, if the entries of all events are ordered by
 * field, then by event. */
static void count_places(const struct model *m, uint32_t *first)
{
    memset(first, 0, (MODEL_FIELDS_MAX + 1) * sizeof(*first));
    for (uint32_t x = 0; x < m->pending; x++)
        for (uint32_t i = 0; i < m->examples[x].entries; i++)
            first[m->examples[x].fields[i] + 1]++;
    for (uint32_t f = 0; f < m->options.fields; f++)
        first[f + 1] += first[f];
}

/* Collects the keys of all events, field by field and in record order, and finds or makes their rows. */
static void resolve_batch(struct model *m)
{
    struct model_batch *b = &m->batch;
    uint32_t at[MODEL_FIELDS_MAX + 1], first[MODEL_FIELDS_MAX + 1];
    count_places(m, first);
    memcpy(at, first, sizeof(at));
    for (uint32_t x = 0; x < m->pending; x++) {
        const struct example *e = &m->examples[x];
        for (uint32_t i = 0; i < e->entries; i++) {
            uint32_t place = at[e->fields[i]]++;
            b->keys[place] = e->keys[i];
            b->seen[place] = e->seen;
        }
    }
    for (uint32_t f = 0; f < m->options.fields; f++)
        table_resolve_batch(&m->tables[f],
                            &(struct table_occurrences){.keys = b->keys + first[f],
                                                        .seen = b->seen + first[f],
                                                        .n = first[f + 1] - first[f]},
                            (uint32_t)m->steps + 1, b->found + first[f], b->is_known + first[f]);
}

/* Sets the events' rows: for the forward pass only the rows that existed before this step; with `all`, for
 * the update, also the new rows. */
static void give_rows(struct model *m, bool all)
{
    const struct model_batch *b = &m->batch;
    uint32_t at[MODEL_FIELDS_MAX + 1];
    count_places(m, at);
    for (uint32_t x = 0; x < m->pending; x++) {
        struct example *e = &m->examples[x];
        for (uint32_t i = 0; i < e->entries; i++) {
            uint32_t place = at[e->fields[i]]++;
            e->rows[i] = all || b->is_known[place] ? b->found[place] : NULL;
        }
    }
}

/* Stable radix sort by `place`, eight bits at a time. */
static void sort_entries(struct model_batch *b, size_t count)
{
    for (unsigned shift = 0; shift < 40; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < count; i++)
            at[(b->entries[i].place >> shift & 255) + 1]++;
        for (size_t d = 0; d < 256; d++)
            at[d + 1] += at[d];
        for (size_t i = 0; i < count; i++)
            b->sorted[at[b->entries[i].place >> shift & 255]++] = b->entries[i];
        struct model_entry *swap = b->entries;
        b->entries = b->sorted;
        b->sorted = swap;
    }
}

static size_t collect_entries(struct model *m)
{
    size_t count = 0;
    for (uint32_t x = 0; x < m->pending; x++) {
        struct example *e = &m->examples[x];
        for (uint32_t i = 0; i < e->entries && !e->is_rejected; i++) {
            if (e->rows[i] == NULL)
                continue;
            uint32_t f = e->fields[i];
            uint64_t row = table_row_number(&m->tables[f], e->rows[i]);
            m->batch.entries[count++] =
                (struct model_entry){.place = (uint64_t)f << 32 | row, .example = x, .entry = i};
        }
    }
    sort_entries(&m->batch, count);
    return count;
}

/* Finds the runs of entries with equal place; returns how many. */
static size_t find_segments(struct model_batch *b, size_t count)
{
    size_t segments = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || b->entries[i].place != b->entries[i - 1].place)
            b->starts[segments++] = (uint32_t)i;
    }
    b->starts[segments] = (uint32_t)count;
    return segments;
}

static struct table_row *entry_row(const struct model *m, const struct model_entry *entry)
{
    return m->examples[entry->example].rows[entry->entry];
}

/* Sums the gradients of `count` entries by segment, in the order that all devices use (kernels/batch.h). */
static void sum_gradients(struct model *m, size_t count, size_t segments)
{
    struct model_batch *b = &m->batch;
    uint32_t distinct = (uint32_t)segments;
    _Alignas(64) unsigned char scratch[BATCH_SCRATCH_MIN]; /* the CPU kernels need no more scratch memory */
    struct batch_segment_reduce reduce = {.in = {.grads = b->gradients,
                                                 .scales = b->scales,
                                                 .order = b->order,
                                                 .starts = b->starts,
                                                 .count = &distinct,
                                                 .n = (uint32_t)count,
                                                 .d = (uint32_t)m->vector_floats},
                                          .sums = b->sums,
                                          .scratch = scratch,
                                          .scratch_bytes = sizeof(scratch)};
    batch_beside(m->k)->segment_reduce(&reduce, NULL);
}

/* One step of the vectors. Entries are sorted by field, and fields with vectors come first, so their
 * entries do, too. */
static void vectors_step(struct model *m, size_t segments)
{
    struct model_batch *b = &m->batch;
    size_t floats = m->vector_floats;
    while (segments > 0 && b->entries[b->starts[segments - 1]].place >> 32 >= m->options.vectors)
        segments--;
    size_t count = b->starts[segments];
    for (size_t i = 0; i < count; i++) {
        const struct example *e = &m->examples[b->entries[i].example];
        uint32_t entry = b->entries[i].entry;
        memcpy(b->gradients + i * floats, interaction_gradient(m, e, e->fields[entry]),
               floats * sizeof(float));
        /* the head's gradients contain the gradient by the logit already */
        float gradient = m->head.layers > 0 ? 1.0F : e->gradient;
        b->scales[i] = gradient * e->scales[entry];
        b->order[i] = (uint32_t)i;
    }
    sum_gradients(m, count, segments);
    for (size_t s = 0; s < segments; s++) {
        struct table_row *row = entry_row(m, &b->entries[b->starts[s]]);
        b->rows[s] = (struct opt_row){.w = model_vector(m, row),
                                      .state = model_vector_state(m, row),
                                      .g = b->sums + s * floats,
                                      .scale = 1.0F,
                                      .curvature = 1.0F};
    }
    m->embedding_step(b->rows, segments, floats, &m->options.embedding.params);
}

static void weights_step(struct model *m, size_t segments)
{
    struct model_batch *b = &m->batch;
    size_t dense = m->options.dense, used = 0;
    for (; used < segments; used++) {
        b->places[used] = table_payload(entry_row(m, &b->entries[b->starts[used]]));
        b->weight_gradients[used] = 0.0F;
        for (uint32_t i = b->starts[used]; i < b->starts[used + 1]; i++) {
            const struct example *e = &m->examples[b->entries[i].example];
            b->weight_gradients[used] += e->gradient * e->scales[b->entries[i].entry];
        }
    }
    for (size_t d = 0; d <= dense; d++, used++) {
        b->places[used] = m->dense_weights + d * LINEAR_FLOATS;
        b->weight_gradients[used] = 0.0F;
        for (uint32_t x = 0; x < m->pending; x++) {
            const struct example *e = &m->examples[x];
            if (!e->is_rejected)
                b->weight_gradients[used] += e->gradient * (d < dense ? e->dense[d] : 1.0F);
        }
    }
    linear_step_places(m, b->places, b->weight_gradients, used, b->weights, b->weights64);
}

/* Forward and backward pass of the head, sixteen events at a time, and one step of its weights at the end. */
static void head_batch(struct model *m)
{
    for (uint32_t first = 0; first < m->pending; first += KERNELS_BLOCK) {
        uint32_t count = MIN(m->pending - first, (uint32_t)KERNELS_BLOCK);
        float logit_gradients[KERNELS_BLOCK] = {0};
        for (uint32_t i = 0; i < count; i++)
            model_head_inputs(m, &m->examples[first + i], head_row(&m->head, i));
        const float *logits = head_forward(&m->head, m->k, count);
        for (uint32_t i = 0; i < count; i++) {
            struct example *e = &m->examples[first + i];
            e->logit += (double)logits[i];
            model_example_judge(m, e);
            logit_gradients[i] = e->gradient;
            if (e->is_rejected)
                memset(head_row(&m->head, i), 0, m->head.inputs * sizeof(float));
        }
        const float *in_gradients = head_backward(&m->head, m->k, logit_gradients);
        head_sum_add(&m->head, m->k, first == 0);
        for (uint32_t i = 0; i < count; i++) {
            if (!m->examples[first + i].is_rejected && m->options.interaction != NULL)
                m->options.interaction->add(m, &m->examples[first + i], in_gradients + i * m->head.inputs);
        }
    }
    head_sum_take(&m->head);
    head_step(&m->head, m->k, &m->options.head.params, m->options.clip_norm);
}

void model_batch_step(struct model *m)
{
    model_step_begin(m);
    resolve_batch(m);
    give_rows(m, false);
    for (uint32_t x = 0; x < m->pending; x++) {
        m->examples[x].is_rejected = false;
        model_example_forward(m, &m->examples[x]);
    }
    give_rows(m, true);
    for (uint32_t x = 0; x < m->pending && m->head.layers == 0; x++) {
        struct example *e = &m->examples[x];
        model_example_judge(m, e);
        if (m->options.clip_norm > 0.0F && !e->is_rejected)
            model_scale_gradient(e, model_clip_scale(m, e));
    }
    if (m->head.layers > 0)
        head_batch(m);
    for (uint32_t x = 0; x < m->pending && m->has_pairs && m->head.layers == 0; x++) {
        struct example *e = &m->examples[x];
        if (e->is_rejected)
            continue;
        interaction_learn_pairs(m, e); /* the pairs' weights make a step for each event */
    }
    size_t count = collect_entries(m);
    size_t segments = find_segments(&m->batch, count);
    if (m->vector_floats > 0)
        vectors_step(m, segments);
    weights_step(m, segments);
    m->pending = 0;
    m->steps++;
}
