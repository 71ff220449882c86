/* A server of scores: the `serve`s of one or several jobs as models of the Open Inference Protocol v2, over HTTP and
 * gRPC, from the newest checkpoints. One thread (that of net_loop_run) reads, computes and answers; each job has a
 * loader beside it. At a listener of its own, models are loaded and unloaded meanwhile. */
#ifndef LEAT_SERVE_SERVER_H
#define LEAT_SERVE_SERVER_H

#include "net/net.h"
#include "plan/plan.h"
#include "serve/figures.h"
#include "state/checkpoint.h"

enum { SERVE_JOBS_MAX = 16 }; /* of one server */

/* What a model does, for a view. */
struct server_status {
    struct str name;
    const struct figures *figures;
    const char *reason;   /* why it takes no requests; NULL: it does */
    const char *doing;    /* what it does besides, or why it does not follow its job; NULL: nothing to say */
    int64_t staleness_ms; /* -1: it has no checkpoint */
    uint64_t waiting_rows;
};

struct server_options {
    /* Template of the listeners: TLS, token, limits of time. Its address is used instead of those of the `serve`s
     * unless it is empty. */
    struct net_listen listen;
    struct net_listen control; /* where models are loaded and unloaded; an empty address: nowhere */
    bool is_unloaded;          /* models begin unloaded */
    uint32_t look_every_ms;    /* for newer checkpoints */
    uint64_t memory_bytes;     /* of all requests and answers together */
    bool is_quiet;             /* newer checkpoints are taken without a word */
    int64_t slow_us;           /* requests that take longer are said, with their phases; 0: none */
    /* What the server does, for its user to read: a line, or diagnostics of several lines, without the last newline.
     * From the server's thread. */
    void (*say)(void *user, const char *line);
    /* Writes more metrics, behind those of the server. From the server's thread. NULL: there are none. */
    void (*metrics)(void *user, struct metrics_text *text);
    /* Once a second and at the end, from the server's thread. NULL: nobody looks. */
    void (*status)(void *user, const struct server_status *models, uint32_t count);
    void *user;
};

struct server;

/* Copies the options, but not the texts in them. Never NULL. */
struct server *server_new(const struct server_options *options);
/* Waits for the loaders. NULL is allowed. */
void server_free(struct server *server);
/* Adds all `serve`s of the plan as models. id: generation 0 follows the newest checkpoint in the directory, else that
 * one alone is used. plan, directory: must outlive the server. False after a diagnostic: two models of one name. */
LEAT_CHECKED bool server_add(struct server *server, const struct plan *plan, const char *directory,
                             struct checkpoint_id id, struct diag_list *diags);
/* Listens and starts to load. False after a diagnostic. */
LEAT_CHECKED bool server_listen(struct server *server, struct diag_list *diags);
/* Answers until server_stop, then until what has been asked is answered. False: a checkpoint that was named cannot be
 * read, which has been said. */
LEAT_CHECKED bool server_run(struct server *server);
/* Any thread, and signal handlers. */
void server_stop(struct server *server);

#endif
