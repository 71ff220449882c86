/* The files of a `lookup` with `refresh`: copies of what its file was, each in a directory of its digest
 * (lookup_versions.h). */
#ifndef LEAT_OPERATORS_LOOKUP_KEPT_H
#define LEAT_OPERATORS_LOOKUP_KEPT_H

#include "operators/lookup_table.h"

#include <sys/stat.h>

enum { LOOKUP_DIGEST_BYTES = 32 };

struct lookup_kept {
    const struct lookup_source *source;
    const char *directory; /* that is written to */
    const char *next;      /* in it: where a copy is made, of this life's own name */
    const struct operator_context *context;
    const char *base; /* the file's name */
    struct batch_pool *pool;
};

/* What a look at the file says, without reading it. */
struct lookup_signature {
    uint64_t device, inode;
    int64_t bytes, modified_s, modified_ns;
};
struct lookup_signature lookup_signature_of(const struct stat *info);
bool lookup_is_same(const struct lookup_signature *a, const struct lookup_signature *b);

/* The table of the file as it is now, kept. NULL after diagnostics; is_refused: for what is in it, so that
 * another look at the same file is no use. */
struct lookup_table *lookup_kept_file(const struct lookup_kept *kept, struct lookup_signature *signature,
                                      bool *is_refused, struct diag_list *diags);
/* What was kept of a digest. NULL: nothing, or it is not that any more; diagnostics may say why. */
struct lookup_table *lookup_kept_take(const struct lookup_kept *kept, const char *directory,
                                      const char *digest, struct diag_list *diags);

/* E0602, E0601, E0608: what cannot be done with the file. */
void lookup_cannot(const struct lookup_source *source, struct diag_list *diags, int error, const char *what);
const char *lookup_path(struct arena *arena, const char *directory, const char *name);

#endif
