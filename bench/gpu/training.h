/* Models that learn on a device, and their events: for bench_train.c and bench_checkpoint.c. */
#ifndef LEAT_BENCH_GPU_TRAINING_H
#define LEAT_BENCH_GPU_TRAINING_H

#include "place.h"

#include "learners/model/model.h"
#include "learners/networks/networks.h"

enum { TRAINING_TURNS_MAX = 32, TRAINING_FIELDS_MAX = 26, TRAINING_DENSE_MAX = 13 };

struct training_shape {
    const char *name, *suffix, *what;
    const struct interaction *interaction;
    const struct network *network;
    enum opt_kind optimizer;
    uint32_t fields, dense, dim, hidden[MODEL_LAYERS_MAX];
    const void *own, *own_tiny; /* the network's own options; with SIZE_TINY */
    uint32_t batches[3];
    enum row_format precision; /* of the dense layers' products */
};

/* A model, and the batches of events that it learns in turn. */
struct training {
    struct place *place;
    struct model *model;
    uint32_t batch, fields, dense, dim;
    uint32_t turns, turn;
    uint64_t *ids[TRAINING_TURNS_MAX][TRAINING_FIELDS_MAX]; /* [batch]; NULL: not needed so far */
    float *dense_columns[TRAINING_DENSE_MAX], *labels;
};

/* Ends the program with the text of `error` if !is_good. */
void training_check(bool is_good, const struct gpu_error *error);

/* Bytes of device memory for a model's rows: half of what is free. */
uint64_t training_memory(const struct place *place);

/* The given shape; with SIZE_TINY a small one like it, with one batch size. */
struct training_shape training_sized(const struct place *place, const struct training_shape *shape);

/* Makes the model, with memory_bytes for rows and checkpoint staging, and its labels and dense columns; ids
 * are made by training_zipf or training_rows. */
void training_make(struct training *t, struct place *place, const struct training_shape *shape,
                   uint32_t batch, uint64_t memory_bytes);
void training_free(struct training *t);

/* Ids by Zipf's law, half of them distinct; half of the ids change from turn to turn. */
void training_zipf(struct training *t);
/* Makes ids of `rows` rows of each field, in order: as many turns as it takes to learn each row at least
 * once. The ids of one batch are distinct if there are enough rows. */
void training_rows(struct training *t, uint64_t rows);

/* The events of the current turn from `from` on, as a learner gets them. */
struct model_input training_input(const struct training *t, const uint64_t **ids, const float **dense,
                                  uint32_t from, uint32_t rows);
/* Waits for the last step, and queues a step with the turn's batch; the parameter is a struct training. */
void training_step(struct place *place, void *training);

/* bench_checkpoint.c: the cost of checkpoints if `percent` % of the rows change between two of them. */
void bench_checkpoints(struct place *place, const struct training_shape *shape, uint32_t percent);

#endif
