/* See toys.h. */
#include "toys.h"

#include <stdio.h>

struct toy_source {
    int64_t rate;
};

static const struct option toy_source_options[] = {
    OPTION_INT(struct toy_source, rate, "rate", 0, "1", "0", "9", "nothing"),
    OPTIONS_END,
};

static bool rows_bind(struct source_bind *bind)
{
    static struct field fields[] = {{.name = {"id", 2}, .type = {.tag = TYPE_INT}},
                                    {.name = {"user", 4}, .type = {.tag = TYPE_INT}},
                                    {.name = {"item", 4}, .type = {.tag = TYPE_INT}},
                                    {.name = {"ts", 2}, .type = {.tag = TYPE_TIME}}};
    static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};
    bind->schema = bind->declared != NULL ? bind->declared : &schema;
    bind->is_bounded = bind->is_replayable = true;
    return true;
}

static bool live_bind(struct source_bind *bind)
{
    bool is_good = rows_bind(bind);
    bind->is_bounded = bind->is_replayable = false;
    return is_good;
}

static const struct source_kind rows_kind = {
    .name = "rows", .options = toy_source_options, .size = sizeof(struct toy_source), .bind = rows_bind};
static const struct source_kind live_kind = {
    .name = "live", .options = toy_source_options, .size = sizeof(struct toy_source), .bind = live_bind};
struct toy_file {
    struct str path;
};
static const struct option toy_file_options[] = {
    OPTION_TEXT(struct toy_file, path, "path", OPTION_RUNTIME, "\"\"", "nothing"),
    OPTIONS_END,
};
static const struct source_kind file_source = {
    .name = "file", .options = toy_file_options, .size = sizeof(struct toy_file), .bind = rows_bind};
static const struct sink_kind out_kind = {.name = "out"};
static const struct sink_kind null_kind = {.name = "null"};
static const struct sink_kind file_sink = {
    .name = "file", .options = toy_file_options, .size = sizeof(struct toy_file)};

struct toy {
    struct columns by;
    struct name_ref from;
    struct columns streams;
    struct assignments items;
    int64_t hold_us;
    struct str note;
    struct expressions inputs;
    struct expression label;
};

static const struct option toy_options[] = {
    OPTION_COLUMNS(struct toy, by, "by", 0, "key"),
    OPTION_STREAM(struct toy, from, "from", 0, "the other stream"),
    OPTION_DURATION(struct toy, hold_us, "hold", 0, "0s", "0s", "1d", "holds rows back"),
    OPTION_TEXT(struct toy, note, "note", OPTION_RUNTIME, "\"\"", "reaches no state"),
    OPTIONS_END,
};
static const struct option toy_merge_options[] = {
    OPTION_STREAMS(struct toy, streams, "streams", OPTION_POSITIONAL, "the other streams"),
    OPTIONS_END,
};
static const struct option toy_with_options[] = {
    OPTION_ASSIGNMENTS(struct toy, items, "items", OPTION_POSITIONAL, "new columns"),
    OPTIONS_END,
};

static bool pass_bind(struct operator_bind *bind)
{
    bind->outputs[0] = bind->inputs[0].schema;
    return true;
}

static bool with_bind(struct operator_bind *bind)
{
    struct toy *toy = bind->config;
    struct schema *schema = operator_extend(bind, toy->items.count);
    for (uint32_t i = 0; i < toy->items.count; i++)
        schema_add(schema, toy->items.items[i].name, type_of(TYPE_INT));
    bind->outputs[0] = schema;
    return true;
}

static bool set_keys(struct operator_bind *bind, uint32_t input)
{
    struct toy *toy = bind->config;
    bind->inputs[input].key_columns = arena_array(bind->arena, int, toy->by.count);
    for (uint32_t i = 0; i < toy->by.count; i++) {
        if (!column_resolve(&toy->by.items[i], bind->inputs[input].schema, bind->arena, bind->diags))
            return false;
        bind->inputs[input].key_columns[i] = toy->by.items[i].index;
    }
    bind->inputs[input].key_count = toy->by.count;
    return true;
}

static bool keyed_bind(struct operator_bind *bind)
{
    bind->outputs[0] = bind->inputs[0].schema;
    bind->hold_us = ((struct toy *)bind->config)->hold_us;
    bind->needs_memory = true;
    bool is_good = true;
    for (uint32_t i = 0; i < bind->inputs_count; i++)
        is_good &= set_keys(bind, i);
    return is_good;
}

static bool aggregate_bind(struct operator_bind *bind)
{
    struct toy *toy = bind->config;
    if (!keyed_bind(bind))
        return false;
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, toy->by.count + 1);
    for (uint32_t i = 0; i < toy->by.count; i++)
        schema_add(schema, toy->by.items[i].name, type_of(TYPE_INT));
    schema_add(schema, STR("n"), type_of(TYPE_INT));
    bind->outputs[0] = schema;
    bind->outputs[1] = bind->inputs[0].schema;
    return true;
}

static bool guess_bind(struct operator_bind *bind)
{
    struct toy *toy = bind->config;
    bind->learner->labels[0] = bind->add_column(bind, 0, toy->label.ast);
    bind->learner->labels_count = 1;
    bind->learner->label_spans[0] = toy->label.ast->span;
    for (uint32_t i = 0; i < toy->inputs.count; i++) {
        bind->learner->features[i] = bind->add_column(bind, 0, toy->inputs.items[i]);
        if (bind->learner->features[i] < 0)
            return false;
        bind->learner->spans[i] = toy->inputs.items[i]->span;
        bind->learner->count++;
    }
    struct schema *schema = schema_copy(bind->arena, bind->inputs[0].schema, 1);
    schema->count = bind->base_columns;
    schema_add(schema, STR("prediction"), type_of(TYPE_FLOAT));
    bind->outputs[0] = schema;
    bind->outputs[1] = schema;
    return bind->learner->labels[0] >= 0;
}

#define TOY(n, o, d, k, max, b)                                                                              \
    {                                                                                                        \
        .name = n, .options = o, .size = sizeof(struct toy), .determinism = d, .keeps_columns = k,           \
        .inputs_min = 1, .inputs_max = max, .bind = b                                                        \
    }
static const struct operator_kind operators[] = {
    TOY("pass", NULL, DETERMINISM_BY_ROW, true, 1, pass_bind),
    TOY("rewrite", NULL, DETERMINISM_BY_ROW, false, 1, pass_bind),
    TOY("with", toy_with_options, DETERMINISM_BY_ROW, true, 1, with_bind),
    TOY("keyed", toy_options, DETERMINISM_BY_RECORD_ORDER, true, 2, keyed_bind),
    TOY("aggregate", toy_options, DETERMINISM_BY_RECORD_ORDER, false, 2, aggregate_bind),
    TOY("merge", toy_merge_options, DETERMINISM_BY_ROW, false, OPERATOR_INPUTS_MAX, pass_bind),
    TOY("number_all", NULL, DETERMINISM_BY_ALL_ROWS, true, 1, pass_bind),
};
static const struct option guess_options[] = {
    OPTION_EXPRESSION(struct toy, label, "label", OPTION_REQUIRED, "what is guessed"),
    OPTION_EXPRESSIONS(struct toy, inputs, "inputs", OPTION_REQUIRED, "what it is guessed from"),
    OPTIONS_END,
};
static const struct operator_kind guess =
    TOY("guess", guess_options, DETERMINISM_BY_ALL_ROWS, false, 1, guess_bind);

static const struct operator_kind *const operator_list[] = {&operators[0], &operators[1], &operators[2],
                                                            &operators[3], &operators[4], &operators[5],
                                                            &operators[6], NULL};
static const struct operator_kind *const learner_list[] = {&guess, NULL};
static const struct source_kind *const source_list[] = {&rows_kind, &live_kind, &file_source, NULL};
static const struct sink_kind *const sink_list[] = {&out_kind, &null_kind, &file_sink, NULL};
static const struct format_kind *const format_list[] = {NULL};
static const struct function_help function_list[] = {{.name = NULL}};

const struct registry toy_registry = {.operators = operator_list,
                                      .learners = learner_list,
                                      .sources = source_list,
                                      .sinks = sink_list,
                                      .formats = format_list,
                                      .functions = function_list};

void toy_plan_with(struct toy_job *toy, const char *text, struct plan_options options)
{
    *toy = (struct toy_job){0};
    diag_list_init(&toy->diags, &toy->arena);
    toy->job = lang_parse(&toy->arena, &toy->diags, options.registry, str_from(text));
    bool is_expanded = lang_expand(toy->job, &toy->arena, &toy->diags, NULL);
    options.claims = claims_new(&toy->arena);
    toy->plan = plan_make(toy->job, &options, &toy->arena, &toy->diags);
    if (!is_expanded)
        toy->plan = NULL;
}

void toy_plan(struct toy_job *toy, const struct registry *registry, const char *text)
{
    toy_plan_with(toy, text, (struct plan_options){.registry = registry});
}

void toy_free(struct toy_job *toy)
{
    arena_free(&toy->arena);
}

const char *toy_codes(struct toy_job *toy)
{
    const char *codes = "";
    for (unsigned i = 0; i < toy->diags.count; i++)
        if (toy->diags.items[i].severity == DIAG_ERROR)
            codes = arena_printf(&toy->arena, "%s%s ", codes, diag_code_name(toy->diags.items[i].code));
    return codes;
}

static const char *kind_name(const struct plan_node *node)
{
    return node->tag == PLAN_SOURCE ? node->source_kind->name
           : node->tag == PLAN_SINK ? node->sink_kind->name
                                    : node->operator_kind->name;
}

const char *toy_shape(struct toy_job *toy)
{
    static const char *const tags[] = {
        [STAGE_SOURCES] = "sources", [STAGE_KEYED] = "keyed", [STAGE_SINGLE] = "single"};
    static const char *const modes[] = {
        [EXCHANGE_HASH] = "hash", [EXCHANGE_FORWARD] = "forward", [EXCHANGE_SINGLE] = "single"};
    const struct plan *plan = toy->plan;
    if (plan == NULL)
        return toy_codes(toy);
    struct byte_buffer out = {0};
    for (uint32_t i = 0; i < plan->stages_count; i++) {
        buffer_printf(&out, "%u %s:", i, tags[plan->stages[i].tag]);
        for (uint32_t k = 0; k < plan->stages[i].nodes_count; k++) {
            const struct plan_node *node = &plan->nodes[plan->stages[i].nodes[k]];
            buffer_printf(&out, " %.*s.%s", STR_ARGS(node->name), kind_name(node));
        }
        buffer_printf(&out, "\n");
    }
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        const struct plan_exchange *x = &plan->exchanges[i];
        const struct plan_node *to = &plan->nodes[x->to_node];
        buffer_printf(&out, "%u -> %u %.*s/%u %s", x->from_stage, x->to_stage, STR_ARGS(to->name),
                      x->to_input, modes[x->mode]);
        for (uint32_t k = 0; k < x->key_count; k++)
            buffer_printf(&out, " %.*s",
                          STR_ARGS(to->bound[x->to_input].schema->fields[x->key_columns[k]].name));
        buffer_printf(&out, "\n");
    }
    const char *text = arena_strndup(&toy->arena, out.data, out.length);
    buffer_free(&out);
    return text;
}

static void random_stream(struct test_random *random, uint32_t streams, char name[8])
{
    if (streams > 0 && random_chance(random, 70))
        snprintf(name, 8, "s%u", random_below(random, streams) % 100);
    else
        snprintf(name, 8, "%s", random_chance(random, 50) ? "a" : "b");
}

void toy_random_job(struct test_random *random, struct byte_buffer *job)
{
    static const char *const steps[] = {"pass",
                                        "rewrite",
                                        "keyed by user",
                                        "keyed by item",
                                        "merge %s",
                                        "keyed by user, item",
                                        "keyed from %s by user",
                                        "keyed from %s by item",
                                        "number_all"};
    buffer_printf(job, "source a = rows { event_time: ts }\nsource b = rows { event_time: ts }\n");
    uint32_t streams = 1 + random_below(random, 6);
    for (uint32_t s = 0; s < streams; s++) {
        char input[8], other[8];
        random_stream(random, s, input);
        random_stream(random, s, other);
        buffer_printf(job, "stream s%u = %s", s, input);
        if (random_chance(random, 30))
            buffer_printf(job, " | with x%u = 1", s);
        for (uint32_t k = random_below(random, 4); k-- > 0;) {
            const char *step = steps[random_below(random, ARRAY_COUNT(steps))];
            const char *hole = strstr(step, "%s");
            int before = hole == NULL ? (int)strlen(step) : (int)(hole - step);
            buffer_printf(job, " | %.*s%s%s", before, step, hole == NULL ? "" : other,
                          hole == NULL ? "" : hole + 2);
        }
        buffer_printf(job, "\nsink o%u = out from s%u\n", s, s);
    }
    buffer_printf(job, "sink dead = out from dead_letters\n");
    buffer_append(job, "", 1);
}
