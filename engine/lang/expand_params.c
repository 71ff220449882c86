/* Values of parameters: from --set, else from the default. */
#include "core/utf8.h"
#include "lang/internal.h"

static const struct lang_setting *find_setting(const struct expander *expander, struct str name)
{
    const struct lang_settings *settings = expander->settings;
    for (uint32_t i = settings == NULL ? 0 : settings->count; i > 0; i--)
        if (str_equal(settings->items[i - 1].name, name))
            return &settings->items[i - 1];
    return NULL;
}

static const char *example(enum param_type type)
{
    static const char *const examples[] = {"42",   "0.5", "true or false", "any text", "10s, 2h or 30d",
                                           "64MiB"};
    return examples[type];
}

static struct ast *value_from_setting(struct expander *expander, const struct param_decl *param,
                                      const struct lang_setting *setting)
{
    struct ast *value = NULL;
    bool is_utf8 = utf8_is_valid(setting->value);
    if (is_utf8)
        value = lang_literal(expander->arena, param->type, setting->value, param->name.span);
    if (value != NULL)
        return value;
    const char *type = lang_param_type_name(param->type);
    struct diag *d;
    if (is_utf8)
        d = diag_error(expander->diags, DIAG_PARAMETER_TYPE, param->name.span,
                       "`--set %.*s=%.*s` is not of type %s", STR_ARGS(setting->name),
                       (int)MIN(setting->value.length, 100), setting->value.data, type);
    else
        d = diag_error(expander->diags, DIAG_PARAMETER_TYPE, param->name.span,
                       "`--set %.*s=...` is not valid UTF-8", STR_ARGS(setting->name));
    diag_hint(expander->diags, d, "values of type %s are written %s", type, example(param->type));
    return NULL;
}

/* The default value as a literal of the parameter's type, or NULL if it is not one. */
static struct ast *fit(struct expander *expander, enum param_type type, struct ast *value)
{
    static const enum ast_tag tags[] = {AST_INT, AST_FLOAT, AST_BOOL, AST_TEXT, AST_DURATION, AST_SIZE};
    if (value->tag == tags[type])
        return value;
    struct ast *fitted = NULL;
    if (value->tag == AST_TEXT && value->origin.length > 0)
        fitted = lang_literal(expander->arena, type, value->text, value->span);
    bool is_plain_zero =
        value->tag == AST_INT && value->integer == 0 && (type == PARAM_DURATION || type == PARAM_BYTES);
    if (is_plain_zero || (value->tag == AST_INT && type == PARAM_FLOAT)) {
        fitted = lang_node(expander->arena, tags[type], value->span);
        if (type == PARAM_FLOAT)
            fitted->real = (double)value->integer;
    }
    if (fitted != NULL)
        fitted->origin = value->origin;
    return fitted;
}

static struct ast *value_from_default(struct expander *expander, const struct param_decl *param)
{
    if (param->value == NULL) {
        struct diag *d = diag_error(expander->diags, DIAG_PARAMETER_TYPE, param->name.span,
                                    "parameter `%.*s` has no value", STR_ARGS(param->name.text));
        diag_hint(expander->diags, d, "set it with `--set %.*s=...` (%s), or declare a default",
                  STR_ARGS(param->name.text), example(param->type));
        return NULL;
    }
    expander->params_end = param;
    struct ast *value = expand_ast(expander, param->value, NULL);
    expander->params_end = NULL;
    if (value == NULL)
        return NULL;
    value = lang_fold(expander->arena, value);
    struct ast *fitted = fit(expander, param->type, value);
    if (fitted != NULL)
        return fitted;
    const char *reason = lang_fold_failure(value);
    if (reason != NULL) {
        diag_error(expander->diags, DIAG_NO_RESULT, value->span, "this cannot be computed: %s", reason);
        return NULL;
    }
    struct diag *d = diag_error(expander->diags, DIAG_PARAMETER_TYPE, value->span,
                                "the default of `%.*s` is not a constant of type %s",
                                STR_ARGS(param->name.text), lang_param_type_name(param->type));
    diag_hint(expander->diags, d, "values of type %s are written %s", lang_param_type_name(param->type),
              param->type == PARAM_TEXT ? "\"...\"" : example(param->type));
    return NULL;
}

static void report_unknown_settings(struct expander *expander)
{
    const struct job_file *job = expander->job;
    const struct lang_settings *settings = expander->settings;
    for (uint32_t i = 0; settings != NULL && i < settings->count; i++) {
        struct str name = settings->items[i].name;
        if (expand_find_param(expander, name) != NULL)
            continue;
        struct diag *d =
            diag_error(expander->diags, DIAG_NO_PARAMETER, (struct span){0, 0},
                       "`--set %.*s`: the job has no such parameter", (int)MIN(name.length, 100), name.data);
        const char *near = expand_nearest_param(expander, name);
        if (near != NULL)
            diag_hint(expander->diags, d, "did you mean `%s`?", near);
        else if (job->params_count == 0)
            diag_hint(expander->diags, d, "declare the parameter: `param %.*s: int = 0`",
                      (int)MIN(name.length, 100), name.data);
    }
}

void expand_params(struct expander *expander)
{
    struct job_file *job = expander->job;
    for (uint32_t i = 0; i < job->params_count; i++) {
        struct param_decl *param = &job->params[i];
        const struct lang_setting *setting = find_setting(expander, param->name.text);
        if (setting == NULL && param->is_broken)
            continue;
        struct ast *value = setting != NULL ? value_from_setting(expander, param, setting)
                                            : value_from_default(expander, param);
        param->is_set = setting != NULL;
        param->is_broken = value == NULL;
        if (value != NULL)
            param->value = value;
    }
    report_unknown_settings(expander);
}
