/*
 * A model's options, its input and its output. The model (model/) and the step of a batch (train/) read the
 * options, which the learner kinds set.
 */
#ifndef LEAT_LEARNERS_OPTIONS_H
#define LEAT_LEARNERS_OPTIONS_H

#include "kernels/batch.h"
#include "kernels/kernels.h"
#include "learners/loss.h"

enum {
    MODEL_ROWS_MAX = 1024, /* most events in one call */
    MODEL_FIELDS_MAX = 64,
    MODEL_SLICE = 1024, /* least events of a slice of a learner's step (model_options.slice) */
    MODEL_DENSE_MAX = 256,
    MODEL_LAYERS_MAX = 6,
    MODEL_LABELS_MAX = 8,
    MODEL_LIST_MAX = 1024,        /* upper limit of the option list_max */
    MODEL_STEP_IDS_MAX = 1 << 30, /* most ids of a step's examples: the limit of place indices */
    MODEL_LIST_DEFAULT = 64,      /* value of list_max if the option is 0 */
};

struct model;
struct example;
/*
 * How the vectors of an event's fields interact: a part of the logit, the sum of a value for each pair of fields.
 * struct model and struct example are those of model/internal.h.
 */
struct interaction {
    const char *name;
    /* Floats of an id's vector, of `fields` fields that interact, each with vectors of `dim`. */
    uint32_t (*floats)(uint32_t fields, uint32_t dim);
    /* Inputs of dense layers over the vectors of one event. */
    size_t (*inputs)(uint32_t fields, uint32_t dim);
    /* Returns the value of one event, of which e->vectors are set. Sets e->partners to the derivatives of the
     * logit by the fields' vectors. */
    float (*forward)(struct model *m, struct example *e);
    /* Copies what dense layers read of the event to `inputs`. */
    void (*read)(const struct model *m, const struct example *e, float *inputs);
    /* Sets e->partners to the gradients of the loss by the fields' vectors. input_gradients: those by the dense
     * layers' inputs. */
    void (*add)(struct model *m, struct example *e, const float *input_gradients);
    /* Sets e->partners again, from the weights of pairs in m->pair_scales. NULL: `forward` has used the
     * weights of pairs. */
    void (*weigh)(struct model *m, struct example *e);
    /* The values, or the gradients by the vectors, of a batch's events, on a CPU or a GPU. */
    void (*batch)(const struct batch_kernels *kernels, struct batch_interaction *a, void *stream);
    /* a vector has a part for each other field: it means nothing where the fields are others */
    bool is_field_aware;
};
extern const struct interaction interaction_fm, interaction_ffm; /* model/fm_part.c, model/ffm_part.c */

struct net;
struct byte_buffer;
/* Dense layers and how they are connected; networks/ has one network a file. own: the network's own options, a
 * struct of networks/networks.h; NULL: none. */
struct network {
    const char *name;
    /* Makes the layers from the input to the output, by the functions of train/net.h. */
    void (*shape)(struct net *net, const void *own);
    /* Appends the lines of a learner's shape (core/shape.h) that say what `own` has. NULL: no lines. */
    void (*put_shape)(const void *own, uint32_t labels, struct byte_buffer *out);
    /* a model of this network may learn event by event, too (model/head.c): that of deepfm */
    bool learns_by_event;
};

/* Whether the network learns by batches alone. NULL: there is no network. */
static inline bool network_needs_batches(const struct network *network)
{
    return network != NULL && !network->learns_by_event;
}

struct optimizer_options {
    enum opt_kind kind;
    struct opt_params params;
    float accumulator; /* initial value of AdaGrad's sums and of newton's precisions */
};

/* Sets Adam's bias corrections for the step after `step` steps: they depend on this number alone, so checkpoints need
 * no state for them. */
void optimizer_begin_step(struct optimizer_options *options, uint64_t step);

struct model_options {
    const struct interaction *interaction; /* NULL: none */
    enum loss_kind loss;
    uint32_t fields;  /* sparse fields */
    uint32_t vectors; /* the first `vectors` fields have vectors and interact; the others are linear only */
    uint32_t dense;
    uint32_t dim;                       /* a multiple of 4; 0 without interaction */
    float init_bound;                   /* vectors start uniform in +- init_bound */
    float field_init[MODEL_FIELDS_MAX]; /* [fields] > 0: the field's own init_bound; < 0: zeros */
    /* [fields] the field is a list: an event may have several ids, and the model reads the mean of their
     * rows */
    bool is_list[MODEL_FIELDS_MAX];
    /* most ids that are read of a list, the first ones; 0: MODEL_LIST_DEFAULT */
    uint32_t list_max;
    /* 1: the pair of fields does not interact; pairs in the order of model_pair_weights */
    uint8_t pair_is_off[MODEL_FIELDS_MAX * (MODEL_FIELDS_MAX - 1) / 2];
    struct optimizer_options pairs; /* learned weights of pairs of fields (Pan 2018); rate 0: all stay 1 */
    struct optimizer_options linear;
    bool linear_is_double; /* linear weights move by `ftrl`, in double (McMahan 2013); false: by `linear` */
    struct ftrl64_params ftrl;
    struct optimizer_options embedding;
    const struct network *network;     /* NULL: network_deep if `hidden` has layers, else none */
    const void *network_own;           /* the network's own options, which must outlive the model */
    uint32_t hidden[MODEL_LAYERS_MAX]; /* widths of the layers; 0 ends the list */
    uint32_t labels;                   /* number of labels; 0 counts as 1 */
    bool linear_is_off;                /* ids have vectors but no linear weights */
    enum row_format precision;         /* format of the factors in the dense layers' products */
    /* `precision: auto`: bf16 beside fp32 for the first trial_examples (train/trial.h) */
    bool is_tried;
    uint64_t trial_examples;
    bool is_on_device; /* the model learns on a GPU: model_attach must follow */
    /* for a shadow on the CPU (model/compare.c): the backward pass goes event by event, as on a GPU, never by
     * distinct ids (train/distinct.c) */
    bool is_like_device;
    struct optimizer_options head;
    uint32_t block; /* events in a step of the head: 1..16; 1 without a head */
    uint32_t batch; /* events in a step; 1: an update for each event (or block) */
    /* events of a batch that go through the network together; 0: all. For models that learn by train/;
     * divides `batch`, and is a multiple of 4. */
    uint32_t micro;
    /* least events of a slice of a step (kernels/slices.h), a multiple of 128; 0: one slice. A learner's:
     * MODEL_SLICE; another value moves the bits of steps of several slices */
    uint32_t slice;
    float bias; /* initial value of the bias */
    /* Squared loss and one label: a prediction is the mean of the labels learned so far (bias_start
     * before the first one) plus the model's output, and the model learns each label minus that mean.
     * Then `bias` is 0. */
    bool is_centered;
    float bias_start;
    /* newton: a step takes into account that all of an event's weights move together (Kalman's gain) */
    bool is_joint;
    /* [fields] newton, linear weights: the field's own prior precision, where > 0 */
    float field_precision[MODEL_FIELDS_MAX];
    /* largest norm of an event's gradient by all its vectors and weights; 0: no limit */
    float clip_norm;
    /* weights of events with label 0 and label 1; only with logistic loss and one label */
    float class_weights[2];
    bool has_fake_negatives; /* logistic loss: weighs examples by loss_fake_negative_weight */
    /* share of label-0 events that are learned, chosen by a hash of the identity; 1: all */
    double negatives_kept;
    uint64_t seed;
    /* [fields] number of each field's table, from which its seed derives; NULL: 0, 1, 2 ... The caller owns
     * the array, which must outlive the model. */
    const uint16_t *tables;
    /* of each field's table: struct table_options (tables/table.h) */
    uint32_t admit_after;
    size_t sketch_bytes;
    int64_t expire_after_us;
    uint64_t rows_max; /* most rows of a field; 0: no limit */
};

/* Whether a model learns by batches (train/), on a CPU or a GPU; else it learns event by event. */
static inline bool model_learns_by_batches(const struct model_options *options)
{
    return options->batch > 1 || network_needs_batches(options->network);
}

/* Floats of an id's vector. */
static inline uint32_t model_vector_floats(const struct model_options *options)
{
    const struct interaction *i = options->interaction;
    return options->vectors == 0 ? 0 : i != NULL ? i->floats(options->vectors, options->dim) : options->dim;
}

/* The most ids that an event can have in a field. */
static inline uint32_t model_field_ids(const struct model_options *options, uint32_t field)
{
    uint32_t most = options->list_max > 0 ? options->list_max : MODEL_LIST_DEFAULT;
    return options->is_list[field] ? most : 1;
}

/* Decoded columns of up to MODEL_ROWS_MAX events. The caller owns the arrays, which a model reads during a
 * call alone. */
struct model_input {
    uint32_t rows;
    /* [fields] hashed ids, 0: absent; a list field has the ids of all events in a row */
    const uint64_t *const *ids;
    /* [fields] rows + 1 offsets into the ids of a list field, else NULL; offsets NULL: no lists */
    const uint32_t *const *offsets;
    const float *const *dense;       /* [dense][rows] */
    const float *labels;             /* [rows] */
    const float *const *more_labels; /* [labels - 1][rows]: the second label and further ones */
    const float *weights;            /* [rows] NULL: all 1 */
    const int64_t *event_time_us;    /* [rows] */
    const uint64_t *identity;        /* [rows]: hash of the event's identity; NULL without down-sampling */
    /* Writes the ids of events begin..end to `ids`; only for a model of which model_reads_ahead is true. It
     * is called for one piece of the events after the other, on the thread that looks up the rows of that
     * piece: the model's own or an idle lane's. NULL: all ids are there. */
    void (*read_ids)(void *argument, uint32_t begin, uint32_t end);
    void *read_argument;
};

/* What the model did with an event. MODEL_WEIGHTLESS: the event has weight 0: it is predicted but not
 * learned, is no occurrence of its ids, and counts in no batch or step. MODEL_SAMPLED_OUT: likewise, for an
 * event that negatives_kept left out. MODEL_REJECTED: a label, the weight, a dense feature, the logit or the
 * gradient is not finite, or the label is out of range: no prediction, and no weight changes. */
enum model_verdict { MODEL_LEARNED, MODEL_SAMPLED_OUT, MODEL_REJECTED, MODEL_WEIGHTLESS, MODEL_VERDICTS };

struct model_output {
    /* [labels][MODEL_ROWS_MAX], corrected for sampling and class weights; NaN if rejected */
    double *logits;
    uint8_t *verdicts; /* [rows], enum model_verdict */
};

#endif
