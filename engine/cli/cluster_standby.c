#include "cli/cluster_standby.h"

#include "cli/cluster_store.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/quiet_thread.h"
#include "core/wait.h"
#include "run/head.h"
#include "state/checkpoint_store_parts.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    LOOK_US = 40000,
    SAY_US = 10000000,
    AGAIN_US =
        500000, /* before the same head is tried again that could not be prepared; twice as long each time */
    AGAIN_DOUBLED_MAX = 6,
};

struct cluster_standby {
    struct cluster_standby_options o;
    pthread_t thread;
    bool has_thread;
    uint64_t
        copied; /* workers of whose parts there are copies: a bit each; the thread's while there is one */
    int64_t said_us; /* monotonic; 0: not yet */
    /* The thread's own. */
    struct checkpoint_mirror *mirrors[RUN_WORKERS_MAX];
    int64_t failed_head;   /* revision of the head that could not be prepared last */
    uint32_t failed;       /* so many times in a row */
    int64_t again_us;      /* monotonic; when that head is tried again */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct checkpoint_store *store; /* the thread's; others may cancel */
    bool must_end, has_ended;
    int64_t last;             /* with must_end: revision of the head that is to be prepared yet; 0: none */
    struct worker_head ready; /* revision 0: none */
    uint64_t heads, bytes;    /* that it has prepared, and that have come from the store */
};

/* --- The thread --- */

/* A diagnostic as a line of the log; a newer head may do better. */
static void say_diags(const struct worker_head *head, const struct diag_list *diags)
{
    for (unsigned i = 0; i < diags->count; i++)
        if (diags->items[i].severity == DIAG_ERROR)
            log_say(LOG_LEVEL_WARNING, "standby: %.*s is not prepared: %s%s%s%s",
                    STR_ARGS(head->head.manifest), diags->items[i].message,
                    diags->items[i].cause != NULL ? ": " : "",
                    diags->items[i].cause != NULL ? diags->items[i].cause : "",
                    diags->items[i].code == DIAG_DISK_FULL
                        ? "; until then this worker is prepared no better than any that waits"
                        : "");
}

static const char *path_of(const struct cluster_standby *s, uint32_t worker, struct arena *arena)
{
    return arena_printf(arena, "%s/worker-%u", s->o.directory->folder, worker);
}

/* Removes the copy of that worker's part. */
static void forget_copy(struct cluster_standby *s, uint32_t worker, struct arena *arena)
{
    if (s->mirrors[worker] == NULL)
        s->mirrors[worker] = checkpoint_mirror_new(NULL, path_of(s, worker, arena), 0);
    checkpoint_mirror_forget(s->mirrors[worker]);
    s->mirrors[worker] = NULL;
    s->copied &= ~(UINT64_C(1) << worker);
}

/* Brings the parts that the manifest names. False after a diagnostic. */
static bool bring_parts(struct cluster_standby *s, struct str manifest, uint64_t *bytes, struct arena *arena,
                        struct diag_list *diags)
{
    const char *why;
    struct run_head *head = mem_alloc(sizeof(*head));
    bool is_good = run_head_decode(manifest, head, &why); /* its digest is the one that etcd has */
    for (uint32_t i = 0; is_good && i < head->count; i++) {
        const struct run_head_part *part = &head->parts[i];
        struct checkpoint_store_part there = {.name = part->directory, .id = part->id};
        memcpy(there.digest, part->digest, sizeof(there.digest));
        if (s->mirrors[i] == NULL)
            s->mirrors[i] = checkpoint_mirror_new(s->store, path_of(s, i, arena), s->o.keep_free);
        s->copied |= UINT64_C(1) << i;
        is_good =
            failpoint("standby.part") == 0 && checkpoint_mirror_bring(s->mirrors[i], &there, bytes, diags);
    }
    for (uint32_t i = head->count; is_good && i < RUN_WORKERS_MAX; i++)
        if ((s->copied >> i & 1) != 0)
            forget_copy(s, i, arena);
    free(head);
    return is_good;
}

/* Whether the head is ready. */
static bool prepare(struct cluster_standby *s, const struct worker_head *head, uint64_t *bytes)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    struct byte_buffer manifest = {0};
    struct cluster_directory here = *s->o.directory;
    uint32_t unseen;
    diag_list_init(&diags, &arena);
    here.arena = &arena;
    here.diags = &diags;
    struct str text = {0};
    bool is_good = s->store != NULL ? cluster_directory_claim(&here) &&
                                          cluster_store_head(s->store, &here, &head->head, &manifest)
                                    : cluster_directory_head(&here, &head->head, &manifest);
    text = (struct str){manifest.data, manifest.length};
    if (is_good)
        is_good = s->store != NULL ? bring_parts(s, text, bytes, &arena, &diags)
                                   : cluster_directory_has_parts(text, &unseen, &diags);
    if (!is_good)
        say_diags(head, &diags);
    buffer_free(&manifest);
    arena_free(&arena);
    return is_good;
}

/* Waits for a head that is to be prepared now. False: the thread ends. */
static bool await_head(struct cluster_standby *s, struct worker_head *head)
{
    bool is_due = false, ends = false;
    while (!is_due && !ends) {
        worker_newest_head(s->o.worker, head);
        pthread_mutex_lock(&s->mutex);
        is_due = head->head.revision > s->ready.head.revision &&
                 (head->head.revision != s->failed_head || os_monotonic_us() >= s->again_us);
        ends = s->must_end && (!is_due || head->head.revision != s->last);
        struct timespec until = wait_until(LOOK_US);
        if (!is_due && !ends)
            (void)wait_on(&s->changed, &s->mutex, &until);
        pthread_mutex_unlock(&s->mutex);
    }
    return !ends;
}

static void note(struct cluster_standby *s, const struct worker_head *head, bool is_good, uint64_t bytes)
{
    const struct cluster_prepared prepared = {head->head.incarnation, head->head.epoch, head->head.clock_us};
    if (!is_good) {
        s->failed = head->head.revision == s->failed_head ? s->failed + 1 : 1;
        s->failed_head = head->head.revision;
        s->again_us = os_monotonic_us() + ((int64_t)AGAIN_US << MIN(s->failed - 1, AGAIN_DOUBLED_MAX));
    }
    pthread_mutex_lock(&s->mutex);
    s->bytes += bytes;
    s->heads += is_good;
    if (is_good)
        s->ready = *head;
    pthread_mutex_unlock(&s->mutex);
    if (is_good)
        worker_say_prepared(s->o.worker, &prepared);
}

/* Opens the store, where the job names one. False after a line in the log: it is tried again with the next head. */
static bool open_store(struct cluster_standby *s)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_store *store = s->o.store.length == 0 ? NULL : cluster_store_open(s->o.store, &diags);
    for (unsigned i = 0; i < diags.count; i++)
        log_say(LOG_LEVEL_WARNING, "standby: %s", diags.items[i].message);
    arena_free(&arena);
    pthread_mutex_lock(&s->mutex);
    s->store = store;
    pthread_mutex_unlock(&s->mutex);
    return s->o.store.length == 0 || store != NULL;
}

static void *tail(void *argument)
{
    struct cluster_standby *s = argument;
    struct worker_head head;
    bool is_open = open_store(s);
    while (is_open && await_head(s, &head)) {
        uint64_t bytes = 0;
        bool is_good = prepare(s, &head, &bytes);
        note(s, &head, is_good, bytes);
    }
    for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++) {
        checkpoint_mirror_free(s->mirrors[i]);
        s->mirrors[i] = NULL;
    }
    pthread_mutex_lock(&s->mutex);
    checkpoint_store_close(s->store);
    s->store = NULL;
    s->has_ended = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* --- The control thread --- */

struct cluster_standby *cluster_standby_new(const struct cluster_standby_options *options)
{
    struct cluster_standby *s = mem_calloc(1, sizeof(*s));
    s->o = *options;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    return s;
}

/* Where the system refuses a thread, the next look tries again. */
static void start(struct cluster_standby *s)
{
    s->must_end = s->has_ended = false;
    s->failed_head = 0;
    s->ready = (struct worker_head){.head = {.revision = 0}}; /* what is on the disk is looked at anew */
    s->heads = s->bytes = 0;
    s->has_thread = quiet_thread_start(&s->thread, tail, s);
    s->said_us = os_monotonic_us();
}

void cluster_standby_wait(struct cluster_standby *s)
{
    struct worker_head newest;
    if (s == NULL)
        return;
    if (!s->has_thread)
        start(s);
    if (os_monotonic_us() - s->said_us < SAY_US)
        return;
    s->said_us = os_monotonic_us();
    worker_newest_head(s->o.worker, &newest);
    pthread_mutex_lock(&s->mutex);
    struct worker_head ready = s->ready;
    uint64_t heads = s->heads, bytes = s->bytes;
    pthread_mutex_unlock(&s->mutex);
    if (ready.head.revision == 0)
        log_say(LOG_LEVEL_INFO, "standby: no head is prepared yet");
    else
        log_say(LOG_LEVEL_INFO,
                "standby: %.*s is prepared, %" PRIu64 " heads and %.1f s behind the newest; %" PRIu64
                " heads so far, with %" PRIu64 " bytes from the store",
                (int)ready.head.manifest.length, ready.manifest,
                newest.head.epoch - MIN(ready.head.epoch, newest.head.epoch),
                (double)MAX(newest.head.clock_us - ready.head.clock_us, 0) / 1e6, heads, bytes);
}

/* Asks the thread to end, and waits for that; `last`: revision of a head that it may prepare yet. */
static void end_thread(struct cluster_standby *s, int64_t last)
{
    if (!s->has_thread)
        return;
    pthread_mutex_lock(&s->mutex);
    s->must_end = true;
    s->last = last;
    pthread_cond_broadcast(&s->changed);
    while (!s->has_ended) {
        if (s->store != NULL && (last == 0 || s->ready.head.revision == 0 ||
                                 worker_await(s->o.worker, WORKER_RUNS, 0) != WORKER_RUNS))
            checkpoint_store_cancel(s->store);
        struct timespec until = wait_until(LOOK_US);
        (void)wait_on(&s->changed, &s->mutex, &until);
    }
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
}

bool cluster_standby_end(struct cluster_standby *s, const struct cluster_head *head)
{
    if (s == NULL || !s->has_thread)
        return false;
    int64_t begun_us = os_monotonic_us();
    end_thread(s, head->revision);
    const struct worker_head *ready = &s->ready;
    bool is_ready = head->revision != 0 && ready->head.revision == head->revision &&
                    ready->head.incarnation == head->incarnation && ready->head.epoch == head->epoch &&
                    str_equal((struct str){ready->digest, ready->head.digest.length}, head->digest);
    if (is_ready)
        log_say(LOG_LEVEL_INFO,
                "standby: takes part with %.*s, which is prepared; the rest of it took %.2f s; %" PRIu64
                " heads so far, with %" PRIu64 " bytes from the store",
                STR_ARGS(head->manifest), (double)(os_monotonic_us() - begun_us) / 1e6, s->heads, s->bytes);
    else if (head->revision != 0)
        log_say(LOG_LEVEL_INFO, "standby: takes part with %.*s, which is not prepared",
                STR_ARGS(head->manifest));
    return is_ready;
}

void cluster_standby_look(struct cluster_standby *s, struct run *run, const struct rendezvous_round *round)
{
    struct arena arena = {.block_bytes = 4096};
    struct run_checkpoint_turn turn;
    if (s == NULL || s->has_thread || s->copied == 0 || !run_checkpoint_turn(run, &turn) ||
        turn.published <= round->head.epoch)
        return;
    for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++)
        if ((s->copied >> i & 1) != 0 && i != round->self)
            forget_copy(s, i, &arena);
    s->copied = 0;
    arena_free(&arena);
}

void cluster_standby_free(struct cluster_standby *s)
{
    if (s == NULL)
        return;
    end_thread(s, 0);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}
