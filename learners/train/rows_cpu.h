/* Rows in the tables of a CPU (learners/table.h), for a training step. */
#ifndef LEARNERS_TRAIN_ROWS_CPU_H
#define LEARNERS_TRAIN_ROWS_CPU_H

#include "learners/table.h"
#include "learners/train/train.h"

struct rows_cpu {
    struct table *tables;                  /* of all fields, the model's */
    size_t vector_at;                      /* in a payload; 0: no vectors */
    uint32_t seen_least[MODEL_FIELDS_MAX]; /* of each table's rows that were found since the last step */
    /* Of each table, when rows of a batch were found last: while they stand, those are there and alive. */
    struct {
        uint64_t changes;
        uint32_t expired_before;
    } as_found[MODEL_FIELDS_MAX];
    uint8_t *none; /* zeros: nobody learns */
    /* Scratch, of each number of a field from its first place on. */
    struct table_row **found;
    uint32_t *steps, *seen, *counts;
    uint8_t *is_known;
};

/* places_max: of a batch or a call. The tables stay the model's. */
void rows_cpu_init(struct rows_cpu *rows, struct table *tables, size_t vector_at, size_t places_max);
size_t rows_cpu_bytes(size_t places_max);
void rows_cpu_free(struct rows_cpu *rows);
struct train_rows rows_cpu_of(struct rows_cpu *rows);

#endif
