/* A user's last items for people. */
#include "learners/histories/histories.h"

#include "core/describe.h"

bool histories_describe(struct histories *histories, const struct items_numbers *numbers, uint64_t key,
                        struct describe *out)
{
    struct history_view view;
    struct history_entry entry;
    histories_guests_begin(histories);
    histories_find(histories, &key, 1, TABLE_STEP_NONE, &view);
    bool is_there = view.count > 0;
    if (is_there) {
        describe_int(out, "events", (int64_t)view.count);
        describe_list(out, "history");
        while (!describe_is_full(out) && history_next(&view, &entry)) {
            describe_record(out, NULL);
            items_numbers_describe(numbers, entry.item, "item", out);
            describe_time(out, "time", (int64_t)entry.seconds * US_PER_SECOND);
            describe_close(out);
        }
        describe_close(out);
    }
    histories_guests_end(histories);
    return is_there;
}
