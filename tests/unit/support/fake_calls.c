#include "unit/support/fake_calls.h"

#include "lang/lang.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define OPERATOR(name) extern const struct operator_kind operator_##name;
#include "generated/operators.def"
#undef OPERATOR

const struct operator_kind *const fake_operators[] = {
#define OPERATOR(name) &operator_##name,
#include "generated/operators.def"
#undef OPERATOR
    NULL,
};

/* --- Calls of operators --- */

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    struct fake_calls *calls = context->engine;
    assert_true(batch->rows <= BATCH_ROWS && batch->selected <= batch->rows && output < OPERATOR_OUTPUTS_MAX);
    assert_true(output > 0 || batch->schema == context->output);
    if (context->reader != NULL) {
        context->reader->emit(context, output, batch);
        return;
    }
    calls->emit(calls, output, batch);
    batch_release(batch);
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    struct fake_calls *calls = context->engine;
    assert_true(row < batch->rows && reason != NULL);
    context->counters.dead++;
    if (context->reader != NULL)
        context->reader->reject(context, batch, row, reason);
    else
        calls->reject(calls, row, reason);
}

void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *what, const char *hint)
{
    diag_hint(context->diags, diag_error(context->diags, code, span, "%s", what), "%s", hint);
}

void operator_history(const struct operator_context *context, struct operator_history *history)
{
    *history = ((const struct fake_calls *)context->engine)->history;
}

void operator_history_micro_batches(const struct operator_context *context, struct operator_history *history)
{
    operator_history(context, history);
}

uint64_t operator_history_oldest(const struct operator_context *context LEAT_UNUSED)
{
    return 0;
}

int operator_check(const struct operator_context *context LEAT_UNUSED)
{
    return 0;
}

bool merge_next(struct merge *merge, struct merge_row *out)
{
    int best = -1;
    struct row_order best_order = {0};
    for (int i = 0; i < FAKE_INPUTS; i++) {
        while (merge->at[i] != NULL && merge->index[i] == merge->at[i]->selected) {
            merge->at[i] = merge->at[i]->next;
            merge->index[i] = 0;
        }
        if (merge->at[i] == NULL)
            continue;
        struct row_order order = batch_order(merge->at[i], batch_row(merge->at[i], merge->index[i]));
        if (best < 0 || row_order_compare(&order, &best_order) < 0) {
            best = i;
            best_order = order;
        }
    }
    if (best < 0)
        return false;
    struct batch *batch = merge->at[best];
    uint32_t index = merge->index[best]++;
    *out = (struct merge_row){batch, (uint32_t)best, batch_row(batch, index), index,
                              index + 1 == batch->selected};
    return true;
}

struct batch *merge_batches(struct merge *merge, uint32_t input)
{
    return merge->first[input];
}

/* --- Steps --- */

const struct operator_kind *fake_bind_step(struct operator_bind *bind, const char *step)
{
    const struct registry registry = {.operators = fake_operators};
    struct arena *arena = bind->arena;
    struct str text = str_from(arena_printf(arena, "stream out = events | %s\n", step));
    struct job_file *job = lang_parse(arena, bind->diags, &registry, text);
    if (bind->diags->errors > 0 || !lang_expand(job, arena, bind->diags, NULL))
        return NULL;
    const struct step_decl *decl = &job->streams[0].steps[0];
    const struct operator_kind *kind = decl->descriptor;
    struct option_env *env = arena_new(arena, struct option_env);
    *env = (struct option_env){arena, bind->diags, lang_parse_value};
    bind->config = arena_calloc(arena, 1, kind->size);
    if (!option_bind(kind->options, arena_printf(arena, "`%s`", kind->name), decl->kind.span, decl->entries,
                     decl->count, bind->config, env))
        return NULL;
    bind->span = decl->span;
    bind->env = env;
    for (uint32_t i = 0; i < bind->inputs_count; i++)
        bind->inputs[i].span = decl->span;
    bool is_good = kind->bind(bind);
    assert_int_equal(is_good, bind->diags->errors == 0); /* a refusal must add a diagnostic */
    return is_good ? kind : NULL;
}

/* --- What was said --- */

const struct diag *fake_diag_of(const struct diag_list *diags, enum diag_code code)
{
    for (unsigned i = 0; i < diags->count; i++)
        if (diags->items[i].code == code)
            return &diags->items[i];
    return NULL;
}

const char *fake_text(struct byte_buffer *buffer)
{
    buffer_append(buffer, "", 1);
    buffer->length--;
    return buffer->data;
}
