/* An OpenAPI 3.0 document of the server's models: for each the paths of loading and unloading, or that of its inference, with the names, types and
 * meaning of its inputs. */
#include "serve/call.h"

#include "formats/json_escape.h"

static void put_quoted(struct byte_buffer *out, const char *format, struct str name)
{
    struct byte_buffer text = {0};
    buffer_printf(&text, format, STR_ARGS(name));
    json_quote(out, (struct str){text.data, text.length});
    buffer_free(&text);
}

static const char *json_type(enum infer_type type)
{
    return type == INFER_BOOL    ? "boolean"
           : type == INFER_BYTES ? "string"
           : type >= INFER_FP32  ? "number"
                                 : "integer";
}

/* A call without a body; its path is `begin`, the model's name, `end`. */
static void put_get(struct byte_buffer *out, const char *begin, struct str name, const char *end,
                    const char *summary)
{
    buffer_printf(out,
                  "\"%s%.*s%s\":{\"get\":{\"summary\":\"%s\",\"responses\":{\"200\":{\"description\":"
                  "\"as the summary says\"}}}}",
                  begin, STR_ARGS(name), end, summary);
}

/* One input as an alternative of the array `inputs`. */
static void put_input(const struct infer_column *column, struct byte_buffer *out)
{
    buffer_printf(out, "{\"type\":\"object\",\"required\":[\"name\",\"shape\",\"datatype\",\"data\"],"
                       "\"description\":");
    json_quote(out, column->is_list       ? STR("the elements of all rows' lists, one behind the other")
                    : column->is_optional ? STR("may be left out")
                                          : STR("needed"));
    buffer_printf(out, ",\"properties\":{\"name\":{\"type\":\"string\",\"enum\":[");
    json_quote(out, column->name);
    buffer_printf(
        out,
        "]},\"shape\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"example\":[1]},"
        "\"datatype\":{\"type\":\"string\",\"enum\":[\"%s\"]},\"data\":{\"type\":\"array\",\"items\":"
        "{\"type\":\"%s\",\"nullable\":%s}}}}",
        infer_type_name(column->type), json_type(column->type), column->is_optional ? "true" : "false");
}

static void put_outputs(const struct serve_model *model, struct byte_buffer *out)
{
    const struct infer_column *columns;
    uint32_t count = infer_outputs(model->infer, &columns);
    buffer_printf(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"enum\":[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(out, "%s", i == 0 ? "" : ",");
        json_quote(out, columns[i].name);
    }
    buffer_printf(out, "]}}}");
}

static void put_model(const struct serve_model *model, struct byte_buffer *out)
{
    const struct infer_column *columns;
    uint32_t count = infer_inputs(model->infer, &columns);
    put_quoted(out, "/v2/models/%.*s/infer", model->name);
    buffer_printf(out, ":{\"post\":{\"summary\":");
    put_quoted(out, "scores of model %.*s", model->name);
    buffer_printf(out, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":"
                       "{\"type\":\"object\",\"required\":[\"inputs\"],\"properties\":{"
                       "\"id\":{\"type\":\"string\"},\"inputs\":{\"type\":\"array\",\"items\":{\"oneOf\":[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(out, "%s", i == 0 ? "" : ",");
        put_input(&columns[i], out);
    }
    buffer_printf(out, "]}},\"outputs\":{\"type\":\"array\",\"description\":\"default: all\",\"items\":");
    put_outputs(model, out);
    buffer_printf(out,
                  "}}}}}},\"responses\":{"
                  "\"200\":{\"description\":\"outputs, a row for each row of the inputs\"},"
                  "\"400\":{\"description\":\"the request is wrong: the text names the input and the row\"},"
                  "\"422\":{\"description\":\"steps rejected every row; the text says why\"},"
                  "\"413\":{\"description\":\"the request is too large\"},"
                  "\"503\":{\"description\":\"no checkpoint yet, or too much is waiting: try again later\"},"
                  "\"504\":{\"description\":\"the request waited beyond its deadline\"}}}}");
}

static void put_change(const struct serve_model *model, const char *path, const char *summary,
                       struct byte_buffer *out)
{
    put_quoted(out, path, model->name);
    buffer_printf(out, ":{\"post\":{\"summary\":");
    put_quoted(out, summary, model->name);
    buffer_printf(out, ",\"responses\":{\"200\":{\"description\":\"done\"},"
                       "\"404\":{\"description\":\"the server has no such model\"},"
                       "\"500\":{\"description\":\"the checkpoint cannot be opened; the text says why\"},"
                       "\"501\":{\"description\":\"parameters are not taken\"},"
                       "\"503\":{\"description\":\"there is no checkpoint yet\"}}}}");
}

void openapi_write(const struct server *server, bool is_control, struct byte_buffer *out)
{
    buffer_printf(
        out,
        "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"leat: scores\",\"version\":\"%s\","
        "\"description\":\"Open Inference Protocol v2. An input of shape [1] goes with every row.\"},"
        "\"paths\":{",
        LEAT_VERSION);
    static const char *const plain[][2] = {
        {"/v2", "the server's name, version and extensions"},
        {"/v2/health/live", "200 while the server runs"},
        {"/v2/health/ready", "200 when every model that is loaded has a checkpoint"},
        {"/v2/models/stats", "figures of all models"},
        {"/metrics", "figures in the text format of Prometheus, or as OpenMetrics to who prefers that"}};
    for (size_t i = 0; i < ARRAY_COUNT(plain); i++) {
        buffer_printf(out, "%s", i == 0 ? "" : ",");
        put_get(out, plain[i][0], (struct str){"", 0}, "", plain[i][1]);
    }
    buffer_printf(out, ",\"/v2/repository/index\":{\"post\":{\"summary\":\"the models\",\"responses\":"
                       "{\"200\":{\"description\":\"as the summary says\"}}}}");
    static const char *const of_model[][2] = {{"", "names and types of inputs and outputs"},
                                              {"/ready", "200 when the model has a checkpoint"},
                                              {"/stats", "figures of the model"}};
    for (uint32_t i = 0; i < server->models_count; i++) {
        struct str name = server->models[i]->name;
        for (size_t k = 0; k < ARRAY_COUNT(of_model); k++) {
            buffer_printf(out, ",");
            put_get(out, "/v2/models/", name, of_model[k][0], of_model[k][1]);
        }
        buffer_printf(out, ",");
        if (is_control) {
            put_change(server->models[i], "/v2/repository/models/%.*s/load",
                       "opens the newest checkpoint of %.*s", out);
            buffer_printf(out, ",");
            put_change(server->models[i], "/v2/repository/models/%.*s/unload", "takes %.*s out of memory",
                       out);
        } else {
            put_model(server->models[i], out);
        }
    }
    buffer_printf(out, "}}");
}
