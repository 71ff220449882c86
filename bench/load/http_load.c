/* Sends requests over HTTP/1.1 at a given rate, and tells how long the answers took.
 *
 *     http_load PORT REQUESTS CONNECTIONS RATE SECONDS
 *
 * Request k is due k / RATE seconds after the start, whether or not earlier ones were answered, and its latency counts from
 * then: what waits because the server is behind counts as waiting. A generator that sends the next request when a
 * connection is free again, and counts from there, leaves just these waits out ("coordinated omission"). So do h2load
 * --rps, whose requests come in bursts every 10 ms besides, and wrk. RATE 0: each connection sends its next request when
 * it has the answer; latencies then say little.
 *
 * REQUESTS has whole requests, each behind its length (4 bytes, little-endian), which are sent in turn. Prints a line of
 * JSON: answers with status 200, 503 and 504, with latencies from when they were due and from when they were sent, in
 * microseconds; and the seconds until the last answer, for all requests are answered that were due by the end. */
#include "core/base.h"
#include "core/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 8192, REQUESTS_MAX = 100000, ANSWER_MAX = 1 << 20, EVENTS = 256, DRAIN_S = 10 };
static const int64_t SECOND_NS = 1000000000;

struct connection {
    int socket;
    char *answer;
    size_t bytes, capacity;
    const struct str *request; /* NULL: the connection is idle */
    size_t written;
    int64_t due_ns, sent_ns;
};

/* Latencies of answers with one status, microseconds. */
struct answers {
    float *from_due, *from_sent;
    size_t count, capacity;
};

static struct {
    struct str *requests;
    size_t requests_count;
    struct connection connections[CONNECTIONS_MAX];
    uint32_t idle[CONNECTIONS_MAX]; /* a ring: the connection that is idle for longest is used next */
    size_t idle_first, idle_count, connections_count;
    int epoll;
    double rate;
    int64_t begin_ns, end_ns;
    uint64_t sent, answered, others;
    size_t backlog_most; /* requests that were due and found no idle connection */
    struct answers good, refused, expired;
} load;

static void die(const char *what)
{
    fprintf(stderr, "http_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void read_requests(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t length;
    if (file == NULL)
        die(path);
    load.requests = mem_calloc(REQUESTS_MAX, sizeof(*load.requests));
    while (load.requests_count < REQUESTS_MAX && fread(&length, sizeof(length), 1, file) == 1) {
        char *data = mem_alloc(length);
        if (fread(data, 1, length, file) != length)
            die(path);
        load.requests[load.requests_count++] = (struct str){data, length};
    }
    fclose(file);
    if (load.requests_count == 0)
        die(path);
}

static void open_connection(uint32_t i, uint16_t port)
{
    struct connection *c = &load.connections[i];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&address, sizeof(address)) != 0)
        die("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->capacity = 4096;
    c->answer = mem_alloc(c->capacity);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    if (epoll_ctl(load.epoll, EPOLL_CTL_ADD, c->socket, &event) != 0)
        die("epoll_ctl");
    load.idle[load.idle_count++] = i;
}

static void note(struct answers *answers, double from_due_us, double from_sent_us)
{
    if (answers->count == answers->capacity) {
        answers->capacity = MAX(2 * answers->capacity, (size_t)4096);
        answers->from_due = mem_realloc(answers->from_due, answers->capacity * sizeof(float));
        answers->from_sent = mem_realloc(answers->from_sent, answers->capacity * sizeof(float));
    }
    answers->from_due[answers->count] = (float)from_due_us;
    answers->from_sent[answers->count++] = (float)from_sent_us;
}

/* --- Sending --- */

/* Writes what is left of the request; a large one may need several calls. */
static void write_on(struct connection *c, uint32_t i)
{
    ssize_t bytes = send(c->socket, c->request->data + c->written, c->request->length - c->written,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && errno != EAGAIN)
        die("send");
    c->written += bytes > 0 ? (size_t)bytes : 0;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    event.events |= c->written < c->request->length ? EPOLLOUT : 0;
    if (event.events != EPOLLIN || bytes < (ssize_t)c->request->length)
        (void)epoll_ctl(load.epoll, EPOLL_CTL_MOD, c->socket, &event);
}

/* How many requests are due; none is beyond the end. */
static uint64_t count_due(int64_t now)
{
    if (load.rate <= 0.0)
        return now < load.end_ns ? UINT64_MAX : load.sent;
    return (uint64_t)((double)(MIN(now, load.end_ns - 1) - load.begin_ns) * load.rate / (double)SECOND_NS) +
           1;
}

static int64_t due_at(uint64_t k)
{
    return load.begin_ns + (int64_t)((double)k * (double)SECOND_NS / load.rate);
}

static void send_due(int64_t now)
{
    uint64_t due = count_due(now);
    while (load.sent < due && load.idle_count > 0) {
        uint32_t i = load.idle[load.idle_first];
        struct connection *c = &load.connections[i];
        load.idle_first = (load.idle_first + 1) % load.connections_count;
        load.idle_count--;
        c->request = &load.requests[load.sent % load.requests_count];
        c->written = c->bytes = 0;
        c->sent_ns = now_ns();
        c->due_ns = load.rate > 0.0 ? due_at(load.sent) : c->sent_ns;
        load.sent++;
        write_on(c, i);
    }
    if (load.rate > 0.0)
        load.backlog_most = MAX(load.backlog_most, (size_t)(due - load.sent));
}

/* --- Answers --- */

/* The bytes of the whole answer; 0: its head is not there yet. */
static size_t answer_bytes(const struct connection *c)
{
    static const char name[] = "content-length:";
    const char *end = memmem(c->answer, c->bytes, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    for (const char *line = c->answer; line < end;
         line = (const char *)memchr(line, '\n', (size_t)(end - line) + 2) + 1)
        if (strncasecmp(line, name, sizeof(name) - 1) == 0)
            return (size_t)(end + 4 - c->answer) + (size_t)strtoul(line + sizeof(name) - 1, NULL, 10);
    errno = EPROTO;
    die("an answer without content-length");
    return 0;
}

static void end_answer(struct connection *c, uint32_t i)
{
    int64_t now = now_ns();
    double from_due = (double)(now - c->due_ns) / 1e3, from_sent = (double)(now - c->sent_ns) / 1e3;
    if (memcmp(c->answer + 9, "200", 3) == 0)
        note(&load.good, from_due, from_sent);
    else if (memcmp(c->answer + 9, "503", 3) == 0)
        note(&load.refused, from_due, from_sent);
    else if (memcmp(c->answer + 9, "504", 3) == 0)
        note(&load.expired, from_due, from_sent);
    else
        load.others++;
    load.answered++;
    c->request = NULL;
    load.idle[(load.idle_first + load.idle_count++) % load.connections_count] = i;
}

static void read_on(struct connection *c, uint32_t i)
{
    if (c->bytes == c->capacity - 1) {
        c->capacity *= 2;
        if (c->capacity > ANSWER_MAX)
            die("an answer is too long");
        c->answer = mem_realloc(c->answer, c->capacity);
    }
    ssize_t bytes = recv(c->socket, c->answer + c->bytes, c->capacity - 1 - c->bytes, MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0 || c->request == NULL)
        die("a connection was closed, or had bytes that nobody asked for");
    c->bytes += (size_t)bytes;
    c->answer[c->bytes] = '\0';
    size_t whole = answer_bytes(c);
    if (whole > 0 && c->bytes >= whole)
        end_answer(c, i);
}

/* --- The run --- */

/* Waits for an answer, at most until the next request is due. */
static int wait(struct epoll_event *events)
{
    int64_t now = now_ns(), until = load.end_ns + DRAIN_S * SECOND_NS;
    if (load.rate <= 0.0)
        until = MIN(until, MAX(load.end_ns, now + SECOND_NS / 100));
    else if (load.idle_count > 0 && due_at(load.sent) < load.end_ns)
        until = due_at(load.sent);
    else if (load.sent == load.answered)
        until = load.end_ns;
    int64_t left = MAX(until - now, 0);
    struct timespec timeout = {left / SECOND_NS, left % SECOND_NS};
    int count = epoll_pwait2(load.epoll, events, EVENTS, &timeout, NULL);
    if (count < 0 && errno != EINTR)
        die("epoll_pwait2");
    return MAX(count, 0);
}

static void run(double seconds)
{
    static struct epoll_event events[EVENTS];
    load.begin_ns = now_ns();
    load.end_ns = load.begin_ns + (int64_t)(seconds * (double)SECOND_NS);
    for (int64_t now = load.begin_ns; now < load.end_ns + DRAIN_S * SECOND_NS; now = now_ns()) {
        send_due(now);
        if (now >= load.end_ns && load.sent == load.answered &&
            (load.rate <= 0.0 || load.sent >= count_due(now)))
            return;
        int count = wait(events);
        for (int e = 0; e < count; e++) {
            struct connection *c = &load.connections[events[e].data.u32];
            if ((events[e].events & EPOLLOUT) != 0 && c->request != NULL)
                write_on(c, events[e].data.u32);
            if ((events[e].events & ~(uint32_t)EPOLLOUT) != 0)
                read_on(c, events[e].data.u32);
        }
    }
    errno = ETIMEDOUT;
    die("answers did not come");
}

/* --- Figures --- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(float *values, size_t count, double q)
{
    if (count == 0)
        return 0.0;
    qsort(values, count, sizeof(*values), by_value);
    return (double)values[MIN((size_t)(q * (double)count), count - 1)];
}

static void print_answers(const char *name, struct answers *answers)
{
    printf(
        "\"%s\": {\"count\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"most\": %.1f, \"sent_p50\": %.1f, \"sent_p99\": %.1f}, ",
        name, answers->count, quantile(answers->from_due, answers->count, 0.5),
        quantile(answers->from_due, answers->count, 0.99), quantile(answers->from_due, answers->count, 1.0),
        quantile(answers->from_sent, answers->count, 0.5),
        quantile(answers->from_sent, answers->count, 0.99));
}

static double number(const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "http_load: expected a number from %g to %g, not `%s`\n", least, most, text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("http_load PORT REQUESTS CONNECTIONS RATE SECONDS\n", stderr);
        return 2;
    }
    uint16_t port = (uint16_t)number(argv[1], 1, UINT16_MAX);
    read_requests(argv[2]);
    load.connections_count = (size_t)number(argv[3], 1, CONNECTIONS_MAX);
    load.rate = number(argv[4], 0, 1e6);
    double seconds = number(argv[5], 0.001, 3600);
    prctl(PR_SET_TIMERSLACK, 1UL);
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < load.connections_count; i++)
        open_connection(i, port);
    run(seconds);
    double took = (double)(now_ns() - load.begin_ns) / (double)SECOND_NS;
    printf("{");
    print_answers("good", &load.good);
    print_answers("refused", &load.refused);
    print_answers("expired", &load.expired);
    printf("\"others\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"backlog\": %zu, \"seconds\": %.4f}\n",
           load.others, load.sent, load.backlog_most, took);
    return 0;
}
