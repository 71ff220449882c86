/* The thread that looks for followers switches publishing on with the first of them, and off when none has been there for
 * a while. The log is opened with the first one. */
#include "run/publish/publish.h"

#include "run/base/barrier.h"

#include "core/delta_log.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/wait.h"
#include "state/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

enum { BEAT_US = 50 * 1000, LINGER_US = 10 * 1000 * 1000, RETRY_US = 10 * 1000 * 1000 };
enum { SEGMENTS = 16, SEGMENT_BYTES_MAX = 16 << 20 }; /* of the log's budget */

struct publisher {
    struct run *run;
    char *directory;
    int64_t every_us;
    enum operator_following following[PLAN_NODES_MAX];
    const bool *columns[PLAN_NODES_MAX][OPERATOR_INPUTS_MAX]; /* of publish_columns */
    struct delta_log *log; /* NULL: nobody has followed yet; set before is_on, by the thread */
    atomic_bool is_on, is_refused, has_failed;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* guards must_end */
    pthread_cond_t condition;
    bool must_end;
    int64_t followed_us; /* monotonic: when a follower was last seen; 0: never */
    int64_t failed_us;   /* monotonic: when the log last failed */
};

static int64_t lowest_publish_us(const struct plan *plan)
{
    int64_t lowest = INT64_MAX;
    for (uint32_t i = 0; i < plan->serves_count; i++)
        lowest = MIN(lowest, plan->serves[i].serving.publish_us);
    return lowest;
}

const bool *publish_columns_of(const struct plan_node *node, uint32_t input, struct arena *arena)
{
    bool *columns = arena_array(arena, bool, SCHEMA_FIELDS_MAX);
    return node->operator_kind->absorbs(node->config, input, columns) ? columns : NULL;
}

void publish_init(struct run *run)
{
    const struct plan *plan = run->plan;
    if (run->dir == NULL || run->trace != NULL || plan->serves_count == 0 || plan_not_followed(plan) != NULL)
        return;
    struct publisher *p = mem_calloc(1, sizeof(*p));
    p->run = run;
    p->directory = mem_printf("%s/log", run->path);
    p->every_us = lowest_publish_us(plan);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        p->following[i] = plan_following(plan, &plan->nodes[i]);
        for (uint32_t k = 0; p->following[i] == FOLLOWING_ROWS && k < plan->nodes[i].inputs_count; k++)
            p->columns[i][k] = publish_columns_of(&plan->nodes[i], k, &run->arena);
    }
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->condition, NULL);
    run->publisher = p;
}

/* --- The thread --- */

/* cause: may be NULL. */
static void say_broken(const char *message, const char *cause)
{
    log_say(LOG_LEVEL_WARNING,
            "%s%s%s; the job goes on, and `leat serve` follows its checkpoints until the log is there again",
            message, cause != NULL ? ": " : "", cause != NULL ? cause : "");
}

static bool open_log(struct publisher *p)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct run_id id = checkpoint_run(p->run->dir);
    int64_t bytes = p->run->plan->config.checkpoint.log_bytes;
    struct delta_log_options options = {
        .directory = p->directory,
        .generation = checkpoint_generation(p->run->dir),
        .run = {(const char *)id.bytes, sizeof(id.bytes)},
        .budget_bytes = (uint64_t)bytes,
        .segment_bytes = (uint64_t)MIN(bytes / SEGMENTS, (int64_t)SEGMENT_BYTES_MAX),
    };
    p->log = delta_log_open(&options, &diags);
    if (p->log == NULL)
        say_broken(diags.items[0].message, diags.items[0].cause);
    arena_free(&arena);
    return p->log != NULL;
}

static void switch_on(struct publisher *p)
{
    if (p->log != NULL ? delta_log_restart(p->log) : open_log(p)) {
        atomic_store(&p->has_failed, false);
        atomic_store_explicit(&p->is_on, true, memory_order_release);
    } else {
        p->failed_us = os_monotonic_us();
        atomic_store(&p->has_failed, true);
    }
}

static void look(struct publisher *p)
{
    bool is_wanted = false;
    int64_t now = os_monotonic_us();
    if (atomic_load(&p->has_failed) && p->failed_us == 0) {
        p->failed_us = now;
        if (p->log != NULL && delta_log_error(p->log) != NULL)
            say_broken(delta_log_error(p->log), NULL);
    }
    if (delta_followers_look(p->directory, &is_wanted) > 0)
        p->followed_us = now;
    bool is_followed = p->followed_us != 0 && now - p->followed_us < LINGER_US;
    bool may_try = !atomic_load(&p->has_failed) || now - p->failed_us >= RETRY_US;
    if (is_followed && !atomic_load(&p->is_on) && may_try && !atomic_load(&p->is_refused)) {
        p->failed_us = 0;
        switch_on(p);
    } else if (!is_followed && atomic_load(&p->is_on)) {
        atomic_store(&p->is_on, false);
    }
    if (atomic_load(&p->is_on))
        publish_append(p->run, PUBLISH_BEAT, 0, 0, (struct str){"", 0});
    if (is_wanted)
        barrier_ask_seldom(p->run);
}

static void *look_out(void *argument)
{
    struct publisher *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (!p->must_end) {
        pthread_mutex_unlock(&p->mutex);
        look(p);
        pthread_mutex_lock(&p->mutex);
        struct timespec until = wait_until(BEAT_US);
        while (!p->must_end && wait_on(&p->condition, &p->mutex, &until))
            continue;
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

bool publish_start(struct run *run)
{
    struct publisher *p = run->publisher;
    p->has_thread = pthread_create(&p->thread, NULL, look_out, p) == 0;
    return p->has_thread;
}

void publish_end(struct run *run)
{
    struct publisher *p = run->publisher;
    if (p->has_thread) {
        pthread_mutex_lock(&p->mutex);
        p->must_end = true;
        pthread_cond_signal(&p->condition);
        pthread_mutex_unlock(&p->mutex);
        pthread_join(p->thread, NULL);
        p->has_thread = false;
    }
    atomic_store(&p->is_on, false);
    if (p->log != NULL)
        delta_log_close(p->log);
    p->log = NULL;
}

void publish_free(struct run *run)
{
    struct publisher *p = run->publisher;
    if (p == NULL)
        return;
    publish_end(run);
    pthread_cond_destroy(&p->condition);
    pthread_mutex_destroy(&p->mutex);
    free(p->directory);
    free(p);
    run->publisher = NULL;
}

/* --- Lanes and the sequencer --- */

bool publish_is_on(const struct run *run)
{
    return atomic_load_explicit(&run->publisher->is_on, memory_order_acquire);
}

enum operator_following publish_following(const struct run *run, uint32_t node)
{
    return run->publisher->following[node];
}

const bool *publish_columns(const struct run *run, uint32_t node, uint32_t input)
{
    return run->publisher->columns[node][input];
}

int64_t publish_every_us(const struct run *run)
{
    return run->publisher->every_us;
}

void publish_append(struct run *run, enum publish_entry kind, uint32_t stage, uint64_t micro_batch,
                    struct str bytes)
{
    struct publisher *p = run->publisher;
    if (bytes.length > DELTA_ENTRY_MAX) { /* followers begin again, from a checkpoint behind it */
        (void)delta_log_restart(p->log);
        return;
    }
    struct delta_entry entry = {
        .kind = (uint16_t)kind, .part = (uint16_t)stage, .number = micro_batch, .bytes = bytes};
    if (delta_log_append(p->log, &entry))
        return;
    atomic_store(&p->has_failed, true);
    atomic_store(&p->is_on, false);
}

void publish_refuse(struct run *run)
{
    struct publisher *p = run->publisher;
    if (atomic_exchange(&p->is_refused, true))
        return;
    publish_append(run, PUBLISH_ENDED, 0, 0, (struct str){"", 0});
    atomic_store(&p->is_on, false);
}

size_t publish_begin(struct byte_buffer *entry, const struct publish_record *record)
{
    size_t place = entry->length;
    buffer_append(entry, record, sizeof(*record));
    return place;
}

void publish_finish(struct byte_buffer *entry, size_t place)
{
    static const char zeros[8];
    struct publish_record *record = (struct publish_record *)(void *)(entry->data + place);
    record->bytes = entry->length - place - sizeof(*record);
    buffer_append(entry, zeros, (8 - entry->length % 8) % 8);
}

void publish_put(struct byte_buffer *entry, const struct publish_record *record, const void *bytes)
{
    size_t place = publish_begin(entry, record);
    buffer_append(entry, bytes, record->bytes);
    publish_finish(entry, place);
}
