/* Arbitrary bytes as an inference request over HTTP. The first two bytes say how many bytes at the end are
 * binary data. A request that is read and checked fills batches, the same rows however it is cut; its rows
 * as an answer are written as JSON; and if no binary data came in or go out, that is a request for the same
 * rows. */
#include "core/buffer.h"
#include "formats/text.h"
#include "fuzz.h"
#include "serve/infer_json.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <math.h>

enum { BYTES_MAX = 8192, ROWS_MAX = 512, NOW_US = 1000000 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

/* A plan of one source, whose rows are their own answers. */
struct fuzz {
    struct arena arena, call;
    struct plan_node node;
    struct plan plan;
    struct plan_serve serve;
    struct source_common common;
    struct infer_model *model;
    struct batch_pool *pool;
};

static struct fuzz *fuzz_of_process(void)
{
    static struct fuzz fuzz;
    static uint32_t zero;
    if (fuzz.model != NULL)
        return &fuzz;
    const struct schema *schema = harness_schema(
        &fuzz.arena,
        "i int, f float, s text, b bool, y bytes, t us, m ms, d rfc3339, n int!, l [int], g [float], "
        "x [text], z [bytes], o [bool], u [us], e [{x int, y text}]");
    uint32_t count = schema->count;
    fuzz.common = (struct source_common){
        .event_time = {.name = STR("t"), .index = schema_find(schema, STR("t"))}, .max_jump_us = US_PER_HOUR};
    fuzz.node = (struct plan_node){.label = "events", .common = &fuzz.common, .has_time = true};
    fuzz.node.outputs[0] = schema;
    fuzz.serve = (struct plan_serve){.name = STR("model"),
                                     .steps = &zero,
                                     .outputs = &zero,
                                     .steps_count = 1,
                                     .is_needed = arena_array(&fuzz.arena, bool, count),
                                     .is_hidden = arena_array(&fuzz.arena, bool, count)};
    for (uint32_t i = 0; i < count; i++) {
        const struct type *type = &schema->fields[i].type;
        fuzz.serve.is_needed[i] = i % 2 == 0 && type->tag != TYPE_LIST;
        /* Times of answers are in microseconds, and lists of records are there by their fields, which no request has. */
        bool has_records = type->tag == TYPE_LIST && type->element->tag == TYPE_RECORD;
        fuzz.serve.is_hidden[i] = has_records || (type->tag == TYPE_TIME && type->unit != TIME_UNIT_US);
    }
    fuzz.plan =
        (struct plan){.nodes = &fuzz.node, .nodes_count = 1, .serves = &fuzz.serve, .serves_count = 1};
    fuzz.pool = batch_pool_new();
    fuzz.model = infer_model_new(&fuzz.plan, &fuzz.serve);
    return &fuzz;
}

/* Every bit of every value, as text. */
static void values_of(struct batch *batch, struct byte_buffer *out)
{
    struct decode_output output = {.batch = batch};
    for (uint32_t row = 0; row < batch->rows; row++)
        harness_exact(&output, row, out);
}

static bool are_equal(struct batch *a, struct batch *b)
{
    struct byte_buffer first = {0}, second = {0};
    values_of(a, &first);
    values_of(b, &second);
    bool are = str_equal((struct str){first.data, first.length}, (struct str){second.data, second.length});
    buffer_free(&first);
    buffer_free(&second);
    return are;
}

static struct batch *fill(struct fuzz *fuzz, const struct infer_request *request, uint32_t rows,
                          uint32_t step)
{
    struct batch *batch = infer_batch(fuzz->model, fuzz->pool, rows);
    for (uint32_t at = 0; at < rows; at += step)
        infer_fill(fuzz->model, request, NOW_US, at, MIN(step, rows - at), batch, at);
    return batch;
}

/* Writes the rows as an answer; it has them in its outputs. */
static size_t answer(struct fuzz *fuzz, const struct infer_request *request, const struct batch *batch,
                     struct byte_buffer *out)
{
    static struct way_result results[BATCH_ROWS];
    const struct infer_tensor *tensors;
    struct infer_answer *answer = infer_answer_new(fuzz->model, request, batch->rows, &fuzz->call);
    for (uint32_t i = 0; i < batch->rows; i++)
        results[i] = (struct way_result){.status = WAY_ANSWERED, .batch = batch, .row = i};
    infer_answer_add(answer, batch, results, 0, batch->rows / 2, TIME_MIN);
    infer_answer_add(answer, batch, results, batch->rows / 2, batch->rows - batch->rows / 2, TIME_MIN);
    uint32_t count = infer_answer_tensors(answer, &tensors);
    struct infer_facts facts = {.staleness_ms = -1};
    return infer_json_write(fuzz->model, request, tensors, count, &facts, out);
}

/* Columns that an answer does not have, because their times are in another unit. */
static bool has_hidden(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->schema->count; i++)
        for (uint32_t row = 0; row < batch->rows; row++)
            if (batch->schema->fields[i].type.tag == TYPE_TIME &&
                batch->schema->fields[i].type.unit != TIME_UNIT_US &&
                column_is_valid(&batch->columns[i], row))
                return true;
    return false;
}

static void check_answer(struct fuzz *fuzz, const struct infer_request *request, struct batch *batch,
                         bool has_binary)
{
    struct byte_buffer out = {0};
    struct infer_request again;
    struct infer_problem problem;
    uint32_t rows;
    size_t json_bytes = answer(fuzz, request, batch, &out);
    char *name = memmem(out.data, json_bytes, "\"outputs\":", 10);
    must(name != NULL, "an answer has outputs");
    memcpy(name, "\"inputs\": ", 10);
    must(infer_json_read((struct str){out.data, out.length}, json_bytes, &again, &fuzz->call, &problem),
         "what is written is read");
    bool has_all = request->wishes_count == 0 && !request->all_binary && !has_binary;
    if (has_all && !has_hidden(batch)) {
        must(infer_check(fuzz->model, &again, NOW_US, 0, &rows, &fuzz->call, &problem), "an answer is good");
        must(rows == batch->rows, "an answer has the request's rows");
        struct batch *other = fill(fuzz, &again, rows, rows);
        must(are_equal(batch, other), "an answer has the request's values");
        batch_release(other);
    }
    buffer_free(&out);
}

static void check_request(struct fuzz *fuzz, struct str body, size_t json_bytes)
{
    struct infer_request request;
    struct infer_problem problem;
    uint32_t rows;
    bool is_good = infer_json_read(body, json_bytes, &request, &fuzz->call, &problem) &&
                   infer_check(fuzz->model, &request, NOW_US, 0, &rows, &fuzz->call, &problem);
    must(is_good == (problem.fault == INFER_GOOD), "a fault is why a request is refused");
    if (!is_good) {
        struct byte_buffer out = {0};
        must(problem.text != NULL && text_is_utf8(problem.text, strlen(problem.text)), "a reason is text");
        infer_json_error(problem.text, &out);
        buffer_free(&out);
        return;
    }
    must(rows > 0 && rows <= INFER_ROWS_MAX, "a request has rows");
    if (rows > ROWS_MAX)
        return;
    struct batch *batch = fill(fuzz, &request, rows, rows), *cut = fill(fuzz, &request, rows, 1 + rows / 3);
    must(are_equal(batch, cut), "rows are the same however they are filled");
    batch_release(cut);
    check_answer(fuzz, &request, batch, body.length > json_bytes);
    batch_release(batch);
}

/* --- Inputs that are requests --- */

static const struct {
    const char *name, *type;
    bool is_list;
    const char *values[5];
} columns[] = {
    {"i", "INT64", false, {"0", "-1", "null", "9223372036854775807", "7"}},
    {"f", "FP64", false, {"0.1", "-0", "null", "1e300", "3"}},
    {"s", "BYTES", false, {"\"\"", "\"a\"", "null", "\"\\u00e4\\\"b\"", "\"some longer text than sixteen\""}},
    {"b", "BOOL", false, {"true", "false", "null", "true", "true"}},
    {"y", "BYTES", false, {"\"\"", "\"AP8=\"", "null", "\"////\"", "\"YWJj\""}},
    {"t", "INT64", false, {"5", "-5", "null", "2000000", "0"}},
    {"i", "UINT8", false, {"0", "255", "null", "128", "7"}},
    {"f", "INT32", false, {"0", "-1", "null", "2147483647", "7"}},
    {"l", "INT64", true, {"1", "-2", "null", "3", "4"}},
    {"g", "FP64", true, {"1.5", "-0", "null", "1e-7", "4"}},
    {"x", "BYTES", true, {"\"\"", "\"a\"", "null", "\"bc\"", "\"some longer text than sixteen\""}},
    {"z", "BYTES", true, {"\"\"", "\"AP8=\"", "null", "\"////\"", "\"YWJj\""}},
    {"o", "BOOL", true, {"true", "false", "null", "true", "false"}},
};

static void put_input(struct byte_buffer *out, const char *name, const char *type, uint32_t count)
{
    buffer_printf(out, ",{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%u],\"data\":[", name, type, count);
}

static void put_column(struct test_random *random, uint32_t column, uint32_t rows, struct byte_buffer *out)
{
    const char *name = columns[column].name;
    uint32_t by_row = random_chance(random, 30) ? 1 : rows, count = by_row;
    char other[16];
    if (columns[column].is_list) {
        snprintf(other, sizeof(other), "%s.lengths", name);
        put_input(out, other, "INT64", by_row);
        count = 0;
        for (uint32_t i = 0; i < by_row; i++) {
            uint32_t length = random_below(random, random_chance(random, 3) ? 90 : 4);
            buffer_printf(out, "%s%u", i > 0 ? "," : "", length);
            count += length;
        }
        buffer_printf(out, "]}");
        count += random_chance(random, 3);
        count -= count > 0 && random_chance(random, 3);
    }
    put_input(out, name, columns[column].type, count);
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "%s%s", i > 0 ? "," : "", columns[column].values[random_below(random, 5)]);
    buffer_printf(out, "]}");
    if (random_chance(random, 70))
        return;
    snprintf(other, sizeof(other), "%s.valid", name);
    put_input(out, other, "BOOL", by_row);
    for (uint32_t i = 0; i < by_row; i++)
        buffer_printf(out, "%s%s", i > 0 ? "," : "", random_chance(random, 60) ? "true" : "false");
    buffer_printf(out, "]}");
}

static void put_request(struct test_random *random, struct byte_buffer *out)
{
    uint32_t rows = 1 + random_below(random, 6);
    buffer_append(out, "\0", 2);
    buffer_printf(out, "{\"inputs\":[{\"name\":\"n\",\"datatype\":\"INT8\",\"shape\":[%u],\"data\":[1", rows);
    for (uint32_t i = 1; i < rows; i++)
        buffer_printf(out, ",%u", i);
    buffer_printf(out, "]}");
    for (uint32_t i = 0; i < ARRAY_COUNT(columns); i++)
        if (random_chance(random, 20))
            put_column(random, i, rows, out);
    buffer_printf(out, "]}");
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    struct test_random random = {seed};
    if (random_chance(&random, 50))
        return LLVMFuzzerMutate(data, size, max);
    struct byte_buffer request = {0};
    put_request(&random, &request);
    size_t length = MIN(request.length, max);
    memcpy(data, request.data, length);
    buffer_free(&request);
    return random_chance(&random, 50) ? length : LLVMFuzzerMutate(data, length, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz *fuzz = fuzz_of_process();
    struct fuzz_input input = {data, data + size};
    if (size > BYTES_MAX)
        return -1;
    uint32_t binary = fuzz_below(&input, 1 << 16);
    size_t length = (size_t)(input.end - input.at);
    struct str body = fuzz_take(&input, length);
    check_request(fuzz, body, length - MIN(binary, length));
    free((char *)(uintptr_t)body.data);
    arena_reset(&fuzz->call);
    return 0;
}
