/* clean: replaces column values by rules. Each rule is compiled to an expression over the column, so nulls
 * and types follow the rules of the language. Changed values are counted per column: each value before the
 * rules is compared with the value after all rules of its column. */
#include "operators/expr/compute.h"
#include "operators/limits.h"

_Static_assert((int)CLEAN_COLUMNS_MAX <= (int)REPORT_ITEMS_MAX, "each column has a figure in the report");

struct clean {
    struct assignments rules;
    struct compute compute;
    uint32_t count;
    int columns[CLEAN_COLUMNS_MAX];       /* column index, the same in input and output */
    const char *names[CLEAN_COLUMNS_MAX]; /* "device changed" */
    uint64_t changed[CLEAN_COLUMNS_MAX];  /* this lane's; after a restore lane 0 has the sum of all lanes */
};

static const struct option clean_options[] = {
    OPTION_ASSIGNMENTS(struct clean, rules, "rules", OPTION_REQUIRED | OPTION_BODY,
                       "`column: rule` or `column: [rule, rule ...]`; the rules of a column apply from left "
                       "to right"),
    OPTIONS_END,
};

/* --- Rules to expressions --- */

/* The function that a rule applies: FUNCTION(column, arguments ...). NULL: apply_rule builds the
 * expression. */
static const struct {
    const char *rule, *function;
    uint32_t args_min, args_max;
} rules[] = {
    {"trim", "trim", 0, 0},   {"lower", "lower", 0, 0},   {"upper", "upper", 0, 0},
    {"clamp", "clamp", 2, 2}, {"fill", "coalesce", 1, 1}, {"null_if", "null_if", 1, 1},
    {"number", NULL, 0, 0},   {"integer", NULL, 0, 0},    {"allow", NULL, 1, 2},
};

static struct ast *node(struct operator_bind *bind, enum ast_tag tag, enum ast_operator op, struct span span,
                        const struct ast *const *children, uint32_t count)
{
    struct ast *ast = compute_call(bind->arena, "", span, children, count);
    ast->tag = tag;
    ast->op = op;
    ast->text = (struct str){0};
    return ast;
}

/* case when x is null or x in LIST then x [else OTHER] end */
static struct ast *allow(struct operator_bind *bind, const struct ast *rule, const struct ast *x)
{
    const struct ast *listed[] = {x, rule->children[0]};
    struct ast *is_listed = node(bind, AST_BINARY, AST_OP_IN, rule->span, listed, 2);
    struct ast *is_null = node(bind, AST_UNARY, AST_OP_IS_NULL, rule->span, &x, 1);
    const struct ast *both[] = {is_null, is_listed};
    struct ast *is_good = node(bind, AST_BINARY, AST_OP_OR, rule->span, both, 2);
    const struct ast *parts[] = {is_good, x, rule->count == 2 ? rule->children[1] : NULL};
    return node(bind, AST_CASE, AST_OP_NONE, rule->span, parts, rule->count == 2 ? 3 : 2);
}

static struct ast *apply_rule(struct operator_bind *bind, const struct ast *rule, const struct ast *x)
{
    const char *names[ARRAY_COUNT(rules)];
    for (size_t i = 0; i < ARRAY_COUNT(rules); i++) {
        names[i] = rules[i].rule;
        if ((rule->tag != AST_NAME && rule->tag != AST_CALL) || !str_is(rule->text, rules[i].rule))
            continue;
        if (rule->count < rules[i].args_min || rule->count > rules[i].args_max) {
            if (rules[i].args_min < rules[i].args_max)
                diag_error(bind->diags, DIAG_BAD_ARGUMENTS, rule->span,
                           "the rule `%s` takes %u or %u arguments", rules[i].rule, rules[i].args_min,
                           rules[i].args_max);
            else
                diag_error(bind->diags, DIAG_BAD_ARGUMENTS, rule->span, "the rule `%s` takes %u arguments",
                           rules[i].rule, rules[i].args_max);
            return NULL;
        }
        if (strcmp(rules[i].rule, "allow") == 0)
            return allow(bind, rule, x);
        if (rules[i].function == NULL) {
            const struct ast *trimmed = compute_call(bind->arena, "trim", rule->span, &x, 1);
            bool is_float = strcmp(rules[i].rule, "number") == 0;
            return compute_call(bind->arena, is_float ? "try_float" : "try_int", rule->span, &trimmed, 1);
        }
        const struct ast *args[] = {x, NULL, NULL};
        for (uint32_t k = 0; k < rule->count; k++)
            args[k + 1] = rule->children[k];
        return compute_call(bind->arena, rules[i].function, rule->span, args, rule->count + 1);
    }
    struct diag *d = diag_error(bind->diags, DIAG_NOT_A_CHOICE, rule->span, "`clean` has no such rule");
    const char *near = diag_nearest(rule->text, names, ARRAY_COUNT(names));
    if (near != NULL && rule->text.length > 0)
        diag_hint(bind->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(bind->diags, d,
                  "the rules are trim, lower, upper, clamp(low, high), fill(value), null_if(value), "
                  "allow([values] [, other]), number, integer");
    return NULL;
}

static struct ast *apply_rules(struct operator_bind *bind, const struct assignment *a)
{
    const struct ast *value = a->value;
    struct ast *const *items = value->children;
    uint32_t count = value->count;
    if (value->tag != AST_LIST) {
        items = (struct ast *const *)&a->value;
        count = 1;
    }
    if (count > CLEAN_RULES_MAX) {
        diag_error(bind->diags, DIAG_TOO_DEEP, value->span, "a column has at most %d rules", CLEAN_RULES_MAX);
        return NULL;
    }
    struct ast *x = compute_name(bind->arena, a->name, a->name_span);
    for (uint32_t i = 0; i < count && x != NULL; i++)
        x = apply_rule(bind, items[i], x);
    return x;
}

/* --- Callbacks --- */

static const struct assignment *find_rules(const struct clean *clean, struct str column)
{
    for (uint32_t i = 0; i < clean->rules.count; i++)
        if (str_equal(clean->rules.items[i].name, column))
            return &clean->rules.items[i];
    return NULL;
}

static bool clean_bind(struct operator_bind *bind)
{
    struct clean *clean = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    bool is_good = compute_schema(bind, &clean->compute, input->count) != NULL;
    if (clean->rules.count > CLEAN_COLUMNS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span,
                   "`clean` takes at most %d columns; use a second step `clean` for the others",
                   CLEAN_COLUMNS_MAX);
        return false;
    }
    for (uint32_t i = 0; i < clean->rules.count; i++) {
        struct column_ref ref = {clean->rules.items[i].name, clean->rules.items[i].name_span, -1};
        is_good &= column_resolve(&ref, input, bind->arena, bind->diags);
    }
    for (uint32_t i = 0; is_good && i < input->count; i++) {
        struct str name = input->fields[i].name;
        const struct assignment *a = find_rules(clean, name);
        if (a == NULL) {
            is_good = compute_keep(bind, &clean->compute, (int)i, name, bind->span);
            continue;
        }
        struct ast *ast = apply_rules(bind, a);
        is_good = ast != NULL && compute_add(bind, &clean->compute, ast, input, name, a->name_span);
        clean->columns[clean->count] = (int)i;
        clean->names[clean->count++] = arena_printf(bind->arena, "%.*s changed", STR_ARGS(name));
    }
    return is_good && compute_done(bind, &clean->compute);
}

/* Whether the rules changed the row's value. Where they change the type, only null or not null counts. */
static bool is_changed(const struct column *before, const struct column *after, uint32_t row)
{
    bool was_valid = column_is_valid(before, row), is_valid = column_is_valid(after, row);
    if (was_valid != is_valid)
        return true;
    if (!is_valid || before->tag != after->tag)
        return false;
    switch (before->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: return !str_equal(column_text(before, row), column_text(after, row));
    case TYPE_BOOL: return before->bools[row] != after->bools[row];
    default: return before->ints[row] != after->ints[row];
    }
}

static void clean_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct clean *clean = context->config;
    struct expr_errors errors = {0};
    struct batch *out = compute_batch(context, &clean->compute, batch, &errors);
    for (uint32_t k = 0; k < clean->count; k++) {
        const struct column *before = &batch->columns[clean->columns[k]],
                            *after = &out->columns[clean->columns[k]];
        for (uint32_t i = 0; i < batch->selected; i++) {
            uint32_t row = batch_row(batch, i);
            clean->changed[k] += !bit_get(errors.rows, row) && is_changed(before, after, row);
        }
    }
    compute_emit(context, batch, out, &errors);
}

/* A request's values do not count as changed. */
static void clean_read(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    const struct clean *clean = context->config;
    compute_process(context, &clean->compute, batch);
}

static bool clean_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    const struct clean *clean = context->config;
    uint64_t record[1 + CLEAN_COLUMNS_MAX] = {snapshot_epoch(writer)};
    memcpy(record + 1, clean->changed, clean->count * sizeof(record[0]));
    return snapshot_put(writer, SNAPSHOT_GLOBAL, record, (1 + clean->count) * sizeof(record[0]));
}

/* Lane 0 sums the figures of all lanes' records, of the newest epoch only. */
static bool clean_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct clean *clean = context->config;
    uint64_t newest = 0;
    uint32_t group;
    struct str data;
    while (snapshot_get(reader, &group, &data)) {
        uint64_t record[1 + CLEAN_COLUMNS_MAX];
        if (data.length != (1 + clean->count) * sizeof(record[0])) {
            snapshot_corrupt(reader, context->diags,
                             "the record of the counts of `clean` is for another number of columns");
            return false;
        }
        memcpy(record, data.data, data.length);
        if (context->lane != 0 || record[0] < newest)
            continue;
        for (uint32_t i = 0; i < clean->count; i++)
            clean->changed[i] = (record[0] == newest ? clean->changed[i] : 0) + record[1 + i];
        newest = record[0];
    }
    return true;
}

static void clean_report(struct operator_context *context, struct report *report)
{
    const struct clean *clean = context->config;
    for (uint32_t i = 0; i < clean->count; i++)
        report_add(report, clean->names[i], (double)clean->changed[i], false);
}

const struct operator_kind operator_clean = {
    .name = "clean",
    .summary = "cleans the values of columns by rules, and counts the values that it changed",
    .example = "events | clean { device: [trim, lower, fill(\"unknown\")], price: clamp(0, 1000) }",
    .details =
        "Rules: trim, lower and upper change a text; clamp(low, high) limits a number; fill(value) replaces "
        "null by the value; null_if(value) replaces the value by null; allow([values]) replaces every other "
        "value by null, allow([values], other) by `other`; number and integer read a text as a number, null "
        "if it is none. All rules but `fill` leave null as it is. The summary shows for each column how many "
        "values changed; where the rules change the type, it counts only values that became null, or were "
        "null and no longer are.",
    .options = clean_options,
    .size = sizeof(struct clean),
    .determinism = DETERMINISM_BY_ROW,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = clean_bind,
    .process = clean_process,
    .read = clean_read,
    .keeps_figures_alone = true,
    .snapshot = clean_snapshot,
    .restore = clean_restore,
    .report = clean_report,
};
