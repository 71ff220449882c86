/* Learners: their expressions become columns of a `with` step before each of their inputs, and no feature may
 * derive from the label. */
#include "core/learner.h"
#include "plan/build.h"

/* What add_column needs besides the bind. bind.learner points to `columns` and is cast back, so `columns`
 * must be the first member. */
struct learner_build {
    struct learner_columns columns;
    struct plan_build *b;
    struct learner_input {
        struct plan_edge edge;   /* the stream of the job */
        struct plan_node *with;  /* the `with` step; NULL: no expression so far */
        struct ast *assignments; /* AST_LIST of AST_ASSIGN */
    } inputs[LEARNER_INPUTS];
    const struct learner_decl *decl;
};

static struct learner_build *learner_build_of(struct operator_bind *bind)
{
    return (struct learner_build *)(void *)bind->learner;
}

static const char *expression_name(struct plan_build *b, const struct ast *expression)
{
    struct byte_buffer text = {0};
    ast_print(&text, expression);
    const char *name = arena_strndup(b->arena, text.data, text.length);
    buffer_free(&text);
    return name;
}

/* Binds the `with` step of an input again, with all expressions so far. */
static bool bind_with(struct learner_build *build, struct learner_input *l)
{
    struct plan_build *b = build->b;
    const struct operator_kind *kind = registry_operator(b->options->registry, STR("with"));
    leat_assert(kind != NULL);
    if (l->with == NULL) {
        l->with = build_node(b, PLAN_OPERATOR, build->decl->name.text, "with", build->decl->kind.span);
        if (l->with == NULL)
            return false;
    }
    struct plan_node *node = l->with;
    struct ast_entry entry = {STR(""), build->decl->kind.span, l->assignments};
    node->operator_kind = kind;
    node->config = arena_calloc(b->arena, 1, kind->size);
    node->inputs[0] = l->edge;
    node->inputs_count = 1;
    if (!option_bind(kind->options, "the learner's columns", build->decl->kind.span, &entry, 1, node->config,
                     &b->env))
        return false;
    node->settings_text = build_settings(b, kind->options, &entry, 1, true);
    struct operator_bind bind = {0};
    return build_bind(b, node, &bind);
}

static int add_column(struct operator_bind *bind, uint32_t input, const struct ast *expression)
{
    struct learner_build *build = learner_build_of(bind);
    struct plan_build *b = build->b;
    struct learner_input *l = &build->inputs[input];
    if (expression->tag == AST_NAME) {
        struct column_ref ref = {expression->text, expression->span, -1};
        return column_resolve(&ref, bind->inputs[input].schema, b->arena, b->diags) ? ref.index : -1;
    }
    struct str name = str_from(expression_name(b, expression));
    int index = schema_find(bind->inputs[input].schema, name);
    if (index >= 0)
        return index;
    struct ast *assign = arena_new(b->arena, struct ast);
    struct ast **children = arena_array(b->arena, struct ast *, l->assignments->count + 1);
    if (l->assignments->count > 0)
        memcpy(children, l->assignments->children, l->assignments->count * sizeof(*children));
    struct ast **operand = arena_array(b->arena, struct ast *, 1);
    *operand = (struct ast *)(uintptr_t)expression;
    *assign = (struct ast){.tag = AST_ASSIGN,
                           .span = expression->span,
                           .text_span = expression->span,
                           .text = name,
                           .children = operand,
                           .count = 1};
    children[l->assignments->count] = assign;
    struct ast *list = arena_new(b->arena, struct ast);
    *list = (struct ast){
        .tag = AST_LIST, .span = expression->span, .children = children, .count = l->assignments->count + 1};
    struct ast *before = l->assignments;
    l->assignments = list;
    if (!bind_with(build, l)) {
        l->assignments = before;
        return -1;
    }
    bind->inputs[input].schema = l->with->outputs[0];
    return schema_find(bind->inputs[input].schema, name);
}

/* Refuses the features of one input that derive from the label: columns[count] of its schema. */
static bool check_features(struct plan_build *b, const struct learner_columns *of, uint32_t number,
                           const int *columns, const struct schema *schema, const struct lineage *lineage)
{
    bool is_good = true;
    for (uint32_t i = 0; i < of->count; i++) {
        const struct field *field = &schema->fields[columns[i]];
        if (!lineage_intersects(&field->lineage, lineage))
            continue;
        const char *label = of->label_name != NULL ? of->label_name : "the label";
        struct diag *d =
            diag_error(b->diags, DIAG_LABEL_LEAK, of->spans[i],
                       "this input derives from %s, which is not known when the model predicts", label);
        diag_label(b->diags, d, of->label_spans[number], "%s", label);
        if (columns == of->scored)
            diag_label(b->diags, d, of->scored_span, "so it does in the stream whose rows are scored");
        diag_hint(b->diags, d, "use data that arrived before the event (`feature ... { }`)%s",
                  of->label_name != NULL ? ""
                                         : ", or list columns that are known when the model predicts in "
                                           "`known_early: [...]`");
        is_good = false;
    }
    return is_good;
}

/* The input that has rows to score; 0: there is none. */
static uint32_t scored_input(const struct learner_columns *columns, const struct plan_node *node)
{
    bool is_other = columns->items_input == LEARNER_SCORED || columns->unlabelled_input == LEARNER_SCORED;
    return node->inputs_count > LEARNER_SCORED && !is_other ? LEARNER_SCORED : 0;
}

/* Refuses each feature that derives from the label (docs/design.md, section 1, promise 3). Adds to `labels` what
 * the label derives from. */
static bool check_label(struct plan_build *b, const struct learner_columns *columns, uint32_t number,
                        const struct plan_node *node, struct lineage *labels)
{
    const struct schema *schema = node->bound[LEARNER_EXAMPLES].schema;
    const struct field *target = &schema->fields[columns->labels[number]];
    struct lineage label = target->lineage;
    for (size_t w = 0; w < LINEAGE_WORDS; w++)
        label.words[w] &= ~target->rows_only.words[w];
    for (uint32_t i = 0; i < columns->known.count; i++) {
        struct column_ref ref = columns->known.items[i];
        if (!column_resolve(&ref, schema, b->arena, b->diags))
            return false;
        for (size_t w = 0; w < LINEAGE_WORDS; w++)
            label.words[w] &= ~schema->fields[ref.index].lineage.words[w];
    }
    lineage_merge(labels, &label);
    bool is_good = check_features(b, columns, number, columns->features, schema, &label);
    if (is_good && scored_input(columns, node) > 0)
        is_good =
            check_features(b, columns, number, columns->scored, node->bound[LEARNER_SCORED].schema, &label);
    return is_good;
}

bool build_learner(struct plan_build *b, const struct learner_decl *decl, uint32_t *index)
{
    const struct operator_kind *kind = decl->descriptor;
    struct plan_edge input;
    bool is_resolved = build_resolve(b, &decl->input, &input);
    if (is_resolved && input.node == PLAN_NODE_DEAD) {
        diag_error(b->diags, DIAG_NO_STREAM, decl->input.span, "only a sink can take `dead_letters`");
        is_resolved = false;
    }
    void *config = arena_calloc(b->arena, 1, kind->size);
    if (!option_bind(kind->options, arena_printf(b->arena, "learner `%s`", kind->name), decl->kind.span,
                     decl->entries, decl->count, config, &b->env) ||
        !is_resolved)
        return false;
    struct plan_node draft = {.operator_kind = kind,
                              .config = config,
                              .span = decl->kind.span,
                              .name = decl->name.text,
                              .inputs = {input},
                              .inputs_count = 1};
    if (!build_stream_inputs(b, &draft))
        return false;
    leat_assert(draft.inputs_count <= LEARNER_INPUTS);
    struct learner_build learner = {.b = b, .decl = decl};
    struct ast none = {.tag = AST_LIST};
    for (uint32_t i = 0; i < draft.inputs_count; i++)
        learner.inputs[i] = (struct learner_input){.edge = draft.inputs[i], .assignments = &none};
    struct operator_bind bind = {.add_column = add_column, .learner = &learner.columns};
    if (!build_bind(b, &draft, &bind))
        return false;
    leat_assert(learner.columns.labels_count > 0);
    for (uint32_t i = 0; i < learner.columns.labels_count; i++)
        if (!check_label(b, &learner.columns, i, &draft, &draft.labels))
            return false;
    struct plan_node *node = build_node(b, PLAN_LEARNER, decl->name.text, kind->name, decl->kind.span);
    if (node == NULL)
        return false;
    const char *label = node->label;
    uint32_t place = node->place;
    *node = draft;
    node->tag = PLAN_LEARNER;
    node->scored_input = scored_input(&learner.columns, node);
    node->items_input = learner.columns.items_input;
    static const char *const names[] = {"predictions", "metrics", "scores"};
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++)
        if (node->outputs[i] != NULL)
            node->output_names[i] = bind.output_names[i] != NULL ? bind.output_names[i] : names[i];
    node->label = label;
    node->place = place;
    for (uint32_t i = 0; i < node->inputs_count; i++)
        if (learner.inputs[i].with != NULL)
            node->inputs[i] = (struct plan_edge){learner.inputs[i].with->place, 0};
    node->settings_text = build_settings(b, kind->options, decl->entries, decl->count, true);
    build_shape(b, node, &bind);
    *index = node->place;
    return true;
}
