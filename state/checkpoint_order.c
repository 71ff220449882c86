/* Order logs in a checkpoint directory (checkpoint.h says what for): segments in checkpoints, loose
 * segments of removed checkpoints, and segments to replay after a fallback (dir->redo). */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/order_log.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void path_order(const struct checkpoint_dir *dir, struct checkpoint_id id, char *path)
{
    path_checkpoint(dir, id, path);
    strcat(path, "/order.log");
}

static void path_loose(const struct checkpoint_dir *dir, struct checkpoint_id id, char *path)
{
    size_t length;
    path_generation(dir, id.generation, path);
    length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "/order-%012llu", (unsigned long long)id.epoch);
}

static const char *read_head(const char *path, struct order_head *head)
{
    char text[ORDER_HEAD_BYTES];
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : os_pread_all(fd, text, sizeof(text), 0, &got);
    if (fd >= 0)
        close(fd);
    return error != 0 ? strerror(error) : order_head_read((struct str){text, got}, head);
}

/* Reads and checks a whole segment. Returns NULL, or what is wrong with the segment (static text). */
static const char *read_figures(const char *path, struct order_figures *figures)
{
    char *text = NULL;
    size_t bytes = 0;
    *figures = (struct order_figures){0};
    int error = os_read_file(path, ORDER_SEGMENT_MAX, &text, &bytes);
    if (error != 0)
        return strerror(error);
    const char *why = order_figures((struct str){text, bytes}, figures);
    if (why == NULL && figures->bytes != bytes)
        why = "other bytes follow its segment";
    free(text);
    return why;
}

/* --- Pruning --- */

int order_keep(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    char from[PATH_BYTES], to[PATH_BYTES], generation[PATH_BYTES];
    path_order(dir, id, from);
    path_loose(dir, id, to);
    path_generation(dir, id.generation, generation);
    if (link(from, to) != 0 && errno != EEXIST)
        return errno == ENOENT ? 0 : errno; /* a damaged checkpoint may have no order log */
    return os_fsync_directory(generation, NULL);
}

bool order_has_loose(const struct checkpoint_dir *dir, uint32_t generation)
{
    char path[PATH_BYTES];
    uint32_t count;
    path_generation(dir, generation, path);
    free(numbers_list(path, "order-", &count));
    return count > 0;
}

/* The loose segments of all generations, newest first; malloc'd. */
static struct checkpoint_id *loose_list(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint32_t generations_count;
    uint32_t *generations = generations_list(dir, &generations_count);
    struct checkpoint_id *ids = NULL;
    *count = 0;
    for (uint32_t i = 0; i < generations_count; i++) {
        char path[PATH_BYTES];
        uint32_t epochs_count;
        path_generation(dir, generations[i], path);
        uint64_t *epochs = numbers_list(path, "order-", &epochs_count);
        ids = mem_realloc(ids, MAX(*count + epochs_count, 1) * sizeof(*ids));
        for (uint32_t k = 0; k < epochs_count; k++)
            ids[(*count)++] = (struct checkpoint_id){generations[i], epochs[k]};
        free(epochs);
    }
    free(generations);
    return ids;
}

static bool is_counted(const struct generation_span *spans, uint32_t count, struct checkpoint_id id)
{
    for (uint32_t i = 0; i < count; i++)
        if (spans[i].generation == id.generation)
            return id.epoch <= spans[i].limit;
    return false;
}

int order_prune(const struct checkpoint_dir *dir, struct checkpoint_id oldest_kept)
{
    uint32_t count, spans_count;
    struct checkpoint_id *ids = loose_list(dir, &count);
    struct generation_span *spans = spans_walk(dir, &spans_count);
    uint64_t bytes = 0, kept = 0;
    int error = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        char path[PATH_BYTES];
        path_loose(dir, ids[i], path);
        bool is_needed = ids[i].generation > oldest_kept.generation ||
                         (ids[i].generation == oldest_kept.generation && ids[i].epoch > oldest_kept.epoch);
        bytes += (uint64_t)MAX(os_file_bytes(path), 0);
        kept++;
        if (is_needed && is_counted(spans, spans_count, ids[i]) && bytes <= CHECKPOINT_LOOSE_BYTES &&
            kept <= CHECKPOINT_LOOSE_MAX)
            continue;
        error = checkpoint_dir_check(dir);
        if (error == 0 && unlink(path) != 0 && errno != ENOENT)
            error = errno;
    }
    free(spans);
    free(ids);
    return error;
}

/* --- Executing again --- */

struct candidate {
    char *path;
    uint64_t first, next;
    bool is_damaged;
};

struct candidates {
    struct candidate *items;
    uint32_t count, capacity;
};

/* Adds a segment if it has micro-batches from `micro_batch` on. A segment whose head cannot be read is left
 * out: the replay then finds its micro-batches missing. */
static void add_candidate(struct candidates *found, const char *path, uint64_t micro_batch)
{
    struct order_head head;
    if (read_head(path, &head) != NULL || head.next <= micro_batch)
        return;
    if (found->count == found->capacity) {
        found->capacity = MAX(found->capacity * 2, 16);
        found->items = mem_realloc(found->items, found->capacity * sizeof(*found->items));
    }
    char *copy = mem_strdup(path);
    found->items[found->count++] = (struct candidate){.path = copy, .first = head.first, .next = head.next};
}

static void add_generation(const struct checkpoint_dir *dir, struct candidates *found,
                           const struct generation_span *span, bool is_newest, uint64_t micro_batch)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    path_generation(dir, span->generation, directory);
    for (int kind = 0; kind < 2; kind++) {
        uint32_t count;
        uint64_t *epochs = numbers_list(directory, kind == 0 ? "ckpt-" : "order-", &count);
        for (uint32_t i = 0; i < count; i++) {
            struct checkpoint_id id = {span->generation, epochs[i]};
            if (epochs[i] > span->limit)
                continue;
            (kind == 0 ? path_order : path_loose)(dir, id, path);
            add_candidate(found, path, micro_batch);
        }
        free(epochs);
    }
    uint32_t count = 0;
    uint64_t *redo = is_newest ? numbers_list(directory, "redo-", &count) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%.*s/redo-%06llu", PATH_BYTES - 32, directory,
                 (unsigned long long)redo[i]);
        add_candidate(found, path, micro_batch);
    }
    free(redo);
}

/* The first segment, newer generations first, that has `micro_batch` and is whole; NULL: none. Damaged
 * ones are warnings. */
static struct candidate *choose_candidate(struct candidates *found, uint64_t micro_batch,
                                          struct diag_list *diags)
{
    for (uint32_t i = 0; i < found->count; i++) {
        struct candidate *candidate = &found->items[i];
        struct order_figures figures;
        if (candidate->is_damaged || candidate->first > micro_batch || candidate->next <= micro_batch)
            continue;
        const char *why = read_figures(candidate->path, &figures);
        if (why == NULL)
            return candidate;
        candidate->is_damaged = true;
        struct diag *diag =
            diag_warning(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0}, "skipped: %s", why);
        diag_at(diags, diag, candidate->path, -1, -1);
    }
    return NULL;
}

void checkpoint_redo_find(struct checkpoint_dir *dir, uint64_t micro_batch, struct diag_list *diags)
{
    struct candidates found = {0};
    uint32_t spans_count;
    struct generation_span *spans = spans_walk(dir, &spans_count);
    uint64_t next = micro_batch, last = micro_batch;
    for (uint32_t i = 0; i < spans_count; i++)
        add_generation(dir, &found, &spans[i], i == 0, micro_batch);
    free(spans);
    dir->redo = mem_calloc(MAX(found.count, 1), sizeof(*dir->redo));
    for (struct candidate *c; (c = choose_candidate(&found, next, diags)) != NULL; next = c->next)
        dir->redo[dir->redo_count++] = mem_strdup(c->path);
    dir->redo_next = next;
    for (uint32_t i = 0; i < found.count; i++) {
        last = MAX(last, found.items[i].next);
        free(found.items[i].path);
    }
    free(found.items);
    if (last > next) {
        struct diag *diag = diag_warning(
            diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
            "the order log of the micro-batches %llu to %llu is incomplete: the order of their rows "
            "is computed again",
            (unsigned long long)next, (unsigned long long)last - 1);
        diag_hint(diags, diag, "if the recorded files are the same, the order is the same");
    }
}

void checkpoint_order_paths(struct checkpoint_dir *dir, uint64_t micro_batch, struct arena *arena,
                            const char ***paths, uint32_t *count, uint64_t *oldest, struct run_id *run,
                            struct diag_list *diags)
{
    struct candidates found = {0};
    struct generation newest;
    const char *why;
    uint32_t spans_count;
    struct generation_span *spans = spans_walk(dir, &spans_count);
    for (uint32_t i = 0; i < spans_count; i++)
        add_generation(dir, &found, &spans[i], i == 0, 0);
    bool is_known =
        spans_count > 0 && generation_read(dir, spans[0].generation, &newest, &why) == DECODE_GOOD;
    *run = is_known ? newest.run : (struct run_id){{0}};
    free(spans);
    *paths = arena_array(arena, const char *, MAX(found.count, 1));
    *count = 0;
    *oldest = UINT64_MAX;
    for (struct candidate *c; (c = choose_candidate(&found, micro_batch, diags)) != NULL;
         micro_batch = c->next)
        (*paths)[(*count)++] = arena_strdup(arena, c->path);
    for (uint32_t i = 0; i < found.count; i++) {
        *oldest = MIN(*oldest, found.items[i].first);
        free(found.items[i].path);
    }
    free(found.items);
}

uint64_t checkpoint_order_next(const struct checkpoint_dir *dir)
{
    struct candidates found = {0};
    uint32_t spans_count;
    struct generation_span *spans = spans_walk(dir, &spans_count);
    uint64_t next = 0;
    for (uint32_t i = 0; i < spans_count; i++)
        add_generation(dir, &found, &spans[i], i == 0, 0);
    for (uint32_t i = 0; i < found.count; i++) {
        next = MAX(next, found.items[i].next);
        free(found.items[i].path);
    }
    free(found.items);
    free(spans);
    return next == 0 ? UINT64_MAX : next;
}

/* --- Segments from elsewhere --- */

bool checkpoint_is_restored(const struct checkpoint_dir *dir)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/" RESTORED_NAME, dir->path);
    return access(path, F_OK) == 0;
}

void checkpoint_forget_restored(const struct checkpoint_dir *dir)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/" RESTORED_NAME, dir->path);
    (void)unlink(path); /* where it stays, the next start asks the sinks for more than it needs */
}

/* Writes the bytes to `path`, durable, under another name first. 0 or an errno. */
static int write_segment(const char *path, struct str segment)
{
    char temporary[PATH_BYTES + 80];
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    int error = os_write_file(temporary, segment.data, segment.length, "ckpt.order", "ckpt.fsync");
    return error == 0 ? os_rename(temporary, path, "ckpt.rename") : error;
}

bool checkpoint_redo_take(struct checkpoint_dir *dir, struct str segment, struct diag_list *diags)
{
    char directory[PATH_BYTES], path[PATH_BYTES + 64];
    struct order_figures figures;
    uint32_t count;
    const char *why = order_figures(segment, &figures);
    if (why == NULL && figures.bytes != segment.length)
        why = "other bytes follow its segment";
    if (why != NULL) {
        diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0},
                   "a segment of the order log, as a sink has noted it, is damaged: %s", why);
        return false;
    }
    uint32_t *generations = generations_list(dir, &count);
    path_generation(dir, count == 0 ? 0 : generations[0], directory);
    free(generations);
    snprintf(path, sizeof(path), "%s/redo-%06u", directory, ++dir->redo_taken);
    int error = count == 0 ? ENOENT : write_segment(path, segment);
    if (error == 0)
        error = os_fsync_directory(directory, "ckpt.fsync_directory");
    if (error == 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0},
                                "a segment of the order log cannot be written");
    diag_errno(diags, d, error);
    diag_at(diags, d, path, -1, -1);
    diag_hint(diags, d, "free some disk space, check that this user may write there, then start again");
    return false;
}

int redo_link(struct checkpoint_dir *dir, const char *temporary, const char *generation)
{
    for (uint32_t i = 0; i < dir->redo_count; i++) {
        char path[PATH_BYTES + 64];
        snprintf(path, sizeof(path), "%s/redo-%06u", temporary, i + 1);
        int error = link(dir->redo[i], path) == 0 ? 0 : copy_file(dir->redo[i], path);
        if (error != 0)
            return error;
        free(dir->redo[i]);
        dir->redo[i] = mem_printf("%s/redo-%06u", generation, i + 1);
    }
    return 0;
}

const char *checkpoint_redo(const struct checkpoint_dir *dir, uint32_t index)
{
    return index < dir->redo_count ? dir->redo[index] : NULL;
}

uint64_t checkpoint_redo_next(const struct checkpoint_dir *dir)
{
    return dir->redo_count == 0 ? 0 : dir->redo_next;
}

void redo_free(struct checkpoint_dir *dir)
{
    for (uint32_t i = 0; i < dir->redo_count; i++)
        free(dir->redo[i]);
    free(dir->redo);
    dir->redo = NULL;
    dir->redo_count = 0;
}

void checkpoint_redo_passed(struct checkpoint_dir *dir, uint64_t micro_batch)
{
    if (dir->redo_count == 0 || micro_batch < dir->redo_next)
        return;
    for (uint32_t i = 0; i < dir->redo_count; i++)
        (void)unlink(dir->redo[i]); /* if this fails, the link is removed with its generation */
    redo_free(dir);
}

/* --- For the command line --- */

static bool verify_path(const char *path, struct diag_list *diags)
{
    struct order_figures figures;
    const char *why = read_figures(path, &figures);
    if (why == NULL)
        return true;
    diag_at(
        diags,
        diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0}, "the order log is damaged: %s", why),
        path, -1, -1);
    return false;
}

bool order_verify(const struct checkpoint_dir *dir, struct checkpoint_id id, struct diag_list *diags)
{
    char path[PATH_BYTES];
    path_order(dir, id, path);
    /* Without an order log: the MANIFEST says whether it is missing. */
    return os_file_bytes(path) < 0 || verify_path(path, diags);
}

bool order_verify_loose(const struct checkpoint_dir *dir, struct diag_list *diags)
{
    uint32_t count;
    struct checkpoint_id *ids = loose_list(dir, &count);
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        path_loose(dir, ids[i], path);
        is_good &= verify_path(path, diags);
    }
    free(ids);
    return is_good;
}

void order_show(const struct checkpoint_dir *dir, struct checkpoint_id id, struct byte_buffer *out)
{
    char path[PATH_BYTES];
    struct order_figures figures;
    path_order(dir, id, path);
    if (os_file_bytes(path) < 0)
        return;
    const char *why = read_figures(path, &figures);
    if (why != NULL)
        buffer_printf(out, "  order log: damaged: %s\n", why);
    else
        buffer_printf(
            out,
            "  order log: micro-batches %llu to %llu, %llu entries, %llu slices with %llu records of %u "
            "partitions, %llu bytes\n",
            (unsigned long long)figures.head.first, (unsigned long long)figures.head.next - 1,
            (unsigned long long)figures.entries, (unsigned long long)figures.slices,
            (unsigned long long)figures.records, figures.partitions, (unsigned long long)figures.bytes);
}

void order_show_loose(const struct checkpoint_dir *dir, struct byte_buffer *out)
{
    uint32_t count;
    struct checkpoint_id *ids = loose_list(dir, &count);
    struct order_figures sum = {0};
    uint32_t damaged = 0;
    for (uint32_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        struct order_figures figures;
        path_loose(dir, ids[i], path);
        damaged += read_figures(path, &figures) != NULL;
        sum.entries += figures.entries;
        sum.slices += figures.slices;
        sum.bytes += figures.bytes;
        sum.head.first = i == 0 ? figures.head.first : MIN(sum.head.first, figures.head.first);
        sum.head.next = MAX(sum.head.next, figures.head.next);
    }
    free(ids);
    if (count > 0)
        buffer_printf(
            out,
            "order logs of removed checkpoints: %u segments (%u damaged) with micro-batches %llu to %llu, "
            "%llu entries, %llu slices, %llu bytes\n",
            count, damaged, (unsigned long long)sum.head.first, (unsigned long long)sum.head.next - 1,
            (unsigned long long)sum.entries, (unsigned long long)sum.slices, (unsigned long long)sum.bytes);
}
