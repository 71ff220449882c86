/* Workers for tests of links: what they take is checked and counted, and they may be in a process of their own. */
#ifndef LEAT_TESTS_UNIT_CLUSTER_LINK_RIG_H
#define LEAT_TESTS_UNIT_CLUSTER_LINK_RIG_H

#include "../support/patience.h"
#include "cluster/link.h"

#include <pthread.h>
#include <sys/types.h>

enum { RIG_WORKERS = 4 };

struct rig_worker {
    struct links *links;
    uint32_t self;
    char address[64];
    pthread_mutex_t mutex; /* guards what follows */
    bool must_hold;        /* frames are kept instead of given back */
    struct link_frame *held, **held_end;
    uint64_t frames, bytes, ups[RIG_WORKERS], gones[RIG_WORKERS], rooms[RIG_WORKERS];
    uint64_t next[RIG_WORKERS]; /* the tag that the next frame of each worker must have */
    char reason[LINK_REASON_MAX];
};

/* Usual options: 127.0.0.1, ample budgets. */
struct links_options rig_options(uint32_t self);
/* Starts a worker; NULL options: the usual ones. Fails the test where it cannot. */
void rig_start(struct rig_worker *worker, uint32_t self, const struct links_options *options);
/* Ends it, and frees what it holds. */
void rig_stop(struct rig_worker *worker);
/* Wants links both ways, and waits until they are up. */
void rig_join(struct rig_worker *a, struct rig_worker *b);
void rig_link_to(struct rig_worker *worker, uint32_t other, const char *address);
/* Fills a frame: the tag in its first 8 bytes, as far as there are any, and bytes made from it behind them. */
void rig_fill(struct link_frame *frame, uint64_t tag);
/* Sends a frame of `length` bytes whose content is made from the tag; spins politely while there is no room. */
void rig_send(struct rig_worker *worker, uint32_t to, uint64_t tag, uint32_t length);
/* Likewise, once. */
enum link_sent rig_try(struct rig_worker *worker, uint32_t to, uint64_t tag, uint32_t length);
/* A counter, as it is now. */
uint64_t rig_count(struct rig_worker *worker, const uint64_t *counter);
void rig_wait(struct rig_worker *worker, const uint64_t *counter, uint64_t at_least);
/* Gives back the frames that are held. */
void rig_release(struct rig_worker *worker);
/* Likewise, the oldest of them alone; there must be one. */
void rig_release_first(struct rig_worker *worker);
struct link_figures rig_figures(struct rig_worker *worker, uint32_t other);

/* fork; the child dies with the calling thread. Fails the test where there is none. */
pid_t rig_fork(void);
/* Starts this program again, with these words (NULL-ended) behind its name; *out: reads what it prints. failpoints: NULL for none. */
pid_t rig_spawn(const char *const *words, const char *failpoints, int *out);
/* The next line that it prints, without its end. */
void rig_read_line(int out, char *line, size_t size);

#endif
