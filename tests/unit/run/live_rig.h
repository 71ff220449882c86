/* What the tests of live sources share: the source `fake_source`, a live source whose rows the test gives; the
 * source `fake_recording`, a recording of the same rows; the sink `fake_sink`, which keeps the rows that it gets, and is full
 * when the test says so; and runs of jobs with them. */
#ifndef LEAT_TESTS_UNIT_RUN_LIVE_RIG_H
#define LEAT_TESTS_UNIT_RUN_LIVE_RIG_H

#include "run/run.h"
#include "unit/support/patience.h"
#include "unit/support/random.h"

#include <pthread.h>

enum { PARTITIONS = 4, ROWS_MAX = 4096 };

struct fake_source_row {
    int64_t id, arrival_us;
    int64_t late_us; /* event time is arrival time, less fake_source.delay of the partition, less this */
};

struct fake_source {
    pthread_mutex_t mutex;
    struct fake_source_row rows[PARTITIONS][ROWS_MAX];
    uint32_t given[PARTITIONS], read[PARTITIONS]; /* counts of rows; read: by the source, the next row */
    uint32_t asked[PARTITIONS];                   /* reads that found no row */
    uint64_t records[PARTITIONS];                 /* records that the engine got, over all lives */
    int64_t offsets[PARTITIONS][ROWS_MAX];
    bool is_gone[PARTITIONS][ROWS_MAX];   /* compacted away */
    int64_t ends[PARTITIONS];             /* the end of the log, if markers follow its last record */
    int64_t least[PARTITIONS];            /* the first offset that the log still has */
    struct batch_share share[PARTITIONS]; /* how much of a recording's batch was read */
    bool is_late[PARTITIONS];             /* without rows a read gives READ_LATER, not READ_QUIET */
    uint32_t partitions;
    bool has_ended;
    uint32_t batch_max; /* rows that a read gives at most */
    bool is_turned;     /* the source names its partitions from the last to the first */
    bool is_random;     /* a read gives a random number of rows, up to batch_max */
    struct test_random random;
    uint32_t missing;          /* records that the recording lacks at the beginning of each partition */
    int64_t delay[PARTITIONS]; /* event time is that much before arrival time, microseconds */
    uint32_t gap;              /* offsets from this row on are 2 higher */
    void (*wake)(void *);
    void *engine;
};
extern struct fake_source fake_source;

/* Gives the source a row, and wakes the engine. After reset() the offset of a row is twice its index. */
void give(uint32_t partition, int64_t id, int64_t arrival_us);
void end_fake_source(void);
/* Waits until the engine has read all rows of the partition, and asked for more that many times: it had as many
 * occasions to do what it is not to do. */
void wait_until_asked(uint32_t partition, uint32_t times);
/* Waits until all rows that were given are read. */
void wait_until_read(void);
/* Lets time pass in which no rows come, where time itself is tested: whether partitions become idle, or
 * whether nothing happens. On a slow machine less may happen meanwhile: never rely on it. */
void lull(int64_t microseconds);

enum { CUP_EPOCHS = 64 };
struct fake_sink {
    pthread_mutex_t mutex;
    int64_t ids[PARTITIONS * ROWS_MAX]; /* the first column of each row */
    uint64_t hash;                      /* of all columns of all rows */
    uint32_t count, committed_rows;     /* rows; rows at the last checkpoint that was committed */
    uint64_t committed;                 /* its epoch */
    uint32_t snapshots;                 /* rows at the last snapshot */
    uint32_t rows_at[CUP_EPOCHS];       /* rows_at[epoch % CUP_EPOCHS]: rows at that checkpoint */
    bool sends_checkpoints;
    struct sink_context *context;
};
extern struct fake_sink fake_sink;

/* The operators `lamp`, which goes by arrival time, and `watermarks`, which goes by event time, let rows pass.
 * times: the times of the clock of arrival, or the watermarks, that the operator was told, each new one once;
 * micro_batches: all calls; ended: which of them was the first with the end of the input, from 1. */
enum { LAMP_TIMES_MAX = 64 };
struct lamp {
    pthread_mutex_t mutex;
    int64_t times[LAMP_TIMES_MAX];
    uint32_t count, micro_batches, ended;
};
extern struct lamp lamp;

extern const struct operator_kind operator_lamp, operator_watermarks;
/* The operator `scale` adds a column with the load of the row's micro-batch. */
extern const struct operator_kind operator_scale;

/* Copies the times that the operator was told so far; returns how many. */
uint32_t lamp_times(int64_t times[LAMP_TIMES_MAX]);
/* Waits until the operator was told this time. */
void wait_for_time(int64_t time);
/* Waits until there was another micro-batch, beyond `before` of them. Returns how many there were. */
uint32_t wait_for_micro_batch(uint32_t before);

/* Reads a figure of the sink, under its mutex. */
uint32_t fake_sink_count(const uint32_t *counter);
/* Waits until the figure of the sink is `count`; fails if it is more. */
void wait_for(const uint32_t *counter, uint32_t count);
/* The fake_sink must have these rows, in this order. */
void assert_order(const int64_t *ids, uint32_t count);

struct live {
    struct arena arena;
    struct diag_list diags;
    struct run *run;
    struct run_stats stats;
};

/* Empties the source, which then has `partitions` partitions, and the sink. */
void reset(uint32_t partitions);
/* Forgets how far the source has read each partition. */
void forget_reading(void);
/* Empties the sink and forgets the reading, so that another run reads all given rows again. */
void reset_fake_sink(void);
/* Options of a run on so many lanes. */
struct run_options on(uint32_t lanes);
/* Makes a run of the job, and does not start it; the test fails if the job or the run is refused. */
struct live *prepare(const char *text, const struct run_options *options);
/* Starts a run of the job; the test fails if the job or the run is refused. */
struct live *begin(const char *text, const struct run_options *options);
/* As begin; the run is told to stop before it starts. */
struct live *begin_stopped(const char *text, const struct run_options *options);
/* The run must be refused. says: texts that the message or the hint of the error must contain, NULL
 * at the end. */
void begin_refused(const char *text, const struct run_options *options, const char *const *says);
/* Waits for the end of the run, which must not fail, and frees it. */
void end(struct live *live);
/* As end; the run must fail. says: as for begin_refused. */
void end_failed(struct live *live, const char *const *says);

/* A path in /tmp that does not exist; a new directory. */
void new_path(char path[64]);
void new_directory(char path[64]);

#endif
