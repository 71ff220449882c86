/* Writes ModelInferResponse by hand, since answers are many: sizes first, then bytes, without a copy of any
 * tensor. */
#include "core/varint.h"
#include "serve/infer_grpc.h"
#include "serve/infer_model.h"

enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2 };
/* Numbers of fields: ModelInferResponse; its entries of `parameters`, with InferParameter in them;
 * InferOutputTensor. */
enum { MODEL_NAME = 1, MODEL_VERSION = 2, ID = 3, PARAMETERS = 4, OUTPUTS = 5, RAW_OUTPUT_CONTENTS = 6 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2, PARAMETER_INT64 = 2, PARAMETER_STRING = 3 };
enum { TENSOR_NAME = 1, TENSOR_DATATYPE = 2, TENSOR_SHAPE = 3 };
enum { TAG_BYTES = 1 };

static size_t varint_bytes(uint64_t value)
{
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

/* Bytes of a field of `length` bytes, whose number is below 16. */
static size_t field_bytes(size_t length)
{
    return TAG_BYTES + varint_bytes(length) + length;
}

static char *put_tag(char *to, uint32_t field, enum wire wire)
{
    *to = (char)(field << 3 | (uint32_t)wire);
    return to + 1;
}

static char *put_length(char *to, uint32_t field, size_t length)
{
    return varint_put(put_tag(to, field, WIRE_BYTES), length);
}

static char *put_text(char *to, uint32_t field, struct str text)
{
    to = put_length(to, field, text.length);
    if (text.length > 0)
        memcpy(to, text.data, text.length);
    return to + text.length;
}

/* --- Parameters --- */

struct parameter {
    struct str key, text;
    int64_t number; /* text.data is NULL */
};

enum { FACTS_MAX = 6 };

static uint32_t facts_of(const struct infer_facts *facts, struct parameter *to)
{
    const struct {
        struct str name;
        uint64_t count;
    } counts[] = {{STR("filtered"), facts->counts.filtered},
                  {STR("late"), facts->counts.late},
                  {STR("failed"), facts->counts.failed}};
    uint32_t count = 0;
    if (facts->cut != NULL)
        to[count++] = (struct parameter){STR("cut"), str_from(facts->cut), 0};
    if (facts->features > 0)
        to[count++] = (struct parameter){STR("features"), {0}, (int64_t)facts->features};
    if (facts->staleness_ms >= 0)
        to[count++] = (struct parameter){STR("staleness_ms"), {0}, facts->staleness_ms};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
        if (counts[i].count > 0)
            to[count++] = (struct parameter){counts[i].name, {0}, (int64_t)counts[i].count};
    return count;
}

static size_t parameter_bytes(const struct parameter *parameter)
{
    return parameter->text.data != NULL ? field_bytes(parameter->text.length)
                                        : TAG_BYTES + varint_bytes((uint64_t)parameter->number);
}

static size_t entry_bytes(const struct parameter *parameter)
{
    return field_bytes(parameter->key.length) + field_bytes(parameter_bytes(parameter));
}

static char *put_parameter(char *to, const struct parameter *parameter)
{
    to = put_length(to, PARAMETERS, entry_bytes(parameter));
    to = put_text(to, ENTRY_KEY, parameter->key);
    to = put_length(to, ENTRY_VALUE, parameter_bytes(parameter));
    if (parameter->text.data != NULL)
        return put_text(to, PARAMETER_STRING, parameter->text);
    return varint_put(put_tag(to, PARAMETER_INT64, WIRE_VARINT), (uint64_t)parameter->number);
}

/* --- Tensors --- */

static size_t shape_bytes(const struct infer_tensor *tensor)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        bytes += varint_bytes((uint64_t)tensor->shape[i]);
    return bytes;
}

static size_t tensor_bytes(const struct infer_tensor *tensor)
{
    return field_bytes(tensor->name.length) + field_bytes(strlen(infer_type_name(tensor->type))) +
           field_bytes(shape_bytes(tensor));
}

static char *put_tensor(char *to, const struct infer_tensor *tensor)
{
    to = put_length(to, OUTPUTS, tensor_bytes(tensor));
    to = put_text(to, TENSOR_NAME, tensor->name);
    to = put_text(to, TENSOR_DATATYPE, str_from(infer_type_name(tensor->type)));
    to = put_length(to, TENSOR_SHAPE, shape_bytes(tensor));
    for (uint32_t i = 0; i < tensor->rank; i++)
        to = varint_put(to, (uint64_t)tensor->shape[i]);
    return to;
}

static size_t raw_bytes(const struct infer_tensor *tensor)
{
    if (tensor->type != INFER_BYTES)
        return (size_t)tensor->count * infer_type_bytes(tensor->type);
    size_t bytes = 0;
    for (uint64_t i = 0; i < tensor->count; i++)
        bytes += sizeof(uint32_t) + tensor->texts[i].length;
    return bytes;
}

static char *put_raw(char *to, const struct infer_tensor *tensor)
{
    size_t bytes = raw_bytes(tensor);
    to = put_length(to, RAW_OUTPUT_CONTENTS, bytes);
    if (tensor->type != INFER_BYTES) {
        if (bytes > 0)
            memcpy(to, tensor->values, bytes);
        return to + bytes;
    }
    for (uint64_t i = 0; i < tensor->count; i++) {
        struct str text = tensor->texts[i];
        uint32_t length = (uint32_t)text.length;
        leat_assert(length == text.length);
        memcpy(to, &length, sizeof(length));
        to += sizeof(length);
        if (length > 0)
            memcpy(to, text.data, length);
        to += length;
    }
    return to;
}

/* --- The answer --- */

void infer_grpc_write(const struct infer_model *model, const struct infer_request *request,
                      const struct infer_tensor *tensors, uint32_t count, const struct infer_facts *facts,
                      struct byte_buffer *out)
{
    struct parameter parameters[FACTS_MAX];
    uint32_t parameters_count = facts_of(facts, parameters);
    struct str name = model->serve->name,
               version = request->version.length > 0 ? request->version : STR(INFER_VERSION);
    size_t bytes = field_bytes(name.length) + field_bytes(version.length) + field_bytes(request->id.length);
    for (uint32_t i = 0; i < parameters_count; i++)
        bytes += field_bytes(entry_bytes(&parameters[i]));
    for (uint32_t i = 0; i < count; i++)
        bytes += field_bytes(tensor_bytes(&tensors[i])) + field_bytes(raw_bytes(&tensors[i]));
    char *to = buffer_reserve(out, bytes), *begin = to;
    to = put_text(to, MODEL_NAME, name);
    to = put_text(to, MODEL_VERSION, version);
    if (request->id.length > 0)
        to = put_text(to, ID, request->id);
    for (uint32_t i = 0; i < parameters_count; i++)
        to = put_parameter(to, &parameters[i]);
    for (uint32_t i = 0; i < count; i++)
        to = put_tensor(to, &tensors[i]);
    for (uint32_t i = 0; i < count; i++)
        to = put_raw(to, &tensors[i]);
    leat_assert((size_t)(to - begin) <= bytes);
    out->length += (size_t)(to - begin);
}
