/*
 * Events on their way into a batch, column by column, in host memory (pinned where there is a GPU), and the
 * same columns on the device. Two of them: the batch in progress, whose events wait for their step, and the
 * call, whose events are predicted.
 *
 * Places: ids lie field after field, those of a field in the order of events, lists spread out. Each field is
 * of a group, whose places count from 0, and whose tables are looked up together: on a GPU there are one
 * group or two, the fields with vectors and those with a linear weight alone; on a CPU a field is its own, so
 * that another thread can do some of them.
 */
#ifndef LEARNERS_TRAIN_INPUT_H
#define LEARNERS_TRAIN_INPUT_H

#include "learners/model.h"
#include "learners/train/net.h"

/* Of n events. Where no field is a list: place = field * n + event, and there are no offsets and no scales.
 */
struct train_columns {
    uint64_t *ids;     /* [places] 0: absent */
    uint32_t *tables;  /* [group's fields + 1] where the places of each field begin in its group: a group's
                          behind the other's */
    uint32_t *offsets; /* [group's fields * n + 1] likewise, of bag field * n + event; NULL: no lists */
    uint32_t *seen;    /* [places] event time in seconds */
    uint32_t *event;   /* [places] */
    uint32_t *bag;     /* [places] where its vector's slope lies in the input matrix, in units of 4 floats */
    float *scales;     /* [places] 1 / length of the list; NULL: no lists */
    float *numbers;    /* [dense + 1][capacity]: the last column is ones */
    float *labels;     /* [labels][capacity] */
    float *weights;    /* [capacity] with the class's */
    uint8_t *is_rejected; /* [capacity] */
};

struct train_input {
    const struct model_options *options;
    const struct train_device *device;
    uint32_t capacity, n;
    uint32_t placed; /* events that event[] and bag[] are for, where there are no lists; 0: none */
    uint32_t vectors_from, vector_floats, stride; /* of the input matrix */
    uint32_t group_of[MODEL_FIELDS_MAX];          /* the number of a field's group */
    size_t first_of[MODEL_FIELDS_MAX];            /* a field's first place among those of all groups */
    bool has_lists;
    size_t places_max, bytes;
    unsigned char *block;             /* host memory of `host` */
    struct train_columns host, there; /* there: on the device; on a CPU the same */
    /* Fields while events come: a list's ids and offsets, or one id an event. */
    uint64_t *field_ids[MODEL_FIELDS_MAX];
    uint32_t *field_offsets[MODEL_FIELDS_MAX]; /* [capacity + 1]; NULL: no list */
    uint32_t *event_seen;                      /* [capacity] */
};

/* Which group a field is of. */
uint32_t train_group_of(const struct model_options *options, const struct train_device *device,
                        uint32_t field);

/* Its shape, and how many bytes its host memory will be, without any. Then train_input_make takes that
 * (false: error), and train_input_take the device's part, in both walks (memory.h). */
void train_input_shape(struct train_input *in, const struct model_options *options,
                       const struct train_device *device, uint32_t capacity, const struct net *net);
size_t train_input_host_bytes(const struct train_input *in);
bool train_input_make(struct train_input *in, struct gpu_error *error);
void train_input_take(struct train_input *in, struct train_memory *memory);
void train_input_free(struct train_input *in);

/* What is known of the call's events beside their columns. */
struct train_events {
    const struct model_input *in;
    const uint8_t *learns;   /* [rows] those alone are added; NULL: all */
    const uint8_t *verdicts; /* [rows] enum model_verdict, or NULL */
    const uint32_t *seen;    /* [rows] */
};

/* Adds events from .. to of a call, as far as there is room: they must fit. */
void train_input_add(struct train_input *in, const struct train_events *events, uint32_t from, uint32_t to);

/* No more events: makes places of them and sends the columns to the device, by that stream. learns: event[]
 * and bag[], too. */
void train_input_finish(struct train_input *in, bool learns, const struct train_device *stream);

/* Of the group whose first field is `first`, `fields` long: where its places begin among all, how many they
 * are, its part of `tables` and of `offsets`. */
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

/* One event of those added, for checkpoints: its entries in the order of fields. Returns how many. */
uint32_t train_input_entries(const struct train_input *in, uint32_t event, uint64_t *keys, uint16_t *fields,
                             float *scales);

#endif
