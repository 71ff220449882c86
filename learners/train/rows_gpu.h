/* Rows in the tables of a GPU, with tiers below (learners/device/table.h), for a training step. */
#ifndef LEAT_LEARNERS_TRAIN_ROWS_GPU_H
#define LEAT_LEARNERS_TRAIN_ROWS_GPU_H

#include "learners/device/table.h"
#include "learners/train/train.h"

struct rows_gpu {
    struct device_table *tables[2]; /* by group; NULL: no such group */
    int32_t linear_at;              /* byte offset of the linear weight in rows with a vector */
    enum row_format format;
    uint32_t places[BATCH_TABLES_MAX]; /* [tables] number of places in the batch that is looked up */
};

struct train_rows rows_gpu_of(struct rows_gpu *rows);

#endif
