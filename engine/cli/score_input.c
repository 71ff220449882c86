#include "cli/score_input.h"

#include "cli/rows_file.h"
#include "core/mem.h"
#include "core/os.h"
#include "serve/request.h"

#include <stdlib.h>

struct score_input {
    const struct plan_node *node; /* the source whose columns requests have */
    struct arena arena;
    struct rows_file *file;
    int64_t at_us; /* of requests without a time; TIME_MIN: the clock */
    int64_t newest_us;
};

struct score_input *score_input_open(const struct plan *plan, const struct plan_serve *serve,
                                     const struct registry *registry, const char *path, int64_t at_us,
                                     int64_t newest_us, struct batch_pool *pool, struct diag_list *diags)
{
    struct score_input *input = mem_calloc(1, sizeof(*input));
    input->node = &plan->nodes[serve->request];
    input->at_us = at_us;
    input->newest_us = newest_us;
    input->file = rows_file_open(registry, path, "the requests",
                                 request_schema(input->node, serve, &input->arena), pool, diags);
    if (input->file != NULL)
        return input;
    score_input_close(input);
    return NULL;
}

void score_input_close(struct score_input *input)
{
    if (input == NULL)
        return;
    rows_file_close(input->file);
    arena_free(&input->arena);
    free(input);
}

/* Selects the rows that can be used. now_us: the event time of those without one. */
static void prepare(const struct score_input *input, struct batch *batch, const char **reasons,
                    int64_t now_us)
{
    uint16_t *sel = arena_alloc(&batch->arena, MAX(batch->rows, 1) * sizeof(*sel));
    batch->selected = 0;
    batch->sel = sel;
    int64_t latest_us = request_latest_us(input->node, now_us, input->newest_us);
    for (uint32_t row = 0; row < batch->rows; row++) {
        if (reasons[row] != NULL)
            continue;
        request_set_time(input->node, batch, row, now_us);
        if (batch->event_time[row] > latest_us)
            reasons[row] = request_too_far;
        else
            sel[batch->selected++] = (uint16_t)row;
    }
    request_set_source(input->node, batch);
}

enum score_input_status score_input_next(struct score_input *input, struct score_requests *requests)
{
    switch (rows_file_next(input->file, &requests->rows, &requests->reasons)) {
    case ROWS_READ: break;
    case ROWS_WAIT: return INPUT_WAITS;
    case ROWS_END: return INPUT_ENDS;
    }
    prepare(input, requests->rows, requests->reasons, input->at_us == TIME_MIN ? os_wall_us() : input->at_us);
    return INPUT_REQUESTS;
}
