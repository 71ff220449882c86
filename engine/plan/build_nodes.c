/* Builds bound nodes from declarations: sources, steps, sinks. */
#include "plan/build.h"

#include "core/change.h"
#include "core/learner.h"

enum { OPTIONS_LISTED = 128 };

#define DEAD_FIELD(text, tag_)                                                                               \
    {                                                                                                        \
        .name = {text, sizeof(text) - 1}, .type = {.tag = tag_ }                                             \
    }
static struct field dead_fields[] = {
    DEAD_FIELD("job", TYPE_TEXT),     DEAD_FIELD("source", TYPE_TEXT),   DEAD_FIELD("place", TYPE_TEXT),
    DEAD_FIELD("topic", TYPE_TEXT),   DEAD_FIELD("partition", TYPE_INT), DEAD_FIELD("offset", TYPE_INT),
    DEAD_FIELD("time", TYPE_TIME),    DEAD_FIELD("record", TYPE_INT),    DEAD_FIELD("step", TYPE_TEXT),
    DEAD_FIELD("reason", TYPE_TEXT),  DEAD_FIELD("key", TYPE_TEXT),      DEAD_FIELD("key_bytes", TYPE_BYTES),
    DEAD_FIELD("headers", TYPE_TEXT), DEAD_FIELD("raw", TYPE_TEXT),      DEAD_FIELD("raw_bytes", TYPE_BYTES),
};
_Static_assert(ARRAY_COUNT(dead_fields) == DEAD_COLUMNS, "one field per column");
const struct schema plan_dead_schema = {.fields = dead_fields, .count = DEAD_COLUMNS};

static const struct plan_replace *find_replace(const struct plan_replace *items, uint32_t count,
                                               struct str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_equal(items[i].name, name))
            return &items[i];
    return NULL;
}

static struct ast *text_value(struct plan_build *b, struct str text, struct span span)
{
    struct ast *value = arena_new(b->arena, struct ast);
    *value = (struct ast){.tag = AST_TEXT, .span = span, .text = text};
    return value;
}

/* Writes to `to` the entries of the file connector that replaces the job's connector: the new path, and of
 * the entries `from` all others if the job's connector is a file connector, too (is_file), else `format`
 * alone. Returns their number. */
static uint32_t replaced_entries(struct plan_build *b, bool is_file, const struct ast_entry *from,
                                 uint32_t count, struct str path, struct span span, struct ast_entry *to)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (str_is(from[i].name, "format") || (is_file && !str_is(from[i].name, "path")))
            to[kept++] = from[i];
    to[kept++] = (struct ast_entry){STR("path"), span, text_value(b, path, span)};
    return kept;
}

/* Gives each column of a source a lineage bit. False after a diagnostic. */
static bool give_roots(struct plan_build *b, struct schema *schema, struct span span)
{
    if (b->roots + schema->count > LINEAGE_ROOTS_MAX) {
        diag_error(b->diags, DIAG_TOO_MANY, span, "the sources of a job can have at most %d columns in all",
                   LINEAGE_ROOTS_MAX);
        return false;
    }
    for (uint32_t i = 0; i < schema->count; i++)
        bit_set(schema->fields[i].lineage.words, b->roots++);
    return true;
}

/* Whether the name is one of the options that all sources have. A misspelt name counts as one of them if it
 * is near such an option and near no option of the kind. */
static bool is_common(const struct source_kind *kind, struct str name)
{
    const char *names[OPTIONS_LISTED], *near = NULL;
    bool is_known_common = option_find(source_options, name).name != NULL;
    if (is_known_common || option_find(kind->options, name).name != NULL)
        return is_known_common;
    const struct option *const tables[] = {kind->options, source_options};
    uint32_t t = 0;
    for (; t < ARRAY_COUNT(tables) && near == NULL; t++) {
        size_t count = 0;
        for (struct option_walk w = option_walk(tables[t]); option_next(&w) && count < OPTIONS_LISTED;)
            names[count++] = w.row.name;
        near = diag_nearest(name, names, count);
    }
    return near != NULL && t == ARRAY_COUNT(tables);
}

/* Splits the entries into options that all sources have (common) and options of the kind (own). Returns the
 * number of common entries. */
static uint32_t split_entries(const struct source_decl *decl, struct ast_entry *common, struct ast_entry *own)
{
    uint32_t common_count = 0, own_count = 0;
    for (uint32_t i = 0; i < decl->count; i++)
        if (is_common(decl->descriptor, decl->entries[i].name))
            common[common_count++] = decl->entries[i];
        else
            own[own_count++] = decl->entries[i];
    return common_count;
}

bool build_source(struct plan_build *b, const struct source_decl *decl, uint32_t *index)
{
    const struct source_kind *kind = decl->descriptor;
    const struct plan_replace *replay =
        find_replace(b->options->replays, b->options->replays_count, decl->name.text);
    struct ast_entry *common_entries = arena_array(b->arena, struct ast_entry, decl->count + 1);
    struct ast_entry *own_entries = arena_array(b->arena, struct ast_entry, decl->count + 2);
    uint32_t common_count = split_entries(decl, common_entries, own_entries);
    uint32_t own_count = decl->count - common_count;
    bool is_recording = replay != NULL && kind->replay != NULL && kind->is_recording(replay->value);
    if (is_recording) {
        kind = kind->replay;
    } else if (replay != NULL) {
        bool is_file = strcmp(kind->name, "file") == 0;
        struct ast_entry *replaced = arena_array(b->arena, struct ast_entry, own_count + 1);
        own_count =
            replaced_entries(b, is_file, own_entries, own_count, replay->value, decl->kind.span, replaced);
        own_entries = replaced;
        kind = registry_source(b->options->registry, STR("file"));
        leat_assert(kind != NULL);
    }
    struct plan_node *node = build_node(b, PLAN_SOURCE, decl->name.text, kind->name, decl->name.span);
    if (node == NULL)
        return false;
    node->path_span = build_place(kind->options, own_entries, own_count, decl->kind.span);
    const char *what = arena_printf(b->arena, "source `%s`", kind->name);
    node->source_kind = kind;
    node->config = arena_calloc(b->arena, 1, kind->size);
    node->common = arena_new(b->arena, struct source_common);
    bool is_good = option_bind(source_options, what, decl->kind.span, common_entries, common_count,
                               node->common, &b->env);
    is_good &=
        option_bind(kind->options, what, decl->kind.span, own_entries, own_count, node->config, &b->env);
    if (!is_good)
        return false;
    struct source_bind bind = {.config = node->config,
                               .arena = b->arena,
                               .diags = b->diags,
                               .span = decl->kind.span,
                               .declared = node->common->schema,
                               .recording = is_recording ? replay->value : (struct str){NULL, 0}};
    if (!kind->bind(&bind))
        return false;
    node->recording = bind.recording;
    struct schema *schema = schema_copy(b->arena, bind.schema, 0);
    node->outputs[0] = schema;
    node->is_bounded = bind.is_bounded;
    node->is_replayable = bind.is_replayable;
    node->is_live = bind.is_live;
    struct str common_text = build_settings(b, source_options, common_entries, common_count, true);
    struct str own_text = build_settings(b, kind->options, own_entries, own_count, true);
    node->settings_text =
        str_from(arena_printf(b->arena, "%.*s %.*s", STR_ARGS(common_text), STR_ARGS(own_text)));
    node->has_arrival = bind.has_arrival;
    if (!give_roots(b, schema, decl->kind.span) || !build_source_time(b, node, common_entries, common_count))
        return false;
    if (b->plan->sources_count == PLAN_SOURCES_MAX) {
        diag_error(b->diags, DIAG_TOO_MANY, decl->kind.span, "a job can have at most %d sources",
                   PLAN_SOURCES_MAX);
        return false;
    }
    node->source_index = b->plan->sources_count;
    b->plan->sources[b->plan->sources_count++] = node->place;
    *index = node->place;
    return true;
}

/* Refuses a step that would take changes (rows that replace or take back earlier rows) for new rows. */
static bool check_changes(struct plan_build *b, const struct plan_node *node,
                          const struct operator_bind *bind)
{
    const struct operator_kind *kind = node->operator_kind;
    if (kind->takes_changes || (node->tag == PLAN_OPERATOR && kind->determinism == DETERMINISM_BY_ROW))
        return true;
    for (uint32_t i = 0; i < bind->inputs_count; i++) {
        if (change_column(bind->inputs[i].schema) < 0)
            continue;
        struct diag *d = diag_error(b->diags, DIAG_ROWS_CHANGE, node->span,
                                    "rows of `%.*s` are changes (they have `" CHANGE_COLUMN
                                    "`): `%s` would count an update as a new row",
                                    STR_ARGS(bind->inputs[i].stream), kind->name);
        diag_hint(b->diags, d,
                  "if the sources end, use `emit final`, which gives no changes; or use `drop " CHANGE_COLUMN
                  "`, which makes each change a row of its own");
        return false;
    }
    return true;
}

/* Refuses a step that gives its rows at the end of its input, if a source has no end. */
static bool check_end(struct plan_build *b, const struct plan_node *node)
{
    if (node->is_bounded)
        return true;
    const struct plan_node *from = node;
    while (from->tag != PLAN_SOURCE) {
        uint32_t i = 0;
        while (b->plan->nodes[from->inputs[i].node].is_bounded)
            i++;
        from = &b->plan->nodes[from->inputs[i].node];
    }
    bool goes_on = node->operator_kind->wants_more != NULL;
    struct diag *d =
        diag_error(b->diags, DIAG_SOURCE_CANNOT, node->span,
                   "`%s` %s when the input ends, and source `%.*s` never ends", node->operator_kind->name,
                   goes_on ? "does the rest of its work" : "emits its rows", STR_ARGS(from->name));
    diag_label(b->diags, d, from->span, "this source has no end");
    diag_hint(b->diags, d, "%sa recording of the source (--replay), which has an end",
              goes_on ? "use " : "use `emit on_change`, which emits changes as they happen, or ");
    return false;
}

bool build_bind(struct plan_build *b, struct plan_node *node, struct operator_bind *bind)
{
    bind->config = node->config;
    bind->arena = b->arena;
    bind->diags = b->diags;
    bind->span = node->span;
    bind->registry = b->options->registry;
    bind->env = &b->env;
    bind->inputs_count = node->inputs_count;
    node->has_time = node->has_arrival = node->is_bounded = true;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const struct plan_node *from = &b->plan->nodes[node->inputs[i].node];
        bind->inputs[i] = (struct operator_input){
            .schema = build_schema(b, node->inputs[i]), .stream = from->name, .span = node->span};
        node->has_time &= from->has_time;
        node->is_bounded &= from->is_bounded;
        node->has_arrival &= from->has_arrival;
    }
    bind->base_columns = bind->inputs[0].schema->count;
    if (node->operator_kind->makes_label) {
        if (b->roots == LINEAGE_ROOTS_MAX) {
            diag_error(b->diags, DIAG_TOO_MANY, node->span, "too many labels and columns");
            return false;
        }
        bind->label_root = b->roots++;
    }
    if (!check_changes(b, node, bind) || !node->operator_kind->bind(bind) ||
        (bind->needs_end && !check_end(b, node)))
        return false;
    node->is_by_arrival = bind->is_by_arrival;
    if (!(node->is_by_arrival ? build_check_arrival(b, node) : build_check_time(b, node)))
        return false;
    leat_assert(bind->outputs[0] != NULL);
    memcpy(node->bound, bind->inputs, sizeof(node->bound));
    memcpy(node->outputs, bind->outputs, sizeof(node->outputs));
    for (uint32_t i = 1; i < OPERATOR_OUTPUTS_MAX; i++)
        if (node->outputs[i] != NULL)
            node->output_names[i] = bind->output_names[i] != NULL ? bind->output_names[i] : "late";
    node->hold_us = bind->hold_us;
    node->goes_on = node->operator_kind->wants_more != NULL && bind->needs_end;
    leat_assert(!node->goes_on || (node->operator_kind->determinism == DETERMINISM_BY_ALL_ROWS &&
                                   bind->inputs[0].key_count == 0));
    node->has_time |= bind->sets_time || bind->is_by_arrival;
    /* Rows held back, or made by timers, do not come out when they arrived. */
    node->has_arrival &= !bind->is_timer_kind;
    b->plan->has_arrival_clock |= node->is_by_arrival;
    b->plan->follows_load |= bind->follows_load;
    node->needs_memory = bind->needs_memory;
    b->plan->has_state |= bind->needs_memory;
    return true;
}

struct stream_ref build_stream_ref(struct str name, struct span span)
{
    const char *point = memchr(name.data, '.', name.length);
    if (point == NULL)
        return (struct stream_ref){.name = name, .span = span};
    size_t length = (size_t)(point - name.data);
    return (struct stream_ref){.name = {name.data, length},
                               .output = {point + 1, name.length - length - 1},
                               .span = span,
                               .output_span = span};
}

bool build_stream_inputs(struct plan_build *b, struct plan_node *node)
{
    bool is_good = true;
    for (struct option_walk w = option_walk(node->operator_kind->options); option_next(&w);) {
        struct column_ref single = {0};
        struct columns refs = {&single, 0};
        char *member = (char *)node->config + w.row.offset;
        if (w.row.type == OPTION_STREAMS_T) {
            refs = *(struct columns *)member;
        } else if (w.row.type == OPTION_STREAM_T && ((struct name_ref *)member)->name.length > 0) {
            single.name = ((struct name_ref *)member)->name;
            single.span = ((struct name_ref *)member)->span;
            refs.count = 1;
        }
        for (uint32_t i = 0; i < refs.count; i++) {
            if (node->inputs_count == OPERATOR_INPUTS_MAX ||
                node->inputs_count == node->operator_kind->inputs_max) {
                diag_hint(b->diags,
                          diag_error(b->diags, DIAG_TOO_MANY, refs.items[i].span,
                                     "`%s` takes at most %u streams, including its input",
                                     node->operator_kind->name, node->operator_kind->inputs_max),
                          "put the remaining streams into another `| %s` after this step",
                          node->operator_kind->name);
                return false;
            }
            struct stream_ref ref = build_stream_ref(refs.items[i].name, refs.items[i].span);
            struct plan_edge *edge = &node->inputs[node->inputs_count];
            bool is_found = build_resolve(b, &ref, edge);
            if (is_found && edge->node == PLAN_NODE_DEAD) {
                diag_error(b->diags, DIAG_NO_STREAM, ref.span, "only a sink can take `dead_letters`");
                is_found = false;
            }
            node->inputs_count += is_found;
            is_good &= is_found;
        }
    }
    return is_good;
}

static bool build_step(struct plan_build *b, const struct stream_decl *stream, const struct step_decl *step,
                       struct plan_edge *edge)
{
    const struct operator_kind *kind = step->descriptor;
    void *config = arena_calloc(b->arena, 1, kind->size);
    if (!option_bind(kind->options, arena_printf(b->arena, "`%s`", kind->name), step->kind.span,
                     step->entries, step->count, config, &b->env))
        return false;
    /* Inputs are resolved into a draft first, because resolving them may add nodes before this one. */
    struct plan_node draft = {.operator_kind = kind, .config = config, .inputs = {*edge}, .inputs_count = 1};
    if (!build_stream_inputs(b, &draft))
        return false;
    struct plan_node *node = build_node(b, PLAN_OPERATOR, stream->name.text, kind->name, step->span);
    if (node == NULL)
        return false;
    node->operator_kind = kind;
    node->config = config;
    node->path_span = build_place(kind->options, step->entries, step->count, step->span);
    memcpy(node->inputs, draft.inputs, sizeof(node->inputs));
    node->inputs_count = draft.inputs_count;
    node->settings_text = build_settings(b, kind->options, step->entries, step->count, true);
    struct operator_bind bind = {0};
    if (!build_bind(b, node, &bind))
        return false;
    build_shape(b, node, &bind);
    *edge = (struct plan_edge){node->place, 0};
    return true;
}

/* Checks the options of a step that comes after a wrong step, where columns are not known. */
static void check_step(struct plan_build *b, const struct step_decl *step)
{
    const struct operator_kind *kind = step->descriptor;
    if (step->is_broken || kind == NULL)
        return;
    if (!option_bind(kind->options, arena_printf(b->arena, "`%s`", kind->name), step->kind.span,
                     step->entries, step->count, arena_calloc(b->arena, 1, kind->size), &b->env))
        leat_assert(b->diags->errors > 0);
}

/* A stream without steps (`stream a = b`) gets no node of its own. */
bool build_stream(struct plan_build *b, const struct stream_decl *decl, struct plan_edge *edge)
{
    bool is_good = build_resolve(b, &decl->input, edge);
    bool is_for_sinks =
        is_good && (edge->node == PLAN_NODE_DEAD ||
                    (edge->output == LEARNER_METRICS && b->plan->nodes[edge->node].tag == PLAN_LEARNER));
    if (is_for_sinks) {
        struct diag *d =
            diag_error(b->diags, DIAG_NO_STREAM, decl->input.span, "only a sink can take this output");
        diag_hint(b->diags, d, "write the output to a file and read the file with another job");
        is_good = false;
    }
    for (uint32_t i = 0; i < decl->steps_count; i++)
        if (is_good)
            is_good = build_step(b, decl, &decl->steps[i], edge);
        else
            check_step(b, &decl->steps[i]);
    return is_good;
}

bool build_sink(struct plan_build *b, const struct sink_decl *decl)
{
    const struct sink_kind *kind = decl->descriptor;
    const struct ast_entry *entries = decl->entries;
    uint32_t count = decl->count;
    const struct plan_replace *path =
        find_replace(b->options->sinks, b->options->sinks_count, decl->name.text);
    if (path != NULL) {
        struct ast_entry *replaced = arena_array(b->arena, struct ast_entry, count + 1);
        count = replaced_entries(b, strcmp(kind->name, "file") == 0, entries, count, path->value,
                                 decl->kind.span, replaced);
        entries = replaced;
        kind = registry_sink(b->options->registry, STR("file"));
    } else if (b->options->is_replay) {
        kind = registry_sink(b->options->registry, STR("null"));
        count = 0;
    }
    leat_assert(kind != NULL);
    struct plan_edge edge;
    bool is_resolved = build_resolve(b, &decl->input, &edge);
    void *config = arena_calloc(b->arena, 1, MAX(kind->size, 1));
    if (!option_bind(kind->options, arena_printf(b->arena, "sink `%s`", kind->name), decl->kind.span, entries,
                     count, config, &b->env) ||
        !is_resolved)
        return false;
    struct plan_node *node = build_node(b, PLAN_SINK, decl->name.text, kind->name, decl->kind.span);
    if (node == NULL)
        return false;
    node->sink_kind = kind;
    node->path_span = build_place(kind->options, entries, count, decl->kind.span);
    node->is_stand_in = path != NULL || b->options->is_replay;
    node->config = config;
    node->inputs[0] = edge;
    node->inputs_count = 1;
    node->bound[0].schema = build_schema(b, edge);
    node->settings_text = build_settings(b, kind->options, entries, count, true);
    struct sink_bind bind = {.config = node->config,
                             .arena = b->arena,
                             .diags = b->diags,
                             .span = decl->kind.span,
                             .input = node->bound[0].schema};
    if (kind->bind != NULL && !kind->bind(&bind))
        return false;
    node->owns = bind.owns;
    node->owns_glob = bind.owns_glob;
    build_sink_shape(b, node, &bind);
    return true;
}
