/* What the log of a model gets of a call: a line for each answered row, the answer's columns and
 *
 *     "_id":"..."     the request's id, if it has one      "_row":2          the row in the request
 *     "_cut":"3-17"   what answered                        "_time":"2026-..."  when it was asked */
#include "serve/call.h"

#include "core/civil.h"
#include "formats/json_escape.h"

#include <inttypes.h>

bool log_wants(const struct serve_model *model)
{
    if (model->log == NULL)
        return false;
    /* A fixed permutation of the numbers, so that regular clients are sampled evenly. */
    uint64_t mixed = (model->calls + 1) * UINT64_C(0x9e3779b97f4a7c15);
    mixed ^= mixed >> 32;
    mixed *= UINT64_C(0xd6e8feb86659fd93);
    mixed ^= mixed >> 32;
    return (double)(mixed >> 11) * 0x1p-53 < model->serve->serving.log.sample;
}

void log_add(struct server *server, const struct call *call, uint32_t first, const struct way_result *results,
             uint32_t at, uint32_t count)
{
    struct serve_model *model = call->model;
    struct byte_buffer *out = &server->out;
    char time[32];
    uint32_t lines = 0;
    size_t length = civil_format(call->now_us, time);
    buffer_clear(out);
    answer_json_begin(model->log_rows);
    for (uint32_t i = 0; i < count; i++) {
        if (results[at + i].status != WAY_ANSWERED)
            continue;
        answer_json_put(model->log_rows, &results[at + i], out);
        answer_json_more(out);
        if (call->request.id.length > 0) {
            buffer_printf(out, "\"_id\":");
            json_quote(out, call->request.id);
            buffer_append(out, ",", 1);
        }
        buffer_printf(out, "\"_row\":%u,\"_cut\":\"%s\",\"_time\":\"%.*s\"}\n", first + i, model->job->cut,
                      (int)length, time);
        lines++;
    }
    (void)served_add(model->log, (struct str){out->data, out->length}, lines);
}
