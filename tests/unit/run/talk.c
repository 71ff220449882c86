#include "talk.h"

#include "core/mem.h"
#include "run/base/peers.h"
#include "run/lanes/internal.h"
#include "run/order/order.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS_MAX = 100000 }; /* of a worker without a message: more say that it does not come to rest */
enum { FULL_AT = 4 };        /* rounds of messages after which sinks are full */

struct talker {
    struct arena arena;
    struct diag_list diags;
    struct run_peers peers;
    struct run *run;
    struct script queue; /* what it was sent, while a talk is recorded; `at` of them were taken */
    uint32_t at;
    struct talker *all; /* NULL: it is alone, and nobody hears it */
};

static void script_add(struct script *script, uint32_t from, struct str message)
{
    script->items = mem_realloc(script->items, (script->count + 1) * sizeof(*script->items));
    struct told *told = &script->items[script->count++];
    *told = (struct told){.from = from};
    buffer_append(&told->bytes, message.data, message.length);
}

void script_free(struct script *script)
{
    for (uint32_t i = 0; i < script->count; i++)
        buffer_free(&script->items[i].bytes);
    free(script->items);
    *script = (struct script){0};
}

static bool send_message(void *engine, uint32_t to, struct str message)
{
    struct talker *talker = engine;
    if (talker->all != NULL)
        script_add(&talker->all[to].queue, talker->peers.self, message);
    return true;
}

static void begin(struct talker *talker, const struct talk_job *job, uint32_t self, struct talker *all)
{
    *talker = (struct talker){.all = all};
    talker->peers = (struct run_peers){
        .self = self, .count = job->workers, .leader = job->leader, .send = send_message, .engine = talker};
    diag_list_init(&talker->diags, &talker->arena);
    struct job_file *file = lang_parse(&talker->arena, &talker->diags, job->registry, str_from(job->text));
    struct plan_options plan_options = {.registry = job->registry};
    bool is_good = lang_expand(file, &talker->arena, &talker->diags, NULL);
    struct plan *plan = is_good ? plan_make(file, &plan_options, &talker->arena, &talker->diags) : NULL;
    struct run_options options = {.lanes = job->lanes,
                                  .until_us = job->until_us == 0 ? TIME_MAX : job->until_us,
                                  .order = job->replays,
                                  .record_order = all != NULL && self == job->leader ? job->order : NULL,
                                  .peers = &talker->peers};
    talker->run = plan != NULL ? run_new(plan, &options, &talker->diags) : NULL;
    if (talker->run == NULL)
        diag_print(stderr, &talker->diags, &(struct diag_source){"job", str_from(job->text)}, false);
    leat_assert(talker->run != NULL);
    talker->run->waiting_budget = job->is_tight ? 0 : talker->run->waiting_budget;
}

static void end(struct talker *talker)
{
    run_free(talker->run);
    script_free(&talker->queue);
    arena_free(&talker->arena);
}

/* Does a piece of a lane's work; false: there is none. */
static bool step_lane(struct lane *lane)
{
    struct run *run = lane->run;
    for (uint32_t i = 0; i < lane->instances_count; i++) {
        struct stage_instance *stage = lane->instances[i];
        if (!stage_is_ready(stage))
            continue;
        stage_run(stage, sequencer_slot(run, stage->next));
        return true;
    }
    bool is_formed = sequencer_form(run);
    struct slot *slot = run_has_failed(run) ? NULL : sequencer_claim(run);
    if (slot != NULL)
        stage_run(lane->sources, slot);
    return is_formed || slot != NULL || (!run_has_failed(run) && sequencer_work(run, &lane->decoding));
}

static void rest(struct run *run)
{
    bool has_worked = true;
    for (uint32_t steps = 0; has_worked && !run_has_failed(run); steps++) {
        leat_assert(steps < STEPS_MAX);
        has_worked = false;
        for (uint32_t i = 0; i < run->lanes_count && !run_has_failed(run); i++)
            has_worked |= step_lane(&run->lanes->lanes[i]);
    }
}

/* Whether all micro-batches are formed, and its stages have run them. */
static bool has_ended(struct run *run)
{
    uint64_t formed;
    bool is_through = sequencer_has_ended(run, &formed);
    for (uint32_t i = 0; is_through && i < run->lanes_count; i++)
        for (uint32_t k = 0; k < run->lanes->lanes[i].instances_count; k++)
            is_through &= run->lanes->lanes[i].instances[k]->next >= formed;
    return is_through;
}

/* Each worker takes a message; false: there are none. */
static bool tell(const struct talk_job *job, struct talker *all)
{
    bool is_told = false;
    for (uint32_t i = 0; i < job->workers; i++) {
        if (all[i].at == all[i].queue.count)
            continue;
        struct told told = all[i].queue.items[all[i].at++];
        bool is_good = run_receive(all[i].run, told.from, (struct str){told.bytes.data, told.bytes.length});
        leat_assert(is_good);
        rest(all[i].run);
        is_told = true;
    }
    return is_told;
}

/* Makes the sinks full, or not, of all workers but the one that is looked at, which is to hear of it. */
static void fill_sinks(const struct talk_job *job, const struct talker *all, bool are_full)
{
    for (uint32_t i = 0; i < job->workers; i++) {
        struct run *run = all[i].run;
        for (uint32_t k = 0; i != job->self && k < run->sinks_count; k++)
            atomic_store(&run->sinks[k]->is_full, are_full);
        rest(run);
    }
}

/* Each worker sends its figures, or adds those that it was sent. */
static void look_at_figures(const struct talk_job *job, const struct talker *all)
{
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    for (uint32_t i = 0; i < job->workers; i++)
        run_stats(all[i].run, stats);
    free(stats);
}

void talk_record(const struct talk_job *job, struct script *script)
{
    struct talker all[RUN_WORKERS_MAX];
    for (uint32_t i = 0; i < job->workers; i++)
        begin(&all[i], job, i, all);
    for (uint32_t i = 0; i < job->workers; i++)
        rest(all[i].run);
    for (uint32_t round = 0; tell(job, all); round++)
        if (round == FULL_AT)
            fill_sinks(job, all, true);
    fill_sinks(job, all, false);
    while (tell(job, all)) {
    }
    look_at_figures(job, all);
    while (tell(job, all)) {
    }
    for (uint32_t i = 0; i < job->workers; i++)
        leat_assert(!run_has_failed(all[i].run) && has_ended(all[i].run) && order_finish(all[i].run));
    *script = all[job->self].queue;
    all[job->self].queue = (struct script){0};
    for (uint32_t i = 0; i < job->workers; i++)
        end(&all[i]);
}

static bool has_figures(const struct script *script)
{
    uint64_t tag = PEER_TAGS;
    bool has_some = false;
    for (uint32_t i = 0; i < script->count; i++) {
        if (script->items[i].bytes.length >= sizeof(tag))
            memcpy(&tag, script->items[i].bytes.data, sizeof(tag));
        has_some |= tag == PEER_FIGURES;
    }
    return has_some;
}

enum talk_outcome talk_give(const struct talk_job *job, const struct script *script)
{
    struct talker alone;
    bool is_taken = true;
    begin(&alone, job, job->self, NULL);
    rest(alone.run);
    for (uint32_t i = 0; i < script->count && is_taken; i++) {
        const struct told *told = &script->items[i];
        size_t waiting = alone.run->waiting_bytes;
        is_taken = run_receive(alone.run, told->from, (struct str){told->bytes.data, told->bytes.length});
        leat_assert(!job->is_tight || alone.run->waiting_bytes == waiting);
        rest(alone.run);
        leat_assert(run_has_failed(alone.run) ==
                    (alone.diags.errors > 0)); /* with a diagnostic, which blames no disk */
        leat_assert(alone.diags.count == 0 || strstr(alone.diags.items[0].message, "spill file") == NULL);
        is_taken &= !run_has_failed(alone.run);
    }
    if (has_figures(script))
        look_at_figures(&(struct talk_job){.workers = 1}, &alone);
    enum talk_outcome outcome = !is_taken ? TALK_REFUSED : has_ended(alone.run) ? TALK_ENDED : TALK_WAITS;
    end(&alone);
    return outcome;
}
