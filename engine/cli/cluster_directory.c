#include "cli/cluster_directory.h"

#include "cluster/coordination.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/head.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* From which generation on the cluster counts its incarnations: the directory may lose the checkpoints of the run that was alone. */
static int claim_before(struct cluster_directory *d)
{
    char digits[16];
    const char *path = arena_printf(d->arena, "%s/BEFORE", d->folder);
    snprintf(digits, sizeof(digits), "%u", d->before);
    (void)unlink(path); /* of a beginning that came to nothing */
    return write_whole(path, str_from(digits));
}

bool cluster_directory_claim(struct cluster_directory *d)
{
    const char *path = arena_printf(d->arena, "%s/NAME", d->folder);
    int error = os_mkdirs(d->heads);
    if (error == 0 && access(path, F_OK) != 0)
        error = claim_before(d);
    if (error == 0 && access(path, F_OK) != 0)
        error = write_whole(path, d->name);
    bool is_there;
    return error == 0 ? look_whose(d, &is_there) : fail_file(d, "make", path, error);
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

bool cluster_directory_look(struct cluster_directory *d, bool *has_history)
{
    d->folder = arena_printf(d->arena, "%s/" CHECKPOINT_CLUSTER, d->path);
    d->heads = arena_printf(d->arena, "%s/heads", d->folder);
    return look_whose(d, has_history) && note_before(d, *has_history);
}
