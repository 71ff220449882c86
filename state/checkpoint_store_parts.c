/* Parts and manifests of several workers in an object store; checkpoint_store_parts.h says what lies where, and what is safe. */
#include "state/checkpoint_store_parts.h"

#include "state/checkpoint_store_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CLUSTER_TEXT_MAX = 256, DELETED_MAX = 500, MANIFEST_NAME_BYTES = 64 };
static const char parts_folder[] = "cluster/parts/", heads_folder[] = "cluster/heads/",
                  objects_folder[] = "cluster/gen-", cluster_name[] = "cluster/NAME";

/* --- Putting a part --- */

static int by_content(const void *a, const void *b)
{
    const struct known_content *x = a, *y = b;
    return str_compare(x->content, y->content);
}

/* The content that an object's name tells of, "db/DIGEST-BYTES"; length 0: of none. */
static struct str content_of(struct str object)
{
    size_t slashes = 0, at = object.length;
    while (at > 0 && slashes < 2)
        slashes += object.data[--at] == '/';
    at += slashes == 2;
    struct str content = {object.data + at, object.length - at};
    bool is_content = (content.length > 3 && memcmp(content.data, "db/", 3) == 0) ||
                      (content.length > 7 && memcmp(content.data, "tables/", 7) == 0);
    return is_content ? content : (struct str){object.data, 0};
}

const char *store_known_content(struct checkpoint_store *store, const char *content)
{
    const struct known_content wanted = {.content = str_from(content)};
    const struct known_content *found =
        store->contents_count == 0
            ? NULL
            : bsearch(&wanted, store->contents, store->contents_count, sizeof(*store->contents), by_content);
    /* What no head names any more may be deleted: then it is put again, under an own name. */
    return found != NULL && name_set_has(&store->present, found->object) ? found->object.data : NULL;
}

/* Objects of a run that was alone are put again: who stores them may remove them once the cluster has a head. */
void checkpoint_store_know_part(struct checkpoint_store *store, struct str name)
{
    struct arena arena = {0};
    struct diag_list said;
    diag_list_init(&said, &arena);
    leat_assert(store->contents == NULL);
    if (store_head_get(store, name, &store->arena, &store->known_text, &store->known, &said) ==
        OBJECTS_DONE) {
        const struct checkpoint_head *known = &store->known;
        store->contents = arena_array(&store->arena, struct known_content, MAX(known->count, 1U));
        for (uint32_t i = 0; i < known->count; i++) {
            struct known_content *content = &store->contents[store->contents_count];
            struct str object = known->files[i].object;
            if (!store_name_begins(object, objects_folder))
                continue;
            content->object =
                (struct str){arena_strndup(&store->arena, object.data, object.length), object.length};
            content->content = content_of(content->object);
            store->contents_count += content->content.length > 0;
            name_set_add(&store->present, object);
        }
        qsort(store->contents, store->contents_count, sizeof(*store->contents), by_content);
    }
    arena_free(&arena);
}

static bool put_part(struct checkpoint_store *store, const struct checkpoint_head *head, const char *name,
                     struct diag_list *diags)
{
    struct byte_buffer text = {0};
    checkpoint_head_encode(head, &text);
    (void)failpoint("objects.head"); /* for kills: all files are there, and nobody knows */
    bool ok = objects_put(store->objects, str_from(name), text.data, text.length, diags);
    buffer_free(&text);
    name_set_free(&store->last);
    for (uint32_t i = 0; ok && i < head->count; i++)
        name_set_add(&store->last, head->files[i].object);
    return ok;
}

bool checkpoint_store_put_part(struct checkpoint_store *store, struct checkpoint_dir *dir,
                               struct checkpoint_id id, char name[CHECKPOINT_PART_NAME_BYTES],
                               struct diag_list *diags)
{
    struct arena arena = {0};
    struct checkpoint_head head = {.id = id, .created_us = os_wall_us()};
    snprintf(store->folder, sizeof(store->folder), "%s%06u-%s/", objects_folder, id.generation, store->token);
    snprintf(name, CHECKPOINT_PART_NAME_BYTES, "%s%06u-%012" PRIu64 "-%s", parts_folder, id.generation,
             id.epoch, store->token);
    struct checkpoint_pack *pack = checkpoint_pack_open_one(dir, id, diags);
    bool ok = pack != NULL && store_put_files(store, pack, &arena, &head, diags) &&
              put_part(store, &head, name, diags);
    checkpoint_pack_close(pack);
    arena_free(&arena);
    return ok;
}

void checkpoint_store_part_named(struct checkpoint_store *store)
{
    name_set_free(&store->present);
    store->present = store->last;
    store->last = (struct name_set){0};
}

enum objects_result checkpoint_store_has_part(struct checkpoint_store *store, struct str name,
                                              struct diag_list *diags)
{
    uint64_t bytes;
    return objects_head(store->objects, name, &bytes, diags);
}

/* --- A run that was alone --- */

/* Reads the MANIFEST of the head's checkpoint. */
static enum objects_result read_manifest(struct checkpoint_store *store, const struct checkpoint_head *head,
                                         struct checkpoint_store_part *part, struct run_id *run,
                                         uint64_t *bytes, struct diag_list *diags)
{
    char path[128];
    struct byte_buffer text = {0};
    struct arena arena = {0};
    struct manifest manifest;
    const char *why = "its head does not name a MANIFEST";
    snprintf(path, sizeof(path), "gen-%06u/ckpt-%012" PRIu64 "/MANIFEST", head->id.generation,
             head->id.epoch);
    const struct checkpoint_head_file *file = head_file(head, str_from(path));
    enum objects_result got =
        file == NULL ? OBJECTS_MISSING
                     : objects_get(store->objects, file->object, MANIFEST_BYTES_MAX, &text, diags);
    if (got == OBJECTS_DONE && manifest_take((struct str){text.data, text.length}, head->id, &arena,
                                             &manifest, &why) == DECODE_GOOD) {
        digest_of(text.data, text.length, part->digest);
        *run = manifest.info.run;
        *bytes = manifest.info.bytes;
    } else if (got != OBJECTS_FAILED) {
        struct diag *d = diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                                    "`%s`: checkpoint %u-%" PRIu64 " cannot be used: %s",
                                    objects_url(store->objects), head->id.generation, head->id.epoch, why);
        diag_hint(diags, d, "name another one; `leat checkpoint list %s` shows them",
                  objects_url(store->objects));
        got = OBJECTS_FAILED;
    }
    buffer_free(&text);
    arena_free(&arena);
    return got;
}

enum objects_result checkpoint_store_find_alone(struct checkpoint_store *store, struct checkpoint_id wanted,
                                                struct arena *arena, struct checkpoint_store_part *part,
                                                struct run_id *run, uint64_t *bytes, struct diag_list *diags)
{
    struct store_head *heads;
    uint32_t count, at = 0;
    if (!store_heads(store, arena, &heads, &count, diags))
        return OBJECTS_FAILED;
    while (wanted.generation != 0 && at < count &&
           (heads[at].id.generation != wanted.generation || heads[at].id.epoch != wanted.epoch))
        at++;
    if (at == count)
        return OBJECTS_MISSING;
    struct byte_buffer text = {0};
    struct checkpoint_head head;
    enum objects_result result = store_head_get(store, heads[at].name, arena, &text, &head, diags);
    *part = (struct checkpoint_store_part){.name = heads[at].name, .id = heads[at].id};
    if (result == OBJECTS_DONE)
        result = read_manifest(store, &head, part, run, bytes, diags);
    buffer_free(&text);
    return result;
}

/* --- Manifests --- */

static void name_manifest(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES])
{
    snprintf(name, MANIFEST_NAME_BYTES, "%shead-%06u-%012" PRIu64, heads_folder, id.generation, id.epoch);
}

bool checkpoint_store_put_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                   struct str manifest, struct diag_list *diags)
{
    char name[MANIFEST_NAME_BYTES];
    name_manifest(id, name);
    return objects_put(store->objects, str_from(name), manifest.data, manifest.length, diags);
}

enum objects_result checkpoint_store_get_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                                  struct byte_buffer *manifest, struct diag_list *diags)
{
    char name[MANIFEST_NAME_BYTES];
    name_manifest(id, name);
    return objects_get(store->objects, str_from(name), CHECKPOINT_MANY_BYTES_MAX, manifest, diags);
}

static int id_newest_first(const void *a, const void *b)
{
    const struct checkpoint_id *x = a, *y = b;
    return checkpoint_id_is_newer(*x, *y) ? -1 : checkpoint_id_is_newer(*y, *x);
}

/* Parses a manifest's name. False: it is none. */
static bool read_manifest_name(struct str name, struct checkpoint_id *id)
{
    char text[MANIFEST_NAME_BYTES], again[MANIFEST_NAME_BYTES];
    unsigned generation;
    uint64_t epoch;
    if (name.length >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", STR_ARGS(name));
    if (sscanf(text, "cluster/heads/head-%9u-%18" SCNu64, &generation, &epoch) != 2 || generation == 0)
        return false;
    *id = (struct checkpoint_id){generation, epoch};
    name_manifest(*id, again);
    return strcmp(text, again) == 0;
}

bool checkpoint_store_manifests(struct checkpoint_store *store, struct arena *arena,
                                struct checkpoint_id **ids, uint32_t *count, struct diag_list *diags)
{
    struct objects_entry *entries;
    uint32_t listed;
    *count = 0;
    if (!objects_list(store->objects, str_from(heads_folder), arena, &entries, &listed, diags))
        return false;
    *ids = arena_array(arena, struct checkpoint_id, MAX(listed, 1U));
    for (uint32_t i = 0; i < listed; i++)
        *count += read_manifest_name(entries[i].name, &(*ids)[*count]);
    qsort(*ids, *count, sizeof(**ids), id_newest_first);
    return true;
}

bool checkpoint_store_delete_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                      struct diag_list *diags)
{
    char name[MANIFEST_NAME_BYTES];
    name_manifest(id, name);
    return objects_delete(store->objects, str_from(name), diags);
}

/* --- Pruning --- */

bool checkpoint_store_is_prune_due(const struct checkpoint_store *store, int64_t now_us)
{
    return store_prune_is_due(store, now_us);
}

/* Adds the part's name, and what the part names. A part that is there and cannot be read is no reason to delete anything. */
static bool add_part(struct checkpoint_store *store, struct str name, struct name_set *named,
                     struct diag_list *diags)
{
    struct arena arena = {0};
    struct byte_buffer text = {0};
    struct checkpoint_head head;
    enum objects_result result = store_head_get(store, name, &arena, &text, &head, diags);
    name_set_add(named, name);
    for (uint32_t i = 0; result == OBJECTS_DONE && i < head.count; i++)
        name_set_add(named, head.files[i].object);
    buffer_free(&text);
    arena_free(&arena);
    return result != OBJECTS_FAILED;
}

bool checkpoint_store_prune_parts(struct checkpoint_store *store, const struct str *parts, uint32_t count,
                                  int64_t now_us, uint32_t *removed, struct diag_list *diags)
{
    struct name_set named = {0};
    uint32_t abandoned;
    bool ok = true;
    const char *const prefixes[] = {parts_folder, objects_folder};
    struct store_sweep sweep = {prefixes, ARRAY_COUNT(prefixes), DELETED_MAX, &named, false};
    *removed = 0;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = add_part(store, parts[i], &named, diags);
    ok = ok && store_delete_unnamed(store, &sweep, removed, diags) &&
         objects_abandon(store->objects, test_store_delay(CHECKPOINT_STORE_DELAY_US), &abandoned, diags);
    if (ok && sweep.is_done)
        store->pruned_us = now_us;
    name_set_free(&named);
    return ok;
}

/* --- The cluster --- */

static bool refuse_record(struct checkpoint_store *store, struct diag_list *diags)
{
    struct diag *d =
        diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                   "`%s`: `%s` is not as it must be: expected a cluster's name, a number and a digest",
                   objects_url(store->objects), cluster_name);
    diag_hint(diags, d, "give the job a store of its own");
    return false;
}

/* The highest generation in names of objects. */
static bool find_newest(struct checkpoint_store *store, uint32_t *newest, struct diag_list *diags)
{
    struct arena arena = {0};
    struct objects_entry *entries;
    uint32_t count;
    bool ok = objects_list(store->objects, STR("cluster/"), &arena, &entries, &count, diags);
    *newest = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        char text[128];
        unsigned generation = 0;
        snprintf(text, sizeof(text), "%.*s", STR_ARGS(entries[i].name));
        if (sscanf(text, "cluster/gen-%9u", &generation) == 1 ||
            sscanf(text, "cluster/parts/%9u", &generation) == 1 ||
            sscanf(text, "cluster/heads/head-%9u", &generation) == 1)
            *newest = MAX(*newest, generation);
    }
    arena_free(&arena);
    return ok;
}

bool checkpoint_store_read_cluster(struct checkpoint_store *store, struct checkpoint_store_cluster *cluster,
                                   struct diag_list *diags)
{
    struct byte_buffer text = {0};
    int end = 0;
    *cluster = (struct checkpoint_store_cluster){.before = 0};
    enum objects_result got =
        objects_get(store->objects, str_from(cluster_name), CLUSTER_TEXT_MAX, &text, diags);
    buffer_append(&text, "", 1);
    bool ok = got == OBJECTS_MISSING ||
              (got == OBJECTS_DONE && ((sscanf(text.data, "%64[^\n]\n%9u\n%32[0-9a-f]\n%n", cluster->name,
                                               &cluster->before, cluster->job, &end) == 3 &&
                                        end > 0) ||
                                       refuse_record(store, diags)));
    buffer_free(&text);
    return ok && find_newest(store, &cluster->newest, diags);
}

enum objects_new checkpoint_store_write_cluster(struct checkpoint_store *store,
                                                const struct checkpoint_store_cluster *cluster,
                                                struct diag_list *diags)
{
    struct byte_buffer text = {0};
    buffer_printf(&text, "%s\n%u\n%s\n", cluster->name, cluster->before, cluster->job);
    enum objects_new put =
        objects_put_new(store->objects, str_from(cluster_name), text.data, text.length, diags);
    buffer_free(&text);
    return put;
}
