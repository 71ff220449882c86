/* Models that learn on a device, and the events that they learn: for bench_train.c and bench_checkpoint.c. */
#ifndef BENCH_GPU_TRAINING_H
#define BENCH_GPU_TRAINING_H

#include "place.h"

#include "learners/model.h"

enum { TRAINING_TURNS_MAX = 32, TRAINING_FIELDS_MAX = 26, TRAINING_DENSE_MAX = 13 };

struct training_shape {
    const char *name, *suffix, *what;
    enum interaction_kind interaction;
    enum network_kind network;
    enum opt_kind optimizer;
    uint32_t fields, dense, dim, hidden[MODEL_LAYERS_MAX], bottom[MODEL_LAYERS_MAX], batches[3];
    enum row_format precision; /* of the dense layers' products */
};

/* A model, and batches of events that it learns by turns. */
struct training {
    struct place *place;
    struct model *model;
    uint32_t batch, fields, dense, dim;
    uint32_t turns, turn;
    uint64_t *ids[TRAINING_TURNS_MAX][TRAINING_FIELDS_MAX]; /* [batch]; NULL: not asked for yet */
    float *dense_columns[TRAINING_DENSE_MAX], *labels;
};

/* Ends the program with what the error says if !is_good. */
void training_check(bool is_good, const struct gpu_error *error);

/* Bytes of device memory that a model may take for its rows: half of what is free. */
uint64_t training_memory(const struct place *place);

/* The shape, or with SIZE_TINY a small one like it, of one batch. */
struct training_shape training_sized(const struct place *place, const struct training_shape *shape);

/* The model, with memory_bytes for rows and what checkpoints copy of them, and labels and numbers; ids are
 * still to come. */
void training_make(struct training *t, struct place *place, const struct training_shape *shape,
                   uint32_t batch, uint64_t memory_bytes);
void training_free(struct training *t);

/* Ids by Zipf's law, half of them distinct; few of them are the same in each turn. */
void training_zipf(struct training *t);
/* So many rows of each field, one after the other: as many turns as it takes to learn each of them once or
 * more. Ids of one batch are distinct, where there are enough. */
void training_rows(struct training *t, uint64_t rows);

/* The events of the turn from `from` on, as a learner gets them. */
struct model_input training_input(const struct training *t, const uint64_t **ids, const float **dense,
                                  uint32_t from, uint32_t rows);
/* A step of the turn's batch, of `training`: waits for the one before, and queues it. */
void training_step(struct place *place, void *training);

/* bench_checkpoint.c: what checkpoints cost while that share of the rows changes between them. */
void bench_checkpoints(struct place *place, const struct training_shape *shape, uint32_t percent);

#endif
