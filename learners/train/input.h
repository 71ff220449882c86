/*
 * Events on their way into a batch, column by column, in host memory (pinned where there is a GPU), and the
 * same columns on the device. There are two inputs: the batch in progress, whose events wait for their step,
 * and the call, whose events are predicted.
 *
 * Places: ids lie field after field, those of a field in the order of events, the ids of a list one after the
 * other. Each field belongs to a group, whose places count from 0 and whose tables are looked up together. On
 * a GPU there are one or two groups, the fields with vectors and those with a linear weight alone; on a CPU
 * each field is a group, so that another thread can process some of them.
 */
#ifndef LEAT_LEARNERS_TRAIN_INPUT_H
#define LEAT_LEARNERS_TRAIN_INPUT_H

#include "learners/options.h"
#include "learners/train/net.h"

/* Columns of n events. Where no field is a list, place = field * n + event, and there are no
 * offsets and scales. */
struct train_columns {
    uint64_t *ids; /* [places] 0: absent */
    /* [group's fields + 1] places where each field begins in its group; the groups' parts
     * follow each other */
    uint32_t *tables;
    /* [group's fields * n + 1] likewise, where bag field * n + event begins; NULL: no lists */
    uint32_t *offsets;
    uint32_t *seen;  /* [places] event time in seconds */
    uint32_t *event; /* [places] event of each place */
    /* [places] where the gradient by the place's vector lies in the input matrix, in units of 4 floats */
    uint32_t *bag;
    float *scales;        /* [places] 1 / length of the list; NULL: no lists */
    float *dense;         /* [dense + 1][capacity] dense features; the last column is ones */
    float *labels;        /* [labels][capacity] */
    float *weights;       /* [capacity] times the class weight */
    uint8_t *is_rejected; /* [capacity] */
};

struct train_input {
    const struct model_options *options;
    const struct train_device *device;
    uint32_t capacity, n;
    uint32_t placed; /* without lists: number of events that event[] and bag[] are filled for; 0: none */
    uint32_t vectors_from, vector_floats, stride; /* of the input matrix */
    uint32_t group_of[MODEL_FIELDS_MAX];          /* number of each field's group */
    size_t first_of[MODEL_FIELDS_MAX];            /* each field's first place among those of all groups */
    bool has_lists;
    size_t places_max, bytes;
    unsigned char *block;             /* host memory that `host` points into */
    struct train_columns host, there; /* there: on the device; equals host on a CPU */
    /* Each field while events are added: the ids and offsets of lists, or one id an event. */
    uint64_t *field_ids[MODEL_FIELDS_MAX];
    uint32_t *field_offsets[MODEL_FIELDS_MAX]; /* [capacity + 1]; NULL: the field has no lists */
    uint32_t *event_seen;                      /* [capacity] */
};

/* Number of the group that a field belongs to. */
uint32_t train_group_of(const struct model_options *options, const struct train_device *device,
                        uint32_t field);

/* train_input_shape computes sizes only; train_input_host_bytes: bytes of host memory that it will need.
 * Then train_input_make takes that memory (false: error), and train_input_take the device's part, in both
 * walks (memory.h). */
void train_input_shape(struct train_input *in, const struct model_options *options,
                       const struct train_device *device, uint32_t capacity, const struct net *net);
size_t train_input_host_bytes(const struct train_input *in);
bool train_input_make(struct train_input *in, struct gpu_error *error);
void train_input_take(struct train_input *in, struct train_memory *memory);
void train_input_free(struct train_input *in);

/* A call's events: their columns, and what the model knows of each. */
struct train_events {
    const struct model_input *in;
    const uint8_t *learns;   /* [rows] only events that learn are added; NULL: all */
    const uint8_t *verdicts; /* [rows] enum model_verdict, or NULL */
    const uint32_t *seen;    /* [rows] */
};

/* Adds events from..to of a call; the input must have room for them. */
void train_input_add(struct train_input *in, const struct train_events *events, uint32_t from, uint32_t to);

/* After the last event: computes places and sends the columns to the device, on that stream. learns: also the
 * columns event[] and bag[], if they have changed since they were last sent. */
void train_input_finish(struct train_input *in, bool learns, const struct train_device *stream);

/* Of the group whose first field is `first`: its first place among all groups' places, its part of `tables`
 * and of `offsets`, and, with `fields` fields, how many places it has. */
static inline size_t train_input_first(const struct train_input *in, uint32_t first)
{
    return in->first_of[first];
}
static inline size_t train_input_tables(const struct train_input *in, uint32_t first)
{
    return first + in->group_of[first];
}
static inline size_t train_input_offsets(const struct train_input *in, uint32_t first)
{
    return (size_t)first * in->n + in->group_of[first];
}
static inline uint32_t train_input_places(const struct train_input *in, uint32_t first, uint32_t fields)
{
    return in->host.tables[train_input_tables(in, first) + fields];
}

/* Copies one of the added events out, for checkpoints: its entries in the order of fields.
 * Returns how many. */
uint32_t train_input_entries(const struct train_input *in, uint32_t event, uint64_t *keys, uint16_t *fields,
                             float *scales);

#endif
