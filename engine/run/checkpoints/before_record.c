/* Where a trace begins: the newest checkpoint before the record that the user named; of a job with several workers, the newest head whose
 * checkpoint is. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"

#include "run/base/positions.h"
#include "run/trace.h"

#include <stdlib.h>

static bool refuse_other(struct run *run)
{
    struct diag *d = diag_error(
        run->diags, DIAG_OTHER_JOB, (struct span){0},
        "the checkpoints in %s are of another job, or of an earlier version of this job", run->path);
    diag_hint(run->diags, d, "trace with the same job file, --set and --replay as the run");
    return false;
}

/* None of the run's own checkpoints lies before the record. If the run began with another run's checkpoint,
 * chooses that checkpoint. False after a diagnostic. */
static bool choose_from(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    if (!checkpoint_first_from(run->dir, &c->from))
        return true;
    if (!from_open(run))
        return false;
    const struct checkpoint_info *info = checkpoint_info(run->resumed);
    if (positions_are_before(info->sources, run->plan, run->trace))
        return true;
    struct diag *d = diag_error(run->diags, DIAG_NO_COMMAND, (struct span){0},
                                "`%.*s` lies before the checkpoint that this run started from",
                                STR_ARGS(run->trace->place));
    diag_hint(run->diags, d, "trace the record in the run that read it, whose checkpoints are in %s",
              c->from.path);
    return false;
}

/* Chooses that head, if this is such a job, and one is there. Heads whose parts are gone are passed over, as checkpoints that are damaged. False
 * after a diagnostic. */
static bool choose_head(struct run *run, struct arena *arena)
{
    const char **paths, *folder = arena_printf(arena, "%s/" CHECKPOINT_CLUSTER "/heads", run->path);
    uint32_t count = run_head_list(folder, arena, &paths);
    struct run_head *head = mem_alloc(sizeof(*head));
    bool is_good = true;
    for (uint32_t i = 0; is_good && run->resumed == NULL && i < count; i++) {
        struct byte_buffer manifest = {0};
        struct diag_list unread;
        diag_list_init(&unread, arena);
        if (run_head_load(paths[i], &manifest, head, &unread))
            run->resumed = run_head_open(head, (struct str){"", 0}, &unread);
        buffer_free(&manifest);
        const struct checkpoint_info *info = run->resumed == NULL ? NULL : checkpoint_info(run->resumed);
        is_good = info == NULL || str_equal(info->fingerprint, str_from(run->plan->fingerprint)) ||
                  refuse_other(run);
        if (info != NULL && (!is_good || !positions_are_before(info->sources, run->plan, run->trace))) {
            checkpoint_close(run->resumed);
            run->resumed = NULL;
        }
    }
    free(head);
    return is_good;
}

bool before_record_choose(struct run *run)
{
    struct trace *trace = run->trace;
    struct checkpoint_list found;
    struct arena arena = {0};
    bool is_good = choose_head(run, &arena) && checkpoint_walk(run->dir, &arena, &found, run->diags);
    for (uint32_t i = 0; is_good && run->resumed == NULL && i < found.count; i++) {
        const struct checkpoint_info *info = &found.items[i];
        if (found.is_damaged[i])
            continue;
        if (!str_equal(info->fingerprint, str_from(run->plan->fingerprint))) {
            is_good = refuse_other(run);
            break;
        }
        if (!positions_are_before(info->sources, run->plan, trace))
            continue;
        run->resumed = checkpoint_open(run->dir, info->id, run->diags);
        is_good = run->resumed != NULL;
    }
    arena_free(&arena);
    if (!is_good || (run->resumed == NULL && !choose_from(run)))
        return false;
    run->is_resumed = run->resumed != NULL;
    uint64_t micro_batch = 0;
    if (run->resumed != NULL) {
        trace->from = checkpoint_info(run->resumed)->id;
        micro_batch = positions_micro_batch(checkpoint_info(run->resumed)->sources);
    }
    checkpoint_redo_find(run->dir, micro_batch, run->diags);
    return true;
}
