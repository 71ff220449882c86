/* The answers of `attribute`, by key.
 *
 * Where only the label is wanted, a key keeps event times. Of three times a < b < c with c - a <= within, b
 * is left out: every interval of length `within` that holds b also holds a or c. So a key keeps at most about
 * two times for each `within`, however many answers it gets. Where columns of the answers are wanted, a key
 * keeps all answers as versions (versions.h). Both are dropped when the watermark has passed the last
 * deadline that they can answer, time + within. */
#include "operators/attribute/attribute.h"

#include "operators/expr/compute.h"

/* Inserts `time` into the rising `times`, which has room; drops times before `first`. Returns the count. */
static uint32_t add_time(int64_t *times, uint32_t count, int64_t time, int64_t first, int64_t within_us)
{
    uint32_t gone = 0;
    while (gone < count && times[gone] < first)
        gone++;
    count -= gone;
    memmove(times, times + gone, count * sizeof(*times));
    uint32_t at = count;
    while (at > 0 && times[at - 1] > time)
        at--;
    if (at > 0 && times[at - 1] == time)
        return count;
    memmove(times + at + 1, times + at, (count - at) * sizeof(*times));
    times[at] = time;
    count++;
    /* Drops the new time and its neighbours where their own neighbours are at most `within` apart. */
    for (uint32_t i = at + 1 < count ? at + 1 : at, turns = 0; turns < 3 && i > 0; turns++, i--) {
        if (i + 1 >= count || times[i + 1] > time_add(times[i - 1], within_us))
            continue;
        memmove(times + i, times + i + 1, (count - i - 1) * sizeof(*times));
        count--;
    }
    return count;
}

bool attribute_take_answer(struct operator_context *context, struct attribute *attribute,
                           struct keyed_slot *slot, int64_t time, struct str values)
{
    int64_t last_deadline = time_add(time, attribute->within_us);
    if (last_deadline < context->watermark) {
        context->counters.late_updates++;
        return false;
    }
    int64_t first = time_add(context->watermark, -attribute->within_us);
    if (attribute->keeps_rows) {
        struct version_new new = {
            .time = time, .data = values, .expire_us = last_deadline, .floor_us = time_add(first, -1)};
        attribute->tally.values[ATTRIBUTE_ANSWERS_DROPPED] += versions_add(attribute->table, slot, &new);
        return true;
    }
    uint32_t bytes;
    keyed_read(slot, &bytes);
    uint32_t count = bytes / (uint32_t)sizeof(int64_t);
    int64_t *times =
        keyed_write(attribute->table, slot, (count + 1) * (uint32_t)sizeof(int64_t), last_deadline);
    uint32_t kept = add_time(times, count, time, first, attribute->within_us);
    (void)keyed_write(attribute->table, slot, kept * (uint32_t)sizeof(int64_t), last_deadline);
    return true;
}

/* Encodes the values of a row's columns into attribute->encoded. False: an expression failed for the row, or
 * its values are too long, and the row was rejected. */
static bool encode_values(struct operator_context *context, struct attribute *attribute,
                          const struct batch *batch, const struct column *values,
                          const struct expr_errors *errors, uint32_t row)
{
    buffer_clear(&attribute->encoded);
    if (errors->count > 0 && bit_get(errors->rows, row))
        return false;
    version_encode(&attribute->columns, values, row, &attribute->encoded);
    if (attribute->encoded.length <= VERSION_BYTES_MAX)
        return true;
    context->counters.in++;
    operator_reject(context, batch, row, "the values that the step keeps of this row are longer than 2 MiB");
    return false;
}

void attribute_take_answers(struct operator_context *context, struct attribute *attribute,
                            const struct batch *batch)
{
    struct row_keys keys = keys_of(batch, attribute->answer_keys, attribute->on.count, context->scratch);
    struct expr_errors errors = {0};
    struct column *values = version_columns_evaluate(&attribute->columns, batch, context->scratch, &errors);
    struct keyed_slot *slots[BATCH_ROWS];
    context->counters.in += errors.count; /* the engine counts the rows of input 0 */
    compute_reject(context, batch, &errors);
    hot_keys_note(attribute->hot, batch, attribute->answer_keys, attribute->on.count, &keys);
    keyed_begin(attribute->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (!keys.has_null[i] && encode_values(context, attribute, batch, values, &errors, row))
            (void)attribute_take_answer(context, attribute, slots[i], batch->event_time[row],
                                        (struct str){attribute->encoded.data, attribute->encoded.length});
    }
    keyed_end(attribute->table);
}

bool attribute_is_answered(const struct attribute *attribute, const struct keyed_slot *slot, int64_t from)
{
    if (slot == NULL)
        return false;
    uint32_t bytes;
    const int64_t *times = keyed_read(slot, &bytes);
    uint32_t count = bytes / (uint32_t)sizeof(int64_t), i = 0;
    while (i < count && times[i] < from)
        i++;
    return i < count && times[i] <= time_add(from, attribute->within_us);
}

/* The finger of the slot: where the search begins, and where the caller stores its end. *nowhere: set to the
 * newest version; returned where there is no finger. */
static const struct version **finger_of(struct attribute_fingers *fingers, const struct keyed_slot *slot,
                                        const struct version **nowhere)
{
    *nowhere = versions_last(slot);
    if (fingers == NULL || slot == NULL)
        return nowhere;
    size_t at = (uintptr_t)slot / sizeof(*slot) % ATTRIBUTE_FINGERS;
    if (fingers->items[at].slot != slot) {
        fingers->items[at].slot = slot;
        fingers->items[at].at = *nowhere;
    }
    return &fingers->items[at].at;
}

const struct version *attribute_last(const struct attribute *attribute, struct attribute_fingers *fingers,
                                     const struct keyed_slot *slot, int64_t from)
{
    const struct version *nowhere, **finger = finger_of(fingers, slot, &nowhere), *version = *finger;
    const struct version *newest = nowhere, *next;
    int64_t to = time_add(from, attribute->within_us);
    if (version == NULL)
        return NULL;
    while (version->time > to && (next = version_before(version)) != NULL)
        version = next;
    while (version->time <= to && version != newest && (next = version_after(version))->time <= to)
        version = next;
    *finger = version;
    return version->time < from || version->time > to ? NULL : version;
}

const struct version *attribute_first(const struct attribute *attribute, struct attribute_fingers *fingers,
                                      const struct keyed_slot *slot, int64_t from)
{
    const struct version *nowhere, **finger = finger_of(fingers, slot, &nowhere), *version = *finger;
    const struct version *newest = nowhere, *before;
    int64_t to = time_add(from, attribute->within_us);
    if (version == NULL)
        return NULL;
    while (version->time < from && version != newest)
        version = version_after(version);
    while (version->time >= from && (before = version_before(version)) != NULL && before->time >= from)
        version = before;
    *finger = version;
    return version->time < from || version->time > to ? NULL : version;
}
