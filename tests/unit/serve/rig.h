/* A job whose source has a column of every type, for the tests of inference requests. */
#ifndef LEAT_TESTS_UNIT_SERVE_RIG_H
#define LEAT_TESTS_UNIT_SERVE_RIG_H

#include "core/connector.h"
#include "serve/infer_json.h"

enum { RIG_NOW_MS = 1000 }; /* of its requests, in milliseconds since 1970 */
#define RIG_NOW_US (RIG_NOW_MS * INT64_C(1000))

struct rig {
    struct arena arena; /* of the plan */
    struct arena call;  /* of the calls; the test resets it */
    struct plan *plan;
    struct batch_pool *pool;
    struct infer_model *model; /* of `serve all` */
};

/* The job's serves: `all` gives each column of the source but `extra`, and `twice` (f * 2.0), `big` (n +
 * 1); `nested` needs `recs`; `timeless` has a source without event time. */
struct rig *rig_new(void);
void rig_free(struct rig *rig);
const struct plan_serve *rig_serve(const struct rig *rig, const char *name);

/* Reads a JSON request, and checks it. False: *problem says why. */
bool rig_read(struct rig *rig, const struct infer_model *model, const char *json,
              struct infer_request *request, uint32_t *rows, struct infer_problem *problem);
/* All rows of a checked request, at most BATCH_ROWS, filled `step` at a time. */
struct batch *rig_fill(struct rig *rig, const struct infer_model *model, const struct infer_request *request,
                       uint32_t rows, uint32_t step);
/* Digest of the batch's columns and times. */
void rig_digest(const struct batch *batch, char hex[33]);
/* What `serve all` answers: the requests' columns, twice and big. The caller releases it. */
struct batch *rig_answers(struct rig *rig, struct batch *requests);

#endif
