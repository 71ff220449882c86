#include "connectors/kafka/exact.h"

#include "core/civil.h"
#include "core/hex.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* STATE_VERSION_9: of checkpoints of format 9, whose sinks were one shard, and librdkafka chose partitions. */
enum { STATE_VERSION_9 = 2, STATE_VERSION = 3 };
enum { RECORD_STATE = 'S', RECORD_TOLD = 'T', RECORD_REDO = 'R' };

/* The first record of a base or a delta; the shards' records follow it, and those of their outboxes. */
struct state_record {
    uint8_t type, version, shards, is_delta, unused[4];
    uint64_t next; /* number of the first micro-batch behind the barrier */
    uint64_t rows;
    struct layout layout; /* of micro-batch `next` */
};

/* The same in format 9. */
struct state_record_9 {
    uint8_t type, version, has_told, is_delta, unused[4];
    uint64_t next, rows;
    uint8_t told[offsetof(struct progress_part, layout)];
};

/* The last part of a shard that is known to be out. */
struct told_record {
    uint8_t type, shard, unused[6];
    struct progress_part told;
};

struct remake_record {
    uint8_t type, shard, unused[62];
    struct remake_saved saved;
};

static const char fresh_hint[] =
    "find out what happened to the progress topic; or start a new run with --fresh, or with --from and "
    "--drop-state for this sink (rows that the topic already has are sent again, unless you change `topic` "
    "or the start of the sources)";

void exact_prepare(struct exact *exact, struct sink_context *context, const struct exact_options *options)
{
    exact->micro_batch = UINT64_MAX;
    exact->context = context;
    context->sends_checkpoints = true;
    exact->options = *options;
    exact->options.sender.said_us = &exact->said_us;
    outbox_room_init(&exact->room, options->budget_bytes, &context->is_full, context->wake, context->engine);
    exact->has_room = true;
    order_notes_init(&exact->order, context->life);
    if (context->notes_order)
        exact->options.sender.order = &exact->order;
}

static void make_shards(struct exact *exact, uint32_t count)
{
    exact->count = count;
    exact->shards = mem_calloc(count, sizeof(*exact->shards));
    for (uint32_t i = 0; i < count; i++)
        shard_init(&exact->shards[i], i, &exact->options.sender, &exact->room);
}

static void free_shards(struct exact *exact)
{
    shards_each(exact->shards, exact->count, shard_close);
    free(exact->shards);
    exact->shards = NULL;
    exact->count = 0;
}

static bool cannot_connect(struct exact *exact, const struct shard *shard)
{
    struct diag *d = diag_error(exact->context->diags, DIAG_OUTPUT_FAILED, (struct span){0, 0},
                                "sink `%.*s`: %s", STR_ARGS(exact->options.sender.sink), shard->sender.error);
    diag_hint(
        exact->context->diags, d,
        "nothing is lost: rows that were not sent are in the checkpoint; mend the cause and start again");
    return false;
}

static bool refuse(struct exact *exact, const char *why)
{
    struct diag *d = diag_error(exact->context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                                "progress topic `%s`: %s", exact->options.sender.progress_topic, why);
    diag_hint(exact->context->diags, d, "%s", fresh_hint);
    return false;
}

/* Fences the senders of all shards before it reads what is out of any: what a process of before still sends to one
 * shard could not be known from another. Returns false after a diagnostic. */
static bool connect_shards(struct exact *exact)
{
    struct shard *failed = shards_each(exact->shards, exact->count, shard_fence);
    if (failed == NULL)
        failed = shards_each(exact->shards, exact->count, shard_open);
    for (uint32_t i = 0; failed == NULL && i < exact->count; i++)
        exact->out_next = MAX(exact->out_next, shard_out_next(&exact->shards[i]));
    return failed == NULL || cannot_connect(exact, failed);
}

static void start_shards(struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++)
        sender_start(&exact->shards[i].sender);
}

/* Connects and begins to send, for a run without rows in its outboxes. */
static bool begin(struct exact *exact)
{
    make_shards(exact, shards_of(exact->options.partitions));
    layouts_add(&exact->layouts, (struct layout){.partitions = (uint32_t)exact->options.partitions});
    if (!connect_shards(exact))
        return false;
    for (uint32_t i = 0; i < exact->count; i++)
        exact->shards[i].floor = shard_out_next(&exact->shards[i]);
    start_shards(exact);
    return true;
}

/* The progress of a shard whose topic has rows of another run; NULL: none has. */
static const struct progress *find_others(const struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++)
        if (exact->shards[i].sender.progress.others > 0)
            return &exact->shards[i].sender.progress;
    return NULL;
}

/* Whether a new run may begin. Refuses, with a diagnostic, if another run of the job has sent rows to the
 * topic: this run reads from the beginning and would send them again. If that is intended (may_repeat), only
 * warns. */
static bool may_begin(struct exact *exact)
{
    const struct progress *progress = find_others(exact);
    struct sink_context *context = exact->context;
    char run[9], when[32] = "at an unknown time";
    if (progress == NULL)
        return true;
    hex_text(progress->other.run, 4, run);
    if (progress->other.time_ms > 0)
        when[civil_format(progress->other.time_ms * 1000, when)] = '\0';
    struct diag *d = (context->may_repeat ? diag_warning : diag_error)(
        context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
        "another run of this job (%s, last epoch %" PRIu64 ", %s) already wrote to topic `%s` of sink `%.*s`",
        run, progress->other.epoch, when, exact->options.sender.topic, STR_ARGS(exact->options.sender.sink));
    if (context->may_repeat)
        diag_hint(context->diags, d,
                  "this is a new run: it sends again the rows of records that it reads again");
    else
        diag_hint(
            context->diags, d,
            "to continue that run, start the job with its checkpoint directory; --from DIR begins a new run "
            "with a copy of its state; --fresh begins a new run without state: rows are sent a second time, "
            "unless you change `topic` or the start of the sources");
    return context->may_repeat;
}

bool exact_open(struct exact *exact, struct sink_context *context, const struct exact_options *options)
{
    exact_prepare(exact, context, options);
    return begin(exact) && may_begin(exact);
}

/* Checks that the checkpoint directory knows all micro-batches whose rows are out. If it does not, the
 * directory is an old copy, and the process that runs on the original may still send: this start must fail
 * without fencing that process. Returns false after a diagnostic. */
static bool may_go_on(struct exact *exact)
{
    const struct sink_context *context = exact->context;
    uint64_t out = 0, noted = 0;
    if (context->known_next == NULL)
        return true;
    const struct shard *failed = shards_each(exact->shards, exact->count, shard_look);
    if (failed != NULL)
        return cannot_connect(exact, failed);
    for (uint32_t i = 0; i < exact->count; i++) {
        out = MAX(out, exact->shards[i].looked);
        noted = MAX(noted, exact->shards[i].looked_order);
    }
    uint64_t known = context->known_next(context->engine);
    if (context->take_segment != NULL)
        known = MAX(known, noted);
    if (out <= known)
        return true;
    struct diag *d =
        diag_error(context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                   "topic `%s` of sink `%.*s` has rows of this run up to micro-batch %" PRIu64
                   ", and the checkpoint directory, or the head, ends before micro-batch %" PRIu64,
                   exact->options.sender.topic, STR_ARGS(exact->options.sender.sink), out - 1, known);
    diag_hint(
        context->diags, d,
        "this directory is an old copy, or has lost its newest checkpoints: start the job with the directory "
        "in which the run continued, or with the newest head of its workers; %s",
        fresh_hint);
    return false;
}

/* How many shards the run has is not known yet: each has a partition of the progress topic. */
bool exact_fence(struct sink_context *context, const struct exact_options *options)
{
    struct exact exact = {0};
    exact_prepare(&exact, context, options);
    exact.options.sender.is_resumed = true;
    exact.options.sender.keeps_order = context->take_segment != NULL;
    make_shards(&exact, shards_of(options->progress_partitions));
    bool is_good = may_go_on(&exact) && connect_shards(&exact) &&
                   (context->take_segment == NULL || exact_give_order(&exact));
    exact_close(&exact);
    return is_good;
}

/* --- Rows --- */

static bool differs(struct exact *exact)
{
    exact->has_differed = true;
    exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
    return false;
}

/* The first shard that cannot go on; NULL: all can. */
static struct shard *find_failed(const struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++)
        if (atomic_load(&exact->shards[i].sender.has_failed))
            return &exact->shards[i];
    return NULL;
}

bool exact_is_well(struct exact *exact, char *error, size_t room)
{
    struct shard *failed = find_failed(exact);
    if (!exact->has_differed && failed == NULL)
        return true;
    pthread_mutex_lock(&exact->room.mutex); /* the lane and the coordinator may both set the error */
    if (failed != NULL && atomic_load(&failed->sender.is_fenced))
        exact->context->error_code = DIAG_TAKEN_OVER;
    if (exact->has_differed)
        snprintf(
            error, room,
            "the rows computed again differ from the rows sent to `%s` before: none of these rows is sent; "
            "start a new run with --fresh",
            exact->options.sender.topic);
    else
        snprintf(error, room, "%s", failed->sender.error);
    pthread_mutex_unlock(&exact->room.mutex);
    return false;
}

bool exact_write(struct exact *exact, const struct kafka_record *record)
{
    uint64_t micro_batch = exact->context->micro_batch;
    struct kafka_record placed = *record;
    if (micro_batch != exact->micro_batch)
        exact->layout = layouts_at(&exact->layouts, micro_batch);
    exact->micro_batch = micro_batch;
    placed.partition = partitioner_choose(record, micro_batch, exact->layout.partitions);
    uint32_t number = placed.partition < 0 ? 0 : (uint32_t)placed.partition % exact->count;
    enum remake_verdict verdict = shard_write(&exact->shards[number], micro_batch, &placed);
    if (verdict == REMAKE_DIFFERS)
        return differs(exact);
    exact->redone += verdict == REMAKE_OUT;
    exact->rows++;
    return true;
}

void exact_account(struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++)
        outbox_account(&exact->shards[i].outbox);
}

/* --- Checkpoints --- */

/* Whether the rows that are out were made again, as far as the barrier goes. */
static bool is_remade(struct exact *exact, uint64_t next)
{
    bool is_good = !exact->has_differed;
    for (uint32_t i = 0; i < exact->count && is_good; i++) {
        struct remake *remake = &exact->shards[i].remake;
        is_good = !remake->is_on || remake_barrier(remake, next);
    }
    return is_good;
}

static bool snapshot_shard(struct shard *shard, struct snapshot_writer *writer)
{
    struct told_record told = {.type = RECORD_TOLD, .shard = (uint8_t)shard->options.shard};
    struct remake_record remake = {.type = RECORD_REDO, .shard = (uint8_t)shard->options.shard};
    bool is_good = true;
    if (sender_out(&shard->sender, &told.told))
        is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, &told, sizeof(told));
    if (is_good && shard->remake.is_on) {
        remake_save(&shard->remake, &remake.saved);
        is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, &remake, sizeof(remake));
    }
    return is_good && outbox_snapshot(&shard->outbox, writer);
}

bool exact_snapshot(struct exact *exact, struct snapshot_writer *writer)
{
    uint64_t next = exact->context->micro_batch + 1;
    if (!is_remade(exact, next)) {
        differs(exact);
        /* printed here, because nobody else says why the checkpoint failed */
        log_say(LOG_LEVEL_ERROR, "sink `%.*s`: %s", STR_ARGS(exact->options.sender.sink),
                exact->context->error);
        return false;
    }
    struct layout layout = layouts_at(&exact->layouts, next - 1);
    exact_take_partitions(exact, next);
    struct state_record state = {.type = RECORD_STATE,
                                 .version = STATE_VERSION,
                                 .shards = (uint8_t)exact->count,
                                 .is_delta = !snapshot_is_base(writer),
                                 .next = next,
                                 .rows = exact->rows,
                                 .layout = layouts_at(&exact->layouts, next)};
    for (uint32_t i = 0; i < exact->count; i++)
        outbox_close(&exact->shards[i].outbox, snapshot_epoch(writer), next, layout);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, &state, sizeof(state));
    for (uint32_t i = 0; i < exact->count && is_good; i++)
        is_good = snapshot_shard(&exact->shards[i], writer);
    return is_good;
}

/* --- Restoring --- */

/* Makes the shards, or forgets what an earlier base or delta said about them. */
static bool begin_restore(struct exact *exact, uint32_t shards, bool is_delta)
{
    if (shards == 0 || shards > SHARDS_MAX || (exact->shards != NULL && shards != exact->count))
        return false;
    if (exact->shards == NULL)
        make_shards(exact, shards);
    for (uint32_t i = 0; i < exact->count; i++) {
        struct shard *shard = &exact->shards[i];
        if (!is_delta)
            outbox_clear(&shard->outbox);
        shard->has_told = false;
        shard->saved.first = UINT64_MAX;
    }
    exact->layouts.count = 0;
    exact->restoring = SHARDS_MAX;
    return true;
}

static bool restore_state_9(struct exact *exact, struct str record)
{
    struct state_record_9 state;
    if (record.length != sizeof(state))
        return false;
    memcpy(&state, record.data, sizeof(state));
    if (!begin_restore(exact, 1, state.is_delta != 0))
        return false;
    exact->restored_next = state.next;
    exact->rows = state.rows;
    exact->shards[0].has_told = state.has_told != 0;
    memcpy(&exact->shards[0].told, state.told, sizeof(state.told));
    return true;
}

static bool restore_state(struct exact *exact, struct str record)
{
    struct state_record state;
    if (record.length > 1 && record.data[1] == STATE_VERSION_9)
        return restore_state_9(exact, record);
    if (record.length != sizeof(state))
        return false;
    memcpy(&state, record.data, sizeof(state));
    if (state.version != STATE_VERSION || state.layout.partitions > INT32_MAX ||
        !begin_restore(exact, state.shards, state.is_delta != 0))
        return false;
    exact->restored_next = state.next;
    exact->rows = state.rows;
    if (state.layout.partitions > 0)
        layouts_add(&exact->layouts, state.layout);
    return true;
}

/* The shard that the record's second byte names; NULL: there is none. */
static struct shard *shard_named(const struct exact *exact, struct str record)
{
    uint32_t number = record.length < 2 ? SHARDS_MAX : (uint8_t)record.data[1];
    return number < exact->count ? &exact->shards[number] : NULL;
}

bool exact_restore_record(struct exact *exact, struct str record)
{
    if (record.length == 0)
        return false;
    char type = record.data[0];
    if (type == RECORD_STATE)
        return restore_state(exact, record);
    if (type == OUTBOX_RECORD_CHUNK || type == OUTBOX_RECORD_MORE)
        return exact->restoring < exact->count &&
               outbox_restore(&exact->shards[exact->restoring].outbox, record);
    struct shard *shard = shard_named(exact, record);
    if (shard == NULL)
        return false;
    if (type == RECORD_TOLD) {
        if (record.length != sizeof(struct told_record))
            return false;
        memcpy(&shard->told, record.data + offsetof(struct told_record, told), sizeof(shard->told));
        shard->has_told = true;
        return true;
    }
    if (type == RECORD_REDO) {
        size_t head = offsetof(struct remake_record, saved);
        return record.length == sizeof(struct remake_record) &&
               remake_load(&shard->saved, (struct str){record.data + head, record.length - head});
    }
    exact->restoring = shard->options.shard;
    return outbox_restore(&shard->outbox, record);
}

/* Marks in the outboxes what is out by the progress topic, which must have at least the parts that the
 * checkpoint knew to be out. Returns false after a diagnostic. */
static bool take_progress(struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++) {
        const char *why = shard_take_progress(&exact->shards[i]);
        if (why != NULL)
            return refuse(exact, why);
    }
    return true;
}

/* Begins the comparison with rows that are made again: the run executes micro-batches up to the highest one that
 * is out in any shard, and each shard compares up to its own. Returns false after a diagnostic. */
static bool begin_remakes(struct exact *exact)
{
    exact_take_layouts(exact);
    if (!exact_has_partitions(exact, exact->restored_next))
        return false;
    exact_take_partitions(exact, exact->restored_next);
    for (uint32_t i = 0; i < exact->count; i++) {
        struct shard *shard = &exact->shards[i];
        const char *why = shard_begin_remake(shard, exact->restored_next);
        if (why != NULL)
            return refuse(exact, why);
        if (!shard->remake.is_on || remake_next(&shard->remake) <= exact->context->redo_next)
            continue;
        char text[200];
        snprintf(text, sizeof(text),
                 "rows before micro-batch %" PRIu64
                 " were sent, and the order of rows is known before micro-batch %" PRIu64 " only",
                 remake_next(&shard->remake), exact->context->redo_next);
        return refuse(exact, text);
    }
    return true;
}

/* Warns of rows that the other run has sent behind the checkpoint: this run makes and sends them again. */
static void warn_of_rows(struct exact *exact)
{
    if (exact->out_next <= exact->restored_next)
        return;
    struct diag *d = diag_warning(exact->context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                                  "topic `%s` has rows behind the checkpoint, of the micro-batches %" PRIu64
                                  " to %" PRIu64,
                                  exact->options.sender.topic, exact->restored_next, exact->out_next - 1);
    diag_hint(exact->context->diags, d,
              "this is a new run: it sends again the rows of records that it reads again");
}

/* Waits until all shards' committed epochs are out. Returns the first shard that failed, or NULL. */
static const struct shard *drain_shards(struct exact *exact)
{
    for (uint32_t i = 0; i < exact->count; i++)
        if (!sender_drain(&exact->shards[i].sender))
            return &exact->shards[i];
    return NULL;
}

/* Begins a run from another run's checkpoint (--from). Records that the checkpoint holds and that are not out
 * are sent under the other run's ids, so that they are sent once however often this run begins. Then the sink
 * is this run's own, with empty outboxes, and as many shards as the topic now has partitions. */
static bool take_over(struct exact *exact)
{
    const struct sink_context *context = exact->context;
    for (uint32_t i = 0; i < exact->count; i++) {
        struct sender_options *options = &exact->shards[i].options;
        memcpy(options->run_id, context->from_run, sizeof(options->run_id));
        options->job = context->from_job;
        options->is_resumed = true;
        options->is_new_run = false;
    }
    if (!connect_shards(exact) || !take_progress(exact) || !exact_has_partitions(exact, UINT64_MAX))
        return false;
    warn_of_rows(exact);
    start_shards(exact);
    const struct shard *failed = drain_shards(exact);
    if (failed != NULL)
        return cannot_connect(exact, failed);
    free_shards(exact);
    exact->layouts.count = 0;
    exact->out_next = 0;
    return begin(exact);
}

bool exact_restored(struct exact *exact, struct snapshot_reader *reader)
{
    bool is_whole = exact->count > 0;
    for (uint32_t i = 0; i < exact->count; i++)
        is_whole &= outbox_restored(&exact->shards[i].outbox, !exact->context->is_uncommitted);
    if (!is_whole) {
        snapshot_corrupt(reader, exact->context->diags, "the outbox of a Kafka sink is incomplete");
        return false;
    }
    if (exact->options.progress_partitions < (int32_t)exact->count)
        return refuse(
            exact,
            "the topic was emptied, or deleted and created again: it has fewer partitions than the run has shards");
    if (exact->context->is_from)
        return take_over(exact);
    for (uint32_t i = 0; i < exact->count; i++)
        exact->shards[i].options.is_resumed = true;
    if (!connect_shards(exact) || !take_progress(exact) || !begin_remakes(exact))
        return false;
    exact_begin_order(exact);
    start_shards(exact);
    return true;
}

/* --- Sending --- */

bool exact_committed(struct exact *exact, uint64_t epoch, struct str order)
{
    failpoint("kafka.committed");
    if (exact->options.sender.order != NULL)
        order_notes_add(&exact->order, order);
    for (uint32_t i = 0; i < exact->count; i++)
        outbox_committed(&exact->shards[i].outbox, epoch);
    return exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
}

void exact_stored(struct exact *exact, uint64_t epoch)
{
    if (exact->options.sender.order != NULL)
        order_notes_stored(&exact->order, epoch);
}

bool exact_drain(struct exact *exact)
{
    return (!exact->has_differed && drain_shards(exact) == NULL) ||
           exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
}

void exact_close(struct exact *exact)
{
    if (!exact->has_room)
        return;
    free_shards(exact);
    outbox_room_free(&exact->room);
    order_notes_free(&exact->order);
    exact->has_room = false;
}
