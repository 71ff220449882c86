/* Heads in an object store: which there are, their parts brought to directories, from where run_head_open reads them, and pruning. In a
 * store's manifest a part's directory is the name of its object (state/checkpoint_store_parts.h). */
#include "run/head_store.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/checkpoint_store_parts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Finding --- */

static bool refuse_manifest(struct checkpoint_id id, const char *why, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "the manifest of head %u-%" PRIu64 " in the store cannot be used: %s",
                                id.generation, id.epoch, why);
    diag_hint(diags, d, "name an earlier head; `leat checkpoint list` shows them");
    return false;
}

/* Decodes a manifest that was got; its texts point into it. False after E0711. */
static bool take_manifest(const struct byte_buffer *manifest, struct checkpoint_id id, struct run_head *head,
                          struct diag_list *diags)
{
    const char *why;
    if (!run_head_decode((struct str){manifest->data, manifest->length}, head, &why))
        return refuse_manifest(id, why, diags);
    return (head->epoch == id.epoch && head->parts[0].id.generation == id.generation) ||
           refuse_manifest(id, "it is of another head than its name says", diags);
}

enum objects_result run_head_alone_in_store(struct checkpoint_store *store, struct checkpoint_id wanted,
                                            struct byte_buffer *manifest, struct diag_list *diags)
{
    struct arena arena = {0};
    struct checkpoint_store_part part;
    struct run_head *head = mem_calloc(1, sizeof(*head));
    enum objects_result found =
        checkpoint_store_find_alone(store, wanted, &arena, &part, &head->run, &head->parts[0].bytes, diags);
    if (found == OBJECTS_DONE) {
        head->epoch = part.id.epoch;
        head->count = 1;
        head->parts[0].id = part.id;
        head->parts[0].directory = part.name;
        memcpy(head->parts[0].digest, part.digest, sizeof(part.digest));
        run_head_encode(head, manifest);
    }
    free(head);
    arena_free(&arena);
    return found;
}

enum objects_result run_head_in_store(struct checkpoint_store *store, struct checkpoint_id wanted,
                                      struct byte_buffer *manifest, struct run_head *head,
                                      struct diag_list *diags)
{
    struct checkpoint_id id = wanted;
    leat_assert(manifest->length == 0);
    if (id.generation == 0 && !checkpoint_store_newest(store, &id, diags))
        return OBJECTS_FAILED;
    if (id.generation == 0)
        return OBJECTS_MISSING;
    enum objects_result found = checkpoint_store_get_manifest(store, id, manifest, diags);
    if (found == OBJECTS_MISSING)
        found = run_head_alone_in_store(store, id, manifest, diags);
    if (found == OBJECTS_DONE && !take_manifest(manifest, id, head, diags))
        found = OBJECTS_FAILED;
    return found;
}

/* --- Bringing --- */

/* Whether the directory has the part, whole. is_verified: where it has it at all. */
static bool has_part(const char *path, const struct run_head_part *part, bool is_verified)
{
    static const struct group_set none; /* a part has some key groups */
    const struct checkpoint_dir_options options = {.path = path, .read_only = true, .groups = &none};
    struct arena arena = {0};
    struct diag_list said;
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    uint64_t bytes;
    diag_list_init(&said, &arena);
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &said);
    bool has = dir != NULL && checkpoint_digest(dir, part->id, digest, &bytes, &said) &&
               memcmp(digest, part->digest, sizeof(digest)) == 0;
    struct checkpoint *opened = has && !is_verified ? checkpoint_open(dir, part->id, &said) : NULL;
    if (has && opened == NULL && !is_verified)
        log_say(LOG_LEVEL_WARNING,
                "%s: the part of the head in `%s` is damaged, and comes from the store: %s",
                diag_code_name(DIAG_CHECKPOINT_DAMAGED), path, said.items[0].message);
    has &= opened != NULL || is_verified;
    checkpoint_close(opened);
    checkpoint_dir_close(dir);
    arena_free(&arena);
    return has;
}

/* The directory of a worker on this machine that has the part, in the arena; NULL: none has. */
static const char *find_near(const struct run_head_fetch *fetch, const struct run_head_part *part)
{
    DIR *stream = fetch->near == NULL ? NULL : opendir(fetch->near);
    const char *found = NULL;
    for (struct dirent *entry; stream != NULL && found == NULL && (entry = readdir(stream)) != NULL;) {
        if (strncmp(entry->d_name, "worker-", 7) != 0)
            continue;
        const char *path = arena_printf(fetch->arena, "%s/%s", fetch->near, entry->d_name);
        found = has_part(path, part, fetch->is_verified) ? path : NULL;
    }
    if (stream != NULL)
        closedir(stream);
    return found;
}

static bool get_part(struct run_head_part *part, struct run_head_fetch *fetch, struct diag_list *diags)
{
    const char *to = arena_printf(fetch->arena, "%s/part-%u", fetch->to, part->worker);
    struct checkpoint_store_part there = {.name = part->directory, .id = part->id};
    const struct checkpoint_dir_options options = {.path = to, .read_only = true};
    uint64_t bytes = 0;
    memcpy(there.digest, part->digest, sizeof(there.digest));
    if (!checkpoint_store_get_part(fetch->store, &there, fetch->groups, to, &bytes, diags))
        return false;
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    bool is_good = dir != NULL && checkpoint_digest(dir, part->id, part->digest, &part->bytes, diags);
    checkpoint_dir_close(dir);
    part->directory = str_from(to);
    fetch->bytes += bytes;
    fetch->got++;
    return is_good;
}

bool run_head_fetch(struct run_head *head, struct run_head_fetch *fetch, struct diag_list *diags)
{
    int error = os_mkdirs(fetch->to);
    fetch->bytes = fetch->got = 0;
    if (error != 0) {
        struct diag *d = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0},
                                    "there is no place for the parts of a head: `%s`", fetch->to);
        diag_errno(diags, d, error);
        diag_hint(diags, d, "free some disk space, and check that this user may write there");
        return false;
    }
    for (uint32_t i = 0; i < head->count; i++) {
        struct run_head_part *part = &head->parts[i];
        const char *near = find_near(fetch, part);
        if (near != NULL)
            part->directory = str_from(near);
        else if (!get_part(part, fetch, diags))
            return false;
    }
    return true;
}

/* --- Pruning --- */

/* Adds the names of the parts that the manifest has. A manifest that went meanwhile names nothing. False after a diagnostic. */
static bool add_parts(struct checkpoint_store *store, struct checkpoint_id id, struct arena *arena,
                      struct str *names, uint32_t *count, struct diag_list *diags)
{
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_alloc(sizeof(*head));
    enum objects_result got = checkpoint_store_get_manifest(store, id, &manifest, diags);
    if (got == OBJECTS_DONE && !take_manifest(&manifest, id, head, diags))
        got = OBJECTS_FAILED;
    for (uint32_t i = 0; got == OBJECTS_DONE && i < head->count; i++) {
        struct str name = head->parts[i].directory;
        names[(*count)++] = (struct str){arena_strndup(arena, name.data, name.length), name.length};
    }
    free(head);
    buffer_free(&manifest);
    return got != OBJECTS_FAILED;
}

bool run_head_prune_store(struct checkpoint_store *store, struct checkpoint_id head, uint32_t keep,
                          int64_t now_us, uint32_t *removed, struct diag_list *diags)
{
    struct arena arena = {0};
    struct checkpoint_id *ids;
    uint32_t count, kept = 0, names_count = 0;
    uint64_t newer = head.epoch; /* of the manifest that was the head after the one that is looked at */
    *removed = 0;
    if (!checkpoint_store_is_prune_due(store, now_us))
        return true;
    bool ok = checkpoint_store_manifests(store, &arena, &ids, &count, diags);
    struct str *names = arena_array(&arena, struct str, (size_t)(ok ? MAX(count, 1U) : 1) * RUN_WORKERS_MAX);
    for (uint32_t i = 0; ok && i < count; i++) {
        bool is_older = checkpoint_id_is_newer(head, ids[i]);
        bool is_kept = !is_older || (kept < keep && ids[i].epoch < newer);
        if (is_older && is_kept) {
            newer = ids[i].epoch;
            kept++;
        }
        ok = is_kept ? add_parts(store, ids[i], &arena, names, &names_count, diags)
                     : checkpoint_store_delete_manifest(store, ids[i], diags);
        *removed += ok && !is_kept;
    }
    uint32_t objects = 0;
    ok = ok && checkpoint_store_prune_parts(store, names, names_count, now_us, &objects, diags);
    *removed += objects;
    arena_free(&arena);
    return ok;
}
