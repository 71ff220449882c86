/* GET /api/v1/openapi.json: the API as an OpenAPI document, made from the table of routes. Answers that the connections
 * give before a route is found (engine/net/rules.c, http1.c) are said once and belong to every route. */
#include "control/api_internal.h"

#include <jansson.h>
#include <stdlib.h>

static const struct {
    int status;
    const char *about;
    bool is_everywhere; /* the connections give it, or the table of routes */
} statuses[] = {
    {200, "The answer.", false},
    {202, "The run was told, and does it.", false},
    {204, "There is nothing.", false},
    {304, "The client has it already.", false},
    {400, "The request breaks the rules of HTTP, or a parameter is wrong.", true},
    {401, "A token is missing, or wrong.", true},
    {403, "The request comes from a page of another origin, or the run cannot be told what to do.", true},
    {404, "There is no such thing; the text says which there are.", true},
    {405, "The route has another method.", true},
    {408, "The request did not come in time.", true},
    {409, "There is such a thing already.", false},
    {413, "The body is too long.", true},
    {414, "The path is too long.", true},
    {417, "What the client expects cannot be met.", true},
    {421, "This server listens on loopback, and is not called by one of its names.", true},
    {429, "Too much is asked for; retry-after says when to ask again.", false},
    {431, "The head is too long.", true},
    {500, "The answer could not be made: this is a bug in leat.", false},
    {501, "The method is not known.", true},
    {503, "The run is being restored, or the server has no room; ask again.", true},
    {505, "The version of HTTP is not known.", true},
};

/* Whether a status is in the words of a route: "200 404". */
static bool is_listed(const char *words, int status)
{
    for (char *end = NULL; *words != '\0'; words = end) {
        long one = strtol(words, &end, 10);
        leat_assert(end != words);
        if (one == status)
            return true;
    }
    return false;
}

/* Of server-sent events a document of version 3.0 cannot say what each has: the schema is empty. */
static json_t *content_json(const char *type)
{
    json_t *schema =
        strcmp(type, "text/event-stream") == 0
            ? json_object()
            : json_pack("{s:s}", "type", strcmp(type, "application/json") == 0 ? "object" : "string");
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *responses_json(const struct api_route *route)
{
    const char *words = route->statuses == NULL ? "200" : route->statuses;
    const char *type = route->type == NULL ? "application/json" : route->type;
    int first = atoi(words);
    json_t *json = json_object();
    for (size_t i = 0; i < ARRAY_COUNT(statuses); i++) {
        char name[8];
        int status = statuses[i].status;
        if (!statuses[i].is_everywhere && !is_listed(words, status))
            continue;
        json_t *one = json_pack("{s:s}", "description", statuses[i].about);
        if (status == first && status != 204)
            json_object_set_new(one, "content", content_json(type));
        else if (status >= 400)
            json_object_set_new(one, "content", content_json("text/plain"));
        snprintf(name, sizeof(name), "%d", status);
        json_object_set_new(json, name, one);
    }
    return json;
}

static json_t *parameter_json(const char *name, const char *about, bool is_path)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:{s:s}}", "name", name, "in", is_path ? "path" : "query",
                     "description", about, "required", is_path, "schema", "type", "string");
}

static json_t *operation_json(const struct api_route *route, bool has_rest)
{
    json_t *parameters = json_array();
    if (has_rest)
        json_array_append_new(parameters, parameter_json("rest", "the rest of the path", true));
    for (const struct api_parameter *p = route->parameters; p != NULL && p->name != NULL; p++)
        json_array_append_new(parameters, parameter_json(p->name, p->about, false));
    /* Reading is open unless the listener has a token; acting never is. */
    bool is_acting = strcmp(route->method, "GET") != 0;
    json_t *security = is_acting ? json_pack("[{s:[]}]", "token") : json_pack("[{}, {s:[]}]", "token");
    return json_pack("{s:s, s:o, s:o, s:o}", "summary", route->summary == NULL ? "" : route->summary,
                     "parameters", parameters, "security", security, "responses", responses_json(route));
}

static json_t *paths_json(void)
{
    json_t *paths = json_object();
    for (size_t i = 0; i < api_routes_count; i++) {
        const struct api_route *route = &api_routes[i];
        char path[128], method[8] = "";
        size_t length = strlen(route->path);
        bool has_rest = route->path[length - 1] == '*';
        snprintf(path, sizeof(path), "%.*s%s", (int)(length - has_rest), route->path,
                 has_rest ? "{rest}" : "");
        for (size_t k = 0; route->method[k] != '\0' && k + 1 < sizeof(method); k++)
            method[k] = (char)(route->method[k] | 0x20);
        json_t *methods = json_object_get(paths, path);
        if (methods == NULL) {
            methods = json_object();
            json_object_set_new(paths, path, methods);
        }
        json_object_set_new(methods, method, operation_json(route, has_rest));
    }
    return paths;
}

void api_openapi_serve(struct api *api LEAT_UNUSED, struct net_exchange *exchange)
{
    json_t *root =
        json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:{s:{s:{s:s, s:s}}}}", "openapi", "3.0.3", "info", "title",
                  "The control API of leat run", "version", LEAT_VERSION, "description",
                  "What a run does now, and what it is told to do.", "paths", paths_json(), "components",
                  "securitySchemes", "token", "type", "http", "scheme", "bearer");
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    leat_assert(text != NULL);
    struct byte_buffer out = {text, strlen(text), 0};
    api_answer(exchange, 200, STR("application/json"), &out);
    free(text);
    json_decref(root);
}
