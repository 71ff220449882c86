/* Which checkpoints stay and which go (`keep: { last, hourly, daily }`), and lists for the command line. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* One checkpoint on disk. */
struct entry {
    struct checkpoint_id id;
    struct checkpoint_id previous;
    int64_t created_us;
    bool is_good; /* its MANIFEST can be read */
    bool is_kept;
};

static struct entry *find_entry(struct entry *entries, uint32_t count, struct checkpoint_id id)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].id.generation == id.generation && entries[i].id.epoch == id.epoch)
            return &entries[i];
    return NULL;
}

/* Whether no newer checkpoint is of the same hour or day. All newer ones are compared, because their times need
 * not fall: the wall clock may have been set. */
static bool is_newest_of_period(const int64_t *created_us, uint32_t at, int64_t period_us)
{
    for (uint32_t i = 0; i < at; i++)
        if (created_us[i] != TIME_MIN && created_us[i] / period_us == created_us[at] / period_us)
            return false;
    return true;
}

/* Keeps the newest checkpoint of each of the newest `periods` hours or days. */
static void keep_periods(const int64_t *created_us, uint32_t count, int64_t period_us, int64_t periods,
                         bool *kept)
{
    int64_t found = 0;
    for (uint32_t i = 0; i < count && found < periods; i++) {
        if (created_us[i] == TIME_MIN || !is_newest_of_period(created_us, i, period_us))
            continue;
        kept[i] = true;
        found++;
    }
}

void keep_mark(const int64_t *created_us, uint32_t count, const struct checkpoint_keep *keep, bool *kept)
{
    int64_t found = 0;
    for (uint32_t i = 0; i < count && found < MAX(keep->last, 1); i++) {
        kept[i] = created_us[i] != TIME_MIN;
        found += kept[i];
    }
    keep_periods(created_us, count, US_PER_HOUR, keep->hourly, kept);
    keep_periods(created_us, count, US_PER_DAY, keep->daily, kept);
}

/* Marks the entries that `keep` names by their age. */
static void mark_by_age(struct entry *entries, uint32_t count, const struct checkpoint_keep *keep)
{
    int64_t *created_us = mem_alloc(MAX(count, 1) * sizeof(*created_us));
    bool *kept = mem_calloc(MAX(count, 1), sizeof(*kept));
    for (uint32_t i = 0; i < count; i++)
        created_us[i] = entries[i].is_good ? entries[i].created_us : TIME_MIN;
    keep_mark(created_us, count, keep, kept);
    for (uint32_t i = 0; i < count; i++)
        entries[i].is_kept = kept[i];
    free(created_us);
    free(kept);
}

static struct checkpoint_id base_of(struct entry *entries, uint32_t count, const struct entry *entry)
{
    while (entry->previous.generation != 0) {
        const struct entry *previous = find_entry(entries, count, entry->previous);
        if (previous == NULL)
            break;
        entry = previous;
    }
    return entry->id;
}

/* Marks the entries that stay; entries are in the order of a restore, newest first. */
static void mark_kept(struct entry *entries, uint32_t count, const struct checkpoint_keep *keep)
{
    mark_by_age(entries, count, keep);
    /* Also keep one checkpoint that shares no file with the newest, in case a file of the newest
     * checkpoint's chain is damaged. */
    const struct entry *newest = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (!entries[i].is_good)
            continue;
        if (newest == NULL)
            newest = &entries[i];
        struct checkpoint_id a = base_of(entries, count, newest), b = base_of(entries, count, &entries[i]);
        if (a.generation != b.generation || a.epoch != b.epoch) {
            entries[i].is_kept = true;
            break;
        }
    }
    for (uint32_t i = 0; i < count; i++) /* newest first, so a chain is marked down to its base */
        if (entries[i].is_kept && entries[i].previous.generation != 0) {
            struct entry *previous = find_entry(entries, count, entries[i].previous);
            if (previous != NULL)
                previous->is_kept = true;
        }
}

static struct entry *load_entries(const struct checkpoint_dir *dir, uint32_t *count)
{
    struct checkpoint_id *ids = ids_walk(dir, count);
    struct entry *entries = mem_calloc(MAX(*count, 1), sizeof(*entries));
    struct arena arena;
    arena_init(&arena, 64 << 10);
    for (uint32_t i = 0; i < *count; i++) {
        struct manifest manifest;
        const char *why;
        entries[i].id = ids[i];
        entries[i].is_good = manifest_read(dir, ids[i], &arena, &manifest, &why) == DECODE_GOOD;
        if (entries[i].is_good) {
            entries[i].previous = manifest.info.previous;
            entries[i].created_us = manifest.info.created_us;
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    free(ids);
    return entries;
}

static int remove_checkpoint(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    char path[PATH_BYTES], gone[PATH_BYTES + 8];
    path_checkpoint(dir, id, path);
    snprintf(gone, sizeof(gone), "%s.tmp", path);
    int error = checkpoint_dir_check(dir);
    if (error == 0)
        error = os_rename(path, gone, "ckpt.prune");
    if (error == 0) /* a half-removed checkpoint must not get its name back after a power cut */
        error = os_fsync_parent(gone, NULL);
    /* ENOENT: a process that took over in this very moment may have removed it. */
    return error == 0 ? os_remove_tree(gone) : error == ENOENT ? 0 : error;
}

/* Removes leftovers of earlier processes: "*.tmp" in the generation, and the working directories of its databases. */
static int sweep_generation(const struct checkpoint_dir *dir, uint32_t generation)
{
    char path[PATH_BYTES], child[PATH_BYTES + NAME_MAX + 2];
    path_generation(dir, generation, path);
    DIR *stream = opendir(path);
    int error = 0;
    for (struct dirent *item; stream != NULL && error == 0 && (item = readdir(stream)) != NULL;) {
        const char *suffix = strrchr(item->d_name, '.');
        bool is_leftover = (suffix != NULL && suffix != item->d_name && strcmp(suffix, ".tmp") == 0) ||
                           is_database_name(item->d_name);
        if (!is_leftover)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, item->d_name);
        error = checkpoint_dir_check(dir);
        if (error == 0)
            error = os_remove_tree(child);
    }
    if (stream != NULL)
        closedir(stream);
    return error;
}

static bool has_kept(const struct entry *entries, uint32_t count, uint32_t generation)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].is_kept && entries[i].id.generation == generation)
            return true;
    return false;
}

bool checkpoint_prune(struct checkpoint_dir *dir, const struct checkpoint_keep *keep, uint32_t *removed,
                      struct diag_list *diags)
{
    leat_assert(!dir->is_read_only);
    uint32_t count, all_count, generations_count;
    struct entry *entries = load_entries(dir, &count);
    struct checkpoint_id *all = ids_list(dir, &all_count);
    uint32_t *generations = generations_list(dir, &generations_count);
    mark_kept(entries, count, keep == NULL ? &dir->keep : keep);
    int error = 0;
    *removed = 0;
    const struct entry *oldest = NULL; /* the oldest entry that is kept */
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].is_kept)
            oldest = &entries[i];
    /* If no checkpoint can be kept, nothing is removed: the user may still repair one. */
    for (uint32_t i = 0; oldest != NULL && error == 0 && i < all_count; i++) {
        const struct entry *entry = find_entry(entries, count, all[i]);
        if (entry != NULL && entry->is_kept)
            continue;
        if (entry != NULL && entry < oldest)
            error = order_keep(dir, all[i]);
        if (error == 0)
            error = remove_checkpoint(dir, all[i]);
        *removed += error == 0;
    }
    if (oldest != NULL && error == 0)
        error = order_prune(dir, oldest->id);
    for (uint32_t i = 0; oldest != NULL && error == 0 && i < generations_count; i++) {
        char path[PATH_BYTES];
        bool is_own = generations[i] == dir->generation.generation;
        bool is_newest = i == 0; /* the newest GENERATION says which checkpoints of its parents count */
        path_generation(dir, generations[i], path);
        error = checkpoint_dir_check(dir);
        if (error != 0)
            break;
        if (!is_own && !is_newest && !has_kept(entries, count, generations[i]) &&
            !order_has_loose(dir, generations[i]))
            error = os_remove_tree(path);
        else if (!is_own)
            error = sweep_generation(dir, generations[i]);
    }
    free(generations);
    free(all);
    free(entries);
    if (error == 0)
        return true;
    struct diag *diag = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0},
                                   "old checkpoints cannot be removed from %s", dir->path);
    diag_errno(diags, diag, error);
    return false;
}

/* --- For the command line --- */

/* Reads the MANIFESTs of the checkpoints `ids` and frees `ids`. */
static bool read_infos(const struct checkpoint_dir *dir, struct checkpoint_id *ids, uint32_t count,
                       struct arena *arena, struct checkpoint_list *list)
{
    list->count = count;
    list->items = arena_array(arena, struct checkpoint_info, MAX(count, 1));
    list->is_damaged = arena_array(arena, bool, MAX(count, 1));
    for (uint32_t i = 0; i < count; i++) {
        struct manifest manifest;
        const char *why;
        list->is_damaged[i] = manifest_read(dir, ids[i], arena, &manifest, &why) != DECODE_GOOD;
        if (!list->is_damaged[i])
            list->items[i] = manifest.info;
        list->items[i].id = ids[i];
    }
    free(ids);
    return true;
}

bool checkpoint_list(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags)
{
    (void)diags;
    uint32_t count;
    struct checkpoint_id *ids = ids_list(dir, &count);
    return read_infos(dir, ids, count, arena, list);
}

bool checkpoint_walk(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags)
{
    (void)diags;
    uint32_t count;
    struct checkpoint_id *ids = ids_walk(dir, &count);
    return read_infos(dir, ids, count, arena, list);
}

bool checkpoint_verify(struct checkpoint_dir *dir, struct checkpoint_id id, struct diag_list *diags)
{
    enum decode_result result;
    struct checkpoint *checkpoint = chain_open(dir, id, false, &result, diags);
    bool is_good = checkpoint != NULL;
    for (uint32_t i = 0; is_good && i < checkpoint->count; i++)
        is_good = manifest_verify(dir, &checkpoint->chain[i], false, diags) &&
                  pieces_verify(dir, &checkpoint->chain[i], diags) &&
                  order_verify(dir, checkpoint->chain[i].info.id, diags);
    checkpoint_close(checkpoint);
    return is_good && order_verify_loose(dir, diags);
}

static void show_parts(const struct manifest *manifest, struct byte_buffer *out)
{
    uint64_t *bytes = mem_calloc(MAX(manifest->parts_count, 1), sizeof(*bytes));
    for (uint64_t i = 0; i < manifest->pieces_count; i++) {
        struct manifest_piece piece = manifest_piece(manifest, i);
        bytes[piece.part] += piece.bytes;
    }
    for (uint32_t i = 0; i < manifest->parts_count; i++)
        buffer_printf(out, "  part  %-40.*s %14llu bytes\n", STR_ARGS(manifest->parts[i]),
                      (unsigned long long)bytes[i]);
    free(bytes);
}

static void show_groups(const struct manifest *manifest, struct byte_buffer *out)
{
    char text[GROUP_SET_TEXT_BYTES];
    if (manifest->groups == NULL)
        return;
    group_set_text(manifest->groups, text);
    buffer_printf(out, "  key groups %s alone\n", text);
}

bool checkpoint_show(struct checkpoint_dir *dir, struct checkpoint_id id, struct byte_buffer *out,
                     struct diag_list *diags)
{
    enum decode_result result;
    struct checkpoint *checkpoint = chain_open(dir, id, false, &result, diags);
    if (checkpoint == NULL)
        return false;
    for (uint32_t i = checkpoint->count; i-- > 0;) {
        const struct manifest *manifest = &checkpoint->chain[i];
        const struct checkpoint_info *info = &manifest->info;
        buffer_printf(out, "generation %u, epoch %llu: %s, %llu bytes in %u files\n", info->id.generation,
                      (unsigned long long)info->id.epoch, info->previous.generation == 0 ? "base" : "delta",
                      (unsigned long long)info->bytes, info->files);
        for (uint32_t j = 0; j < manifest->files_count; j++) {
            const uint8_t *digest = manifest->files[j].digests;
            bool is_empty = manifest->files[j].bytes == 0;
            buffer_printf(out, "  file  %-40.*s %14llu bytes  %02x%02x%02x%02x\n",
                          STR_ARGS(manifest->files[j].path), (unsigned long long)manifest->files[j].bytes,
                          is_empty ? 0 : digest[0], is_empty ? 0 : digest[1], is_empty ? 0 : digest[2],
                          is_empty ? 0 : digest[3]);
        }
        show_parts(manifest, out);
        show_groups(manifest, out);
        order_show(dir, info->id, out);
        if (i + 1 == checkpoint->count && info->notes.length > 0)
            buffer_printf(out, "%.*s\n", STR_ARGS(info->notes));
    }
    order_show_loose(dir, out);
    checkpoint_close(checkpoint);
    return true;
}
