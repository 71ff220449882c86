/* How fast workers can send to each other, as each has measured when it met the others, and which pairs are slow. The leader names
 * them; so does `leat cluster status`. Any thread. */
#ifndef LEAT_CLUSTER_RATES_H
#define LEAT_CLUSTER_RATES_H

#include "cluster/rendezvous.h"

/* What members can usually send to each other, in bytes a second: the median over all members of each one's median to those that are
 * there; 0: nobody has told a rate. Not the median of all pairs: of three members of which one is slow, four of six pairs are, for answers
 * to what is sent to the slow one come slowly, too. */
int64_t rates_median(const struct cluster_view *view);
/* Whether a rate is far below that median. */
bool rates_is_slow(int64_t bytes_per_s, int64_t median);
/* The worker's rate to that lease; -1: not known. */
int64_t rates_to(const struct cluster_member *member, int64_t lease);
/* Writes which pairs of the round are slow, as words; "": none is, or not all of its workers have told their rates. */
void rates_describe_slow(const struct cluster_view *view, const struct rendezvous_round *round, char *text,
                         size_t bytes);

#endif
