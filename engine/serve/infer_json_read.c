/* Inference requests as JSON, read by the readers of the json format: what they accept and refuse is what
 * they do in records. The JSON part is copied, because the readers load up to RAW_PADDING bytes behind it;
 * texts lie in a second copy, where their escapes are resolved.
 *
 * The elements of `data` are read when `shape` and `datatype` are known. Clients send both before `data`;
 * where one does not, `data` is passed over and read when the input ends. */
#include "core/connector.h"
#include "formats/text.h"
#include "serve/infer_json_parse.h"

#include <inttypes.h>

static const char *open_object(struct infer_parse *p, const char *at, const char *what)
{
    if (json_peek(&p->reader, at) == '{')
        return at + 1;
    return infer_parse_fail(p, at, what);
}

/* Makes room for one item more of a growing array in the arena. */
static void *grow(struct infer_parse *p, void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    enum { FIRST = 16 };
    if (count < *capacity)
        return items;
    *capacity = MAX(2 * *capacity, (uint32_t)FIRST);
    void *grown = arena_calloc(p->arena, *capacity, size);
    if (count > 0)
        memcpy(grown, items, count * size);
    return grown;
}

/* --- Inputs --- */

enum { INPUT_NAME, INPUT_SHAPE, INPUT_TYPE, INPUT_DATA, INPUT_PARAMETERS };
static const uint32_t shape_and_type = 1u << INPUT_SHAPE | 1u << INPUT_TYPE;
static const struct infer_member input_members[] = {
    {{"name", 4}}, {{"shape", 5}}, {{"datatype", 8}}, {{"data", 4}}, {{"parameters", 10}}};

static const char *read_shape(struct infer_parse *p, struct infer_tensor *tensor, const char *at)
{
    bool is_first = true;
    if (json_peek(&p->reader, at) != '[')
        return infer_parse_fail(p, at, "a list of sizes was expected");
    at++;
    while (infer_parse_item(p, ']', &is_first, &at)) {
        if (tensor->rank == INFER_RANK_MAX)
            return INFER_BAD(p, "%s: `shape` has more than %d sizes", infer_parse_input(p, tensor),
                             INFER_RANK_MAX);
        at = infer_parse_whole(p, at, "a size in `shape`", &tensor->shape[tensor->rank]);
        if (at == NULL)
            return NULL;
        tensor->rank++;
    }
    if (at != NULL && !infer_elements(tensor, &tensor->count))
        return INFER_BAD(p, "%s: the sizes in `shape` are negative, or their product does not fit 63 bits",
                         infer_parse_input(p, tensor));
    return at;
}

static const char *read_type(struct infer_parse *p, struct infer_tensor *tensor, const char *at)
{
    struct str word;
    at = infer_parse_peek(p, at, &word);
    if (at == NULL)
        return NULL;
    tensor->type = infer_type_of(word);
    if (tensor->type != INFER_NO_TYPE)
        return at;
    bool is_known = str_is(word, "FP16") || str_is(word, "BF16");
    infer_refuse(
        p->problem, p->arena, is_known ? INFER_NOT_SUPPORTED : INFER_BAD_REQUEST,
        "%s: the datatype `%s` is not one that leat takes: BOOL, INT8 to INT64, UINT8 to UINT64, FP32, "
        "FP64, BYTES",
        infer_parse_input(p, tensor), infer_shown(word, p->arena));
    return NULL;
}

/* binary_size: -1: not given. */
static const char *read_input_parameters(struct infer_parse *p, const struct infer_tensor *tensor,
                                         int64_t *binary_size, const char *at)
{
    static const struct infer_member members[] = {{{"binary_data_size", 16}}, {{"shared_memory_region", 20}}};
    bool is_first = true;
    uint32_t seen = 0, found = 0;
    if (infer_parse_is(p, at, "null"))
        return at + 4;
    at = open_object(p, at, "an object of parameters was expected");
    while (at != NULL &&
           infer_parse_member(p, members, ARRAY_COUNT(members), &is_first, &seen, &found, &at)) {
        if (found == 1) {
            infer_refuse(p->problem, p->arena, INFER_NOT_SUPPORTED,
                         "%s: leat reads no shared memory: send `data`, or binary data",
                         infer_parse_input(p, tensor));
            return NULL;
        }
        at = infer_parse_whole(p, at, "`binary_data_size`", binary_size);
        if (at != NULL && *binary_size < 0)
            return INFER_BAD(p, "%s: `binary_data_size` is negative", infer_parse_input(p, tensor));
    }
    return at;
}

/* The input has ended: what it must have, and its binary data, or `data` that came too early. */
static bool finish_input(struct infer_parse *p, struct infer_tensor *tensor, uint32_t seen,
                         int64_t binary_size, const char *early)
{
    bool has_data = (seen & 1u << INPUT_DATA) != 0;
    for (int i = INPUT_NAME; i <= INPUT_TYPE; i++)
        if ((seen & 1u << i) == 0)
            return INFER_BAD(p, "%s has no `%s`", infer_parse_input(p, tensor), input_members[i].name.data) !=
                   NULL;
    if (has_data && binary_size >= 0)
        return INFER_BAD(p, "%s has `data`, and `binary_data_size` as well", infer_parse_input(p, tensor)) !=
               NULL;
    if (!has_data && binary_size < 0)
        return INFER_BAD(p, "%s has neither `data` nor the parameter `binary_data_size`",
                         infer_parse_input(p, tensor)) != NULL;
    if (early != NULL)
        return infer_data_read(p, tensor, early) != NULL;
    return has_data || infer_data_take(p, tensor, binary_size);
}

static const char *read_input(struct infer_parse *p, const char *at)
{
    struct infer_request *request = p->request;
    bool is_first = true;
    uint32_t seen = 0, found = 0;
    int64_t binary_size = -1;
    const char *early = NULL; /* `data` that came before shape or datatype */
    if (request->inputs_count == INFER_TENSORS_MAX) {
        infer_refuse(p->problem, p->arena, INFER_TOO_LARGE, "the request has more than %d inputs",
                     INFER_TENSORS_MAX);
        return NULL;
    }
    request->inputs =
        grow(p, request->inputs, request->inputs_count, &p->inputs_capacity, sizeof(*request->inputs));
    struct infer_tensor *tensor = &request->inputs[request->inputs_count];
    at = open_object(p, at, "an input, an object, was expected");
    while (at != NULL &&
           infer_parse_member(p, input_members, ARRAY_COUNT(input_members), &is_first, &seen, &found, &at))
        switch (found) {
        case INPUT_NAME: at = infer_parse_text(p, at, &tensor->name); break;
        case INPUT_SHAPE: at = read_shape(p, tensor, at); break;
        case INPUT_TYPE: at = read_type(p, tensor, at); break;
        case INPUT_PARAMETERS: at = read_input_parameters(p, tensor, &binary_size, at); break;
        default:
            if ((seen & shape_and_type) == shape_and_type) {
                at = infer_data_read(p, tensor, at);
            } else {
                early = at;
                at = infer_parse_skip(p, at);
            }
        }
    if (at == NULL || !finish_input(p, tensor, seen, binary_size, early))
        return NULL;
    request->inputs_count++;
    return at;
}

/* --- Wishes and parameters --- */

static const char *read_wish_parameters(struct infer_parse *p, struct infer_wish *wish, bool *is_given,
                                        const char *at)
{
    static const struct infer_member members[] = {
        {{"binary_data", 11}}, {{"classification", 14}}, {{"shared_memory_region", 20}}};
    bool is_first = true;
    uint32_t seen = 0, found = 0;
    if (infer_parse_is(p, at, "null"))
        return at + 4;
    at = open_object(p, at, "an object of parameters was expected");
    while (at != NULL &&
           infer_parse_member(p, members, ARRAY_COUNT(members), &is_first, &seen, &found, &at)) {
        if (found > 0) {
            infer_refuse(p->problem, p->arena, INFER_NOT_SUPPORTED,
                         "an output has the parameter `%s`, which leat does not have",
                         members[found].name.data);
            return NULL;
        }
        *is_given = !infer_parse_is(p, at, "null");
        at = *is_given ? infer_parse_flag(p, at, &wish->is_binary) : at + 4;
    }
    return at;
}

static const char *read_wish(struct infer_parse *p, const char *at)
{
    static const struct infer_member members[] = {{{"name", 4}}, {{"parameters", 10}}};
    struct infer_request *request = p->request;
    bool is_first = true, is_given = false;
    uint32_t seen = 0, found = 0;
    if (request->wishes_count == INFER_TENSORS_MAX) {
        infer_refuse(p->problem, p->arena, INFER_TOO_LARGE, "the request asks for more than %d outputs",
                     INFER_TENSORS_MAX);
        return NULL;
    }
    request->wishes =
        grow(p, request->wishes, request->wishes_count, &p->wishes_capacity, sizeof(*request->wishes));
    struct infer_wish *wish = &request->wishes[request->wishes_count];
    at = open_object(p, at, "an output, an object, was expected");
    while (at != NULL && infer_parse_member(p, members, ARRAY_COUNT(members), &is_first, &seen, &found, &at))
        at = found == 0 ? infer_parse_text(p, at, &wish->name) : read_wish_parameters(p, wish, &is_given, at);
    if (at == NULL)
        return NULL;
    if ((seen & 1) == 0)
        return INFER_BAD(p, "output %u has no `name`", request->wishes_count);
    if (is_given)
        bit_set(p->wished_binary, request->wishes_count);
    request->wishes_count++;
    return at;
}

/* Reads a list of objects; null is an empty one, if it may be. */
static const char *read_list(struct infer_parse *p, const char *at, const char *what,
                             const char *(*read)(struct infer_parse *p, const char *at))
{
    bool is_first = true;
    if (json_peek(&p->reader, at) != '[')
        return infer_parse_fail(p, at, what);
    at++;
    while (infer_parse_item(p, ']', &is_first, &at)) {
        at = read(p, at);
        if (at == NULL)
            return NULL;
    }
    return at;
}

/* Microseconds, as a number or as text. */
static const char *read_timeout(struct infer_parse *p, const char *at)
{
    int64_t *value = &p->request->timeout_us;
    if (json_peek(&p->reader, at) != '"') {
        at = infer_parse_whole(p, at, "`timeout`, in microseconds,", value);
    } else {
        struct str text;
        struct text_number number;
        at = infer_parse_peek(p, at, &text);
        if (at == NULL)
            return NULL;
        const char *end = text.data + text.length;
        if (text_number(text.data, end, &number) != end || number.fraction > 0 ||
            text_number_int(&number, value) != TEXT_GOOD)
            return INFER_BAD(p, "`timeout`, in microseconds, is not a whole number in 64 bits");
    }
    if (at != NULL && *value < 0)
        return INFER_BAD(p, "`timeout`, in microseconds, is negative");
    return at;
}

static const char *read_parameters(struct infer_parse *p, const char *at)
{
    static const struct infer_member members[] = {{{"binary_data_output", 18}}, {{"timeout", 7}}};
    bool is_first = true;
    uint32_t seen = 0, found = 0;
    at = open_object(p, at, "an object of parameters was expected");
    while (at != NULL &&
           infer_parse_member(p, members, ARRAY_COUNT(members), &is_first, &seen, &found, &at)) {
        if (infer_parse_is(p, at, "null"))
            at += 4;
        else
            at = found == 0 ? infer_parse_flag(p, at, &p->request->all_binary) : read_timeout(p, at);
    }
    return at;
}

/* --- The request --- */

static const char *read_request(struct infer_parse *p, const char *at)
{
    static const struct infer_member members[] = {
        {{"id", 2}}, {{"inputs", 6}}, {{"outputs", 7}}, {{"parameters", 10}}};
    bool is_first = true;
    uint32_t seen = 0, found = 0;
    at = open_object(p, infer_parse_space(p, at), "a request is an object: `{` was expected");
    while (at != NULL &&
           infer_parse_member(p, members, ARRAY_COUNT(members), &is_first, &seen, &found, &at)) {
        if (found != 1 && infer_parse_is(p, at, "null"))
            at += 4;
        else if (found == 0)
            at = infer_parse_text(p, at, &p->request->id);
        else if (found == 1)
            at = read_list(p, at, "a list of inputs was expected", read_input);
        else if (found == 2)
            at = read_list(p, at, "a list of outputs was expected", read_wish);
        else
            at = read_parameters(p, at);
    }
    if (at == NULL)
        return NULL;
    at = infer_parse_space(p, at);
    if (at != p->reader.end)
        return infer_parse_fail(p, at, "something follows the request");
    if ((seen & 2) == 0)
        return INFER_BAD(p, "the request has no `inputs`");
    if (p->binary.length > 0)
        return INFER_BAD(
            p,
            "%zu bytes of binary data belong to no input: the `binary_data_size` of the inputs do not add up",
            p->binary.length);
    return at;
}

bool infer_json_read(struct str body, size_t json_bytes, struct infer_request *request, struct arena *arena,
                     struct infer_problem *problem)
{
    struct infer_parse p = {.arena = arena, .problem = problem, .request = request};
    *problem = (struct infer_problem){INFER_GOOD, NULL};
    *request = (struct infer_request){0};
    if (json_bytes > body.length)
        return infer_refuse(problem, arena, INFER_BAD_REQUEST,
                            "the JSON has %zu bytes by the header, but the body has %zu", json_bytes,
                            body.length);
    char *text = arena_alloc(arena, json_bytes + RAW_PADDING);
    if (json_bytes > 0)
        memcpy(text, body.data, json_bytes);
    memset(text + json_bytes, 0, RAW_PADDING);
    p.reader = (struct json_reader){.rows = &p.rows, .begin = text, .end = text + json_bytes, .arena = arena};
    p.rows.heap = arena_alloc(arena, json_bytes + RAW_PADDING);
    p.binary = (struct str){body.data + json_bytes, body.length - json_bytes};
    p.wished_binary = arena_array(arena, uint64_t, BIT_WORDS(INFER_TENSORS_MAX));
    if (read_request(&p, text) == NULL)
        return false;
    for (uint32_t i = 0; i < request->wishes_count; i++)
        if (!bit_get(p.wished_binary, i))
            request->wishes[i].is_binary = request->all_binary;
    return true;
}
