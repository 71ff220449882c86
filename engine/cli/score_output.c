#include "cli/score_output.h"

#include "core/mem.h"
#include "formats/json_escape.h"
#include "serve/answer_json.h"

#include <stdlib.h>

struct score_output {
    const struct plan_node *source;
    struct answer_json *answer;
};

struct score_output *score_output_new(const struct plan *plan, const struct plan_serve *serve,
                                      const char *columns, struct diag_list *diags)
{
    struct answer_json *answer = answer_json_new(plan, serve, columns, diags);
    if (answer == NULL)
        return NULL;
    struct score_output *output = mem_calloc(1, sizeof(*output));
    output->source = &plan->nodes[serve->request];
    output->answer = answer;
    return output;
}

void score_output_free(struct score_output *output)
{
    if (output == NULL)
        return;
    answer_json_free(output->answer);
    free(output);
}

static void put_pair(struct byte_buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "\"%s\":", name);
    json_quote(out, str_from(value));
}

static void put_lost(struct byte_buffer *out, const char *status, const char *step, const char *reason)
{
    buffer_printf(out, "{");
    put_pair(out, "_status", status);
    buffer_printf(out, ",");
    put_pair(out, "_step", step);
    if (reason != NULL) {
        buffer_printf(out, ",");
        put_pair(out, "_reason", reason);
    }
    buffer_printf(out, "}\n");
}

static void put_answer(struct score_output *output, const struct way_result *result, bool is_late,
                       struct byte_buffer *out)
{
    answer_json_put(output->answer, result, out);
    if (is_late) {
        answer_json_more(out);
        buffer_printf(out, "\"_late\":true}");
    }
    buffer_append(out, "\n", 1);
}

void score_output_write(struct score_output *output, const struct score_requests *requests,
                        const struct way_result *results, int64_t watermark, struct score_counts *counts,
                        struct byte_buffer *out)
{
    answer_json_begin(output->answer);
    for (uint32_t row = 0; row < requests->rows->rows; row++) {
        const struct way_result *result = &results[row];
        if (requests->reasons[row] != NULL) {
            counts->failed++;
            put_lost(out, "failed", output->source->label, requests->reasons[row]);
        } else if (result->status == WAY_ANSWERED) {
            bool is_late = output->source->has_time && requests->rows->event_time[row] < watermark;
            counts->answered++;
            counts->late += is_late;
            put_answer(output, result, is_late, out);
        } else if (result->status == WAY_NOT_ASKED) {
            continue;
        } else if (result->status == WAY_FILTERED) {
            counts->filtered++;
            put_lost(out, "filtered", result->node->label, NULL);
        } else {
            counts->failed++;
            put_lost(out, "failed", result->node->label, result->reason);
        }
    }
}
