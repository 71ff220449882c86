/* Cutting bytes at line ends, for json and csv. Any thread. */
#ifndef LEAT_FORMATS_LINES_H
#define LEAT_FORMATS_LINES_H

#include "core/connector.h"

/* format_kind.split where every line is a record: `\n` or `\r\n` ends it, an empty line holds none. */
void lines_split(struct format_split *split);

/* format_kind.header: a byte-order mark. */
enum format_header_status lines_header(const void *config, const char *data, size_t bytes, bool is_last,
                                       size_t *used, const char **damage);

#endif
