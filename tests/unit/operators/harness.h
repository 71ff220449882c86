/* Runs one operator by itself: binds a step written in the job language, pushes batches, collects what it
 * emits and rejects. Stands in for engine/run. */
#ifndef LEAT_TESTS_UNIT_OPERATORS_HARNESS_H
#define LEAT_TESTS_UNIT_OPERATORS_HARNESS_H

#include "core/operator_state.h"
#include "unit/support/fake_calls.h"

enum { HARNESS_REJECTS_MAX = 4096 };

struct harness {
    struct fake_calls calls;
    struct arena arena, scratch;
    struct diag_list diags;
    struct batch_pool *pool;
    struct schema *inputs[OPERATOR_INPUTS_MAX];
    uint32_t inputs_count;
    const struct operator_kind *kind;
    void *master; /* the bound option struct */
    struct operator_bind bind;
    struct operator_context context;
    struct byte_buffer output; /* emitted rows as text, columns separated by `|` */
    struct batch_digest *digest;
    uint64_t rows, batches;
    uint32_t batch_rows_max;
    const char *reasons[HARNESS_REJECTS_MAX];
    uint32_t rejected_rows[HARNESS_REJECTS_MAX];
    uint32_t rejects;
    const struct registry *registry; /* the sources that a step may open; NULL: none */
    int64_t memory_bytes;
    bool keeps_text; /* whether `output` is filled */
    void (*check)(struct harness *h, const struct batch *batch);
};

/* Initializes a harness whose input 0 has the sample schema. */
void harness_init(struct harness *h);
void harness_free(struct harness *h);
/* user_id: int, item_id: int, device: text, price: float, position: int, clicked: bool, ts: time, tags:
 * list(text), events: list(record { aid: int, kind: text }). Column i has the lineage bit i. */
struct schema *harness_schema(struct arena *arena);
/* A batch of sample rows: eight rows with nulls, blanks and extremes; rows 8 and on repeat them. */
struct batch *harness_batch(struct harness *h, uint32_t rows);

/* Binds `step`, e.g. "where user_id > 0". Returns false if it added a diagnostic. */
bool harness_bind(struct harness *h, const char *step);
/* Gives a batch to the operator and releases it. */
void harness_push(struct harness *h, uint32_t input, struct batch *batch);
/* The emitted text so far, zero-terminated. */
const char *harness_text(struct harness *h);
/* Clears emitted rows, rejects and counters. */
void harness_forget(struct harness *h);
/* The first diagnostic with this code, or NULL. */
const struct diag *harness_diag(const struct harness *h, enum diag_code code);

/* A snapshot of one operator in memory, and a reader over the snapshots of several lanes. */
struct snapshot_writer {
    struct byte_buffer records;
};
struct snapshot_reader {
    const struct byte_buffer *parts;
    uint32_t count, part;
    size_t at;
    bool is_corrupt;
};

#endif
