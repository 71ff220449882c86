/* A model's small state to bytes and back; rows and sketches of tables go their own way (table_snapshot.c).
 */
#include "learners/model_internal.h"
#include "learners/table_inline.h"

#include "core/base.h"
#include "core/buffer.h"

enum { STATE_MAGIC = 0x6c6d7331 };

struct state_head {
    uint32_t magic, pending;
    uint64_t steps;
    int64_t watermark_us, unused;
};

struct state_example {
    uint32_t entries, seen;
    float label, weight;
};

struct state_table {
    int64_t halved_at_us, watermark_us;
    uint32_t expired_before, unused;
    uint64_t sketch_bytes;
};

/* One walk serves both directions: `in` NULL appends, else reads. */
struct walk {
    struct byte_buffer *out;
    const unsigned char *in;
    size_t left;
    bool is_bad;
};

static void walk_bytes(struct walk *w, void *data, size_t bytes)
{
    if (w->out) {
        if (bytes > 0)
            buffer_append(w->out, data, bytes);
        return;
    }
    if (w->is_bad || w->left < bytes) {
        w->is_bad = true;
        return;
    }
    if (bytes > 0)
        memcpy(data, w->in, bytes);
    w->in += bytes;
    w->left -= bytes;
}

static void walk_example(struct walk *w, struct model *m, struct example *e)
{
    struct state_example s = {e->entries, e->seen, e->label, e->weight};
    walk_bytes(w, &s, sizeof s);
    if (w->is_bad || s.entries > m->entries_max) {
        w->is_bad = true;
        return;
    }
    e->entries = s.entries, e->seen = s.seen, e->label = s.label, e->weight = s.weight;
    /* A key that had no row when its event came has none for that event, whatever came later. */
    for (uint32_t i = 0; w->out != NULL && m->options.batch <= 1 && i < e->entries; i++)
        if (e->rows[i] == NULL)
            e->keys[i] = 0;
    walk_bytes(w, e->keys, e->entries * sizeof *e->keys);
    walk_bytes(w, e->fields, e->entries * sizeof *e->fields);
    walk_bytes(w, e->scales, e->entries * sizeof *e->scales);
    walk_bytes(w, e->dense, m->options.dense * sizeof *e->dense);
    for (uint32_t i = 0; i < e->entries; i++)
        w->is_bad = w->is_bad || e->fields[i] >= m->options.fields;
    e->learns = true;
    e->is_rejected = false;
}

static void walk_table(struct walk *w, struct table *t)
{
    struct state_table s = {t->halved_at_us, t->watermark_us, t->expired_before, 0,
                            SKETCH_DEPTH * t->sketch.width};
    uint64_t sketch_bytes = s.sketch_bytes;
    walk_bytes(w, &s, sizeof s);
    if (w->is_bad || s.sketch_bytes != sketch_bytes) {
        w->is_bad = true;
        return;
    }
    t->halved_at_us = s.halved_at_us, t->watermark_us = s.watermark_us, t->expired_before = s.expired_before;
}

static void walk_weights(struct walk *w, struct model *m)
{
    walk_bytes(w, m->dense_weights, (m->options.dense + 1) * (size_t)LINEAR_BYTES);
    if (m->has_pairs) {
        size_t count = interaction_pairs(m);
        walk_bytes(w, m->pair_weights,
                   (count + opt_state_floats(m->options.pairs.kind, count)) * sizeof(float));
    }
    for (size_t l = 0; l < m->head.layers; l++)
        walk_bytes(w, m->head.items[l].weights, head_layer_floats(&m->head, l) * sizeof(float));
}

static void walk_model(struct walk *w, struct model *m)
{
    struct state_head head = {STATE_MAGIC, m->pending, m->steps, m->watermark_us, 0};
    walk_bytes(w, &head, sizeof head);
    if (w->is_bad || head.magic != STATE_MAGIC || head.pending > MAX(m->options.block, m->options.batch)) {
        w->is_bad = true;
        return;
    }
    m->pending = head.pending, m->steps = head.steps;
    m->watermark_us = head.watermark_us;
    walk_weights(w, m);
    for (uint32_t f = 0; f < m->options.fields; f++)
        walk_table(w, &m->tables[f]);
    for (uint32_t i = 0; i < m->pending && !w->is_bad; i++)
        walk_example(w, m, &m->examples[i]);
}

void model_save(const struct model *m, struct byte_buffer *out)
{
    struct walk w = {.out = out};
    walk_model(&w, (struct model *)m); /* an appending walk writes back what it read */
}

/* Rows of a block in progress are spared from expiry. */
static struct table_row *pending_row(struct table *t, uint64_t key)
{
    const uint64_t *slot = key == 0 ? NULL : table_slot_of(t, key, table_hash(t, key));
    return slot == NULL ? NULL : table_slot_row(t, slot);
}

bool model_load(struct model *m, const void *data, size_t bytes)
{
    struct walk w = {.in = data, .left = bytes};
    walk_model(&w, m);
    if (w.is_bad || w.left != 0)
        return false;
    if (m->options.batch > 1)
        return true; /* a batch resolves its rows itself */
    for (uint32_t x = 0; x < m->pending; x++) {
        struct example *e = &m->examples[x];
        for (uint32_t i = 0; i < e->entries; i++) {
            e->rows[i] = pending_row(&m->tables[e->fields[i]], e->keys[i]);
            if (e->rows[i])
                e->rows[i]->step = (uint32_t)m->steps + 1; /* spared until the block is done */
        }
        model_example_forward(m, e);
    }
    return true;
}
