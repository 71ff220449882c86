/* Streams of changes (changelogs). Where an operator revises results that it has already emitted, the last
 * column, `_op`, says what the row does to the reader's copy: "insert" adds a row, "update" carries the row's
 * new values in full, "delete" carries the values last emitted. Any stream with this column is a stream of
 * changes; a source or `with` may make it, too. Operators that work row by row pass `_op` on like any column;
 * other operators must declare that they accept changes (operator_kind.takes_changes). File sinks write the
 * column; Kafka sinks turn rows into upserts and tombstones. */
#ifndef LEAT_CORE_CHANGE_H
#define LEAT_CORE_CHANGE_H

#include "core/schema.h"

#define CHANGE_COLUMN "_op"

enum change { CHANGE_INSERT, CHANGE_UPDATE, CHANGE_DELETE };

static inline struct str change_text(enum change change)
{
    static const struct str texts[] = {{"insert", 6}, {"update", 6}, {"delete", 6}};
    return texts[change];
}

/* Index of the `_op` column, or -1: the rows are not changes. */
static inline int change_column(const struct schema *schema)
{
    return schema_find(schema, STR(CHANGE_COLUMN));
}

#endif
