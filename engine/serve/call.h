/* Inside serve/: an inference request on its way through the server, and what HTTP and gRPC do with it. All on the
 * server's thread. */
#ifndef LEAT_SERVE_CALL_H
#define LEAT_SERVE_CALL_H

#include "core/delta_log.h"
#include "run/follow.h"
#include "serve/answer_json.h"
#include "serve/figures.h"
#include "serve/infer.h"
#include "serve/infer_json.h"
#include "serve/loader.h"
#include "serve/served.h"
#include "serve/server.h"

struct call;

enum { ANSWER_BYTES_MAX = 16 << 20, WHY_BYTES_MAX = 1600 };

enum refusal {
    REFUSAL_BAD,           /* 400, INVALID_ARGUMENT */
    REFUSAL_NOT_FOUND,     /* 404, NOT_FOUND */
    REFUSAL_TOO_LARGE,     /* 413, RESOURCE_EXHAUSTED */
    REFUSAL_NOT_SUPPORTED, /* 501, UNIMPLEMENTED */
    REFUSAL_FORBIDDEN,     /* 403, FAILED_PRECONDITION: not for clients */
    REFUSAL_NOT_READY,     /* 503, UNAVAILABLE: no checkpoint yet, or one that is too old */
    REFUSAL_SHED,          /* 503 with Retry-After, RESOURCE_EXHAUSTED */
    REFUSAL_REJECTED,      /* 422, INVALID_ARGUMENT: steps rejected every row */
    REFUSAL_EXPIRED,       /* 504, DEADLINE_EXCEEDED */
    REFUSAL_FAILED,        /* 500, INTERNAL */
};

/* HTTP or gRPC. */
struct wire {
    /* False: nothing was sent, for the answer would have more than ANSWER_BYTES_MAX. */
    bool (*answer)(struct server *server, struct call *call, const struct infer_tensor *tensors,
                   uint32_t tensors_count, const struct infer_facts *facts);
    void (*refuse)(struct server *server, struct net_exchange *exchange, enum refusal refusal,
                   const char *text);
    /* A request to load or to unload a model has been done. */
    void (*done)(struct server *server, struct net_exchange *exchange);
};

/* control.c tells how models go from one to the next. */
enum model_state {
    MODEL_SERVED,    /* takes requests, when its job has a checkpoint */
    MODEL_LOADING,   /* its job is to open a checkpoint */
    MODEL_UNLOADING, /* takes none; those in its queue are answered */
    MODEL_UNLOADED,
};

/* What became of requests to load or to unload. Each that names a model has one outcome, so that these requests =
 * loaded + unloaded + failed + refused + waiting. */
enum control_outcome {
    CONTROL_LOADED,
    CONTROL_UNLOADED,
    CONTROL_FAILED,  /* no checkpoint can be opened, or another request or the server's end came before */
    CONTROL_REFUSED, /* the request is wrong, or too many wait */
    CONTROL_OUTCOMES,
};

struct serve_model {
    struct str name;
    struct serve_job *job;
    const struct plan *plan;
    const struct plan_serve *serve;
    uint32_t place; /* in plan->serves */
    struct infer_model *infer;
    enum model_state state;
    struct call *first, **last; /* the queue */
    uint64_t waiting_rows, waiting_calls;
    double row_ns, call_ns; /* what a row and a call cost lately */
    double call_rows;       /* rows of a call lately */
    struct served *log;     /* NULL: none */
    struct answer_json *log_rows;
    uint64_t calls; /* queued so far; the log's sample goes by this number */
    struct figures figures;
    uint64_t control[CONTROL_OUTCOMES];
};

struct serve_job {
    const struct plan *plan;
    const char *directory;
    struct checkpoint_id id;
    struct loader *loader;
    struct loaded *loaded; /* NULL: no checkpoint yet */
    /* What the job published since the checkpoint; NULL: the job cannot be followed. follower: the sign of life for it. */
    struct follow *follow;
    uint64_t past_rows, past_cuts, past_bytes; /* that were applied to earlier checkpoints */
    struct delta_follower *follower;
    bool was_live;       /* it was followed at the last step */
    bool is_behind;      /* the last step had no time for all that was published */
    bool has_said_apart; /* the user knows that the directory cannot be written */
    int64_t asked_us;    /* monotonic: when a checkpoint was last asked for */
    char cut[72];        /* the name of what answers (live.c) */
    uint64_t features;   /* they have the rows of the micro-batches below this */
    int64_t seen_us;     /* wall clock: what came before this moment is in the answers */
    bool is_broken;      /* the state of `loaded` cannot be read; it is opened again */
    bool has_looked;     /* the loader has looked for one */
    bool is_resting;     /* all its models are unloaded (control.c) */
    char why
        [WHY_BYTES_MAX]; /* the newest complaint of the loader since it began or opened a checkpoint; "": none */
    struct serve_job *next;
};

struct server {
    struct server_options options;
    struct net_loop *loop;
    struct arena arena;
    struct serve_job *jobs;
    struct serve_model **models;
    uint32_t models_count;
    struct control_wait *waits; /* requests to load or to unload (control.c) */
    uint32_t waits_count;
    struct call *spare; /* calls to use again */
    uint32_t spare_count;
    uint64_t unknown_models; /* requests that name no model */
    uint64_t waiting_bytes;  /* memory of the calls that wait, beside their bodies */
    struct byte_buffer out;  /* the answer in work */
    struct arena scratch;    /* of one answer */
    int64_t slow_said_us;    /* monotonic: when a slow request was last said */
    uint64_t slow_unsaid;    /* slow requests since */
    int64_t logs_seen_us;    /* monotonic */
    /* How many times longer than its batches a queue takes lately, for reading and refusing take time between them; from 1
     * to STRETCH_MAX. left_ns: monotonic end of the last turn, if rows were left then; else 0. */
    double stretch;
    int64_t left_ns;
    bool has_failed; /* the checkpoint that was named cannot be read */
};

struct call {
    struct call *next;
    struct net_exchange *exchange;
    const struct wire *wire;
    struct serve_model *model; /* NULL: not known yet */
    struct arena arena;
    struct infer_request request;
    struct infer_answer *answer;
    uint64_t bytes;                          /* of the arena when it was queued */
    uint32_t rows, begun;                    /* begun: rows that were computed */
    int64_t now_us;                          /* wall clock: the event time of rows without one */
    int64_t come_us, queued_us, deadline_us; /* monotonic */
    bool is_logged;
    int64_t phase_ns[PHASES];
    char trace[56]; /* the client's `traceparent`, "" without one */
};

/* live.c. live_begin: a checkpoint was taken. live_end: it is given back; the job is no longer followed. live_step: brings
 * the job up to what it published; returns whether there is more. Call it between two batches, when no call is computed in
 * part. live_doing: that the server joins or catches up with the job, or why it no longer follows it; NULL: nothing to say.
 * All on the server's thread. */
void live_begin(struct serve_job *job);
bool live_step(struct server *server, struct serve_job *job);
void live_end(struct serve_job *job);
const char *live_doing(const struct serve_job *job);

/* A call for an exchange whose body is there; the wire fills in call->request. */
struct call *call_new(struct server *server, const struct wire *wire, struct net_exchange *exchange);
/* Before the body is read, where the path has named call->model: refuses the call, and returns true, if too much is waiting. Most
 * of what a refusal costs is the body. */
bool call_shed_unread(struct server *server, struct call *call);
/* Checks the request and queues it; or refuses it. */
void call_submit(struct server *server, struct call *call);
/* Answers with an error, and ends the call. */
void call_refuse(struct server *server, struct call *call, enum refusal refusal, const char *text);
enum refusal call_refusal(enum infer_fault fault);
/* Ends a call that has been answered, and counts what became of it. begun_us: of its exchange, which is gone. */
void call_settle(struct server *server, struct call *call, enum outcome outcome, int64_t begun_us);

/* NULL: there is none. */
struct serve_model *server_model(const struct server *server, struct str name);
/* Of the checkpoint that answers, which must be there. */
struct way *model_way(const struct serve_model *model);
/* Whether it is loaded, and its checkpoint is there and not too old. */
bool model_is_ready(const struct serve_model *model);
int64_t model_staleness_ms(const struct serve_model *model);
/* Whether all models are ready that are not unloaded, and not being loaded or unloaded. */
bool server_is_ready(const struct server *server);
/* Calls options.status. user: the server. */
void server_tell_status(void *user);
void server_say(struct server *server, const char *line);

/* Whether a call is in the model's log, by the model's number of calls. */
bool log_wants(const struct serve_model *model);
/* Adds the answered rows among results[at] .. results[at + count - 1] to the model's log. first: the number of
 * results[at] in the call. The results must be those of the last way_run. */
void log_add(struct server *server, const struct call *call, uint32_t first, const struct way_result *results,
             uint32_t at, uint32_t count);

/* Requests that are not inference, and inference up to call_submit. is_control: they came to the control listener, where
 * models are loaded and unloaded; elsewhere they are asked for scores. */
void http_serve(struct server *server, struct net_exchange *exchange, bool is_control);
void grpc_serve(struct server *server, struct net_exchange *exchange, bool is_control);
#define REFUSED_CONTROL                                                                                      \
    "models are not loaded or unloaded by those who ask for scores: ask the listener of --control"
#define REFUSED_SCORES "here models are loaded and unloaded; scores are asked for at the other listener"
/* Appends an OpenAPI document of the server's models: of the calls that one of the listeners answers. */
void openapi_write(const struct server *server, bool is_control, struct byte_buffer *out);
/* Writes all metrics of the server. */
void server_write_metrics(struct server *server, struct metrics_text *text);

#endif
