/* Files, clocks and failpoints: the only door to the operating system for whatever must survive a crash.
 *
 * Each function that writes passes a failpoint by name, so that the crash tests can stop the process, fail
 * the call or tear the write at every step: LEAT_FAILPOINTS="ckpt.pre_rename=kill,sink.write=error:ENOSPC@7"
 * (action kill | stop | exit | error:ERRNO | sleep:MS; @N: at the N-th passage only, from 1; a write that
 * gets an error leaves half of its bytes). Compiled in always; a passage costs one load when LEAT_FAILPOINTS
 * is not set.
 *
 * Beside them, for tests alone. LEAT_TEST_CUT=N, 1 to 1024, lets watermarks advance after each N records of a
 * partition (run/sequencer.c) instead of after a batch, so that a stream of a few records has several, and
 * late rows; it is part of what a run is a function of: each life of a run must have the same.
 * LEAT_TEST_STATE=N, 256 to 2^30, is the most bytes of memory that an instance of an operator gets for its
 * state and rows, so that those of a few records go to disk. */
#ifndef LEAT_CORE_OS_H
#define LEAT_CORE_OS_H

#include "core/diag.h"

/* 0, or an errno that the caller must treat as the result of the step. May not return (kill). Any thread. */
int failpoint(const char *name);
/* Parses LEAT_FAILPOINTS and LEAT_TEST_...; false + diagnostic where one is malformed or names an unknown
 * failpoint. */
bool failpoints_init(struct diag_list *diags);
/* LEAT_TEST_CUT and LEAT_TEST_STATE, or `usual`, which they do not exceed. */
uint32_t test_cut(uint32_t usual);
int64_t test_state(int64_t usual);
/* All names known to the program (core/failpoints.def), for the tests that walk through them. */
const char *const *failpoint_names(size_t *count);

/* Each returns 0 or an errno, and retries EINTR and short writes. `point`: the failpoint, or NULL. */
int os_write_all(int fd, const void *data, size_t bytes, const char *point);
int os_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset, const char *point);
int os_read_all(int fd, void *data, size_t bytes, size_t *got);
int os_pread_all(int fd, void *data, size_t bytes, uint64_t offset, size_t *got);
/* The next `bytes` bytes of `from` to the end of `to`; ENODATA where there are fewer. */
int os_copy_bytes(int from, int to, uint64_t bytes, const char *point);
int os_fsync(int fd, const char *point);
int os_fsync_directory(const char *path, const char *point);
/* Of the directory that holds the path. */
int os_fsync_parent(const char *path, const char *point);
int os_rename(const char *from, const char *to, const char *point);
/* The same where nothing has the new name: else EEXIST, and what is there stays. */
int os_rename_new(const char *from, const char *to, const char *point);
int os_mkdirs(const char *path); /* like mkdir -p; what is made is durable in its parent */
int os_remove_tree(const char *path);
/* Whole file into malloc'd memory, terminated; refuses more than max_bytes with EFBIG. */
int os_read_file(const char *path, size_t max_bytes, char **data, size_t *bytes);
/* Free bytes of the file system that holds path, or -1. */
int64_t os_free_bytes(const char *path);
int64_t os_file_bytes(const char *path); /* -1: not there */
/* Memory that can be had without ending others, by the kernel's estimate and the process's control group; -1:
 * not known. */
int64_t os_memory_available(void);
/* The exclusive flock of a file. A process that was killed holds its own until the kernel has freed its
 * memory, so a lock that is held is asked for again for 3 s: who starts a job right after `kill -9` gets it.
 */
bool os_lock(int fd);

/* Monotonic; for durations and display, never on the data path. */
int64_t os_monotonic_us(void);
/* Wall clock; for logs and file names, never on the data path. */
int64_t os_wall_us(void);

#endif
