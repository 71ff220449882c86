/* Rows of ids: their vectors' length and initial values, admission, expiry. */
#include "learners/learner/internal.h"

const struct option learner_init_of_options[] = {
    OPTION_ASSIGNMENTS(struct embedding_config, init_of, "init_of", 0,
                       "`init` of single features: `{ user_id: 0.01, hour: 0.2 }`"),
    OPTIONS_END,
};

const struct option learner_admission_options[] = {
    LEARNER_ADMIT_OPTION("a row"),
    OPTION_INCLUDE_ROWS(learner_expiry_options),
    LEARNER_ROWS_MAX_OPTION("rows"),
    OPTIONS_END,
};

const struct option learner_expiry_options[] = {
    OPTION_BYTES(struct embedding_config, sketch_bytes, "sketch", 0, "4MiB", "4KiB", "16GiB",
                 "memory of each feature for counting ids that are not yet admitted"),
    OPTION_DURATION(struct embedding_config, expire_after_us, "expire_after", 0, "0s", "0s", NULL,
                    "how long, in event time, an id may be absent before it is removed; 0s: for ever. "
                    "In the report, `rows` counts an expired id until a sweep removes it; from then on "
                    "`rows_expired` counts it"),
    OPTIONS_END,
};

bool learner_bind_inits(struct operator_bind *bind, struct learner_config *c)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < c->embedding.init_of.count; i++) {
        const struct assignment *own = &c->embedding.init_of.items[i];
        const struct ast name = {.tag = AST_NAME, .span = own->name_span, .text = own->name};
        int field = learner_vector_field(bind, c, &name);
        double init = own->value->tag == AST_FLOAT ? own->value->real
                      : own->value->tag == AST_INT ? (double)own->value->integer
                                                   : -1.0;
        if (init < 0.0 || init > 100.0) {
            struct diag *d = diag_error(bind->diags, DIAG_OUT_OF_RANGE, own->value->span,
                                        "a value of `init_of` is not a number, or is out of range");
            diag_hint(bind->diags, d, "give a number from 0.0 to 100.0, as for `init`");
            is_ok = false;
        } else if (field >= 0) {
            c->model.field_init[field] = init > 0.0 ? (float)init : -1.0F; /* options.h: below 0: zeros */
        }
        is_ok = field >= 0 && is_ok;
    }
    return is_ok;
}

void learner_embedding_model(const struct embedding_config *e, struct model_options *o)
{
    o->dim = (uint32_t)e->dim;
    o->init_bound = (float)e->init;
    o->admit_after = (uint32_t)e->admit_after;
    o->sketch_bytes = (size_t)e->sketch_bytes;
    o->expire_after_us = e->expire_after_us;
    o->rows_max = (uint64_t)e->rows_max;
    if (e->optimizer.config != NULL)
        o->embedding = optimizer_from(&e->optimizer);
}

void learner_put_embedding(const struct embedding_config *e, struct byte_buffer *out)
{
    buffer_printf(out, "=embedding: dim %lld, %s, admit_after %lld, sketch %lld, rows_max %lld\n",
                  (long long)e->dim, optimizer_name(&e->optimizer), (long long)e->admit_after,
                  (long long)(e->admit_after > 1 ? e->sketch_bytes : 0), (long long)e->rows_max);
}
