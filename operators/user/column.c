/* leat's columns in the form that users see. */
#include "core/batch.h"
#include "operators/user/user.h"

int user_type(struct type type)
{
    static const int types[] = {[TYPE_BOOL] = LEAT_BOOL, [TYPE_INT] = LEAT_INT,     [TYPE_FLOAT] = LEAT_FLOAT,
                                [TYPE_TEXT] = LEAT_TEXT, [TYPE_BYTES] = LEAT_BYTES, [TYPE_TIME] = LEAT_TIME};
    return type.tag < TYPE_LIST ? types[type.tag] : LEAT_LIST;
}

struct leat_column *user_columns(const struct batch *batch, const uint64_t *reads, struct arena *scratch)
{
    const struct schema *schema = batch->schema;
    struct leat_column *columns = arena_array(scratch, struct leat_column, MAX(schema->count, 1));
    for (uint32_t i = 0; i < schema->count; i++) {
        const struct column *from = &batch->columns[i];
        struct leat_column *to = &columns[i];
        to->type = user_type(schema->fields[i].type);
        if (!bit_get(reads, i))
            continue;
        to->valid = from->valid;
        to->values.data = to->type == LEAT_LIST ? NULL : from->data;
        if (to->type != LEAT_TEXT && to->type != LEAT_BYTES)
            continue;
        struct leat_text *texts = arena_array(scratch, struct leat_text, MAX(batch->rows, 1));
        for (uint32_t row = 0; row < batch->rows; row++)
            if (column_is_valid(from, row)) {
                struct str text = column_text(from, row);
                texts[row] = (struct leat_text){text.data, text.length};
            }
        to->values.texts = texts;
    }
    return columns;
}
