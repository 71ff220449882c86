/* What callers of any thread do with links (link.h). */
#include "cluster/link_address.h"
#include "cluster/link_internal.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/quiet_thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- Beginning and end --- */

static bool refuse(struct diag_list *diags, const char *what, const char *bounds)
{
    struct diag *d =
        diag_error(diags, DIAG_LINK_FAILED, (struct span){0}, "%s of links is out of range", what);
    diag_hint(diags, d, "it must be %s", bounds);
    return false;
}

static bool is_budget(int64_t bytes)
{
    return bytes >= 1 && bytes <= LINK_BUDGET_MAX;
}

static bool options_are_good(const struct links_options *options, struct diag_list *diags)
{
    if (options->self > LINK_WORKER_MAX)
        return refuse(diags, "the worker's own number", "0 to 1023");
    if (options->incarnation > 0 &&
        (options->secret.length < LINK_SECRET_MIN || options->secret.length > LINK_SECRET_MAX))
        return refuse(diags, "the secret", "of 16 to 256 bytes");
    if (!is_budget(options->retained_bytes) || !is_budget(options->window_bytes))
        return refuse(diags, "a budget", "1 byte to 1 TiB");
    if (options->patience_us < 0 || options->silence_us < 0 || options->delay_us < 0 ||
        options->bytes_per_s < 0)
        return refuse(diags, "a time or a rate", "0 or more");
    return true;
}

static bool watch(struct links *links, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    return *fd >= 0 && epoll_ctl(links->poll_fd, EPOLL_CTL_ADD, *fd, &event) == 0;
}

static bool listen_at(struct links *links, const char *text, struct diag_list *diags)
{
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    int one = 1;
    if (!link_address_parse(text, true, &address, diags))
        return false;
    int fd = links->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, STRANGERS_MAX) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        struct diag *d =
            diag_error(diags, DIAG_LINK_FAILED, (struct span){0}, "links cannot listen on %s", text);
        diag_cause(diags, d, "%s", strerror(errno));
        diag_hint(diags, d, "take an address of this machine and a port that nobody uses; port 0 takes any");
        return false;
    }
    links->port = ntohs(address.sin_port);
    return true;
}

/* The descriptors that the runner sleeps on. */
static bool make_descriptors(struct links *links, struct diag_list *diags)
{
    links->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    links->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch(links, &links->wake_fd) && watch(links, &links->listen_fd))
        return true;
    struct diag *d =
        diag_error(diags, DIAG_LINK_FAILED, (struct span){0}, "links cannot have their descriptors");
    diag_cause(diags, d, "%s", strerror(errno));
    diag_hint(diags, d, "raise the limit of open files (`ulimit -n`)");
    return false;
}

static void dismantle(struct links *links)
{
    while (links->idle != NULL) {
        struct sending *sending = links->idle;
        links->idle = sending->next;
        free(sending);
    }
    const int fds[] = {links->poll_fd, links->wake_fd, links->listen_fd};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_cond_destroy(&links->changed);
    pthread_mutex_destroy(&links->mutex);
    free(links);
}

static bool start(struct links *links, const struct links_options *options, struct diag_list *diags)
{
    if (!listen_at(links, options->listen, diags) || !make_descriptors(links, diags))
        return false;
    if (quiet_thread_start(&links->runner, links_run, links))
        return true;
    struct diag *d =
        diag_error(diags, DIAG_LINK_FAILED, (struct span){0}, "the system refused a thread for links");
    diag_hint(diags, d, "raise the limit of processes (`ulimit -u`)");
    return false;
}

struct links *links_new(const struct links_options *options, struct diag_list *diags)
{
    if (!options_are_good(options, diags))
        return NULL;
    struct links *links = mem_calloc(1, sizeof(*links));
    links->options = *options;
    links->wake_fd = links->poll_fd = links->listen_fd = -1;
    links->incarnation = options->incarnation;
    links->secret_length = options->incarnation > 0 ? options->secret.length : 0;
    if (links->secret_length > 0)
        memcpy(links->secret, options->secret.data, links->secret_length);
    pthread_mutex_init(&links->mutex, NULL);
    pthread_cond_init(&links->changed, NULL);
    if (start(links, options, diags))
        return links;
    dismantle(links);
    return NULL;
}

void links_free(struct links *links)
{
    leat_assert(!pthread_equal(pthread_self(), links->runner));
    pthread_mutex_lock(&links->mutex);
    links->must_stop = true;
    links_wake(links);
    pthread_mutex_unlock(&links->mutex);
    pthread_join(links->runner, NULL);
    dismantle(links);
}

uint16_t links_port(const struct links *links)
{
    return links->port;
}

void links_restart(struct links *links, uint32_t self, uint64_t incarnation, struct str secret,
                   int64_t window_bytes)
{
    leat_assert(!pthread_equal(pthread_self(), links->runner) && self <= LINK_WORKER_MAX && incarnation > 0);
    leat_assert(is_budget(window_bytes));
    leat_assert(secret.length >= LINK_SECRET_MIN && secret.length <= LINK_SECRET_MAX);
    pthread_mutex_lock(&links->mutex);
    links->next_self = self;
    links->next_incarnation = incarnation;
    links->next_window = window_bytes;
    links->next_secret_length = secret.length;
    memcpy(links->next_secret, secret.data, secret.length);
    links->must_restart = true;
    links_wake(links);
    while (links->must_restart)
        pthread_cond_wait(&links->changed, &links->mutex);
    pthread_mutex_unlock(&links->mutex);
}

void links_end_silent(struct links *links)
{
    leat_assert(!pthread_equal(pthread_self(), links->runner));
    pthread_mutex_lock(&links->mutex);
    links->must_end_silent = true;
    links_wake(links);
    while (links->must_end_silent)
        pthread_cond_wait(&links->changed, &links->mutex);
    pthread_mutex_unlock(&links->mutex);
}

/* --- Links --- */

static struct link *make_link(struct links *links, uint32_t worker)
{
    struct link *link = mem_calloc(1, sizeof(*link));
    link->links = links;
    link->worker = worker;
    link->life = ++links->lives;
    link->state = LINK_GONE;
    link->frames_end = &link->frames;
    link->receiver.window = (uint64_t)links->options.window_bytes;
    link->figures.round_trip_us = -1;
    link->figures.probe_bytes_per_s = -1;
    link->dial_us = TIME_MAX;
    links->by_worker[worker] = link;
    links->workers_end = MAX(links->workers_end, worker + 1);
    return link;
}

bool link_to(struct links *links, uint32_t worker, const char *address, struct diag_list *diags)
{
    struct sockaddr_in parsed;
    leat_assert(!pthread_equal(pthread_self(), links->runner));
    if (worker > LINK_WORKER_MAX || worker == links->options.self)
        return refuse(diags, "the number of another worker", "0 to 1023, and not the own one");
    if (!link_address_parse(address, false, &parsed, diags))
        return false;
    pthread_mutex_lock(&links->mutex);
    struct link *link = links->by_worker[worker];
    while (link != NULL && link->is_closing) {
        pthread_cond_wait(&links->changed, &links->mutex);
        link = links->by_worker[worker];
    }
    if (link == NULL)
        link = make_link(links, worker);
    link->address = parsed;
    snprintf(link->address_text, sizeof(link->address_text), "%s", address);
    if (link->state == LINK_GONE) {
        link->state = links->options.self < worker ? LINK_DIALING : LINK_WAITING;
        link->is_called = true;
        links_wake(links);
    }
    pthread_mutex_unlock(&links->mutex);
    return true;
}

/* The link, with the mutex locked; NULL: there is none, or it is being closed. */
static struct link *find(struct links *links, uint32_t worker)
{
    struct link *link = worker <= LINK_WORKER_MAX ? links->by_worker[worker] : NULL;
    return link != NULL && !link->is_closing ? link : NULL;
}

void link_close(struct links *links, uint32_t worker)
{
    leat_assert(!pthread_equal(pthread_self(), links->runner));
    pthread_mutex_lock(&links->mutex);
    struct link *link = find(links, worker);
    uint64_t life = link != NULL ? link->life : 0;
    if (link != NULL) {
        link->is_closing = true;
        links_wake(links);
    }
    while (link != NULL && links->by_worker[worker] != NULL && links->by_worker[worker]->life == life)
        pthread_cond_wait(&links->changed, &links->mutex);
    pthread_mutex_unlock(&links->mutex);
}

/* --- Frames --- */

struct link_frame *link_frame_new(uint32_t length)
{
    leat_assert(length <= LINK_FRAME_MAX);
    struct link_frame *frame = mem_alloc(sizeof(*frame) + length);
    memset(frame, 0, sizeof(*frame));
    frame->length = length;
    return frame;
}

void link_frame_free(struct link_frame *frame)
{
    free(frame);
}

bool link_passes(const struct link *link, uint64_t bytes)
{
    const struct links *links = link->links;
    int64_t left = links->options.retained_bytes - links->figures.retained_bytes;
    leat_assert(left >= 0);
    return bytes <= MIN((uint64_t)left, credits_room(&link->sender));
}

static void want(struct link *link, const struct link_frame *frame)
{
    link->wanted_bytes = link->is_wanting ? MIN(link->wanted_bytes, frame->length) : frame->length;
    link->is_wanting = true;
    link->figures.refused_sends++;
}

/* Takes the frame into the link's list; with the mutex locked. */
static void append(struct links *links, struct link *link, struct link_frame *frame)
{
    frame->next = NULL;
    frame->sequence = ++link->sequence;
    frame->due_us = links->options.delay_us > 0 ? os_monotonic_us() + links->options.delay_us : 0;
    if (failpoint("link.late") != 0)
        frame->due_us = os_monotonic_us() + LATE_US;
    frame->is_twice = failpoint("link.twice") != 0;
    frame->is_cut = failpoint("link.cut") != 0;
    frame->is_damaged = failpoint("link.damaged") != 0;
    *link->frames_end = frame;
    link->frames_end = &frame->next;
    if (link->to_send == NULL)
        link->to_send = frame;
    credits_charge(&link->sender, frame->length);
    link->figures.retained_bytes += frame->length;
    links->figures.retained_bytes += frame->length;
}

enum link_sent link_send(struct links *links, uint32_t worker, struct link_frame *frame)
{
    enum link_sent sent = LINK_NO_LINK;
    pthread_mutex_lock(&links->mutex);
    struct link *link = find(links, worker);
    if (link != NULL && !link_passes(link, frame->length)) {
        sent = LINK_NO_ROOM;
        want(link, frame);
    } else if (link != NULL) {
        append(links, link, frame);
        links_wake_and_unlock(links);
        return LINK_SENT;
    }
    pthread_mutex_unlock(&links->mutex);
    return sent;
}

int64_t link_release(struct links *links, struct link_frame *frame)
{
    int64_t held = 0;
    pthread_mutex_lock(&links->mutex);
    struct link *link = find(links, frame->worker);
    if (link != NULL && link->life == frame->life) {
        credits_release(&link->receiver, frame->length);
        held = link->figures.held_bytes -= frame->length;
        if (credits_is_urgent(&link->receiver) || (link->tell_us == 0 && credits_must_tell(&link->receiver)))
            links_wake(links);
    }
    pthread_mutex_unlock(&links->mutex);
    free(frame);
    return held;
}

/* --- What can be seen --- */

bool link_ping(struct links *links, uint32_t worker)
{
    pthread_mutex_lock(&links->mutex);
    struct link *link = find(links, worker);
    bool is_up = link != NULL && link->state == LINK_UP;
    if (is_up) {
        link->must_ping = true;
        links_wake(links);
    }
    pthread_mutex_unlock(&links->mutex);
    return is_up;
}

bool link_probe(struct links *links, uint32_t worker, uint32_t bytes)
{
    leat_assert(bytes >= 1 && bytes <= LINK_PROBE_MAX);
    pthread_mutex_lock(&links->mutex);
    struct link *link = find(links, worker);
    bool may_begin = link != NULL && link->state == LINK_UP && link->probe_began_us == 0;
    if (may_begin) {
        link->probe_size = link->probe_left = bytes;
        link->probe_began_us = -1; /* the runner sets it with the first byte */
        link->figures.probe_bytes_per_s = -1;
        links_wake(links);
    }
    pthread_mutex_unlock(&links->mutex);
    return may_begin;
}

bool link_figures(struct links *links, uint32_t worker, struct link_figures *figures)
{
    pthread_mutex_lock(&links->mutex);
    const struct link *link = find(links, worker);
    if (link != NULL)
        *figures = link->figures;
    pthread_mutex_unlock(&links->mutex);
    return link != NULL;
}

struct links_figures links_figures(struct links *links)
{
    pthread_mutex_lock(&links->mutex);
    struct links_figures figures = links->figures;
    pthread_mutex_unlock(&links->mutex);
    return figures;
}
