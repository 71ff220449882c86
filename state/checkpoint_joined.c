/* A checkpoint of several workers: parts in directories of their own, which are read as one. */
#include "state/checkpoint_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

void checkpoint_digest_of(struct str bytes, uint8_t digest[CHECKPOINT_DIGEST_BYTES])
{
    digest_of(bytes.data, bytes.length, digest);
}

bool checkpoint_digest(const struct checkpoint_dir *dir, struct checkpoint_id id,
                       uint8_t digest[CHECKPOINT_DIGEST_BYTES], uint64_t *bytes, struct diag_list *diags)
{
    struct arena arena = {0};
    struct manifest manifest;
    char path[PATH_BYTES + 16], *text = NULL;
    const char *why = "it cannot be read";
    size_t length = 0;
    path_checkpoint(dir, id, path);
    strcat(path, "/MANIFEST");
    int error = os_read_file(path, MANIFEST_BYTES_MAX, &text, &length);
    bool is_good =
        error == 0 && manifest_take((struct str){text, length}, id, &arena, &manifest, &why) == DECODE_GOOD;
    if (is_good) {
        digest_of(text, length, digest);
        *bytes = manifest.info.bytes;
    } else {
        struct diag *d = checkpoint_damaged(path, -1, false, diags, why);
        if (error != 0)
            diag_errno(diags, d, error);
    }
    free(text);
    arena_free(&arena);
    return is_good;
}

static bool refuse_digest(const struct checkpoint_joint *joint, struct diag_list *diags)
{
    struct diag *d = checkpoint_damaged(joint->directory, -1, false, diags,
                                        "a part of the checkpoint is not the one that its manifest names");
    diag_hint(diags, d, "restore this directory as it was when the checkpoint was taken");
    return false;
}

static bool refuse_job(const struct checkpoint *part, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_OTHER_JOB, (struct span){0, 0},
                                "the checkpoint in %s is of another job, or of this job before it changed",
                                part->dir->path);
    diag_hint(diags, d, "start the job as it was when the checkpoint was taken");
    return false;
}

static bool refuse_format(const struct checkpoint *part, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_OTHER_VERSION, (struct span){0, 0},
                                "the checkpoint in %s is of format %u, expected %d", part->dir->path,
                                checkpoint_info(part)->format, CHECKPOINT_FORMAT);
    diag_hint(diags, d, "go on with the version of leat that wrote it");
    return false;
}

/* Opens what the part's chain says, and checks that it is what was to be joined. False after a diagnostic. */
static bool open_part(struct checkpoint_dir *dir, const struct checkpoint_joint *joint,
                      struct str fingerprint, struct checkpoint **part, struct diag_list *diags)
{
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    uint64_t bytes;
    enum decode_result result;
    if (!checkpoint_digest(dir, joint->id, digest, &bytes, diags))
        return false;
    if (memcmp(digest, joint->digest, sizeof(digest)) != 0)
        return refuse_digest(joint, diags);
    *part = chain_open(dir, joint->id, false, &result, diags);
    if (*part == NULL)
        return false;
    (*part)->is_part = true;
    bool is_good = true;
    for (uint32_t i = 0; i < (*part)->count && is_good; i++)
        if ((*part)->chain[i].piece_digests == NULL) /* its pieces cannot be verified when they are read */
            is_good = manifest_verify(dir, &(*part)->chain[i], false, diags);
    return is_good && (checkpoint_info(*part)->format == CHECKPOINT_FORMAT || refuse_format(*part, diags)) &&
           (fingerprint.length == 0 || str_equal(checkpoint_info(*part)->fingerprint, fingerprint) ||
            refuse_job(*part, diags));
}

struct checkpoint *checkpoint_join(const struct checkpoint_joint *joints, uint32_t count,
                                   struct str fingerprint, struct diag_list *diags)
{
    struct checkpoint *first = NULL, **end = &first;
    bool is_good = true;
    for (uint32_t i = 0; i < count && is_good; i++) {
        struct checkpoint_dir_options options = {.path = joints[i].directory, .read_only = true};
        struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
        is_good = dir != NULL && open_part(dir, &joints[i], fingerprint, end, diags);
        if (*end == NULL)
            checkpoint_dir_close(dir);
        else
            end = &(*end)->next;
    }
    uint32_t first_database;
    if (is_good && checkpoint_databases(first, 0, &first_database) > PLACEMENT_INSTANCES_MAX) {
        diag_error(diags, DIAG_TOO_MANY, (struct span){0, 0}, "a checkpoint has more than %d databases",
                   PLACEMENT_INSTANCES_MAX);
        is_good = false;
    }
    if (is_good)
        return first;
    checkpoint_close(first);
    return NULL;
}

void checkpoint_share_databases(struct checkpoint_dir *dir, const struct checkpoint *checkpoint,
                                uint32_t number)
{
    const struct checkpoint *part = checkpoint_part_of(checkpoint, &number);
    const struct manifest *newest = &part->chain[part->count - 1];
    leat_assert(dir->last.generation == 0 && dir->known_count == 0);
    dir->known = mem_realloc(dir->known, MAX(newest->files_count, 1) * sizeof(*dir->known));
    for (uint32_t i = 0; i < newest->files_count; i++) {
        const struct manifest_file *file = &newest->files[i];
        if (!is_database_file(file->path))
            continue;
        size_t bytes = digest_count(file->bytes) * DIGEST_BYTES;
        struct known_digest *known = &dir->known[dir->known_count++];
        *known = (struct known_digest){mem_str(file->path), file->bytes, mem_alloc(MAX(bytes, 1))};
        memcpy(known->digests, file->digests, bytes);
    }
}
