#include "run/base/loads.h"

#include "core/mem.h"
#include "core/placement_balance.h"
#include "run/base/peers.h"

#include <stdlib.h>

enum {
    ROWS_LEAST = 1000,                     /* by instance: with fewer, chance alone makes some busy */
    WORDS_BITS = 48,                       /* of what a worker says of a stage: then no sum overflows */
    ASKED_CHANGES_MAX = 2 * BALANCE_SHARE, /* of one run_ask_moves that is to balance */
};

struct loads {
    pthread_mutex_t mutex;
    struct stage_load *stages; /* of all workers, since the last decision; by stage */
    struct balance balance;
    bool is_measured;
    bool is_named[KEY_GROUPS]; /* groups of which the log has said that they are too large */
    uint32_t hot;
    uint64_t times[PLAN_STAGES_MAX]; /* of all workers, in this life */
    /* State of each worker, as it said last; and that of all by group, with queues. */
    struct worker_weight {
        uint64_t bytes[KEY_GROUPS];
        uint64_t queued[PLAN_STAGES_MAX];
    } weights[RUN_WORKERS_MAX];
    double bytes[KEY_GROUPS];
    struct run_moves_asked asked;
    struct run_moves moves;
    struct loads_change change; /* groups 0: it was taken */
};

void loads_init(struct run *run)
{
    run->loads = mem_calloc(1, sizeof(*run->loads));
    run->loads->stages = mem_calloc(run->plan->stages_count, sizeof(*run->loads->stages));
    pthread_mutex_init(&run->loads->mutex, NULL);
}

void loads_free(struct run *run)
{
    if (run->loads == NULL)
        return;
    pthread_mutex_destroy(&run->loads->mutex);
    free(run->loads->stages);
    free(run->loads);
}

bool loads_is_keyed(const struct run *run, uint32_t stage)
{
    return stage > 0 && run->plan->stages[stage].tag != STAGE_SINGLE;
}

static void add_load(struct run *run, uint32_t worker, const struct worker_load *load)
{
    struct loads *loads = run->loads;
    struct worker_weight *weight = &loads->weights[worker];
    pthread_mutex_lock(&loads->mutex);
    memcpy(weight->bytes, load->bytes, sizeof(weight->bytes));
    for (uint32_t i = 0; i < run->plan->stages_count; i++) {
        const struct stage_load *from = &load->stages[i];
        loads->stages[i].ns += from->ns;
        loads->times[i] += from->ns;
        weight->queued[i] = from->queued;
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            loads->stages[i].rows[group] += from->rows[group];
    }
    pthread_mutex_unlock(&loads->mutex);
}

void loads_add(struct run *run, const struct worker_load *load)
{
    add_load(run, peers_self(run), load);
}

void loads_say(const struct run *run, const struct worker_load *load)
{
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_LOAD);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        words_put(&message, load->bytes[group]);
    for (uint32_t i = 0; i < run->plan->stages_count; i++) {
        const struct stage_load *stage = &load->stages[i];
        words_put(&message, stage->ns);
        words_put(&message, stage->queued);
        for (uint32_t group = 0; loads_is_keyed(run, i) && group < KEY_GROUPS; group++)
            words_put(&message, stage->rows[group]);
    }
    peers_send(run, run->options.peers->leader, &message);
    buffer_free(&message);
}

bool loads_take(struct run *run, uint32_t worker, struct words *message)
{
    if (run->loads == NULL || !peers_is_leader(run))
        return false;
    struct worker_load *load = mem_calloc(1, sizeof(*load));
    uint64_t bits = 0; /* of all words */
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        bits |= load->bytes[group] = words_take(message);
    for (uint32_t i = 0; i < run->plan->stages_count; i++) {
        struct stage_load *stage = &load->stages[i];
        bits |= stage->ns = words_take(message);
        bits |= stage->queued = words_take(message);
        for (uint32_t group = 0; loads_is_keyed(run, i) && group < KEY_GROUPS; group++)
            bits |= stage->rows[group] = words_take(message);
    }
    bool is_good = peers_is_whole(message) && bits >> WORDS_BITS == 0;
    if (is_good)
        add_load(run, worker, load);
    free(load);
    return is_good;
}

/* --- Deciding --- */

/* Spreads what a stage has over its rows. */
static void spread(double by_group[KEY_GROUPS], const struct stage_load *stage, double amount, uint64_t rows)
{
    for (uint32_t group = 0; group < KEY_GROUPS && rows > 0; group++)
        by_group[group] += (double)stage->rows[group] * amount / (double)rows;
}

/* The time that all stages took for rows of each group, and the bytes of their state: a stage's time, and its queues, are spread over its
 * rows. Returns the number of rows. */
static uint64_t combine(const struct run *run, double load[KEY_GROUPS], double bytes[KEY_GROUPS])
{
    const struct loads *loads = run->loads;
    uint64_t all = 0;
    memset(load, 0, KEY_GROUPS * sizeof(*load));
    memset(bytes, 0, KEY_GROUPS * sizeof(*bytes));
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            bytes[group] += (double)loads->weights[worker].bytes[group];
    for (uint32_t i = 0; i < run->plan->stages_count; i++) {
        const struct stage_load *stage = &loads->stages[i];
        uint64_t rows = 0, queued = 0;
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            rows += stage->rows[group];
        for (uint32_t worker = 0; worker < peers_count(run); worker++)
            queued += loads->weights[worker].queued[i];
        spread(load, stage, (double)MAX(stage->ns, 1), rows);
        spread(bytes, stage, (double)queued, rows);
        all += rows;
    }
    return all;
}

static uint32_t count_hot(const struct run *run)
{
    double share;
    uint32_t count = 0, instances = peers_instances(run);
    for (uint32_t group = 0;
         (group = balance_hot(&run->loads->balance, instances, group, &share)) < KEY_GROUPS; group++)
        count++;
    return count;
}

/* Takes in what has come since the last decision, if that is enough. Whether groups are to move by load. */
static bool measure(struct run *run, const struct placement *now)
{
    struct loads *loads = run->loads;
    double load[KEY_GROUPS], bytes[KEY_GROUPS];
    if (combine(run, load, bytes) < (uint64_t)ROWS_LEAST * peers_instances(run))
        return false;
    memset(loads->stages, 0, run->plan->stages_count * sizeof(*loads->stages));
    memcpy(loads->bytes, bytes, sizeof(bytes));
    bool moves = balance_measure(&loads->balance, now, load);
    loads->is_measured = true;
    loads->hot = count_hot(run);
    return moves && !run->options.moves_when_asked;
}

/* The next change of what was asked for. */
static struct balance_moves do_asked(struct run *run, struct placement *next)
{
    struct loads *loads = run->loads;
    struct run_moves *done = &loads->moves;
    const double *load = loads->balance.load;
    const bool balances = loads->asked.balances;
    struct balance_moves moves = {0};
    if (balances && !loads->is_measured)
        return moves; /* more rows come */
    double imbalance = placement_imbalance(next, load);
    double bearable = done->changes == 0 ? BALANCE_ENDS : BALANCE_BEGINS;
    if (!balances)
        moves = placement_gather(next, &loads->asked.groups, loads->asked.worker * run->lanes_count,
                                 run->lanes_count, load, loads->bytes);
    else if (imbalance > bearable && done->changes < ASKED_CHANGES_MAX)
        moves = placement_balance(next, load, loads->bytes);
    done->state = moves.groups > 0 ? RUN_MOVES_WORK : RUN_MOVES_DONE;
    done->before = done->changes == 0 ? imbalance : done->before;
    done->after = placement_imbalance(next, load);
    done->changes += moves.groups > 0;
    done->groups += moves.groups;
    done->bytes += (uint64_t)moves.bytes;
    return moves;
}

static void note_change(struct loads *loads, const struct placement *next, struct balance_moves moves,
                        double before, bool balances)
{
    if (moves.groups == 0)
        return;
    loads->change = (struct loads_change){.groups = moves.groups,
                                          .bytes = moves.bytes,
                                          .before = before,
                                          .after = placement_imbalance(next, loads->balance.load)};
    loads->balance.goes_on = balances && loads->change.after > BALANCE_BEGINS;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        loads->change.of_bytes += loads->bytes[group];
}

bool loads_decide(struct run *run, struct placement *next)
{
    struct loads *loads = run->loads;
    struct balance_moves moves = {0};
    pthread_mutex_lock(&loads->mutex);
    bool moves_by_load = measure(run, next);
    double before = placement_imbalance(next, loads->balance.load);
    bool is_asked = loads->moves.state == RUN_MOVES_MEASURE || loads->moves.state == RUN_MOVES_WORK;
    if (is_asked)
        moves = do_asked(run, next);
    else if (moves_by_load)
        moves = placement_balance(next, loads->balance.load, loads->bytes);
    note_change(loads, next, moves, before, !is_asked || loads->asked.balances);
    pthread_mutex_unlock(&loads->mutex);
    return moves.groups > 0;
}

bool loads_take_change(struct run *run, struct loads_change *change)
{
    struct loads *loads = run->loads;
    pthread_mutex_lock(&loads->mutex);
    *change = loads->change;
    loads->change.groups = 0;
    pthread_mutex_unlock(&loads->mutex);
    return change->groups > 0;
}

/* --- What is asked for --- */

void loads_ask(struct run *run, const struct run_moves_asked *asked)
{
    struct loads *loads = run->loads;
    pthread_mutex_lock(&loads->mutex);
    loads->asked = *asked;
    loads->moves = (struct run_moves){.state = RUN_MOVES_MEASURE};
    pthread_mutex_unlock(&loads->mutex);
}

void loads_look(struct run *run, struct run_moves *moves)
{
    struct loads *loads = run->loads;
    pthread_mutex_lock(&loads->mutex);
    *moves = loads->moves;
    pthread_mutex_unlock(&loads->mutex);
}

void loads_times(struct run *run, uint64_t ns[PLAN_STAGES_MAX])
{
    struct loads *loads = run->loads;
    if (loads == NULL)
        return;
    pthread_mutex_lock(&loads->mutex);
    for (uint32_t i = 0; i < run->plan->stages_count; i++)
        ns[i] += loads->times[i];
    pthread_mutex_unlock(&loads->mutex);
}

/* --- Figures --- */

uint32_t loads_next_hot(struct run *run, uint32_t from, double *share)
{
    struct loads *loads = run->loads;
    pthread_mutex_lock(&loads->mutex);
    do
        from = balance_hot(&loads->balance, peers_instances(run), from, share);
    while (from < KEY_GROUPS && loads->is_named[from] && ++from < KEY_GROUPS);
    if (from < KEY_GROUPS)
        loads->is_named[from] = true;
    pthread_mutex_unlock(&loads->mutex);
    return from;
}

void loads_figures(const struct run *run, double *imbalance, uint32_t *hot)
{
    struct loads *loads = run->loads;
    *imbalance = 0;
    *hot = 0;
    if (loads == NULL)
        return;
    pthread_mutex_lock(&loads->mutex);
    *imbalance = loads->is_measured ? loads->balance.imbalance : 0;
    *hot = loads->hot;
    pthread_mutex_unlock(&loads->mutex);
}
