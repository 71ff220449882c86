#include "learners/learner/metrics.h"

#include "core/base.h"
#include "kernels/kernels.h"

#include <math.h>

enum { BINS_A_UNIT = 64, TILE = 128 };

void metrics_init(struct metrics *m, enum loss_kind kind, uint64_t window)
{
    memset(m, 0, sizeof(*m));
    m->kind = kind;
    m->slice_events = MAX(window / METRICS_SLICES, 1);
}

static size_t bin_of(double logit)
{
    /* the conversion rounds towards 0, not down; but all values below 0 are in the first bin anyway */
    double at = logit * BINS_A_UNIT + METRICS_BINS / 2;
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

/* The events of a tile that have finite logits. */
struct tile {
    size_t count;
    double logits[TILE], labels[TILE], losses[TILE], predictions[TILE];
};

static void tile_fill(struct tile *t, const struct metrics *m, const struct kernels *k, const double *logits,
                      const float *labels, size_t n)
{
    float kept[TILE];
    t->count = 0;
    for (size_t i = 0; i < n; i++) {
        t->logits[t->count] = logits[i];
        t->labels[t->count] = (double)labels[i];
        kept[t->count] = labels[i];
        t->count += isfinite(logits[i]) != 0;
    }
    if (m->kind == LOSS_LOGISTIC) {
        k->logloss64(t->losses, t->logits, kept, t->count);
        k->sigmoid64(t->predictions, t->logits, t->count);
    } else {
        memset(t->losses, 0, t->count * sizeof(*t->losses));
        memcpy(t->predictions, t->logits, t->count * sizeof(*t->logits));
    }
}

static void sums_add_tile(struct metrics_sums *into, const struct tile *t, size_t from, size_t to)
{
    struct metrics_sums sums = *into;
    for (size_t i = from; i < to; i++) {
        double error = t->predictions[i] - t->labels[i];
        sums.loss += t->losses[i];
        sums.label += t->labels[i];
        sums.prediction += t->predictions[i];
        sums.squares += error * error;
        sums.absolutes += fabs(error);
    }
    sums.count += to - from;
    *into = sums;
}

static void whole_add(struct metrics *m, const struct tile *t)
{
    for (size_t at = 0, end; at < t->count; at = end) {
        end = MIN(t->count, at + METRICS_BLOCK - m->open.count);
        sums_add_tile(&m->open, t, at, end);
        if (m->open.count == METRICS_BLOCK) {
            sums_add(&m->whole, &m->open);
            m->open = (struct metrics_sums){0};
        }
    }
}

static void bins_add(struct metrics *m, const struct tile *t, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        size_t bin = bin_of(t->logits[i]);
        m->whole_bins[t->labels[i] > 0.5][bin]++;
        m->slice_bins[m->slice][t->labels[i] > 0.5][bin]++;
    }
}

/* Slices are cut by the number of events alone: the calls' boundaries do not matter. */
static void slices_add(struct metrics *m, const struct tile *t)
{
    for (size_t at = 0, end; at < t->count; at = end) {
        if (m->slices[m->slice].count >= m->slice_events) {
            m->slice = (m->slice + 1) % METRICS_SLICES;
            m->slices[m->slice] = (struct metrics_sums){0};
            memset(m->slice_bins[m->slice], 0, sizeof(m->slice_bins[m->slice]));
        }
        end = (size_t)MIN((uint64_t)t->count, at + m->slice_events - m->slices[m->slice].count);
        sums_add_tile(&m->slices[m->slice], t, at, end);
        if (m->kind == LOSS_LOGISTIC)
            bins_add(m, t, at, end);
    }
}

void metrics_add(struct metrics *m, const struct kernels *k, const double *logits, const float *labels,
                 size_t n)
{
    struct tile t;
    for (size_t at = 0; at < n; at += TILE) {
        tile_fill(&t, m, k, logits + at, labels + at, MIN(n - at, (size_t)TILE));
        whole_add(m, &t);
        slices_add(m, &t);
    }
}

/* Mann-Whitney: the share of pairs where the positive has the higher logit; pairs in one bin count half. */
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
    memcpy(bins, m->whole_bins, sizeof(bins));
    if (is_window) {
        s = (struct metrics_sums){0};
        memset(bins, 0, sizeof(bins));
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
