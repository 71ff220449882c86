#include "cli/run_life.h"

#include "cli/serve_beside.h"
#include "cli/serve_watch.h"
#include "control/summary.h"
#include "control/view.h"
#include "core/log.h"
#include "core/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct run_life {
    struct run_life_options o;
    struct run *run;
    struct run_stats stats;
    struct dead_watch dead;
    struct bottleneck *bottleneck;
    struct bottleneck_found found;
    struct serve_watch *serving; /* NULL: none */
    struct view *view;
};

/* Reports that a replayed order log of a live run ended, and the run with it. */
static void tell_order_end(const struct run *run, const struct run_stats *stats)
{
    struct byte_buffer where = {0};
    if (!stats->has_order_run_out)
        return;
    run_describe_order_end(run, &where);
    log_say(LOG_LEVEL_INFO,
            "the order log ends before micro-batch %" PRIu64
            ", and the run ends there: %.*s; the order of later rows is not known",
            stats->order_next, (int)where.length, where.data);
    buffer_free(&where);
}

/* Prints warnings when the run begins, not only at its end. */
static void say_warnings(struct job_load *load)
{
    bool is_json = load->is_json;
    if (load->diags.errors > 0) /* the run has failed already, and all is printed at the end */
        return;
    load->is_json = false; /* stdout is for the summary */
    job_print_diags(load);
    load->is_json = is_json;
    diag_list_init(&load->diags, &load->arena);
}

static void say_notes(const char *notes)
{
    for (const char *end; (end = strchr(notes, '\n')) != NULL; notes = end + 1)
        log_say(LOG_LEVEL_INFO, "%.*s", (int)(end - notes), notes);
}

/* Says with what the run begins. */
static void say_begin(const struct run_stats *stats)
{
    say_notes(stats->notes);
    if (stats->is_from)
        log_say(LOG_LEVEL_INFO, "%" PRIu64 " records are done", stats->records);
    else if (stats->is_resumed)
        log_say(LOG_LEVEL_INFO, "resuming from checkpoint %u-%" PRIu64 ": %" PRIu64 " records are done",
                stats->resumed_generation, stats->resumed_epoch, stats->records);
    if (stats->redo_next > 0)
        log_say(LOG_LEVEL_INFO,
                "micro-batches %" PRIu64 " to %" PRIu64 " are executed again by the order log",
                stats->micro_batches, stats->redo_next - 1);
    if (stats->order != NULL)
        log_say(LOG_LEVEL_INFO, "replaying the order log %s", stats->order);
}

struct run_life *run_life_begin(const struct run_life_options *options, struct run *run)
{
    struct run_life *life = mem_calloc(1, sizeof(*life));
    life->o = *options;
    life->run = run;
    run_stats(run, &life->stats);
    say_warnings(options->load);
    say_begin(&life->stats);
    dead_watch_begin(&life->dead, &life->stats);
    life->bottleneck = bottleneck_new(options->load->plan, run);
    if (options->api != NULL)
        api_begin(options->api, run);
    if (options->is_served)
        life->serving = serve_watch_new(options->load);
    struct view_options view = {.plan = options->load->plan,
                                .watch = &life->dead,
                                .bottleneck = life->bottleneck,
                                .api = options->api,
                                .is_quiet = options->is_quiet || options->load->is_json,
                                .progress = options->progress};
    if (life->serving != NULL)
        view.more = serve_watch_more(life->serving);
    life->view = view_new(&view);
    return life;
}

void run_life_look(struct run_life *life)
{
    if (life->o.api != NULL)
        api_tend(life->o.api, life->run);
    view_update(life->view, life->run);
}

void run_life_say(struct run_life *life, const char *text)
{
    if (life->view != NULL)
        view_message(life->view, text);
    else
        log_say(LOG_LEVEL_INFO, "%s", text);
}

void run_life_hide(struct run_life *life)
{
    if (life->view != NULL)
        view_free(life->view);
    life->view = NULL;
}

bool run_life_wait(struct run_life *life, bool is_started)
{
    run_life_hide(life);
    bool is_good = run_wait(life->run) && is_started;
    run_stats(life->run, &life->stats);
    dead_watch_end(&life->dead, &life->stats);
    bottleneck_whole(life->bottleneck, &life->stats, &life->found);
    if (life->o.api != NULL)
        api_end(life->o.api, &life->stats, &life->dead, &life->found, is_good);
    api_stop(life->o.api); /* who waits for the run's end waits for its last checkpoint and its sinks, too */
    life->o.api = NULL;
    tell_order_end(life->run, &life->stats);
    return is_good;
}

const struct run_stats *run_life_stats(const struct run_life *life)
{
    return &life->stats;
}

void run_life_summarize(struct run_life *life, bool is_good)
{
    struct job_load *load = life->o.load;
    struct byte_buffer out = {0};
    struct summary summary = {.plan = load->plan,
                              .stats = &life->stats,
                              .watch = &life->dead,
                              .bottleneck = &life->found,
                              .is_good = is_good};
    if (life->serving != NULL && is_good)
        serve_beside_stop(load);
    if (life->serving != NULL)
        summary.served = serve_watch_totals(life->serving, &summary.served_count);
    if (load->is_json)
        summary_put_json(&summary, &out);
    else
        summary_text(&summary, stdout);
    if (out.length > 0)
        fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
}

void run_life_count_all(struct run_life *life)
{
    run_stats(life->run, &life->stats);
    dead_watch_end(&life->dead, &life->stats);
}

void run_life_tell_part(const struct run_life *life, uint32_t leader, struct str address)
{
    struct byte_buffer out = {0};
    const struct summary summary = {.plan = life->o.load->plan, .stats = &life->stats, .is_good = true};
    if (life->o.load->is_json)
        summary_put_part_json(&summary, leader, address, &out);
    else
        summary_part_text(&summary, leader, address, stdout);
    if (out.length > 0)
        fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
}

void run_life_free(struct run_life *life)
{
    serve_watch_free(life->serving);
    bottleneck_free(life->bottleneck);
    free(life);
}
