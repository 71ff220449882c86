/* `order_by`: a partition's records, sorted on disk. Private to connectors/file.
 *
 * What is sorted are the bytes of the records, not their columns, so that bad records come out as bad
 * records: each follows the record that stood before it. The sort is stable; memory is bounded by the
 * request. Rows of a block format have no bytes of their own and are written as msgpack. */
#ifndef LEAT_CONNECTORS_FILE_SORT_H
#define LEAT_CONNECTORS_FILE_SORT_H

#include "connectors/file/reader.h"

struct sort_request {
    struct file_reader *reader; /* opened; afterwards it reads the sorted file */
    uint32_t column;            /* in the reader's schema: int, float or time */
    const char *directory;      /* for the sorted file */
    int64_t memory_bytes;
};

/* What the reader then reads: a file without a name, so that nothing stays behind a crash. */
struct sorted_file {
    int fd; /* 0: none */
    struct path_list list;
    const char *paths[1];
    char path[64]; /* /proc/self/fd/N */
};

LEAT_CHECKED bool sort_records(const struct sort_request *request, struct sorted_file *sorted,
                               struct arena *arena, struct diag_list *diags);
/* Removes the file; tolerates a zeroed one. */
void sorted_close(struct sorted_file *sorted);
/* The format that decodes sorted records of a format. */
const struct format_kind *sort_format(const struct format_kind *format);

#endif
