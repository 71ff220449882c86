/* What a resume remembers of a partition's files. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_MARK_H
#define LEAT_CONNECTORS_FILE_MARK_H

#include "connectors/file/reader.h"

/* Where diagnostics go, and what of the job they point to. */
struct mark_place {
    struct diag_list *diags;
    struct span span;
};

/* Of the open file `fd`: digests of its first and last bytes within `size`. Not for what cannot be read twice
 * (a pipe): then 0. */
void mark_file(int fd, int64_t size, uint64_t *head, uint64_t *tail);
/* Sets facts[i].before for all files and, as facts[list->count].before, for all of them together. */
void mark_before(const struct path_list *list, struct file_facts *facts);

/* file: the one that is read at the position. */
size_t mark_make(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                 char out[SOURCE_MARK_BYTES]);
/* The files now against a mark of then: those before `file` as they were, that one with its old bytes and
 * maybe more behind them; what comes after it was not read yet and may be anything. False after E0604. */
LEAT_CHECKED bool mark_compare(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                               struct str mark, const struct mark_place *place);

/* The same where the position is in a copy of all files: `files`, facts[list->count].before, marks them;
 * bytes: of the copy. Not one of the files may have changed. */
size_t mark_make_copy(uint64_t files, int64_t bytes, char out[SOURCE_MARK_BYTES]);
LEAT_CHECKED bool mark_compare_copy(const char *name, uint64_t files, int64_t bytes, struct str mark,
                                    const struct mark_place *place);

#endif
