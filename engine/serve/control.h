/* Inside serve/: loading and unloading of models while the server answers (Triton's model repository extension), for
 * clients of a listener of its own. All on the server's thread. */
#ifndef LEAT_SERVE_CONTROL_H
#define LEAT_SERVE_CONTROL_H

#include "serve/call.h"

/* A request to load or to unload a model. The texts are the exchange's. */
struct control_ask {
    const struct wire *wire;
    struct net_exchange *exchange;
    struct str model;
    bool is_load;
    /* A parameter that is not taken; data == NULL: there is none. */
    struct str refused;
};

/* Begins what is asked for. The exchange is answered by control_step, of this turn or a later one, or at once if the
 * request is refused. */
void control_ask(struct server *server, const struct control_ask *ask);
/* Brings models on, and answers those who wait for one. Call it in each turn, behind the batches. */
void control_step(struct server *server);
/* Refuses all who wait: the server ends. */
void control_end(struct server *server);

/* Why the model takes no requests, for the repository index; NULL: it does. */
const char *control_reason(const struct serve_model *model);
/* Whether a request to load, or to unload, takes the parameter: `unload_dependents` alone is, which means nothing here. */
bool control_takes(bool is_load, struct str parameter);

/* Reads the JSON body of a request to load or to unload; an empty one is good. Sets ask->refused, in the arena. Returns why
 * the body is wrong, in the arena; NULL: it is not. */
const char *control_read_json(struct str body, struct control_ask *ask, struct arena *arena);
/* Reads the JSON body of a request for the repository index: whether models that are ready are wanted alone. */
const char *control_read_index(struct str body, bool *only_ready, struct arena *arena);

#endif
