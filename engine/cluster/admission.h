/* Inside cluster/: whom the leader takes in. Each worker watches who comes, so that whoever leads next knows. A worker is refused whose clock
 * is off, or that others would reach under the address of another one that lives. */
#ifndef LEAT_CLUSTER_ADMISSION_H
#define LEAT_CLUSTER_ADMISSION_H

#include "cluster/coordination.h"

#define ADMISSION_CLOCK_US (INT64_C(5) * 1000000) /* by which a worker's clock may differ from the leader's */
#define ADMISSION_ADDRESS_US                                                                                 \
    (INT64_C(10) *                                                                                           \
     1000000) /* for which a worker waits until the one that had its address has gone: it may be its own last life */

/* Zeroed at first. */
struct admission {
    struct admission_member {
        int64_t lease, came_us; /* came_us: when it was seen first; monotonic */
    } members[COORDINATION_MEMBERS_MAX];
    uint32_t count;
    int64_t looked_us; /* before the last look, by coordination_clock_us; 0: none yet */
};

/* A look at the record, which was read between began_us, by coordination_clock_us, and now. leads: this worker, `self`, refuses who may take no
 * part: ETCD_DONE, or what coordination_refuse returned. has_gone(user, member): the member does not count, though its lease lives. */
LEAT_CHECKED enum etcd_outcome admission_look(struct admission *admission, struct coordination *coordination,
                                              const struct cluster_view *view, int64_t began_us, bool leads,
                                              bool (*has_gone)(const void *user,
                                                               const struct cluster_member *member),
                                              const void *user, struct diag_list *diags);
/* An earlier member that lives and has the same address; NULL: there is none. Of two that came together the leader, `leader`, is the
 * earlier one. */
const struct cluster_member *admission_earlier(
    const struct cluster_view *view, const struct cluster_member *member, int64_t leader,
    bool (*has_gone)(const void *user, const struct cluster_member *member), const void *user);
/* Says that the leader has refused this worker (cluster_view.refusal). */
enum etcd_outcome admission_refused(const struct cluster_view *view, struct diag_list *diags);

#endif
