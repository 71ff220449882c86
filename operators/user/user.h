/* Libraries of users (include/leat.h): loads and checks them, makes their functions and operators leat's own
 * kinds, and names the library if one crashes. Except for user_use, private to this folder. */
#ifndef LEAT_OPERATORS_USER_USER_H
#define LEAT_OPERATORS_USER_USER_H

#include "core/registry.h"
#include "include/leat.h"

enum { USER_OPERATORS_MAX = 32, USER_FUNCTIONS_MAX = 256, USER_COLUMNS_MAX = 64 };

/* Lives as long as the process, because libraries are never unloaded. */
struct user_library {
    const struct leat_library *library;
    const char *path;
};

/* For registry.use: returns the registry extended by the library's kinds; NULL after diagnostics. Expressions
 * know the functions from then on, until user_use is called with a registry without libraries. */
const struct registry *user_use(const struct registry *registry, struct str path, struct span span,
                                struct arena *arena, struct diag_list *diags);

/* operator.c: an operator of a library as a kind, bound by the `bind` of slot `slot` < USER_OPERATORS_MAX. */
const struct operator_kind *user_operator_kind(const struct user_library *library,
                                               const struct leat_operator *op, uint32_t slot,
                                               struct arena *arena);
/* A user's option table as leat's. base: offset of the user's struct in the kind's option struct. */
const struct option *user_options(const struct leat_option *options, size_t base, struct arena *arena);
/* check.c: whether the library's declarations are complete and valid; false after a diagnostic. */
bool user_check(const struct user_library *library, const struct registry *registry, struct span span,
                struct arena *arena, struct diag_list *diags);

/* function.c. function: NULL adds none. is_first: forgets the functions added before. */
struct user_function {
    const struct user_library *library;
    const struct leat_function *function;
};
void user_add_function(const struct user_library *library, const struct leat_function *function,
                       bool is_first);

/* column.c: the columns of a dense batch as users see them, in the scratch arena. reads: bits of the columns
 * that are shown; the others have a type alone. */
struct leat_column *user_columns(const struct batch *batch, const uint64_t *reads, struct arena *scratch);
int user_type(struct type type);

/* crash.c: user_enter before and user_leave after each call of a library's code, on the calling thread. A
 * crash in between is reported with library, `what` and `name`. */
struct user_call {
    const char *library, *what, *name;
};
void user_enter(const struct user_library *library, const char *what, const char *name);
void user_leave(void);
/* The call that the thread is in; its library is NULL if there is none. */
struct user_call user_called(void);
void user_set_called(struct user_call call);
/* Reports E0616 on stderr, once a process; other threads that call it wait until the process ends.
 * Async-signal-safe. */
void user_say(const char *what, const struct user_call *call, const char *hint);

/* exit.c: from the first library on, an end of the process that is not leat's own is a failure. */
void user_watch_ends(void);
/* Call when a library was loaded. symbol: an address inside the library. */
void user_watch_library(const char *path, const void *symbol);
/* The path of the library whose code is at the address; NULL: the address is in no library of a user. */
const char *user_library_at(const void *address);
/* Call when main returns: leat's own end begins. */
void user_ended(void);

#endif
