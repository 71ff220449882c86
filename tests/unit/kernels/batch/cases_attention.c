/* attention_softmax: windows of any length, empty ones too, causal or not, with and without dropout, the last rows alone
 * as queries, scores far from each other; q, k, v and their gradients as columns of one matrix. The scalar variant is
 * compared with the kernels window by window. */
#include "windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attention_shape {
    uint32_t windows, most, heads, d;
    bool is_causal, is_backward, has_last_rows, is_far;
    float dropout;
    uint32_t gap;
};

/* The matrices of a call, the host's copies. */
struct matrices {
    uint32_t *offsets, *query_offsets;
    uint64_t *identities;
    size_t rows, queries, width, part; /* part: columns of all heads */
    float *qkv, *q, *dout, *out, *lse, *dqkv;
};

static float *input(struct trial *t, const char *name, size_t floats)
{
    float *x = trial_input(t, name, floats * sizeof(*x), TRIAL_MATRIX);
    trial_floats(t, x, floats, FILL_PLAIN);
    return x;
}

static float *output(struct trial *t, const char *name, size_t floats)
{
    float *x = trial_changed(t, name, floats * sizeof(*x), TRIAL_MATRIX, same_floats);
    trial_floats(t, x, floats, FILL_PLAIN); /* gaps keep it */
    return x;
}

static void choose_queries(struct trial *t, const struct attention_shape *s, struct matrices *m)
{
    m->query_offsets = trial_input(t, "query_offsets", (s->windows + 1) * sizeof(uint32_t), sizeof(uint32_t));
    for (uint32_t w = 0; w < s->windows; w++) {
        uint32_t rows = m->offsets[w + 1] - m->offsets[w], kind = trial_below(t, 3);
        uint32_t last = kind == 0 ? rows > 0 : kind == 1 ? rows : trial_below(t, rows + 1);
        m->query_offsets[w + 1] = m->query_offsets[w] + last;
    }
    m->queries = m->query_offsets[s->windows];
}

static struct matrices make_matrices(struct trial *t, const struct attention_shape *s)
{
    struct matrices m = {.part = (size_t)s->heads * s->d};
    m.offsets = trial_windows(t, s->windows, s->most);
    m.rows = m.queries = m.offsets[s->windows];
    m.identities = trial_words(t, "identities", s->windows);
    m.width = 3 * m.part + s->gap;
    if (s->has_last_rows)
        choose_queries(t, s, &m);
    m.qkv = input(t, "qkv", (m.rows + 1) * m.width); /* of no rows, too, k and v have addresses */
    for (size_t i = 0; s->is_far && i < m.rows * m.width; i++)
        m.qkv[i] *= i % m.width < 2 * m.part ? 10.0F : 1.0F;
    m.q = s->has_last_rows ? input(t, "q", m.queries * m.part) : m.qkv;
    if (s->is_backward) {
        m.dout = input(t, "dout", m.rows * m.part);
        m.out = input(t, "out", m.rows * m.part), m.lse = input(t, "lse", m.rows * s->heads);
        m.dqkv = output(t, "dqkv", (m.rows + 1) * m.width);
    } else {
        m.out = output(t, "out", m.queries * (m.part + s->gap));
        m.lse = output(t, "lse", m.queries * s->heads);
    }
    return m;
}

/* The arguments, of the host's memory. */
static struct attention attention_of(const struct attention_shape *s, const struct matrices *m)
{
    size_t out_stride = m->part + (s->is_backward ? 0 : s->gap);
    struct attention a = {.offsets = m->offsets,
                          .query_offsets = m->query_offsets,
                          .events = s->windows,
                          .heads = s->heads,
                          .d = s->d,
                          .is_causal = s->is_causal,
                          .scale = 1.0F / sqrtf((float)s->d),
                          .q = {m->q, s->has_last_rows ? m->part : m->width},
                          .k = {m->qkv + m->part, m->width},
                          .v = {m->qkv + 2 * m->part, m->width},
                          .out = {m->out, out_stride},
                          .lse = m->lse,
                          .dropout = s->dropout,
                          .seed = 77,
                          .part = UINT64_C(5) << 32,
                          .identities = s->dropout > 0.2F ? m->identities : NULL};
    if (s->is_backward) {
        a.dout = (struct attention_in){m->dout, m->part};
        a.dq = (struct attention_out){m->dqkv, m->width};
        a.dk = (struct attention_out){m->dqkv + m->part, m->width};
        a.dv = (struct attention_out){m->dqkv + 2 * m->part, m->width};
    }
    return a;
}

/* Calls the kernels of the scalar variant, each window by itself. lse: [heads][queries] in `a`, as of all windows. */
static void window_by_window(const struct attention *a, size_t queries, bool is_backward)
{
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    void *scratch = aligned_alloc(64, (attention_scratch_bytes(a->d) + 63) / 64 * 64);
    float *lse = malloc((queries + 1) * a->heads * sizeof(*lse));
    for (uint32_t w = 0; w < a->events; w++) {
        uint32_t from = a->offsets[w], row = a->query_offsets ? a->query_offsets[w] : from;
        uint32_t n = a->offsets[w + 1] - from, some = a->query_offsets ? a->query_offsets[w + 1] - row : n;
        uint32_t offsets[2] = {0, n}, query_offsets[2] = {0, some};
        uint64_t identity = a->identities ? a->identities[w] : w;
        struct attention one = *a;
        one.offsets = offsets, one.query_offsets = a->query_offsets ? query_offsets : NULL;
        one.events = 1, one.identities = &identity, one.lse = lse, one.scratch = scratch;
        one.q.at += row * a->q.stride, one.k.at += from * a->k.stride, one.v.at += from * a->v.stride;
        one.out.at += row * a->out.stride;
        for (uint32_t h = 0; h < a->heads && is_backward; h++)
            memcpy(lse + (size_t)h * n, a->lse + h * queries + from, n * sizeof(*lse));
        if (is_backward) {
            one.dout.at += from * a->dout.stride, one.dq.at += from * a->dq.stride;
            one.dk.at += from * a->dk.stride, one.dv.at += from * a->dv.stride;
            k->attention_softmax_backward(&one);
            continue;
        }
        k->attention_softmax_forward(&one);
        for (uint32_t h = 0; h < a->heads; h++)
            memcpy(a->lse + h * queries + row, lse + (size_t)h * some, some * sizeof(*lse));
    }
    free(scratch);
    free(lse);
}

static float *copy_of(const float *x, size_t floats)
{
    return memcpy(malloc(floats * sizeof(*x) + 1), x, floats * sizeof(*x));
}

static struct attention_in in_place(struct trial *t, struct attention_in x)
{
    return (struct attention_in){PLACE(t, x.at), x.stride};
}

static struct attention_out out_place(struct trial *t, struct attention_out x)
{
    return (struct attention_out){PLACE(t, x.at), x.stride};
}

static void build_attention(struct trial *t, const void *arg)
{
    const struct attention_shape *s = arg;
    struct matrices m = make_matrices(t, s), want = m;
    struct attention a = attention_of(s, &m);
    size_t outs = m.queries * (m.part + s->gap), lses = m.queries * s->heads;
    if (s->is_backward) {
        window_by_window(&a, m.queries, false);
        want.dqkv = copy_of(m.dqkv, (m.rows + 1) * m.width);
    } else {
        want.out = copy_of(m.out, outs), want.lse = copy_of(m.lse, lses);
    }
    struct attention plain = attention_of(s, &want);
    window_by_window(&plain, m.queries, s->is_backward);
    struct batch_attention b = {.of = a, .queries = (uint32_t)m.queries};
    b.of.offsets = PLACE(t, a.offsets), b.of.query_offsets = PLACE(t, a.query_offsets);
    b.of.identities = PLACE(t, a.identities);
    b.of.q = in_place(t, a.q), b.of.k = in_place(t, a.k), b.of.v = in_place(t, a.v);
    b.of.out = out_place(t, a.out), b.of.lse = PLACE(t, a.lse);
    b.of.dout = in_place(t, a.dout);
    b.of.dq = out_place(t, a.dq), b.of.dk = out_place(t, a.dk), b.of.dv = out_place(t, a.dv);
    TRIAL_CALL_SCRATCH(t, attention_softmax, &b);
    if (trial_is_scalar(t) && s->is_backward)
        TRIAL_CHECK(t, same_floats(want.dqkv, m.dqkv, (m.rows + 1) * m.width * sizeof(float)));
    if (trial_is_scalar(t) && !s->is_backward)
        TRIAL_CHECK(t, same_floats(want.out, m.out, outs * sizeof(float)) &&
                           same_floats(want.lse, m.lse, lses * sizeof(float)));
    free(s->is_backward ? want.dqkv : want.out);
    free(s->is_backward ? NULL : want.lse);
}

static void try_attention(struct suite *suite, struct attention_shape s)
{
    suite_try(suite, build_attention, &s, "%u windows up to %u, %u heads of %u, %s%s%s%s, dropout %g, gap %u",
              s.windows, s.most, s.heads, s.d, s.is_backward ? "backward" : "forward",
              s.is_causal ? ", causal" : "", s.has_last_rows ? ", last rows" : "", s.is_far ? ", far" : "",
              (double)s.dropout, s.gap);
}

void suite_attention_softmax(struct suite *suite)
{
    static const uint32_t dims[] = {16, 64, 32, 128, 48, 80, 96, 112};
    static const float rates[] = {0.0F, 0.1F, 0.5F};
    for (uint32_t i = 0; i < 48; i++) {
        struct attention_shape s = {.windows = i % 5, .most = i % 5 == 2 ? 200 : 80, .d = dims[i % 8]};
        s.heads = 1 + i / 8 % 2;
        s.is_causal = i % 4 < 2 || i / 8 % 3 == 0;
        s.is_backward = i / 2 % 2;
        s.has_last_rows = !s.is_backward && i % 3 == 1;
        s.is_far = i % 11 == 5;
        s.dropout = rates[i / 4 % 3];
        s.gap = i % 6 == 1 ? 8 : 0;
        try_attention(suite, s);
    }
    for (uint32_t i = 0; i < 4; i++)
        try_attention(suite, (struct attention_shape){.windows = 1,
                                                      .most = 300,
                                                      .heads = 1,
                                                      .d = 16,
                                                      .is_causal = i % 2,
                                                      .is_backward = i / 2,
                                                      .dropout = 0.1F});
}
