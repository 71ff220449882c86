/* Looks at checkpoints while a job writes and prunes them: by directories and MANIFESTs alone. */
#include "state/checkpoint_files.h"

#include <stdlib.h>

struct checkpoint_id *checkpoint_ids(const struct checkpoint_dir *dir, uint32_t *count)
{
    return ids_list(dir, count);
}

/* Bytes of the checkpoint's files that the one before it does not have; files are in the order of names. */
static uint64_t new_bytes(const struct manifest *manifest, const struct manifest *before)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < manifest->files_count; i++) {
        const struct manifest_file *file = &manifest->files[i];
        bool is_old = false;
        bool may_be_old = is_database_file(file->path);
        for (uint32_t k = 0; may_be_old && !is_old && k < before->files_count; k++)
            is_old = str_equal(file->path, before->files[k].path) && file->bytes == before->files[k].bytes;
        bytes += is_old ? 0 : file->bytes;
    }
    return bytes;
}

bool checkpoint_look(const struct checkpoint_dir *dir, struct checkpoint_id id, struct arena *arena,
                     struct checkpoint_info *info, uint64_t *written_bytes)
{
    struct manifest manifest, before = {0};
    const char *why;
    if (manifest_read(dir, id, arena, &manifest, &why) != DECODE_GOOD)
        return false;
    *info = manifest.info;
    if (info->previous.generation != 0 &&
        manifest_read(dir, info->previous, arena, &before, &why) != DECODE_GOOD)
        before = (struct manifest){0};
    *written_bytes = new_bytes(&manifest, &before);
    return true;
}

bool checkpoint_had_run(const struct checkpoint_dir *dir, const struct run_id *run)
{
    uint32_t count;
    uint32_t *generations = generations_list(dir, &count);
    bool is_there = false;
    for (uint32_t i = 0; i < count && !is_there; i++) {
        struct generation generation;
        const char *why;
        is_there = generation_read(dir, generations[i], &generation, &why) == DECODE_GOOD &&
                   memcmp(generation.run.bytes, run->bytes, sizeof(run->bytes)) == 0;
    }
    free(generations);
    return is_there;
}
