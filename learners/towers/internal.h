/* What the files of this folder share. The thread that owns the model makes all calls. */
#ifndef LEAT_LEARNERS_TOWERS_INTERNAL_H
#define LEAT_LEARNERS_TOWERS_INTERNAL_H

#include "learners/histories/histories.h"
#include "learners/losses/popular.h"
#include "learners/losses/targets.h"
#include "learners/towers/tower.h"
#include "learners/towers/towers.h"

/* What is known of an item besides its row: the payload of the table `about`, under the item's key. Behind it lie the
 * features' ids, each with its own room, and the vector that the index has. */
struct towers_about {
    uint32_t is_encoded, unused;
    uint16_t counts[TOWERS_FEATURES_MAX];
};

/* An event that waits for its step. */
struct towers_waiting {
    uint64_t identity;
    struct items_ref item;
    uint32_t seconds;
    uint16_t counts[TOWERS_QUERY_MAX];
    size_t first; /* of its ids */
};

struct towers {
    struct towers_options options;
    struct tower query, item;
    struct catalogue *items;
    struct table about;
    size_t ids_at[TOWERS_FEATURES_MAX], vector_at; /* offsets in a payload of `about` */
    struct towers_about **about_of;                /* by number, of items that are there */
    uint32_t *encoded_in; /* by number: low bits of the step after which it was encoded */
    uint32_t numbers_room;
    struct targets *targets;
    /* The events of a call. */
    const struct towers_event *events;
    uint32_t events_count;
    struct towers_ids call_ids[TOWERS_CALL_MAX];
    uint32_t call_seconds[TOWERS_CALL_MAX];
    uint8_t call_teaches[TOWERS_CALL_MAX];
    struct items_ref call_items[TOWERS_CALL_MAX];
    float *queries; /* [TOWERS_CALL_MAX][width] */
    /* The events that wait for the step, and their ids. */
    struct towers_waiting *waiting; /* [batch] */
    uint32_t waiting_count;
    uint64_t *waiting_ids;
    size_t waiting_ids_count, waiting_ids_room;
    /* A step: its targets, and its items. */
    uint32_t *numbers;
    uint64_t *identities;
    float *weights, *vectors, *gradients; /* [batch], and [batch][width] */
    double *losses;
    uint8_t *is_rejected, *taught;
    uint32_t items_room;
    float *item_vectors, *item_gradients; /* [items_room][width] */
    const float **item_rows;
    uint8_t *item_taught;
    uint64_t *item_ids;      /* [items_room] of the items that are in the item tower: number plus 1 */
    const uint32_t *at_work; /* and their numbers */
    /* Numbers to be encoded. */
    uint32_t *wanted;
    size_t wanted_count, wanted_room;
    uint32_t cursor; /* the next number that is encoded in turn */
    /* alike.c, with `history`: else NULL and 0. The windows of a call's events lie one behind the other: items that are
     * there, oldest first, their keys and numbers. */
    struct histories *histories;
    struct popularity popular;
    uint64_t occurrences; /* of items in events that taught */
    uint64_t without_history;
    struct history_entry *past;
    uint64_t *past_keys;
    uint32_t *past_numbers;
    size_t past_count, past_room;
    size_t past_at[TOWERS_CALL_MAX];
    uint16_t past_counts[TOWERS_CALL_MAX];
    uint32_t *centers; /* [batch] numbers of the first items of a step's pairs */
    int64_t watermark_us;
    uint64_t steps, targets_learned, targets_rejected, unnumbered;
    double loss; /* mean of the last step's targets */
};

/* items.c */
void towers_make_items(struct towers *t);
/* The number's row of `about`, after catalogue_add has made the item. */
void towers_know(struct towers *t, uint64_t key, uint32_t number);
/* True: they are others than before. */
bool towers_set_features(struct towers *t, uint32_t number, const struct towers_ids *features);
/* Items numbers[n], which are there, go into the item tower: with their rows as they are, or as part of a step. */
void towers_bring_items(struct towers *t, const uint32_t *numbers, uint32_t n);
/* A number to be encoded, once in a step. */
void towers_want(struct towers *t, uint32_t number);
/* The wanted items that are still there are encoded into the index. */
void towers_encode_wanted(struct towers *t);
/* After a step: its items, and those whose turn it is. */
void towers_encode_after(struct towers *t, const uint32_t *numbers, uint32_t n);
const float *towers_encoded(const struct towers *t, const struct towers_about *about);

/* towers.c. An event, or a pair, that waits for its step. */
void towers_add_waiting(struct towers *t, uint64_t identity, struct items_ref item, uint32_t seconds,
                        const struct towers_ids *ids);

/* alike.c. Event i of the call, one after the other from 0 on: reads its window; joins: its item becomes part of it. */
void towers_alike_make(struct towers *t);
void towers_alike_free(struct towers *t);
void towers_alike_read(struct towers *t, uint32_t i, bool joins);
/* What the query of event i is the mean of, when all have been read; false: there is no query. */
bool towers_alike_ids(const struct towers *t, uint32_t i, struct towers_ids *ids, struct towers_seen *seen);
/* Event i teaches: its pairs wait for a step, and make those that they fill. */
void towers_alike_take(struct towers *t, uint32_t i);
/* The own vectors of items that are there, for the index; is_there[i]: it has one. */
void towers_alike_encode(struct towers *t, const uint32_t *numbers, uint32_t n, float *vectors,
                         uint8_t *is_there);
void towers_alike_save(const struct towers *t, struct byte_buffer *out);
const char *towers_alike_load(struct towers *t, const void *data, size_t bytes);
const char *towers_alike_check(struct towers *t);

/* step.c. The waiting events make their step. */
void towers_step_begin(struct towers *t);
void towers_step(struct towers *t);
void towers_step_free(struct towers *t);

#endif
