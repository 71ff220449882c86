/* argmax, argmin, top_n, collect: values of the rows that rank first.
 *
 * argmax(x, by) and argmin(x, by) give the x of the row with the largest or smallest `by`; top_n(x, n, by)
 * the x of the n rows with the largest `by`, best first. Of rows with an equal `by` the one with the earlier
 * event time ranks first, then the one that arrived earlier. collect(x, n) keeps the n rows with the latest
 * event times, of equal times those that arrived later, and gives them earliest first.
 *
 * A partial is a head, then entries, best first: rank (8 bytes, larger is better), event time (8), length
 * (4), and the value as row_encode_value (codec.h) writes it. Two partials merge as sorted lists; rows of the
 * earlier pane count as earlier arrivals. */
#include "operators/aggregate/aggregate.h"

enum { RANKED_MAX = 1000, ENTRY_HEAD = 20, VALUE_HEAD_MAX = 9 };

struct ranked_head {
    uint32_t count, last; /* last: offset of the last entry */
};

struct entry {
    uint64_t rank;
    int64_t time;
    char head[VALUE_HEAD_MAX]; /* the encoded value is `head`, then `tail` */
    uint32_t head_bytes;
    struct str tail;
};

static bool is_collect(const struct aggregate *aggregate)
{
    return aggregate->kind == &aggregate_collect;
}

static uint32_t most_of(const struct aggregate *aggregate)
{
    return aggregate->kind->parameter == PARAMETER_COUNT ? (uint32_t)aggregate->parameter : 1;
}

/* --- Entries --- */

static uint64_t rank_of_int(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

static uint64_t rank_of(const struct column *by, uint32_t row)
{
    if (by->tag != TYPE_FLOAT)
        return rank_of_int(by->ints[row]);
    double real = by->floats[row] + 0.0; /* -0.0 is 0.0 */
    uint64_t bits;
    memcpy(&bits, &real, sizeof(bits));
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static struct entry entry_of(const struct aggregate *aggregate, const struct aggregate_row *row)
{
    struct entry entry = {.time = row->time, .head = {1}, .head_bytes = VALUE_HEAD_MAX};
    entry.rank = is_collect(aggregate) ? rank_of_int(row->time) : rank_of(row->by, row->row);
    if (aggregate->kind == &aggregate_argmin)
        entry.rank = ~entry.rank;
    const struct column *column = row->argument;
    if (column->tag == TYPE_BOOL) {
        entry.head[1] = (char)column->bools[row->row];
        entry.head_bytes = 2;
    } else if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES) {
        entry.tail = column_text(column, row->row);
        uint32_t length = (uint32_t)entry.tail.length;
        memcpy(entry.head + 1, &length, sizeof(length));
        entry.head_bytes = 1 + sizeof(length);
    } else {
        memcpy(entry.head + 1, &column->ints[row->row], 8);
    }
    return entry;
}

static uint32_t bytes_of(const struct entry *entry)
{
    return ENTRY_HEAD + entry->head_bytes + (uint32_t)entry->tail.length;
}

static struct ranked_head head_of(const char *partial)
{
    struct ranked_head head;
    memcpy(&head, partial, sizeof(head));
    return head;
}

static uint64_t rank_at(const char *partial, uint32_t at)
{
    uint64_t rank;
    memcpy(&rank, partial + at, sizeof(rank));
    return rank;
}

static int64_t time_at(const char *partial, uint32_t at)
{
    int64_t time;
    memcpy(&time, partial + at + 8, sizeof(time));
    return time;
}

static uint32_t length_at(const char *partial, uint32_t at)
{
    uint32_t length;
    memcpy(&length, partial + at + 16, sizeof(length));
    return ENTRY_HEAD + length;
}

/* Whether an entry ranks before one that arrived later. */
static bool stays_ahead(const struct aggregate *aggregate, uint64_t rank, int64_t time, uint64_t later_rank,
                        int64_t later_time)
{
    if (rank != later_rank)
        return rank > later_rank;
    return !is_collect(aggregate) && time <= later_time;
}

/* Whether the row ranks behind all entries of a full partial. */
static bool is_out(const struct aggregate *aggregate, const char *partial, const struct entry *entry)
{
    struct ranked_head head = head_of(partial);
    return head.count == most_of(aggregate) &&
           stays_ahead(aggregate, rank_at(partial, head.last), time_at(partial, head.last), entry->rank,
                       entry->time);
}

/* Inserts the entry at its place, and drops the last entry where there are too many. The partial has room.
 * Returns its new length. */
static uint32_t insert(const struct aggregate *aggregate, char *partial, uint32_t length,
                       const struct entry *entry)
{
    struct ranked_head head = head_of(partial);
    uint32_t at = sizeof(head), bytes = bytes_of(entry), value_bytes = bytes - ENTRY_HEAD;
    while (at < length &&
           stays_ahead(aggregate, rank_at(partial, at), time_at(partial, at), entry->rank, entry->time))
        at += length_at(partial, at);
    memmove(partial + at + bytes, partial + at, length - at);
    head.last = at == length ? at : head.last + bytes;
    length += bytes;
    memcpy(partial + at, &entry->rank, 8);
    memcpy(partial + at + 8, &entry->time, 8);
    memcpy(partial + at + 16, &value_bytes, 4);
    memcpy(partial + at + ENTRY_HEAD, entry->head, entry->head_bytes);
    if (entry->tail.length > 0)
        memcpy(partial + at + ENTRY_HEAD + entry->head_bytes, entry->tail.data, entry->tail.length);
    if (++head.count > most_of(aggregate)) {
        head.count--;
        length = head.last;
        for (uint32_t next = head.last = sizeof(head); next < length; next += length_at(partial, next))
            head.last = next;
    }
    memcpy(partial, &head, sizeof(head));
    return length;
}

static void ranked_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                          const struct aggregate_row *row)
{
    struct entry entry = entry_of(aggregate, row);
    struct ranked_head none = {.last = sizeof(none)};
    if (partial->length == 0)
        buffer_append(partial, &none, sizeof(none));
    else if (is_out(aggregate, partial->data, &entry))
        return;
    (void)buffer_reserve(partial, bytes_of(&entry));
    partial->length = insert(aggregate, partial->data, (uint32_t)partial->length, &entry);
}

static uint32_t ranked_absorb_here(const struct aggregate *aggregate, char *partial, uint32_t length,
                                   uint32_t capacity, const struct aggregate_row *row)
{
    struct entry entry = entry_of(aggregate, row);
    if (is_out(aggregate, partial, &entry))
        return length;
    return bytes_of(&entry) > capacity - length ? ABSORB_ELSEWHERE
                                                : insert(aggregate, partial, length, &entry);
}

static uint32_t ranked_growth(const struct aggregate *aggregate, struct str partial,
                              const struct aggregate_row *row)
{
    struct entry entry = entry_of(aggregate, row);
    if (partial.length > 0 && is_out(aggregate, partial.data, &entry))
        return 0;
    return (uint32_t)sizeof(struct ranked_head) + bytes_of(&entry);
}

/* --- Merging --- */

static void append_entry(struct byte_buffer *out, struct ranked_head *head, const char *from, uint32_t at)
{
    head->count++;
    head->last = (uint32_t)out->length;
    buffer_append(out, from + at, length_at(from, at));
}

static void ranked_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    if (into->length == 0) {
        buffer_append(into, from.data, from.length);
        return;
    }
    struct ranked_head head = {.last = sizeof(head)};
    uint32_t a = sizeof(head), b = sizeof(head), most = most_of(aggregate);
    struct byte_buffer out = {0};
    buffer_append(&out, &head, sizeof(head));
    while (head.count < most && (a < into->length || b < from.length)) {
        bool is_first =
            b >= from.length ||
            (a < into->length && stays_ahead(aggregate, rank_at(into->data, a), time_at(into->data, a),
                                             rank_at(from.data, b), time_at(from.data, b)));
        if (is_first) {
            append_entry(&out, &head, into->data, a);
            a += length_at(into->data, a);
        } else {
            append_entry(&out, &head, from.data, b);
            b += length_at(from.data, b);
        }
    }
    memcpy(out.data, &head, sizeof(head));
    buffer_free(into);
    *into = out;
}

/* --- Results --- */

/* Sets `row` to the value of the entry at `at`. Partials are our own state; a malformed value becomes
 * null. */
static void set_value(struct column_builder *out, uint32_t row, struct str partial, uint32_t at)
{
    const char *value = partial.data + at + ENTRY_HEAD;
    if (!builder_decode(out, row, &value, partial.data + at + length_at(partial.data, at)))
        builder_null(out, row);
}

static void ranked_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                          uint32_t row)
{
    uint32_t offsets[RANKED_MAX], count = 0;
    for (uint32_t at = sizeof(struct ranked_head); at < partial.length && count < RANKED_MAX;
         at += length_at(partial.data, at))
        offsets[count++] = at;
    if (aggregate->kind->result != TYPE_LIST) {
        if (count == 0)
            builder_null(out, row);
        else
            set_value(out, row, partial, offsets[0]);
        return;
    }
    builder_list(out, row, count);
    for (uint32_t i = 0; i < count; i++)
        set_value(&out->children[0], builder_append(&out->children[0]), partial,
                  offsets[is_collect(aggregate) ? count - 1 - i : i]);
}

#define RANKED(symbol, name_, result_, parameter_, has_by_)                                                  \
    const struct aggregate_kind symbol = {.name = name_,                                                     \
                                          .argument = AGGREGATE_ANY,                                         \
                                          .result = result_,                                                 \
                                          .parameter = parameter_,                                           \
                                          .parameter_max = RANKED_MAX,                                       \
                                          .has_by = has_by_,                                                 \
                                          .absorb = ranked_absorb,                                           \
                                          .absorb_here = ranked_absorb_here,                                 \
                                          .growth = ranked_growth,                                           \
                                          .combine = ranked_combine,                                         \
                                          .finish_bytes = ranked_finish};

RANKED(aggregate_argmax, "argmax", AGGREGATE_ANY, PARAMETER_NONE, true)
RANKED(aggregate_argmin, "argmin", AGGREGATE_ANY, PARAMETER_NONE, true)
RANKED(aggregate_top_n, "top_n", TYPE_LIST, PARAMETER_COUNT, true)
RANKED(aggregate_collect, "collect", TYPE_LIST, PARAMETER_COUNT, false)
