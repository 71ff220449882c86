/* Random streams for keyed operators, and the conditions under which the same stream must give the same
 * output: other numbers of lanes, a tiny memory budget, checkpoints, kills and restores, moves of key groups in between. */
#ifndef LEAT_TESTS_UNIT_OPERATORS_KEYED_SCRIPT_H
#define LEAT_TESTS_UNIT_OPERATORS_KEYED_SCRIPT_H

#include "unit/support/fake_engine.h"

enum { SCRIPT_ROWS_MAX = 6000, SCRIPT_NUMBERS_MAX = 200 };

struct script {
    struct fake_row rows[SCRIPT_ROWS_MAX];
    uint32_t count;
    uint32_t micro_batch_of[SCRIPT_ROWS_MAX]; /* the micro-batch of each row */
    uint32_t first[SCRIPT_NUMBERS_MAX + 1];
    int64_t watermarks[SCRIPT_NUMBERS_MAX]; /* after each micro-batch */
    uint32_t micro_batches;
};

struct script_options {
    uint64_t seed;
    uint32_t inputs, micro_batches, rows_per_number, keys;
    int64_t step_us;     /* how far event time moves on with each row, on average; 0: 300 ms */
    int64_t jitter_us;   /* how far event times lie around that time; 0: 4 s */
    int64_t delay_us;    /* how far the watermark is behind the largest event time; 0: 6 s */
    bool has_odd_floats; /* values whose sums depend on the order */
};

void script_make(struct script *script, const struct script_options *options);
/* The watermark that decides which rows of a micro-batch are late. */
int64_t script_watermark_before(const struct script *script, uint32_t micro_batch);

struct script_result {
    struct byte_buffer output, late; /* rows of the late output, lane after lane: compare them sorted */
    struct counters counters;
    uint32_t kills, moves, batch_rows_max;
    bool is_out_of_order;
};

enum script_variant {
    SCRIPT_PLAIN, /* one lane, all in memory */
    SCRIPT_LANES, /* several lanes */
    SCRIPT_TINY,  /* a budget that evicts nearly everything */
    SCRIPT_KILLS, /* checkpoints, kills, restores with other numbers of lanes, key groups that move; tiny budget or plenty */
    SCRIPT_VARIANTS
};

/* Runs the step over the script. The caller frees the result with script_free. */
void script_run(const char *step, const struct script *script, const struct script_options *options,
                enum script_variant variant, struct script_result *result);
void script_free(struct script_result *result);

/* Runs all variants and fails unless they give the output of SCRIPT_PLAIN, whose result is
 * left in `plain`. */
void script_check_variants(const char *step, const struct script *script,
                           const struct script_options *options, struct script_result *plain);
/* The text's lines sorted by their bytes, zero-terminated; the caller frees them. */
char *script_sorted(const struct byte_buffer *text);
/* Fails with the first line that differs. */
void script_compare(const char *what, const char *got, const char *expected);
/* Fails unless both have the same lines, in any order. */
void script_compare_sorted(const char *what, const struct byte_buffer *got,
                           const struct byte_buffer *expected);

/* Write cells as fake_engine shows them, for the outputs of models; a missing value is `null`. */
void script_show_value(struct byte_buffer *out, bool has, int64_t value);
void script_show_list(struct byte_buffer *out, const struct fake_row *row);
/* Writes all columns of a row, separated by `|`. */
void script_show_row(struct byte_buffer *out, const struct fake_row *row);

/* Writes the first column of each row. */
void script_ids(const struct byte_buffer *rows, struct byte_buffer *ids);
/* Applies changes and writes the rows that are left; a row is identified by its first `id_columns` columns.
 * Fails unless an insert is of a row that does not exist, an update of an existing row with other values, and
 * a delete of an existing row with its latest values. */
void script_apply_changes(const struct byte_buffer *changes, uint32_t id_columns, struct byte_buffer *rows);

/* A step that must not bind, and the code of a diagnostic that it must give. */
struct script_refusal {
    const char *step;
    enum diag_code code;
};
void script_check_refusals(const struct script_refusal *refusals, size_t count, uint32_t inputs);

#endif
