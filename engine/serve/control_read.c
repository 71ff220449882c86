/* JSON bodies of requests to load, to unload, and for the repository index:
 *
 *     {"parameters":{"unload_dependents":false}}      {"ready":true} */
#include "serve/control.h"

#include "serve/infer_model.h"

#include <jansson.h>

/* The object of a body, which the caller frees; NULL: the body is empty, or *why says what is wrong with it. */
static json_t *read_object(struct str body, const char **why, struct arena *arena)
{
    json_error_t error;
    *why = NULL;
    if (body.length == 0)
        return NULL;
    json_t *root = json_loadb(body.data, body.length, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(root))
        return root;
    *why = root != NULL ? "the body is not a JSON object: `{` was expected"
                        : arena_printf(arena, "the body is not valid JSON at byte %d: %s", error.position,
                                       infer_shown(str_from(error.text), arena));
    json_decref(root);
    return NULL;
}

const char *control_read_json(struct str body, struct control_ask *ask, struct arena *arena)
{
    const char *why, *name;
    json_t *root = read_object(body, &why, arena), *parameters = json_object_get(root, "parameters"), *value;
    if (parameters != NULL && !json_is_object(parameters) && !json_is_null(parameters))
        why = "`parameters` is not an object";
    json_object_foreach(parameters, name,
                        value) if (ask->refused.data == NULL && !control_takes(ask->is_load, str_from(name)))
        ask->refused = str_from(arena_strdup(arena, name));
    json_decref(root);
    return why;
}

const char *control_read_index(struct str body, bool *only_ready, struct arena *arena)
{
    const char *why;
    json_t *root = read_object(body, &why, arena);
    const json_t *ready = json_object_get(root, "ready");
    *only_ready = json_is_true(ready);
    if (ready != NULL && !json_is_boolean(ready))
        why = "`ready` is neither true nor false";
    json_decref(root);
    return why;
}
