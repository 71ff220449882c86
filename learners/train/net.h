/*
 * The dense part of a model that trains by batches: layers over matrices of one row an event, forward and
 * backward, on a CPU or a GPU. A layer is one file (layer_*.c): its inputs, outputs, parameters and paper.
 * net.c connects layers, divides memory among them and makes the parameters' steps.
 *
 * The input matrix has the vectors of all fields, then the dense features. The output has one column a label:
 * the logits, or the network's part of them. Each matrix has a second one of the same shape, `gradients`: the
 * derivative of the loss by its values. The backward pass runs through the layers in reverse; the first that
 * gives gradients to a matrix sets them, later ones add (net_adds).
 *
 * Of a sequence model (net_options.window_max) the rows are tokens instead of events, in windows (windows.h):
 * what is said of n events here goes for n tokens, but the slices of its steps count windows.
 */
#ifndef LEAT_LEARNERS_TRAIN_NET_H
#define LEAT_LEARNERS_TRAIN_NET_H

#include "learners/options.h"
#include "learners/train/memory.h"
#include "learners/train/windows.h"

enum { NET_LAYERS_MAX = 192 };

struct net_matrix {
    /* values: of all events; of a segment's own matrix those of the events in progress. gradients: the derivatives by
     * `values`; of the input and the output [gradients_max]; of other matrices those of the events in progress, or a
     * part of all_gradients */
    float *values, *gradients;
    /* stride: floats from row to row, a multiple of 4; the output's is 1 with a single label, that of a matrix
     * of places (net_add_places) is `columns` */
    uint32_t columns, stride;
    bool is_relu;       /* made by layers that end in max(x, 0): gradients pass where values > 0 */
    bool has_gradients; /* a layer has set `gradients` in this step */
    bool needs_mask;    /* `gradients` were set or added without being zeroed where values <= 0 */
    /* of a layer that goes back by ids: [gradients_max], of which `gradients` is a part */
    float *all_gradients;
    bool keeps_gradients; /* has all_gradients */
    /* GPU: lies column by column, of a pass's rows each (softmax: a kernel's lse) */
    bool is_by_columns;
    bool is_kept;     /* set by a network: is kept in a segment, too, because it takes long to compute */
    uint32_t segment; /* segments.c: number of the segment that alone reads and writes it; 0: it is kept */
};

/* Weights and biases of a layer: w[n][stride], then n biases; padded with zeros. */
struct net_params {
    uint32_t n, d, stride; /* outputs, inputs; stride: d rounded up to a multiple of 4 */
    size_t floats;         /* of w, its biases and padding */
    float *w, *state;
    /* [levels][floats] the sums of slices: after the backward pass the whole gradient is the first, the others
     * are those that waited in the tree (net_part) */
    float *gradient;
};

struct net;
struct net_layer;
struct net_pass;
struct team;

/* What a layer reads and writes, for segments (net_begin_segment). `out` is always written, `in` always read. */
enum net_reads {
    NET_WRITES_Z = 1, /* `z` is a second output; else a second input, if it is there */
    NET_BACK_IN = 2,  /* the backward pass reads the values of `in`; likewise z, out */
    NET_BACK_Z = 4,
    NET_BACK_OUT = 8,
};

struct net_layer_kind {
    const char *name;
    /* Both for n events. */
    void (*forward)(struct net *net, struct net_layer *layer, uint32_t n);
    void (*backward)(struct net *net, struct net_layer *layer, uint32_t n);
    /* Bytes of scratch memory that its matrix products need; n: most events. May be NULL. */
    size_t (*scratch)(const struct net *net, const struct net_layer *layer, uint32_t n);
    /* Flags of enum net_reads. NULL: its layers cannot be in a segment. */
    unsigned (*reads)(const struct net_layer *layer);
};
extern const struct net_layer_kind net_dense, net_cross, net_dot, net_mixture, net_products;
/* of sequence models */
extern const struct net_layer_kind net_positions, net_norm, net_attention, net_sum, net_gate, net_silu,
    net_dropout;

struct net_layer {
    const struct net_layer_kind *kind;
    struct net_matrix *in, *out;
    uint32_t in_from, in_columns; /* the columns of `in` that are read */
    uint32_t out_from;            /* the first column of `out` that is written */
    struct net_params *params;    /* NULL: none */
    float start, bound;           /* initial weights are uniform in start +- bound; net_add_dense: start 0 */
    uint32_t starts; /* how many rows of weights begin around `start`, the others around 0; 0: all rows */
    /* dense */
    bool is_relu;
    /* the columns that it reads and writes are those of this many places of an event, one behind the other, which
     * share the weights: the layer goes over places as if they were events; else 1 */
    uint32_t places;
    bool adds;        /* adds to the values in `out`, without a bias */
    bool has_no_bias; /* the biases of its parameters stay 0 */
    bool owns_part;   /* no other layer reads its columns of `in` */
    bool reads_dense; /* its columns of `in` are the dense features, whose gradients are not needed */
    /* its backward pass through the input's vectors is made once for each distinct id (distinct.c) */
    bool is_by_ids;
    /* cross: x0, z; mixture: z, the gates' logits, and the gates, a matrix of the same shape, so that a rejected
     * event's are zeroed like its other values (net_mask) */
    struct net_matrix *x0, *z, *gates;
    uint32_t fields, dim; /* dot, products: number and length of vectors; mixture: experts, columns of each */
    bool copies_first;    /* dot: a copy of the first vector lies before the products */
    /* norm: z, mean and 1 / deviation of each row; sum, gate: z, the second input; attention: fields heads of
     * `dim` columns, z, the sums of softmax */
    bool is_causal, has_softmax; /* attention */
    size_t kept_from;            /* attention: where its part of a page begins (net_kept) */
    float dropout;               /* attention, dropout: the share that is dropped, in [0, 1) */
    uint32_t segment;            /* segments.c: number of its segment; 0: none */
    bool is_repeated;            /* its forward pass is made again before the segment's backward pass */
};

struct net_options {
    const struct network *network; /* NULL: the input matrix alone, without layers */
    const void *own;               /* the network's own options */
    uint32_t fields, dim, dense;   /* of the input matrix */
    uint32_t labels;               /* columns of the output */
    /* widths, 0 ends: of the head, the deep part or the top; of each expert */
    uint32_t hidden[MODEL_LAYERS_MAX];
    enum opt_kind optimizer;
    struct opt_params params;
    float accumulator, clip_norm;
    enum row_format precision; /* of the factors in products */
    bool may_go_by_ids;        /* whether wide layers over the input may go back by ids */
    uint32_t slices_max;       /* most slices of a step; 0: as 1 */
    uint32_t window_max;       /* most rows of a window; 0: rows are events, without windows */
    float init;                /* bound of all layers' initial weights; 0: each layer has its own */
    bool recompute;            /* segments keep no values for the backward pass (net_begin_segment) */
    bool both_ways;            /* some passes are net_windows.is_both_ways: biases of distance go both ways */
    uint64_t seed;
};

struct net {
    const struct train_device *device;
    /* GPU: the first failure while weights are saved or loaded (learners/stored/weights.c) is noted here, for the net's
     * owner; may be NULL where neither happens */
    struct gpu_error *error;
    const struct kernels *kernels; /* of the host, beside those of the device; from net_start on */
    struct net_options options;
    uint32_t events_max, gradients_max;
    uint32_t first;        /* row in the matrices where the events in progress begin */
    uint32_t vectors_from; /* the first column of the input's vectors */
    bool is_glorot;        /* the bounds of dense layers' initial weights (net_add_dense) */
    struct net_matrix matrices[NET_LAYERS_MAX];
    uint32_t matrices_count;
    struct net_matrix *input, *output; /* output NULL: no network */
    struct net_params params[NET_LAYERS_MAX];
    uint32_t params_count;
    struct net_layer layers[NET_LAYERS_MAX];
    uint32_t layers_count;
    uint32_t segments_count, segment; /* segment: number of the one whose layers are added now; 0: none */
    const uint8_t *rejected;          /* net_mask's argument, until the next forward pass; NULL: none */
    double *squares;                  /* [params] sum of squares of each parameter's gradient */
    bool is_by_ids;                   /* is_by_ids of some layer */
    float *clip;                      /* factor of all gradients, computed from `squares` */
    /* backward: the step's slices, and the number in the step of the first event (window) in progress */
    struct batch_slices slices;
    uint32_t event;
    float scale;        /* ROW_FP16: factor of the gradients while they are rounded (scale.h) */
    uint8_t *is_finite; /* ROW_FP16: [net_gradient_rows] */
    void *scratch;
    size_t scratch_bytes;
    /* CPU: the same layers, with `gradients` and scratch memory of its own, for the thread that helps; NULL:
     * none may help */
    struct net *second;
    struct team *team;     /* the team that the helping thread comes from (core/team.h); NULL: none */
    struct net_pass *pass; /* set while events go through the layers (tiles.c) */
    uint32_t tile;         /* number of the tile in progress */
    /* with window_max: set by the caller before each pass */
    struct net_windows windows;
    size_t kept_elements; /* of a page of all attention layers (net_kept) */
    /* first windows of chunks, and first chunks of tiles, each with one behind the last; the number in the pass
     * of the first window of the tile in progress */
    uint32_t *chunks, *tiles, window;
    /* GPU, with window_max: the windows of the pass there, and the memory that they are copied from (pinned) and to */
    struct windows_copy copy;
    unsigned char *copy_from, *copy_to;
};

/*
 * For a network's function `shape` (struct network): it connects matrices by layers, from the input to the
 * output, without memory. The layers' forward pass has the order in which they are added.
 */

/* The input matrix; call it first. front: columns before the vectors of ids, which a layer of the network
 * fills. */
struct net_matrix *net_add_input(struct net *net, uint32_t front);
/* The output matrix, a column for each label; or of any number of columns. */
struct net_matrix *net_add_output(struct net *net);
struct net_matrix *net_add_output_columns(struct net *net, uint32_t columns);
/* Another matrix. */
struct net_matrix *net_add_matrix(struct net *net, uint32_t columns);
/* A matrix of the same columns for each of some places of an event, one behind the other and without a gap, so
 * that layers can go over all places of all events as over rows. */
struct net_matrix *net_add_places(struct net *net, uint32_t places, uint32_t columns);
/* A layer that reads all columns of `in`. */
struct net_layer *net_add_layer(struct net *net, const struct net_layer_kind *kind, struct net_matrix *in,
                                struct net_matrix *out);
/*
 * A dense layer: in[from .. from + columns) -> n outputs at out[at ..). Its initial weights are uniform. With
 * the usual bounds, outputs of a relu layer have the variance of its inputs (He et al. 2015, eq. 10), and
 * outputs of other layers a third of that, so that logits begin near 0. net->is_glorot: bounds of Glorot and
 * Bengio 2010, eq. 16. net_options.init goes before both.
 */
struct net_layer *net_add_dense(struct net *net, struct net_matrix *in, uint32_t from, uint32_t columns,
                                struct net_matrix *out, uint32_t at, uint32_t n, bool is_relu);
/* A dense layer that each of the places in `in` goes through by itself, with the same weights: in and out are
 * matrices of as many places. A gradient by a weight is the sum over all places of all events, in their order. */
struct net_layer *net_add_dense_places(struct net *net, struct net_matrix *in, struct net_matrix *out,
                                       uint32_t places, bool is_relu);
/* Relu layers of these widths (0 ends them), each over all outputs of the one before; returns the last
 * matrix, or `in` if there are none. */
struct net_matrix *net_add_relu_layers(struct net *net, struct net_matrix *in, const uint32_t *widths);
/* The layers between these calls are a segment. With net_options.recompute, values that no other layer reads are
 * not kept for the backward pass, but computed again (segments.c). Segments do not overlap. */
void net_begin_segment(struct net *net);
void net_end_segment(struct net *net);
/* For a layer with other parameters than a dense layer's: n rows of d weights, and n biases. */
struct net_params *net_add_params(struct net *net, uint32_t n, uint32_t d);

/*
 * Layers of sequence models, on a CPU or a GPU, for networks with window_max, each explained in its layer_*.c. Their
 * matrices have no padding (the stride is the number of columns), and none but the input of net_add_dropout is made by a
 * relu.
 */

/* out = in + a learned row of each position. Parameter: window_max rows. */
struct net_layer *net_add_positions(struct net *net, struct net_matrix *in, struct net_matrix *out);
/* out = layer norm of each row of `in`, times a gain, plus a bias. Parameters: a row of gains, a row of biases. */
struct net_layer *net_add_norm(struct net *net, struct net_matrix *in, struct net_matrix *out);
/* Attention of `heads` heads of d columns, a multiple of 16 up to ATTENTION_DIM_MAX. in[from .. from + 3 heads d)
 * has q, k and v, one behind the other, and is read by no other layer; out has heads d columns. By softmax of q k
 * / sqrt(d); or by SiLU of q k plus learned biases of distance and time. dropout: the share of the weights
 * that is dropped. */
struct net_layer *net_add_attention(struct net *net, struct net_matrix *in, uint32_t from, uint32_t heads,
                                    struct net_matrix *out, bool has_softmax, bool is_causal, float dropout);
/* out = a + b. */
struct net_layer *net_add_sum(struct net *net, struct net_matrix *a, struct net_matrix *b,
                              struct net_matrix *out);
/* out = a[from .. from + columns of b) * b, element by element; no other layer reads these columns of a. */
struct net_layer *net_add_gate(struct net *net, struct net_matrix *a, uint32_t from, struct net_matrix *b,
                               struct net_matrix *out);
/* out = SiLU of each element of `in`. */
struct net_layer *net_add_silu(struct net *net, struct net_matrix *in, struct net_matrix *out);
/* Sets the share `dropout` of the elements to 0 and scales the others. No other layer reads `in`; out may be `in`,
 * if the layer that makes it needs no values of it in its backward pass (a dense layer without relu, a gate).
 * dropout 0: adds no layer, and returns `in`; else returns out. */
struct net_matrix *net_add_dropout(struct net *net, struct net_matrix *in, struct net_matrix *out,
                                   float dropout);

/* net_shape makes the network's matrices and layers, without memory. Then call net_take once with memory that counts and
 * once with memory that exists; net_start gives the weights their initial values (uniform, from the seed).
 * events_max: most events of a call of net_forward or net_backward. gradients_max: events for which
 * `gradients` of the input and the output have room, at least events_max: a step of several calls moves the
 * two pointers. */
void net_shape(struct net *net, const struct net_options *options, const struct train_device *device,
               uint32_t events_max, uint32_t gradients_max);
void net_take(struct net *net, struct train_memory *memory);
bool net_start(struct net *net, const struct kernels *kernels, struct gpu_error *error);
/* On a GPU, of a net with window_max: frees what net_start took of the host's memory, when the device's work is done;
 * also after a net_start that failed, and for a net of zeros. Of other nets nothing is freed. */
void net_stop(struct net *net);

/* Forward and backward pass of n events, whose values are in the matrices from row net->first on; with
 * window_max of n tokens, which net->windows has, and net->event is the number in the step of their first window.
 * Forward: each event (window) by itself. Backward: the gradients by the output are set; those by the input are
 * added to if they were set before. GPU: the work is queued; with window_max, the device has come to the end of a
 * forward pass before the next one is called (train_wait), and a backward pass has the windows of the last forward
 * pass. */
void net_forward(struct net *net, uint32_t n);
void net_backward(struct net *net, uint32_t n);
/* How many of `events` events go through the layers at a time, without a helping thread. */
uint32_t net_tile(const struct net *net, uint32_t events);
/* A net for net->second, which the caller frees with free(); net_take gives it memory. */
struct net *net_second(const struct net *net);
void net_second_take(struct net *net, struct train_memory *memory);
/* CPU: copies the values of one event in all matrices that keep them from row `from` to row `to`. */
void net_move(struct net *net, uint32_t from, uint32_t to);
/* Zeroes the values of rejected events in all matrices; call it before the backward pass, which reads is_rejected[n]
 * (where the matrices lie), too. Of a rejected window all rows are rejected. */
void net_mask(struct net *net, uint32_t n, const uint8_t *is_rejected);
/* Between steps: marks all gradients by matrices as not set. */
void net_begin(struct net *net);
/* One optimizer step of all parameters. */
void net_update(struct net *net);
/* ROW_FP16: sets is_finite[r] for each row of the gradients; all are finite if no product has
 * left the range. */
void net_check(struct net *net);
/* Rows of PARAMS_ROW floats (net.c) in all gradients. */
size_t net_gradient_rows(const struct net *net);

/* Floats of parameter p when saved: n * d weights, n biases, and the optimizer's state of all of them. */
size_t net_saved_floats(const struct net *net, uint32_t p);
/* Convert to and from the saved form, in host memory. They wait for the device; false: it has failed. */
bool net_save(const struct net *net, uint32_t p, float *floats, struct gpu_error *error);
bool net_load(struct net *net, uint32_t p, const float *floats, struct gpu_error *error);
/* Likewise the n * d weights and n biases alone. */
bool net_save_weights(const struct net *net, uint32_t p, float *floats, struct gpu_error *error);
bool net_load_weights(struct net *net, uint32_t p, const float *floats, struct gpu_error *error);

/* For layers: the values of the events in progress. (Their gradients are those of these events alone.) */
static inline float *net_values(const struct net *net, const struct net_matrix *matrix)
{
    size_t first = matrix->segment > 0 ? 0 : net->first;
    /* NULL while memory is counted */
    return matrix->values != NULL ? matrix->values + first * matrix->stride : NULL;
}

/* net_mask of one matrix, of which `values` are those of n rows. */
void net_mask_matrix(const struct net *net, const struct net_matrix *m, float *values, uint32_t n,
                     const uint8_t *is_rejected);

/* Segments, for net.c and tiles.c (segments.c). segments_shape: when all layers are there. segments_take: memory for
 * tiles of `tile` rows, for the net of one thread. segments_repeat: before layer `number` goes backward over a tile of
 * n rows; `first`: the tile's first row in the pass. */
void segments_shape(struct net *net);
void segments_take(struct net *net, struct train_memory *memory, size_t tile);
void segments_repeat(struct net *net, uint32_t number, size_t first, uint32_t n);

/* For a layer's backward pass: net_wait_turn waits until the layer's gradients of all earlier tiles are
 * summed; net_end_turn lets the next tile go on. */
void net_wait_turn(const struct net *net, const struct net_layer *layer);
void net_end_turn(const struct net *net, const struct net_layer *layer);

/*
 * For a layer with parameters: those of the events in progress that are in one slice of the step, from..from +
 * n. Their gradient lies at net_gradient, and is added to what the slice's earlier events left there with
 * `adds`. net_next_part goes from part to part, from {0} on; false: behind the last. When the slice's last
 * event is summed (is_last), net_join adds the sums of whole nodes of the tree (kernels/slices.h): over `rows`
 * rows of p->stride floats, `columns` of each, from float `at` of the gradient on. It is called for all slices
 * in their order. Of a network over windows a part is a chunk of them (windows.h).
 */
struct net_part {
    uint32_t from, n, slice;
    bool adds, is_last;
    uint32_t chunks; /* chunks of the tile up to this part's end */
};
bool net_next_part(const struct net *net, uint32_t n, struct net_part *part);
float *net_gradient(const struct net_params *p, uint32_t slice);
void net_join(const struct net *net, const struct net_params *p, uint32_t slice, size_t at, uint32_t rows,
              uint32_t columns);

/* For layers: whether gradients by a matrix must be added to existing ones; marks them as set. */
static inline bool net_adds(struct net_matrix *matrix)
{
    bool adds = matrix->has_gradients;
    matrix->has_gradients = true;
    return adds;
}

/* Likewise for a layer that sets some columns only: zeroes all of `gradients` if they were not
 * set. Always true. */
bool net_adds_part(struct net *net, struct net_matrix *matrix, uint32_t n);

#endif
