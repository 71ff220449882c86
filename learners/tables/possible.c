/*
 * Possible rows: those that the keys of an event would get if they occurred now. An event that is predicted
 * but does not teach (sampled out, of a frozen learner, model_predict) sees them, so that a prediction does
 * not depend on whether its event teaches. A possible row has its initial weights and belongs to no table: a
 * look-up gives table_possible in its place, and table_make_possible makes it where the event is predicted.
 *
 * Inline tables have none: the linear weights there begin at 0, which predicts as an absent key does.
 *
 * The keys go through admission in order, as occurrences do, but what they would change is noted beside the
 * table, for one event: counts of the sketch, rows already made, and rows that each logical bucket may still
 * get.
 */
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum { NOTES_LEAST = 64 };

struct table_row table_possible;

/* Open addressing, keys 0: free. An event uses few of the places, and they alone are cleared behind it. */
struct note {
    uint64_t key, value;
};
struct notes {
    struct note *items;
    uint32_t *used; /* places with a key */
    size_t mask;
    uint32_t used_count;
};

/* What the earlier new keys of the event have taken of a logical bucket. */
struct room {
    uint32_t rows, share;
    struct table_removable removable;
    bool is_counted; /* `removable` is known */
};

struct table_possible {
    struct room *rooms;    /* [capacity] */
    const uint8_t **cells; /* [capacity * SKETCH_DEPTH] of the sketch, of the absent keys */
    uint32_t *steps;       /* [capacity] of the event's rows, while they have the event's step */
    struct notes made;     /* by key: 1 if it has a possible row */
    struct notes counts;   /* by cell of the sketch, + 1: its count */
    struct notes buckets;  /* by bucket, + 1: its number in rooms, + 1 */
    uint32_t rooms_count;
    size_t capacity;
};

static size_t notes_size(size_t keys)
{
    size_t size = NOTES_LEAST;
    while (size < 2 * keys)
        size *= 2;
    return size;
}

static void notes_free(struct notes *notes)
{
    free(notes->items);
    free(notes->used);
}

static void notes_init(struct notes *notes, size_t keys)
{
    size_t size = notes_size(keys);
    notes_free(notes);
    *notes = (struct notes){.items = mem_calloc(size, sizeof(*notes->items)),
                            .used = mem_alloc(size * sizeof(*notes->used)),
                            .mask = size - 1};
}

static void notes_clear(struct notes *notes, size_t keys)
{
    for (uint32_t i = 0; i < notes->used_count; i++)
        notes->items[notes->used[i]] = (struct note){0};
    notes->used_count = 0;
    notes->mask = notes_size(keys) - 1;
}

/* The value of a key's note; 0: there is none. */
static uint64_t note_find(const struct notes *notes, uint64_t key)
{
    size_t i = (size_t)num_mix(key) & notes->mask;
    while (notes->items[i].key != 0 && notes->items[i].key != key)
        i = (i + 1) & notes->mask;
    return notes->items[i].value;
}

/* The note of a key, made with value 0 if there is none. */
static uint64_t *note_of(struct notes *notes, uint64_t key)
{
    size_t i = (size_t)num_mix(key) & notes->mask;
    while (notes->items[i].key != 0 && notes->items[i].key != key)
        i = (i + 1) & notes->mask;
    if (notes->items[i].key == 0) {
        notes->items[i].key = key;
        notes->used[notes->used_count++] = (uint32_t)i;
    }
    return &notes->items[i].value;
}

/* Forgets the event before; makes room for n keys. */
static struct table_possible *begin_event(struct table *t, size_t n)
{
    struct table_possible *p = t->possible;
    if (p == NULL)
        p = t->possible = mem_calloc(1, sizeof(*p));
    if (p->capacity < n) {
        p->capacity = MAX(2 * p->capacity, n);
        p->rooms = mem_realloc(p->rooms, p->capacity * sizeof(*p->rooms));
        p->cells = mem_realloc(p->cells, p->capacity * SKETCH_DEPTH * sizeof(*p->cells));
        p->steps = mem_realloc(p->steps, p->capacity * sizeof(*p->steps));
        notes_init(&p->made, p->capacity);
        notes_init(&p->counts, SKETCH_DEPTH * p->capacity);
        notes_init(&p->buckets, p->capacity);
    }
    notes_clear(&p->made, n);
    notes_clear(&p->counts, SKETCH_DEPTH * n);
    notes_clear(&p->buckets, n);
    p->rooms_count = 0;
    return p;
}

void table_possible_free(struct table *t)
{
    struct table_possible *p = t->possible;
    if (p == NULL)
        return;
    free(p->rooms);
    free(p->cells);
    free(p->steps);
    notes_free(&p->made);
    notes_free(&p->counts);
    notes_free(&p->buckets);
    free(p);
    t->possible = NULL;
}

/* The count of a cell as the event's earlier occurrences would have left it. */
static unsigned count_now(const struct table_possible *p, const struct sketch *sketch, const uint8_t *cell)
{
    if (p->counts.used_count == 0)
        return *cell;
    return MAX((unsigned)note_find(&p->counts, (uint64_t)(cell - sketch->counts) + 1), (unsigned)*cell);
}

/* As sketch_add, beside the sketch, for a key with these cells. */
static unsigned count_occurrence(struct table_possible *p, const struct sketch *sketch,
                                 const uint8_t *const *cells)
{
    unsigned counts[SKETCH_DEPTH], lowest = SKETCH_COUNT_MAX;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++) {
        counts[d] = count_now(p, sketch, cells[d]);
        lowest = MIN(lowest, counts[d]);
    }
    if (lowest == SKETCH_COUNT_MAX)
        return lowest;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++)
        if (counts[d] == lowest)
            *note_of(&p->counts, (uint64_t)(cells[d] - sketch->counts) + 1) = lowest + 1;
    return lowest + 1;
}

/* As table_make_room, and counts the new row. A key's own row that has expired counts as one of the bucket's
 * expired rows, although an occurrence would remove it first: the room for new rows is the same. */
static bool take_room(struct table *t, uint64_t hash, uint32_t step)
{
    struct table_possible *p = t->possible;
    uint64_t bucket = table_bucket(t, hash), *number = note_of(&p->buckets, bucket + 1);
    if (*number == 0) {
        p->rooms[p->rooms_count++] =
            (struct room){.rows = t->bucket_counts[bucket], .share = table_bucket_rows(t, bucket)};
        *number = p->rooms_count;
    }
    struct room *r = &p->rooms[*number - 1];
    if (r->rows >= r->share && !r->is_counted) {
        r->removable = table_removable(t, bucket, step);
        r->is_counted = true;
    }
    if (r->rows >= r->share && r->removable.expired > 0) {
        r->rows -= r->removable.expired;
        r->removable.expired = 0;
    } else if (r->rows >= r->share) {
        if (r->removable.others == 0)
            return false;
        r->removable.others--;
        r->rows--;
    }
    r->rows++;
    return true;
}

void table_make_possible(const struct table *t, uint64_t key, struct table_row *row)
{
    *row = (struct table_row){.key = key};
    t->options.init(t->options.init_argument, key, table_payload(row));
}

/* Gives the event's rows its step (is_in), so that none of them counts as removable, or back what they
 * had. */
static void spare(struct table *t, struct table_row **rows, size_t n, uint32_t step, bool is_in)
{
    uint32_t *steps = t->possible->steps;
    for (size_t i = 0; i < n; i++) {
        size_t at = is_in ? i : n - 1 - i; /* back in reverse: a row may be there twice */
        if (rows[at] == NULL || rows[at] == &table_possible)
            continue;
        uint32_t own = is_in ? step : steps[at];
        steps[at] = rows[at]->step;
        rows[at]->step = own;
    }
}

/* Finds the cells of the absent keys, in their order, so that the memory is there when they are counted. */
static void find_cells(const struct table *t, const uint64_t *keys, size_t n, struct table_row *const *rows,
                       uint32_t wanted)
{
    size_t absent = 0;
    for (size_t i = 0; i < n && wanted > 1; i++)
        if (rows[i] == NULL && keys[i] != 0)
            sketch_cells(&t->sketch, table_hash(t, keys[i]), &t->possible->cells[SKETCH_DEPTH * absent++]);
}

void table_possible_rows(struct table *t, const uint64_t *keys, size_t n, uint32_t step,
                         struct table_row **out)
{
    struct table_possible *p = begin_event(t, n);
    uint32_t wanted = MIN(t->options.admit_after, (uint32_t)SKETCH_COUNT_MAX);
    if (t->bucket_counts != NULL)
        spare(t, out, n, step, true);
    find_cells(t, keys, n, out, wanted);
    for (size_t i = 0, absent = 0; i < n; i++) {
        if (out[i] != NULL || keys[i] == 0)
            continue;
        const uint8_t **cells = &p->cells[SKETCH_DEPTH * absent++];
        uint64_t hash = table_hash(t, keys[i]), *made = note_of(&p->made, keys[i]);
        if (*made == 0 && (wanted <= 1 || count_occurrence(p, &t->sketch, cells) >= wanted) &&
            (t->bucket_counts == NULL || take_room(t, hash, step)))
            *made = 1;
        out[i] = *made != 0 ? &table_possible : NULL;
    }
    if (t->bucket_counts != NULL)
        spare(t, out, n, step, false);
}
