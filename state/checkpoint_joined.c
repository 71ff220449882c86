/* A checkpoint of several workers: parts in directories of their own, which are read as one. */
#include "state/checkpoint_files.h"

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
