/* Arbitrary bytes as a frame of gRPC, as a ModelInferRequest and as a small request. What is read has
 * tensors whose data are whole, is what protobuf-c's own unpack says, takes bounded memory, and is written
 * as an answer that protobuf-c reads as the same tensors. */
#include "fuzz.h"
#include "serve/infer_grpc.h"
#include "serve/infer_model.h"

#include <inference.pb-c.h>

enum { MESSAGE_MAX = 1 << 16 };

static const struct plan_serve serve = {.name = {"m", 1}};
static const struct infer_model model = {.serve = &serve};
static const struct infer_facts facts = {"cut", 8, 5, {.late = 1}};

/* Reads every byte, so that a sanitizer sees those that are not there. */
static uint32_t sum_of(const void *data, size_t length)
{
    const unsigned char *bytes = data;
    uint32_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum = 31 * sum + bytes[i];
    return sum;
}

static void check_raw(const struct infer_tensor *tensor, const ProtobufCBinaryData *raw)
{
    size_t at = 0;
    if (tensor->type != INFER_BYTES) {
        at = tensor->count * infer_type_bytes(tensor->type);
        must(raw->len == at && (at == 0 || memcmp(raw->data, tensor->values, at) == 0),
             "raw values are the values");
        return;
    }
    for (uint64_t i = 0; i < tensor->count; i++) {
        struct str text = tensor->texts[i];
        uint32_t length = 0;
        must(raw->len - at >= sizeof(length) + text.length, "a text is whole");
        memcpy(&length, raw->data + at, sizeof(length));
        must(length == text.length, "a text's length is before it");
        must(length == 0 || memcmp(raw->data + at + sizeof(length), text.data, length) == 0,
             "a text is that text");
        at += sizeof(length) + length;
    }
    must(at == raw->len, "nothing is behind the texts");
}

static void check_answer(const struct infer_request *request)
{
    struct byte_buffer out = {0};
    infer_grpc_write(&model, request, request->inputs, request->inputs_count, &facts, &out);
    Inference__ModelInferResponse *answer =
        inference__model_infer_response__unpack(NULL, out.length, (const uint8_t *)out.data);
    must(answer != NULL, "an answer is a message");
    must(answer->n_outputs == request->inputs_count && answer->n_raw_output_contents == request->inputs_count,
         "an answer has every tensor");
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        const struct infer_tensor *tensor = &request->inputs[i];
        const Inference__ModelInferResponse__InferOutputTensor *output = answer->outputs[i];
        uint64_t count = 0;
        must(infer_elements(tensor, &count) && count == tensor->count, "elements are those of the shape");
        must(memcmp(output->name, tensor->name.data, tensor->name.length) == 0, "a name is that name");
        must(strcmp(output->datatype, infer_type_name(tensor->type)) == 0, "a type is that type");
        must(output->n_shape == tensor->rank, "a rank is that rank");
        must(memcmp(output->shape, tensor->shape, tensor->rank * sizeof(int64_t)) == 0,
             "a shape is that shape");
        check_raw(tensor, &answer->raw_output_contents[i]);
    }
    must(strcmp(answer->id, request->id.data) == 0, "an id is that id, to its NUL");
    inference__model_infer_response__free_unpacked(answer, NULL);
    buffer_free(&out);
}

/* What was read, beside protobuf-c's own. */
static void check_request(const struct infer_request *request, struct str message)
{
    Inference__ModelInferRequest *plain =
        inference__model_infer_request__unpack(NULL, message.length, (const uint8_t *)message.data);
    must(plain != NULL, "a request is a message");
    must(strcmp(plain->model_name, request->model.data) == 0, "the model is that model");
    must(plain->n_inputs == request->inputs_count && plain->n_outputs == request->wishes_count,
         "all is read");
    for (uint32_t i = 0; i < request->wishes_count; i++)
        must(strcmp(plain->outputs[i]->name, request->wishes[i].name.data) == 0, "an output is that output");
    for (uint32_t i = 0; i < request->inputs_count; i++) {
        const Inference__InferTensorContents *contents = plain->inputs[i]->contents;
        if (plain->n_raw_input_contents > 0)
            check_raw(&request->inputs[i], &plain->raw_input_contents[i]);
        for (uint64_t j = 0; contents != NULL && j < contents->n_int_contents; j++) {
            int64_t value = 0;
            must(infer_value_int(&request->inputs[i], j, &value) && value == contents->int_contents[j],
                 "an int is that int");
        }
        for (uint64_t j = 0; contents != NULL && j < contents->n_uint_contents; j++) {
            int64_t value = 0;
            must(infer_value_int(&request->inputs[i], j, &value) && value == contents->uint_contents[j],
                 "an unsigned int is that int");
        }
    }
    inference__model_infer_request__free_unpacked(plain, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct str whole = fuzz_take(&input, MESSAGE_MAX), message, name, version;
    struct arena arena = {0};
    struct infer_request request;
    struct infer_problem problem;
    int status;
    const char *why = NULL;
    if (grpc_unframe(whole, &message, &status, &why))
        must(message.length + 5 == whole.length && sum_of(message.data, message.length) + 1 > 0,
             "a frame has its message");
    else
        must(status != GRPC_OK && why != NULL, "a refusal says why");
    must(grpc_timeout_us(whole) >= -1, "a timeout is not negative");
    bool is_good = infer_grpc_read(whole, &request, &arena, &problem);
    must(is_good == (problem.fault == INFER_GOOD) && is_good == (problem.text == NULL), "a refusal says why");
    must(arena.used_bytes <= 64 * whole.length + (256 << 10), "memory is bounded");
    if (is_good) {
        check_request(&request, whole);
        check_answer(&request);
    }
    if (grpc_read_name(whole, &name, &version, &arena))
        must(name.length + version.length <= whole.length, "names are in the message");
    if (!is_good)
        must(strlen(grpc_message(problem.text, &arena)) >= strlen(problem.text), "a message is encoded");
    arena_free(&arena);
    free((char *)(uintptr_t)whole.data);
    return 0;
}
