/* A checkpoint directory, and small checkpoints of three parts to write into it. */
#ifndef LEAT_TESTS_UNIT_STATE_CHECKPOINT_FIXTURE_H
#define LEAT_TESTS_UNIT_STATE_CHECKPOINT_FIXTURE_H

#include "state/checkpoint_files.h"
#include "unit/support/temporary.h"

enum { FIXTURE_RECORDS = 12 };

struct fixture {
    char path[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir;
    uint32_t done_published, done_abandoned; /* calls of the deferred job's `done` */
};

void fixture_init(struct fixture *f);
void fixture_free(struct fixture *f);
void fixture_open(struct fixture *f, bool take_over);
/* Writes and publishes a checkpoint with the parts op/1/0, op/1/1 and op/12/0, each with a global record and
 * FIXTURE_RECORDS records of key groups, half of these deferred. false: it was abandoned. */
bool fixture_write(struct fixture *f, uint64_t epoch, bool is_base);
/* The same, with the micro-batches [first, next) in the order log; fixture_write has ten for each epoch. */
bool fixture_write_numbers(struct fixture *f, uint64_t epoch, bool is_base, uint64_t first, uint64_t next);
/* Reads the records of the parts with the prefix that are of these key groups (NULL: all), and checks that they are what
 * was written; returns their number. */
uint32_t fixture_read(struct fixture *f, struct checkpoint *checkpoint, const char *prefix,
                      const struct group_set *groups);
/* The first diagnostic with the code, or NULL. */
const struct diag *fixture_diag(const struct fixture *f, enum diag_code code);
/* Sets one byte of a file. */
void fixture_patch(const char *path, size_t offset, char byte);
void fixture_write_file(const char *path, const char *text, size_t bytes);
/* Changes the creation time of a checkpoint of generation 1, microseconds. */
void fixture_set_time(struct fixture *f, uint64_t epoch, int64_t created_us);

#endif
