/* What a model that knew each p would score over the events seen: sums only, no event's p. Sums are integers,
 * so that the order in which events were added, and by how many threads, does not show. One thread at a time.
 */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_TRUTH_H
#define LEAT_CONNECTORS_GENERATOR_CTR_TRUTH_H

#include "core/base.h"

/* Logits from -12 to 12; what is outside is in the last bin of its side. AUC counts pairs within a bin as
 * ties. */
enum { CTR_TRUTH_BINS = 8192 };

struct ctr_truth {
    uint64_t events, clicks;
    int64_t loss, entropy;            /* in units of 2^-24 nat */
    uint64_t bins[2][CTR_TRUTH_BINS]; /* events by label and logit */
};

struct ctr_scores {
    double ctr;
    double logloss;          /* of the labels drawn, under the true p: Bayes */
    double logloss_expected; /* the mean entropy of p: what it would be on average over labels */
    double auc;              /* of p against the labels */
    double base_logloss;     /* of a model that knows the click-through rate alone */
};

void ctr_truth_add(struct ctr_truth *truth, double logit, double p, bool is_clicked);
void ctr_truth_merge(struct ctr_truth *into, const struct ctr_truth *from);
/* Zeros where there is no event. */
struct ctr_scores ctr_truth_scores(const struct ctr_truth *truth);

#endif
