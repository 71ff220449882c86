#include "unit/formats/harness.h"

#include "unit/support/random.h"

#include <ctype.h>
#include <stdlib.h>

enum { FIELDS_MAX = 256 };

/* --- schemas --- */

struct words {
    struct arena *arena;
    const char *at;
};

static void skip_space(struct words *words)
{
    while (*words->at == ' ' || *words->at == '\n')
        words->at++;
}

static struct str next_word(struct words *words)
{
    skip_space(words);
    const char *begin = words->at;
    while (isalnum((unsigned char)*words->at) || *words->at == '_')
        words->at++;
    leat_assert(words->at > begin);
    return arena_str(words->arena, (struct str){begin, (size_t)(words->at - begin)});
}

static struct schema *read_fields(struct words *words, char end);

static struct type read_type(struct words *words)
{
    static const struct {
        const char *name;
        struct type type;
    } types[] = {
        {"int", {.tag = TYPE_INT}},
        {"float", {.tag = TYPE_FLOAT}},
        {"bool", {.tag = TYPE_BOOL}},
        {"text", {.tag = TYPE_TEXT}},
        {"bytes", {.tag = TYPE_BYTES}},
        {"us", {.tag = TYPE_TIME, .unit = TIME_UNIT_US}},
        {"ms", {.tag = TYPE_TIME, .unit = TIME_UNIT_MS}},
        {"s", {.tag = TYPE_TIME, .unit = TIME_UNIT_S}},
        {"ns", {.tag = TYPE_TIME, .unit = TIME_UNIT_NS}},
        {"rfc3339", {.tag = TYPE_TIME, .unit = TIME_UNIT_RFC3339}},
        {"datetime", {.tag = TYPE_TIME, .unit = TIME_UNIT_DATETIME}},
    };
    skip_space(words);
    if (*words->at == '[') {
        words->at++;
        struct type *element = arena_new(words->arena, struct type);
        *element = read_type(words);
        leat_assert(*words->at++ == ']');
        return (struct type){.tag = TYPE_LIST, .element = element};
    }
    if (*words->at == '{') {
        words->at++;
        return (struct type){.tag = TYPE_RECORD, .fields = read_fields(words, '}')};
    }
    struct str word = next_word(words);
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (str_is(word, types[i].name))
            return types[i].type;
    leat_assert(word.length == 0); /* a type that the harness does not know */
    return type_of(TYPE_INT);
}

static struct schema *read_fields(struct words *words, char end)
{
    struct schema *schema = arena_new(words->arena, struct schema);
    schema->fields = arena_array(words->arena, struct field, FIELDS_MAX);
    for (;;) {
        struct str name = next_word(words);
        struct field *field = schema_add(schema, name, read_type(words));
        field->is_required = *words->at == '!';
        words->at += field->is_required;
        skip_space(words);
        if (*words->at == end) {
            words->at += end != '\0';
            return schema;
        }
        leat_assert(*words->at++ == ',');
    }
}

const struct schema *harness_schema(struct arena *arena, const char *text)
{
    struct words words = {arena, text};
    return read_fields(&words, '\0');
}

/* --- decoding --- */

void harness_json(const struct batch *batch, struct byte_buffer *out)
{
    void *encoder = format_json.encoder_new(batch->schema, NULL);
    format_json.encode(encoder, batch, 0, batch->selected, out);
    format_json.encoder_free(encoder);
}

void harness_render(const struct schema *schema, const struct decode_output *output, struct byte_buffer *out)
{
    void *encoder = format_json.encoder_new(schema, NULL);
    uint32_t bad = 0;
    for (uint32_t row = 0; row < output->batch->rows; row++) {
        const struct bad_record *record = &output->bad[bad];
        if (bad == output->bad_count || record->row != row) {
            format_json.encode(encoder, output->batch, row, 1, out);
            continue;
        }
        bad++;
        for (uint32_t i = 0; i < schema->count; i++)
            leat_assert(!column_is_valid(&output->batch->columns[i], row));
        buffer_printf(out, "!%d %s\n", record->column == UINT32_MAX ? -1 : (int)record->column,
                      record->reason);
    }
    leat_assert(bad == output->bad_count);
    format_json.encoder_free(encoder);
}

/* What harness_decode uses for all batches. */
struct decoding {
    const struct format_kind *format;
    const struct schema *schema;
    struct batch_pool *pool;
    void *decoder;
    struct str header;
    struct byte_buffer *out;
};

static void decode_batch(struct decoding *decoding, const char *data, const struct format_split *split)
{
    /* A copy of exactly the bytes that a decoder may read, so that a sanitizer sees a read beyond them. */
    char *copy = malloc(split->used + RAW_PADDING);
    leat_assert(copy != NULL);
    memcpy(copy, data, split->used);
    memset(copy + split->used, '7', RAW_PADDING);
    struct raw_batch raw = {.data = copy,
                            .data_bytes = split->used,
                            .count = split->count,
                            .records = decoding->format->is_blocks ? NULL : split->records,
                            .header = decoding->header};
    struct batch *batch = batch_new(decoding->pool, decoding->schema, raw.count);
    memset(batch->event_time, 0, raw.count * sizeof(int64_t));
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, raw.count);
    decoding->format->decode(decoding->decoder, &raw, &output);
    free(copy);
    harness_render(decoding->schema, &output, decoding->out);
    batch_release(batch);
}

void harness_decode(const struct format_kind *format, const struct schema *schema, const void *config,
                    const char *data, size_t bytes, uint32_t at_once, struct byte_buffer *out)
{
    struct decoding decoding = {.format = format, .schema = schema, .out = out};
    struct raw_record records[BATCH_ROWS];
    const char *damage = NULL;
    char *padded = malloc(bytes + RAW_PADDING);
    leat_assert(padded != NULL);
    if (bytes > 0)
        memcpy(padded, data, bytes);
    memset(padded + bytes, 0, RAW_PADDING);
    size_t used = 0;
    if (format->header != NULL &&
        format->header(config, padded, bytes, true, &used, &damage) != HEADER_READ) {
        buffer_printf(out, "?%s\n", damage);
        free(padded);
        return;
    }
    decoding.header = (struct str){padded, used};
    decoding.pool = batch_pool_new();
    decoding.decoder = format->decoder_new(schema, config);
    while (used < bytes) {
        struct format_split split = {.config = config,
                                     .data = padded + used,
                                     .bytes = bytes - used,
                                     .is_last = true,
                                     .max = MIN(at_once, BATCH_ROWS),
                                     .records = records};
        format->split(&split);
        leat_assert(split.used <= bytes - used);
        if (split.count > 0)
            decode_batch(&decoding, padded + used, &split);
        used += split.used;
        if (split.is_cut) {
            const char *newline = memchr(padded + used, '\n', bytes - used);
            used = newline == NULL ? bytes : (size_t)(newline - padded) + 1;
        }
        if (split.damage != NULL || split.used == 0) {
            buffer_printf(out, "?%s\n", split.damage == NULL ? "ends inside a record" : split.damage);
            break;
        }
    }
    format->decoder_free(decoding.decoder);
    batch_pool_free(decoding.pool);
    free(padded);
}

void harness_payloads(const struct format_kind *format, const struct schema *schema, const void *config,
                      const struct str *payloads, uint32_t count, struct byte_buffer *out)
{
    struct raw_record records[BATCH_ROWS];
    struct byte_buffer all = {0};
    struct decoding decoding = {.format = format, .schema = schema, .out = out};
    for (uint32_t i = 0; i < count; i++) {
        records[i] = (struct raw_record){(uint32_t)all.length, (uint32_t)payloads[i].length};
        buffer_append(&all, payloads[i].data, payloads[i].length);
    }
    struct format_split split = {.used = all.length, .count = count, .records = records};
    decoding.pool = batch_pool_new();
    decoding.decoder = format->decoder_new(schema, config);
    buffer_reserve(&all, 1);
    decode_batch(&decoding, all.data, &split);
    format->decoder_free(decoding.decoder);
    batch_pool_free(decoding.pool);
    buffer_free(&all);
}

size_t harness_from_hex(const char *hex, char *out)
{
    size_t length = 0;
    for (; *hex != '\0'; hex++) {
        if (*hex == ' ')
            continue;
        char pair[3] = {hex[0], hex[1], '\0'};
        out[length++] = (char)strtol(pair, NULL, 16);
        hex++;
    }
    return length;
}

char *harness_text(const struct format_kind *format, const struct schema *schema, const void *config,
                   const char *text)
{
    struct byte_buffer out = {0};
    harness_decode(format, schema, config, text, strlen(text), BATCH_ROWS, &out);
    buffer_append(&out, "", 1);
    return out.data;
}

/* --- exact text --- */

static void append_value(const struct column *column, uint32_t row, struct byte_buffer *out)
{
    if (!column_is_valid(column, row)) {
        buffer_printf(out, "-");
        return;
    }
    switch (column->tag) {
    case TYPE_BOOL: buffer_printf(out, "%d", column->bools[row]); break;
    case TYPE_FLOAT: buffer_printf(out, "%a", column->floats[row]); break;
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(column, row);
        buffer_printf(out, "'");
        for (size_t i = 0; i < text.length; i++)
            buffer_printf(out, "%02x", (unsigned char)text.data[i]);
        break;
    }
    case TYPE_LIST:
        buffer_printf(out, "[");
        for (uint32_t i = 0; i < column->lists[row].length; i++) {
            uint32_t element = column->lists[row].offset + i;
            buffer_printf(out, "%s%s", i > 0 ? "," : "", column->children_count > 1 ? "{" : "");
            append_value(&column->children[0], element, out);
            if (column->children_count > 1) {
                buffer_printf(out, ",");
                append_value(&column->children[1], element, out);
                buffer_printf(out, "}");
            }
        }
        buffer_printf(out, "]");
        break;
    default: buffer_printf(out, "%lld", (long long)column->ints[row]); break;
    }
}

void harness_exact(const struct decode_output *output, uint32_t row, struct byte_buffer *out)
{
    const struct schema *schema = output->batch->schema;
    uint32_t bad = 0;
    while (bad < output->bad_count && output->bad[bad].row != row)
        bad++;
    bool is_bad = bad < output->bad_count;
    if (is_bad)
        buffer_printf(out, "!%u %s", output->bad[bad].column, output->bad[bad].reason);
    for (uint32_t i = 0; !is_bad && i < schema->count; i++) {
        buffer_printf(out, "%s%.*s=", i > 0 ? " " : "", STR_ARGS(schema->fields[i].name));
        append_value(&output->batch->columns[i], row, out);
    }
    buffer_append(out, "", 1);
    out->length--;
}

/* --- random rows --- */

static void random_text(struct test_random *random, bool is_text, struct byte_buffer *heap)
{
    static const char *const pieces[] = {"a",    "Zürich", "\"",   "\\",   ",",
                                         "\n",   "\r\n",   "日本", "😀",    " ",
                                         "\x01", "tab\t",  "0",    "null", "plain text of some length"};
    uint32_t count = random_below(random, 5);
    for (uint32_t i = 0; i < count; i++) {
        const char *piece = pieces[random_below(random, ARRAY_COUNT(pieces))];
        buffer_append(heap, piece, strlen(piece));
        char byte = (char)random_next(random);
        buffer_append(heap, &byte, !is_text);
    }
}

static double random_float(struct test_random *random)
{
    static const double special[] = {0.0,           -0.0, 0.1,   1e300, -2.5e-300,
                                     123456789.123, 1e15, -1e-5, 0.3,   5e-324};
    double value;
    uint64_t bits = random_next(random);
    switch (random_below(random, 4)) {
    case 0: return special[random_below(random, ARRAY_COUNT(special))];
    case 1: return (double)(int32_t)bits / 1000;
    case 2: return (double)(int16_t)bits;
    default:
        bits &= ~(UINT64_C(1) << 62); /* finite */
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
}

static void fill_column(struct batch *batch, struct column *column, const struct type *type, uint32_t rows,
                        struct test_random *random);

static void fill_lists(struct batch *batch, struct column *column, const struct type *type, uint32_t rows,
                       struct test_random *random)
{
    uint32_t elements = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t length = column_is_valid(column, i) ? random_below(random, 4) : 0;
        column->lists[i] = (struct list_ref){elements, length};
        elements += length;
    }
    column->child_rows = elements;
    for (uint32_t i = 0; i < column->children_count; i++) {
        bool is_record = type->element->tag == TYPE_RECORD;
        const struct type *child = is_record ? &type->element->fields->fields[i].type : type->element;
        batch_column_init(batch, &column->children[i], *child, elements);
        fill_column(batch, &column->children[i], child, elements, random);
    }
}

static void fill_column(struct batch *batch, struct column *column, const struct type *type, uint32_t rows,
                        struct test_random *random)
{
    struct byte_buffer heap = {0};
    bool has_nulls = random_chance(random, 60);
    column->valid = has_nulls ? batch_valid_new(batch, rows) : NULL;
    for (uint32_t i = 0; i < rows; i++) {
        size_t begin = heap.length;
        switch (type->tag) {
        case TYPE_BOOL: column->bools[i] = (uint8_t)random_below(random, 2); break;
        case TYPE_INT:
            column->ints[i] = (int64_t)(random_next(random) >> random_below(random, 64)) *
                              (random_chance(random, 50) ? 1 : -1);
            break;
        case TYPE_TIME:
            column->ints[i] =
                (int64_t)(random_next(random) >> 10) * (random_chance(random, 90) ? 1 : -1) / 1000;
            break;
        case TYPE_FLOAT: column->floats[i] = random_float(random); break;
        case TYPE_TEXT:
        case TYPE_BYTES:
            random_text(random, type->tag == TYPE_TEXT, &heap);
            column->texts[i] = (struct text_ref){(uint32_t)begin, (uint32_t)(heap.length - begin)};
            break;
        default: break;
        }
        if (has_nulls && random_chance(random, 30)) {
            bit_clear(column->valid, i);
            if (type->tag == TYPE_BOOL)
                column->bools[i] = 0;
            else
                column->ints[i] = 0;
        }
    }
    column->heap = arena_copy(&batch->arena, heap.data, heap.length);
    buffer_free(&heap);
    if (type->tag == TYPE_LIST)
        fill_lists(batch, column, type, rows, random);
}

struct batch *harness_batch(struct batch_pool *pool, const struct schema *schema, uint32_t rows,
                            uint64_t seed)
{
    struct test_random random = {seed};
    struct batch *batch = batch_new(pool, schema, rows);
    for (uint32_t i = 0; i < schema->count; i++)
        fill_column(batch, &batch->columns[i], &schema->fields[i].type, rows, &random);
    for (uint32_t i = 0; i < rows; i++)
        batch->event_time[i] = (int64_t)seed * 1000000 + i * 1000;
    return batch;
}
