/* Checkpoints while a job runs: the coordinator thread.
 *
 *   coordinator: begins a checkpoint, asks the sequencer for a barrier, and waits
 *   sequencer:   attaches the barrier to the next micro-batch it forms, and notes where each partition goes
 *                on after it
 *   stages:      each instance, when it has run that micro-batch, lets its nodes snapshot, and counts itself
 *                off
 *   coordinator: when the last instance has: copies the database, runs the deferred writing, publishes, and
 *                tells the sinks
 *
 * One checkpoint at a time. The last micro-batch of a run has a barrier too: it is not formed while another
 * checkpoint is on its way, and waits for its own to begin. An error abandons its checkpoint alone: the job
 * goes on, reports it, and tries again at the next turn. */
#include "run/barrier.h"

#include "run/order.h"

#include "core/wait.h"

#include <stdio.h>
#include <stdlib.h>

enum { DISK_LOOK_US = 200000, RETRY_US = 5000000, LOCK_LOOK_US = 1000000 };

/* --- Called by the sequencer, under its mutex --- */

bool barrier_is_busy(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    pthread_mutex_lock(&c->mutex);
    bool is_busy = c->state == BARRIER_RUNNING || c->state == BARRIER_WRITING;
    pthread_mutex_unlock(&c->mutex);
    return is_busy;
}

bool barrier_state_is_pressed(struct run *run)
{
    return run->state_store != NULL && run->checkpoints != NULL &&
           state_store_pressure(run->state_store) > (size_t)run->operator_memory_bytes / 4 &&
           barrier_is_busy(run);
}

bool barrier_disk_is_low(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    int64_t now = os_monotonic_us();
    if (now - c->disk_looked_us < DISK_LOOK_US)
        return c->disk_is_low;
    c->disk_looked_us = now;
    int64_t left = os_free_bytes(c->path);
    bool is_low = left >= 0 && left < config->free_bytes;
    if (is_low && !c->disk_is_low)
        fprintf(stderr,
                "leat: the disk of `%.*s` has %lld MiB left, less than `min_free` (%lld MiB): the sources "
                "pause until "
                "there is more\n",
                STR_ARGS(config->directory), (long long)(left >> 20), (long long)(config->free_bytes >> 20));
    if (!is_low && c->disk_is_low)
        fprintf(stderr, "leat: the disk of `%.*s` has %lld MiB left: the sources go on\n",
                STR_ARGS(config->directory), (long long)(left >> 20));
    c->disk_is_low = is_low;
    return is_low;
}

bool barrier_is_waiting(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    pthread_mutex_lock(&c->mutex);
    bool is_waiting = c->state == BARRIER_REQUESTED;
    pthread_mutex_unlock(&c->mutex);
    return is_waiting;
}

bool barrier_takes_last(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    pthread_mutex_lock(&c->mutex);
    bool is_ready = c->state == BARRIER_REQUESTED || (c->state == BARRIER_IDLE && c->last_is_refused);
    if (c->state == BARRIER_IDLE && !is_ready && !c->last_is_wanted) {
        c->last_is_wanted = true;
        pthread_cond_broadcast(&c->condition);
    }
    pthread_mutex_unlock(&c->mutex);
    return is_ready;
}

uint64_t barrier_at(struct run *run, const struct slot *slot)
{
    struct run_checkpoints *c = run->checkpoints;
    uint64_t epoch = 0;
    pthread_mutex_lock(&c->mutex);
    if (c->state == BARRIER_REQUESTED) {
        epoch = c->epoch;
        c->state = BARRIER_RUNNING;
        c->is_last = slot->is_end;
        c->barrier_us = os_monotonic_us();
        buffer_clear(&c->positions);
        sequencer_save(run, slot->is_final, &c->positions);
        order_barrier(run);
    }
    pthread_mutex_unlock(&c->mutex);
    return epoch;
}

void barrier_ask(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    pthread_mutex_lock(&c->mutex);
    if (!c->is_wanted && !c->has_lately_failed && c->state == BARRIER_IDLE) {
        c->is_wanted = true;
        pthread_cond_broadcast(&c->condition);
    }
    pthread_mutex_unlock(&c->mutex);
}

/* --- Called by the lanes --- */

void checkpoint_sink_part(const struct plan_node *sink, char name[CHECKPOINT_SINK_BYTES])
{
    struct str text = sink->name;
    if (text.length <= CHECKPOINT_SINK_BYTES - 8)
        snprintf(name, CHECKPOINT_SINK_BYTES, "sink/%.*s/", STR_ARGS(text));
    else /* no other sink's part can have a `#` in its name */
        snprintf(name, CHECKPOINT_SINK_BYTES, "sink/%.*s#%u/", 64, text.data, sink->place);
}

void checkpoint_counters_part(const struct node_instance *node, char name[CHECKPOINT_PART_BYTES])
{
    size_t length = strlen(strcpy(name, "counters/"));
    if (node->node->tag != PLAN_SINK)
        snprintf(name + length, CHECKPOINT_PART_BYTES - length, "%u/", node->context.id);
    else
        checkpoint_sink_part(node->node, name + length);
}

void checkpoint_kind_part(const struct plan_node *sink, char name[CHECKPOINT_PART_BYTES])
{
    checkpoint_sink_part(sink, name + strlen(strcpy(name, "kind/")));
}

static bool snapshot_counters(struct run_checkpoints *c, struct node_instance *node,
                              const struct counters *counters)
{
    char name[CHECKPOINT_PART_BYTES];
    checkpoint_counters_part(node, name);
    size_t length = strlen(name);
    snprintf(name + length, sizeof(name) - length, "%u", node->stage->instance);
    struct saved_counters saved = {c->epoch, *counters};
    return snapshot_put(checkpoint_part(c->writer, name), SNAPSHOT_GLOBAL, &saved, sizeof(saved));
}

static bool snapshot_node(struct run_checkpoints *c, struct node_instance *node, uint64_t number)
{
    const struct plan_node *plan_node = node->node;
    char name[CHECKPOINT_PART_BYTES];
    bool is_good = true;
    node->context.number = number; /* an instance of stage 0 may not have run this micro-batch */
    if (plan_node->operator_kind != NULL && plan_node->operator_kind->snapshot != NULL) {
        snprintf(name, sizeof(name), "op/%u/%u", node->context.id, node->stage->instance);
        is_good &= plan_node->operator_kind->snapshot(&node->context, checkpoint_part(c->writer, name));
    }
    if (plan_node->tag == PLAN_SINK && plan_node->sink_kind->snapshot != NULL) {
        checkpoint_kind_part(plan_node, name);
        const char *kind = plan_node->sink_kind->name;
        is_good &= snapshot_put(checkpoint_part(c->writer, name), SNAPSHOT_GLOBAL, kind, strlen(kind));
        checkpoint_sink_part(plan_node, name);
        is_good &= plan_node->sink_kind->snapshot(&node->sink, checkpoint_part(c->writer, name));
    }
    return is_good;
}

/* The node's counters; of stage 0, which all lanes run, their sum. The sequencer lets no lane into stage 0
 * now. */
static struct counters node_counters(const struct stage_instance *stage, uint32_t index)
{
    struct run *run = stage->run;
    if (stage->index > 0)
        return stage->nodes[index].context.counters;
    struct counters sum = {0};
    for (uint32_t lane = 0; lane < run->lanes_count; lane++)
        counters_add(&sum, &run->lanes[lane].sources->nodes[index].context.counters);
    return sum;
}

void checkpoints_snapshot(struct stage_instance *stage, uint64_t epoch)
{
    struct run_checkpoints *c = stage->run->checkpoints;
    leat_assert(c->epoch == epoch && c->state == BARRIER_RUNNING);
    failpoint("ckpt.barrier");
    int64_t begin = os_monotonic_us();
    bool is_good = true;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct counters counters = node_counters(stage, i);
        is_good &= snapshot_counters(c, &stage->nodes[i], &counters);
        for (uint32_t lane = 0; stage->index == 0 && lane < stage->run->lanes_count; lane++)
            is_good &= snapshot_node(c, &stage->run->lanes[lane].sources->nodes[i], stage->slot->number);
        if (stage->index > 0)
            is_good &= snapshot_node(c, &stage->nodes[i], stage->slot->number);
    }
    int64_t stopped = os_monotonic_us() - begin;
    pthread_mutex_lock(&c->mutex);
    c->stop_us = MAX(c->stop_us, stopped);
    c->stop_max_us = MAX(c->stop_max_us, stopped);
    c->has_failed |= !is_good;
    leat_assert(c->remaining > 0);
    if (--c->remaining == 0) {
        c->state = BARRIER_WRITING;
        pthread_cond_broadcast(&c->condition);
    }
    pthread_mutex_unlock(&c->mutex);
}

uint64_t checkpoints_published(const struct run *run)
{
    return run->checkpoints == NULL
               ? 0
               : atomic_load_explicit(&run->checkpoints->published, memory_order_acquire);
}

/* --- The coordinator --- */

static void say(struct run_checkpoints *c)
{
    bool is_fenced = c->diags.count > 0 && run_is_fenced(c->run);
    for (unsigned i = 0; i < c->diags.count && !is_fenced; i++) {
        const struct diag *d = &c->diags.items[i];
        fprintf(stderr, "leat: %s: %s%s%s%s%s\n", diag_code_name(d->code), d->message,
                d->cause != NULL ? ": " : "", d->cause != NULL ? d->cause : "", d->hint != NULL ? "; " : "",
                d->hint != NULL ? d->hint : "");
        c->failures += d->severity == DIAG_ERROR;
        if (d->severity == DIAG_ERROR)
            snprintf(c->why, sizeof(c->why), "%.400s%s%.100s", d->message, d->cause != NULL ? ": " : "",
                     d->cause != NULL ? d->cause : "");
    }
    arena_reset(&c->arena);
    diag_list_init(&c->diags, &c->arena);
}

/* Makes the directory and the first parts of the next checkpoint; false if the disk refuses. */
static bool make_writer(struct run_checkpoints *c)
{
    c->writer = checkpoint_begin(c->dir, c->next_epoch, checkpoint_wants_base(c->dir), &c->diags);
    if (c->writer == NULL)
        return false;
    const struct plan *plan = c->run->plan;
    struct snapshot_writer *job = checkpoint_part(c->writer, "job");
    struct snapshot_writer *parts = checkpoint_part(c->writer, "parts");
    if (snapshot_put(job, SNAPSHOT_GLOBAL, plan->job_text.data, plan->job_text.length) &&
        snapshot_put(job, SNAPSHOT_GLOBAL, plan->job_settings.data, plan->job_settings.length) &&
        snapshot_put(parts, SNAPSHOT_GLOBAL, c->parts.data, c->parts.length))
        return true;
    checkpoint_abandon(c->writer);
    c->writer = NULL;
    return false;
}

/* Under the mutex, but gives it up during the disk work, because the sequencer takes it. */
static void begin_checkpoint(struct run_checkpoints *c)
{
    c->state = BARRIER_OPENING;
    c->begun_us = os_monotonic_us();
    pthread_mutex_unlock(&c->mutex);
    bool is_good = make_writer(c);
    if (!is_good)
        say(c);
    pthread_mutex_lock(&c->mutex);
    c->state = is_good ? BARRIER_REQUESTED : BARRIER_IDLE;
    c->last_is_refused = !is_good && c->last_is_wanted;
    c->last_is_wanted = c->is_wanted = false;
    c->has_lately_failed |= !is_good;
    if (!is_good)
        return;
    c->epoch = c->next_epoch++;
    c->has_failed = false;
    c->stop_us = 0;
    c->remaining = 0;
    for (uint32_t stage = 0; stage < c->run->plan->stages_count; stage++)
        c->remaining += stage_pieces(c->run, stage);
}

static bool write_order(struct run_checkpoints *c)
{
    struct str segment = order_segment(c->run, c->epoch, &c->diags);
    return segment.data != NULL && checkpoint_write_order(c->writer, segment, &c->diags);
}

static bool write_and_publish(struct run_checkpoints *c)
{
    struct run *run = c->run;
    bool has_database = false;
    if (run->state_store != NULL &&
        !state_store_checkpoint(run->state_store, checkpoint_writer_database(c->writer), &has_database,
                                &c->diags)) {
        checkpoint_abandon(c->writer);
        return false;
    }
    /* A store that failed gives wrong answers: nothing that used it may be published. */
    const char *error = run->state_store != NULL ? state_store_error(run->state_store) : NULL;
    if (error != NULL) {
        checkpoint_abandon(c->writer);
        run_fail(run); /* run_wait adds the diagnostic */
        return false;
    }
    if (c->has_failed || !checkpoint_write(c->writer, has_database, &c->diags) || !write_order(c)) {
        checkpoint_abandon(c->writer);
        return false;
    }
    pthread_mutex_lock(&c->mutex); /* protects the figures */
    c->bytes = checkpoint_written_bytes(c->writer);
    pthread_mutex_unlock(&c->mutex);
    struct checkpoint_info info = {
        .sources = {c->positions.data, c->positions.length},
        .notes = run->plan->name,
    };
    return checkpoint_publish(c->writer, &info, &c->diags);
}

/* Lets sinks that send what a checkpoint holds begin at once, without waiting for their lanes. */
static void tell_committed(struct run_checkpoints *c)
{
    const struct byte_buffer *segment = &c->run->order->segment;
    for (uint32_t i = 0; i < c->run->sinks_count; i++) {
        struct node_instance *sink = c->run->sinks[i];
        bool (*committed)(struct sink_context *, uint64_t, struct str) = sink->node->sink_kind->committed;
        if (committed != NULL && run_check(c->run) == 0 &&
            !committed(&sink->sink, c->epoch, (struct str){segment->data, segment->length}))
            sink_failed(sink);
    }
}

/* The abandoned checkpoint's data is in no checkpoint: forgetting the last barrier lets an empty
 * micro-batch carry the next one, even if no rows arrive, or none may while a sink waits for a checkpoint. */
static void forget_barrier(struct run *run)
{
    pthread_mutex_lock(&run->sequencer.mutex);
    run->sequencer.last_barrier = 0;
    pthread_mutex_unlock(&run->sequencer.mutex);
}

static void finish_checkpoint(struct run_checkpoints *c)
{
    bool is_published = write_and_publish(c);
    if (is_published && !run_is_fenced(c->run)) {
        tell_committed(c);
        order_published(c->run);
        checkpoint_redo_passed(c->dir, c->run->order->sealed.next);
        struct checkpoint_keep keep = {.last = c->run->plan->config.checkpoint.keep.last,
                                       .hourly = c->run->plan->config.checkpoint.keep.hourly,
                                       .daily = c->run->plan->config.checkpoint.keep.daily};
        uint32_t removed;
        /* A file that could not be removed is tried again at the next turn; say() reports it. */
        if (!checkpoint_prune(c->dir, &keep, &removed, &c->diags))
            c->diags.errors = 0;
    } else if (!is_published) {
        forget_barrier(c->run);
    }
    pthread_mutex_lock(&c->mutex);
    c->writer = NULL;
    c->state = BARRIER_IDLE;
    c->has_lately_failed = !is_published;
    if (is_published) {
        c->count++;
        c->published_us = os_monotonic_us();
        c->duration_us = c->published_us - c->barrier_us;
        atomic_store_explicit(&c->published, c->epoch, memory_order_release);
        c->last_is_published |= c->is_last;
    }
    say(c);
    pthread_cond_broadcast(&c->condition);
    pthread_mutex_unlock(&c->mutex);
    run_wake(c->run);
}

/* Waits for the next turn, a request for a checkpoint, or the end. A checkpoint begins `every` after the
 * last one began; if that one took longer than half of `every`, the pause after it is as long as it took,
 * but at most `every`. */
static void wait_for_turn(struct run_checkpoints *c)
{
    int64_t every = c->run->plan->config.checkpoint.every_us, now = os_monotonic_us();
    int64_t took = c->begun_us == 0 ? 0 : now - c->begun_us;
    int64_t turn = MIN(MAX(every - took, took), every);
    if (c->has_lately_failed) /* there may be room on the disk again soon */
        turn = MIN(turn, (int64_t)RETRY_US);
    int64_t end = time_add(now, turn);
    while (!c->must_end && !c->last_is_wanted && !c->is_wanted && os_monotonic_us() < end) {
        struct timespec until = wait_until(MIN(end - os_monotonic_us(), (int64_t)LOCK_LOOK_US));
        if (wait_on(&c->condition, &c->mutex, &until))
            continue;
        pthread_mutex_unlock(&c->mutex);
        (void)run_check(c->run);
        pthread_mutex_lock(&c->mutex);
    }
}

static void *coordinator_main(void *argument)
{
    struct run_checkpoints *c = argument;
    pthread_mutex_lock(&c->mutex);
    while (!c->must_end) {
        wait_for_turn(c);
        if (c->must_end)
            break;
        if (c->state == BARRIER_IDLE) {
            begin_checkpoint(c);
            run_wake(c->run);
        }
        while (!c->must_end && (c->state == BARRIER_REQUESTED || c->state == BARRIER_RUNNING))
            pthread_cond_wait(&c->condition, &c->mutex);
        if (c->state == BARRIER_WRITING) {
            pthread_mutex_unlock(&c->mutex);
            finish_checkpoint(c);
            pthread_mutex_lock(&c->mutex);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

bool checkpoints_start(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    c->has_thread = pthread_create(&c->thread, NULL, coordinator_main, c) == 0;
    return c->has_thread;
}

/* After the lanes have ended: waits for a checkpoint that is being written; after a failure, abandons the
 * one that was begun. */
void checkpoints_join(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    pthread_mutex_lock(&c->mutex);
    while (c->state == BARRIER_WRITING)
        pthread_cond_wait(&c->condition, &c->mutex);
    c->must_end = true;
    pthread_cond_broadcast(&c->condition);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    c->has_thread = false;
    if (c->writer != NULL) {
        checkpoint_abandon(c->writer);
        if (run->state_store != NULL)
            state_store_release(run->state_store);
        c->writer = NULL;
        c->state = BARRIER_IDLE;
    }
}

void checkpoints_free(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    if (c == NULL)
        return;
    checkpoint_close(c->resumed);
    checkpoint_dir_close(c->from_dir);
    checkpoint_dir_close(c->dir);
    checkpoint_from_free(&c->from);
    buffer_free(&c->parts);
    buffer_free(&c->positions);
    arena_free(&c->arena);
    pthread_cond_destroy(&c->condition);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    run->checkpoints = NULL;
}
