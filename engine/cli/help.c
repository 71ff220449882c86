/* Collects the entries of the reference. */
#include "cli/help.h"

#include "learners/learner/optimizer_options.h"
#include "learners/losses/options.h"
#include "plan/plan.h"

const struct help_group_text help_groups[] = {
    [HELP_SOURCES] = {"sources", "source", "where events come from"},
    [HELP_FORMATS] = {"formats", "format", "how records are written as bytes"},
    [HELP_OPERATORS] = {"operators", "operator", "the steps of a stream"},
    [HELP_FUNCTIONS] = {"functions", "function", "what expressions can call"},
    [HELP_WINDOWS] = {"windows", "window", "operators over spans of time, and their aggregates"},
    [HELP_LEARNERS] = {"learners", "learner", "models that learn as events arrive"},
    [HELP_OPTIMIZERS] = {"optimizers", "optimizer", "how a learner's weights are updated"},
    [HELP_LOSSES] = {"losses", "loss", "what a learner that chooses items makes small"},
    [HELP_SINKS] = {"sinks", "sink", "where rows go"},
    [HELP_JOB] = {"job", "job", "the options of the whole job, and its stream of dead letters"},
};

static struct help_entry *add(struct help *help, enum help_group group, const char *name, const char *summary)
{
    struct help_entry *entry = &help->entries[help->count++];
    *entry = (struct help_entry){.group = group, .name = name, .summary = summary, .anchor = name};
    return entry;
}

static uint32_t count_pointers(const void *const *list)
{
    uint32_t count = 0;
    while (list[count] != NULL)
        count++;
    return count;
}

/* --- Usage of an operator --- */

static const char *placeholder(const struct option_row *option, struct arena *arena)
{
    static const char *const words[] = {
        [OPTION_BOOL_T] = "true|false",
        [OPTION_INT_T] = "INT",
        [OPTION_FLOAT_T] = "FLOAT",
        [OPTION_TEXT_T] = "TEXT",
        [OPTION_TEXTS_T] = "TEXT, ...",
        [OPTION_DURATION_T] = "DURATION",
        [OPTION_DURATIONS_T] = "DURATION, ...",
        [OPTION_BYTES_T] = "SIZE",
        [OPTION_INTS_T] = "INT, ...",
        [OPTION_COLUMN_T] = "COLUMN",
        [OPTION_COLUMNS_T] = "COLUMN, ...",
        [OPTION_EXPRESSION_T] = "EXPRESSION",
        [OPTION_EXPRESSIONS_T] = "EXPRESSION, ...",
        [OPTION_ASSIGNMENTS_T] = "NAME = EXPRESSION, ...",
        [OPTION_NAME_T] = "NAME",
        [OPTION_STREAM_T] = "STREAM",
        [OPTION_STREAMS_T] = "STREAM, ...",
        [OPTION_SCHEMA_T] = "{ COLUMN: TYPE, ... }",
        [OPTION_BLOCK_T] = "{ ... }",
    };
    if (option->type == OPTION_ENUM_T)
        return option->choices;
    if ((option->flags & OPTION_FOREVER) != 0)
        return option->type == OPTION_DURATIONS_T ? "DURATION|forever, ..." : "DURATION|forever";
    if (option->type != OPTION_KIND_T)
        return words[option->type];
    const char *text = "";
    for (const struct kind_choice *k = option->kinds; k->name != NULL; k++)
        text = arena_printf(arena, "%s%s%s", text, k == option->kinds ? "" : "|", k->name);
    return text;
}

/* The usage line: "STREAM | name VALUE word VALUE [word VALUE] { ... }". */
static const char *operator_usage(const struct operator_kind *kind, struct arena *arena)
{
    const char *text = arena_printf(arena, "STREAM | %s", kind->name);
    static const unsigned order[] = {OPTION_POSITIONAL, 0, OPTION_BODY};
    for (size_t pass = 0; pass < ARRAY_COUNT(order); pass++)
        for (struct option_walk w = option_walk(kind->options); option_next(&w);) {
            const struct option_row *o = &w.row;
            if ((o->flags & (OPTION_POSITIONAL | OPTION_BODY)) != order[pass])
                continue;
            bool is_named = order[pass] == 0, is_required = (o->flags & OPTION_REQUIRED) != 0;
            bool is_body = order[pass] == OPTION_BODY;
            text = arena_printf(arena, "%s %s%s%s%s%s", text, is_required ? "" : "[", is_named ? o->name : "",
                                is_named ? " " : "", is_body ? "{ NAME: ... }" : placeholder(o, arena),
                                is_required ? "" : "]");
        }
    return text;
}

/* --- Entries --- */

static bool is_window_kind(const struct operator_kind *kind)
{
    return option_find(kind->options, STR("over")).name != NULL;
}

/* A learner that chooses items is measured by lists of `metrics_at` items. */
static bool chooses_items(const struct operator_kind *learner)
{
    return option_find(learner->options, STR("metrics_at")).name != NULL;
}

static void add_operator(struct help *help, enum help_group group, const struct operator_kind *kind)
{
    struct help_entry *entry = add(help, group, kind->name, kind->summary);
    entry->details = kind->details;
    entry->example = kind->example;
    entry->options = kind->options;
    entry->is_copy = group == HELP_WINDOWS;
    if (group == HELP_LEARNERS)
        entry->note = arena_printf(
            &help->arena,
            "Its outputs: NAME.%s), NAME.scores (the same of the stream of `score`), and NAME.metrics, for sinks "
            "alone.",
            chooses_items(kind) ? "top (the input's columns, `rank` and `top`"
                                : "predictions (the input's columns and `prediction`");
    else
        entry->usage = operator_usage(kind, &help->arena);
    if (group == HELP_LEARNERS)
        return;
    const char *requests = kind->read == NULL              ? "No request (`serve`) passes this step."
                           : kind->makes_label             ? "A request (`serve`) passes without a label."
                           : kind->reading == READING_PASS ? "A request (`serve`) always passes."
                                                           : NULL;
    entry->note = requests;
    if (kind->uses_time)
        entry->note = arena_printf(&help->arena, "Needs event time: `event_time:` in the source.%s%s",
                                   requests == NULL ? "" : " ", requests == NULL ? "" : requests);
}

static void add_function(struct help *help, enum help_group group, const struct function_help *function)
{
    struct help_entry *entry = add(help, group, function->name, function->summary);
    entry->usage = function->signature;
    entry->example = function->example;
    entry->is_copy = group == HELP_WINDOWS;
    if (function->is_aggregate) /* a function or operator may have the same name */
        entry->anchor = arena_printf(&help->arena, "aggregate-%s", function->name);
    if (function->is_aggregate)
        entry->note = "An aggregate, for use in the { } of `feature` and `window`.";
}

/* The group of the kinds that an option of a learner chooses from; HELP_GROUPS_COUNT: they have none, and stand below the
 * option. */
static enum help_group group_of(const struct kind_choice *kinds)
{
    if (kinds == losses_choices)
        return HELP_LOSSES;
    return kinds == optimizer_kinds ? HELP_OPTIMIZERS : HELP_GROUPS_COUNT;
}

static bool has_kind(const struct help *help, enum help_group group, const struct kind_choice *kind)
{
    for (uint32_t i = 0; i < help->count; i++)
        if (help->entries[i].group == group && help->entries[i].options == kind->options &&
            strcmp(help->entries[i].name, kind->name) == 0)
            return true;
    return false;
}

/* Adds the kinds of that group that options of learners choose from, each once. */
static void add_kinds(struct help *help, enum help_group group, const struct option *table)
{
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        const struct option_row *o = &w.row;
        if (o->type == OPTION_BLOCK_T)
            add_kinds(help, group, o->block);
        for (const struct kind_choice *k = o->kinds; o->type == OPTION_KIND_T && k->name != NULL; k++) {
            if (group_of(o->kinds) != group || has_kind(help, group, k))
                continue;
            struct help_entry *entry = add(help, group, k->name, k->summary);
            entry->options = k->options;
            struct option_walk first = option_walk(k->options);
            if (option_next(&first) && first.row.default_text != NULL)
                entry->example = arena_printf(&help->arena, "%s: %s { %s: %s }", o->name, k->name,
                                              first.row.name, first.row.default_text);
        }
    }
}

static uint32_t count_kinds(const struct option *table)
{
    uint32_t count = 0;
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        const struct option_row *o = &w.row;
        if (o->type == OPTION_BLOCK_T)
            count += count_kinds(o->block);
        for (const struct kind_choice *k = o->kinds; o->type == OPTION_KIND_T && k->name != NULL; k++)
            count++;
    }
    return count;
}

static uint32_t entries_max(const struct registry *r)
{
    uint32_t count = count_pointers((const void *const *)r->sources) +
                     count_pointers((const void *const *)r->sinks) +
                     count_pointers((const void *const *)r->formats) +
                     2 * count_pointers((const void *const *)r->operators) +
                     count_pointers((const void *const *)r->learners) + 3;
    for (const struct function_help *f = r->functions; f->name != NULL; f++)
        count += 2;
    for (uint32_t i = 0; r->learners[i] != NULL; i++)
        count += count_kinds(r->learners[i]->options);
    return count;
}

static void add_connectors(struct help *help, const struct registry *r)
{
    for (uint32_t i = 0; r->sources[i] != NULL; i++) {
        const struct source_kind *kind = r->sources[i];
        struct help_entry *entry = add(help, HELP_SOURCES, kind->name, kind->summary);
        entry->details = kind->details;
        entry->example = kind->example;
        entry->options = kind->options;
        entry->common = source_options;
        entry->common_title = "options of every source";
    }
    for (uint32_t i = 0; r->formats[i] != NULL; i++) {
        const struct format_kind *kind = r->formats[i];
        struct help_entry *entry = add(help, HELP_FORMATS, kind->name, kind->summary);
        entry->details = kind->details;
        entry->example = kind->example;
        entry->note = kind->is_payload
                          ? "For payloads of known length (Kafka), not for files."
                          : arena_printf(&help->arena, "Files of this format end in %s.", kind->suffix);
    }
    for (uint32_t i = 0; r->sinks[i] != NULL; i++) {
        const struct sink_kind *kind = r->sinks[i];
        struct help_entry *entry = add(help, HELP_SINKS, kind->name, kind->summary);
        entry->details = kind->details;
        entry->example = kind->example;
        entry->options = kind->options;
    }
}

static void add_dead_letters(struct help *help)
{
    const char *columns = "";
    for (uint32_t i = 0; i < plan_dead_schema.count; i++) {
        const struct field *field = &plan_dead_schema.fields[i];
        columns = arena_printf(&help->arena, "%s%s%.*s %s", columns, i == 0 ? "" : ", ",
                               STR_ARGS(field->name), type_name(&help->arena, &field->type));
    }
    struct help_entry *dead = add(help, HELP_JOB, "dead_letters",
                                  "the stream of records and rows that could not be used, for one sink");
    dead->example = "sink dead = file from dead_letters { path: \"dead.jsonl\" }";
    dead->details = arena_printf(
        &help->arena,
        "Bad records, and rows that a step could not compute, one row each. Columns: %s. topic, partition, "
        "offset: of records from Kafka. time: the record's arrival, if its source has arrival times. raw, "
        "key, headers: of records that could not be decoded; if raw or key is not UTF-8, raw_bytes or "
        "key_bytes has the original bytes; headers as [[\"name\",\"value\"]]. `leat produce --dead-letters` "
        "sends records from topics back to the topics.",
        columns);
}

void help_collect(struct help *help, const struct registry *r)
{
    *help = (struct help){0};
    help->entries = arena_array(&help->arena, struct help_entry, entries_max(r));
    add_connectors(help, r);
    for (uint32_t i = 0; r->operators[i] != NULL; i++) {
        add_operator(help, HELP_OPERATORS, r->operators[i]);
        if (is_window_kind(r->operators[i]))
            add_operator(help, HELP_WINDOWS, r->operators[i]);
    }
    for (const struct function_help *f = r->functions; f->name != NULL; f++) {
        add_function(help, HELP_FUNCTIONS, f);
        if (f->is_aggregate)
            add_function(help, HELP_WINDOWS, f);
    }
    for (uint32_t i = 0; r->learners[i] != NULL; i++)
        add_operator(help, HELP_LEARNERS, r->learners[i]);
    for (enum help_group group = HELP_OPTIMIZERS; group <= HELP_LOSSES; group++)
        for (uint32_t i = 0; r->learners[i] != NULL; i++)
            add_kinds(help, group, r->learners[i]->options);
    struct help_entry *job = add(help, HELP_JOB, "job", "the options of the whole job");
    job->options = job_options;
    job->example = "job ctr { workers: 2, memory: 2GiB, checkpoint: { every: 10s, dir: \"state/ctr\" } }";
    struct help_entry *serve = add(help, HELP_JOB, "serve", "which stream answers requests, of which source");
    serve->usage = "serve NAME { from: STREAM, request: SOURCE }";
    serve->options = plan_serve_options(r, &help->arena);
    serve->example = "serve ctr { from: model.predictions, request: impressions }";
    serve->details =
        "`leat score` and `leat serve` answer requests: rows with the source's columns go through the steps up "
        "to the stream, read the features and the model of a checkpoint, and change nothing. `leat explain "
        "--serve` shows the way and the columns. For clients of `leat serve`, NAME is the model's name. Refused are "
        "steps that a request cannot pass, features behind a step that holds rows back, and rows that exist "
        "because of the label.";
    add_dead_letters(help);
}

void help_free(struct help *help)
{
    arena_free(&help->arena);
}

/* --- Options --- */

static void add_fact(struct arena *arena, const char **facts, const char *fact)
{
    *facts = (*facts)[0] == '\0' ? fact : arena_printf(arena, "%s; %s", *facts, fact);
}

struct help_option help_option(const struct help *help, const struct option_row *o, struct arena *arena)
{
    struct help_option said = {.name = o->name, .type = option_type_name(o), .text = o->help, .facts = ""};
    if (o->type == OPTION_BLOCK_T)
        said.nested = o->block;
    if (o->type == OPTION_KIND_T) {
        enum help_group group = group_of(o->kinds);
        said.group = has_kind(help, group, o->kinds) ? &help_groups[group] : NULL;
        said.type = said.group != NULL ? said.group->singular : placeholder(o, arena);
        said.kinds = said.group != NULL ? NULL : o->kinds;
    }
    if ((o->flags & OPTION_POSITIONAL) != 0)
        add_fact(arena, &said.facts, "follows the name directly");
    if ((o->flags & OPTION_BODY) != 0)
        add_fact(arena, &said.facts, "the { } at the end");
    if ((o->flags & OPTION_REQUIRED) != 0)
        add_fact(arena, &said.facts, "required");
    if (o->min_text != NULL && o->max_text != NULL)
        add_fact(arena, &said.facts, arena_printf(arena, "%s to %s", o->min_text, o->max_text));
    else if (o->min_text != NULL)
        add_fact(arena, &said.facts, arena_printf(arena, "%s or more", o->min_text));
    else if (o->max_text != NULL)
        add_fact(arena, &said.facts, arena_printf(arena, "at most %s", o->max_text));
    if (o->unit != NULL)
        add_fact(arena, &said.facts, arena_printf(arena, "in %s", o->unit));
    if (o->default_text != NULL)
        add_fact(arena, &said.facts, arena_printf(arena, "default %s", o->default_text));
    if ((o->flags & OPTION_SECRET) != 0)
        add_fact(arena, &said.facts, "secret: only through env(...) or file(...)");
    return said;
}
