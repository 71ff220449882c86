/* What is asked of workers, by who is no member, too: the job's stop, other workers, moves; and what the leader tells a worker that it
 * refuses. */
#include "cluster/coordination_internal.h"

enum etcd_outcome coordination_ask_stop(struct coordination *coordination, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    enum etcd_outcome outcome = etcd_put(coordination->etcd, coordination_key(coordination, &arena, "stop"),
                                         STR("1"), 0, &answer, diags);
    if (outcome != ETCD_DONE)
        outcome = coordination_failed(&answer);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_refuse(struct coordination *coordination, int64_t lease, struct str what,
                                      struct str hint, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    enum etcd_outcome outcome =
        etcd_put(coordination->etcd, coordination_lease_key(coordination, &arena, "refused", lease),
                 refusal_write(what, hint, &arena), lease, &answer, diags);
    if (outcome != ETCD_DONE && answer.error != ETCD_NO_LEASE)
        outcome = coordination_failed(&answer);
    else
        outcome = ETCD_DONE;
    arena_free(&arena);
    return outcome;
}

/* Writes the record, if it still has the mod revision that was read. what: that it asks for. */
static enum etcd_outcome ask(struct coordination *coordination, const char *record, struct str value,
                             int64_t revision, const char *what, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    struct str key = coordination_key(coordination, &arena, record);
    const struct etcd_compare as_read = {.key = key, .target = ETCD_MOD_REVISION, .number = revision};
    const struct etcd_op put = {.kind = ETCD_PUT, .key = key, .value = value};
    const struct etcd_txn txn = {
        .compares = &as_read, .compares_count = 1, .then_ops = &put, .then_count = 1};
    enum etcd_outcome outcome = etcd_txn(coordination->etcd, &txn, &arena, &answer, diags);
    if (outcome != ETCD_DONE && answer.error == ETCD_COMPARE)
        diag_hint(diags,
                  diag_error(diags, DIAG_CHANGE_REFUSED, (struct span){0},
                             "cluster `%s`: somebody else has asked for %s at the same time",
                             coordination->name, what),
                  "look at `leat cluster status`, and ask again");
    else if (outcome != ETCD_DONE)
        outcome = coordination_failed(&answer);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_ask_workers(struct coordination *coordination,
                                           const struct cluster_wanted *wanted, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    enum etcd_outcome outcome =
        ask(coordination, "wanted", wanted_write(wanted, &arena), wanted->revision, "other workers", diags);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_ask(struct coordination *coordination, struct str text, int64_t revision,
                                   struct diag_list *diags)
{
    leat_assert(text.length <= COORDINATION_TEXT_BYTES_MAX);
    return ask(coordination, "request", text, revision, "a move", diags);
}
