/* Raw batches from the files of one partition, in order. Private to connectors/file. One thread at a time,
 * but for reader_done_bytes. */
#ifndef LEAT_CONNECTORS_FILE_READER_H
#define LEAT_CONNECTORS_FILE_READER_H

#include "connectors/file/input.h"
#include "connectors/file/paths.h"
#include "formats/account.h"

#include "core/connector.h"

#include <pthread.h>
#include <time.h>

/* A file as it was when the job began. What is added later is not read; what is taken away is an error. */
struct file_facts {
    int64_t size;
    struct timespec changed;
    uint64_t head, tail; /* digests of its ends */
    uint64_t before;     /* of all files before it */
};

struct file_reader {
    /* Given by the owner. */
    const struct path_list *list;
    const struct format_kind *format;
    const void *config; /* of the format */
    const struct schema *schema;
    struct diag_list *diags;
    struct span span;       /* of the source's path, for messages */
    struct claims *claims;  /* that are told of each file; may be NULL */
    pthread_mutex_t *mutex; /* held around diags */

    struct file_facts *facts; /* list->count, and one more for `before` */
    char **headers;           /* list->count; NULL: not read yet */
    size_t *header_bytes;
    int64_t bytes_total;  /* on disk */
    int64_t bytes_before; /* on disk, of the files that are done */
    int64_t bytes_done;   /* atomic */

    uint32_t file; /* the one being read; list->count: the end */
    bool is_open;
    bool is_failed;
    bool has_ended;       /* the open file gives no more bytes */
    bool has_input_error; /* ... because of input.error */
    bool has_end_mark;    /* the open file's end mark was read */
    struct file_input input;
    char *carry; /* bytes that are read and belong to no batch yet */
    size_t carry_bytes;
    size_t guess_bytes; /* how much the next batch will take */
    int64_t offset;     /* of carry[0] in the open file */
    int64_t line;
    uint64_t record;
    struct byte_account account; /* of the open file, from where it was opened or sought */
};

/* Looks at every file. False after diagnostics. */
LEAT_CHECKED bool reader_open(struct file_reader *reader);
/* Opens the first file to see whether it fits the schema, and closes it. */
LEAT_CHECKED bool reader_check(struct file_reader *reader);
LEAT_CHECKED bool reader_seek(struct file_reader *reader, const struct source_position *position);
enum read_status reader_read(struct file_reader *reader, struct raw_batch *raw);
int64_t reader_done_bytes(const struct file_reader *reader);
/* Tolerates a zeroed one. */
void reader_close(struct file_reader *reader);

#endif
