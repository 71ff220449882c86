/* What a job reads and writes in the file system, so that no part of it takes what another one needs.
 *
 * Two names mean one file when their directories are the same and their last parts are equal, however they
 * are spelt
 * ("./a", "b/../a", through a link), or when both are there and are one file of the device (links). A name
 * may be a pattern: of files that a source reads (glob(3)), of files that a sink numbers. Two patterns meet
 * where some name matches both, whether there is such a file or not: what one run wrote the next one would
 * read.
 *
 * Claims are compared when a job is checked and once more when a run begins. What then is there, and what
 * sources open, is remembered by device and inode: whoever removes or replaces a file asks for that file at
 * that moment.
 *
 * claims_opened and claims_taken_by: any thread; the others: one at a time. */
#ifndef LEAT_CORE_CLAIMS_H
#define LEAT_CORE_CLAIMS_H

#include "core/diag.h"
#include "core/option.h"

enum claim_use {
    CLAIM_READS,
    CLAIM_WRITES,      /* a file */
    CLAIM_WRITES_PART, /* also NAME.part, and NAME.part.new-0000000003, as sinks do */
    CLAIM_OWNS,        /* a directory, with all that will be in it */
};

struct claims;

/* In the arena, which must outlive them. */
struct claims *claims_new(struct arena *arena);

/* glob: of the names, special characters that are meant as such behind `\`; or a directory, as it is. shown:
 * the same for people. who: "source `clicks`". span: where the job says so, or {0, 0}. Texts are copied. */
void claims_add(struct claims *claims, enum claim_use use, const char *glob, const char *shown,
                const char *who, struct span span);
/* What a source takes: a name that is there as it stands, a glob, or a directory. */
void claims_add_input(struct claims *claims, struct str path, const char *who, struct span span);
/* All inputs that a bound option struct names (OPTION_READS). */
void claims_add_options(struct claims *claims, const struct option *table, const void *config,
                        const char *who, struct span span);

/* E0617 for each two that must not meet, E0605 for an output that is there and no regular file. False after
 * diagnostics. */
LEAT_CHECKED bool claims_check(struct claims *claims, struct diag_list *diags);

/* An input that is open is one, whatever its name means by now. */
void claims_opened(struct claims *claims, int fd);
/* Whether the file of that name may not be removed or replaced: who needs it, or what it is instead of a
 * regular file ("is a directory"). NULL: it may, or there is none. claims: NULL: there is no job around. */
const char *claims_refuse(struct claims *claims, const char *path);

/* Whether the file of that name lies, or would lie, in the directory or below it. */
bool claims_inside(const char *path, const char *directory);

/* `name` with special characters of glob(3) behind `\`; in the arena. */
char *claims_literal(struct arena *arena, struct str name);

#endif
