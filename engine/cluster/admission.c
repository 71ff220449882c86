/* A worker's record has its clock. Where the leader's last look did not show it, it was written after that look, and before this one. So its
 * clock must lie between these two moments, however long the leader has slept. Both are told by the leader's clock as it is now: it may
 * have been set since the last look. */
#include "cluster/admission.h"

#include "core/os.h"

#include <stdio.h>

static const struct admission_member *find(const struct admission *admission, int64_t lease)
{
    for (uint32_t i = 0; i < admission->count; i++)
        if (admission->members[i].lease == lease)
            return &admission->members[i];
    return NULL;
}

const struct cluster_member *admission_earlier(
    const struct cluster_view *view, const struct cluster_member *member, int64_t leader,
    bool (*has_gone)(const void *user, const struct cluster_member *member), const void *user)
{
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *other = &view->members[i];
        bool is_earlier = other->lease == leader || (member->lease != leader && other->since < member->since);
        if (other->lease != member->lease && is_earlier && str_equal(other->address, member->address) &&
            !other->is_refused && !has_gone(user, other))
            return other;
    }
    return NULL;
}

static enum etcd_outcome refuse(struct coordination *coordination, const struct cluster_member *member,
                                const char *what, const char *hint, struct diag_list *diags)
{
    return coordination_refuse(coordination, member->lease, str_from(what), str_from(hint), diags);
}

static enum etcd_outcome judge_clock(struct coordination *coordination, const struct cluster_view *view,
                                     const struct cluster_member *member, int64_t from_us, int64_t to_us,
                                     struct diag_list *diags)
{
    char what[1024];
    const struct cluster_member *leader = cluster_view_member(view, coordination_lease(coordination));
    bool is_behind = member->clock_us < from_us;
    int64_t off_us = is_behind ? from_us - member->clock_us : member->clock_us - to_us;
    if (off_us <= ADMISSION_CLOCK_US || leader == NULL)
        return ETCD_DONE;
    snprintf(
        what, sizeof(what),
        "the clock of this worker, on %.*s, is at least %.0f s %s that of the leader, at %.*s on %.*s: expected at most %.0f s",
        STR_ARGS(member->host), (double)(off_us / 1000000), is_behind ? "behind" : "ahead of",
        STR_ARGS(leader->address), STR_ARGS(leader->host), (double)ADMISSION_CLOCK_US / 1e6);
    return refuse(coordination, member, what,
                  "set the clocks of both machines (NTP: `timedatectl`), then start this worker again",
                  diags);
}

static enum etcd_outcome refuse_address(struct coordination *coordination,
                                        const struct cluster_member *member,
                                        const struct cluster_member *other, struct diag_list *diags)
{
    char what[1024];
    snprintf(
        what, sizeof(what),
        "the worker on %.*s has the address %.*s, too, under which the others are to reach this one, on %.*s",
        STR_ARGS(other->host), STR_ARGS(other->address), STR_ARGS(member->host));
    return refuse(
        coordination, member, what,
        "give each worker an address of its own (--listen, --advertise); a process that has died keeps its address until its "
        "lease expires",
        diags);
}

enum etcd_outcome admission_look(struct admission *admission, struct coordination *coordination,
                                 const struct cluster_view *view, int64_t began_us, bool leads,
                                 bool (*has_gone)(const void *user, const struct cluster_member *member),
                                 const void *user, struct diag_list *diags)
{
    struct admission now = {.looked_us = began_us};
    int64_t monotonic_us = os_monotonic_us(), wall_us = os_wall_us(), self = coordination_lease(coordination);
    int64_t last_look_us = wall_us - (coordination_clock_us() - admission->looked_us);
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *member = &view->members[i];
        const struct admission_member *known = find(admission, member->lease);
        struct admission_member *next = &now.members[now.count++];
        *next = known != NULL ? *known : (struct admission_member){member->lease, monotonic_us};
        if (!leads || member->lease == self || member->is_refused)
            continue;
        enum etcd_outcome outcome = ETCD_DONE;
        if (known == NULL && admission->looked_us != 0)
            outcome = judge_clock(coordination, view, member, last_look_us, wall_us, diags);
        const struct cluster_member *other = admission_earlier(view, member, self, has_gone, user);
        if (outcome == ETCD_DONE && other != NULL && monotonic_us - next->came_us > ADMISSION_ADDRESS_US)
            outcome = refuse_address(coordination, member, other, diags);
        if (outcome != ETCD_DONE)
            return outcome; /* the next look judges again */
    }
    *admission = now;
    return ETCD_DONE;
}

enum etcd_outcome admission_refused(const struct cluster_view *view, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_WORKER_UNFIT, (struct span){0}, "%.*s", STR_ARGS(view->refusal));
    diag_hint(diags, d, "%.*s", STR_ARGS(view->refusal_hint));
    return ETCD_REFUSED;
}
