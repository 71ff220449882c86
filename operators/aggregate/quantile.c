/* quantile(x, p): the value below which a share p of the values lies, by a merging t-digest (Dunning, "The
 * t-digest: efficient estimates of distributions", 2021), changed so that frequent values have clusters of
 * their own.
 *
 * A partial is a head, clusters (mean, number of values) by rising mean, and a buffer: the values that came
 * since the clusters were last made, unsorted, at most BUFFERED_MAX. As long as there are no clusters nothing
 * is lost: the quantile is that of all values, with linear interpolation between two of them. Beyond that,
 * neighbouring values form clusters of at most n * (2 pi / 200) * sqrt(q (1 - q)) values, where q is the
 * share of the values below: single values at both ends, 1.6 % of all values in the middle. This size is
 * scale function k1 of the paper without its arc sine, as sqrt alone gives the same bits on every machine.
 * Clusters are made in the order of values, so a digest depends only on what was merged in which order.
 *
 * A cluster knows whether its values are all equal (it is pure). A pure cluster takes in every value equal to
 * its own. Once it has half the size that a cluster may have, it takes in no other value, and the quantile at
 * each of its ranks is its value. Otherwise a frequent value, such as a common price, would be mixed into the
 * clusters around it, and the quantile would be near the price but not equal to it.
 *
 * The error is in the rank: by how much the share of values below the answer, or up to it, is off. With
 * clusters that do not overlap it is at most one cluster's share. Clusters of unordered values do overlap,
 * and an order can be constructed for which no bound holds. Over twenty kinds of distributions and orders, n
 * from 129 to 100,000, whole or merged from forty panes, the error is at most one cluster and one value
 * (test_quantile.c). */
#include "operators/aggregate/aggregate.h"

#include <math.h>
#include <stdlib.h>

/* CLUSTERS_KEPT: from this number of clusters on, neighbours are joined whatever their size. The sizes alone
 * give about 200 clusters at most; infinite values may add one at each end. */
enum { BUFFERED_MAX = 128, CLUSTERS_MAX = 512, CLUSTERS_KEPT = CLUSTERS_MAX - 2 };

static const double cluster_share = 2 * 3.14159265358979323846 / 200;
#define ALONE_SHARE 0.5 /* of the largest size of a cluster */

struct digest_head {
    uint32_t clusters, buffered;
};

/* Lies behind the head if there are clusters: the least and the greatest of all values, buffered ones
 * included. */
struct digest_ends {
    double least, most;
};

struct cluster {
    double mean, count; /* count < 0: -count values that differ */
};

static double count_of(const struct cluster *cluster)
{
    return fabs(cluster->count);
}

/* All values of the cluster are equal to its mean. */
static bool is_pure(const struct cluster *cluster)
{
    return cluster->count > 0;
}

/* The clusters of one or two digests, by rising mean. */
struct clusters {
    uint32_t count;
    struct cluster items[2 * (CLUSTERS_MAX + BUFFERED_MAX)];
};

static struct digest_head head_of(const char *partial)
{
    struct digest_head head;
    memcpy(&head, partial, sizeof(head));
    return head;
}

static size_t clusters_at(struct digest_head head)
{
    return sizeof(head) + (head.clusters == 0 ? 0 : sizeof(struct digest_ends));
}

static size_t buffer_at(struct digest_head head)
{
    return clusters_at(head) + head.clusters * sizeof(struct cluster);
}

static struct digest_ends ends_of(struct str partial)
{
    struct digest_head head = head_of(partial.data);
    struct digest_ends ends = {INFINITY, -INFINITY};
    if (head.clusters > 0)
        memcpy(&ends, partial.data + sizeof(head), sizeof(ends));
    for (uint32_t i = 0; i < head.buffered && head.clusters == 0; i++) {
        double value;
        memcpy(&value, partial.data + sizeof(head) + i * sizeof(value), sizeof(value));
        ends = (struct digest_ends){MIN(ends.least, value), MAX(ends.most, value)};
    }
    return ends;
}

static int by_value(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

/* Merges a digest's clusters and buffered values into the list; of equal means the list's own come first. */
static void merge_into(struct clusters *list, struct str partial)
{
    struct digest_head head = head_of(partial.data);
    struct cluster fresh[CLUSTERS_MAX + BUFFERED_MAX];
    double values[BUFFERED_MAX];
    leat_assert(head.clusters <= CLUSTERS_MAX && head.buffered <= BUFFERED_MAX);
    memcpy(values, partial.data + buffer_at(head), head.buffered * sizeof(*values));
    qsort(values, head.buffered, sizeof(*values), by_value);
    uint32_t a = 0, b = 0, count = 0;
    while (a < head.clusters || b < head.buffered) {
        struct cluster next = {0, 0};
        if (a < head.clusters)
            memcpy(&next, partial.data + clusters_at(head) + a * sizeof(next), sizeof(next));
        if (a == head.clusters || (b < head.buffered && values[b] < next.mean)) {
            fresh[count++] = (struct cluster){values[b++], 1};
        } else {
            fresh[count++] = next;
            a++;
        }
    }
    for (uint32_t to = list->count + count, old = list->count; to-- > 0;)
        if (count == 0 || (old > 0 && list->items[old - 1].mean > fresh[count - 1].mean))
            list->items[to] = list->items[--old];
        else
            list->items[to] = fresh[--count];
    list->count += head.clusters + head.buffered;
}

static double values_of(const struct clusters *list)
{
    double count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        count += count_of(&list->items[i]); /* integers: exact in any order */
    return count;
}

/* The mean of all values of two clusters. Infinite means do not mix with finite ones. */
static double mean_of(double a, double a_count, double b, double b_count)
{
    double count = a_count + b_count, distance = b - a;
    if (a == b)
        return a;
    if (isfinite(distance))
        return a + distance * (b_count / count);
    return a * (a_count / count) + b * (b_count / count);
}

static struct cluster join(const struct cluster *a, const struct cluster *b)
{
    double a_count = count_of(a), b_count = count_of(b);
    bool are_equal = is_pure(a) && is_pure(b) && a->mean == b->mean;
    return (struct cluster){mean_of(a->mean, a_count, b->mean, b_count),
                            are_equal ? a_count + b_count : -(a_count + b_count)};
}

/* Whether `count` values are at most `factor` times as many as a cluster may have at their place. below:
 * number of values that lie below them; all: number of values in the digest. Squares are compared first; the
 * formula with the root decides where the squares are too close. */
static bool is_within(double count, double below, double all, double factor)
{
    double end = below + count;
    double square = cluster_share * cluster_share * factor * factor *
                    MIN(below * (all - below), MAX(end * (all - end), 0));
    if (count * count < square * (1 - 1e-9))
        return true;
    if (count * count > square * (1 + 1e-9))
        return false;
    double share = below / all, share_end = end / all;
    return count <=
           factor * all * cluster_share * sqrt(MIN(share * (1 - share), MAX(share_end * (1 - share_end), 0)));
}

/* Whether the cluster is pure and large enough to take in no other values. */
static bool stands_alone(const struct cluster *cluster, double below, double all)
{
    return is_pure(cluster) && cluster->count > 1 && !is_within(cluster->count, below, all, ALONE_SHARE);
}

/* Whether two neighbours may become one cluster. below: number of values that lie below both. is_full:
 * whatever their sizes. */
static bool may_join(const struct cluster *last, const struct cluster *next, double below, double all,
                     bool is_full)
{
    double last_count = count_of(last), next_count = count_of(next);
    if (is_pure(last) && is_pure(next) && last->mean == next->mean)
        return true;
    if (last->mean != next->mean && !(isfinite(last->mean) && isfinite(next->mean)))
        return false;
    return is_full || (is_within(last_count + next_count, below, all, 1) && !stands_alone(last, below, all) &&
                       !stands_alone(next, below + last_count, all));
}

/* Joins neighbouring clusters as far as the largest size allows. */
static void compress(struct clusters *list)
{
    double all = values_of(list), below = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        struct cluster next = list->items[i];
        struct cluster *last = &list->items[kept - (kept > 0)];
        if (kept > 0 && may_join(last, &next, below, all, kept >= CLUSTERS_KEPT)) {
            *last = join(last, &next);
            continue;
        }
        below += kept > 0 ? count_of(last) : 0;
        list->items[kept++] = next;
    }
    list->count = kept;
}

static void write_clusters(struct byte_buffer *partial, struct clusters *list, struct digest_ends ends)
{
    struct digest_head head = {.clusters = list->count};
    buffer_clear(partial);
    buffer_append(partial, &head, sizeof(head));
    buffer_append(partial, &ends, sizeof(ends));
    buffer_append(partial, list->items, list->count * sizeof(*list->items));
}

/* --- Callbacks --- */

static double value_of(const struct aggregate_row *row)
{
    const struct column *column = row->argument;
    if (column->tag == TYPE_INT)
        return (double)column->ints[row->row];
    return column->floats[row->row] + 0.0; /* -0.0 is 0.0 */
}

static uint32_t digest_absorb_here(const struct aggregate *aggregate, char *partial, uint32_t length,
                                   uint32_t capacity, const struct aggregate_row *row)
{
    (void)aggregate;
    struct digest_head head = head_of(partial);
    double value = value_of(row);
    if (head.buffered == BUFFERED_MAX || capacity - length < sizeof(value))
        return ABSORB_ELSEWHERE;
    if (head.clusters > 0) {
        struct digest_ends ends;
        memcpy(&ends, partial + sizeof(head), sizeof(ends));
        ends = (struct digest_ends){MIN(ends.least, value), MAX(ends.most, value)};
        memcpy(partial + sizeof(head), &ends, sizeof(ends));
    }
    head.buffered++;
    memcpy(partial, &head, sizeof(head));
    memcpy(partial + length, &value, sizeof(value));
    return length + (uint32_t)sizeof(value);
}

static void digest_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                          const struct aggregate_row *row)
{
    struct digest_head none = {0};
    if (partial->length == 0)
        buffer_append(partial, &none, sizeof(none));
    struct digest_head head = head_of(partial->data);
    if (head.buffered == BUFFERED_MAX) {
        struct clusters list;
        struct str whole = {partial->data, partial->length};
        list.count = 0;
        merge_into(&list, whole);
        compress(&list);
        write_clusters(partial, &list, ends_of(whole));
    }
    (void)buffer_reserve(partial, sizeof(double));
    partial->length = digest_absorb_here(aggregate, partial->data, (uint32_t)partial->length,
                                         (uint32_t)(partial->length + sizeof(double)), row);
}

static uint32_t digest_growth(const struct aggregate *aggregate, struct str partial,
                              const struct aggregate_row *row)
{
    (void)aggregate, (void)row;
    if (partial.length == 0)
        return sizeof(struct digest_head) + sizeof(double);
    bool is_full = head_of(partial.data).buffered == BUFFERED_MAX;
    return (uint32_t)(is_full ? sizeof(struct digest_ends) + BUFFERED_MAX * sizeof(struct cluster)
                              : sizeof(double));
}

static void digest_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    (void)aggregate;
    if (into->length == 0) {
        buffer_append(into, from.data, from.length);
        return;
    }
    struct digest_head a = head_of(into->data), b = head_of(from.data);
    if (a.clusters + b.clusters == 0 && a.buffered + b.buffered <= BUFFERED_MAX) {
        a.buffered += b.buffered;
        buffer_append(into, from.data + sizeof(b), from.length - sizeof(b));
        memcpy(into->data, &a, sizeof(a));
        return;
    }
    struct clusters list;
    struct str own = {into->data, into->length};
    struct digest_ends ends = ends_of(own), others = ends_of(from);
    list.count = 0;
    merge_into(&list, own);
    merge_into(&list, from);
    compress(&list);
    ends = (struct digest_ends){MIN(ends.least, others.least), MAX(ends.most, others.most)};
    write_clusters(into, &list, ends);
}

/* Linear interpolation: a at share 0, b at share 1. */
static double between(double a, double b, double share)
{
    if (a == b || share == 0)
        return a;
    if (!isfinite(a) || !isfinite(b))
        return share < 0.5 ? a : b;
    return a * (1 - share) + b * share;
}

/* The value at `rank`, counted from 0. A pure cluster has all of its ranks; another cluster has one point,
 * the middle of its ranks. Between these the value is interpolated. */
static double value_at(const struct clusters *list, struct digest_ends ends, double rank)
{
    double below = 0, at = 0, value = ends.least; /* the least value stands at rank 0 */
    for (uint32_t i = 0; i < list->count; i++) {
        const struct cluster *cluster = &list->items[i];
        double count = count_of(cluster), first = below + (is_pure(cluster) ? 0 : (count - 1) / 2);
        if (rank <= first)
            return first == at ? cluster->mean : between(value, cluster->mean, (rank - at) / (first - at));
        at = is_pure(cluster) ? below + count - 1 : first;
        value = cluster->mean;
        below += count;
        if (rank <= at)
            return value;
    }
    return below - 1 > at ? between(value, ends.most, (rank - at) / (below - 1 - at)) : value;
}

static void digest_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                          uint32_t row)
{
    if (partial.length == 0) {
        builder_null(out, row);
        return;
    }
    struct clusters list;
    list.count = 0;
    merge_into(&list, partial);
    out->column->floats[row] = value_at(&list, ends_of(partial), aggregate->share * (values_of(&list) - 1));
}

#define QUANTILE(symbol, argument_)                                                                          \
    const struct aggregate_kind symbol = {.name = "quantile",                                                \
                                          .argument = argument_,                                             \
                                          .result = TYPE_FLOAT,                                              \
                                          .parameter = PARAMETER_SHARE,                                      \
                                          .absorb = digest_absorb,                                           \
                                          .absorb_here = digest_absorb_here,                                 \
                                          .growth = digest_growth,                                           \
                                          .combine = digest_combine,                                         \
                                          .finish_bytes = digest_finish};

QUANTILE(aggregate_quantile_int, TYPE_INT)
QUANTILE(aggregate_quantile_float, TYPE_FLOAT)
