/* Inside state/: a large file of a checkpoint, written once from its beginning to its end, in blocks of
 * CHECKPOINT_CHUNK_BYTES with a digest for each.
 *
 * Whole blocks go to the disk past the page cache: nobody reads them soon, and taking new pages and copying
 * into them was two thirds of the CPU time of a checkpoint. Where a file system cannot do that, the blocks go
 * through the page cache. */
#ifndef LEAT_STATE_BLOCK_FILE_H
#define LEAT_STATE_BLOCK_FILE_H

#include "core/buffer.h"

#include <xxhash.h>

struct block_file {
    int fd;
    bool is_direct;
    char *block;
    size_t filled;              /* bytes in `block` */
    uint64_t bytes;             /* appended so far */
    struct byte_buffer digests; /* DIGEST_BYTES for each block that was written */
    /* The present span: its bytes in blocks that were written are in span_state, those from span_from on in `block`. */
    XXH3_state_t *span_state; /* NULL: no spans are asked for */
    size_t span_from;
    bool is_span_cut; /* it has bytes in blocks that were written */
};

/* Functions of type int return 0 or an errno; after an error only block_file_close may be called. This one
 * creates the file `path`, which must not exist. */
int block_file_create(struct block_file *file, const char *path);
int block_file_append(struct block_file *file, const void *data, size_t bytes);
/* Before the first append: spans of the file get digests of their own (xxh3-128). Each is computed where its bytes lie in the
 * block, in one pass. block_file_end_span: the digest of the bytes appended since the span before, one at least. */
void block_file_begin_spans(struct block_file *file);
void block_file_end_span(struct block_file *file, uint8_t *digest);
/* Writes the last, partial block. Durable only after os_fsync(file->fd). */
int block_file_end(struct block_file *file);
/* Returns the digests, malloc'd; the caller frees them. */
uint8_t *block_file_take_digests(struct block_file *file);
/* Closes the file and frees its memory. A zeroed file, or one that could not be created, is allowed. */
void block_file_close(struct block_file *file);

/* Makes `to` a durable copy of `from`. *digests: malloc'd, also after an error. */
int block_file_copy(const char *from, const char *to, uint64_t *bytes, uint8_t **digests);

#endif
