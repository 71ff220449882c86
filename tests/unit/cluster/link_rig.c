#include "link_rig.h"

#include "core/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Eight bytes of a frame, from that place on. */
static uint64_t word_of(uint64_t tag, uint32_t at)
{
    return at == 0 ? tag : (tag * 31 + at) * UINT64_C(0x9e3779b97f4a7c15);
}

void rig_fill(struct link_frame *frame, uint64_t tag)
{
    for (uint32_t i = 0; i < frame->length; i += sizeof(tag)) {
        uint64_t word = word_of(tag, i);
        memcpy(frame->bytes + i, &word, MIN(frame->length - i, sizeof(word)));
    }
}

static bool is_filled(const struct link_frame *frame, uint64_t tag)
{
    for (uint32_t i = 0; i < frame->length; i += sizeof(tag)) {
        uint64_t word = word_of(tag, i);
        if (memcmp(frame->bytes + i, &word, MIN(frame->length - i, sizeof(word))) != 0)
            return false;
    }
    return true;
}

static void take(void *user, struct link_frame *frame)
{
    struct rig_worker *worker = user;
    pthread_mutex_lock(&worker->mutex);
    bool must_hold = worker->must_hold;
    uint64_t *next = &worker->next[frame->worker];
    if (!is_filled(frame, *next)) {
        dprintf(STDERR_FILENO, "worker %u: frame %llu of worker %u is not the one that was sent\n",
                worker->self, (unsigned long long)*next, frame->worker);
        abort();
    }
    (*next)++;
    worker->bytes += frame->length;
    worker->frames++;
    if (must_hold) {
        frame->next = NULL;
        *worker->held_end = frame;
        worker->held_end = &frame->next;
    }
    pthread_mutex_unlock(&worker->mutex);
    if (!must_hold)
        link_release(worker->links, frame);
}

static void count(struct rig_worker *worker, uint64_t *counter)
{
    pthread_mutex_lock(&worker->mutex);
    (*counter)++;
    pthread_mutex_unlock(&worker->mutex);
}

static void is_up(void *user, uint32_t other)
{
    struct rig_worker *worker = user;
    count(worker, &worker->ups[other]);
}

static void is_gone(void *user, uint32_t other, const char *reason)
{
    struct rig_worker *worker = user;
    pthread_mutex_lock(&worker->mutex);
    snprintf(worker->reason, sizeof(worker->reason), "%s", reason);
    worker->gones[other]++;
    pthread_mutex_unlock(&worker->mutex);
}

static void has_room(void *user, uint32_t other)
{
    struct rig_worker *worker = user;
    count(worker, &worker->rooms[other]);
}

struct links_options rig_options(uint32_t self)
{
    return (struct links_options){.self = self,
                                  .incarnation = 1,
                                  .secret = STR("the secret of incarnation 1"),
                                  .listen = "127.0.0.1:0",
                                  .retained_bytes = 64 << 20,
                                  .window_bytes = 64 << 20,
                                  .patience_us = PATIENCE_US,
                                  .calls = {take, is_up, is_gone, has_room}};
}

void rig_start(struct rig_worker *worker, uint32_t self, const struct links_options *options)
{
    struct arena arena;
    struct diag_list diags;
    struct links_options usual = rig_options(self);
    if (options != NULL)
        usual = *options;
    memset(worker, 0, sizeof(*worker));
    worker->self = self;
    worker->held_end = &worker->held;
    pthread_mutex_init(&worker->mutex, NULL);
    usual.user = worker;
    usual.calls = rig_options(self).calls;
    arena_init(&arena, 4096);
    diag_list_init(&diags, &arena);
    worker->links = links_new(&usual, &diags);
    if (worker->links == NULL)
        diag_print(stderr, &diags, NULL, false);
    assert_non_null(worker->links);
    arena_free(&arena);
    snprintf(worker->address, sizeof(worker->address), "127.0.0.1:%u", links_port(worker->links));
}

void rig_release(struct rig_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    struct link_frame *held = worker->held;
    worker->held = NULL;
    worker->held_end = &worker->held;
    pthread_mutex_unlock(&worker->mutex);
    while (held != NULL) {
        struct link_frame *frame = held;
        held = frame->next;
        link_release(worker->links, frame);
    }
}

void rig_release_first(struct rig_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    struct link_frame *frame = worker->held;
    assert_non_null(frame);
    worker->held = frame->next;
    if (worker->held == NULL)
        worker->held_end = &worker->held;
    pthread_mutex_unlock(&worker->mutex);
    link_release(worker->links, frame);
}

void rig_stop(struct rig_worker *worker)
{
    rig_release(worker);
    links_free(worker->links);
    while (worker->held != NULL) { /* that came meanwhile */
        struct link_frame *frame = worker->held;
        worker->held = frame->next;
        link_frame_free(frame);
    }
    pthread_mutex_destroy(&worker->mutex);
}

void rig_link_to(struct rig_worker *worker, uint32_t other, const char *address)
{
    struct arena arena;
    struct diag_list diags;
    arena_init(&arena, 4096);
    diag_list_init(&diags, &arena);
    assert_true(link_to(worker->links, other, address, &diags));
    arena_free(&arena);
}

void rig_join(struct rig_worker *a, struct rig_worker *b)
{
    rig_link_to(a, b->self, b->address);
    rig_link_to(b, a->self, a->address);
    for (int64_t since = 0; !rig_figures(a, b->self).is_up || !rig_figures(b, a->self).is_up;)
        wait_more(&since);
}

enum link_sent rig_try(struct rig_worker *worker, uint32_t to, uint64_t tag, uint32_t length)
{
    struct link_frame *frame = link_frame_new(length);
    rig_fill(frame, tag);
    enum link_sent sent = link_send(worker->links, to, frame);
    if (sent != LINK_SENT)
        link_frame_free(frame);
    return sent;
}

void rig_send(struct rig_worker *worker, uint32_t to, uint64_t tag, uint32_t length)
{
    struct link_frame *frame = link_frame_new(length);
    rig_fill(frame, tag);
    enum link_sent sent;
    for (int64_t since = 0; (sent = link_send(worker->links, to, frame)) == LINK_NO_ROOM;)
        wait_more(&since);
    assert_int_equal(sent, LINK_SENT);
}

uint64_t rig_count(struct rig_worker *worker, const uint64_t *counter)
{
    pthread_mutex_lock(&worker->mutex);
    uint64_t value = *counter;
    pthread_mutex_unlock(&worker->mutex);
    return value;
}

void rig_wait(struct rig_worker *worker, const uint64_t *counter, uint64_t at_least)
{
    for (int64_t since = 0; rig_count(worker, counter) < at_least;)
        wait_more(&since);
}

struct link_figures rig_figures(struct rig_worker *worker, uint32_t other)
{
    struct link_figures figures;
    assert_true(link_figures(worker->links, other, &figures));
    return figures;
}

pid_t rig_fork(void)
{
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(127);
    return pid;
}

pid_t rig_spawn(const char *const *words, const char *failpoints, int *out)
{
    int ends[2];
    const char *arguments[8] = {"/proc/self/exe"}, *environment[2] = {NULL};
    for (size_t i = 0; words[i] != NULL && i < 6; i++)
        arguments[i + 1] = words[i];
    char *variable = mem_printf("LEAT_FAILPOINTS=%s", failpoints != NULL ? failpoints : "");
    environment[0] = failpoints != NULL ? variable : NULL;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = rig_fork();
    if (pid == 0) { /* no memory from here on: another thread may have held its lock */
        dup2(ends[1], STDOUT_FILENO);
        execve(arguments[0], (char *const *)arguments, (char *const *)environment);
        _exit(127);
    }
    free(variable);
    close(ends[1]);
    *out = ends[0];
    return pid;
}

void rig_read_line(int out, char *line, size_t size)
{
    size_t length = 0;
    while (length + 1 < size && read(out, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = '\0';
}
