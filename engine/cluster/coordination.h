/* What the workers of one cluster NAME agree on, kept in etcd under /leat/NAME/, and the steps on it.
 *
 *     job            the job's digest, leat's version, the numerics profile: by the first worker, compared by all later ones
 *     members/L      one for each worker, under its lease L: address, host, lanes, clock
 *     election/L     a candidate's, under its lease; the lowest create revision leads
 *     incarnation    a number, which rises at each return to the head, and a secret of that incarnation
 *     placement      what the leader last said about placement
 *     head           the newest checkpoint
 *     refused/L      why worker L may take no part, by the leader, under that worker's lease
 *     stop           written when somebody asks the workers that are there to stop the job
 *     wanted         how many workers the job is to have, and who is to leave: what somebody has asked for
 *     request        what the leader is to move, as somebody has asked for
 *     answer         how far the leader is with it
 *
 * A leader's writes are txns that demand its own election key, by create revision, and the record's previous mod revision. So a
 * leader that was replaced writes nothing, whatever it believes; and of two writes that follow the same record one is refused.
 *
 * Each step returns what is known of it (etcd.h):
 *
 *     ETCD_DONE      it happened
 *     ETCD_REFUSED   it did not, and never will; a diagnostic says who or what is in the way
 *     ETCD_UNKNOWN   nothing is known: no quorum, no answer, no connection. Conclude nothing, publish nothing; call it again
 *                    with the same arguments. A leader's write that is in doubt stays so until it is settled: another write of
 *                    the same record is ETCD_UNKNOWN until then.
 *
 * One thread uses a coordination, but for the functions that say `any thread`. A thread of its own keeps the lease. */
#ifndef LEAT_CLUSTER_COORDINATION_H
#define LEAT_CLUSTER_COORDINATION_H

#include "cluster/etcd.h"

enum {
    COORDINATION_NAME_BYTES_MAX = 64,
    COORDINATION_MEMBERS_MAX = 1024,
    COORDINATION_SECRET_BYTES = 32,
    COORDINATION_TEXT_BYTES_MAX = 4096, /* of a text in a record */
    COORDINATION_PLACEMENT_BYTES_MAX = 512 << 10,
    COORDINATION_LEASE_S = 3, /* unless told otherwise */
    COORDINATION_LEASE_S_MAX = 3600,
    COORDINATION_COMPACT_EVERY = 1000, /* heads */
};

/* "etcd://H1:2379,H2:2379/NAME". NAME: 1 to 64 letters, digits, `-`, `_` and `.`, the first one a letter or digit. */
struct coordination_address {
    struct str endpoints, name; /* parts of the text */
};
LEAT_CHECKED bool coordination_parse(struct str text, struct coordination_address *address,
                                     struct diag_list *diags);

struct coordination_options {
    struct str address;       /* "etcd://.../NAME" */
    struct etcd_options etcd; /* but for its endpoints */
    uint32_t lease_s;         /* 0: COORDINATION_LEASE_S. etcd may give a longer one. */
    uint32_t compact_every;   /* heads between two compactions by the leader; 0: COORDINATION_COMPACT_EVERY */
};

struct coordination;

/* Sends nothing. NULL after a diagnostic. */
struct coordination *coordination_open(const struct coordination_options *options, struct diag_list *diags);
/* Ends the thread; the lease stays until it expires (coordination_leave gives it back). NULL is allowed. */
void coordination_close(struct coordination *coordination);
/* The step in work ends within a second, as ETCD_UNKNOWN. Any thread. */
void coordination_stop(struct coordination *coordination);

/* --- Records --- */

/* Texts: UTF-8, at most COORDINATION_TEXT_BYTES_MAX. */
struct cluster_job {
    struct str digest, version, profile; /* of the job, of leat, of its arithmetic */
    struct str by;                       /* who wrote it: the first worker's address. Not compared. */
    struct str run; /* the job's id for sinks, as hex digits: the first worker's. Not compared. */
};

/* A head, as a standby has prepared it. */
struct cluster_prepared {
    uint64_t incarnation, epoch; /* epoch 0: none yet */
    int64_t clock_us;            /* cluster_head.clock_us of it */
};

/* How fast a worker can send to another one, as it has measured. */
struct cluster_rate {
    int64_t lease; /* of the other one */
    int64_t bytes_per_s;
};

struct cluster_member {
    struct str address, host;
    struct str
        flags; /* what must be alike at all members that are there at one time, for people to read (rendezvous.h) */
    uint32_t lanes;
    int64_t clock_us;            /* of a record that was read: its wall clock when it wrote the record */
    uint64_t over;               /* it has left all incarnations up to this one (rendezvous.h) */
    uint64_t ended;              /* its part of the job has come to its end in that incarnation; 0: in none */
    const struct str *unreached; /* addresses of workers that did not answer it in the incarnation `over` */
    uint32_t unreached_count;
    const struct cluster_rate *rates; /* to workers of its newest incarnation */
    uint32_t rates_count;             /* at most COORDINATION_MEMBERS_MAX */
    bool leaves; /* it takes part in no later incarnation, and ends once this one has come to a planned end */
    bool is_standby;                  /* it takes part in place of one that has gone alone (rendezvous.h) */
    struct cluster_prepared prepared; /* of a standby */
    uint64_t
        fits; /* of one that waits: it has what the leader of that incarnation has described; 0: not known */
    /* Of a record that was read: */
    int64_t lease; /* who it is */
    int64_t since; /* the create revision of its key: who came first */
    bool is_refused;
};

struct cluster_head {
    uint64_t incarnation, epoch;
    struct str manifest, digest; /* name and digest of the checkpoint's manifest in the store */
    int64_t clock_us;            /* the leader's wall clock when it published */
    /* Of a record that was read: */
    int64_t revision; /* its mod revision; 0: there is no head */
    int64_t previous; /* the mod revision of the head before it; 0: none */
    int64_t writer;   /* the leader's lease */
};

enum { COORDINATION_WITHOUT_MAX = 64 };

/* What somebody has asked of the workers (rendezvous.h). */
struct cluster_wanted {
    uint32_t workers; /* of an incarnation; 0: as many as may be */
    int64_t without
        [COORDINATION_WITHOUT_MAX]; /* leases: the first incarnation after this request is without them */
    uint32_t without_count;
    int64_t drains;   /* the lease of who is to leave; 0: nobody */
    struct str by;    /* who has asked for what, in words */
    int64_t revision; /* of a record that was read: its mod revision; 0: nobody has asked yet */
};

/* `request` or `answer`: a text for who asks, and for the leader's work. */
struct cluster_text {
    struct str text;  /* length 0: there is none */
    int64_t revision; /* its mod revision */
};

struct cluster_view {
    int64_t revision; /* of etcd; all of the view is of that moment */
    bool has_job;
    struct cluster_job job;
    struct cluster_member *members; /* by lease */
    uint32_t members_count;
    int64_t leader;       /* its lease; 0: there is none */
    int64_t leader_since; /* the create revision of its election key */
    uint64_t incarnation; /* 0: none yet */
    uint8_t secret[COORDINATION_SECRET_BYTES];
    struct str placement;
    struct cluster_head head;
    int64_t stop; /* the mod revision of `stop`; 0: nobody has asked yet */
    struct cluster_wanted wanted;
    struct cluster_text request, answer;
    struct str refusal, refusal_hint; /* why this worker, the reader, is refused; length 0: it is not */
};

/* NULL: nobody has that lease. */
static inline const struct cluster_member *cluster_view_member(const struct cluster_view *view, int64_t lease)
{
    for (uint32_t i = 0; i < view->members_count; i++)
        if (view->members[i].lease == lease)
            return &view->members[i];
    return NULL;
}

/* --- Membership --- */

/* The job's record is made or compared, or, with another version of leat where no worker is there, written anew; a lease is granted and kept, and the member's key written. has_history: this job has
 * run as this cluster before (there are checkpoints): a cluster without a record is then one whose record was lost.
 * ETCD_REFUSED: E0713 (another job or profile, or another version than that of workers that are there) or E0714 (the record was lost). Call it again after ETCD_UNKNOWN, and,
 * for a new lease, once coordination_is_gone. */
LEAT_CHECKED enum etcd_outcome coordination_join(struct coordination *coordination,
                                                 const struct cluster_job *job,
                                                 const struct cluster_member *member, bool has_history,
                                                 struct diag_list *diags);
/* Writes the member's key anew, after coordination_join. ETCD_REFUSED (E0709): the lease is gone. */
LEAT_CHECKED enum etcd_outcome coordination_tell(struct coordination *coordination,
                                                 const struct cluster_member *member,
                                                 struct diag_list *diags);
/* Whether the lease cannot have expired yet: counted from before the last keep-alive was sent, by a clock that also goes on
 * while the process or the machine is stopped, less a tenth. It asks nobody. false: do nothing as a member; after the next
 * keep-alive it may be true again. Any thread. */
bool coordination_is_member(const struct coordination *coordination);
/* For how long it will be true at least, in microseconds; 0: it is not. Any thread. */
int64_t coordination_member_us(const struct coordination *coordination);
/* Whether etcd has said that the lease is gone: it will not come back. Any thread. */
bool coordination_is_gone(const struct coordination *coordination);
/* A clock in microseconds that nobody sets, and that goes on while the machine sleeps. Any thread. */
int64_t coordination_clock_us(void);
/* Who this worker is: its lease; 0: it has none. Any thread. */
int64_t coordination_lease(const struct coordination *coordination);
/* Gives the lease back, and with it the member's and election keys. */
LEAT_CHECKED enum etcd_outcome coordination_leave(struct coordination *coordination, struct diag_list *diags);

/* All of the record, by one linearizable read. The view's bytes lie in the arena. ETCD_REFUSED: E0714: what this worker has
 * seen there is gone or went back (etcd's data was lost, or restored from an older snapshot), or cannot be read. */
LEAT_CHECKED enum etcd_outcome coordination_read(struct coordination *coordination, struct arena *arena,
                                                 struct cluster_view *view, struct diag_list *diags);
/* Asks the workers that are there to stop the job. Of who is no member, too. */
LEAT_CHECKED enum etcd_outcome coordination_ask_stop(struct coordination *coordination,
                                                     struct diag_list *diags);
/* Tells another worker that it may take no part, and what it can do. Nothing happens where that worker has gone. */
LEAT_CHECKED enum etcd_outcome coordination_refuse(struct coordination *coordination, int64_t lease,
                                                   struct str what, struct str hint, struct diag_list *diags);
/* Asks for other workers, in place of the request that was read last: wanted->revision. Of who is no member, too. ETCD_REFUSED (E0716):
 * somebody else has asked since. After ETCD_UNKNOWN the request may be there. */
LEAT_CHECKED enum etcd_outcome coordination_ask_workers(struct coordination *coordination,
                                                        const struct cluster_wanted *wanted,
                                                        struct diag_list *diags);
/* Asks the leader for something, in place of the request of that revision, which was read last. text: at most COORDINATION_TEXT_BYTES_MAX
 * bytes. As coordination_ask_workers. */
LEAT_CHECKED enum etcd_outcome coordination_ask(struct coordination *coordination, struct str text,
                                                int64_t revision, struct diag_list *diags);
/* Waits until something has changed since the last step that asked etcd, at most wait_us. false: nothing was seen. */
bool coordination_wait(struct coordination *coordination, int64_t wait_us);

/* --- Leading --- */

/* Becomes a candidate, and looks who leads. ETCD_DONE: this worker leads, and the leaders before it are gone. ETCD_REFUSED: not
 * so; *leader, another's lease, leads, or it is 0 after a diagnostic: this worker has no lease. */
LEAT_CHECKED enum etcd_outcome coordination_campaign(struct coordination *coordination, int64_t *leader,
                                                     struct diag_list *diags);
/* Whether this worker still leads, by a linearizable read. ETCD_REFUSED (E0709): it does not. */
LEAT_CHECKED enum etcd_outcome coordination_still_leads(struct coordination *coordination,
                                                        struct diag_list *diags);
/* Is no candidate any more. */
LEAT_CHECKED enum etcd_outcome coordination_resign(struct coordination *coordination,
                                                   struct diag_list *diags);

/* The steps below are a leader's, once it has read the record (coordination_read) behind coordination_campaign.
 * ETCD_REFUSED (E0709): another worker has taken over, or this one is no leader: go back to the head. (If this write had been in
 * doubt, the head's history may have it; nothing follows from it any more.) Each ends within four deadlines of a request. */

/* A new incarnation, above the last, with a new secret. */
LEAT_CHECKED enum etcd_outcome coordination_begin(struct coordination *coordination, uint64_t *incarnation,
                                                  uint8_t secret[COORDINATION_SECRET_BYTES],
                                                  struct diag_list *diags);
/* text: likewise. */
LEAT_CHECKED enum etcd_outcome coordination_answer(struct coordination *coordination, struct str text,
                                                   struct diag_list *diags);
LEAT_CHECKED enum etcd_outcome coordination_place(struct coordination *coordination, struct str placement,
                                                  struct diag_list *diags);
/* Moves the head: the commit point of a checkpoint. It follows the head that this leader wrote or read last
 * (coordination_read). After an answer that was lost it reads which head is there: this one (ETCD_DONE), another's
 * (ETCD_REFUSED), or still the one before; then it sends the very same txn again, so that a late first one does no harm.
 * ETCD_UNKNOWN: it still is not known when the deadline is over. Compacts etcd now and then. */
LEAT_CHECKED enum etcd_outcome coordination_publish(struct coordination *coordination,
                                                    const struct cluster_head *head, struct diag_list *diags);
/* Makes etcd forget what was before the head that this leader wrote or read last: by coordination_publish, too. */
LEAT_CHECKED enum etcd_outcome coordination_compact(struct coordination *coordination,
                                                    struct diag_list *diags);

/* Writes the record anew after etcd's data was lost: job and head, and an incarnation that must be above all that are known
 * from the store. For a command that an operator gives; no worker may do it by itself. ETCD_REFUSED (E0713): there is a
 * record. */
LEAT_CHECKED enum etcd_outcome coordination_rebuild(struct coordination *coordination,
                                                    const struct cluster_job *job,
                                                    const struct cluster_head *head, uint64_t incarnation,
                                                    struct diag_list *diags);

#endif
