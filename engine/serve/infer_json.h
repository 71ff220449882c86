/* Inference requests and answers over HTTP: JSON, and the "binary tensor data" extension (tensors' bytes
 * behind the JSON, whose length the header field Inference-Header-Content-Length tells). */
#ifndef LEAT_SERVE_INFER_JSON_H
#define LEAT_SERVE_INFER_JSON_H

#include "serve/infer.h"

/* Reads a body. json_bytes: length of the JSON part; body.length without binary data. The request's texts
 * and values point into the body or lie in the arena. Unknown members are passed over. False: *problem says
 * why. */
LEAT_CHECKED bool infer_json_read(struct str body, size_t json_bytes, struct infer_request *request,
                                  struct arena *arena, struct infer_problem *problem);

/* What an answer says beside its tensors: parameters of the response. */
struct infer_facts {
    const char *cut;      /* what the answer was computed from, for example the checkpoint's name */
    uint64_t features;    /* features have the rows of the micro-batches below this number; 0: not known */
    int64_t staleness_ms; /* since then the job may have gone on; -1: not known */
    struct infer_counts counts; /* of its rows */
};
/* Appends the body of an answer; returns the length of its JSON part, which is less than what was appended
 * if binary data follow. */
size_t infer_json_write(const struct infer_model *model, const struct infer_request *request,
                        const struct infer_tensor *tensors, uint32_t count, const struct infer_facts *facts,
                        struct byte_buffer *out);
/* {"error":"..."} */
void infer_json_error(const char *text, struct byte_buffer *out);

#endif
