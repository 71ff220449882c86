/* Restoring some key groups of a checkpoint in an object store: of each state.bin of its chain the pieces that may have records of
 * them, by ranges.
 *
 * What comes together is one base: a state.bin with these pieces in the chain's order, and a MANIFEST that names the groups. A
 * chain of its own for each link would let a start fall back to an older link, whose database is not there. */
#include "state/block_file.h"
#include "state/checkpoint_store_files.h"
#include "state/store.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    RANGE_BYTES_MAX = 8 << 20, /* of one request, unless one piece is larger */
    GAP_SHARE = 8,             /* gaps of a range are at most this share of its pieces, */
    GAP_BYTES = 32 << 10 /* and in all of the checkpoint so much more: a small one comes in few requests */
};

struct gathering {
    struct restoring *r;
    const struct group_set *groups; /* to gather */
    struct group_set some;          /* of a part: those of r->groups that it has */
    const struct checkpoint_head *head;
    struct arena arena;
    struct manifest links[CHECKPOINT_CHAIN_MAX]; /* newest first */
    uint32_t count;
    struct manifest merged; /* of the base that is made; its files are malloc'd */
    uint32_t files_room;
    struct byte_buffer pieces, digests; /* of `merged` */
    struct block_file state;
    struct byte_buffer bytes; /* of the last request */
    uint64_t gap_bytes;       /* what is left of GAP_BYTES */
};

static bool refuse(struct gathering *g, const char *why)
{
    struct diag *d =
        diag_error(g->r->diags, DIAG_NO_CHECKPOINT, (struct span){0},
                   "no key groups can be restored of checkpoint %u-%llu in `%s`: %s", g->head->id.generation,
                   (unsigned long long)g->head->id.epoch, objects_url(g->r->store->objects), why);
    diag_hint(g->r->diags, d, "restore all of it: `leat checkpoint restore %s --to DIR`",
              objects_url(g->r->store->objects));
    return false;
}

static bool damaged(struct gathering *g, struct str object, int64_t offset, const char *why)
{
    struct diag *d = diag_error(g->r->diags, DIAG_STORE_DAMAGED, (struct span){0}, "`%s`: `%.*s`: %s",
                                objects_url(g->r->store->objects), STR_ARGS(object), why);
    diag_at(g->r->diags, d, arena_printf(g->r->diags->arena, "%.*s", STR_ARGS(object)), offset, -1);
    diag_hint(g->r->diags, d, "name an older checkpoint; `leat checkpoint list %s` shows them",
              objects_url(g->r->store->objects));
    return false;
}

/* The head's entry for a file of a checkpoint; NULL after E0711. */
static const struct checkpoint_head_file *file_of(struct gathering *g, struct checkpoint_id id,
                                                  struct str name)
{
    const char *path = arena_printf(&g->arena, "gen-%06u/ckpt-%012llu/%.*s", id.generation,
                                    (unsigned long long)id.epoch, STR_ARGS(name));
    const struct checkpoint_head_file *file = head_file(g->head, str_from(path));
    if (file == NULL)
        (void)damaged(g, str_from(path), -1, "the head does not name this file, which its checkpoint has");
    return file;
}

/* Adds a file to those of the base that is made. */
static void list_file(struct gathering *g, const struct manifest_file *file)
{
    if (g->merged.files_count == g->files_room) {
        g->files_room = MAX(64U, g->files_room * 2);
        g->merged.files = mem_realloc(g->merged.files, g->files_room * sizeof(*g->merged.files));
    }
    g->merged.files[g->merged.files_count++] = *file;
}

/* --- The chain --- */

static bool get_manifest(struct gathering *g, struct checkpoint_id id, struct manifest *manifest)
{
    const struct checkpoint_head_file *file = file_of(g, id, STR("MANIFEST"));
    struct byte_buffer text = {0};
    const char *why = "";
    if (file == NULL)
        return false;
    enum objects_result got =
        objects_get(g->r->store->objects, file->object, MANIFEST_BYTES_MAX, &text, g->r->diags);
    struct str copy = {arena_copy(&g->arena, text.data, text.length), text.length};
    buffer_free(&text);
    if (got == OBJECTS_MISSING)
        return restore_missing(g->r, file->object);
    if (got != OBJECTS_DONE)
        return false;
    g->r->read.manifests += copy.length;
    switch (manifest_take(copy, id, &g->arena, manifest, &why)) {
    case DECODE_DAMAGED: return damaged(g, file->object, -1, why);
    case DECODE_OTHER_FORMAT: return refuse(g, "another version of leat wrote it");
    case DECODE_GOOD: break;
    }
    if (manifest->info.format != CHECKPOINT_FORMAT ||
        (manifest->pieces_count > 0 && manifest->piece_digests == NULL))
        return refuse(g, "it was written before checkpoints had pieces by key group");
    if (g->r->part_digest == NULL && manifest->groups != NULL &&
        !group_set_includes(manifest->groups, g->r->groups))
        return refuse(g, "it has other key groups alone");
    uint8_t digest[DIGEST_BYTES];
    digest_of(copy.data, copy.length, digest);
    return g->r->part_digest == NULL || g->count > 0 ||
           memcmp(digest, g->r->part_digest, sizeof(digest)) == 0 || restore_other_part(g->r, file->object);
}

/* Of a worker's part only the groups that it has are gathered; from one that has none of them, no database is. */
static void choose_groups(struct gathering *g)
{
    const struct group_set *has = g->links[0].groups;
    if (g->r->part_digest == NULL || has == NULL)
        return;
    for (uint32_t group = group_set_next(has, 0); group < KEY_GROUPS; group = group_set_next(has, group + 1))
        if (group_set_has(g->r->groups, group))
            bit_set(g->some.words, group);
    g->groups = &g->some;
}

static bool get_chain(struct gathering *g)
{
    struct checkpoint_id id = g->head->id;
    for (; id.generation != 0; id = g->links[g->count++].info.previous) {
        if (g->count == CHECKPOINT_CHAIN_MAX)
            return refuse(g, "its chain has no base");
        if (!get_manifest(g, id, &g->links[g->count]))
            return false;
    }
    return true;
}

/* --- Pieces --- */

/* The number of a part of the manifest in `merged`. */
static uint32_t merge_part(struct gathering *g, const struct manifest *manifest, uint32_t part)
{
    struct manifest *merged = &g->merged;
    struct str name = manifest->parts[part];
    if (part < merged->parts_count && str_equal(merged->parts[part], name))
        return part; /* mostly the links have the same parts */
    for (uint32_t i = 0; i < merged->parts_count; i++)
        if (str_equal(merged->parts[i], name))
            return i;
    merged->parts[merged->parts_count] = name;
    return merged->parts_count++;
}

/* Pieces that one request gets, with what lies between them: numbers first up to limit. */
struct piece_range {
    uint64_t first, limit;
    uint64_t offset, bytes;
    uint64_t gaps; /* part of bytes */
};

static bool is_wanted(const struct gathering *g, const struct manifest_piece *piece)
{
    return piece_has(piece, g->groups);
}

/* Whether the next wanted piece, number `index`, may come with the range; then it does. */
static bool extend(struct gathering *g, struct piece_range *range, uint64_t index,
                   const struct manifest_piece *piece)
{
    uint64_t gap = piece->offset - (range->offset + range->bytes), gaps = range->gaps + gap;
    uint64_t spare = (range->bytes - range->gaps + piece->bytes) / GAP_SHARE;
    if (range->bytes + gap + piece->bytes > RANGE_BYTES_MAX)
        return false;
    if (gaps > spare) {
        if (gap > g->gap_bytes)
            return false;
        g->gap_bytes -= gap;
        gaps = range->gaps; /* paid for */
    }
    range->limit = index + 1;
    range->bytes += gap + piece->bytes;
    range->gaps = gaps;
    return true;
}

/* Gets the range, verifies its wanted pieces, and appends them to state.bin. */
static bool get_range(struct gathering *g, const struct manifest *manifest,
                      const struct checkpoint_head_file *file, const struct piece_range *range)
{
    buffer_clear(&g->bytes);
    enum objects_result got = objects_get_range(g->r->store->objects, file->object, range->offset,
                                                (size_t)range->bytes, &g->bytes, g->r->diags);
    if (got == OBJECTS_MISSING)
        return restore_missing(g->r, file->object);
    if (got != OBJECTS_DONE)
        return false;
    g->r->read.pieces += range->bytes;
    for (uint64_t i = range->first; i < range->limit; i++) {
        struct manifest_piece piece = manifest_piece(manifest, i);
        const uint8_t *digest = manifest->piece_digests + i * DIGEST_BYTES;
        const char *data = g->bytes.data + (piece.offset - range->offset);
        uint8_t found[DIGEST_BYTES];
        if (!is_wanted(g, &piece))
            continue;
        digest_of(data, piece.bytes, found);
        if (memcmp(found, digest, DIGEST_BYTES) != 0)
            return damaged(g, file->object, (int64_t)piece.offset,
                           "the piece at this offset does not match its digest");
        piece.part = merge_part(g, manifest, piece.part);
        piece.offset = g->state.bytes;
        int error = block_file_append(&g->state, data, piece.bytes);
        if (error != 0)
            return restore_cannot_write(g->r->diags, g->r->temporary, error);
        buffer_append(&g->pieces, &piece, sizeof(piece));
        buffer_append(&g->digests, digest, DIGEST_BYTES);
    }
    return true;
}

static bool get_pieces(struct gathering *g, const struct manifest *manifest)
{
    struct piece_range range = {0};
    const struct checkpoint_head_file *file = file_of(g, manifest->info.id, STR("state.bin"));
    if (file == NULL)
        return false;
    for (uint64_t i = 0; i < manifest->pieces_count; i++) {
        struct manifest_piece piece = manifest_piece(manifest, i);
        if (!is_wanted(g, &piece) || (range.bytes > 0 && extend(g, &range, i, &piece)))
            continue;
        if (range.bytes > 0 && !get_range(g, manifest, file, &range))
            return false;
        range = (struct piece_range){i, i + 1, piece.offset, piece.bytes, 0};
    }
    return range.bytes == 0 || get_range(g, manifest, file, &range);
}

/* Makes state.bin of the pieces of the whole chain, base first. */
static bool get_state(struct gathering *g, const char *directory)
{
    char path[PATH_BYTES * 2];
    uint32_t parts = 0;
    for (uint32_t i = 0; i < g->count; i++)
        parts += g->links[i].parts_count;
    g->merged.parts = arena_array(&g->arena, struct str, MAX(parts, 1U));
    snprintf(path, sizeof(path), "%s/state.bin", directory);
    if (!restore_folder(g->r, path))
        return false;
    int error = block_file_create(&g->state, path);
    if (error != 0)
        return restore_cannot_write(g->r->diags, path, error);
    for (uint32_t i = g->count; i-- > 0;)
        if (!get_pieces(g, &g->links[i]))
            return false;
    error = block_file_end(&g->state);
    if (error == 0)
        error = os_fsync(g->state.fd, "ckpt.fsync");
    return error == 0 || restore_cannot_write(g->r->diags, path, error);
}

/* --- Databases --- */

static bool is_table_file(struct str name)
{
    return name.length > 4 && memcmp(name.data + name.length - 4, ".sst", 4) == 0;
}

/* The name within the database; length 0: the file is of something else. */
static struct str name_within(struct str path, const char *database)
{
    size_t length = strlen(database);
    if (path.length <= length + 1 || memcmp(path.data, database, length) != 0 || path.data[length] != '/')
        return (struct str){"", 0};
    return (struct str){path.data + length + 1, path.length - length - 1};
}

/* Gets a file of the newest checkpoint, and compares it with its digests. */
static bool get_verified(struct gathering *g, const struct manifest_file *file, const char *directory)
{
    char path[PATH_BYTES * 2];
    const struct checkpoint_head_file *there = file_of(g, g->links[0].info.id, file->path);
    snprintf(path, sizeof(path), "%s/%.*s", directory, STR_ARGS(file->path));
    return there != NULL && restore_file(g->r, there, &g->r->read.database) &&
           manifest_file_verify(path, file, false, g->r->diags);
}

/* Gets the table files of the database that it has kept; NULL: all files that are no table files. */
static bool get_files(struct gathering *g, const char *directory, const char *database,
                      const struct name_set *kept)
{
    const struct manifest *newest = &g->links[0];
    bool ok = true;
    for (uint32_t i = 0; ok && i < newest->files_count; i++) {
        const struct manifest_file *file = &newest->files[i];
        struct str name = name_within(file->path, database);
        if (name.length == 0 || (kept == NULL ? is_table_file(name) : !name_set_has(kept, name)))
            continue;
        ok = get_verified(g, file, directory);
        if (kept != NULL)
            list_file(g, file);
    }
    return ok;
}

static bool add_file(struct gathering *g, const char *database, const char *name, const char *path)
{
    uint64_t bytes;
    uint8_t *digests;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = fd < 0 ? errno : os_fsync(fd, "ckpt.fsync");
    if (fd >= 0)
        close(fd);
    if (error == 0)
        error = digest_file(path, &bytes, &digests);
    if (error != 0)
        return restore_cannot_write(g->r->diags, path, error);
    struct manifest_file file = {str_from(arena_printf(&g->arena, "%s/%s", database, name)), bytes,
                                 arena_copy(&g->arena, digests, digest_count(bytes) * DIGEST_BYTES)};
    free(digests);
    list_file(g, &file);
    return true;
}

/* RocksDB has written files of its own: adds those that a database is opened with, and removes the rest. */
static bool sweep(struct gathering *g, const char *directory, const char *database)
{
    static const char *const kept[] = {"CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-"};
    char folder[PATH_BYTES * 2], path[sizeof(folder) + NAME_MAX + 2];
    snprintf(folder, sizeof(folder), "%s/%s", directory, database);
    DIR *stream = opendir(folder);
    bool ok = stream != NULL || restore_cannot_write(g->r->diags, folder, errno);
    for (struct dirent *entry; ok && (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        bool is_kept = false;
        for (size_t i = 0; i < ARRAY_COUNT(kept); i++)
            is_kept |= strncmp(name, kept[i], strlen(kept[i])) == 0;
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (is_kept)
            ok = add_file(g, database, name, path);
        else if (name[0] != '.' && unlink(path) != 0)
            ok = restore_cannot_write(g->r->diags, path, errno);
    }
    if (stream != NULL)
        closedir(stream);
    return ok;
}

/* Lets the database forget the table files that the groups do not need. *kept: those that it still has. */
static bool cut_database(struct gathering *g, const char *path, struct name_set *kept)
{
    const char **names;
    uint32_t count;
    char *text = store_forget_groups(path, g->groups, &g->arena, &names, &count);
    for (uint32_t i = 0; text == NULL && i < count; i++)
        name_set_add(kept, str_from(names[i]));
    if (text == NULL)
        return true;
    struct diag *d = diag_error(g->r->diags, DIAG_STATE_FAILED, (struct span){0},
                                "the checkpoint's state database cannot be cut to some key groups");
    diag_cause(g->r->diags, d, "%s", text);
    diag_hint(g->r->diags, d, "restore all of the checkpoint: `leat checkpoint restore %s --to DIR`",
              objects_url(g->r->store->objects));
    free(text);
    return false;
}

static bool get_database(struct gathering *g, uint32_t number, const char *directory)
{
    char database[DATABASE_NAME_BYTES], path[PATH_BYTES * 2];
    struct name_set kept = {0};
    database_name(number, database);
    snprintf(path, sizeof(path), "%s/%s", directory, database);
    if (!get_files(g, directory, database, NULL))
        return false;
    if (access(path, F_OK) != 0)
        return true; /* a store without a database */
    bool ok = cut_database(g, path, &kept) && sweep(g, directory, database);
    uint32_t before = g->merged.files_count;
    ok = ok && get_files(g, directory, database, &kept);
    if (ok && g->merged.files_count - before != kept.count)
        ok = damaged(g, str_from(database), -1, "the database names table files that its checkpoint lacks");
    name_set_free(&kept);
    int error = ok ? os_fsync_directory(path, "ckpt.fsync_directory") : 0;
    return error == 0 ? ok : restore_cannot_write(g->r->diags, path, error);
}

static bool get_databases(struct gathering *g, const char *directory)
{
    for (uint32_t i = 0; i < g->merged.info.databases; i++)
        if (!get_database(g, i, directory))
            return false;
    return true;
}

/* --- The MANIFEST --- */

static bool write_manifest(struct gathering *g, const char *directory)
{
    char path[PATH_BYTES * 2];
    struct byte_buffer text = {0};
    struct manifest *merged = &g->merged;
    merged->pieces = g->pieces.data;
    merged->pieces_count = g->pieces.length / sizeof(struct manifest_piece);
    merged->piece_digests = (const uint8_t *)g->digests.data;
    manifest_encode(merged, &text);
    snprintf(path, sizeof(path), "%s/MANIFEST", directory);
    int error = text.length > MANIFEST_BYTES_MAX
                    ? EFBIG
                    : os_write_file(path, text.data, text.length, "ckpt.manifest", "ckpt.fsync");
    if (error == 0)
        error = os_fsync_directory(directory, "ckpt.fsync_directory");
    buffer_free(&text);
    return error == 0 || restore_cannot_write(g->r->diags, path, error);
}

bool restore_groups(struct restoring *r, const struct checkpoint_head *head)
{
    struct gathering *g = mem_calloc(1, sizeof(*g));
    char directory[PATH_BYTES + 64];
    *g = (struct gathering){.r = r, .groups = r->groups, .head = head, .gap_bytes = GAP_BYTES};
    snprintf(directory, sizeof(directory), "%s/gen-%06u/ckpt-%012llu", r->temporary, head->id.generation,
             (unsigned long long)head->id.epoch);
    bool ok = get_chain(g);
    if (ok) {
        choose_groups(g);
        g->merged.info = g->links[0].info;
        g->merged.info.previous = (struct checkpoint_id){0};
        g->merged.groups = g->groups;
        if (group_set_count(g->groups) == 0)
            g->merged.info.databases = 0;
        ok = get_state(g, directory);
    }
    uint8_t *digests = ok ? block_file_take_digests(&g->state) : NULL;
    if (ok) {
        list_file(g, &(struct manifest_file){STR("state.bin"), g->state.bytes, digests});
        ok = get_databases(g, directory) && write_manifest(g, directory);
    }
    free(digests);
    free(g->merged.files);
    block_file_close(&g->state);
    buffer_free(&g->pieces);
    buffer_free(&g->digests);
    buffer_free(&g->bytes);
    arena_free(&g->arena);
    free(g);
    return ok;
}
