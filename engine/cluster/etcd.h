/* A client of etcd (3.4 and later) by its JSON gateway, `/v3`, over libcurl.
 *
 * THE OUTCOME HAS THREE VALUES. A write that was sent and not answered may have happened, may not have, and may still happen.
 * So may one whose answer does not tell, such as "request timed out" and "database space exceeded". Until a linearizable read
 * shows what is there, nothing follows from ETCD_UNKNOWN; and as long as the request may still be under way, the read is not
 * the last word: sending the very same guarded txn again is (coordination.h does both). A client never sends a write twice by
 * itself, unless nothing of the first was sent or etcd's answer shows that it did not happen.
 *
 * Keys and values are bytes. Revisions are etcd's. Each request ends by its deadline, on the monotonic clock. One thread at a
 * time uses a client, but for etcd_stop. */
#ifndef LEAT_CLUSTER_ETCD_H
#define LEAT_CLUSTER_ETCD_H

#include "core/arena.h"
#include "core/diag.h"

enum {
    ETCD_ENDPOINTS_MAX = 16,
    ETCD_PORT = 2379,                 /* where an endpoint names none */
    ETCD_REQUEST_BYTES_MAX = 1 << 20, /* of keys and values in one request; etcd takes 1.5 MiB */
    ETCD_ANSWER_BYTES_MAX = 8 << 20,  /* of one answer, as JSON */
    ETCD_KEYS_MAX = 16384,            /* that one range gives */
    ETCD_OPS_MAX = 64,                /* compares, or operations, of one txn; etcd takes 128 */
};

/* ETCD_UNKNOWN is 0: what nobody has set says nothing. */
enum etcd_outcome {
    ETCD_UNKNOWN, /* a write: it may have happened, or may yet; a read: there is no answer */
    ETCD_DONE,    /* it happened */
    ETCD_REFUSED, /* it did not happen, and will not: `error` says why */
};

enum etcd_error {
    ETCD_NO_ERROR,
    ETCD_COMPARE,     /* compare number `compare` of the txn does not hold */
    ETCD_UNREACHABLE, /* no endpoint could be connected to; nothing was sent */
    ETCD_NO_ANSWER,   /* none by the deadline, or a torn one */
    ETCD_BAD_ANSWER,  /* one that is not etcd's, or too long */
    ETCD_NO_LEADER,   /* the member has no leader: no quorum, as far as it can see */
    ETCD_TIMED_OUT,   /* etcd gave up waiting for its quorum, or is stopping */
    ETCD_BUSY,        /* too many requests */
    ETCD_NO_SPACE,    /* the quota is used up, and the alarm is on. A write may have happened all the same. */
    ETCD_DENIED,      /* the user may not do this, or no user was given where one is needed */
    ETCD_LOGIN,       /* wrong user or password */
    ETCD_TOKEN,       /* the token is not known any more; a new one has been asked for, and did not help */
    ETCD_COMPACTED,   /* the revision is no longer kept */
    ETCD_FUTURE,      /* the revision is not there yet: data was lost, or it is another etcd */
    ETCD_TOO_LARGE,   /* the request, or what a range would give */
    ETCD_NO_LEASE,    /* the lease has expired, or was revoked */
    ETCD_TLS,         /* one side did not accept the other's certificate */
    ETCD_CERTIFICATE_NAME, /* the client certificate has a CN, and etcd has authentication on */
    ETCD_OTHER,            /* another error */
};

struct etcd_options {
    struct str endpoints; /* "H1:2379,H2:2379": hosts with or without ports; copied */
    /* Paths of PEM files. authority: TLS, and the members' certificates must be signed by it. NULL: plaintext; beyond loopback
     * that is a warning (E0609), as for Kafka and object stores: etcd itself is installed so, and in a private network
     * encryption is the network's. certificate, key: this client's; NULL: none. */
    const char *authority, *certificate, *key;
    const char *user, *password; /* both or neither */
    int64_t request_us;          /* deadline of one request, all its tries together; 0: 5 s */
};

struct etcd;

/* Sends nothing yet. The texts are copied. NULL after a diagnostic: the options cannot be used. */
struct etcd *etcd_open(const struct etcd_options *options, struct diag_list *diags);
void etcd_close(struct etcd *etcd); /* NULL is allowed */
/* The request in work, and all later ones, end within a second. Any thread. */
void etcd_stop(struct etcd *etcd);
bool etcd_is_stopped(const struct etcd *etcd); /* any thread */
/* Another deadline for each later request, in microseconds. */
void etcd_set_deadline(struct etcd *etcd, int64_t request_us);
/* The endpoint that answered last: "HOST:PORT". Valid until the next request. */
const char *etcd_endpoint(const struct etcd *etcd);

struct etcd_entry {
    struct str key, value;
    int64_t create_revision; /* since when the key has been there; 0: it is not there */
    int64_t mod_revision;    /* of its last change */
    int64_t version;         /* changes since then, from 1 */
    int64_t lease;           /* 0: none */
};

struct etcd_answer {
    enum etcd_outcome outcome; /* the same that the function returned */
    enum etcd_error error;
    uint32_t compare;           /* of ETCD_COMPARE: the first compare that does not hold */
    uint64_t cluster;           /* etcd's id of itself; 0: not told */
    int64_t revision;           /* of the store when it answered; 0: not told */
    struct etcd_entry *entries; /* of a range, and of the ranges in a txn; in the arena */
    uint32_t count;
    int64_t lease, ttl_s; /* of lease functions; ttl_s <= 0: the lease is gone */
};

/* Each request below: fills *answer, whose bytes lie in the arena, and returns its outcome. Unless it is ETCD_DONE, or
 * ETCD_REFUSED by a compare, a diagnostic (E0712) says endpoint, what was expected and found, and the way out; secrets are not
 * in it. */

struct etcd_range {
    struct str key;
    bool is_prefix;       /* all keys that begin with `key` */
    bool is_serializable; /* may be stale: by the asked member alone, also without quorum */
    bool is_first_made;   /* only the entry with the lowest create revision */
    int64_t revision;     /* as of then; 0: now */
};

/* What is there, ordered by key; read in pages, all of one revision. More than ETCD_KEYS_MAX: ETCD_TOO_LARGE. */
LEAT_CHECKED enum etcd_outcome etcd_range(struct etcd *etcd, const struct etcd_range *range,
                                          struct arena *arena, struct etcd_answer *answer,
                                          struct diag_list *diags);

struct etcd_compare {
    struct str key;
    enum etcd_target { ETCD_VALUE, ETCD_VERSION, ETCD_CREATE_REVISION, ETCD_MOD_REVISION } target;
    enum etcd_relation { ETCD_EQUAL, ETCD_NOT_EQUAL, ETCD_GREATER, ETCD_LESS } relation;
    int64_t number;   /* but for ETCD_VALUE; 0 for a key that is not there */
    struct str value; /* for ETCD_VALUE; a key that is not there is equal to no value */
    bool
        is_prefix; /* it holds for all keys that begin with `key`; where there are none, for one that is not there */
};

struct etcd_op {
    enum etcd_op_kind { ETCD_PUT, ETCD_DELETE, ETCD_RANGE } kind;
    struct str key, value;
    bool is_prefix; /* but for ETCD_PUT */
    int64_t lease;  /* of ETCD_PUT; 0: none */
};

struct etcd_txn {
    const struct etcd_compare *compares;
    uint32_t compares_count;
    const struct etcd_op *then_ops, *else_ops; /* a key is put at most once */
    uint32_t then_count, else_count;
};

/* All of then_ops if all compares hold, in one revision: ETCD_DONE. Else all of else_ops: ETCD_REFUSED by ETCD_COMPARE.
 * entries: of the ranges among the operations done, in their order. */
LEAT_CHECKED enum etcd_outcome etcd_txn(struct etcd *etcd, const struct etcd_txn *txn, struct arena *arena,
                                        struct etcd_answer *answer, struct diag_list *diags);
LEAT_CHECKED enum etcd_outcome etcd_put(struct etcd *etcd, struct str key, struct str value, int64_t lease,
                                        struct etcd_answer *answer, struct diag_list *diags);
LEAT_CHECKED enum etcd_outcome etcd_delete(struct etcd *etcd, struct str key, bool is_prefix,
                                           struct etcd_answer *answer, struct diag_list *diags);
/* History before `revision` is forgotten, for all users of this etcd. ETCD_COMPACTED: it was already. */
LEAT_CHECKED enum etcd_outcome etcd_compact(struct etcd *etcd, int64_t revision, struct etcd_answer *answer,
                                            struct diag_list *diags);

/* A new lease; answer->lease, and answer->ttl_s, which may be more than was asked for. After ETCD_UNKNOWN a lease that nobody
 * knows may be there until it expires. */
LEAT_CHECKED enum etcd_outcome etcd_lease_grant(struct etcd *etcd, int64_t ttl_s, struct etcd_answer *answer,
                                                struct diag_list *diags);
/* ETCD_REFUSED by ETCD_NO_LEASE: it is gone. The lease lives for answer->ttl_s at least, counted from before this call. */
LEAT_CHECKED enum etcd_outcome etcd_lease_keep(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                               struct diag_list *diags);
LEAT_CHECKED enum etcd_outcome etcd_lease_revoke(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                                 struct diag_list *diags);
LEAT_CHECKED enum etcd_outcome etcd_lease_left(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                               struct diag_list *diags);

struct etcd_status {
    int64_t bytes, bytes_in_use; /* of the answering member's database file */
    uint64_t leader, member;     /* leader 0: there is none */
    bool is_out_of_space;        /* the alarm NOSPACE is on */
    char version[32];
};

/* Of the member that answers, also without quorum. */
LEAT_CHECKED enum etcd_outcome etcd_status(struct etcd *etcd, struct etcd_status *status,
                                           struct diag_list *diags);

/* --- Watching (etcd_watch.c) ---
 *
 * A stream of changes, each once and in order, over a connection of its own. What waits unread is bounded: the connection is
 * read only within etcd_watch_next, and etcd holds the changes back. */

struct etcd_watch;

struct etcd_event {
    bool is_delete; /* then the entry has key and mod_revision only */
    struct etcd_entry entry;
};

enum etcd_watched {
    ETCD_WATCH_QUIET,    /* nothing came in that time */
    ETCD_WATCH_EVENTS,   /* events, all of their revisions */
    ETCD_WATCH_PROGRESS, /* nothing changed up to `revision` */
    ETCD_WATCH_COMPACTED, /* changes from the wanted revision on are gone; the first still kept is `revision`. Read what is
                             there, and watch from behind that. The watch gives nothing more. */
    ETCD_WATCH_LOST, /* no connection, no leader, or an answer that is none, after a diagnostic: the next call goes on
                             from the next revision, at the next endpoint */
};

struct etcd_changes {
    struct etcd_event *events; /* in the arena */
    uint32_t count;
    int64_t revision; /* up to which all changes have come */
};

/* start: the first revision of which changes are wanted; 0: those from now on. Connects with the first etcd_watch_next. The
 * client must outlive the watch, and one thread uses both. */
struct etcd_watch *etcd_watch_open(struct etcd *etcd, struct str key, bool is_prefix, int64_t start);
/* Waits for at most wait_us. A connection that is cut without a word is noticed after a minute. */
enum etcd_watched etcd_watch_next(struct etcd_watch *watch, int64_t wait_us, struct arena *arena,
                                  struct etcd_changes *changes, struct diag_list *diags);
void etcd_watch_close(struct etcd_watch *watch); /* NULL is allowed */

#endif
