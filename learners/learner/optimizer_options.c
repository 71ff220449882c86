#include "learners/learner/optimizer_options.h"

#include "kernels/num.h"

#define ROW_RATE(def, what) OPTION_FLOAT(struct optimizer_config, rate, "rate", 0, def, "0.0", "1000.0", what)

static const struct option penalty_options[] = {
    OPTION_FLOAT(struct optimizer_config, l1, "l1", 0, "0.0", "0.0", NULL, "pulls weights to exactly zero"),
    OPTION_FLOAT(struct optimizer_config, l2, "l2", 0, "0.0", "0.0", NULL, "pulls weights towards zero"),
    OPTIONS_END,
};

static const struct option decay_options[] = {
    OPTION_FLOAT(struct optimizer_config, decay, "decay", 0, "1.0", "0.0", "1.0",
                 "share of an accumulator that an update keeps; below 1 old gradients are forgotten"),
    OPTIONS_END,
};

/* The options of all optimizers but ftrl. */
static const struct option step_options[] = {
    OPTION_INCLUDE_ROWS(penalty_options),
    OPTION_INT(struct optimizer_config, warmup, "warmup", 0, "0", "0", NULL,
               "examples over which the rate rises from 0"),
    OPTION_INT(struct optimizer_config, halve_every, "halve_every", 0, "0", "0", NULL,
               "examples after which the rate has halved; 0: the rate is constant"),
    OPTION_FLOAT(struct optimizer_config, rate_min, "rate_min", 0, "0.0", "0.0", "1000.0",
                 "lowest rate, at which halving ends"),
    OPTION_FLOAT(struct optimizer_config, step_max, "step_max", 0, "1.0", "1e-12", "1e12",
                 "largest change of a weight in one step"),
    OPTIONS_END,
};

static const struct option sgd_options[] = {
    ROW_RATE("0.01", "learning rate"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

static const struct option momentum_options[] = {
    ROW_RATE("0.01", "learning rate"),
    OPTION_FLOAT(struct optimizer_config, momentum, "momentum", 0, "0.9", "0.0", "1.0",
                 "share of the last step that is added to the new step"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

static const struct option adagrad_options[] = {
    ROW_RATE("0.1", "learning rate"),
    OPTION_FLOAT(struct optimizer_config, accumulator, "accumulator", 0, "1.0", "1e-12", "1e12",
                 "initial value of each sum of squared gradients: a higher value slows the first steps"),
    OPTION_INCLUDE_ROWS(decay_options),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

static const struct option adam_options[] = {
    ROW_RATE("0.001", "learning rate"),
    OPTION_FLOAT(struct optimizer_config, beta1, "beta1", 0, "0.9", "0.0", "0.999999",
                 "decay of the first moment"),
    OPTION_FLOAT(struct optimizer_config, beta2, "beta2", 0, "0.999", "0.0", "0.999999",
                 "decay of the second moment"),
    OPTION_FLOAT(struct optimizer_config, epsilon, "epsilon", 0, "1e-8", "1e-12", "1.0", "added to the root"),
    OPTION_INCLUDE_ROWS(step_options),
    OPTIONS_END,
};

static const struct option ftrl_options[] = {
    ROW_RATE("0.1", "alpha of McMahan 2013"),
    OPTION_FLOAT(struct optimizer_config, beta, "beta", 0, "1.0", "0.0", "1e6", "beta of McMahan 2013"),
    OPTION_INCLUDE_ROWS(penalty_options),
    OPTIONS_END,
};

static const struct option newton_options[] = {
    ROW_RATE("0.5", "share of the full step"),
    OPTION_FLOAT(struct optimizer_config, accumulator, "precision", 0, "5.0", "1e-6", "1e12",
                 "prior precision of a weight: 1 / its variance before anything is learned"),
    OPTION_INCLUDE_ROWS(decay_options),
    OPTION_INCLUDE_ROWS(step_options),
    OPTION_BOOL(struct optimizer_config, joint, "joint", "false",
                "the weights of an example share its error (Kalman's gain), instead of each weight "
                "correcting the whole error"),
    OPTIONS_END,
};

const struct kind_choice optimizer_kinds[] = {
    {"sgd", sgd_options, sizeof(struct optimizer_config), "plain gradient steps"},
    {"momentum", momentum_options, sizeof(struct optimizer_config), "gradient steps with momentum"},
    {"adagrad", adagrad_options, sizeof(struct optimizer_config), "a rate for each weight (Duchi 2011)"},
    {"adagrad_row", adagrad_options, sizeof(struct optimizer_config), "AdaGrad with one accumulator a row"},
    {"adagrad_block", adagrad_options, sizeof(struct optimizer_config),
     "AdaGrad with one accumulator for four weights"},
    {"adam", adam_options, sizeof(struct optimizer_config), "Adam on the rows an event touches (lazy)"},
    {"ftrl", ftrl_options, sizeof(struct optimizer_config), "FTRL-proximal, sparse with l1 (McMahan 2013)"},
    {"newton", newton_options, sizeof(struct optimizer_config),
     "a Gaussian belief for each weight: steps shrink as evidence grows (Graepel 2010); only with batch: 1"},
    {0},
};

const char *optimizer_name(const struct kind_ref *ref)
{
    return ref->config == NULL ? "none" : optimizer_kinds[ref->choice].name;
}

struct optimizer_options optimizer_from(const struct kind_ref *ref)
{
    const struct optimizer_config *c = ref->config;
    struct optimizer_options o = {
        .kind = (enum opt_kind)ref->choice,
        .accumulator = (float)c->accumulator,
        .params =
            {
                .rate = (float)c->rate,
                .l1 = (float)c->l1,
                .l2 = (float)c->l2,
                .decay = (float)c->decay,
                .step_max = (float)c->step_max,
                .epsilon = (float)(ref->choice == OPT_FTRL ? c->beta : c->epsilon),
                .beta1 = (float)(ref->choice == OPT_MOMENTUM ? c->momentum : c->beta1),
                .beta2 = (float)c->beta2,
                .correction1 = 1.0F,
                .correction2 = 1.0F,
            },
    };
    return o;
}

struct ftrl64_params optimizer_ftrl(const struct kind_ref *ref)
{
    const struct optimizer_config *c = ref->config;
    return (struct ftrl64_params){.alpha = c->rate, .beta = c->beta, .l1 = c->l1, .l2 = c->l2};
}

float optimizer_rate(const struct kind_ref *ref, uint64_t seen, uint32_t block)
{
    const struct optimizer_config *o = ref->config;
    if (o == NULL)
        return 0.0F;
    double rate = o->rate, n = (double)seen;
    if (o->halve_every > 0)
        rate *= num_exp(-0.6931471805599453 * n / (double)o->halve_every);
    rate = rate < o->rate_min ? o->rate_min : rate;
    if (n + block < (double)o->warmup)
        rate *= (n + block) / (double)o->warmup;
    return (float)rate;
}
