/* Cuts raw batches from the files of one partition, in order. Private to connectors/file. One thread at a
 * time, except for reader_done_bytes. */
#ifndef LEAT_CONNECTORS_FILE_READER_H
#define LEAT_CONNECTORS_FILE_READER_H

#include "connectors/file/input.h"
#include "connectors/file/paths.h"
#include "formats/account.h"

#include "core/connector.h"

#include <pthread.h>
#include <time.h>

/* A file as it was when the job began. Bytes appended later are not read; a file that was shortened or
 * rewritten is an error. */
struct file_facts {
    int64_t size;
    struct timespec changed;
    uint64_t head, tail; /* digests of the file's first and last bytes (mark.c) */
    uint64_t before;     /* digest over all files before this one */
};

struct file_reader {
    /* Set by the owner. */
    const struct path_list *list;
    const struct format_kind *format;
    const void *config; /* of `format` */
    const struct schema *schema;
    struct diag_list *diags;
    struct span span;       /* of the source's path, for messages */
    struct claims *claims;  /* told of each opened file; may be NULL */
    pthread_mutex_t *mutex; /* held while diags are added */

    struct file_facts *facts; /* list->count entries, and one more for its `before` */
    char **headers;           /* header line of each of the list->count files; NULL: not read yet */
    size_t *header_bytes;
    int64_t bytes_total;  /* of all files, on disk */
    int64_t bytes_before; /* of the files that are done, on disk */
    int64_t bytes_done;   /* read so far, on disk; atomic */

    uint32_t file; /* index of the file being read; list->count: the end */
    bool is_open;
    bool is_failed;
    bool has_ended;       /* the open file gives no more bytes */
    bool has_input_error; /* the open file gives no more bytes because of input.error */
    bool has_end_mark;    /* the open file's end mark was read */
    struct file_input input;
    char *carry; /* bytes that were read and are in no batch yet */
    size_t carry_bytes;
    size_t guess_bytes;          /* estimated size of the next batch */
    int64_t offset;              /* decompressed offset of carry[0] in the open file */
    int64_t line;                /* line of the next record, from 1 */
    uint64_t record;             /* number of the next record in the partition, from 0 */
    struct byte_account account; /* of the open file, since it was opened or sought */
};

/* Opens each file once and records its facts. Returns false after diagnostics. */
LEAT_CHECKED bool reader_open(struct file_reader *reader);
/* Opens the first file, checks that it fits the schema, and closes it. Returns false after a diagnostic. */
LEAT_CHECKED bool reader_check(struct file_reader *reader);
/* As source_kind.seek and read. A position's `a` is the index of a file, `b` a decompressed offset in it. */
LEAT_CHECKED bool reader_seek(struct file_reader *reader, const struct source_position *position);
enum read_status reader_read(struct file_reader *reader, struct raw_batch *raw);
/* Bytes read so far, on disk, of all files; any thread. */
int64_t reader_done_bytes(const struct file_reader *reader);
/* Accepts a zeroed reader. */
void reader_close(struct file_reader *reader);

#endif
