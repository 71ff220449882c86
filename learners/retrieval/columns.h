/* Columns that every learner that chooses items binds (core/learner.h): ids, the item, and which rows teach. */
#ifndef LEAT_LEARNERS_RETRIEVAL_COLUMNS_H
#define LEAT_LEARNERS_RETRIEVAL_COLUMNS_H

#include "core/learner.h"

/* The column of an expression with a single value, or (lists) with a list of them; -1 after a diagnostic. */
int choices_bind_id(struct operator_bind *bind, uint32_t input, const struct ast *ast, bool lists);

/* Whether a column of another input has the type of that of the events; false after a diagnostic: equal values of
 * different types are different. */
bool choices_is_same_type(struct operator_bind *bind, uint32_t input, int column, int of_events,
                          const struct ast *ast);

/* The column of the item, which becomes the learner's label; -1 after a diagnostic. */
int choices_bind_item(struct operator_bind *bind, const struct ast *ast);

/* The column of the option `learn`; ast NULL: *column is -1, all rows teach. False after a diagnostic. */
bool choices_bind_learn(struct operator_bind *bind, const struct ast *ast, int *column);

/* The schema of `NAME.top` or `NAME.scores`: the columns `own` of the input, which are those without the ones that bind
 * added, then `rank` and `top` (lists.h). NULL after a diagnostic. */
struct ranks_config;
const struct schema *choices_bind_output(struct operator_bind *bind, const struct ranks_config *ranks,
                                         int item_column, uint32_t input, const struct schema *own);

#endif
