/* Copies published checkpoints to the object store that the job names (`store`), in a thread of its own, so that a slow store
 * stops nobody. It always takes the newest checkpoint and leaves out those between, so at most one is held open while it waits:
 * that bounds what waits, on the disk and in memory. Errors are said, and tried again; the job goes on with local checkpoints.
 * With `commit: store` the thread tells the sinks what the store has; the sources wait while it lacks more than `behind`.
 * At the end it gives the last checkpoint END_US to go up. */
#include "run/checkpoints/internal.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/wait.h"
#include "run/lanes/lanes.h"
#include "state/checkpoint_store.h"

#include <stdlib.h>

/* PACE_US: between copies, at least, so that a store has no more than one head a second. */
enum { PACE_US = 1000000, AGAIN_US = 5000000, END_US = 20000000, PRUNE_LOOK_US = 60000000 };

struct upload {
    struct run *run;
    struct checkpoint_store *store;
    struct checkpoint_dir *dir; /* read only, of this thread */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex: */
    bool must_end, has_ended;
    uint64_t published,
        stored; /* how many checkpoints this process published; how many of them the store has, or newer ones */
    uint64_t epoch;          /* of the last published */
    int64_t behind_since_us; /* monotonic clock: when the oldest one was published that the store lacks */
    /* The thread's own: */
    int64_t prune_at_us;
};

static void say(const struct upload *u, const struct diag_list *diags, uint64_t behind)
{
    for (unsigned i = 0; i < diags->count; i++) {
        const struct diag *d = &diags->items[i];
        log_say(LOG_LEVEL_WARNING, "the store lacks %llu checkpoint%s%s: %s: %s%s%s%s%s",
                (unsigned long long)behind, behind == 1 ? "" : "s",
                run_awaits_store(u->run) && behind > 0 ? ", and sinks commit nothing until it has them" : "",
                diag_code_name(d->code), d->message, d->cause != NULL ? ": " : "",
                d->cause != NULL ? d->cause : "", d->hint != NULL ? "; " : "",
                d->hint != NULL ? d->hint : "");
    }
}

/* Called with the mutex held, when the count of checkpoints that the store lacks has changed. */
static void show_behind(struct upload *u)
{
    if (run_awaits_store(u->run))
        atomic_store(&u->run->barrier->uncommitted, u->published - u->stored);
}

/* The store has the checkpoint: sinks need not be able to go on from an older one, and with `commit: store` they may give away
 * what it covers. It is of this life, or the one with which this life began. Called without the mutex, which sinks must not wait
 * for. */
static void commit(struct upload *u, struct checkpoint_id id)
{
    struct run *run = u->run;
    bool is_own = id.generation == checkpoint_generation(run->dir);
    bool is_before = id.generation == run->resumed_generation && id.epoch == run->resumed_epoch;
    if (!(is_own || is_before) || run_is_fenced(run))
        return;
    if (!run_awaits_store(run)) {
        lanes_stored(run, id.epoch);
        return;
    }
    lanes_committed(run, id.epoch, (struct str){"", 0});
    atomic_store_explicit(&run->barrier->committed, id.epoch, memory_order_release);
}

/* Called without the mutex. Returns whether the store has what had been published before. */
static bool copy_newest(struct upload *u, uint64_t published)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct checkpoint_id id;
    diag_list_init(&diags, &arena);
    bool ok = checkpoint_store_put(u->store, u->dir, u->run->dir, &id, &diags);
    if (ok)
        commit(u, id);
    pthread_mutex_lock(&u->mutex);
    if (ok) {
        u->stored = id.epoch == u->epoch ? u->published : published;
        u->behind_since_us = os_monotonic_us();
    }
    uint64_t behind = u->published - u->stored;
    show_behind(u);
    pthread_mutex_unlock(&u->mutex);
    if (ok)
        run_wake(u->run);
    if (!run_is_fenced(u->run))
        say(u, &diags, behind);
    arena_free(&arena);
    return ok;
}

static void prune(struct upload *u)
{
    struct arena arena = {0};
    struct diag_list diags;
    const struct job_keep *keep = &u->run->plan->config.checkpoint.keep;
    uint32_t removed;
    int64_t now = os_monotonic_us();
    if (now < u->prune_at_us)
        return;
    u->prune_at_us = now + PRUNE_LOOK_US;
    diag_list_init(&diags, &arena);
    if (!checkpoint_store_prune(
            u->store, u->run->dir,
            &(struct checkpoint_keep){.last = keep->last, .hourly = keep->hourly, .daily = keep->daily}, now,
            &removed, &diags) &&
        !run_is_fenced(u->run))
        say(u, &diags, 0);
    arena_free(&arena);
}

/* Waits, with the mutex held, until there is something to copy or the end is near. */
static void wait_for_work(struct upload *u, int64_t pause_us)
{
    struct timespec until = wait_until(pause_us);
    while (!u->must_end && wait_on(&u->changed, &u->mutex, &until))
        continue;
    while (!u->must_end && u->published == u->stored)
        pthread_cond_wait(&u->changed, &u->mutex);
}

static void *upload_main(void *argument)
{
    struct upload *u = argument;
    int64_t pause_us = 0;
    pthread_mutex_lock(&u->mutex);
    for (bool is_last = false; !is_last;) {
        wait_for_work(u, pause_us);
        is_last = u->must_end;
        uint64_t published = u->published;
        bool is_behind = published > u->stored;
        pthread_mutex_unlock(&u->mutex);
        bool ok = !is_behind || copy_newest(u, published);
        if (ok && is_behind && !is_last)
            prune(u);
        pause_us = ok ? PACE_US : AGAIN_US;
        pthread_mutex_lock(&u->mutex);
        is_last = is_last && (!ok || u->published == u->stored);
    }
    u->has_ended = true;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->mutex);
    return NULL;
}

bool upload_open(struct run *run)
{
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    if (config->store.length == 0 || run->barrier == NULL || run->options.peers != NULL)
        return true;
    struct objects_options options = {.url = config->store};
    struct checkpoint_dir_options own = {
        .path = arena_strndup(&run->arena, config->directory.data, config->directory.length),
        .read_only = true};
    struct upload *u = run->checkpoints->upload = mem_calloc(1, sizeof(*u));
    u->run = run;
    pthread_mutex_init(&u->mutex, NULL);
    pthread_cond_init(&u->changed, NULL);
    u->store = checkpoint_store_open(&options, run->diags);
    u->dir = u->store == NULL ? NULL : checkpoint_dir_open(&own, run->diags);
    return u->dir != NULL;
}

bool upload_start(struct upload *u)
{
    /* What an earlier process published, and could not copy, goes up at once. */
    if (u != NULL && u->run->is_resumed && !u->run->is_from)
        upload_published(u, u->run->resumed_epoch);
    if (u != NULL)
        u->has_thread = pthread_create(&u->thread, NULL, upload_main, u) == 0;
    return u == NULL || u->has_thread;
}

void upload_published(struct upload *u, uint64_t epoch)
{
    if (u == NULL)
        return;
    pthread_mutex_lock(&u->mutex);
    if (u->published == u->stored)
        u->behind_since_us = os_monotonic_us();
    u->published++;
    u->epoch = epoch;
    show_behind(u);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->mutex);
}

void upload_end(struct upload *u)
{
    if (u == NULL || !u->has_thread)
        return;
    bool is_fenced = run_is_fenced(u->run);
    struct timespec until = wait_until(is_fenced ? 0 : END_US);
    if (is_fenced)
        checkpoint_store_cancel(u->store);
    pthread_mutex_lock(&u->mutex);
    u->must_end = true;
    pthread_cond_broadcast(&u->changed);
    while (!u->has_ended && wait_on(&u->changed, &u->mutex, &until))
        continue;
    uint64_t behind = u->published - u->stored;
    pthread_mutex_unlock(&u->mutex);
    checkpoint_store_cancel(u->store);
    pthread_join(u->thread, NULL);
    u->has_thread = false;
    if (behind > 0 && !is_fenced && !run_awaits_store(u->run))
        log_say(
            LOG_LEVEL_WARNING,
            "the run ends, and the store lacks its newest %llu checkpoint%s; they are in the checkpoint directory, and go "
            "up with the next run",
            (unsigned long long)behind, behind == 1 ? "" : "s");
}

bool upload_is_committed(struct upload *u, struct diag_list *diags)
{
    uint64_t behind = u == NULL ? 0 : u->published - u->stored; /* the thread has ended */
    if (behind == 0 || !run_awaits_store(u->run))
        return true;
    struct diag *d = diag_error(
        diags, DIAG_STORE_FAILED, (struct span){0},
        "the run ends, and the store lacks its newest %llu checkpoint%s: with `commit: store`, what sinks got since the store's "
        "newest one is not committed",
        (unsigned long long)behind, behind == 1 ? "" : "s");
    diag_hint(
        diags, d,
        "nothing is lost: start the job again when the store can be reached, and it copies the checkpoints and "
        "commits the rows");
    return false;
}

void upload_free(struct upload *u)
{
    if (u == NULL)
        return;
    upload_end(u);
    checkpoint_store_close(u->store);
    checkpoint_dir_close(u->dir);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->mutex);
    free(u);
}

void upload_stats(struct upload *u, struct run_stats *stats)
{
    struct objects_stats figures;
    if (u == NULL || u->store == NULL)
        return;
    checkpoint_store_stats(u->store, &figures);
    pthread_mutex_lock(&u->mutex);
    stats->has_store = true;
    stats->sinks_await_store = run_awaits_store(u->run);
    stats->store_behind = u->published - u->stored;
    stats->store_behind_us = stats->store_behind == 0 ? 0 : os_monotonic_us() - u->behind_since_us;
    stats->store_bytes = figures.bytes_up;
    stats->store_retries = figures.retries;
    pthread_mutex_unlock(&u->mutex);
}
