#include "ask_follow.h"

#include "core/delta_log.h"
#include "core/mem.h"
#include "run/follow.h"
#include "serve/loaded.h"

#include <stdlib.h>
#include <time.h>

struct asked_follow {
    const struct plan *plan;
    char *directory, *log;
    struct diag_list *diags;
    struct delta_follower *follower;
    struct loaded *loaded;
    struct follow *follow;
    unsigned times;
};

struct asked_follow *asked_follow_new(const struct plan *plan, const char *directory, struct diag_list *diags)
{
    struct asked_follow *f = mem_calloc(1, sizeof(*f));
    f->plan = plan;
    f->directory = mem_strdup(directory);
    f->log = mem_printf("%s/log", directory);
    f->diags = diags;
    f->follower = delta_follower_enter(f->log, diags);
    return f;
}

void asked_follow_wait(struct asked_follow *f)
{
    struct timespec pause = {0, 1000 * 1000};
    struct delta_tail *tail = delta_tail_open(f->log, 1, f->diags);
    struct delta_entry entry;
    while (tail != NULL && delta_tail_next(tail, &entry) != DELTA_ENTRY) {
        delta_tail_close(tail);
        nanosleep(&pause, NULL);
        tail = delta_tail_open(f->log, 1, f->diags);
    }
    delta_tail_close(tail);
}

static struct operator_context *context_of(void *argument, uint32_t copy, uint32_t node)
{
    const struct asked_follow *f = argument;
    return way_context_of(f->loaded->ways[copy], node);
}

/* Begins anew if there is a newer checkpoint than the one it has. */
static void load(struct asked_follow *f)
{
    struct checkpoint_id id;
    if (!loaded_newest(f->directory, &id, f->diags) || id.generation == 0 ||
        (f->loaded != NULL && id.epoch == f->loaded->id.epoch))
        return;
    follow_free(f->follow);
    loaded_close(f->loaded);
    f->follow = NULL;
    bool is_none;
    struct loaded_ask ask = {.plan = f->plan, .directory = f->directory};
    f->loaded = loaded_open(&ask, &is_none, f->diags);
    if (f->loaded == NULL)
        return;
    struct follow_ask follow = {.plan = f->plan,
                                .directory = f->directory,
                                .generation = f->loaded->id.generation,
                                .next = way_micro_batch(f->loaded->ways[0]),
                                .pool = way_pool(f->loaded->ways[0]),
                                .copies = f->plan->serves_count,
                                .context = context_of,
                                .argument = f};
    f->follow = follow_new(&follow);
    f->times++;
}

struct way *asked_follow_step(struct asked_follow *f)
{
    enum follow_state state = FOLLOW_LOST;
    bool is_more = f->follow != NULL;
    while (is_more)
        state = follow_step(f->follow, 1000 * 1000, &is_more);
    if (state == FOLLOW_LIVE)
        return f->loaded->ways[0];
    if (state >= FOLLOW_LOST && f->follow != NULL)
        fprintf(stderr, "lost: %s\n", follow_why(f->follow));
    load(f);
    (void)delta_follower_ask(f->follower);
    nanosleep(&(struct timespec){0, 3 * 1000 * 1000},
              NULL); /* or the run is over before the checkpoint is there */
    return NULL;
}

void asked_follow_free(struct asked_follow *f, unsigned *times)
{
    if (f == NULL)
        return;
    *times = f->times;
    follow_free(f->follow);
    loaded_close(f->loaded);
    delta_follower_leave(f->follower);
    free(f->directory);
    free(f->log);
    free(f);
}
