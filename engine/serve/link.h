/* Serving on another machine: a process beside the job offers what lies in the job's checkpoint directory (`leat serve
 * --link-listen`), and a server elsewhere mirrors it into a directory of its own (`leat serve --link`), which it then reads
 * as it would read the job's: checkpoints, the operators' tables, and the delta log while it grows. A mirror can be offered
 * again. The job knows nothing of it: who offers follows the job in the mirrors' name.
 *
 * Both sides speak HTTP/1.1; a mirror pulls. serve/link_format.h has the messages. */
#ifndef LEAT_SERVE_LINK_H
#define LEAT_SERVE_LINK_H

#include "net/fetch.h"
#include "net/metrics.h"
#include "net/net.h"

struct link_job {
    struct str name;
    const char *fingerprint; /* of the plan */
    const char *directory;   /* offered: of the checkpoints; mirrored: the mirror's */
    uint64_t log_bytes;      /* mirrored: budget of the delta log's copy */
    bool can_be_followed;    /* mirrored: between checkpoints; false: each newer checkpoint is taken */
};

/* A line for people, without a newline; from the threads of offer and mirror. */
typedef void link_say(void *user, const char *line);

struct link_offer;

/* Listens, and answers in a thread of its own. listen: off loopback, clients must have certificates; its token is not used.
 * The jobs are copied, but what they point to must outlive the offer. NULL after a diagnostic. */
struct link_offer *link_offer_start(const struct net_listen *listen, const struct link_job *jobs,
                                    uint32_t count, link_say *say, void *user, struct diag_list *diags);
struct link_offer_figures {
    uint64_t answers, refusals, bytes; /* of requests; bytes: of answers */
};
struct link_offer_figures link_offer_figures(struct link_offer *offer); /* any thread */
/* Ends the thread. NULL is allowed. */
void link_offer_stop(struct link_offer *offer);

struct link_mirror;

/* Begins to mirror the job in two threads: one for checkpoints, one for the log. The directory is made if it is missing;
 * one that is in use, or that is no mirror, is an error. job, from: as for the offer. NULL after a diagnostic. */
struct link_mirror *link_mirror_start(const struct fetch_options *from, const struct link_job *job,
                                      link_say *say, void *user, struct diag_list *diags);
struct link_mirror_figures {
    bool is_linked;       /* the last request had a good answer */
    uint64_t answers;     /* good ones */
    uint64_t unanswered;  /* requests that got no answer */
    uint64_t refusals;    /* requests that were refused */
    uint64_t damaged;     /* answers that were damaged on the way */
    uint64_t bytes;       /* of good answers */
    uint64_t checkpoints; /* put in place */
};
struct link_mirror_figures link_mirror_figures(struct link_mirror *mirror); /* any thread */
/* Ends the threads, which takes a second at most. NULL is allowed. */
void link_mirror_stop(struct link_mirror *mirror);

/* Writes the figures as metrics. mirrors: of the jobs; NULL among them: none. offer: NULL: none. */
void link_write_metrics(struct link_mirror *const *mirrors, const struct link_job *jobs, uint32_t count,
                        struct link_offer *offer, struct metrics_text *text);

#endif
