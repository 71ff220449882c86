/* A small engine for tests of keyed operators: one operator on some lanes, with real state and real
 * checkpoints. It stands in for engine/run: a micro-batch is a list of rows; each lane gets the rows whose
 * keys it owns, in batches of random size, then the watermark; the rows that the lanes emit are merged by
 * row_order into one text.
 *
 * Both inputs have the columns id: int, k: int, x: int, v: float, s: text, b: bool, ts: time, l: list(int),
 * which carry lineage bits 0..7 and 16..23. Rows arrive FAKE_ARRIVAL_US after their event time. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_FAKE_ENGINE_H
#define LEAT_TESTS_UNIT_SUPPORT_FAKE_ENGINE_H

#include "core/buffer.h"
#include "core/operator_state.h"
#include "state/checkpoint.h"
#include "state/state.h"
#include "unit/support/fake_calls.h"
#include "unit/support/random.h"

enum { FAKE_LANES_MAX = 8, FAKE_LABEL_ROOT = 100, FAKE_ARRIVAL_US = 5000000, FAKE_ROUNDS = 3 };

/* One row. ts: its event time. k, x and v are null without has_k, has_x, has_v. */
struct fake_row {
    uint32_t input;
    int64_t id, k, x, ts;
    double v;
    const char *s; /* NULL: null */
    bool b;
    bool has_k, has_x, has_v;
    uint32_t list; /* number of elements of l: id, id + 1, ...; UINT32_MAX: null */
};

struct fake_engine {
    struct fake_calls calls;
    struct arena arena;
    struct diag_list diags;
    struct batch_pool *pool;
    struct schema *schema[FAKE_INPUTS];
    const struct operator_kind *kind;
    void *master;
    struct operator_bind bind;
    struct operator_context lanes[FAKE_LANES_MAX];
    struct arena scratch[FAKE_LANES_MAX];
    uint32_t lanes_count;
    /* Key groups lie in ranges at the first start of the lanes, here and there at the second, and so on. */
    uint32_t starts;
    struct placement placement;
    struct group_set groups[FAKE_LANES_MAX];
    bool is_announced;     /* `next` is to come */
    struct placement next; /* of which `round` rounds of bases were given */
    uint32_t round;
    int64_t memory_bytes;
    const struct registry *registry; /* the sources that a step may open; NULL: none */
    struct state_store *store;
    const char *path; /* NULL: in memory */
    struct checkpoint_dir *dir;
    struct checkpoint_writer *writer;
    struct str barrier_state;  /* watermark, micro-batch number, rows given, counters, stays at the barrier */
    struct test_random random; /* for the sizes of batches */
    uint64_t micro_batch, epoch;
    int64_t watermark;
    uint64_t rows_given;
    /* Emitted rows as text, one a line, with `|` between columns. late: those of side outputs, with "2> "
     * before rows of output 2, and so on. */
    struct byte_buffer output, late;
    struct byte_buffer dead;    /* the reasons of rejected rows, one a line */
    struct byte_buffer pending; /* struct fake_emitted of the micro-batch in progress */
    uint32_t rejects;
    uint32_t batch_rows_max; /* rows of the largest batch that was emitted */
    bool is_out_of_order;    /* a lane emitted rows against row_order */
};

/* path: the checkpoint directory, or NULL: state in memory. inputs: 1, or 2 for operators that read a second
 * stream, named `other`. */
void fake_open(struct fake_engine *engine, const char *path, uint32_t inputs);
void fake_close(struct fake_engine *engine);
/* Binds a step like "dedup by k within 1h"; returns false after a diagnostic. */
bool fake_bind(struct fake_engine *engine, const char *step, uint32_t inputs);
/* Opens the operator on so many lanes, which share memory_bytes; restores the newest checkpoint if
 * there is one. */
void fake_start(struct fake_engine *engine, uint32_t lanes, int64_t memory_bytes);
/* Ends the lanes and the store, as a kill would: what was not published is gone. */
void fake_stop(struct fake_engine *engine);
/* Runs one micro-batch, then its watermark. */
void fake_micro_batch(struct fake_engine *engine, const struct fake_row *rows, uint32_t count,
                      int64_t watermark);
/* Asks lane 0 what rows of input 0 would become, each if it came next (operator_kind.read). Appends what it
 * answers to `answers`, in the form of output, late and dead. */
struct fake_answers {
    struct byte_buffer output, late, dead;
};
void fake_ask(struct fake_engine *engine, const struct fake_row *rows, uint32_t count,
              struct fake_answers *answers);
void fake_answers_free(struct fake_answers *answers);
/* Takes a barrier now; fake_publish writes the checkpoint later, also after further micro-batches. */
void fake_barrier(struct fake_engine *engine);
void fake_publish(struct fake_engine *engine, bool is_abandoned);
/* Moves of key groups, as the engine makes them (run/base/placements.h), on several lanes. fake_announce: right behind a barrier: that
 * placement comes behind the next one. fake_bases: then, between micro-batches, FAKE_ROUNDS times: gives and takes a round of the
 * bases. fake_change: right behind the next barrier. fake_move_all: all that, two barriers included, for all key groups: they go to the
 * lane; the checkpoint of the second barrier is under way. */
void fake_announce(struct fake_engine *engine, const struct placement *next);
void fake_bases(struct fake_engine *engine);
void fake_change(struct fake_engine *engine);
void fake_move_all(struct fake_engine *engine, uint32_t lane);
/* Appends the bytes of the operator's records in the newest checkpoint. */
void fake_saved(struct fake_engine *engine, struct byte_buffer *records);
/* The sum of the lanes' counters. */
struct counters fake_counters(const struct fake_engine *engine);
/* The first diagnostic with the code, or NULL. */
const struct diag *fake_diag(const struct fake_engine *engine, enum diag_code code);

#endif
