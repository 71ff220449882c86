#include "cli/serve_figures.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "leat serve figures 1 "

/* --- Text --- */

void serve_report_write(uint64_t sequence, const struct serve_moment *models, uint32_t count,
                        struct byte_buffer *out)
{
    count = MIN(count, (uint32_t)SERVE_FIGURES_MODELS_MAX);
    buffer_printf(out, HEAD "%" PRIu64 " %" PRIu32 "\n", sequence, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct serve_moment *m = &models[i];
        buffer_printf(out, "%s %.6f %" PRIu64 " %" PRIu64, m->name, m->seconds, m->requests, m->rows);
        for (uint32_t k = 0; k < OUTCOMES; k++)
            buffer_printf(out, " %" PRIu64 " %" PRIu64, m->outcomes[k], m->totals[k]);
        buffer_printf(out, " %.6f", m->p50_ms);
        for (uint32_t k = 0; k < PHASES; k++)
            buffer_printf(out, " %.6f", m->p99_ms[k]);
        buffer_printf(out, " %" PRIu64 " %" PRId64 " %s\n", m->waiting_rows, m->staleness_ms, m->doing);
    }
}

/* A text that is read from its begin on; has_failed stays true. */
struct reader {
    const char *at;
    bool has_failed;
};

static void take_character(struct reader *r, char wanted)
{
    r->has_failed |= *r->at != wanted;
    if (!r->has_failed)
        r->at++;
}

/* A whole number from `least` on. */
static int64_t take_number(struct reader *r, int64_t least)
{
    char *end = NULL;
    errno = 0;
    bool is_number = (*r->at >= '0' && *r->at <= '9') || *r->at == '-';
    int64_t value = is_number ? strtoll(r->at, &end, 10) : 0;
    r->has_failed |= !is_number || errno != 0 || end == r->at || value < least;
    if (r->has_failed)
        return 0;
    r->at = end;
    return value;
}

static uint64_t take_count(struct reader *r)
{
    uint64_t value = (uint64_t)take_number(r, 0);
    take_character(r, ' ');
    return value;
}

/* A finite number that is not negative. */
static double take_amount(struct reader *r)
{
    char *end = NULL;
    bool is_number = *r->at >= '0' && *r->at <= '9';
    double value = is_number ? strtod(r->at, &end) : 0.0;
    r->has_failed |= !is_number || end == r->at || !__builtin_isfinite(value);
    if (r->has_failed)
        return 0.0;
    r->at = end;
    take_character(r, ' ');
    return value;
}

/* A text of printable ASCII up to the character `stop`, which is taken, too. */
static void take_text(struct reader *r, char stop, char *out, size_t bytes)
{
    size_t length = 0;
    while (r->at[length] >= ' ' && r->at[length] <= '~' && r->at[length] != stop)
        length++;
    r->has_failed |= length >= bytes || r->at[length] != stop;
    if (r->has_failed)
        return;
    memcpy(out, r->at, length);
    out[length] = '\0';
    r->at += length + 1;
}

static void take_moment(struct reader *r, struct serve_moment *m)
{
    *m = (struct serve_moment){0};
    take_text(r, ' ', m->name, sizeof(m->name));
    m->seconds = take_amount(r);
    m->requests = take_count(r);
    m->rows = take_count(r);
    for (uint32_t k = 0; k < OUTCOMES; k++) {
        m->outcomes[k] = take_count(r);
        m->totals[k] = take_count(r);
    }
    m->p50_ms = take_amount(r);
    for (uint32_t k = 0; k < PHASES; k++)
        m->p99_ms[k] = take_amount(r);
    m->waiting_rows = take_count(r);
    m->staleness_ms = take_number(r, -1);
    take_character(r, ' ');
    take_text(r, '\n', m->doing, sizeof(m->doing));
    r->has_failed |= m->seconds <= 0.0;
}

int serve_report_read(const char *path, struct serve_report *report)
{
    char *text;
    size_t bytes;
    int error = os_read_file(path, SERVE_FIGURES_BYTES_MAX, &text, &bytes);
    if (error != 0)
        return error;
    struct serve_report *read = mem_calloc(1, sizeof(*read));
    struct reader r = {.at = text, .has_failed = strncmp(text, HEAD, strlen(HEAD)) != 0};
    if (!r.has_failed)
        r.at += strlen(HEAD);
    read->sequence = take_count(&r);
    int64_t count = take_number(&r, 0);
    take_character(&r, '\n');
    r.has_failed |= count > SERVE_FIGURES_MODELS_MAX;
    for (int64_t i = 0; i < count && !r.has_failed; i++)
        take_moment(&r, &read->models[read->count++]);
    bool is_good = !r.has_failed && r.at == text + bytes;
    if (is_good)
        *report = *read;
    free(read);
    free(text);
    return is_good ? 0 : EBADMSG;
}

/* --- The writer --- */

struct serve_figures {
    char *path, *new_path;
    void (*say)(void *user, const char *line);
    void *user;
    struct serve_past past; /* of the thread that puts, like moments and sequence */
    struct serve_moment *moments;
    uint64_t sequence;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the members below */
    pthread_cond_t changed;
    struct byte_buffer waiting; /* the text to write next; empty: none */
    bool must_stop;
};

static int write_file(const struct serve_figures *f, const struct byte_buffer *text)
{
    int fd = open(f->new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    int error = os_write_all(fd, text->data, text->length, NULL);
    close(fd);
    return error != 0 ? error : os_rename(f->new_path, f->path, NULL);
}

/* Says that the file cannot be written, or can be again, where that has changed. */
static void tell(const struct serve_figures *f, int before, int error)
{
    char line[4400];
    if ((before == 0) == (error == 0))
        return;
    if (error != 0)
        snprintf(line, sizeof(line),
                 "the server's figures cannot be written to %s: %s; requests are answered", f->path,
                 strerror(error));
    else
        snprintf(line, sizeof(line), "the server's figures are written to %s again", f->path);
    f->say(f->user, line);
}

static void *write_all(void *argument)
{
    struct serve_figures *f = argument;
    struct byte_buffer text = {0};
    int failure = 0;
    pthread_mutex_lock(&f->mutex);
    while (!f->must_stop || f->waiting.length > 0) {
        if (f->waiting.length == 0) {
            pthread_cond_wait(&f->changed, &f->mutex);
            continue;
        }
        struct byte_buffer spare = text;
        text = f->waiting;
        f->waiting = spare;
        buffer_clear(&f->waiting);
        pthread_mutex_unlock(&f->mutex);
        int error = write_file(f, &text);
        tell(f, failure, error);
        failure = error;
        pthread_mutex_lock(&f->mutex);
    }
    pthread_mutex_unlock(&f->mutex);
    buffer_free(&text);
    return NULL;
}

struct serve_figures *serve_figures_start(const char *path, void (*say)(void *user, const char *line),
                                          void *user)
{
    struct serve_figures *f = mem_calloc(1, sizeof(*f));
    f->path = mem_strdup(path);
    f->new_path = mem_printf("%s.tmp", path);
    f->say = say;
    f->user = user;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    refused_unless_begun(pthread_create(&f->thread, NULL, write_all, f));
    return f;
}

void serve_figures_put(struct serve_figures *f, const struct server_status *models, uint32_t count,
                       int64_t now_us)
{
    if (f->moments == NULL)
        f->moments = mem_calloc(MAX(count, 1), sizeof(*f->moments));
    serve_moments(&f->past, models, count, now_us, f->moments);
    pthread_mutex_lock(&f->mutex);
    buffer_clear(&f->waiting);
    serve_report_write(++f->sequence, f->moments, count, &f->waiting);
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

void serve_figures_stop(struct serve_figures *f)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->mutex);
    f->must_stop = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    buffer_free(&f->waiting);
    serve_past_free(&f->past);
    free(f->moments);
    free(f->path);
    free(f->new_path);
    free(f);
}
