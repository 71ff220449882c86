/*
 * The dense part of a model that trains by batches: layers over matrices of one row an event, forward and
 * back, on a CPU or a GPU. A layer is one file (layer_*.c): what it reads, what it makes, its parameters, its
 * paper. net.c strings layers together, shares out memory and makes the parameters' steps.
 *
 * The input matrix has the vectors of all fields, then the dense numbers. The output has one column a label:
 * logits, or the network's part of them. Slopes: each matrix has a second one of the same shape for the
 * derivative of the loss by it. In the way back, layers run in reverse; the first that gives slopes to a
 * matrix sets them, those after it add (net_adds).
 */
#ifndef LEARNERS_TRAIN_NET_H
#define LEARNERS_TRAIN_NET_H

#include "learners/model.h"
#include "learners/train/memory.h"

enum { NET_LAYERS_MAX = 192 };

struct net_matrix {
    float *values, *slopes;   /* slopes: of the input and the output [slopes_max]; of others of those on their
                                 way, or a   part of all_slopes */
    uint32_t columns, stride; /* stride: a multiple of 4 */
    bool is_relu;             /* made by a layer that ends in max(x, 0): slopes pass where values > 0 */
    bool has_slopes;          /* in this step: somebody has set them */
    bool needs_mask;          /* somebody who set or added slopes has not looked where values > 0 */
    float *all_slopes;        /* of a layer that goes back by ids: [slopes_max], of which slopes are a part */
    bool keeps_slopes;        /* it has them */
};

/* Weights and biases of a layer: w[n][stride], then n biases, up to a multiple of 4 floats; padding is 0. */
struct net_params {
    uint32_t n, d, stride; /* outputs, inputs; d up to a multiple of 4 */
    size_t floats;         /* of w */
    float *w, *state, *gradient;
};

struct net;
struct net_layer;
struct net_way;
struct team;

struct net_layer_kind {
    const char *name;
    /* For n events; each is one file's whole story. */
    void (*forward)(struct net *net, struct net_layer *layer, uint32_t n);
    void (*backward)(struct net *net, struct net_layer *layer, uint32_t n);
    /* What its matmuls take; n: events at most. May be NULL. */
    size_t (*scratch)(const struct net *net, const struct net_layer *layer, uint32_t n);
};
extern const struct net_layer_kind net_dense, net_cross, net_dot, net_mixture;

struct net_layer {
    const struct net_layer_kind *kind;
    struct net_matrix *in, *out;
    uint32_t in_from, in_columns; /* the part of `in` that is read */
    uint32_t out_from;            /* where in `out` it writes */
    /* dense */
    struct net_params *params;
    float bound; /* its weights start uniform within this */
    bool is_relu;
    bool adds;          /* to what lies in `out`, without a bias of its own */
    bool owns_part;     /* nobody else reads its part of `in` */
    bool reads_numbers; /* its part of `in` is the dense numbers, whose slopes nobody wants */
    bool is_by_ids;     /* its way back through the input's vectors is made once an id (distinct.c) */
    /* cross: x0, z; mixture: z, gates' logits */
    struct net_matrix *x0, *z;
    float *gates;         /* mixture: [n][z->stride] */
    uint32_t fields, dim; /* dot: vectors; mixture: experts, columns of one */
    bool copies_first;    /* dot */
};

struct net_options {
    enum network_kind kind;
    uint32_t fields, dim, dense;       /* of the input */
    uint32_t labels;                   /* columns of the output: 1, but for NETWORK_EXPERTS */
    uint32_t hidden[MODEL_LAYERS_MAX]; /* widths, 0 ends: of the head, the deep part, the top; of an expert */
    uint32_t bottom[MODEL_LAYERS_MAX]; /* NETWORK_DOT: of the dense numbers' layers, before the last, of dim;
                                        NETWORK_EXPERTS: of each label's tower */
    uint32_t cross_layers, experts;
    enum opt_kind optimizer;
    struct opt_params params;
    float accumulator, clip_norm;
    enum row_format precision; /* ROW_FP32; ROW_BF16, ROW_FP16 of products */
    bool may_go_by_ids;        /* wide layers over the input */
    uint64_t seed;
};

struct net {
    const struct train_device *device;
    struct net_options options;
    uint32_t events_max, slopes_max;
    uint32_t first;        /* where in the matrices the events begin that are on their way */
    uint32_t vectors_from; /* the first column of the input's vectors */
    struct net_matrix matrices[NET_LAYERS_MAX];
    uint32_t matrices_count;
    struct net_matrix *input, *output; /* output NULL: NETWORK_NONE */
    struct net_params params[NET_LAYERS_MAX];
    uint32_t params_count;
    struct net_layer layers[NET_LAYERS_MAX];
    uint32_t layers_count;
    double *squares;     /* of each parameter's gradient */
    bool is_by_ids;      /* a layer is */
    float *clip;         /* the scale of all gradients that follows of them */
    bool adds_gradients; /* way back: to those of other events, which go before in the same step */
    float scale;         /* ROW_FP16: of slopes while they are rounded (scale.h) */
    uint8_t *is_finite;  /* ROW_FP16: [net_gradient_rows] */
    void *scratch;
    size_t scratch_bytes;
    struct net *second; /* a CPU's: the same layers, with slopes and scratch memory of its own, for the thread
                           that helps; NULL: none may */
    struct team *team;  /* which it comes from (core/team.h); NULL: none does */
    struct net_way *way; /* while events are on theirs (tiles.c) */
    uint32_t tile;       /* the number of theirs */
};

/* Its shape: matrices and layers, without memory. Then net_take once with memory that counts, once with
 * memory that is there; net_start gives the weights their first values (uniform, by seed).
 * events_max: of a call of forward and backward; slopes_max: whose slopes the input and the output have room
 * for, at least as many: whoever makes a step of several calls moves the two's pointers. */
void net_shape(struct net *net, const struct net_options *options, const struct train_device *device,
               uint32_t events_max, uint32_t slopes_max);
void net_take(struct net *net, struct train_memory *memory);
bool net_start(struct net *net, const struct kernels *kernels, struct gpu_error *error);

/* Of n events, whose values are in the matrices from net->first on. Forward: each by itself. Backward: the
 * output's slopes are there; slopes that somebody has set in the input before are added to. */
void net_forward(struct net *net, uint32_t n);
void net_backward(struct net *net, uint32_t n);
/* So many of them go through the layers at a time, where nobody helps. */
uint32_t net_tile(const struct net *net, uint32_t events);
/* What net->second may be, free()d by the caller; net_take gives it memory. */
struct net *net_second(const struct net *net);
void net_second_take(struct net *net, struct train_memory *memory);
/* Copies what one event left in all matrices to another's place, on a CPU. */
void net_move(struct net *net, uint32_t from, uint32_t to);
/* Zeroes what rejected events left in all matrices, before the way back. */
void net_mask(struct net *net, uint32_t n, const uint8_t *is_rejected);
/* Between steps: nobody has slopes. */
void net_begin(struct net *net);
/* One optimizer step of all parameters. */
void net_update(struct net *net);
/* ROW_FP16: is_finite[r] of each piece of the gradients; all are where no product has left the range. */
void net_check(struct net *net);
size_t net_gradient_rows(const struct net *net);

/* How many floats parameter p has when saved: n * d weights, n biases, and the optimizer's state of all. */
size_t net_saved_floats(const struct net *net, uint32_t p);
/* To and from that form, in host memory; they wait. false: the device has failed. */
bool net_save(const struct net *net, uint32_t p, float *floats, struct gpu_error *error);
bool net_load(struct net *net, uint32_t p, const float *floats, struct gpu_error *error);

/* For layers: the values of the events that are on their way; slopes begin with theirs. */
static inline float *net_values(const struct net *net, const struct net_matrix *matrix)
{
    return matrix->values ? matrix->values + (size_t)net->first * matrix->stride : NULL; /* it is counted */
}

/* For layers on their way back: waits until all gradients of the layer that come before are summed; and ends
 * its turn. */
void net_wait_turn(const struct net *net, const struct net_layer *layer);
void net_end_turn(const struct net *net, const struct net_layer *layer);

/* For layers: whether slopes given to a matrix add to others; from now on they do. */
static inline bool net_adds(struct net_matrix *matrix)
{
    bool adds = matrix->has_slopes;
    matrix->has_slopes = true;
    return adds;
}

/* Likewise, by who gives them to some columns alone: the others are zeroed first. */
bool net_adds_part(struct net *net, struct net_matrix *matrix, uint32_t n);

#endif
