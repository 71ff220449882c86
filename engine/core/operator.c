#include "core/operator.h"

static bool has_room(struct operator_bind *bind, uint32_t count)
{
    if (count > SCHEMA_FIELDS_MAX)
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span, "more than %d columns", SCHEMA_FIELDS_MAX);
    return count <= SCHEMA_FIELDS_MAX;
}

bool operator_has_room(struct operator_bind *bind, uint32_t extra)
{
    return has_room(bind, bind->inputs[0].schema->count + extra);
}

struct field *operator_add_column(struct operator_bind *bind, struct schema *output, struct str name,
                                  struct type type, struct span span)
{
    if (schema_find(output, name) >= 0) {
        struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, span, "there is a column `%.*s` already",
                                    STR_ARGS(name));
        diag_hint(bind->diags, d, "give it another name, or drop or rename the old one first");
        return NULL;
    }
    return has_room(bind, output->count + 1) ? schema_add(output, name, type) : NULL;
}

struct field *operator_add_chosen(struct operator_bind *bind, struct schema *output, struct str name,
                                  struct type type, struct span span)
{
    struct field *field = operator_add_column(bind, output, name, type, span);
    if (field != NULL)
        field_chosen(field, &output->rows_lineage);
    return field;
}
