/* Live state: what nodes store for keys now, read while the run goes on.
 *
 *     struct run_peek *peek = run_peek_new(node, pool, done, user);
 *     run_peek_add(peek, words, count) ...; run_peek_ask(run, peek); ... done: peek->end, peek->keys ... run_peek_free(peek);
 *
 * How it works. run_peek_ask hands each key to the lane that owns its state, and returns. A lane looks between two
 * micro-batches whether it is asked, an atomic load, and a lane that sleeps is woken. It reads by operator_kind.describe,
 * which changes nothing then: output, checkpoints and figures are those of a run that nobody asks. The answer is what
 * `leat state get` shows of a checkpoint after the same micro-batch. Lanes may be at different micro-batches, so each key
 * has its own.
 *
 * Bounds: RUN_PEEK_WAITING_MAX peeks wait in a run, each of RUN_PEEK_KEYS_MAX keys and about RUN_PEEK_BYTES_MAX of answers;
 * a lane gives 1 % of its time, saved up for a second at most. What is beyond is refused at once (RUN_PEEK_BUSY).
 *
 * Threads: a peek belongs to the thread that made it, but not from run_peek_ask until `done`. */
#ifndef LEAT_RUN_PEEK_H
#define LEAT_RUN_PEEK_H

#include "core/buffer.h"
#include "plan/plan.h"

enum { RUN_PEEK_KEYS_MAX = 100, RUN_PEEK_WAITING_MAX = 64, RUN_PEEK_BYTES_MAX = 1 << 20 };

enum run_peek_end {
    RUN_PEEK_DONE,  /* each key has its answer */
    RUN_PEEK_WRONG, /* a key cannot be one of the node: `why` says what was expected */
    RUN_PEEK_REFUSED, /* the node cannot tell while it works, or the answer is too long: `why` says what to do instead */
    RUN_PEEK_BUSY,  /* too many peeks wait, or a lane has given its share of time: ask again in a second */
    RUN_PEEK_OVER,  /* lanes do not work yet, or no longer: the run has ended, or failed */
    RUN_PEEK_WAITS, /* not answered yet: `done` will be called */
};

struct run_peek;

/* A key that is asked for. The answer is set with RUN_PEEK_DONE. */
struct run_peek_key {
    const struct str *words; /* of the peek's arena */
    uint32_t count;
    /* The number of the next micro-batch of the lane: the state is what those before it left. */
    uint64_t micro_batch;
    bool is_found;            /* something is stored for the key */
    struct byte_buffer state; /* a JSON object; without is_found: not to be used */
    /* For run/lanes. */
    struct run_peek *peek;
    struct batch *row; /* the key columns of its only row are set; NULL for a learner */
    uint64_t hash;     /* of the key */
    uint32_t instance; /* of the node: whom the key was handed to */
    enum run_peek_end end;
    struct run_peek_key *next;
};

struct run_peek {
    const struct plan_node *node;
    struct run_peek_key keys[RUN_PEEK_KEYS_MAX];
    uint32_t count;
    enum run_peek_end end;
    const char *why; /* "": nothing to say */
    void *user;
    /* For run/lanes. */
    void (*done)(struct run_peek *peek);
    uint32_t left;        /* keys that lanes have not read yet */
    _Atomic size_t bytes; /* of the answers so far */
    struct arena arena;
    struct batch_pool *pool; /* the caller's */
    struct run_peek *next;
};

/* Whether the node's state can be asked for by key. Any thread. */
bool run_peek_can(const struct plan_node *node);
/* pool: for a row of each key; it outlives the peek, and is best used for many: a new row costs 128 KiB of fresh pages.
 * done: called once on a lane's thread if run_peek_ask returns RUN_PEEK_WAITS; it must return soon, and may not ask or free. */
struct run_peek *run_peek_new(const struct plan_node *node, struct batch_pool *pool,
                              void (*done)(struct run_peek *peek), void *user);
void run_peek_free(struct run_peek *peek); /* NULL is allowed; not while it waits */
/* Adds a key, of at most RUN_PEEK_KEYS_MAX: a text for each key column of the node, as for `leat state get`, of a learner the
 * name of a sparse feature and a value. A text with data NULL is the value null. The texts are copied. False: they are no
 * key, and `why` says what was expected. */
LEAT_CHECKED bool run_peek_add(struct run_peek *peek, const struct str *words, uint32_t count);

struct run;
/* Sets and returns peek->end: RUN_PEEK_WAITS, _BUSY, _OVER, or _REFUSED where another worker has a key. Any thread; between run_new and run_free. */
enum run_peek_end run_peek_ask(struct run *run, struct run_peek *peek);

#endif
