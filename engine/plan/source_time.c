/* Time in a plan: checks a source's event time and watermark options against its columns, and whether steps
 * get the time that they need. */
#include "plan/build.h"

static const struct ast_entry *entry_of(const struct ast_entry *entries, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_is(entries[i].name, name))
            return &entries[i];
    return NULL;
}

static bool check_event_time(struct plan_build *b, struct source_common *common, const struct schema *schema)
{
    if (!column_resolve(&common->event_time, schema, b->arena, b->diags))
        return false;
    const struct type *type = &schema->fields[common->event_time.index].type;
    if (type->tag == TYPE_TIME)
        return true;
    struct diag *d =
        diag_error(b->diags, DIAG_TYPE_CLASH, common->event_time.span, "`%.*s` is %s, not a time",
                   STR_ARGS(common->event_time.name), type_name(b->arena, type));
    diag_hint(b->diags, d, "declare it as `%.*s: time(ms)` (or s, us, rfc3339, datetime) in the schema",
              STR_ARGS(common->event_time.name));
    return false;
}

/* Refuses watermark options of a source without event time. */
static bool refuse_without_time(struct plan_build *b, const struct ast_entry *entries, uint32_t count)
{
    static const char *const names[] = {"watermark", "max_jump", "align"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const struct ast_entry *entry = entry_of(entries, count, names[i]);
        if (entry == NULL)
            continue;
        struct diag *d = diag_error(b->diags, DIAG_OPTIONS_CLASH, entry->name_span,
                                    "`%s` needs event time, and this source has none", names[i]);
        diag_hint(b->diags, d, "name the event time column, for example `event_time: ts`");
        return false;
    }
    return true;
}

static bool bind_per_key(struct plan_build *b, struct watermark_per_key *per_key, const struct schema *schema)
{
    if (!columns_resolve(&per_key->by, schema, b->arena, b->diags))
        return false;
    per_key->indices = arena_array(b->arena, int, per_key->by.count);
    for (uint32_t i = 0; i < per_key->by.count; i++) {
        const struct column_ref *ref = &per_key->by.items[i];
        per_key->indices[i] = ref->index;
        if (schema->fields[ref->index].type.tag < TYPE_LIST)
            continue;
        struct diag *d = diag_error(b->diags, DIAG_TYPE_CLASH, ref->span,
                                    "`%.*s` is a list: a list cannot be a key", STR_ARGS(ref->name));
        diag_hint(b->diags, d, "a number, a text or a time can be a key");
        return false;
    }
    return true;
}

static bool bind_watermark(struct plan_build *b, struct source_common *common, const struct schema *schema)
{
    if (common->watermark.choice == WATERMARK_PER_KEY)
        return bind_per_key(b, common->watermark.config, schema);
    if (common->watermark.choice != WATERMARK_PUNCTUATION)
        return true;
    struct watermark_punctuation *punctuation = common->watermark.config;
    punctuation->kind = b->options->registry->conditions;
    leat_assert(punctuation->kind != NULL);
    punctuation->condition =
        punctuation->kind->compile(punctuation->when.ast, "when", schema, b->arena, b->diags);
    return punctuation->condition != NULL;
}

bool build_source_time(struct plan_build *b, struct plan_node *node, const struct ast_entry *entries,
                       uint32_t count)
{
    struct source_common *common = node->common;
    node->has_time = common->event_time.name.length > 0;
    if (!node->has_time)
        return refuse_without_time(b, entries, count);
    b->plan->has_alignment |= common->align_us > 0;
    return check_event_time(b, common, node->outputs[0]) && bind_watermark(b, common, node->outputs[0]);
}

bool build_check_time(struct plan_build *b, const struct plan_node *node)
{
    if (node->has_time || !node->operator_kind->uses_time)
        return true;
    struct diag *d = diag_error(b->diags, DIAG_SOURCE_CANNOT, node->span,
                                "`%s` needs event time, and a source of `%.*s` has none",
                                node->operator_kind->name, STR_ARGS(node->name));
    diag_hint(b->diags, d, "name the event time column, for example `event_time: ts` in the source");
    return false;
}

/* Follows inputs without arrival times up the stream: returns the node at which rows lose their arrival time,
 * or the source whose rows have none. */
static const struct plan_node *without_arrival(const struct plan_build *b, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const struct plan_node *from = &b->plan->nodes[node->inputs[i].node];
        if (!from->has_arrival)
            return without_arrival(b, from);
    }
    return node;
}

bool build_check_arrival(struct plan_build *b, const struct plan_node *node)
{
    if (!node->is_by_arrival || node->has_arrival)
        return true;
    const struct plan_node *from = without_arrival(b, node);
    bool is_source = from->tag == PLAN_SOURCE;
    struct diag *d = diag_error(b->diags, DIAG_SOURCE_CANNOT, node->span,
                                is_source ? "`%s` needs arrival times, and rows of source `%.*s` have none"
                                          : "`%s` needs arrival times, and rows of `%.*s` have none",
                                node->operator_kind->name, STR_ARGS(from->name));
    diag_label(b->diags, d, from->span,
               is_source ? "this source" : "this step holds rows back or creates them");
    diag_hint(
        b->diags, d,
        is_source
            ? "leave out `time arrival` to use event time; Kafka topics, and recordings of Kafka topics, "
              "have arrival times"
            : "use event time, or put this step before the step that holds rows back or creates them");
    return false;
}
