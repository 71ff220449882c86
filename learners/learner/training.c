/* Steps: how many examples they have, and which examples count how much. */
#include "learners/learner/internal.h"

static const struct option step_options[] = {
    OPTION_INT(struct steps_config, batch_min, "batch_min", 0, "0", "0", "65536",
               "smallest number of examples in a step with live sources: steps follow the load, from "
               "`batch_min` when few examples arrive up to `batch` when the job catches up. A replay takes "
               "the steps of the order log; files are learned by `batch`. 0: always `batch`"),
    OPTION_FLOAT(struct steps_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,
                 "largest norm of an example's gradient, which needs `batch: 1`; with dense layers, and any "
                 "`batch`, of a step's gradient with respect to their weights; 0: no limit"),
    OPTIONS_END,
};

const struct option learner_steps_options[] = {
    OPTION_INT(struct steps_config, batch, "batch", 0, "1", "1", "65536",
               "examples in a step; 1: learns from each example at once, which learns best"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

const struct option learner_batches_options[] = {
    OPTION_INT(struct steps_config, batch, "batch", 0, "512", "1", "65536", "examples in a step"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

const struct option learner_balance_options[] = {
    OPTION_FLOAT(struct balance_config, positive_weight, "positive_weight", 0, "1.0", "1e-6", "1e6",
                 "weight of label 1"),
    OPTION_FLOAT(struct balance_config, negative_weight, "negative_weight", 0, "1.0", "1e-6", "1e6",
                 "weight of label 0"),
    OPTION_FLOAT(struct balance_config, keep_negatives, "keep_negatives", 0, "1.0", "1e-6", "1.0",
                 "share of the examples with label 0 that are learned; predictions are corrected for "
                 "the share"),
    OPTION_BOOL(struct balance_config, fake_negatives, "fake_negatives", "false",
                "for examples from `attribute ... emit fake_negative`: weighs examples so that the "
                "prediction is the probability of the true label (Ktena 2019, fake negative weighted); "
                "without this option the probability is `prediction / (1.0 - prediction)` (fake "
                "negative calibration). The metrics count the rows as they come"),
    OPTIONS_END,
};

/* What learners by batches cannot have, and how to do without. */
static const struct {
    enum model_clash clash;
    const char *what, *without;
} clashes[] = {
    {CLASH_PAIRS, "`pairs`", "leave out `pairs`"},
    {CLASH_PAIR_WEIGHTS, "`pair_weights`", "leave out `pair_weights`"},
    {CLASH_PRODUCTS, "`hidden` in an `ffm`", "leave out `hidden`"},
    {CLASH_CLIPPING, "`clip_norm` without dense layers", "leave out `clip_norm`"},
    {CLASH_OPTIMIZER, "`hidden_optimizer`", /* and its value */
     "take `sgd`, `momentum`, `adagrad`, `adam` or `ftrl` as `hidden_optimizer`"},
    {CLASH_NEWTON, "the optimizer `newton`", "take another optimizer than `newton`"},
    {CLASH_VECTORS, "more than 512 floats an id", "make `dim` or the number of features in `sparse` smaller"},
};
_Static_assert(BATCH_DIM_MAX == 512, "the limit that users read");

static const char *and_also(struct arena *arena, const char *list, const char *item)
{
    return list == NULL ? item : arena_printf(arena, "%s and %s", list, item);
}

bool learner_check_batch(struct operator_bind *bind, const struct learner_config *c)
{
    const char *what = NULL, *without = NULL,
               *layers = c->layers ? optimizer_name(&c->layers->optimizer) : "";
    bool is_bound = network_needs_batches(c->model.network); /* `batch: 1` would not help */
    unsigned found = model_learns_by_batches(&c->model) ? model_clashes(&c->model) : 0;
    for (size_t i = 0; i < ARRAY_COUNT(clashes); i++) {
        if ((found & clashes[i].clash) == 0)
            continue;
        what = and_also(bind->arena, what,
                        clashes[i].clash == CLASH_OPTIMIZER
                            ? arena_printf(bind->arena, "`hidden_optimizer: %s`", layers)
                            : clashes[i].what);
        without = and_also(bind->arena, without, clashes[i].without);
    }
    if (what == NULL)
        return true;
    struct diag *d = diag_error(
        bind->diags, DIAG_BAD_LEARNER, bind->span, "%s cannot have %s",
        is_bound ? "a learner that always learns by batches"
                 : arena_printf(bind->arena, "with `batch: %lld` a learner", (long long)c->steps.batch),
        what);
    diag_hint(bind->diags, d, is_bound ? "%s" : "set `batch: 1`, or %s", without);
    return false;
}
