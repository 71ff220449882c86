/* Values of any type as bytes, and columns built row by row: how rows are stored in keyed state, and how they
 * are read back.
 *
 * A value is one byte (0: null; 1: not null), then: bool 1 byte; int, float, time 8; text, bytes: length (4)
 * and the bytes; list: count (4), then for each element its value, or the values of its record's fields.
 * Bytes are checked when they are decoded, as they may come from a checkpoint. */
#ifndef LEAT_OPERATORS_ROWS_CODEC_H
#define LEAT_OPERATORS_ROWS_CODEC_H

#include "core/batch.h"
#include "core/buffer.h"

/* Appends the encoded value that the column has in that row. type: the column's type, not a record. */
void row_encode_value(struct byte_buffer *out, const struct column *column, const struct type *type,
                      uint32_t row);

/* A column being filled, by one thread. Rows may be set in any order, each once; rows of children are
 * appended. */
struct column_builder {
    struct batch *batch;
    struct column *column;
    struct type type;
    struct byte_buffer heap;         /* bytes of the texts */
    struct column_builder *children; /* TYPE_LIST: one for each column of the elements */
    uint32_t children_count;
    uint32_t rows, capacity; /* of a child: rows appended so far, and rows that its column has room for */
    bool is_child;
};

/* The column must have its data already (batch_new, batch_column_init). The builder's memory is in the
 * batch's arena, except for the texts until builder_finish, which must be called in any case. */
void builder_init(struct column_builder *builder, struct batch *batch, struct column *column,
                  struct type type);
void builder_null(struct column_builder *builder, uint32_t row);
/* Sets the row to a copy of the text. */
void builder_text(struct column_builder *builder, uint32_t row, struct str text);
/* Starts a list of `count` elements at `row`; the elements' rows are then added with builder_append. */
void builder_list(struct column_builder *builder, uint32_t row, uint32_t count);
/* Adds a row to a child and returns the row's index; the caller then sets the row. */
uint32_t builder_append(struct column_builder *child);
/* Sets the row from encoded bytes and moves *at behind them. Returns false if the bytes are malformed: the
 * caller then calls builder_null for the row. */
bool builder_decode(struct column_builder *builder, uint32_t row, const char **at, const char *end);
/* Appends the encoded value of a row that was set. */
void builder_encode(struct column_builder *builder, uint32_t row, struct byte_buffer *out);
/* Completes the column, children included: moves the texts into the batch's arena. */
void builder_finish(struct column_builder *builder);

#endif
