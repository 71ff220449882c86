/* The values of an input: elements of `data`, or bytes behind the JSON. */
#include "formats/text.h"
#include "serve/infer_json_parse.h"

#include <inttypes.h>

/* The values of one input as they are read. */
struct data {
    struct infer_tensor *tensor;
    char *values;
    struct str *texts;
    uint64_t *nulls;
    uint64_t count;   /* elements read */
    uint32_t leaf;    /* depth of the elements; 0: none was read */
    uint32_t deepest; /* depth of the lists, from 1 */
};

static const char *bad_element(struct infer_parse *p, const struct data *data, const char *why)
{
    return INFER_BAD(p, "%s, element %" PRIu64 ": %s", infer_parse_input(p, data->tensor), data->count, why);
}

#define STORE(type, value)                                                                                   \
    do {                                                                                                     \
        type stored = (type)(value);                                                                         \
        memcpy(data->values + data->count * sizeof(stored), &stored, sizeof(stored));                        \
    } while (0)

/* The digits of a whole number; false: it has more than 64 bits. */
static bool whole_of(const struct text_number *number, uint64_t *value)
{
    *value = 0;
    for (uint32_t i = 0; i < number->whole; i++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(number->digits[i] - '0'), value))
            return false;
    return true;
}

static bool store_whole(struct data *data, const struct text_number *number)
{
    static const uint64_t unsigned_max[] = {UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX};
    static const int64_t signed_max[] = {INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
    enum infer_type type = data->tensor->type;
    uint64_t size;
    if (!whole_of(number, &size))
        return false;
    bool is_signed = type >= INFER_INT8;
    uint64_t max = is_signed             ? (uint64_t)signed_max[type - INFER_INT8] + number->is_negative
                   : number->is_negative ? 0
                                         : unsigned_max[type - INFER_UINT8];
    if (size > max)
        return false;
    uint64_t bits = number->is_negative ? 0 - size : size;
    switch (infer_type_bytes(type)) {
    case 1: STORE(uint8_t, bits); break;
    case 2: STORE(uint16_t, bits); break;
    case 4: STORE(uint32_t, bits); break;
    default: STORE(uint64_t, bits); break;
    }
    return true;
}

static const char *read_number(struct infer_parse *p, struct data *data, const char *at)
{
    struct text_number number;
    enum infer_type type = data->tensor->type;
    double real;
    const char *behind = text_number(at, p->reader.end, &number);
    if (behind == NULL)
        return infer_parse_fail(p, at, "a number was expected");
    if (type == INFER_FP64 || type == INFER_FP32) {
        if (text_number_double(&number, &real) != TEXT_GOOD ||
            (type == INFER_FP32 && !__builtin_isfinite((float)real)))
            return bad_element(p, data, "the number is out of range");
        if (type == INFER_FP64)
            STORE(double, real);
        else
            STORE(float, real);
        return behind;
    }
    if (number.fraction > 0 || number.has_exponent)
        return bad_element(p, data, "not a whole number: write 1, not 1.0 or 1e0");
    if (!store_whole(data, &number))
        return bad_element(
            p, data, arena_printf(p->arena, "the number is out of range for %s", infer_type_name(type)));
    return behind;
}

static const char *read_element(struct infer_parse *p, struct data *data, const char *at)
{
    bool flag;
    if (data->count == data->tensor->count)
        return INFER_BAD(p, "%s: `data` has more elements than the %" PRIu64 " of `shape`",
                         infer_parse_input(p, data->tensor), data->tensor->count);
    if (json_peek(&p->reader, at) == 'n' && infer_parse_is(p, at, "null")) {
        if (data->nulls == NULL)
            data->nulls = arena_array(p->arena, uint64_t, BIT_WORDS(data->tensor->count));
        bit_set(data->nulls, data->count);
        at += 4;
    } else if (data->tensor->type == INFER_BYTES) {
        at = json_peek(&p->reader, at) == '"' ? infer_parse_text(p, at, &data->texts[data->count])
                                              : bad_element(p, data, "a text was expected");
    } else if (data->tensor->type == INFER_BOOL) {
        at = infer_parse_is(p, at, "true") || infer_parse_is(p, at, "false")
                 ? infer_parse_flag(p, at, &flag)
                 : bad_element(p, data, "true or false was expected");
        if (at != NULL)
            STORE(uint8_t, flag);
    } else {
        char c = json_peek(&p->reader, at);
        at = c == '"' || c == 't' || c == 'f' || c == '{' ? bad_element(p, data, "a number was expected")
                                                          : read_number(p, data, at);
    }
    data->count += at != NULL;
    return at;
}

/* A list of `data` has ended. depth: its own, from 1. Nested lists have the sizes of the shape. */
static bool check_nesting(struct infer_parse *p, const struct data *data, uint32_t depth, uint64_t items)
{
    const struct infer_tensor *tensor = data->tensor;
    bool is_even = data->leaf == 0 || data->leaf == data->deepest;
    if (data->deepest <= 1 ||
        (is_even && data->deepest == tensor->rank && items == (uint64_t)tensor->shape[depth - 1]))
        return true;
    return INFER_BAD(
               p,
               "%s: the lists in `data` are not nested as `shape` says; elements may be in one flat list, too",
               infer_parse_input(p, tensor)) != NULL;
}

/* Reads the elements of `data`: one flat list, or lists nested as the shape says. */
static const char *read_elements(struct infer_parse *p, struct data *data, const char *at)
{
    uint64_t items[INFER_RANK_MAX] = {0};
    bool is_first[INFER_RANK_MAX] = {true};
    uint32_t depth = 1; /* lists that are open */
    if (json_peek(&p->reader, at) != '[')
        return infer_parse_fail(p, at, "a list was expected");
    at++;
    while (depth > 0) {
        if (!infer_parse_item(p, ']', &is_first[depth - 1], &at)) {
            if (at == NULL || !check_nesting(p, data, depth, items[depth - 1]))
                return NULL;
            depth--;
            continue;
        }
        items[depth - 1]++;
        if (json_peek(&p->reader, at) == '[') {
            if (depth == MAX(data->tensor->rank, 1U))
                return INFER_BAD(p, "%s: the lists in `data` are nested deeper than `shape` says",
                                 infer_parse_input(p, data->tensor));
            items[depth] = 0;
            is_first[depth++] = true;
            data->deepest = MAX(data->deepest, depth);
            at++;
            continue;
        }
        if (depth < data->deepest)
            return INFER_BAD(p, "%s: the elements of `data` are nested unevenly",
                             infer_parse_input(p, data->tensor));
        data->leaf = depth;
        at = read_element(p, data, at);
        if (at == NULL)
            return NULL;
    }
    return at;
}

const char *infer_data_read(struct infer_parse *p, struct infer_tensor *tensor, const char *at)
{
    struct data data = {.tensor = tensor};
    uint32_t size = infer_type_bytes(tensor->type);
    /* An element takes two bytes of JSON: this bounds the memory. */
    if (tensor->count > (uint64_t)(p->reader.end - at) / 2)
        return INFER_BAD(p, "%s: `shape` has %" PRIu64 " elements, more than the whole request could hold",
                         infer_parse_input(p, tensor), tensor->count);
    if (tensor->type == INFER_BYTES)
        data.texts = arena_array(p->arena, struct str, tensor->count);
    else
        data.values = arena_calloc(p->arena, tensor->count, size);
    at = read_elements(p, &data, at);
    if (at == NULL)
        return NULL;
    if (data.count != tensor->count)
        return INFER_BAD(p, "%s: `data` has %" PRIu64 " elements, but `shape` has %" PRIu64,
                         infer_parse_input(p, tensor), data.count, tensor->count);
    tensor->values = data.values;
    tensor->texts = data.texts;
    tensor->nulls = data.nulls;
    tensor->is_json = true;
    return at;
}

/* --- Binary data --- */

static bool take_texts(struct infer_parse *p, struct infer_tensor *tensor, struct str bytes)
{
    if (tensor->count > bytes.length / sizeof(uint32_t))
        return INFER_BAD(p,
                         "%s: %zu bytes of binary data cannot hold %" PRIu64 " elements with their lengths",
                         infer_parse_input(p, tensor), bytes.length, tensor->count) != NULL;
    struct str *texts = arena_array(p->arena, struct str, tensor->count);
    for (uint64_t i = 0; i < tensor->count; i++) {
        uint32_t length;
        if (bytes.length < sizeof(length))
            return INFER_BAD(p, "%s, element %" PRIu64 ": the binary data end before it",
                             infer_parse_input(p, tensor), i) != NULL;
        memcpy(&length, bytes.data, sizeof(length));
        if (length > bytes.length - sizeof(length))
            return INFER_BAD(p,
                             "%s, element %" PRIu64 ": its length is %" PRIu32
                             ", but %zu bytes of binary data are left",
                             infer_parse_input(p, tensor), i, length, bytes.length - sizeof(length)) != NULL;
        texts[i] = (struct str){bytes.data + sizeof(length), length};
        bytes.data += sizeof(length) + length;
        bytes.length -= sizeof(length) + length;
    }
    if (bytes.length > 0)
        return INFER_BAD(p, "%s: %zu bytes of binary data are left behind the last element",
                         infer_parse_input(p, tensor), bytes.length) != NULL;
    tensor->texts = texts;
    return true;
}

bool infer_data_take(struct infer_parse *p, struct infer_tensor *tensor, int64_t size)
{
    uint32_t element = infer_type_bytes(tensor->type);
    if (size < 0 || (uint64_t)size > p->binary.length)
        return INFER_BAD(p, "%s: `binary_data_size` is %" PRId64 ", but %zu bytes of binary data are left",
                         infer_parse_input(p, tensor), size, p->binary.length) != NULL;
    struct str bytes = {p->binary.data, (size_t)size};
    p->binary.data += size;
    p->binary.length -= (size_t)size;
    if (tensor->type == INFER_BYTES)
        return take_texts(p, tensor, bytes);
    if (tensor->count != (uint64_t)size / element || (uint64_t)size % element != 0)
        return INFER_BAD(p,
                         "%s: `binary_data_size` is %" PRId64 ", but `shape` has %" PRIu64
                         " elements of %u bytes",
                         infer_parse_input(p, tensor), size, tensor->count, element) != NULL;
    tensor->values = bytes.data;
    return true;
}
