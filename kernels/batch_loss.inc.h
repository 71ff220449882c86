/*
 * loss of batch_train.h. Blocks have a constant length and each step is a loop over the block, so that the
 * compiler can vectorize it; the arithmetic of one event is in logistic.inc.h.
 */

enum { LOSS_BLOCK = 64 };

/* The values of a block of events; lanes beyond the last event are zeros. */
struct loss_block {
    float logits[LOSS_BLOCK], labels[LOSS_BLOCK], weights[LOSS_BLOCK], gradients[LOSS_BLOCK];
    double predictions[LOSS_BLOCK];
};

/* Loads n events from e on: labels, weights and logits (logits + more, which are also written to a->sums). */
static void loss_gather(struct loss_block *b, const struct batch_loss *a, size_t e, size_t n)
{
    memset(b, 0, sizeof(*b));
    memcpy(b->logits, a->logits + e, n * sizeof(*b->logits));
    memcpy(b->labels, a->labels + e, n * sizeof(*b->labels));
    for (size_t i = 0; i < n; i++)
        b->weights[i] = a->weights != NULL ? a->weights[e + i] : 1.0F;
    for (size_t i = 0; a->more && i < n; i++)
        b->logits[i] += a->more[(e + i) * a->more_stride];
    if (a->sums != NULL)
        memcpy(a->sums + e, b->logits, n * sizeof(*b->logits));
}

LANES_INLINE void loss_gradients(struct loss_block *b, const struct batch_loss *a, bool is_squared,
                                 bool has_fake_negatives)
{
    for (size_t i = 0; i < LOSS_BLOCK; i++)
        b->predictions[i] = (double)b->logits[i];
    if (!is_squared)
        sigmoid64(b->predictions, b->predictions, LOSS_BLOCK);
    float others = is_squared ? 1.0F : a->class_weights[0], ones = is_squared ? 1.0F : a->class_weights[1];
    for (size_t i = 0; i < LOSS_BLOCK; i++) {
        bool is_positive = b->labels[i] > 0.5F;
        double p = b->predictions[i], weight = (double)b->weights[i] * (double)(is_positive ? ones : others);
        if (has_fake_negatives)
            weight *= fake_negative_weight(p, is_positive);
        b->gradients[i] = (float)((p - (double)b->labels[i]) * weight) * a->scale;
    }
}

/* Marks rejected events, and writes is_rejected and gradients; returns the number of rejected events. */
static uint32_t loss_judge(struct loss_block *b, const struct batch_loss *a, size_t e, size_t n)
{
    uint8_t verdicts[LOSS_BLOCK] = {0};
    memcpy(verdicts, a->is_rejected + e, n);
    for (size_t i = 0; i < LOSS_BLOCK; i++) {
        bool is_logit = float_is_finite(b->logits[i]), is_gradient = float_is_finite(b->gradients[i]);
        verdicts[i] = (verdicts[i] != 0) | !is_logit | !is_gradient;
    }
    for (size_t i = 0; i < LOSS_BLOCK; i++)
        b->gradients[i] = verdicts[i] != 0 ? 0.0F : b->gradients[i];
    memcpy(a->is_rejected + e, verdicts, n);
    if (a->gradients_stride > 1) {
        for (size_t i = 0; i < n; i++)
            a->gradients[(e + i) * a->gradients_stride] = b->gradients[i];
    } else {
        memcpy(a->gradients + e, b->gradients, n * sizeof(*b->gradients));
    }
    uint32_t rejected = 0;
    for (size_t i = 0; i < n; i++)
        rejected += verdicts[i];
    return rejected;
}

static void batch_loss(struct batch_loss *a, void *stream)
{
    (void)stream;
    uint32_t rejected = 0;
    for (size_t e = 0; e < a->n; e += LOSS_BLOCK) {
        struct loss_block b;
        size_t n = a->n - e < LOSS_BLOCK ? a->n - e : LOSS_BLOCK;
        loss_gather(&b, a, e, n);
        if (a->is_squared)
            loss_gradients(&b, a, true, false);
        else if (a->has_fake_negatives)
            loss_gradients(&b, a, false, true);
        else
            loss_gradients(&b, a, false, false);
        rejected += loss_judge(&b, a, e, n);
    }
    if (a->rejected != NULL)
        a->rejected[0] += rejected;
}
