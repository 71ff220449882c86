/* Answers of `leat score` as JSON lines, one for each request, in their order:
 *
 *     {"user":7,"item":5,"prediction":0.0312}               the answer's columns
 *     {"user":7,...,"_late":true}                           the request's time is behind the watermark
 *     {"_status":"filtered","_step":"features: where"}      a step left the row out
 *     {"_status":"failed","_step":"...","_reason":"..."}    the row cannot be used, or a step rejected it */
#ifndef LEAT_CLI_SCORE_OUTPUT_H
#define LEAT_CLI_SCORE_OUTPUT_H

#include "cli/score_input.h"
#include "core/buffer.h"
#include "serve/way.h"

struct score_counts {
    uint64_t answered, late, filtered, failed; /* late: of the answered ones */
};

struct score_output;

/* columns: names of the columns to write, with commas; NULL: all that have a value. NULL after a diagnostic. */
struct score_output *score_output_new(const struct plan *plan, const struct plan_serve *serve,
                                      const char *columns, struct diag_list *diags);
void score_output_free(struct score_output *output); /* NULL is allowed */
/* Appends a line for each request. watermark: requests with earlier event times are late. */
void score_output_write(struct score_output *output, const struct score_requests *requests,
                        const struct way_result *results, int64_t watermark, struct score_counts *counts,
                        struct byte_buffer *out);

#endif
