/* Files, clocks and failpoints: the only access to the operating system for data that must survive a crash.
 *
 * Each function that writes passes a named failpoint, so that crash tests can stop the process, fail the call
 * or tear the write at every step: LEAT_FAILPOINTS="ckpt.pre_rename=kill,sink.write=error:ENOSPC@7" (action
 * kill | stop | exit | error:ERRNO | sleep:MS; @N: only at the N-th passage, from 1; os_write_all leaves half
 * of its bytes written when its failpoint gives an error). Failpoints are always compiled in; without
 * LEAT_FAILPOINTS a passage costs one load.
 *
 * Two more variables are for tests only. LEAT_TEST_CUT=N, 1 to 1024, makes watermarks advance after each N
 * records of a partition (run/sequencer/sequencer.c) instead of after a batch, so that a stream of a few
 * records has several watermarks and late rows; it changes the results, so every life of a run must use the
 * same value. LEAT_TEST_STATE=N, 256 to 2^30, limits the bytes of memory that an operator instance gets for
 * its state and rows, so that even small state goes to disk. */
#ifndef LEAT_CORE_OS_H
#define LEAT_CORE_OS_H

#include "core/diag.h"

/* Passes the failpoint. Returns 0, or an errno that the caller must treat as the result of its step. May not
 * return (kill). Any thread. */
int failpoint(const char *name);
/* Parses LEAT_FAILPOINTS, LEAT_TEST_CUT and LEAT_TEST_STATE. false + diagnostic: one is malformed or names
 * an unknown failpoint. */
bool failpoints_init(struct diag_list *diags);
/* The smaller of `usual` and LEAT_TEST_CUT or LEAT_TEST_STATE, if that is set. */
uint32_t test_cut(uint32_t usual);
int64_t test_state(int64_t usual);
/* All failpoint names (core/failpoints.def), for tests that go through them. */
const char *const *failpoint_names(size_t *count);

/* Each returns 0 or an errno, and retries EINTR and short writes. `point`: the failpoint, or NULL. */
int os_write_all(int fd, const void *data, size_t bytes, const char *point);
int os_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset, const char *point);
int os_read_all(int fd, void *data, size_t bytes, size_t *got);
int os_pread_all(int fd, void *data, size_t bytes, uint64_t offset, size_t *got);
/* Appends the next `bytes` bytes of `from` to `to`; ENODATA if there are fewer. */
int os_copy_bytes(int from, int to, uint64_t bytes, const char *point);
int os_fsync(int fd, const char *point);
int os_fsync_directory(const char *path, const char *point);
/* The directory that contains the path; malloc'd. */
char *os_directory(const char *path);
/* Syncs that directory. */
int os_fsync_parent(const char *path, const char *point);
int os_rename(const char *from, const char *to, const char *point);
/* Like os_rename, but where `to` exists it changes nothing and returns EEXIST. */
int os_rename_new(const char *from, const char *to, const char *point);
int os_mkdirs(const char *path); /* like mkdir -p; syncs the parent of each directory it makes */
int os_remove_tree(const char *path);
/* Reads the whole file into malloc'd memory, terminated; EFBIG if it has more than max_bytes. */
int os_read_file(const char *path, size_t max_bytes, char **data, size_t *bytes);
/* Free bytes of the path's file system, or -1. */
int64_t os_free_bytes(const char *path);
int64_t os_file_bytes(const char *path); /* size; -1: the file does not exist */
/* Memory that can be allocated without killing processes: the kernel's estimate (MemAvailable), at most the
 * control group's limit. -1: not known. */
int64_t os_memory_available(void);
/* Takes the exclusive flock of a file; false: another process holds it. Tries for 3 s, because a
 * killed process keeps its lock until the kernel has freed its memory: a job can be started right
 * after `kill -9`. */
bool os_lock(int fd);

/* Monotonic clock; for durations and display, never on the data path. */
int64_t os_monotonic_us(void);
/* Wall clock; for logs and file names, never on the data path. */
int64_t os_wall_us(void);

#endif
