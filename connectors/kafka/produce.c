#include "connectors/kafka/produce.h"

#include "connectors/kafka/sender.h"

#include "core/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum {
    BUDGET_BYTES = 64 << 20,
    COMMIT_EVERY_US = 200000,
    LOOK_EVERY = 256, /* records between two looks at the outbox's budget and the clock */
    SHOW_EVERY_US = 100000,
    NAP_US = 2000,
    TRANSACTION_US = 60000000,
};

static const struct span no_span = {0, 0};
static const struct str job_name = {"produce", 7};

struct produce {
    const struct produce_options *options;
    struct produce_input *input;
    struct produce_figures *figures;
    struct diag_list *diags;
    struct outbox_room room;
    struct outbox outbox;
    struct sender sender;
    _Atomic bool is_full;
    uint64_t epoch, next; /* record number behind the last record taken */
    int64_t begin_us, committed_us, shown_us;
    int64_t first_ms; /* time of the first record that has one; 0: none yet */
    uint64_t paced;   /* records taken since begin_us */
};

/* --- Errors --- */

static bool refuse(struct produce *p, enum diag_code code, const char *hint, const char *format, ...)
    LEAT_PRINTF(4, 5);
static bool refuse(struct produce *p, enum diag_code code, const char *hint, const char *format, ...)
{
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    diag_hint(p->diags, diag_error(p->diags, code, no_span, "%s", text), "%s", hint);
    return false;
}

static bool is_well(struct produce *p)
{
    if (!atomic_load(&p->sender.has_failed))
        return true;
    return refuse(p, DIAG_OUTPUT_FAILED,
                  "the progress topic notes which records were sent: mend the cause, and the same command "
                  "continues behind them",
                  "%s", p->sender.error);
}

/* --- Topics --- */

static bool check_answer(struct produce *p, enum admin_answer answer, const struct admin_call *call)
{
    if (answer == ADMIN_GOOD)
        return true;
    return refuse(p, DIAG_KAFKA_FAILED, "mend the cause, and give the same command again", "%s", call->why);
}

/* *batch_bytes: as admin_partitions says. */
static bool ensure_topics(struct produce *p, int64_t *batch_bytes)
{
    static const struct admin_config none[] = {{NULL, NULL}};
    const struct produce_options *o = p->options;
    _Atomic bool never = false;
    int32_t partitions = 0;
    struct kafka_patience patience = kafka_patience_begin(o->patience_us, o->stop, NULL, (struct str){"", 0});
    struct admin_call call = {.client = o->client,
                              .job = job_name,
                              .name = o->name,
                              .deadline_us = os_monotonic_us() + o->patience_us,
                              .patience = &patience,
                              .must_stop = &never};
    enum admin_answer answer = admin_partitions(&call, o->topic, &partitions, batch_bytes);
    if (answer == ADMIN_MISSING && o->create > 0) {
        answer = admin_create(&call, o->topic, o->create, -1, none);
        partitions = o->create;
    }
    if (answer == ADMIN_MISSING)
        return refuse(p, DIAG_NO_TOPIC,
                      "create the topic, or let leat create it: `--create 4` with the number of partitions",
                      "the topic `%s` does not exist", o->topic);
    if (!check_answer(p, answer, &call))
        return false;
    if (partitions < o->partitions)
        return refuse(p, DIAG_NO_TOPIC,
                      "give the topic as many partitions, or let keys choose the partitions: --repartition",
                      "the topic `%s` has %d partitions, and the input has records of partition %d", o->topic,
                      (int)partitions, (int)o->partitions - 1);
    answer = admin_partitions(&call, o->progress_topic, &partitions, NULL);
    if (answer == ADMIN_MISSING) {
        answer = admin_create_progress(&call, o->progress_topic, 1);
        partitions = 1;
    }
    if (answer == ADMIN_GOOD && partitions != 1)
        return refuse(p, DIAG_NO_TOPIC, "name another progress topic: --progress-topic",
                      "the progress topic `%s` has %d partitions, and must have one", o->progress_topic,
                      (int)partitions);
    return check_answer(p, answer, &call);
}

/* --- What is out already --- */

/* Skips the records that are out, by the last part in the progress topic, and compares those of that part
 * with its digest. record, status: the first record to send. Returns false after a diagnostic. */
static bool pass_over(struct produce *p, const struct progress_part *last, struct produced *record,
                      enum recorded_status *status)
{
    static const char hint[] =
        "give the command the same input as before; or choose another --name, which sends all records, also "
        "those that the topic has already";
    XXH3_state_t state;
    uint8_t digest[16];
    uint64_t of_part = 0;
    XXH3_128bits_reset(&state);
    bool is_torn = last->to < last->total, is_cut = false;
    bool may_be_cut = p->input->may_be_cut && !is_torn;
    while ((*status = p->input->next(p->input->self, record)) == RECORDED) {
        /* If the input is a topic, retention or compaction may have deleted records that were sent: then
         * nothing is compared. */
        is_cut |= may_be_cut && p->figures->there_before == 0 && record->number > last->first;
        bool is_out =
            record->number < last->first || (is_torn ? of_part < last->to : record->number < last->next);
        if (!is_out)
            break;
        p->figures->there_before++;
        if (record->number >= last->first && ++of_part > last->from)
            record_digest(&state, &record->record);
        if (*p->options->stop)
            return true;
    }
    if (*status == RECORDED_ERROR)
        return false;
    is_cut |=
        may_be_cut && (of_part < last->to || (*status == RECORDED_END && p->figures->there_before == 0));
    record_digest_end(&state, digest);
    if (is_cut || (of_part == last->to && memcmp(digest, last->digest, sizeof(digest)) == 0))
        return true;
    return refuse(p, DIAG_FILE_CHANGED, hint,
                  "the input differs from the records sent to `%s` before, at the records %" PRIu64
                  " to %" PRIu64,
                  p->options->topic, last->first, last->next - 1);
}

/* Finds the first record to send, and the status of reading it. Returns false after a diagnostic. */
static bool find_begin(struct produce *p, struct produced *record, enum recorded_status *status)
{
    const struct progress *progress = &p->sender.progress;
    const struct progress_part *last = progress_last(progress);
    if (last == NULL && progress->others > 0)
        return refuse(
            p, DIAG_FILE_CHANGED,
            "choose another --name, which sends all records, also those that the topic has already",
            "other records were sent to `%s` under this name: the recording or the options have changed",
            p->options->topic);
    if (last != NULL)
        return pass_over(p, last, record, status);
    *status = p->input->next(p->input->self, record);
    return *status != RECORDED_ERROR;
}

/* --- Sending --- */

static void commit(struct produce *p)
{
    p->committed_us = os_monotonic_us();
    outbox_close(&p->outbox, ++p->epoch, p->next, (struct layout){0});
    outbox_committed(&p->outbox, p->epoch);
}

static void show(struct produce *p, bool is_last)
{
    int64_t now = os_monotonic_us();
    if (!is_last && now - p->shown_us < SHOW_EVERY_US)
        return;
    p->shown_us = now;
    struct outbox_figures outbox = outbox_figures(&p->outbox);
    p->figures->sent = outbox.out_records;
    p->figures->sent_bytes = outbox.out_bytes;
    p->figures->transactions = atomic_load(&p->sender.figures.transactions);
    if (p->options->show != NULL)
        p->options->show(p->options->argument, p->figures, is_last);
}

static bool is_over(const struct produce *p)
{
    return *p->options->stop || atomic_load(&p->sender.has_failed);
}

static void nap(struct produce *p, int64_t us)
{
    struct timespec rest = {0, MIN(us, 20000) * 1000};
    nanosleep(&rest, NULL);
    show(p, false);
}

/* When the record may be sent (os_monotonic_us). */
static int64_t due_us(struct produce *p, const struct produced *record)
{
    const struct produce_options *o = p->options;
    int64_t due = 0;
    if (o->rate > 0)
        due = p->begin_us + (int64_t)((double)p->paced * 1e6 / o->rate);
    if (o->speed > 0 && record->time_ms > 0) {
        if (p->first_ms == 0)
            p->first_ms = record->time_ms;
        double after_us = (double)(record->time_ms - p->first_ms) * 1e3 / o->speed;
        due = MAX(due, p->begin_us + (int64_t)fmax(after_us, 0));
    }
    return due;
}

static void wait_for(struct produce *p, int64_t due)
{
    int64_t now;
    while (due > (now = os_monotonic_us()) && !is_over(p)) {
        if (now - p->committed_us >= COMMIT_EVERY_US)
            commit(p);
        nap(p, due - now);
    }
}

static bool send_all(struct produce *p)
{
    struct produced record;
    enum recorded_status status = RECORDED_ERROR;
    if (!find_begin(p, &record, &status))
        return false;
    p->begin_us = p->committed_us = os_monotonic_us();
    bool is_paced = p->options->rate > 0 || p->options->speed > 0;
    for (; status == RECORDED && !is_over(p); status = p->input->next(p->input->self, &record)) {
        if (is_paced)
            wait_for(p, due_us(p, &record));
        if (is_over(p))
            break;
        /* 0: the client adds the time of sending, which is the same for many records of a commit. */
        record.record.time_ms = p->options->keeps_times && record.time_ms > 0 ? record.time_ms
                                : is_paced                                    ? os_wall_us() / 1000
                                                                              : 0;
        leat_assert(record.number >= p->next);
        outbox_append(&p->outbox, record.number, 0, &record.record);
        p->next = record.number + 1;
        p->paced++;
        if (++p->figures->taken % LOOK_EVERY != 0)
            continue;
        outbox_account(&p->outbox);
        if (atomic_load(&p->is_full) || os_monotonic_us() - p->committed_us >= COMMIT_EVERY_US)
            commit(p);
        while (atomic_load(&p->is_full) && !is_over(p))
            nap(p, NAP_US);
        show(p, false);
    }
    commit(p);
    p->figures->is_done = status == RECORDED_END && !*p->options->stop;
    return status != RECORDED_ERROR;
}

/* Waits until all records taken are out; fails if brokers accept nothing for patience_us. */
static bool drain(struct produce *p)
{
    uint64_t seen = 0;
    int64_t moved_us = os_monotonic_us();
    while (!outbox_is_sent(&p->outbox) && !atomic_load(&p->sender.has_failed)) {
        uint64_t transactions = atomic_load(&p->sender.figures.transactions);
        if (transactions != seen)
            moved_us = os_monotonic_us();
        seen = transactions;
        if (os_monotonic_us() - moved_us > p->options->patience_us)
            return refuse(p, DIAG_KAFKA_FAILED,
                          "the same command continues behind the records that they took",
                          "brokers did not take all records in time");
        nap(p, NAP_US);
    }
    return is_well(p);
}

static void wake(void *engine LEAT_UNUSED)
{
}

bool produce_run(const struct produce_options *options, struct produce_input *input,
                 struct produce_figures *figures, struct diag_list *diags)
{
    struct produce state = {.options = options, .input = input, .figures = figures, .diags = diags};
    struct produce *p = &state;
    struct sender_options sending = {.client = options->client,
                                     .job = job_name,
                                     .sink = options->name,
                                     .topic = options->topic,
                                     .progress_topic = options->progress_topic,
                                     .compression = options->compression,
                                     .timeout_us = TRANSACTION_US,
                                     .patience_us = options->patience_us,
                                     .stop = options->stop};
    memcpy(sending.run_id, options->identity, sizeof(sending.run_id));
    *figures = (struct produce_figures){0};
    outbox_room_init(&p->room, BUDGET_BYTES, &p->is_full, wake, NULL);
    outbox_init(&p->outbox, &p->room, 0);
    bool is_good = ensure_topics(p, &sending.batch_bytes);
    if (is_good) {
        is_good = (sender_fence(&p->sender, &sending, &p->outbox) && sender_open(&p->sender)) || is_well(p);
        if (is_good) {
            sender_start(&p->sender);
            bool is_sent = send_all(p);
            is_good = drain(p) && is_sent;
            figures->is_done &= is_good;
            show(p, true);
        }
        sender_close(&p->sender);
    }
    outbox_free(&p->outbox);
    outbox_room_free(&p->room);
    return is_good;
}
