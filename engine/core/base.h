/* The small vocabulary that every file of leat uses: fixed-width types, byte strings, assertions,
 * checked arithmetic, bit sets. Nothing here allocates. Any thread. */
#ifndef LEAT_CORE_BASE_H
#define LEAT_CORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b)          ((a) < (b) ? (a) : (b))
#define MAX(a, b)          ((a) > (b) ? (a) : (b))
#define likely(x)          __builtin_expect(!!(x), 1)
#define unlikely(x)        __builtin_expect(!!(x), 0)
#define LEAT_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define LEAT_UNUSED        __attribute__((unused))
#define LEAT_CHECKED       __attribute__((warn_unused_result))

/* offsetof, which fails to compile unless the member has the given type. */
#define OFFSET_OF(structure, member, type)                                                                   \
    (offsetof(structure, member) +                                                                           \
     0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((structure *)0)->member), type) ? 1 : -1]))

/* Prefetches the cache line at p, for writing; p need not point to readable memory. The empty assembly keeps
 * the call: gcc treats a void function that only calls __builtin_prefetch as one without effect, and drops
 * calls of it. */
static inline void prefetch_line(const void *p)
{
    __builtin_prefetch(p, 1);
    __asm__ volatile("" : : "r"(p));
}

/* Assertions check for bugs of leat itself, never for bad input; they are always compiled in. */
#define leat_assert(condition)                                                                               \
    ((condition) ? (void)0 : leat_assert_failed(#condition, __FILE__, __LINE__, __func__))
_Noreturn void leat_assert_failed(const char *condition, const char *file, int line, const char *function);

/* A byte string owned by somebody else; not NUL-terminated. */
struct str {
    const char *data;
    size_t length;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
/* For printf("%.*s", STR_ARGS(s)). */
#define STR_ARGS(s) (int)(s).length, (s).data

static inline struct str str_from(const char *terminated)
{
    return (struct str){terminated, strlen(terminated)};
}

static inline bool str_equal(struct str a, struct str b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static inline bool str_is(struct str a, const char *terminated)
{
    return str_equal(a, str_from(terminated));
}

/* Compares byte by byte; a prefix comes before the longer string. Returns < 0, 0 or > 0. */
int str_compare(struct str a, struct str b);

/* *product = count * size; false if it overflows. */
static inline bool size_multiply(size_t count, size_t size, size_t *product)
{
    return !__builtin_mul_overflow(count, size, product);
}

/* Bit sets: bit i of word i / 64. */
#define BIT_WORDS(bits) (((bits) + 63) / 64)

static inline bool bit_get(const uint64_t *words, size_t bit)
{
    return words[bit >> 6] >> (bit & 63) & 1;
}

static inline void bit_set(uint64_t *words, size_t bit)
{
    words[bit >> 6] |= UINT64_C(1) << (bit & 63);
}

static inline void bit_clear(uint64_t *words, size_t bit)
{
    words[bit >> 6] &= ~(UINT64_C(1) << (bit & 63));
}

/* Times are microseconds since 1970-01-01T00:00:00Z. */
#define TIME_MIN      INT64_MIN
#define TIME_MAX      INT64_MAX
#define US_PER_SECOND INT64_C(1000000)
#define US_PER_MINUTE (60 * US_PER_SECOND)
#define US_PER_HOUR   (60 * US_PER_MINUTE)
#define US_PER_DAY    (24 * US_PER_HOUR)

/* For times that are written as numbers of a unit. scale: microseconds per unit; for units below a
 * microsecond, minus the number of units per microsecond (nanoseconds: TIME_NS). */
#define TIME_NS INT64_C(-1000)

/* Rounds towards minus infinity to whole microseconds, so that a time never becomes later. false:
 * out of range. */
static inline bool time_from_units(int64_t units, int64_t scale, int64_t *microseconds)
{
    if (scale > 0)
        return !__builtin_mul_overflow(units, scale, microseconds);
    *microseconds = units / -scale - (units % scale < 0);
    return true;
}

/* Rounds towards minus infinity to whole units. 64 bits of nanoseconds reach only from 1677 to 2262,
 * hence the 128. */
static inline __int128 time_to_units(int64_t microseconds, int64_t scale)
{
    if (scale < 0)
        return (__int128)microseconds * -scale;
    return microseconds / scale - (microseconds % scale < 0);
}

/* a + b, clamped to [TIME_MIN, TIME_MAX]: the ends mean "before everything" and "after everything". */
static inline int64_t time_add(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return a == TIME_MAX || a == TIME_MIN ? a : sum;
    return b > 0 ? TIME_MAX : TIME_MIN;
}

#endif
