#include "serve/figures.h"

#include <math.h>

const char *outcome_name(enum outcome outcome)
{
    static const char *const names[OUTCOMES] = {"answered", "filtered", "failed",
                                                "refused",  "shed",     "expired"};
    return names[outcome];
}

const char *phase_name(enum phase phase)
{
    static const char *const names[PHASES] = {"read", "queue", "compute", "write", "all"};
    return names[phase];
}

/* Bucket i ends at 2^((i + 1) / 4) ns: four buckets for each power of two, by the two bits behind the first one. */
static uint32_t bucket_of(uint64_t ns)
{
    static const double steps[3] = {1.1892071150027210, 1.4142135623730951, 1.6817928305074290};
    if (ns < 2)
        return 0;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(ns);
    double part = (double)ns / (double)(UINT64_C(1) << power);
    uint32_t step = part >= steps[2] ? 3 : part >= steps[1] ? 2 : part >= steps[0] ? 1 : 0;
    return MIN(power * 4 + step, HISTOGRAM_BUCKETS - 1);
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
    uint64_t value = (uint64_t)MAX(ns, 0);
    histogram->counts[bucket_of(value)]++;
    histogram->count++;
    histogram->sum_s += (double)value * 1e-9;
}

double histogram_quantile(const struct histogram *histogram, double q)
{
    uint64_t wanted = (uint64_t)ceil(q * (double)histogram->count), seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        seen += histogram->counts[i];
        if (seen >= MAX(wanted, 1))
            return exp2((double)(i + 1) / 4.0);
    }
    return 0.0;
}

struct infer_statistics figures_statistics(const struct figures *figures)
{
    uint64_t good = figures->outcomes[OUTCOME_ANSWERED] + figures->outcomes[OUTCOME_FILTERED];
    return (struct infer_statistics){.inferences = figures->rows_answered + figures->rows_filtered,
                                     .executions = figures->batches,
                                     .successes = good,
                                     .success_ns = figures->phase_ns[PHASE_ALL],
                                     .failures = figures->requests - good,
                                     .queue_ns = figures->phase_ns[PHASE_QUEUE],
                                     .input_ns = figures->phase_ns[PHASE_READ],
                                     .compute_ns = figures->phase_ns[PHASE_COMPUTE],
                                     .output_ns = figures->phase_ns[PHASE_WRITE],
                                     .last_ms = figures->last_ms};
}

/* --- Prometheus --- */

/* One bucket for each power of two from 1 us to 17 s. */
static void put_histogram(struct metrics_text *text, struct str model, const char *phase,
                          const struct histogram *histogram)
{
    enum { FIRST_POWER = 10, LAST_POWER = 34, NAME_BYTES = 64 };
    const char *const ends[] = {"_bucket", "_sum", "_count"};
    char names[ARRAY_COUNT(ends)][NAME_BYTES];
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++)
        snprintf(names[i], NAME_BYTES, "%s%s", serve_metrics[METRIC_SERVE_SECONDS].name, ends[i]);
    uint64_t seen = 0;
    uint32_t at = 0;
    for (uint32_t power = FIRST_POWER; power <= LAST_POWER + 1; power++) {
        char end[NAME_BYTES] = "+Inf";
        if (power <= LAST_POWER)
            snprintf(end, sizeof(end), "%.9g", exp2((double)power) * 1e-9);
        for (; power <= LAST_POWER && at < power * 4; at++)
            seen += histogram->counts[at];
        metrics_begin(text, names[0]);
        metrics_label(text, "model", model);
        metrics_label(text, "phase", str_from(phase));
        metrics_label(text, "le", str_from(end));
        metrics_count(text, power <= LAST_POWER ? seen : histogram->count);
    }
    for (size_t i = 1; i < ARRAY_COUNT(ends); i++) {
        metrics_begin(text, names[i]);
        metrics_label(text, "model", model);
        metrics_label(text, "phase", str_from(phase));
        if (i == 1)
            metrics_value(text, histogram->sum_s);
        else
            metrics_count(text, histogram->count);
    }
}

static void put_outcome(struct metrics_text *text, enum serve_metric metric, struct str model,
                        const char *outcome, uint64_t count)
{
    serve_metric_begin(text, metric, model);
    metrics_label(text, "outcome", str_from(outcome));
    metrics_count(text, count);
}

void figures_write(const struct str *names, const struct figures *const *figures, uint32_t count,
                   struct metrics_text *text)
{
    metrics_head(text, &serve_metrics[METRIC_SERVE_REQUESTS]);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < OUTCOMES; k++)
            put_outcome(text, METRIC_SERVE_REQUESTS, names[i], outcome_name((enum outcome)k),
                        figures[i]->outcomes[k]);
    metrics_head(text, &serve_metrics[METRIC_SERVE_ROWS]);
    for (uint32_t i = 0; i < count; i++) {
        put_outcome(text, METRIC_SERVE_ROWS, names[i], "answered", figures[i]->rows_answered);
        put_outcome(text, METRIC_SERVE_ROWS, names[i], "filtered", figures[i]->rows_filtered);
        put_outcome(text, METRIC_SERVE_ROWS, names[i], "failed", figures[i]->rows_failed);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_ROWS_LATE]);
    for (uint32_t i = 0; i < count; i++) {
        serve_metric_begin(text, METRIC_SERVE_ROWS_LATE, names[i]);
        metrics_count(text, figures[i]->rows_late);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_BATCHES]);
    for (uint32_t i = 0; i < count; i++) {
        serve_metric_begin(text, METRIC_SERVE_BATCHES, names[i]);
        metrics_count(text, figures[i]->batches);
    }
    metrics_head(text, &serve_metrics[METRIC_SERVE_SECONDS]);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < PHASES; k++)
            put_histogram(text, names[i], phase_name((enum phase)k), &figures[i]->phases[k]);
}
