/* Rows in the tables of a CPU (learners/tables/table.h), for a training step. */
#ifndef LEAT_LEARNERS_TRAIN_ROWS_CPU_H
#define LEAT_LEARNERS_TRAIN_ROWS_CPU_H

#include "learners/tables/table.h"
#include "learners/train/train.h"

struct rows_cpu {
    struct table *tables; /* the model's tables, [fields] */
    size_t vector_at;     /* byte offset of vectors in a payload; 0: no vectors */
    /* the earliest `seen` among each table's rows found since the last step */
    uint32_t seen_least[MODEL_FIELDS_MAX];
    /* The state of each table when rows of a batch were last found: while it is unchanged,
     * those rows exist. */
    struct {
        uint64_t changes;
        uint32_t expired_before;
    } as_found[MODEL_FIELDS_MAX];
    uint8_t *none; /* zeros, for look-ups where no event learns */
    /* Scratch for each index of a field, beginning at its group's places_before. */
    struct table_row **found;
    uint32_t *steps, *seen, *counts;
    uint8_t *is_known;
};

/* places_max: most places of a batch or a call. The tables remain the model's. */
void rows_cpu_init(struct rows_cpu *rows, struct table *tables, size_t vector_at, size_t places_max);
size_t rows_cpu_bytes(size_t places_max);
void rows_cpu_free(struct rows_cpu *rows);
struct train_rows rows_cpu_of(struct rows_cpu *rows);

#endif
