/* Which checkpoints stay and which go (`keep: { last, hourly, daily }`), and lists for the command line.
 *
 * `keep` counts the checkpoints to which the newest run can go back. With several workers these are the parts that heads name; of the
 * others stay:
 *   - those in doubt, where they are newer than all that are named: the newest head may be theirs
 *   - links of the chain on which this process's next part builds
 *   - what the newest run cannot go back to, such as parts that are newer than the head with which it began, until it has a part of its
 *     own that a head names. Of those in doubt, that is so in the last PRUNE_LIVES lives alone: since earlier ones several lives have
 *     begun with another head, and a job that dies again and again before its first head must not fill the disk.
 * A part that no head can name any more goes at once, where nothing builds on it. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

enum { PRUNE_LIVES = 3 };

/* One checkpoint on disk. */
struct entry {
    struct checkpoint_id id;
    struct checkpoint_id previous;
    int64_t created_us;
    enum part_fate fate;
    bool is_good;   /* its MANIFEST can be read */
    bool is_walked; /* the newest run can go back to it */
    bool is_kept;
};

static struct entry *find_entry(struct entry *entries, uint32_t count, struct checkpoint_id id)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].id.generation == id.generation && entries[i].id.epoch == id.epoch)
            return &entries[i];
    return NULL;
}

/* Whether the newest run can go back to the checkpoint, and `keep` counts it. */
static bool is_counted(const struct entry *entry)
{
    return entry->is_walked && entry->is_good && entry->fate == PART_NAMED;
}

/* The newest one that counts; `count`: there is none. */
static uint32_t newest_counted(const struct entry *entries, uint32_t count)
{
    uint32_t at = 0;
    while (at < count && !is_counted(&entries[at]))
        at++;
    return at;
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
        created_us[i] = is_counted(&entries[i]) ? entries[i].created_us : TIME_MIN;
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

/* Also keeps one checkpoint that shares no file with the newest, in case a file of the newest checkpoint's chain is damaged. */
static void mark_other_base(struct entry *entries, uint32_t count)
{
    uint32_t newest = newest_counted(entries, count);
    for (uint32_t i = newest; i < count; i++) {
        if (!is_counted(&entries[i]))
            continue;
        struct checkpoint_id a = base_of(entries, count, &entries[newest]),
                             b = base_of(entries, count, &entries[i]);
        if (a.generation != b.generation || a.epoch != b.epoch) {
            entries[i].is_kept = true;
            break;
        }
    }
}

/* Marks parts that a head may name yet, and the one on which this process's next part builds. newest: generation in the directory. */
static void mark_parts(const struct checkpoint_dir *dir, struct entry *entries, uint32_t count,
                       uint32_t newest)
{
    uint32_t head = newest_counted(entries, count), lives = 0, life = 0;
    bool stands = head < count && entries[head].id.generation == newest;
    for (uint32_t i = 0; i < count; i++) {
        struct entry *entry = &entries[i];
        bool is_in_doubt = entry->fate == PART_IN_DOUBT;
        if (entry->is_walked) {
            entry->is_kept |= i < head && is_in_doubt;
        } else if (!stands && entry->fate != PART_VOID) {
            lives += is_in_doubt && entry->id.generation != life;
            life = is_in_doubt ? entry->id.generation : life;
            entry->is_kept |= !is_in_doubt || lives <= PRUNE_LIVES;
        }
    }
    struct entry *last = find_entry(entries, count, dir->last);
    if (last != NULL)
        last->is_kept = true;
}

/* Marks the entries that stay; entries are newest first, those of the newest run in the order of a restore. */
static void mark_kept(const struct checkpoint_dir *dir, struct entry *entries, uint32_t count,
                      uint32_t newest, const struct checkpoint_keep *keep)
{
    mark_by_age(entries, count, keep);
    mark_other_base(entries, count);
    mark_parts(dir, entries, count, newest);
    for (uint32_t i = 0; i < count; i++) /* newest first, so a chain is marked down to its base */
        if (entries[i].is_kept && entries[i].previous.generation != 0) {
            struct entry *previous = find_entry(entries, count, entries[i].previous);
            if (previous != NULL)
                previous->is_kept = true;
        }
}

/* All checkpoints in the directory, newest generation and epoch first. */
static struct entry *load_entries(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint32_t walked_count, walked = 0;
    struct checkpoint_id *ids = ids_list(dir, count), *walk = ids_walk(dir, &walked_count);
    struct entry *entries = mem_calloc(MAX(*count, 1), sizeof(*entries));
    struct arena arena;
    arena_init(&arena, 64 << 10);
    for (uint32_t i = 0; i < *count; i++) {
        struct manifest manifest;
        const char *why;
        entries[i].id = ids[i];
        entries[i].fate = part_fate(dir, ids[i]);
        entries[i].is_walked = walked < walked_count && walk[walked].generation == ids[i].generation &&
                               walk[walked].epoch == ids[i].epoch;
        walked += entries[i].is_walked; /* both lists are in the same order */
        entries[i].is_good = manifest_read(dir, ids[i], &arena, &manifest, &why) == DECODE_GOOD;
        if (entries[i].is_good) {
            entries[i].previous = manifest.info.previous;
            entries[i].created_us = manifest.info.created_us;
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    free(walk);
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
    if (error == 0)
        part_forget(dir, id);
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

/* Removes the checkpoints that are not kept. oldest: the oldest that is kept of those to which the newest run can go back; NULL: there
 * is none. 0 or an errno. */
static int remove_entries(const struct checkpoint_dir *dir, const struct entry *entries, uint32_t count,
                          const struct entry *oldest, uint32_t *removed)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < count; i++) {
        const struct entry *entry = &entries[i];
        if (entry->is_kept)
            continue;
        if (entry->is_walked && oldest != NULL && entry < oldest)
            error = order_keep(dir, entry->id);
        if (error == 0)
            error = remove_checkpoint(dir, entry->id);
        *removed += error == 0;
    }
    return error;
}

/* Removes generations that have nothing left, and what earlier processes have left in others. newest: the newest GENERATION, which says
 * which checkpoints of its parents count. 0 or an errno. */
static int remove_generations(const struct checkpoint_dir *dir, const struct entry *entries, uint32_t count,
                              uint32_t newest)
{
    uint32_t generations_count, *generations = generations_list(dir, &generations_count);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < generations_count; i++) {
        char path[PATH_BYTES];
        bool is_own = generations[i] == dir->generation.generation;
        path_generation(dir, generations[i], path);
        error = checkpoint_dir_check(dir);
        if (error != 0)
            break;
        if (!is_own && generations[i] != newest && !has_kept(entries, count, generations[i]) &&
            !order_has_loose(dir, generations[i]))
            error = os_remove_tree(path);
        else if (!is_own)
            error = sweep_generation(dir, generations[i]);
    }
    free(generations);
    return error;
}

bool checkpoint_prune(struct checkpoint_dir *dir, const struct checkpoint_keep *keep, uint32_t *removed,
                      struct diag_list *diags)
{
    leat_assert(!dir->is_read_only);
    uint32_t count, newest = checkpoint_newest_generation(dir);
    struct entry *entries = load_entries(dir, &count);
    mark_kept(dir, entries, count, newest, keep == NULL ? &dir->keep : keep);
    int error = 0;
    *removed = 0;
    bool has_any = false;
    const struct entry *oldest = NULL; /* that is kept, and to which the newest run can go back */
    for (uint32_t i = 0; i < count; i++) {
        has_any |= entries[i].is_kept;
        oldest = entries[i].is_kept && entries[i].is_walked ? &entries[i] : oldest;
    }
    /* If no checkpoint can be kept, nothing is removed: the user may still repair one. */
    if (has_any)
        error = remove_entries(dir, entries, count, oldest, removed);
    if (oldest != NULL && error == 0)
        error = order_prune(dir, oldest->id);
    if (has_any && error == 0)
        error = remove_generations(dir, entries, count, newest);
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
