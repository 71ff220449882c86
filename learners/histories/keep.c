/*
 * Keeps the rows of entries within a share of memory; the others lie in cold stores (learners/tables/cold.h). A table
 * gives no memory back, so the memory that each class has when the share is nearly full becomes its own share, as for
 * a model's tables (learners/model); a class that users come to later has at least a part of a quarter. Of the share
 * the index takes what it needs: it grows with the users, and the classes have at least 1 / LEAST of the share.
 */
#include "learners/histories/internal.h"

enum { LEAST = 8 };

static void share(struct histories *h, size_t budget, size_t rows)
{
    double part = MIN(1.0, (double)budget * 0.75 / (double)rows);
    size_t least = budget / (4 * (size_t)h->classes_count);
    for (uint32_t i = 0; i < h->classes_count; i++) {
        struct table *t = &h->classes[i].table;
        size_t own = (size_t)((double)table_row_bytes(t) * part);
        table_share(t, MAX(own, least) + 1);
    }
}

void histories_keep(struct histories *h, size_t bytes, uint32_t step)
{
    if (h->classes[0].table.cold == NULL)
        return;
    if (h->classes[0].table.cold->bytes_max == 0) {
        size_t index = table_bytes(&h->index), budget = MAX(bytes - MIN(index, bytes), bytes / LEAST),
               rows = 0;
        for (uint32_t i = 0; i < h->classes_count; i++)
            rows += table_row_bytes(&h->classes[i].table);
        if (rows <= budget / 4 * 3)
            return;
        share(h, budget, rows);
    }
    for (uint32_t i = 0; i < h->classes_count; i++)
        table_keep(&h->classes[i].table, step, false);
}

uint64_t histories_cold(const struct histories *h)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < h->classes_count; i++)
        rows += h->classes[i].table.cold != NULL ? h->classes[i].table.cold->rows : 0;
    return rows;
}
