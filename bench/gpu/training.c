#include "training.h"

#include "core/base.h"
#include "learners/model/internal.h"
#include "learners/train/train.h"

#include <stdlib.h>
#include <string.h>

enum { ZIPF_TURNS = 4, TINY_BATCH = 48, TINY_MEMORY = 64 << 20, PINNED_BYTES = 64 << 20 };

void training_check(bool is_good, const struct gpu_error *error)
{
    if (is_good)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static struct model_options options_of(const struct training_shape *s, uint32_t batch)
{
    struct optimizer_options optimizer = {.kind = s->optimizer,
                                          .params = {.rate = 0.01F, .decay = 1.0F, .step_max = 1.0F},
                                          .accumulator = 0.1F};
    struct model_options o = {.interaction = s->interaction,
                              .network = s->network,
                              .linear_is_off = network_needs_batches(s->network),
                              .fields = s->fields,
                              .vectors = s->fields,
                              .dense = s->dense,
                              .dim = s->dim,
                              .init_bound = 0.05F,
                              .linear = optimizer,
                              .embedding = optimizer,
                              .head = optimizer,
                              .network_own = s->own,
                              .precision = s->precision,
                              .block = 1,
                              .batch = batch,
                              .admit_after = 1,
                              .class_weights = {1.0F, 1.0F},
                              .negatives_kept = 1.0,
                              .seed = 1,
                              .is_on_device = true};
    memcpy(o.hidden, s->hidden, sizeof(o.hidden));
    return o;
}

uint64_t training_memory(const struct place *place)
{
    struct gpu_error error = {0};
    struct gpu_device devices[GPU_DEVICES_MAX];
    training_check(place->api->devices(devices, &error) > 0, &error);
    return place->size == SIZE_TINY ? TINY_MEMORY : devices[0].memory_free / 2;
}

struct training_shape training_sized(const struct place *place, const struct training_shape *shape)
{
    struct training_shape s = *shape;
    if (place->size != SIZE_TINY)
        return s;
    s.dim = 4;
    s.hidden[0] = 8, s.hidden[1] = 0;
    s.own = s.own_tiny;
    s.batches[0] = TINY_BATCH, s.batches[1] = 0;
    return s;
}

static void make_columns(struct training *t)
{
    for (uint32_t d = 0; d < t->dense; d++)
        t->dense_columns[d] = host_room(t->batch * sizeof(float));
    t->labels = host_room(t->batch * sizeof(float));
    for (uint32_t i = 0; i < t->batch; i++) {
        t->labels[i] = i % 5 == 0 ? 1.0F : 0.0F;
        for (uint32_t d = 0; d < t->dense; d++)
            t->dense_columns[d][i] = (float)((i * 7 + d) % 64) / 64.0F;
    }
}

void training_make(struct training *t, struct place *place, const struct training_shape *shape,
                   uint32_t batch, uint64_t memory_bytes)
{
    const char *reason;
    struct gpu_error error = {0};
    *t = (struct training){
        .place = place, .batch = batch, .fields = shape->fields, .dense = shape->dense, .dim = shape->dim};
    make_columns(t);
    struct model_options o = options_of(shape, batch);
    struct model_device d = {.api = place->api,
                             .gpu = place->gpu,
                             .stream = place->stream,
                             .memory_bytes = memory_bytes,
                             .pinned_bytes = PINNED_BYTES};
    t->model = model_new(&o, kernels_pick(NULL, &reason));
    training_check(model_attach(t->model, &d, &error), &error);
}

void training_free(struct training *t)
{
    place_wait(t->place); /* the last step reads columns */
    model_free(t->model);
    for (uint32_t turn = 0; turn < TRAINING_TURNS_MAX; turn++)
        for (uint32_t f = 0; f < t->fields; f++)
            free(t->ids[turn][f]);
    for (uint32_t d = 0; d < t->dense; d++)
        free(t->dense_columns[d]);
    free(t->labels);
}

/* --- Ids --- */

static void set_turns(struct training *t, uint32_t turns)
{
    leat_assert(turns > 0 && turns <= TRAINING_TURNS_MAX);
    place_wait(t->place);
    t->turns = turns, t->turn = 0;
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t f = 0; f < t->fields; f++)
            if (t->ids[turn][f] == NULL)
                t->ids[turn][f] = host_room(t->batch * sizeof(uint64_t));
}

void training_zipf(struct training *t)
{
    set_turns(t, ZIPF_TURNS);
    for (uint32_t turn = 0; turn < t->turns; turn++)
        for (uint32_t f = 0; f < t->fields; f++) {
            ids_fill(t->ids[turn][f], t->batch, IDS_ZIPF, f);
            for (uint32_t i = 0; i < t->batch; i++)
                t->ids[turn][f][i] += i % 2 == 0 ? 0 : turn;
        }
}

void training_rows(struct training *t, uint64_t rows)
{
    set_turns(t, (uint32_t)((rows + t->batch - 1) / t->batch));
    for (uint32_t turn = 0; turn < t->turns; turn++)
        for (uint32_t f = 0; f < t->fields; f++)
            for (uint32_t i = 0, n; i < t->batch; i += n) {
                uint64_t row = ((uint64_t)turn * t->batch + i) % rows;
                n = (uint32_t)MIN(rows - row, (uint64_t)(t->batch - i));
                ids_fill(t->ids[turn][f] + i, n, IDS_DISTINCT, row);
            }
}

/* --- Steps --- */

struct model_input training_input(const struct training *t, const uint64_t **ids, const float **dense,
                                  uint32_t from, uint32_t rows)
{
    for (uint32_t f = 0; f < t->fields; f++)
        ids[f] = t->ids[t->turn % t->turns][f] + from;
    for (uint32_t d = 0; d < t->dense; d++)
        dense[d] = t->dense_columns[d] + from;
    return (struct model_input){.rows = rows, .ids = ids, .dense = dense, .labels = t->labels + from};
}

void training_step(struct place *place, void *training)
{
    (void)place;
    static uint32_t seen[1 << 16];
    struct training *t = training;
    struct gpu_error error = {0};
    const uint64_t *ids[TRAINING_FIELDS_MAX];
    const float *dense[TRAINING_DENSE_MAX];
    struct model_input in = training_input(t, ids, dense, 0, t->batch);
    struct train_events events = {.in = &in, .seen = seen};
    training_check(train_wait(&t->model->train->device, &error), &error); /* it reads the columns */
    train_add(t->model->train, &events, 0, t->batch);
    training_check(train_step(t->model->train, &error), &error);
    t->turn++;
}
