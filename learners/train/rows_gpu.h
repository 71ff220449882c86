/* Rows in the tables of a GPU, with tiers below (learners/device_table.h), for a training step. */
#ifndef LEARNERS_TRAIN_ROWS_GPU_H
#define LEARNERS_TRAIN_ROWS_GPU_H

#include "learners/device_table.h"
#include "learners/train/train.h"

struct rows_gpu {
    struct device_table *tables[2]; /* of each group; NULL: there is none */
    int32_t linear_at;              /* in rows that have a vector */
    enum row_format format;
    uint32_t places[BATCH_TABLES_MAX]; /* of the batch that is looked up, by table */
};

struct train_rows rows_gpu_of(struct rows_gpu *rows);

#endif
