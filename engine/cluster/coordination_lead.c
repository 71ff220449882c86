/* Election, and what a leader writes.
 *
 * A leader's write, W, follows the record's mod revision P and demands the election key E by its create revision:
 *
 *     if E is there as it was made, and the record's mod revision is P: put W
 *
 * No answer, or one that does not tell: W may be there, may never come, or may come later (the request can still be under way,
 * in a network or in etcd's own queues). A linearizable read shows one of three:
 *
 *     W itself        it is done
 *     another value   another leader wrote it: this one is over
 *     still P         W may yet come. The very same txn is sent again: if the first one comes before it, it is refused, and the
 *                     next read shows W; if it comes after it, the first one is refused.
 *
 * That is why no two writes have the same bytes: a head has its P and the writer in it, an incarnation its secret, a placement a
 * line before it. A write in doubt is kept until it is settled, and no other may take its place. Once this worker leads by
 * another election key, an old W can no longer happen. */
#include "cluster/coordination_internal.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { AGAIN_MS = 50 };

static const char *const record_names[RECORD_COUNT] = {[RECORD_INCARNATION] = "incarnation",
                                                       [RECORD_PLACEMENT] = "placement",
                                                       [RECORD_HEAD] = "head",
                                                       [RECORD_ANSWER] = "answer"};

/* --- Election --- */

static struct str own_key(const struct coordination *coordination, struct arena *arena)
{
    return coordination_lease_key(coordination, arena, "election", coordination_lease(coordination));
}

/* The candidate's key, made unless it is there. */
static enum etcd_outcome stand(struct coordination *coordination, struct arena *arena,
                               struct diag_list *diags)
{
    struct str key = own_key(coordination, arena);
    const struct etcd_compare absent = {.key = key, .target = ETCD_CREATE_REVISION, .relation = ETCD_EQUAL};
    const struct etcd_op make = {
        .kind = ETCD_PUT, .key = key, .value = STR("1"), .lease = coordination_lease(coordination)};
    const struct etcd_txn txn = {
        .compares = &absent, .compares_count = 1, .then_ops = &make, .then_count = 1};
    struct etcd_answer answer;
    if (etcd_txn(coordination->etcd, &txn, arena, &answer, diags) != ETCD_DONE &&
        answer.error != ETCD_COMPARE) {
        if (answer.error == ETCD_NO_LEASE)
            atomic_store(&coordination->keeper.is_gone, true);
        return coordination_failed(&answer);
    }
    return coordination_see(coordination, &answer, diags) ? ETCD_DONE : ETCD_REFUSED;
}

/* Takes what the first candidate's key says. */
static enum etcd_outcome judge_first(struct coordination *coordination, const struct etcd_answer *answer,
                                     struct arena *arena, int64_t *leader, struct diag_list *diags)
{
    struct str own = own_key(coordination, arena);
    if (answer->count == 0)
        return coordination_taken(coordination, diags, "this worker's lease has expired");
    const struct etcd_entry *first = &answer->entries[0];
    if (!str_equal(first->key, own)) {
        coordination->leading = 0;
        *leader = first->lease;
        return ETCD_REFUSED;
    }
    if (coordination->leading != first->create_revision) {
        coordination_forget_doubts(coordination); /* what demanded another key cannot happen any more */
        coordination->has_read = false;
    }
    coordination->leading = first->create_revision;
    *leader = first->lease;
    return ETCD_DONE;
}

enum etcd_outcome coordination_campaign(struct coordination *coordination, int64_t *leader,
                                        struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    *leader = 0;
    if (coordination_lease(coordination) == 0 || coordination_is_gone(coordination))
        return coordination_taken(coordination, diags, "this worker has no lease");
    enum etcd_outcome outcome = stand(coordination, &arena, diags);
    if (outcome == ETCD_DONE) {
        const struct etcd_range range = {.key = coordination_key(coordination, &arena, "election/"),
                                         .is_prefix = true,
                                         .is_first_made = true};
        outcome = etcd_range(coordination->etcd, &range, &arena, &answer, diags);
        if (outcome != ETCD_DONE)
            outcome = coordination_failed(&answer);
        else if (!coordination_see(coordination, &answer, diags))
            outcome = ETCD_REFUSED;
        else
            outcome = judge_first(coordination, &answer, &arena, leader, diags);
    }
    arena_free(&arena);
    return outcome;
}

static enum etcd_outcome say_no_leader(struct coordination *coordination, struct diag_list *diags)
{
    coordination->leading = 0;
    return coordination_taken(coordination, diags, "this worker does not lead any more");
}

enum etcd_outcome coordination_still_leads(struct coordination *coordination, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    if (coordination->leading == 0)
        return say_no_leader(coordination, diags);
    const struct etcd_range range = {.key = own_key(coordination, &arena)};
    enum etcd_outcome outcome = etcd_range(coordination->etcd, &range, &arena, &answer, diags);
    if (outcome != ETCD_DONE)
        outcome = coordination_failed(&answer);
    else if (!coordination_see(coordination, &answer, diags))
        outcome = ETCD_REFUSED;
    else if (answer.count == 0 || answer.entries[0].create_revision != coordination->leading)
        outcome = say_no_leader(coordination, diags);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_resign(struct coordination *coordination, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer = {.outcome = ETCD_DONE};
    coordination->leading = 0;
    if (coordination_lease(coordination) != 0 &&
        etcd_delete(coordination->etcd, own_key(coordination, &arena), false, &answer, diags) != ETCD_DONE)
        answer.outcome = coordination_failed(&answer);
    arena_free(&arena);
    return answer.outcome;
}

/* --- A leader's write --- */

struct write {
    struct coordination *coordination;
    struct leader_record *record;
    struct str own, key, value; /* keys of the election and of the record */
    struct arena *arena;
    struct diag_list *diags;
};

static enum etcd_outcome settle(struct write *write, int64_t revision)
{
    write->record->revision = revision;
    free(write->record->doubt);
    write->record->doubt = NULL;
    return ETCD_DONE;
}

static enum etcd_outcome give_up(struct write *write, const char *why)
{
    free(write->record->doubt);
    write->record->doubt = NULL;
    write->coordination->leading = 0;
    return coordination_taken(write->coordination, write->diags,
                              "its leader's write of `%.*s` was refused: %s", STR_ARGS(write->key), why);
}

static enum etcd_outcome send(struct write *write, struct etcd_answer *answer, struct diag_list *diags)
{
    const struct etcd_compare guards[] = {
        {.key = write->own, .target = ETCD_CREATE_REVISION, .number = write->coordination->leading},
        {.key = write->key, .target = ETCD_MOD_REVISION, .number = write->record->revision},
    };
    const struct etcd_op put = {.kind = ETCD_PUT, .key = write->key, .value = write->value};
    const struct etcd_txn txn = {
        .compares = guards, .compares_count = ARRAY_COUNT(guards), .then_ops = &put, .then_count = 1};
    return etcd_txn(write->coordination->etcd, &txn, write->arena, answer, diags);
}

/* The write may have happened: keeps its bytes. */
static void doubt(struct write *write)
{
    if (write->record->doubt == NULL) {
        write->record->doubt = mem_str(write->value);
        write->record->doubt_bytes = write->value.length;
    }
}

/* Which of the three it is: ETCD_DONE, ETCD_REFUSED, or ETCD_UNKNOWN; *is_old: the record is still as before. */
static enum etcd_outcome look(struct write *write, bool *is_old)
{
    const struct etcd_range range = {.key = write->key};
    struct coordination *coordination = write->coordination;
    struct etcd_answer answer;
    *is_old = false;
    if (etcd_range(coordination->etcd, &range, write->arena, &answer, write->diags) != ETCD_DONE)
        return ETCD_UNKNOWN;
    if (!coordination_see(coordination, &answer, write->diags))
        return ETCD_REFUSED;
    if (answer.count > 0 && str_equal(answer.entries[0].value, write->value))
        return settle(write, answer.entries[0].mod_revision);
    *is_old = (answer.count == 0 ? 0 : answer.entries[0].mod_revision) == write->record->revision;
    return *is_old ? ETCD_UNKNOWN : give_up(write, "another worker has written it");
}

/* The guards do not hold. If an earlier copy of this write was in doubt, it may be what moved the record. */
static enum etcd_outcome judge_refusal(struct write *write, const struct etcd_answer *answer)
{
    bool is_old;
    if (!coordination_see(write->coordination, answer, write->diags))
        return ETCD_REFUSED;
    if (write->record->doubt != NULL) {
        enum etcd_outcome outcome = look(write, &is_old);
        if (outcome != ETCD_UNKNOWN || !is_old)
            return outcome;
    }
    return give_up(write, answer->compare == 0 ? "this worker does not lead any more"
                                               : "another worker has written it");
}

/* Says what the last try said. */
static void repeat(const struct diag_list *tries, struct diag_list *diags)
{
    if (tries->count > 0) {
        const struct diag *last = &tries->items[tries->count - 1];
        struct diag *d = diag_error(diags, last->code, last->span, "%s", last->message);
        if (last->hint != NULL)
            diag_hint(diags, d, "%s", last->hint);
    }
}

/* One try, and what is known behind it; *is_over: another try would not help, or is not needed. */
static enum etcd_outcome try_write(struct write *write, struct diag_list *tries, bool *is_over)
{
    struct etcd_answer answer;
    bool is_old;
    *is_over = true;
    enum etcd_outcome outcome = send(write, &answer, tries);
    bool is_head = write->record == &write->coordination->records[RECORD_HEAD];
    if (outcome == ETCD_DONE && is_head && failpoint("head.answer") != 0)
        outcome = ETCD_UNKNOWN; /* as if the answer were lost */
    if (outcome == ETCD_DONE)
        return coordination_see(write->coordination, &answer, tries) ? settle(write, answer.revision)
                                                                     : ETCD_REFUSED;
    if (answer.error == ETCD_COMPARE)
        return judge_refusal(write, &answer);
    if (outcome == ETCD_REFUSED) {
        *is_over = !coordination_is_passing(answer.error);
        return *is_over && write->record->doubt == NULL ? ETCD_REFUSED : ETCD_UNKNOWN;
    }
    doubt(write);
    outcome = look(write, &is_old);
    *is_over = outcome != ETCD_UNKNOWN;
    return outcome;
}

/* Sends the write, and what is in doubt again, until it is settled or the time is over. */
static enum etcd_outcome write_record(struct write *write)
{
    int64_t until = time_add(os_monotonic_us(), 2 * write->coordination->request_us);
    for (;;) {
        struct diag_list *diags = write->diags, tries;
        bool is_over;
        diag_list_init(&tries, write->arena);
        write->diags = &tries;
        enum etcd_outcome outcome = try_write(write, &tries, &is_over);
        write->diags = diags;
        if (outcome == ETCD_DONE)
            return outcome;
        if (is_over || os_monotonic_us() >= until || etcd_is_stopped(write->coordination->etcd)) {
            repeat(&tries, diags);
            return outcome;
        }
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    }
}

/* value: what is to be written, unless a write is in doubt: then it must be that one. */
static enum etcd_outcome lead(struct coordination *coordination, enum record which, struct str value,
                              struct arena *arena, struct diag_list *diags)
{
    struct leader_record *record = &coordination->records[which];
    struct write write = {.coordination = coordination,
                          .record = record,
                          .own = own_key(coordination, arena),
                          .key = coordination_key(coordination, arena, record_names[which]),
                          .value = value,
                          .arena = arena,
                          .diags = diags};
    if (coordination->leading == 0)
        return say_no_leader(coordination, diags);
    leat_assert(coordination->has_read);
    if (record->doubt != NULL && !str_equal(value, (struct str){record->doubt, record->doubt_bytes})) {
        struct diag *d = diag_error(diags, DIAG_COORDINATION_FAILED, (struct span){0},
                                    "cluster `%s`: another write of `%.*s` is still in doubt",
                                    coordination->name, STR_ARGS(write.key));
        diag_hint(diags, d, "the leader asks for that one first");
        return ETCD_UNKNOWN;
    }
    return write_record(&write);
}

/* --- The steps --- */

enum etcd_outcome coordination_begin(struct coordination *coordination, uint64_t *incarnation,
                                     uint8_t secret[COORDINATION_SECRET_BYTES], struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    const struct leader_record *record = &coordination->records[RECORD_INCARNATION];
    struct str value;
    if (record->doubt != NULL) {
        value = arena_str(&arena, (struct str){record->doubt, record->doubt_bytes});
        leat_assert(incarnation_read(value, &arena, incarnation, secret));
    } else {
        leat_assert(getrandom(secret, COORDINATION_SECRET_BYTES, 0) == COORDINATION_SECRET_BYTES);
        *incarnation = coordination->incarnation + 1;
        value = incarnation_write(*incarnation, secret, &arena);
    }
    enum etcd_outcome outcome = lead(coordination, RECORD_INCARNATION, value, &arena, diags);
    if (outcome == ETCD_DONE)
        coordination->incarnation = *incarnation;
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_place(struct coordination *coordination, struct str placement,
                                     struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    leat_assert(placement.length <= COORDINATION_PLACEMENT_BYTES_MAX);
    struct str value = placement_write(placement, coordination_lease(coordination),
                                       coordination->records[RECORD_PLACEMENT].revision, &arena);
    enum etcd_outcome outcome = lead(coordination, RECORD_PLACEMENT, value, &arena, diags);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_answer(struct coordination *coordination, struct str text,
                                      struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    leat_assert(text.length <= COORDINATION_TEXT_BYTES_MAX);
    enum etcd_outcome outcome = lead(coordination, RECORD_ANSWER, text, &arena, diags);
    arena_free(&arena);
    return outcome;
}

static enum etcd_outcome compact_to(struct coordination *coordination, int64_t revision,
                                    struct diag_list *diags)
{
    struct etcd_answer answer;
    if (revision == 0)
        return ETCD_DONE;
    if (etcd_compact(coordination->etcd, revision, &answer, diags) == ETCD_DONE ||
        answer.error == ETCD_COMPACTED)
        return ETCD_DONE;
    return coordination_failed(&answer);
}

enum etcd_outcome coordination_compact(struct coordination *coordination, struct diag_list *diags)
{
    return compact_to(coordination, coordination->records[RECORD_HEAD].revision, diags);
}

/* Each compact_every heads, up to the head of the time before: who is not far behind still finds the history. */
static void compact_now_and_then(struct coordination *coordination, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list said;
    if (++coordination->heads < coordination->compact_every)
        return;
    diag_list_init(&said, &arena);
    if (compact_to(coordination, coordination->compact_next, &said) == ETCD_DONE)
        coordination->compact_next = coordination->records[RECORD_HEAD].revision;
    else if (said.count > 0)
        diag_hint(
            diags,
            diag_warning(diags, DIAG_COORDINATION_FAILED, (struct span){0}, "%s", said.items[0].message),
            "the leader tries again; until then etcd's history grows");
    coordination->heads = 0;
    arena_free(&arena);
}

enum etcd_outcome coordination_publish(struct coordination *coordination, const struct cluster_head *head,
                                       struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct cluster_head record = *head;
    record.previous = coordination->records[RECORD_HEAD].revision;
    record.writer = coordination_lease(coordination);
    enum etcd_outcome outcome =
        lead(coordination, RECORD_HEAD, cluster_head_write(&record, &arena), &arena, diags);
    if (outcome == ETCD_DONE)
        compact_now_and_then(coordination, diags);
    arena_free(&arena);
    return outcome;
}

/* --- After a loss --- */

enum etcd_outcome coordination_rebuild(struct coordination *coordination, const struct cluster_job *job,
                                       const struct cluster_head *head, uint64_t incarnation,
                                       struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    static const uint8_t
        no_secret[COORDINATION_SECRET_BYTES]; /* nobody links by it: the leader begins a new one */
    struct cluster_head record = *head;
    record.previous = record.writer = 0;
    struct etcd_op puts[] = {
        {.key = coordination_key(coordination, &arena, "job"), .value = job_write(job, &arena)},
        {.key = coordination_key(coordination, &arena, "incarnation"),
         .value = incarnation_write(incarnation, no_secret, &arena)},
        {.key = coordination_key(coordination, &arena, "head"), .value = cluster_head_write(&record, &arena)},
    };
    struct etcd_compare absent[ARRAY_COUNT(puts)];
    struct etcd_op looks[ARRAY_COUNT(puts)];
    for (size_t i = 0; i < ARRAY_COUNT(puts); i++) {
        absent[i] = (struct etcd_compare){.key = puts[i].key, .target = ETCD_CREATE_REVISION};
        looks[i] = (struct etcd_op){.kind = ETCD_RANGE, .key = puts[i].key};
    }
    const struct etcd_txn txn = {absent, ARRAY_COUNT(puts), puts,
                                 looks,  ARRAY_COUNT(puts), ARRAY_COUNT(puts)};
    struct etcd_answer answer;
    enum etcd_outcome outcome = etcd_txn(coordination->etcd, &txn, &arena, &answer, diags);
    if (outcome == ETCD_REFUSED && answer.error == ETCD_COMPARE) {
        bool is_mine = answer.count == ARRAY_COUNT(puts); /* of a call whose answer was lost */
        for (size_t i = 0; is_mine && i < ARRAY_COUNT(puts); i++)
            is_mine = str_equal(answer.entries[i].value, puts[i].value);
        outcome = is_mine ? ETCD_DONE : ETCD_REFUSED;
        if (!is_mine)
            diag_hint(
                diags,
                diag_error(diags, DIAG_CLUSTER_DIFFERS, (struct span){0},
                           "cluster `%s`: expected no record in etcd, found one", coordination->name),
                "start the workers: they go on from that record; to begin anew, give the cluster another name");
    } else if (outcome != ETCD_DONE) {
        outcome = coordination_failed(&answer);
    }
    arena_free(&arena);
    return outcome;
}
