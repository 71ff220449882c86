/* Functions of option.h: the rows of a table, with those of the tables that it includes. */
#include "core/option.h"

struct option_walk option_walk(const struct option *table)
{
    return (struct option_walk){.places = {{.next = table}}};
}

bool option_next(struct option_walk *walk)
{
    while (true) {
        struct option_place *place = &walk->places[walk->depth];
        const struct option *item = place->next;
        if (item != NULL && item->include != NULL) {
            leat_assert(walk->depth < OPTION_INCLUDES_MAX);
            walk->places[++walk->depth] =
                (struct option_place){item->include, place->offset + item->written.offset};
            place->next++;
        } else if (item != NULL && item->written.name != NULL) {
            walk->row = item->written;
            walk->row.offset += place->offset;
            walk->count++;
            place->next++;
            return true;
        } else if (walk->depth > 0) {
            walk->depth--;
        } else {
            walk->row = (struct option_row){0};
            return false;
        }
    }
}

bool option_has_rows(const struct option *table)
{
    struct option_walk w = option_walk(table);
    return option_next(&w);
}

struct option_row option_find(const struct option *table, struct str name)
{
    struct option_walk w = option_walk(table);
    while (option_next(&w) && !str_is(name, w.row.name))
        ;
    return w.row;
}

struct option_row option_find_flag(const struct option *table, unsigned flags)
{
    struct option_walk w = option_walk(table);
    while (option_next(&w) && (w.row.flags & flags) == 0)
        ;
    return w.row;
}
