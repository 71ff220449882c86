/* Makes a checkpoint directory of a checkpoint in an object store: gets its files into TO.tmp, verifies every byte, and renames it
 * to TO when all of it is on the disk. */
#include "state/checkpoint_store_files.h"
#include "state/checkpoint_store_parts.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

bool restore_cannot_write(struct diag_list *diags, const char *path, int error)
{
    struct diag *d =
        diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0}, "the copy cannot be written");
    diag_errno(diags, d, error);
    diag_at(diags, d, path, -1, -1);
    diag_hint(diags, d, "free some disk space, check that this user may write there, then restore again");
    return false;
}

static bool check_target(const char *to, struct diag_list *diags)
{
    if (strlen(to) > PATH_BYTES / 2 || (access(to, F_OK) == 0 && rmdir(to) != 0)) {
        struct diag *d = diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
                                    "`%.300s` is not empty, no directory, or too long a path", to);
        diag_hint(diags, d, "name a directory that does not exist");
        return false;
    }
    return true;
}

/* --- One checkpoint --- */

static bool is_table(const struct checkpoint_head_file *file)
{
    return file->name.length > 7 && memcmp(file->name.data, "tables/", 7) == 0;
}

bool restore_check_table(struct restoring *r, const struct checkpoint_head_file *file, const char *path)
{
    uint8_t digest[DIGEST_BYTES];
    char name[STORE_CONTENT_TEXT] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC),
        error = fd < 0 ? errno : store_digest_fd(fd, file->bytes, digest);
    if (fd >= 0)
        close(fd);
    if (error != 0)
        return file_unreadable(path, error, r->diags);
    store_content_name("tables", digest, file->bytes, name);
    size_t length = strlen(name); /* a part's object has a folder before it */
    if (file->object.length >= length &&
        memcmp(file->object.data + file->object.length - length, name, length) == 0)
        return true;
    struct diag *d = diag_error(r->diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: the bytes of `%.*s` are not those of its name",
                                objects_url(r->store->objects), STR_ARGS(file->object));
    diag_hint(r->diags, d, "name an older checkpoint; `leat checkpoint list` shows them");
    return false;
}

bool restore_missing(struct restoring *r, struct str object)
{
    struct diag *d = diag_error(r->diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: there is no `%.*s`, which a head names",
                                objects_url(r->store->objects), STR_ARGS(object));
    diag_hint(r->diags, d, "name a newer checkpoint, if this one was pruned meanwhile; else an older one");
    return false;
}

bool restore_other_part(struct restoring *r, struct str object)
{
    struct diag *d = diag_error(r->diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: the part `%.*s` is not the one that the head names",
                                objects_url(r->store->objects), STR_ARGS(object));
    diag_hint(r->diags, d, "begin with an earlier head");
    return false;
}

bool restore_folder(struct restoring *r, const char *path)
{
    char *directory = os_directory(path);
    int error = os_mkdirs(directory);
    free(directory);
    return error == 0 || restore_cannot_write(r->diags, path, error);
}

bool restore_file(struct restoring *r, const struct checkpoint_head_file *file, uint64_t *bytes)
{
    char path[PATH_BYTES * 2];
    snprintf(path, sizeof(path), "%s/%.*s", r->temporary, STR_ARGS(file->name));
    if (!restore_folder(r, path))
        return false;
    enum objects_result result =
        objects_get_file(r->store->objects, file->object, file->bytes, path, r->diags);
    if (result == OBJECTS_MISSING)
        return restore_missing(r, file->object);
    if (result != OBJECTS_DONE)
        return false;
    *bytes += file->bytes;
    if (is_table(file) && !restore_check_table(r, file, path))
        return false;
    int error = os_fsync_parent(path, "ckpt.fsync_directory");
    return error == 0 || restore_cannot_write(r->diags, path, error);
}

/* Gets all files of the head, or, where some key groups are wanted alone, all tables. */
static bool get_files(struct restoring *r, const struct checkpoint_head *head, bool tables_alone)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < head->count; i++)
        if (!tables_alone || is_table(&head->files[i]))
            ok = restore_file(r, &head->files[i], tables_alone ? &r->read.tables : &r->read.pieces);
    return ok;
}

static bool get_checkpoint(struct restoring *r, const struct store_head *chosen)
{
    struct arena arena = {0};
    struct byte_buffer text = {0};
    struct checkpoint_head head;
    bool is_damaged;
    int error = os_remove_tree(r->temporary);
    if (error == 0)
        error = os_mkdirs(r->temporary);
    bool ok = error == 0 || restore_cannot_write(r->diags, r->temporary, error);
    enum objects_result result =
        ok ? store_head_get(r->store, chosen->name, &arena, &text, &head, r->diags) : OBJECTS_FAILED;
    ok = result == OBJECTS_DONE;
    if (result == OBJECTS_MISSING)
        diag_error(r->diags, DIAG_STORE_DAMAGED, (struct span){0}, "the checkpoint was pruned meanwhile");
    r->read = (struct checkpoint_store_read){.manifests = text.length};
    ok = ok && get_files(r, &head, r->groups != NULL) && (r->groups == NULL || restore_groups(r, &head));
    ok = ok && checkpoint_pack_adopt(r->temporary, chosen->id, &is_damaged, r->diags);
    buffer_free(&text);
    arena_free(&arena);
    return ok;
}

/* --- Choosing --- */

/* Whether all errors are about bytes in the store, so that an older checkpoint may be better. */
static bool is_of_store(const struct diag_list *said)
{
    bool is_store = said->errors > 0;
    for (unsigned i = 0; i < said->count; i++)
        is_store &=
            said->items[i].code == DIAG_STORE_DAMAGED || said->items[i].code == DIAG_CHECKPOINT_DAMAGED;
    return is_store;
}

/* Repeats what was said of a checkpoint; as warnings where it is skipped. */
static void repeat(struct diag_list *diags, const struct diag_list *said, bool is_skipped)
{
    for (unsigned i = 0; i < said->count; i++) {
        const struct diag *d = &said->items[i];
        struct diag *copy = is_skipped
                                ? diag_warning(diags, d->code, d->span, "checkpoint skipped: %s", d->message)
                                : diag_error(diags, d->code, d->span, "%s", d->message);
        copy->path = d->path, copy->offset = d->offset, copy->cause = d->cause;
        if (!is_skipped)
            copy->hint = d->hint;
    }
}

static bool none_left(const struct checkpoint_store *store, struct checkpoint_id wanted, uint32_t count,
                      struct diag_list *diags)
{
    const char *url = objects_url(store->objects);
    struct diag *d;
    if (wanted.generation != 0)
        d = diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint %u-%llu in `%s`",
                       wanted.generation, (unsigned long long)wanted.epoch, url);
    else if (count == 0)
        d = diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint in `%s`", url);
    else
        d = diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0},
                       "`%s` contains %u checkpoints, and all of them are damaged", url, count);
    diag_hint(
        diags, d,
        "name what `checkpoint: { store: ... }` of the job names; `leat checkpoint list %s` shows what is there",
        url);
    return false;
}

/* Tries the heads that are wanted, newest first. */
static bool get_newest(struct restoring *r, const struct store_head *heads, uint32_t count,
                       struct checkpoint_id *id, struct diag_list *diags)
{
    struct checkpoint_id wanted = *id;
    for (uint32_t i = 0; i < count; i++) {
        bool is_wanted = wanted.generation == 0 ||
                         (heads[i].id.generation == wanted.generation && heads[i].id.epoch == wanted.epoch);
        struct diag_list said;
        if (!is_wanted)
            continue;
        diag_list_init(&said, diags->arena);
        r->diags = &said;
        *id = heads[i].id;
        if (get_checkpoint(r, &heads[i]))
            return true;
        bool is_skipped = wanted.generation == 0 && is_of_store(&said);
        repeat(diags, &said, is_skipped);
        if (!is_skipped)
            return false;
    }
    return none_left(r->store, wanted, count, diags);
}

/* Marks the directory as restored (checkpoint_is_restored). 0 or an errno. */
static int mark(const struct restoring *r)
{
    char path[PATH_BYTES + 16];
    const char *url = objects_url(r->store->objects);
    snprintf(path, sizeof(path), "%s/" RESTORED_NAME, r->temporary);
    return os_write_file(path, url, strlen(url), "objects.restore", "ckpt.fsync");
}

/* Gives the temporary directory, which is whole where `ok`, its name; else removes it. */
static bool finish(struct restoring *r, const char *to, bool ok, struct diag_list *diags)
{
    int error = ok ? os_fsync_directory(r->temporary, "ckpt.fsync_directory") : 0;
    if (ok && error == 0)
        error = os_rename(r->temporary, to, "ckpt.rename");
    if (ok && error == 0)
        error = os_fsync_parent(to, "ckpt.fsync_parent");
    if (error != 0)
        ok = restore_cannot_write(diags, to, error);
    if (!ok)
        (void)os_remove_tree(r->temporary);
    return ok;
}

static bool restore(struct restoring *r, struct checkpoint_id *id, const char *to, struct diag_list *diags)
{
    struct arena arena = {0};
    struct store_head *heads;
    uint32_t count;
    if (!check_target(to, diags))
        return false;
    snprintf(r->temporary, sizeof(r->temporary), "%s.tmp", to);
    bool ok = store_heads(r->store, &arena, &heads, &count, diags) && get_newest(r, heads, count, id, diags);
    int error = ok ? mark(r) : 0;
    if (error != 0)
        ok = restore_cannot_write(diags, to, error);
    ok = finish(r, to, ok, diags);
    arena_free(&arena);
    return ok;
}

/* Whether the MANIFEST that was got is the one that it must be. */
static bool is_part(struct restoring *r, const struct store_head *part)
{
    uint8_t digest[DIGEST_BYTES];
    uint64_t bytes;
    const struct checkpoint_dir_options options = {.path = r->temporary, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, r->diags);
    bool ok = dir != NULL && checkpoint_digest(dir, part->id, digest, &bytes, r->diags);
    checkpoint_dir_close(dir);
    return ok && (memcmp(digest, r->part_digest, sizeof(digest)) == 0 || restore_other_part(r, part->name));
}

bool checkpoint_store_get_part(struct checkpoint_store *store, const struct checkpoint_store_part *part,
                               const struct group_set *groups, const char *to, uint64_t *bytes,
                               struct diag_list *diags)
{
    struct restoring r = {.store = store, .groups = groups, .part_digest = part->digest, .diags = diags};
    const struct store_head chosen = {part->id, part->name};
    if (!check_target(to, diags))
        return false;
    snprintf(r.temporary, sizeof(r.temporary), "%s.tmp", to);
    bool ok = get_checkpoint(&r, &chosen) && (groups != NULL || is_part(&r, &chosen));
    *bytes = r.read.manifests + r.read.pieces + r.read.database + r.read.tables;
    return finish(&r, to, ok, diags);
}

bool checkpoint_store_restore(struct checkpoint_store *store, struct checkpoint_id *id, const char *to,
                              uint64_t *bytes, struct diag_list *diags)
{
    struct restoring r = {.store = store};
    bool ok = restore(&r, id, to, diags);
    *bytes = r.read.pieces;
    return ok;
}

bool checkpoint_store_restore_groups(struct checkpoint_store *store, struct checkpoint_id *id, const char *to,
                                     const struct group_set *groups, struct checkpoint_store_read *read,
                                     struct diag_list *diags)
{
    struct restoring r = {.store = store, .groups = groups};
    bool ok = restore(&r, id, to, diags);
    *read = r.read;
    return ok;
}

bool checkpoint_store_list(struct checkpoint_store *store, struct arena *arena,
                           struct checkpoint_head **found, uint32_t *count, struct diag_list *diags)
{
    struct store_head *heads;
    struct byte_buffer text = {0};
    uint32_t listed;
    *count = 0;
    bool ok = store_heads(store, arena, &heads, &listed, diags);
    *found = arena_array(arena, struct checkpoint_head, ok ? MAX(listed, 1U) : 1);
    for (uint32_t i = 0; ok && i < listed; i++) {
        struct arena scratch = {0};
        enum objects_result result =
            store_head_get(store, heads[i].name, &scratch, &text, &(*found)[*count], diags);
        ok = result != OBJECTS_FAILED;
        for (uint32_t k = 0; result == OBJECTS_DONE && k < (*found)[*count].count; k++)
            (*found)[*count].bytes += (*found)[*count].files[k].bytes;
        (*found)[*count].files = NULL;
        *count += result == OBJECTS_DONE;
        arena_free(&scratch);
    }
    buffer_free(&text);
    return ok;
}
