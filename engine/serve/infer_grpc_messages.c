/* The messages beside inference, which protobuf-c packs; frames, timeouts and messages of gRPC. */
#include "serve/infer_grpc.h"

#include <health.pb-c.h>
#include <inference.pb-c.h>

/* --- Frames --- */

enum { FRAME_BYTES = 5 };

static uint32_t frame_length(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

bool grpc_unframe(struct str body, struct str *message, int *status, const char **why)
{
    *status = GRPC_INTERNAL;
    if (body.length == 0) {
        *why = "the call has no message; one was expected";
        return false;
    }
    if (body.length < FRAME_BYTES) {
        *why = "the call ends inside a message's five first bytes";
        return false;
    }
    if (body.data[0] == 1) {
        *status = GRPC_UNIMPLEMENTED;
        *why = "the message is compressed; only grpc-encoding `identity` is read";
        return false;
    }
    if (body.data[0] != 0) {
        *why = "a message's first byte is neither 0 nor 1 (compressed)";
        return false;
    }
    size_t length = frame_length(body.data + 1), there = body.length - FRAME_BYTES;
    if (length != there) {
        *why = length > there ? "the call ends inside a message" : "the call has more than one message";
        return false;
    }
    *status = GRPC_OK;
    *message = (struct str){body.data + FRAME_BYTES, length};
    return true;
}

static void put_frame(char *to, size_t length)
{
    leat_assert(length <= UINT32_MAX);
    to[0] = 0;
    for (uint32_t i = 0; i < 4; i++)
        to[1 + i] = (char)(length >> (24 - 8 * i));
}

void grpc_frame(size_t length, struct byte_buffer *out)
{
    put_frame(buffer_reserve(out, FRAME_BYTES), length);
    out->length += FRAME_BYTES;
}

void grpc_frame_close(size_t at, struct byte_buffer *out)
{
    leat_assert(at <= out->length && out->length - at >= FRAME_BYTES);
    put_frame(out->data + at, out->length - at - FRAME_BYTES);
}

/* --- Header fields --- */

int64_t grpc_timeout_us(struct str text)
{
    enum { DIGITS_MAX = 8 };
    int64_t number = 0;
    if (text.length < 2 || text.length > DIGITS_MAX + 1)
        return -1;
    for (size_t i = 0; i + 1 < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return -1;
        number = 10 * number + (text.data[i] - '0');
    }
    switch (text.data[text.length - 1]) {
    case 'H': return number * US_PER_HOUR;
    case 'M': return number * US_PER_MINUTE;
    case 'S': return number * US_PER_SECOND;
    case 'm': return number * 1000;
    case 'u': return number;
    case 'n': return (number + 999) / 1000;
    default: return -1;
    }
}

const char *grpc_message(const char *text, struct arena *arena)
{
    static const char digits[] = "0123456789ABCDEF";
    char *encoded = arena_alloc(arena, 3 * strlen(text) + 1), *to = encoded;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at >= 0x20 && *at <= 0x7e && *at != '%') {
            *to++ = (char)*at;
            continue;
        }
        *to++ = '%';
        *to++ = digits[*at >> 4];
        *to++ = digits[*at & 15];
    }
    *to = '\0';
    return encoded;
}

/* --- Messages --- */

static void append(const ProtobufCMessage *message, struct byte_buffer *out)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    out->length += protobuf_c_message_pack(message, (uint8_t *)buffer_reserve(out, bytes));
}

/* Protobuf-c packs terminated texts, and wants them writable. */
static char *terminated(struct arena *arena, struct str text)
{
    return arena_strndup(arena, text.data, text.length);
}

static char *constant(const char *text)
{
    return (char *)(uintptr_t)text;
}

void grpc_write_live(bool is_live, struct byte_buffer *out)
{
    Inference__ServerLiveResponse message = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    message.live = is_live;
    append(&message.base, out);
}

void grpc_write_health(bool is_serving, struct byte_buffer *out)
{
    Grpc__Health__V1__HealthCheckResponse message = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    message.status = is_serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                                : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    append(&message.base, out);
}

void grpc_write_server(const char *version, const char *const *extensions, struct byte_buffer *out)
{
    Inference__ServerMetadataResponse message = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    message.name = constant("leat");
    message.version = constant(version);
    while (extensions[message.n_extensions] != NULL)
        message.n_extensions++;
    message.extensions = (char **)(uintptr_t)extensions;
    append(&message.base, out);
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;

static tensor_metadata *tensor_of(struct arena *arena, char *name, enum infer_type type)
{
    static int64_t any_rows[] = {-1};
    tensor_metadata *tensor = arena_alloc(arena, sizeof(*tensor));
    inference__model_metadata_response__tensor_metadata__init(tensor);
    tensor->name = name;
    tensor->datatype = constant(infer_type_name(type));
    tensor->n_shape = ARRAY_COUNT(any_rows);
    tensor->shape = any_rows;
    return tensor;
}

/* Behind each list its lengths. */
static size_t tensors_of(const struct infer_column *columns, uint32_t count, tensor_metadata ***tensors,
                         struct arena *arena)
{
    size_t made = 0;
    *tensors = arena_array(arena, tensor_metadata *, (size_t)2 * count);
    for (uint32_t i = 0; i < count; i++) {
        (*tensors)[made++] = tensor_of(arena, terminated(arena, columns[i].name), columns[i].type);
        if (columns[i].is_list)
            (*tensors)[made++] =
                tensor_of(arena, arena_printf(arena, "%.*s.lengths", STR_ARGS(columns[i].name)), INFER_INT64);
    }
    return made;
}

void grpc_write_metadata(const struct infer_model *model, struct str name, struct byte_buffer *out)
{
    char *versions[] = {constant(INFER_VERSION)};
    const struct infer_column *inputs, *outputs;
    uint32_t inputs_count = infer_inputs(model, &inputs), outputs_count = infer_outputs(model, &outputs);
    struct arena arena = {0};
    Inference__ModelMetadataResponse message = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    message.name = terminated(&arena, name);
    message.n_versions = ARRAY_COUNT(versions);
    message.versions = versions;
    message.platform = constant("leat");
    message.n_inputs = tensors_of(inputs, inputs_count, &message.inputs, &arena);
    message.n_outputs = tensors_of(outputs, outputs_count, &message.outputs, &arena);
    append(&message.base, out);
    arena_free(&arena);
}

static Inference__StatisticDuration duration(uint64_t count, uint64_t ns)
{
    Inference__StatisticDuration duration = INFERENCE__STATISTIC_DURATION__INIT;
    duration.count = count;
    duration.ns = ns;
    return duration;
}

void grpc_write_statistics(struct str name, const struct infer_statistics *statistics,
                           struct byte_buffer *out)
{
    uint64_t requests = statistics->successes;
    Inference__StatisticDuration success = duration(requests, statistics->success_ns),
                                 fail = duration(statistics->failures, statistics->fail_ns),
                                 queue = duration(requests, statistics->queue_ns),
                                 input = duration(requests, statistics->input_ns),
                                 compute = duration(requests, statistics->compute_ns),
                                 output = duration(requests, statistics->output_ns);
    struct arena arena = {0};
    Inference__InferStatistics inference = INFERENCE__INFER_STATISTICS__INIT;
    inference.success = &success;
    inference.fail = &fail;
    inference.queue = &queue;
    inference.compute_input = &input;
    inference.compute_infer = &compute;
    inference.compute_output = &output;
    Inference__ModelStatistics model = INFERENCE__MODEL_STATISTICS__INIT, *models[] = {&model};
    model.name = terminated(&arena, name);
    model.version = constant(INFER_VERSION);
    model.last_inference = (uint64_t)MAX(statistics->last_ms, 0);
    model.inference_count = statistics->inferences;
    model.execution_count = statistics->executions;
    model.inference_stats = &inference;
    Inference__ModelStatisticsResponse message = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    message.n_model_stats = ARRAY_COUNT(models);
    message.model_stats = models;
    append(&message.base, out);
    arena_free(&arena);
}

void grpc_write_index(const struct str *names, const char *const *reasons, uint32_t count,
                      struct byte_buffer *out)
{
    typedef Inference__RepositoryIndexResponse__ModelIndex model_index;
    struct arena arena = {0};
    Inference__RepositoryIndexResponse message = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    message.n_models = count;
    message.models = arena_array(&arena, model_index *, count);
    for (uint32_t i = 0; i < count; i++) {
        model_index *model = message.models[i] = arena_alloc(&arena, sizeof(*model));
        inference__repository_index_response__model_index__init(model);
        model->name = terminated(&arena, names[i]);
        model->version = constant(INFER_VERSION);
        model->state = constant(reasons[i] == NULL ? "READY" : "UNAVAILABLE");
        model->reason = constant(reasons[i] == NULL ? "" : reasons[i]);
    }
    append(&message.base, out);
    arena_free(&arena);
}
