/* The sorted copy of a partition, as a source of raw batches. Private to connectors/file. One thread at a
 * time, but for sorted_done_bytes.
 *
 * A copy is a file without a name, so that nothing stays behind a crash, of frames: the length of a record
 * (uint32_t), and its bytes. Frames say where records end, so nothing is searched for in their bytes, and a
 * record may hold anything. A position's `b` is the offset of a frame. */
#ifndef LEAT_CONNECTORS_FILE_SORTED_H
#define LEAT_CONNECTORS_FILE_SORTED_H

#include "core/connector.h"

#include <pthread.h>

/* The largest record that a copy takes: a row of a block format may be longer than a line. */
enum { SORTED_RECORD_BYTES_MAX = 256 << 20 };

struct sorted_copy {
    /* Given by the owner. */
    int fd; /* 0: none */
    int64_t bytes;
    uint64_t records;  /* that were collected, all of which the copy must give back */
    const char *name;  /* of the partition, for messages */
    struct str header; /* of the files that were sorted */
    struct diag_list *diags;
    struct span span;       /* for messages */
    pthread_mutex_t *mutex; /* held around diags */

    bool is_failed;
    int64_t offset;  /* of the next frame */
    uint64_t record; /* its number, from 0 */
    size_t guess_bytes;
    int64_t bytes_done; /* atomic */
};

LEAT_CHECKED bool sorted_seek(struct sorted_copy *copy, const struct source_position *position);
enum read_status sorted_read(struct sorted_copy *copy, struct raw_batch *raw);
int64_t sorted_done_bytes(const struct sorted_copy *copy);
/* Gives the room on disk back; tolerates a zeroed one. */
void sorted_close(struct sorted_copy *copy);

#endif
