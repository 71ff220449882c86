/* Claims: what a job reads and writes in the file system, so that no part of it destroys what
 * another part needs.
 *
 * Two names mean one file when their directories are the same and their last parts are equal, however they
 * are spelt ("./a", "b/../a", through a symbolic link), or when both exist and are one file by device and
 * inode. A name may be a pattern: of the files that a source reads (glob(3)), or of the files that a sink
 * numbers. Two patterns meet where some name matches both, whether such a file exists or not: the next run
 * would read what this run wrote.
 *
 * Claims are compared when a job is checked and again when a run begins. The files that exist then, and files
 * that sources open later, are remembered by device and inode: claims_refuse looks a file up there just
 * before it is removed or replaced.
 *
 * claims_opened and claims_refuse: any thread; the other functions: one thread at a time. */
#ifndef LEAT_CORE_CLAIMS_H
#define LEAT_CORE_CLAIMS_H

#include "core/diag.h"
#include "core/option.h"

enum claim_use {
    CLAIM_READS,
    CLAIM_WRITES,      /* a file */
    CLAIM_WRITES_PART, /* a file, and NAME.part and NAME.part.new-0000000003, as sinks make them */
    CLAIM_OWNS,        /* a directory and everything that will be in it */
};

struct claims;

/* A new, empty set of claims; it lives as long as the arena. */
struct claims *claims_new(struct arena *arena);

/* Adds a claim. glob: pattern of the names, with literal special characters behind `\`; for CLAIM_OWNS the
 * directory's name, no pattern. shown: the names as messages show them. who: who makes the claim, "source
 * `clicks`". span: the claim's place in the job, or {0, 0}. Texts are copied. */
void claims_add(struct claims *claims, enum claim_use use, const char *glob, const char *shown,
                const char *who, struct span span);
/* Adds what a source reads: an existing name taken literally, a glob, or a directory. */
void claims_add_input(struct claims *claims, struct str path, const char *who, struct span span);
/* Adds all inputs named in a bound option struct (options with OPTION_READS). */
void claims_add_options(struct claims *claims, const struct option *table, const void *config,
                        const char *who, struct span span);

/* Reports each pair of claims that conflict (E0617; two writers: E0407; two owned directories of which one lies in the other:
 * E0617) and each output that exists but is not a regular file (E0605). false after diagnostics. */
LEAT_CHECKED bool claims_check(struct claims *claims, struct diag_list *diags);

/* Notes that a source has opened a file: this file stays an input even if its name is given to another file.
 * claims NULL: does nothing. */
void claims_opened(struct claims *claims, int fd);
/* Why the file of that name must not be removed or replaced: a source needs it ("is read by source `a`"; code
 * DIAG_OUTPUT_DESTROYS) or it is not a regular file ("is a directory"; code DIAG_OUTPUT_FAILED). The text
 * lives as long as the claims. NULL: the file may be replaced, or does not exist. claims NULL: there is no
 * job, only the file's type counts. code NULL: the code is not asked for. */
const char *claims_refuse(struct claims *claims, const char *path, enum diag_code *code);

/* Whether the file of that name lies, or would lie, in or below the directory. */
bool claims_inside(const char *path, const char *directory);

/* `name` with each special character of glob(3) behind a `\`; in the arena. */
char *claims_literal(struct arena *arena, struct str name);

#endif
