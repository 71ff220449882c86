/* The template of a stream: what its records have looked like so far; private to json_*.c.
 *
 * A record is a way through a tree: a slot for the bytes between two values (`,"user":`), the value, the next
 * slot. Where records differ in these bytes the tree branches: the slot for other bytes at the same place is
 * its `other`. So a topic with several kinds of records, or with optional members, has a way for each kind.
 * One thread at a time. */
#ifndef LEAT_FORMATS_JSON_TEMPLATE_H
#define LEAT_FORMATS_JSON_TEMPLATE_H

#include "formats/rows.h"

#include <emmintrin.h>
#include <stddef.h>

/* The longest literal of a slot, and the most members of a record that is learned, in the schema or not. */
enum { JSON_LITERAL_BYTES = 64, JSON_MEMBERS_MAX = 1024 };

enum slot_action { SLOT_END, SLOT_INT, SLOT_FLOAT, SLOT_TEXT, SLOT_BOOL, SLOT_OTHER, SLOT_SKIP };

/* The fields before `literal`, all that decoding reads, are one cache line. */
struct json_slot {
    char head[16]; /* the first bytes of `literal` */
    uint32_t length;
    unsigned mask; /* bit i: byte i of `head` counts */
    enum slot_action action;
    uint32_t depth; /* number of slots before this one on its way */
    int64_t scale;  /* SLOT_INT: what the number is multiplied by */
    struct row_column *column;
    struct json_slot *next;  /* the slot behind the value; NULL: nothing was learned */
    struct json_slot *other; /* the slot for other bytes at this place, or NULL */

    const char *literal;
    const struct json_slot *parent;
    struct row_column **absent; /* SLOT_END: columns that a record of this way does not have */
    uint32_t absent_count;
};
_Static_assert(offsetof(struct json_slot, literal) == 64, "a cache line");

/* Where a literal stands in a record; logged while the general reader reads the record. */
struct seen_literal {
    const char *begin;
    size_t length;
    struct row_column *column;
};

struct json_template {
    struct json_slot *root; /* NULL at first */
    struct arena arena;
    uint32_t slots_count;
    struct seen_literal *log;
    uint32_t log_count;
    /* Records that followed no way since the last one was learned; at deviations_max the next is learned. */
    uint32_t deviations, deviations_max;
};

void json_template_init(struct json_template *template);
void json_template_free(struct json_template *template);

/* Starts the log of a record that the general reader goes on with: logs the literals of the slots up to
 * `last`, the last slot whose value followed the tree (NULL: none). */
void json_template_begin(struct json_template *template, const struct json_slot *last);
/* Logs the literal begin .. end, which stays in memory until json_template_end. */
void json_template_log(struct json_template *template, const char *begin, const char *end,
                       struct row_column *column);
/* Learns the logged record, which was good, if enough records deviated. object: the record's number by
 * rows.objects; `seen` of each column that the record has is equal to it. */
void json_template_end(struct json_template *template, struct row_fields *fields, uint64_t object);

static inline bool json_slot_is_at(const struct json_slot *slot, const char *at)
{
    unsigned equal = (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at), _mm_loadu_si128((const __m128i *)slot->head)));
    if (unlikely((equal & slot->mask) != slot->mask))
        return false;
    return slot->length <= 16 || memcmp(at + 16, slot->literal + 16, slot->length - 16) == 0;
}

/* The first of `slot` and its `other` slots whose bytes stand at `at`, or NULL. */
static inline const struct json_slot *json_slot_at(const struct json_slot *slot, const char *at)
{
    while (slot != NULL && unlikely(!json_slot_is_at(slot, at)))
        slot = slot->other;
    return slot;
}

#endif
