#include "operators/tally.h"

enum { TALLY_HEAD = 8 };

bool tally_snapshot(const struct tally *tally, char kind, struct snapshot_writer *writer)
{
    char record[TALLY_HEAD + sizeof(*tally)] = {kind};
    struct tally saved = *tally;
    saved.epoch = snapshot_epoch(writer);
    memcpy(record + TALLY_HEAD, &saved, sizeof(saved));
    return snapshot_put(writer, SNAPSHOT_GLOBAL, record, sizeof(record));
}

bool tally_restore(struct tally *tally, const struct operator_context *context,
                   struct snapshot_reader *reader, struct str record)
{
    struct tally saved;
    if (record.length != TALLY_HEAD + sizeof(saved)) {
        snapshot_corrupt(reader, context->diags, "figures of another size");
        return false;
    }
    memcpy(&saved, record.data + TALLY_HEAD, sizeof(saved));
    if (context->lane > 0 || saved.epoch < tally->epoch)
        return true;
    if (saved.epoch > tally->epoch)
        *tally = (struct tally){.epoch = saved.epoch};
    for (uint32_t i = 0; i < TALLY_VALUES; i++)
        tally->values[i] += saved.values[i];
    return true;
}
