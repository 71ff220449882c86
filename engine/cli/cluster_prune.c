#include "cli/cluster_prune.h"

#include "cli/cluster_store.h"
#include "cli/run_cluster_job.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/quiet_thread.h"
#include "core/wait.h"
#include "run/head.h"
#include "run/head_store.h"
#include "state/checkpoint_store_parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* LOOK_US: between two looks at what a store, or the folder of workers, has too much of; AGAIN_US: where one left some in a store, for it
 * removes some hundred objects at most; FORGET_US: for so long no head names the parts of a worker before they go. */
enum { LOOK_US = 60000000, AGAIN_US = 1000000, END_US = 5000000, FORGET_US = 600000000 };

struct cluster_prune {
    const struct cluster_directory *directory;
    struct checkpoint_store *store; /* a handle of its own: one thread at a time may use one; NULL: none */
    bool has_store;
    uint32_t keep;
    int64_t look_us;                     /* a store, or the folder, is not looked at before; monotonic */
    int64_t unnamed_us[RUN_WORKERS_MAX]; /* by worker: since when no head names its parts; 0: one does */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct checkpoint_id head; /* generation 0: none that is not done */
    bool must_end, has_ended;
};

static void prune_store(struct cluster_prune *p, struct checkpoint_id head, struct diag_list *diags)
{
    uint32_t removed;
    int64_t now = os_monotonic_us();
    if (now < p->look_us)
        return;
    bool is_good = run_head_prune_store(p->store, head, p->keep, now, &removed, diags);
    bool is_done = !is_good || !checkpoint_store_is_prune_due(p->store, now);
    int64_t pause = test_store_delay(LOOK_US);
    p->look_us = time_add(os_monotonic_us(), is_done ? pause : MIN(pause, (int64_t)AGAIN_US));
}

/* Workers of whose parts a manifest in the folder tells: a bit each. False after a diagnostic: one cannot be read. */
static bool find_named(const struct cluster_prune *p, uint64_t *named, struct diag_list *diags)
{
    const char **paths;
    struct run_head *head = mem_alloc(sizeof(*head));
    uint32_t count = run_head_list(p->directory->heads, diags->arena, &paths);
    bool is_good = true;
    *named = 0;
    for (uint32_t i = 0; is_good && i < count; i++) {
        struct byte_buffer manifest = {0};
        is_good = run_head_load(paths[i], &manifest, head, diags);
        for (uint32_t k = 0; is_good && k < head->count; k++)
            *named |= UINT64_C(1) << head->parts[k].worker;
        buffer_free(&manifest);
    }
    free(head);
    return is_good;
}

/* Removes folders of workers that are no more: no head has named their parts for long, nobody holds them, and no later incarnation, which
 * may have so many workers again, has begun. head: of this incarnation, which has made it. */
static void forget_workers(struct cluster_prune *p, struct checkpoint_id head, struct diag_list *diags)
{
    uint64_t named;
    int64_t now = os_monotonic_us();
    if (now < p->look_us || !find_named(p, &named, diags))
        return;
    p->look_us = time_add(now, test_store_delay(LOOK_US));
    for (uint32_t i = 0; i < RUN_WORKERS_MAX; i++) {
        bool is_named = (named >> i & 1) != 0, is_new = p->unnamed_us[i] == 0;
        const char *path = arena_printf(diags->arena, "%s/worker-%u", p->directory->folder, i);
        p->unnamed_us[i] = is_named ? 0 : is_new ? now : p->unnamed_us[i];
        if (is_named || now - p->unnamed_us[i] < test_store_delay(FORGET_US) || access(path, F_OK) != 0 ||
            cluster_directory_is_replaced(p->directory, head.generation))
            continue;
        checkpoint_mirror_forget(checkpoint_mirror_new(NULL, path, 0));
        if (access(path, F_OK) != 0)
            log_say(LOG_LEVEL_INFO,
                    "the checkpoints of worker %u are removed: no head has named them for long", i);
    }
}

static void prune(struct cluster_prune *p, struct checkpoint_id head)
{
    uint32_t removed;
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (p->has_store && p->store != NULL)
        prune_store(p, head, &diags);
    else if (!p->has_store &&
             run_head_prune(p->directory->heads, head.generation, head.epoch, p->keep, &removed, &diags))
        forget_workers(p, head, &diags);
    run_cluster_say_diags(&diags);
    arena_free(&arena);
}

static void *prune_main(void *argument)
{
    struct cluster_prune *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (!p->must_end || p->head.generation != 0) {
        struct checkpoint_id head = p->head;
        p->head = (struct checkpoint_id){0};
        if (head.generation == 0) {
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        prune(p, head);
        pthread_mutex_lock(&p->mutex);
    }
    p->has_ended = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

struct cluster_prune *cluster_prune_new(const struct cluster_directory *directory, struct str store,
                                        uint32_t keep)
{
    struct cluster_prune *p = mem_calloc(1, sizeof(*p));
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags; /* who opens it for checkpoints tells */
    diag_list_init(&diags, &arena);
    p->directory = directory;
    p->has_store = store.length > 0;
    p->store = p->has_store ? cluster_store_open(store, &diags) : NULL;
    p->keep = keep;
    arena_free(&arena);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->has_thread = quiet_thread_start(&p->thread, prune_main, p);
    return p;
}

void cluster_prune_behind(struct cluster_prune *p, struct checkpoint_id head)
{
    pthread_mutex_lock(&p->mutex);
    p->head = head;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void cluster_prune_free(struct cluster_prune *p, bool is_last)
{
    if (p == NULL)
        return;
    struct timespec until = wait_until(is_last ? (int64_t)END_US : 0);
    pthread_mutex_lock(&p->mutex);
    p->must_end = true;
    p->head = is_last ? p->head : (struct checkpoint_id){0};
    pthread_cond_broadcast(&p->changed);
    while (p->has_thread && !p->has_ended && wait_on(&p->changed, &p->mutex, &until))
        ;
    p->head = (struct checkpoint_id){0};
    pthread_mutex_unlock(&p->mutex);
    if (p->store != NULL)
        checkpoint_store_cancel(p->store);
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    checkpoint_store_close(p->store);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}
