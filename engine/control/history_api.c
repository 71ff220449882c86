#include "control/history_api.h"

#include "control/history_query.h"

#include "core/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static void put_text(struct byte_buffer *out, const char *text)
{
    json_t *json = json_string(text);
    char *quoted = json == NULL ? NULL : json_dumps(json, JSON_ENCODE_ANY);
    buffer_printf(out, "%s", quoted == NULL ? "null" : quoted);
    free(quoted);
    json_decref(json);
}

static void put_figures(struct byte_buffer *out, const struct plan_node *node)
{
    for (uint32_t f = 0; f < HISTORY_FIGURES; f++) {
        const struct history_figure *figure = history_figure(node, f);
        buffer_printf(out, "%s{\"name\": \"%s\", \"unit\": \"%s\", \"rolls_up\": \"%s\"}", f == 0 ? "" : ", ",
                      figure->name, figure->unit, history_roll_names[figure->roll]);
    }
}

static void put_values(struct byte_buffer *out, const struct history_point *points, uint32_t count,
                       uint32_t figure)
{
    buffer_printf(out, "%s[", figure == 0 ? "" : ",\n  ");
    for (uint32_t i = 0; i < count; i++) {
        double value = (double)points[i].values[figure];
        if (isfinite(value))
            buffer_printf(out, "%s%.7g", i == 0 ? "" : ",", value);
        else
            buffer_printf(out, "%snull", i == 0 ? "" : ",");
    }
    buffer_printf(out, "]");
}

static void put_answer(struct byte_buffer *out, const struct history_query *query,
                       const struct plan_node *node, bool is_on_disk, const struct history_point *points,
                       uint32_t count)
{
    const struct history_ring *ring = &history_rings[query->ask.ring];
    uint32_t gaps = 0;
    buffer_printf(out, "{\"node\": ");
    if (node == NULL)
        buffer_printf(out, "null");
    else
        put_text(out, node->part);
    buffer_printf(out, ", \"span\": \"%s\", \"resolution_s\": %u, \"is_on_disk\": %s,\n \"figures\": [",
                  ring->span, ring->seconds, is_on_disk ? "true" : "false");
    put_figures(out, node);
    buffer_printf(out, "],\n \"ticks\": [");
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(out, "%s%" PRIu64, i == 0 ? "" : ",", points[i].tick);
        gaps += points[i].is_gap;
    }
    buffer_printf(out, "],\n \"times\": [");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "%s%" PRIi64, i == 0 ? "" : ",", points[i].wall_us / 1000);
    buffer_printf(out, "],\n \"gaps\": %u,\n \"values\": [", gaps);
    for (uint32_t f = 0; f < HISTORY_FIGURES; f++)
        put_values(out, points, count, f);
    buffer_printf(out, "]}\n");
}

static void refuse_node(const struct plan *plan, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    buffer_printf(&out, "there is no such node; there are:\n");
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        buffer_printf(&out, "%s\n", plan->nodes[i].part);
    buffer_append(&out, "", 1);
    net_respond_text(exchange, 404, out.data);
    buffer_free(&out);
}

void history_serve(struct history_watch *watch, const struct plan *plan, struct net_exchange *exchange)
{
    struct history_query query;
    const struct plan_node *node = NULL;
    const char *wrong = history_query_parse(exchange->query, &query);
    if (wrong != NULL) {
        net_respond_text(exchange, 400, wrong);
        return;
    }
    for (uint32_t i = 0; i < plan->nodes_count && node == NULL; i++)
        if (strcmp(plan->nodes[i].part, query.node) == 0)
            node = &plan->nodes[i];
    if (node == NULL && query.node[0] != '\0') {
        refuse_node(plan, exchange);
        return;
    }
    if (watch == NULL) {
        net_respond_text(exchange, 503,
                         "there is no history yet: the run is being restored, or has no memory for it\n");
        return;
    }
    struct history *history = history_watch_rings(watch);
    struct history_point *points = mem_alloc(HISTORY_POINTS_MAX * sizeof(*points));
    query.ask.column = node == NULL ? 0 : node->place + 1;
    uint32_t count = history_read(history, &query.ask, points);
    struct byte_buffer out = {0};
    put_answer(&out, &query, node, history_is_on_disk(history), points, count);
    const struct net_field fields[] = {{STR("content-type"), STR("application/json")},
                                       {STR("cache-control"), STR("no-store")},
                                       {STR("x-content-type-options"), STR("nosniff")}};
    net_respond(exchange, &(struct net_response){.status = 200,
                                                 .fields = fields,
                                                 .fields_count = ARRAY_COUNT(fields),
                                                 .body = {out.data, out.length}});
    free(points);
    buffer_free(&out);
}
