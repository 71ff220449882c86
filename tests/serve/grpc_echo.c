/* Reads messages as a server of inference reads them, and writes what it read as an answer
 * (test_grpc_messages.py).
 *
 *     grpc_echo            from stdin to stdout, frames of gRPC: each holds a ModelInferRequest, and comes back
 *                          as a ModelInferResponse whose outputs are the inputs; what is refused comes back as
 *                          a frame whose first byte is 2, with the problem's text
 *     grpc_echo messages   writes frames with each of the other messages
 *     grpc_echo time N     reads one request from stdin N times, and writes an answer of one output; prints
 *                          nanoseconds */
#include "core/os.h"
#include "serve/infer_grpc.h"
#include "serve/infer_model.h"

#include <stdio.h>
#include <stdlib.h>

enum { FRAME_BYTES = 5, BODY_MAX = 64 << 20, REFUSED = 2 };

static struct infer_column inputs[] = {{{"key", 3}, INFER_BYTES, false, false},
                                       {{"v", 1}, INFER_FP64, true, true}};
static struct infer_column outputs[] = {{{"p", 1}, INFER_FP32, true, false}};
static const struct plan_serve serve = {.name = {"echo", 4}};
static const struct infer_model model = {.serve = &serve,
                                         .inputs = {.columns = inputs, .columns_count = 2},
                                         .outputs = {.columns = outputs, .columns_count = 1}};
static const struct infer_facts facts = {"cut-1", 70, 12, {.answered = 3, .late = 1, .filtered = 2}};

static size_t read_all(char *to, size_t room)
{
    size_t length = 0, got;
    while (length < room && (got = fread(to + length, 1, room - length, stdin)) > 0)
        length += got;
    return length;
}

/* outputs_max: so many inputs come back. */
static void answer(struct str message, uint32_t outputs_max, struct byte_buffer *out, struct arena *arena)
{
    struct infer_request request;
    struct infer_problem problem;
    size_t at = out->length;
    grpc_frame(0, out);
    if (infer_grpc_read(message, &request, arena, &problem))
        infer_grpc_write(&model, &request, request.inputs, MIN(request.inputs_count, outputs_max), &facts,
                         out);
    else
        buffer_append(out, problem.text, strlen(problem.text));
    grpc_frame_close(at, out);
    if (problem.fault != INFER_GOOD)
        out->data[at] = REFUSED;
}

/* The bytes of the first message of a body, with its frame. */
static size_t first_frame(struct str body)
{
    uint32_t length = 0;
    for (uint32_t i = 1; i < FRAME_BYTES; i++)
        length = length << 8 | (unsigned char)body.data[i];
    return MIN(body.length, FRAME_BYTES + (size_t)length);
}

static int echo(struct str body, struct byte_buffer *out)
{
    struct arena arena = {0};
    while (body.length >= FRAME_BYTES) {
        struct str message, frame = {body.data, first_frame(body)};
        int status;
        const char *why;
        if (!grpc_unframe(frame, &message, &status, &why)) {
            fprintf(stderr, "grpc_echo: %s\n", why);
            return 1;
        }
        answer(message, INFER_TENSORS_MAX, out, &arena);
        arena_reset(&arena);
        body = (struct str){body.data + frame.length, body.length - frame.length};
    }
    arena_free(&arena);
    return 0;
}

static int take_time(struct str body, uint64_t runs)
{
    struct arena arena = {0};
    struct byte_buffer out = {0};
    int64_t best = INT64_MAX;
    for (int round = 0; round < 5; round++) {
        int64_t begin = os_monotonic_us();
        for (uint64_t i = 0; i < runs; i++) {
            buffer_clear(&out);
            answer((struct str){body.data + FRAME_BYTES, body.length - FRAME_BYTES}, 1, &out, &arena);
            arena_reset(&arena);
        }
        best = MIN(best, os_monotonic_us() - begin);
    }
    printf("%.1f ns\n", 1000 * (double)best / (double)runs);
    buffer_free(&out);
    arena_free(&arena);
    return 0;
}

static void write_messages(struct byte_buffer *out)
{
    const char *const extensions[] = {"statistics", "model_repository", NULL};
    const struct infer_statistics statistics = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const struct str names[] = {STR("a"), STR("b")};
    for (uint32_t i = 0; i < 6; i++) {
        size_t at = out->length;
        grpc_frame(0, out);
        switch (i) {
        case 0: grpc_write_live(true, out); break;
        case 1: grpc_write_health(false, out); break;
        case 2: grpc_write_server("0.1", extensions, out); break;
        case 3: grpc_write_metadata(&model, serve.name, out); break;
        case 4: grpc_write_statistics(serve.name, &statistics, out); break;
        default: grpc_write_index(names, (const char *const[]){NULL, "unloaded"}, 2, out); break;
        }
        grpc_frame_close(at, out);
    }
}

int main(int count, char **arguments)
{
    struct byte_buffer out = {0};
    int result = 0;
    if (count == 2 && strcmp(arguments[1], "messages") == 0) {
        write_messages(&out);
    } else {
        char *body = malloc(BODY_MAX);
        if (body == NULL)
            return 1;
        struct str all = {body, read_all(body, BODY_MAX)};
        result = count == 3 ? take_time(all, strtoull(arguments[2], NULL, 10)) : echo(all, &out);
        free(body);
    }
    fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
    return result;
}
