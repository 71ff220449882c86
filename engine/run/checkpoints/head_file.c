/* Manifests of heads as files. A file is written under another name, synced, and gets its own name where there is none: so it is whole,
 * and never another's. */
#include "run/head.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char unfinished[] = ".tmp";

/* A manifest's file. */
struct named {
    uint64_t incarnation, epoch;
    bool is_unfinished;
};

void run_head_name(uint32_t incarnation, uint64_t epoch, char name[RUN_HEAD_NAME_BYTES])
{
    snprintf(name, RUN_HEAD_NAME_BYTES, "head-%06" PRIu32 "-%012" PRIu64, incarnation, epoch);
}

static void path_of(const char *folder, const struct named *named, char path[CHECKPOINT_PATH_BYTES])
{
    char name[RUN_HEAD_NAME_BYTES];
    run_head_name((uint32_t)named->incarnation, named->epoch, name);
    snprintf(path, CHECKPOINT_PATH_BYTES, "%.*s/%s%s", CHECKPOINT_PATH_BYTES / 2, folder, name,
             named->is_unfinished ? unfinished : "");
}

/* Takes a decimal number of at most 19 digits. */
static bool take_number(const char **at, uint64_t *number)
{
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 19)
        return false;
    *number = strtoull(*at, NULL, 10);
    *at += digits;
    return true;
}

/* Whether the name is one that run_head_name gives, or of a file that was not finished. */
static bool read_name(const char *name, struct named *named)
{
    const char *at = name;
    char again[RUN_HEAD_NAME_BYTES];
    *named = (struct named){0};
    if (strncmp(at, "head-", 5) != 0)
        return false;
    at += 5;
    if (!take_number(&at, &named->incarnation) || *at++ != '-' || !take_number(&at, &named->epoch) ||
        named->incarnation > UINT32_MAX)
        return false;
    named->is_unfinished = strcmp(at, unfinished) == 0;
    run_head_name((uint32_t)named->incarnation, named->epoch, again);
    return (named->is_unfinished || *at == '\0') && strncmp(name, again, strlen(again)) == 0;
}

bool run_head_read_name(const char *name, struct checkpoint_id *id)
{
    struct named named;
    if (!read_name(name, &named) || named.is_unfinished)
        return false;
    *id = (struct checkpoint_id){(uint32_t)named.incarnation, named.epoch};
    return true;
}

/* --- Writing --- */

static bool refuse_write(const char *path, int error, struct diag_list *diags)
{
    bool is_there = error == EEXIST;
    struct diag *d = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                is_there ? "there is another manifest under the name of this head's"
                                         : "the manifest of a head cannot be written");
    diag_at(diags, d, path, -1, -1);
    if (!is_there)
        diag_errno(diags, d, error);
    diag_hint(
        diags, d, "%s",
        is_there
            ? "an incarnation has that number for the second time: begin with one above all that there were"
            : "free some disk space, and check that this user may write there");
    return false;
}

static bool has_bytes(const char *path, struct str manifest)
{
    char *text = NULL;
    size_t bytes = 0;
    bool is_same = os_read_file(path, RUN_HEAD_BYTES_MAX, &text, &bytes) == 0 && bytes == manifest.length &&
                   memcmp(text, manifest.data, bytes) == 0;
    free(text);
    return is_same;
}

bool run_head_write(const char *folder, uint32_t incarnation, uint64_t epoch, struct str manifest,
                    struct diag_list *diags)
{
    char path[CHECKPOINT_PATH_BYTES], made[CHECKPOINT_PATH_BYTES];
    struct named named = {incarnation, epoch, false};
    leat_assert(manifest.length > 0 && manifest.length <= RUN_HEAD_BYTES_MAX);
    path_of(folder, &named, path);
    named.is_unfinished = true;
    path_of(folder, &named, made);
    int error = strlen(folder) > CHECKPOINT_PATH_BYTES / 2 ? ENAMETOOLONG : os_mkdirs(folder);
    if (error == 0)
        error = os_write_file(made, manifest.data, manifest.length, "head.write", "head.fsync");
    if (error == 0)
        error = os_rename_new(made, path, "head.rename");
    if (error == EEXIST && has_bytes(path, manifest)) /* from an attempt before: it may not be durable yet */
        error = 0;
    if (error == 0)
        error = os_fsync_directory(folder, "head.fsync_directory");
    (void)unlink(made); /* what stays is removed with the manifests that are older than a head */
    return error == 0 || refuse_write(path, error, diags);
}

/* --- Reading --- */

static bool refuse_read(const char *path, int error, const char *why, struct diag_list *diags)
{
    bool is_missing = error == ENOENT || error == EISDIR;
    struct diag *d = is_missing ? diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0},
                                             "`%s` is no manifest of a head: expected a file, found %s", path,
                                             error == ENOENT ? "nothing" : "a folder")
                                : diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                                             "the manifest of a head cannot be used%s%s",
                                             why == NULL ? "" : ": ", why == NULL ? "" : why);
    if (!is_missing)
        diag_at(diags, d, path, -1, -1);
    if (!is_missing && why == NULL)
        diag_errno(diags, d, error);
    diag_hint(diags, d,
              is_missing ? "name a file of the folder with heads, such as head-000003-000000000017"
                         : "take the manifest of an earlier head, in the same folder");
    return false;
}

bool run_head_is_file(const char *path)
{
    struct run_head none = {.count = 0};
    struct byte_buffer manifest = {0};
    char begin[64];
    size_t got = 0, length = sizeof(uint64_t) + sizeof("leat head") - 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    run_head_encode(&none, &manifest);
    bool is_good = fd >= 0 && os_pread_all(fd, begin, length, 0, &got) == 0 && got == length &&
                   memcmp(begin, manifest.data, length) == 0;
    if (fd >= 0)
        close(fd);
    buffer_free(&manifest);
    return is_good;
}

/* Whether the file has the name of another head. */
static bool is_misnamed(const char *path, const struct run_head *head)
{
    const char *slash = strrchr(path, '/');
    struct named named;
    return read_name(slash == NULL ? path : slash + 1, &named) &&
           (named.epoch != head->epoch || named.incarnation != head->parts[0].id.generation);
}

bool run_head_load(const char *path, struct byte_buffer *manifest, struct run_head *head,
                   struct diag_list *diags)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *why = NULL;
    leat_assert(manifest->length == 0);
    int error = os_read_file(path, RUN_HEAD_BYTES_MAX, &text, &bytes);
    if (error == EFBIG)
        why = "it is too large";
    if (error == 0)
        buffer_append(manifest, text, bytes);
    free(text);
    if (error != 0)
        return refuse_read(path, error, why, diags);
    if (!run_head_decode((struct str){manifest->data, manifest->length}, head, &why))
        return refuse_read(path, 0, why, diags);
    return !is_misnamed(path, head) ||
           refuse_read(path, 0, "it is of another head than its name says", diags);
}

/* --- Listing and removing --- */

static int newest_first(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    if (x->incarnation != y->incarnation)
        return x->incarnation < y->incarnation ? 1 : -1;
    return x->epoch < y->epoch ? 1 : x->epoch > y->epoch ? -1 : 0;
}

/* The files that are older than the head, newest first; malloc'd. *error: 0 or an errno. */
static struct named *list_older(const char *folder, const struct named *head, uint32_t *count, int *error)
{
    struct named *found = NULL, named;
    uint32_t room = 0;
    DIR *stream = opendir(folder);
    *count = 0;
    *error = stream == NULL ? errno : 0;
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        if (!read_name(entry->d_name, &named) || newest_first(&named, head) <= 0)
            continue;
        if (*count == room) {
            room = MAX(2 * room, 16U);
            found = mem_realloc(found, room * sizeof(*found));
        }
        found[(*count)++] = named;
    }
    if (stream != NULL)
        closedir(stream);
    if (*count > 0)
        qsort(found, *count, sizeof(*found), newest_first);
    return found;
}

uint32_t run_head_list(const char *folder, struct arena *arena, const char ***paths)
{
    static const struct named beyond = {UINT64_MAX, UINT64_MAX, false};
    int error;
    uint32_t all, count = 0;
    struct named *found = list_older(folder, &beyond, &all, &error);
    *paths = arena_array(arena, const char *, MAX(all, 1));
    for (uint32_t i = 0; i < all && strlen(folder) <= CHECKPOINT_PATH_BYTES / 2; i++) {
        char path[CHECKPOINT_PATH_BYTES];
        path_of(folder, &found[i], path);
        if (!found[i].is_unfinished)
            (*paths)[count++] = arena_strdup(arena, path);
    }
    free(found);
    return count;
}

bool run_head_prune(const char *folder, uint32_t incarnation, uint64_t epoch, uint32_t keep,
                    uint32_t *removed, struct diag_list *diags)
{
    const struct named head = {incarnation, epoch, false};
    uint64_t newer = epoch; /* of the manifest that was the head after the one that is looked at */
    uint32_t count, kept = 0;
    int error;
    struct named *older = list_older(folder, &head, &count, &error);
    *removed = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        char path[CHECKPOINT_PATH_BYTES];
        if (kept < keep && !older[i].is_unfinished && older[i].epoch < newer) {
            newer = older[i].epoch;
            kept++;
            continue;
        }
        path_of(folder, &older[i], path);
        error = failpoint("head.prune");
        if (error == 0 && unlink(path) != 0 && errno != ENOENT)
            error = errno;
        *removed += error == 0;
    }
    free(older);
    if (error == 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                "manifests of old heads cannot be removed from `%s`", folder);
    diag_errno(diags, d, error);
    diag_hint(diags, d, "check that this user may write there");
    return false;
}
