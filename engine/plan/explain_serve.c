/* `leat explain --serve`: the way of a request to its answer, the columns that a request gives, and those that
 * an answer has.
 *
 *     serve ctr: a request of impressions becomes a row of model.predictions
 *       way       features: dedup by: imp_id within: 1h (lets requests pass)
 *       ...
 *       request   user: int, item: int
 *       optional  imp_id: int, ts: time (the event time; if missing, the time of the request)
 *       answer    user: int, ... prediction: float */
#include "plan/explain.h"

enum { LINE_COLUMNS = 100, INDENT = 12 };

static const char *with(const char *all, const char *more, struct arena *arena)
{
    return all == NULL ? more : arena_printf(arena, "%s, %s", all, more);
}

static void put_line(struct byte_buffer *out, const char *what, const char *text)
{
    buffer_printf(out, "  %-*s", INDENT - 2, what);
    buffer_wrap(out, INDENT, INDENT, LINE_COLUMNS, str_from(text == NULL ? "-" : text));
    buffer_append(out, "\n", 1);
}

/* What a request meets at the step. */
static const char *meets(const struct plan_node *node)
{
    const struct operator_kind *kind = node->operator_kind;
    return node->tag == PLAN_LEARNER         ? "predicts"
           : kind->makes_label               ? "lets requests pass, without a label"
           : kind->reading == READING_PASS   ? "lets requests pass"
           : kind->reading == READING_CHOICE ? "may leave the row out"
           : kind->reading == READING_STATE  ? "reads its state"
                                             : "computes";
}

static void put_way(const struct plan *plan, const struct plan_serve *serve, struct byte_buffer *out,
                    struct arena *arena)
{
    for (uint32_t i = 0; i < serve->steps_count; i++) {
        const struct plan_node *node = &plan->nodes[serve->steps[i]];
        const char *settings = explain_settings(node, arena);
        put_line(out, i == 0 ? "way" : "",
                 arena_printf(arena, "%.*s: %s%s%s (%s)", STR_ARGS(node->name), explain_kind(node, arena),
                              settings[0] == '\0' ? "" : " ", settings, meets(node)));
    }
}

static const char *described(const struct field *field, bool is_time, struct arena *arena)
{
    return arena_printf(arena, "%.*s: %s%s", STR_ARGS(field->name), type_name(arena, &field->type),
                        is_time ? " (the event time; if missing, the time of the request)" : "");
}

static void put_columns(const struct plan *plan, const struct plan_serve *serve, struct byte_buffer *out,
                        struct arena *arena)
{
    const struct plan_node *source = &plan->nodes[serve->request];
    const struct schema *answer = plan_answer_schema(plan, serve);
    const char *needed = NULL, *others = NULL, *answers = NULL;
    for (uint32_t i = 0; i < source->outputs[0]->count; i++) {
        const struct field *field = &source->outputs[0]->fields[i];
        bool is_time = str_equal(field->name, source->common->event_time.name);
        const char *text = described(field, is_time, arena);
        bool is_needed = serve->is_needed[i] && !is_time;
        *(is_needed ? &needed : &others) = with(is_needed ? needed : others, text, arena);
    }
    for (uint32_t i = 0; i < answer->count; i++)
        if (!serve->is_hidden[i])
            answers = with(answers, described(&answer->fields[i], false, arena), arena);
    put_line(out, "request", needed);
    put_line(out, "optional", others);
    put_line(out, "answer", answers);
}

void plan_explain_serve(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    if (plan->serves_count == 0)
        buffer_printf(out, "the job serves nothing: add `serve NAME { from: STREAM, request: SOURCE }`\n");
    for (uint32_t i = 0; i < plan->serves_count; i++) {
        const struct plan_serve *serve = &plan->serves[i];
        buffer_printf(out, "%sserve %.*s: a request of %.*s becomes a row of %s\n", i > 0 ? "\n" : "",
                      STR_ARGS(serve->name), STR_ARGS(plan->nodes[serve->request].name),
                      explain_edge(plan, plan_answer(serve), &arena));
        put_way(plan, serve, out, &arena);
        put_columns(plan, serve, out, &arena);
    }
    arena_free(&arena);
}
