/* Reads ModelInferRequest: protobuf-c unpacks it into the arena, and its tensors become those of infer.h,
 * whose values lie in the unpacked message wherever these have the type's own width already. */
#include "serve/infer_grpc.h"

#include "core/utf8.h"
#include "serve/infer_model.h"

#include <inference.pb-c.h>

/* --- Memory for unpacking --- */

/* Protobuf-c needs about 100 bytes for a part of a message that takes 2, so that what it may take is
 * limited: to so many times the message's length, beyond a limit to fewer times. Messages of one-byte
 * texts, the worst that are meant, need 45 times. */
enum {
    UNPACK_BYTES_LEAST = 64 << 10,
    UNPACK_TIMES = 48,
    UNPACK_TIMES_LARGE = 4,
    UNPACK_BYTES_LARGE = 64 << 20,
    UNPACK_CHUNK = 2048,
    UNPACK_HEADER = 8,
};

/* Small pieces are cut from chunks of the arena. Before each piece is its length, without which a text with
 * a NUL in it would be a shorter text. */
struct unpacking {
    struct arena *arena;
    size_t left; /* bytes that may be taken */
    bool is_spent;
    char *chunk;
    size_t chunk_left;
};

static size_t unpack_limit(size_t length)
{
    leat_assert(length <= PTRDIFF_MAX / UNPACK_TIMES);
    return UNPACK_BYTES_LEAST + MIN(UNPACK_TIMES * length, UNPACK_BYTES_LARGE + UNPACK_TIMES_LARGE * length);
}

static void *unpack_alloc(void *argument, size_t bytes)
{
    struct unpacking *unpacking = argument;
    size_t whole = UNPACK_HEADER + ((bytes + 7) & ~(size_t)7);
    if (bytes > PTRDIFF_MAX / 4 || whole > unpacking->left) {
        unpacking->is_spent = true;
        return NULL;
    }
    unpacking->left -= whole;
    char *memory;
    if (ARENA_GAP > 0 || whole > UNPACK_CHUNK / 4) {
        memory = arena_alloc(unpacking->arena, UNPACK_HEADER + bytes);
    } else {
        if (whole > unpacking->chunk_left) {
            unpacking->chunk = arena_alloc(unpacking->arena, UNPACK_CHUNK);
            unpacking->chunk_left = UNPACK_CHUNK;
        }
        memory = unpacking->chunk;
        unpacking->chunk += whole;
        unpacking->chunk_left -= whole;
    }
    memcpy(memory, &bytes, sizeof(bytes));
    return memory + UNPACK_HEADER;
}

static void unpack_free(void *argument, void *memory)
{
    (void)argument;
    (void)memory;
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, struct str message,
                                struct unpacking *unpacking)
{
    unpacking->left = unpack_limit(message.length);
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, unpacking};
    return protobuf_c_message_unpack(type, &allocator, message.length, (const uint8_t *)message.data);
}

/* A text of an unpacked message. */
static struct str text_of(const char *text)
{
    size_t bytes = 1;
    if (text == NULL || text == protobuf_c_empty_string)
        return STR("");
    memcpy(&bytes, text - UNPACK_HEADER, sizeof(bytes));
    return (struct str){text, bytes - 1};
}

bool grpc_read_name(struct str message, struct str *name, struct str *version, struct arena *arena)
{
    struct unpacking unpacking = {.arena = arena};
    ProtobufCMessage *unpacked = unpack(&inference__model_ready_request__descriptor, message, &unpacking);
    if (unpacked == NULL)
        return false;
    const Inference__ModelReadyRequest *from = (const Inference__ModelReadyRequest *)(void *)unpacked;
    *name = text_of(from->name);
    *version = text_of(from->version);
    return utf8_is_valid(*name) && utf8_is_valid(*version);
}

bool grpc_read_index(struct str message, bool *only_ready, struct arena *arena)
{
    struct unpacking unpacking = {.arena = arena};
    ProtobufCMessage *unpacked =
        unpack(&inference__repository_index_request__descriptor, message, &unpacking);
    if (unpacked == NULL)
        return false;
    *only_ready = ((const Inference__RepositoryIndexRequest *)(void *)unpacked)->ready;
    return true;
}

bool grpc_read_change(struct str message, struct grpc_change *change, struct arena *arena)
{
    struct unpacking unpacking = {.arena = arena};
    ProtobufCMessage *unpacked =
        unpack(&inference__repository_model_load_request__descriptor, message, &unpacking);
    if (unpacked == NULL)
        return false;
    const Inference__RepositoryModelLoadRequest *from =
        (const Inference__RepositoryModelLoadRequest *)(void *)unpacked;
    *change = (struct grpc_change){.repository = text_of(from->repository_name),
                                   .model = text_of(from->model_name),
                                   .parameters = arena_array(arena, struct str, MAX(from->n_parameters, 1)),
                                   .parameters_count = (uint32_t)from->n_parameters};
    bool is_good = utf8_is_valid(change->repository) && utf8_is_valid(change->model);
    for (uint32_t i = 0; i < change->parameters_count; i++) {
        change->parameters[i] = text_of(from->parameters[i]->key);
        is_good &= utf8_is_valid(change->parameters[i]);
    }
    return is_good;
}

/* --- Tensors --- */

struct reading {
    struct arena *arena;
    struct infer_problem *problem;
    struct str name; /* of the input or output that is read, for messages */
};

static const char *shown(const struct reading *r)
{
    return infer_shown(r->name, r->arena);
}

#define BAD(reading, fault, ...) infer_refuse((reading)->problem, (reading)->arena, fault, __VA_ARGS__)

/* The fields of InferTensorContents. */
enum kind {
    KIND_BOOL,
    KIND_INT,
    KIND_INT64,
    KIND_UINT,
    KIND_UINT64,
    KIND_FP32,
    KIND_FP64,
    KIND_BYTES,
    KINDS
};
static const char *const kind_names[KINDS] = {"bool_contents", "int_contents",    "int64_contents",
                                              "uint_contents", "uint64_contents", "fp32_contents",
                                              "fp64_contents", "bytes_contents"};
static const enum kind kind_of[INFER_TYPES] = {
    [INFER_BOOL] = KIND_BOOL,   [INFER_UINT8] = KIND_UINT,    [INFER_UINT16] = KIND_UINT,
    [INFER_UINT32] = KIND_UINT, [INFER_UINT64] = KIND_UINT64, [INFER_INT8] = KIND_INT,
    [INFER_INT16] = KIND_INT,   [INFER_INT32] = KIND_INT,     [INFER_INT64] = KIND_INT64,
    [INFER_FP32] = KIND_FP32,   [INFER_FP64] = KIND_FP64,     [INFER_BYTES] = KIND_BYTES,
};

/* One byte an element. */
static const void *narrow_bools(const protobuf_c_boolean *from, size_t count, struct arena *arena)
{
    uint8_t *to = arena_alloc(arena, count);
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] != 0;
    return to;
}

/* 32-bit numbers, as they are sent, in the width of the type. NULL after a problem: one is out of its
 * range. */
static const void *narrow(const struct reading *r, const uint32_t *from, size_t count, enum infer_type type)
{
    bool is_signed = kind_of[type] == KIND_INT;
    uint32_t width = infer_type_bytes(type), bits = 8 * width;
    if (width == 4)
        return from;
    int64_t least = is_signed ? -(INT64_C(1) << (bits - 1)) : 0;
    int64_t most = (INT64_C(1) << (bits - is_signed)) - 1;
    char *to = arena_alloc(r->arena, count * width);
    for (size_t i = 0; i < count; i++) {
        int64_t value = is_signed ? (int64_t)(int32_t)from[i] : (int64_t)from[i];
        if (value < least || value > most) {
            (void)BAD(r, INFER_BAD_REQUEST, "input `%s`, element %zu: %lld is out of the range of %s",
                      shown(r), i, (long long)value, infer_type_name(type));
            return NULL;
        }
        uint8_t byte = (uint8_t)value;
        uint16_t word = (uint16_t)value;
        memcpy(to + i * width, width == 1 ? (const void *)&byte : (const void *)&word, width);
    }
    return to;
}

static const struct str *texts_of(const ProtobufCBinaryData *from, size_t count, struct arena *arena)
{
    struct str *texts = arena_alloc(arena, count * sizeof(*texts));
    for (size_t i = 0; i < count; i++)
        texts[i] = from[i].len == 0 ? STR("") : (struct str){(const char *)from[i].data, from[i].len};
    return texts;
}

static bool read_contents(const struct reading *r, const Inference__InferTensorContents *from,
                          struct infer_tensor *to)
{
    static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    from = from == NULL ? &none : from;
    const size_t counts[KINDS] = {from->n_bool_contents, from->n_int_contents,    from->n_int64_contents,
                                  from->n_uint_contents, from->n_uint64_contents, from->n_fp32_contents,
                                  from->n_fp64_contents, from->n_bytes_contents};
    enum kind kind = kind_of[to->type];
    for (uint32_t i = 0; i < KINDS; i++)
        if (i != kind && counts[i] > 0)
            return BAD(r, INFER_BAD_REQUEST, "input `%s` of type %s has values in %s; they belong in %s",
                       shown(r), infer_type_name(to->type), kind_names[i], kind_names[kind]);
    size_t count = counts[kind];
    if (count != to->count)
        return BAD(r, INFER_BAD_REQUEST, "input `%s` has %zu values in %s; its shape has %llu elements",
                   shown(r), count, kind_names[kind], (unsigned long long)to->count);
    switch (kind) {
    case KIND_BOOL: to->values = narrow_bools(from->bool_contents, count, r->arena); break;
    case KIND_INT: to->values = narrow(r, (const uint32_t *)from->int_contents, count, to->type); break;
    case KIND_UINT: to->values = narrow(r, from->uint_contents, count, to->type); break;
    case KIND_INT64: to->values = from->int64_contents; break;
    case KIND_UINT64: to->values = from->uint64_contents; break;
    case KIND_FP32: to->values = from->fp32_contents; break;
    case KIND_FP64: to->values = from->fp64_contents; break;
    default: to->texts = texts_of(from->bytes_contents, count, r->arena); return true;
    }
    return to->values != NULL || count == 0;
}

/* Texts, each behind the four bytes of its length. */
static bool read_raw_texts(const struct reading *r, struct str raw, struct infer_tensor *to)
{
    enum { LENGTH_BYTES = 4 };
    if (to->count > raw.length / LENGTH_BYTES)
        return BAD(r, INFER_BAD_REQUEST,
                   "input `%s` has %zu bytes, in which its shape's %llu texts cannot be", shown(r),
                   raw.length, (unsigned long long)to->count);
    struct str *texts = arena_alloc(r->arena, to->count * sizeof(*texts));
    size_t at = 0;
    for (uint64_t i = 0; i < to->count; i++) {
        uint32_t length = 0;
        size_t left = raw.length - at;
        if (left >= LENGTH_BYTES)
            memcpy(&length, raw.data + at, LENGTH_BYTES);
        if (left < LENGTH_BYTES || length > left - LENGTH_BYTES)
            return BAD(r, INFER_BAD_REQUEST,
                       "input `%s`, element %llu: the bytes end inside of it (each text is behind the four "
                       "bytes of its length)",
                       shown(r), (unsigned long long)i);
        texts[i] = (struct str){raw.data + at + LENGTH_BYTES, length};
        at += LENGTH_BYTES + length;
    }
    if (at < raw.length)
        return BAD(r, INFER_BAD_REQUEST, "input `%s` has %zu bytes behind its %llu texts", shown(r),
                   raw.length - at, (unsigned long long)to->count);
    to->texts = texts;
    return true;
}

static bool read_raw(const struct reading *r, const ProtobufCBinaryData *from, struct infer_tensor *to)
{
    struct str raw = {from->len == 0 ? "" : (const char *)from->data, from->len};
    uint32_t width = infer_type_bytes(to->type);
    if (width == 0)
        return read_raw_texts(r, raw, to);
    size_t expected;
    if (!size_multiply(to->count, width, &expected) || expected != raw.length)
        return BAD(r, INFER_BAD_REQUEST, "input `%s` has %zu bytes; %llu elements of %s have %u bytes each",
                   shown(r), raw.length, (unsigned long long)to->count, infer_type_name(to->type), width);
    to->values = raw.data;
    return true;
}

static bool read_type(const struct reading *r, struct str name, enum infer_type *type)
{
    *type = infer_type_of(name);
    if (*type != INFER_NO_TYPE)
        return true;
    if (str_is(name, "FP16") || str_is(name, "BF16"))
        return BAD(r, INFER_NOT_SUPPORTED,
                   "input `%s` has the type %.*s, which leat does not read; send FP32", shown(r),
                   STR_ARGS(name));
    return BAD(r, INFER_BAD_REQUEST,
               "input `%s` has the type `%s`; the types are BOOL, UINT8 to UINT64, INT8 to "
               "INT64, FP32, FP64, BYTES",
               shown(r), infer_shown(name, r->arena));
}

static bool read_shape(const struct reading *r, const int64_t *sizes, size_t rank, struct infer_tensor *to)
{
    if (rank == 0 || rank > INFER_RANK_MAX)
        return BAD(r, INFER_BAD_REQUEST, "input `%s` has a shape of %zu sizes; 1 to %d are read", shown(r),
                   rank, INFER_RANK_MAX);
    to->rank = (uint32_t)rank;
    memcpy(to->shape, sizes, rank * sizeof(*sizes));
    if (infer_elements(to, &to->count))
        return true;
    return BAD(r, INFER_BAD_REQUEST,
               "input `%s`: a size of its shape is negative, or their product is too large", shown(r));
}

/* What changes where data lie, or what an answer is, cannot be passed over. */
static bool refuse_parameter(const struct reading *r, struct str key, const char *what)
{
    static const char *const unknown[] = {"shared_memory_region", "classification"};
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++)
        if (str_is(key, unknown[i]))
            return BAD(r, INFER_NOT_SUPPORTED, "%s `%s` has the parameter `%s`, which leat does not have",
                       what, shown(r), unknown[i]);
    return true;
}

/* raw: NULL: the values are in the tensor. */
static bool read_input(struct reading *r, const Inference__ModelInferRequest__InferInputTensor *from,
                       const ProtobufCBinaryData *raw, struct infer_tensor *to)
{
    to->name = text_of(from->name);
    if (!utf8_is_valid(to->name))
        return BAD(r, INFER_BAD_REQUEST, "the name of an input is not UTF-8");
    r->name = to->name;
    for (size_t i = 0; i < from->n_parameters; i++)
        if (!refuse_parameter(r, text_of(from->parameters[i]->key), "input"))
            return false;
    if (!read_type(r, text_of(from->datatype), &to->type) || !read_shape(r, from->shape, from->n_shape, to))
        return false;
    if (raw == NULL)
        return read_contents(r, from->contents, to);
    if (from->contents != NULL)
        return BAD(r, INFER_BAD_REQUEST,
                   "input `%s` has `contents`, and the request has raw_input_contents: only "
                   "one of these can be",
                   shown(r));
    return read_raw(r, raw, to);
}

static bool read_inputs(struct reading *r, const Inference__ModelInferRequest *from,
                        struct infer_request *request)
{
    size_t count = from->n_inputs, raw = from->n_raw_input_contents;
    if (count > INFER_TENSORS_MAX)
        return BAD(r, INFER_TOO_LARGE, "the request has %zu inputs; at most %d are read", count,
                   INFER_TENSORS_MAX);
    if (raw != 0 && raw != count)
        return BAD(r, INFER_BAD_REQUEST, "the request has %zu inputs, but %zu raw_input_contents", count,
                   raw);
    request->inputs = arena_array(r->arena, struct infer_tensor, count);
    request->inputs_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        if (!read_input(r, from->inputs[i], raw != 0 ? &from->raw_input_contents[i] : NULL,
                        &request->inputs[i]))
            return false;
    return true;
}

static bool read_wishes(struct reading *r, const Inference__ModelInferRequest *from,
                        struct infer_request *request)
{
    size_t count = from->n_outputs;
    if (count > INFER_TENSORS_MAX)
        return BAD(r, INFER_TOO_LARGE, "the request asks for %zu outputs; at most %d are given", count,
                   INFER_TENSORS_MAX);
    request->wishes = arena_array(r->arena, struct infer_wish, count);
    request->wishes_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const Inference__ModelInferRequest__InferRequestedOutputTensor *wish = from->outputs[i];
        request->wishes[i] = (struct infer_wish){text_of(wish->name), true};
        if (!utf8_is_valid(request->wishes[i].name))
            return BAD(r, INFER_BAD_REQUEST, "the name of an output is not UTF-8");
        r->name = request->wishes[i].name;
        for (size_t j = 0; j < wish->n_parameters; j++)
            if (!refuse_parameter(r, text_of(wish->parameters[j]->key), "output"))
                return false;
    }
    return true;
}

/* --- The request --- */

static bool parse_digits(struct str text, int64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] < '0' || text.data[i] > '9' || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, text.data[i] - '0', number))
            return false;
    return text.length > 0;
}

/* Microseconds, as a number or as digits; 0: none. */
static bool read_timeout(const struct reading *r, const Inference__InferParameter *from, int64_t *timeout_us)
{
    bool is_good = false;
    switch (from == NULL ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET
                         : from->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        *timeout_us = from->int64_param;
        is_good = *timeout_us >= 0;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        *timeout_us = (int64_t)from->uint64_param;
        is_good = *timeout_us >= 0;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        is_good = parse_digits(text_of(from->string_param), timeout_us);
        break;
    default: break;
    }
    return is_good || BAD(r, INFER_BAD_REQUEST, "the parameter `timeout` is not a number of microseconds");
}

static bool read_request(struct reading *r, const Inference__ModelInferRequest *from,
                         struct infer_request *request)
{
    request->model = text_of(from->model_name);
    request->version = text_of(from->model_version);
    request->id = text_of(from->id);
    if (!utf8_is_valid(request->model) || !utf8_is_valid(request->version) || !utf8_is_valid(request->id))
        return BAD(r, INFER_BAD_REQUEST, "model_name, model_version or id is not UTF-8");
    request->all_binary = true;
    for (size_t i = 0; i < from->n_parameters; i++)
        if (str_is(text_of(from->parameters[i]->key), "timeout") &&
            !read_timeout(r, from->parameters[i]->value, &request->timeout_us))
            return false;
    return read_inputs(r, from, request) && read_wishes(r, from, request);
}

bool infer_grpc_read(struct str message, struct infer_request *request, struct arena *arena,
                     struct infer_problem *problem)
{
    struct unpacking unpacking = {.arena = arena};
    struct reading reading = {.arena = arena, .problem = problem};
    *request = (struct infer_request){0};
    *problem = (struct infer_problem){0};
    ProtobufCMessage *unpacked = unpack(&inference__model_infer_request__descriptor, message, &unpacking);
    if (unpacked == NULL && unpacking.is_spent)
        return BAD(&reading, INFER_TOO_LARGE,
                   "the request of %zu bytes has too many small parts: send values as raw_input_contents",
                   message.length);
    if (unpacked == NULL)
        return BAD(&reading, INFER_BAD_REQUEST, "the request is not a ModelInferRequest");
    return read_request(&reading, (const Inference__ModelInferRequest *)(void *)unpacked, request);
}
