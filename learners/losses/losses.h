/*
 * The losses of models that choose items: a target is a query vector (what a user did, encoded), the item that
 * came next (the positive), and other items (negatives). An item's score is the dot product of its row with
 * the query, divided by the temperature. A loss is a function of these scores, so the gradient by a row is a
 * number times the query, and the gradient by the query is the sum of numbers times rows: losses give these
 * numbers. Scores are made in fp32, everything after them in double, with the same bits on every machine.
 *
 * A negative that is the positive item itself (an accidental hit) is left out, by its dense number.
 */
#ifndef LEAT_LEARNERS_LOSSES_LOSSES_H
#define LEAT_LEARNERS_LOSSES_LOSSES_H

#include "core/base.h"
#include "core/option.h"
#include "kernels/kernels.h"

enum {
    LOSSES_NEGATIVES_MAX = 4096, /* upper limit of the options `negatives` and `tries` */
    LOSSES_REASON = 200,         /* bytes of a reason, its NUL included */
};

/* The options of all losses; each reads those of its own table. */
struct losses_options {
    double temperature;
    int64_t negatives;  /* drawn for a target */
    bool in_batch;      /* sampled_softmax: the positives of the batch's other targets are negatives, too */
    bool correct;       /* sampled_softmax: subtract log_q from the scores */
    double calibration; /* gbce: t */
};

/* A target; all memory is the caller's, and rows have d floats. */
struct losses_target {
    const float *query, *positive;
    const float *const *negatives; /* [count], none NULL */
    uint32_t count, d;
    uint32_t number;         /* dense number of the positive */
    const uint32_t *numbers; /* [count] of the negatives; NULL: no negative is the positive */
    /*
     * Natural logarithms of how often the item is expected among the items that are compared. Drawn negatives:
     * negatives_log_q of negatives.h, and 0 for the positive, which is always there. Negatives that are the
     * positives of other targets: as negatives_in_batch gives both. log_q NULL: 0 for each.
     */
    double positive_log_q;
    const double *log_q; /* [count] */
    uint32_t items;      /* that can be drawn, the positive included; at least 2 for gbce and warp */
};

/* What a loss gives for a target. query_gradient and row_scales are the caller's: [d], and [1 + count] for the
 * positive and the negatives. The gradient by row i is row_scales[i] * query. */
struct losses_result {
    double loss;
    float *query_gradient, *row_scales;
};

/* Memory for targets of up to count_max negatives; one thread at a time. */
struct losses_work {
    uint32_t count_max;
    double *scores, *gradients, *values; /* [1 + count_max] */
    float *dots, *zeros;                 /* [1 + count_max] */
};

/* A loss at work on a target. */
struct losses_call {
    const struct losses_options *options;
    const struct losses_target *target;
    const struct kernels *kernels;
    double *scores;    /* [1 + count] of the positive, then of the negatives */
    double *gradients; /* [1 + count] zeros, in which the loss writes its derivatives by the scores */
    double *values;    /* [1 + count] for the loss's own use */
    const float *zeros;
};

/* A loss; losses_<name> in <name>.c. */
struct losses_kind {
    const char *name;
    const struct option *options; /* losses_<name>_options: rows for struct losses_options */
    /* Whether bound options fit together; false: `reason` says what was expected and found. NULL: they do. */
    bool (*check)(const struct losses_options *options, char reason[LOSSES_REASON]);
    /* The loss, from call->scores, and its derivatives. */
    double (*at)(struct losses_call *call);
    bool takes_all_items; /* its negatives are all other items; losses_softmax_* does that for many targets */
    bool is_lazy;         /* it asks for a negative's score by losses_score, if it needs it */
};

/* The loss of that name; NULL: there is none. Any thread. */
const struct losses_kind *losses_find(struct str name);
/* The rows that all losses have. */
extern const struct option losses_shared_options[];

/* Whether bound options fit together; false: `reason` has a text for a diagnostic. Any thread. */
LEAT_CHECKED bool losses_check(const struct losses_kind *kind, const struct losses_options *options,
                               char reason[LOSSES_REASON]);

void losses_work_init(struct losses_work *work, uint32_t count_max);
void losses_work_free(struct losses_work *work);

/*
 * The loss of a target and its gradients, times `weight`. target->count is at most work->count_max. Returns
 * false, with gradients of 0 and a loss of 0, if a score, the loss or a gradient is not finite. Without
 * negatives (none, or all left out) loss and gradients of a loss over pairs are 0. Any thread, with a work of its own.
 */
LEAT_CHECKED bool losses_at(const struct losses_kind *kind, const struct losses_options *options,
                            const struct kernels *kernels, const struct losses_target *target, double weight,
                            struct losses_work *work, struct losses_result *result);

/* The gradient by a row of d floats, from its scale. */
static inline void losses_row_gradient(float *out, float scale, const float *query, size_t d)
{
    for (size_t i = 0; i < d; i++)
        out[i] = scale * query[i];
}

/* For the losses: whether negative i is the positive itself. */
static inline bool losses_is_hit(const struct losses_target *target, uint32_t i)
{
    return target->numbers != NULL && target->numbers[i] == target->number;
}
/* For lazy losses: the score of negative i, also written to call->scores. */
double losses_score(struct losses_call *call, uint32_t i);
/* For the losses: -log of the positive's share in the softmax of the scores; has_log_q: of the scores minus
 * log_q. */
double losses_cross_entropy(struct losses_call *call, bool has_log_q);

#endif
