/* What is known of a worker's parts: whether a head names them (run/head.h). A note in the generation's folder, beside the part, says
 * that none is known to:
 *
 *     doubt-000000000042   a head may name it all the same, where the answer was lost
 *     void-000000000042    no head can name it any more
 *
 * A note of doubt is made durable together with the part's name, and removed when a head names it; a removal that a power failure
 * takes back costs an older checkpoint too much, or one too few: the part with which a life begins is its generation's parent, whatever
 * the notes say. */
#include "state/checkpoint_files.h"

#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void path_note(const struct checkpoint_dir *dir, struct checkpoint_id id, enum part_fate fate,
                      char *path)
{
    size_t length;
    path_generation(dir, id.generation, path);
    length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "/%s-%012llu", fate == PART_VOID ? "void" : "doubt",
             (unsigned long long)id.epoch);
}

static bool has_note(const struct checkpoint_dir *dir, struct checkpoint_id id, enum part_fate fate)
{
    char path[PATH_BYTES];
    path_note(dir, id, fate, path);
    return access(path, F_OK) == 0;
}

/* Whether a generation began with the part: then a head names it. */
static bool is_parent(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    uint32_t count, *generations = generations_list(dir, &count);
    bool is_found = false;
    for (uint32_t i = 0; i < count && generations[i] > id.generation && !is_found; i++) {
        struct generation generation;
        const char *why;
        is_found = generation_read(dir, generations[i], &generation, &why) == DECODE_GOOD &&
                   generation.parent.generation == id.generation && generation.parent.epoch == id.epoch;
    }
    free(generations);
    return is_found;
}

enum part_fate part_fate(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    bool is_void = has_note(dir, id, PART_VOID);
    if ((!is_void && !has_note(dir, id, PART_IN_DOUBT)) || is_parent(dir, id))
        return PART_NAMED;
    return is_void ? PART_VOID : PART_IN_DOUBT;
}

int part_doubt(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    char path[PATH_BYTES];
    path_note(dir, id, PART_IN_DOUBT, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    return fd < 0 ? errno : close(fd) == 0 ? 0 : errno;
}

void part_forget(const struct checkpoint_dir *dir, struct checkpoint_id id)
{
    char path[PATH_BYTES];
    for (enum part_fate fate = PART_IN_DOUBT; fate <= PART_VOID; fate++) {
        path_note(dir, id, fate, path);
        (void)unlink(path); /* a note without its part goes with the generation */
    }
}

void checkpoint_part_named(const struct checkpoint_dir *dir, uint64_t epoch)
{
    part_forget(dir, (struct checkpoint_id){dir->generation.generation, epoch});
}

void checkpoint_part_void(const struct checkpoint_dir *dir, uint64_t epoch)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    struct checkpoint_id id = {dir->generation.generation, epoch};
    path_note(dir, id, PART_IN_DOUBT, from);
    path_note(dir, id, PART_VOID, to);
    (void)rename(from, to);
}

bool checkpoint_has_named(const struct checkpoint_dir *dir)
{
    uint32_t count;
    struct checkpoint_id *ids = ids_walk(dir, &count);
    bool is_found = false;
    for (uint32_t i = 0; i < count && !is_found; i++)
        is_found = part_fate(dir, ids[i]) == PART_NAMED;
    free(ids);
    return is_found;
}

/* --- The head with which a generation began --- */

static void path_head(const char *directory, char path[PATH_BYTES + 96])
{
    snprintf(path, PATH_BYTES + 96, "%s/HEAD", directory);
}

int part_write_head(const char *directory, struct str manifest)
{
    char path[PATH_BYTES + 96];
    path_head(directory, path);
    return os_write_file(path, manifest.data, manifest.length, "ckpt.write", "ckpt.fsync");
}

bool checkpoint_newest_head(const struct checkpoint_dir *dir, struct byte_buffer *manifest)
{
    char directory[PATH_BYTES], path[PATH_BYTES + 96], *text = NULL;
    size_t bytes = 0;
    path_generation(dir, checkpoint_newest_generation(dir), directory);
    path_head(directory, path);
    int error = os_read_file(path, CHECKPOINT_MANY_BYTES_MAX, &text, &bytes);
    if (error == 0)
        buffer_append(manifest, text, bytes);
    free(text);
    return error != ENOENT;
}
