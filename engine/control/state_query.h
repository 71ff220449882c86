/* Reads what is asked of /api/v1/state and /api/v1/model. Any thread. */
#ifndef LEAT_CONTROL_STATE_QUERY_H
#define LEAT_CONTROL_STATE_QUERY_H

#include "run/peek.h"

#include <jansson.h>

struct state_question {
    const struct plan_node *node;
    bool is_row; /* of /api/v1/model */
    uint32_t count;
    struct {
        json_t *words; /* an array: the key as it was asked for */
    } keys[RUN_PEEK_KEYS_MAX];
};

/* Reads path and query of a request; is_row: of /api/v1/model. Returns 200, or the status to refuse it with, and why in
 * `wrong`, a line that ends in a newline. Call state_question_free in any case. */
int state_question_parse(const struct plan *plan, struct str path, struct str query, bool is_row,
                         struct state_question *question, struct byte_buffer *wrong);
void state_question_free(struct state_question *question);
/* The texts of key number i, for run_peek_add; in the arena, or the question's. */
struct str *state_question_words(const struct state_question *question, uint32_t i, struct arena *arena,
                                 uint32_t *count);

#endif
