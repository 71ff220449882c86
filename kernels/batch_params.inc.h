/*
 * params_update of batch_train.h: opt_<kind> over one long row; gradients that are not finite are set to 0
 * first.
 */

LANES_INLINE v16 params_gradient(const struct batch_params_update *a, v16 scale, size_t i, size_t lanes)
{
    return opt_finite(v16_mul(scale, v16_load_n(a->g + i, lanes)));
}

LANES_INLINE void params_one(enum opt_kind kind, const struct batch_params_update *a, v16 scale, size_t i,
                             size_t lanes, const struct opt_vectors *o)
{
    v16 one = v16_set1(1.0F), s0 = one, s1 = one; /* unused without such state */
    float *state = a->state + i;
    if (opt_states(kind) > 0)
        s0 = v16_load_n(state, lanes);
    if (opt_states(kind) > 1)
        s1 = v16_load_n(state + a->n, lanes);
    v16 g = params_gradient(a, scale, i, lanes);
    v16_store_n(a->w + i, opt_step(kind, v16_load_n(a->w + i, lanes), g, one, one, &s0, &s1, o), lanes);
    if (opt_states(kind) > 0)
        v16_store_n(state, s0, lanes);
    if (opt_states(kind) > 1)
        v16_store_n(state + a->n, s1, lanes);
}

LANES_INLINE void params_walk(enum opt_kind kind, const struct batch_params_update *a, float scale)
{
    struct opt_vectors o = opt_spread(&a->params);
    v16 scales = v16_set1(scale);
    size_t i = 0;
    for (; i + 16 <= a->n; i += 16)
        params_one(kind, a, scales, i, 16, &o);
    if (i < a->n)
        params_one(kind, a, scales, i, a->n - i, &o);
}

static void batch_params_update(struct batch_params_update *a, void *stream)
{
    (void)stream;
    float scale = a->scale ? a->scale[0] : 1.0F;
    switch (a->kind) {
    case OPT_SGD: params_walk(OPT_SGD, a, scale); break;
    case OPT_MOMENTUM: params_walk(OPT_MOMENTUM, a, scale); break;
    case OPT_ADAGRAD: params_walk(OPT_ADAGRAD, a, scale); break;
    case OPT_ADAM: params_walk(OPT_ADAM, a, scale); break;
    case OPT_FTRL: params_walk(OPT_FTRL, a, scale); break;
    case OPT_ADAGRAD_ROW:
    case OPT_ADAGRAD_BLOCK:
    case OPT_NEWTON:
    case OPT_KINDS: assert(false); break;
    }
}
