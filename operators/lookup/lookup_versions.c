#include "operators/lookup/lookup_versions.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/wait.h"
#include "operators/lookup/lookup_kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGEST_BYTES = LOOKUP_DIGEST_BYTES, LINE_BYTES = 20 + 1 + DIGEST_BYTES + 1, LOG_BYTES_MAX = 64 << 20 };
enum { SETTLE_US = 1000000, FROM_DIGITS = 20 };

struct version {
    uint64_t from; /* its first micro-batch, as numbered in the order log */
    char digest[DIGEST_BYTES + 1];
    struct lookup_table *table; /* NULL: not in memory */
    uint32_t seats;
};

struct versions {
    struct lookup_source source;
    struct lookup_kept kept;
    char next[32];                          /* directory where this start of the run makes copies */
    const struct operator_context *context; /* of the first instance */
    bool is_replaying; /* replay or trace: the log says which version; nothing is written or watched */
    struct operator_history history;
    int64_t refresh_us;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    /* Guarded by the mutex. */
    struct version **items; /* by rising `from`; malloc'd */
    uint32_t count;
    struct version *candidate; /* not in the log yet */
    bool has_begun, has_failed;
    uint64_t turned; /* 1 + micro-batch of the last versions_turn */
    uint64_t changes, refused;
    char error[REPORT_ERROR_BYTES];
    pthread_t thread;
    bool has_thread, must_end;
    /* Of the thread. */
    struct lookup_signature seen, pending; /* of the file last taken or refused; at the last look */
    uint64_t pruned;                       /* `changes` at the last prune */
    bool is_missing;                       /* there was no file at the last look */
};

static void version_free(struct version *version)
{
    if (version != NULL)
        lookup_table_free(version->table);
    free(version);
}

static struct version *version_new(uint64_t from, const char *digest, struct lookup_table *table)
{
    struct version *version = mem_calloc(1, sizeof(*version));
    version->from = from;
    version->table = table;
    memcpy(version->digest, digest, DIGEST_BYTES);
    return version;
}

static void add(struct versions *v, struct version *version)
{
    v->items = mem_realloc(v->items, (v->count + 1) * sizeof(struct version *));
    v->items[v->count++] = version;
}

static void drop(struct versions *v, uint32_t index)
{
    version_free(v->items[index]);
    memmove(v->items + index, v->items + index + 1, (--v->count - index) * sizeof(struct version *));
}

/* --- The log --- */

static bool digest_is_good(const char *digest)
{
    return strspn(digest, "0123456789abcdef") >= DIGEST_BYTES;
}

/* Adds the log's versions to v->items; none where there is no log. False: it is damaged or cannot be read. */
static bool log_read(struct versions *v, const char *directory, struct arena *arena)
{
    char *text;
    size_t bytes;
    int error = os_read_file(lookup_path(arena, directory, "LOG"), LOG_BYTES_MAX, &text, &bytes);
    if (error == ENOENT || error == ENOTDIR)
        return true;
    if (error != 0)
        return false;
    bool is_good = bytes % LINE_BYTES == 0;
    for (size_t at = 0; is_good && at < bytes; at += LINE_BYTES) {
        char *end, line[LINE_BYTES];
        memcpy(line, text + at, LINE_BYTES);
        is_good = line[LINE_BYTES - 1] == '\n';
        line[LINE_BYTES - 1] = '\0';
        uint64_t from = strtoull(line, &end, 10);
        is_good &= end == line + FROM_DIGITS && *end == ' ' && digest_is_good(end + 1) &&
                   (v->count == 0 || from > v->items[v->count - 1]->from);
        if (is_good)
            add(v, version_new(from, end + 1, NULL));
    }
    free(text);
    return is_good;
}

/* Writes the whole log, by a rename. Returns 0 or an errno. */
static int log_write(const struct versions *v)
{
    struct arena arena = {0};
    const char *directory = v->history.directory;
    const char *temporary = arena_printf(&arena, "%s/LOG.tmp-%u", directory, v->history.life);
    struct byte_buffer text = {0};
    for (uint32_t i = 0; i < v->count; i++)
        buffer_printf(&text, "%020llu %s\n", (unsigned long long)v->items[i]->from, v->items[i]->digest);
    int error = os_mkdirs(directory);
    if (error == 0)
        error = os_write_file(temporary, text.data, text.length, "sink.write", "sink.fsync");
    if (error == 0)
        error = operator_check(v->context);
    if (error == 0)
        error = os_rename(temporary, lookup_path(&arena, directory, "LOG"), "sink.rename");
    if (error == 0)
        error = os_fsync_directory(directory, "sink.fsync");
    buffer_free(&text);
    arena_free(&arena);
    return error;
}

/* --- Seats; the mutex is held --- */

/* The version of a micro-batch, as numbered in the order log; NULL: the log begins later. *until: the first
 * micro-batch of the next version. */
static struct version *version_at(const struct versions *v, uint64_t micro_batch, uint64_t *until)
{
    uint32_t next = 0;
    while (next < v->count && v->items[next]->from <= micro_batch)
        next++;
    *until = next < v->count ? v->items[next]->from : UINT64_MAX;
    return next == 0 ? NULL : v->items[next - 1];
}

static const char *log_directory(const struct versions *v)
{
    return v->history.replayed != NULL ? v->history.replayed : v->history.directory;
}

static void leave(const struct versions *v, struct version_seat *seat)
{
    struct version *version = seat->version;
    seat->version = NULL;
    if (version == NULL || --version->seats > 0 || version == v->items[v->count - 1])
        return;
    lookup_table_free(version->table);
    version->table = NULL;
}

static bool take_seat(struct versions *v, uint64_t micro_batch, struct version_seat *seat)
{
    uint64_t ahead = v->history.ahead, until;
    struct version *version = version_at(v, micro_batch + ahead, &until);
    if (version == NULL)
        return false;
    seat->until = until == UINT64_MAX ? until : until - ahead;
    if (version == seat->version)
        return true;
    leave(v, seat); /* first: if it is the last seat, that makes room */
    if (version->table == NULL) {
        struct arena arena = {0};
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        version->table = lookup_kept_take(&v->kept, log_directory(v), version->digest, &diags);
        arena_free(&arena);
    }
    if (version->table == NULL)
        return false;
    version->seats++;
    seat->version = version;
    return true;
}

static const char *const missing_hint =
    "copies of the table are removed with the checkpoints that used them: start from a newer checkpoint; or, "
    "to use the table as it is now, remove `refresh` from the job and begin a new run (`--from` keeps all "
    "other state)";

/* The message that the version of `micro_batch` is missing; in the arena. */
static const char *missing(const struct versions *v, uint64_t micro_batch, struct arena *arena)
{
    uint64_t until;
    const struct version *version = version_at(v, micro_batch + v->history.ahead, &until);
    return arena_printf(
        arena, "the version of `%s` that micro-batch %llu was computed with (%s) is not in `%s`",
        v->source.path, (unsigned long long)(micro_batch + v->history.ahead),
        version == NULL ? "older than all known versions" : version->digest, log_directory(v));
}

bool versions_seat(struct versions *v, const struct operator_context *context, uint64_t micro_batch,
                   struct version_seat *seat)
{
    pthread_mutex_lock(&v->mutex);
    bool is_there = take_seat(v, micro_batch, seat);
    if (!is_there && !v->has_failed) {
        struct arena arena = {0};
        operator_fail(context, DIAG_FILE_CHANGED, v->source.span, missing(v, micro_batch, &arena),
                      missing_hint);
        v->has_failed = true;
        arena_free(&arena);
    }
    pthread_mutex_unlock(&v->mutex);
    return is_there;
}

void versions_leave(struct versions *v, struct version_seat *seat)
{
    pthread_mutex_lock(&v->mutex);
    leave(v, seat);
    pthread_mutex_unlock(&v->mutex);
}

/* --- The thread that watches the file --- */

/* Prints the diagnostics once, as long as they stay the same, and keeps them for the live view. */
static void say(struct versions *v, const struct diag_list *diags)
{
    char text[REPORT_ERROR_BYTES];
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < diags->count && length < sizeof(text); i++) {
        const struct diag *d = &diags->items[i];
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s: %s%s%s", i == 0 ? "" : "; ",
                                   diag_code_name(d->code), d->message, d->cause == NULL ? "" : ": ",
                                   d->cause == NULL ? "" : d->cause);
    }
    pthread_mutex_lock(&v->mutex);
    bool is_new = strcmp(text, v->error) != 0;
    memcpy(v->error, text, sizeof(text));
    pthread_mutex_unlock(&v->mutex);
    if (is_new && text[0] != '\0')
        log_say(LOG_LEVEL_WARNING, "%s; the job goes on with its current table", text);
}

/* Whether another table may be read: there is no candidate, and only one version is in memory. */
static bool has_room(struct versions *v)
{
    uint32_t tables = 0;
    pthread_mutex_lock(&v->mutex);
    for (uint32_t i = 0; i < v->count; i++)
        tables += v->items[i]->table != NULL;
    bool has_candidate = v->candidate != NULL;
    pthread_mutex_unlock(&v->mutex);
    return tables <= 1 && !has_candidate;
}

/* Drops the versions that the oldest checkpoint does not need, then the copies that no version uses. */
static void prune(struct versions *v)
{
    uint64_t oldest = operator_history_oldest(v->context);
    pthread_mutex_lock(&v->mutex);
    uint32_t before = v->count;
    v->pruned = v->changes;
    while (v->count > 1 && v->items[1]->from <= oldest && v->items[0]->seats == 0)
        drop(v, 0);
    bool is_good = v->count < before && log_write(v) == 0;
    DIR *stream = is_good ? opendir(v->history.directory) : NULL;
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        struct arena arena = {0};
        bool is_wanted = strlen(entry->d_name) != DIGEST_BYTES || !digest_is_good(entry->d_name) ||
                         (v->candidate != NULL && strcmp(v->candidate->digest, entry->d_name) == 0);
        for (uint32_t i = 0; i < v->count; i++)
            is_wanted |= strcmp(v->items[i]->digest, entry->d_name) == 0;
        if (!is_wanted && operator_check(v->context) == 0)
            os_remove_tree(lookup_path(&arena, v->history.directory, entry->d_name));
        arena_free(&arena);
    }
    if (stream != NULL)
        closedir(stream);
    pthread_mutex_unlock(&v->mutex);
}

static void offer(struct versions *v, struct lookup_table *table)
{
    const char *digest = lookup_table_digest(table);
    pthread_mutex_lock(&v->mutex);
    if (strcmp(v->items[v->count - 1]->digest, digest) == 0)
        lookup_table_free(table);
    else
        v->candidate = version_new(0, digest, table);
    pthread_mutex_unlock(&v->mutex);
}

/* Looks at the file once. Returns the us until the next look. */
static int64_t look(struct versions *v)
{
    int64_t soon = MIN(v->refresh_us, (int64_t)SETTLE_US);
    struct arena arena = {0};
    struct diag_list diags;
    struct stat info;
    bool is_refused = false;
    if (!has_room(v))
        return soon;
    diag_list_init(&diags, &arena);
    int error = stat(v->source.path, &info) == 0 ? 0 : errno;
    struct lookup_signature now = error == 0 ? lookup_signature_of(&info) : (struct lookup_signature){0};
    if (v->is_missing && error == 0) /* a file that is back is read again */
        v->seen = (struct lookup_signature){0};
    v->is_missing = error != 0;
    bool is_settled = error == 0 && lookup_is_same(&now, &v->pending);
    bool is_changed = error == 0 && !lookup_is_same(&now, &v->seen);
    v->pending = now;
    if (error != 0)
        lookup_cannot(&v->source, &diags, error, "read");
    if (is_changed && is_settled) {
        struct lookup_table *table = lookup_kept_file(&v->kept, &now, &is_refused, &diags);
        if (table != NULL || is_refused)
            v->seen = now;
        if (table != NULL)
            offer(v, table);
    }
    if (error != 0 || (is_changed && is_settled)) {
        say(v, &diags);
        pthread_mutex_lock(&v->mutex);
        v->refused += is_refused;
        pthread_mutex_unlock(&v->mutex);
    }
    arena_free(&arena);
    return is_changed && !is_settled ? soon : v->refresh_us;
}

static void *looking(void *argument)
{
    struct versions *v = argument;
    int64_t wait_us = MIN(v->refresh_us, (int64_t)SETTLE_US);
    pthread_mutex_lock(&v->mutex);
    while (!v->must_end) {
        struct timespec until = wait_until(wait_us);
        while (!v->must_end && wait_on(&v->condition, &v->mutex, &until))
            ;
        if (v->must_end)
            break;
        bool has_turned = v->pruned != v->changes;
        pthread_mutex_unlock(&v->mutex);
        if (has_turned)
            prune(v);
        wait_us = look(v);
        pthread_mutex_lock(&v->mutex);
    }
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}

/* After the log could not be written. The new log may be in place all the same, renamed but not durable, and
 * name a version for micro-batches computed without it. So the old log is written again; the change waits for
 * another barrier. If that fails too, the log is unknown, and the run ends before the next micro-batch. */
static void take_back(struct versions *v, int error)
{
    if (log_write(v) == 0) {
        log_say(LOG_LEVEL_WARNING, "E0605: the log of `%s` cannot be written: %s; its table does not change",
                v->source.path, strerror(error));
        return;
    }
    struct arena arena = {0};
    const char *what =
        arena_printf(&arena, "the log of the versions of `%s` can neither be written nor restored: %s",
                     v->source.path, strerror(error));
    v->has_failed = true;
    enum diag_code code = error == ENOSPC || error == EDQUOT ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED;
    operator_fail(v->context, code, v->source.span, what,
                  "repair the disk of the checkpoints and restart the job: it goes on from the newest one");
    arena_free(&arena);
}

void versions_turn(struct versions *v, uint64_t micro_batch)
{
    pthread_mutex_lock(&v->mutex);
    struct version *candidate = v->turned == micro_batch + 1 ? NULL : v->candidate;
    v->turned = micro_batch + 1;
    if (candidate != NULL && micro_batch + 1 >= v->history.until &&
        micro_batch >= v->items[v->count - 1]->from) {
        candidate->from = micro_batch + 1;
        add(v, candidate);
        int error = log_write(v);
        if (error != 0) {
            v->count--;
            take_back(v, error);
        } else {
            v->candidate = NULL;
            v->changes++;
        }
    }
    pthread_mutex_unlock(&v->mutex);
}

/* --- Begin and end --- */

struct versions *versions_new(const struct lookup_source *source, int64_t refresh_us,
                              struct operator_context *context)
{
    struct operator_history history;
    operator_history(context, &history);
    if (history.replayed == NULL && (history.directory == NULL || !history.is_live))
        return NULL;
    struct versions *v = mem_calloc(1, sizeof(*v));
    v->source = *source;
    v->context = context;
    v->history = history;
    v->is_replaying = history.replayed != NULL || history.is_traced;
    v->refresh_us = refresh_us;
    snprintf(v->next, sizeof(v->next), "next-%u", history.life);
    const char *slash = strrchr(source->path, '/');
    v->kept = (struct lookup_kept){.source = &v->source,
                                   .directory = history.directory,
                                   .base = slash == NULL ? source->path : slash + 1,
                                   .next = v->next,
                                   .context = context,
                                   .pool = context->pool};
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->condition, NULL);
    return v;
}

static bool refuse_log(const struct versions *v, bool is_whole, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, is_whole ? DIAG_FILE_CHANGED : DIAG_FILE_DAMAGED, v->source.span,
                                "the version of `%s` that rows were looked up in is not known: `%s/LOG` %s",
                                v->source.path, log_directory(v),
                                !is_whole       ? "is damaged"
                                : v->count == 0 ? "does not exist"
                                                : "is of a job without this step at the checkpoint");
    diag_hint(diags, d,
              v->is_replaying
                  ? "give --order the job's directory of checkpoints, which contains this log; or, to use "
                    "the file as it is now, remove `refresh` from the job"
                  : "begin a new run: `--from` with the checkpoint keeps all other state, `--fresh` "
                    "keeps none");
    return false;
}

static bool begin_with_log(struct versions *v, struct diag_list *diags)
{
    struct arena arena = {0};
    bool is_whole = log_read(v, log_directory(v), &arena);
    arena_free(&arena);
    bool is_known = is_whole && v->count > 0 && !v->history.is_added;
    return is_known || refuse_log(v, is_whole, diags);
}

/* Finds the first version: the one with the checkpoint's digest, else the file as it is now. */
static bool begin_with(struct versions *v, struct str digest, struct diag_list *diags)
{
    struct lookup_table *table = NULL;
    struct arena arena = {0};
    struct diag_list unused;
    bool is_refused, is_resumed = digest.length == DIGEST_BYTES;
    diag_list_init(&unused, &arena);
    if (is_resumed) {
        const char *wanted = arena_strndup(&arena, digest.data, digest.length);
        table = lookup_kept_take(&v->kept, v->history.directory, wanted, &unused);
        if (table == NULL)
            table = lookup_kept_file(&v->kept, &v->seen, &is_refused, &unused);
        if (table != NULL && strcmp(lookup_table_digest(table), wanted) != 0) {
            lookup_table_free(table);
            table = NULL;
        }
        if (table == NULL) {
            struct diag *d = diag_error(
                diags, DIAG_FILE_CHANGED, v->source.span,
                "the version of `%s` that the checkpoint was taken with (%s) is not in `%s`, and the file "
                "has other content now",
                v->source.path, wanted, v->history.directory);
            diag_hint(diags, d,
                      "put the old file back, or begin a new run with the new file: `--from` with the "
                      "checkpoint keeps all other state, `--fresh` keeps none");
        }
    } else {
        table = lookup_kept_file(&v->kept, &v->seen, &is_refused, diags);
    }
    arena_free(&arena);
    uint64_t until;
    struct version *version = version_at(v, v->history.first, &until);
    if (table == NULL || version == NULL || strcmp(version->digest, lookup_table_digest(table)) != 0) {
        while (v->count > 0 && v->items[v->count - 1]->from >= v->history.first)
            drop(v, v->count - 1);
        if (table == NULL)
            return false;
        add(v, version = version_new(v->history.first, lookup_table_digest(table), NULL));
    }
    version->table = table;
    int error = log_write(v);
    if (error != 0)
        lookup_cannot(&v->source, diags, error, "kept beside the checkpoints");
    return error == 0;
}

/* Removes temporary files of other starts of the run, so that one that still runs has none to rename. */
static void sweep(const struct versions *v)
{
    struct arena arena = {0};
    DIR *stream = opendir(v->history.directory);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;)
        if (strncmp(entry->d_name, "LOG.tmp", strlen("LOG.tmp")) == 0 ||
            strncmp(entry->d_name, "next", strlen("next")) == 0)
            os_remove_tree(lookup_path(&arena, v->history.directory, entry->d_name));
    if (stream != NULL)
        closedir(stream);
    arena_free(&arena);
}

static bool begin(struct versions *v, struct operator_context *context, struct str digest)
{
    struct arena arena = {0};
    operator_history_micro_batches(context, &v->history);
    if (v->is_replaying)
        return begin_with_log(v, context->diags);
    sweep(v);
    bool is_new = digest.length == 0 || context->is_from;
    bool is_good = log_read(v, v->history.directory, &arena);
    arena_free(&arena);
    if (!is_good && !is_new && v->history.until > v->history.first)
        return refuse_log(v, false, context->diags);
    uint64_t last = is_new || !is_good ? 0 : MAX(v->history.first, v->history.until);
    while (v->count > 0 && (is_new || v->items[v->count - 1]->from > last))
        drop(v, v->count - 1);
    if (!begin_with(v, is_new ? (struct str){0} : digest, context->diags))
        return false;
    v->has_thread = pthread_create(&v->thread, NULL, looking, v) == 0;
    if (!v->has_thread)
        diag_error(context->diags, DIAG_MEMORY_BUDGET, v->source.span,
                   "the system refuses to start a thread");
    return v->has_thread;
}

bool versions_begin(struct versions *v, struct operator_context *context, struct str digest,
                    struct version_seat *seat)
{
    struct arena arena = {0};
    pthread_mutex_lock(&v->mutex);
    if (!v->has_begun)
        v->has_failed = !begin(v, context, digest);
    v->has_begun = true;
    bool is_good = !v->has_failed && take_seat(v, v->history.first, seat);
    if (!is_good && !v->has_failed) {
        struct diag *d = diag_error(context->diags, DIAG_FILE_CHANGED, v->source.span, "%s",
                                    missing(v, v->history.first, &arena));
        diag_hint(context->diags, d, "%s", missing_hint);
        v->has_failed = true;
    }
    pthread_mutex_unlock(&v->mutex);
    arena_free(&arena);
    return is_good;
}

bool versions_wait_for_restore(const struct versions *v)
{
    return v->history.will_restore;
}

void versions_free(struct versions *v)
{
    if (v == NULL)
        return;
    pthread_mutex_lock(&v->mutex);
    v->must_end = true;
    pthread_cond_broadcast(&v->condition);
    pthread_mutex_unlock(&v->mutex);
    if (v->has_thread)
        pthread_join(v->thread, NULL);
    while (v->count > 0)
        drop(v, v->count - 1);
    version_free(v->candidate);
    free(v->items);
    pthread_cond_destroy(&v->condition);
    pthread_mutex_destroy(&v->mutex);
    free(v);
}

const struct lookup_table *version_table(const struct version *version)
{
    return version->table;
}

void versions_figures(struct versions *v, struct version_figures *figures)
{
    pthread_mutex_lock(&v->mutex);
    *figures = (struct version_figures){.changes = v->changes, .refused = v->refused};
    memcpy(figures->error, v->error, sizeof(figures->error));
    pthread_mutex_unlock(&v->mutex);
}
