/*
 * update of batch.h: the gradients of a few rows at a time are summed (batch_segments.inc.h), and the rows
 * make their step by the optimizers of optimizer.inc.h. Later rows are prefetched one by one meanwhile: cache
 * lines requested all at once would wait for each other. Rows of sixteen bits are widened before the step and
 * rounded after it.
 */

enum { UPDATE_ROWS = 4, UPDATE_AHEAD = 12, UPDATE_LINE = 64 };

/* The rows of a block that make a step: at most UPDATE_ROWS. */
struct update_block {
    size_t n;
    struct opt_row rows[UPDATE_ROWS];
    uint32_t indices[UPDATE_ROWS];
    float grads[UPDATE_ROWS][BATCH_DIM_MAX];
    float wide[UPDATE_ROWS][BATCH_DIM_MAX];
};

static void update_step(const struct update_block *b, size_t d, enum opt_kind kind,
                        const struct opt_params *p)
{
    switch (kind) {
    case OPT_SGD: opt_sgd(b->rows, b->n, d, p); break;
    case OPT_MOMENTUM: opt_momentum(b->rows, b->n, d, p); break;
    case OPT_ADAGRAD: opt_adagrad(b->rows, b->n, d, p); break;
    case OPT_ADAGRAD_ROW: opt_adagrad_row(b->rows, b->n, d, p); break;
    case OPT_ADAGRAD_BLOCK: opt_adagrad_block(b->rows, b->n, d, p); break;
    case OPT_ADAM: opt_adam(b->rows, b->n, d, p); break;
    case OPT_FTRL: opt_ftrl(b->rows, b->n, d, p); break;
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
}

/* Prefetches the row of index u, if there is one. */
LANES_INLINE void update_fetch(const struct batch_update *a, size_t u, size_t bytes)
{
    const unsigned char *row = u < a->in.count[0] ? a->rows[u] : NULL;
    for (size_t at = 0; row && at < bytes; at += UPDATE_LINE)
        __builtin_prefetch(row + at, 1);
}

/* Fills the block with the indices `from` up to `to` that have a row and a finite sum. */
static void update_gather(struct update_block *b, const struct batch_update *a, size_t from, size_t to,
                          size_t *ahead)
{
    size_t d = a->in.d, bytes = row_bytes(a->format, d, opt_state_floats(a->kind, d));
    b->n = 0;
    for (size_t u = from; u < to; u++) {
        unsigned char *row = a->rows[u];
        segment_fetch(&a->in, u, ahead);
        update_fetch(a, u + UPDATE_AHEAD, bytes);
        if (row == NULL)
            continue;
        float *grad = b->grads[b->n], *w = (float *)(void *)row;
        segment_of(grad, &a->in, u);
        if (!floats_are_finite(grad, d)) {
            if (a->rejected != NULL)
                a->rejected[0]++;
            continue;
        }
        if (a->format != ROW_FP32) {
            w = b->wide[b->n];
            widen_floats(w, (const uint16_t *)(const void *)row, d, a->format);
        }
        b->indices[b->n] = (uint32_t)u;
        b->rows[b->n++] = (struct opt_row){.w = w,
                                           .state = (float *)(void *)(row + row_weight_bytes(a->format, d)),
                                           .g = grad,
                                           .scale = 1.0F,
                                           .curvature = 1.0F};
    }
}

static void batch_update(struct batch_update *a, void *stream)
{
    (void)stream;
    if (a->scratch == NULL) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    struct update_block block;
    size_t d = a->in.d, count = a->in.count[0], ahead = a->in.starts[0];
    for (size_t from = 0; from < count; from += UPDATE_ROWS) {
        size_t to = count - from < UPDATE_ROWS ? count : from + UPDATE_ROWS;
        update_gather(&block, a, from, to, &ahead);
        update_step(&block, d, a->kind, &a->params);
        for (size_t k = 0; k < block.n && a->format != ROW_FP32; k++) {
            uint32_t u = block.indices[k];
            round_floats(a->rows[u], block.wide[k], d, a->format, a->seed, a->keys[u]);
        }
    }
}
