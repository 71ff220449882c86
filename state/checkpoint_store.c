/* Copies published checkpoints to an object store, and prunes them there; checkpoint_store.h says what lies where. */
#include "state/checkpoint_store_files.h"
#include "state/checkpoint_store_parts.h"

#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

/* --- Names --- */

/* The index of the name, or where it belongs. */
static uint32_t name_at(const struct name_set *set, struct str name, bool *is_there)
{
    uint32_t low = 0, high = set->count;
    *is_there = false;
    while (low < high && !*is_there) {
        uint32_t middle = low + (high - low) / 2;
        int order = str_compare(str_from(set->names[middle]), name);
        *is_there = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

bool name_set_has(const struct name_set *set, struct str name)
{
    bool is_there;
    name_at(set, name, &is_there);
    return is_there;
}

void name_set_add(struct name_set *set, struct str name)
{
    bool is_there;
    uint32_t at = name_at(set, name, &is_there);
    if (is_there)
        return;
    if (set->count == set->capacity) {
        set->capacity = MAX(64U, set->capacity * 2);
        set->names = mem_realloc(set->names, set->capacity * sizeof(*set->names));
    }
    memmove(set->names + at + 1, set->names + at, (set->count - at) * sizeof(*set->names));
    set->names[at] = mem_str(name);
    set->count++;
}

void name_set_remove(struct name_set *set, struct str name)
{
    bool is_there;
    uint32_t at = name_at(set, name, &is_there);
    if (!is_there)
        return;
    free(set->names[at]);
    set->count--;
    memmove(set->names + at, set->names + at + 1, (set->count - at) * sizeof(*set->names));
}

void name_set_free(struct name_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        free(set->names[i]);
    free(set->names);
    *set = (struct name_set){0};
}

void store_content_name(const char *folder, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
                        char name[STORE_CONTENT_TEXT])
{
    char text[2 * DIGEST_BYTES + 1];
    hex_text(digest, DIGEST_BYTES, text);
    snprintf(name, STORE_CONTENT_TEXT, "%s/%s-%" PRIu64, folder, text, bytes);
}

int store_digest_fd(int fd, uint64_t bytes, uint8_t digest[DIGEST_BYTES])
{
    XXH3_state_t *state = XXH3_createState();
    char *chunk = mem_alloc(CHECKPOINT_CHUNK_BYTES);
    int error = 0;
    leat_assert(state != NULL && XXH3_128bits_reset(state) == XXH_OK);
    for (uint64_t at = 0; at < bytes && error == 0; at += CHECKPOINT_CHUNK_BYTES) {
        size_t want = (size_t)MIN(bytes - at, (uint64_t)CHECKPOINT_CHUNK_BYTES), got = 0;
        error = os_pread_all(fd, chunk, want, at, &got);
        if (error == 0 && got < want)
            error = ENODATA;
        XXH3_128bits_update(state, chunk, got);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(digest, canonical.digest, DIGEST_BYTES);
    XXH3_freeState(state);
    free(chunk);
    return error;
}

/* --- Opening --- */

struct checkpoint_store *checkpoint_store_open(const struct objects_options *options, struct diag_list *diags)
{
    struct objects *objects = objects_open(options, diags);
    uint8_t bytes[(STORE_TOKEN_TEXT - 1) / 2];
    if (objects == NULL)
        return NULL;
    struct checkpoint_store *store = mem_calloc(1, sizeof(*store));
    leat_assert(getrandom(bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
    hex_text(bytes, sizeof(bytes), store->token);
    store->objects = objects;
    store->pruned_us = INT64_MIN;
    return store;
}

void checkpoint_store_close(struct checkpoint_store *store)
{
    if (store == NULL)
        return;
    objects_close(store->objects);
    name_set_free(&store->present);
    name_set_free(&store->unnamed);
    name_set_free(&store->known_folders);
    name_set_free(&store->last);
    buffer_free(&store->known_text);
    arena_free(&store->arena);
    free(store);
}

void checkpoint_store_cancel(struct checkpoint_store *store)
{
    objects_cancel(store->objects);
}

void checkpoint_store_stats(const struct checkpoint_store *store, struct objects_stats *stats)
{
    objects_stats(store->objects, stats);
}

/* --- Putting --- */

bool store_name_begins(struct str name, const char *prefix)
{
    size_t length = strlen(prefix);
    return name.length >= length && memcmp(name.data, prefix, length) == 0;
}

/* Contents that earlier processes have put need not go up again. */
static bool list_contents(struct checkpoint_store *store, struct diag_list *diags)
{
    static const char *const folders[] = {"db/", "tables/"};
    struct arena arena = {0};
    bool ok = true;
    for (size_t i = 0; ok && !store->has_listed && i < ARRAY_COUNT(folders); i++) {
        struct objects_entry *entries;
        uint32_t count;
        ok = objects_list(store->objects, str_from(folders[i]), &arena, &entries, &count, diags);
        for (uint32_t k = 0; ok && k < count; k++)
            name_set_add(&store->present, entries[k].name);
    }
    store->has_listed = ok;
    arena_free(&arena);
    return ok;
}

/* The object's name for some content, in the arena. */
static const char *name_content(struct checkpoint_store *store, const char *folder,
                                const uint8_t digest[DIGEST_BYTES], uint64_t bytes, struct arena *arena)
{
    char content[STORE_CONTENT_TEXT];
    store_content_name(folder, digest, bytes, content);
    const char *known = store_known_content(store, content);
    return known != NULL ? known : arena_printf(arena, "%s%s", store->folder, content);
}

/* The object's name for a file of the pack, in the arena; NULL after E0702. */
static const char *name_object(struct checkpoint_store *store, const struct checkpoint_pack *pack,
                               uint32_t index, struct arena *arena, struct diag_list *diags)
{
    uint32_t count;
    const struct checkpoint_pack_file *file = &checkpoint_pack_files(pack, &count)[index];
    uint8_t digest[DIGEST_BYTES];
    if (file->has_content && (strstr(file->name, "/db/") != NULL || strstr(file->name, "/db-") != NULL))
        return name_content(store, "db", file->content, file->bytes, arena);
    if (!store_name_begins(str_from(file->name), "tables/")) {
        const char *slash = strchr(file->name, '/'), *known = store_known_object(store, file->name, arena);
        if (known != NULL)
            return known;
        return store->folder[0] != '\0' ? arena_printf(arena, "%s%s", store->folder, slash + 1)
                                        : arena_printf(arena, "%.*s-%s%s", (int)(slash - file->name),
                                                       file->name, store->token, slash);
    }
    int error = store_digest_fd(checkpoint_pack_fd(pack, index), file->bytes, digest);
    if (error != 0) {
        file_unreadable(file->name, error, diags);
        return NULL;
    }
    return name_content(store, "tables", digest, file->bytes, arena);
}

bool store_put_files(struct checkpoint_store *store, const struct checkpoint_pack *pack, struct arena *arena,
                     struct checkpoint_head *head, struct diag_list *diags)
{
    const struct checkpoint_pack_file *files = checkpoint_pack_files(pack, &head->count);
    head->files = arena_array(arena, struct checkpoint_head_file, MAX(head->count, 1U));
    for (uint32_t i = 0; i < head->count; i++) {
        const char *object = name_object(store, pack, i, arena, diags);
        if (object == NULL)
            return false;
        head->files[i] =
            (struct checkpoint_head_file){str_from(files[i].name), str_from(object), files[i].bytes};
        if (name_set_has(&store->present, str_from(object)))
            continue;
        if (!objects_put_fd(store->objects, str_from(object), checkpoint_pack_fd(pack, i), files[i].bytes,
                            files[i].name, diags))
            return false;
        name_set_add(&store->present, str_from(object));
    }
    return true;
}

bool store_check_holder(const struct checkpoint_dir *holder, struct diag_list *diags)
{
    int error = holder == NULL ? 0 : checkpoint_dir_check(holder);
    if (error == 0)
        return true;
    struct diag *d = diag_error(
        diags, DIAG_TAKEN_OVER, (struct span){0},
        "the checkpoint directory is another process's: its copies in the store are not this one's to change");
    diag_errno(diags, d, error);
    return false;
}

static bool put_head(struct checkpoint_store *store, const struct checkpoint_head *head,
                     const struct checkpoint_dir *holder, struct diag_list *diags)
{
    struct byte_buffer text = {0};
    char name[128];
    snprintf(name, sizeof(name), "heads/%06u-%012" PRIu64 "-%s", head->id.generation, head->id.epoch,
             store->token);
    checkpoint_head_encode(head, &text);
    (void)failpoint("objects.head"); /* for kills: all files are there, and nobody knows */
    bool ok = store_check_holder(holder, diags) &&
              objects_put(store->objects, str_from(name), text.data, text.length, diags);
    buffer_free(&text);
    return ok;
}

/* Heads of a newer generation are another run's: the newest is what a restore takes and what pruning keeps, so that what this run
 * puts would count for nothing. False after E0710. */
static bool check_generation(struct checkpoint_store *store, uint32_t own, struct diag_list *diags)
{
    struct checkpoint_id newest;
    const char *url = objects_url(store->objects);
    if (store->has_listed)
        return true;
    if (!checkpoint_store_newest(store, &newest, diags))
        return false;
    if (newest.generation <= own)
        return true;
    struct diag *d = diag_error(
        diags, DIAG_STORE_FAILED, (struct span){0},
        "`%s` has checkpoint %u-%llu of another run, and this one, of generation %u, would count as the older one",
        url, newest.generation, (unsigned long long)newest.epoch, own);
    diag_hint(
        diags, d,
        "begin with those checkpoints (`leat run JOB --from %s`), go on with them (`leat checkpoint restore`), or "
        "give the job a store of its own",
        url);
    return false;
}

bool checkpoint_store_put(struct checkpoint_store *store, struct checkpoint_dir *dir,
                          const struct checkpoint_dir *holder, struct checkpoint_id *id,
                          struct diag_list *diags)
{
    struct arena arena = {0};
    bool is_none;
    struct checkpoint_pack *pack = checkpoint_pack_open(dir, &is_none, diags);
    *id = pack == NULL ? (struct checkpoint_id){0} : checkpoint_pack_id(pack);
    if (pack == NULL)
        return is_none;
    bool is_new = id->generation != store->stored.generation || id->epoch != store->stored.epoch;
    struct checkpoint_head head = {.id = *id, .created_us = os_wall_us()};
    uint32_t own = holder == NULL ? id->generation : checkpoint_generation(holder);
    bool ok = !is_new || (check_generation(store, own, diags) && list_contents(store, diags));
    if (ok && is_new) {
        store_know(store, pack);
        ok = store_put_files(store, pack, &arena, &head, diags) &&
             (store_knows(store, &head) || put_head(store, &head, holder, diags));
    }
    if (ok)
        store->stored = *id;
    checkpoint_pack_close(pack);
    arena_free(&arena);
    return ok;
}

/* --- Heads --- */

const struct checkpoint_head_file *head_file(const struct checkpoint_head *head, struct str name)
{
    for (uint32_t i = 0; i < head->count; i++)
        if (str_equal(head->files[i].name, name))
            return &head->files[i];
    return NULL;
}

static int newest_first(const void *a, const void *b)
{
    const struct store_head *x = a, *y = b;
    if (x->id.generation != y->id.generation)
        return x->id.generation > y->id.generation ? -1 : 1;
    if (x->id.epoch != y->id.epoch)
        return x->id.epoch > y->id.epoch ? -1 : 1;
    return str_compare(x->name, y->name);
}

bool store_heads(struct checkpoint_store *store, struct arena *arena, struct store_head **heads,
                 uint32_t *count, struct diag_list *diags)
{
    struct objects_entry *entries;
    uint32_t listed;
    *count = 0;
    if (!objects_list(store->objects, STR("heads/"), arena, &entries, &listed, diags))
        return false;
    *heads = arena_array(arena, struct store_head, MAX(listed, 1U));
    for (uint32_t i = 0; i < listed; i++) {
        struct store_head head = {.name = entries[i].name};
        if (checkpoint_head_name(head.name, &head.id))
            (*heads)[(*count)++] = head;
    }
    qsort(*heads, *count, sizeof(**heads), newest_first);
    return true;
}

bool checkpoint_store_newest(struct checkpoint_store *store, struct checkpoint_id *id,
                             struct diag_list *diags)
{
    struct arena arena = {0};
    struct store_head *heads;
    struct checkpoint_id *manifests;
    uint32_t count, manifests_count = 0;
    bool ok = store_heads(store, &arena, &heads, &count, diags) &&
              checkpoint_store_manifests(store, &arena, &manifests, &manifests_count, diags);
    *id = ok && count > 0 ? heads[0].id : (struct checkpoint_id){0};
    if (ok && manifests_count > 0 && checkpoint_id_is_newer(manifests[0], *id))
        *id = manifests[0];
    arena_free(&arena);
    return ok;
}

enum objects_result store_head_get(struct checkpoint_store *store, struct str name, struct arena *arena,
                                   struct byte_buffer *text, struct checkpoint_head *head,
                                   struct diag_list *diags)
{
    const char *why;
    struct checkpoint_id id;
    buffer_clear(text);
    enum objects_result result = objects_get(store->objects, name, CHECKPOINT_HEAD_BYTES_MAX, text, diags);
    if (result != OBJECTS_DONE)
        return result;
    bool ok = checkpoint_head_decode((struct str){text->data, text->length}, arena, head, &why);
    if (ok && checkpoint_head_name(name, &id) && id.generation == head->id.generation &&
        id.epoch == head->id.epoch)
        return OBJECTS_DONE;
    struct diag *d =
        diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0}, "`%s`: `%.*s` is no head of a checkpoint: %s",
                   objects_url(store->objects), STR_ARGS(name), ok ? "it is another one's" : why);
    diag_hint(diags, d, "name an older checkpoint; `leat checkpoint list %s` shows them",
              objects_url(store->objects));
    return OBJECTS_FAILED;
}
