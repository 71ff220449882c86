/* Checkpoints of several workers: each writes a part, and the leader makes them the job's head.
 *
 *   the leader    begins a checkpoint, and tells all others                          PEER_BEGIN
 *   each other    begins one of that epoch in its own directory                      PEER_READY
 *   the leader    asks for the barrier; it comes with a micro-batch (sequencer/peers_barrier.c)
 *   each worker   writes its part, publishes it in its own directory, and
 *                 puts it into the store, where the job names one                    PEER_PART
 *   the leader    publishes the manifest of all parts as the head, and tells it      PEER_HEAD
 *
 * A part that is published in its directory counts for nothing before the head names it: only then sinks commit, and older checkpoints
 * may go. If a worker fails, the checkpoint is abandoned everywhere; parts of it that are published stay as long as they are links of
 * their workers' chains. If the leader cannot tell whether the manifest has become the head, parts stay until a newer one has: after
 * HEADS_IN_DOUBT_MAX such manifests in a row the leader takes no other checkpoint, but publishes the last manifest again and again, for
 * else parts would fill the disk. Waits end when the run has failed. */
#include "run/checkpoints/internal.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/wait.h"

#include <stdlib.h>

enum { LOOK_US = 100000, HEADS_IN_DOUBT_MAX = 4, HEAD_RETRY_US = 1000000 };

/* What PEER_HEAD says of an epoch. In doubt: it may be the head. */
enum outcome { OUTCOME_WITHDRAWN, OUTCOME_ABANDONED, OUTCOME_HEAD, OUTCOME_IN_DOUBT };

struct many *many_new(const struct run *run)
{
    return run->options.peers == NULL ? NULL : mem_calloc(1, sizeof(struct many));
}

static void set_directory(struct run_head_part *part, struct str directory)
{
    free((char *)(uintptr_t)part->directory.data);
    part->directory = (struct str){mem_str(directory), directory.length};
}

void many_free(struct many *many)
{
    for (uint32_t i = 0; many != NULL && i < RUN_WORKERS_MAX; i++)
        free((char *)(uintptr_t)many->parts[i].directory.data);
    free(many);
}

bool many_follows(const struct checkpoints *c)
{
    return c->many != NULL && !peers_is_leader(c->run);
}

bool many_is_begun(struct checkpoints *c)
{
    if (c->many->begun < c->next_epoch)
        return false;
    c->next_epoch = c->many->begun;
    return true;
}

bool many_is_withdrawn(const struct checkpoints *c)
{
    return c->many != NULL && c->many->withdrawn == c->run->barrier->epoch;
}

/* Waits a while for news of the other workers, and looks whether another process has taken over. False: the run ends, and there is nothing
 * to wait for. With the mutex held, but for that look. */
static bool await_news(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    if (b->must_end || run_has_failed(c->run))
        return false;
    struct timespec until = wait_until(LOOK_US);
    if (wait_on(&b->condition, &b->mutex, &until))
        return true;
    pthread_mutex_unlock(&b->mutex);
    (void)run_check(c->run);
    pthread_mutex_lock(&b->mutex);
    return true;
}

/* --- The leader --- */

static void say_outcome(const struct checkpoints *c, uint64_t epoch, enum outcome outcome)
{
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_HEAD);
    words_put(&message, epoch);
    words_put(&message, outcome);
    peers_send_all(c->run, &message);
    buffer_free(&message);
}

static void await_answers_of(struct checkpoints *c, uint64_t epoch, bool awaits_parts)
{
    struct many *many = c->many;
    many->epoch = epoch;
    many->awaits_parts = awaits_parts;
    many->answers = 0;
    many->refuser = RUN_WORKERS_MAX;
    memset(many->has_answered, 0, sizeof(many->has_answered));
}

/* Whether all others have answered well; else adds a diagnostic. With the mutex held. */
static bool have_answered(struct checkpoints *c, const char *what)
{
    const struct many *many = c->many;
    while (many->answers < peers_count(c->run) - 1 && many->refuser == RUN_WORKERS_MAX)
        if (!await_news(c))
            return false;
    if (many->refuser == RUN_WORKERS_MAX)
        return true;
    struct diag *d = diag_error(&c->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                "worker %u could not %s of epoch %llu", many->refuser, what,
                                (unsigned long long)many->epoch);
    diag_hint(&c->diags, d, "the log of that worker says why; the job goes on, and tries the next one");
    return false;
}

bool many_open(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    uint64_t epoch = c->next_epoch;
    struct byte_buffer message = {0};
    if (c->many == NULL || many_follows(c))
        return true;
    pthread_mutex_lock(&b->mutex);
    await_answers_of(c, epoch, false);
    pthread_mutex_unlock(&b->mutex);
    atomic_store(&c->many->begun_us, os_wall_us());
    peers_begin(&message, PEER_BEGIN);
    words_put(&message, epoch);
    words_put(&message, (uint64_t)atomic_load(&c->many->begun_us));
    peers_send_all(c->run, &message);
    buffer_free(&message);
    pthread_mutex_lock(&b->mutex);
    bool is_good = have_answered(c, "begin the checkpoint");
    if (is_good) /* parts may come as soon as the barrier is there */
        await_answers_of(c, epoch, true);
    pthread_mutex_unlock(&b->mutex);
    if (is_good)
        return true;
    say_outcome(c, epoch, OUTCOME_WITHDRAWN);
    checkpoint_abandon(b->writer);
    b->writer = NULL;
    return false;
}

/* Sets what the head says of this worker's part, and puts it into the store, if there is one. False after a diagnostic. */
static bool describe_own(struct checkpoints *c, struct run_head_part *part)
{
    const struct run_peers *peers = c->run->options.peers;
    *part = (struct run_head_part){.worker = peers->self,
                                   .id = {checkpoint_generation(c->run->dir), c->run->barrier->epoch},
                                   .directory = str_from(peers->directory)};
    if (!checkpoint_digest(c->run->dir, part->id, part->digest, &part->bytes, &c->diags))
        return false;
    if (peers->store == NULL)
        return true;
    part->directory = (struct str){c->many->own_name, 0};
    bool is_there =
        checkpoint_store_put_part(peers->store, c->run->dir, part->id, c->many->own_name, &c->diags);
    part->directory.length = strlen(c->many->own_name);
    return is_there;
}

/* Whether the manifest, which could not be made the head, is to be published again: too many are in doubt, and nothing else is asked
 * for. Waits a while before. */
static bool publishes_again(struct checkpoints *c)
{
    struct barrier *b = c->run->barrier;
    int64_t end = time_add(os_monotonic_us(), HEAD_RETRY_US);
    bool goes_on = true;
    pthread_mutex_lock(&b->mutex);
    if (c->many->in_doubt + 1 < HEADS_IN_DOUBT_MAX)
        goes_on = false;
    while (goes_on && os_monotonic_us() < end)
        goes_on = !b->is_last && !b->last_is_wanted && await_news(c);
    pthread_mutex_unlock(&b->mutex);
    return goes_on;
}

static enum outcome publish_manifest(struct checkpoints *c, uint64_t epoch, struct str manifest)
{
    const struct run_peers *peers = c->run->options.peers;
    bool is_head = peers->publish(peers->engine, epoch, manifest);
    for (bool is_said = false; !is_head && publishes_again(c); is_said = true) {
        if (!is_said)
            log_say(
                LOG_LEVEL_WARNING,
                "%s: %d checkpoints in a row could not be made the job's head: the last one is tried until it is",
                diag_code_name(DIAG_CHECKPOINT_FAILED), HEADS_IN_DOUBT_MAX);
        is_head = peers->publish(peers->engine, epoch, manifest);
    }
    c->many->in_doubt = is_head ? 0 : c->many->in_doubt + 1;
    return is_head ? OUTCOME_HEAD : OUTCOME_IN_DOUBT;
}

/* All parts are there: publishes their manifest. */
static enum outcome publish_head(struct checkpoints *c, const struct run_head_part *own)
{
    const struct run *run = c->run;
    const struct run_peers *peers = run->options.peers;
    struct run_head *head = mem_calloc(1, sizeof(*head));
    struct byte_buffer manifest = {0};
    *head = (struct run_head){.run = checkpoint_run(run->dir),
                              .epoch = run->barrier->epoch,
                              .leader = peers->self,
                              .count = peers->count};
    memcpy(head->placement, c->placement, sizeof(head->placement));
    memcpy(head->parts, c->many->parts, sizeof(head->parts));
    head->parts[peers->self] = *own;
    run_head_encode(head, &manifest);
    enum outcome outcome = publish_manifest(c, head->epoch, (struct str){manifest.data, manifest.length});
    buffer_free(&manifest);
    free(head);
    if (outcome == OUTCOME_HEAD)
        return outcome;
    struct diag *d = diag_error(&c->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                "the checkpoint could not be made the job's head");
    diag_hint(&c->diags, d, "the job goes on from the head before, and tries the next checkpoint");
    return outcome;
}

/* This worker has written its checkpoint, which counts when a head has it. */
static void note_written(struct checkpoints *c)
{
    struct many *many = c->many;
    pthread_mutex_lock(&c->run->barrier->mutex);
    if (many->behind++ == 0)
        many->behind_since_us = os_monotonic_us();
    pthread_mutex_unlock(&c->run->barrier->mutex);
}

/* What became of this worker's part, which is in doubt where nothing is said. */
static void note_outcome(const struct checkpoints *c, enum outcome outcome)
{
    struct checkpoint_store *store = c->run->options.peers->store;
    if (outcome == OUTCOME_HEAD)
        checkpoint_part_named(c->run->dir, c->run->barrier->epoch);
    else if (outcome == OUTCOME_ABANDONED)
        checkpoint_part_void(c->run->dir, c->run->barrier->epoch);
    if (outcome == OUTCOME_HEAD && store != NULL)
        checkpoint_store_part_named(store);
    if (outcome != OUTCOME_HEAD)
        return;
    pthread_mutex_lock(&c->run->barrier->mutex);
    c->many->behind = 0;
    pthread_mutex_unlock(&c->run->barrier->mutex);
}

static bool lead(struct checkpoints *c, bool is_written)
{
    struct barrier *b = c->run->barrier;
    struct run_head_part own;
    bool is_good = is_written && describe_own(c, &own);
    pthread_mutex_lock(&b->mutex);
    is_good = is_good && have_answered(c, "write its part of the checkpoint");
    pthread_mutex_unlock(&b->mutex);
    enum outcome outcome = is_good ? publish_head(c, &own) : OUTCOME_ABANDONED;
    say_outcome(c, b->epoch, outcome);
    note_outcome(c, outcome);
    return outcome == OUTCOME_HEAD;
}

/* --- The others --- */

void many_say_ready(struct checkpoints *c, uint64_t epoch, bool is_good)
{
    struct byte_buffer message = {0};
    if (!many_follows(c))
        return;
    peers_begin(&message, PEER_READY);
    words_put(&message, epoch);
    words_put(&message, is_good);
    peers_send(c->run, c->run->options.peers->leader, &message);
    buffer_free(&message);
}

static void say_part(const struct checkpoints *c, bool is_good, const struct run_head_part *part)
{
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_PART);
    words_put(&message, c->run->barrier->epoch);
    words_put(&message, is_good);
    if (is_good) {
        words_put(&message, part->id.generation);
        words_put(&message, part->bytes);
        words_put_text(&message, (struct str){(const char *)part->digest, sizeof(part->digest)});
        words_put_text(&message, part->directory);
    }
    peers_send(c->run, c->run->options.peers->leader, &message);
    buffer_free(&message);
}

static bool follow(struct checkpoints *c, bool is_written)
{
    struct barrier *b = c->run->barrier;
    struct run_head_part own;
    bool is_good = is_written && describe_own(c, &own);
    pthread_mutex_lock(&b->mutex);
    c->many->written = is_good ? b->epoch : c->many->written; /* before the leader can know of it */
    pthread_mutex_unlock(&b->mutex);
    say_part(c, is_good, &own);
    pthread_mutex_lock(&b->mutex);
    while (c->many->decided < b->epoch && await_news(c))
        ;
    bool is_head = is_good && c->many->head == b->epoch; /* take_outcome takes no other */
    bool is_void = c->many->decided == b->epoch && c->many->abandoned == b->epoch;
    pthread_mutex_unlock(&b->mutex);
    note_outcome(c, is_head ? OUTCOME_HEAD : is_void ? OUTCOME_ABANDONED : OUTCOME_IN_DOUBT);
    if (is_good && !is_head)
        diag_warning(&c->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                     "the checkpoint of epoch %llu has not become the head; the leader's log says why",
                     (unsigned long long)b->epoch);
    return is_head;
}

bool many_agree(struct checkpoints *c, bool is_written)
{
    if (c->many == NULL)
        return is_written;
    if (is_written)
        note_written(c);
    return many_follows(c) ? follow(c, is_written) : lead(c, is_written);
}

void many_stats(const struct checkpoints *c, struct run_stats *stats)
{
    struct checkpoint_store *store = c->many == NULL ? NULL : c->run->options.peers->store;
    struct objects_stats figures;
    if (store == NULL)
        return;
    checkpoint_store_stats(store, &figures);
    stats->has_store = stats->sinks_await_store = true;
    stats->store_behind = c->many->behind;
    stats->store_behind_us = c->many->behind == 0 ? 0 : os_monotonic_us() - c->many->behind_since_us;
    stats->store_bytes = figures.bytes_up;
    stats->store_retries = figures.retries;
}

/* --- Messages, with the mutex held --- */

/* The leader may begin one only when it has decided upon the one before. */
static bool take_begin(struct checkpoints *c, struct words *message)
{
    struct many *many = c->many;
    uint64_t epoch = words_take(message), begun_us = words_take(message);
    if (message->is_short || epoch <= many->begun || epoch < c->next_epoch || epoch > RUN_EPOCH_MAX ||
        many->decided != many->begun || begun_us == 0 || begun_us > INT64_MAX)
        return false;
    many->begun = epoch;
    atomic_store(&many->begun_us, (int64_t)begun_us);
    return true;
}

/* Whether the leader may say that of the epoch: it is the head, or may be, only with this worker's part, and withdrawn only before a micro-batch has
 * the barrier. */
static bool outcome_fits(const struct checkpoints *c, uint64_t epoch, uint64_t outcome)
{
    const struct barrier *b = c->run->barrier;
    bool has_barrier = b->epoch == epoch && (b->state == BARRIER_RUNNING || b->state == BARRIER_WRITING);
    switch (outcome) {
    case OUTCOME_WITHDRAWN: return !has_barrier;
    case OUTCOME_ABANDONED: return true;
    case OUTCOME_HEAD:
    case OUTCOME_IN_DOUBT: return c->many->written == epoch;
    default: return false;
    }
}

static bool take_outcome(struct checkpoints *c, struct words *message)
{
    struct many *many = c->many;
    struct barrier *b = c->run->barrier;
    uint64_t epoch = words_take(message), outcome = words_take(message);
    if (message->is_short || epoch != many->begun || epoch == many->decided ||
        !outcome_fits(c, epoch, outcome))
        return false;
    many->decided = epoch;
    if (outcome == OUTCOME_WITHDRAWN)
        many->withdrawn = epoch;
    else if (outcome == OUTCOME_HEAD)
        many->head = epoch;
    else if (outcome == OUTCOME_ABANDONED)
        many->abandoned = epoch;
    if (outcome == OUTCOME_ABANDONED && b->epoch == epoch)
        b->has_failed = true; /* what is not written yet need not be */
    return true;
}

/* Takes what an answer says of a part, whose generation is the incarnation. */
static bool take_part(const struct checkpoints *c, struct run_head_part *part, uint32_t worker,
                      struct words *message)
{
    part->worker = worker;
    uint64_t generation = words_take(message);
    part->bytes = words_take(message);
    struct str digest = words_take_text(message), directory = words_take_text(message);
    if (message->is_short || generation != c->run->options.peers->incarnation ||
        digest.length != sizeof(part->digest) || !run_head_directory_is_good(directory))
        return false;
    part->id.generation = (uint32_t)generation;
    memcpy(part->digest, digest.data, sizeof(part->digest));
    set_directory(part, directory);
    return true;
}

/* Answers of earlier epochs come late, from workers that had not failed. */
static bool take_answer(struct checkpoints *c, uint32_t worker, bool is_part, struct words *message)
{
    struct many *many = c->many;
    uint64_t epoch = words_take(message), is_good = words_take(message);
    if (message->is_short || epoch == 0 || epoch > many->epoch)
        return false;
    if (epoch < many->epoch) {
        message->left.length = 0;
        return true;
    }
    if (is_part != many->awaits_parts || many->has_answered[worker])
        return false;
    if (is_part && is_good != 0 && !take_part(c, &many->parts[worker], worker, message))
        return false;
    many->has_answered[worker] = true;
    many->answers++;
    if (is_good == 0)
        many->refuser = MIN(many->refuser, worker);
    return true;
}

bool checkpoints_receive(struct run *run, uint32_t worker, enum peer_message tag, struct words *message)
{
    struct checkpoints *c = run->checkpoints;
    bool is_of_leader = tag == PEER_BEGIN || tag == PEER_HEAD, is_good = false;
    if (c == NULL || run->barrier == NULL || is_of_leader != many_follows(c) ||
        (is_of_leader && worker != run->options.peers->leader))
        return false;
    if (tag == PEER_ASK) {
        if (message->left.length == 0)
            barrier_take_ask(run);
        return message->left.length == 0;
    }
    pthread_mutex_lock(&run->barrier->mutex);
    switch (tag) {
    case PEER_BEGIN: is_good = take_begin(c, message); break;
    case PEER_HEAD: is_good = take_outcome(c, message); break;
    case PEER_READY: is_good = take_answer(c, worker, false, message); break;
    default: is_good = take_answer(c, worker, true, message); break;
    }
    pthread_cond_broadcast(&run->barrier->condition);
    pthread_mutex_unlock(&run->barrier->mutex);
    return is_good && message->left.length == 0;
}
