#include "connectors/kafka/exact.h"

#include "core/civil.h"
#include "core/hex.h"
#include "core/log.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>

enum { STATE_VERSION = 2, RECORD_STATE = 'S', RECORD_REDO = 'R' };

/* The first record of a base or a delta; the outbox's records follow it. */
struct state_record {
    uint8_t type, version, has_told, is_delta, unused[4];
    uint64_t next; /* number of the first micro-batch behind the barrier */
    uint64_t rows;
    struct progress_part told;
};

struct remake_record {
    uint8_t type, unused[63];
    struct remake_saved saved;
};

static const char fresh_hint[] =
    "find out what happened to the progress topic; or start a new run with --fresh, or with --from and "
    "--drop-state for this sink (rows that the topic already has are sent again, unless you change `topic` "
    "or the start of the sources)";

void exact_prepare(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                   uint64_t budget_bytes)
{
    exact->micro_batch = UINT64_MAX;
    exact->context = context;
    context->sends_checkpoints = true;
    exact->options = *options;
    outbox_init(&exact->outbox, budget_bytes, &context->is_full, context->wake, context->engine);
    exact->has_outbox = true;
}

static bool cannot_connect(struct exact *exact)
{
    struct diag *d = diag_error(exact->context->diags, DIAG_OUTPUT_FAILED, (struct span){0, 0},
                                "sink `%.*s`: %s", STR_ARGS(exact->options.sink), exact->sender.error);
    diag_hint(
        exact->context->diags, d,
        "nothing is lost: rows that were not sent are in the checkpoint; mend the cause and start again");
    return false;
}

static bool refuse(struct exact *exact, const char *why)
{
    struct diag *d = diag_error(exact->context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                                "progress topic `%s`: %s", exact->options.progress_topic, why);
    diag_hint(exact->context->diags, d, "%s", fresh_hint);
    return false;
}

/* Connects and begins to send, for a run whose outbox is empty. */
static bool begin(struct exact *exact)
{
    if (!sender_open(&exact->sender, &exact->options, &exact->outbox))
        return cannot_connect(exact);
    const struct progress_part *last = progress_last(&exact->sender.progress);
    exact->floor = last == NULL ? 0 : last->next;
    sender_start(&exact->sender);
    return true;
}

/* Whether a new run may begin. Refuses, with a diagnostic, if another run of the job has sent rows to the
 * topic: this run reads from the beginning and would send them again. If that is intended (may_repeat), only
 * warns. */
static bool may_begin(struct exact *exact)
{
    const struct progress *progress = &exact->sender.progress;
    struct sink_context *context = exact->context;
    char run[9], when[32] = "at an unknown time";
    if (progress->others == 0)
        return true;
    hex_text(progress->other.run, 4, run);
    if (progress->other.time_ms > 0)
        when[civil_format(progress->other.time_ms * 1000, when)] = '\0';
    struct diag *d = (context->may_repeat ? diag_warning : diag_error)(
        context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
        "another run of this job (%s, last epoch %" PRIu64 ", %s) already wrote to topic `%s` of sink `%.*s`",
        run, progress->other.epoch, when, exact->options.topic, STR_ARGS(exact->options.sink));
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

bool exact_open(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                uint64_t budget_bytes)
{
    exact_prepare(exact, context, options, budget_bytes);
    return begin(exact) && may_begin(exact);
}

/* Checks that the checkpoint directory knows all micro-batches whose rows are out. If it does not, the
 * directory is an old copy, and the process that runs on the original may still send: this start must fail
 * without fencing that process. Returns false after a diagnostic. */
static bool may_go_on(struct exact *exact)
{
    const struct sink_context *context = exact->context;
    uint64_t out;
    if (context->known_next == NULL)
        return true;
    if (!sender_look(&exact->options, &out, exact->sender.error, sizeof(exact->sender.error)))
        return cannot_connect(exact);
    uint64_t known = context->known_next(context->engine);
    if (out <= known)
        return true;
    struct diag *d = diag_error(context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                                "topic `%s` of sink `%.*s` has rows of this run up to micro-batch %" PRIu64
                                ", and the checkpoint directory ends before micro-batch %" PRIu64,
                                exact->options.topic, STR_ARGS(exact->options.sink), out - 1, known);
    diag_hint(
        context->diags, d,
        "this directory is an old copy, or has lost its newest checkpoints: start the job with the directory "
        "in which the run continued; %s",
        fresh_hint);
    return false;
}

bool exact_fence(struct sink_context *context, const struct sender_options *options)
{
    struct exact exact = {0};
    exact_prepare(&exact, context, options, 1);
    exact.options.is_resumed = true;
    bool is_good = may_go_on(&exact) &&
                   (sender_open(&exact.sender, &exact.options, &exact.outbox) || cannot_connect(&exact));
    sender_close(&exact.sender);
    outbox_free(&exact.outbox);
    return is_good;
}

/* --- Rows --- */

static bool differs(struct exact *exact)
{
    exact->has_differed = true;
    exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
    return false;
}

bool exact_is_well(struct exact *exact, char *error, size_t room)
{
    if (!exact->has_differed && !atomic_load(&exact->sender.has_failed))
        return true;
    pthread_mutex_lock(&exact->outbox.mutex); /* the lane and the coordinator may both set the error */
    if (atomic_load(&exact->sender.is_fenced))
        exact->context->error_code = DIAG_TAKEN_OVER;
    if (exact->has_differed)
        snprintf(
            error, room,
            "the rows computed again differ from the rows sent to `%s` before: none of these rows is sent; "
            "start a new run with --fresh",
            exact->options.topic);
    else
        snprintf(error, room, "%s", exact->sender.error);
    pthread_mutex_unlock(&exact->outbox.mutex);
    return false;
}

bool exact_write(struct exact *exact, const struct kafka_record *record)
{
    uint64_t micro_batch = exact->context->micro_batch;
    exact->index = micro_batch == exact->micro_batch ? exact->index + 1 : 0;
    exact->micro_batch = micro_batch;
    if (exact->remake.is_on) {
        enum remake_verdict verdict = remake_record(&exact->remake, micro_batch, exact->index, record);
        if (verdict == REMAKE_DIFFERS)
            return differs(exact);
        if (verdict == REMAKE_OUT) {
            exact->redone++;
            exact->rows++;
            return true;
        }
    }
    if (micro_batch < exact->floor)
        return differs(exact);
    outbox_append(&exact->outbox, micro_batch, exact->index, record);
    exact->rows++;
    return true;
}

void exact_account(struct exact *exact)
{
    outbox_account(&exact->outbox);
}

/* --- Checkpoints --- */

bool exact_snapshot(struct exact *exact, struct snapshot_writer *writer)
{
    uint64_t next = exact->context->micro_batch + 1;
    if (exact->has_differed || (exact->remake.is_on && !remake_barrier(&exact->remake, next))) {
        differs(exact);
        /* printed here, because nobody else says why the checkpoint failed */
        log_say(LOG_LEVEL_ERROR, "sink `%.*s`: %s", STR_ARGS(exact->options.sink), exact->context->error);
        return false;
    }
    struct state_record state = {.type = RECORD_STATE,
                                 .version = STATE_VERSION,
                                 .is_delta = !snapshot_is_base(writer),
                                 .next = next,
                                 .rows = exact->rows};
    state.has_told = sender_out(&exact->sender, &state.told);
    outbox_close(&exact->outbox, snapshot_epoch(writer), next);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, &state, sizeof(state));
    if (is_good && exact->remake.is_on) {
        struct remake_record remake = {.type = RECORD_REDO};
        remake_save(&exact->remake, &remake.saved);
        is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, &remake, sizeof(remake));
    }
    return outbox_snapshot(&exact->outbox, writer) && is_good;
}

bool exact_restore_record(struct exact *exact, struct str record)
{
    struct state_record state;
    if (record.length == 0)
        return false;
    if (record.data[0] == RECORD_STATE) {
        if (record.length != sizeof(state))
            return false;
        memcpy(&state, record.data, sizeof(state));
        if (!state.is_delta)
            outbox_clear(&exact->outbox);
        exact->restored_next = state.next;
        exact->rows = state.rows;
        exact->has_told = state.has_told != 0;
        exact->told = state.told;
        exact->saved.first = UINT64_MAX;
        return state.version == STATE_VERSION;
    }
    if (record.data[0] == RECORD_REDO) {
        size_t head = offsetof(struct remake_record, saved);
        return record.length == sizeof(struct remake_record) &&
               remake_load(&exact->saved, (struct str){record.data + head, record.length - head});
    }
    return outbox_restore(&exact->outbox, record);
}

static int compare_parts(const struct progress_part *a, const struct progress_part *b)
{
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

/* Marks in the outbox what is out by the progress topic, which must have at least the parts that the
 * checkpoint knew to be out; then begins the comparison with rows that are made again. Returns false after
 * a diagnostic. */
static bool take_progress(struct exact *exact)
{
    const struct progress *progress = &exact->sender.progress;
    const struct progress_part *last = progress_last(progress);
    if (!exact->sender.had_life)
        return refuse(
            exact,
            "the topic has no records of this run: the topic was emptied, or deleted and created again");
    if (exact->has_told && (last == NULL || compare_parts(last, &exact->told) < 0))
        return refuse(
            exact,
            "notes of rows that were sent before the checkpoint are missing: the topic's end was cut off");
    const char *why = outbox_skip(&exact->outbox, last);
    exact->outbox.out_records = exact->outbox.out_bytes = 0; /* what outbox_skip counted was sent by an
                                                                earlier life */
    if (why == NULL)
        why = remake_begin(&exact->remake, progress, exact->restored_next, &exact->saved);
    if (why != NULL)
        return refuse(exact, why);
    if (!exact->remake.is_on)
        return true;
    if (remake_next(&exact->remake) > exact->context->redo_next) {
        char text[200];
        snprintf(text, sizeof(text),
                 "rows before micro-batch %" PRIu64
                 " were sent, and the order of rows is known before micro-batch %" PRIu64 " only",
                 remake_next(&exact->remake), exact->context->redo_next);
        return refuse(exact, text);
    }
    exact->floor = remake_floor(&exact->remake);
    return true;
}

/* Warns of rows that the other run has sent behind the checkpoint: this run makes and sends them again. */
static void warn_of_rows(struct exact *exact)
{
    const struct progress_part *last = progress_last(&exact->sender.progress);
    if (last == NULL || last->next <= exact->restored_next)
        return;
    struct diag *d = diag_warning(exact->context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                                  "topic `%s` has rows behind the checkpoint, of the micro-batches %" PRIu64
                                  " to %" PRIu64,
                                  exact->options.topic, exact->restored_next, last->next - 1);
    diag_hint(exact->context->diags, d,
              "this is a new run: it sends again the rows of records that it reads again");
}

/* Begins a run from another run's checkpoint (--from). Records that the checkpoint holds and that are not out
 * are sent under the other run's id, so that they are sent once however often this run begins. Then the sink
 * is this run's own, with an empty outbox. */
static bool take_over(struct exact *exact)
{
    struct sink_context *context = exact->context;
    struct sender_options own = exact->options;
    memcpy(exact->options.run_id, context->from_run, sizeof(exact->options.run_id));
    exact->options.job = context->from_job;
    exact->options.is_resumed = true;
    exact->options.is_new_run = false;
    bool is_good = sender_open(&exact->sender, &exact->options, &exact->outbox);
    if (!is_good)
        return cannot_connect(exact);
    const struct progress_part *last = progress_last(&exact->sender.progress);
    if (!exact->sender.had_life)
        return refuse(exact,
                      "the topic has no records of the checkpoint's run: the topic was emptied, or deleted "
                      "and created again");
    if (exact->has_told && (last == NULL || compare_parts(last, &exact->told) < 0))
        return refuse(
            exact,
            "notes of rows that were sent before the checkpoint are missing: the topic's end was cut off");
    const char *why = outbox_skip(&exact->outbox, last);
    if (why != NULL)
        return refuse(exact, why);
    warn_of_rows(exact);
    sender_start(&exact->sender);
    if (!sender_drain(&exact->sender))
        return cannot_connect(exact);
    sender_close(&exact->sender);
    memset(&exact->sender, 0, sizeof(exact->sender));
    outbox_free(&exact->outbox);
    exact_prepare(exact, context, &own, exact->outbox.budget_bytes);
    exact->has_told = false;
    return begin(exact);
}

bool exact_restored(struct exact *exact, struct snapshot_reader *reader)
{
    if (!outbox_restored(&exact->outbox)) {
        snapshot_corrupt(reader, exact->context->diags, "the outbox of a Kafka sink is incomplete");
        return false;
    }
    if (exact->context->is_from)
        return take_over(exact);
    exact->options.is_resumed = true;
    if (!sender_open(&exact->sender, &exact->options, &exact->outbox))
        return cannot_connect(exact);
    if (!take_progress(exact))
        return false;
    sender_start(&exact->sender);
    return true;
}

bool exact_committed(struct exact *exact, uint64_t epoch)
{
    failpoint("kafka.committed");
    outbox_committed(&exact->outbox, epoch);
    return exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
}

bool exact_drain(struct exact *exact)
{
    return !exact->has_differed && sender_drain(&exact->sender)
               ? true
               : exact_is_well(exact, exact->context->error, sizeof(exact->context->error));
}

void exact_describe(struct exact *exact, struct byte_buffer *out)
{
    struct sender_figures *figures = &exact->sender.figures;
    struct outbox_figures outbox = outbox_figures(&exact->outbox);
    uint64_t aborted = atomic_load(&figures->aborted), transactions = atomic_load(&figures->transactions);
    buffer_printf(out, "%" PRIu64 " row%s", exact->rows, exact->rows == 1 ? "" : "s");
    if (exact->redone > 0)
        buffer_printf(out, ", %" PRIu64 " computed again and not sent", exact->redone);
    buffer_printf(out, "; sent %" PRIu64 " records, %" PRIu64 " bytes in %" PRIu64 " transaction%s",
                  outbox.out_records, outbox.out_bytes, transactions, transactions == 1 ? "" : "s");
    if (aborted > 0)
        buffer_printf(out, ", %" PRIu64 " aborted", aborted);
}

void exact_report(struct exact *exact, struct report *report)
{
    if (!exact->has_outbox)
        return;
    struct outbox_figures figures = outbox_figures(&exact->outbox);
    report_add(report, "epochs_waiting", (double)figures.epochs, false);
    report_add(report, "records_waiting", (double)figures.records, false);
    report_add(report, "bytes_waiting", (double)figures.bytes, false);
    report_add(report, "outbox_share", (double)figures.bytes / (double)exact->outbox.budget_bytes, false);
    report_add(report, "records_sent", (double)figures.out_records, false);
    report_add(report, "bytes_sent", (double)figures.out_bytes, false);
    sender_report(&exact->sender, report);
}

void exact_close(struct exact *exact)
{
    if (!exact->has_outbox)
        return;
    sender_close(&exact->sender);
    remake_free(&exact->remake);
    outbox_free(&exact->outbox);
    exact->has_outbox = false;
}
