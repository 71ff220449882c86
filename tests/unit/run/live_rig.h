/* What tests of live sources share: source `drip`, whose rows the test gives by hand; `tank`, a recording of
 * what dripped; sink `cup`, which keeps what came, and is full when told; runs of jobs with these. */
#ifndef LEAT_TESTS_LIVE_RIG_H
#define LEAT_TESTS_LIVE_RIG_H

#include "core/os.h"
#include "run/run.h"
#include "unit/support/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PARTITIONS = 4, ROWS_MAX = 4096, WAIT_US = 20 * US_PER_SECOND };

struct drip_row {
    int64_t id, arrival_us;
    int64_t late_us; /* its event was so long before its arrival, beside the partition's delay */
};

struct drip {
    pthread_mutex_t mutex;
    struct drip_row rows[PARTITIONS][ROWS_MAX];
    uint32_t given[PARTITIONS], read[PARTITIONS];
    uint64_t records[PARTITIONS]; /* given to the engine, over all lives */
    int64_t offsets[PARTITIONS][ROWS_MAX];
    bool is_gone[PARTITIONS][ROWS_MAX]; /* compacted away */
    int64_t ends[PARTITIONS];           /* of the log, where that is behind its last record: markers */
    int64_t least[PARTITIONS];          /* the first offset that the log still has */
    struct batch_share share[PARTITIONS];
    bool is_late[PARTITIONS]; /* there is more, it says, than it has */
    uint32_t partitions;
    bool has_ended;
    uint32_t batch_max; /* rows that a read gives */
    bool is_turned;     /* the source names its partitions from the last to the first */
    bool is_random;     /* that is at most what it gives */
    struct test_random random;
    uint32_t missing;          /* records that a tank lacks at the beginning of each partition */
    int64_t delay[PARTITIONS]; /* how long before its arrival an event was */
    uint32_t gap;              /* from this record on offsets are 2 more */
    void (*wake)(void *);
    void *engine;
};
extern struct drip drip;

/* A row; its offset is twice its place in the partition, where drip.offsets does not say otherwise. */
void give(uint32_t partition, int64_t id, int64_t arrival_us);
void end_drip(void);

enum { CUP_EPOCHS = 64 };
struct cup {
    pthread_mutex_t mutex;
    int64_t ids[PARTITIONS * ROWS_MAX]; /* the first column */
    uint64_t hash;                      /* of all columns of all rows */
    uint32_t count, committed_rows;
    uint64_t committed;
    uint32_t snapshots;
    uint32_t rows_at[CUP_EPOCHS]; /* rows that the checkpoint of the epoch holds, of the last epochs */
    bool sends_checkpoints;
    struct sink_context *context;
};
extern struct cup cup;

/* Operator `lamp`, which goes by arrival and lets rows pass: what its clock was told, each new time once. */
enum { LAMP_TIMES_MAX = 64 };
struct lamp {
    pthread_mutex_t mutex;
    int64_t times[LAMP_TIMES_MAX];
    uint32_t count;
};
extern struct lamp lamp;

/* A figure of the cup, under its mutex. */
uint32_t cup_count(const uint32_t *counter);
/* Waits until it is there; fails when that takes far too long. */
void wait_for(const uint32_t *counter, uint32_t count);
void assert_order(const int64_t *ids, uint32_t count);

/* Figures are read while lanes write them: stale, not torn, but that TSan does not know. */
#ifdef __SANITIZE_THREAD__
enum { CAN_LOOK = 0 };
#else
enum { CAN_LOOK = 1 };
#endif

struct live {
    struct arena arena;
    struct diag_list diags;
    struct run *run;
    struct run_stats stats;
};

/* Nothing was given, nothing came. */
void reset(uint32_t partitions);
/* Where each partition is read, in the source. */
void forget_reading(void);
/* What was given is there to be read again, by a run of its own. */
void reset_cup(void);
struct run_options on(uint32_t lanes);
struct live *begin(const char *text, const struct run_options *options);
/* As begin; it is told to stop before it begins. */
struct live *begin_stopped(const char *text, const struct run_options *options);
/* The run must fail: what it says. */
void begin_refused(const char *text, const struct run_options *options, const char *const *says);
/* Waits for its end. */
void end(struct live *live);
/* As end; it must fail, and say this (NULL at the end). */
void end_failed(struct live *live, const char *const *says);

/* A path in /tmp that is not there; a directory that is. */
void new_path(char path[64]);
void new_directory(char path[64]);

#endif
