/* Mirrors of workers' parts (checkpoint_store_parts.h): a checkpoint directory that has the newest part of a worker, kept up part by part.
 *
 * A part's object lists the files of its chain, base first. A checkpoint of the chain that is in the directory already is kept: its MANIFEST
 * is the store's, byte for byte, and its files were verified when this process met it first. Of one that is not, files whose object the
 * directory has under another name, as databases' files go from checkpoint to checkpoint, are linked; those of a base are copied, for
 * it shares no inode with other checkpoints. The rest is got. A checkpoint has its name once all of its files are on the disk.
 *
 * In a directory that another process holds everything is looked at in the same way, and nothing is changed. */
#include "state/checkpoint_store_files.h"
#include "state/checkpoint_store_parts.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* What a part lists. */
struct listing {
    struct arena arena;
    struct byte_buffer text;
    struct checkpoint_head head;
};

struct checkpoint_mirror {
    struct checkpoint_store *store;
    char *to;
    int64_t keep_free;
    /* Objects of tables, and of MANIFESTs of checkpoints, that are there with every byte verified: of `last`, and of what has come since. */
    struct name_set held;
    struct listing last; /* of the part that was brought last */
};

/* A file that the directory may have, by its object. */
struct known_file {
    struct str object, name;
};

/* A part on its way. */
struct bringing {
    struct checkpoint_mirror *mirror;
    struct checkpoint_dir *dir;
    const struct checkpoint_head *head;
    struct known_file *known; /* by object */
    uint32_t known_count;
    bool is_held; /* another process has the directory */
    uint64_t *bytes;
    struct diag_list *diags;
};

/* A checkpoint of the chain: files from `begin` on, up to `end`. */
struct link_files {
    struct checkpoint_id id;
    uint32_t begin, end, manifest; /* manifest: the index of its MANIFEST; end: it has none */
    size_t folder;                 /* bytes of names up to the checkpoint's folder, with the slash */
};

struct checkpoint_mirror *checkpoint_mirror_new(struct checkpoint_store *store, const char *to,
                                                int64_t keep_free)
{
    struct checkpoint_mirror *m = mem_calloc(1, sizeof(*m));
    m->store = store;
    m->to = mem_strdup(to);
    m->keep_free = keep_free;
    return m;
}

static void listing_free(struct listing *listing)
{
    buffer_free(&listing->text);
    arena_free(&listing->arena);
    *listing = (struct listing){0};
}

void checkpoint_mirror_free(struct checkpoint_mirror *m)
{
    if (m == NULL)
        return;
    listing_free(&m->last);
    name_set_free(&m->held);
    free(m->to);
    free(m);
}

/* --- Files that are there --- */

static int by_object(const void *a, const void *b)
{
    const struct known_file *x = a, *y = b;
    return str_compare(x->object, y->object);
}

static void add_known(struct bringing *b, const struct checkpoint_head *head)
{
    for (uint32_t i = 0; i < head->count; i++)
        b->known[b->known_count++] = (struct known_file){head->files[i].object, head->files[i].name};
}

/* The files of this part, and of the one before, by object: malloc'd. */
static void list_known(struct bringing *b)
{
    const struct checkpoint_head *last = &b->mirror->last.head;
    b->known = mem_alloc(((size_t)b->head->count + last->count + 1) * sizeof(*b->known));
    add_known(b, b->head);
    add_known(b, last);
    if (b->known_count > 1)
        qsort(b->known, b->known_count, sizeof(*b->known), by_object);
}

/* The path of a file with that object, in a checkpoint that has its name; "": there is none. */
static void find_known(const struct bringing *b, const struct checkpoint_head_file *file,
                       char path[PATH_BYTES * 2])
{
    uint32_t low = 0, high = b->known_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (str_compare(b->known[middle].object, file->object) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < b->known_count && str_equal(b->known[low].object, file->object); low++) {
        snprintf(path, PATH_BYTES * 2, "%s/%.*s", b->mirror->to, STR_ARGS(b->known[low].name));
        if (os_file_bytes(path) == (int64_t)file->bytes)
            return;
    }
    path[0] = '\0';
}

/* --- A checkpoint of the chain --- */

/* Finds the checkpoint to which the file at `begin` belongs, and all files of it that follow. False: it is a table. */
static bool find_link(const struct checkpoint_head *head, uint32_t begin, struct link_files *chained)
{
    char text[48];
    unsigned generation;
    int end = 0;
    struct str name = head->files[begin].name;
    *chained = (struct link_files){.begin = begin, .end = begin};
    snprintf(text, sizeof(text), "%.*s", STR_ARGS(name));
    if (sscanf(text, "gen-%9u/ckpt-%18" SCNu64 "/%n", &generation, &chained->id.epoch, &end) != 2 || end == 0)
        return false;
    chained->id.generation = generation;
    chained->folder = (size_t)end;
    chained->manifest = UINT32_MAX;
    for (; chained->end < head->count; chained->end++) {
        struct str other = head->files[chained->end].name;
        if (other.length <= chained->folder || memcmp(other.data, name.data, chained->folder) != 0)
            break;
        if (str_is((struct str){other.data + chained->folder, other.length - chained->folder}, "MANIFEST"))
            chained->manifest = chained->end;
    }
    return true;
}

/* Reads every byte of a checkpoint in the directory. False after E0702. */
static bool verify(const struct bringing *b, struct checkpoint_id id, struct diag_list *diags)
{
    struct arena arena = {0};
    struct manifest manifest;
    char path[PATH_BYTES];
    const char *why = "";
    bool is_read = manifest_read(b->dir, id, &arena, &manifest, &why) == DECODE_GOOD;
    bool is_good = is_read && manifest_verify(b->dir, &manifest, false, diags);
    path_checkpoint(b->dir, id, path);
    if (!is_read)
        checkpoint_damaged(path, -1, false, diags, why);
    arena_free(&arena);
    return is_good;
}

/* Whether the directory has the checkpoint, as it is in the store: else what it has under that name is removed, unless the directory is
 * held. A damaged one is no error. False after a diagnostic: it is not known. */
static bool look_at_link(struct bringing *b, const struct link_files *chained, bool *has)
{
    const struct checkpoint_head_file *file = &b->head->files[chained->manifest];
    struct byte_buffer there = {0};
    struct arena arena = {0};
    struct diag_list said;
    char path[PATH_BYTES + 16], *here = NULL;
    size_t length = 0;
    path_checkpoint(b->dir, chained->id, path);
    *has = access(path, F_OK) == 0;
    if (!*has || name_set_has(&b->mirror->held, file->object))
        return true;
    enum objects_result got =
        objects_get(b->mirror->store->objects, file->object, MANIFEST_BYTES_MAX, &there, b->diags);
    diag_list_init(&said, &arena);
    strcat(path, "/MANIFEST");
    *has = got == OBJECTS_DONE && os_read_file(path, MANIFEST_BYTES_MAX, &here, &length) == 0 &&
           there.length == length && memcmp(there.data, here, length) == 0 && verify(b, chained->id, &said);
    path_checkpoint(b->dir, chained->id, path);
    if (!*has && got == OBJECTS_DONE && !b->is_held)
        (void)os_remove_tree(path);
    free(here);
    buffer_free(&there);
    arena_free(&arena);
    struct restoring r = {.store = b->mirror->store, .diags = b->diags};
    return got == OBJECTS_DONE || (got == OBJECTS_MISSING && restore_missing(&r, file->object));
}

/* Whether the disk has room for so many bytes. False after E0608. */
static bool has_room(const struct bringing *b, uint64_t bytes)
{
    int64_t left = os_free_bytes(b->mirror->to);
    if (left < 0 || (left >= b->mirror->keep_free && bytes <= (uint64_t)(left - b->mirror->keep_free)))
        return true;
    struct diag *d = diag_error(b->diags, DIAG_DISK_FULL, (struct span){0},
                                "the disk of `%s` has %" PRId64 " MiB left: expected `min_free` (%" PRId64
                                " MiB), and %" PRIu64 " bytes for what is to come there",
                                b->mirror->to, left >> 20, b->mirror->keep_free >> 20, bytes);
    diag_hint(b->diags, d, "free some disk space: a standby has the parts of all workers");
    return false;
}

/* A base shares no inode with other checkpoints. */
static bool is_base(const struct link_files *chained)
{
    return chained->begin == 0;
}

/* Bytes that the checkpoint's files add to the disk. */
static uint64_t added_bytes(const struct bringing *b, const struct link_files *chained)
{
    char path[PATH_BYTES * 2];
    uint64_t bytes = 0;
    for (uint32_t i = chained->begin; i < chained->end; i++) {
        find_known(b, &b->head->files[i], path);
        bytes += is_base(chained) || path[0] == '\0' ? b->head->files[i].bytes : 0;
    }
    return bytes;
}

static bool get_file(struct bringing *b, struct restoring *r, const struct link_files *chained,
                     const struct checkpoint_head_file *file)
{
    char from[PATH_BYTES * 2], to[PATH_BYTES * 2];
    struct checkpoint_head_file own = *file;
    own.name = (struct str){file->name.data + chained->folder, file->name.length - chained->folder};
    snprintf(to, sizeof(to), "%s/%.*s", r->temporary, STR_ARGS(own.name));
    find_known(b, file, from);
    if (!restore_folder(r, to))
        return false;
    if (from[0] != '\0' && (is_base(chained) ? copy_file(from, to) == 0 : link(from, to) == 0))
        return true;
    (void)unlink(to);
    return restore_file(r, &own, b->bytes);
}

/* Gets the files of the checkpoint, and gives it its name. False after a diagnostic. */
static bool get_link(struct bringing *b, const struct link_files *chained)
{
    char path[PATH_BYTES];
    struct restoring r = {.store = b->mirror->store, .diags = b->diags};
    path_checkpoint(b->dir, chained->id, path);
    snprintf(r.temporary, sizeof(r.temporary), "%.*s.tmp", (int)sizeof(r.temporary) - 8, path);
    int error = os_remove_tree(r.temporary);
    if (error == 0 && !has_room(b, added_bytes(b, chained)))
        return false;
    if (error == 0)
        error = os_mkdirs(r.temporary);
    if (error != 0)
        return restore_cannot_write(b->diags, r.temporary, error);
    for (uint32_t i = chained->begin; i < chained->end; i++)
        if (!get_file(b, &r, chained, &b->head->files[i]))
            return false;
    error = os_fsync_directory(r.temporary, "ckpt.fsync_directory");
    if (error == 0)
        error = checkpoint_dir_check(b->dir);
    if (error == 0)
        error = os_rename(r.temporary, path, "ckpt.rename");
    if (error == 0)
        error = os_fsync_parent(path, "ckpt.fsync_parent");
    if (error != 0)
        return restore_cannot_write(b->diags, path, error);
    part_forget(b->dir, chained->id); /* a head names it */
    if (verify(b, chained->id, b->diags))
        return true;
    (void)os_remove_tree(path);
    return false;
}

/* E0702: what the part needs is not there, or damaged, in a directory that another process holds. Returns false. */
static bool refuse_held(const struct bringing *b, struct str name)
{
    struct diag *d = diag_error(b->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                                "`%s`, which another process holds, does not have `%.*s` as the store has it",
                                b->mirror->to, STR_ARGS(name));
    diag_hint(b->diags, d,
              "give this worker a checkpoint directory of its own, or end the process that holds it");
    return false;
}

/* --- Tables --- */

/* Gets a table, unless it is there; its name tells its content. False after a diagnostic. */
static bool get_table(struct bringing *b, const struct checkpoint_head_file *file)
{
    char path[PATH_BYTES * 2];
    struct arena arena = {0};
    struct diag_list said;
    struct restoring r = {.store = b->mirror->store, .diags = &said};
    diag_list_init(&said, &arena);
    snprintf(path, sizeof(path), "%s/%.*s", b->mirror->to, STR_ARGS(file->name));
    bool has = os_file_bytes(path) == (int64_t)file->bytes &&
               (name_set_has(&b->mirror->held, file->object) || restore_check_table(&r, file, path));
    arena_free(&arena);
    if (!has && b->is_held)
        return refuse_held(b, file->name);
    if (!has) {
        (void)unlink(path);
        r.diags = b->diags;
        snprintf(r.temporary, sizeof(r.temporary), "%s", b->mirror->to);
        has = has_room(b, file->bytes) && restore_file(&r, file, b->bytes);
    }
    if (has)
        name_set_add(&b->mirror->held, file->object);
    return has;
}

static bool lists_table(const void *head, const char *name)
{
    return head_file(head, str_from(name)) != NULL;
}

/* --- A part --- */

static bool refuse_listing(const struct bringing *b, struct str name)
{
    struct diag *d = diag_error(b->diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "the part `%.*s` lists a file that belongs to no checkpoint", STR_ARGS(name));
    diag_hint(b->diags, d, "the next head has other parts");
    return false;
}

static bool get_files(struct bringing *b)
{
    struct link_files chained;
    for (uint32_t i = 0; i < b->head->count;) {
        const struct checkpoint_head_file *file = &b->head->files[i];
        if (store_name_begins(file->name, "tables/")) {
            i++;
            if (!get_table(b, file))
                return false;
            continue;
        }
        bool has = false;
        if (!find_link(b->head, i, &chained) || chained.manifest == UINT32_MAX)
            return refuse_listing(b, file->name);
        if (!look_at_link(b, &chained, &has) ||
            (!has && !(b->is_held ? refuse_held(b, file->name) : get_link(b, &chained))))
            return false;
        name_set_add(&b->mirror->held, b->head->files[chained.manifest].object);
        i = chained.end;
    }
    return true;
}

/* Whether the directory has exactly that part. */
static bool has_part(const struct checkpoint_dir *dir, const struct checkpoint_store_part *part,
                     struct diag_list *diags)
{
    uint8_t digest[DIGEST_BYTES];
    uint64_t bytes;
    return checkpoint_digest(dir, part->id, digest, &bytes, diags) &&
           memcmp(digest, part->digest, sizeof(digest)) == 0;
}

/* The part is there: what is not of its chain goes. */
static bool settle(struct bringing *b, const struct checkpoint_store_part *part)
{
    enum decode_result result;
    struct checkpoint *chain = chain_open(b->dir, part->id, false, &result, b->diags);
    int error = chain == NULL ? 0 : checkpoint_dir_check(b->dir);
    if (chain != NULL && error == 0)
        error = chain_settle(b->dir, chain);
    checkpoint_close(chain);
    if (error != 0)
        return restore_cannot_write(b->diags, b->mirror->to, error);
    if (chain == NULL)
        return false;
    struct restoring r = {.store = b->mirror->store, .diags = b->diags};
    return has_part(b->dir, part, b->diags) || restore_other_part(&r, part->name);
}

/* Whether a file of the part lies below that folder. */
static bool lists_folder(const struct checkpoint_head *head, const char *folder)
{
    for (uint32_t i = 0; i < head->count; i++)
        if (store_name_begins(head->files[i].name, folder))
            return true;
    return false;
}

/* Removes what parts that did not come whole have left of a generation, unfinished checkpoints too, for this part may need the room: all
 * that neither the part before nor this one lists. What cannot be removed stays. */
static void sweep_generation(const struct bringing *b, uint32_t generation)
{
    char path[PATH_BYTES], folder[NAME_MAX + 32], child[PATH_BYTES + NAME_MAX + 2];
    path_generation(b->dir, generation, path);
    DIR *stream = opendir(path);
    for (const struct dirent *one; stream != NULL && (one = readdir(stream)) != NULL;) {
        if (strncmp(one->d_name, "ckpt-", 5) != 0)
            continue;
        snprintf(folder, sizeof(folder), "gen-%06u/%s/", generation, one->d_name);
        bool stays = lists_folder(&b->mirror->last.head, folder) || lists_folder(b->head, folder);
        snprintf(child, sizeof(child), "%s/%s", path, one->d_name);
        if (!stays && checkpoint_dir_check(b->dir) == 0)
            (void)os_remove_tree(child);
    }
    if (stream != NULL)
        closedir(stream);
}

static void sweep_generations(const struct bringing *b)
{
    uint32_t count, *generations = generations_list(b->dir, &count);
    for (uint32_t i = 0; i < count; i++)
        sweep_generation(b, generations[i]);
    free(generations);
}

/* Notes that the part is there, and removes other tables. */
static void keep_listing(struct bringing *b, struct listing *next)
{
    struct checkpoint_mirror *m = b->mirror;
    if (!b->is_held)
        checkpoint_tables_sweep(m->to, lists_table, &next->head);
    name_set_free(&m->held);
    for (uint32_t i = 0; i < next->head.count; i++) {
        const struct checkpoint_head_file *file = &next->head.files[i];
        struct str name = file->name, end = STR("/MANIFEST");
        bool is_manifest = name.length > end.length &&
                           str_equal((struct str){name.data + name.length - end.length, end.length}, end);
        if (is_manifest || store_name_begins(name, "tables/"))
            name_set_add(&m->held, file->object);
    }
    listing_free(&m->last);
    m->last = *next;
}

/* Brings the part into the directory, or looks whether one that is held has it. */
static bool bring(struct bringing *b, const struct checkpoint_store_part *part)
{
    struct checkpoint_mirror *m = b->mirror;
    struct listing next = {0};
    enum objects_result got =
        store_head_get(m->store, part->name, &next.arena, &next.text, &next.head, b->diags);
    struct restoring r = {.store = m->store, .diags = b->diags};
    b->head = &next.head;
    bool is_good = got == OBJECTS_DONE || (got == OBJECTS_MISSING && restore_missing(&r, part->name));
    if (is_good) {
        if (!b->is_held)
            sweep_generations(b);
        list_known(b);
        is_good = get_files(b) && (b->is_held ? has_part(b->dir, part, b->diags) : settle(b, part));
        free(b->known);
    }
    if (is_good)
        keep_listing(b, &next);
    else
        listing_free(&next);
    return is_good;
}

bool checkpoint_mirror_bring(struct checkpoint_mirror *m, const struct checkpoint_store_part *part,
                             uint64_t *bytes, struct diag_list *diags)
{
    char holder[CHECKPOINT_HOLDER_BYTES];
    bool is_held = checkpoint_holder(m->to, holder);
    const struct checkpoint_dir_options options = {.path = m->to, .read_only = is_held};
    struct bringing b = {.mirror = m,
                         .dir = checkpoint_dir_open(&options, diags),
                         .is_held = is_held,
                         .bytes = bytes,
                         .diags = diags};
    bool is_good = b.dir != NULL && bring(&b, part);
    checkpoint_dir_close(b.dir);
    return is_good;
}

void checkpoint_mirror_forget(struct checkpoint_mirror *m)
{
    const struct checkpoint_dir_options options = {.path = m->to};
    struct arena arena = {0};
    struct diag_list said;
    char holder[CHECKPOINT_HOLDER_BYTES];
    diag_list_init(&said, &arena);
    struct checkpoint_dir *dir =
        checkpoint_holder(m->to, holder) ? NULL : checkpoint_dir_open(&options, &said);
    if (dir != NULL && checkpoint_dir_check(dir) == 0)
        (void)os_remove_tree(m->to); /* what stays costs room alone */
    checkpoint_dir_close(dir);
    arena_free(&arena);
    checkpoint_mirror_free(m);
}
