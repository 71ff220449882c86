/* Resources that the system refuses: memory, threads, stacks.
 *
 * Memory. A running job cannot go on without memory it asked for: rows would be lost or counted twice. So the
 * process ends at once, with a message (code, figures, what to do) and an exit status of its own; checkpoints
 * stay valid, and a supervisor restarts the run. This holds for every allocation in leat's own code, whether
 * or not the caller checks the result: at link time malloc and its relatives are wrapped (CMakeLists.txt),
 * and this file has the wrappers. It also holds for allocations of libraries, recognised by how they fail:
 * operator new, an uncaught exception, an abort or a fault while no memory is left.
 *
 * Code that can go on without memory, or knows a better message, calls refused_ask and its variants, which
 * may return NULL.
 *
 * Nothing else here allocates. Any thread. */
#ifndef LEAT_CORE_REFUSED_H
#define LEAT_CORE_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit status of a process that ends because of a refusal: EX_OSERR of sysexits.h. */
enum { EXIT_REFUSED = 71 };

/* Ends the process with E0803: the bytes asked for (0: not known), the process's memory, and the job's
 * `memory:` if known. */
__attribute__((noreturn)) void refused_memory(size_t bytes);
/* Ends the process with E0803. what: "a thread", in words; why: the system's text, or NULL. */
__attribute__((noreturn)) void refused_other(const char *what, const char *why);

/* Like malloc, calloc and realloc of libc: NULL if memory is refused. Free the result with free. */
void *refused_ask(size_t bytes);
void *refused_ask_zeroed(size_t count, size_t bytes);
void *refused_ask_again(void *memory, size_t bytes);

/* error: the result of pthread_create. Ends the process unless `error` is 0. */
void refused_unless_begun(int error);

/* Call at program start, before any thread exists. Makes writes beyond the file size limit fail with EFBIG
 * instead of killing the process, raises the limit of open files, makes stacks large enough whatever `ulimit
 * -s` says, and makes libraries that fail for lack of memory end the process as above. false after a message:
 * no sufficient stack. */
__attribute__((warn_unused_result)) bool refused_init(void);
/* Sets the job's memory budget, in bytes, which the message names; 0: the message names none. */
void refused_budget(int64_t memory_bytes);

/* Bytes of address space that this process may still use; SIZE_MAX: no limit (ulimit -v). */
size_t refused_space_left(void);

#ifdef __cplusplus
}
#endif

#endif
