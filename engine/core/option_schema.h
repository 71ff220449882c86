/* Binds the `{ user_id: int, ts: time(ms), tags: list(text) }` of a source to a schema.
 * Called by option.c. */
#ifndef LEAT_CORE_OPTION_SCHEMA_H
#define LEAT_CORE_OPTION_SCHEMA_H

#include "core/option.h"

/* The types, and the units in which a source may write times, for the help; each array ends
 * with name NULL. */
struct type_help {
    const char *name, *help;
};
extern const struct type_help option_schema_types[], option_schema_units[];

/* Types: bool int float text bytes time time(s|ms|us|ns|rfc3339|datetime) list(TYPE) list({ ... }). `!` after
 * a type means required (AST_UNARY with AST_OP_NOT). false after diagnostics. */
LEAT_CHECKED bool option_schema(const struct ast *value, struct option_env *env, struct schema **schema);

#endif
