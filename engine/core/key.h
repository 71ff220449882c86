/* Keys: one or more columns of a row as 16 bytes, for exchanges, keyed state and joins.
 *
 * A key whose canonical encoding fits into 15 bytes is stored exactly; a longer key is stored as its
 * 120-bit xxh3 hash, with a mark, so that exact and hashed keys are never equal. Among 10^9 distinct long
 * keys the chance that any two collide is below 10^-18. Null is a value of its own, and NaN equals null
 * (docs/design.md, section 4); -0.0 equals 0.0. An int and a time of the same value are different keys,
 * and so are an int and a float: joins check types in `bind`. */
#ifndef LEAT_CORE_KEY_H
#define LEAT_CORE_KEY_H

#include "core/batch.h"

struct key {
    uint64_t low, high;
};

/* Key groups: the unit that instances own (core/placement.h) and checkpoints store (docs/design.md, section 7). */
enum { KEY_GROUPS = 720 };

/* A well-mixed hash; equal keys have equal hashes on every machine. */
static inline uint64_t key_hash(struct key key)
{
    __uint128_t product = (__uint128_t)(key.low ^ UINT64_C(0x9e3779b97f4a7c15)) *
                          (key.high ^ UINT64_C(0xc2b2ae3d27d4eb4f) ^ (key.low << 1));
    uint64_t mixed = (uint64_t)product ^ (uint64_t)(product >> 64);
    mixed ^= mixed >> 32;
    mixed *= UINT64_C(0x9fb21c651e98df25);
    return mixed ^ mixed >> 29;
}

/* Returns a key whose key_hash is `hash`; each rotation from 0 to 63 gives another such key. For entries that
 * must lie in the key group of another key. */
struct key key_of_hash(uint64_t hash, unsigned rotation);

/* The key group, 0 to KEY_GROUPS - 1, of keys with that hash. */
static inline uint32_t key_group(uint64_t hash)
{
    return (uint32_t)((hash >> 32) * KEY_GROUPS >> 32);
}

static inline bool key_equal(struct key a, struct key b)
{
    return a.low == b.low && a.high == b.high;
}

/* Computes the keys of the selected rows: keys[i] belongs to the i-th selected row. columns: indices into the
 * batch's columns. has_null[i] (has_null may be NULL): whether any key column of the row is null or NaN.
 * Lists cannot be keys (checked in `bind`). */
void key_encode(const struct batch *batch, const int *columns, uint32_t columns_count, struct key *keys,
                bool *has_null);

#endif
