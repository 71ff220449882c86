/* A checkpoint directory with small checkpoints of three parts in it. */
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
    uint32_t done_published, done_abandoned;
};

void fixture_init(struct fixture *f);
void fixture_free(struct fixture *f);
void fixture_open(struct fixture *f, bool take_over);
/* Parts op/1/0, op/1/1, op/12/0, each with FIXTURE_RECORDS records of key groups and a global one; half of
 * them deferred. false: it was abandoned. */
bool fixture_write(struct fixture *f, uint64_t epoch, bool is_base);
/* Its order log has these numbers; without: ten for each epoch. */
bool fixture_write_numbers(struct fixture *f, uint64_t epoch, bool is_base, uint64_t first, uint64_t next);
/* The number of records; checks that they say what was written. */
uint32_t fixture_read(struct fixture *f, struct checkpoint *checkpoint, const char *prefix, uint32_t lane,
                      uint32_t lanes);
const struct diag *fixture_diag(const struct fixture *f, enum diag_code code);
/* Sets one byte of a file; writes a whole file. */
void fixture_patch(const char *path, size_t offset, char byte);
void fixture_write_file(const char *path, const char *text, size_t bytes);
/* Gives a checkpoint of generation 1 another time. */
void fixture_set_time(struct fixture *f, uint64_t epoch, int64_t created_us);

#endif
