/* A follower (run/follow.h) in the process of the run that it follows: it is brought up before each micro-batch. */
#ifndef LEAT_TESTS_SERVE_ASK_FOLLOW_H
#define LEAT_TESTS_SERVE_ASK_FOLLOW_H

#include "serve/way.h"

struct asked_follow;

/* The follower's sign of life is there from now on; the directory is that of the job's checkpoints. Never NULL. */
struct asked_follow *asked_follow_new(const struct plan *plan, const char *directory,
                                      struct diag_list *diags);
/* Waits until the run publishes; call it before the first micro-batch. */
void asked_follow_wait(struct asked_follow *following);
/* Brings the follower up to all that was published. The way of the first `serve`, as the run is now; NULL: it does not
 * follow yet. */
struct way *asked_follow_step(struct asked_follow *following);
/* *times: how often it had to begin from a checkpoint. NULL is allowed. */
void asked_follow_free(struct asked_follow *following, unsigned *times);

#endif
