/* Jobs that run while they are served: what they publish (run/follow.h) is applied between two batches. A checkpoint is
 * only where that begins. */
#include "serve/call.h"

#include "core/os.h"

#include <inttypes.h>

enum {
    STEP_US = 1000, /* of applying in one turn: requests that come meanwhile wait for so long */
    ASK_US = 1000 * 1000,
    BEHIND_US = 1000 * 1000, /* a job that is followed with so much delay is said to be caught up with */
};

static struct operator_context *context_of(void *argument, uint32_t copy, uint32_t node)
{
    const struct serve_job *job = argument;
    return way_context_of(job->loaded->ways[copy], node);
}

/* A name that says which model answers: the checkpoint's, and behind a plus the micro-batch of the newest cut. */
static void name_cut(struct serve_job *job, uint64_t cut)
{
    int length = snprintf(job->cut, sizeof(job->cut), "%u-%" PRIu64, job->loaded->id.generation,
                          job->loaded->id.epoch);
    if (cut > 0)
        snprintf(job->cut + length, sizeof(job->cut) - (size_t)length, "+%" PRIu64, cut);
}

static bool can_follow(const struct serve_job *job)
{
    return job->id.generation == 0 && plan_not_followed(job->plan) == NULL &&
           job->plan->serves_count <= FOLLOW_COPIES_MAX;
}

/* The counters go on: the next one begins at 0 again. */
static void end_follow(struct serve_job *job)
{
    if (job->follow == NULL)
        return;
    struct follow_figures figures = follow_figures(job->follow);
    job->past_rows += figures.rows;
    job->past_cuts += figures.cuts;
    job->past_bytes += figures.bytes;
    follow_free(job->follow);
    job->follow = NULL;
}

void live_begin(struct serve_job *job)
{
    end_follow(job);
    job->was_live = false;
    name_cut(job, 0);
    job->features = way_micro_batch(job->loaded->ways[0]);
    job->seen_us = job->loaded->created_us;
    if (!can_follow(job))
        return;
    struct follow_ask ask = {.plan = job->plan,
                             .directory = job->directory,
                             .generation = job->loaded->id.generation,
                             .next = job->features,
                             .pool = way_pool(job->loaded->ways[0]),
                             .copies = job->plan->serves_count,
                             .context = context_of,
                             .argument = job};
    job->follow = follow_new(&ask);
}

void live_end(struct serve_job *job)
{
    end_follow(job);
    delta_follower_leave(job->follower);
    job->follower = NULL;
    job->was_live = job->has_said_apart = false;
    job->asked_us = job->seen_us = 0;
    job->features = 0;
    job->cut[0] = '\0';
}

static void take_figures(struct serve_job *job)
{
    struct follow_figures figures = follow_figures(job->follow);
    if (figures.seen_us == 0)
        return;
    name_cut(job, figures.cut);
    job->features = figures.next;
    job->seen_us = figures.seen_us;
    for (uint32_t i = 0; i < job->plan->serves_count; i++)
        way_set_watermark(job->loaded->ways[i],
                          figures.sources[job->plan->nodes[job->plan->serves[i].request].source_index]);
}

static void say_state(struct server *server, const struct serve_job *job, enum follow_state state)
{
    char line[FOLLOW_WHY_BYTES + 200];
    if (state == FOLLOW_LIVE)
        snprintf(line, sizeof(line), "job %.*s is followed from checkpoint %u-%" PRIu64 " on",
                 STR_ARGS(job->plan->name), job->loaded->id.generation, job->loaded->id.epoch);
    else
        snprintf(line, sizeof(line),
                 "job %.*s is no longer followed: %s; answers stay as they are until its next checkpoint",
                 STR_ARGS(job->plan->name), follow_why(job->follow));
    if (!server->options.is_quiet)
        server_say(server, line);
}

/* The job says that it is followed, and asks for a checkpoint if what it publishes begins behind the one it has. */
static void keep_in_touch(struct server *server, struct serve_job *job)
{
    int64_t now = os_monotonic_us();
    if (job->asked_us != 0 && now - job->asked_us < ASK_US)
        return;
    job->asked_us = now;
    if (job->follower != NULL && !delta_follower_is_seen(job->follower)) {
        delta_follower_leave(job->follower);
        job->follower = NULL;
    }
    if (job->follower == NULL) {
        struct arena arena = {0};
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        char *directory = arena_printf(&arena, "%s/log", job->directory);
        job->follower = delta_follower_enter(directory, &diags);
        if (job->follower == NULL && !job->has_said_apart)
            server_say(server, arena_printf(&arena, "job %.*s is not followed between checkpoints: %s%s%s",
                                            STR_ARGS(job->plan->name), diags.items[0].message,
                                            diags.items[0].cause != NULL ? ": " : "",
                                            diags.items[0].cause != NULL ? diags.items[0].cause : ""));
        job->has_said_apart = job->follower == NULL;
        arena_free(&arena);
    }
    if (job->follower != NULL && (job->follow == NULL || follow_wants_checkpoint(job->follow)))
        (void)delta_follower_ask(job->follower); /* if it fails, the next checkpoint comes in its turn */
}

bool live_step(struct server *server, struct serve_job *job)
{
    bool is_more = false;
    job->is_behind = false;
    if (job->follow == NULL) {
        if (job->loaded == NULL && can_follow(job))
            keep_in_touch(server, job); /* it may run, and have no checkpoint yet */
        return false;
    }
    enum follow_state state = job->is_broken ? FOLLOW_BROKEN : follow_step(job->follow, STEP_US, &is_more);
    bool is_live = state == FOLLOW_LIVE;
    if (state != FOLLOW_APART)
        take_figures(job); /* also of a step that has come to an end: it may have applied something before */
    if (!is_live)
        keep_in_touch(server, job);
    if (is_live != job->was_live) {
        say_state(server, job, state);
        loader_hold(job->loader, is_live);
        job->was_live = is_live;
    }
    if (state == FOLLOW_BROKEN && !job->is_broken) {
        job->is_broken = true;
        loader_broken(job->loader, job->loaded);
    }
    job->is_behind = is_more;
    return is_more;
}

const char *live_doing(const struct serve_job *job)
{
    if (job->follow == NULL)
        return NULL;
    if (job->was_live)
        return job->is_behind && os_wall_us() - job->seen_us > BEHIND_US ? "catching up" : NULL;
    if (follow_why(job->follow)[0] != '\0')
        return follow_why(job->follow);
    return follow_has_log(job->follow) ? "joining" : NULL;
}
