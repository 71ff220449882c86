/* GET /api/v1/plan: the plan with the places of the picture that `leat explain --svg` draws (plan/explain_picture.h).
 *
 * Places are pixels from the upper left corner of the picture without the margins and the heading that the SVG file has
 * around it. Nodes are in the order of /api/v1/figures; inputs leave out dead letters, which come from every stage. */
#include "control/api_internal.h"
#include "control/json_text.h"

#include "plan/explain_picture.h"

#include <jansson.h>

static json_t *place_json(const struct picture_place *place)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "x", place->x, "y", place->y, "width", place->width, "height",
                     place->height);
}

static json_t *stage_json(const struct picture_stage *stage, enum plan_stage_tag tag)
{
    static const char *const sorts[] = {
        [STAGE_SOURCES] = "sources", [STAGE_KEYED] = "keyed", [STAGE_SINGLE] = "single"};
    json_t *json = place_json(&stage->place);
    json_object_set_new(json, "title", json_any_text(str_from(stage->title)));
    json_object_set_new(json, "instances", json_any_text(str_from(stage->instances)));
    json_object_set_new(json, "sort", json_string(sorts[tag]));
    return json;
}

static json_t *inputs_json(const struct plan_node *node)
{
    json_t *json = json_array();
    for (uint32_t i = 0; i < node->inputs_count; i++)
        if (node->inputs[i].output != PLAN_OUTPUT_DEAD)
            json_array_append_new(json, json_integer(node->inputs[i].node));
    return json;
}

static json_t *node_json(const struct picture_node *drawn)
{
    static const char *const tags[] = {[PLAN_SOURCE] = "source",
                                       [PLAN_OPERATOR] = "operator",
                                       [PLAN_LEARNER] = "learner",
                                       [PLAN_SINK] = "sink"};
    const struct plan_node *node = drawn->node;
    const char *kind = node->tag == PLAN_SOURCE ? node->source_kind->name
                       : node->tag == PLAN_SINK ? node->sink_kind->name
                                                : node->operator_kind->name;
    json_t *json = place_json(&drawn->place);
    json_object_set_new(json, "part", json_any_text(str_from(node->part)));
    json_object_set_new(json, "name", json_any_text(node->name));
    json_object_set_new(json, "tag", json_string(tags[node->tag]));
    json_object_set_new(json, "kind", json_any_text(str_from(kind)));
    json_object_set_new(json, "label", json_any_text(str_from(node->label)));
    json_object_set_new(json, "settings", json_any_text(str_from(drawn->settings)));
    json_object_set_new(json, "detail", json_any_text(str_from(drawn->detail)));
    json_object_set_new(json, "stage", json_integer(node->stage));
    json_object_set_new(json, "inputs", inputs_json(node));
    json_object_set_new(json, "has_state", json_boolean(node->has_state));
    return json;
}

static json_t *arrow_json(const struct picture_arrow *arrow)
{
    json_t *json = json_object();
    json_object_set_new(json, "from", json_integer(arrow->from));
    json_object_set_new(json, "to", json_integer(arrow->to));
    json_object_set_new(json, "stream", json_any_text(str_from(arrow->stream)));
    json_object_set_new(json, "mode", json_any_text(str_from(arrow->mode)));
    json_object_set_new(json, "path", json_string(arrow->path));
    json_object_set_new(json, "label", place_json(&arrow->label));
    return json;
}

/* The nodes in the order of the plan: those of a stage are in it, too. */
static json_t *nodes_json(const struct plan *plan, const struct picture *picture, struct arena *arena)
{
    const struct picture_node **drawn = arena_array(arena, const struct picture_node *, plan->nodes_count);
    for (uint32_t s = 0; s < plan->stages_count; s++)
        for (uint32_t i = 0; i < picture->stages[s].nodes_count; i++)
            drawn[picture->stages[s].nodes[i].node->place] = &picture->stages[s].nodes[i];
    json_t *json = json_array();
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        json_array_append_new(json, node_json(drawn[i]));
    return json;
}

static int append(const char *bytes, size_t count, void *out)
{
    buffer_append(out, bytes, count);
    return 0;
}

/* lanes: 0: not known yet. */
static void put_plan(const struct plan *plan, uint32_t lanes, struct byte_buffer *out)
{
    struct arena arena = {0};
    const struct picture *picture = explain_picture(plan, &arena);
    json_t *stages = json_array(), *arrows = json_array();
    for (uint32_t i = 0; i < plan->stages_count; i++)
        json_array_append_new(stages, stage_json(&picture->stages[i], plan->stages[i].tag));
    for (uint32_t i = 0; i < picture->arrows_count; i++)
        json_array_append_new(arrows, arrow_json(&picture->arrows[i]));
    json_t *root = json_pack("{s:o, s:s, s:I, s:f, s:f, s:o, s:o, s:o}", "job", json_any_text(plan->name),
                             "fingerprint", plan->fingerprint, "lanes", (json_int_t)lanes, "width",
                             picture->width, "height", picture->height, "stages", stages, "nodes",
                             nodes_json(plan, picture, &arena), "arrows", arrows);
    leat_assert(root != NULL);
    (void)json_dump_callback(root, append, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    buffer_append(out, "\n", 1);
    json_decref(root);
    arena_free(&arena);
}

void api_plan_serve(struct api *api, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    pthread_mutex_lock(&api->mutex);
    uint32_t lanes = api->is_there ? api->stats.lanes : 0;
    pthread_mutex_unlock(&api->mutex);
    put_plan(api->plan, lanes, &out);
    api_answer(exchange, 200, STR("application/json"), &out);
    buffer_free(&out);
}
