/* Joining: the job's record, the lease, the member's key. */
#include "cluster/coordination_internal.h"
#include "core/log.h"
#include "core/os.h"

static enum etcd_outcome say_differs(const struct coordination *coordination, const char *what,
                                     struct str found, const struct cluster_job *there, const char *hint,
                                     struct diag_list *diags)
{
    struct str expected = what[0] == 'j' ? there->digest : what[0] == 'v' ? there->version : there->profile;
    struct diag *d = diag_error(
        diags, DIAG_CLUSTER_DIFFERS, (struct span){0},
        "cluster `%s`: expected the %s `%.*s`, which the worker at `%.*s` began it with, found `%.*s`",
        coordination->name, what, STR_ARGS(expected), STR_ARGS(there->by), STR_ARGS(found));
    diag_hint(diags, d, "%s", hint);
    return ETCD_REFUSED;
}

/* Another version of leat goes on with the job, if no worker is there: writes the record anew, with the run of old. */
static enum etcd_outcome change_version(struct coordination *coordination, const struct etcd_entry *entry,
                                        const struct cluster_job *job, const struct cluster_job *there,
                                        struct arena *arena, struct diag_list *diags)
{
    struct cluster_job now = *there;
    now.version = job->version;
    now.by = job->by;
    const struct etcd_compare compares[] = {
        {.key = entry->key, .target = ETCD_MOD_REVISION, .number = entry->mod_revision},
        {.key = coordination_key(coordination, arena, "members/"),
         .target = ETCD_CREATE_REVISION,
         .is_prefix = true}};
    const struct etcd_op make = {.kind = ETCD_PUT, .key = entry->key, .value = job_write(&now, arena)};
    const struct etcd_txn txn = {
        .compares = compares, .compares_count = ARRAY_COUNT(compares), .then_ops = &make, .then_count = 1};
    struct etcd_answer answer;
    enum etcd_outcome outcome = etcd_txn(coordination->etcd, &txn, arena, &answer, diags);
    if (outcome == ETCD_DONE) {
        coordination->job_revision = answer.revision;
        log_say(LOG_LEVEL_INFO, "the job goes on with version %.*s of leat, after %.*s",
                STR_ARGS(now.version), STR_ARGS(there->version));
        return ETCD_DONE;
    }
    if (answer.error != ETCD_COMPARE)
        return coordination_failed(&answer);
    if (answer.compare == 0)
        return ETCD_UNKNOWN; /* another worker of this version may have written it: it is read again */
    return say_differs(
        coordination, "version of leat", job->version, there,
        "start that version here; or stop all workers (`leat cluster stop`), and start all of them with "
        "this version: it goes on from the head",
        diags);
}

static enum etcd_outcome compare_job(struct coordination *coordination, const struct etcd_entry *entry,
                                     const struct cluster_job *job, struct arena *arena,
                                     struct diag_list *diags)
{
    struct cluster_job there;
    if (!job_read(entry->value, arena, &there))
        return coordination_lost(coordination, diags, "the job's record is damaged");
    if (!str_equal(there.digest, job->digest))
        return say_differs(
            coordination, "job", job->digest, &there,
            "a job that has changed goes on as a new run: stop all workers, `leat run JOB --from=DIR/cluster/heads/head-...` "
            "with another checkpoint directory, then a cluster of another name",
            diags);
    if (!str_equal(there.profile, job->profile))
        return say_differs(coordination, "profile of arithmetic", job->profile, &there,
                           "start this worker on a machine of the same profile", diags);
    if (coordination->job_since != 0 && coordination->job_since != entry->create_revision)
        return coordination_lost(coordination, diags, "the job's record was made anew");
    coordination->job_since = entry->create_revision;
    coordination->job_revision = entry->mod_revision;
    return str_equal(there.version, job->version)
               ? ETCD_DONE
               : change_version(coordination, entry, job, &there, arena, diags);
}

/* The job's record is made, unless it must be there, or compared. */
static enum etcd_outcome join_job(struct coordination *coordination, const struct cluster_job *job,
                                  bool must_be_there, struct arena *arena, struct diag_list *diags)
{
    struct str key = coordination_key(coordination, arena, "job");
    const struct etcd_compare absent = {
        .key = key, .target = ETCD_CREATE_REVISION, .relation = must_be_there ? ETCD_LESS : ETCD_EQUAL};
    const struct etcd_op make = {.kind = ETCD_PUT, .key = key, .value = job_write(job, arena)},
                         look = {.kind = ETCD_RANGE, .key = key};
    const struct etcd_txn txn = {.compares = &absent,
                                 .compares_count = 1,
                                 .then_ops = &make,
                                 .then_count = 1,
                                 .else_ops = &look,
                                 .else_count = 1};
    struct etcd_answer answer;
    enum etcd_outcome outcome = etcd_txn(coordination->etcd, &txn, arena, &answer, diags);
    if (outcome != ETCD_DONE && answer.error != ETCD_COMPARE)
        return coordination_failed(&answer);
    if (!coordination_see(coordination, &answer, diags))
        return ETCD_REFUSED;
    if (outcome == ETCD_DONE) {
        coordination->job_since = coordination->job_revision = answer.revision;
        return ETCD_DONE;
    }
    if (answer.count == 0)
        return coordination_lost(coordination, diags,
                                 "expected its record, for it has run before, found none");
    return compare_job(coordination, &answer.entries[0], job, arena, diags);
}

static enum etcd_outcome get_lease(struct coordination *coordination, struct diag_list *diags)
{
    struct etcd_answer answer;
    if (coordination_lease(coordination) != 0 && !coordination_is_gone(coordination))
        return ETCD_DONE;
    coordination->leading = 0; /* that was with the old lease */
    int64_t sent_us = coordination_clock_us();
    if (etcd_lease_grant(coordination->etcd, coordination->lease_s, &answer, diags) != ETCD_DONE)
        return coordination_failed(&answer);
    keeper_take(&coordination->keeper, answer.lease, sent_us, answer.ttl_s);
    return ETCD_DONE;
}

enum etcd_outcome coordination_join(struct coordination *coordination, const struct cluster_job *job,
                                    const struct cluster_member *member, bool has_history,
                                    struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    enum etcd_outcome outcome =
        join_job(coordination, job, has_history || coordination->job_since != 0, &arena, diags);
    if (outcome == ETCD_DONE)
        outcome = get_lease(coordination, diags);
    arena_free(&arena);
    return outcome == ETCD_DONE ? coordination_tell(coordination, member, diags) : outcome;
}

enum etcd_outcome coordination_tell(struct coordination *coordination, const struct cluster_member *member,
                                    struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct etcd_answer answer;
    struct cluster_member now = *member;
    int64_t lease = coordination_lease(coordination);
    now.clock_us = os_wall_us();
    if (lease == 0)
        return coordination_taken(coordination, diags, "this worker has no lease");
    /* Where the job's record was written anew meanwhile, this worker joins anew, and compares. */
    const struct etcd_compare as_joined = {.key = coordination_key(coordination, &arena, "job"),
                                           .target = ETCD_MOD_REVISION,
                                           .number = coordination->job_revision};
    const struct etcd_op put = {.kind = ETCD_PUT,
                                .key = coordination_lease_key(coordination, &arena, "members", lease),
                                .value = member_write(&now, &arena),
                                .lease = lease};
    const struct etcd_txn txn = {
        .compares = &as_joined, .compares_count = 1, .then_ops = &put, .then_count = 1};
    enum etcd_outcome outcome = etcd_txn(coordination->etcd, &txn, &arena, &answer, diags);
    if (outcome != ETCD_DONE && answer.error == ETCD_COMPARE)
        outcome = coordination_taken(coordination, diags, "the job's record is another one now");
    else if (outcome != ETCD_DONE)
        outcome = coordination_failed(&answer);
    if (answer.error == ETCD_NO_LEASE)
        atomic_store(&coordination->keeper.is_gone, true);
    arena_free(&arena);
    return outcome;
}

enum etcd_outcome coordination_leave(struct coordination *coordination, struct diag_list *diags)
{
    struct etcd_answer answer;
    int64_t lease = coordination_lease(coordination);
    if (lease == 0)
        return ETCD_DONE;
    enum etcd_outcome outcome = etcd_lease_revoke(coordination->etcd, lease, &answer, diags);
    if (outcome != ETCD_DONE && answer.error != ETCD_NO_LEASE)
        return coordination_failed(&answer);
    keeper_drop(&coordination->keeper);
    coordination->leading = 0;
    return ETCD_DONE;
}
