/*
 * A model of two towers (Yi et al. 2019): one encodes what is known of an event as a query, the other encodes an item,
 * and a score is the product of both vectors. It reads decoded events, gives queries, learns, and keeps an index of the
 * encoded items; it knows nothing of jobs, lanes or the engine's batches. Without layers in the towers it is matrix
 * factorization: the query is the sum of its rows, and so is the item. With `history` it is item2vec (alike.c): it keeps
 * the last items of each user, learns which items are near each other, and a query is the mean of the user's last ones.
 *
 * Order of updates:
 *   - A query is that of the last step's weights. Ids that no step has learned read as zeros.
 *   - When `batch` events that teach have come, the step is made: each has the item that came as its target; losses are
 *     averaged over the targets. The items of the step, drawn ones included, go through the item tower.
 *   - After a step its items are encoded into the index, and then the next `refresh` others by rising number, round and
 *     round: an item's row in the index is what the tower gave when it was last encoded. Encoded rows are state.
 * The result does not depend on how events are cut into calls.
 *
 * Items come with events that teach, and with towers_put; towers_remove removes one. With `is_listed` events bring no
 * items: those of an unknown item do not teach, so that an item that was removed stays away. An item's features are those
 * of the last event or towers_put that gave them.
 *
 * One thread owns a model; a team may help it within calls.
 */
#ifndef LEAT_LEARNERS_TOWERS_TOWERS_H
#define LEAT_LEARNERS_TOWERS_TOWERS_H

#include "learners/items/catalogue.h"
#include "learners/losses/losses.h"
#include "learners/networks/networks.h"
#include "learners/options.h"

enum {
    TOWERS_QUERY_MAX = 16,    /* fields of a query */
    TOWERS_FEATURES_MAX = 16, /* of an item, besides the item itself */
    TOWERS_LIST_MAX = 256,    /* upper limit of list_max */
    TOWERS_CALL_MAX = 1024,   /* events of a call */
    TOWERS_BATCH_MAX = 1023,  /* events of a step: a step is one slice (kernels/slices.h) */
    TOWERS_HISTORY_MAX = 500,
};

struct towers_options {
    const struct kernels *kernels;
    uint32_t query_fields, features, dim;
    bool is_list[TOWERS_FEATURES_MAX]; /* a feature of items may have up to list_max ids; else one */
    uint32_t list_max;
    bool has_layers;
    struct tower_network network; /* of both towers */
    bool normalize;               /* vectors have length 1 */
    bool is_listed;               /* items come by towers_put alone */
    uint32_t batch, refresh;      /* batch: events; with `history` pairs */
    float clip_norm;              /* of the gradient of each tower's layers; 0: no limit */
    float init;                   /* rows begin uniform in +- init */
    struct optimizer_options rows, dense;
    const struct losses_kind *loss; /* one that takes not all items */
    struct losses_options losses;
    /* 1..TOWERS_HISTORY_MAX: most items of a window (alike.c); then query_fields is 1, there are no layers, normalize is
     * false, and the loss is bce. 0: queries are made of what events have. */
    uint32_t history;
    uint32_t occurrences_min; /* with `history`: what an item must have to be in the index */
    double subsample; /* the share of all occurrences above which an item makes fewer pairs; 0: none does */
    uint32_t items_max;
    int64_t expire_after_us; /* of items, of the rows of queries, and of users' last items; 0: never */
    uint32_t shards;
    uint64_t seed;
    /* Told when an item has gone; may not call the model. NULL: nobody is told. */
    void (*removed)(void *of, uint32_t number);
    void *removed_of;
};

/* Floats of a query and of an item's row in the index. */
static inline uint32_t towers_width(const struct towers_options *o)
{
    return o->has_layers ? o->network.width : o->dim;
}

/* Ids of some fields, one behind the other, the ids of a field in its order, counts[field] of them. No id is 0. */
struct towers_ids {
    const uint64_t *ids;
    const uint16_t *counts;
};

struct towers_event {
    struct items_value item; /* key 0: a request, which has no item */
    struct towers_ids query, features;
    /* With `history`, instead of `query`: the user, 0 only for requests; and the key of an item that the event asks about,
     * instead of its user; 0: none. */
    uint64_t user, asked;
    bool has_features; /* the event says which features its item has */
    int64_t time_us;
    uint64_t identity; /* hash of the event's content, for chance */
    bool teaches;
};

/* What is known of an event before it is learned. */
struct towers_seen {
    const float *
        query; /* [width], valid until the next call; NULL: nobody wanted it, or with `history` there is none */
    bool is_known;   /* the item was there before the event */
    uint32_t number; /* if the item is there now */
    bool teaches;    /* the event will be learned; false: it teaches not, or its item has no number */
    /* With `history`, of events that were wanted: numbers of the window's items, valid until the next call; and the item
     * that was asked about. */
    const uint32_t *window;
    uint32_t window_count, asked;
    bool is_asked;
};

struct towers;
struct team;
struct targets_options;

/* What the model will ask of its losses: for targets_check, before it is made. */
struct targets_options towers_targets(const struct towers_options *options);

struct towers *towers_new(const struct towers_options *options);
void towers_free(struct towers *t);
void towers_set_team(struct towers *t, struct team *team);

/* How many of the first events of `events` may go into one towers_take: no step falls between them. At least 1. */
uint32_t towers_piece(const struct towers *t, const struct towers_event *events, uint32_t n);

/*
 * Reads n events, at most TOWERS_CALL_MAX, and encodes those with wants[i]. seen[n]. towers_read gives new items their
 * numbers and takes features; towers_take adds the events to the step, and makes it if they fill it. towers_ask: changes
 * nothing; for requests. The events and their ids must stay until towers_take.
 */
void towers_read(struct towers *t, const struct towers_event *events, uint32_t n, const uint8_t *wants,
                 struct towers_seen *seen);
void towers_take(struct towers *t);
void towers_ask(struct towers *t, const struct towers_event *events, uint32_t n, const uint8_t *wants,
                struct towers_seen *seen);

/* Adds an item or replaces its features. Returns false if there is no number for it, or its text is too long. The index
 * has it, by the weights of now, after towers_encode_new, which the caller calls before the next event. */
bool towers_put(struct towers *t, const struct items_value *item, const struct towers_ids *features,
                int64_t time_us);
/* Removes an item at once; false: it was not there. */
bool towers_remove(struct towers *t, uint64_t key);
void towers_encode_new(struct towers *t);

/* At the end of a micro-batch: expiry follows the watermark. */
void towers_set_watermark(struct towers *t, int64_t watermark_us);

/* Learning rates from now on. */
void towers_set_rates(struct towers *t, float rows, float dense);

/* saved.c: what learners/stored saves and restores. towers_tables, towers_parts: fill the caller's arrays, of
 * STORED_TABLES_MAX and STORED_PARTS_MAX - 2, and return how many. towers_check: after a restore, and after each cut that
 * was taken; NULL, or why the state cannot be used, as static text. */
struct table;
struct stored_part;
uint32_t towers_tables(struct towers *t, struct table **tables);
uint32_t towers_parts(struct towers *t, struct stored_part *parts);
const char *towers_check(struct towers *t);

struct catalogue *towers_items(struct towers *t);

struct towers_counts {
    uint64_t steps, targets, rejected; /* steps made so far, their targets, those that were not finite */
    uint32_t pending;                  /* events that wait for the next step */
    double loss;                       /* mean of the last step's targets */
};
struct towers_counts towers_counts(const struct towers *t);

/* Memory that the model takes once, in bytes, computed before it is made; step: what the largest step may come to take
 * beside that. */
struct towers_plan {
    size_t activations, parameters, scratch, step;
};
void towers_plan(const struct towers_options *options, struct towers_plan *plan);
size_t towers_step_bytes(const struct towers_options *options); /* towers_plan.step */

/* seen.c: the model for people. */
struct towers_memory_now {
    uint64_t items, unsearchable; /* items without a row in the index */
    uint64_t
        unnumbered; /* events and rows whose item got no number: there are items_max, or the text is too long */
    uint64_t rows;                   /* of queries' and features' ids */
    uint64_t users, without_history; /* with `history`; without: events whose user had no item before */
    size_t history_bytes;
    uint64_t rows_refused; /* optimizer steps that were not finite */
    size_t rows_bytes, items_bytes;
};
struct towers_memory_now towers_memory_now(const struct towers *t);

/* The layers' weights, then the rows of items, of features, of queries, under names[]. False: the visitor stopped. */
struct model_visitor;
bool towers_visit_weights(struct towers *t, const char *const *names, struct model_visitor *visitor);
/* Writes an item, a user's last items, or the row of a query's or a feature's id; false: there is none. Changes nothing. */
struct describe;
bool towers_describe_item(struct towers *t, uint64_t key, struct describe *out);
bool towers_describe_user(struct towers *t, uint64_t user, struct describe *out);
bool towers_describe_id(struct towers *t, bool is_feature, uint32_t field, uint64_t id, struct describe *out);

#endif
