/* Inside the wire format of batches (core/batch_codec.h): what core/batch_codec_write.c and core/batch_codec_read.c share. */
#ifndef LEAT_CORE_BATCH_CODEC_FORMAT_H
#define LEAT_CORE_BATCH_CODEC_FORMAT_H

#include "core/batch_codec.h"

/* Of the head. WIRE_TIME_*: what the times of orders are relative to; neither: to event times. */
enum wire_flag {
    WIRE_ARRIVAL = 1,
    WIRE_ORDER = 2,
    WIRE_TIME_PLAIN = 4,
    WIRE_TIME_ARRIVAL = 8,
};

enum { WIRE_NULLS = 0x80 }; /* of a column's type */

struct wire_head {
    uint16_t rows;
    uint8_t flags, version;
    uint16_t columns;
};

_Static_assert(sizeof(struct wire_head) == 6, "heads are written as they are");
_Static_assert(offsetof(struct wire_head, version) == 3,
               "learners/sequential/held_older.c goes by this byte");
/* The sequences of a row's origin and order, as they follow each other. */
enum wire_field {
    WIRE_PARTITION,
    WIRE_RECORD,
    WIRE_PLACE,
    WIRE_DEPTH,
    WIRE_ORDER_PARTITION,
    WIRE_TIME,
    WIRE_TIE,
    WIRE_SUB,
    WIRE_FIELDS,
};

_Static_assert(BATCH_ROWS <= UINT16_MAX && SCHEMA_FIELDS_MAX <= UINT16_MAX, "counts of the head");

/* --- Sequences of integers --- */

enum wire_form { WIRE_ZEROS, WIRE_LINE, WIRE_VALUES, WIRE_DELTAS };

/* A sequence in bytes that were checked. */
struct wire_sequence {
    enum wire_form form;
    uint32_t width; /* bytes of each of `data`; 0: none */
    uint64_t base, step;
    const char *data;
};

/* Appends `count` integers, at least 1. */
void wire_put_sequence(struct byte_buffer *out, const int64_t *values, uint32_t count);
/* Appends `count` integers that are base + i * step. */
void wire_put_line(struct byte_buffer *out, uint64_t base, uint64_t step);
/* Finds the sequence of `count` integers, at least 1, that the bytes from `at` to `end` begin with. Returns what follows
 * it; NULL: they begin with none. */
const char *wire_take_sequence(const char *at, const char *end, uint32_t count,
                               struct wire_sequence *sequence);
/* Writes the sequence's integers to `values`. count, end: those with which it was taken. */
void wire_decode(const struct wire_sequence *sequence, const char *end, uint32_t count, int64_t *values);

/* The type of a list's child column, and how many there are. */
const struct type *wire_child_type(const struct type *list, uint32_t index);
uint32_t wire_children_of(const struct type *list);

#endif
