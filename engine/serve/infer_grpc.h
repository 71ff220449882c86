/* Inference requests and answers as messages of `inference.GRPCInferenceService` (protobuf). */
#ifndef LEAT_SERVE_INFER_GRPC_H
#define LEAT_SERVE_INFER_GRPC_H

#include "serve/figures.h"
#include "serve/infer.h"
#include "serve/infer_json.h"

/* Reads a ModelInferRequest, with `contents` or with raw_input_contents. The request's texts and values lie
 * in the arena, as does the unpacked message, which takes at most 64 KiB and 48 times the message's length,
 * of messages beyond 1.5 MiB 64 MiB and 4 times it (values that are sent raw take 1 time); what needs more
 * is INFER_TOO_LARGE. Unknown fields and parameters are passed over, but for those that ask for shared
 * memory or for classes. */
LEAT_CHECKED bool infer_grpc_read(struct str message, struct infer_request *request, struct arena *arena,
                                  struct infer_problem *problem);
/* Appends a ModelInferResponse with raw_output_contents. Its parameters are `cut`, `staleness_ms`, and
 * numbers of rows that are not 0: `filtered`, `late`, `failed`. Without a version in the request it is
 * INFER_VERSION. */
void infer_grpc_write(const struct infer_model *model, const struct infer_request *request,
                      const struct infer_tensor *tensors, uint32_t count, const struct infer_facts *facts,
                      struct byte_buffer *out);

/* --- A unary call's frames: five bytes (compressed flag, length), then the message --- */

/* The message of a body that holds exactly one. False: *status is the gRPC status, *why the text:
 * compressed messages are GRPC_UNIMPLEMENTED; less or more than one message is GRPC_INTERNAL, as gRPC's own
 * servers say. */
LEAT_CHECKED bool grpc_unframe(struct str body, struct str *message, int *status, const char **why);
/* Appends the five bytes for a message of `length` bytes. */
void grpc_frame(size_t length, struct byte_buffer *out);
/* Of the frame whose five bytes are at the offset `at`: its message is all that was appended behind these. */
void grpc_frame_close(size_t at, struct byte_buffer *out);

enum grpc_status { /* https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
                   GRPC_OK = 0,
                   GRPC_INVALID_ARGUMENT = 3,
                   GRPC_DEADLINE_EXCEEDED = 4,
                   GRPC_NOT_FOUND = 5,
                   GRPC_RESOURCE_EXHAUSTED = 8,
                   GRPC_FAILED_PRECONDITION = 9,
                   GRPC_UNIMPLEMENTED = 12,
                   GRPC_INTERNAL = 13,
                   GRPC_UNAVAILABLE = 14,
                   GRPC_UNAUTHENTICATED = 16,
};
/* grpc-timeout, for example "5m" (milliseconds: `m`), in microseconds, nanoseconds rounded up; -1: it is
 * not one. */
int64_t grpc_timeout_us(struct str text);
/* Percent-encodes a grpc-message. */
const char *grpc_message(const char *text, struct arena *arena);

/* --- The other messages --- */

/* A request's model name and version: ModelReady, ModelMetadata, ModelStatistics; grpc.health.v1: service.
 * False: it is no such message. The texts lie in the arena. */
LEAT_CHECKED bool grpc_read_name(struct str message, struct str *name, struct str *version,
                                 struct arena *arena);
void grpc_write_live(bool is_live,
                     struct byte_buffer *out); /* ServerLive-, ServerReady-, ModelReadyResponse */
void grpc_write_health(bool is_serving, struct byte_buffer *out); /* HealthCheckResponse */
/* extensions: the last is NULL. */
void grpc_write_server(const char *version, const char *const *extensions, struct byte_buffer *out);
/* Inputs and outputs have the shape [-1]; behind each list is NAME.lengths. */
void grpc_write_metadata(const struct infer_model *model, struct str name, struct byte_buffer *out);

/* Appends a ModelStatisticsResponse of one model; several, one behind the other, are one of these models. */
void grpc_write_statistics(struct str name, const struct infer_statistics *statistics,
                           struct byte_buffer *out);
/* RepositoryIndexRequest: whether models that are ready are wanted alone. False: it is no such message. */
LEAT_CHECKED bool grpc_read_index(struct str message, bool *only_ready, struct arena *arena);
/* RepositoryIndexResponse of `count` models: READY, or UNAVAILABLE with the reason. reasons: NULL: the model is ready. */
void grpc_write_index(const struct str *names, const char *const *reasons, uint32_t count,
                      struct byte_buffer *out);

/* RepositoryModelLoadRequest or RepositoryModelUnloadRequest, which have the same fields. */
struct grpc_change {
    struct str repository, model;
    struct str *parameters; /* their names */
    uint32_t parameters_count;
};
/* False: it is no such message. The texts lie in the arena. */
LEAT_CHECKED bool grpc_read_change(struct str message, struct grpc_change *change, struct arena *arena);

#endif
