/* Places the boxes of a picture in rows so that links between neighbouring rows cross little and run
 * straight; private to this folder.
 *
 * The method is the usual one for layered drawings (Sugiyama, Tagawa, Toda 1981): links join items of rows
 * r and r + 1 only (longer ones are cut by narrow items in the rows between), items are ordered within
 * their rows by the mean place of their neighbours, sweeping down and up, and the order with the fewest
 * crossings is kept. Then each row is moved to where its neighbours are, with no two items nearer than
 * `gap`: for each row this is an isotonic regression, solved exactly by pooling adjacent violators. */
#ifndef LEAT_PLAN_EXPLAIN_LAYOUT_H
#define LEAT_PLAN_EXPLAIN_LAYOUT_H

#include "core/arena.h"

struct layout_item {
    uint32_t row;
    double width, height; /* in pixels, as all lengths here */
    /* How strongly the item is drawn to its neighbours' places: more for the items that cut long links. 0:
     * the item has no links, and stands to the right of the others. */
    double weight;
    double x, y; /* result: the upper left corner */
};

struct layout_link {
    uint32_t from, to; /* indices of items; row(to) == row(from) + 1 */
};

struct layout {
    struct layout_item *items;
    struct layout_link *links;
    uint32_t items_count, links_count, rows_count;
    double gap;       /* between items of a row */
    double row_gap;   /* between rows */
    double width;     /* result: width of the picture; the left edge is at 0 */
    double height;    /* result: height of the picture; the upper edge is at 0 */
    double *row_y;    /* result, per row: its upper edge */
    double *row_high; /* result, per row: height of its highest item */
};

/* Sets the members marked as results; row_y and row_high lie in the arena. */
void layout_place(struct layout *layout, struct arena *arena);

#endif
