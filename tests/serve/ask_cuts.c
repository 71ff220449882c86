/* Asks a server from several threads without a pause, and reads every answer: all rows of an answer must say the same.
 *
 *     leat_ask_cuts PORT REQUESTS THREADS CONNECTIONS COUNT
 *
 * The model's weights all hold one number, and each row of a request has other weights (test_cuts.py): an answer whose rows
 * differ was made of two cuts. REQUESTS has whole requests over HTTP/1.1, each behind its length and its rows (4 bytes each,
 * little-endian), of the outputs `prediction` and `n`; they are sent in turn, on CONNECTIONS connections of each thread. Ends
 * when COUNT answers were read, or at the end of standard input.
 *
 * Prints a line for each moment that answers named: cut, features, prediction, n and the number of its answers; the caller
 * compares the numbers with those that the job must have had then. A moment may have several lines. An answer that is no
 * score, is not as expected, or is made of two cuts is printed on standard error, and the status is 1. */
#include "core/base.h"
#include "core/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    THREADS_MAX = 64,
    CONNECTIONS_MAX = 64,
    REQUESTS_MAX = 10000,
    REQUEST_BYTES_MAX = 1 << 20,
    ANSWER_BYTES_MAX = 1 << 20,
    TEXT_BYTES = 48,
    MOMENTS_MAX = 1 << 24,
    SHOWN_BYTES = 2000,
    LOOK_MS = 20, /* between two looks at standard input */
};

struct request {
    struct str bytes;
    uint32_t rows;
};

/* What an answer says of itself, and the value of all its rows, as they are written. */
struct moment {
    char cut[TEXT_BYTES], features[TEXT_BYTES], prediction[TEXT_BYTES], n[TEXT_BYTES];
    uint64_t answers;
};

struct connection {
    int socket;
    const struct request *request;
    char *answer;
    size_t bytes;
};

struct asker {
    pthread_t thread;
    struct connection connections[CONNECTIONS_MAX];
    uint64_t next; /* request */
    struct moment *moments;
    size_t moments_count, moments_capacity;
};

static struct {
    uint16_t port;
    struct request *requests;
    uint64_t requests_count, count;
    uint32_t connections;
    atomic_uint_fast64_t answers;
    atomic_bool is_over;
} asked;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "ask_cuts: %s: %s\n", what, strerror(errno));
    exit(1);
}

_Noreturn static void refuse(const char *why, const struct connection *c)
{
    fprintf(stderr, "ask_cuts: %s: %.*s\n", why, (int)MIN(c->bytes, (size_t)SHOWN_BYTES), c->answer);
    exit(1);
}

static void read_requests(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t head[2];
    if (file == NULL)
        die(path);
    asked.requests = mem_calloc(REQUESTS_MAX, sizeof(*asked.requests));
    while (asked.requests_count < REQUESTS_MAX && fread(head, sizeof(head), 1, file) == 1) {
        if (head[0] == 0 || head[0] > REQUEST_BYTES_MAX)
            die("a request's length");
        char *data = mem_alloc(head[0]);
        if (fread(data, 1, head[0], file) != head[0])
            die(path);
        asked.requests[asked.requests_count++] = (struct request){.bytes = {data, head[0]}, .rows = head[1]};
    }
    fclose(file);
    if (asked.requests_count == 0)
        die("no request is there");
}

static void connect_to(struct connection *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(asked.port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&address, sizeof(address)) != 0)
        die("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->answer = mem_alloc(ANSWER_BYTES_MAX);
}

/* --- Answers --- */

/* Copies the text behind `name` up to one of the bytes in `ends`. Returns where it ended. */
static const char *text_behind(const struct connection *c, const char *from, const char *name,
                               const char *ends, char *text)
{
    const char *at = strstr(from, name);
    if (at == NULL)
        refuse(name, c);
    at += strlen(name);
    size_t length = strcspn(at, ends);
    if (length == 0 || length >= TEXT_BYTES)
        refuse(name, c);
    memcpy(text, at, length);
    text[length] = '\0';
    return at + length;
}

/* Takes the value that all elements of an output have. */
static const char *value_of(const struct connection *c, const char *from, const char *output, char *text)
{
    const char *at = strstr(from, output);
    if (at == NULL)
        refuse(output, c);
    at = text_behind(c, at, "\"data\":[", ",]", text);
    size_t length = strlen(text);
    uint32_t rows = 1;
    while (*at == ',') {
        if (memcmp(at + 1, text, length) != 0 || (at[1 + length] != ',' && at[1 + length] != ']'))
            refuse("an answer is made of two cuts, its rows differ", c);
        at += 1 + length;
        rows++;
    }
    if (rows != c->request->rows)
        refuse("an answer has another number of rows than its request", c);
    return at;
}

static void note(struct asker *asker, const struct moment *moment)
{
    struct moment *last = asker->moments + asker->moments_count - 1;
    if (asker->moments_count > 0 && strcmp(last->cut, moment->cut) == 0 &&
        strcmp(last->features, moment->features) == 0 && strcmp(last->prediction, moment->prediction) == 0 &&
        strcmp(last->n, moment->n) == 0) {
        last->answers++;
        return;
    }
    if (asker->moments_count == asker->moments_capacity) {
        asker->moments_capacity = MAX(2 * asker->moments_capacity, (size_t)1024);
        if (asker->moments_capacity > MOMENTS_MAX)
            die("too many moments");
        asker->moments = mem_realloc(asker->moments, asker->moments_capacity * sizeof(*moment));
    }
    asker->moments[asker->moments_count++] = *moment;
}

static void check_answer(struct asker *asker, const struct connection *c, const char *body)
{
    struct moment moment = {.answers = 1};
    if (memcmp(c->answer, "HTTP/1.1 200", 12) != 0)
        refuse("a request was not answered with scores", c);
    const char *at = text_behind(c, body, "\"cut\":\"", "\"", moment.cut);
    at = text_behind(c, at, "\"features\":", ",}", moment.features);
    at = value_of(c, at, "\"name\":\"prediction\"", moment.prediction);
    value_of(c, at, "\"name\":\"n\"", moment.n);
    note(asker, &moment);
}

/* Where the answer's body begins, if all of the answer is there, else NULL. */
static const char *whole_body(const struct connection *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n");
    if (end == NULL)
        return NULL;
    const char *length = strcasestr(c->answer, "\r\ncontent-length:");
    if (length == NULL || length > end)
        refuse("an answer without content-length", c);
    size_t head = (size_t)(end + 4 - c->answer);
    return c->bytes < head + strtoul(length + 17, NULL, 10) ? NULL : c->answer + head;
}

static void read_answer(struct asker *asker, struct connection *c)
{
    const char *body;
    c->bytes = 0;
    do {
        if (c->bytes == ANSWER_BYTES_MAX - 1)
            refuse("an answer is too long", c);
        ssize_t bytes = recv(c->socket, c->answer + c->bytes, ANSWER_BYTES_MAX - 1 - c->bytes, 0);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            die("a connection was closed");
        c->bytes += (size_t)bytes;
        c->answer[c->bytes] = '\0';
        body = whole_body(c);
    } while (body == NULL);
    check_answer(asker, c, body);
}

/* --- The run --- */

static void send_request(struct asker *asker, struct connection *c)
{
    size_t sent = 0;
    c->request = &asked.requests[asker->next++ % asked.requests_count];
    while (sent < c->request->bytes.length) {
        ssize_t bytes =
            send(c->socket, c->request->bytes.data + sent, c->request->bytes.length - sent, MSG_NOSIGNAL);
        if (bytes < 0 && errno != EINTR)
            die("send");
        sent += bytes > 0 ? (size_t)bytes : 0;
    }
}

/* A thread. Its connections are asked together, and then read. */
static void *ask(void *argument)
{
    struct asker *asker = argument;
    for (uint32_t i = 0; i < asked.connections; i++)
        connect_to(&asker->connections[i]);
    while (!atomic_load_explicit(&asked.is_over, memory_order_relaxed)) {
        for (uint32_t i = 0; i < asked.connections; i++)
            send_request(asker, &asker->connections[i]);
        for (uint32_t i = 0; i < asked.connections; i++)
            read_answer(asker, &asker->connections[i]);
        uint64_t before = atomic_fetch_add_explicit(&asked.answers, asked.connections, memory_order_relaxed);
        if (before + asked.connections >= asked.count)
            atomic_store_explicit(&asked.is_over, true, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < asked.connections; i++) {
        close(asker->connections[i].socket);
        free(asker->connections[i].answer);
    }
    return NULL;
}

static void wait_over(void)
{
    char byte;
    while (!atomic_load_explicit(&asked.is_over, memory_order_relaxed)) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&input, 1, LOOK_MS) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
            atomic_store_explicit(&asked.is_over, true, memory_order_relaxed);
    }
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || value < 1 || value > most) {
        fprintf(stderr, "ask_cuts: expected a number from 1 to %" PRIu64 ", not `%s`\n", most, text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static struct asker askers[THREADS_MAX];
    if (argc != 6) {
        fputs("leat_ask_cuts PORT REQUESTS THREADS CONNECTIONS COUNT\n", stderr);
        return 2;
    }
    asked.port = (uint16_t)number(argv[1], UINT16_MAX);
    read_requests(argv[2]);
    uint32_t threads = (uint32_t)number(argv[3], THREADS_MAX);
    asked.connections = (uint32_t)number(argv[4], CONNECTIONS_MAX);
    asked.count = number(argv[5], UINT64_MAX);
    for (uint32_t i = 0; i < threads; i++) {
        askers[i].next = i * asked.requests_count / threads;
        if (pthread_create(&askers[i].thread, NULL, ask, &askers[i]) != 0)
            die("a thread");
    }
    wait_over();
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(askers[i].thread, NULL);
        for (size_t m = 0; m < askers[i].moments_count; m++) {
            const struct moment *moment = &askers[i].moments[m];
            printf("%s %s %s %s %" PRIu64 "\n", moment->cut, moment->features, moment->prediction, moment->n,
                   moment->answers);
        }
        free(askers[i].moments);
    }
    return 0;
}
