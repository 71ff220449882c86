/*
 * Draws of users, uniform, the same wherever rows lie.
 *
 * Users have an order: that of their hashes, which the pages of the index follow. A bucket is the users whose
 * hashes have the same first `depth` bits. A draw takes a bucket by chance and a place from 0 to 127 by chance; if
 * the bucket has a user at that place, in the order of hashes, that is the user drawn, else it tries again. So each
 * user has the same chance, 1 / (buckets * 128), however many a bucket holds. Expired rows count as absent, so
 * nothing depends on when they are removed. A try looks at one page or two of the index; if they have too few
 * rows anyway, at their counts alone.
 *
 * `depth` is such that buckets hold 24 to 48 users in the mean: three to six tries a draw, and a bucket of more
 * than 128, of which the last would never be drawn, is a chance of less than 1e-15. The number of users is estimated
 * from their order too: the users of the first 2^-s of all hashes, the smallest part that has 512.
 */
#include "learners/histories/internal.h"

enum { PLACES = HISTORIES_FEW, BUCKET_MEAN = 48, SAMPLE_USERS = 512, HASH_BITS = 64 };

/* The first users of a bucket, by rising hash. */
struct bucket {
    size_t count;
    uint64_t hashes[PLACES], keys[PLACES];
};

static void bucket_add(struct bucket *b, uint64_t hash, uint64_t key)
{
    if (b->count == PLACES && hash > b->hashes[PLACES - 1])
        return;
    size_t at = b->count < PLACES ? b->count++ : PLACES - 1;
    for (; at > 0 && b->hashes[at - 1] > hash; at--) {
        b->hashes[at] = b->hashes[at - 1];
        b->keys[at] = b->keys[at - 1];
    }
    b->hashes[at] = hash;
    b->keys[at] = key;
}

/* Whether the hash begins with the `depth` bits of `bits`. */
static bool is_within(uint64_t hash, uint64_t bits, unsigned depth)
{
    return depth == 0 || hash >> (HASH_BITS - depth) == bits;
}

/* The entries of the directory with the pages of bucket `bits`. */
struct page_range {
    size_t first, last;
};

static struct page_range pages_of(const struct table *index, uint64_t bits, unsigned depth)
{
    if (depth >= index->depth)
        return (struct page_range){(size_t)(bits >> (depth - index->depth)),
                                   (size_t)(bits >> (depth - index->depth))};
    size_t first = (size_t)(bits << (index->depth - depth));
    return (struct page_range){first, first + ((size_t)1 << (index->depth - depth)) - 1};
}

/* The rows of the bucket's pages: at least as many as the bucket has users. */
static size_t count_rows(const struct histories_draw *draw, uint64_t bits)
{
    size_t count = 0;
    for (size_t i = 0; i < draw->count; i++) {
        const struct table *index = &draw->parts[i]->index;
        struct page_range in = pages_of(index, bits, draw->depth);
        for (size_t d = in.first; d <= in.last; d++)
            if (d == in.first || index->directory[d] != index->directory[d - 1])
                count += index->page_counts.base[index->directory[d]];
    }
    return count;
}

/* The number of users of bucket `bits` in one index; puts them into `bucket` unless it is NULL. */
static size_t scan(const struct table *index, uint64_t bits, unsigned depth, struct bucket *bucket)
{
    struct page_range in = pages_of(index, bits, depth);
    size_t count = 0;
    for (size_t d = in.first; d <= in.last; d++) {
        if (d > in.first && index->directory[d] == index->directory[d - 1])
            continue;
        for (size_t i = 0; i < TABLE_PAGE_SLOTS; i++) {
            const struct table_row *user = (void *)table_slot_at(index, index->directory[d], i);
            if (user->key == 0 || table_is_expired(index, user))
                continue;
            uint64_t hash = table_hash(index, user->key);
            if (!is_within(hash, bits, depth))
                continue;
            count++;
            if (bucket != NULL)
                bucket_add(bucket, hash, user->key);
        }
    }
    return count;
}

static size_t scan_parts(const struct histories_draw *draw, uint64_t bits, unsigned depth,
                         struct bucket *bucket)
{
    size_t count = 0;
    for (size_t i = 0; i < draw->count; i++)
        count += scan(&draw->parts[i]->index, bits, depth, bucket);
    return count;
}

void histories_draw_begin(const struct histories *const *parts, size_t count, struct histories_draw *draw)
{
    *draw = (struct histories_draw){.parts = parts, .count = count};
    unsigned part = 8; /* 2^-part of all hashes, at first less than has SAMPLE_USERS: some of one page */
    for (size_t i = 0; i < count; i++)
        part = MAX(part, parts[i]->index.depth + 2);
    uint64_t users = scan_parts(draw, 0, part, NULL);
    for (; part > 0 && users < SAMPLE_USERS;
         part--) /* twice the part: the next bucket of the same size comes in */
        users += scan_parts(draw, 1, part, NULL);
    if (part == 0 && users <= HISTORIES_FEW)
        draw->users = users;
    else
        for (users <<= part; users >> draw->depth > BUCKET_MEAN;)
            draw->depth++;
}

bool histories_draw(const struct histories_draw *draw, uint64_t seed, uint64_t step, uint64_t place,
                    uint64_t *key)
{
    struct bucket bucket = {.count = 0};
    uint64_t chance = num_chance(seed, step, place), bits = 0;
    size_t at = (size_t)shard_scaled(chance, draw->users);
    if (draw->users == 0 && draw->depth == 0)
        return false;
    if (draw->users == 0) {
        do {
            bits = chance >> (HASH_BITS - draw->depth);
            at = (size_t)(chance % PLACES);
            chance = num_mix(chance + UINT64_C(0x9e3779b97f4a7c15));
        } while (at >= count_rows(draw, bits) || at >= scan_parts(draw, bits, draw->depth, NULL));
    }
    (void)scan_parts(draw, bits, draw->depth, &bucket);
    leat_assert(at < bucket.count); /* else users came or went since histories_draw_begin */
    *key = bucket.keys[at];
    return true;
}
