/* Answers as JSON objects, for `leat score` and for the log of what was served. One thread at a time. */
#ifndef LEAT_SERVE_ANSWER_JSON_H
#define LEAT_SERVE_ANSWER_JSON_H

#include "core/buffer.h"
#include "serve/way.h"

struct answer_json;

/* columns: names of the columns to write, with commas; NULL: all that have a value (plan_serve.is_hidden). NULL after a
 * diagnostic. plan and serve must outlive the result. */
struct answer_json *answer_json_new(const struct plan *plan, const struct plan_serve *serve,
                                    const char *columns, struct diag_list *diags);
void answer_json_free(struct answer_json *answer); /* NULL is allowed */
/* Call before the results of each way_run. */
void answer_json_begin(struct answer_json *answer);
/* Appends `{"user":7,"prediction":0.03}`; result->status is WAY_ANSWERED. */
void answer_json_put(struct answer_json *answer, const struct way_result *result, struct byte_buffer *out);
/* Opens the object at the end of `out` again: what the caller appends, `"name":value`, comes behind the columns. The
 * caller closes it with `}`. */
void answer_json_more(struct byte_buffer *out);

#endif
