/* `leat run JOB --from s3://...`: copies the checkpoint from the object store into DIR/.from-DIGEST, of the URL; a trace, which
 * writes nothing into DIR, takes a temporary directory. The run then begins with it as with any other directory. The copy stays
 * until the run has published its first checkpoint, since a start before that begins from it once more. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/head_store.h"
#include "state/checkpoint_store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define HEAD_NAME "HEAD" /* manifest of the copy of a checkpoint of several workers */
static const char prefix[] = ".from-";

/* malloc'd; NULL after a diagnostic. */
static char *path_of_copy(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    if (run->trace == NULL)
        return mem_printf("%s/%s%016" PRIx64, run->path, prefix,
                          (uint64_t)XXH3_64bits(c->from.path, strlen(c->from.path)));
    if (c->from_temporary.path != NULL || temporary_directory_make(&c->from_temporary))
        return mem_printf("%s/checkpoint", c->from_temporary.path);
    int error = errno;
    struct diag *d =
        diag_error(run->diags, DIAG_STATE_FAILED, (struct span){0},
                   "cannot create a temporary directory for the checkpoint in `%s`", c->from.path);
    diag_errno(run->diags, d, error);
    diag_hint(run->diags, d,
              "set TMPDIR to a directory where this user may write: TMPDIR=DIR leat trace ...");
    return NULL;
}

static bool has_head(const char *path)
{
    char *head = mem_printf("%s/" HEAD_NAME, path);
    bool is_head = run_head_is_file(head);
    free(head);
    return is_head;
}

/* Whether the start that began this run has copied the checkpoint: a copy gets its name when it is whole. The run's generation
 * is above those in the store since then. */
static bool has_copy(const struct run *run, const char *path)
{
    struct checkpoint_id id = run->checkpoints->from.id;
    struct checkpoint_dir_options options = {.path = path, .read_only = true};
    struct arena arena = {0};
    struct diag_list diags;
    uint32_t count = 0;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    struct checkpoint_id *ids = dir == NULL ? NULL : checkpoint_ids(dir, &count);
    bool is_there = run->is_begun_again && has_head(path);
    for (uint32_t i = 0; run->is_begun_again && i < count; i++)
        is_there |= ids[i].generation == id.generation && ids[i].epoch == id.epoch;
    free(ids);
    checkpoint_dir_close(dir);
    arena_free(&arena);
    return is_there;
}

/* Of a checkpoint of several workers: its parts, and a manifest that says where they lie now, written last. */
static bool copy_head(struct run *run, struct checkpoint_store *store, const char *path,
                      struct byte_buffer *manifest, struct run_head *head, uint64_t *bytes)
{
    struct run_head_fetch fetch = {.store = store, .to = path, .arena = &run->arena};
    const char *made = arena_printf(&run->arena, "%s/" HEAD_NAME ".new", path);
    if (!run_head_fetch(head, &fetch, run->diags))
        return false;
    *bytes = fetch.bytes;
    buffer_clear(manifest);
    run_head_encode(head, manifest);
    int error = os_write_file(made, manifest->data, manifest->length, "head.write", "head.fsync");
    if (error == 0)
        error = os_rename(made, arena_printf(&run->arena, "%s/" HEAD_NAME, path), "head.rename");
    if (error == 0)
        return true;
    struct diag *d = diag_error(run->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                "the copy of a checkpoint cannot be written");
    diag_errno(run->diags, d, error);
    diag_at(run->diags, d, path, -1, -1);
    diag_hint(run->diags, d, "free some disk space, and check that this user may write there");
    return false;
}

/* Copies the checkpoint that is named, else the newest. False after a diagnostic. */
static bool copy_from(struct run *run, struct checkpoint_store *store, struct checkpoint_id newest,
                      const char *path, uint64_t *bytes)
{
    struct checkpoint_from *from = &run->checkpoints->from;
    struct checkpoint_id wanted = from->id.generation != 0 ? from->id : newest;
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_alloc(sizeof(*head));
    enum objects_result got = wanted.generation == 0
                                  ? OBJECTS_MISSING
                                  : checkpoint_store_get_manifest(store, wanted, &manifest, run->diags);
    bool is_good = got != OBJECTS_FAILED;
    buffer_clear(&manifest);
    if (got == OBJECTS_DONE) {
        from->id = wanted;
        is_good = run_head_in_store(store, wanted, &manifest, head, run->diags) == OBJECTS_DONE &&
                  copy_head(run, store, path, &manifest, head, bytes);
    } else if (is_good) {
        is_good = checkpoint_store_restore(store, &from->id, path, bytes, run->diags);
    }
    free(head);
    buffer_free(&manifest);
    return is_good;
}

static bool copy(struct run *run, const char *path)
{
    struct checkpoint_from *from = &run->checkpoints->from;
    struct objects_options options = {.url = str_from(from->path)};
    struct checkpoint_id newest;
    uint64_t bytes = 0;
    int error = os_remove_tree(path);
    if (error != 0) {
        struct diag *d = diag_error(run->diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                    "an earlier copy of a checkpoint cannot be removed");
        diag_errno(run->diags, d, error);
        diag_at(run->diags, d, path, -1, -1);
        diag_hint(run->diags, d, "remove it, and see that this user may write there");
        return false;
    }
    struct checkpoint_store *store = checkpoint_store_open(&options, run->diags);
    bool ok = store != NULL && checkpoint_store_newest(store, &newest, run->diags) &&
              copy_from(run, store, newest, path, &bytes);
    checkpoint_store_close(store);
    if (!ok)
        return false;
    from->newest = newest.generation;
    run_note(run, "copied checkpoint %u-%" PRIu64 " from %s: %" PRIu64 " bytes", from->id.generation,
             from->id.epoch, from->path, bytes);
    return true;
}

char *from_store_copy(struct run *run)
{
    char *path = path_of_copy(run);
    if (path == NULL || (!has_copy(run, path) && !copy(run, path))) {
        free(path);
        return NULL;
    }
    if (!has_head(path))
        return path;
    char *head = mem_printf("%s/" HEAD_NAME, path);
    free(path);
    return head;
}

void from_store_forget(const struct run *run, struct diag_list *diags)
{
    char path[CHECKPOINT_PATH_BYTES + NAME_MAX + 1];
    DIR *stream = opendir(run->path);
    int error = 0;
    for (struct dirent *entry; stream != NULL && error == 0 && (entry = readdir(stream)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", run->path, entry->d_name);
        if (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) == 0)
            error = os_remove_tree(path);
    }
    if (stream != NULL)
        closedir(stream);
    if (error == 0)
        return;
    struct diag *d = diag_warning(diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                  "a copy of the checkpoint with which the run began cannot be removed");
    diag_errno(diags, d, error);
    diag_hint(diags, d, "remove `%s/%s*`, and see that this user may write there", run->path, prefix);
}
