/* What `leat cluster rebalance` and `move` ask the leader for, and its answers: the texts of the records `request` and `answer` in etcd
 * (cluster/coordination.h). JSON with a version, read again with bounds. */
#ifndef LEAT_CLI_CLUSTER_REQUEST_H
#define LEAT_CLI_CLUSTER_REQUEST_H

#include "run/run.h"

enum {
    CLUSTER_REQUEST_NAME_BYTES = 256,    /* of a part of the job (plan_node.part) */
    CLUSTER_REQUEST_ADDRESS_BYTES = 280, /* of a worker */
    CLUSTER_REQUEST_GROUPS_BYTES = 2048,
    CLUSTER_REQUEST_WHAT_BYTES = 800,
};

enum cluster_request_kind { CLUSTER_REQUEST_BALANCE, CLUSTER_REQUEST_GROUPS, CLUSTER_REQUEST_PART };

struct cluster_request {
    enum cluster_request_kind kind;
    uint64_t incarnation; /* of the round that it is for: in a later one nothing comes of it */
    uint64_t nonce;       /* by which who asks knows its own; below 2^63 */
    char groups[CLUSTER_REQUEST_GROUPS_BYTES]; /* of CLUSTER_REQUEST_GROUPS, as group_set_parse takes them */
    char part[CLUSTER_REQUEST_NAME_BYTES];     /* of CLUSTER_REQUEST_PART: of a stage with one instance */
    char address[CLUSTER_REQUEST_ADDRESS_BYTES]; /* of both: of the worker to which it goes */
};

enum cluster_answer_state { CLUSTER_ANSWER_WORKS, CLUSTER_ANSWER_DONE, CLUSTER_ANSWER_REFUSED };

struct cluster_answer {
    uint64_t nonce; /* of the request */
    enum cluster_answer_state state;
    struct run_moves moves; /* but for `state`; of a request that moves groups */
    char what[CLUSTER_REQUEST_WHAT_BYTES], hint[CLUSTER_REQUEST_WHAT_BYTES]; /* of CLUSTER_ANSWER_REFUSED */
};

/* Malloc'd; at most COORDINATION_TEXT_BYTES_MAX bytes. */
char *cluster_request_write(const struct cluster_request *request);
char *cluster_answer_write(const struct cluster_answer *answer);
/* False: it is none. */
LEAT_CHECKED bool cluster_request_read(struct str text, struct cluster_request *request);
LEAT_CHECKED bool cluster_answer_read(struct str text, struct cluster_answer *answer);

#endif
