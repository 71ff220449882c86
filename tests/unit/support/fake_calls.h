/* The functions of engine/run that operators call, for tests that run an operator without it, and a step of the
 * job language made an operator. operator_context.engine points to a struct fake_calls, which is the first member
 * of whatever stands in for the engine: fake_engine.h, unit/operators/harness.h. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_FAKE_CALLS_H
#define LEAT_TESTS_UNIT_SUPPORT_FAKE_CALLS_H

#include "core/buffer.h"
#include "core/operator.h"
#include "core/operator_history.h"

enum { FAKE_INPUTS = 2 };

struct fake_calls {
    /* Takes the rows of a batch, which is released afterwards. */
    void (*emit)(struct fake_calls *calls, uint32_t output, struct batch *batch);
    /* Is told of a row that was counted as dead. */
    void (*reject)(struct fake_calls *calls, uint32_t row, const char *reason);
    struct operator_history history; /* all zeros: a job that ends, without checkpoints */
};

/* The inputs of an operator that reads several streams, merged by row_order. */
struct merge {
    struct batch *first[FAKE_INPUTS];
    struct batch *at[FAKE_INPUTS];
    uint32_t index[FAKE_INPUTS];
};

/* Every operator, by name. */
extern const struct operator_kind *const fake_operators[];

/* Parses a step like "where user_id > 0" and binds it to the inputs of `bind`, whose members arena, diags,
 * inputs_count, inputs' schemas and streams, and, where the operator needs them, label_root and registry the
 * caller has set; the others are set here. Returns the operator, or NULL after a diagnostic. */
const struct operator_kind *fake_bind_step(struct operator_bind *bind, const char *step);

/* The first diagnostic with the code, or NULL. */
const struct diag *fake_diag_of(const struct diag_list *diags, enum diag_code code);
/* The buffer's text, terminated; valid until the buffer changes. */
const char *fake_text(struct byte_buffer *buffer);

#endif
