/* The newest event time of each key of a partition, for a watermark that follows the slowest key.
 *
 * It holds a bounded number of keys, as 64-bit hashes (two keys with the same hash count as one, with the
 * newer of their times). When a new key does not fit, the slowest eighth of the keys is forgotten. Which
 * keys are kept depends only on the keys seen, not on their places in the table. Under the sequencer's
 * mutex. */
#ifndef LEAT_RUN_KEY_TIMES_H
#define LEAT_RUN_KEY_TIMES_H

#include "core/buffer.h"

enum { KEY_TIMES_MIN = 16, KEY_TIMES_MAX = 65536 };

struct key_times {
    uint64_t *hashes; /* 0: a free place */
    int64_t *times;
    uint32_t capacity, count;
    uint64_t forgotten; /* keys forgotten, over the life of the process */
};

/* Takes in the event time of a key with this hash, which is not 0. keys_max: bound of the number of keys. */
void key_times_see(struct key_times *keys, uint32_t keys_max, uint64_t hash, int64_t time);
/* The oldest of the times at or after `from`; TIME_MAX: there is none. */
int64_t key_times_oldest(const struct key_times *keys, int64_t from);
/* Writes the table into a checkpoint, and reads it back. load: false if save cannot have written `saved`. */
void key_times_save(const struct key_times *keys, struct byte_buffer *out);
bool key_times_load(struct key_times *keys, struct str saved);
void key_times_free(struct key_times *keys);

#endif
