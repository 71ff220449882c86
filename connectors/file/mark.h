/* The mark of a partition's files in a checkpoint, which a resume compares with the files. Private to
 * connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_MARK_H
#define LEAT_CONNECTORS_FILE_MARK_H

#include "connectors/file/reader.h"

/* Where diagnostics go, and the place in the job that they point to. */
struct mark_place {
    struct diag_list *diags;
    struct span span;
};

/* Sets facts[i].before for all files; facts[list->count].before is the digest of all files together. */
void mark_before(const struct path_list *list, struct file_facts *facts);

/* Writes the mark for a position within file number `file` into `out`. Returns its bytes. */
size_t mark_make(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                 char out[SOURCE_MARK_BYTES]);
/* Compares the files with the mark of a checkpoint: the files before `file` must be unchanged; `file` must
 * begin with its old bytes and may have grown; files behind it were not read yet and may be anything. Returns
 * false after E0604. */
LEAT_CHECKED bool mark_compare(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                               struct str mark, const struct mark_place *place);

/* The same for a position in a sorted copy. files: facts[list->count].before, the digest of all files; bytes:
 * size of the copy. No file may have changed. */
size_t mark_make_copy(uint64_t files, int64_t bytes, char out[SOURCE_MARK_BYTES]);
LEAT_CHECKED bool mark_compare_copy(const char *name, uint64_t files, int64_t bytes, struct str mark,
                                    const struct mark_place *place);

#endif
