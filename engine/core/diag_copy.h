/* Errors that one list has, in another one too; and room for one that a full list must have. */
#ifndef LEAT_CORE_DIAG_COPY_H
#define LEAT_CORE_DIAG_COPY_H

#include "core/diag.h"

/* Adds copies of the other list's entries, without labels. */
void diag_add_all(struct diag_list *list, const struct diag_list *from);
/* Of a full list, drops the last entry: the next one is kept, whatever was said before. */
void diag_make_room(struct diag_list *list);

#endif
