/* Frames, header fields and the messages beside inference, which protobuf-c reads back. */
#include "serve/infer_grpc.h"
#include "serve/infer_model.h"
#include "unit/core/cmocka_all.h"

#include <health.pb-c.h>
#include <inference.pb-c.h>
#include <stdlib.h>

/* --- Frames --- */

static const struct {
    struct str body;
    int status;
    const char *why; /* NULL: the message is "abc", or empty where the body has five bytes */
} bodies[] = {
    {{"\0\0\0\0\3"
      "abc",
      8},
     GRPC_OK,
     NULL},
    {{"\0\0\0\0\0", 5}, GRPC_OK, NULL},
    {{"", 0}, GRPC_INTERNAL, "no message"},
    {{"\0", 1}, GRPC_INTERNAL, "ends inside a message's five first bytes"},
    {{"\0\0\0\0", 4}, GRPC_INTERNAL, "ends inside a message's five first bytes"},
    {{"\1\0\0\0\3"
      "abc",
      8},
     GRPC_UNIMPLEMENTED,
     "compressed"},
    {{"\2\0\0\0\3"
      "abc",
      8},
     GRPC_INTERNAL,
     "neither 0 nor 1"},
    {{"\xff\0\0\0\3"
      "abc",
      8},
     GRPC_INTERNAL,
     "neither 0 nor 1"},
    {{"\0\0\0\0\4"
      "abc",
      8},
     GRPC_INTERNAL,
     "ends inside a message"},
    {{"\0\xff\xff\xff\xff"
      "abc",
      8},
     GRPC_INTERNAL,
     "ends inside a message"},
    {{"\0\1\0\0\3"
      "abc",
      8},
     GRPC_INTERNAL,
     "ends inside a message"},
    {{"\0\0\0\0\2"
      "abc",
      8},
     GRPC_INTERNAL,
     "more than one message"},
    {{"\0\0\0\0\3"
      "abc\0\0\0\0\0",
      13},
     GRPC_INTERNAL,
     "more than one message"},
};

static void test_unframe(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bodies); i++) {
        struct str message = {0};
        int status = -1;
        const char *why = NULL;
        char *body = malloc(MAX(bodies[i].body.length, 1));
        assert_non_null(body);
        memcpy(body, bodies[i].body.data, bodies[i].body.length);
        bool is_good = grpc_unframe((struct str){body, bodies[i].body.length}, &message, &status, &why);
        assert_int_equal(is_good, bodies[i].why == NULL);
        assert_int_equal(status, bodies[i].status);
        if (is_good)
            assert_true(str_is(message, bodies[i].body.length == 5 ? "" : "abc"));
        else if (strstr(why, bodies[i].why) == NULL)
            fail_msg("case %zu: %s", i, why);
        free(body);
    }
}

static void test_frame(void **state)
{
    (void)state;
    struct byte_buffer out = {0};
    grpc_frame(0x01020304, &out);
    assert_int_equal(out.length, 5);
    assert_memory_equal(out.data, "\0\1\2\3\4", 5);
    grpc_frame(0, &out);
    buffer_append(&out, "message", 7);
    grpc_frame_close(5, &out);
    assert_int_equal(out.length, 17);
    assert_memory_equal(out.data, "\0\1\2\3\4\0\0\0\0\7message", 17);
    buffer_free(&out);
}

static void test_timeout(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } cases[] = {
        {"1H", 3600000000},
        {"2M", 120000000},
        {"3S", 3000000},
        {"5m", 5000},
        {"7u", 7},
        {"1n", 1},
        {"1000n", 1},
        {"1001n", 2},
        {"0n", 0},
        {"00000001S", 1000000},
        {"99999999H", INT64_C(359999996400000000)},
        {"", -1},
        {"H", -1},
        {"5", -1},
        {"123456789S", -1},
        {"000000001S", -1},
        {"-1S", -1},
        {"+1S", -1},
        {"1 S", -1},
        {"1s", -1},
        {"1.5S", -1},
        {"1h", -1},
        {"1SS", -1},
        {" 1S", -1},
        {"0x1S", -1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (grpc_timeout_us(str_from(cases[i].text)) != cases[i].us)
            fail_msg("%s: %lld", cases[i].text, (long long)grpc_timeout_us(str_from(cases[i].text)));
}

static void test_message(void **state)
{
    (void)state;
    struct arena arena = {0};
    assert_string_equal(grpc_message("", &arena), "");
    assert_string_equal(grpc_message(" plain ~`x`", &arena), " plain ~`x`");
    assert_string_equal(grpc_message("100% \xc3\xa4\n\x7f\x1f", &arena), "100%25 %C3%A4%0A%7F%1F");
    arena_free(&arena);
}

/* --- Messages --- */

static void test_names(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct str name, version;
    assert_true(grpc_read_name(STR("\x0a\2ab\x12\1"
                                   "7\x7a\1?"),
                               &name, &version, &arena));
    assert_true(str_is(name, "ab") && str_is(version, "7"));
    assert_true(grpc_read_name(STR(""), &name, &version, &arena));
    assert_int_equal(name.length + version.length, 0);
    assert_true(grpc_read_name(STR("\x0a\3a\0b"), &name, &version, &arena));
    assert_true(str_equal(name, STR("a\0b")));
    assert_false(grpc_read_name(STR("\x0a\3ab"), &name, &version, &arena));
    assert_false(grpc_read_name(STR("\x0a\1\xff"), &name, &version, &arena));
    assert_false(grpc_read_name(STR("\x12\1\xff"), &name, &version, &arena));
    arena_free(&arena);
}

#define READ(type, out) type##__unpack(NULL, (out).length, (const uint8_t *)(out).data)

static void test_live(void **state)
{
    (void)state;
    struct byte_buffer out = {0};
    grpc_write_live(true, &out);
    assert_int_equal(out.length, 2);
    assert_memory_equal(out.data, "\x08\1", 2);
    grpc_write_live(false, &out);
    assert_int_equal(out.length, 2);
    buffer_clear(&out);
    grpc_write_health(true, &out);
    grpc_write_health(false, &out);
    assert_int_equal(out.length, 4);
    assert_memory_equal(out.data, "\x08\1\x08\2", 4);
    buffer_free(&out);
}

static void test_metadata(void **state)
{
    (void)state;
    struct infer_column inputs[] = {{STR("k"), INFER_BYTES, false, false},
                                    {STR("v"), INFER_FP64, true, true}};
    struct infer_column outputs[] = {{STR("p"), INFER_FP32, true, false}};
    const struct infer_model model = {.inputs = {.columns = inputs, .columns_count = 2},
                                      .outputs = {.columns = outputs, .columns_count = 1}};
    struct byte_buffer out = {0};
    const char *const extensions[] = {"statistics", "binary_tensor_data", NULL};
    grpc_write_server("0.1", extensions, &out);
    Inference__ServerMetadataResponse *server = READ(inference__server_metadata_response, out);
    assert_non_null(server);
    assert_string_equal(server->name, "leat");
    assert_string_equal(server->version, "0.1");
    assert_int_equal(server->n_extensions, 2);
    assert_string_equal(server->extensions[1], "binary_tensor_data");
    inference__server_metadata_response__free_unpacked(server, NULL);
    buffer_clear(&out);
    grpc_write_metadata(&model, STR("clicks"), &out);
    Inference__ModelMetadataResponse *metadata = READ(inference__model_metadata_response, out);
    assert_non_null(metadata);
    assert_string_equal(metadata->name, "clicks");
    assert_string_equal(metadata->platform, "leat");
    assert_int_equal(metadata->n_versions, 1);
    assert_string_equal(metadata->versions[0], "1");
    assert_int_equal(metadata->n_inputs, 3);
    assert_int_equal(metadata->n_outputs, 1);
    static const char *const names[] = {"k", "v", "v.lengths"}, *const types[] = {"BYTES", "FP64", "INT64"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(metadata->inputs[i]->name, names[i]);
        assert_string_equal(metadata->inputs[i]->datatype, types[i]);
        assert_int_equal(metadata->inputs[i]->n_shape, 1);
        assert_int_equal(metadata->inputs[i]->shape[0], -1);
    }
    assert_string_equal(metadata->outputs[0]->name, "p");
    assert_string_equal(metadata->outputs[0]->datatype, "FP32");
    inference__model_metadata_response__free_unpacked(metadata, NULL);
    buffer_free(&out);
}

static void check_duration(const Inference__StatisticDuration *duration, uint64_t count, uint64_t ns)
{
    assert_int_equal(duration->count, count);
    assert_int_equal(duration->ns, ns);
}

static void test_statistics(void **state)
{
    (void)state;
    const struct infer_statistics statistics = {.inferences = 1,
                                                .executions = 2,
                                                .successes = 3,
                                                .success_ns = 4,
                                                .failures = 5,
                                                .fail_ns = 6,
                                                .queue_ns = 7,
                                                .input_ns = 8,
                                                .compute_ns = 9,
                                                .output_ns = 10,
                                                .last_ms = 11};
    struct byte_buffer out = {0};
    grpc_write_statistics(STR("a"), &(struct infer_statistics){0}, &out);
    grpc_write_statistics(STR("b"), &statistics, &out);
    Inference__ModelStatisticsResponse *answer = READ(inference__model_statistics_response, out);
    assert_non_null(answer);
    assert_int_equal(answer->n_model_stats, 2);
    const Inference__ModelStatistics *model = answer->model_stats[1];
    assert_string_equal(answer->model_stats[0]->name, "a");
    assert_string_equal(model->name, "b");
    assert_string_equal(model->version, "1");
    assert_int_equal(model->last_inference, 11);
    assert_int_equal(model->inference_count, 1);
    assert_int_equal(model->execution_count, 2);
    check_duration(model->inference_stats->success, 3, 4);
    check_duration(model->inference_stats->fail, 5, 6);
    check_duration(model->inference_stats->queue, 3, 7);
    check_duration(model->inference_stats->compute_input, 3, 8);
    check_duration(model->inference_stats->compute_infer, 3, 9);
    check_duration(model->inference_stats->compute_output, 3, 10);
    inference__model_statistics_response__free_unpacked(answer, NULL);
    buffer_free(&out);
}

static void test_index(void **state)
{
    (void)state;
    struct byte_buffer out = {0};
    const struct str names[] = {STR("a"), STR("b")};
    grpc_write_index(names, NULL, 0, &out);
    assert_int_equal(out.length, 0);
    grpc_write_index(names, (const char *const[]){NULL, "unloaded"}, 2, &out);
    Inference__RepositoryIndexResponse *answer = READ(inference__repository_index_response, out);
    assert_non_null(answer);
    assert_int_equal(answer->n_models, 2);
    assert_string_equal(answer->models[1]->name, "b");
    assert_string_equal(answer->models[1]->version, "1");
    assert_string_equal(answer->models[0]->state, "READY");
    assert_string_equal(answer->models[0]->reason, "");
    assert_string_equal(answer->models[1]->state, "UNAVAILABLE");
    assert_string_equal(answer->models[1]->reason, "unloaded");
    inference__repository_index_response__free_unpacked(answer, NULL);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unframe),  cmocka_unit_test(test_frame),      cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_message),  cmocka_unit_test(test_names),      cmocka_unit_test(test_live),
        cmocka_unit_test(test_metadata), cmocka_unit_test(test_statistics), cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
