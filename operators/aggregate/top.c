/* top(x, n): the n most frequent values, most frequent first, values of equal counts by their encoded bytes.
 * Counts are exact up to `slots` different values in a pane (8 n, at least 64, at most 1,024). Beyond that,
 * Space-Saving (Metwally, Agrawal, El Abbadi 2005): a new value replaces the rarest one and adds to its
 * count, so a count is too high by at most rows / slots.
 *
 * A partial is a list of entries: count (8 bytes), length (4), the value's bytes; by rising bytes of the
 * value. */
#include "operators/aggregate/aggregate.h"

#include <stdlib.h>

enum { SLOTS_PER_VALUE = 8, SLOTS_MIN = 64, SLOTS_MAX = 1024, ENTRY_HEAD = 12, TOP_MAX = 128 };

struct entry {
    uint64_t count;
    struct str value;
    size_t at; /* offset in the partial */
};

static uint32_t slots_of(const struct aggregate *aggregate)
{
    return (uint32_t)MIN(MAX(aggregate->parameter * SLOTS_PER_VALUE, SLOTS_MIN), SLOTS_MAX);
}

/* Reads the entry at `at`; false at the end. Partials are our own state: lengths are checked all the same. */
static bool read_entry(struct str partial, size_t at, struct entry *entry)
{
    uint32_t length;
    if (partial.length - at < ENTRY_HEAD)
        return false;
    memcpy(&entry->count, partial.data + at, 8);
    memcpy(&length, partial.data + at + 8, 4);
    if (length > partial.length - at - ENTRY_HEAD)
        return false;
    entry->value = (struct str){partial.data + at + ENTRY_HEAD, length};
    entry->at = at;
    return true;
}

static void append_entry(struct byte_buffer *out, uint64_t count, struct str value)
{
    uint32_t length = (uint32_t)value.length;
    buffer_append(out, &count, 8);
    buffer_append(out, &length, 4);
    buffer_append(out, value.data, length);
}

/* Inserts an entry before offset `at`. */
static void insert_entry(struct byte_buffer *out, size_t at, uint64_t count, struct str value)
{
    size_t bytes = ENTRY_HEAD + value.length, tail = out->length - at;
    buffer_reserve(out, bytes);
    memmove(out->data + at + bytes, out->data + at, tail);
    out->length = at;
    append_entry(out, count, value);
    out->length += tail;
}

static void remove_entry(struct byte_buffer *out, const struct entry *entry)
{
    size_t bytes = ENTRY_HEAD + entry->value.length;
    memmove(out->data + entry->at, out->data + entry->at + bytes, out->length - entry->at - bytes);
    out->length -= bytes;
}

static void add_value(const struct aggregate *aggregate, struct byte_buffer *partial, struct str value,
                      uint64_t count)
{
    struct entry entry, rarest = {.count = UINT64_MAX};
    size_t place = partial->length;
    uint32_t entries = 0;
    bool is_placed = false;
    for (size_t at = 0; read_entry((struct str){partial->data, partial->length}, at, &entry);
         at += ENTRY_HEAD + entry.value.length, entries++) {
        int order = str_compare(entry.value, value);
        if (order == 0) {
            entry.count += count;
            memcpy(partial->data + at, &entry.count, 8);
            return;
        }
        if (order > 0 && !is_placed) {
            place = at;
            is_placed = true;
        }
        if (entry.count < rarest.count)
            rarest = entry; /* of values with equal counts the first by bytes */
    }
    if (entries >= slots_of(aggregate)) {
        count += rarest.count;
        if (rarest.at < place)
            place -= ENTRY_HEAD + rarest.value.length;
        remove_entry(partial, &rarest);
    }
    insert_entry(partial, place, count, value);
}

static void top_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                       const struct aggregate_row *row)
{
    struct byte_buffer value = {0};
    row_encode_value(&value, row->argument, &aggregate->argument_type, row->row);
    add_value(aggregate, partial, (struct str){value.data, value.length}, 1);
    buffer_free(&value);
}

/* Merges two partials in one pass, as both are sorted by value. False, with nothing changed: there are more
 * values than slots. Otherwise the result is the same as from adding the values of `from` one by one. */
static bool merge(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    struct str own = {into->data, into->length};
    struct byte_buffer merged = {0};
    struct entry a = {0}, b = {0};
    bool has_a = read_entry(own, 0, &a), has_b = read_entry(from, 0, &b);
    uint32_t entries = 0;
    buffer_reserve(&merged, own.length + from.length);
    for (; has_a || has_b; entries++) {
        int order = !has_b ? -1 : !has_a ? 1 : str_compare(a.value, b.value);
        uint64_t count = (order <= 0 ? a.count : 0) + (order >= 0 ? b.count : 0);
        append_entry(&merged, count, order <= 0 ? a.value : b.value);
        if (order <= 0)
            has_a = read_entry(own, a.at + ENTRY_HEAD + a.value.length, &a);
        if (order >= 0)
            has_b = read_entry(from, b.at + ENTRY_HEAD + b.value.length, &b);
    }
    bool fits = entries <= slots_of(aggregate);
    if (fits) {
        buffer_clear(into);
        buffer_append(into, merged.data, merged.length);
    }
    buffer_free(&merged);
    return fits;
}

static void top_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    struct entry entry;
    if (merge(aggregate, into, from))
        return;
    for (size_t at = 0; read_entry(from, at, &entry); at += ENTRY_HEAD + entry.value.length)
        add_value(aggregate, into, entry.value, entry.count);
}

static int by_count(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void top_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                       uint32_t row)
{
    struct entry entries[SLOTS_MAX];
    uint32_t count = 0;
    for (size_t at = 0; count < SLOTS_MAX && read_entry(partial, at, &entries[count]);) {
        at += ENTRY_HEAD + entries[count].value.length;
        count++;
    }
    qsort(entries, count, sizeof(*entries), by_count);
    count = (uint32_t)MIN(count, aggregate->parameter);
    builder_list(out, row, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t child_row = builder_append(&out->children[0]);
        const char *at = entries[i].value.data;
        if (!builder_decode(&out->children[0], child_row, &at, at + entries[i].value.length))
            builder_null(&out->children[0], child_row);
    }
}

const struct aggregate_kind aggregate_top = {.name = "top",
                                             .argument = AGGREGATE_ANY,
                                             .result = TYPE_LIST,
                                             .parameter = PARAMETER_COUNT,
                                             .parameter_max = TOP_MAX,
                                             .absorb = top_absorb,
                                             .combine = top_combine,
                                             .finish_bytes = top_finish};
