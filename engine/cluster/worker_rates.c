/* How fast this worker can send to each other one: measured once, when they meet, and told in its record (rates.h). All of it is the
 * keeper's. */
#include "cluster/worker_internal.h"
#include "core/os.h"

enum {
    PROBES = 3, /* of a pair; the fastest one counts, for the others may have met other work */
    PROBE_BYTES = 1 << 20,
};
#define TELL_US (INT64_C(5) * US_PER_SECOND) /* after which rates are told though some are not known yet */

static bool is_known(const struct worker_rates *rates, const struct rendezvous_round *round, uint32_t i)
{
    for (uint32_t k = 0; k < rates->count; k++)
        if (rates->rates[k].lease == round->workers[i].lease)
            return true;
    return false;
}

/* Keeps the rates to workers of the round alone: who has gone and comes back is measured anew. */
void worker_rates_begin(struct worker *worker, const struct rendezvous_round *round)
{
    struct worker_rates *rates = &worker->rates;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < rates->count; k++)
        for (uint32_t i = 0; i < round->count; i++)
            if (rates->rates[k].lease == round->workers[i].lease)
                rates->rates[kept++] = rates->rates[k];
    rates->count = worker->member.rates_count = kept;
    worker->member.rates = rates->rates; /* now: a round may end before it tells its rates */
    rates->began_us = os_monotonic_us();
    memset(rates->probes, 0, sizeof(rates->probes));
    memset(rates->best, 0, sizeof(rates->best));
}

void worker_rates_look(struct worker *worker)
{
    struct worker_rates *rates = &worker->rates;
    const struct rendezvous_round *round = &worker->round;
    for (uint32_t i = 0; worker->incarnation > 0 && i < round->count; i++) {
        struct link_figures figures;
        if (i == round->self || is_known(rates, round, i) || !link_figures(worker->links.links, i, &figures))
            continue;
        if (figures.probe_bytes_per_s > 0) {
            rates->best[i] = MAX(rates->best[i], figures.probe_bytes_per_s);
            rates->probes[i]++;
        }
        if (rates->probes[i] < PROBES) {
            (void)link_probe(worker->links.links, i, PROBE_BYTES); /* unless one is on its way */
            continue;
        }
        rates->rates[rates->count++] = (struct cluster_rate){round->workers[i].lease, rates->best[i]};
        rates->is_news = true;
    }
}

bool worker_rates_is_due(const struct worker *worker)
{
    const struct worker_rates *rates = &worker->rates;
    return rates->is_news && worker->incarnation > 0 &&
           (rates->count + 1 == worker->round.count || os_monotonic_us() - rates->began_us >= TELL_US);
}

enum etcd_outcome worker_rates_tell(struct worker *worker)
{
    struct worker_rates *rates = &worker->rates;
    worker->member.rates_count = rates->count;
    enum etcd_outcome outcome = rendezvous_tell(worker->rendezvous, &worker->member, &worker->diags);
    rates->is_news = outcome == ETCD_UNKNOWN;
    rates->began_us = os_monotonic_us();
    return outcome;
}
