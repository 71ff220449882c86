/*
 * The cost of checkpoints for a model's training on a GPU: DLRM of bench_train.c, with 20 GB of rows in the
 * GPU's memory, a share of which changes between checkpoints. As in a job, one thread trains and another one
 * writes checkpoints (learners/learner/checkpoint.c): the writer takes the rows from the device, packs them
 * in the stored form and copies them into records of 1 MiB, which are thrown away, as otherwise the disk
 * would be measured.
 *
 * - `pause`, after a tenth of the rows, 2 GB, has changed: how long training stops at a barrier. Host time
 *   from the end of the last step until the next one may be queued and the device can begin it: dense weights
 *   are copied to the host (model_save), changed rows are found and gathered into staging
 *   (device/snapshot.h), the writer is started, tables are held while staging has no room for the rest, and
 *   then the stream's work ends. `pause, dense weights`: the first of these parts. The engine's part (the
 *   checkpoint's files) is not included.
 * - `checkpoints N %`: steps over 20 s with a barrier at the begin and one in the middle, the last steps
 *   waited for; `checkpoints N %, none`: without checkpoints, over 5 s before and 5 s after.
 *
 * Steps change rows, too: these steps learn only the rows of the N %, each of them at least once in a few
 * steps, so the N % change between checkpoints, however far apart these are. The ids of a batch are distinct.
 * device_memory is 1.6 times the rows, so staging, an eighth of it, is a fifth of the rows.
 */
#include "training.h"

#include "core/base.h"
#include "core/buffer.h"
#include "core/os.h"
#include "core/team.h"
#include "learners/device/table.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    PERIOD_S = 10,
    CHECKPOINTS = 2,
    ALONE_S = 5,
    STAGING_PART = 8, /* of the memory, as in model/device.c */
    RECORD_BYTES = 1 << 20,
    TINY_FIELDS = 4,
    TINY_DIM = 64,
    TINY_ROWS = 600, /* a field's rows: all of them together are more than staging holds */
    TINY_MEMORY = 5 << 20
};
static const double ROWS_BYTES = 20e9, MEMORY_BY_ROWS = 1.6;

struct checkpoints {
    struct training t;
    struct device_table *table;
    uint64_t memory_bytes, field_rows;
    uint32_t published, epoch; /* epoch of the last published checkpoint; of the next one */
    struct byte_buffer dense, record;
    pthread_t writer;
    bool is_begun; /* from then on the members below belong to the writer, until it has ended */
    atomic_bool is_written;
    bool is_good;
    struct gpu_error error;
    uint64_t rows; /* rows that the writer took */
    int64_t write_us;
};

/* --- One checkpoint --- */

static bool take_rows(void *argument, uint32_t table, const void *rows, size_t count)
{
    struct checkpoints *c = argument;
    (void)table;
    buffer_append(&c->record, rows, count * device_table_stored_bytes(c->table));
    c->rows += count;
    if (c->record.length >= RECORD_BYTES)
        buffer_clear(&c->record);
    return true;
}

/* There are no sketches, as ids are admitted at once. */
static bool take_counts(void *argument, uint32_t table, const void *blocks, size_t count)
{
    (void)argument, (void)table, (void)blocks;
    return count == 0;
}

static void *write_rows(void *argument)
{
    struct checkpoints *c = argument;
    int64_t begin_us = os_monotonic_us();
    c->rows = 0;
    c->is_good = device_table_snapshot_write(c->table, take_rows, take_counts, c, &c->error);
    c->write_us = os_monotonic_us() - begin_us;
    atomic_store_explicit(&c->is_written, true, memory_order_release);
    return NULL;
}

/* What a learner does at a barrier, until it may continue. */
static void run_barrier(struct place *place, void *state)
{
    (void)place;
    struct checkpoints *c = state;
    struct model *model = c->t.model;
    struct gpu_error error = {0};
    buffer_clear(&c->dense);
    model_save(model, &c->dense);
    training_check(model_error(model) == NULL, model_error(model));
    training_check(device_table_snapshot_begin(c->table, c->published, c->epoch, &error), &error);
    model_device_set_epoch(model, c->epoch + 1);
    atomic_store_explicit(&c->is_written, false, memory_order_relaxed);
    c->is_begun = true;
    int status = pthread_create(&c->writer, NULL, write_rows, c);
    leat_assert(status == 0);
    for (unsigned round = 0; device_table_is_held(c->table); round++)
        team_pause(round);
}

static void run_save(struct place *place, void *state)
{
    (void)place;
    struct checkpoints *c = state;
    buffer_clear(&c->dense);
    model_save(c->t.model, &c->dense);
}

/* Waits for the writer and publishes its checkpoint. */
static void end_checkpoint(struct checkpoints *c)
{
    if (!c->is_begun)
        return;
    int status = pthread_join(c->writer, NULL);
    leat_assert(status == 0);
    training_check(c->is_good, &c->error);
    device_table_snapshot_end(c->table, true);
    c->published = c->epoch++;
    c->is_begun = false;
}

static bool may_checkpoint(const struct checkpoints *c)
{
    return !c->is_begun || atomic_load_explicit(&c->is_written, memory_order_acquire);
}

/* Ends the last checkpoint, then learns all chosen rows once, so that all of them have changed since. */
static void change_rows(struct place *place, void *state)
{
    struct checkpoints *c = state;
    end_checkpoint(c);
    for (uint32_t i = 0; i < c->t.turns; i++)
        training_step(place, &c->t);
}

/* --- A stretch of time --- */

struct stretch {
    double s;
    uint64_t steps;
    uint32_t checkpoints;
    int64_t stop_us, write_us; /* the longest barrier; the longest writing */
};

static void checkpoint(struct checkpoints *c, struct stretch *done)
{
    place_wait(c->t.place); /* otherwise the pause would include the queued step */
    int64_t begin_us = os_monotonic_us();
    end_checkpoint(c);
    run_barrier(c->t.place, c);
    done->stop_us = MAX(done->stop_us, os_monotonic_us() - begin_us);
    done->checkpoints++;
}

/* Trains for `seconds`, with a checkpoint every PERIOD_S, or later if the last one is not written yet;
 * SIZE_TINY: one step. */
static struct stretch train_for(struct checkpoints *c, double seconds, bool has_checkpoints)
{
    struct place *place = c->t.place;
    struct stretch done = {0};
    place_wait(place);
    int64_t begin_us = os_monotonic_us();
    do {
        if (has_checkpoints && done.s >= (double)(done.checkpoints * PERIOD_S) && may_checkpoint(c)) {
            done.write_us = MAX(done.write_us, c->is_begun ? c->write_us : 0);
            checkpoint(c, &done);
        }
        training_step(place, &c->t);
        done.steps++;
        done.s = (double)(os_monotonic_us() - begin_us) * 1e-6;
    } while (done.s < seconds && place->size != SIZE_TINY);
    place_wait(place);
    done.s = (double)(os_monotonic_us() - begin_us) * 1e-6;
    if (has_checkpoints) {
        end_checkpoint(c);
        done.write_us = MAX(done.write_us, c->write_us);
    }
    return done;
}

/* --- Figures --- */

static double row_bytes_of(const struct checkpoints *c)
{
    return (double)(sizeof(struct gpu_row_head) + c->t.dim * sizeof(float));
}

static double changed_bytes(const struct checkpoints *c)
{
    return (double)c->rows * row_bytes_of(c);
}

static double all_bytes(const struct checkpoints *c)
{
    return (double)c->field_rows * c->t.fields * row_bytes_of(c);
}

static double staging_bytes(const struct checkpoints *c)
{
    return (double)c->memory_bytes / STAGING_PART;
}

/* Makes as many rows as fit in memory, up to ROWS_BYTES; none has changed since the last checkpoint. */
static void make(struct checkpoints *c, struct place *place, const struct training_shape *shape)
{
    uint32_t number;
    bool is_tiny = place->size == SIZE_TINY;
    double most = (double)training_memory(place);
    double wanted = is_tiny ? (double)TINY_MEMORY : ROWS_BYTES * MEMORY_BY_ROWS;
    *c = (struct checkpoints){.memory_bytes = (uint64_t)MIN(most, wanted), .published = 1, .epoch = 2};
    struct training_shape s = training_sized(place, shape);
    if (is_tiny)
        s.fields = TINY_FIELDS, s.dim = TINY_DIM;
    training_make(&c->t, place, &s, s.batches[0], c->memory_bytes);
    c->table = model_device_table(c->t.model, 0, &number);
    c->field_rows = TINY_ROWS;
    if (!is_tiny)
        c->field_rows = (uint64_t)((double)c->memory_bytes / MEMORY_BY_ROWS / row_bytes_of(c) / c->t.fields);
    training_rows(&c->t, c->field_rows);
    change_rows(place, c);
    model_device_set_epoch(c->t.model, c->epoch);
}

static void bench_pause(struct checkpoints *c)
{
    struct place *place = c->t.place;
    char what[160];
    double ms = place_wall_ms(place, run_barrier, change_rows, c);
    end_checkpoint(c);
    (void)snprintf(what, sizeof(what), "%.3g GB of %.3g GB have changed, staging %.3g GB",
                   changed_bytes(c) * 1e-9, all_bytes(c) * 1e-9, staging_bytes(c) * 1e-9);
    struct line line = {.group = "training",
                        .figure = "pause",
                        .what = what,
                        .variant = place->name,
                        .ms = ms,
                        .bytes = 2 * changed_bytes(c)}; /* read and written by the gathering */
    line_print(&line);
    line.figure = "pause, dense weights";
    line.what = "of it, model_save";
    line.ms = place_wall_ms(place, run_save, NULL, c);
    line.bytes = 0;
    line_print(&line);
}

static void print_steps(const struct checkpoints *c, const char *figure, const char *what, double s,
                        uint64_t steps)
{
    bool is_tiny = c->t.place->size == SIZE_TINY;
    line_print(&(struct line){.group = "training",
                              .figure = figure,
                              .what = what,
                              .variant = c->t.place->name,
                              .ms = is_tiny ? NAN : s * 1e3 / (double)steps,
                              .items = c->t.batch,
                              .unit = "samples"});
}

/* Describes the measurement; without times in the host's model. */
static void describe(const struct checkpoints *c, const struct stretch *done, char *what, size_t bytes)
{
    if (c->t.place->size == SIZE_TINY) {
        (void)snprintf(what, bytes, "a checkpoint and a step");
        return;
    }
    (void)snprintf(
        what, bytes,
        "%u in %.1f s, each of %.3g GB of %.3g GB, staging %.3g GB; training stood still for %.3g ms "
        "at most, writing took %.3g s at most",
        done->checkpoints, done->s, changed_bytes(c) * 1e-9, all_bytes(c) * 1e-9, staging_bytes(c) * 1e-9,
        (double)done->stop_us * 1e-3, (double)done->write_us * 1e-6);
}

static void bench_throughput(struct checkpoints *c, uint32_t percent)
{
    char figure[64], what[320];
    struct stretch before = train_for(c, ALONE_S, false);
    struct stretch done = train_for(c, (double)(PERIOD_S * CHECKPOINTS), true);
    struct stretch after = train_for(c, ALONE_S, false);
    describe(c, &done, what, sizeof(what));
    (void)snprintf(figure, sizeof(figure), "checkpoints %u %%", percent);
    print_steps(c, figure, what, done.s, done.steps);
    (void)snprintf(figure, sizeof(figure), "checkpoints %u %%, none", percent);
    print_steps(c, figure, "the same steps without", before.s + after.s, before.steps + after.steps);
}

void bench_checkpoints(struct place *place, const struct training_shape *shape, uint32_t percent)
{
    struct checkpoints c;
    make(&c, place, shape);
    training_rows(&c.t, MAX(c.field_rows * percent / 100, 1U));
    change_rows(place, &c);
    if (percent == 10)
        bench_pause(&c);
    bench_throughput(&c, percent);
    buffer_free(&c.dense);
    buffer_free(&c.record);
    training_free(&c.t);
}
