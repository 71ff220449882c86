/* A checkpoint of several workers, by the file of its head's manifest (run/head.h), or any checkpoint in an object store, by its URL, also
 * URL@3-17, for commands that look inside checkpoints. Control thread. */
#ifndef LEAT_CLI_CHECKPOINT_HEAD_H
#define LEAT_CLI_CHECKPOINT_HEAD_H

#include "core/temporary.h"
#include "state/checkpoint.h"

/* Runs list, show or verify of `leat checkpoint`. which: a checkpoint's name that was given, too, which is refused with a file; NULL: none.
 * false after a diagnostic. */
bool checkpoint_head_verb(const char *verb, const char *path, const char *which, struct diag_list *diags);
/* Opens all parts as one checkpoint, of any job; of a store, in the temporary directory, which is made where it has no path, and must live as
 * long. NULL after a diagnostic. */
struct checkpoint *checkpoint_head_open(const char *path, const char *which,
                                        struct temporary_directory *temporary, struct diag_list *diags);

#endif
