#include "cli/run_wait.h"

#include "cli/cluster_inputs.h"
#include "core/diag_copy.h"
#include "core/log.h"
#include "core/os.h"

#include <stdio.h>

enum { SAY_US = 10000000 };

void run_wait_say(struct run_wait *wait, struct worker *worker)
{
    char text[sizeof(wait->said)];
    int64_t now = os_monotonic_us();
    worker_waits_for(worker, text, sizeof(text));
    if (text[0] == '\0' || (strcmp(text, wait->said) == 0 && now - wait->said_us < SAY_US))
        return;
    log_say(LOG_LEVEL_INFO, "waiting: %s", text);
    snprintf(wait->said, sizeof(wait->said), "%s", text);
    wait->said_us = now;
}

/* Compares with another round than before. */
static void compare(struct run_wait *wait, const struct worker_other *other, const struct plan *plan)
{
    const char *who = arena_printf(&wait->arena, "worker %u at %.*s on %.*s", other->leader,
                                   STR_ARGS(other->address), STR_ARGS(other->host));
    diag_list_init(&wait->differs, &wait->arena);
    wait->fits =
        other->inputs.length == 0 || cluster_inputs_compare(plan, other->inputs, who, &wait->differs);
    wait->compared = other->incarnation;
    wait->judged_us = os_monotonic_us();
}

bool run_wait_compare(struct run_wait *wait, struct worker *worker, const struct plan *plan,
                      struct diag_list *diags)
{
    struct worker_other other;
    struct arena arena = {.block_bytes = 4096};
    bool waits_for_it = worker_other_round(worker, &arena, &other);
    if (waits_for_it && other.incarnation != wait->compared) {
        arena_reset(&wait->arena);
        compare(wait, &other, plan);
        if (wait->fits)
            worker_say_fits(worker, other.incarnation);
    }
    bool is_good = !waits_for_it || wait->fits || other.seen_us < wait->judged_us;
    if (!is_good)
        diag_add_all(diags, &wait->differs);
    arena_free(&arena);
    return is_good;
}

void run_wait_free(struct run_wait *wait)
{
    arena_free(&wait->arena);
}
