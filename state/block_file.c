#include "state/block_file.h"

#include "core/os.h"
#include "state/checkpoint_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { DIRECT_ALIGNMENT = 4096 };

int block_file_create(struct block_file *file, const char *path)
{
    *file = (struct block_file){.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
    if (file->fd < 0)
        return errno;
    int flags = fcntl(file->fd, F_GETFL);
    file->is_direct = flags >= 0 && fcntl(file->fd, F_SETFL, flags | O_DIRECT) == 0;
    void *block = NULL;
    leat_assert(posix_memalign(&block, DIRECT_ALIGNMENT, CHECKPOINT_CHUNK_BYTES) == 0);
    file->block = block;
    buffer_reserve(&file->digests, DIGEST_BYTES);
    return 0;
}

static int stop_direct(struct block_file *file)
{
    if (!file->is_direct)
        return 0;
    int flags = fcntl(file->fd, F_GETFL);
    file->is_direct = false;
    return flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) < 0 ? errno : 0;
}

void block_file_begin_spans(struct block_file *file)
{
    file->span_state = XXH3_createState();
    leat_assert(file->span_state != NULL);
}

/* Adds what the block has of the span to its state. */
static void add_to_span(struct block_file *file)
{
    if (!file->is_span_cut)
        XXH3_128bits_reset(file->span_state);
    XXH3_128bits_update(file->span_state, file->block + file->span_from, file->filled - file->span_from);
    file->is_span_cut = true;
}

void block_file_end_span(struct block_file *file, uint8_t *digest)
{
    if (file->is_span_cut) {
        XXH128_canonical_t canonical;
        add_to_span(file);
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(file->span_state));
        memcpy(digest, canonical.digest, DIGEST_BYTES);
    } else {
        digest_of(file->block + file->span_from, file->filled - file->span_from, digest);
    }
    file->span_from = file->filled;
    file->is_span_cut = false;
}

static int write_block(struct block_file *file)
{
    digest_of(file->block, file->filled, (uint8_t *)buffer_reserve(&file->digests, DIGEST_BYTES));
    file->digests.length += DIGEST_BYTES;
    if (file->span_state != NULL && file->span_from < file->filled)
        add_to_span(file);
    file->span_from = 0;
    int error = file->filled < CHECKPOINT_CHUNK_BYTES ? stop_direct(file) : 0;
    if (error == 0)
        error = os_write_all(file->fd, file->block, file->filled, "ckpt.write");
    if (error == EINVAL && file->is_direct) {
        /* The file system wants another alignment, or has written only a part of the block. */
        off_t written = lseek(file->fd, 0, SEEK_CUR) - (off_t)(file->bytes - file->filled);
        error = stop_direct(file);
        if (error == 0)
            error = os_write_all(file->fd, file->block + written, file->filled - (size_t)written, NULL);
    }
    file->filled = 0;
    return error;
}

int block_file_append(struct block_file *file, const void *data, size_t bytes)
{
    for (const char *from = data; bytes > 0;) {
        size_t part = MIN(bytes, CHECKPOINT_CHUNK_BYTES - file->filled);
        memcpy(file->block + file->filled, from, part);
        file->filled += part;
        file->bytes += part;
        from += part;
        bytes -= part;
        if (file->filled < CHECKPOINT_CHUNK_BYTES)
            break;
        int error = write_block(file);
        if (error != 0)
            return error;
    }
    return 0;
}

int block_file_end(struct block_file *file)
{
    return file->filled > 0 ? write_block(file) : 0;
}

uint8_t *block_file_take_digests(struct block_file *file)
{
    uint8_t *digests = (uint8_t *)file->digests.data;
    file->digests = (struct byte_buffer){0};
    return digests;
}

void block_file_close(struct block_file *file)
{
    if (file->block != NULL)
        close(file->fd);
    free(file->block);
    XXH3_freeState(file->span_state);
    buffer_free(&file->digests);
    *file = (struct block_file){0};
}

int block_file_copy(const char *from, const char *to, uint64_t *bytes, uint8_t **digests)
{
    struct block_file file;
    int error = block_file_create(&file, to);
    int in = error != 0 ? -1 : open(from, O_RDONLY | O_CLOEXEC);
    if (error == 0 && in < 0)
        error = errno;
    size_t got = CHECKPOINT_CHUNK_BYTES;
    while (error == 0 && got == CHECKPOINT_CHUNK_BYTES) {
        error = os_read_all(in, file.block, CHECKPOINT_CHUNK_BYTES, &got);
        file.filled = got;
        file.bytes += got;
        if (error == 0 && got > 0)
            error = write_block(&file);
    }
    if (error == 0)
        error = os_fsync(file.fd, "ckpt.fsync");
    if (in >= 0)
        close(in);
    *bytes = file.bytes;
    *digests = block_file_take_digests(&file);
    block_file_close(&file);
    return error;
}
