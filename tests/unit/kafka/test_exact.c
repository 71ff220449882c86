/* Exactly once, without a broker: the partitions of a shard are a list, a transaction is atomic, and processes die
 * at any step, lose checkpoints, and do not hear of commits; shards are out up to different micro-batches, and the
 * topic gets more partitions. In each of thousands of seeded histories the topic must have every row once, in
 * order in each shard, and in the partition that its micro-batch's layout says. */
#include "connectors/kafka/exact.h"
#include "unit/connectors/rig.h"
#include "unit/kafka/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NUMBERS = 60, CHECKPOINTS_MAX = 512, SHARDS = 3, MORE_PARTITIONS = 5, ALL_SHARDS = (1 << SHARDS) - 1 };

/* --- The brokers, which outlive the processes --- */

static struct {
    struct byte_buffer rows[SHARDS];  /* the topic's partitions, printed */
    struct byte_buffer notes[SHARDS]; /* the progress topic's partitions: lengths, key, value */
    bool has_life[SHARDS];
    int32_t partitions;      /* of the topic: SHARDS, or later MORE_PARTITIONS */
    _Atomic uint32_t fenced; /* bits of the shards whose earlier process was fenced in this life */
    uint32_t kept;           /* how many parts stay in the progress topic; older ones get tombstones */
} brokers;

static void add_note(uint32_t shard, const struct byte_buffer *key, const struct byte_buffer *value)
{
    struct byte_buffer *notes = &brokers.notes[shard];
    uint32_t lengths[2] = {(uint32_t)key->length, (uint32_t)value->length};
    buffer_append(notes, lengths, sizeof(lengths));
    buffer_append(notes, key->data, key->length);
    buffer_append(notes, value->data, value->length);
}

static void read_notes(uint32_t shard, struct progress *progress)
{
    const struct byte_buffer *notes = &brokers.notes[shard];
    progress_clear(progress);
    for (size_t at = 0; at < notes->length;) {
        uint32_t lengths[2];
        memcpy(lengths, notes->data + at, sizeof(lengths));
        const char *bytes = notes->data + at + sizeof(lengths);
        struct str value = {lengths[1] == 0 ? NULL : bytes + lengths[0], lengths[1]};
        leat_assert(progress_apply(progress, (struct str){bytes, lengths[0]}, value) == PROGRESS_READ);
        at += sizeof(lengths) + lengths[0] + lengths[1];
    }
}

/* --- A sender without a broker: the functions of sender.c that exact.c calls --- */

bool sender_fence(struct sender *sender, const struct sender_options *options, struct outbox *outbox)
{
    sender->options = *options;
    sender->outbox = outbox;
    atomic_fetch_or(&brokers.fenced, 1U << options->shard);
    return true;
}

bool sender_open(struct sender *sender)
{
    uint32_t shard = sender->options.shard;
    leat_assert(brokers.fenced == ALL_SHARDS); /* before anything is read */
    progress_init(&sender->progress, sender->options.run_id, sender->options.sink);
    read_notes(shard, &sender->progress);
    sender->had_life = brokers.has_life[shard];
    brokers.has_life[shard] = true;
    return true;
}

bool sender_look(const struct sender_options *options LEAT_UNUSED, uint64_t *next, uint64_t *ordered,
                 char *error LEAT_UNUSED, size_t room LEAT_UNUSED)
{
    *next = *ordered = 0;
    return true;
}

void sender_start(struct sender *sender)
{
    sender->has_thread = true;
}

bool sender_out(struct sender *sender, struct progress_part *part)
{
    const struct progress_part *last = progress_last(&sender->progress);
    if (last != NULL)
        *part = *last;
    return last != NULL;
}

void sender_report_trouble(struct sender *sender LEAT_UNUSED, struct report *report LEAT_UNUSED)
{
}

bool sender_drain(struct sender *sender LEAT_UNUSED)
{
    return true;
}

void sender_close(struct sender *sender)
{
    progress_free(&sender->progress);
}

/* Commits a transaction, as a whole: the records of the parts, their progress records, and tombstones
 * for old parts. */
static void commit(struct sender *sender, const struct outbox_part *parts, uint32_t count)
{
    struct byte_buffer key = {0}, value = {0};
    uint32_t shard = sender->options.shard;
    for (uint32_t i = 0; i < count; i++) {
        struct chunk_cursor cursor = parts[i].begin;
        for (uint64_t k = parts[i].from; k < parts[i].to; k++) {
            struct kafka_record record = chunk_next(&cursor);
            fixture_print(&record, &brokers.rows[shard]);
        }
        struct progress_part part = outbox_part_progress(&parts[i]);
        buffer_clear(&key);
        buffer_clear(&value);
        progress_put_part(&sender->progress, &part, &key, &value);
        add_note(shard, &key, &value);
    }
    struct progress after;
    progress_init(&after, sender->options.run_id, sender->options.sink);
    read_notes(shard, &after);
    buffer_clear(&value);
    for (uint32_t i = 0; i + brokers.kept < after.count; i++) {
        buffer_clear(&key);
        progress_put_key(&after, progress_at(&after, i), &key);
        add_note(shard, &key, &value);
    }
    progress_free(&after);
    buffer_free(&key);
    buffer_free(&value);
}

enum turn { WENT_ON, DIED };

static enum turn send_some(struct sender *sender, struct test_random *random)
{
    struct outbox_part parts[3];
    uint32_t count =
        outbox_take(sender->outbox, 1 + random_below(random, 2000), parts, 1 + random_below(random, 3));
    if (count == 0 || random_chance(random, 10)) /* nothing to send, or the transaction is aborted */
        return WENT_ON;
    commit(sender, parts, count);
    if (random_chance(random, 5))
        return DIED;
    if (random_chance(random, 10)) { /* the outcome is unknown: a new producer reads the progress topic */
        read_notes(sender->options.shard, &sender->progress);
        assert_null(outbox_skip(sender->outbox, progress_last(&sender->progress)));
        return WENT_ON;
    }
    read_notes(sender->options.shard, &sender->progress);
    outbox_sent(sender->outbox, parts, count);
    return WENT_ON;
}

/* --- The sink --- */

static const struct option no_options[] = {OPTIONS_END};
static uint64_t known_next; /* the order log has the micro-batches before this one */

static bool test_open(struct sink_context *context)
{
    const struct exact_options options = {.sender = {.sink = STR("out"), .topic = "t", .progress_topic = "p"},
                                          .budget_bytes = 1000,
                                          .partitions = context->is_resumed ? brokers.partitions : SHARDS,
                                          .progress_partitions = SHARDS};
    brokers.fenced = 0;
    context->redo_next = known_next;
    if (!context->is_resumed)
        return exact_open(context->config, context, &options);
    exact_prepare(context->config, context, &options);
    return true;
}

static bool test_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    return exact_snapshot(context->config, writer);
}

static bool test_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        assert_true(exact_restore_record(context->config, record));
    return exact_restored(context->config, reader);
}

static void test_close(struct sink_context *context)
{
    exact_close(context->config);
}

static const struct sink_kind kind = {.name = "exact",
                                      .options = no_options,
                                      .size = sizeof(struct exact),
                                      .open = test_open,
                                      .snapshot = test_snapshot,
                                      .restore = test_restore,
                                      .close = test_close};

/* --- Histories --- */

struct saved {
    struct rig_checkpoint checkpoint;
    uint64_t next;
};

struct history {
    struct test_random random;
    struct saved saved[CHECKPOINTS_MAX];
    uint32_t count;
    uint64_t changed; /* a micro-batch whose rows differ in every later life; 0: none */
    bool is_first_life;
    uint32_t chain; /* checkpoints of this life from the last base on; 0: the next one is a base */
    char why[512];  /* the message of a refusal */
};

static void write_number(struct rig_sink *rig, struct history *history, uint64_t number, bool *is_good)
{
    struct exact *exact = rig->context.config;
    struct byte_buffer value = {0}, headers = {0};
    rig->context.micro_batch = number;
    for (uint32_t i = 0; i < fixture_rows(number) && *is_good; i++) {
        struct kafka_record record = fixture_record(number, i, &value, &headers);
        if (number == history->changed && !history->is_first_life)
            value.data[0] ^= 1;
        *is_good = exact_write(exact, &record);
    }
    exact_account(exact);
    buffer_free(&value);
    buffer_free(&headers);
}

/* Takes a checkpoint at the barrier before micro-batch `next`; some are abandoned. Returns false if
 * the sink refused. */
static bool take_checkpoint(struct rig_sink *rig, struct history *history, uint64_t next, uint64_t *epoch)
{
    struct saved *saved = &history->saved[history->count];
    bool is_base = history->chain == 0 || history->chain > 5;
    *saved = (struct saved){.next = next};
    bool is_abandoned = next < NUMBERS && random_chance(&history->random, 10);
    if (!rig_sink_snapshot_on(rig, ++*epoch, is_base ? NULL : &saved[-1].checkpoint, !is_abandoned,
                              &saved->checkpoint))
        return false;
    if (is_abandoned) {
        rig_checkpoint_free(&saved->checkpoint);
        return true;
    }
    assert_true(history->count++ < CHECKPOINTS_MAX - 1);
    history->chain = is_base ? 1 : history->chain + 1;
    known_next = MAX(known_next, next);
    /* In some cases the sink does not hear that the checkpoint is published. */
    return random_chance(&history->random, 97) ? exact_committed(rig->context.config, *epoch, (struct str){0})
                                               : true;
}

enum end { FINISHED, CRASHED, REFUSED };

static enum end run_life(struct rig_sink *rig, struct history *history, uint64_t number, uint64_t epoch)
{
    struct exact *exact = rig->context.config;
    bool is_good = true;
    for (; number < NUMBERS; number++) {
        if (random_chance(&history->random, 2))
            return CRASHED;
        if (random_chance(&history->random, 1)) {
            brokers.partitions = MORE_PARTITIONS;
            atomic_store(&exact->shards[0].sender.figures.partitions, MORE_PARTITIONS);
        }
        write_number(rig, history, number, &is_good);
        if (is_good && (number + 1 == NUMBERS || random_chance(&history->random, 25)))
            is_good = take_checkpoint(rig, history, number + 1, &epoch);
        if (!is_good)
            return REFUSED;
        struct shard *shard = &exact->shards[random_below(&history->random, SHARDS)];
        if (random_chance(&history->random, 90) && send_some(&shard->sender, &history->random) == DIED)
            return CRASHED;
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &exact->shards[i];
        while (!outbox_is_sent(&shard->outbox))
            if (send_some(&shard->sender, &history->random) == DIED)
                return CRASHED;
        if (shard->outbox.closed != NULL) /* it did not hear that its last checkpoint is published */
            return CRASHED;
    }
    return FINISHED;
}

/* The checkpoint that the next process finds, or NULL. Sometimes up to three newer ones are lost. */
static struct saved *find_checkpoint(struct history *history)
{
    uint32_t lost = random_chance(&history->random, 30) ? random_below(&history->random, 4) : 0;
    if (history->count == 0)
        return NULL;
    lost = MIN(lost, history->count - 1);
    for (; lost > 0; lost--)
        rig_checkpoint_free(&history->saved[--history->count].checkpoint);
    return &history->saved[history->count - 1];
}

static void begin_history(struct history *history, uint64_t seed)
{
    *history = (struct history){.random = {seed}, .is_first_life = true};
    for (uint32_t i = 0; i < SHARDS; i++) {
        buffer_clear(&brokers.rows[i]);
        buffer_clear(&brokers.notes[i]);
        brokers.has_life[i] = false;
    }
    brokers.partitions = SHARDS;
    brokers.kept = random_chance(&history->random, 30) ? 3 : PROGRESS_KEPT;
    known_next = 0;
}

static enum end run_history(struct history *history, uint64_t *redone)
{
    for (;;) {
        struct rig_sink rig;
        struct saved *from = find_checkpoint(history);
        enum end end = REFUSED;
        history->chain = 0;
        if (rig_sink_open(&rig, &kind, "{}", NULL, true, from == NULL ? NULL : &from->checkpoint))
            end = run_life(&rig, history, from == NULL ? 0 : from->next,
                           from == NULL ? 0 : from->checkpoint.epoch);
        *redone += ((struct exact *)rig.context.config)->redone;
        if (end == REFUSED)
            snprintf(history->why, sizeof(history->why), "%s",
                     rig.diags.count > 0 ? rig.diags.items[0].message : rig.context.error);
        rig_sink_close(&rig);
        history->is_first_life &= history->count == 0;
        if (end != CRASHED)
            return end;
    }
}

static void end_history(struct history *history)
{
    while (history->count > 0)
        rig_checkpoint_free(&history->saved[--history->count].checkpoint);
}

/* What the rows say about the layouts: the last micro-batch whose rows only the first layout explains, and the first
 * one whose rows only the second explains. */
struct layouts_seen {
    int64_t old_until, new_from;
};

/* Checks one printed row, moves `row` behind it, and returns its place in all rows. */
static uint64_t check_row(const char **row, uint32_t shard, struct layouts_seen *seen)
{
    struct byte_buffer value = {0}, headers = {0}, printed = {0};
    char *at;
    int32_t partition = (int32_t)strtol(*row, &at, 10);
    uint64_t number = strtoull(strchr(at + 1, '|') + 1, &at, 10);
    uint32_t index = (uint32_t)strtoul(at + 1, NULL, 10);
    struct kafka_record record = fixture_record(number, index, &value, &headers);
    bool is_old = partition == partitioner_choose(&record, number, SHARDS);
    bool is_new = partition == partitioner_choose(&record, number, MORE_PARTITIONS);
    assert_true(is_old || is_new);
    assert_int_equal((uint32_t)partition % SHARDS, shard);
    if (!is_new)
        seen->old_until = MAX(seen->old_until, (int64_t)number);
    if (!is_old)
        seen->new_from = MIN(seen->new_from, (int64_t)number);
    record.partition = partition;
    fixture_print(&record, &printed);
    assert_memory_equal(*row, printed.data, printed.length);
    *row += printed.length;
    buffer_free(&value);
    buffer_free(&headers);
    buffer_free(&printed);
    return number * FIXTURE_ROWS_MAX + index;
}

/* Whether the topic has every row once, in order in each shard. Counts in *changed the histories with both layouts. */
static bool has_all_rows(uint32_t *changed)
{
    bool is_there[NUMBERS * FIXTURE_ROWS_MAX] = {false};
    struct layouts_seen seen = {-1, NUMBERS};
    uint32_t rows = 0, wanted = 0;
    for (uint64_t number = 0; number < NUMBERS; number++)
        wanted += fixture_rows(number);
    for (uint32_t i = 0; i < SHARDS; i++) {
        int64_t before = -1;
        *buffer_reserve(&brokers.rows[i], 1) = '\0'; /* for strtol */
        const char *row = brokers.rows[i].data, *end = row + brokers.rows[i].length;
        while (row < end) {
            uint64_t place = check_row(&row, i, &seen);
            if ((int64_t)place <= before || is_there[place])
                return false;
            before = (int64_t)place;
            is_there[place] = true;
            rows++;
        }
    }
    *changed += seen.old_until >= 0 && seen.new_from < NUMBERS;
    return rows == wanted && seen.old_until < seen.new_from;
}

#ifdef __SANITIZE_ADDRESS__
enum { HISTORIES = 300 }; /* the release build has them all */
#else
enum { HISTORIES = 1500 };
#endif

static void test_histories(void **state LEAT_UNUSED)
{
    static struct history history;
    uint64_t redone = 0;
    uint32_t changed = 0;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        begin_history(&history, seed);
        if (run_history(&history, &redone) != FINISHED)
            fail_msg("history %llu was refused: %s", (unsigned long long)seed, history.why);
        if (!has_all_rows(&changed))
            fail_msg("history %llu: the topic has other rows", (unsigned long long)seed);
        end_history(&history);
    }
    assert_true(redone > 2 * HISTORIES); /* many rows were executed again after a fall back */
    assert_true(changed > HISTORIES / 10);
}

/* Rows that were sent, and differ when they are executed again, are refused. */
static void test_changed_rows(void **state LEAT_UNUSED)
{
    static struct history history;
    uint32_t refused = 0, finished = 0;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        uint64_t redone = 0;
        begin_history(&history, seed);
        brokers.kept = PROGRESS_KEPT;
        history.changed = 7 + seed % 20;
        while (fixture_rows(history.changed) == 0)
            history.changed++;
        enum end end = run_history(&history, &redone);
        refused += end == REFUSED;
        finished += end == FINISHED;
        end_history(&history);
    }
    assert_true(refused > HISTORIES * 3 / 100);
    assert_true(finished >
                HISTORIES * 3 / 100); /* the micro-batch was not executed again, or had not been sent */
}

/* --- What is refused at a start --- */

static const char *restart(struct history *history, uint32_t index)
{
    static char message[512];
    struct rig_sink rig;
    message[0] = '\0';
    if (!rig_sink_open(&rig, &kind, "{}", NULL, true, &history->saved[index].checkpoint))
        snprintf(message, sizeof(message), "%s %s", diag_code_name(rig.diags.items[0].code),
                 rig.diags.items[0].message);
    rig_sink_close(&rig);
    return message;
}

/* Makes three checkpoints, and sends the rows of the first two. */
static void make_three(struct history *history)
{
    struct rig_sink rig;
    bool is_good = true;
    begin_history(history, 1);
    brokers.kept = PROGRESS_KEPT;
    assert_true(rig_sink_open(&rig, &kind, "{}", NULL, true, NULL));
    struct exact *exact = rig.context.config;
    for (uint64_t number = 0; number < 30; number++) {
        write_number(&rig, history, number, &is_good);
        if (number % 10 != 9)
            continue;
        struct saved *saved = &history->saved[history->count++];
        saved->next = known_next = number + 1;
        assert_true(rig_sink_snapshot(&rig, history->count, &saved->checkpoint));
        if (history->count == 3)
            break;
        exact_committed(exact, history->count, (struct str){0});
        for (uint32_t i = 0; i < SHARDS; i++) {
            struct sender *sender = &exact->shards[i].sender;
            struct outbox_part parts[3];
            uint32_t count = outbox_take(sender->outbox, 1 << 20, parts, 3);
            commit(sender, parts, count);
            read_notes(i, &sender->progress);
            outbox_sent(sender->outbox, parts, count);
        }
    }
    assert_true(is_good);
    rig_sink_close(&rig);
}

static void test_refusals(void **state LEAT_UNUSED)
{
    static struct history history;
    make_three(&history);
    assert_string_equal(restart(&history, 2), "");
    assert_string_equal(restart(&history, 1), "");
    assert_string_equal(restart(&history, 0), ""); /* falls back: 19 was sent, and is in the order log */
    known_next = 19;
    assert_non_null(
        strstr(restart(&history, 0), "E0707 progress topic `p`: rows before micro-batch 20 were sent"));
    assert_string_equal(restart(&history, 1), "");
    /* The progress topic was cut: it lacks the second transaction. */
    uint32_t lengths[2];
    struct byte_buffer *notes = &brokers.notes[1]; /* of one shard: the others do not make up for it */
    memcpy(lengths, notes->data, sizeof(lengths));
    notes->length = sizeof(lengths) + lengths[0] + lengths[1];
    assert_non_null(strstr(restart(&history, 2), "the topic's end was cut off"));
    notes->length = 0;
    assert_non_null(strstr(restart(&history, 2), "the topic's end was cut off"));
    brokers.has_life[1] = false;
    assert_non_null(strstr(restart(&history, 0), "the topic was emptied"));
    end_history(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_changed_rows),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (uint32_t i = 0; i < SHARDS; i++) {
        buffer_free(&brokers.rows[i]);
        buffer_free(&brokers.notes[i]);
    }
    return failed;
}
