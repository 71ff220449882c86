#include "run/model.h"

#include "core/os.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { READ_MEMORY = 64 << 20 }; /* of the database, while a model is shown */

bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text, struct str *settings,
               struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "job", 0, 0, diags);
    if (reader == NULL)
        return false;
    uint32_t group, records = 0;
    struct str data;
    *text = *settings = (struct str){"", 0};
    /* A chain has the two records once for each of its checkpoints; they are the same. */
    while (snapshot_get(reader, &group, &data))
        *(records++ % 2 == 0 ? text : settings) = arena_str(arena, data);
    if (records < 2)
        diag_error(diags, DIAG_E0702, (struct span){0}, "the checkpoint does not say what its job is");
    return checkpoint_reader_close(reader) && records >= 2;
}

/* A database of its own, which may write beside its files: the checkpoint's are linked or copied. */
struct borrowed {
    char *path;
    struct state_store *store;
};

static bool borrow_database(struct checkpoint *checkpoint, struct borrowed *b, struct arena *arena,
                            struct diag_list *diags)
{
    if (!checkpoint_info(checkpoint)->has_database)
        return true;
    const char *root = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/leat-model-XXXXXX", root != NULL && *root != '\0' ? root : "/tmp");
    b->path = mkdtemp(path);
    if (b->path == NULL) {
        diag_errno(diags,
                   diag_error(diags, DIAG_E0801, (struct span){0},
                              "no temporary directory can be made for the rows that lie on disk"),
                   errno);
        return false;
    }
    const char *database = arena_printf(arena, "%s/db", b->path);
    if (checkpoint_restore_database(checkpoint, database, diags))
        b->store = state_store_open(database, READ_MEMORY, true, diags);
    return b->store != NULL;
}

static void give_database_back(struct borrowed *b)
{
    if (b->store != NULL)
        state_store_close(b->store);
    if (b->path != NULL)
        os_remove_tree(b->path);
}

struct cold_store *model_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes)
{
    return cold_store_new(context->state_store, (uint16_t)context->place, table, row_bytes);
}

static bool show_restored(const struct operator_kind *kind, struct operator_context *context,
                          struct checkpoint *checkpoint, struct model_visitor *visitor)
{
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "op/%u/", context->place);
    if (kind->open != NULL && !kind->open(context))
        return false;
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, prefix, 0, 1, context->diags);
    bool is_good = reader != NULL && kind->restore(context, reader);
    if (reader != NULL)
        is_good &= checkpoint_reader_close(reader);
    is_good = is_good && kind->visit(context, visitor);
    const char *error = context->state_store == NULL ? NULL : state_store_error(context->state_store);
    if (error != NULL)
        diag_cause(context->diags,
                   diag_error(context->diags, DIAG_E0801, (struct span){0}, "the state store failed"), "%s",
                   error);
    return is_good && error == NULL;
}

bool model_visit(const struct plan *plan, const struct plan_node *learner, struct checkpoint *checkpoint,
                 struct model_visitor *visitor, struct diag_list *diags)
{
    const struct operator_kind *kind = learner->operator_kind;
    if (kind->visit == NULL || kind->restore == NULL)
        return true;
    struct arena arena = {0}, scratch = {0};
    struct operator_context context = {
        .config = arena_copy(&arena, learner->config, kind->size),
        .place = learner->place,
        .lanes = 1,
        .watermark = TIME_MIN,
        .memory_bytes = plan->config.memory_bytes / 2,
        .output = learner->outputs[0],
        .scratch = &scratch,
        .diags = diags,
    };
    struct borrowed database = {0};
    bool is_good = !learner->needs_memory || borrow_database(checkpoint, &database, &arena, diags);
    context.state_store = database.store;
    context.cold_store = database.store != NULL ? model_cold_store : NULL;
    is_good = is_good && show_restored(kind, &context, checkpoint, visitor);
    kind->close(&context);
    give_database_back(&database);
    arena_free(&scratch);
    arena_free(&arena);
    return is_good;
}
