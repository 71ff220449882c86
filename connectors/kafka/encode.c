#include "connectors/kafka/encode.h"

#include "core/change.h"
#include "core/mem.h"
#include "formats/text_write.h"

#include <stdlib.h>

bool encode_check_text(const struct column_ref *column, const struct schema *schema, struct diag_list *diags)
{
    const struct type *type = &schema->fields[column->index].type;
    if (type->tag != TYPE_LIST && type->tag != TYPE_FLOAT)
        return true;
    diag_hint(diags,
              diag_error(diags, DIAG_TYPE_CLASH, column->span,
                         "column `%.*s` is %s: a key or header must be text, bytes, int, bool or time",
                         STR_ARGS(column->name), type->tag == TYPE_LIST ? "a list" : "a float"),
              "convert the column to text, for example `with k = text(%.*s)`", STR_ARGS(column->name));
    return false;
}

bool encode_check_partition(const struct column_ref *column, const struct schema *schema,
                            struct diag_list *diags)
{
    if (schema->fields[column->index].type.tag == TYPE_INT)
        return true;
    diag_error(diags, DIAG_TYPE_CLASH, column->span,
               "column `%.*s` is not an int, as the number of a partition must be", STR_ARGS(column->name));
    return false;
}

const struct schema *encode_values(const struct schema *schema, int change, struct arena *arena)
{
    if (change < 0)
        return schema;
    struct schema *values = schema_copy(arena, schema, 0);
    values->count--;
    for (uint32_t i = (uint32_t)change; i < values->count; i++)
        values->fields[i] = values->fields[i + 1];
    return values;
}

void encode_open(struct encode *encode, const struct encode_options *options)
{
    *encode = (struct encode){.options = *options};
    if (options->change >= 0 && (uint32_t)options->change < options->schema->count) {
        encode->columns = mem_calloc(options->schema->count, sizeof(*encode->columns));
    }
    encode->encoder = options->format->encoder_new(options->schema, &encode->options.config);
}

/* The value as text, with data NULL if it is null. Its bytes are in the column or in `out`. */
static struct str text_of(const struct encode *encode, const struct column *column, uint32_t row,
                          struct byte_buffer *out)
{
    static const char none[1];
    if (!column_is_valid(column, row))
        return (struct str){NULL, 0};
    if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES) {
        struct str text = column_text(column, row);
        return text.length == 0 ? (struct str){none, 0} : text;
    }
    if (column->tag == TYPE_BOOL)
        return column->bools[row] ? STR("true") : STR("false");
    buffer_clear(out);
    char *to = buffer_reserve(out, TEXT_WRITE_MAX);
    char *end = column->tag == TYPE_TIME
                    ? text_write_time(to, column->ints[row], encode->options.config.times)
                    : text_write_int(to, column->ints[row]);
    return (struct str){to, (size_t)(end - to)};
}

static void put_headers(struct encode *encode, const struct batch *batch, uint32_t row)
{
    const struct columns *columns = encode->options.headers;
    struct byte_buffer scratch = {0};
    buffer_clear(&encode->headers);
    for (uint32_t i = 0; i < columns->count; i++) {
        const struct column_ref *ref = &columns->items[i];
        struct str value = text_of(encode, &batch->columns[ref->index], row, &scratch);
        if (value.data != NULL) /* a null makes no header */
            record_put_header(&encode->headers, ref->name, value);
    }
    buffer_free(&scratch);
}

static bool is_delete(const struct encode *encode, const struct batch *batch, uint32_t row)
{
    const struct column *change = &batch->columns[encode->options.change];
    return column_is_valid(change, row) && str_equal(column_text(change, row), change_text(CHANGE_DELETE));
}

/* Encodes the row's value into encode->value. */
static void put_value(struct encode *encode, const struct batch *batch, uint32_t index)
{
    const struct encode_options *options = &encode->options;
    buffer_clear(&encode->value);
    if (options->change < 0) {
        options->format->encode(encode->encoder, batch, index, 1, &encode->value);
        return;
    }
    struct batch values = *batch;
    values.schema = options->schema;
    if (encode->columns != NULL) {
        uint32_t before = (uint32_t)options->change;
        memcpy(encode->columns, batch->columns, before * sizeof(*encode->columns));
        memcpy(encode->columns + before, batch->columns + before + 1,
               (options->schema->count - before) * sizeof(*encode->columns));
        values.columns = encode->columns;
    }
    options->format->encode(encode->encoder, &values, index, 1, &encode->value);
}

struct kafka_record encode_row(struct encode *encode, const struct batch *batch, uint32_t index)
{
    const struct encode_options *options = &encode->options;
    uint32_t row = batch_row(batch, index);
    struct kafka_record record = {.partition = -1, .origin = batch_origin(batch, row)};
    if (options->change < 0 || !is_delete(encode, batch, row)) {
        put_value(encode, batch, index);
        record.value = (struct str){encode->value.data, encode->value.length};
    }
    if (options->format->has_lines && record.value.length > 0 &&
        record.value.data[record.value.length - 1] == '\n')
        record.value.length--;
    if (options->key >= 0)
        record.key = text_of(encode, &batch->columns[options->key], row, &encode->key);
    if (options->headers->count > 0) {
        put_headers(encode, batch, row);
        record.headers = (struct str){encode->headers.data, encode->headers.length};
    }
    const struct column *partition = options->partition < 0 ? NULL : &batch->columns[options->partition];
    if (partition != NULL && column_is_valid(partition, row)) {
        int64_t wanted = partition->ints[row];
        record.partition = wanted < 0 || wanted > INT32_MAX ? INT32_MAX : (int32_t)wanted;
    }
    return record;
}

void encode_close(struct encode *encode)
{
    if (encode->encoder != NULL)
        encode->options.format->encoder_free(encode->encoder);
    buffer_free(&encode->key);
    buffer_free(&encode->value);
    buffer_free(&encode->headers);
    free(encode->columns);
    *encode = (struct encode){0};
}
