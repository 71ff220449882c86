/* Figures of a model that answers requests: what became of requests and rows, and how long each phase took. One
 * thread. */
#ifndef LEAT_SERVE_FIGURES_H
#define LEAT_SERVE_FIGURES_H

#include "serve/metrics_table.h"

/* What became of a request. Each request that names a model has one outcome, so that
 * requests = answered + filtered + failed + refused + shed + expired + waiting. */
enum outcome {
    OUTCOME_ANSWERED, /* some row was */
    OUTCOME_FILTERED, /* every row was left out by a step */
    OUTCOME_FAILED,   /* every row was rejected by a step, or the state cannot be read */
    OUTCOME_REFUSED,  /* the request is wrong, or the model is not there or too old */
    OUTCOME_SHED,     /* too much was waiting */
    OUTCOME_EXPIRED,  /* it waited beyond its deadline, or its client left */
    OUTCOMES,
};
const char *outcome_name(enum outcome outcome);

enum phase {
    PHASE_READ,  /* from bytes to checked tensors */
    PHASE_QUEUE, /* until its first rows are computed */
    PHASE_COMPUTE,
    PHASE_WRITE, /* answers to bytes */
    PHASE_ALL,   /* from the request's head to its answer */
    PHASES,
};
const char *phase_name(enum phase phase);

/* Times in buckets of 2^(1/4): a quantile is at most 19 % too high. What /metrics says of it, counts up to powers of two,
 * their sum and number, is exact. */
enum { HISTOGRAM_BUCKETS = 160 };
struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count;
    double sum_s;
};
void histogram_add(struct histogram *histogram, int64_t ns);
/* Upper bound of the bucket that holds the q-quantile, in nanoseconds; 0: the histogram is empty. */
double histogram_quantile(const struct histogram *histogram, double q);

struct figures {
    uint64_t requests;
    uint64_t outcomes[OUTCOMES];
    uint64_t rows_answered, rows_late, rows_filtered, rows_failed;
    uint64_t batches;
    struct histogram phases[PHASES];
    uint64_t phase_ns[PHASES];
    int64_t last_ms; /* wall clock of the last answer */
};

/* A model's figures, as Triton's statistics say them. */
struct infer_statistics {
    uint64_t inferences, executions;                   /* rows; batches */
    uint64_t successes, success_ns, failures, fail_ns; /* requests */
    uint64_t queue_ns, input_ns, compute_ns, output_ns;
    int64_t last_ms; /* wall clock of the last inference */
};
struct infer_statistics figures_statistics(const struct figures *figures);

/* Why a model of the repository index is not ready. */
#define MODEL_UNAVAILABLE "no checkpoint that can be read, or one that is too old"

/* Writes the metrics of `count` models. names: theirs. */
void figures_write(const struct str *names, const struct figures *const *figures, uint32_t count,
                   struct metrics_text *text);

#endif
