#include "learners/losses/losses.h"

#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

#define LOSS(kind, summary) extern const struct losses_kind losses_##kind;
#include "learners/losses/registry.def"
#undef LOSS

static const struct losses_kind *const kinds[] = {
#define LOSS(kind, summary) &losses_##kind,
#include "learners/losses/registry.def"
#undef LOSS
};

const struct option losses_shared_options[] = {
    OPTION_FLOAT(struct losses_options, temperature, "temperature", 0, "1.0", "0.001", "1000.0",
                 "divides each score: below 1 differences count more"),
    OPTIONS_END,
};

const struct losses_kind *losses_find(struct str name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (str_is(name, kinds[i]->name))
            return kinds[i];
    }
    return NULL;
}

bool losses_check(const struct losses_kind *kind, const struct losses_options *options,
                  char reason[LOSSES_REASON])
{
    reason[0] = '\0';
    return kind->check == NULL || kind->check(options, reason);
}

void losses_work_init(struct losses_work *work, uint32_t count_max)
{
    size_t n = (size_t)count_max + 1;
    *work = (struct losses_work){.count_max = count_max,
                                 .scores = mem_calloc(n, sizeof(*work->scores)),
                                 .gradients = mem_calloc(n, sizeof(*work->gradients)),
                                 .values = mem_calloc(n, sizeof(*work->values)),
                                 .dots = mem_calloc(n, sizeof(*work->dots)),
                                 .zeros = mem_calloc(n, sizeof(*work->zeros))};
}

void losses_work_free(struct losses_work *work)
{
    free(work->scores);
    free(work->gradients);
    free(work->values);
    free(work->dots);
    free(work->zeros);
    *work = (struct losses_work){0};
}

double losses_score(struct losses_call *call, uint32_t i)
{
    const struct losses_target *t = call->target;
    double dot = (double)call->kernels->dot(t->query, t->negatives[i], t->d);
    return call->scores[1 + i] = dot / call->options->temperature;
}

/* Writes scales and the query's gradient from the derivatives by the scores; false if any is not finite. */
static bool finish(const struct losses_call *call, double weight, const struct losses_result *r)
{
    const struct losses_target *t = call->target;
    double factor = weight / call->options->temperature;
    bool is_finite = true;
    for (uint32_t i = 0; i <= t->count; i++) {
        r->row_scales[i] = (float)(call->gradients[i] * factor);
        is_finite &= isfinite(r->row_scales[i]) != 0;
    }
    memset(r->query_gradient, 0, t->d * sizeof(*r->query_gradient));
    call->kernels->add_weighted(r->query_gradient, &t->positive, r->row_scales, 1, t->d);
    call->kernels->add_weighted(r->query_gradient, t->negatives, r->row_scales + 1, t->count, t->d);
    for (uint32_t i = 0; i < t->d; i++)
        is_finite &= isfinite(r->query_gradient[i]) != 0;
    return is_finite;
}

bool losses_at(const struct losses_kind *kind, const struct losses_options *options,
               const struct kernels *kernels, const struct losses_target *t, double weight,
               struct losses_work *work, struct losses_result *result)
{
    leat_assert(t->count <= work->count_max && options->temperature > 0.0);
    struct losses_call call = {.options = options,
                               .target = t,
                               .kernels = kernels,
                               .scores = work->scores,
                               .gradients = work->gradients,
                               .values = work->values,
                               .zeros = work->zeros};
    work->dots[0] = kernels->dot(t->query, t->positive, t->d);
    if (!kind->is_lazy)
        kernels->dots(work->dots + 1, t->query, t->negatives, t->count, t->d);
    uint32_t scores = kind->is_lazy ? 1 : t->count + 1;
    bool is_finite = true;
    for (uint32_t i = 0; i < scores; i++) {
        call.scores[i] = (double)work->dots[i] / options->temperature;
        is_finite &= isfinite(call.scores[i]) != 0;
    }
    memset(call.gradients, 0, ((size_t)t->count + 1) * sizeof(*call.gradients));
    result->loss = is_finite ? kind->at(&call) * weight : 0.0;
    if (is_finite && isfinite(result->loss) && finish(&call, weight, result))
        return true;
    result->loss = 0.0;
    memset(result->query_gradient, 0, t->d * sizeof(*result->query_gradient));
    memset(result->row_scales, 0, ((size_t)t->count + 1) * sizeof(*result->row_scales));
    return false;
}
