/* Checkpoints while a job runs: the coordinator thread. base/barrier.h tells how it agrees with the sequencer
 * and the stages on where a checkpoint is cut. When the last stage instance has taken its snapshot, the
 * coordinator copies the database, runs the deferred writing, publishes, and tells the sinks (with `commit: store`, upload.c
 * tells them).
 *
 * After an error the coordinator abandons the checkpoint, prints the error, and takes the next one at the
 * next turn; the job goes on. */
#include "run/checkpoints/internal.h"

#include "core/log.h"
#include "core/os.h"
#include "core/wait.h"
#include "run/base/placements.h"
#include "run/lanes/lanes.h"
#include "run/order/order.h"
#include "run/sequencer/sequencer.h"
#include "state/state.h"

#include <stdio.h>

enum { RETRY_US = 5000000, LOCK_LOOK_US = 1000000, JOIN_LOOK_US = 100000 };

/* Notes the errors of a checkpoint. Called with the barrier's mutex held; say() follows without it. */
static void note(struct checkpoints *c)
{
    bool is_fenced = c->diags.count > 0 && run_is_fenced(c->run);
    for (unsigned i = 0; i < c->diags.count && !is_fenced; i++) {
        const struct diag *d = &c->diags.items[i];
        c->failures += d->severity == DIAG_ERROR;
        if (d->severity == DIAG_ERROR)
            snprintf(c->why, sizeof(c->why), "%.400s%s%.100s", d->message, d->cause != NULL ? ": " : "",
                     d->cause != NULL ? d->cause : "");
    }
}

/* The same of a checkpoint that failed, and keeps it for people who look. */
static void note_failed(struct checkpoints *c)
{
    uint64_t failures = c->failures;
    note(c);
    if (!run_is_fenced(c->run))
        past_add_failure(c, c->failures > failures
                                ? c->why
                                : "a part of the state could not be written; the log says why");
}

/* Says what was noted, and forgets it. Not with the barrier's mutex held: lanes wait for that, and a stderr that takes nothing
 * must not stop the run. */
static void say(struct checkpoints *c)
{
    bool is_fenced = c->diags.count > 0 && run_is_fenced(c->run);
    for (unsigned i = 0; i < c->diags.count && !is_fenced; i++) {
        const struct diag *d = &c->diags.items[i];
        log_say(d->severity == DIAG_ERROR ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING, "%s: %s%s%s%s%s",
                diag_code_name(d->code), d->message, d->cause != NULL ? ": " : "",
                d->cause != NULL ? d->cause : "", d->hint != NULL ? "; " : "",
                d->hint != NULL ? d->hint : "");
    }
    arena_reset(&c->arena);
    diag_list_init(&c->diags, &c->arena);
}

/* Makes the next checkpoint's directory, and writes the job's text and list of parts. false after a
 * diagnostic. */
static bool make_writer(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    c->must_be_base |= placements_want_base(c->run);
    head_note_placement(c);
    lanes_measure(c->run);
    bool is_base = c->must_be_base || checkpoint_wants_base(c->run->dir);
    b->writer = checkpoint_begin(c->run->dir, c->next_epoch, is_base, &c->diags);
    if (b->writer == NULL)
        return false;
    const struct plan *plan = c->run->plan;
    struct snapshot_writer *job = checkpoint_part(b->writer, "job");
    struct snapshot_writer *parts = checkpoint_part(b->writer, "parts");
    if (snapshot_put(job, SNAPSHOT_GLOBAL, plan->job_text.data, plan->job_text.length) &&
        snapshot_put(job, SNAPSHOT_GLOBAL, plan->job_settings.data, plan->job_settings.length) &&
        snapshot_put(parts, SNAPSHOT_GLOBAL, c->parts.data, c->parts.length) && inputs_save(c, b->writer) &&
        placements_save(c->run, b->writer))
        return true;
    checkpoint_abandon(b->writer);
    b->writer = NULL;
    return false;
}

/* The writer is there, at all workers: asks for the barrier. With the barrier's mutex held. */
static void request_barrier(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    b->state = BARRIER_REQUESTED;
    b->epoch = c->next_epoch++;
    b->has_failed = false;
    b->stop_us = 0;
    b->remaining = 0;
    for (uint32_t stage = 0; stage < c->run->plan->stages_count; stage++)
        b->remaining += run_stage_pieces(c->run, stage);
}

/* Called with the barrier's mutex held; releases it during the disk work, because the sequencer takes it. */
static void begin_checkpoint(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    uint64_t epoch = c->next_epoch;
    b->state = BARRIER_OPENING;
    c->begun_us = os_monotonic_us();
    pthread_mutex_unlock(&b->mutex);
    bool is_good = make_writer(c) && many_open(c);
    pthread_mutex_lock(&b->mutex);
    if (is_good)
        request_barrier(c);
    else
        note_failed(c);
    b->last_is_refused = !is_good && b->last_is_wanted;
    b->last_is_wanted = b->is_wanted = false;
    b->has_lately_failed |= !is_good;
    if (!is_good) {
        b->state = BARRIER_IDLE;
        c->next_epoch += c->many != NULL; /* others may have begun that one */
    }
    pthread_mutex_unlock(&b->mutex);
    if (!is_good)
        say(c);
    many_say_ready(c, epoch, is_good);
    pthread_mutex_lock(&b->mutex);
}

/* *segment: gets the order log of the epoch, where this worker writes it; its bytes are valid until the next checkpoint is written. */
static bool write_order(struct checkpoints *c, struct str *segment)
{
    const struct barrier *b = c->run->barrier;
    if (many_follows(c))
        return true;
    *segment = order_segment(c->run, b->epoch, &c->diags);
    return segment->data != NULL && checkpoint_write_order(b->writer, *segment, &c->diags);
}

static bool has_failed(struct barrier *b)
{
    pthread_mutex_lock(&b->mutex);
    bool has_failed = b->has_failed;
    pthread_mutex_unlock(&b->mutex);
    return has_failed;
}

/* *bytes: gets how many were written. */
static bool write_and_publish(struct checkpoints *c, struct str *segment, uint64_t *bytes)
{
    struct run *run = c->run;
    struct barrier *b = run->barrier;
    if (!state_stores_checkpoint(&run->stores, b->writer, &c->diags)) {
        checkpoint_abandon(b->writer);
        return false;
    }
    /* A store that failed gives wrong answers: no state computed with it may be published. */
    const char *error = state_stores_error(&run->stores);
    if (error != NULL) {
        checkpoint_abandon(b->writer);
        run_fail(run); /* run_wait adds the diagnostic */
        return false;
    }
    if (has_failed(b) || !checkpoint_write(b->writer, run->stores.count, &c->diags) ||
        !write_order(c, segment)) {
        checkpoint_abandon(b->writer);
        return false;
    }
    *bytes = checkpoint_written_bytes(b->writer);
    struct checkpoint_info info = {
        .sources = {b->positions.data, b->positions.length},
        .notes = run->plan->name,
        .created_us = c->many == NULL ? 0 : atomic_load(&c->many->begun_us),
    };
    return checkpoint_publish(b->writer, &info, &c->diags);
}

/* Removes checkpoints that nobody needs. */
static void prune(struct checkpoints *c)
{
    const struct job_checkpoint *config = &c->run->plan->config.checkpoint;
    struct checkpoint_keep keep = {
        .last = config->keep.last, .hourly = config->keep.hourly, .daily = config->keep.daily};
    uint32_t removed;
    /* A file that could not be removed is tried again at the next turn; say() reports it. */
    if (!checkpoint_prune(c->run->dir, &keep, &removed, &c->diags))
        c->diags.errors = 0;
}

/* The checkpoint counts: tells the sinks, and removes older ones. */
static void commit(struct checkpoints *c, struct str segment)
{
    struct run *run = c->run;
    if (!run_awaits_store(run))
        lanes_committed(run, run->barrier->epoch, segment);
    prune(c);
    if (c->count == 0 && run->is_from)
        from_store_forget(run, &c->diags);
    if (c->count == 0)
        checkpoint_forget_restored(run->dir);
}

static void finish_checkpoint(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    struct str segment = {NULL, 0};
    int64_t begun_us = os_thread_cpu_us();
    uint64_t bytes = 0;
    bool is_published = write_and_publish(c, &segment, &bytes);
    if (is_published && !run_is_fenced(c->run))
        checkpoint_redo_passed(c->run->dir, order_published(c->run));
    is_published = many_agree(c, is_published);
    if (is_published && !run_is_fenced(c->run))
        commit(c, segment);
    else if (!is_published)
        sequencer_forget_barrier(c->run);
    pthread_mutex_lock(&b->mutex);
    b->writer = NULL;
    barrier_end(b, is_published);
    b->work_us = os_thread_cpu_us() - begun_us + b->stop_us;
    if (is_published) {
        c->count++;
        c->must_be_base = false;
        c->published_us = os_monotonic_us();
        c->duration_us = c->published_us - b->barrier_us;
        c->stop_us = b->stop_us;
        c->bytes = bytes;
        atomic_store_explicit(&b->published, b->epoch, memory_order_release);
        if (!run_awaits_store(c->run))
            atomic_store_explicit(&b->committed, b->epoch, memory_order_release);
        c->last_is_published |= b->is_last;
        past_add(c, &(struct past_checkpoint){b->epoch, c->bytes, c->duration_us, b->stop_us});
        note(c);
    } else {
        note_failed(c);
    }
    pthread_cond_broadcast(&b->condition);
    pthread_mutex_unlock(&b->mutex);
    if (is_published)
        upload_published(c->upload, b->epoch);
    else if (c->many != NULL && !run_is_fenced(c->run)) /* parts must not pile up while heads fail */
        prune(c);
    run_wake(c->run);
    say(c);
}

/* Whether to begin a checkpoint now; `end`: the turn's. With the barrier's mutex held. */
static bool is_due(struct checkpoints *c, int64_t end)
{
    const struct barrier *b = c->run->barrier;
    if (many_follows(c))
        return many_is_begun(c);
    return b->last_is_wanted || b->is_wanted || os_monotonic_us() >= end;
}

/* Waits for the next turn, a request for a checkpoint, or the end. A checkpoint begins `every` after the
 * last one began. If the last one took longer than half of `every`, the pause after it is as long as it took,
 * but at most `every`. Workers that go on from a head take the first one at once: sinks have waited for it since the round before. */
static void wait_for_turn(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    int64_t every = c->run->plan->config.checkpoint.every_us, now = os_monotonic_us();
    int64_t took = c->begun_us == 0 ? 0 : now - c->begun_us;
    int64_t turn = MIN(MAX(every - took, took), every);
    if (b->has_lately_failed) /* there may be room on the disk again soon */
        turn = MIN(turn, (int64_t)RETRY_US);
    if (c->begun_us == 0 && c->many != NULL && c->head != NULL)
        turn = 0;
    int64_t end = many_follows(c) ? TIME_MAX : time_add(now, turn);
    while (!b->must_end && !is_due(c, end)) {
        struct timespec until = wait_until(MIN(end - os_monotonic_us(), (int64_t)LOCK_LOOK_US));
        if (wait_on(&b->condition, &b->mutex, &until))
            continue;
        pthread_mutex_unlock(&b->mutex);
        (void)run_check(c->run);
        pthread_mutex_lock(&b->mutex);
    }
}

static void *coordinator_main(void *argument)
{
    struct checkpoints *c = argument;
    struct barrier *b = c->run->barrier;
    pthread_mutex_lock(&b->mutex);
    while (!b->must_end) {
        wait_for_turn(c);
        if (b->must_end)
            break;
        if (b->state == BARRIER_IDLE) {
            begin_checkpoint(c);
            run_wake(c->run);
        }
        while (!b->must_end &&
               ((b->state == BARRIER_REQUESTED && !many_is_withdrawn(c)) || b->state == BARRIER_RUNNING))
            pthread_cond_wait(&b->condition, &b->mutex);
        if (b->state == BARRIER_REQUESTED && many_is_withdrawn(c)) {
            checkpoint_abandon(b->writer);
            b->writer = NULL;
            b->state = BARRIER_IDLE;
        }
        if (b->state == BARRIER_WRITING) {
            pthread_mutex_unlock(&b->mutex);
            finish_checkpoint(c);
            pthread_mutex_lock(&b->mutex);
        }
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

bool checkpoints_start(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    if (!upload_start(c->upload))
        return false;
    c->has_thread = !run_was_over(run) && pthread_create(&c->thread, NULL, coordinator_main, c) == 0;
    return c->has_thread || run_was_over(run);
}

void checkpoints_join(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    while (b->state == BARRIER_WRITING && (c->many == NULL || !run_has_failed(run))) {
        struct timespec until = wait_until(JOIN_LOOK_US); /* who makes the run fail tells lanes alone */
        (void)wait_on(&b->condition, &b->mutex, &until);
    }
    b->must_end = true;
    pthread_cond_broadcast(&b->condition);
    pthread_mutex_unlock(&b->mutex);
    if (run_has_failed(run) && run->options.peers != NULL && run->options.peers->store != NULL)
        checkpoint_store_cancel(run->options.peers->store); /* nothing that goes up now can be in a head */
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    c->has_thread = false;
    if (b->writer != NULL) {
        checkpoint_abandon(b->writer);
        state_stores_release(&run->stores);
        b->writer = NULL;
        b->state = BARRIER_IDLE;
    }
    upload_end(c->upload);
}

bool checkpoints_have_last(struct run *run)
{
    const struct checkpoints *c = run->checkpoints;
    if (run_was_over(run) || c->last_is_published)
        return upload_is_committed(c->upload, run->diags);
    struct diag *d = diag_error(run->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                "the last checkpoint could not be written");
    if (c->why[0] != '\0')
        diag_cause(run->diags, d, "%s", c->why);
    diag_hint(run->diags, d,
              "correct the cause and start the job again: the run resumes from the previous checkpoint");
    return false;
}

void checkpoints_turn(struct run *run, struct run_checkpoint_turn *turn)
{
    const struct checkpoints *c = run->checkpoints;
    struct barrier *b = run->barrier;
    pthread_mutex_lock(&b->mutex);
    turn->next = b->state == BARRIER_REQUESTED ? b->epoch : c->next_epoch;
    turn->published = atomic_load(&b->published);
    turn->has_failed = b->has_lately_failed;
    snprintf(turn->why, sizeof(turn->why), "%s", c->why);
    pthread_mutex_unlock(&b->mutex);
}

void checkpoints_stats(struct run *run, struct run_stats *stats)
{
    const struct checkpoints *c = run->checkpoints;
    struct barrier *b = run->barrier;
    stats->checkpoint_age_us = stats->checkpoint_us = -1;
    if (b == NULL)
        return;
    upload_stats(c->upload, stats);
    pthread_mutex_lock(&b->mutex);
    many_stats(c, stats);
    stats->checkpoints = c->count;
    stats->checkpoint_epoch = atomic_load(&b->published);
    if (c->count > 0) {
        stats->checkpoint_age_us = os_monotonic_us() - c->published_us;
        stats->checkpoint_us = c->duration_us;
        stats->checkpoint_bytes = c->bytes;
        stats->checkpoint_stop_us = c->stop_us;
        stats->checkpoint_stop_max_us = b->stop_max_us;
    }
    pthread_mutex_unlock(&b->mutex);
}
