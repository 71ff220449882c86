/* ask JOB ANSWERS [--follow] [NAME=VALUE...]: runs a job on one lane. Before each micro-batch, asks the job's first `serve`
 * what the micro-batch's rows would become, and writes the answers as `leat score` would. With LEAT_TEST_CUT=1 a
 * micro-batch has one row, so that each answer has to equal what training then makes of the row.
 *
 * Where a label join holds rows, training predicts them later, with the model of that time. So when they come to
 * the learner, the rest of the way is asked for them, too: into ANSWERS.held. Of rows that come together only the first
 * is asked, as the others are predicted after it was learned.
 *
 * --follow: a follower in the same process is asked as well, into ANSWERS.followed, from when it has a checkpoint on;
 * with LEAT_TEST_CUT=1 the run publishes what its learner changed after each micro-batch. */
#include "ask_follow.h"

#include "cli/job.h"
#include "cli/score_output.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct asking {
    const struct plan *plan;
    struct batch_pool *pool;
    struct way *way;
    struct score_output *output;
    struct score_counts counts;
    struct run *run;
    uint32_t held_to; /* index of the learner that is given what a label join lets go; 0: none */
    FILE *file, *held, *followed;
    struct asked_follow *following; /* NULL: not asked for */
    unsigned follows;               /* how often it began from a checkpoint */
};

static const struct operator_context *live(void *argument, uint32_t place)
{
    struct asking *asking = argument;
    return run_context(asking->run, &asking->plan->nodes[place]);
}

/* The follower's answers, a line each; empty lines where it does not follow yet. */
static void ask_follower(struct asking *asking, const struct score_requests *asked, struct byte_buffer *out)
{
    if (asking->counts.answered + asking->counts.filtered + asking->counts.failed == 1)
        asked_follow_wait(asking->following);
    struct way *way = asked_follow_step(asking->following);
    struct score_counts counts = {0};
    buffer_clear(out);
    if (way != NULL)
        score_output_write(asking->output, asked, way_run(way, asked->rows), TIME_MIN, &counts, out);
    for (uint32_t i = 0; i < asked->rows->selected && way == NULL; i++)
        buffer_append(out, "\n", 1);
    fwrite(out->data, 1, out->length, asking->followed);
}

static void before(void *argument, struct run *run, const struct plan_node *node, struct batch *rows)
{
    static const char *reasons[BATCH_ROWS];
    struct asking *asking = argument;
    struct byte_buffer out = {0};
    const struct plan_serve *serve = &asking->plan->serves[0];
    bool is_held = asking->held_to > 0 && node->place == serve->steps[asking->held_to];
    if (node->place != serve->request && !is_held)
        return;
    asking->run = run;
    if (asking->way == NULL)
        asking->way = way_attach(asking->plan, serve, live, asking, asking->pool);
    struct batch *requests = batch_derive(rows, rows->schema);
    requests->origins = NULL;
    batch_number(requests, 0, NULL);
    requests->selected = is_held ? MIN(requests->selected, 1U) : requests->selected;
    /* Only selected rows are written: the others are not of this micro-batch. */
    struct score_requests asked = {requests, reasons};
    score_output_write(asking->output, &asked,
                       way_run_from(asking->way, is_held ? asking->held_to : 0, requests), TIME_MIN,
                       &asking->counts, &out);
    fwrite(out.data, 1, out.length, is_held ? asking->held : asking->file);
    if (!is_held && asking->following != NULL)
        ask_follower(asking, &asked, &out);
    batch_release(requests);
    buffer_free(&out);
}

static bool run_asked(struct job_load *load, struct asking *asking)
{
    struct run_options options = {
        .lanes = 1, .until_us = TIME_MAX, .mode = RUN_FRESH, .before = before, .before_argument = asking};
    struct run *run = run_new(load->plan, &options, &load->diags);
    if (run != NULL && asking->followed != NULL) {
        struct str directory = load->plan->config.checkpoint.directory;
        char *path = mem_printf("%.*s", STR_ARGS(directory));
        asking->following = asked_follow_new(load->plan, path, &load->diags);
        free(path);
    }
    bool is_good = run != NULL && run_start(run);
    is_good = run != NULL && run_wait(run) && is_good;
    way_close(asking->way);
    asked_follow_free(asking->following, &asking->follows);
    run_free(run);
    return is_good;
}

/* The learner behind a step that holds rows; 0: there is none. Steps between the two may have run ahead of the
 * learner, which is in a stage of its own. */
static uint32_t held_to(const struct plan *plan)
{
    const struct plan_serve *serve = &plan->serves[0];
    bool is_behind = false;
    for (uint32_t i = 0; i < serve->steps_count; i++) {
        if (is_behind && plan->nodes[serve->steps[i]].tag == PLAN_LEARNER)
            return i;
        is_behind |= plan->nodes[serve->steps[i]].hold_us > 0;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct job_load load = {.path = argc > 2 ? argv[1] : NULL};
    bool must_follow = argc > 3 && strcmp(argv[3], "--follow") == 0;
    for (int i = must_follow ? 4 : 3; i < argc; i++)
        if (!job_pair_add(&load.settings, argv[i]))
            load.path = NULL;
    if (load.path == NULL) {
        fprintf(stderr, "usage: ask JOB ANSWERS [--follow] [NAME=VALUE...]\n");
        return 2;
    }
    struct diag_list *diags = &load.diags;
    bool is_good = job_load(&load) && failpoints_init(diags);
    char held[PATH_MAX];
    snprintf(held, sizeof(held), "%s.held", argv[2]);
    struct asking asking = {
        .plan = load.plan, .pool = batch_pool_new(), .file = fopen(argv[2], "w"), .held = fopen(held, "w")};
    snprintf(held, sizeof(held), "%s.followed", argv[2]);
    if (must_follow)
        asking.followed = fopen(held, "w");
    is_good = is_good && load.plan->serves_count > 0 && asking.file != NULL && asking.held != NULL;
    if (is_good) {
        asking.output = score_output_new(load.plan, &load.plan->serves[0], NULL, diags);
        asking.held_to = held_to(load.plan);
    }
    is_good = is_good && run_asked(&load, &asking);
    if (asking.file != NULL)
        is_good &= fclose(asking.file) == 0;
    if (asking.held != NULL)
        is_good &= fclose(asking.held) == 0;
    if (asking.followed != NULL)
        is_good &= fclose(asking.followed) == 0;
    if (must_follow)
        printf("%u\n", asking.follows);
    job_print_diags(&load);
    score_output_free(asking.output);
    batch_pool_free(asking.pool);
    job_free(&load);
    return is_good ? 0 : 1;
}
