#include "serve/infer_json.h"
#include "serve/infer_model.h"

#include "core/base64.h"
#include "core/buffer.h"
#include "formats/json_escape.h"
#include "formats/text_write.h"

#include <inttypes.h>
#include <math.h>

static void put(struct byte_buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

static void put_int(struct byte_buffer *out, int64_t value)
{
    char *to = buffer_reserve(out, TEXT_WRITE_MAX);
    out->length += (size_t)(text_write_int(to, value) - to);
}

/* A number of any type but BOOL and BYTES. NaN and the infinities are null. */
static void put_number(struct byte_buffer *out, const struct infer_tensor *tensor, uint64_t i)
{
    int64_t whole;
    if (tensor->type == INFER_FP64 || tensor->type == INFER_FP32) {
        double value;
        float single;
        if (tensor->type == INFER_FP64) {
            memcpy(&value, (const char *)tensor->values + i * sizeof(value), sizeof(value));
        } else {
            memcpy(&single, (const char *)tensor->values + i * sizeof(single), sizeof(single));
            value = single;
        }
        char *to = buffer_reserve(out, TEXT_WRITE_MAX);
        if (isfinite(value))
            out->length += (size_t)(text_write_float(to, value) - to);
        else
            put(out, "null");
    } else if (infer_value_int(tensor, i, &whole)) {
        put_int(out, whole);
    } else {
        buffer_printf(out, "%" PRIu64, (uint64_t)whole);
    }
}

static void put_text(struct byte_buffer *out, const struct infer_tensor *tensor, uint64_t i)
{
    if (!tensor->is_bytes) {
        json_quote(out, tensor->texts[i]);
        return;
    }
    put(out, "\"");
    base64_encode(tensor->texts[i].data, tensor->texts[i].length, out);
    put(out, "\"");
}

static void put_data(struct byte_buffer *out, const struct infer_tensor *tensor)
{
    put(out, ",\"data\":[");
    for (uint64_t i = 0; i < tensor->count; i++) {
        buffer_append(out, ",", i > 0);
        if (infer_is_null(tensor, i))
            put(out, "null");
        else if (tensor->type == INFER_BYTES)
            put_text(out, tensor, i);
        else if (tensor->type == INFER_BOOL)
            put(out, infer_value_bool(tensor, i) ? "true" : "false");
        else
            put_number(out, tensor, i);
    }
    put(out, "]");
}

static size_t binary_bytes(const struct infer_tensor *tensor)
{
    size_t bytes = tensor->count * infer_type_bytes(tensor->type);
    for (uint64_t i = 0; i < tensor->count && tensor->type == INFER_BYTES; i++)
        bytes += sizeof(uint32_t) + tensor->texts[i].length;
    return bytes;
}

static void put_binary(struct byte_buffer *out, const struct infer_tensor *tensor)
{
    if (tensor->type != INFER_BYTES) {
        buffer_append(out, tensor->values, binary_bytes(tensor));
        return;
    }
    for (uint64_t i = 0; i < tensor->count; i++) {
        leat_assert(tensor->texts[i].length <= UINT32_MAX);
        uint32_t length = (uint32_t)tensor->texts[i].length;
        buffer_append(out, &length, sizeof(length));
        buffer_append(out, tensor->texts[i].data, length);
    }
}

static bool is_binary(const struct infer_request *request, uint32_t output, struct str name)
{
    if (request->wishes_count == 0)
        return request->all_binary;
    leat_assert(output < request->wishes_count && str_equal(request->wishes[output].name, name));
    return request->wishes[output].is_binary;
}

static void put_output(struct byte_buffer *out, const struct infer_tensor *tensor, bool as_binary)
{
    put(out, "{\"name\":");
    json_quote(out, tensor->name);
    put(out, ",\"datatype\":\"");
    put(out, infer_type_name(tensor->type));
    put(out, "\",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        buffer_append(out, ",", i > 0);
        put_int(out, tensor->shape[i]);
    }
    put(out, "]");
    if (as_binary)
        buffer_printf(out, ",\"parameters\":{\"binary_data_size\":%zu}", binary_bytes(tensor));
    else
        put_data(out, tensor);
    put(out, "}");
}

static void put_name(struct byte_buffer *out, const char *name, bool *is_first)
{
    put(out, *is_first ? ",\"parameters\":{\"" : ",\"");
    put(out, name);
    put(out, "\":");
    *is_first = false;
}

static void put_facts(struct byte_buffer *out, const struct infer_facts *facts)
{
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {
        {"filtered", facts->counts.filtered}, {"late", facts->counts.late}, {"failed", facts->counts.failed}};
    bool is_first = true;
    if (facts->cut != NULL) {
        put_name(out, "cut", &is_first);
        json_quote(out, str_from(facts->cut));
    }
    if (facts->features > 0) {
        put_name(out, "features", &is_first);
        put_int(out, (int64_t)facts->features);
    }
    if (facts->staleness_ms >= 0) {
        put_name(out, "staleness_ms", &is_first);
        put_int(out, facts->staleness_ms);
    }
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
        if (counts[i].count > 0) {
            put_name(out, counts[i].name, &is_first);
            put_int(out, (int64_t)counts[i].count);
        }
    if (!is_first)
        put(out, "}");
}

size_t infer_json_write(const struct infer_model *model, const struct infer_request *request,
                        const struct infer_tensor *tensors, uint32_t count, const struct infer_facts *facts,
                        struct byte_buffer *out)
{
    size_t begin = out->length;
    put(out, "{\"model_name\":");
    json_quote(out, model->serve->name);
    put(out, ",\"model_version\":");
    json_quote(out, request->version.length > 0 ? request->version : STR(INFER_VERSION));
    if (request->id.length > 0) {
        put(out, ",\"id\":");
        json_quote(out, request->id);
    }
    put_facts(out, facts);
    put(out, ",\"outputs\":[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_append(out, ",", i > 0);
        put_output(out, &tensors[i], is_binary(request, i, tensors[i].name));
    }
    put(out, "]}");
    size_t json_bytes = out->length - begin;
    for (uint32_t i = 0; i < count; i++)
        if (is_binary(request, i, tensors[i].name))
            put_binary(out, &tensors[i]);
    return json_bytes;
}

void infer_json_error(const char *text, struct byte_buffer *out)
{
    put(out, "{\"error\":");
    json_quote(out, str_from(text));
    put(out, "}");
}
