#include "workers.h"

#include "cli/commands.h"
#include "core/buffer.h"
#include "core/key.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/base/barrier.h"
#include "state/checkpoint.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Messages of one sender to one receiver. */
struct queue {
    struct byte_buffer bytes; /* each with its length before it */
    size_t flushed;           /* of the bytes: the sender has let them go */
    size_t taken;
    bool has_refused; /* for want of room; the sender's run has not been told that there is room since */
};

struct worker {
    struct workers *workers;
    struct run_peers peers;
    char directory[64];
    struct run *run;
    struct queue queues[RUN_WORKERS_MAX]; /* by sender */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    pthread_t thread;
    uint64_t draws;
    uint64_t refusals; /* times that a link to this worker was full */
    bool must_end;
};

struct workers {
    uint8_t homes[PLAN_STAGES_MAX]; /* run_peers.homes */
    uint32_t count;
    uint64_t seed;
    const struct way *way;
    struct worker items[RUN_WORKERS_MAX];
};

/* Implements run_peers.send: as a link with such a window. */
static bool send_message(void *engine, uint32_t to, struct str message)
{
    struct worker *from = engine, *worker = &from->workers->items[to];
    uint64_t length = message.length;
    size_t window = from->workers->way != NULL ? from->workers->way->window : 0;
    pthread_mutex_lock(&worker->mutex);
    struct queue *queue = &worker->queues[from->peers.self];
    size_t left = queue->bytes.length - queue->taken;
    bool has_room = window == 0 || left == 0 || left + sizeof(length) + message.length <= window;
    if (has_room) {
        buffer_append(&queue->bytes, &length, sizeof(length));
        buffer_append(&queue->bytes, message.data, message.length);
    } else {
        worker->refusals += !queue->has_refused;
        queue->has_refused = true;
        queue->flushed = queue->bytes.length; /* a full link carries what it has */
        pthread_cond_signal(&worker->condition);
    }
    pthread_mutex_unlock(&worker->mutex);
    return has_room;
}

/* Implements run_peers.flush: no message arrives before it. */
static void flush(void *engine)
{
    struct worker *from = engine;
    for (uint32_t to = 0; to < from->workers->count; to++) {
        struct worker *worker = &from->workers->items[to];
        struct queue *queue = &worker->queues[from->peers.self];
        pthread_mutex_lock(&worker->mutex);
        queue->flushed = queue->bytes.length;
        pthread_cond_signal(&worker->condition);
        pthread_mutex_unlock(&worker->mutex);
    }
}

struct workers *workers_new(uint32_t count, uint64_t seed)
{
    struct workers *workers = mem_calloc(1, sizeof(*workers));
    leat_assert(count <= RUN_WORKERS_MAX);
    workers->count = count;
    workers->seed = seed;
    for (uint32_t i = 0; i < count; i++) {
        struct worker *worker = &workers->items[i];
        worker->workers = workers;
        worker->peers = (struct run_peers){.self = i,
                                           .count = count,
                                           .leader = (uint32_t)(seed % count),
                                           .send = send_message,
                                           .flush = flush,
                                           .engine = worker};
        pthread_mutex_init(&worker->mutex, NULL);
        pthread_cond_init(&worker->condition, NULL);
    }
    return workers;
}

const struct run_peers *workers_peers(struct workers *workers, uint32_t worker)
{
    return &workers->items[worker].peers;
}

/* The queue of which the next message is taken; NULL: all are empty. Under the mutex. */
static struct queue *choose(struct worker *worker)
{
    uint32_t count = worker->workers->count;
    uint64_t draw = key_hash((struct key){worker->workers->seed + worker->peers.self, worker->draws++});
    for (uint32_t i = 0; i < count; i++) {
        struct queue *queue = &worker->queues[(draw + i) % count];
        if (queue->taken < queue->flushed)
            return queue;
    }
    return NULL;
}

static void *deliver(void *argument)
{
    struct worker *worker = argument;
    struct byte_buffer message = {0};
    for (;;) {
        pthread_mutex_lock(&worker->mutex);
        struct queue *queue = choose(worker);
        while (queue == NULL && !worker->must_end) {
            pthread_cond_wait(&worker->condition, &worker->mutex);
            queue = choose(worker);
        }
        if (worker->must_end) {
            pthread_mutex_unlock(&worker->mutex);
            break;
        }
        uint64_t length;
        memcpy(&length, queue->bytes.data + queue->taken, sizeof(length));
        message.length = 0;
        buffer_append(&message, queue->bytes.data + queue->taken + sizeof(length), length);
        queue->taken += sizeof(length) + length;
        if (queue->taken == queue->bytes.length)
            queue->taken = queue->flushed = queue->bytes.length = 0;
        uint32_t from = (uint32_t)(queue - worker->queues);
        bool has_room = queue->has_refused && queue->taken == queue->bytes.length;
        queue->has_refused = queue->has_refused && !has_room;
        pthread_mutex_unlock(&worker->mutex);
        bool is_good = run_receive(worker->run, from, (struct str){message.data, message.length});
        leat_assert(is_good);
        if (has_room)
            run_has_room(worker->workers->items[from].run, worker->peers.self);
    }
    buffer_free(&message);
    return NULL;
}

void workers_begin(struct workers *workers, struct run **runs)
{
    for (uint32_t i = 0; i < workers->count; i++)
        workers->items[i].run = runs[i];
    for (uint32_t i = 0; i < workers->count; i++)
        leat_assert(pthread_create(&workers->items[i].thread, NULL, deliver, &workers->items[i]) == 0);
}

void workers_end(struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++)
        while (!run_has_ended(workers->items[i].run))
            usleep(200);
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->items[i];
        pthread_mutex_lock(&worker->mutex);
        worker->must_end = true;
        pthread_cond_signal(&worker->condition);
        pthread_mutex_unlock(&worker->mutex);
        pthread_join(worker->thread, NULL);
    }
}

void workers_free(struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        for (uint32_t k = 0; k < workers->count; k++)
            buffer_free(&workers->items[i].queues[k].bytes);
        pthread_mutex_destroy(&workers->items[i].mutex);
        pthread_cond_destroy(&workers->items[i].condition);
    }
    free(workers);
}

/* --- The gate --- */

static struct workers *_Atomic gated; /* the workers that run now and wait for heads; NULL: none do */

static bool is_at_barrier(struct run *run)
{
    pthread_mutex_lock(&run->barrier->mutex);
    bool is = run->barrier->state == BARRIER_REQUESTED || run->barrier->state == BARRIER_RUNNING;
    pthread_mutex_unlock(&run->barrier->mutex);
    return is;
}

static bool is_closed(const struct workers *workers)
{
    if (workers == NULL || workers->way->heads->published >= workers->way->waits_for ||
        (workers->way->stops_at > 0 && workers->way->heads->refused >= workers->way->stops_at))
        return false;
    for (uint32_t i = 0; i < workers->count; i++)
        if (run_has_failed(workers->items[i].run) || is_at_barrier(workers->items[i].run))
            return false;
    return true;
}

static bool gate_bind(struct operator_bind *bind)
{
    bind->outputs[0] = bind->inputs[0].schema;
    return true;
}

static void gate_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    while (is_closed(atomic_load(&gated)))
        usleep(100);
    context->counters.passed += batch->selected;
    batch_hold(batch);
    operator_emit(context, 0, batch);
}

static const struct option gate_options[] = {OPTIONS_END};

const struct operator_kind operator_gate = {.name = "gate",
                                            .options = gate_options,
                                            .size = 1,
                                            .determinism = DETERMINISM_BY_ROW,
                                            .keeps_columns = true,
                                            .inputs_min = 1,
                                            .inputs_max = 1,
                                            .bind = gate_bind,
                                            .process = gate_process};

/* --- Jobs --- */

static void write_head(const char *folder, struct str manifest)
{
    char path[64], made[64];
    snprintf(path, sizeof(path), "%s/HEAD", folder);
    snprintf(made, sizeof(made), "%s/HEAD.new", folder);
    leat_assert(os_write_file(made, manifest.data, manifest.length, NULL, NULL) == 0 &&
                rename(made, path) == 0);
}

/* Does what another process does that takes over the directory, and ends. */
static void take_over(const char *directory)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir_options options = {.path = directory, .take_over = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    leat_assert(dir != NULL);
    checkpoint_dir_close(dir);
    arena_free(&arena);
}

/* Implements run_peers.publish. The coordinator's thread of the leader. */
static bool publish(void *engine, uint64_t epoch, struct str manifest)
{
    const struct worker *worker = engine;
    const struct way *way = worker->workers->way;
    struct heads *heads = way->heads;
    heads->has_come = true;
    while (heads->is_late)
        usleep(200);
    if (heads->refused < way->refuses || epoch < way->refuses_below) {
        if (++heads->refused == way->taken_at)
            take_over(worker->directory);
        return false;
    }
    heads->published++;
    if (heads->published == way->dies_at && way->dies_before) {
        usleep(200000); /* a sink that does not wait for the head has time to show it */
        (void)kill(getpid(), SIGKILL);
    }
    write_head(way->folder, manifest);
    if (heads->published == way->dies_at)
        (void)kill(getpid(), SIGKILL);
    buffer_clear(&heads->last);
    buffer_append(&heads->last, manifest.data, manifest.length);
    return true;
}

/* Implements run_peers.is_replaced. */
static bool seems_replaced(void *engine)
{
    const struct worker *worker = engine;
    return worker->run != NULL && run_is_failing(worker->run);
}

static void set_checkpoints(struct workers *workers, const struct way *way)
{
    workers->way = way;
    for (uint32_t stage = 0; stage < PLAN_STAGES_MAX; stage++)
        workers->homes[stage] = (uint8_t)((stage + way->homes) % workers->count);
    for (uint32_t i = 0; i < workers->count && way->folder != NULL; i++) {
        struct worker *worker = &workers->items[i];
        snprintf(worker->directory, sizeof(worker->directory), "%s/%u", way->folder, i);
        worker->peers.directory = worker->directory;
        worker->peers.homes = way->homes == 0 ? NULL : workers->homes;
        worker->peers.incarnation = way->incarnation;
        memset(worker->peers.job_run, 7, sizeof(worker->peers.job_run));
        worker->peers.publish = publish;
        worker->peers.is_replaced = way->is_uncertain ? seems_replaced : NULL;
    }
}

/* The last figures of all workers come to the leader, whose figures are the job's. Returns the leader. */
static struct run *await_figures(struct run **runs, uint32_t count)
{
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    struct run *leader = runs[0];
    for (uint32_t i = 0; i < 2 * count; i++) { /* who looks twice sends them once */
        run_stats(runs[i % count], stats);
        leader = stats->is_part ? leader : runs[i % count];
    }
    while (!run_has_all_figures(leader))
        usleep(100);
    free(stats);
    return leader;
}

/* The job's figures. */
static void collect(struct run *leader, struct outcome *outcome)
{
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    run_stats(leader, stats);
    outcome->is_finished = stats->is_finished;
    outcome->micro_batches = stats->micro_batches;
    outcome->nodes = stats->nodes_count;
    outcome->records = stats->records;
    outcome->moved_groups = stats->moved_groups;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        begin += stats->nodes[i].node->tag == PLAN_SOURCE ? stats->nodes[i].begin_in : 0;
    assert_int_equal(begin, stats->records - stats->records_life);
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        const struct run_node_stats *node = &stats->nodes[i];
        assert_true(counters_balance(&node->counters));
        outcome->counters[i] = node->counters;
        if (node->node->tag == PLAN_SINK) {
            assert_true(outcome->sinks < SINKS_MAX);
            memcpy(outcome->notes[outcome->sinks++], node->note, NOTE_BYTES);
        }
    }
    free(stats);
}

/* A worker's run, with a plan of its own. */
struct worker_run {
    struct arena arena;
    struct diag_list diags;
    struct run *run;
};

static void check(struct worker_run *w, const char *text, bool is_good)
{
    struct diag_source source = {"job", str_from(text)};
    if (is_good)
        return;
    diag_print(stderr, &w->diags, &source, false);
    fail();
}

static void make(struct worker_run *w, const char *text, uint32_t lanes, const struct run_peers *peers,
                 const struct way *way)
{
    *w = (struct worker_run){0};
    diag_list_init(&w->diags, &w->arena);
    const struct registry *registry = way->registry == NULL ? &builtin_registry : way->registry;
    struct job_file *job = lang_parse(&w->arena, &w->diags, registry, str_from(text));
    struct plan_options plan_options = {.registry = registry};
    bool is_good = lang_expand(job, &w->arena, &w->diags, NULL);
    struct plan *plan = is_good ? plan_make(job, &plan_options, &w->arena, &w->diags) : NULL;
    struct run_options options = {.lanes = lanes,
                                  .head = way->head,
                                  .mode = way->mode,
                                  .move_seed = way->move_seed,
                                  .balances = way->balances,
                                  .from = way->from,
                                  .until_us = way->until_us == 0 ? TIME_MAX : way->until_us,
                                  .record_order = way->order,
                                  .order = way->replays,
                                  .peers = peers};
    w->run = plan != NULL ? run_new(plan, &options, &w->diags) : NULL;
}

static void prepare(struct worker_run *w, const char *text, uint32_t lanes, const struct run_peers *peers,
                    const struct way *way)
{
    make(w, text, lanes, peers, way);
    bool is_leader = peers == NULL || peers->self == peers->leader;
    check(w, text, (w->run != NULL) == !(way->is_refused && is_leader));
}

enum diag_code workers_refusal(const char *text, uint32_t count, const struct way *way)
{
    struct workers *workers = workers_new(MAX(count, 1), 0);
    struct worker_run w;
    set_checkpoints(workers, way);
    make(&w, text, 1, count > 0 ? workers_peers(workers, 0) : NULL, way);
    enum diag_code code = DIAG_NONE;
    for (uint32_t i = 0; i < w.diags.count && code == DIAG_NONE; i++)
        code = w.diags.items[i].severity == DIAG_ERROR ? w.diags.items[i].code : DIAG_NONE;
    assert_true((w.run == NULL) == (code != DIAG_NONE));
    run_free(w.run);
    arena_free(&w.arena);
    workers_free(workers);
    return code;
}

void workers_look(const char *text, uint32_t count, uint32_t self, const struct way *way,
                  void (*look)(struct run *run))
{
    struct workers *workers = workers_new(count, 0);
    struct worker_run w;
    set_checkpoints(workers, way);
    prepare(&w, text, 1, workers_peers(workers, self), way);
    look(w.run);
    run_free(w.run);
    arena_free(&w.arena);
    workers_free(workers);
}

/* Stops the job when it has formed so many micro-batches, or ended before. */
static void stop_after(struct run *run, uint64_t micro_batches)
{
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    do {
        usleep(100);
        run_stats(run, stats);
    } while (stats->micro_batches < micro_batches && !run_has_ended(run));
    run_stop(run);
    free(stats);
}

/* Waits until a run has failed, and ends the others, as a cluster would. Returns which one. */
static uint32_t await_failure(struct run **runs, uint32_t count)
{
    uint32_t failed = 0;
    while (!run_has_failed(runs[failed])) {
        usleep(200);
        failed = (failed + 1) % count;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!run_has_failed(runs[i]))
            run_fail(runs[i]);
    return failed;
}

char *workers_fail(const char *text, uint32_t count, uint32_t lanes, const struct way *way)
{
    struct workers *workers = count > 0 ? workers_new(count, lanes + count) : NULL;
    struct worker_run all[RUN_WORKERS_MAX];
    struct run *runs[RUN_WORKERS_MAX];
    uint32_t runs_count = MAX(count, 1);
    for (uint32_t i = 0; i < runs_count; i++) {
        if (count > 0)
            set_checkpoints(workers, way);
        prepare(&all[i], text, lanes, count > 0 ? workers_peers(workers, i) : NULL, way);
        runs[i] = all[i].run;
    }
    uint32_t failed = count > 0 ? workers_peers(workers, 0)->leader : 0;
    if (count > 0 && !way->is_refused)
        workers_begin(workers, runs);
    atomic_store(&gated, way->waits_for > 0 ? workers : NULL);
    for (uint32_t i = 0; i < runs_count && !way->is_refused; i++)
        assert_true(run_start(runs[i]));
    if (!way->is_refused)
        failed = await_failure(runs, runs_count);
    if (count > 0 && !way->is_refused)
        workers_end(workers);
    for (uint32_t i = 0; i < runs_count && !way->is_refused; i++)
        assert_false(run_wait(runs[i]));
    atomic_store(&gated, NULL);
    assert_true(all[failed].diags.count > 0);
    char *error = strdup(all[failed].diags.items[0].message);
    for (uint32_t i = 0; i < runs_count; i++) {
        run_free(runs[i]);
        arena_free(&all[i].arena);
    }
    if (count > 0)
        workers_free(workers);
    return error;
}

/* One worker asks for checkpoints, until it has ended; the leader begins them. */
static void ask_for_checkpoints(struct run *run)
{
    while (!run_has_ended(run)) {
        run_checkpoint(run);
        usleep(200);
    }
}

static uint64_t heads_refused(const struct way *way)
{
    return way->heads == NULL ? 0 : way->heads->refused;
}

void workers_run(const char *text, uint32_t count, uint32_t lanes, const struct way *way,
                 struct outcome *outcome)
{
    struct workers *workers =
        count > 0 ? workers_new(count, lanes + count + (way != NULL ? way->seed : 0)) : NULL;
    struct worker_run all[RUN_WORKERS_MAX];
    struct run *runs[RUN_WORKERS_MAX];
    uint32_t runs_count = MAX(count, 1);
    *outcome = (struct outcome){0};
    way = way == NULL ? &(struct way){0} : way;
    for (uint32_t i = 0; i < runs_count; i++) {
        if (count > 0)
            set_checkpoints(workers, way);
        prepare(&all[i], text, lanes, count > 0 ? workers_peers(workers, i) : NULL, way);
        runs[i] = all[i].run;
        if (way->is_tight)
            runs[i]->waiting_budget = way->waiting_budget;
    }
    if (count > 0)
        workers_begin(workers, runs);
    atomic_store(&gated, way->waits_for > 0 ? workers : NULL);
    for (uint32_t i = 0; i < runs_count; i++)
        assert_true(run_start(runs[i]));
    while (heads_refused(way) < way->stops_at)
        usleep(1000);
    if (way->stops_at > 0)
        run_stop(runs[runs_count - 1]);
    if (way->stops_after > 0)
        stop_after(runs[runs_count - 1], way->stops_after);
    if (way->meanwhile != NULL)
        way->meanwhile(runs, runs_count);
    else if (way->folder != NULL)
        ask_for_checkpoints(runs[runs_count - 1]);
    for (uint32_t i = 0; i < runs_count; i++)
        check(&all[i], text, run_wait(runs[i]));
    atomic_store(&gated, NULL);
    struct run *leader = await_figures(runs, runs_count);
    if (count > 0)
        workers_end(workers);
    collect(leader, outcome);
    for (uint32_t i = 0; i < count; i++)
        outcome->refusals += workers->items[i].refusals;
    for (uint32_t i = 0; i < runs_count; i++) {
        run_free(runs[i]);
        arena_free(&all[i].arena);
    }
    if (count > 0)
        workers_free(workers);
}

void workers_same(const struct outcome *one, const struct outcome *other)
{
    assert_int_equal(one->sinks, other->sinks);
    for (uint32_t i = 0; i < one->sinks; i++)
        assert_string_equal(one->notes[i], other->notes[i]);
    assert_memory_equal(one->counters, other->counters, one->nodes * sizeof(one->counters[0]));
    assert_int_equal(one->micro_batches, other->micro_batches);
    assert_int_equal(one->is_finished, other->is_finished);
}

void workers_die(const char *life)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "life", life, NULL);
        _exit(126);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
