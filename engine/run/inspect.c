#include "run/inspect.h"

#include "core/operator_state.h"
#include "core/os.h"
#include "core/temporary.h"
#include "run/base/base.h"
#include "run/base/positions.h"
#include "run/checkpoints/checkpoints.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { READ_MEMORY = 64 << 20 }; /* bytes for the database's caches while state is shown */

bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text, struct str *settings,
               struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "job", 0, 0, diags);
    if (reader == NULL)
        return false;
    uint32_t group, records = 0;
    struct str data;
    *text = *settings = (struct str){"", 0};
    /* A chain of checkpoints has the two records once per checkpoint; all copies are the same. */
    while (snapshot_get(reader, &group, &data))
        *(records++ % 2 == 0 ? text : settings) = arena_str(arena, data);
    if (records < 2)
        diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                   "the checkpoint does not contain its job");
    return checkpoint_reader_close(reader) && records >= 2;
}

/* A copy of the checkpoint's database, its files linked or copied, in a temporary directory; opening a
 * database writes files beside them. */
struct borrowed {
    struct temporary_directory directory;
    struct state_store *store;
};

static bool borrow_database(struct checkpoint *checkpoint, struct borrowed *b, struct arena *arena,
                            struct diag_list *diags)
{
    if (!checkpoint_info(checkpoint)->has_database)
        return true;
    if (!temporary_directory_make(&b->directory)) {
        diag_errno(diags,
                   diag_error(diags, DIAG_STATE_FAILED, (struct span){0},
                              "cannot create a temporary directory for the rows that lie on disk"),
                   errno);
        return false;
    }
    const char *database = arena_printf(arena, "%s/db", b->directory.path);
    if (checkpoint_restore_database(checkpoint, database, diags))
        b->store = state_store_open(database, READ_MEMORY, true, diags);
    return b->store != NULL;
}

static void give_database_back(struct borrowed *b)
{
    if (b->store != NULL)
        state_store_close(b->store);
    temporary_directory_remove(&b->directory);
}

/* Finds the id under which the node's state is saved. */
static bool find_id(const struct inspect_query *query, struct arena *arena, uint16_t *id,
                    struct diag_list *diags)
{
    struct parts parts;
    if (!parts_read(query->checkpoint, arena, &parts, diags))
        return false;
    const struct part *part = parts_find(&parts, str_from(query->node->part));
    if (part == NULL)
        diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0}, "the checkpoint does not contain `%s`",
                   query->node->part);
    else
        *id = (uint16_t)part->id;
    return part != NULL;
}

/* The watermark of the node's input after the checkpoint's last micro-batch. State that has expired by then
 * is not shown. */
static int64_t watermark_of(const struct inspect_query *query)
{
    const struct plan *plan = query->plan;
    int64_t sources[PLAN_SOURCES_MAX + 1], after[PLAN_NODES_MAX + 1];
    positions_watermarks(checkpoint_info(query->checkpoint)->sources, plan, sources);
    base_watermarks(plan, sources, after);
    return base_input_watermark(plan, query->node, after);
}

static bool use_restored(const struct inspect_query *query, struct operator_context *context,
                         inspect_use *use, void *argument)
{
    const struct operator_kind *kind = query->node->operator_kind;
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "op/%u/", context->id);
    if (!operator_open(kind, context))
        return false;
    struct snapshot_reader *reader =
        checkpoint_reader(query->checkpoint, prefix, query->lane, query->lanes, context->diags);
    bool is_good = operator_restore(kind, context, reader);
    is_good &= checkpoint_reader_close(reader);
    is_good = is_good && use(argument, kind, context);
    const char *error = context->state_store == NULL ? NULL : state_store_error(context->state_store);
    if (error != NULL)
        diag_cause(context->diags,
                   diag_error(context->diags, DIAG_STATE_FAILED, (struct span){0}, "the state store failed"),
                   "%s", error);
    return is_good && error == NULL;
}

bool inspect_call(const struct inspect_query *query, inspect_use *use, void *argument,
                  struct diag_list *diags)
{
    const struct operator_kind *kind = query->node->operator_kind;
    struct arena arena = {0}, scratch = {0};
    struct borrowed database = {0};
    uint16_t id = 0;
    if (!find_id(query, &arena, &id, diags)) {
        arena_free(&arena);
        return false;
    }
    struct operator_context context = {
        .config = arena_copy(&arena, query->node->config, kind->size),
        .place = query->node->place,
        .only_reads = true,
        .id = id,
        .lane = query->lane,
        .lanes = query->lanes,
        .watermark = watermark_of(query),
        .memory_bytes = query->plan->config.memory_bytes / 2,
        .output = query->node->outputs[0],
        .pool = batch_pool_new(),
        .scratch = &scratch,
        .diags = diags,
    };
    bool is_good = !query->node->needs_memory || borrow_database(query->checkpoint, &database, &arena, diags);
    if (is_good && database.store == NULL && query->node->needs_memory) /* all state is in the deltas */
        is_good = (database.store = state_store_open(NULL, READ_MEMORY, false, diags)) != NULL;
    context.state_store = database.store;
    context.cold_store = database.store != NULL && query->node->tag == PLAN_LEARNER ? base_cold_store : NULL;
    is_good = is_good && use_restored(query, &context, use, argument);
    operator_close(kind, &context);
    give_database_back(&database);
    batch_pool_free(context.pool);
    arena_free(&scratch);
    arena_free(&arena);
    return is_good;
}

/* --- One key --- */

struct describing {
    struct state_query query;
    struct describe *out;
    struct arena *arena;
    bool is_found;
};

static bool describe_one(void *argument, const struct operator_kind *kind, struct operator_context *context)
{
    struct describing *d = argument;
    unsigned errors = context->diags->errors;
    d->is_found = kind->describe(context, &d->query, d->out);
    if (d->query.looked_for != NULL)
        d->query.looked_for = arena_strdup(d->arena, d->query.looked_for);
    return context->diags->errors == errors;
}

static bool refuse_words(const struct plan_node *node, struct arena *arena, struct diag_list *diags)
{
    const struct operator_input *input = &node->bound[0];
    const char *all = "";
    for (uint32_t i = 0; i < input->key_count; i++) {
        const struct field *field = &input->schema->fields[input->key_columns[i]];
        all = arena_printf(arena, "%s%s%.*s (%s)", all, i > 0 ? ", " : "", STR_ARGS(field->name),
                           type_name(arena, &field->type));
    }
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                "the given values are not a key of `%s`", node->part);
    diag_hint(diags, d, "give a value for each key column, in this order: %s", all);
    return false;
}

/* Sets the key columns of the first row to the values of `words`. False after a diagnostic. */
static bool parse_key(const struct plan_node *node, const struct str *words, uint32_t count,
                      struct batch *row, struct arena *arena, struct diag_list *diags)
{
    const struct operator_input *input = &node->bound[0];
    bool is_good = count == input->key_count;
    for (uint32_t i = 0; is_good && i < count; i++) {
        int column = input->key_columns[i];
        is_good =
            describe_parse(row, &row->columns[column], &input->schema->fields[column].type, 0, words[i]);
    }
    return is_good || refuse_words(node, arena, diags);
}

bool state_describe(const struct plan *plan, const struct plan_node *node, struct checkpoint *checkpoint,
                    const struct str *words, uint32_t count, struct describe *out, bool *is_found,
                    const char **looked_for, struct arena *arena, struct diag_list *diags)
{
    struct inspect_query query = {.plan = plan, .node = node, .checkpoint = checkpoint, .lanes = 1};
    struct describing describing = {.query = {.words = words, .count = count}, .out = out, .arena = arena};
    struct batch_pool *pool = batch_pool_new();
    struct batch *row = NULL;
    bool is_good = true;
    if (node->bound[0].key_count > 0) {
        row = batch_new(pool, node->bound[0].schema, 1);
        is_good = parse_key(node, words, count, row, arena, diags);
        struct key key = {0};
        if (is_good)
            key_encode(row, node->bound[0].key_columns, count, &key, NULL);
        query.lanes = KEY_GROUPS;
        query.lane = key_group(key_hash(key));
        describing.query.row = row;
    }
    is_good = is_good && inspect_call(&query, describe_one, &describing, diags);
    batch_release(row);
    batch_pool_free(pool);
    *is_found = describing.is_found;
    *looked_for = describing.query.looked_for;
    return is_good;
}

/* --- Models --- */

static bool show(void *argument, const struct operator_kind *kind, struct operator_context *context)
{
    return kind->visit(context, argument);
}

bool model_visit(const struct plan *plan, const struct plan_node *learner, struct checkpoint *checkpoint,
                 struct model_visitor *visitor, struct diag_list *diags)
{
    if (learner->operator_kind->visit == NULL || learner->operator_kind->restore == NULL)
        return true;
    struct inspect_query query = {.plan = plan, .node = learner, .checkpoint = checkpoint, .lanes = 1};
    return inspect_call(&query, show, visitor, diags);
}
