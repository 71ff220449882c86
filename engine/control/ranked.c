#include "control/ranked.h"

const char *ranked_k(const char *name, const char *figure)
{
    size_t length = strlen(figure);
    if (strncmp(name, figure, length) != 0 || name[length] != '_')
        return NULL;
    const char *k = name + length + 1;
    return k[0] != '\0' && strspn(k, "0123456789") == strlen(k) ? k : NULL;
}

const struct report_item *ranked_largest(const struct report *report, const char *figure, bool is_window)
{
    const struct report_item *largest = NULL;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_item *item = &report->items[i];
        if (item->is_window != is_window || item->text != NULL || ranked_k(item->name, figure) == NULL)
            continue;
        /* The lengths are written without zeros in front, so of two the longer name is the larger one's. */
        size_t length = strlen(item->name), most = largest == NULL ? 0 : strlen(largest->name);
        if (length > most || (length == most && strcmp(item->name, largest->name) > 0))
            largest = item;
    }
    return largest;
}
