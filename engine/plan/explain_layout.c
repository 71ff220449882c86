/* See explain_layout.h. */
#include "plan/explain_layout.h"

/* CROSSING_LINKS_MAX: counting crossings takes a time quadratic in the number of links; above this number
 * the first order is kept. */
enum { ORDER_SWEEPS = 12, MOVE_SWEEPS = 16, CROSSING_LINKS_MAX = 400 };

/* A row: its items from left to right. The first `linked` items have links; the others come last. */
struct row {
    uint32_t *items;
    uint32_t count;
    uint32_t linked;
};

struct work {
    struct layout *layout;
    struct row *rows;
    uint32_t *place; /* per item: its place in its row */
    double *wanted;  /* per item: the place in its row, or the centre (x), that its neighbours ask for */
    double *sum, *mass, *start_sum;
    uint32_t *pool_count;
};

static void number_places(struct work *w)
{
    for (uint32_t r = 0; r < w->layout->rows_count; r++)
        for (uint32_t i = 0; i < w->rows[r].count; i++)
            w->place[w->rows[r].items[i]] = i;
}

static double centre(const struct layout_item *item)
{
    return item->x + item->width / 2;
}

/* Sets `wanted` of each item of a row to the mean of its neighbours' places (by_place) or centres in the row
 * above (is_down) or below; of an item without neighbours to the item's own place or centre. */
static void set_wanted(struct work *w, uint32_t row, bool is_down, bool by_place)
{
    const struct layout *l = w->layout;
    const struct row *r = &w->rows[row];
    for (uint32_t i = 0; i < r->count; i++) {
        w->sum[r->items[i]] = 0;
        w->mass[r->items[i]] = 0;
    }
    for (uint32_t i = 0; i < l->links_count; i++) {
        uint32_t own = is_down ? l->links[i].to : l->links[i].from;
        uint32_t other = is_down ? l->links[i].from : l->links[i].to;
        if (l->items[own].row != row)
            continue;
        w->sum[own] += by_place ? w->place[other] : centre(&l->items[other]);
        w->mass[own] += 1;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t item = r->items[i];
        double here = by_place ? i : centre(&l->items[item]);
        w->wanted[item] = w->mass[item] > 0 ? w->sum[item] / w->mass[item] : here;
    }
}

/* Insertion sort: it is stable, and rows are short. */
static void sort_row(struct work *w, struct row *row)
{
    for (uint32_t i = 1; i < row->linked; i++) {
        uint32_t item = row->items[i], k = i;
        for (; k > 0 && w->wanted[row->items[k - 1]] > w->wanted[item]; k--)
            row->items[k] = row->items[k - 1];
        row->items[k] = item;
    }
}

static uint64_t crossings(const struct work *w)
{
    const struct layout *l = w->layout;
    uint64_t crossed = 0;
    if (l->links_count > CROSSING_LINKS_MAX)
        return 0;
    for (uint32_t i = 0; i < l->links_count; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct layout_link *a = &l->links[i], *b = &l->links[k];
            if (l->items[a->from].row != l->items[b->from].row)
                continue;
            int64_t from = (int64_t)w->place[a->from] - (int64_t)w->place[b->from];
            int64_t to = (int64_t)w->place[a->to] - (int64_t)w->place[b->to];
            crossed += (from < 0 && to > 0) || (from > 0 && to < 0);
        }
    return crossed;
}

static void order_rows(struct work *w, struct arena *arena)
{
    const struct layout *l = w->layout;
    uint32_t *best = arena_array(arena, uint32_t, l->items_count);
    uint64_t best_crossed = UINT64_MAX;
    for (uint32_t sweep = 0; sweep <= ORDER_SWEEPS && best_crossed > 0; sweep++) {
        for (uint32_t i = 0; sweep > 0 && i + 1 < l->rows_count; i++) {
            bool is_down = sweep % 2 == 1;
            uint32_t row = is_down ? i + 1 : l->rows_count - 2 - i;
            set_wanted(w, row, is_down, true);
            sort_row(w, &w->rows[row]);
            number_places(w);
        }
        uint64_t crossed = crossings(w);
        if (crossed < best_crossed) {
            best_crossed = crossed;
            memcpy(best, w->place, l->items_count * sizeof(*best));
        }
    }
    for (uint32_t i = 0; i < l->items_count; i++)
        w->rows[l->items[i].row].items[best[i]] = i;
    number_places(w);
}

/* Moves the row's items as near to `wanted` as their order and the gaps allow (weighted least squares). */
static void move_row(struct work *w, const struct row *row)
{
    struct layout_item *items = w->layout->items;
    uint32_t pools = 0;
    double offset = 0; /* from the first item's centre to this item's, if all stand as close as they may */
    for (uint32_t i = 0; i < row->linked; i++) {
        struct layout_item *item = &items[row->items[i]];
        if (i > 0)
            offset += items[row->items[i - 1]].width / 2 + w->layout->gap + item->width / 2;
        w->start_sum[pools] = item->weight * (w->wanted[row->items[i]] - offset);
        w->mass[pools] = item->weight;
        w->pool_count[pools++] = 1;
        while (pools > 1 &&
               w->start_sum[pools - 2] * w->mass[pools - 1] > w->start_sum[pools - 1] * w->mass[pools - 2]) {
            pools--;
            w->start_sum[pools - 1] += w->start_sum[pools];
            w->mass[pools - 1] += w->mass[pools];
            w->pool_count[pools - 1] += w->pool_count[pools];
        }
    }
    offset = 0;
    for (uint32_t pool = 0, i = 0; pool < pools; pool++)
        for (uint32_t k = 0; k < w->pool_count[pool]; k++, i++) {
            struct layout_item *item = &items[row->items[i]];
            if (i > 0)
                offset += items[row->items[i - 1]].width / 2 + w->layout->gap + item->width / 2;
            item->x = w->start_sum[pool] / w->mass[pool] + offset - item->width / 2;
        }
    for (uint32_t i = MAX(row->linked, 1); i < row->count; i++) {
        const struct layout_item *before = &items[row->items[i - 1]];
        items[row->items[i]].x = before->x + before->width + w->layout->gap;
    }
}

static void place_across(struct work *w)
{
    struct layout *l = w->layout;
    for (uint32_t r = 0; r < l->rows_count; r++) {
        double x = 0;
        for (uint32_t i = 0; i < w->rows[r].count; i++) {
            struct layout_item *item = &l->items[w->rows[r].items[i]];
            item->x = x;
            x += item->width + l->gap;
        }
    }
    for (uint32_t sweep = 0; sweep < MOVE_SWEEPS; sweep++)
        for (uint32_t i = 0; i + 1 < l->rows_count; i++) {
            bool is_down = sweep % 2 == 0;
            uint32_t row = is_down ? i + 1 : l->rows_count - 2 - i;
            set_wanted(w, row, is_down, false);
            move_row(w, &w->rows[row]);
        }
    double left = 0, right = 0;
    for (uint32_t i = 0; i < l->items_count; i++) {
        left = i == 0 || l->items[i].x < left ? l->items[i].x : left;
        right =
            i == 0 || l->items[i].x + l->items[i].width > right ? l->items[i].x + l->items[i].width : right;
    }
    for (uint32_t i = 0; i < l->items_count; i++)
        l->items[i].x -= left;
    l->width = right - left;
}

static void place_down(struct work *w, struct arena *arena)
{
    struct layout *l = w->layout;
    l->row_y = arena_array(arena, double, l->rows_count);
    l->row_high = arena_array(arena, double, l->rows_count);
    for (uint32_t i = 0; i < l->items_count; i++)
        l->row_high[l->items[i].row] = MAX(l->row_high[l->items[i].row], l->items[i].height);
    double y = 0;
    for (uint32_t r = 0; r < l->rows_count; r++) {
        l->row_y[r] = y;
        y += l->row_high[r] + l->row_gap;
    }
    for (uint32_t i = 0; i < l->items_count; i++)
        l->items[i].y = l->row_y[l->items[i].row];
    l->height = y - l->row_gap;
}

void layout_place(struct layout *layout, struct arena *arena)
{
    uint32_t n = layout->items_count;
    struct work w = {
        .layout = layout,
        .rows = arena_array(arena, struct row, layout->rows_count),
        .place = arena_array(arena, uint32_t, n),
        .wanted = arena_array(arena, double, n),
        .sum = arena_array(arena, double, n),
        .mass = arena_array(arena, double, n),
        .start_sum = arena_array(arena, double, n),
        .pool_count = arena_array(arena, uint32_t, n),
    };
    for (uint32_t i = 0; i < n; i++)
        w.rows[layout->items[i].row].count++;
    for (uint32_t r = 0; r < layout->rows_count; r++) {
        w.rows[r].items = arena_array(arena, uint32_t, w.rows[r].count);
        w.rows[r].count = 0;
    }
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n; i++) {
            struct row *row = &w.rows[layout->items[i].row];
            bool is_linked = layout->items[i].weight > 0;
            if (is_linked == (pass == 1))
                continue;
            row->items[row->count++] = i;
            row->linked += is_linked;
        }
    number_places(&w);
    order_rows(&w, arena);
    place_across(&w);
    place_down(&w, arena);
}
