#include "cli/cluster_directory.h"

#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/head.h"
#include "state/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    ALONE_WAIT_US =
        5000000, /* for another worker, which holds the LOCK for a moment, or a process that dies */
    ALONE_LOOK_US = 50000,
};

static bool fail_file(struct cluster_directory *d, const char *what, const char *path, int error)
{
    struct diag *diag =
        diag_error(d->diags, DIAG_CHECKPOINT_FAILED, (struct span){0}, "cannot %s `%s`", what, path);
    diag_errno(d->diags, diag, error);
    diag_hint(d->diags, diag, "all workers must see the checkpoint directory under the same path");
    return false;
}

/* Reads NAME. *is_there: this cluster has begun here before. False after a diagnostic. */
static bool look_whose(struct cluster_directory *d, bool *is_there)
{
    const char *path = arena_printf(d->arena, "%s/NAME", d->folder);
    char *text;
    size_t bytes;
    int error = os_read_file(path, COORDINATION_NAME_BYTES_MAX + 1, &text, &bytes);
    *is_there = error == 0;
    if (error == ENOENT)
        return true;
    if (error != 0)
        return fail_file(d, "read", path, error);
    struct str found = {text, bytes};
    bool is_own = str_equal(found, d->name);
    if (!is_own) {
        struct diag *diag = diag_error(
            d->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
            "the checkpoints in `%s` are of another cluster: expected `%.*s`, found `%.*s`", d->path,
            STR_ARGS(d->name), (int)MIN(bytes, (size_t)COORDINATION_NAME_BYTES_MAX), text);
        diag_hint(d->diags, diag,
                  "go on with that cluster, or give this one a checkpoint directory of its own");
    }
    free(text);
    return is_own;
}

/* Writes a file that others read once it is whole; the first one stays. */
static int write_whole(const char *path, struct str bytes)
{
    char *made = mem_alloc(strlen(path) + 32);
    snprintf(made, strlen(path) + 32, "%s.new-%ld", path, (long)getpid());
    int error = os_write_file(made, bytes.data, bytes.length, NULL, NULL);
    if (error == 0)
        error = os_rename_new(made, path, NULL);
    if (error == EEXIST) {
        (void)unlink(made);
        error = 0;
    }
    free(made);
    return error != 0 ? error : os_fsync_parent(path, NULL);
}

bool cluster_directory_before(struct cluster_directory *d, struct byte_buffer *manifest, bool *is_there)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    *is_there = access(d->path, F_OK) == 0 && run_head_of_run(d->path, manifest, &diags);
    bool is_good = diags.errors == 0;
    for (unsigned i = 0; i < diags.count; i++)
        is_good |= diags.items[i].code == DIAG_NO_CHECKPOINT;
    if (!is_good)
        diag_error(d->diags, diags.items[0].code, (struct span){0}, "%s", diags.items[0].message);
    arena_free(&arena);
    return is_good;
}

/* Whether BEFORE is there, and says what it must. */
static bool read_before(struct cluster_directory *d)
{
    char *digits;
    size_t length;
    int64_t before;
    if (os_read_file(arena_printf(d->arena, "%s/BEFORE", d->folder), 16, &digits, &length) != 0)
        return false;
    bool is_number = literal_int((struct str){digits, length}, &before) && before >= 0 && before < UINT32_MAX;
    d->before = is_number ? (uint32_t)before : 0;
    free(digits);
    return is_number;
}

/* The generation of the run that was alone: as it was when the cluster began here, or as it is. */
static bool note_before(struct cluster_directory *d, bool has_history)
{
    struct byte_buffer manifest = {0};
    const char *why;
    bool is_there;
    if (has_history && read_before(d))
        return true;
    if (!cluster_directory_before(d, &manifest, &is_there))
        return false;
    struct run_head *head = mem_calloc(1, sizeof(*head));
    if (is_there && run_head_decode((struct str){manifest.data, manifest.length}, head, &why))
        d->before = head->parts[0].id.generation;
    free(head);
    buffer_free(&manifest);
    return true;
}

/* From which generation on the cluster counts its incarnations: the directory may lose the checkpoints of the run that was alone. */
static int claim_before(struct cluster_directory *d)
{
    char digits[16];
    const char *path = arena_printf(d->arena, "%s/BEFORE", d->folder);
    snprintf(digits, sizeof(digits), "%u", d->before);
    (void)unlink(path); /* of a beginning that came to nothing */
    return write_whole(path, str_from(digits));
}

static bool has_name(const struct cluster_directory *d)
{
    return access(arena_printf(d->arena, "%s/NAME", d->folder), F_OK) == 0;
}

static bool refuse_alone(struct cluster_directory *d, const struct diag_list *found)
{
    const struct diag *why = &found->items[0];
    struct diag *diag = diag_error(d->diags, why->code, (struct span){0}, "%s", why->message);
    if (why->cause != NULL)
        diag_cause(d->diags, diag, "%s", why->cause);
    if (why->code != DIAG_DIRECTORY_IN_USE)
        return false;
    diag_hint(
        d->diags, diag,
        "that run of the job is alone: stop it, and the workers go on from its last checkpoint; if its machine is gone for "
        "good, remove the file LOCK there");
    return false;
}

/* Takes the LOCK by which a run that is alone holds the directory. *dir NULL: this cluster has begun here meanwhile, and no run that is
 * alone does (run/checkpoints/begin.c). False after a diagnostic. */
static bool lock_out(struct cluster_directory *d, struct checkpoint_dir **dir)
{
    const struct checkpoint_dir_options options = {.path = d->path};
    struct arena arena = {.block_bytes = 4096};
    struct diag_list found;
    int64_t until = os_monotonic_us() + ALONE_WAIT_US;
    bool goes_on = true;
    for (*dir = NULL; goes_on && *dir == NULL && !has_name(d);) {
        arena_reset(&arena);
        diag_list_init(&found, &arena);
        *dir = checkpoint_dir_open(&options, &found);
        goes_on = *dir != NULL || (diag_has_code(&found, DIAG_DIRECTORY_IN_USE) && os_monotonic_us() < until);
        if (!goes_on)
            (void)refuse_alone(d, &found);
        else if (*dir == NULL)
            nanosleep(&(struct timespec){.tv_nsec = ALONE_LOOK_US * 1000}, NULL);
    }
    arena_free(&arena);
    return goes_on;
}

static const char *path_of_job(const struct cluster_directory *d)
{
    return arena_printf(d->arena, "%s/JOB", d->folder);
}

/* NAME comes last: where it is, all is. 0 or an errno. */
static int make_own(struct cluster_directory *d)
{
    int error = os_mkdirs(d->heads);
    if (error == 0)
        error = claim_before(d);
    if (error == 0)
        error = write_whole(path_of_job(d), str_from(d->job));
    return error != 0 ? error : write_whole(arena_printf(d->arena, "%s/NAME", d->folder), d->name);
}

/* A run that is alone takes the LOCK, and then looks for the cluster's folder; the folder is made by who holds the LOCK: so one of the
 * two sees the other. */
bool cluster_directory_claim(struct cluster_directory *d)
{
    struct checkpoint_dir *dir;
    bool is_there;
    if (!lock_out(d, &dir))
        return false;
    bool is_good = d->is_own || note_before(d, has_name(d));
    int error = dir != NULL && is_good ? make_own(d) : 0;
    if (error == 0 && dir != NULL)
        error = checkpoint_dir_check(dir);
    checkpoint_dir_close(dir);
    if (error != 0)
        return fail_file(d, "make", d->folder, error);
    return is_good && look_whose(d, &is_there);
}

/* The incarnation that a file in the folder tells of; 0: it is another file. */
static uint64_t announced(const char *name)
{
    uint64_t incarnation;
    char end;
    return sscanf(name, "incarnation-%" SCNu64 "%c", &incarnation, &end) == 1 ? incarnation : 0;
}

bool cluster_directory_announce(struct cluster_directory *d, uint32_t incarnation)
{
    const char *path = arena_printf(d->arena, "%s/incarnation-%010u", d->folder, incarnation);
    int error = os_write_file(path, "", 0, NULL, NULL);
    if (error == 0)
        error = os_fsync_parent(path, NULL);
    if (error != 0)
        return fail_file(d, "write", path, error);
    if (cluster_directory_is_replaced(d, incarnation)) {
        struct diag *diag =
            diag_error(d->diags, DIAG_TAKEN_OVER, (struct span){0},
                       "a later incarnation than %u has begun in `%s`", incarnation, d->folder);
        diag_hint(d->diags, diag, "this worker joins that one, or the next");
        return false;
    }
    DIR *stream = opendir(d->folder);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        uint64_t before = announced(entry->d_name);
        if (before > 0 && before < incarnation)
            (void)unlink(arena_printf(d->arena, "%s/%s", d->folder, entry->d_name));
    }
    if (stream != NULL)
        closedir(stream);
    return true;
}

bool cluster_directory_is_replaced(const struct cluster_directory *d, uint32_t incarnation)
{
    DIR *stream = opendir(d->folder);
    bool is = false;
    for (struct dirent *entry; stream != NULL && !is && (entry = readdir(stream)) != NULL;)
        is = announced(entry->d_name) > incarnation;
    if (stream != NULL)
        closedir(stream);
    return is;
}

void cluster_directory_newest(const struct cluster_directory *d, struct checkpoint_id *head,
                              uint32_t *generation)
{
    const char *const folders[] = {d->folder, d->heads};
    *head = (struct checkpoint_id){0};
    *generation = 0;
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        DIR *stream = opendir(folders[i]);
        for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
            struct checkpoint_id id;
            *generation = (uint32_t)MIN(MAX(announced(entry->d_name), (uint64_t)*generation), UINT32_MAX);
            if (run_head_read_name(entry->d_name, &id) && checkpoint_id_is_newer(id, *head))
                *head = id;
        }
        if (stream != NULL)
            closedir(stream);
    }
    *generation = MAX(*generation, head->generation);
}

bool cluster_directory_job(struct cluster_directory *d)
{
    char *text = NULL;
    size_t length = 0;
    bool is_there =
        os_read_file(path_of_job(d), sizeof(d->job), &text, &length) == 0 && length == sizeof(d->job) - 1;
    if (is_there)
        memcpy(d->job, text, length);
    free(text);
    return is_there;
}

bool cluster_directory_look(struct cluster_directory *d, bool *has_history)
{
    struct checkpoint_dir *dir = NULL;
    d->folder = arena_printf(d->arena, "%s/" CHECKPOINT_CLUSTER, d->path);
    d->heads = arena_printf(d->arena, "%s/heads", d->folder);
    if (!look_whose(d, has_history) || (access(d->path, F_OK) == 0 && !lock_out(d, &dir)))
        return false;
    checkpoint_dir_close(dir);
    return d->is_own || note_before(d, *has_history);
}

/* --- Heads --- */

void cluster_digest_text(struct str bytes, char text[CLUSTER_DIGEST_TEXT])
{
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    checkpoint_digest_of(bytes, digest);
    hex_text(digest, sizeof(digest), text);
}

/* The head that etcd names is not where heads lie. */
static bool refuse_missing(struct cluster_directory *d, const struct cluster_head *head)
{
    struct diag *diag =
        diag_error(d->diags, DIAG_NO_CHECKPOINT, (struct span){0},
                   "the cluster goes on from the head `%.*s`, as etcd says, and it is not in `%s`",
                   STR_ARGS(head->manifest), d->heads);
    diag_hint(
        d->diags, diag,
        "do all workers see the same checkpoint directory? If it was removed: restore it, or begin the job anew as a cluster of "
        "another name than `%.*s`",
        STR_ARGS(d->name));
    return false;
}

bool cluster_directory_head(struct cluster_directory *d, const struct cluster_head *head,
                            struct byte_buffer *manifest)
{
    char digest[CLUSTER_DIGEST_TEXT], name[RUN_HEAD_NAME_BYTES];
    bool is_there;
    if (head->revision == 0)
        return cluster_directory_before(d, manifest, &is_there);
    run_head_name((uint32_t)head->incarnation + d->before, head->epoch, name);
    const char *path = arena_printf(d->arena, "%s/%s", d->heads, name);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return refuse_missing(d, head);
    struct run_head *decoded = mem_alloc(sizeof(*decoded));
    bool is_good = run_head_load(path, manifest, decoded, d->diags);
    free(decoded);
    cluster_digest_text((struct str){manifest->data, manifest->length}, digest);
    if (!is_good || (str_is(head->manifest, name) && str_is(head->digest, digest)))
        return is_good;
    struct diag *diag = diag_error(d->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                                   "`%s` is not the head: etcd names `%.*s` of digest %.*s, found digest %s",
                                   path, STR_ARGS(head->manifest), STR_ARGS(head->digest), digest);
    diag_hint(d->diags, diag, "do all workers see the same checkpoint directory?");
    return false;
}

bool cluster_directory_has_parts(struct str manifest, uint32_t *unseen, struct diag_list *diags)
{
    const char *why;
    struct run_head *head = mem_alloc(sizeof(*head));
    bool are_seen = run_head_decode(manifest, head, &why);
    *unseen = RUN_WORKERS_MAX;
    for (uint32_t i = 0; are_seen && i < head->count; i++) {
        const struct run_head_part *other = &head->parts[i];
        char path[CHECKPOINT_PATH_BYTES];
        uint8_t digest[CHECKPOINT_DIGEST_BYTES];
        uint64_t bytes;
        snprintf(path, sizeof(path), "%.*s", STR_ARGS(other->directory));
        const struct checkpoint_dir_options options = {.path = path, .read_only = true};
        struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
        are_seen = dir != NULL && checkpoint_digest(dir, other->id, digest, &bytes, diags) &&
                   memcmp(digest, other->digest, sizeof(digest)) == 0;
        checkpoint_dir_close(dir);
        if (!are_seen)
            *unseen = i;
    }
    free(head);
    return are_seen;
}
