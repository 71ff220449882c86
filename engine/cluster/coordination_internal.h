/* What the files of the coordination share. Private to coordination*.c and tests. */
#ifndef LEAT_CLUSTER_COORDINATION_INTERNAL_H
#define LEAT_CLUSTER_COORDINATION_INTERNAL_H

#include "cluster/coordination.h"
#include "core/buffer.h"

#include <pthread.h>
#include <stdatomic.h>

/* The lease, and the thread that keeps it (coordination_lease.c). */
struct lease_keeper {
    struct etcd *etcd; /* a client of its own */
    pthread_t thread;
    bool is_running;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* must_stop */
    bool must_stop;
    atomic_llong lease;    /* 0: none */
    atomic_llong until_us; /* the lease cannot expire before, on coordination_clock_us */
    atomic_bool is_gone;   /* etcd has said so */
    int64_t ttl_us;
};

/* A record that a leader writes: guarded by its previous mod revision. */
enum record { RECORD_INCARNATION, RECORD_PLACEMENT, RECORD_HEAD, RECORD_ANSWER, RECORD_COUNT };

struct leader_record {
    int64_t revision; /* its mod revision that was written or read last; 0: it is not there */
    char *doubt;      /* the value of a write that is in doubt; NULL: none */
    size_t doubt_bytes;
};

struct coordination {
    struct etcd *etcd;
    char *name, *prefix; /* "/leat/NAME/" */
    uint32_t lease_s, compact_every;
    struct lease_keeper keeper;
    struct etcd_watch *watch; /* of coordination_wait; NULL: none yet */
    uint64_t cluster;         /* etcd's id; 0: not known */
    int64_t revision;         /* the highest one seen */
    int64_t job_since;        /* the create revision of the job's record; 0: not joined yet */
    int64_t job_revision;     /* its mod revision: another version of leat writes it anew */
    int64_t leading; /* the create revision of this worker's election key while it leads; 0: it does not */
    bool has_read;   /* the records' revisions, since it leads */
    uint64_t incarnation; /* seen last */
    struct leader_record records[RECORD_COUNT];
    int64_t request_us;
    uint32_t heads;       /* published since the last compaction */
    int64_t compact_next; /* the revision to which the next compaction goes; 0: none */
};

bool keeper_start(struct lease_keeper *keeper, const struct etcd_options *options, struct diag_list *diags);
void keeper_stop(struct lease_keeper *keeper);
/* Takes over a lease that was granted: sent_us: when it was asked for, ttl_s: as etcd said. */
void keeper_take(struct lease_keeper *keeper, int64_t lease, int64_t sent_us, int64_t ttl_s);
void keeper_drop(struct lease_keeper *keeper);

/* "/leat/NAME/" and `rest`; in the arena. */
struct str coordination_key(const struct coordination *coordination, struct arena *arena, const char *rest);
struct str coordination_lease_key(const struct coordination *coordination, struct arena *arena,
                                  const char *folder, int64_t lease);
/* Compares an answer with what was seen before. false after E0714: data was lost. */
LEAT_CHECKED bool coordination_see(struct coordination *coordination, const struct etcd_answer *answer,
                                   struct diag_list *diags);
enum etcd_outcome coordination_lost(const struct coordination *coordination, struct diag_list *diags,
                                    const char *format, ...) LEAT_PRINTF(3, 4);
/* E0709. */
enum etcd_outcome coordination_taken(const struct coordination *coordination, struct diag_list *diags,
                                     const char *format, ...) LEAT_PRINTF(3, 4);

/* Forgets the writes in doubt: they can no longer happen, or it no longer matters. */
void coordination_forget_doubts(struct coordination *coordination);
/* What a step returns for a request that is not done, nor refused by a compare. */
enum etcd_outcome coordination_failed(const struct etcd_answer *answer);
/* Whether the error of a request that was refused may be gone soon: nothing is known then, either. */
bool coordination_is_passing(enum etcd_error error);

/* --- coordination_record.c: records as JSON; reading: false for what is none --- */

struct str job_write(const struct cluster_job *job, struct arena *arena);
LEAT_CHECKED bool job_read(struct str text, struct arena *arena, struct cluster_job *job);
struct str member_write(const struct cluster_member *member, struct arena *arena);
LEAT_CHECKED bool member_read(struct str text, struct arena *arena, struct cluster_member *member);
struct str cluster_head_write(const struct cluster_head *head, struct arena *arena);
LEAT_CHECKED bool cluster_head_read(struct str text, struct arena *arena, struct cluster_head *head);
struct str wanted_write(const struct cluster_wanted *wanted, struct arena *arena);
LEAT_CHECKED bool wanted_read(struct str text, struct arena *arena, struct cluster_wanted *wanted);
struct str incarnation_write(uint64_t incarnation, const uint8_t secret[COORDINATION_SECRET_BYTES],
                             struct arena *arena);
LEAT_CHECKED bool incarnation_read(struct str text, struct arena *arena, uint64_t *incarnation,
                                   uint8_t secret[COORDINATION_SECRET_BYTES]);
struct str refusal_write(struct str what, struct str hint, struct arena *arena);
LEAT_CHECKED bool refusal_read(struct str text, struct arena *arena, struct str *what, struct str *hint);
/* A placement: the bytes, and before them what makes this write another than all others. */
struct str placement_write(struct str placement, int64_t writer, int64_t previous, struct arena *arena);
LEAT_CHECKED bool placement_read(struct str text, struct str *placement);

#endif
