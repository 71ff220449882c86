/* A learner's state for others: checkpoints, cuts, `leat model`, `leat state get`, `leat explain`, and its shape. */
#include "learners/sequential/internal_learner.h"

#include "core/describe.h"
#include "learners/histories/histories.h"
#include "learners/learner/learner.h"
#include "learners/learner/optimizer_options.h"

#include <stdlib.h>

/* --- Checkpoints and cuts --- */

static void save_ranks(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    ranks_save(((const struct sequential_state *)of)->choices.ranks, out);
}

static const char *load_ranks(void *of, const void *data, size_t bytes)
{
    return ranks_load(((struct sequential_state *)of)->choices.ranks, data, bytes);
}

/* The counters of rows; the last one where there is a stream of rows without a label. */
enum { COUNTS = 6 };

static size_t counts_bytes(const struct sequential_state *s)
{
    return (size_t)(s->takes_unlabelled ? COUNTS : COUNTS - 1) * sizeof(uint64_t);
}

static void save_counts(void *of, uint32_t since, struct byte_buffer *out)
{
    (void)since;
    const struct sequential_state *s = of;
    uint64_t counts[COUNTS] = {s->learned, s->predicted,       s->rejected,
                               s->scored,  s->without_history, s->unlabelled};
    buffer_append(out, counts, counts_bytes(s));
}

static const char *load_counts(void *of, const void *data, size_t bytes)
{
    struct sequential_state *s = of;
    uint64_t counts[COUNTS] = {0};
    if (bytes != counts_bytes(s))
        return "the counters of rows cannot be read";
    memcpy(counts, data, bytes);
    s->learned = counts[0], s->predicted = counts[1], s->rejected = counts[2], s->scored = counts[3];
    s->without_history = counts[4], s->unlabelled = counts[5];
    return NULL;
}

void sequential_stored_init(struct sequential_state *s)
{
    struct table *tables[STORED_TABLES_MAX];
    struct stored_part parts[STORED_PARTS_MAX];
    uint32_t n = sequential_parts(s->model, parts);
    parts[n++] = (struct stored_part){.name = "figures", .of = s, .save = save_ranks, .load = load_ranks};
    parts[n++] = (struct stored_part){.name = "rows", .of = s, .save = save_counts, .load = load_counts};
    parts[n++] = sequential_held_part(s);
    leat_assert(n <= STORED_PARTS_MAX);
    stored_init(&s->stored, tables, sequential_tables(s->model, tables), parts, n);
}

bool sequential_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct sequential_config *c = context->config;
    stored_settle(&c->state->stored, false);
    bool is_good = sequential_check_device(context) && stored_snapshot(&c->state->stored, writer);
    return sequential_check_device(context) && is_good;
}

bool sequential_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct sequential_config *c = context->config;
    bool is_good = stored_restore(&c->state->stored, context, reader);
    if (!sequential_check_restored(context) || !is_good)
        return false;
    const char *why = sequential_check(c->state->model);
    if (why != NULL)
        snapshot_corrupt(reader, context->diags, why);
    else
        catalogue_refresh(sequential_items(c->state->model));
    return why == NULL;
}

bool sequential_cut_note(struct operator_context *context, bool is_on)
{
    const struct sequential_config *c = context->config;
    return stored_cut_note(&c->state->stored, is_on);
}

bool sequential_cut(struct operator_context *context, struct byte_buffer *out)
{
    const struct sequential_config *c = context->config;
    if (sequential_error(c->state->model) != NULL) /* the next `process` ends the run */
        return false;
    size_t before = out->length;
    bool is_good = stored_cut(&c->state->stored, out) && sequential_error(c->state->model) == NULL;
    out->length = is_good ? out->length : before;
    return is_good;
}

size_t sequential_cut_bytes(const struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    return stored_cut_bytes(&c->state->stored);
}

bool sequential_take_cut(struct operator_context *context, struct str bytes)
{
    const struct sequential_config *c = context->config;
    if (!stored_take_cut(&c->state->stored, bytes, TABLE_STEP_NONE) ||
        sequential_check(c->state->model) != NULL)
        return false;
    catalogue_refresh(sequential_items(c->state->model));
    sequential_cache_clear(c->state->model);
    return true;
}

/* --- The shape of the state --- */

static void put_column(const struct operator_bind *bind, struct byte_buffer *out, const char *what,
                       int column)
{
    buffer_printf(out, "=%s: %s\n", what,
                  type_name(bind->arena, &bind->inputs[0].schema->fields[column].type));
}

void sequential_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    static const char *const sides[SEQUENTIAL_SIDES_MAX] = {"with 1", "with 2", "with 3", "with 4"};
    static const char *const contexts[SEQUENTIAL_CONTEXTS_MAX] = {"context 1", "context 2", "context 3",
                                                                  "context 4"};
    const struct sequential_config *c = bind->config;
    put_column(bind, out, "by", c->by_columns[LEARNER_EXAMPLES]);
    put_column(bind, out, "item", c->item_columns[LEARNER_EXAMPLES]);
    for (uint32_t i = 0; i < c->sides.count; i++)
        put_column(bind, out, sides[i], c->side_columns[LEARNER_EXAMPLES][i]);
    for (uint32_t i = 0; i < c->contexts.count; i++)
        put_column(bind, out, contexts[i], c->context_columns[LEARNER_EXAMPLES][i]);
    buffer_printf(out, "=history: %lld, marks: %d, shards: %u\n", (long long)c->history, c->model.marks,
                  c->model.shards);
    if (c->also.config != NULL)
        buffer_printf(out, "=also: masked\n");
    if (c->unlabelled_input > 0)
        buffer_printf(out, "=unlabelled: 1\n");
    c->model.network->put_shape(c->model.network_own, 1, out);
    buffer_printf(out, "=optimizers: %s, %s\n", optimizer_name(&c->embedding.optimizer),
                  optimizer_name(&c->hidden_optimizer));
    buffer_printf(out, "=batch: %lld\n=in batch: %d\n", (long long)c->batch, c->model.losses.in_batch);
    buffer_printf(out, "~rehearse: %lld\n~loss: %s\n", (long long)c->rehearse, c->model.loss->name);
}

/* --- For people --- */

void sequential_report_memory(const struct sequential_state *s, struct report *report)
{
    struct sequential_memory_now m = sequential_memory_now(s->model);
    report_add(report, "items", (double)m.items, false);
    report_add(report, "items_unsearchable", (double)m.unsearchable, false);
    report_add(report, "unnumbered", (double)m.unnumbered, false);
    report_add(report, "users", (double)m.users, false);
    report_add(report, "history_events", (double)m.entries, false);
    report_add(report, "history_cold", (double)m.cold, false);
    report_add(report, "history_bytes", (double)m.history_bytes, false);
    report_add(report, "items_bytes", (double)m.items_bytes, false);
}

bool sequential_table(const void *config, uint32_t number, int *column)
{
    const struct sequential_config *c = config;
    if (number == 0)
        *column = c->item_columns[LEARNER_EXAMPLES];
    else if (number <= c->sides.count)
        *column = c->side_columns[LEARNER_EXAMPLES][number - 1];
    else if (number <= c->sides.count + c->contexts.count)
        *column = c->context_columns[LEARNER_EXAMPLES][number - 1 - c->sides.count];
    else
        return false;
    return true;
}

/* A column may be beside items and a context, too: its tables have names of their own. */
static const char *table_name(struct operator_context *context, const struct sequential_config *c,
                              uint32_t number, int column)
{
    const char *of = number == 0 ? "" : number <= c->sides.count ? "with." : "context.";
    return arena_printf(context->scratch, "%s%.*s", of, STR_ARGS(c->schema->fields[column].name));
}

bool sequential_visit(struct operator_context *context, struct model_visitor *visitor)
{
    const struct sequential_config *c = context->config;
    const char *names[1 + SEQUENTIAL_SIDES_MAX + SEQUENTIAL_CONTEXTS_MAX];
    int column;
    for (uint32_t i = 0; sequential_table(c, i, &column); i++)
        names[i] = table_name(context, c, i, column);
    return sequential_visit_weights(c->state->model, names, visitor);
}

/* The key of a value that is given as text; 0 after a diagnostic. */
static uint64_t key_of(struct operator_context *context, const struct sequential_config *c, int column,
                       struct str word)
{
    const struct type *type = &c->schema->fields[column].type;
    struct schema *schema = schema_copy(context->scratch, &(struct schema){0}, 1);
    (void)schema_add(schema, STR("value"), *type);
    struct batch *batch = batch_new(context->pool, schema, 1);
    bool is_value = word.data != NULL && describe_parse(batch, &batch->columns[0], type, 0, word);
    uint64_t key = is_value ? learner_id(&batch->columns[0], 0) : 0;
    batch_release(batch);
    if (!is_value)
        diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0}, "`%.*s` is not a value of type %s",
                   STR_ARGS(word), type_name(context->scratch, type));
    return key;
}

/* `leat state get`: the history of a user (one word: the user), or the row of an item (two words: the item's column, and
 * its value). */
bool sequential_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    const struct sequential_config *c = context->config;
    struct str item = c->schema->fields[c->item_columns[LEARNER_EXAMPLES]].name;
    struct str by = c->schema->fields[c->by_columns[LEARNER_EXAMPLES]].name;
    bool is_item = query->count == 2 && str_equal(query->words[0], item);
    bool is_user = query->count == 1 || (query->count == 2 && str_equal(query->words[0], by));
    if (!is_item && !is_user) {
        diag_hint(
            context->diags,
            diag_error(context->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                       "the key of this learner's state is a user, or the name of a column and a value"),
            "give `%.*s VALUE` for a user's history, or `%.*s VALUE` for an item", STR_ARGS(by),
            STR_ARGS(item));
        return false;
    }
    int column = is_item ? c->item_columns[LEARNER_EXAMPLES] : c->by_columns[LEARNER_EXAMPLES];
    uint64_t key = key_of(context, c, column, query->words[query->count - 1]);
    if (key == 0)
        return false;
    const char *hex = arena_printf(context->scratch, "%016llx", (unsigned long long)key);
    query->looked_for = arena_printf(context->scratch, "key %s", hex);
    describe_text(out, "key", str_from(hex));
    return (is_item ? sequential_describe_item : sequential_describe_user)(c->state->model, key, out);
}
