#include "core/sketch.h"

#include "core/mem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* --- How many different values --- */

enum {
    RANKS = 64 - SKETCH_REGISTER_BITS + 2
}; /* 0: nothing yet; else 1 + leading zeros behind the register's index */

void sketch_distinct_add(struct sketch_distinct *sketch, uint64_t hash)
{
    uint64_t rest = hash << SKETCH_REGISTER_BITS;
    uint32_t at = (uint32_t)(hash >> (64 - SKETCH_REGISTER_BITS));
    uint8_t rank = (uint8_t)(rest == 0 ? RANKS - 1 : __builtin_clzll(rest) + 1);
    if (rank > sketch->registers[at])
        sketch->registers[at] = rank;
}

void sketch_distinct_merge(struct sketch_distinct *into, const struct sketch_distinct *from)
{
    for (uint32_t i = 0; i < SKETCH_REGISTERS; i++)
        into->registers[i] = MAX(into->registers[i], from->registers[i]);
}

/* The two series of Ertl 2017 (New cardinality estimation algorithms for HyperLogLog sketches, section 3): what registers
 * that are empty, or full, say. */
static double sigma(double x)
{
    double y = 1, z = x, before;
    if (x == 1)
        return INFINITY;
    do {
        x *= x;
        before = z;
        z += x * y;
        y += y;
    } while (z != before);
    return z;
}

static double tau(double x)
{
    double y = 1, z = 1 - x, before;
    if (x == 0 || x == 1)
        return 0;
    do {
        x = sqrt(x);
        before = z;
        y /= 2;
        z -= (1 - x) * (1 - x) * y;
    } while (z != before);
    return z / 3;
}

/* Ertl's estimator (algorithm 6) has no bias that a table would have to correct, from none to all values. */
double sketch_distinct_estimate(const struct sketch_distinct *sketch)
{
    double ranks[RANKS] = {0};
    const double m = SKETCH_REGISTERS;
    for (uint32_t i = 0; i < SKETCH_REGISTERS; i++)
        ranks[sketch->registers[i]]++;
    double z = m * tau(1 - ranks[RANKS - 1] / m);
    for (uint32_t k = RANKS - 2; k > 0; k--)
        z = (z + ranks[k]) / 2;
    z += m * sigma(ranks[0] / m);
    return m * m / (2 * M_LN2 * z);
}

/* --- How numbers are distributed ---
 *
 * The bits of doubles, read as integers, rise with them: the key of a value is such an integer, below 0 for values below
 * 0. A bucket is what shares the key but for its last `shift` bits: with few different values each has a bucket of its
 * own, also where they lie close together far from 0, as times do; and as more come, buckets grow.
 *
 * A new value that needs a bucket more than there are makes room. Values near 0 have many powers of two among them, and
 * would take most buckets: those nearest to 0, as long as they are few, become one bucket (`zone`). Where that gives no
 * room, all buckets become twice as wide. */

enum {
    LUMPED_SHARE = 64, /* one in so many of the values that are not 0 may be in the bucket around 0 */
    SHIFT_MAX = 58,    /* all 2^64 keys lie in 64 buckets */
};

_Static_assert(SKETCH_BUCKETS >= 1 << (64 - SHIFT_MAX), "the widest buckets hold all doubles");

static int64_t key_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits < 0 ? -(bits & INT64_MAX) : bits;
}

static double value_of(int64_t key)
{
    static const double largest = DBL_MAX;
    int64_t bits = key < 0 ? -key : key, most = key_of(largest);
    double value;
    bits = MIN(bits, most);
    memcpy(&value, &bits, sizeof(value));
    return key < 0 ? -value : value;
}

static int64_t bucket_of(const struct sketch_histogram *h, int64_t key)
{
    return key >= -h->zone && key < h->zone ? 0 : key >> h->shift;
}

/* The lowest key of a bucket other than the zone, and the one behind its highest. */
static int64_t first_key(const struct sketch_histogram *h, int64_t bucket)
{
    return MAX(bucket * (INT64_C(1) << h->shift), -INT64_MAX);
}

static int64_t end_key(const struct sketch_histogram *h, int64_t bucket)
{
    int64_t end;
    return __builtin_mul_overflow(bucket + 1, INT64_C(1) << h->shift, &end) ? INT64_MAX : end;
}

/* false: there is no room for one more bucket. */
static bool add_to(struct sketch_histogram *h, int64_t bucket, uint64_t count)
{
    uint32_t low = 0, high = h->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (h->keys[middle] < bucket)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < h->count && h->keys[low] == bucket) {
        h->counts[low] += count;
        return true;
    }
    if (h->count == SKETCH_BUCKETS)
        return false;
    memmove(h->keys + low + 1, h->keys + low, (h->count - low) * sizeof(h->keys[0]));
    memmove(h->counts + low + 1, h->counts + low, (h->count - low) * sizeof(h->counts[0]));
    h->keys[low] = bucket;
    h->counts[low] = count;
    h->count++;
    return true;
}

/* Puts all values into buckets of that width, and a bucket around 0 of at least that size. */
static void widen(struct sketch_histogram *h, uint32_t shift, int64_t zone)
{
    struct sketch_histogram old = *h;
    int64_t below = (INT64_C(1) << shift) - 1;
    leat_assert(shift <= SHIFT_MAX);
    h->count = 0;
    h->shift = shift;
    h->zone = zone > INT64_MAX - below ? zone : (zone + below) & ~below;
    for (uint32_t i = 0; i < old.count; i++) {
        bool was_zone = old.keys[i] == 0;
        int64_t bucket = was_zone ? 0 : bucket_of(h, first_key(&old, old.keys[i]));
        if (!was_zone && bucket == 0 && h->zone > 0)
            h->lumped += old.counts[i];
        leat_assert(add_to(h, bucket, old.counts[i]));
    }
}

/* How far the bucket around 0 may reach so that few values are in it. */
static int64_t wider_zone(const struct sketch_histogram *h)
{
    uint64_t others = h->lumped, lumped = h->lumped;
    uint32_t above = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        others += h->keys[i] == 0 ? 0 : h->counts[i];
        above += h->keys[i] <= 0;
    }
    uint32_t below = above; /* buckets [0, below) lie below 0, those from `above` on above it */
    below -= above > 0 && h->keys[above - 1] == 0;
    int64_t zone = h->zone;
    while (below > 0 || above < h->count) {
        int64_t down = below > 0 ? -first_key(h, h->keys[below - 1]) : INT64_MAX;
        int64_t up = above < h->count ? end_key(h, h->keys[above]) : INT64_MAX;
        bool is_up = below == 0 || (above < h->count && up <= down);
        lumped += h->counts[is_up ? above : below - 1];
        if (lumped > others / LUMPED_SHARE)
            break;
        zone = is_up ? up : down;
        above += is_up;
        below -= !is_up;
    }
    return zone;
}

static void make_room(struct sketch_histogram *h)
{
    int64_t zone = wider_zone(h);
    if (zone > h->zone)
        widen(h, h->shift, zone);
    else
        widen(h, h->shift + 1, h->zone);
}

static void add_key(struct sketch_histogram *h, int64_t key, uint64_t count)
{
    while (!add_to(h, bucket_of(h, key), count))
        make_room(h);
}

void sketch_histogram_add(struct sketch_histogram *histogram, double value)
{
    int64_t key = key_of(value);
    add_key(histogram, key, 1);
    histogram->lumped += key != 0 && key >= -histogram->zone && key < histogram->zone;
}

void sketch_histogram_merge(struct sketch_histogram *into, const struct sketch_histogram *from)
{
    if (from->count == 0)
        return;
    widen(into, MAX(into->shift, from->shift), MAX(into->zone, from->zone));
    for (uint32_t i = 0; i < from->count; i++) {
        bool was_zone = from->keys[i] == 0;
        int64_t key = was_zone ? 0 : first_key(from, from->keys[i]);
        into->lumped += !was_zone && into->zone > 0 && bucket_of(into, key) == 0 ? from->counts[i] : 0;
        add_key(into, key, from->counts[i]);
    }
    into->lumped += from->lumped;
}

void sketch_histogram_range(const struct sketch_histogram *histogram, uint32_t index, double *from,
                            double *to)
{
    int64_t bucket = histogram->keys[index];
    bool is_zone = bucket == 0 && histogram->zone > 0;
    leat_assert(index < histogram->count);
    *from = value_of(is_zone ? -histogram->zone : first_key(histogram, bucket));
    *to = value_of(is_zone ? histogram->zone : end_key(histogram, bucket));
}

void sketch_numbers_add(struct sketch_numbers *numbers, double value)
{
    if (!isfinite(value)) {
        numbers->not_finite++;
        return;
    }
    bool is_first = numbers->count++ == 0;
    numbers->min = is_first ? value : MIN(numbers->min, value);
    numbers->max = is_first ? value : MAX(numbers->max, value);
    double count = (double)numbers->count; /* divided first: a difference of two large doubles is no double */
    numbers->mean += value / count - numbers->mean / count;
    sketch_histogram_add(&numbers->histogram, value);
}

void sketch_numbers_merge(struct sketch_numbers *into, const struct sketch_numbers *from)
{
    into->not_finite += from->not_finite;
    if (from->count == 0)
        return;
    bool is_first = into->count == 0;
    into->count += from->count;
    into->min = is_first ? from->min : MIN(into->min, from->min);
    into->max = is_first ? from->max : MAX(into->max, from->max);
    double share = (double)from->count / (double)into->count;
    into->mean = into->mean * (1 - share) + from->mean * share;
    sketch_histogram_merge(&into->histogram, &from->histogram);
}

/* --- Which values are frequent --- */

void sketch_top_add(struct sketch_top *top, uint64_t hash, struct str text)
{
    uint32_t at = 0;
    top->total++;
    while (at < top->count && top->hashes[at] != hash)
        at++;
    if (at < top->count) {
        top->counts[at]++;
        return;
    }
    if (at < SKETCH_TOPS)
        top->count++;
    else { /* the value takes the place of the rarest one, and may have been as frequent before */
        at = 0;
        for (uint32_t i = 1; i < SKETCH_TOPS; i++)
            if (top->counts[i] < top->counts[at])
                at = i;
        top->errors[at] = top->counts[at];
    }
    top->counts[at]++;
    top->hashes[at] = hash;
    bool is_cut = text.length > SKETCH_TEXT_BYTES;
    top->lengths[at] = is_cut ? SKETCH_TEXT_CUT : (uint8_t)text.length;
    if (text.length > 0)
        memcpy(top->texts[at], text.data, is_cut ? SKETCH_TEXT_BYTES : text.length);
}

static int by_hash(const void *left, const void *right)
{
    const struct sketch_frequent *a = left, *b = right;
    return (a->hash > b->hash) - (a->hash < b->hash);
}

static int by_count(const void *left, const void *right)
{
    const struct sketch_frequent *a = left, *b = right;
    return a->at_least != b->at_least ? (a->at_least < b->at_least ? 1 : -1) : by_hash(left, right);
}

uint32_t sketch_top_frequent(const struct sketch_top *const *tops, uint32_t count,
                             struct sketch_frequent found[SKETCH_ANSWER_TOPS], uint32_t *followed)
{
    leat_assert(count <= 1024);
    struct sketch_frequent *all = mem_calloc((size_t)count * SKETCH_TOPS + 1, sizeof(*all));
    uint32_t n = 0, kept = 0;
    for (uint32_t t = 0; t < count; t++)
        for (uint32_t i = 0; i < tops[t]->count; i++)
            all[n++] = (struct sketch_frequent){.hash = tops[t]->hashes[i],
                                                .at_least = tops[t]->counts[i] - tops[t]->errors[i],
                                                .top = tops[t],
                                                .index = i};
    qsort(all, n, sizeof(*all), by_hash);
    for (uint32_t i = 0; i < n; i++)
        if (kept > 0 && all[kept - 1].hash == all[i].hash)
            all[kept - 1].at_least += all[i].at_least;
        else
            all[kept++] = all[i];
    qsort(all, kept, sizeof(*all), by_count);
    *followed = kept;
    kept = MIN(kept, SKETCH_ANSWER_TOPS);
    memcpy(found, all, kept * sizeof(*all));
    free(all);
    return kept;
}
