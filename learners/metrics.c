#include "learners/metrics.h"

#include "core/base.h"

#include <math.h>

enum { BINS_A_UNIT = 64 };

void metrics_init(struct metrics *m, enum loss_kind kind, uint64_t window)
{
    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->slice_events = MAX(window / METRICS_SLICES, 1);
}

static size_t bin_of(double logit)
{
    double at = floor(logit * BINS_A_UNIT) + METRICS_BINS / 2;
    return at < 0.0 ? 0 : at >= METRICS_BINS ? METRICS_BINS - 1 : (size_t)at;
}

static void sums_add(struct metrics_sums *into, const struct metrics_sums *from)
{
    into->count += from->count;
    into->loss += from->loss;
    into->label += from->label;
    into->prediction += from->prediction;
    into->squares += from->squares;
    into->absolutes += from->absolutes;
}

/* Slices are cut by event count alone: where the calls' boundaries lie makes no difference to them. */
static void slice_add(struct metrics *m, const struct metrics_sums *one)
{
    struct metrics_sums *slice = &m->slices[m->slice];
    if (slice->count >= m->slice_events) {
        m->slice = (m->slice + 1) % METRICS_SLICES;
        slice = &m->slices[m->slice];
        *slice = (struct metrics_sums){0};
        memset(m->slice_bins[m->slice], 0, sizeof m->slice_bins[m->slice]);
    }
    sums_add(slice, one);
}

void metrics_add(struct metrics *m, const double *logits, const float *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            continue;
        double label = (double)labels[i];
        struct metrics_sums one = {.count = 1, .label = label};
        if (m->kind == LOSS_LOGISTIC) {
            double tail = num_exp(-fabs(logits[i]));
            one.loss = (logits[i] > 0.0 ? logits[i] : 0.0) + num_log1p_unit(tail) - label * logits[i];
            one.prediction = (logits[i] > 0.0 ? 1.0 : tail) / (1.0 + tail);
        } else {
            one.prediction = logits[i];
        }
        double error = one.prediction - label;
        one.squares = error * error;
        one.absolutes = fabs(error);
        sums_add(&m->open, &one);
        if (m->open.count == METRICS_BLOCK) {
            sums_add(&m->whole, &m->open);
            m->open = (struct metrics_sums){0};
        }
        slice_add(m, &one);
        if (m->kind == LOSS_LOGISTIC) {
            size_t bin = bin_of(logits[i]);
            m->whole_bins[label > 0.5][bin]++;
            m->slice_bins[m->slice][label > 0.5][bin]++;
        }
    }
}

/* Mann and Whitney: pairs where the positive lies above, half of those in one bin. */
static void auc(uint64_t bins[2][METRICS_BINS], struct metrics_values *v)
{
    double above = 0.0, tied = 0.0, negatives = 0.0, positives = 0.0;
    for (size_t b = 0; b < METRICS_BINS; b++) {
        double neg = (double)bins[0][b], pos = (double)bins[1][b];
        above += pos * negatives;
        tied += pos * neg;
        negatives += neg;
        positives += pos;
    }
    double pairs = negatives * positives;
    v->auc = pairs > 0.0 ? (above + tied / 2.0) / pairs : (double)NAN;
    v->auc_error = pairs > 0.0 ? tied / 2.0 / pairs : (double)NAN;
}

struct metrics_values metrics_values(const struct metrics *m, bool is_window)
{
    uint64_t bins[2][METRICS_BINS];
    struct metrics_sums s = m->whole;
    sums_add(&s, &m->open);
    memcpy(bins, m->whole_bins, sizeof bins);
    if (is_window) {
        s = (struct metrics_sums){0};
        memset(bins, 0, sizeof bins);
        for (uint32_t i = 0; i < METRICS_SLICES; i++) {
            uint32_t slice = (m->slice + 1 + i) % METRICS_SLICES; /* oldest first */
            sums_add(&s, &m->slices[slice]);
            for (size_t b = 0; b < METRICS_BINS; b++) {
                bins[0][b] += m->slice_bins[slice][0][b];
                bins[1][b] += m->slice_bins[slice][1][b];
            }
        }
    }
    double n = (double)s.count;
    struct metrics_values v = {.count = s.count};
    if (s.count == 0)
        return v;
    v.rmse = sqrt(s.squares / n);
    v.mae = s.absolutes / n;
    v.label_mean = s.label / n;
    if (m->kind != LOSS_LOGISTIC)
        return v;
    v.logloss = s.loss / n;
    auc(bins, &v);
    double p = v.label_mean;
    double entropy = p > 0.0 && p < 1.0 ? -(p * num_log(p) + (1.0 - p) * num_log(1.0 - p)) : (double)NAN;
    v.normalized_entropy = v.logloss / entropy;
    v.calibration = s.label > 0.0 ? s.prediction / s.label : (double)NAN;
    return v;
}
