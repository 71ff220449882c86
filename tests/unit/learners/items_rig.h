/* Numbers of items for tests: values of keys, and saved states. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_ITEMS_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_ITEMS_RIG_H

#include "learners/items/numbers.h"

#include "core/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NUMBERS = 600, KEYS = 900 };

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The value of a key: an integer, or a text of 0 to 40 bytes with a NUL among them. */
static inline struct items_value value_of(uint64_t key, char text[48])
{
    struct items_value value = {.key = key, .is_text = key % 3 != 0, .integer = (int64_t)(key * 77)};
    if (!value.is_text)
        return value;
    value.integer = 0;
    value.text = (struct str){text, key % 41};
    for (size_t i = 0; i < value.text.length; i++)
        text[i] = (char)(key + i * 7);
    return value;
}

static inline enum items_added add(struct items_numbers *n, uint64_t key, struct items_ref *ref)
{
    char text[48];
    struct items_value value = value_of(key, text);
    return items_numbers_add(n, &value, ref);
}

static inline void assert_saved_equal(const struct items_numbers *a, const struct items_numbers *b)
{
    struct byte_buffer first = {0}, second = {0};
    items_numbers_save(a, 0, &first);
    items_numbers_save(b, 0, &second);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    buffer_free(&first);
    buffer_free(&second);
}

static inline struct items_numbers *copy_of(const struct items_numbers *n)
{
    struct byte_buffer bytes = {0};
    struct items_numbers *copy = items_numbers_create(NUMBERS);
    items_numbers_save(n, 0, &bytes);
    assert_null(items_numbers_load(copy, bytes.data, bytes.length));
    buffer_free(&bytes);
    return copy;
}

/* Saves into a fresh allocator, which saves the same; returns it in the place of the old one. */
static inline struct items_numbers *restored(struct items_numbers *n)
{
    struct items_numbers *fresh = copy_of(n);
    assert_saved_equal(n, fresh);
    items_numbers_free(n);
    return fresh;
}

/* --- Saved bytes --- */

enum { HEAD_BYTES = 16, AT_USED = 4, AT_SINCE = 8, AT_COUNT = 12 }; /* of a saved state */

/* A record as it is saved; the text follows. */
struct record {
    uint64_t key;
    int64_t value; /* the integer, or the bytes of the text */
    uint32_t number;
    uint16_t generation;
    uint8_t state, is_text;
};

/* The records as a state saved after epoch `since`. */
static inline const char *reason_of(struct items_numbers *n, const struct record *records, uint32_t count,
                                    uint32_t used, uint32_t since)
{
    struct byte_buffer bytes = {0};
    items_numbers_save(n, since, &bytes); /* for its head */
    bytes.length = HEAD_BYTES;
    memcpy(bytes.data + AT_USED, &used, sizeof(used));
    memcpy(bytes.data + AT_COUNT, &count, sizeof(count));
    buffer_append(&bytes, records, count * sizeof(*records));
    const char *reason = items_numbers_load(n, bytes.data, bytes.length);
    buffer_free(&bytes);
    return reason;
}

enum { FREE, LIVE, RETIRED };

#endif
