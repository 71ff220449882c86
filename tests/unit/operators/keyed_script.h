/* Random streams for keyed operators, and the ways in which the same stream must give the same output: other
 * lanes, a tiny budget, checkpoints, kills and restores in between. */
#ifndef LEAT_TESTS_OPERATORS_KEYED_SCRIPT_H
#define LEAT_TESTS_OPERATORS_KEYED_SCRIPT_H

#include "unit/support/fake_engine.h"

enum { SCRIPT_ROWS_MAX = 6000, SCRIPT_NUMBERS_MAX = 200 };

struct script {
    struct fake_row rows[SCRIPT_ROWS_MAX];
    uint32_t count;
    uint32_t number_of[SCRIPT_ROWS_MAX]; /* the number that the row belongs to */
    uint32_t first[SCRIPT_NUMBERS_MAX + 1];
    int64_t watermarks[SCRIPT_NUMBERS_MAX]; /* after each number */
    uint32_t numbers;
};

struct script_options {
    uint64_t seed;
    uint32_t inputs, numbers, rows_per_number, keys;
    int64_t step_us;     /* how far event time moves on with each row */
    int64_t jitter_us;   /* how far rows lie around it */
    int64_t delay_us;    /* of the watermark behind the largest time */
    bool has_odd_floats; /* values whose sums depend on the order */
};

void script_make(struct script *script, const struct script_options *options);
/* The watermark by which rows of that number are late. */
int64_t script_watermark_before(const struct script *script, uint32_t number);

struct script_result {
    struct byte_buffer output, late; /* late: lines in order of lanes; compare them sorted */
    struct counters counters;
    uint32_t kills, batch_rows_max;
    bool is_out_of_order;
};

enum script_variant {
    SCRIPT_PLAIN, /* one lane, all in memory */
    SCRIPT_LANES, /* several lanes */
    SCRIPT_TINY,  /* a budget that evicts nearly everything */
    SCRIPT_KILLS, /* checkpoints, kills, restores at other numbers of lanes, tiny budget */
    SCRIPT_VARIANTS
};

/* Runs the step over the script. The caller frees the result. */
void script_run(const char *step, const struct script *script, const struct script_options *options,
                enum script_variant variant, struct script_result *result);
void script_free(struct script_result *result);

/* All variants give the output of the plain one, which is left in `plain`. */
void script_check_variants(const char *step, const struct script *script,
                           const struct script_options *options, struct script_result *plain);
/* Lines in order of their bytes, terminated; malloc'd. */
char *script_sorted(const struct byte_buffer *text);
void script_compare(const char *what, const char *got, const char *expected);

#endif
