/*
 * A model of what users do next: a network encodes the window of a user's last events (learners/train/windows.h) as
 * a query, a vector of `dim` floats, which is compared with the rows of items. It reads decoded events, keeps their
 * users' histories, gives queries, and learns; it knows nothing of jobs, lanes or the engine's batches.
 *
 * Order of updates:
 *   - An event is encoded from what came before it: events of its user in the same call included. Then it is appended
 *     to its user's history, unless its item has no number and does not teach.
 *   - The query is that of the last step's weights. When `batch` events that teach have come, the step is made: each
 *     event's window has one target, the item that came; each of the `rehearse` times as many older windows, of
 *     users drawn from all, has a target at each position but the last, the item of the next one.
 *   - With masked_share, each of these windows is encoded once more with some of its items hidden (masked.c), and
 *     those are its targets. An event without a label has such a window and no other target.
 *   - The step's loss is the mean over its targets, plus masked_weight times the mean over those that are hidden.
 * The result does not depend on how events are cut into calls.
 *
 * The input of the network for a token: sqrt(dim) times the row of its item, plus the rows of what stood beside it
 * (`sides`). A query is the output at the window's last token, plus the rows of the event's own `contexts`. Items
 * compare by the same rows that tokens read (Kang and McAuley 2018, eq. 6: shared item embedding).
 *
 * One thread owns a model; a team may help it within calls.
 */
#ifndef LEAT_LEARNERS_SEQUENTIAL_SEQUENTIAL_H
#define LEAT_LEARNERS_SEQUENTIAL_SEQUENTIAL_H

#include "learners/histories/histories.h"
#include "learners/items/catalogue.h"
#include "learners/losses/losses.h"
#include "learners/options.h"

enum {
    SEQUENTIAL_SIDES_MAX = HISTORY_SIDES_MAX,
    SEQUENTIAL_CONTEXTS_MAX = 4,
    SEQUENTIAL_CALL_MAX = 1024,      /* events of a call */
    SEQUENTIAL_BATCH_MAX = 1023,     /* events of a step: a step is one slice (kernels/slices.h) */
    SEQUENTIAL_VALUES_MAX = 1 << 24, /* distinct values of a side or a context */
};

struct train_device;
struct sequential_options {
    const struct kernels *kernels;
    /* A GPU for the network (network.c), open until the model is freed; NULL: the CPU. All else is on the CPU. */
    const struct train_device *device;
    const struct network *network; /* network_sasrec or network_hstu, with its own options */
    const void *network_own;
    uint32_t dim, history, sides, contexts, batch, rehearse;
    uint32_t passes; /* over the histories, when the input has ended; 0: events teach when they come */
    bool marks;      /* histories tell which events do not teach or have no label, in a side more; false: all
                        teach what comes next */
    bool recompute;  /* net_options.recompute */
    /* The share of each window's items that are hidden, and predicted from both sides; 0: none. What they count in
     * the loss. */
    double masked_share, masked_weight;
    float clip_norm; /* of the dense weights' gradient; 0: no limit */
    float init;      /* rows begin uniform in +- init */
    /* Likewise the weights of the layers; 0: each layer has its own bound (net_add_dense). */
    float init_dense;
    struct optimizer_options rows, dense;
    const struct losses_kind *loss;
    struct losses_options losses;
    uint32_t items_max;
    int64_t
        expire_after_us; /* of items and of users' histories; 0: never. Values beside them do not expire */
    uint32_t shards;
    uint64_t seed;
    /* Told when an item has gone; may not call the model. NULL: nobody is told. */
    void (*removed)(void *of, uint32_t number);
    void *removed_of;
};

/* An event. A value with key 0 is absent. */
struct sequential_event {
    uint64_t user;           /* 64-bit hash, not 0 */
    struct items_value item; /* key 0: a request, which has no item */
    struct items_value sides[SEQUENTIAL_SIDES_MAX], contexts[SEQUENTIAL_CONTEXTS_MAX];
    int64_t time_us;
    uint64_t identity; /* hash of the event's content, for chance */
    bool teaches;
    bool is_unlabelled; /* it teaches by what is hidden of its window alone: marks, and masked_share > 0 */
};

/* What is known of an event before it is learned. */
struct sequential_seen {
    uint32_t length;       /* tokens of its window; 0: there is no query */
    const float *query;    /* [dim], valid until the next call; NULL: there is none */
    bool is_known;         /* the item was there before the event */
    struct items_ref item; /* if the item has a number now */
    const uint32_t
        *history; /* [length] numbers of the window's items that are still there; for `seen: dropped` */
    uint32_t history_length;
};

struct sequential;
struct team;
struct targets_options;

/* What the model will ask of its losses: for targets_check, before it is made. */
struct targets_options sequential_targets(const struct sequential_options *options);

/* On a GPU: ask sequential_error; a model whose device has failed can only be freed. */
struct sequential *sequential_new(const struct sequential_options *options);
void sequential_free(struct sequential *s);
void sequential_set_team(struct sequential *s, struct team *team);
/* The first failure of the GPU, which is sticky: queries and steps behind it are nothing, and must not be used. NULL:
 * none, or the network is on the CPU. sequential_busy_ms: how long the GPU was busy. */
struct gpu_error;
const struct gpu_error *sequential_error(const struct sequential *s);
double sequential_busy_ms(struct sequential *s);

/* How many of the first events of `events` may go into one sequential_take: no step falls between them. At least 1. */
uint32_t sequential_piece(const struct sequential *s, const struct sequential_event *events, uint32_t n);

/* keep.c. sequential_set_cold: before the first event and before a restore; make() returns a cold store
 * (core/cold_store.h) for rows of `row_bytes` of table `number` of sequential_tables, which the model frees. Then
 * sequential_keep, between calls, moves users' entries there while all that the model has takes more than about `bytes`.
 * Items, the index of users, weights and activations stay in memory. */
struct cold_store;
void sequential_set_cold(struct sequential *s,
                         struct cold_store *(*make)(void *of, uint32_t number, size_t row_bytes), void *of);
void sequential_keep(struct sequential *s, size_t bytes);

/*
 * Reads the windows of n events, at most SEQUENTIAL_CALL_MAX, and encodes those with wants[i] (NULL: none). seen[n].
 * sequential_take: gives new items their numbers, and appends the events afterwards; makes the step if the events fill it.
 * sequential_ask: changes nothing, each event as if it came next; for requests.
 */
void sequential_read(struct sequential *s, const struct sequential_event *events, uint32_t n,
                     const uint8_t *wants, struct sequential_seen *seen);
void sequential_take(struct sequential *s);
void sequential_ask(struct sequential *s, const struct sequential_event *events, uint32_t n,
                    const uint8_t *wants, struct sequential_seen *seen);

/* ask.c: for a model on the CPU that answers requests and does not learn: keeps keys and values of its users, in up to
 * budget_bytes; is_bf16: rounded. sequential_cache_clear: call it when anything of the state has changed. */
void sequential_set_cache(struct sequential *s, size_t budget_bytes, bool is_bf16);
void sequential_cache_clear(struct sequential *s);

/* With `passes`, when the input has ended: whether passes are left; makes their next step; the share of all passes that
 * is done. */
bool sequential_has_passes(const struct sequential *s);
void sequential_learn_pass(struct sequential *s);
double sequential_passes_share(const struct sequential *s);

/* At the end of a micro-batch: expiry follows the watermark. */
void sequential_set_watermark(struct sequential *s, int64_t watermark_us);

/* Learning rates from now on. */
void sequential_set_rates(struct sequential *s, float rows, float dense);

/* saved.c: what learners/stored saves and restores. sequential_tables, sequential_parts: fill the caller's arrays, of
 * STORED_TABLES_MAX and STORED_PARTS_MAX - 2, and return how many. sequential_check: after a restore, and after each cut
 * that was taken; NULL, or why the state cannot be used, as static text. */
struct table;
struct stored_part;
uint32_t sequential_tables(struct sequential *s, struct table **tables);
uint32_t sequential_parts(struct sequential *s, struct stored_part *parts);
const char *sequential_check(struct sequential *s);

struct catalogue *sequential_items(struct sequential *s);
/* Steps made so far; their targets, and those of them that were rejected; optimizer steps of rows that were refused
 * because a gradient was not finite; events that wait for the next step; mean loss of the last step's targets. masked:
 * those of the targets that were hidden; masked_loss: their mean loss. A step without a target leaves the loss as it
 * was. */
struct sequential_counts {
    uint64_t steps, targets, masked, rejected, rows_refused;
    uint32_t pending;
    double loss, masked_loss;
};
struct sequential_counts sequential_counts(const struct sequential *s);

/* Memory that the model takes once, in bytes, computed before it is made: of the network, where it is; pinned: with a
 * GPU, of the host. step, call: what the largest step, and the windows of the largest call, may come to take of the
 * host's beside that. */
struct sequential_plan {
    size_t input, activations, parameters, scratch, pinned, step, call;
};
void sequential_plan(const struct sequential_options *options, struct sequential_plan *plan);

/* seen.c: the model for people. */
struct sequential_memory_now {
    uint64_t items, unsearchable; /* items without a row in the index */
    uint64_t unnumbered; /* events whose item got no number: there are items_max, or the text is too long */
    uint64_t users, entries;
    uint64_t cold; /* users whose entries are in a cold store alone */
    size_t history_bytes, items_bytes;
};
struct sequential_memory_now sequential_memory_now(const struct sequential *s);

/* The network's weights, then the rows of items, sides and contexts, under names[]. False: the visitor stopped. */
struct model_visitor;
bool sequential_visit_weights(struct sequential *s, const char *const *names, struct model_visitor *visitor);
/* Writes a user's history, or an item's row; false: there is none. Changes nothing. */
struct describe;
bool sequential_describe_user(struct sequential *s, uint64_t user, struct describe *out);
bool sequential_describe_item(struct sequential *s, uint64_t key, struct describe *out);

#endif
