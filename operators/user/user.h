/* Libraries of users (include/leat.h): loading and checking them, their functions and operators as leat's own
 * kinds, and who is named when one crashes. What the files of the folder share, but for user_use. */
#ifndef LEAT_OPERATORS_USER_H
#define LEAT_OPERATORS_USER_H

#include "core/registry.h"
#include "include/leat.h"

enum { USER_OPERATORS_MAX = 32, USER_FUNCTIONS_MAX = 256, USER_COLUMNS_MAX = 64 };

/* Lives as long as the process: libraries are never unloaded. */
struct user_library {
    const struct leat_library *library;
    const char *path;
};

/* For registry.use: the registry with what the library brings besides; NULL after diagnostics. The functions
 * are known to expressions from then on, until a registry without libraries is added to. */
const struct registry *user_use(const struct registry *registry, struct str path, struct span span,
                                struct arena *arena, struct diag_list *diags);

/* operator.c: as a kind, bound by the slot's own `bind`. slot < USER_OPERATORS_MAX. */
const struct operator_kind *user_operator_kind(const struct user_library *library,
                                               const struct leat_operator *op, uint32_t slot,
                                               struct arena *arena);
/* Rows of leat's own table; offsets count from the user's struct. */
const struct option *user_options(const struct leat_option *options, size_t base, struct arena *arena);
/* check.c: whether everything is there that must be; else diagnostics. */
bool user_check(const struct user_library *library, const struct registry *registry, struct span span,
                struct arena *arena, struct diag_list *diags);

/* function.c */
struct user_function {
    const struct user_library *library;
    const struct leat_function *function;
};
void user_add_function(const struct user_library *library, const struct leat_function *function,
                       bool is_first);

/* column.c: a batch's columns, dense, as users see them; in the scratch arena. reads: bits, those shown. */
struct leat_column *user_columns(const struct batch *batch, const uint64_t *reads, struct arena *scratch);
int user_type(struct type type);

/* crash.c: around each call of a library's code, on the calling thread. A crash in between names both. */
struct user_call {
    const char *library, *what, *name;
};
void user_enter(const struct user_library *library, const char *what, const char *name);
void user_leave(void);
/* The call that the thread is in; library NULL: none. */
struct user_call user_called(void);
void user_set_called(struct user_call call);
/* E0616 on stderr, once a process; others wait for its end. Async-signal-safe. */
void user_say(const char *what, const struct user_call *call, const char *hint);

/* exit.c: ends of the process that are not leat's own are failures, from the first library on. */
void user_watch_ends(void);
/* Has loaded; symbol: one of its own. */
void user_watch_library(const char *path, const void *symbol);
/* Whose code lies there; NULL: no library's. */
const char *user_library_at(const void *address);
/* leat's own end begins: main returns. */
void user_ended(void);

#endif
