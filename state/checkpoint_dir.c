/* The checkpoint directory: its lock, its generations, its entries. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/option.h"
#include "core/os.h"
#include "state/objects/objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

void path_generation(const struct checkpoint_dir *dir, uint32_t generation, char *path)
{
    snprintf(path, PATH_BYTES, "%s/gen-%06u", dir->path, generation);
}

void path_checkpoint(const struct checkpoint_dir *dir, struct checkpoint_id id, char *path)
{
    snprintf(path, PATH_BYTES, "%s/gen-%06u/ckpt-%012llu", dir->path, id.generation,
             (unsigned long long)id.epoch);
}

bool checkpoint_id_parse(struct str text, struct checkpoint_id *id)
{
    const char *dash = memchr(text.data, '-', text.length);
    int64_t generation, epoch;
    if (dash == NULL || !literal_int((struct str){text.data, (size_t)(dash - text.data)}, &generation) ||
        !literal_int((struct str){dash + 1, text.length - (size_t)(dash + 1 - text.data)}, &epoch) ||
        generation < 1 || generation > UINT32_MAX || epoch < 1)
        return false;
    *id = (struct checkpoint_id){(uint32_t)generation, (uint64_t)epoch};
    return true;
}

size_t checkpoint_name_split(const char *name, struct checkpoint_id *id)
{
    const char *at = strrchr(name, '@');
    struct checkpoint_id named;
    if (at == NULL || (!objects_is_url(str_from(name)) && access(name, F_OK) == 0) ||
        !checkpoint_id_parse(str_from(at + 1), &named))
        return strlen(name);
    *id = named;
    return (size_t)(at - name);
}

/* --- The directory --- */

/* Only LOCK, generations, the operators' `tables`, what `leat run --serve` writes (SERVE, serve.log, serve.figures) and the
 * run's `history`, `savepoints`, `cluster` and CONTROL may be in the directory: a mistyped path must not be filled or pruned. */
static bool check_entries(const struct checkpoint_dir *dir, struct diag_list *diags)
{
    DIR *stream = opendir(dir->path);
    if (stream == NULL) {
        struct diag *diag =
            diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0}, "%s cannot be read", dir->path);
        diag_errno(diags, diag, errno);
        diag_hint(diags, diag, "check that this user may read the directory");
        return false;
    }
    bool is_good = true;
    for (struct dirent *entry; is_good && (entry = readdir(stream)) != NULL;) {
        static const char *const own[] = {
            "LOCK",        "tables",          "SERVE", "serve.log", "serve.figures", "serve.figures.tmp",
            "CONTROL",     "CONTROL.tmp",     "log",   "history",   "history.tmp",   CHECKPOINT_SAVEPOINTS,
            RESTORED_NAME, CHECKPOINT_CLUSTER};
        bool is_own = entry->d_name[0] == '.' || strncmp(entry->d_name, "gen-", 4) == 0;
        for (size_t i = 0; i < ARRAY_COUNT(own); i++)
            is_own |= strcmp(entry->d_name, own[i]) == 0;
        if (is_own)
            continue;
        struct diag *diag =
            diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0},
                       "%s is not a checkpoint directory: it contains `%s`", dir->path, entry->d_name);
        diag_hint(diags, diag, "name an empty directory, or a checkpoint directory that leat created");
        is_good = false;
    }
    closedir(stream);
    return is_good;
}

static struct str own_str(struct str text)
{
    char *copy = mem_alloc(text.length + 1);
    if (text.length > 0)
        memcpy(copy, text.data, text.length);
    return (struct str){copy, text.length};
}

struct checkpoint_dir *checkpoint_dir_open(const struct checkpoint_dir_options *options,
                                           struct diag_list *diags)
{
    struct checkpoint_dir *dir = mem_calloc(1, sizeof(*dir));
    dir->lock_fd = -1;
    dir->path = mem_strdup(options->path);
    dir->fingerprint = own_str(options->fingerprint);
    dir->profile = own_str(options->profile);
    dir->keep = options->keep;
    dir->is_read_only = options->read_only;
    dir->groups = options->groups;
    if (strlen(options->path) > PATH_BYTES / 2) {
        diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0},
                   "the path of the checkpoint directory is too long");
        checkpoint_dir_close(dir);
        return NULL;
    }
    int error = options->read_only ? 0 : os_mkdirs(options->path);
    if (error != 0) {
        struct diag *diag = diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0, 0},
                                       "%s cannot be created", options->path);
        diag_errno(diags, diag, error);
        diag_hint(diags, diag, "check that this user may write there, or name another `dir:`");
    }
    if (error != 0 || !check_entries(dir, diags) ||
        (!options->read_only && !checkpoint_lock(dir, options->take_over, diags))) {
        checkpoint_dir_close(dir);
        return NULL;
    }
    return dir;
}

void checkpoint_dir_close(struct checkpoint_dir *dir)
{
    if (dir == NULL)
        return;
    checkpoint_unlock(dir);
    for (uint32_t i = 0; i < dir->known_count; i++) {
        free(dir->known[i].name);
        free(dir->known[i].digests);
    }
    free(dir->known);
    redo_free(dir);
    free((char *)(uintptr_t)dir->fingerprint.data);
    free((char *)(uintptr_t)dir->profile.data);
    free(dir->database_directory);
    free(dir->path);
    free(dir);
}

/* --- Entries on disk --- */

static int descending(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? 1 : x > y ? -1 : 0;
}

uint64_t *numbers_list(const char *path, const char *prefix, uint32_t *count)
{
    uint64_t *numbers = NULL;
    uint32_t capacity = 0;
    *count = 0;
    DIR *stream = opendir(path);
    if (stream == NULL)
        return NULL;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        const char *digits = entry->d_name + strlen(prefix);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || *digits < '0' || *digits > '9')
            continue;
        char *end;
        errno = 0;
        uint64_t number = strtoull(digits, &end, 10);
        if (*end != '\0' || errno != 0)
            continue;
        if (*count == capacity) {
            capacity = MAX(capacity * 2, 16);
            numbers = mem_realloc(numbers, capacity * sizeof(*numbers));
        }
        numbers[(*count)++] = number;
    }
    closedir(stream);
    if (*count > 0)
        qsort(numbers, *count, sizeof(*numbers), descending);
    return numbers;
}

uint32_t *generations_list(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint64_t *numbers = numbers_list(dir->path, "gen-", count);
    uint32_t *generations = mem_alloc(MAX(*count, 1) * sizeof(*generations));
    for (uint32_t i = 0; i < *count; i++)
        generations[i] = (uint32_t)MIN(numbers[i], UINT32_MAX);
    free(numbers);
    return generations;
}

uint32_t checkpoint_newest_generation(const struct checkpoint_dir *dir)
{
    uint32_t count, *generations = generations_list(dir, &count);
    uint32_t newest = count == 0 ? 0 : generations[0];
    free(generations);
    return newest;
}

bool checkpoint_dir_is_empty(const struct checkpoint_dir *dir)
{
    return checkpoint_newest_generation(dir) == 0;
}

struct id_array {
    struct checkpoint_id *items;
    uint32_t count, capacity;
};

/* Adds the generation's checkpoints with an epoch of at most `limit`. */
static void add_ids(const struct checkpoint_dir *dir, struct id_array *ids, uint32_t generation,
                    uint64_t limit)
{
    char path[PATH_BYTES];
    path_generation(dir, generation, path);
    uint32_t count;
    uint64_t *epochs = numbers_list(path, "ckpt-", &count);
    for (uint32_t i = 0; i < count; i++) {
        if (epochs[i] > limit)
            continue;
        if (ids->count == ids->capacity) {
            ids->capacity = MAX(ids->capacity * 2, 16);
            ids->items = mem_realloc(ids->items, ids->capacity * sizeof(*ids->items));
        }
        ids->items[ids->count++] = (struct checkpoint_id){generation, epochs[i]};
    }
    free(epochs);
}

struct checkpoint_id *ids_list(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint32_t generations_count;
    uint32_t *generations = generations_list(dir, &generations_count);
    struct id_array ids = {0};
    for (uint32_t i = 0; i < generations_count; i++)
        add_ids(dir, &ids, generations[i], UINT64_MAX);
    free(generations);
    *count = ids.count;
    return ids.items;
}

static enum decode_result read_text(const char *path, char **text, size_t *bytes, const char **why)
{
    int error = os_read_file(path, MANIFEST_BYTES_MAX, text, bytes);
    if (error == 0)
        return DECODE_GOOD;
    *why = error == ENOENT ? "it is missing" : error == EFBIG ? "it is too large" : "it cannot be read";
    return DECODE_DAMAGED;
}

/* Reads a GENERATION. *from: another run's checkpoint that the generation began from, malloc'd; unchanged if
 * there is none. `from` may be NULL. */
static enum decode_result generation_load(const struct checkpoint_dir *dir, uint32_t number,
                                          struct generation *generation, struct checkpoint_from *from,
                                          const char **why)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    path_generation(dir, number, path);
    strcat(path, "/GENERATION");
    enum decode_result result = read_text(path, &text, &bytes, why);
    if (result != DECODE_GOOD)
        return result;
    result = generation_decode((struct str){text, bytes}, generation, why);
    if (result == DECODE_GOOD && from != NULL && generation->from_path.length > 0)
        *from = (struct checkpoint_from){
            .path = strndup(generation->from_path.data, generation->from_path.length),
            .id = generation->from,
            .dropped = own_str(generation->from_dropped),
        };
    generation->from_path = generation->from_dropped = (struct str){"", 0}; /* the text is freed */
    free(text);
    if (result == DECODE_GOOD &&
        (generation->generation != number || generation->parent.generation >= number)) {
        *why = "it belongs to another generation";
        return DECODE_DAMAGED;
    }
    return result;
}

enum decode_result generation_read(const struct checkpoint_dir *dir, uint32_t number,
                                   struct generation *generation, const char **why)
{
    return generation_load(dir, number, generation, NULL, why);
}

enum decode_result manifest_read(const struct checkpoint_dir *dir, struct checkpoint_id id,
                                 struct arena *arena, struct manifest *manifest, const char **why)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    path_checkpoint(dir, id, path);
    strcat(path, "/MANIFEST");
    enum decode_result result = read_text(path, &text, &bytes, why);
    if (result != DECODE_GOOD)
        return result;
    struct str copy = {arena_copy(arena, text, bytes), bytes};
    free(text);
    return manifest_take(copy, id, arena, manifest, why);
}

enum decode_result manifest_take(struct str text, struct checkpoint_id id, struct arena *arena,
                                 struct manifest *manifest, const char **why)
{
    enum decode_result result = manifest_decode(text, arena, manifest, why);
    if (result != DECODE_GOOD)
        return result;
    const struct checkpoint_info *info = &manifest->info;
    if (info->id.generation != id.generation || info->id.epoch != id.epoch) {
        *why = "it belongs to another checkpoint";
        return DECODE_DAMAGED;
    }
    if (info->previous.generation != 0 &&
        (info->previous.generation != id.generation || info->previous.epoch >= id.epoch)) {
        *why = "it names an impossible previous checkpoint";
        return DECODE_DAMAGED;
    }
    return DECODE_GOOD;
}

struct generation_span *spans_walk(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint32_t generations_count;
    uint32_t *generations = generations_list(dir, &generations_count);
    struct generation_span *spans = mem_alloc(MAX(generations_count, 1) * sizeof(*spans));
    *count = 0;
    uint64_t limit = UINT64_MAX;
    uint32_t number = generations_count == 0 ? 0 : generations[0];
    for (uint32_t i = 0; i < generations_count && number != 0; i++) {
        struct generation generation;
        const char *why;
        if (generations[i] > number)
            continue;
        if (generations[i] == number)
            spans[(*count)++] = (struct generation_span){number, limit};
        bool is_known =
            generations[i] == number && generation_read(dir, number, &generation, &why) == DECODE_GOOD;
        /* Where GENERATION cannot be read, the generation before counts as the parent. */
        number = is_known ? generation.parent.generation : i + 1 < generations_count ? generations[i + 1] : 0;
        limit = is_known ? generation.parent.epoch : UINT64_MAX;
    }
    free(generations);
    return spans;
}

struct checkpoint_id *ids_walk(const struct checkpoint_dir *dir, uint32_t *count)
{
    uint32_t spans_count;
    struct generation_span *spans = spans_walk(dir, &spans_count);
    struct id_array ids = {0};
    for (uint32_t i = 0; i < spans_count; i++)
        add_ids(dir, &ids, spans[i].generation, spans[i].limit);
    free(spans);
    *count = ids.count;
    return ids.items;
}

/* --- Starting a generation --- */

int generation_write(const char *directory, const struct generation *generation)
{
    char path[PATH_BYTES + 96];
    struct byte_buffer text = {0};
    generation_encode(generation, &text);
    snprintf(path, sizeof(path), "%s/GENERATION", directory);
    int error = os_write_file(path, text.data, text.length, "ckpt.manifest", "ckpt.fsync");
    buffer_free(&text);
    return error == 0 ? os_fsync_directory(directory, "ckpt.fsync_directory") : error;
}

static bool new_run(struct run_id *run, struct diag_list *diags)
{
    if (getrandom(run->bytes, sizeof(run->bytes), 0) == sizeof(run->bytes))
        return true;
    struct diag *diag =
        diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0}, "no random numbers for a run id");
    diag_errno(diags, diag, errno);
    return false;
}

/* Removes unfinished generations and LOCK files of other processes: a process that slept before its rename
 * then finds nothing to rename. */
static int sweep_beginnings(const struct checkpoint_dir *dir)
{
    char path[PATH_BYTES + NAME_MAX + 2];
    DIR *stream = opendir(dir->path);
    int error = stream == NULL ? errno : 0;
    for (struct dirent *entry; error == 0 && (entry = readdir(stream)) != NULL;) {
        const char *suffix = strchr(entry->d_name, '.');
        bool is_beginning =
            strncmp(entry->d_name, "gen-", 4) == 0 && suffix != NULL && strncmp(suffix, ".tmp", 4) == 0;
        bool is_lock = strncmp(entry->d_name, ".LOCK-", 6) == 0;
        snprintf(path, sizeof(path), "%s/%s", dir->path, entry->d_name);
        if (is_beginning || is_lock)
            error = os_remove_tree(path);
    }
    if (stream != NULL)
        closedir(stream);
    return error;
}

/* Removes what a process that was killed has copied of a savepoint, NAME.tmp: it may be as large as all of the state. What
 * cannot be removed is a warning, because it costs room alone. */
static void sweep_savepoints(const struct checkpoint_dir *dir, struct diag_list *diags)
{
    char path[PATH_BYTES + sizeof(CHECKPOINT_SAVEPOINTS) + 1], child[sizeof(path) + NAME_MAX + 1];
    snprintf(path, sizeof(path), "%s/" CHECKPOINT_SAVEPOINTS, dir->path);
    DIR *stream = opendir(path);
    int error = stream == NULL && errno != ENOENT ? errno : 0;
    for (struct dirent *entry; stream != NULL && error == 0 && (entry = readdir(stream)) != NULL;) {
        const char *suffix = strchr(entry->d_name, '.');
        snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        if (suffix != NULL && suffix != entry->d_name && strcmp(suffix, ".tmp") == 0)
            error = os_remove_tree(child);
    }
    if (stream != NULL)
        closedir(stream);
    if (error == 0)
        return;
    struct diag *diag = diag_warning(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0},
                                     "copies in `%s` that are not whole cannot be removed", path);
    diag_errno(diags, diag, error);
    diag_hint(diags, diag, "remove `%s/*.tmp`, and see that this user may write there", path);
}

/* Makes the generation's directory, under a temporary name of this process, with its files. 0 or an errno. */
static int make_generation(struct checkpoint_dir *dir, const struct generation *generation, struct str head,
                           const char *path, char temporary[PATH_BYTES + 64])
{
    snprintf(temporary, PATH_BYTES + 64, "%s.tmp-%.32s", path, strchr(dir->lock_text, '\n') + 1);
    int error = os_remove_tree(temporary);
    if (error == 0)
        error = os_mkdirs(temporary);
    if (error == 0)
        error = redo_link(dir, temporary, path);
    if (error == 0 && head.length > 0)
        error = part_write_head(temporary, head);
    return error == 0 ? generation_write(temporary, generation) : error;
}

/* Starts `generation`, of which all but its number is set; that is above `newest`. head: of which it goes on; length 0: of none. False
 * after E0708. */
static bool start_generation(struct checkpoint_dir *dir, struct generation generation, uint32_t newest,
                             struct str head, struct diag_list *diags)
{
    leat_assert(!dir->is_read_only && dir->generation.generation == 0);
    char path[PATH_BYTES], temporary[PATH_BYTES + 64];
    generation.generation = MAX(checkpoint_newest_generation(dir), newest) + 1;
    path_generation(dir, generation.generation, path);
    sweep_savepoints(dir, diags);
    int error = sweep_beginnings(dir);
    if (error == 0)
        error = make_generation(dir, &generation, head, path, temporary);
    if (error == 0)
        error = checkpoint_dir_check(dir);
    if (error == 0)
        error = os_rename(temporary, path, "ckpt.rename");
    if (error == 0)
        error = os_fsync_directory(dir->path, "ckpt.fsync_parent");
    if (error != 0) {
        struct diag *diag =
            diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0}, "%s cannot be created", path);
        diag_errno(diags, diag, error);
        diag_hint(diags, diag,
                  "free some disk space and check that this user may write there, then start again");
        return false;
    }
    dir->generation = generation;
    dir->generation.from_path = dir->generation.from_dropped = (struct str){"", 0};
    dir->database_directory = mem_strdup(path);
    return true;
}

bool checkpoint_start_generation(struct checkpoint_dir *dir, const struct checkpoint *parent,
                                 struct diag_list *diags)
{
    struct generation generation = {0};
    if (parent != NULL) {
        generation.parent = checkpoint_info(parent)->id;
        generation.run = checkpoint_info(parent)->run;
    } else if (!new_run(&generation.run, diags)) {
        return false;
    }
    return start_generation(dir, generation, 0, (struct str){NULL, 0}, diags);
}

bool checkpoint_start_part(struct checkpoint_dir *dir, const struct checkpoint_part_start *start,
                           struct diag_list *diags)
{
    leat_assert(start->generation > checkpoint_newest_generation(dir));
    dir->groups = start->groups;
    dir->awaits_head = start->awaits_head;
    return start_generation(dir, (struct generation){.parent = start->parent, .run = start->run},
                            start->generation - 1, start->head, diags);
}

bool checkpoint_start_from(struct checkpoint_dir *dir, const struct checkpoint_from *from,
                           const struct run_id *run, struct diag_list *diags)
{
    struct generation generation = {
        .from_path = str_from(from->path), .from = from->id, .from_dropped = from->dropped};
    if (run != NULL)
        generation.run = *run;
    else if (!new_run(&generation.run, diags))
        return false;
    return start_generation(dir, generation, from->newest, (struct str){NULL, 0}, diags);
}

bool checkpoint_find_from(const struct checkpoint_dir *dir, struct checkpoint_from *from, struct run_id *run)
{
    uint32_t count;
    uint32_t *generations = generations_list(dir, &count);
    struct generation generation;
    const char *why;
    *from = (struct checkpoint_from){0};
    if (count > 0 && generation_load(dir, generations[0], &generation, from, &why) == DECODE_GOOD)
        *run = generation.run;
    else
        checkpoint_from_free(from);
    free(generations);
    return from->path != NULL;
}

bool checkpoint_first_from(const struct checkpoint_dir *dir, struct checkpoint_from *from)
{
    uint32_t count;
    struct generation_span *spans = spans_walk(dir, &count);
    struct generation generation;
    const char *why;
    *from = (struct checkpoint_from){0};
    if (count > 0) /* the last generation of the walk has no parent */
        (void)generation_load(dir, spans[count - 1].generation, &generation, from, &why);
    free(spans);
    return from->path != NULL;
}

bool checkpoint_began_from(const struct checkpoint_dir *dir, const char *path)
{
    struct checkpoint_from from;
    bool is_same = checkpoint_first_from(dir, &from) && strcmp(from.path, path) == 0;
    checkpoint_from_free(&from);
    return is_same;
}

void checkpoint_from_free(struct checkpoint_from *from)
{
    free(from->path);
    free((char *)(uintptr_t)from->dropped.data);
    *from = (struct checkpoint_from){0};
}

void database_name(uint32_t number, char name[DATABASE_NAME_BYTES])
{
    if (number == 0)
        snprintf(name, DATABASE_NAME_BYTES, "db");
    else
        snprintf(name, DATABASE_NAME_BYTES, "db-%u", number);
}

bool is_database_name(const char *name)
{
    return strcmp(name, "db") == 0 || strncmp(name, "db-", 3) == 0;
}

bool is_database_file(struct str path)
{
    return path.length > 3 && (memcmp(path.data, "db/", 3) == 0 || memcmp(path.data, "db-", 3) == 0);
}

char *checkpoint_database_path(const struct checkpoint_dir *dir, uint32_t number, struct arena *arena)
{
    char name[DATABASE_NAME_BYTES];
    database_name(number, name);
    return arena_printf(arena, "%s/%s", dir->database_directory, name);
}

uint32_t checkpoint_generation(const struct checkpoint_dir *dir)
{
    return dir->generation.generation;
}

bool checkpoint_newest_run(const struct checkpoint_dir *dir, struct run_id *run)
{
    uint32_t count;
    uint32_t *generations = generations_list(dir, &count);
    struct generation generation;
    const char *why;
    bool is_there = count > 0 && generation_read(dir, generations[0], &generation, &why) == DECODE_GOOD;
    if (is_there)
        *run = generation.run;
    free(generations);
    return is_there;
}

struct run_id checkpoint_run(const struct checkpoint_dir *dir)
{
    return dir->generation.run;
}
