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

/* text.c: the lines of a learner's shape that `cross`, `dot` and `experts` have in common; bottom may be
 * NULL. */
void networks_put_shape(struct byte_buffer *out, const uint32_t *bottom, uint32_t cross_layers,
                        uint32_t experts, uint32_t labels);
/* The line of `attention`. */
void networks_put_attention(struct byte_buffer *out, uint32_t width);
/* Appends a line `=NAME: 128 64`; widths NULL: no widths. */
void networks_put_widths(struct byte_buffer *out, const char *name, const uint32_t *widths);

#endif
