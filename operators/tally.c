#include "operators/tally.h"

enum { TALLY_HEAD = 8 };

static bool tally_snapshot(const struct state_member *row, struct operator_context *context LEAT_UNUSED,
                           void *object, struct snapshot_writer *writer)
{
    char record[TALLY_HEAD + sizeof(struct tally)] = {row->tag};
    struct tally saved = *(struct tally *)object;
    saved.epoch = snapshot_epoch(writer);
    memcpy(record + TALLY_HEAD, &saved, sizeof(saved));
    return snapshot_put(writer, SNAPSHOT_GLOBAL, record, sizeof(record));
}

static bool tally_restore(const struct state_member *row LEAT_UNUSED, struct operator_context *context,
                          void *object, struct snapshot_reader *reader, struct str record)
{
    struct tally saved, *tally = object;
    if (record.length != TALLY_HEAD + sizeof(saved)) {
        snapshot_corrupt(reader, context->diags, "the record of a step's counts has the wrong size");
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

static void tally_report(const struct state_member *row, void *object, struct report *report)
{
    const struct tally *tally = object;
    const struct tally_figure *figures = row->argument;
    for (uint32_t i = 0; i < TALLY_VALUES; i++)
        if (figures[i].name != NULL && (!figures[i].is_rare || tally->values[i] > 0))
            report_add(report, figures[i].name, (double)tally->values[i], false);
}

const struct state_kind state_tally = {
    .snapshot = tally_snapshot, .restore = tally_restore, .report = tally_report};
