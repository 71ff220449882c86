/* Requests for `leat score`: rows of a source's columns, from a file in any format, or from standard input. */
#ifndef LEAT_CLI_SCORE_INPUT_H
#define LEAT_CLI_SCORE_INPUT_H

#include "plan/plan.h"

struct score_input;

/* Opens the file; "-": standard input, as JSON lines. Only columns that the way needs are required. at_us: the
 * event time of requests that give none, microseconds; TIME_MIN: the clock. newest_us: about the newest event time
 * of the checkpoint; requests are refused that lie further ahead of both times than the source's `max_jump`. NULL
 * after diagnostics. */
struct score_input *score_input_open(const struct plan *plan, const struct plan_serve *serve,
                                     const struct registry *registry, const char *path, int64_t at_us,
                                     int64_t newest_us, struct batch_pool *pool, struct diag_list *diags);
void score_input_close(struct score_input *input); /* NULL is allowed */

/* Up to BATCH_ROWS requests; row i of `rows` is request i. Those that cannot be used are not selected, and
 * reasons[i] says why; else reasons[i] is NULL. The caller releases `rows`; reasons are valid until then. */
struct score_requests {
    struct batch *rows;
    const char **reasons;
};
/* INPUT_WAITS: standard input has none now, and may have more later. INPUT_ENDS: there are no more, or the file
 * cannot be read (diags->errors rises). */
enum score_input_status { INPUT_REQUESTS, INPUT_WAITS, INPUT_ENDS };
enum score_input_status score_input_next(struct score_input *input, struct score_requests *requests);

#endif
