#include "run/model.h"

#include <stdio.h>

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
    bool is_good = kind->open == NULL || kind->open(&context);
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "op/%u/", learner->place);
    struct snapshot_reader *reader = is_good ? checkpoint_reader(checkpoint, prefix, 0, 1, diags) : NULL;
    is_good = reader != NULL && kind->restore(&context, reader);
    if (reader != NULL)
        is_good &= checkpoint_reader_close(reader);
    is_good = is_good && kind->visit(&context, visitor);
    kind->close(&context);
    arena_free(&scratch);
    arena_free(&arena);
    return is_good;
}
