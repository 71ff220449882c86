/* Chooses the order log that a run replays, and lists its files: the log of --order, else the log that the
 * manifests of its recordings name, else the log of a fallback. A log is a file, a directory of
 * --record-order, or what a directory of checkpoints still has. Also finds the segment of a micro-batch in
 * these files. */
#include "run/order/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "state/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 512 };

static bool cannot_replay(struct run *run, const char *path, int error, const char *why)
{
    struct diag *d = diag_error(run->diags,
                                error == ENOENT ? DIAG_NO_FILE
                                : error != 0    ? DIAG_FILE_UNREADABLE
                                                : DIAG_FILE_DAMAGED,
                                (struct span){0}, "the order log `%s` cannot be replayed%s%s", path,
                                why != NULL ? ": " : "", why != NULL ? why : "");
    if (error != 0)
        diag_errno(run->diags, d, error);
    diag_hint(
        run->diags, d,
        "name a file or directory that `leat run --record-order` wrote, or the job's checkpoint directory; "
        "or compute the order with --order=none");
    return false;
}

/* --- A log by its path --- */

struct log {
    const char *path;
    uint64_t identity; /* 0: none */
    struct order_path *paths;
    uint32_t count;
    bool is_of_checkpoints;
};

/* A log in a file. Its identity is the digest of the first segment, which stays when more segments are
 * appended. */
static bool find_file(struct run *run, struct log *log)
{
    char head_text[ORDER_HEAD_BYTES];
    struct order_head head;
    size_t got = 0;
    const char *why = NULL;
    int fd = open(log->path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : os_pread_all(fd, head_text, sizeof(head_text), 0, &got);
    if (error == 0)
        why = order_head_read((struct str){head_text, got}, &head);
    if (error == 0 && why == NULL)
        error = os_pread_all(fd, &log->identity, sizeof(log->identity), ORDER_HEAD_BYTES + head.bytes, &got);
    if (error == 0 && why == NULL && got < sizeof(log->identity))
        why = "it ends within a segment";
    if (fd >= 0)
        close(fd);
    if (error != 0 || why != NULL)
        return cannot_replay(run, log->path, error, why);
    log->count = 1;
    log->paths = arena_new(&run->arena, struct order_path);
    *log->paths = (struct order_path){log->path, UINT64_MAX, false};
    return true;
}

static struct checkpoint_dir *open_checkpoints(struct run *run, const char *path)
{
    struct checkpoint_dir_options options = {.path = path, .read_only = true};
    return checkpoint_dir_open(&options, run->diags);
}

/* A log in a directory of checkpoints. replay_log_list lists its files later, once the first micro-batch to
 * replay is known. */
static bool find_checkpoints(struct run *run, struct log *log)
{
    struct checkpoint_dir *dir = open_checkpoints(run, log->path);
    const char **paths;
    struct run_id id;
    uint64_t oldest;
    if (dir == NULL)
        return false;
    checkpoint_order_paths(dir, UINT64_MAX, &run->arena, &paths, &log->count, &oldest, &id, run->diags);
    checkpoint_dir_close(dir);
    log->is_of_checkpoints = true;
    memcpy(&log->identity, id.bytes, sizeof(log->identity));
    return oldest < UINT64_MAX ||
           cannot_replay(
               run, log->path, 0,
               "it is neither a directory of --record-order nor a checkpoint directory with an order log");
}

static bool find_log(struct run *run, struct log *log)
{
    struct stat info;
    uint8_t id[ORDER_RUN_BYTES];
    int error = 0;
    bool is_good;
    if (stat(log->path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        is_good = find_file(run, log);
    } else {
        const char *why = order_directory(log->path, &run->arena, &log->paths, &log->count, id, &error);
        if (why != NULL)
            return cannot_replay(run, log->path, error, why);
        if (log->count > 0)
            memcpy(&log->identity, id, sizeof(log->identity));
        is_good = log->count > 0 || find_checkpoints(run, log);
    }
    log->identity |= is_good; /* an identity of 0 would mean that there is no log */
    return is_good;
}

/* Finds the log of the recordings: their manifests must all name the same log, or none. */
static bool find_recorded(struct run *run, struct log *log)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        struct log own = {.path = run->sources[i].order_log};
        bool is_same = i > 0 && own.path != NULL && log->path != NULL && strcmp(own.path, log->path) == 0;
        if (is_same)
            continue;
        if (own.path != NULL && !find_log(run, &own))
            return false;
        if (i > 0 && (own.identity != log->identity ||
                      (own.path != NULL && os_file_bytes(own.path) != os_file_bytes(log->path)))) {
            struct diag *d =
                diag_error(run->diags, DIAG_FILE_CHANGED, run->plan->nodes[run->plan->sources[i]].span,
                           "the recordings of sources `%.*s` and `%.*s` do not have the same order log",
                           STR_ARGS(run->plan->nodes[run->plan->sources[0]].name),
                           STR_ARGS(run->plan->nodes[run->plan->sources[i]].name));
            diag_hint(run->diags, d,
                      "replay recordings of one run together, name a log with --order=PATH, or compute the "
                      "order with --order=none");
            return false;
        }
        *log = own;
    }
    return true;
}

/* --- The choice --- */

/* Takes the segments of checkpoints that a resume could not use; their log is then the one to replay. */
static void take_redo(struct run *run)
{
    struct replay_files *files = &run->order->files;
    while (run->dir != NULL && checkpoint_redo(run->dir, files->count) != NULL)
        files->count++;
    files->paths = arena_array(&run->arena, struct order_path, MAX(files->count, 1));
    for (uint32_t i = 0; i < files->count; i++)
        files->paths[i] =
            (struct order_path){arena_strdup(&run->arena, checkpoint_redo(run->dir, i)), UINT64_MAX, false};
    run->order->replay.redo_next = files->count == 0 ? 0 : checkpoint_redo_next(run->dir);
}

bool replay_log_choose(struct run *run)
{
    struct order *order = run->order;
    struct log log = {.path = run->options.order};
    bool is_none = log.path != NULL && strcmp(log.path, "none") == 0;
    if (is_none)
        log.path = NULL;
    else if (!(log.path != NULL ? find_log(run, &log) : find_recorded(run, &log)))
        return false;
    order->replay.name = log.path;
    order->replay.identity = log.identity;
    order->files.are_of_checkpoints = log.is_of_checkpoints;
    order->files.paths = log.paths;
    order->files.count = log.count;
    if (log.path == NULL)
        take_redo(run);
    return true;
}

struct replay_log *order_replay_log(const struct run *run)
{
    return &run->order->replay;
}

bool replay_log_is_there(const struct run *run)
{
    return run->order->replay.identity != 0 || run->order->files.count > 0;
}

bool replay_log_is_redo(const struct run *run)
{
    return run->order->replay.identity == 0;
}

void replay_log_free(struct order *order)
{
    if (order->files.fd >= 0)
        close(order->files.fd);
    order_close(&order->replay.reader);
    free(order->files.text);
}

void replay_log_refuse_so(struct run *run, enum diag_code code, const char *what, const char *hint)
{
    const struct replay_files *files = &run->order->files;
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d = diag_error(run->diags, code, (struct span){0}, "the order log does not fit: %s", what);
    if (files->at < files->count)
        diag_at(run->diags, d, files->paths[files->at].path, (int64_t)files->offset, -1);
    diag_hint(run->diags, d, "%s", hint);
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

void replay_log_refuse(struct run *run, enum diag_code code, const char *format, ...)
{
    char what[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    replay_log_refuse_so(
        run, code, what,
        replay_log_is_redo(run)
            ? "give the job the same inputs as before, or start anew with --fresh"
            : "give the run the recording that the order log was written for, or compute the order with "
              "--order=none");
}

bool replay_log_list(struct run *run)
{
    struct replay_log *replay = &run->order->replay;
    struct replay_files *files = &run->order->files;
    const char **paths;
    struct run_id id;
    uint64_t oldest;
    if (!files->are_of_checkpoints)
        return true;
    struct checkpoint_dir *dir = open_checkpoints(run, replay->name);
    if (dir == NULL)
        return false;
    checkpoint_order_paths(dir, replay->next, &run->arena, &paths, &files->count, &oldest, &id, run->diags);
    checkpoint_dir_close(dir);
    files->paths = arena_array(&run->arena, struct order_path, MAX(files->count, 1));
    for (uint32_t i = 0; i < files->count; i++)
        files->paths[i] = (struct order_path){paths[i], UINT64_MAX, false};
    if (files->count > 0 || oldest <= replay->next)
        return true;
    struct diag *d = diag_error(
        run->diags, DIAG_FILE_DAMAGED, (struct span){0},
        "the checkpoints in `%s` contain the order from micro-batch %llu on, and the replay starts at "
        "micro-batch %llu",
        replay->name, (unsigned long long)oldest, (unsigned long long)replay->next);
    diag_hint(
        run->diags, d,
        "the order before it was removed with its checkpoints: start from a checkpoint that still exists "
        "(--from), or let the job write its whole order log into another directory (`leat run --record-order "
        "DIR/`)");
    return false;
}

/* --- Segments of the log --- */

static void close_path(struct replay_files *files)
{
    if (files->fd >= 0)
        close(files->fd);
    files->fd = -1;
    files->at++;
    files->offset = 0;
}

static bool open_path(struct run *run)
{
    struct replay_files *files = &run->order->files;
    const char *path = files->paths[files->at].path;
    files->fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = os_file_bytes(path);
    if (files->fd < 0 || bytes < 0) {
        replay_log_refuse(run, DIAG_FILE_UNREADABLE, "it cannot be read: %s", strerror(errno));
        return false;
    }
    files->bytes = (uint64_t)bytes;
    return true;
}

static bool read_segment(struct run *run, const struct order_head *head)
{
    struct replay_log *replay = &run->order->replay;
    struct replay_files *files = &run->order->files;
    uint64_t bytes = order_segment_bytes(head);
    free(files->text);
    files->text = mem_alloc(bytes);
    size_t got = 0;
    int error = os_pread_all(files->fd, files->text, bytes, files->offset, &got);
    if (error != 0) {
        replay_log_refuse(run, DIAG_FILE_UNREADABLE, "it cannot be read: %s", strerror(error));
        return false;
    }
    order_close(&replay->reader);
    replay->has_segment = order_open(&replay->reader, (struct str){files->text, got});
    replay->until = MIN(head->next, files->paths[files->at].until);
    if (!replay->has_segment)
        replay_log_refuse(run, DIAG_FILE_DAMAGED, "%s", replay->reader.why);
    return replay->has_segment;
}

/* Whether the rest of the file is less than a segment, and may be: the file is still being written, or the
 * life that wrote it was killed. text: what was read of the segment's head. */
static bool is_torn(const struct replay_files *files, struct str text, const struct order_head *head)
{
    uint64_t left = files->bytes - files->offset;
    return files->paths[files->at].may_be_torn &&
           (text.length < ORDER_HEAD_BYTES || order_segment_bytes(head) > left);
}

bool replay_log_find_segment(struct run *run, uint64_t micro_batch)
{
    struct replay_files *files = &run->order->files;
    while (files->at < files->count) {
        char text[ORDER_HEAD_BYTES];
        struct order_head head;
        size_t got = 0;
        if (micro_batch >= files->paths[files->at].until) {
            close_path(files);
            continue;
        }
        if (files->fd < 0 && !open_path(run))
            return false;
        if (files->offset == files->bytes) {
            close_path(files);
            continue;
        }
        int error = os_pread_all(files->fd, text, sizeof(text), files->offset, &got);
        const char *why = error != 0 ? strerror(error) : order_head_read((struct str){text, got}, &head);
        bool is_head = why == NULL || (error == 0 && got < sizeof(text));
        if (is_head && is_torn(files, (struct str){text, got}, &head)) {
            close_path(files);
            continue;
        }
        if (why != NULL) {
            replay_log_refuse(run, DIAG_FILE_DAMAGED, "%s", why);
            return false;
        }
        if (head.next > micro_batch) {
            if (head.first <= micro_batch)
                return read_segment(run, &head);
            replay_log_refuse(run, DIAG_FILE_DAMAGED, "micro-batches %llu to %llu are missing in the log",
                              (unsigned long long)micro_batch, (unsigned long long)head.first - 1);
            return false;
        }
        files->offset += order_segment_bytes(&head);
    }
    return true;
}
