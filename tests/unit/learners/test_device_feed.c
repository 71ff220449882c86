/* Work queued ahead on a device (train/feed.h): whenever its streams run, a model must learn the same as on
 * the CPU. On the host's model of a device, each seed runs them at other times: only when a thread waits, at
 * once, or in between; on a device there is one run. A plain program that prints TAP lines. */
#include "device_models.h"
#include "host_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 3 }; /* a sanitizer is slow; the release build has the others */
#else
enum { SEEDS = 8 };
#endif
enum { FED = 300 };

typedef void begin_model(uint64_t seed, uint8_t poison);

/* The host's model's function; NULL on a device. */
static begin_model *model_of_host(void)
{
    void *symbol = host_model_symbol("cuda_model_begin");
    begin_model *begin = NULL;
    if (symbol)
        memcpy(&begin, &symbol, sizeof(begin));
    return begin;
}

/* Learns in calls of `calls` events; from the middle on, steps have half a batch. */
static void learn_fed(struct model *m, uint32_t calls, double *logits)
{
    static uint8_t verdicts[EVENTS_MAX];
    uint32_t batch = m->options.batch;
    for (uint32_t at = 0, end; at < FED; at = end) {
        end = MIN(at + calls, (uint32_t)FED);
        model_set_step_events(m, at < FED / 2 ? batch : batch / 2);
        events_learn(&events, m, at, end, calls, logits, verdicts);
        if (model_error(m) != NULL)
            must(false, model_error(m), "learning");
    }
}

static void test_fed(size_t k, uint32_t calls, begin_model *begin)
{
    static double ours[EVENTS_MAX], theirs[EVENTS_MAX];
    struct model_options o = options_of(k);
    struct model *cpu = model_new(&o, best());
    uint32_t wrong = 0, seeds = begin ? SEEDS : 1;
    learn_fed(cpu, calls, ours);
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        if (begin != NULL)
            begin(seed, seed % 2 ? 0xa5 : 0x5a);
        struct model *device = device_model(&o);
        learn_fed(device, calls, theirs);
        wrong += !same_logits(ours, theirs, FED) || !same_models(cpu, device);
        model_free(device);
    }
    model_free(cpu);
    char what[120];
    (void)snprintf(what, sizeof(what), "%s, calls of %u: the same whenever streams do their work (%u of %u)",
                   kinds[k].name, calls, seeds - wrong, seeds);
    report(wrong == 0, what);
}

int main(void)
{
    static const char *const fed[] = {"fm and a wide field", "deepfm"};
    if (!models_open())
        return 77;
    begin_model *begin = model_of_host();
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        for (size_t i = 0; i < ARRAY_COUNT(fed); i++)
            if (strcmp(kinds[k].name, fed[i]) == 0)
                test_fed(k, 20, begin), test_fed(k, kinds[k].batch, begin), test_fed(k, 250, begin);
    return device_close();
}
