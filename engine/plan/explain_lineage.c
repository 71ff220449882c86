/* `leat explain --lineage`: for each column of a stream the source columns and labels from which its values
 * derive. A learner's input may not derive from its label (E0502): this view shows from which columns an
 * input derives.
 *
 *     features
 *       clicks_2m: int    clicks.value; rows: clicks.ts
 *       was_clicked: int  label of examples
 *
 * Columns behind `rows:` decide only which rows there are. Beside a stream: which rows the stream has; beside
 * a column: from which rows the column's value is made. */
#include "plan/explain.h"

enum { LINE_COLUMNS = 100 };

/* The name of each lineage bit: "clicks.value"; of an attribution's own bit "label of examples". */
struct root_names {
    const char *names[LINEAGE_ROOTS_MAX];
    struct arena *arena;
};

static void name_roots(struct root_names *roots, const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        const struct schema *schema = node->outputs[0];
        for (uint32_t k = 0; schema != NULL && k < schema->count; k++)
            for (uint32_t bit = 0; bit < LINEAGE_ROOTS_MAX; bit++)
                if (roots->names[bit] == NULL && bit_get(schema->fields[k].lineage.words, bit))
                    roots->names[bit] =
                        node->tag == PLAN_SOURCE
                            ? arena_printf(roots->arena, "%.*s.%.*s", STR_ARGS(node->name),
                                           STR_ARGS(schema->fields[k].name))
                            : arena_printf(roots->arena, "label of %.*s", STR_ARGS(node->name));
    }
}

/* The names of the bits in `lineage` that `except` lacks, with commas; "": none. */
static const char *names_of(const struct root_names *roots, const struct lineage *lineage,
                            const struct lineage *except)
{
    struct byte_buffer text = {0};
    for (uint32_t bit = 0; bit < LINEAGE_ROOTS_MAX; bit++)
        if (bit_get(lineage->words, bit) && !bit_get(except->words, bit) && roots->names[bit] != NULL)
            buffer_printf(&text, "%s%s", text.length > 0 ? ", " : "", roots->names[bit]);
    const char *copy = arena_strndup(roots->arena, text.length > 0 ? text.data : "", text.length);
    buffer_free(&text);
    return copy;
}

static void put_field(const struct root_names *roots, const struct field *field, uint32_t column,
                      struct byte_buffer *out)
{
    static const struct lineage none;
    const char *name =
        arena_printf(roots->arena, "%.*s: %s", STR_ARGS(field->name), type_name(roots->arena, &field->type));
    const char *values = names_of(roots, &field->lineage, &field->rows_only);
    const char *rows = names_of(roots, &field->rows_only, &none);
    uint32_t used = text_columns(str_from(name));
    buffer_printf(out, "  %s%*s", name, used < column ? (int)(column - used) : 0, "");
    const char *text = arena_printf(roots->arena, "  %s%s%s%s", values,
                                    rows[0] == '\0'     ? ""
                                    : values[0] == '\0' ? ""
                                                        : "; ",
                                    rows[0] == '\0' ? "" : "rows: ", rows);
    uint32_t indent = MAX(used, column) + 4;
    buffer_wrap(out, indent - 2, MIN(indent, 40), LINE_COLUMNS, str_from(text));
    buffer_append(out, "\n", 1);
}

static void put_output(const struct root_names *roots, const struct plan *plan, struct plan_edge edge,
                       struct byte_buffer *out)
{
    const struct schema *schema = plan->nodes[edge.node].outputs[edge.output];
    uint32_t column = 0;
    for (uint32_t k = 0; k < schema->count; k++) {
        const struct field *field = &schema->fields[k];
        uint32_t used =
            text_columns(field->name) + 2 + text_columns(str_from(type_name(roots->arena, &field->type)));
        column = MAX(column, MIN(used, 36));
    }
    static const struct lineage none;
    const char *name = explain_edge(plan, edge, roots->arena);
    const char *rows = names_of(roots, &schema->rows_lineage, &none);
    buffer_printf(out, "%s%s", out->length > 0 ? "\n" : "", name);
    if (rows[0] != '\0') {
        buffer_printf(out, "  rows: ");
        buffer_wrap(out, text_columns(str_from(name)) + 8, 8, LINE_COLUMNS, str_from(rows));
    }
    buffer_append(out, "\n", 1);
    for (uint32_t k = 0; k < schema->count; k++)
        put_field(roots, &schema->fields[k], column, out);
}

void plan_explain_lineage(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    struct root_names *roots = arena_calloc(&arena, 1, sizeof(*roots));
    roots->arena = &arena;
    name_roots(roots, plan);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        const struct plan_node *next = i + 1 < plan->nodes_count ? &plan->nodes[i + 1] : NULL;
        /* A stream's columns are those of its last step. */
        bool is_last = next == NULL || next->tag != PLAN_OPERATOR || !str_equal(next->name, node->name);
        if (node->tag != PLAN_OPERATOR && node->tag != PLAN_LEARNER)
            continue;
        for (uint32_t k = 0; k < OPERATOR_OUTPUTS_MAX; k++)
            if (node->outputs[k] != NULL && (k > 0 || is_last))
                put_output(roots, plan, (struct plan_edge){i, k}, out);
    }
    arena_free(&arena);
}
