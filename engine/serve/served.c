#include "serve/served.h"

#include "core/mem.h"
#include "core/refused.h"
#include "core/wait.h"

#include <stdio.h>
#include <stdlib.h>

struct lines {
    struct byte_buffer text;
    uint32_t count;
};

struct served {
    const struct line_log_kind *kind;
    void *log;
    pthread_t thread;
    bool has_thread;
    atomic_bool must_stop;
    struct lines writing;  /* the thread's own */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct lines waiting;
    struct served_counts counts;          /* without `waiting` */
    char failure[LINE_LOG_FAILURE_BYTES]; /* empty: none since served_failure */
};

static void wait_a_moment(struct served *served)
{
    struct timespec until = wait_until(SERVED_WRITE_MS * 1000);
    while (!atomic_load(&served->must_stop) && wait_on(&served->changed, &served->mutex, &until))
        ;
}

/* Call under the mutex. */
static void take_in(struct served *served, const struct line_log_settled *settled)
{
    served->counts.lines += settled->written;
    served->counts.lost += settled->lost;
    if (settled->failure[0] != '\0')
        memcpy(served->failure, settled->failure, sizeof(served->failure));
}

static void *write_all(void *argument)
{
    struct served *served = argument;
    bool is_last = false;
    pthread_mutex_lock(&served->mutex);
    while (!is_last) {
        wait_a_moment(served);
        is_last = atomic_load(&served->must_stop);
        struct lines lines = served->waiting;
        served->waiting = served->writing;
        served->writing = lines;
        pthread_mutex_unlock(&served->mutex);
        struct line_log_settled settled = {0};
        served->kind->write(served->log, (struct str){lines.text.data, lines.text.length}, lines.count,
                            &served->must_stop, &settled);
        if (is_last)
            served->kind->finish(served->log, &settled);
        pthread_mutex_lock(&served->mutex);
        take_in(served, &settled);
        buffer_clear(&served->writing.text);
        served->writing.count = 0;
    }
    pthread_mutex_unlock(&served->mutex);
    return NULL;
}

struct served *served_open(const struct served_options *options, struct diag_list *diags)
{
    struct served *served = mem_calloc(1, sizeof(*served));
    bool is_files = options->kind == NULL;
    struct line_log_open open = {.config = is_files ? options : options->config,
                                 .job = options->job,
                                 .name = options->name,
                                 .diags = diags};
    served->kind = is_files ? &served_files : options->kind;
    served->log = served->kind->open(&open);
    if (served->log == NULL) {
        free(served);
        return NULL;
    }
    pthread_mutex_init(&served->mutex, NULL);
    pthread_cond_init(&served->changed, NULL);
    refused_unless_begun(pthread_create(&served->thread, NULL, write_all, served));
    served->has_thread = true;
    return served;
}

bool served_add(struct served *served, struct str lines, uint32_t count)
{
    pthread_mutex_lock(&served->mutex);
    served->counts.added += count;
    bool has_room = served->waiting.text.length + lines.length <= SERVED_BUFFER_BYTES;
    if (has_room) {
        buffer_append(&served->waiting.text, lines.data, lines.length);
        served->waiting.count += count;
    } else {
        served->counts.lost += count;
        if (served->failure[0] == '\0')
            snprintf(
                served->failure, sizeof(served->failure),
                "its buffer of %d MiB is full: lines come faster than they are written; log a smaller `sample`",
                SERVED_BUFFER_BYTES >> 20);
    }
    pthread_mutex_unlock(&served->mutex);
    return has_room;
}

struct served_counts served_counts(struct served *served)
{
    pthread_mutex_lock(&served->mutex);
    struct served_counts counts = served->counts;
    pthread_mutex_unlock(&served->mutex);
    counts.waiting = counts.added - counts.lines - counts.lost;
    return counts;
}

bool served_failure(struct served *served, char failure[LINE_LOG_FAILURE_BYTES])
{
    pthread_mutex_lock(&served->mutex);
    memcpy(failure, served->failure, sizeof(served->failure));
    served->failure[0] = '\0';
    pthread_mutex_unlock(&served->mutex);
    return failure[0] != '\0';
}

void served_end(struct served *served)
{
    if (served == NULL)
        return;
    pthread_mutex_lock(&served->mutex);
    atomic_store(&served->must_stop, true);
    pthread_cond_signal(&served->changed);
    pthread_mutex_unlock(&served->mutex);
}

void served_finish(struct served *served)
{
    if (served == NULL || !served->has_thread)
        return;
    leat_assert(atomic_load(&served->must_stop));
    pthread_join(served->thread, NULL);
    served->has_thread = false;
}

void served_close(struct served *served)
{
    if (served == NULL)
        return;
    served_end(served);
    served_finish(served);
    pthread_cond_destroy(&served->changed);
    pthread_mutex_destroy(&served->mutex);
    served->kind->close(served->log);
    buffer_free(&served->waiting.text);
    buffer_free(&served->writing.text);
    free(served);
}
