/*
 * The networks of the learner kinds, one a file, and their own options (struct model_options: network,
 * network_own). Widths of layers end with a 0.
 */
#ifndef LEAT_LEARNERS_NETWORKS_NETWORKS_H
#define LEAT_LEARNERS_NETWORKS_NETWORKS_H

#include "learners/options.h"

/* deep.c: relu layers over vectors and dense features; their output is added to the rest of the logit. No
 * options of its own. A model of this network may learn event by event, too. */
extern const struct network network_deep;

/* cross.c */
struct cross_network {
    uint32_t layers;
};
extern const struct network network_cross;

/* dot.c */
struct dot_network {
    /* widths of the layers that the dense features go through, before a last one of width `dim` */
    uint32_t bottom[MODEL_LAYERS_MAX];
};
extern const struct network network_dot;

/* experts.c */
struct experts_network {
    uint32_t experts;
    uint32_t towers[MODEL_LAYERS_MAX]; /* widths of each label's own layers */
};
extern const struct network network_experts;

/* attention.c: its output is added to the rest of the logit; it needs at least two fields with vectors. */
struct attention_network {
    uint32_t width; /* of the relu layer that each pair's products go through */
};
extern const struct network network_attention;

/*
 * Sequence models: a row of the input is a token, `dim` columns, whose vectors the caller has put there
 * (net_options: fields 1, dim the same, dense 0, window_max), and so is a row of the output. The options are
 * checked by the caller: dim / heads is a multiple of 16 up to ATTENTION_DIM_MAX (kernels/attention.h), layers are
 * 1 up to SEQUENCE_LAYERS_MAX, both shares of dropout are from 0 up to below 1.
 */
enum { SEQUENCE_LAYERS_MAX = 12 };

/* tokens.c: the input and what both networks begin with. */
struct net_matrix;
struct net_matrix *networks_add_tokens(struct net *net, uint32_t dim, float dropout);

/* sasrec.c */
struct sasrec_network {
    uint32_t layers, heads, dim;
    uint32_t hidden;         /* columns between the two dense layers of a block; the authors: dim */
    bool is_causal;          /* false: each token attends to its whole window */
    float dropout;           /* of both branches of a block */
    float attention_dropout; /* of the weights of attention */
};
extern const struct network network_sasrec;

/* hstu.c: causal */
struct hstu_network {
    uint32_t layers, heads, dim;
    float dropout;           /* before a layer's last product */
    float attention_dropout; /* of the weights of attention */
};
extern const struct network network_hstu;

/* tower.c: its output has `width` columns, more than one. On a CPU alone. */
struct tower_network {
    uint32_t hidden[MODEL_LAYERS_MAX]; /* widths of the relu layers before the last layer */
    uint32_t width;
};
extern const struct network network_tower;

/* text.c: the lines of a learner's shape that `cross`, `dot` and `experts` have in common; bottom may be
 * NULL. */
void networks_put_shape(struct byte_buffer *out, const uint32_t *bottom, uint32_t cross_layers,
                        uint32_t experts, uint32_t labels);
/* The line of `attention`. */
void networks_put_attention(struct byte_buffer *out, uint32_t width);
/* The lines of `sasrec` and `hstu`, which has no hidden layer (0). */
void networks_put_sequence(struct byte_buffer *out, uint32_t layers, uint32_t heads, uint32_t dim,
                           uint32_t hidden, bool is_causal);
/* The line of `tower`. */
void networks_put_tower(struct byte_buffer *out, const uint32_t *hidden, uint32_t width);
/* Appends a line `=NAME: 128 64`; widths NULL: no widths. */
void networks_put_widths(struct byte_buffer *out, const char *name, const uint32_t *widths);

#endif
