/* What the files of the control API share; for these files only. */
#ifndef LEAT_CONTROL_API_INTERNAL_H
#define LEAT_CONTROL_API_INTERNAL_H

#include "control/api.h"
#include "control/api_key.h"
#include "control/history_api.h"
#include "control/partition_series.h"
#include "control/savepoint.h"
#include "run/checkpoint_list.h"
#include "run/peek.h"

#include <pthread.h>
#include <stdatomic.h>

struct api {
    const struct plan *plan;
    struct net_loop *loop;
    pthread_t thread;
    int64_t published_us;                    /* the control thread's */
    _Atomic(struct history_watch *) history; /* NULL: not yet, or no memory */
    struct api_key key;
    char *folder;              /* run_folder; NULL: not yet */
    atomic_bool can_act;       /* the key was written */
    atomic_int wanted;         /* enum api_want */
    _Atomic(struct run *) run; /* NULL: not yet; valid until api_stop */
    atomic_bool has_ended;     /* the run; the figures are its last ones */
    /* The API's thread's. */
    struct api_page *page;
    struct api_events *events;
    struct savepoint *savepoint;
    struct run_checkpoint_list *checkpoints; /* NULL: nobody has asked yet */
    /* api_state.c: exchanges whose peeks are done, and wait for the API's thread; guarded by ready_mutex. */
    pthread_mutex_t ready_mutex;
    struct state_asked *ready;
    /* The figures; guarded by the mutex. */
    pthread_mutex_t mutex;
    bool is_there, is_good;
    char waits[400]; /* for what, before there is a run; "": there is one */
    struct run_stats stats;
    struct run_times *times;
    struct batch_pool *peek_pool; /* rows of keys that are asked for; API's thread */
    struct partition_watch *partitions;
    struct dead_watch watch;
    struct bottleneck_found recent;
    struct summary_served *served;
    char **served_names;
    uint32_t served_count;
};

/* A parameter of a query, for the OpenAPI document. */
struct api_parameter {
    const char *name, *about;
};

/* A row of the table of what the API answers (api.c). Where the method is GET, HEAD is answered, too. */
struct api_route {
    const char *method;
    const char *path; /* one that ends in `*` stands for all that begin so */
    /* The API's thread. Gives the exchange its answer, now or later. */
    void (*serve)(struct api *api, struct net_exchange *exchange);
    const char *summary;                    /* what it answers */
    const struct api_parameter *parameters; /* up to one without a name; NULL: none */
    const char *statuses; /* "200 404 503", without those of every route (api_openapi.c); NULL: "200" */
    const char *type;     /* content-type of the first status; NULL: "application/json" */
};

/* All routes; the first whose path matches is taken. */
extern const struct api_route api_routes[];
extern const size_t api_routes_count;

/* Whether the exchange may act on the run; if not, it has got its answer. The API's thread. */
bool api_may_act(struct api *api, struct net_exchange *exchange);

/* Answers with a body of that content-type, which no cache keeps. */
void api_answer(struct net_exchange *exchange, int status, struct str type, const struct byte_buffer *body);

/* Appends the figures as JSON, as of now, on one line with "now" (is_line) or as /api/v1/figures has them. False, and
 * nothing is appended: the run is being restored. The API's thread. */
bool api_put_figures(struct api *api, bool is_line, struct byte_buffer *out);

/* api_page.c: the page, from the binary. api_page_paths: for net_listen.open_paths. */
struct api_page *api_page_new(void);
void api_page_free(struct api_page *page);
extern const char *const api_page_paths[];
void api_page_serve(struct api *api, struct net_exchange *exchange);
void api_icon_serve(struct api *api, struct net_exchange *exchange);

/* api_events.c: GET /api/v1/events. api_events_new: before the loop runs. api_events_free: behind net_loop_free.
 * api_events_turn: when the run has ended, sends its last figures and ends the streams; in each turn of the loop. */
struct api_events *api_events_new(struct api *api);
void api_events_free(struct api_events *events);
void api_events_turn(struct api_events *events);
void api_events_serve(struct api *api, struct net_exchange *exchange);

/* api_plan.c: GET /api/v1/plan. */
void api_plan_serve(struct api *api, struct net_exchange *exchange);

/* api_openapi.c: GET /api/v1/openapi.json, made from the routes. */
void api_openapi_serve(struct api *api, struct net_exchange *exchange);
/* api_log.c. Reads the query `after=N`; without it, 0. False: the exchange has its answer, 400. */
bool api_after(struct net_exchange *exchange, uint64_t *after);
/* Appends a line as an object on one line: n, time in milliseconds, level, text, repeated. Any thread. */
struct log_line;
void api_put_log_line(struct byte_buffer *out, const struct log_line *line);

/* GET /api/v1/log, /api/v1/dead-letters, /api/v1/checkpoints, /api/v1/columns. */
void api_log_serve(struct api *api, struct net_exchange *exchange);
void api_dead_letters_serve(struct api *api, struct net_exchange *exchange);
void api_checkpoints_serve(struct api *api, struct net_exchange *exchange);
void api_columns_serve(struct api *api, struct net_exchange *exchange);

/* api_state.c; the API's thread. api_state_turn: answers the exchanges whose peeks are done. api_state_drop: forgets them, when the
 * loop has ended. */
void api_state_serve(struct api *api, struct net_exchange *exchange);
void api_state_row_serve(struct api *api, struct net_exchange *exchange);
void api_state_turn(struct api *api);
void api_state_drop(struct api *api);

#endif
