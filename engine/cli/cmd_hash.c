/* leat hash JOB LEARNER COLUMN=VALUE...: shows the keys that values have in a learner's tables. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "core/describe.h"
#include "operators/expr/expr.h"

#include <inttypes.h>
#include <stdio.h>

enum { KEY_SET = 256, KEY_JSON };

struct hash_arguments {
    struct job_load load;
    const char *learner;
    struct job_pairs values;
    bool is_json;
};

/* One row of the learner's input; is_given: columns that have a value. */
struct hash_row {
    struct job_load *load;
    const struct plan_node *node;
    const struct learner_decl *decl;
    const struct schema *schema; /* includes the columns made by expressions */
    struct batch *batch;
    bool is_given[SCHEMA_FIELDS_MAX];
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "set a `param` of the job", 0},
    {"json", KEY_JSON, NULL, 0, "as JSON", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct hash_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_JSON: a->is_json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->load.path == NULL)
            a->load.path = argument;
        else if (a->learner == NULL)
            a->learner = argument;
        else if (!job_pair_add(&a->values, argument))
            argp_error(state, "values are written COLUMN=VALUE, not `%s`", argument);
        return 0;
    case ARGP_KEY_END:
        if (a->values.count == 0)
            argp_error(state, "give a value to hash: `leat hash JOB LEARNER COLUMN=VALUE...`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- The learner --- */

static bool find_learner(struct hash_row *r, const char *name)
{
    const struct job_file *job = r->load->job;
    const struct plan *plan = r->load->plan;
    const char *all = "";
    for (uint32_t i = 0; i < job->learners_count; i++) {
        all = arena_printf(&r->load->arena, "%s%s%.*s", all, i > 0 ? ", " : "",
                           STR_ARGS(job->learners[i].name.text));
        if (str_is(job->learners[i].name.text, name))
            r->decl = &job->learners[i];
    }
    for (uint32_t i = 0; r->decl != NULL && i < plan->nodes_count; i++)
        if (plan->nodes[i].tag == PLAN_LEARNER && str_is(plan->nodes[i].name, name))
            r->node = &plan->nodes[i];
    if (r->node != NULL)
        return true;
    struct diag *d =
        diag_error(&r->load->diags, DIAG_NO_COMMAND, (struct span){0}, "the job has no learner `%s`", name);
    diag_hint(&r->load->diags, d, *all != '\0' ? "it has: %s" : "it has none%s", all);
    return false;
}

/* --- The row --- */

/* Parses a list's elements, separated by commas, into row 0. Texts are taken literally. */
static bool parse_list(struct batch *batch, struct column *column, const struct type *element,
                       struct str text)
{
    uint32_t count = text.length > 0;
    for (size_t i = 0; i < text.length; i++)
        count += text.data[i] == ',';
    struct column *items = arena_new(&batch->arena, struct column);
    if (element->tag >= TYPE_LIST)
        return false;
    batch_column_init(batch, items, *element, MAX(count, 1U));
    /* A bitmap for all elements, since describe_parse would allocate one for the batch's single row. */
    items->valid = batch_valid_new(batch, MAX(count, 1U));
    column->children = items, column->children_count = 1, column->child_rows = count;
    column->lists[0] = (struct list_ref){.offset = 0, .length = count};
    bool is_text = element->tag == TYPE_TEXT || element->tag == TYPE_BYTES, is_good = true;
    size_t at = 0;
    for (uint32_t k = 0; k < count && is_good; k++) {
        const char *comma = memchr(text.data + at, ',', text.length - at);
        size_t end = comma != NULL ? (size_t)(comma - text.data) : text.length;
        while (!is_text && at < end && text.data[at] == ' ')
            at++;
        if (is_text)
            items->texts[k] = (struct text_ref){(uint32_t)at, (uint32_t)(end - at)};
        else
            is_good = describe_parse(batch, items, element, k, (struct str){text.data + at, end - at});
        at = end + 1;
    }
    if (is_text)
        items->heap = arena_str(&batch->arena, text).data;
    return is_good;
}

static bool give_value(struct hash_row *r, struct str name, struct str value)
{
    struct job_load *load = r->load;
    int index = schema_find(r->schema, name);
    if (index < 0) {
        struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "the input of learner `%.*s` has no column `%.*s`",
                                    STR_ARGS(r->node->name), STR_ARGS(name));
        const char *near = diag_nearest(name, schema_names(&load->arena, r->schema), r->schema->count);
        if (near != NULL)
            diag_hint(&load->diags, d, "did you mean `%s`?", near);
        return false;
    }
    const struct type *type = &r->schema->fields[index].type;
    struct column *column = &r->batch->columns[index];
    r->is_given[index] = true;
    if (type->tag == TYPE_LIST ? parse_list(r->batch, column, type->element, value)
                               : describe_parse(r->batch, column, type, 0, value))
        return true;
    struct diag *d =
        diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0}, "`%.*s`: `%.*s` is not of type %s",
                   STR_ARGS(name), STR_ARGS(value), type_name(&load->arena, type));
    diag_hint(&load->diags, d,
              "write times like 2024-05-01T00:00:00Z, and lists as elements separated by commas");
    return false;
}

/* --- Features --- */

/* Whether all columns that the expression reads are given. */
static bool is_known(const struct hash_row *r, const struct ast *ast)
{
    if (ast->tag == AST_NAME) {
        int index = schema_find(r->schema, ast->text);
        return index >= 0 && r->is_given[index];
    }
    for (uint32_t i = 0; i < ast->count; i++)
        if (!is_known(r, ast->children[i]))
            return false;
    return true;
}

static const struct ast *find_expression(const struct ast *ast, struct str name)
{
    struct byte_buffer text = {0};
    ast_print(&text, ast);
    bool is_it = str_equal((struct str){text.data, text.length}, name);
    buffer_free(&text);
    const struct ast *found = is_it ? ast : NULL;
    for (uint32_t i = 0; i < ast->count && ast->tag == AST_LIST && found == NULL; i++)
        found = find_expression(ast->children[i], name);
    return found;
}

/* The feature's values in the row. NULL: not known from the given columns, or after a diagnostic. */
static const struct column *values_of(struct hash_row *r, int index, struct column *out,
                                      struct arena *scratch)
{
    struct job_load *load = r->load;
    struct str name = r->schema->fields[index].name;
    if (r->is_given[index])
        return &r->batch->columns[index];
    const struct ast *ast = NULL;
    for (uint32_t i = 0; i < r->decl->count && ast == NULL; i++)
        ast = r->decl->entries[i].value == NULL ? NULL : find_expression(r->decl->entries[i].value, name);
    if (ast == NULL || !is_known(r, ast))
        return NULL;
    struct expr *expr = expr_compile(ast, r->schema, &load->arena, &load->diags);
    if (expr == NULL)
        return NULL;
    struct expr_errors errors = {0};
    expr_eval(expr, r->batch, scratch, &load->arena, out, &errors);
    if (errors.count == 0)
        return out;
    diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0}, "`%.*s` cannot be computed: %s",
               STR_ARGS(name), errors.reasons[0]);
    return NULL;
}

static void put_key(const struct hash_arguments *a, struct describe *d, struct str name, uint64_t key)
{
    char text[24];
    int length = snprintf(text, sizeof(text), "%016" PRIx64, key);
    if (a->is_json)
        describe_text(d, NULL, (struct str){text, (size_t)length});
    else
        printf("%-32.*s %s %20" PRIu64 "\n", STR_ARGS(name), text, key);
}

static void put_feature(const struct hash_arguments *a, struct hash_row *r, struct describe *d,
                        struct str name, const struct column *values)
{
    uint64_t (*key)(const struct column *, uint32_t) = r->node->operator_kind->key;
    describe_record(d, NULL);
    describe_text(d, "feature", name);
    describe_list(d, "keys");
    if (values->tag != TYPE_LIST) {
        put_key(a, d, name, key(values, 0));
    } else if (column_is_valid(values, 0)) {
        struct list_ref list = values->lists[0];
        for (uint32_t k = 0; k < list.length; k++)
            put_key(a, d, name, key(&values->children[0], list.offset + k));
    }
    describe_close(d);
    describe_close(d);
}

static bool refuse(struct hash_row *r)
{
    struct job_load *load = r->load;
    const char *all = "";
    int index;
    for (uint32_t n = 0; r->node->operator_kind->table(r->node->config, n, &index); n++)
        all = arena_printf(&load->arena, "%s%s%.*s", all, n > 0 ? ", " : "",
                           STR_ARGS(r->schema->fields[index].name));
    struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0},
                                "no feature of learner `%.*s` can be computed from these columns alone",
                                STR_ARGS(r->node->name));
    diag_hint(&load->diags, d,
              *all != '\0' ? "its features with keys are: %s" : "it has no features with keys%s", all);
    return false;
}

static bool put_features(const struct hash_arguments *a, struct hash_row *r)
{
    struct byte_buffer out = {0};
    struct arena scratch = {0};
    struct describe d;
    uint32_t features = 0;
    int index;
    describe_begin(&d, &out, true);
    describe_list(&d, "features");
    for (uint32_t n = 0; r->node->operator_kind->table(r->node->config, n, &index); n++) {
        struct column computed = {0};
        const struct column *values = values_of(r, index, &computed, &scratch);
        if (values == NULL)
            continue;
        put_feature(a, r, &d, r->schema->fields[index].name, values);
        features++;
    }
    describe_close(&d);
    describe_end(&d);
    bool is_good = r->load->diags.errors == 0 && (features > 0 || refuse(r));
    if (a->is_json && is_good)
        fwrite(out.data, 1, out.length, stdout);
    arena_free(&scratch);
    buffer_free(&out);
    return is_good;
}

static bool hash(struct hash_arguments *a)
{
    struct hash_row row = {.load = &a->load};
    if (!find_learner(&row, a->learner))
        return false;
    struct batch_pool *pool = batch_pool_new();
    row.schema = row.node->bound[0].schema;
    row.batch = batch_new(pool, row.schema, 1);
    bool is_good = true;
    for (uint32_t i = 0; i < a->values.count; i++)
        is_good = give_value(&row, a->values.names[i], a->values.values[i]) && is_good;
    is_good = is_good && put_features(a, &row);
    batch_release(row.batch);
    batch_pool_free(pool);
    return is_good;
}

int cmd_hash(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB LEARNER COLUMN=VALUE...",
        "Shows which keys values have in a learner's tables.\vColumns are those of the learner's input "
        "stream. Each feature that can be computed from the given columns alone is shown with its key, as 16 "
        "hexadecimal digits and as a number: a column, a cross such as `cross(site, cat)`, or a list, which "
        "has one key for each element. Write a list as elements separated by commas, a time like "
        "2024-05-01T00:00:00Z, a missing value as `null` (not for texts).\n\n"
        "A key depends on the value and its type alone: it is the same in each table, in each learner and on "
        "each machine. `leat model export` writes all rows with their keys, `leat state get` shows the row "
        "of one value; docs/model.md says how a key is computed.",
        0,
        0,
        0};
    struct hash_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    bool has_job = job_load(&arguments.load);
    bool is_good = has_job && hash(&arguments);
    job_print_diags(&arguments.load);
    job_free(&arguments.load);
    return is_good ? EXIT_GOOD : has_job ? EXIT_FAILED : EXIT_BAD_JOB;
}
