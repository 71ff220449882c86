/* What the system refuses: memory, threads, stacks.
 *
 * Memory. Whoever asks for some while a job runs cannot go on without: rows would be lost, or counted twice.
 * So the process ends at once, with a message that has a code, figures and the way out, and a status of its
 * own; what is checkpointed stays, and a supervisor starts the run again. That holds for every allocation of
 * leat's own code, whether or not it looks at the result: where a program is linked, malloc and its kind are
 * wrapped (CMakeLists.txt), and this file has what is behind them; and for those of the libraries that leat
 * uses, by their ends: operator new, an exception that nobody catches, an abort or a fault while there is
 * none left.
 *
 * Who can go on without, or knows better what to say, asks with refused_ask and its kind: they may give NULL.
 *
 * Nothing here allocates, but for that. Any thread. */
#ifndef LEAT_CORE_REFUSED_H
#define LEAT_CORE_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The status of a process that ends for it: EX_OSERR of sysexits.h. */
enum { EXIT_REFUSED = 71 };

/* Ends the process: E0803, the bytes and what there is of them, and the job's `memory:` where it is known. */
__attribute__((noreturn)) void refused_memory(size_t bytes);
/* Ends the process: E0803. what: "a thread", in words; why: the system's words, or NULL. */
__attribute__((noreturn)) void refused_other(const char *what, const char *why);

/* As malloc, calloc and realloc are elsewhere: NULL where there is none. Freed by free. */
void *refused_ask(size_t bytes);
void *refused_ask_zeroed(size_t count, size_t bytes);
void *refused_ask_again(void *memory, size_t bytes);

/* Nothing where a thread has begun; else ends the process. error: of pthread_create. */
void refused_unless_begun(int error);

/* At a program's start, before there are threads: no file too long ends it by a signal (write fails with
 * EFBIG), as many descriptors as may be had, stacks that are large enough whatever `ulimit -s` says; a
 * library that ends the process for want of memory ends it as above. False after a message: there is too
 * little to begin with. */
__attribute__((warn_unused_result)) bool refused_init(void);
/* The job's budget, for the message; 0: none. */
void refused_budget(int64_t memory_bytes);

/* Bytes of address space that this process may still take; SIZE_MAX: nobody counts (ulimit -v). */
size_t refused_space_left(void);

#ifdef __cplusplus
}
#endif

#endif
