#include "cli/trace_print.h"

#include "core/buffer.h"
#include "core/civil.h"
#include "core/learner.h"
#include "formats/formats.h"

#include <inttypes.h>
#include <jansson.h>

/* --- Steps, for text and JSON --- */

static bool is_learner(const struct plan_node *node)
{
    return node->tag == PLAN_LEARNER;
}

/* What happened to the row, in words, from the node's counters. */
struct fate {
    const char *words[8];
    uint32_t count;
};

static void add_word(struct fate *fate, const char *word, uint64_t is_so)
{
    if (is_so > 0)
        fate->words[fate->count++] = word;
}

static struct fate fate_of(const struct trace_step *step)
{
    struct fate fate = {0};
    const struct counters *c = &step->counts;
    bool learns = is_learner(step->node);
    if (step->node->tag == PLAN_SINK) {
        add_word(&fate, "written", 1);
        return fate;
    }
    add_word(&fate, "read", step->tag == TRACE_READ && c->dead == 0);
    add_word(&fate, "given on", step->tag == TRACE_LATER && c->dead == 0);
    add_word(&fate, "passed", c->passed);
    bool is_item = step->node->items_input > 0 && step->input == step->node->items_input;
    const char *unscored = is_item ? "taken into the catalogue" : "not learned";
    const char *unlearned = step->input == LEARNER_SCORED && !is_item ? "scored" : unscored;
    add_word(&fate, learns ? unlearned : "filtered", c->filtered);
    add_word(&fate, "late", c->late);
    add_word(&fate, "duplicate", c->duplicate);
    add_word(&fate, learns ? "rejected" : "dead", c->dead);
    add_word(&fate, learns ? "learned" : "absorbed", c->absorbed);
    add_word(&fate, "held", c->held);
    if (fate.count == 0)
        add_word(&fate, "taken in", 1);
    return fate;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the node's settings mention the column. */
static bool is_named(const struct plan_node *node, struct str name)
{
    struct str text = node->settings_text;
    for (size_t at = 0; at + name.length <= text.length; at++) {
        bool is_begin = at == 0 || !is_word(text.data[at - 1]);
        bool is_end = at + name.length == text.length || !is_word(text.data[at + name.length]);
        if (is_begin && is_end && memcmp(text.data + at, name.data, name.length) == 0)
            return true;
    }
    return false;
}

enum shown { COLUMNS_ALL, COLUMNS_NAMED, COLUMNS_NEW };

static bool is_wanted(const struct trace_step *step, const struct field *field, enum shown which)
{
    switch (which) {
    case COLUMNS_NAMED: return is_named(step->node, field->name);
    case COLUMNS_NEW: return schema_find(step->node->bound[step->input].schema, field->name) < 0;
    case COLUMNS_ALL: break;
    }
    return true;
}

/* Appends the view's one row as `a = 1, b = 2` or as JSON. Returns the number of columns. */
static uint32_t add_row(struct byte_buffer *out, const struct trace_step *step, const struct batch *view,
                        enum shown which, bool is_json)
{
    uint32_t row = batch_row(view, 0), count = 0;
    buffer_printf(out, "%s", is_json ? "{" : "");
    for (uint32_t i = 0; i < view->schema->count; i++) {
        const struct field *field = &view->schema->fields[i];
        if (!is_wanted(step, field, which))
            continue;
        buffer_printf(out, is_json ? "%s\"%.*s\":" : "%s%.*s = ",
                      count == 0 ? ""
                      : is_json  ? ","
                                 : ", ",
                      STR_ARGS(field->name));
        format_json_value(&view->columns[i], &field->type, row, out);
        count++;
    }
    buffer_printf(out, "%s", is_json ? "}" : "");
    return count;
}

static const char *time_text(int64_t time, char out[64])
{
    if (time == TIME_MIN || time == TIME_MAX)
        snprintf(out, 64, "%s", time == TIME_MIN ? "none yet" : "the end");
    else
        out[civil_format(time, out)] = '\0';
    return out;
}

/* Where the order of the rows comes from: "log": the order log; "records": the records determine it;
 * "computed": live sources, and no order log reaches this micro-batch. */
static const char *order_of(const struct plan *plan, const struct trace *trace)
{
    bool is_live = false;
    for (uint32_t i = 0; i < plan->sources_count; i++)
        is_live |= plan->nodes[plan->sources[i]].is_live;
    return trace->micro_batch < trace->ordered ? "log" : is_live ? "computed" : "records";
}

/* --- Text --- */

static void print_detail(FILE *out, const char *head, const struct byte_buffer *text)
{
    if (text->length > 0)
        fprintf(out, "      %s%.*s\n", head, (int)text->length, text->data);
}

static void print_rows(FILE *out, const struct trace_step *step)
{
    struct byte_buffer text = {0};
    char head[128];
    bool is_read = step->tag == TRACE_READ || step->node->tag == PLAN_SINK;
    for (uint32_t i = 0; i < step->rows_count; i++) {
        const struct batch *view = step->rows[i].batch;
        const char *side = is_learner(step->node) ? NULL : step->node->output_names[step->rows[i].output];
        buffer_clear(&text);
        if (is_read || side != NULL || step->rows_count > 1)
            add_row(&text, step, view, COLUMNS_ALL, true);
        else
            add_row(&text, step, view, COLUMNS_NEW, false);
        snprintf(head, sizeof(head), "%s%s", side != NULL ? side : "->", side != NULL ? " rows: " : " ");
        print_detail(out, head, &text);
    }
    if (step->rows_left > 0)
        fprintf(out, "      -> and %" PRIu64 " more rows\n", step->rows_left);
    buffer_free(&text);
}

static void print_step(FILE *out, const struct trace_step *step)
{
    struct fate fate = fate_of(step);
    struct byte_buffer text = {0};
    char time[64];
    fprintf(out, "  %-32s ", step->node->label);
    for (uint32_t i = 0; i < fate.count; i++)
        fprintf(out, "%s%s", i > 0 ? ", " : "", fate.words[i]);
    fprintf(out, "%s\n", step->input > 0 && !is_learner(step->node) ? " (from another input)" : "");
    if (step->node->tag == PLAN_OPERATOR && step->tag == TRACE_GIVEN)
        fprintf(out, "      %.*s\n", STR_ARGS(step->node->settings_text));
    if (step->row != NULL && step->node->tag != PLAN_SINK)
        add_row(&text, step, step->row, COLUMNS_NAMED, false);
    print_detail(out, "", &text);
    for (uint32_t i = 0; i < step->facts.count; i++)
        fprintf(out, "      %s %s\n", step->facts.items[i].name, time_text(step->facts.items[i].time, time));
    if (step->facts.count > 0 || step->counts.late > 0 || step->counts.late_updates > 0)
        fprintf(out, "      watermark %s%s\n", time_text(step->watermark, time),
                step->counts.late_updates > 0 ? ": too late for the rows that it would have changed" : "");
    if (step->counts.null_keys > 0)
        fprintf(out, "      the row's key is null\n");
    if (step->reason != NULL)
        fprintf(out, "      %s\n", step->reason);
    if (step->raw != NULL)
        fprintf(out, "      record: %s\n", step->raw);
    if (step->node->tag == PLAN_SINK) {
        buffer_clear(&text);
        add_row(&text, step, step->row, COLUMNS_ALL, true);
        print_detail(out, "", &text);
    }
    print_rows(out, step);
    buffer_free(&text);
}

void trace_text(const struct plan *plan, const struct trace *trace, uint64_t records, FILE *out)
{
    fprintf(out, "%.*s %.*s: record %" PRIu64 " of %s, in micro-batch %" PRIu64 "\n", STR_ARGS(trace->source),
            STR_ARGS(trace->place), trace->record, trace->partition_name, trace->micro_batch);
    if (trace->from.generation == 0)
        fprintf(out, "executed again from the beginning");
    else
        fprintf(out, "executed again from checkpoint %u-%" PRIu64, trace->from.generation, trace->from.epoch);
    fprintf(out, ": %" PRIu64 " records read\n", records);
    if (strcmp(order_of(plan, trace), "computed") == 0)
        fprintf(out,
                "no order log contains this record (the job has not read it yet, or has taken no checkpoint "
                "after it): here it is merged by time, the job may merge it in another place\n");
    for (uint32_t i = 0; i < trace->steps_count; i++)
        print_step(out, &trace->steps[i]);
    if (trace->steps_left > 0)
        fprintf(out, "  and %" PRIu64 " more steps\n", trace->steps_left);
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (trace->held[i] > 0)
            fprintf(out, "  %-32s still holds the row: the inputs have no more rows\n", plan->nodes[i].label);
}

/* --- JSON --- */

static json_t *row_json(const struct trace_step *step, const struct batch *view, enum shown which)
{
    struct byte_buffer text = {0};
    if (view == NULL)
        return json_null();
    add_row(&text, step, view, which, true);
    json_t *row = json_loadb(text.data, text.length, JSON_ALLOW_NUL, NULL);
    buffer_free(&text);
    return row != NULL ? row : json_null();
}

static json_t *text_json(const char *text)
{
    json_t *json = text == NULL ? NULL : json_string(text);
    return json != NULL ? json : json_null();
}

static json_t *time_json(int64_t time)
{
    char text[64];
    return time == TIME_MIN || time == TIME_MAX ? json_null() : json_string(time_text(time, text));
}

static json_t *step_json(const struct trace_step *step)
{
    static const char *const tags[] = {"read", "given", "later"};
    struct fate fate = fate_of(step);
    json_t *words = json_array(), *facts = json_object(), *rows = json_array();
    const struct plan_node *node = step->node;
    for (uint32_t i = 0; i < fate.count; i++)
        json_array_append_new(words, json_string(fate.words[i]));
    for (uint32_t i = 0; i < step->facts.count; i++)
        json_object_set_new(facts, step->facts.items[i].name, time_json(step->facts.items[i].time));
    for (uint32_t i = 0; i < step->rows_count; i++)
        json_array_append_new(rows, json_pack("{s:i, s:o}", "output", (int)step->rows[i].output, "row",
                                              row_json(step, step->rows[i].batch, COLUMNS_ALL)));
    const char *kind = node->tag == PLAN_SOURCE ? node->source_kind->name
                       : node->tag == PLAN_SINK ? node->sink_kind->name
                                                : node->operator_kind->name;
    json_t *settings = node->tag != PLAN_OPERATOR
                           ? json_null()
                           : json_stringn(node->settings_text.data, node->settings_text.length);
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:I}",
                     "step", node->label, "kind", kind, "tag", tags[step->tag], "input", (int)step->input,
                     "micro_batch", (json_int_t)step->micro_batch, "fate", words, "settings", settings, "row",
                     row_json(step, step->row, COLUMNS_ALL), "facts", facts, "watermark",
                     time_json(step->watermark), "late_update", step->counts.late_updates > 0, "null_key",
                     step->counts.null_keys > 0, "reason", text_json(step->reason), "record",
                     text_json(step->raw), "rows", rows, "rows_more", (json_int_t)step->rows_left);
}

void trace_json(const struct plan *plan, const struct trace *trace, uint64_t records, FILE *out)
{
    json_t *steps = json_array(), *held = json_array();
    char from[64];
    for (uint32_t i = 0; i < trace->steps_count; i++)
        json_array_append_new(steps, step_json(&trace->steps[i]));
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (trace->held[i] > 0)
            json_array_append_new(held, json_string(plan->nodes[i].label));
    snprintf(from, sizeof(from), "%u-%" PRIu64, trace->from.generation, trace->from.epoch);
    json_t *root =
        json_pack("{s:s%, s:s%, s:s, s:I, s:o, s:I, s:o, s:I, s:s, s:o, s:o, s:I}", "source",
                  trace->source.data, trace->source.length, "place", trace->place.data, trace->place.length,
                  "partition", trace->partition_name, "record", (json_int_t)trace->record, "offset",
                  trace->by == TRACE_BY_OFFSET ? json_integer(trace->at) : json_null(), "micro_batch",
                  (json_int_t)trace->micro_batch, "checkpoint",
                  trace->from.generation == 0 ? json_null() : json_string(from), "records_read",
                  (json_int_t)records, "order", order_of(plan, trace), "held", held, "steps", steps,
                  "steps_more", (json_int_t)trace->steps_left);
    leat_assert(root != NULL);
    json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    json_decref(root);
}
