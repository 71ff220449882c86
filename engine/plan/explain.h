/* Words that the three forms of `leat explain` share; private to this folder. All texts live in the arena. */
#ifndef LEAT_PLAN_EXPLAIN_H
#define LEAT_PLAN_EXPLAIN_H

#include "plan/plan.h"

/* "source file", "dedup", "learner deepfm", "sink console". */
const char *explain_kind(const struct plan_node *node, struct arena *arena);
/* A source's event time, or a step's options as in the job; "": none. */
const char *explain_settings(const struct plan_node *node, struct arena *arena);
/* "sources", "by user_id", "one lane", "lane by lane": how the stage's rows are spread. */
const char *explain_stage(const struct plan *plan, uint32_t stage, struct arena *arena);
/* How the stage is run: "any lane takes the next rows", "one instance per lane", "all rows, in order". */
const char *explain_instances(const struct plan *plan, uint32_t stage);
/* How rows are spread: "by user_id", "to one lane", "lane by lane". */
const char *explain_exchange(const struct plan *plan, const struct plan_exchange *exchange,
                             struct arena *arena);
/* Whether the exchange carries dead letters. They come from every stage: pictures leave these exchanges
 * out. */
bool explain_is_dead(const struct plan_exchange *exchange);
/* Name of the stream that the edge carries: "features", "hourly.late", "model.predictions". */
const char *explain_edge(const struct plan *plan, struct plan_edge edge, struct arena *arena);
/* The node's inputs from its own stage, and dead letters, that the order of the lines does not show: "clicks,
 * hourly"; NULL: none. A line shows by its place that its node reads the node of the line above. */
const char *explain_inputs(const struct plan *plan, const struct plan_node *node, struct arena *arena);
/* Columns that a node adds ("clicked: int"), and columns that it leaves out; NULL: none. */
const char *explain_added(const struct plan_node *node, struct arena *arena, bool with_types);
const char *explain_dropped(const struct plan_node *node, struct arena *arena);
/* How far a node's watermark is behind the newest event, in microseconds, the sources' `max_delay`
 * included. */
int64_t explain_behind_us(const struct plan *plan, const struct plan_node *node);
/* "1h 5s": the two largest units that are not 0; INT64_MAX: "ever". */
const char *explain_duration(int64_t microseconds, struct arena *arena);
const char *explain_bytes(int64_t bytes, struct arena *arena);
/* "1 source", "3 sources". */
const char *explain_count(uint32_t count, const char *noun, struct arena *arena);
/* The text; if it has more than columns_max columns, the first columns_max and an ellipsis. */
const char *explain_shortened(const char *text, uint32_t columns_max, struct arena *arena);
/* Writes the text as content of an XML element; control characters, which XML cannot hold, become spaces. */
void explain_put_xml(struct byte_buffer *out, const char *text);
/* Begins an SVG picture: writes the opening tag, title, style and background; the caller writes the rest.
 * width, height: in pixels. style: a <style> element with a class `.paper` for the background. */
void explain_put_svg(struct byte_buffer *out, double width, double height, const char *title,
                     const char *style);

#endif
