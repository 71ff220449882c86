/* Peeks (run/peek.h): each lane has a queue of the keys that it is asked for, and reads them between two micro-batches.
 *
 * The time that a lane gives is measured and paid back: a nanosecond of peeks costs a hundred, counted from `peeks_paid_at`,
 * which lies a second in the past at most. A lane reads as long as that time has been reached, so one long answer makes the
 * next ones wait, and what the lane did not give in a second is lost. */
#include "run/lanes/internal.h"

#include "core/describe.h"
#include "core/os.h"

static const uint64_t PART_OF_TIME = 100, SAVED_NS = UINT64_C(1000000000);

static bool has_time(const struct lane *lane, uint64_t now)
{
    return atomic_load_explicit(&lane->peeks_paid_at, memory_order_relaxed) <= now;
}

static void spend(struct lane *lane, uint64_t ns, uint64_t now)
{
    uint64_t paid_at = atomic_load_explicit(&lane->peeks_paid_at, memory_order_relaxed);
    uint64_t from = MAX(paid_at, now > SAVED_NS ? now - SAVED_NS : 0);
    atomic_store_explicit(&lane->peeks_paid_at, from + ns * PART_OF_TIME, memory_order_relaxed);
}

/* --- Who asks --- */

static struct stage_instance *owner_of(struct run *run, const struct run_peek_key *key)
{
    return lanes_instance(run, key->peek->node->stage, key->instance);
}

/* Finds the instances that own the keys, as numbers among this worker's. A key group that is about to move may be with another one: that one
 * says so (read_key). False: another worker has a key; `why` says which. */
static bool find_owners(struct run *run, struct run_peek *peek)
{
    bool is_single = run->plan->stages[peek->node->stage].tag == STAGE_SINGLE;
    uint32_t home = is_single ? peers_home(run, peek->node->stage) : peers_self(run);
    for (uint32_t i = 0; i < peek->count && home == peers_self(run); i++) {
        struct run_peek_key *key = &peek->keys[i];
        uint32_t instance = key->row == NULL || is_single ? 0 : sequencer_instance(run, key->hash);
        if (key->row != NULL && !is_single)
            home = instance / run->lanes_count;
        key->instance = instance % run->lanes_count;
    }
    if (home == peers_self(run))
        return true;
    const char *const *addresses = run->options.peers->addresses;
    peek->end = RUN_PEEK_REFUSED;
    peek->why = arena_printf(
        &peek->arena,
        "worker %u%s%s has the state of that key: ask its control API, with one key at a time; or `leat state get` on a checkpoint",
        home, addresses == NULL ? "" : " at ", addresses == NULL ? "" : addresses[home]);
    return false;
}

/* Whether all lanes that own keys of the peek read them now; else why not. The caller holds peeks_mutex. */
static enum run_peek_end look_at_owners(struct run *run, const struct run_peek *peek)
{
    uint64_t now = os_monotonic_ns();
    enum run_peek_end end = run->lanes->peeks_waiting < RUN_PEEK_WAITING_MAX ? RUN_PEEK_WAITS : RUN_PEEK_BUSY;
    for (uint32_t i = 0; i < peek->count; i++) {
        const struct lane *lane = &run->lanes->lanes[owner_of(run, &peek->keys[i])->lane];
        if (!lane->takes_peeks)
            return RUN_PEEK_OVER;
        if (!has_time(lane, now))
            end = RUN_PEEK_BUSY;
    }
    return end;
}

enum run_peek_end lanes_peek(struct run *run, struct run_peek *peek)
{
    if (!find_owners(run, peek))
        return RUN_PEEK_REFUSED;
    pthread_mutex_lock(&run->lanes->peeks_mutex);
    enum run_peek_end end = peek->end = look_at_owners(run, peek);
    peek->left = peek->count;
    for (uint32_t i = 0; end == RUN_PEEK_WAITS && i < peek->count; i++) {
        struct run_peek_key *key = &peek->keys[i];
        struct lane *lane = &run->lanes->lanes[owner_of(run, key)->lane];
        key->next = lane->peeks;
        lane->peeks = key;
        atomic_store(&lane->has_peeks, true);
    }
    run->lanes->peeks_waiting += end == RUN_PEEK_WAITS;
    pthread_mutex_unlock(&run->lanes->peeks_mutex);
    if (end == RUN_PEEK_WAITS)
        run_wake(run);
    return end;
}

/* --- The lane's side --- */

static void say(struct run_peek_key *key, enum run_peek_end end, const char *why)
{
    key->end = end;
    buffer_clear(&key->state);
    buffer_printf(&key->state, "%s", why);
}

static struct node_instance *node_of(struct stage_instance *stage, const struct plan_node *node)
{
    uint32_t i = 0;
    while (stage->nodes[i].node != node)
        i++;
    return &stage->nodes[i];
}

/* Reads a key of the lane, whose stages are between two micro-batches. */
static void read_key(struct lane *lane, struct run_peek_key *key)
{
    struct run_peek *peek = key->peek;
    struct stage_instance *stage = owner_of(lane->run, key);
    if (key->row != NULL && stage->stage->tag != STAGE_SINGLE &&
        !group_set_has(&stage->groups, key_group(key->hash))) {
        key->end = RUN_PEEK_BUSY;
        return;
    }
    struct operator_context context = node_of(stage, peek->node)->context;
    struct diag_list diags;
    diag_list_init(&diags, &lane->peeks_scratch);
    context.counters = (struct counters){0};
    context.scratch = &lane->peeks_scratch;
    context.diags = &diags;
    context.team = NULL;
    struct state_query query = {.row = key->row, .words = key->words, .count = key->count, .is_live = true};
    struct describe out;
    size_t before = atomic_load(&peek->bytes);
    describe_begin(&out, &key->state, true);
    out.bytes_max = before < RUN_PEEK_BYTES_MAX ? RUN_PEEK_BYTES_MAX - before : 1;
    key->micro_batch = atomic_load_explicit(&stage->next, memory_order_relaxed);
    key->is_found = peek->node->operator_kind->describe(&context, &query, &out);
    if (diags.errors > 0)
        say(key, RUN_PEEK_WRONG,
            diags.items[0].hint == NULL
                ? diags.items[0].message
                : arena_printf(&lane->peeks_scratch, "%s: %s", diags.items[0].message, diags.items[0].hint));
    else if (query.refused != NULL)
        say(key, RUN_PEEK_REFUSED, query.refused);
    else if (key->is_found && describe_is_full(&out))
        say(key, RUN_PEEK_REFUSED,
            "the answer has more than 1 MiB: ask for fewer keys; `leat state get` on a checkpoint shows all of a key");
    else if (key->is_found)
        describe_end(&out);
    atomic_fetch_add(&peek->bytes, key->state.length);
    arena_reset(&lane->peeks_scratch);
}

static struct run_peek_key *take_keys(struct lane *lane, bool takes_more)
{
    struct lanes *lanes = lane->run->lanes;
    pthread_mutex_lock(&lanes->peeks_mutex);
    struct run_peek_key *keys = lane->peeks;
    lane->peeks = NULL;
    lane->takes_peeks = takes_more;
    atomic_store(&lane->has_peeks, false);
    pthread_mutex_unlock(&lanes->peeks_mutex);
    return keys;
}

/* Gives keys back, and tells of the peeks whose last keys they are. */
static void give_keys(struct lane *lane, struct run_peek_key *keys)
{
    struct lanes *lanes = lane->run->lanes;
    struct run_peek *done = NULL;
    pthread_mutex_lock(&lanes->peeks_mutex);
    for (struct run_peek_key *key = keys, *next; key != NULL; key = next) {
        struct run_peek *peek = key->peek;
        next = key->next;
        if (peek->end == RUN_PEEK_WAITS && key->end != RUN_PEEK_DONE) {
            peek->end = key->end;
            peek->why = key->state.length == 0 ? "" : key->state.data;
        }
        if (--peek->left > 0)
            continue;
        if (peek->end == RUN_PEEK_WAITS)
            peek->end = RUN_PEEK_DONE;
        lanes->peeks_waiting--;
        peek->next = done;
        done = peek;
    }
    pthread_mutex_unlock(&lanes->peeks_mutex);
    for (struct run_peek *next; done != NULL; done = next) {
        next = done->next; /* `done` gives the peek away */
        done->done(done);
    }
}

void peek_serve(struct lane *lane)
{
    uint64_t from = os_monotonic_ns();
    struct run_peek_key *keys = take_keys(lane, true);
    for (struct run_peek_key *key = keys; key != NULL; key = key->next) {
        if (has_time(lane, from))
            read_key(lane, key);
        else
            key->end = RUN_PEEK_BUSY;
        uint64_t now = os_monotonic_ns();
        spend(lane, now - from, now);
        from = now;
    }
    give_keys(lane, keys);
}

void peek_begin(struct lane *lane)
{
    leat_assert(take_keys(lane, true) == NULL);
}

void peek_end(struct lane *lane)
{
    struct run_peek_key *keys = take_keys(lane, false);
    for (struct run_peek_key *key = keys; key != NULL; key = key->next)
        key->end = RUN_PEEK_OVER;
    give_keys(lane, keys);
}
