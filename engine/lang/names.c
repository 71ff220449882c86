/* Reports names that are declared twice, or that the language has already taken. */
#include "lang/internal.h"

#include <stdlib.h>

enum name_set { NAME_COMMON, NAME_SINK, NAME_SERVE };

struct declared {
    struct str text;
    struct span span;
    enum name_set set;
    const char *what;
};

struct name_list {
    struct arena *arena;
    struct declared *items;
    uint32_t count;
};

static void add(struct name_list *list, const struct lang_name *name, enum name_set set, const char *what)
{
    list->items = lang_grow(list->arena, list->items, list->count, sizeof(*list->items));
    list->items[list->count++] = (struct declared){name->text, name->span, set, what};
}

static int compare(const void *left, const void *right)
{
    const struct declared *a = left, *b = right;
    if (a->set != b->set)
        return a->set < b->set ? -1 : 1;
    int order = str_compare(a->text, b->text);
    return order != 0 ? order : a->span.begin < b->span.begin ? -1 : a->span.begin > b->span.begin;
}

static void report_repeated(struct name_list *list, struct diag_list *diags)
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof(*list->items), compare);
    const struct declared *first = NULL;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct declared *item = &list->items[i];
        if (first == NULL || first->set != item->set || !str_equal(first->text, item->text)) {
            first = item;
            continue;
        }
        struct diag *d = diag_error(diags, DIAG_NAME_TAKEN, item->span, "the name `%.*s` is already taken",
                                    STR_ARGS(item->text));
        diag_label(diags, d, first->span, "by this %s", first->what);
    }
}

static void report_taken(const struct name_list *list, struct diag_list *diags)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].set == NAME_COMMON && str_is(list->items[i].text, "dead_letters")) {
            struct diag *d = diag_error(diags, DIAG_NAME_TAKEN, list->items[i].span,
                                        "the name `dead_letters` is already taken");
            diag_hint(diags, d, "`dead_letters` is the stream of records that could not be used");
        }
}

/* In an expression a type and a parameter look the same, so a parameter must not be named like a type. */
static void check_param(const struct param_decl *param, struct diag_list *diags)
{
    static const char *const types[] = {"bool", "int", "float", "text", "bytes", "time", "list"};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (str_is(param->name.text, types[i]))
            diag_error(diags, DIAG_NAME_TAKEN, param->name.span, "`%s` is the name of a type", types[i]);
}

static void check_let(const struct let_decl *let, const struct registry *registry, struct arena *arena,
                      struct diag_list *diags)
{
    bool is_taken = str_is(let->name.text, "env") || str_is(let->name.text, "file");
    const struct function_help *function = registry->functions;
    for (; function != NULL && function->name != NULL && !is_taken; function++)
        is_taken = str_is(let->name.text, function->name);
    if (is_taken)
        diag_error(diags, DIAG_NAME_TAKEN, let->name.span, "there is a built-in function `%.*s` already",
                   STR_ARGS(let->name.text));
    struct name_list list = {.arena = arena};
    for (uint32_t i = 0; i < let->count; i++)
        add(&list, &let->parameters[i], NAME_COMMON, "argument");
    report_repeated(&list, diags);
}

void lang_check_names(struct job_file *job, const struct registry *registry, struct arena *arena,
                      struct diag_list *diags)
{
    struct name_list list = {.arena = arena};
    for (uint32_t i = 0; i < job->params_count; i++)
        add(&list, &job->params[i].name, NAME_COMMON, "parameter");
    for (uint32_t i = 0; i < job->lets_count; i++)
        add(&list, &job->lets[i].name, NAME_COMMON, "function");
    for (uint32_t i = 0; i < job->sources_count; i++)
        add(&list, &job->sources[i].name, NAME_COMMON, "source");
    for (uint32_t i = 0; i < job->streams_count; i++)
        add(&list, &job->streams[i].name, NAME_COMMON, "stream");
    for (uint32_t i = 0; i < job->learners_count; i++)
        add(&list, &job->learners[i].name, NAME_COMMON, "learner");
    for (uint32_t i = 0; i < job->sinks_count; i++)
        add(&list, &job->sinks[i].name, NAME_SINK, "sink");
    for (uint32_t i = 0; i < job->serves_count; i++)
        add(&list, &job->serves[i].name, NAME_SERVE, "serve");
    report_repeated(&list, diags);
    report_taken(&list, diags);
    for (uint32_t i = 0; i < job->params_count; i++)
        check_param(&job->params[i], diags);
    for (uint32_t i = 0; i < job->lets_count; i++)
        check_let(&job->lets[i], registry, arena, diags);
}
