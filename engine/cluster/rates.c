#include "cluster/rates.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOW_PART = 4 }; /* a pair is slow below the median's share of that */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The middle one, of an even number the upper one; 0: there is none. */
static int64_t middle_of(int64_t *rates, uint32_t count)
{
    qsort(rates, count, sizeof(*rates), compare);
    return count == 0 ? 0 : rates[count / 2];
}

int64_t rates_median(const struct cluster_view *view)
{
    struct arena arena = {.block_bytes = 4096};
    int64_t *middles = arena_array(&arena, int64_t, view->members_count + 1);
    uint32_t middles_count = 0;
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *member = &view->members[i];
        int64_t *rates = arena_array(&arena, int64_t, member->rates_count + 1);
        uint32_t count = 0;
        for (uint32_t k = 0; k < member->rates_count; k++)
            if (cluster_view_member(view, member->rates[k].lease) != NULL)
                rates[count++] = member->rates[k].bytes_per_s;
        if (count > 0)
            middles[middles_count++] = middle_of(rates, count);
    }
    int64_t median = middle_of(middles, middles_count);
    arena_free(&arena);
    return median;
}

bool rates_is_slow(int64_t bytes_per_s, int64_t median)
{
    return bytes_per_s < median / SLOW_PART;
}

int64_t rates_to(const struct cluster_member *member, int64_t lease)
{
    for (uint32_t i = 0; i < member->rates_count; i++)
        if (member->rates[i].lease == lease)
            return member->rates[i].bytes_per_s;
    return -1;
}

void rates_describe_slow(const struct cluster_view *view, const struct rendezvous_round *round, char *text,
                         size_t bytes)
{
    size_t length = 0;
    int64_t median = rates_median(view);
    *text = '\0';
    for (uint32_t i = 0; i < round->count * round->count; i++) {
        const struct rendezvous_worker *from = &round->workers[i / round->count],
                                       *to = &round->workers[i % round->count];
        const struct cluster_member *member = cluster_view_member(view, from->lease);
        if (from == to)
            continue;
        int64_t rate = member == NULL ? -1 : rates_to(member, to->lease);
        if (rate < 0) { /* the median may be another one yet */
            *text = '\0';
            return;
        }
        if (!rates_is_slow(rate, median) || length >= bytes)
            continue;
        length += (size_t)snprintf(text + length, bytes - length, "%s%.*s to %.*s %.1f MB/s",
                                   length > 0 ? ", " : "", STR_ARGS(from->address), STR_ARGS(to->address),
                                   (double)rate / 1e6);
    }
}
