/* What a sink that delivers exactly once says about itself: the figures of its shards, taken together. */
#include "connectors/kafka/exact.h"

#include <inttypes.h>

/* What the shards have done and have to do, all together. */
struct exact_figures {
    struct outbox_figures outbox; /* epochs: of the shard that has most */
    uint64_t epochs_least;        /* of the shard that has fewest */
    uint64_t transactions, aborted;
    int state; /* enum sender_state, the most urgent one */
};

static struct exact_figures figures_of(struct exact *exact)
{
    struct exact_figures all = {.epochs_least = UINT64_MAX};
    for (uint32_t i = 0; i < exact->count; i++) {
        struct outbox_figures one = outbox_figures(&exact->shards[i].outbox);
        struct sender_figures *sender = &exact->shards[i].sender.figures;
        all.outbox.out_records += one.out_records;
        all.outbox.out_bytes += one.out_bytes;
        all.outbox.records += one.records;
        all.outbox.bytes += one.bytes;
        all.outbox.epochs = MAX(all.outbox.epochs, one.epochs);
        all.epochs_least = MIN(all.epochs_least, one.epochs);
        all.transactions += atomic_load(&sender->transactions);
        all.aborted += atomic_load(&sender->aborted);
        all.state = MAX(all.state, atomic_load(&sender->state));
    }
    return all;
}

void exact_describe(struct exact *exact, struct byte_buffer *out)
{
    struct exact_figures all = figures_of(exact);
    buffer_printf(out, "%" PRIu64 " row%s", exact->rows, exact->rows == 1 ? "" : "s");
    if (exact->redone > 0)
        buffer_printf(out, ", %" PRIu64 " computed again and not sent", exact->redone);
    buffer_printf(out, "; sent %" PRIu64 " records, %" PRIu64 " bytes in %" PRIu64 " transaction%s",
                  all.outbox.out_records, all.outbox.out_bytes, all.transactions,
                  all.transactions == 1 ? "" : "s");
    if (all.aborted > 0)
        buffer_printf(out, ", %" PRIu64 " aborted", all.aborted);
}

void exact_report(struct exact *exact, struct report *report)
{
    static const char *const states[] = {"idle", "open", "committing", "waiting"};
    if (exact->count == 0)
        return;
    struct exact_figures all = figures_of(exact);
    report_add(report, "shards", (double)exact->count, false);
    report_add(report, "epochs_waiting", (double)all.outbox.epochs, false);
    report_add(report, "epochs_apart", (double)(all.outbox.epochs - all.epochs_least), false);
    report_add(report, "records_waiting", (double)all.outbox.records, false);
    report_add(report, "bytes_waiting", (double)all.outbox.bytes, false);
    report_add(report, "outbox_share", (double)all.outbox.bytes / (double)exact->room.budget_bytes, false);
    report_add(report, "records_sent", (double)all.outbox.out_records, false);
    report_add(report, "bytes_sent", (double)all.outbox.out_bytes, false);
    report_add_text(report, "transaction", states[all.state]);
    report_add(report, "transactions", (double)all.transactions, false);
    report_add(report, "transactions_aborted", (double)all.aborted, false);
    kafka_round_trip_report(&exact->shards[0].sender.figures.round_trip, report);
    for (uint32_t i = 0; i < exact->count; i++)
        sender_report_trouble(&exact->shards[i].sender, report);
}
