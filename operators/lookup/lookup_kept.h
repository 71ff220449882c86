/* Copies of the file of a `lookup` with `refresh`: one for each content it had, in a directory named by the
 * table's digest (lookup_versions.h). */
#ifndef LEAT_OPERATORS_LOOKUP_LOOKUP_KEPT_H
#define LEAT_OPERATORS_LOOKUP_LOOKUP_KEPT_H

#include "operators/lookup/lookup_table.h"

#include <sys/stat.h>

enum { LOOKUP_DIGEST_BYTES = 32 };

struct lookup_kept {
    const struct lookup_source *source;
    const char *directory; /* where copies are kept */
    const char *next;      /* in it: where a copy is made; a name of this start of the run */
    const struct operator_context *context;
    const char *base; /* the file's name without its directory */
    struct batch_pool *pool;
};

/* What stat says about a file: tells whether it changed, without reading it. */
struct lookup_signature {
    uint64_t device, inode;
    int64_t bytes, modified_s, modified_ns;
};
struct lookup_signature lookup_signature_of(const struct stat *info);
bool lookup_is_same(const struct lookup_signature *a, const struct lookup_signature *b);

/* Copies the file as it is now and loads the table from the copy. *signature: of the copied file. NULL after
 * diagnostics; *is_refused is then true if the file's content is wrong, so that another try is no use. */
struct lookup_table *lookup_kept_file(const struct lookup_kept *kept, struct lookup_signature *signature,
                                      bool *is_refused, struct diag_list *diags);
/* Loads the copy with this digest from `directory`. NULL: there is none, or its content has another digest;
 * diagnostics may say why. */
struct lookup_table *lookup_kept_take(const struct lookup_kept *kept, const char *directory,
                                      const char *digest, struct diag_list *diags);

/* Diagnostic that the file "cannot be `what`". error: an errno, which decides the code: E0602 there is no
 * such file, E0608 the disk is full, else E0601. */
void lookup_cannot(const struct lookup_source *source, struct diag_list *diags, int error, const char *what);
const char *lookup_path(struct arena *arena, const char *directory, const char *name);

#endif
