/*
 * Models on a device (or the host's model of one) beside the same models on the CPU: the same predictions,
 * the same rows as they are stored, the same dense weights, for every kind of model; and each continues from
 * what the other has saved, also in the middle of a batch. model_predict gives what is then reported. A plain
 * program that prints TAP lines.
 */
#include "device_models.h"

static void test_kind(size_t k)
{
    static double ours[EVENTS_MAX], theirs[EVENTS_MAX];
    char what[120];
    struct model_options o = options_of(k);
    tolerance = o.precision == ROW_FP32 ? 1e-5 : 4e-3;
    struct model *cpu = model_new(&o, best()), *device = device_model(&o);
    learn(cpu, 0, CUT, ours);
    learn(device, 0, CUT, theirs);
    (void)snprintf(what, sizeof(what), "%s: the same predictions and the same model on both", kinds[k].name);
    report(same_logits(ours, theirs, CUT) && same_models(cpu, device), what);
    (void)snprintf(what, sizeof(what), "%s: work that comes again is launched as a graph", kinds[k].name);
    report(device->train->graphs.launched > 4 || CUT < 10 * o.batch, what);
    struct saved of_cpu, of_device;
    save(cpu, &of_cpu);
    save(device, &of_device);
    struct model *cpu_next = model_new(&o, best()), *device_next = device_model(&o);
    load(cpu_next, &of_device);
    load(device_next, &of_cpu);
    uint32_t next = CUT + o.batch; /* one step later */
    learn(cpu, CUT, next, ours);
    learn(device_next, CUT, next, theirs);
    (void)snprintf(what, sizeof(what), "%s: in lock-step", kinds[k].name);
    report(is_in_step(cpu, device_next), what);
    learn(cpu, next, LEARNED, ours);
    learn(cpu_next, CUT, next, theirs);
    learn(cpu_next, next, LEARNED, theirs);
    bool is_good = same_logits(ours + CUT, theirs + CUT, LEARNED - CUT) && same_models(cpu, cpu_next);
    (void)snprintf(what, sizeof(what), "%s: a CPU goes on with what the device has saved", kinds[k].name);
    report(is_good, what);
    learn(device_next, next, LEARNED, theirs);
    is_good = same_logits(ours + CUT, theirs + CUT, LEARNED - CUT) && same_models(cpu, device_next);
    (void)snprintf(what, sizeof(what), "%s: the device goes on with what a CPU has saved", kinds[k].name);
    report(is_good, what);
    saved_free(&of_cpu);
    saved_free(&of_device);
    model_free(cpu);
    model_free(device);
    model_free(cpu_next);
    model_free(device_next);
}

/* Steps of 1 to `batch` events, whose size changes during the run (model_set_step_events). */
static void test_steps(size_t k)
{
    static double ours[EVENTS_MAX], theirs[EVENTS_MAX];
    enum { FEW = 17 };
    static const struct {
        uint32_t until, events;
    } steps[] = {{100, FEW}, {400, 1}, {430, 0}, {CUT, 30}};
    char what[120];
    struct model_options o = options_of(k);
    struct model *cpu = model_new(&o, best()), *device = device_model(&o);
    for (uint32_t i = 0, at = 0; i < ARRAY_COUNT(steps); at = steps[i++].until) {
        learn(cpu, at, steps[i].until, ours);
        learn(device, at, steps[i].until, theirs);
        model_set_step_events(cpu, steps[i].events > 0 ? steps[i].events : o.batch);
        model_set_step_events(device, steps[i].events > 0 ? steps[i].events : o.batch);
    }
    (void)snprintf(what, sizeof(what), "%s: steps of few events are the same on both", kinds[k].name);
    report(same_logits(ours, theirs, CUT) && same_models(cpu, device), what);
    model_free(cpu);
    model_free(device);
    cpu = model_new(&o, best());
    model_set_step_events(cpu, FEW);
    o.batch = FEW;
    struct model *small = model_new(&o, best());
    learn(cpu, 0, CUT, ours);
    learn(small, 0, CUT, theirs);
    (void)snprintf(what, sizeof(what), "%s: a batch of which less is used is a small batch", kinds[k].name);
    report(memcmp(ours, theirs, CUT * sizeof(*ours)) == 0 && same_models(cpu, small), what);
    model_free(cpu);
    model_free(small);
}

static void predict(struct model *m, uint32_t begin, uint32_t end, double *logits)
{
    const uint64_t *ids[EVENT_FIELDS];
    const float *dense[EVENT_DENSE];
    for (int f = 0; f < EVENT_FIELDS; f++)
        ids[f] = events.ids[f] + begin;
    for (int d = 0; d < EVENT_DENSE; d++)
        dense[d] = events.dense[d] + begin;
    struct model_input in = {
        .rows = end - begin, .ids = ids, .dense = dense, .event_time_us = events.times + begin};
    model_predict(m, &in, logits + begin);
    if (model_error(m) != NULL)
        must(false, model_error(m), "predicting");
}

/* Each call ends within a step: all its events are predicted with the same weights. */
static void test_predicted(size_t k)
{
    static double ours[EVENTS_MAX], theirs[EVENTS_MAX], alone[EVENTS_MAX];
    char what[120];
    struct model_options o = options_of(k);
    struct model *m = device_model(&o), *silent = device_model(&o);
    bool is_good = true;
    uint32_t predicted = MIN(o.batch + 300, 700); /* some steps of a small batch, one of a large one */
    for (uint32_t at = 0, n; at < predicted; at += n) {
        n = MIN(m->step_events - m->pending, 1 + (uint32_t)(num_mix(at) % 50));
        predict(m, at, at + n, theirs);
        learn(m, at, at + n, ours);
        learn(silent, at, at + n, alone);
        for (uint32_t l = 0; l < MAX(o.labels, 1U); l++)
            is_good &= same_logits(theirs + at + (size_t)l * MODEL_ROWS_MAX,
                                   ours + at + (size_t)l * MODEL_ROWS_MAX, n);
    }
    (void)snprintf(what, sizeof(what), "%s: predicts what it then reports", kinds[k].name);
    report(is_good, what);
    (void)snprintf(what, sizeof(what), "%s: predicting changes nothing", kinds[k].name);
    report(same_models(m, silent), what);
    model_free(m);
    model_free(silent);
}

int main(void)
{
    if (!models_open())
        return 77;
/* EACH, REST: of how many kinds one is tested, and of those one with the other tests, too. Sanitizers are slow, and the
 * other kinds run the same code. */
#if defined(__SANITIZE_THREAD__)
    enum { EACH = 5, REST = 1 };
#elif defined(__SANITIZE_ADDRESS__)
    enum { EACH = 1, REST = 3 };
#else
    enum { EACH = 1, REST = 1 };
#endif
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k += EACH) {
        test_kind(k);
        if (k % REST == 0)
            test_steps(k);
        if (k % REST == REST - 1)
            test_predicted(k);
    }
    return device_close();
}
