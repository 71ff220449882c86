/* `order_by`: sorts a partition's records on disk. Private to connectors/file.
 *
 * The bytes of records are sorted, not their columns, so that bad records stay bad records: each bad record
 * stays behind the record that preceded it. The sort is stable; memory is bounded by the request. Rows of a
 * block format have no bytes of their own and are written as msgpack. */
#ifndef LEAT_CONNECTORS_FILE_SORT_H
#define LEAT_CONNECTORS_FILE_SORT_H

#include "connectors/file/reader.h"
#include "connectors/file/sorted.h"

struct sort_request {
    struct file_reader *reader; /* open and at its beginning; read to its end */
    uint32_t column;            /* index of the sort column in the reader's schema: int, float or time */
    const char *directory;      /* where the sorted copy is made */
    int64_t memory_bytes;
};

/* Makes the sorted copy; `copy` takes its name, header, diags and mutex from the reader. arena: holds the
 * copy's header. Returns false after diagnostics. */
LEAT_CHECKED bool sort_records(const struct sort_request *request, struct sorted_copy *copy,
                               struct arena *arena);
/* The format that decodes the sorted copy of records of `format`. */
const struct format_kind *sort_format(const struct format_kind *format);

#endif
