#include "serve/figures.h"

#include <inttypes.h>
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

static void head(struct byte_buffer *out, const char *name, const char *type, const char *help)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* One bucket for each power of two from 1 us to 17 s. */
static void put_histogram(struct byte_buffer *out, struct str model, const char *phase,
                          const struct histogram *histogram)
{
    enum { FIRST_POWER = 10, LAST_POWER = 34 };
    uint64_t seen = 0;
    uint32_t at = 0;
    for (uint32_t power = FIRST_POWER; power <= LAST_POWER; power++) {
        for (; at < power * 4; at++)
            seen += histogram->counts[at];
        buffer_printf(out, "leat_serve_seconds_bucket{model=\"%.*s\",phase=\"%s\",le=\"%.9g\"} %" PRIu64 "\n",
                      STR_ARGS(model), phase, exp2((double)power) * 1e-9, seen);
    }
    buffer_printf(out, "leat_serve_seconds_bucket{model=\"%.*s\",phase=\"%s\",le=\"+Inf\"} %" PRIu64 "\n",
                  STR_ARGS(model), phase, histogram->count);
    buffer_printf(out, "leat_serve_seconds_sum{model=\"%.*s\",phase=\"%s\"} %.9g\n", STR_ARGS(model), phase,
                  histogram->sum_s);
    buffer_printf(out, "leat_serve_seconds_count{model=\"%.*s\",phase=\"%s\"} %" PRIu64 "\n", STR_ARGS(model),
                  phase, histogram->count);
}

static void put_count(struct byte_buffer *out, const char *metric, struct str model, const char *label,
                      const char *value, uint64_t count)
{
    buffer_printf(out, "%s{model=\"%.*s\",%s=\"%s\"} %" PRIu64 "\n", metric, STR_ARGS(model), label, value,
                  count);
}

void figures_write(const struct str *names, const struct figures *const *figures, uint32_t count,
                   struct byte_buffer *out)
{
    head(out, "leat_serve_requests_total", "counter", "Requests by what became of them.");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < OUTCOMES; k++)
            put_count(out, "leat_serve_requests_total", names[i], "outcome", outcome_name((enum outcome)k),
                      figures[i]->outcomes[k]);
    head(out, "leat_serve_rows_total", "counter", "Rows of requests by what became of them.");
    for (uint32_t i = 0; i < count; i++) {
        put_count(out, "leat_serve_rows_total", names[i], "outcome", "answered", figures[i]->rows_answered);
        put_count(out, "leat_serve_rows_total", names[i], "outcome", "filtered", figures[i]->rows_filtered);
        put_count(out, "leat_serve_rows_total", names[i], "outcome", "failed", figures[i]->rows_failed);
    }
    head(out, "leat_serve_rows_late_total", "counter", "Answered rows whose time is behind the watermark.");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "leat_serve_rows_late_total{model=\"%.*s\"} %" PRIu64 "\n", STR_ARGS(names[i]),
                      figures[i]->rows_late);
    head(out, "leat_serve_batches_total", "counter", "Batches that were computed.");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "leat_serve_batches_total{model=\"%.*s\"} %" PRIu64 "\n", STR_ARGS(names[i]),
                      figures[i]->batches);
    head(out, "leat_serve_seconds", "histogram", "Time of a request by phase.");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < PHASES; k++)
            put_histogram(out, names[i], phase_name((enum phase)k), &figures[i]->phases[k]);
}
