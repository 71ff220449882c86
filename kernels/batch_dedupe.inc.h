/*
 * dedupe of batch.h, by sorting or by hashing. Tables are processed one after another, in the order of their
 * places, so the indices of a table's ids follow those of the table before.
 *
 * Sorting: pairs of id and place are sorted by a stable radix sort, which skips bytes that are equal in all
 * ids. A run of equal ids begins with the id's first place. Hashing: open addressing, at most a quarter full,
 * with slots prefetched.
 */

enum { DEDUPE_BYTE = 256, DEDUPE_AHEAD = 16 };

struct dedupe_pair {
    uint64_t id;
    uint32_t place;
};

/* Slots of the hash table for n ids: a power of two, at least 4 n. */
static size_t dedupe_slots(size_t n)
{
    size_t slots = 2 * DEDUPE_AHEAD;
    while (slots < 4 * n)
        slots *= 2;
    return slots;
}

static size_t dedupe_bytes(const struct batch_dedupe *a)
{
    size_t bytes = a->method == DEDUPE_SORT ? 2 * (size_t)a->n * sizeof(struct dedupe_pair)
                                            : dedupe_slots(a->n) * sizeof(uint32_t);
    return bytes + BATCH_SCRATCH_MIN;
}

/* Sorts n pairs by id; `other` has room for n pairs. Returns `pairs` or `other`, whichever has the result. */
static struct dedupe_pair *sort_pairs(struct dedupe_pair *pairs, struct dedupe_pair *other, size_t n)
{
    uint64_t differs = 0;
    for (size_t i = 1; i < n; i++)
        differs |= pairs[i].id ^ pairs[0].id;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((differs >> shift & (DEDUPE_BYTE - 1)) == 0)
            continue;
        size_t at[DEDUPE_BYTE] = {0}, sum = 0;
        for (size_t i = 0; i < n; i++)
            at[pairs[i].id >> shift & (DEDUPE_BYTE - 1)]++;
        for (size_t digit = 0; digit < DEDUPE_BYTE; digit++) {
            size_t count = at[digit];
            at[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            other[at[pairs[i].id >> shift & (DEDUPE_BYTE - 1)]++] = pairs[i];
        struct dedupe_pair *swap = pairs;
        pairs = other;
        other = swap;
    }
    return pairs;
}

/* The places `from` up to `to` of one table; m indices exist so far. Returns the new count of indices. */
static uint32_t dedupe_sorted(const struct batch_dedupe *a, uint32_t table, size_t from, size_t to,
                              uint32_t m)
{
    struct dedupe_pair *pairs = a->scratch;
    size_t count = 0;
    for (size_t place = from; place < to; place++) {
        a->indices[place] = BATCH_NONE;
        if (a->ids[place] != 0)
            pairs[count++] = (struct dedupe_pair){.id = a->ids[place], .place = (uint32_t)place};
    }
    pairs = sort_pairs(pairs, pairs + a->n, count);
    for (size_t i = 0, first = 0; i < count; i++) { /* indices[place] = the first place of its id */
        first = pairs[i].id == pairs[first].id ? first : i;
        a->indices[pairs[i].place] = pairs[first].place;
    }
    for (size_t place = from; place < to; place++) {
        if (a->indices[place] == BATCH_NONE)
            continue;
        if (a->indices[place] == place)
            a->unique_ids[m] = a->ids[place], a->unique_tables[m] = table, a->indices[place] = m++;
        else
            a->indices[place] = a->indices[a->indices[place]]; /* the first place has its index already */
    }
    return m;
}

/*
 * The same by hashing. A slot holds an index plus 1; 0 is empty. A branch on whether an id is new would be
 * mispredicted often. So each id is first written to unique_ids[m], behind the known ids, and an empty slot
 * reads as index m: the only branch is whether the slot's id equals the id.
 */
static uint32_t dedupe_hashed(const struct batch_dedupe *a, uint32_t table, size_t from, size_t to,
                              uint32_t m)
{
    const uint64_t *ids = a->ids;
    uint64_t *unique_ids = a->unique_ids;
    uint32_t *indices = a->indices, *slots = a->scratch, before = m;
    size_t mask = dedupe_slots(a->room > 0 ? a->room : to - from) - 1, hashes[DEDUPE_AHEAD];
    if (a->before == 0)
        memset(slots, 0, (mask + 1) * sizeof(*slots));
    for (size_t first = from; first < to; first += DEDUPE_AHEAD) {
        size_t count = to - first < DEDUPE_AHEAD ? to - first : DEDUPE_AHEAD;
        for (size_t i = 0; i < count; i++) {
            hashes[i] = (size_t)num_mix(ids[first + i]) & mask;
            __builtin_prefetch(&slots[hashes[i]], 1);
        }
        for (size_t i = 0; i < count; i++) {
            size_t at = hashes[i];
            uint64_t id = ids[first + i];
            uint32_t index;
            indices[first + i] = BATCH_NONE;
            if (id == 0)
                continue;
            unique_ids[m] = id;
            while (index = slots[at] - 1 + (slots[at] == 0) * (m + 1), unique_ids[index] != id)
                at = (at + 1) & mask;
            slots[at] = index + 1;
            indices[first + i] = index;
            m += index == m;
        }
    }
    for (uint32_t u = before; u < m; u++)
        a->unique_tables[u] = table;
    return m;
}

/* Makes order and starts: places are counted by index, then distributed in order. */
static void dedupe_order(const struct batch_dedupe *a, uint32_t m)
{
    const uint32_t *indices = a->indices;
    uint32_t *starts = a->starts, *order = a->order, sum = 0;
    memset(starts, 0, ((size_t)m + 1) * sizeof(*starts));
    for (size_t place = 0; place < a->n; place++) {
        if (indices[place] != BATCH_NONE)
            starts[indices[place]]++;
    }
    for (size_t u = 0; u <= m; u++) {
        uint32_t count = starts[u];
        starts[u] = sum;
        sum += count;
    }
    for (size_t place = 0; place < a->n; place++) {
        if (indices[place] != BATCH_NONE)
            order[starts[indices[place]]++] = (uint32_t)place;
    }
    memmove(starts + 1, starts, m * sizeof(*starts)); /* each starts[u] has advanced to starts[u + 1] */
    starts[0] = 0;
}

static void batch_dedupe(struct batch_dedupe *a, void *stream)
{
    (void)stream;
    if (a->scratch == NULL) {
        a->scratch_bytes = dedupe_bytes(a);
        return;
    }
    if (a->has_indices) {
        dedupe_order(a, a->count[0]);
        return;
    }
    uint32_t m = a->before;
    for (uint32_t table = 0; table < a->tables_count; table++) {
        size_t from = a->tables[table], to = a->tables[table + 1];
        if (from == to)
            continue;
        m = a->method == DEDUPE_SORT ? dedupe_sorted(a, table, from, to, m)
                                     : dedupe_hashed(a, table, from, to, m);
    }
    a->count[0] = m;
    if (a->order != NULL)
        dedupe_order(a, m);
}
