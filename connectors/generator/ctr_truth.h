/* The scores of a model that knew each event's p, over the events seen. Keeps sums only, no event's p. The
 * sums are integers, so the result does not depend on the order in which events are added, or on the number
 * of threads. One thread at a time. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_TRUTH_H
#define LEAT_CONNECTORS_GENERATOR_CTR_TRUTH_H

#include "core/base.h"

/* Bins for logits from -12 to 12; logits outside are in the first or last bin. AUC counts pairs within a bin
 * as ties. */
enum { CTR_TRUTH_BINS = 8192 };

struct ctr_truth {
    uint64_t events, clicks;
    int64_t loss, entropy;            /* in units of 2^-24 nat */
    uint64_t bins[2][CTR_TRUTH_BINS]; /* events by label and logit */
};

struct ctr_scores {
    double ctr;
    double logloss;          /* of the labels drawn, under the true p (Bayes) */
    double logloss_expected; /* mean entropy of p: the logloss expected over all possible labels */
    double auc;              /* of p against the labels */
    double base_logloss;     /* of a model that knows only the click-through rate */
};

void ctr_truth_add(struct ctr_truth *truth, double logit, double p, bool is_clicked);
void ctr_truth_merge(struct ctr_truth *into, const struct ctr_truth *from);
/* Zeros if there are no events. */
struct ctr_scores ctr_truth_scores(const struct ctr_truth *truth);

#endif
