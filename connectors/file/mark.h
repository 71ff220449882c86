/* What a resume remembers of a partition's files. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_MARK_H
#define LEAT_CONNECTORS_FILE_MARK_H

#include "connectors/file/reader.h"

/* Of the open file `fd`: digests of its first and last bytes within `size`. Not for what cannot be read twice
 * (a pipe): then 0. */
void mark_file(int fd, int64_t size, uint64_t *head, uint64_t *tail);
/* Sets facts[i].before for all files and, as facts[list->count].before, for all of them together. */
void mark_before(const struct path_list *list, struct file_facts *facts);

/* file: the one that is read at the position. before_all: facts[list->count].before, where they were sorted
 * into one and the position is in that; 0: none. */
size_t mark_make(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                 uint64_t before_all, char out[SOURCE_MARK_BYTES]);
/* The files now against a mark of then: those before `file` as they were, that one with its old bytes and
 * maybe more behind them; what comes after it was not read yet and may be anything. False after E0604. */
LEAT_CHECKED bool mark_compare(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                               uint64_t before_all, struct str mark, struct diag_list *diags);

#endif
