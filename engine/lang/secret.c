/* env("NAME"[, "default"]) and file("path"): values that the job names but does not contain. The result is a
 * text with `origin` set; only the origin is ever shown. */
#include "core/os.h"
#include "core/utf8.h"
#include "lang/internal.h"

#include <errno.h>
#include <stdlib.h>

bool expand_is_secret(const struct ast *call)
{
    return call->tag == AST_CALL && (str_is(call->text, "env") || str_is(call->text, "file"));
}

static struct ast *secret_text(struct expander *expander, struct str value, const struct ast *call,
                               struct span span)
{
    struct ast shown = *call;
    shown.count = 1; /* without the default */
    struct ast *node = lang_node(expander->arena, AST_TEXT, span);
    node->text = arena_str(expander->arena, value);
    node->origin = str_from(ast_text(expander->arena, &shown));
    return node;
}

/* Reports a value that cannot be used, without showing the value. */
static struct ast *refused(struct expander *expander, const struct ast *call, struct span span,
                           const char *why)
{
    diag_error(
        expander->diags, DIAG_VALUE_MISSING, span, "the value of %s %s",
        ast_text(expander->arena,
                 &(struct ast){.tag = AST_CALL, .text = call->text, .count = 1, .children = call->children}),
        why);
    return NULL;
}

static struct ast *checked(struct expander *expander, struct str value, const struct ast *call,
                           struct span span)
{
    if (value.length > LANG_SECRET_BYTES_MAX)
        return refused(expander, call, span, "is longer than 64 KiB");
    if (!utf8_is_valid(value))
        return refused(expander, call, span, "is not valid UTF-8");
    return secret_text(expander, value, call, span);
}

static struct ast *read_env(struct expander *expander, const struct ast *call, struct span span)
{
    const struct lang_settings *settings = expander->settings;
    const char *name =
        arena_strndup(expander->arena, call->children[0]->text.data, call->children[0]->text.length);
    const char *value = settings != NULL && settings->get_env != NULL
                            ? settings->get_env(settings->argument, name)
                            : getenv(name);
    if (value != NULL)
        return checked(expander, str_from(value), call, span);
    if (call->count == 2)
        return secret_text(expander, call->children[1]->text, call, span);
    if (settings != NULL && settings->unset != NULL)
        return secret_text(expander, str_from(settings->unset), call, span);
    struct diag *d = diag_error(expander->diags, DIAG_VALUE_MISSING, span,
                                "the environment variable `%s` is not set", name);
    diag_hint(expander->diags, d, "set it before leat is started, or give a default: env(\"%s\", \"...\")",
              name);
    return NULL;
}

static struct ast *read_file(struct expander *expander, const struct ast *call, struct span span)
{
    const struct lang_settings *settings = expander->settings;
    const char *path =
        arena_strndup(expander->arena, call->children[0]->text.data, call->children[0]->text.length);
    char *data = NULL;
    size_t bytes = 0;
    int error = settings != NULL && settings->read_file != NULL
                    ? settings->read_file(settings->argument, path, LANG_SECRET_BYTES_MAX, &data, &bytes)
                    : os_read_file(path, LANG_SECRET_BYTES_MAX, &data, &bytes);
    if (error != 0) {
        struct diag *d =
            diag_error(expander->diags, DIAG_VALUE_MISSING, span, "cannot read the file `%s`", path);
        diag_errno(expander->diags, d, error);
        if (error == EFBIG)
            diag_hint(expander->diags, d, "a value from a file may have at most 64 KiB");
        return NULL;
    }
    /* Editors and `echo` end a file with a newline, which is not part of the secret. */
    if (bytes > 0 && data[bytes - 1] == '\n')
        bytes--;
    if (bytes > 0 && data[bytes - 1] == '\r')
        bytes--;
    struct ast *node = checked(expander, (struct str){data, bytes}, call, span);
    if (data != NULL)
        explicit_bzero(data, bytes);
    free(data);
    return node;
}

struct ast *expand_secret(struct expander *expander, const struct ast *call, struct span span)
{
    bool is_env = str_is(call->text, "env");
    bool is_good = call->count >= 1 && call->count <= (is_env ? 2u : 1u);
    for (uint32_t i = 0; i < call->count && is_good; i++)
        is_good = call->children[i]->tag == AST_TEXT && call->children[i]->origin.length == 0;
    struct str name = is_good ? call->children[0]->text : STR("");
    is_good = is_good && name.length > 0 && memchr(name.data, '\0', name.length) == NULL &&
              (!is_env || memchr(name.data, '=', name.length) == NULL);
    if (!is_good) {
        struct diag *d =
            diag_error(expander->diags, DIAG_BAD_ARGUMENTS, span, "`%.*s` takes %s", STR_ARGS(call->text),
                       is_env ? "the name of an environment variable and optionally a default, both texts"
                              : "a path, as a text");
        diag_hint(expander->diags, d,
                  is_env ? "env(\"KAFKA_BROKERS\", \"localhost:9092\")" : "file(\"/run/secrets/password\")");
        return NULL;
    }
    return is_env ? read_env(expander, call, span) : read_file(expander, call, span);
}
