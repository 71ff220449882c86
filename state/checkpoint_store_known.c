/* What earlier processes have put of a checkpoint: names of a checkpoint's own files have a token of the process that put them, so
 * that a life which goes on with one would send them again. The newest head in the store says where they are. */
#include "state/checkpoint_store_files.h"

#include "core/os.h"

#include <stdlib.h>

static const char manifest_name[] = "/MANIFEST";

/* The folder of a checkpoint's file, "gen-000007/ckpt-000000000042"; length 0: it is of no checkpoint. */
static struct str folder_of(struct str name)
{
    const char *first = memchr(name.data, '/', name.length);
    size_t left = first == NULL ? 0 : (size_t)(name.data + name.length - first - 1);
    const char *second = left == 0 ? NULL : memchr(first + 1, '/', left);
    if (second == NULL || name.length < 4 || memcmp(name.data, "gen-", 4) != 0)
        return (struct str){name.data, 0};
    return (struct str){name.data, (size_t)(second - name.data)};
}

static bool is_manifest(struct str name, struct str folder)
{
    return folder.length > 0 && name.length == folder.length + sizeof(manifest_name) - 1 &&
           memcmp(name.data + folder.length, manifest_name, sizeof(manifest_name) - 1) == 0;
}

/* Whether the object has the bytes of the pack's file. A MANIFEST has digests of all bytes of its checkpoint. */
static bool is_same(struct checkpoint_store *store, const struct checkpoint_pack *pack, uint32_t index,
                    const struct checkpoint_head_file *known, struct diag_list *diags)
{
    uint32_t count;
    const struct checkpoint_pack_file *file = &checkpoint_pack_files(pack, &count)[index];
    struct byte_buffer local = {0}, there = {0};
    size_t got = 0;
    bool is_good = file->bytes == known->bytes && file->bytes <= MANIFEST_BYTES_MAX;
    if (is_good) {
        buffer_reserve(&local, (size_t)file->bytes);
        is_good = checkpoint_pack_read(pack, index, 0, local.data, (size_t)file->bytes, &got) == 0 &&
                  got == file->bytes &&
                  objects_get(store->objects, known->object, got, &there, diags) == OBJECTS_DONE &&
                  there.length == got && memcmp(local.data, there.data, got) == 0;
    }
    buffer_free(&local);
    buffer_free(&there);
    return is_good;
}

/* Reads the newest head whose bytes are right. */
static bool read_newest(struct checkpoint_store *store, struct checkpoint_head *head, struct diag_list *diags)
{
    struct arena scratch = {0};
    struct store_head *heads;
    uint32_t count;
    bool is_there =
        store_heads(store, &scratch, &heads, &count, diags) && count > 0 &&
        store_head_get(store, heads[0].name, &store->arena, &store->known_text, head, diags) == OBJECTS_DONE;
    arena_free(&scratch);
    return is_there;
}

void store_know(struct checkpoint_store *store, const struct checkpoint_pack *pack)
{
    struct arena arena = {0};
    struct diag_list said; /* what cannot be read is sent again */
    struct checkpoint_head head;
    uint32_t count;
    const struct checkpoint_pack_file *files = checkpoint_pack_files(pack, &count);
    diag_list_init(&said, &arena);
    if (!store->is_known && read_newest(store, &head, &said)) {
        store->known = head;
        for (uint32_t i = 0; i < count; i++) {
            struct str name = str_from(files[i].name), folder = folder_of(name);
            const struct checkpoint_head_file *known =
                is_manifest(name, folder) ? head_file(&head, name) : NULL;
            if (known != NULL && is_same(store, pack, i, known, &said))
                name_set_add(&store->known_folders, folder);
        }
        for (uint32_t i = 0; i < head.count; i++)
            if (name_set_has(&store->known_folders, folder_of(head.files[i].name)))
                name_set_add(&store->present, head.files[i].object);
    }
    store->is_known = true;
    arena_free(&arena);
}

const char *store_known_object(struct checkpoint_store *store, const char *name, struct arena *arena)
{
    struct str folder = folder_of(str_from(name));
    if (folder.length == 0 || !name_set_has(&store->known_folders, folder))
        return NULL;
    const struct checkpoint_head_file *known = head_file(&store->known, str_from(name));
    return known == NULL || !name_set_has(&store->present, known->object)
               ? NULL
               : arena_strndup(arena, known->object.data, known->object.length);
}

bool store_knows(const struct checkpoint_store *store, const struct checkpoint_head *head)
{
    const struct checkpoint_head *known = &store->known;
    bool is_same_head = known->count == head->count && known->id.generation == head->id.generation &&
                        known->id.epoch == head->id.epoch;
    for (uint32_t i = 0; i < head->count && is_same_head; i++)
        is_same_head = str_equal(known->files[i].name, head->files[i].name) &&
                       str_equal(known->files[i].object, head->files[i].object) &&
                       known->files[i].bytes == head->files[i].bytes;
    return is_same_head;
}
