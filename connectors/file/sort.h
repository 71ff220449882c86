/* `order_by`: a partition's records, sorted on disk. Private to connectors/file.
 *
 * What is sorted are the bytes of the records, not their columns, so that bad records come out as bad
 * records: each follows the record that stood before it. The sort is stable; memory is bounded by the
 * request. Rows of a block format have no bytes of their own and are written as msgpack. */
#ifndef LEAT_CONNECTORS_FILE_SORT_H
#define LEAT_CONNECTORS_FILE_SORT_H

#include "connectors/file/reader.h"
#include "connectors/file/sorted.h"

struct sort_request {
    struct file_reader *reader; /* opened, at its begin; read to its end */
    uint32_t column;            /* in the reader's schema: int, float or time */
    const char *directory;      /* for the sorted copy */
    int64_t memory_bytes;
};

/* Makes the copy, whose name, header, diags and mutex are the reader's. arena: of the header. False after
 * diagnostics. */
LEAT_CHECKED bool sort_records(const struct sort_request *request, struct sorted_copy *copy,
                               struct arena *arena);
/* The format that decodes sorted records of a format. */
const struct format_kind *sort_format(const struct format_kind *format);

#endif
