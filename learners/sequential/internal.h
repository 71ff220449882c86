/* What the files of this folder share. The thread that owns the model makes all calls. */
#ifndef LEAT_LEARNERS_SEQUENTIAL_INTERNAL_H
#define LEAT_LEARNERS_SEQUENTIAL_INTERNAL_H

#include "learners/losses/targets.h"
#include "learners/sequential/sequential.h"
#include "learners/train/clock.h"
#include "learners/train/net.h"

/* Tokens that go through the network together: at least a whole window, and as many windows as fit in
 * SEQUENTIAL_PASS. */
enum { SEQUENTIAL_PASS = 4096 };

/* What an event's mark in a history says (sequential_options.marks). */
enum sequential_mark { MARK_TEACHES, MARK_TEACHES_NOT, MARK_UNLABELLED };

/* Some tokens that follow one another, and what is to be learned of them. */
struct sequential_window {
    size_t first; /* its first token, of all in struct sequential_windows */
    uint32_t length;
    /* Each position but the last is a target, whose item is that of the next token; false: the last position
     * alone, whose item is `target`. */
    bool has_all;
    bool is_masked; /* no token is a target but those that masked.c lists; attention goes both ways */
    struct items_ref target;
    uint64_t identity;
    /* number + 1 in the context's catalogue; 0: absent, or not known yet, where the window is to be predicted */
    uint32_t contexts[SEQUENTIAL_CONTEXTS_MAX];
};

struct sequential_windows {
    struct history_entry *tokens;
    size_t tokens_count, tokens_room;
    struct sequential_window *items;
    uint32_t count, room;
};

/* An event of the call between sequential_read and sequential_take. */
struct sequential_call_event {
    uint64_t user;
    uint64_t count; /* events of its user before it; 0: a new user, or one who has expired */
    struct history_entry entry;
    uint32_t contexts[SEQUENTIAL_CONTEXTS_MAX]; /* as those of its window, with the values that it brings */
    bool is_appended, teaches, is_unlabelled;
    uint32_t previous; /* number in the call, plus 1, of the user's event before; 0: there is none */
};

struct sequential {
    struct sequential_options options;
    struct histories *histories;
    struct catalogue *items, *sides[SEQUENTIAL_SIDES_MAX], *contexts[SEQUENTIAL_CONTEXTS_MAX];
    struct train_device device; /* of the network */
    struct train_memory memory;
    struct net net;
    struct gpu_error error; /* of the device; failure GPU_OK: none */
    /* network.c: the host's rows of a pass, which the network reads and writes: on a CPU its own matrices, on a GPU
     * pinned copies of them. out_gradients may be `out`: they are set when `out` has been read. */
    struct sequential_rows {
        float *in, *out, *out_gradients;
        uint8_t *is_rejected;       /* [pass_rows] of a step: the token is of a window that teaches nothing */
        uint8_t *is_rejected_there; /* on a GPU: there */
        struct train_clock clock;
    } rows;
    struct targets *targets;
    /* Windows of the call, one for each of its events; of the events that wait for the step, and then of the whole
     * step. */
    struct sequential_windows call, pending;
    struct sequential_windows unlabelled; /* windows that have no target but hidden items, until the step */
    struct sequential_call_event events[SEQUENTIAL_CALL_MAX];
    uint32_t events_count;
    /* Numbers in the call, plus 1, of users' last events: open addressing by the user's hash; `round` says which
     * places are of this call. */
    struct {
        uint64_t user;
        uint32_t round, last;
    } users[2 * SEQUENTIAL_CALL_MAX];
    uint32_t users_round;
    uint64_t *keys; /* [keys_room] and views: for look-ups of histories */
    struct history_view *views;
    float *queries;            /* [SEQUENTIAL_CALL_MAX][dim] */
    uint32_t *history_numbers; /* numbers of all the call's tokens that are there */
    size_t history_room;
    /* A pass: borders of its windows in the pass, their seconds and identities. */
    uint32_t *offsets, *seconds;
    uint64_t *identities;
    uint32_t pass_windows, pass_rows; /* most of a pass */
    struct sequential_masks {
        float *row; /* what stands for a hidden item: [dim], and the optimizer's state as in rows of items */
        size_t row_bytes;
        struct sequential_place {
            uint32_t window, position;
            struct items_ref item;
        } * places; /* of the step's hidden items, by window and position */
        uint32_t count, room;
        uint64_t learned; /* hidden items of all steps */
        double loss;      /* of the last step's, on average */
    } masks;
    /* A step: its targets, and the gradients by its tokens, which grow with the largest step. Those that are hidden
     * items are the last ones. */
    struct sequential_targets {
        uint32_t count, masked, room;
        uint32_t *rows;    /* token of the step */
        uint32_t *numbers; /* of the positive item */
        uint32_t *windows; /* number of its window */
        uint64_t *identities;
        float *weights, *queries, *gradients;
        double *losses;
        uint8_t *is_rejected;
    } step;
    /* [tokens of the step] */
    float *token_gradients;
    size_t token_gradients_room; /* floats */
    uint32_t *tokens_numbers, *tokens_windows;
    float **item_rows; /* of the step's distinct items */
    uint32_t item_rows_room;
    struct values *values; /* of sides and contexts */
    uint32_t append_steps[SEQUENTIAL_CALL_MAX];
    struct history_entry append_entries[SEQUENTIAL_CALL_MAX];
    uint64_t unnumbered;
    uint64_t rows_refused; /* optimizer steps of rows that were not finite */
    /* passes.c: the users of a pass in its order, and where the passes stand: the number of the pass, and how many of
     * its users were learned. */
    struct sequential_passes {
        struct sequential_user {
            uint64_t key, place;
        } * users;
        size_t count, room;
        bool is_listed;
        uint64_t pass, at;
    } passes;
    struct kv_cache *cache;         /* of requests; NULL: none */
    struct sequential_asked *asked; /* ask.c; with a cache */
    int64_t watermark_us;
    uint64_t steps, targets_learned, targets_rejected;
    double loss; /* mean of the last step's targets */
};

/* Tokens and windows that go through the network together. */
struct sequential_pass {
    uint32_t rows, count;
};

/*
 * network.c. sequential_shape_net: connects the layers, and counts the memory. sequential_make_net: with its memory and
 * initial weights; a failure is noted in s->error, and the model can only be freed. sequential_forward, _backward: a
 * pass that sequential_pass_fill has made, from s->rows and to them; the gradients by the pass's tokens go to
 * `gradients`. sequential_reject: rows that s->rows.is_rejected names count as zeros in the backward pass.
 * sequential_update: the weights' optimizer step.
 */
void sequential_shape_net(struct sequential *s);
void sequential_make_net(struct sequential *s);
void sequential_free_net(struct sequential *s);
void sequential_forward(struct sequential *s, const struct sequential_pass *pass);
void sequential_reject(struct sequential *s, const struct sequential_pass *pass);
void sequential_backward(struct sequential *s, const struct sequential_pass *pass, float *gradients);
void sequential_update(struct sequential *s);

/* windows.c */
void windows_clear(struct sequential_windows *w);
void windows_free(struct sequential_windows *w);
/* Adds an empty window behind the last token. */
struct sequential_window *windows_add(struct sequential_windows *w);
/* Room for `count` more tokens; the first is returned. The caller counts them. */
struct history_entry *windows_room(struct sequential_windows *w, size_t count);
/* Adds a copy of a window with its tokens, which are not among those of w. */
void windows_copy(struct sequential_windows *w, const struct sequential_window *window,
                  const struct history_entry *tokens);
/* Decodes a view behind the last token, as a new window. */
struct sequential_window *windows_decode(struct sequential_windows *w, struct history_view *view);
/* Reads the windows of the call's events. changes: new items and values get numbers. */
void sequential_windows_read(struct sequential *s, const struct sequential_event *events, uint32_t n,
                             bool changes, struct sequential_seen *seen);

/* encode.c. Puts windows begin .. end - 1 that follow one another, or (chosen not NULL) those with chosen[window]
 * alone, into the network's input (s->rows.in), as many as a pass takes, and sets *pass; returns the number behind the
 * last one. Windows without tokens are left out: they have no place in the pass. Windows with hidden items have passes
 * of their own. */
uint32_t sequential_pass_fill(struct sequential *s, const struct sequential_windows *w, uint32_t begin,
                              const uint8_t *chosen, struct sequential_pass *pass);
/* Writes a token's row of the input: sqrt(dim) times the row of its item, or that of hidden items, plus the rows of its
 * sides. */
void sequential_put_token(const struct sequential *s, const struct history_entry *token, float *x);
/* The row of a value beside items; number: plus 1. NULL: absent. */
const float *sequential_row(const struct catalogue *catalogue, uint32_t number);
/* Adds the rows of a window's contexts to a query. */
void sequential_add_contexts(const struct sequential *s, const struct sequential_window *w, float *query);
/* Queries of windows with chosen[window]: queries[window][dim]. */
void sequential_encode(struct sequential *s, const struct sequential_windows *w, const uint8_t *chosen,
                       float *queries);

/* sequential.c: encodes the call's windows with wants[i], and tells where their queries are. */
void sequential_give_queries(struct sequential *s, uint32_t n, const uint8_t *wants,
                             struct sequential_seen *seen);

/* ask.c */
void sequential_cache_free(struct sequential *s);

/* step.c. The pending windows make their step. sequential_add_older: adds a window of a history as it is now. */
void sequential_step(struct sequential *s);
void sequential_add_older(struct sequential *s, struct history_view *view, uint64_t identity);
void sequential_step_free(struct sequential *s);

/* masked.c. sequential_masked_targets: most hidden items of a window. sequential_add_masked: adds the windows with hidden
 * items to the pending ones, as the last of the step. sequential_is_mask: the token is a hidden item. */
uint32_t sequential_masked_targets(const struct sequential_options *options);
void sequential_masks_make(struct sequential *s);
void sequential_masks_free(struct sequential *s);
void sequential_add_masked(struct sequential *s);
bool sequential_is_mask(const struct history_entry *token);
/* Behind the backward passes of all windows: the optimizer's step of the row that stands for hidden items. */
void sequential_masks_update(struct sequential *s);

#endif
