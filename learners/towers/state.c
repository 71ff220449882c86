/* A learner's state for others: checkpoints, cuts, `leat model`, `leat state get`, `leat explain`, and its shape. */
#include "core/describe.h"
#include "core/memory_plan.h"
#include "learners/learner/learner.h"
#include "learners/learner/optimizer_options.h"
#include "learners/towers/internal_learner.h"

#include <stdlib.h>

/* --- Checkpoints and cuts --- */

static void save_ranks(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    ranks_save(((const struct towers_state *)of)->choices.ranks, out);
}

static const char *load_ranks(void *of, const void *data, size_t bytes)
{
    return ranks_load(((struct towers_state *)of)->choices.ranks, data, bytes);
}

/* The counters of rows. */
static void save_counts(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct towers_state *s = of;
    uint64_t counts[] = {s->learned,    s->predicted, s->rejected, s->scored,
                         s->catalogued, s->removed,   s->unlisted, s->ids_cut};
    buffer_append(out, counts, sizeof(counts));
}

static const char *load_counts(void *of, const void *data, size_t bytes)
{
    struct towers_state *s = of;
    uint64_t counts[8];
    if (bytes != sizeof(counts))
        return "the counters of rows cannot be read";
    memcpy(counts, data, sizeof(counts));
    s->learned = counts[0], s->predicted = counts[1], s->rejected = counts[2], s->scored = counts[3];
    s->catalogued = counts[4], s->removed = counts[5], s->unlisted = counts[6], s->ids_cut = counts[7];
    return NULL;
}

void towers_stored_init(struct towers_state *s)
{
    struct table *tables[STORED_TABLES_MAX];
    struct stored_part parts[STORED_PARTS_MAX];
    uint32_t n = towers_parts(s->model, parts);
    parts[n++] = (struct stored_part){.name = "figures", .of = s, .save = save_ranks, .load = load_ranks};
    parts[n++] = (struct stored_part){.name = "rows", .of = s, .save = save_counts, .load = load_counts};
    leat_assert(n <= STORED_PARTS_MAX);
    stored_init(&s->stored, tables, towers_tables(s->model, tables), parts, n);
}

bool towers_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct towers_config *c = context->config;
    stored_settle(&c->state->stored, false);
    return stored_snapshot(&c->state->stored, writer);
}

bool towers_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct towers_config *c = context->config;
    if (!stored_restore(&c->state->stored, context, reader))
        return false;
    const char *why = towers_check(c->state->model);
    if (why != NULL)
        snapshot_corrupt(reader, context->diags, why);
    return why == NULL;
}

bool towers_cut_note(struct operator_context *context, bool is_on)
{
    const struct towers_config *c = context->config;
    return stored_cut_note(&c->state->stored, is_on);
}

bool towers_cut(struct operator_context *context, struct byte_buffer *out)
{
    const struct towers_config *c = context->config;
    return stored_cut(&c->state->stored, out);
}

size_t towers_cut_bytes(const struct operator_context *context)
{
    const struct towers_config *c = context->config;
    return stored_cut_bytes(&c->state->stored);
}

bool towers_take_cut(struct operator_context *context, struct str bytes)
{
    const struct towers_config *c = context->config;
    return stored_take_cut(&c->state->stored, bytes, TABLE_STEP_NONE) &&
           towers_check(c->state->model) == NULL;
}

/* --- The shape of the state --- */

static void put_column(const struct operator_bind *bind, struct byte_buffer *out, const char *what,
                       uint32_t input, int column)
{
    buffer_printf(out, "=%s: %s\n", what,
                  type_name(bind->arena, &bind->inputs[input].schema->fields[column].type));
}

/* Lines of a shape have names of their own: those of a list have their places in it, from 1. */
static const char *place_name(const struct operator_bind *bind, const char *what, uint32_t place)
{
    return arena_printf(bind->arena, "%s %u", what, place + 1);
}

void towers_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct towers_config *c = bind->config;
    const struct towers_options *m = &c->model;
    put_column(bind, out, "item", LEARNER_EXAMPLES, c->item_column);
    uint32_t queries = c->history > 0 ? 1 : c->query.count; /* what is asked about is no part of the state */
    for (uint32_t f = 0; f < queries; f++)
        put_column(bind, out, place_name(bind, "query", f), LEARNER_EXAMPLES,
                   c->query_columns[LEARNER_EXAMPLES][f]);
    for (uint32_t f = 0; f < c->features.count; f++)
        put_column(bind, out, place_name(bind, "feature", f), c->features_input, c->feature_columns[f]);
    buffer_printf(out, "=dim: %u, list_max: %u, shards: %u\n", m->dim, m->list_max, m->shards);
    if (m->has_layers)
        network_tower.put_shape(&m->network, 1, out);
    buffer_printf(out, "=normalize: %d\n", m->normalize);
    buffer_printf(out, "=optimizers: %s, %s\n", optimizer_name(&c->embedding.optimizer),
                  optimizer_name(&c->hidden_optimizer));
    buffer_printf(out, "=batch: %lld\n=in batch: %d\n", (long long)c->batch, m->losses.in_batch);
    if (c->history > 0)
        buffer_printf(out, "=history: %u\n", m->history);
    buffer_printf(out, "~loss: %s\n", m->loss->name);
}

/* --- For people --- */

void towers_report_memory(const struct towers_state *s, struct report *report)
{
    struct towers_memory_now m = towers_memory_now(s->model);
    report_add(report, "items", (double)m.items, false);
    report_add(report, "items_unsearchable", (double)m.unsearchable, false);
    report_add(report, "unnumbered", (double)m.unnumbered, false);
    if (s->has_users) {
        report_add(report, "without_history", (double)m.without_history, false);
        report_add(report, "users", (double)m.users, false);
        report_add(report, "history_bytes", (double)m.history_bytes, false);
    }
    report_add(report, "rows", (double)m.rows, false);
    report_add(report, "rows_refused", (double)m.rows_refused, false);
    report_add(report, "table_bytes", (double)(m.rows_bytes + m.items_bytes), false);
    static const char *const names[KERNELS_VARIANTS] = {"kernel_calls_scalar", "kernel_calls_avx2",
                                                        "kernel_calls_avx512"};
    for (int v = 0; v < KERNELS_VARIANTS; v++)
        report_add(report, names[v], (double)s->calls.calls[v], false);
}

/* Table `number`: that of items, then those of features, then those of the query. Its column, and the input that has it.
 * With `history` there are two, both of items. */
static bool find_table(const struct towers_config *c, uint32_t number, uint32_t *input, int *column)
{
    *input = LEARNER_EXAMPLES;
    if (number == 0 || (c->history > 0 && number == 1))
        *column = c->item_column;
    else if (c->history > 0)
        return false;
    else if (number <= c->features.count)
        *input = c->features_input, *column = c->feature_columns[number - 1];
    else if (number <= c->features.count + c->query.count)
        *column = c->query_columns[LEARNER_EXAMPLES][number - 1 - c->features.count];
    else
        return false;
    return true;
}

/* The engine looks for columns of input 0: features of a catalogue are no columns of it. */
bool towers_table(const void *config, uint32_t number, int *column)
{
    const struct towers_config *c = config;
    uint32_t input, at = 0;
    for (uint32_t i = 0; find_table(c, i, &input, column); i++)
        if (input == LEARNER_EXAMPLES && at++ == number)
            return true;
    return false;
}

void towers_memory(void *config, struct memory_plan *plan)
{
    const struct towers_config *c = config;
    struct towers_plan parts;
    towers_plan(&c->model, &parts);
    *plan = (struct memory_plan){.where = "on the CPU"};
    memory_plan_add(plan, "activations", parts.activations, false);
    memory_plan_add(plan, "parameters", parts.parameters, false);
    memory_plan_add(plan, "scratch", parts.scratch, false);
    memory_plan_add(plan, "the largest step", parts.step, false);
}

/* A column may be read by both towers: tables have names of their own. */
static const char *table_name(struct operator_context *context, const struct towers_config *c,
                              uint32_t number)
{
    uint32_t input;
    int column;
    bool is_there = find_table(c, number, &input, &column);
    leat_assert(is_there);
    const char *of = number == 0 ? "" : number <= c->features.count ? "item." : "query.";
    if (c->history >
        0) /* the catalogue has items as neighbours of others; their own vectors are what people ask for */
        of = number == 0 ? "neighbour." : "";
    return arena_printf(context->scratch, "%s%.*s", of, STR_ARGS(c->schemas[input]->fields[column].name));
}

bool towers_visit(struct operator_context *context, struct model_visitor *visitor)
{
    const struct towers_config *c = context->config;
    const char *names[1 + TOWERS_FEATURES_MAX + TOWERS_QUERY_MAX];
    uint32_t input;
    int column;
    for (uint32_t i = 0; find_table(c, i, &input, &column); i++)
        names[i] = table_name(context, c, i);
    return towers_visit_weights(c->state->model, names, visitor);
}

/* The key of a value that is given as text; 0 after a diagnostic. */
static uint64_t key_of(struct operator_context *context, const struct type *type, struct str word)
{
    const struct type *single = type->tag == TYPE_LIST ? type->element : type;
    struct schema *schema = schema_copy(context->scratch, &(struct schema){0}, 1);
    (void)schema_add(schema, STR("value"), *single);
    struct batch *batch = batch_new(context->pool, schema, 1);
    bool is_value = word.data != NULL && describe_parse(batch, &batch->columns[0], single, 0, word);
    uint64_t key = is_value ? learner_id(&batch->columns[0], 0) : 0;
    batch_release(batch);
    if (!is_value)
        diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0}, "`%.*s` is not a value of type %s",
                   STR_ARGS(word), type_name(context->scratch, single));
    return key;
}

/* Writes the key of the value that is asked for; 0 after a diagnostic. */
static uint64_t describe_key(struct operator_context *context, const struct field *field,
                             struct state_query *query, struct describe *out)
{
    uint64_t key = key_of(context, &field->type, query->words[query->count - 1]);
    const char *hex = arena_printf(context->scratch, "%016llx", (unsigned long long)key);
    if (key == 0)
        return 0;
    query->looked_for = arena_printf(context->scratch, "key %s", hex);
    describe_text(out, "key", str_from(hex));
    return key;
}

/* With `history`: a user's last items, or an item. */
static bool describe_alike(struct operator_context *context, struct state_query *query, struct describe *out)
{
    const struct towers_config *c = context->config;
    const struct field *fields = c->schemas[LEARNER_EXAMPLES]->fields;
    const struct field *item = &fields[c->item_column], *by = &fields[c->query_columns[LEARNER_EXAMPLES][0]];
    bool is_item = query->count == 2 && str_equal(query->words[0], item->name);
    if (!is_item && query->count != 1 && !(query->count == 2 && str_equal(query->words[0], by->name))) {
        diag_hint(
            context->diags,
            diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                       "the key of this learner's state is a user, or the name of a column and a value"),
            "give `%.*s VALUE` for a user's last items, or `%.*s VALUE` for an item", STR_ARGS(by->name),
            STR_ARGS(item->name));
        return false;
    }
    uint64_t key = describe_key(context, is_item ? item : by, query, out);
    return key != 0 && (is_item ? towers_describe_item : towers_describe_user)(c->state->model, key, out);
}

/* `leat state get`: the row of an item, of a feature or of a value of the query: its column, and its value. */
bool towers_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    const struct towers_config *c = context->config;
    uint32_t input, number = 0;
    int column;
    if (c->history > 0)
        return describe_alike(context, query, out);
    while (find_table(c, number, &input, &column) &&
           !(query->count == 2 && str_equal(query->words[0], str_from(table_name(context, c, number)))))
        number++;
    if (!find_table(c, number, &input, &column)) {
        diag_hint(context->diags,
                  diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                             "the key of this learner's state is the name of a table and a value"),
                  "give `%s VALUE` for an item, `%s VALUE` for what the query reads",
                  table_name(context, c, 0), table_name(context, c, 1 + c->features.count));
        return false;
    }
    uint64_t key = describe_key(context, &c->schemas[input]->fields[column], query, out);
    if (key == 0)
        return false;
    if (number == 0)
        return towers_describe_item(c->state->model, key, out);
    bool is_feature = number <= c->features.count;
    return towers_describe_id(c->state->model, is_feature, number - 1 - (is_feature ? 0 : c->features.count),
                              key, out);
}
