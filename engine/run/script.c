/* Chooses the order log that a run replays, and lists its files: the log of --order, else the log that the
 * manifests of its recordings name, else the log of a fallback. A log is a file, a directory of
 * --record-order, or what a directory of checkpoints still has. Also finds the segment of a micro-batch in
 * these files. */
#include "run/barrier.h"
#include "run/order.h"

#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool cannot_obey(struct run *run, const char *path, int error, const char *why)
{
    struct diag *d = diag_error(run->diags,
                                error == ENOENT ? DIAG_E0602
                                : error != 0    ? DIAG_E0601
                                                : DIAG_E0603,
                                (struct span){0}, "the order log `%s` cannot be obeyed%s%s", path,
                                why != NULL ? ": " : "", why != NULL ? why : "");
    if (error != 0)
        diag_errno(run->diags, d, error);
    diag_hint(
        run->diags, d,
        "name what `leat run --record-order` wrote, or the job's directory of checkpoints; or compute the "
        "order with --order=none");
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
        return cannot_obey(run, log->path, error, why);
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

/* A log in a directory of checkpoints. Its files are listed later, when the first micro-batch that is
 * wanted is known. */
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
           cannot_obey(run, log->path, 0,
                       "it is neither a directory of --record-order nor of checkpoints with an order log");
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
            return cannot_obey(run, log->path, error, why);
        if (log->count > 0)
            memcpy(&log->identity, id, sizeof(log->identity));
        is_good = log->count > 0 || find_checkpoints(run, log);
    }
    log->identity |= is_good; /* an identity of 0 would mean that there is no log */
    return is_good;
}

/* The log of the recordings: the manifest of each must name the same one. */
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
                diag_error(run->diags, DIAG_E0604, run->plan->nodes[run->plan->sources[i]].span,
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

/* --- The script --- */

static void take_redo(struct run *run, struct order_script *script)
{
    struct checkpoint_dir *dir = run->checkpoints == NULL ? NULL : run->checkpoints->dir;
    while (dir != NULL && checkpoint_redo(dir, script->paths_count) != NULL)
        script->paths_count++;
    script->paths = arena_array(&run->arena, struct order_path, MAX(script->paths_count, 1));
    for (uint32_t i = 0; i < script->paths_count; i++)
        script->paths[i] =
            (struct order_path){arena_strdup(&run->arena, checkpoint_redo(dir, i)), UINT64_MAX, false};
    script->redo_next = script->paths_count == 0 ? 0 : checkpoint_redo_next(dir);
}

bool script_init(struct run *run)
{
    struct order_script *script = &run->order->script;
    struct log log = {.path = run->options.order};
    bool is_none = log.path != NULL && strcmp(log.path, "none") == 0;
    if (is_none)
        log.path = NULL;
    else if (!(log.path != NULL ? find_log(run, &log) : find_recorded(run, &log)))
        return false;
    uint32_t partitions = run->sequencer.partitions_room;
    script->name = log.path;
    script->identity = log.identity;
    script->is_of_checkpoints = log.is_of_checkpoints;
    script->paths = log.paths;
    script->paths_count = log.count;
    if (log.path == NULL)
        take_redo(run, script);
    script->sources_places = arena_array(&run->arena, uint32_t, MAX(run->plan->sources_count, 1));
    script->map = arena_array(&run->arena, uint32_t, ORDER_PARTITIONS_MAX);
    script->slices = arena_array(&run->arena, struct order_slice, MAX(partitions, 1));
    script->is_ended = arena_array(&run->arena, bool, MAX(partitions, 1));
    script->is_idle = arena_array(&run->arena, bool, MAX(partitions, 1));
    run->sequencer.is_obeying = script->identity != 0 || script->paths_count > 0;
    return true;
}

bool script_list(struct run *run)
{
    struct order_script *script = &run->order->script;
    const char **paths;
    struct run_id id;
    uint64_t oldest;
    if (!script->is_of_checkpoints)
        return true;
    struct checkpoint_dir *dir = open_checkpoints(run, script->name);
    if (dir == NULL)
        return false;
    checkpoint_order_paths(dir, script->next, &run->arena, &paths, &script->paths_count, &oldest, &id,
                           run->diags);
    checkpoint_dir_close(dir);
    script->paths = arena_array(&run->arena, struct order_path, MAX(script->paths_count, 1));
    for (uint32_t i = 0; i < script->paths_count; i++)
        script->paths[i] = (struct order_path){paths[i], UINT64_MAX, false};
    if (script->paths_count > 0 || oldest <= script->next)
        return true;
    struct diag *d = diag_error(
        run->diags, DIAG_E0603, (struct span){0},
        "the checkpoints in `%s` have the order from number %llu on, and %llu is the first that is "
        "wanted",
        script->name, (unsigned long long)oldest, (unsigned long long)script->next);
    diag_hint(
        run->diags, d,
        "what is before went with its checkpoints: begin with a checkpoint that is still there (--from), or "
        "let the job write all of its order log, beside them (`leat run --record-order DIR/`)");
    return false;
}

/* --- Its segments --- */

static void close_path(struct order_script *script)
{
    if (script->fd >= 0)
        close(script->fd);
    script->fd = -1;
    script->path++;
    script->offset = 0;
}

static bool open_path(struct run *run)
{
    struct order_script *script = &run->order->script;
    const char *path = script->paths[script->path].path;
    script->fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = os_file_bytes(path);
    if (script->fd < 0 || bytes < 0) {
        obey_refuse(run, DIAG_E0601, "it cannot be read: %s", strerror(errno));
        return false;
    }
    script->bytes = (uint64_t)bytes;
    return true;
}

static bool read_segment(struct run *run, const struct order_head *head)
{
    struct order_script *script = &run->order->script;
    uint64_t bytes = order_segment_bytes(head);
    free(script->text);
    script->text = malloc(bytes);
    leat_assert(script->text != NULL);
    size_t got = 0;
    int error = os_pread_all(script->fd, script->text, bytes, script->offset, &got);
    if (error != 0) {
        obey_refuse(run, DIAG_E0601, "it cannot be read: %s", strerror(error));
        return false;
    }
    order_close(&script->reader);
    script->has_segment = order_open(&script->reader, (struct str){script->text, got});
    script->until = MIN(head->next, script->paths[script->path].until);
    if (!script->has_segment)
        obey_refuse(run, DIAG_E0603, "%s", script->reader.why);
    return script->has_segment;
}

/* Whether the rest of the file is no whole segment, and need not be one: the file is still being written,
 * or its life was killed. */
static bool is_torn(const struct order_script *script, struct str text, const struct order_head *head)
{
    uint64_t left = script->bytes - script->offset;
    return script->paths[script->path].may_be_torn &&
           (text.length < ORDER_HEAD_BYTES || order_segment_bytes(head) > left);
}

bool script_find_segment(struct run *run, uint64_t number)
{
    struct order_script *script = &run->order->script;
    while (script->path < script->paths_count) {
        char text[ORDER_HEAD_BYTES];
        struct order_head head;
        size_t got = 0;
        if (number >= script->paths[script->path].until) {
            close_path(script);
            continue;
        }
        if (script->fd < 0 && !open_path(run))
            return false;
        if (script->offset == script->bytes) {
            close_path(script);
            continue;
        }
        int error = os_pread_all(script->fd, text, sizeof(text), script->offset, &got);
        const char *why = error != 0 ? strerror(error) : order_head_read((struct str){text, got}, &head);
        bool is_head = why == NULL || (error == 0 && got < sizeof(text));
        if (is_head && is_torn(script, (struct str){text, got}, &head)) {
            close_path(script);
            continue;
        }
        if (why != NULL) {
            obey_refuse(run, DIAG_E0603, "%s", why);
            return false;
        }
        if (head.next > number) {
            if (head.first <= number)
                return read_segment(run, &head);
            obey_refuse(run, DIAG_E0603, "the numbers %llu to %llu are missing in it",
                        (unsigned long long)number, (unsigned long long)head.first - 1);
            return false;
        }
        script->offset += order_segment_bytes(&head);
    }
    return true;
}
