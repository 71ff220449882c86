#include "serve/answer_json.h"

#include "core/mem.h"
#include "formats/formats.h"

#include <stdlib.h>

struct answer_json {
    struct arena arena;
    struct schema *schema; /* of the objects */
    uint32_t *columns;     /* by column of the objects: its index in the answer */
    struct column *values; /* by column of the objects: that of `batch` */
    const struct batch *batch;
    void *encoder;
};

static void take(struct answer_json *answer, const struct schema *schema, uint32_t column)
{
    answer->columns[answer->schema->count] = column;
    schema_add(answer->schema, schema->fields[column].name, schema->fields[column].type);
}

static bool take_named(struct answer_json *answer, const struct schema *schema, const bool *is_hidden,
                       struct str name, struct diag_list *diags)
{
    int index = schema_find(schema, name);
    if (index >= 0 && !is_hidden[index] && schema_find(answer->schema, name) < 0) {
        take(answer, schema, (uint32_t)index);
        return true;
    }
    struct diag *d =
        diag_error(diags, DIAG_NO_COLUMN, (struct span){0},
                   index < 0          ? "--columns: an answer has no column `%.*s`"
                   : is_hidden[index] ? "--columns: `%.*s` derives from the label, which no request has"
                                      : "--columns: `%.*s` is named twice",
                   STR_ARGS(name));
    const char *near = diag_nearest(name, schema_names(&answer->arena, schema), schema->count);
    if (index < 0 && near != NULL)
        diag_hint(diags, d, "did you mean `%s`?", near);
    return false;
}

static bool take_columns(struct answer_json *answer, const struct schema *schema, const bool *is_hidden,
                         const char *columns, struct diag_list *diags)
{
    bool is_good = true;
    for (uint32_t i = 0; i < schema->count && columns == NULL; i++)
        if (!is_hidden[i])
            take(answer, schema, i);
    for (const char *at = columns; at != NULL;) {
        size_t length = strcspn(at, ",");
        is_good &= take_named(answer, schema, is_hidden, (struct str){at, length}, diags);
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return is_good;
}

struct answer_json *answer_json_new(const struct plan *plan, const struct plan_serve *serve,
                                    const char *columns, struct diag_list *diags)
{
    static const struct schema empty;
    const struct schema *schema = plan_answer_schema(plan, serve);
    struct answer_json *answer = mem_calloc(1, sizeof(*answer));
    answer->schema = schema_copy(&answer->arena, &empty, schema->count);
    answer->columns = arena_array(&answer->arena, uint32_t, schema->count);
    answer->values = arena_array(&answer->arena, struct column, schema->count);
    if (take_columns(answer, schema, serve->is_hidden, columns, diags)) {
        answer->encoder = format_json.encoder_new(answer->schema, NULL);
        return answer;
    }
    answer_json_free(answer);
    return NULL;
}

void answer_json_free(struct answer_json *answer)
{
    if (answer == NULL)
        return;
    if (answer->encoder != NULL)
        format_json.encoder_free(answer->encoder);
    arena_free(&answer->arena);
    free(answer);
}

void answer_json_begin(struct answer_json *answer)
{
    answer->batch = NULL;
}

void answer_json_put(struct answer_json *answer, const struct way_result *result, struct byte_buffer *out)
{
    uint16_t row = (uint16_t)result->row;
    for (uint32_t i = 0; i < answer->schema->count && answer->batch != result->batch; i++)
        answer->values[i] = result->batch->columns[answer->columns[i]];
    answer->batch = result->batch;
    struct batch line = {.schema = answer->schema,
                         .rows = result->batch->rows,
                         .selected = 1,
                         .sel = &row,
                         .columns = answer->values,
                         .event_time = result->batch->event_time};
    format_json.encode(answer->encoder, &line, 0, 1, out);
    out->length--; /* the newline */
}

void answer_json_more(struct byte_buffer *out)
{
    leat_assert(out->length >= 2 && out->data[out->length - 1] == '}');
    out->length--;
    if (out->data[out->length - 1] != '{')
        buffer_append(out, ",", 1);
}
