/* attention_softmax and attention_silu: windows of any length, empty ones too, causal or not, with and without dropout, the
 * last rows alone as queries, scores far from each other; q, k, v and their gradients as columns of one matrix; biases of
 * both kinds, shared by heads or not, distances within the table or not, parts of windows; fp32 and bf16. The scalar
 * variant is compared with the kernels window by window, its gradients by the biases with those of calls part by part, and
 * bf16 with plain loops. */
#include "attention_plain.h"
#include "windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attention_shape {
    uint32_t windows, most, heads, d;
    bool is_causal, is_backward, has_last_rows, is_far;
    float dropout;
    uint32_t gap;
    bool is_silu, has_positions, has_times, are_own; /* are_own: a table for each head */
    uint32_t distances, parts;                       /* distances: positions_max */
    enum row_format precision;
    uint32_t length; /* of all windows; 0: any */
};

/* The matrices of a call, the host's copies. */
struct matrices {
    uint32_t *offsets, *query_offsets;
    uint64_t *identities;
    size_t rows, queries, width, part; /* part: columns of all heads */
    float *qkv, *q, *dout, *out, *lse, *dqkv;
    /* Tables of positions, from the least distance on, then of times, by head; gradients by part and head. */
    float *tables, *dtables;
    uint32_t *query_seconds, *key_seconds, *parts;
    size_t table, tables_floats; /* floats of one head's, and of all of a part */
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

static uint32_t *seconds_of(struct trial *t, const char *name, size_t rows)
{
    uint32_t *seconds = trial_input(t, name, rows * sizeof(*seconds), sizeof(*seconds));
    for (size_t i = 0; i < rows; i++)
        seconds[i] = (uint32_t)(trial_random(t) >> (32 + trial_below(t, 32)));
    return seconds;
}

static void make_tables(struct trial *t, const struct attention_shape *s, struct matrices *m)
{
    uint32_t parts = s->parts > 0 ? s->parts : 1;
    m->table = 2 * (size_t)s->distances + 1 + ATTENTION_TIME_BUCKETS;
    m->tables_floats = m->table * (s->are_own ? s->heads : 1);
    m->tables = input(t, "tables", m->tables_floats);
    m->query_seconds = seconds_of(t, "query_seconds", m->queries);
    m->key_seconds = seconds_of(t, "key_seconds", m->rows);
    if (s->is_backward)
        m->dtables = output(t, "dtables", parts * m->tables_floats);
    if (s->parts > 0)
        m->parts = trial_parts(t, s->windows, s->parts);
}

/* The biases, in the memory of `place`, or the host's if it is NULL. */
static struct attention_bias bias_of(const struct attention_shape *s, const struct matrices *m,
                                     struct trial *place)
{
    struct attention_bias b = {.positions_max = s->distances};
    size_t from = s->distances, stride = s->are_own ? m->table : 0;
    b.positions_stride = b.times_stride = stride;
    b.query_seconds = m->query_seconds, b.key_seconds = m->key_seconds;
    if (s->has_positions)
        b.positions = m->tables + from, b.dpositions = s->is_backward ? m->dtables + from : NULL;
    from += s->distances + 1;
    if (s->has_times)
        b.times = m->tables + from, b.dtimes = s->is_backward ? m->dtables + from : NULL;
    if (place != NULL) {
        b.positions = PLACE(place, b.positions), b.times = PLACE(place, b.times);
        b.dpositions = PLACE(place, b.dpositions), b.dtimes = PLACE(place, b.dtimes);
        b.query_seconds = PLACE(place, b.query_seconds), b.key_seconds = PLACE(place, b.key_seconds);
    }
    return b;
}

static struct matrices make_matrices(struct trial *t, const struct attention_shape *s)
{
    struct matrices m = {.part = (size_t)s->heads * s->d};
    m.offsets = trial_windows(t, s->windows, s->most);
    for (uint32_t w = 0; w < s->windows && s->length > 0; w++)
        m.offsets[w + 1] = m.offsets[w] + s->length;
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
        if (!s->is_silu)
            m.out = input(t, "out", m.rows * m.part), m.lse = input(t, "lse", m.rows * s->heads);
        m.dqkv = output(t, "dqkv", (m.rows + 1) * m.width);
    } else {
        m.out = output(t, "out", m.queries * (m.part + s->gap));
        m.lse = s->is_silu ? NULL : output(t, "lse", m.queries * s->heads);
    }
    if (s->is_silu)
        make_tables(t, s, &m);
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
                          .precision = s->precision,
                          .scale = 1.0F / sqrtf((float)s->d),
                          .q = {m->q, s->has_last_rows ? m->part : m->width},
                          .k = {m->qkv + m->part, m->width},
                          .v = {m->qkv + 2 * m->part, m->width},
                          .out = {m->out, out_stride},
                          .lse = m->lse,
                          .weight_scale = 0.1F,
                          .dropout = s->dropout,
                          .seed = 77,
                          .part = UINT64_C(5) << 32,
                          .identities = s->dropout > 0.2F || s->is_silu ? m->identities : NULL};
    if (s->is_backward) {
        a.dout = (struct attention_in){m->dout, m->part};
        a.dq = (struct attention_out){m->dqkv, m->width};
        a.dk = (struct attention_out){m->dqkv + m->part, m->width};
        a.dv = (struct attention_out){m->dqkv + 2 * m->part, m->width};
    }
    return a;
}

/* Calls the kernels of the scalar variant, each window by itself. lse: [heads][queries] in `a`, as of all windows. */
static void window_by_window(const struct attention *a, size_t queries, bool is_backward, bool is_silu)
{
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    void *scratch = aligned_alloc(64, (attention_scratch_bf16_bytes(a->d) + 63) / 64 * 64);
    float *lse = malloc((queries + 1) * a->heads * sizeof(*lse));
    for (uint32_t w = 0; w < a->events; w++) {
        uint32_t from = a->offsets[w], row = a->query_offsets ? a->query_offsets[w] : from;
        uint32_t n = a->offsets[w + 1] - from, some = a->query_offsets ? a->query_offsets[w + 1] - row : n;
        uint32_t offsets[2] = {0, n}, query_offsets[2] = {0, some};
        uint64_t identity = a->identities ? a->identities[w] : w;
        struct attention one = *a;
        struct attention_bias bias;
        if (a->bias != NULL) {
            bias = *a->bias;
            bias.query_seconds += row, bias.key_seconds += from;
            one.bias = &bias;
        }
        one.offsets = offsets, one.query_offsets = a->query_offsets ? query_offsets : NULL;
        one.events = 1, one.identities = &identity, one.lse = lse, one.scratch = scratch;
        one.q.at += row * a->q.stride, one.k.at += from * a->k.stride, one.v.at += from * a->v.stride;
        one.out.at += row * a->out.stride;
        for (uint32_t h = 0; h < a->heads && is_backward && !is_silu; h++)
            memcpy(lse + (size_t)h * n, a->lse + h * queries + from, n * sizeof(*lse));
        if (is_backward) {
            one.dout.at += from * a->dout.stride, one.dq.at += from * a->dq.stride;
            one.dk.at += from * a->dk.stride, one.dv.at += from * a->dv.stride;
            (is_silu ? k->attention_silu_backward : k->attention_softmax_backward)(&one);
            continue;
        }
        (is_silu ? k->attention_silu_forward : k->attention_softmax_forward)(&one);
        for (uint32_t h = 0; h < a->heads && !is_silu; h++)
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

/* The gradients by the biases, part by part, in want->dtables; those by q, k and v are lost. */
static void part_by_part(const struct attention_shape *s, struct matrices *want)
{
    void *scratch = aligned_alloc(64, (attention_scratch_bf16_bytes(s->d) + 63) / 64 * 64);
    for (uint32_t p = 0; p < (want->parts ? s->parts : 1); p++) {
        struct matrices m = *want;
        struct attention a = attention_of(s, &m);
        m.dtables += p * m.tables_floats;
        struct attention_bias bias = bias_of(s, &m, NULL);
        uint32_t from = want->parts ? want->parts[p] : 0, end = want->parts ? want->parts[p + 1] : s->windows;
        a.offsets += from, a.identities += from, a.events = end - from;
        a.bias = &bias, a.scratch = scratch;
        kernels_variant(KERNELS_SCALAR)->attention_silu_backward(&a);
    }
    free(scratch);
}

/* What is wanted of the call: copies of its outputs, filled by the scalar variant's kernels. */
static struct matrices wanted(const struct attention_shape *s, const struct matrices *m)
{
    struct matrices want = *m;
    size_t tables = m->dtables != NULL ? m->tables_floats * (s->parts > 0 ? s->parts : 1) : 0;
    want.dqkv = m->dqkv ? copy_of(m->dqkv, (m->rows + 1) * m->width) : NULL;
    want.out = s->is_backward ? m->out : copy_of(m->out, m->queries * (m->part + s->gap));
    want.lse = s->is_backward || s->is_silu ? m->lse : copy_of(m->lse, m->queries * s->heads);
    want.dtables = m->dtables ? copy_of(m->dtables, tables) : NULL;
    if (want.dtables)
        part_by_part(s, &want);
    float *finished = want.dtables; /* the tables of the windows' own calls do not matter */
    want.dtables = finished ? copy_of(finished, tables) : NULL;
    struct attention a = attention_of(s, &want);
    struct attention_bias bias = bias_of(s, &want, NULL);
    a.bias = s->is_silu ? &bias : NULL;
    window_by_window(&a, m->queries, s->is_backward, s->is_silu);
    free(want.dtables);
    want.dtables = finished;
    return want;
}

static void check_attention(struct trial *t, const struct attention_shape *s, const struct matrices *m,
                            const struct matrices *want)
{
    size_t each = sizeof(float), tables = m->tables_floats * (s->parts > 0 ? s->parts : 1);
    if (!trial_is_scalar(t))
        return;
    TRIAL_CHECK(t, m->dqkv == NULL || same_floats(want->dqkv, m->dqkv, (m->rows + 1) * m->width * each));
    TRIAL_CHECK(t, m->dtables == NULL || same_floats(want->dtables, m->dtables, tables * each));
    if (s->is_backward)
        return;
    TRIAL_CHECK(t, same_floats(want->out, m->out, m->queries * (m->part + s->gap) * each));
    TRIAL_CHECK(t, m->lse == NULL || same_floats(want->lse, m->lse, m->queries * s->heads * each));
}

/* The matrix of a kind of numbers in the host's copies; NULL: the call does not make it. */
static float *plain_place(const struct attention_shape *s, const struct matrices *m, enum plain_kind kind,
                          size_t *stride)
{
    *stride = s->is_backward ? m->width : m->part + s->gap;
    if (s->is_backward)
        return kind >= PLAIN_DQ ? m->dqkv + (kind - PLAIN_DQ) * m->part : NULL;
    return kind == PLAIN_OUT ? m->out : NULL;
}

/* before: what the plain numbers are added to; NULL: to nothing. */
static void check_row(struct trial *t, const float *row, const float *before, const struct attention_plain *p,
                      enum plain_kind kind, size_t first, size_t n, size_t *far)
{
    for (size_t c = 0; c < n; c++) {
        double plain = p->value[kind][first + c] + (before != NULL ? (double)before[c] : 0.0);
        double off = fabs((double)row[c] - plain), old = before != NULL ? fabs((double)before[c]) : 0.0;
        *far += !(off <= p->near[kind][first + c]);
        if (!(off <= p->bound[kind][first + c] + old * 0x1p-12))
            trial_fail(t, "kind %d, row %zu, column %zu: %a, plainly %a, off %g of %g", kind,
                       first / p->width, c, (double)row[c], plain, off, p->bound[kind][first + c]);
    }
}

/* The scalar variant's numbers in bf16 are near the plain ones; mostly as near as if all weights were rounded alike. */
static void check_plain(struct trial *t, const struct attention_shape *s, const struct matrices *m,
                        const float *before, size_t tables, const struct attention_plain *p)
{
    size_t ignored = 0;
    if (before != NULL)
        check_row(t, m->dtables, before, p, PLAIN_TABLES, 0, tables, &ignored);
    for (enum plain_kind kind = PLAIN_OUT; kind < PLAIN_TABLES; kind++) {
        size_t stride, far = 0, rows = kind == PLAIN_OUT || kind == PLAIN_DQ ? m->queries : m->rows;
        const float *at = plain_place(s, m, kind, &stride);
        if (kind == PLAIN_LSE && m->lse != NULL && !s->is_backward)
            check_row(t, m->lse, NULL, p, kind, 0, m->queries * s->heads, &far);
        for (size_t r = 0; r < rows && at != NULL; r++)
            check_row(t, at + r * stride, NULL, p, kind, r * p->width, m->part, &far);
        if (!s->is_far && far > rows * m->part / 4)
            trial_fail(t, "kind %d: %zu of %zu numbers are far", kind, far, rows * m->part);
    }
}

/* On a GPU: how far from the scalar variant's numbers those of tensor cores may be. */
static void bound_plain(const struct attention_shape *s, const struct matrices *m,
                        const struct attention_plain *p, double *bounds, double *lse_bounds)
{
    for (enum plain_kind kind = PLAIN_OUT; kind < PLAIN_TABLES; kind++) {
        size_t stride, rows = kind == PLAIN_OUT || kind == PLAIN_DQ ? m->queries : m->rows;
        const float *at = plain_place(s, m, kind, &stride), *begin = s->is_backward ? m->dqkv : m->out;
        for (size_t i = 0; i < rows * m->part && at != NULL; i++)
            bounds[(size_t)(at - begin) + i / m->part * stride + i % m->part] = 2.0 * p->bound[kind][i];
    }
    for (size_t i = 0; i < m->queries * s->heads && lse_bounds != NULL; i++)
        lse_bounds[i] = 2.0 * p->bound[PLAIN_LSE][i];
}

/* before: the gradients by the biases before the call; NULL: there are none. */
static void compare_plainly(struct trial *t, const struct attention_shape *s, const struct matrices *m,
                            const float *before, double step)
{
    size_t tables = before != NULL ? m->tables_floats * (s->parts > 0 ? s->parts : 1) : 0;
    double *bounds = trial_bounds(t, s->is_backward ? m->dqkv : m->out);
    double *lse_bounds = s->is_backward || s->is_silu ? NULL : trial_bounds(t, m->lse);
    double *table_bounds = before != NULL ? trial_bounds(t, m->dtables) : NULL;
    if (bounds == NULL && !trial_is_scalar(t))
        return;
    struct attention_bias bias = s->is_silu ? bias_of(s, m, NULL) : (struct attention_bias){0};
    struct batch_attention b = {.of = attention_of(s, m),
                                .parts = m->parts,
                                .parts_count = s->parts,
                                .part_stride = m->tables_floats};
    b.of.bias = &bias;
    struct attention_plain p = attention_plain(&b, s->is_silu, step, m->dtables, tables);
    if (bounds != NULL)
        bound_plain(s, m, &p, bounds, lse_bounds);
    else
        check_plain(t, s, m, before, tables, &p);
    for (size_t i = 0; i < tables && table_bounds != NULL; i++)
        table_bounds[i] = 2.0 * p.bound[PLAIN_TABLES][i] + fabs((double)before[i]) * 0x1p-12;
    attention_plain_free(&p);
}

static void build_attention(struct trial *t, const void *arg)
{
    const struct attention_shape *s = arg;
    struct matrices m = make_matrices(t, s);
    struct attention a = attention_of(s, &m);
    if (s->is_backward && !s->is_silu)
        window_by_window(&a, m.queries, false, false);
    struct matrices want = wanted(s, &m);
    size_t tables = m.tables_floats * (s->parts > 0 ? s->parts : 1);
    float *before = m.dtables != NULL ? copy_of(m.dtables, tables) : NULL;
    struct batch_attention b = {.of = a, .queries = (uint32_t)m.queries};
    b.of.offsets = PLACE(t, a.offsets), b.of.query_offsets = PLACE(t, a.query_offsets);
    b.of.identities = PLACE(t, a.identities);
    b.of.q = in_place(t, a.q), b.of.k = in_place(t, a.k), b.of.v = in_place(t, a.v);
    b.of.out = out_place(t, a.out), b.of.lse = PLACE(t, a.lse);
    b.of.dout = in_place(t, a.dout);
    b.of.dq = out_place(t, a.dq), b.of.dk = out_place(t, a.dk), b.of.dv = out_place(t, a.dv);
    b.parts = PLACE(t, m.parts), b.parts_count = s->parts, b.part_stride = m.tables_floats;
    struct attention_bias bias = bias_of(s, &m, t);
    b.of.bias = s->has_positions || s->has_times ? &bias : NULL;
    if (s->is_silu)
        TRIAL_CALL_SCRATCH(t, attention_silu, &b);
    else
        TRIAL_CALL_SCRATCH(t, attention_softmax, &b);
    check_attention(t, s, &m, &want);
    if (s->precision == ROW_BF16)
        compare_plainly(t, s, &m, before, tolerance_attention_softmax(&b));
    free(before);
    free(want.dqkv);
    free(want.dtables);
    free(s->is_backward ? NULL : want.out);
    free(s->is_backward ? NULL : want.lse);
}

static void try_attention(struct suite *suite, struct attention_shape s)
{
    suite_try(
        suite, build_attention, &s,
        "%u windows up to %u, %u heads of %u, %s, %s%s%s%s, dropout %g, gap %u, biases %d%d%d, %u distances, %u parts",
        s.windows, s.most, s.heads, s.d, s.precision == ROW_BF16 ? "bf16" : "fp32",
        s.is_backward ? "backward" : "forward", s.is_causal ? ", causal" : "",
        s.has_last_rows ? ", last rows" : "", s.is_far ? ", far" : "", (double)s.dropout, s.gap,
        s.has_positions, s.has_times, s.are_own, s.distances, s.parts);
}

/* In bf16: each length and each d, forward and backward; then all options. */
static void try_bf16(struct suite *suite, bool is_silu)
{
    static const uint32_t lengths[] = {1, 15, 16, 17, 50, 200, 700}, dims[] = {16, 64, 32, 128, 48, 112};
    for (uint32_t i = 0; i < 26; i++) {
        struct attention_shape s = {.windows = 1 + (i < 20), .most = 80, .is_silu = is_silu};
        s.precision = ROW_BF16;
        s.length = lengths[i / 4], s.d = dims[i < 20 ? i % 4 : i < 23 ? i % 3 : 0];
        s.heads = 1, s.is_causal = (i / 2 + i) % 2, s.is_backward = i < 24 ? i / 2 % 2 : i % 2;
        s.dropout = i % 3 == 1 ? 0.2F : 0.0F;
        try_attention(suite, s);
    }
    for (uint32_t i = 0; i < 18; i++) {
        struct attention_shape s = {.windows = i % 5, .most = 80, .d = dims[i % 6], .is_silu = is_silu};
        s.precision = ROW_BF16;
        s.heads = 1 + i / 6 % 2;
        s.is_causal = i % 4 < 2, s.is_backward = i / 2 % 2;
        s.has_last_rows = !s.is_backward && i % 3 == 1;
        s.is_far = !is_silu && i % 11 == 5;
        s.dropout = i / 4 % 3 == 2 ? 0.5F : 0.0F;
        s.gap = i % 6 == 1 ? 8 : 0;
        s.has_positions = is_silu && i % 3 > 0, s.has_times = is_silu && i / 2 % 3 > 0;
        s.are_own = i % 2, s.distances = i % 5 * 20;
        s.parts = is_silu && i % 4 == 1 ? 3 : 0;
        try_attention(suite, s);
    }
}

void suite_attention_softmax(struct suite *suite)
{
    try_bf16(suite, false);
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

void suite_attention_silu(struct suite *suite)
{
    try_bf16(suite, true);
    static const uint32_t dims[] = {16, 64, 32, 128, 48, 80, 96, 112}, distances[] = {0, 5, 40, 299, 1};
    static const float rates[] = {0.0F, 0.1F, 0.5F};
    for (uint32_t i = 0; i < 40; i++) {
        struct attention_shape s = {
            .windows = i % 5, .most = i % 5 == 2 ? 150 : 80, .d = dims[i % 8], .is_silu = true};
        s.heads = 1 + i / 8 % 2;
        s.is_causal = i % 4 < 2 || i / 8 % 3 == 0;
        s.is_backward = i % 3 > 0;
        s.has_last_rows = !s.is_backward && i % 2;
        s.dropout = rates[i / 4 % 3];
        s.gap = i % 6 == 1 ? 8 : 0;
        s.has_positions = i / 2 % 4 > 0, s.has_times = i / 2 % 4 != 1 && i % 7 > 0;
        s.are_own = i % 2;
        s.distances = distances[i / 3 % 5];
        s.parts = i % 4 == 1 ? 3 : 0;
        try_attention(suite, s);
    }
}
