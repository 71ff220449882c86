/* What the files infer_*.c share; private to them. */
#ifndef LEAT_SERVE_INFER_MODEL_H
#define LEAT_SERVE_INFER_MODEL_H

#include "serve/infer.h"
#include "serve/request.h"

#include "core/connector.h"

enum infer_part { INFER_VALUES, INFER_VALID, INFER_LENGTHS, INFER_PARTS };

struct infer_name;

/* A column of the source or of the answers; of answers that are lists of records, each field of the records is one, too. */
struct infer_field {
    const struct field *field;
    /* Of outputs: the column of the answers, and in a list of records the record's field. */
    uint32_t column, child;
    const struct type *type; /* of one element: the column's type, or of a list the type of its elements */
    enum infer_type tensor;  /* as the metadata say it */
    bool is_list;
    bool is_nested;                              /* a list of lists or of records: no tensor holds it */
    bool is_needed;                              /* inputs: some step uses it */
    bool is_required;                            /* inputs: each row must have a value */
    bool is_time;                                /* inputs: the event time */
    bool is_hidden;                              /* outputs: it derives from the label, and has no value */
    const struct infer_name *names[INFER_PARTS]; /* NULL: the part has no name of its own */
};

/* What a tensor's name means. */
struct infer_name {
    struct str name;
    uint32_t column; /* index of the field */
    enum infer_part part;
};

/* The inputs of a model, or its outputs. */
struct infer_side {
    struct infer_field *fields; /* inputs: by column of the schema */
    uint32_t fields_count;
    struct infer_column *columns; /* the metadata */
    uint32_t columns_count;
    struct infer_name *names;
    uint32_t names_count;
    uint16_t *table; /* hash table: index in names + 1; 0: free */
    uint32_t table_mask;
    const char **near; /* names of columns, for "did you mean" */
    uint32_t near_count;
};

struct infer_model {
    const struct plan *plan;
    const struct plan_serve *serve;
    const struct plan_node *source;
    struct infer_side inputs, outputs;
    bool has_status; /* no column of the answers is named _status */
    struct arena arena;
};

#define INFER_STATUS STR("_status")

/* guess: index of the name that is compared first. NULL: there is no such name. */
const struct infer_name *infer_find(const struct infer_side *side, struct str name, uint32_t guess);

/* The tensors of a column in a request; NULL: not given. */
struct infer_given {
    const struct infer_tensor *parts[INFER_PARTS];
};

/* Finds the tensors of each column of a request whose names were checked. given: zeroed. */
void infer_bind(const struct infer_model *model, const struct infer_request *request,
                struct infer_given *given);

/* The element that a row has in a tensor with one element for each row, or one for all. */
static inline uint64_t infer_at(const struct infer_tensor *tensor, uint64_t row)
{
    return tensor->count == 1 ? 0 : row;
}

static inline bool infer_is_null(const struct infer_tensor *tensor, uint64_t i)
{
    return tensor->nulls != NULL && bit_get(tensor->nulls, i);
}

/* Whether a row of the request has a value in the column, which has one in INFER_VALUES for each row or for
 * all (is_list: a list). */
bool infer_has_value(const struct infer_given *given, bool is_list, uint64_t row);

/* --- Values (infer_value.c) --- */

bool infer_value_bool(const struct infer_tensor *tensor, uint64_t i);
/* A whole number; false: it has more than 63 bits. The tensor is not FP or BYTES. */
LEAT_CHECKED bool infer_value_int(const struct infer_tensor *tensor, uint64_t i, int64_t *value);

/* One element as a value of the type: the bool, the int or time, the float; text: as it is in the tensor. */
union infer_value {
    bool boolean;
    int64_t integer;
    double real;
    struct str text;
};
/* Returns why the element is not such a value (with no name or row in it), else NULL. arena: for the
 * reason. */
const char *infer_value_read(const struct infer_tensor *tensor, uint64_t i, const struct type *type,
                             union infer_value *value, struct arena *arena);
/* Whether a tensor of that type can have values of a column's type. */
bool infer_type_fits(enum infer_type tensor, const struct type *type);
/* Whether every element that is not null is a value, so that none need be looked at. */
bool infer_is_sure(enum infer_type tensor, const struct type *type);

/* A text from outside for a message: at most 64 bytes, valid UTF-8. */
const char *infer_shown(struct str text, struct arena *arena);
/* Sets the problem; returns false. */
bool infer_refuse(struct infer_problem *problem, struct arena *arena, enum infer_fault fault,
                  const char *format, ...) LEAT_PRINTF(4, 5);

#endif
