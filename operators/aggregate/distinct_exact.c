/* distinct_exact: the exact number of different values.
 *
 * A partial is a set: a head, then an open-addressing hash table with a power of two of slots of 16 bytes, at
 * most 7/8 of them used. Values of 8 bytes (int, time, float, bool) that differ in their lowest six bits only
 * form a block, and each is one of the block's 64 bits: consecutive ids take two bits each, ids that are far
 * apart 16 bytes. A text is stored as its bytes if it has at most 15, else as its 120-bit xxh3 hash, as in a
 * key (core/key.h): the chance that two of 10^6 long texts are taken for one is below 10^-24.
 *
 * A row changes one slot in place; where the number of slots doubles, the set is written anew. Sets merge
 * slot by slot. A group's panes end at PANES_BYTES_MAX (panes.h), so the largest set of a group has 2^18
 * slots, of which some 229,000 can be used. */
#include "operators/aggregate/aggregate.h"

#include <xxhash.h>

enum { SLOTS_FIRST = 2, KEPT_TEXT_BYTES = 15 };

struct set_head {
    uint32_t values, used;
};

/* low: the block, high: its bits; or low and high are the text, and high is not 0. high = 0: free slot. */
struct slot {
    uint64_t low, high;
};

static bool has_blocks(const struct aggregate *aggregate)
{
    return aggregate->argument_type.tag != TYPE_TEXT && aggregate->argument_type.tag != TYPE_BYTES;
}

static struct slot text_slot(struct str text)
{
    struct slot slot = {0, 0};
    if (text.length <= KEPT_TEXT_BYTES) {
        if (text.length > 0)
            memcpy(&slot, text.data, text.length);
        slot.high |= (uint64_t)(text.length + 1) << 56;
        return slot;
    }
    XXH128_hash_t hash = XXH3_128bits(text.data, text.length);
    return (struct slot){hash.low64, hash.high64 | UINT64_C(0xff) << 56};
}

/* A slot with the row's value alone. */
static struct slot slot_of(const struct aggregate *aggregate, const struct aggregate_row *row)
{
    const struct column *column = row->argument;
    if (!has_blocks(aggregate))
        return text_slot(column_text(column, row->row));
    uint64_t value;
    if (column->tag == TYPE_BOOL) {
        value = column->bools[row->row];
    } else if (column->tag == TYPE_FLOAT) {
        double real = column->floats[row->row] + 0.0; /* -0.0 is 0.0 */
        memcpy(&value, &real, sizeof(value));
    } else {
        value = (uint64_t)column->ints[row->row];
    }
    return (struct slot){value >> 6, UINT64_C(1) << (value & 63)};
}

static struct set_head head_of(const char *set)
{
    struct set_head head;
    memcpy(&head, set, sizeof(head));
    return head;
}

static struct slot slot_at(const char *set, uint32_t i)
{
    struct slot slot;
    memcpy(&slot, set + sizeof(struct set_head) + (size_t)i * sizeof(slot), sizeof(slot));
    return slot;
}

static uint32_t slots_of(size_t bytes)
{
    return (uint32_t)((bytes - sizeof(struct set_head)) / sizeof(struct slot));
}

static uint32_t bytes_of(uint32_t slots)
{
    return (uint32_t)(sizeof(struct set_head) + (size_t)slots * sizeof(struct slot));
}

/* Index of the slot with the value's block or text, or else of the free slot for it. *found: content of that
 * slot. */
static uint32_t find(const char *set, uint32_t slots, struct slot wanted, bool is_block, struct slot *found)
{
    uint32_t at = (uint32_t)key_hash((struct key){wanted.low, is_block ? 0 : wanted.high});
    while (true) {
        at &= slots - 1;
        *found = slot_at(set, at);
        if (found->high == 0 || (found->low == wanted.low && (is_block || found->high == wanted.high)))
            return at;
        at++;
    }
}

/* Adds the values of `wanted` to the set. False, with nothing changed: the set would need one more slot than
 * may be used. */
static bool put(char *set, uint32_t slots, struct slot wanted, bool is_block)
{
    struct slot found;
    uint32_t at = find(set, slots, wanted, is_block, &found);
    struct set_head head = head_of(set);
    if (found.high == 0) {
        if (head.used + 1 > slots - MAX(slots / 8, 1))
            return false;
        head.used++;
        head.values += is_block ? (uint32_t)__builtin_popcountll(wanted.high) : 1;
    } else {
        uint64_t fresh = is_block ? wanted.high & ~found.high : 0;
        if (fresh == 0)
            return true;
        head.values += (uint32_t)__builtin_popcountll(fresh);
    }
    wanted.high |= found.high;
    memcpy(set, &head, sizeof(head));
    memcpy(set + sizeof(head) + (size_t)at * sizeof(wanted), &wanted, sizeof(wanted));
    return true;
}

/* Adds all slots of the set `from` to `set`, which has room. */
static void put_all(char *set, uint32_t slots, struct str from, bool is_block)
{
    for (uint32_t i = 0; i < slots_of(from.length); i++) {
        struct slot slot = slot_at(from.data, i);
        if (slot.high != 0) {
            bool is_in = put(set, slots, slot, is_block);
            leat_assert(is_in);
        }
    }
}

/* Doubles the number of slots, or makes the first ones. */
static void grow(struct byte_buffer *set, bool is_block)
{
    uint32_t slots = set->length == 0 ? SLOTS_FIRST : slots_of(set->length) * 2, bytes = bytes_of(slots);
    struct byte_buffer grown = {0};
    memset(buffer_reserve(&grown, bytes), 0, bytes);
    grown.length = bytes;
    if (set->length > 0)
        put_all(grown.data, slots, (struct str){set->data, set->length}, is_block);
    buffer_free(set);
    *set = grown;
}

static void add(struct byte_buffer *set, struct slot slot, bool is_block)
{
    while (set->length == 0 || !put(set->data, slots_of(set->length), slot, is_block))
        grow(set, is_block);
}

static void exact_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                         const struct aggregate_row *row)
{
    add(partial, slot_of(aggregate, row), has_blocks(aggregate));
}

static uint32_t exact_absorb_here(const struct aggregate *aggregate, char *partial, uint32_t length,
                                  uint32_t capacity, const struct aggregate_row *row)
{
    (void)capacity;
    bool is_in = put(partial, slots_of(length), slot_of(aggregate, row), has_blocks(aggregate));
    return is_in ? length : ABSORB_ELSEWHERE;
}

static uint32_t exact_growth(const struct aggregate *aggregate, struct str partial,
                             const struct aggregate_row *row)
{
    if (partial.length == 0)
        return bytes_of(SLOTS_FIRST);
    uint32_t slots = slots_of(partial.length);
    if (head_of(partial.data).used + 1 <= slots - MAX(slots / 8, 1))
        return 0;
    struct slot found;
    (void)find(partial.data, slots, slot_of(aggregate, row), has_blocks(aggregate), &found);
    return found.high == 0 ? (uint32_t)partial.length : 0;
}

static void exact_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    if (into->length == 0) {
        buffer_append(into, from.data, from.length);
        return;
    }
    for (uint32_t i = 0; i < slots_of(from.length); i++) {
        struct slot slot = slot_at(from.data, i);
        if (slot.high != 0)
            add(into, slot, has_blocks(aggregate));
    }
}

static void exact_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                         uint32_t row)
{
    (void)aggregate;
    out->column->ints[row] = partial.length == 0 ? 0 : head_of(partial.data).values;
}

const struct aggregate_kind aggregate_distinct_exact = {.name = "distinct_exact",
                                                        .is_set = true,
                                                        .argument = AGGREGATE_ANY,
                                                        .result = TYPE_INT,
                                                        .absorb = exact_absorb,
                                                        .absorb_here = exact_absorb_here,
                                                        .growth = exact_growth,
                                                        .combine = exact_combine,
                                                        .finish_bytes = exact_finish};
