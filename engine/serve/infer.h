/* Inference requests and their answers without their wire form: the tensors of the Open Inference Protocol
 * v2 (KServe's "Predict Protocol, Version 2") become rows of a source's columns, and answers become
 * tensors.
 *
 * A request has an input for each column, one element a row; an input of shape [1] goes with every row. A
 * shape [n, 1] counts as [n]. With a column NAME come two more inputs, both optional:
 *   NAME.valid     BOOL, false: the row's value is null; the element of NAME is not looked at
 *   NAME.lengths   INT64, for lists: elements of each row; NAME has the elements of all rows, in one line
 * Answers have the same: an output NAME, and on request NAME.valid; NAME.lengths for lists. The output
 * `_status` (BYTES) says what became of each row: answered, late, filtered, failed.
 *
 * Types: an int takes every INT and UINT, in range; a float takes FP32, FP64 and whole numbers up to 2^53,
 * and NaN and the infinities as formats do that have them; a time that the source writes as a number is
 * such a number (INT64), one that it writes as text is BYTES. A time of an answer is INT64, microseconds.
 * Lists of lists and of records are not tensors: the metadata leave them out, and a request to a model that
 * needs one is refused. */
#ifndef LEAT_SERVE_INFER_H
#define LEAT_SERVE_INFER_H

#include "core/batch.h"
#include "plan/plan.h"
#include "serve/way.h"

/* The version of every model: leat serves one. */
#define INFER_VERSION "1"

enum { INFER_RANK_MAX = 4, INFER_TENSORS_MAX = 1024, INFER_ROWS_MAX = 64 << 10 };
/* Of a request. A value that goes with every row counts for every row: in texts (bytes), in lists (8 bytes
 * each). */
enum { INFER_LIST_MAX = 16 << 10 /* elements of a row's list */, INFER_SPREAD_BYTES_MAX = 8 << 20 };

enum infer_type {
    INFER_BOOL,
    INFER_UINT8,
    INFER_UINT16,
    INFER_UINT32,
    INFER_UINT64,
    INFER_INT8,
    INFER_INT16,
    INFER_INT32,
    INFER_INT64,
    INFER_FP32,
    INFER_FP64,
    INFER_BYTES,
    INFER_TYPES,
    INFER_NO_TYPE = INFER_TYPES, /* FP16, BF16 and unknown words */
};

/* "INT64" and so on. */
const char *infer_type_name(enum infer_type type);
enum infer_type infer_type_of(struct str name);
/* Bytes of an element; 0: INFER_BYTES. */
uint32_t infer_type_bytes(enum infer_type type);

struct infer_tensor {
    struct str name;
    enum infer_type type;
    uint32_t rank;
    int64_t shape[INFER_RANK_MAX];
    uint64_t count;          /* elements: the product of the shape; so many are there */
    const void *values;      /* packed, in the machine's order, perhaps not aligned; not INFER_BYTES */
    const struct str *texts; /* INFER_BYTES */
    const uint64_t *nulls;   /* bit i: element i is null (JSON null); NULL: none is */
    bool is_json;  /* inputs: the texts come from JSON; there the values of a bytes column are base64 */
    bool is_bytes; /* outputs: the texts are not text, and JSON writes them in base64 */
};

/* The product of the shape; false: a size is negative, the rank is too large, or the product overflows. */
LEAT_CHECKED bool infer_elements(const struct infer_tensor *tensor, uint64_t *count);

struct infer_wish { /* an output that is asked for */
    struct str name;
    bool is_binary; /* HTTP: as binary data behind the JSON */
};

struct infer_request {
    struct str model, version, id; /* version, id: may be empty */
    struct infer_tensor *inputs;
    uint32_t inputs_count;
    struct infer_wish *wishes; /* wishes_count 0: all outputs */
    uint32_t wishes_count;
    bool all_binary;    /* HTTP: binary_data_output */
    int64_t timeout_us; /* 0: not given */
};

/* Why a request cannot be used: for the client, in one sentence that names the input, and the row if there
 * is one. */
enum infer_fault { INFER_GOOD, INFER_BAD_REQUEST, INFER_NO_MODEL, INFER_TOO_LARGE, INFER_NOT_SUPPORTED };
struct infer_problem {
    enum infer_fault fault;
    const char *text; /* in the arena of the call */
};

/* --- A model: one `serve` of a job --- */

struct infer_model;

/* All arguments must outlive the model. Never NULL. A model does not change: any thread. */
struct infer_model *infer_model_new(const struct plan *plan, const struct plan_serve *serve);
void infer_model_free(struct infer_model *model);

struct infer_column { /* an input or an output, as the metadata say it */
    struct str name;
    enum infer_type type;
    bool is_optional, is_list;
};
uint32_t infer_inputs(const struct infer_model *model, const struct infer_column **columns);
uint32_t infer_outputs(const struct infer_model *model, const struct infer_column **columns);

/* Checks the whole request: names, types, shapes, every value, wished outputs; after that, filling batches
 * with it cannot fail. Then *rows is its number of rows, 1 .. INFER_ROWS_MAX. Nothing is kept. now_us: the
 * event time of rows that give none; newest_us: about the newest event time known; rows further ahead of
 * both than the source's `max_jump` are refused. */
LEAT_CHECKED bool infer_check(const struct infer_model *model, const struct infer_request *request,
                              int64_t now_us, int64_t newest_us, uint32_t *rows, struct arena *arena,
                              struct infer_problem *problem);

/* A batch of requests' rows, all selected, for infer_fill. rows: 1 .. BATCH_ROWS. The caller releases the
 * batch. */
struct batch *infer_batch(const struct infer_model *model, struct batch_pool *pool, uint32_t rows);
/* Writes rows `first` .. first + count - 1 of a checked request to the batch's rows from `at` on. The batch
 * keeps no pointer into the request. Each row of the batch must be written once before the batch is used,
 * in rising order. */
void infer_fill(const struct infer_model *model, const struct infer_request *request, int64_t now_us,
                uint32_t first, uint32_t count, struct batch *batch, uint32_t at);

/* --- Answers --- */

/* Answers of one request, collected as its rows come back, in any number of batches. */
struct infer_answer;
struct infer_answer *infer_answer_new(const struct infer_model *model, const struct infer_request *request,
                                      uint32_t rows, struct arena *arena);
/* Takes over (copies) the results of `count` rows, which are the next ones of the request: results[at + i]
 * for i < count, as way_run gave them for a batch of infer_fill. watermark: rows with an earlier event time
 * are late. */
void infer_answer_add(struct infer_answer *answer, const struct batch *requests,
                      const struct way_result *results, uint32_t at, uint32_t count, int64_t watermark);

struct infer_counts {
    uint64_t answered, late, filtered, failed; /* rows; late ones are among the answered ones */
};
struct infer_counts infer_answer_counts(const struct infer_answer *answer);
/* Of a failed row, if there is one, else NULL. */
const char *infer_answer_reason(const struct infer_answer *answer);
/* The output tensors, once all rows were added: those that were wished, in that order; else all columns
 * that have a value, NAME.lengths behind each list, NAME.valid behind each column that has a null, and
 * _status where a row is not plainly answered. Values of rows without one: 0, NaN, an empty text, marked in
 * `nulls`. In the arena. */
uint32_t infer_answer_tensors(struct infer_answer *answer, const struct infer_tensor **tensors);

#endif
