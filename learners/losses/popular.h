/*
 * How often items occur now, and draws of items by a power of it: the distribution of negatives of word2vec (Mikolov et
 * al. 2013, Distributed Representations of Words and Phrases and their Compositionality, section 2.2), which is the
 * share of a word among all words to the power of 0.75.
 *
 * A stream has no corpus whose words could be counted first. So an item's share is 1 / B, where B is the running mean of
 * the interval between its occurrences (struct frequencies of negatives.h), and the item is drawn with probability
 *
 *   w / (sum of all w), w = floor(2^32 * (1 / B)^0.75), at least 1; 0 for an item that has not occurred
 *
 * The first interval of an item is taken to be the number of items that there are, at least 1000. An item that occurs no
 * more keeps its share until it is forgotten.
 *
 * The weights are integers, so their sums are the same in whatever order items came, and a restored state draws as the one
 * that was saved. Sums of 16 weights, of 256 and so on make a draw a walk of a few steps. 24 to 26 bytes a number.
 *
 * One thread changes it; any number may draw meanwhile.
 */
#ifndef LEAT_LEARNERS_LOSSES_POPULAR_H
#define LEAT_LEARNERS_LOSSES_POPULAR_H

#include "learners/losses/negatives.h"

enum { POPULARITY_LEVELS = 8 }; /* 16^8 is 2^32 */

struct popularity {
    struct frequencies frequencies;
    uint64_t *sums[POPULARITY_LEVELS]; /* [0] by number; [l] of the 16^l numbers from number * 16^l on */
    uint32_t levels, capacity; /* the last level has at most 16 sums; numbers that level 0 has room for */
    uint64_t total;            /* 0: no item has occurred */
};

void popularity_init(struct popularity *p);
void popularity_free(struct popularity *p); /* takes zeros, too */

/* An item occurred at `time`, which rises by 1 with each occurrence; there are `items` items. */
void popularity_add(struct popularity *p, uint32_t number, uint64_t time, uint32_t items);
/* The number belongs to another item from now on. */
void popularity_forget(struct popularity *p, uint32_t number);
/* The item's share of the occurrences; 0: it has not occurred. */
double popularity_share(const struct popularity *p, uint32_t number);
/* The item that a hash draws; total is above 0. popularity_draws: draws 0 .. draws - 1 for a target, by the hashes of
 * negatives_draw. */
uint32_t popularity_draw(const struct popularity *p, uint64_t hash);
void popularity_draws(const struct popularity *p, uint64_t seed, uint64_t identity, uint32_t draws,
                      uint32_t *numbers);

/* As frequencies_save and frequencies_restore. */
void popularity_save(const struct popularity *p, struct byte_buffer *out);
LEAT_CHECKED bool popularity_restore(struct popularity *p, const void *bytes, size_t length,
                                     uint32_t numbers_max, uint64_t time, char reason[FREQUENCIES_REASON]);

#endif
