/* Models on a device with the least possible memory, over cold stores, must learn what a CPU learns with
 * memory for all rows; each continues from what the other has saved, including cold rows. A plain program
 * that prints TAP lines. */
#include "device_models.h"
#include "fake_cold.h"
#include "host_model.h"

#include "learners/tables/cold.h"

/* --- Rows beyond the memory --- */

/* Ids are new until event COLD_FRESH; the CPU's model hands over to a device at COLD_BACK. */
enum { COLD_FRESH = 5632, COLD_BACK = 5800 };

/* One piece of 2 MiB has room for all rows that have only a linear weight: where pieces are that wide, all
 * fields have wide vectors. */
static uint64_t cold_memory = 5000 << 10;
static uint32_t cold_vectors = 1, cold_dim = 8;

/* A checkpoint of a learner with cold stores. */
struct cold_saved {
    struct saved saved;
    uint64_t totals[EVENT_FIELDS];
    struct fake_rows copies[EVENT_FIELDS];
};

/* [0]: of the model on the device, [1]: of the CPU's model. */
static struct fake_cold *stores_of[2][EVENT_FIELDS];

static struct model_options cold_options(void)
{
    struct model_options o = options_of(2);
    o.admit_after = 1, o.expire_after_us = 0, o.vectors = cold_vectors, o.dim = cold_dim;
    return o;
}

/* A model with as little memory as a device needs; from: the checkpoint whose cold rows its
 * stores begin with. */
static struct model *cold_model(bool is_on_device, const struct cold_saved *from)
{
    struct model_options o = cold_options();
    o.is_on_device = is_on_device;
    struct model *m = model_new(&o, best());
    struct cold_store *stores[EVENT_FIELDS];
    struct fake_cold **fakes = stores_of[!is_on_device];
    struct gpu_error error;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        fakes[f] = fake_new(table_stored_bytes(model_table(m, f)));
        if (from != NULL)
            fake_copy(&fakes[f]->now, &from->copies[f], fakes[f]->row_bytes);
        stores[f] = &fakes[f]->store;
        if (!is_on_device)
            model_set_cold(m, f, stores[f]);
    }
    struct model_device d = {.api = api, .gpu = gpu, .stream = stream, .memory_bytes = cold_memory};
    d.stores = stores;
    must(!is_on_device || model_attach(m, &d, &error), &error, "model_attach");
    return m;
}

static void cold_save(struct model *m, struct cold_saved *s)
{
    save(m, &s->saved);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        struct fake_cold *store = stores_of[m->device_rows == NULL][f];
        uint64_t bytes;
        memset(&s->copies[f], 0, sizeof(s->copies[f]));
        if (m->device_rows == NULL)
            table_cold_barrier(model_table(m, f));
        s->totals[f] =
            m->device_rows != NULL ? model_device_stats(m, f, &bytes).rows : table_rows(model_table(m, f));
        fake_copy(&s->copies[f], &store->copy, store->row_bytes);
    }
}

static void cold_load(struct model *m, const struct cold_saved *s)
{
    struct gpu_error error;
    uint32_t number;
    load(m, &s->saved);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++) {
        if (m->device_rows == NULL) {
            table_cold_restored(model_table(m, f), s->totals[f]);
            continue;
        }
        struct device_table *t = model_device_table(m, f, &number);
        must(device_table_restored_cold(t, number, s->totals[f], &error), &error, "restored_cold");
    }
}

static void cold_saved_free(struct cold_saved *s)
{
    saved_free(&s->saved);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        fake_clear(&s->copies[f]);
}

/* New ids until COLD_FRESH, then random ones of these. */
static void make_cold_events(void)
{
    for (uint32_t i = 0; i < EVENTS_MAX; i++)
        for (uint64_t f = 0; f < EVENT_FIELDS; f++)
            events.ids[f][i] = 1 + (i < COLD_FRESH ? i : num_mix(i * 8 + f) % COLD_FRESH);
}

static void test_cold(void)
{
    static double ours[EVENTS_MAX], theirs[EVENTS_MAX];
    static struct cold_saved of_device, of_cpu;
    uint32_t number;
    struct model_options o = cold_options();
    make_cold_events();
    struct model *all = model_new(&o, best()), *device = cold_model(true, NULL);
    learn(all, 0, COLD_FRESH, ours);
    struct saved of_all;
    save(all, &of_all);
    learn(all, COLD_FRESH, EVENTS_MAX, ours);
    learn(device, 0, COLD_FRESH, theirs);
    cold_save(device, &of_device);
    struct device_table *set = model_device_table(device, 1, &number);
    struct device_table_stats stats = device_table_stats(set);
    uint64_t bytes, cold = device_table_below(set, number).cold;
    printf("# sent %llu, spilled %llu; of one field %llu cold\n", (unsigned long long)stats.sent,
           (unsigned long long)stats.spilled, (unsigned long long)cold);
    report(same_logits(ours, theirs, COLD_FRESH) && cold > 100 &&
               model_device_stats(device, 1, &bytes).rows == COLD_FRESH,
           "a device with a cold store learns what a CPU does with memory for all");
    struct model *cpu = cold_model(false, &of_device);
    cold_load(cpu, &of_device);
    learn(cpu, COLD_FRESH, COLD_BACK, theirs);
    report(same_logits(ours + COLD_FRESH, theirs + COLD_FRESH, COLD_BACK - COLD_FRESH) &&
               model_table(cpu, 1)->cold->loaded > 0 && table_rows(model_table(cpu, 1)) == COLD_FRESH,
           "a CPU goes on with a device's cold rows");
    cold_save(cpu, &of_cpu);
    model_free(device);
    device = cold_model(true, &of_cpu);
    cold_load(device, &of_cpu);
    learn(device, COLD_BACK, EVENTS_MAX, theirs);
    stats = device_table_stats(model_device_table(device, 1, &number));
    report(same_logits(ours + COLD_BACK, theirs + COLD_BACK, EVENTS_MAX - COLD_BACK) && stats.loaded > 0 &&
               model_device_stats(device, 1, &bytes).rows == COLD_FRESH,
           "a device goes on with a CPU's cold rows");
    model_free(device);
    device = cold_model(true, NULL);
    load(device, &of_all);
    learn(device, COLD_FRESH, EVENTS_MAX, theirs);
    report(same_logits(ours + COLD_FRESH, theirs + COLD_FRESH, EVENTS_MAX - COLD_FRESH),
           "a device goes on from a checkpoint that does not fit into its memory");
    saved_free(&of_all);
    cold_saved_free(&of_device);
    cold_saved_free(&of_cpu);
    model_free(all);
    model_free(cpu);
    model_free(device);
}

int main(void)
{
    if (!models_open())
        return 77;
    if (has_wide_pieces())
        cold_memory = 8 << 20, cold_vectors = EVENT_FIELDS, cold_dim = 256;
    test_cold();
    return device_close();
}
