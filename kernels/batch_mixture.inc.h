/*
 * cross and mixture of batch_train.h: rows of events, element by element in whole vectors. For cross,
 * matrices without gaps between rows are one long row.
 */

/* The rows of each matrix that belong to an event. */
struct cross_at {
    const float *x0, *x, *z, *out_gradients;
    float *out, *x0_gradients, *x_gradients, *z_gradients;
};

LANES_INLINE void cross_vector(const struct cross_at *c, size_t i, size_t n, bool is_same, bool adds)
{
    v16 x0 = v16_load_n(c->x0 + i, n), z = v16_load_n(c->z + i, n);
    if (c->out != NULL)
        v16_store_n(c->out + i, v16_fma(x0, z, v16_load_n(c->x + i, n)), n);
    if (c->out_gradients == NULL)
        return;
    v16 out_gradients = v16_load_n(c->out_gradients + i, n), before = v16_load_n(c->x0_gradients + i, n);
    v16_store_n(c->z_gradients + i, v16_mul(out_gradients, x0), n);
    if (!is_same)
        v16_store_n(c->x_gradients + i,
                    adds ? v16_add(v16_load_n(c->x_gradients + i, n), out_gradients) : out_gradients, n);
    else
        before = v16_add(out_gradients, before);
    v16_store_n(c->x0_gradients + i, v16_fma(out_gradients, z, before), n);
}

LANES_INLINE void cross_row(const struct cross_at *c, size_t columns, bool is_same, bool adds)
{
    size_t i = 0;
    for (; i + 16 <= columns; i += 16)
        cross_vector(c, i, 16, is_same, adds);
    if (i < columns)
        cross_vector(c, i, columns - i, is_same, adds);
}

static void batch_cross(struct batch_cross *a, void *stream)
{
    (void)stream;
    size_t columns = a->columns, rows = a->n;
    size_t x0 = matrix_stride(a->x0_stride, columns), x = matrix_stride(a->x_stride, columns);
    size_t z = matrix_stride(a->z_stride, columns), out = matrix_stride(a->out_stride, columns);
    size_t out_gradients = matrix_stride(a->out_gradients_stride, columns);
    if (x0 == columns && x == columns && z == columns && (a->out == NULL || out == columns) &&
        (a->out_gradients == NULL || out_gradients == columns)) {
        columns *= rows;
        rows = columns > 0;
    }
    bool is_same = a->x0_gradients == a->x_gradients;
    for (size_t e = 0; e < rows; e++) {
        struct cross_at c = {.x0 = a->x0 + e * x0,
                             .x = a->x + e * x,
                             .z = a->z + e * z,
                             .out_gradients =
                                 a->out_gradients != NULL ? a->out_gradients + e * out_gradients : NULL,
                             .out = a->out != NULL ? a->out + e * out : NULL,
                             .x0_gradients = a->out_gradients != NULL ? a->x0_gradients + e * x0 : NULL,
                             .x_gradients = a->out_gradients != NULL ? a->x_gradients + e * x : NULL,
                             .z_gradients = a->out_gradients != NULL ? a->z_gradients + e * z : NULL};
        if (is_same)
            cross_row(&c, columns, true, a->adds);
        else
            cross_row(&c, columns, false, a->adds);
    }
}

enum { MIXTURE_VECTORS = 4 }; /* columns summed at a time, in vectors */

/* The largest of n floats; NaN if x[0] is NaN. Any other NaN is skipped. */
LANES_INLINE float largest_of(const float *x, size_t n)
{
    float largest = x[0];
    for (size_t k = 1; k < n; k++)
        largest = x[k] > largest ? x[k] : largest;
    return largest;
}

/* gates = softmax of the logits, with zeros up to a whole vector: whole vectors are stored, so that the CPU
 * can forward the stores to later loads. */
LANES_INLINE void mixture_gates(float gates[BATCH_EXPERTS_MAX], const float *logits, size_t experts)
{
    v16 sum = v16_set1(0.0F), largest = v16_set1(largest_of(logits, experts));
    for (size_t k = 0; k < experts; k += 16) {
        size_t n = experts - k < 16 ? experts - k : 16;
        v16 power = v16_exp_below0(v16_sub(v16_load_n(logits + k, n), largest));
        power = v16_head(power, v16_set1(0.0F), n);
        v16_store(gates + k, power);
        sum = v16_add(sum, power);
    }
    v16 total = v16_set1(v16_sum(sum));
    for (size_t k = 0; k < experts; k += 16)
        v16_store(gates + k, v16_div(v16_load(gates + k), total));
}

/* Columns from j on: `vectors` whole vectors, or one vector of n columns. */
LANES_INLINE void mixture_columns(float *out, const float *gates, const float *inputs, size_t experts,
                                  size_t columns, size_t j, int vectors, size_t n)
{
    v16 sums[MIXTURE_VECTORS];
    for (int v = 0; v < vectors; v++)
        sums[v] = v16_set1(0.0F);
    for (size_t k = 0; k < experts; k++) {
        v16 gate = v16_set1(gates[k]);
        for (size_t v = 0; v < (size_t)vectors; v++)
            sums[v] = v16_fma(gate, v16_load_n(inputs + k * columns + j + v * 16, n), sums[v]);
    }
    for (size_t v = 0; v < (size_t)vectors; v++)
        v16_store_n(out + j + v * 16, sums[v], n);
}

LANES_INLINE void mixture_out(float *out, const float *gates, const float *inputs, size_t experts,
                              size_t columns)
{
    size_t j = 0;
    for (; j + MIXTURE_VECTORS * 16 <= columns; j += MIXTURE_VECTORS * 16)
        mixture_columns(out, gates, inputs, experts, columns, j, MIXTURE_VECTORS, 16);
    for (; j + 16 <= columns; j += 16)
        mixture_columns(out, gates, inputs, experts, columns, j, 1, 16);
    if (j < columns)
        mixture_columns(out, gates, inputs, experts, columns, j, 1, columns - j);
}

/* Sixteen columns, or n: input gradients of four experts, and the products of their inputs with
 * out_gradients, added to sums. */
LANES_INLINE void mixture_pull(v16 sums[4], float *const to[4], const float *const inputs[4],
                               const v16 gates[4], const float *out_gradients, size_t j, size_t n, bool adds)
{
    v16 gradient = v16_load_n(out_gradients + j, n);
    for (int k = 0; k < 4; k++)
        sums[k] = v16_fma(gradient, v16_load_n(inputs[k] + j, n), sums[k]);
    for (int k = 0; k < 4 && to[k]; k++) {
        v16 pulled = v16_mul(gates[k], gradient);
        v16_store_n(to[k] + j, adds ? v16_add(v16_load_n(to[k] + j, n), pulled) : pulled, n);
    }
}

/* The backward pass of one event, four experts at a time; nothing is written for experts beyond the last. */
LANES_INLINE void mixture_back(const struct batch_mixture *a, const float *gates, const float *inputs,
                               const float *out_gradients, float *input_gradients, float *gate_gradients)
{
    size_t experts = a->experts, columns = a->columns;
    float products[BATCH_EXPERTS_MAX], mean = 0.0F;
    for (size_t first = 0; first < experts; first += 4) {
        const float *from[4];
        float *to[4];
        v16 sums[4], gate[4];
        for (size_t k = 0; k < 4; k++) {
            bool is_there = first + k < experts;
            from[k] = inputs + (is_there ? first + k : first) * columns;
            to[k] = is_there ? input_gradients + (first + k) * columns : NULL;
            gate[k] = v16_set1(is_there ? gates[first + k] : 0.0F);
            sums[k] = v16_set1(0.0F);
        }
        size_t j = 0;
        for (; j + 16 <= columns; j += 16)
            mixture_pull(sums, to, from, gate, out_gradients, j, 16, a->adds);
        if (j < columns)
            mixture_pull(sums, to, from, gate, out_gradients, j, columns - j, a->adds);
        v16_sums(products + first, sums[0], sums[1], sums[2], sums[3]);
    }
    for (size_t k = 0; k < experts; k++)
        mean = fmaf(gates[k], products[k], mean);
    for (size_t k = 0; k < experts; k++)
        gate_gradients[k] = gates[k] * (products[k] - mean);
}

static void batch_mixture(struct batch_mixture *a, void *stream)
{
    (void)stream;
    size_t width = (size_t)a->experts * a->columns, inputs_stride = matrix_stride(a->inputs_stride, width);
    size_t gates_stride = matrix_stride(a->gates_stride, a->experts);
    size_t out_stride = matrix_stride(a->out_stride, a->columns);
    size_t out_gradients_stride = matrix_stride(a->out_gradients_stride, a->columns);
    size_t back_stride = matrix_stride(a->input_gradients_stride, width);
    for (size_t e = 0; e < a->n; e++) {
        const float *inputs = a->inputs + e * inputs_stride;
        float made[BATCH_EXPERTS_MAX], *gates = a->out ? made : a->gates + e * gates_stride;
        if (a->out != NULL) {
            mixture_gates(made, a->gate_logits + e * gates_stride, a->experts);
            memcpy(a->gates + e * gates_stride, made, a->experts * sizeof(*made));
            mixture_out(a->out + e * out_stride, gates, inputs, a->experts, a->columns);
        }
        if (a->out_gradients != NULL)
            mixture_back(a, gates, inputs, a->out_gradients + e * out_gradients_stride,
                         a->input_gradients + e * back_stride, a->gate_gradients + e * gates_stride);
    }
}
