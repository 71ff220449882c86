/* Arbitrary answers of etcd, and arbitrary records in it. The first byte says which: the answer of a txn, a line of a watch, or a
 * record. What is read of an answer is bounded and in order: an entry has a key and revisions that rise, a refused txn a compare
 * that does not hold, a watch's events come by revision. A record that is read, written and read again is the same. */
#include "cluster/coordination_internal.h"
#include "cluster/etcd_internal.h"
#include "fuzz.h"

static const struct etcd_compare compares[] = {
    {.key = {"k", 1}, .target = ETCD_MOD_REVISION, .number = 7},
    {.key = {"v", 1}, .target = ETCD_VALUE, .relation = ETCD_LESS, .value = {"m", 1}},
};
static const struct etcd_op then_ops[] = {{.kind = ETCD_PUT, .key = {"k", 1}},
                                          {.kind = ETCD_RANGE, .key = {"k", 1}}};
static const struct etcd_op else_ops[] = {{.kind = ETCD_RANGE, .key = {"k", 1}, .is_prefix = true}};

static void check_text(struct str text)
{
    must(text.length == 0 || text.data[text.length] == '\0', "a text is terminated");
    must(text.length <= COORDINATION_TEXT_BYTES_MAX, "a text is bounded");
}

static void check_entry(const struct etcd_entry *entry)
{
    must(entry->key.length > 0 && entry->key.data[entry->key.length] == '\0', "an entry has a key");
    must(entry->value.data[entry->value.length] == '\0', "a value is terminated");
    must(entry->mod_revision > 0 && entry->create_revision <= entry->mod_revision, "revisions rise");
}

static void fuzz_txn(struct str text, struct arena *arena)
{
    const struct etcd_txn txn = {compares, 2, then_ops, else_ops, 2, 1};
    struct etcd_answer answer = {0};
    json_t *json = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json) && etcd_txn_read(json, &txn, arena, &answer)) {
        must(answer.outcome == ETCD_DONE || answer.outcome == ETCD_REFUSED, "the answer tells");
        must((answer.outcome == ETCD_REFUSED) == (answer.error == ETCD_COMPARE),
             "what is refused is so by a compare");
        must(answer.compare < 2 && answer.count <= ETCD_KEYS_MAX && answer.revision >= 0,
             "numbers are bounded");
        for (uint32_t i = 0; i < answer.count; i++)
            check_entry(&answer.entries[i]);
    }
    json_decref(json);
}

static void fuzz_watch(struct str text, struct arena *arena)
{
    struct etcd_changes changes;
    struct etcd_failure failure = {0};
    enum etcd_watched watched = ETCD_WATCH_QUIET;
    if (!etcd_watch_read(text.data, text.length, arena, &watched, &changes, &failure))
        return;
    must(watched != ETCD_WATCH_LOST || failure.what[0] != '\0', "what is lost has a reason");
    must(watched != ETCD_WATCH_COMPACTED || changes.revision > 0, "a compaction has a revision");
    must(changes.revision >= 0 && changes.count <= ETCD_KEYS_MAX, "numbers are bounded");
    for (uint32_t i = 0; i < changes.count; i++) {
        check_entry(&changes.events[i].entry);
        must(i == 0 || changes.events[i - 1].entry.mod_revision <= changes.events[i].entry.mod_revision,
             "events come by revision");
        must(changes.events[i].entry.mod_revision <= changes.revision, "events are of what came");
    }
}

static void fuzz_member(struct str text, struct arena *arena)
{
    struct cluster_member member = {0}, again = {0};
    if (!member_read(text, arena, &member))
        return;
    check_text(member.address);
    check_text(member.host);
    must(member.clock_us >= 0, "a clock is bounded");
    must(member_read(member_write(&member, arena), arena, &again) &&
             str_equal(member.address, again.address) && member.lanes == again.lanes &&
             member.clock_us == again.clock_us && member.rates_count == again.rates_count,
         "a member is the same");
}

static void fuzz_head(struct str text, struct arena *arena)
{
    struct cluster_head head = {0}, again = {0};
    if (!cluster_head_read(text, arena, &head))
        return;
    check_text(head.manifest);
    must(head.previous >= 0 && head.epoch <= INT64_MAX && head.incarnation <= INT64_MAX,
         "numbers are bounded");
    must(cluster_head_read(cluster_head_write(&head, arena), arena, &again) &&
             str_equal(head.manifest, again.manifest) && str_equal(head.digest, again.digest) &&
             head.epoch == again.epoch && head.previous == again.previous,
         "a head is the same");
}

static void fuzz_record(struct str text, struct arena *arena, uint8_t which)
{
    struct cluster_job job = {0}, again = {0};
    uint8_t secret[COORDINATION_SECRET_BYTES], other[COORDINATION_SECRET_BYTES];
    uint64_t incarnation, second;
    struct str placement;
    if (which % 5 == 0)
        fuzz_member(text, arena);
    if (which % 5 == 1)
        fuzz_head(text, arena);
    if (which % 5 == 2 && job_read(text, arena, &job))
        must(job_read(job_write(&job, arena), arena, &again) && str_equal(job.digest, again.digest) &&
                 str_equal(job.by, again.by),
             "a job is the same");
    if (which % 5 == 3 && incarnation_read(text, arena, &incarnation, secret))
        must(incarnation_read(incarnation_write(incarnation, secret, arena), arena, &second, other) &&
                 incarnation == second && memcmp(secret, other, sizeof(secret)) == 0,
             "an incarnation is the same");
    if (which % 5 == 4 && placement_read(text, &placement))
        must(placement.data + placement.length == text.data + text.length,
             "a placement ends where its text does");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.block_bytes = 4096};
    struct fuzz_input input = {data, data + size};
    uint8_t which = fuzz_byte(&input);
    struct str text = fuzz_take(&input, size);
    if (which == 't')
        fuzz_txn(text, &arena);
    else if (which == 'w')
        fuzz_watch(text, &arena);
    else
        fuzz_record(text, &arena, which);
    free((char *)(uintptr_t)text.data);
    arena_free(&arena);
    return 0;
}
