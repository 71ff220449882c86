/* Files, clocks and failpoints. leat's own files that must survive a crash are written by these functions.
 *
 * Each function that writes passes a named failpoint, so that crash tests can stop the process, fail the call
 * or tear the write at every step: LEAT_FAILPOINTS="ckpt.pre_rename=kill,sink.write=error:ENOSPC@7" (action
 * kill | stop | exit | error:ERRNO | sleep:MS; @N: only at the N-th passage, from 1; os_write_all leaves half
 * of its bytes written when its failpoint gives an error). Failpoints are always compiled in; without
 * LEAT_FAILPOINTS a passage costs one load.
 *
 * Four more variables are for tests only. LEAT_TEST_CUT=N, 1 to 1024, makes watermarks advance after each N
 * records of a partition (run/sequencer/sequencer.c) instead of after a batch, so that a stream of a few
 * records has several watermarks and late rows; it changes the results, so every life of a run must use the
 * same value. With 1, changes of learners are published after each micro-batch. LEAT_TEST_STATE=N, 256 to 2^30, limits the bytes of memory that an operator instance gets for
 * its state and rows, so that even small state goes to disk.
 * LEAT_TEST_PLACEMENT=SEED, 1 to 2^30, places key groups on lanes at random (core/placement.h).
 * LEAT_TEST_STORE_DELAY=MS, 1 to 2^30: for how long objects in a store must have been unnamed before they are deleted. */
#ifndef LEAT_CORE_OS_H
#define LEAT_CORE_OS_H

#include "core/diag.h"

/* Passes the failpoint. Returns 0, or an errno that the caller must treat as the result of its step. May not
 * return (kill). Any thread. */
int failpoint(const char *name);
/* Parses LEAT_FAILPOINTS and the variables for tests. Call before other threads start. false +
 * diagnostic: a variable is malformed or names an unknown failpoint. */
bool failpoints_init(struct diag_list *diags);
/* The smaller of `usual` and LEAT_TEST_CUT (records); `usual` if that variable is not set. */
uint32_t test_cut(uint32_t usual);
/* The smaller of `usual` and LEAT_TEST_STATE (bytes); `usual` if that variable is not set. */
int64_t test_state(int64_t usual);
/* LEAT_TEST_PLACEMENT; 0: it is not set. */
uint64_t test_placement(void);
/* LEAT_TEST_STORE_DELAY, in microseconds; `usual` if that variable is not set. */
int64_t test_store_delay(int64_t usual);
/* All failpoint names (core/failpoints.def), for tests that go through them. */
const char *const *failpoint_names(size_t *count);

/* The functions that return an int return 0 or an errno. The read and write functions retry EINTR and short
 * reads and writes. point: name of the failpoint that the call passes; NULL: none. Any thread. */
int os_write_all(int fd, const void *data, size_t bytes, const char *point);
/* Makes the file, or replaces its content, and syncs it; its directory is the caller's to sync. */
int os_write_file(const char *path, const void *data, size_t bytes, const char *write_point,
                  const char *sync_point);
int os_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset, const char *point);
/* *got: the bytes read, fewer than `bytes` only at the end of the file or on an error. */
int os_read_all(int fd, void *data, size_t bytes, size_t *got);
int os_pread_all(int fd, void *data, size_t bytes, uint64_t offset, size_t *got);
/* Copies the next `bytes` bytes of descriptor `from` to descriptor `to`, each at its own position; ENODATA if
 * `from` has fewer. */
int os_copy_bytes(int from, int to, uint64_t bytes, const char *point);
int os_fsync(int fd, const char *point);
int os_fsync_directory(const char *path, const char *point);
/* Name of the directory that contains the path; the caller frees it. */
char *os_directory(const char *path);
/* Syncs the directory that contains the path. */
int os_fsync_parent(const char *path, const char *point);
int os_rename(const char *from, const char *to, const char *point);
/* Like os_rename, but where `to` exists it changes nothing and returns EEXIST. */
int os_rename_new(const char *from, const char *to, const char *point);
int os_mkdirs(const char *path); /* like mkdir -p; syncs the parent of each directory it makes */
/* Removes the file, or the directory with everything in it; follows no symbolic link. 0 if nothing is
 * there. */
int os_remove_tree(const char *path);
/* Reads the whole file into *data, with a NUL behind its *bytes bytes; the caller frees *data. EFBIG: the
 * file has more than max_bytes; ENOMEM: memory is refused. On errors *data is not set. */
int os_read_file(const char *path, size_t max_bytes, char **data, size_t *bytes);
/* Bytes of the path's file system that users other than root may still take; -1: not known. */
int64_t os_free_bytes(const char *path);
int64_t os_file_bytes(const char *path); /* size; -1: the file does not exist or cannot be examined */
/* Bytes of memory that can be allocated without killing processes: the kernel's estimate (MemAvailable), at
 * most the control group's limit. -1: not known. */
int64_t os_memory_available(void);
/* Takes the exclusive flock of a file; false: another process holds it. Tries for 3 s, because a
 * killed process keeps its lock until the kernel has freed its memory: a job can be started right
 * after `kill -9`. */
bool os_lock(int fd);

/* Monotonic clock in microseconds; for durations and display, never on the data path. */
int64_t os_monotonic_us(void);
uint64_t os_monotonic_ns(void); /* the same, in nanoseconds */
/* CPU time of this thread, user and system, in microseconds. A system call. */
int64_t os_thread_cpu_us(void);
/* Wall clock in microseconds since 1970; for logs and file names, never on the data path. */
int64_t os_wall_us(void);

#endif
