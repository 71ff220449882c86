/* A checkpoint of a job, opened for requests: a way for each `serve`. */
#ifndef LEAT_SERVE_LOADED_H
#define LEAT_SERVE_LOADED_H

#include "serve/way.h"

struct loaded {
    struct checkpoint_id id;
    int64_t created_us; /* wall clock */
    struct way **ways;  /* by place in plan->serves; NULL where `only` names another */
    uint32_t ways_count;
    struct checkpoint_dir *dir;
    struct checkpoint *checkpoint;
};

struct loaded_ask {
    const struct plan *plan;
    const char *directory;         /* of the checkpoints */
    struct checkpoint_id id;       /* generation 0: the newest that is whole */
    const struct plan_serve *only; /* NULL: all of the plan */
};

/* Opens and restores; may take seconds. Everything in `ask`, and diags, must outlive the result. NULL: there is no
 * checkpoint yet (*is_none), or after a diagnostic. Any thread, one at a time for each result. */
struct loaded *loaded_open(const struct loaded_ask *ask, bool *is_none, struct diag_list *diags);
void loaded_close(struct loaded *loaded); /* NULL is allowed */

/* The id of the newest checkpoint in the directory, damaged ones left out; generation 0: there is none. False after a
 * diagnostic. */
LEAT_CHECKED bool loaded_newest(const char *directory, struct checkpoint_id *id, struct diag_list *diags);

#endif
