#include "run/inspect.h"

#include "core/mem.h"
#include "core/operator_state.h"
#include "core/os.h"
#include "core/temporary.h"
#include "run/base/base.h"
#include "run/base/placements.h"
#include "run/base/positions.h"
#include "run/checkpoints/checkpoints.h"
#include "state/stores.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { READ_MEMORY = 64 << 20 }; /* bytes for the database's caches while state is shown */

bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text, struct str *settings,
               struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "job", NULL, diags);
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

struct inspection {
    const struct plan *plan;
    struct checkpoint *checkpoint;
    struct diag_list *diags;
    struct arena arena;
    struct parts parts;
    struct batch_pool *pool;
    /* A copy of the checkpoint's database, its files linked or copied, in a temporary directory; opening a
     * database writes files beside them. Made for the first node that needs it. */
    struct temporary_directory directory;
    struct state_stores stores;
    struct placement placement; /* its stays are those of the checkpoint */
};

struct inspection *inspection_open(const struct plan *plan, struct checkpoint *checkpoint,
                                   struct diag_list *diags)
{
    struct inspection *inspection = mem_calloc(1, sizeof(*inspection));
    *inspection =
        (struct inspection){.plan = plan, .checkpoint = checkpoint, .diags = diags, .pool = batch_pool_new()};
    placement_ranges(&inspection->placement, 1);
    if (parts_read(checkpoint, &inspection->arena, &inspection->parts, diags) &&
        placements_load_stays(checkpoint, &inspection->placement, diags))
        return inspection;
    inspection_close(inspection);
    return NULL;
}

void inspection_close(struct inspection *inspection)
{
    if (inspection == NULL)
        return;
    state_stores_close(&inspection->stores);
    temporary_directory_remove(&inspection->directory);
    batch_pool_free(inspection->pool);
    arena_free(&inspection->arena);
    free(inspection);
}

struct batch_pool *inspection_pool(const struct inspection *inspection)
{
    return inspection->pool;
}

/* Without a database all state is in deltas. */
static bool open_stores(struct inspection *inspection)
{
    struct diag_list *diags = inspection->diags;
    if (inspection->stores.count > 0)
        return true;
    uint32_t first;
    bool has_database = checkpoint_databases(inspection->checkpoint, 0, &first) > 0;
    if (has_database && !temporary_directory_make(&inspection->directory)) {
        diag_errno(diags,
                   diag_error(diags, DIAG_STATE_FAILED, (struct span){0},
                              "cannot create a temporary directory for the rows that lie on disk"),
                   errno);
        return false;
    }
    struct state_stores_options options = {.count = 1, .memory_bytes = READ_MEMORY};
    if (has_database) {
        options.path = arena_printf(&inspection->arena, "%s/db", inspection->directory.path);
        options.from = inspection->checkpoint;
    }
    return state_stores_open(&inspection->stores, &options, diags);
}

bool inspection_id(const struct inspection *inspection, const struct plan_node *node, uint16_t *id)
{
    const struct part *part = parts_find(&inspection->parts, str_from(node->part));
    if (part == NULL)
        diag_error(inspection->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                   "the checkpoint does not contain `%s`", node->part);
    else
        *id = (uint16_t)part->id;
    return part != NULL;
}

/* The watermark of the node's input after the checkpoint's last micro-batch. State that has expired by then
 * is not shown. */
static int64_t watermark_of(const struct inspection *inspection, const struct plan_node *node)
{
    int64_t sources[PLAN_SOURCES_MAX + 1], after[PLAN_NODES_MAX + 1];
    positions_watermarks(checkpoint_info(inspection->checkpoint)->sources, inspection->plan, sources);
    base_watermarks(inspection->plan, sources, after);
    return base_input_watermark(inspection->plan, node, after);
}

int64_t inspection_watermark(const struct inspection *inspection, const struct plan_node *source)
{
    int64_t sources[PLAN_SOURCES_MAX + 1];
    positions_watermarks(checkpoint_info(inspection->checkpoint)->sources, inspection->plan, sources);
    return sources[source->source_index];
}

uint64_t inspection_micro_batch(const struct inspection *inspection)
{
    return positions_micro_batch(checkpoint_info(inspection->checkpoint)->sources);
}

bool inspection_is_final(const struct inspection *inspection)
{
    return positions_state(checkpoint_info(inspection->checkpoint)->sources) == POSITIONS_FINAL;
}

bool inspection_has_ended(const struct inspection *inspection)
{
    return positions_state(checkpoint_info(inspection->checkpoint)->sources) != POSITIONS_GO_ON;
}

static bool restore_node(struct inspection *inspection, const struct operator_kind *kind,
                         struct operator_context *context)
{
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "op/%u/", context->id);
    struct snapshot_reader *reader =
        checkpoint_reader(inspection->checkpoint, prefix, context->groups, context->diags);
    bool is_good = operator_restore(kind, context, reader);
    return checkpoint_reader_close(reader) && is_good;
}

/* Gives the context a set with the checkpoint's stays: of its own groups, or of all. In a stage with one instance no group ever
 * moves. */
static void set_groups(struct inspection *inspection, const struct plan_node *node,
                       struct operator_context *context)
{
    if (inspection->plan->stages[node->stage].tag == STAGE_SINGLE)
        return;
    struct group_set *groups = arena_new(&inspection->arena, struct group_set);
    placement_groups(&inspection->placement, 0, groups);
    if (context->groups != NULL)
        memcpy(groups->words, context->groups->words, sizeof(groups->words));
    context->groups = groups;
}

/* Copies rows of the node from the databases that the store did not take over. */
static bool import(struct inspection *inspection, const struct operator_kind *kind,
                   struct operator_context *context)
{
    struct state_stores *stores = &inspection->stores;
    bool is_good = true;
    for (uint32_t i = 0; i < stores->foreign_count; i++)
        is_good &= operator_import(kind, context, stores->foreign[i]);
    state_stores_import_cold(stores);
    return is_good;
}

bool inspection_restore(struct inspection *inspection, const struct plan_node *node,
                        struct operator_context *context)
{
    const struct operator_kind *kind = node->operator_kind;
    context->config = arena_copy(&inspection->arena, node->config, kind->size);
    context->scratch = arena_new(&inspection->arena, struct arena);
    context->place = node->place;
    context->only_reads = true;
    context->watermark = watermark_of(inspection, node);
    context->micro_batch = inspection_micro_batch(inspection);
    context->memory_bytes = base_memory_share(inspection->plan, inspection->plan->config.memory_bytes / 2);
    context->output = node->outputs[0];
    context->pool = inspection->pool;
    context->diags = inspection->diags;
    bool has_state = operator_has_state(kind);
    if ((has_state && !inspection_id(inspection, node, &context->id)) ||
        (node->needs_memory && !open_stores(inspection)))
        return false;
    context->state_store = node->needs_memory ? state_stores_of(&inspection->stores, 0) : NULL;
    set_groups(inspection, node, context);
    context->cold_store = context->state_store != NULL && node->tag == PLAN_LEARNER ? base_cold_store : NULL;
    return operator_open(kind, context) && import(inspection, kind, context) &&
           (!has_state || restore_node(inspection, kind, context));
}

bool inspection_is_well(const struct inspection *inspection)
{
    const char *error = state_stores_error(&inspection->stores);
    if (error != NULL)
        diag_cause(
            inspection->diags,
            diag_error(inspection->diags, DIAG_STATE_FAILED, (struct span){0}, "the state store failed"),
            "%s", error);
    return error == NULL;
}

void inspection_end(const struct plan_node *node, struct operator_context *context)
{
    if (context->config != NULL)
        operator_close(node->operator_kind, context);
    if (context->scratch != NULL)
        arena_free(context->scratch);
}

bool inspect_call(const struct inspect_query *query, inspect_use *use, void *argument,
                  struct diag_list *diags)
{
    struct inspection *inspection = inspection_open(query->plan, query->checkpoint, diags);
    if (inspection == NULL)
        return false;
    struct operator_context context = {.lanes = 1, .groups = query->groups};
    bool is_good = inspection_restore(inspection, query->node, &context) &&
                   use(argument, query->node->operator_kind, &context);
    is_good = inspection_is_well(inspection) && is_good;
    inspection_end(query->node, &context);
    inspection_close(inspection);
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

bool state_key_parse(const struct plan_node *node, const struct str *words, uint32_t count, struct batch *row,
                     struct key *key, struct arena *arena, struct diag_list *diags)
{
    const struct operator_input *input = &node->bound[0];
    bool is_good = count == input->key_count;
    for (uint32_t i = 0; is_good && i < count; i++) {
        int at = input->key_columns[i];
        struct column *column = &row->columns[at];
        if (words[i].data == NULL)
            batch_set_null(row, column, 0);
        else
            is_good = describe_parse(row, column, &input->schema->fields[at].type, 0, words[i]);
    }
    if (!is_good)
        return refuse_words(node, arena, diags);
    *key = (struct key){0};
    if (count > 0)
        key_encode(row, input->key_columns, count, key, NULL);
    return true;
}

bool state_describe(const struct plan *plan, const struct plan_node *node, struct checkpoint *checkpoint,
                    const struct str *words, uint32_t count, struct describe *out, bool *is_found,
                    const char **looked_for, struct arena *arena, struct diag_list *diags)
{
    struct inspect_query query = {.plan = plan, .node = node, .checkpoint = checkpoint};
    struct describing describing = {.query = {.words = words, .count = count}, .out = out, .arena = arena};
    struct batch_pool *pool = batch_pool_new();
    struct batch *row = NULL;
    struct group_set groups = {0};
    bool is_good = true;
    if (node->bound[0].key_count > 0) {
        row = batch_new(pool, node->bound[0].schema, 1);
        struct key key = {0};
        is_good = state_key_parse(node, words, count, row, &key, arena, diags);
        bit_set(groups.words, key_group(key_hash(key)));
        query.groups = &groups;
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
    struct inspect_query query = {.plan = plan, .node = learner, .checkpoint = checkpoint};
    return inspect_call(&query, show, visitor, diags);
}
