/* The layout of histories, for the files of this room. */
#ifndef LEAT_LEARNERS_HISTORIES_INTERNAL_H
#define LEAT_LEARNERS_HISTORIES_INTERNAL_H

#include "learners/histories/histories.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

enum {
    VARINT_MAX = 5, /* bytes of 32 bits */
    /* The number with a bit for "has a generation"; the generation (at most 3 bytes); seconds; side ids. */
    ENTRY_BYTES_MAX = VARINT_MAX + 3 + VARINT_MAX + HISTORY_SIDES_MAX * VARINT_MAX,
    CLASS_BYTES_LEAST = 24, /* two or three entries */
    /* Two classes from each power of two to the next, and one for the rest. */
    CLASSES_MAX = 30,
    CLASS_NONE = UINT8_MAX,
};

/* The payload of a row of the index. The row's count is the lower half of the count of the user's events. */
struct user_state {
    uint32_t count_high;
    uint8_t class; /* CLASS_NONE: a new row */
    uint8_t unused[3];
};
enum { INDEX_STRIDE = TABLE_ROW_HEADER + sizeof(struct user_state) };
_Static_assert(INDEX_STRIDE == 32, "two rows of the index share a cache line");

/* The payload of a row of a class. */
struct user_entries {
    uint32_t seconds; /* of the newest entry */
    uint32_t used;    /* bytes of entries */
    unsigned char bytes[];
};

struct size_class {
    struct table table;
    uint32_t capacity;        /* bytes of entries */
    struct table_keys wanted; /* scratch: keys that are looked up now, for table_warm */
    struct table_keys left;   /* keys that left this class, whose copies in the cold store must go */
    bool has_copies;          /* the cold store may hold copies of rows in memory */
};

struct histories {
    struct histories_options options;
    uint32_t drop;      /* entries that go when the window is full */
    uint32_t entry_max; /* most bytes of an entry */
    struct table index;
    uint32_t classes_count;
    struct size_class classes[CLASSES_MAX];
};

static inline struct user_state *user_state_of(struct table_row *row)
{
    return (struct user_state *)(void *)table_payload(row);
}

static inline struct user_entries *user_entries_of(struct table_row *row)
{
    return (struct user_entries *)(void *)table_payload(row);
}

static inline uint64_t user_count(struct table_row *row)
{
    return (uint64_t)user_state_of(row)->count_high << 32 | row->count;
}

static inline struct table_row *user_find(const struct table *index, uint64_t key, uint64_t hash)
{
    return (struct table_row *)(void *)table_probe(index, key, hash, true, INDEX_STRIDE);
}

/* Writes an entry that comes after one of `previous` seconds (the first: 0) to `out`, of ENTRY_BYTES_MAX; returns
 * its bytes. */
size_t entry_write(const struct history_entry *entry, uint32_t previous, uint32_t sides, unsigned char *out);

#endif
