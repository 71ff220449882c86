/* Reads raw batches from the sorted copy of a partition. Private to connectors/file. One thread at a time,
 * except for sorted_done_bytes.
 *
 * A copy is a file without a name, so that a crash leaves nothing behind. It consists of frames: the length
 * of a record (uint32_t), then its bytes. Frames say where records end, so a record may hold any bytes. A
 * position's `b` is the offset of a frame. */
#ifndef LEAT_CONNECTORS_FILE_SORTED_H
#define LEAT_CONNECTORS_FILE_SORTED_H

#include "core/connector.h"

#include <pthread.h>

/* The largest record of a copy: a row of a block format may be longer than a line. */
enum { SORTED_RECORD_BYTES_MAX = 256 << 20 };

struct sorted_copy {
    /* Set by the owner. */
    int fd; /* of the copy's file; 0: none */
    int64_t bytes;
    uint64_t records;  /* records sorted; the copy must give back as many */
    const char *name;  /* the partition's name, for messages */
    struct str header; /* header of the files that were sorted */
    struct diag_list *diags;
    struct span span;       /* for messages */
    pthread_mutex_t *mutex; /* held while diags are added */

    bool is_failed;
    int64_t offset;     /* of the next frame */
    uint64_t record;    /* number of the next frame's record, from 0 */
    size_t guess_bytes; /* estimated size of the next batch */
    int64_t bytes_done; /* read so far; atomic */
};

/* As source_kind.seek and read. */
LEAT_CHECKED bool sorted_seek(struct sorted_copy *copy, const struct source_position *position);
enum read_status sorted_read(struct sorted_copy *copy, struct raw_batch *raw);
int64_t sorted_done_bytes(const struct sorted_copy *copy);
/* Closes the copy, which frees its disk space; accepts a zeroed copy. */
void sorted_close(struct sorted_copy *copy);

#endif
