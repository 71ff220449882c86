#include "core/diag_copy.h"

void diag_add_all(struct diag_list *list, const struct diag_list *from)
{
    for (unsigned i = 0; i < from->count; i++) {
        const struct diag *item = &from->items[i];
        struct diag *d = item->severity == DIAG_ERROR
                             ? diag_error(list, item->code, item->span, "%s", item->message)
                             : diag_warning(list, item->code, item->span, "%s", item->message);
        if (item->cause != NULL)
            diag_cause(list, d, "%s", item->cause);
        if (item->hint != NULL)
            diag_hint(list, d, "%s", item->hint);
        if (item->path != NULL)
            diag_at(list, d, item->path, item->offset, item->line);
    }
}

void diag_make_room(struct diag_list *list)
{
    if (list->count < DIAG_MAX)
        return;
    list->count--;
    list->dropped++;
}
