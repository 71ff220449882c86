#include "connectors/generator/ctr_truth.h"

#include "connectors/generator/ctr_math.h"

#define LOSS_UNITS  0x1p24
#define LOGIT_LIMIT 12.0
#define P_LEAST     1e-12

static double log_of(double p)
{
    return ctr_log(MAX(p, P_LEAST));
}

static size_t bin_of(double logit)
{
    double place = (logit + LOGIT_LIMIT) * (CTR_TRUTH_BINS / (2.0 * LOGIT_LIMIT));
    if (place < 0.0)
        return 0;
    return place >= CTR_TRUTH_BINS ? CTR_TRUTH_BINS - 1 : (size_t)place;
}

void ctr_truth_add(struct ctr_truth *truth, double logit, double p, bool is_clicked)
{
    double gain = log_of(p), loss = log_of(1.0 - p);
    truth->events++;
    truth->clicks += is_clicked;
    truth->loss += ctr_round((is_clicked ? -gain : -loss) * LOSS_UNITS);
    truth->entropy += ctr_round(-(p * gain + (1.0 - p) * loss) * LOSS_UNITS);
    truth->bins[is_clicked][bin_of(logit)]++;
}

void ctr_truth_merge(struct ctr_truth *into, const struct ctr_truth *from)
{
    into->events += from->events;
    into->clicks += from->clicks;
    into->loss += from->loss;
    into->entropy += from->entropy;
    for (size_t label = 0; label < 2; label++)
        for (size_t i = 0; i < CTR_TRUTH_BINS; i++)
            into->bins[label][i] += from->bins[label][i];
}

/* Share of the (click, no click) pairs that are in the right order; ties count half. */
static double auc_of(const struct ctr_truth *truth)
{
    double below = 0.0, right = 0.0;
    for (size_t i = 0; i < CTR_TRUTH_BINS; i++) {
        double zeros = (double)truth->bins[0][i], ones = (double)truth->bins[1][i];
        right += ones * (below + 0.5 * zeros);
        below += zeros;
    }
    double pairs = (double)truth->clicks * (double)(truth->events - truth->clicks);
    return pairs > 0.0 ? right / pairs : 0.0;
}

struct ctr_scores ctr_truth_scores(const struct ctr_truth *truth)
{
    if (truth->events == 0)
        return (struct ctr_scores){0};
    double events = (double)truth->events, rate = (double)truth->clicks / events;
    return (struct ctr_scores){
        .ctr = rate,
        .logloss = (double)truth->loss / LOSS_UNITS / events,
        .logloss_expected = (double)truth->entropy / LOSS_UNITS / events,
        .auc = auc_of(truth),
        .base_logloss = -(rate * log_of(rate) + (1.0 - rate) * log_of(1.0 - rate)),
    };
}
