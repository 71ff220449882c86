/*
 * Dense 32-bit numbers of items: the place of an item in arrays of all items. One allocator stands for one
 * table of items, outside the table's shards.
 *
 * The rule: a new key gets the lowest number that is free, in the order of the calls, which callers make in
 * the order of first records. A number that is free again goes to another item with the next generation of
 * sixteen bits. Whoever stores a number stores its generation too (struct items_ref); a reference of an older
 * generation reads as absent. After generation 65,535 a number is retired: it is never used again, since a
 * reference of generation 0 could not be told from a new one. So the same history of calls gives the same
 * numbers, and the same bytes when saved.
 *
 * The value of an item is kept beside its number, so that outputs can name it. Keys are 64-bit hashes of
 * values; of two values with the same key, the first is kept, and both are the same item.
 *
 * One thread owns an allocator; several may read it (find, value, counts) while nobody changes it.
 */
#ifndef LEAT_LEARNERS_ITEMS_NUMBERS_H
#define LEAT_LEARNERS_ITEMS_NUMBERS_H

#include "core/base.h"

enum {
    ITEMS_GENERATION_LAST = UINT16_MAX,
    ITEMS_TEXT_MAX = 1 << 16, /* most bytes of a text that is kept */
};
#define ITEMS_NUMBERS_MAX UINT32_C(0x7fffffff) /* most numbers of an allocator */

/* What is stored where an item is meant. */
struct items_ref {
    uint32_t number;
    uint16_t generation;
};

/* The value of an item. text: may have any bytes; where it lies in an allocator, until the item is removed. */
struct items_value {
    uint64_t key; /* not 0 */
    bool is_text;
    int64_t integer; /* 0 for a text */
    struct str text; /* empty for an integer */
};

enum items_added {
    ITEMS_FOUND,     /* the key had a number */
    ITEMS_NEW,       /* it got one */
    ITEMS_FULL,      /* no number is left: others have all numbers, or they are retired */
    ITEMS_TEXT_LONG, /* the text has more than ITEMS_TEXT_MAX bytes */
};

struct items_counts {
    uint32_t live;    /* items that have a number */
    uint32_t free;    /* numbers that were used, and can be again */
    uint32_t retired; /* numbers whose generations are used up */
    uint32_t used;    /* numbers that were ever given: live + free + retired; all are below it */
    size_t bytes;     /* of memory */
};

struct items_numbers;

/* numbers_max: 1..ITEMS_NUMBERS_MAX. The caller frees the result with items_numbers_free, which takes NULL. */
struct items_numbers *items_numbers_create(uint32_t numbers_max);
void items_numbers_free(struct items_numbers *numbers);

/* Finds the number of value->key, or gives it one and copies the value. *ref is set if the result is
 * ITEMS_FOUND or ITEMS_NEW. */
enum items_added items_numbers_add(struct items_numbers *numbers, const struct items_value *value,
                                   struct items_ref *ref) LEAT_CHECKED;

/* Whether the key has a number. */
bool items_numbers_find(const struct items_numbers *numbers, uint64_t key,
                        struct items_ref *ref) LEAT_CHECKED;

/* Frees the key's number, which *ref then tells. Returns false if it has none. */
bool items_numbers_remove(struct items_numbers *numbers, uint64_t key, struct items_ref *ref);

/* The value of an item; false if the reference reads as absent: an older generation, or a number that nobody
 * has. */
bool items_numbers_value(const struct items_numbers *numbers, struct items_ref ref,
                         struct items_value *value) LEAT_CHECKED;

/* The value of the item that has the number now, whatever its generation; false: nobody has it. For answers of an
 * index, which has the items of now alone; a number that was stored needs its generation. */
bool items_numbers_value_now(const struct items_numbers *numbers, uint32_t number,
                             struct items_value *value) LEAT_CHECKED;

/* Writes an item's value under a name, for people; "gone": the reference reads as absent. */
struct describe;
void items_numbers_describe(const struct items_numbers *numbers, struct items_ref ref, const char *name,
                            struct describe *out);

struct items_counts items_numbers_counts(const struct items_numbers *numbers);

/*
 * Saved states. Changes (numbers given, removed, retired) belong to epochs: to that of items_numbers_set_epoch, which
 * never falls, and is 1 at first.
 *   - items_numbers_save appends the state; since > 0: only what changed after that epoch, with all that a state of
 *     that epoch needs to become this one.
 *   - items_numbers_load: a state saved with `since` 0 replaces the allocator's; any other is added to it, which must be
 *     the state that was saved last, as base and deltas of a checkpoint are.
 *   - items_numbers_follow: likewise for one who follows by cuts (core/operator.h), and whose state may be later than
 *     what is added. Then numbers are in disorder until the cuts have caught up with the state: a key's older number is
 *     freed where two would have it.
 * Numbers, generations, values and the order in which free numbers are given are then those of a state saved whole.
 * What was loaded counts as unchanged. Load and follow return NULL, or why the bytes, which may be any, are refused, as
 * static text; then the allocator is empty.
 */
struct byte_buffer;
void items_numbers_set_epoch(struct items_numbers *numbers, uint32_t epoch);
void items_numbers_save(const struct items_numbers *numbers, uint32_t since, struct byte_buffer *out);
const char *items_numbers_load(struct items_numbers *numbers, const void *data, size_t bytes) LEAT_CHECKED;
const char *items_numbers_follow(struct items_numbers *numbers, const void *data, size_t bytes) LEAT_CHECKED;

#endif
