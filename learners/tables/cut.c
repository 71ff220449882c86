#include "learners/tables/cut.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum {
    AHEAD = 16,          /* rows between the prefetch of one and its copy */
    LINES_MAX = 8,       /* cache lines of a row that are prefetched */
    SWEEP_ROWS = 8192,   /* rows that a follower examines in each cut for expiry */
    RESTORE_AHEAD = 16,  /* items between a slot's prefetch and its probe */
    DIRECTORY_MIN = 4096 /* entries that a directory may have whatever its rows */
};
static const uint64_t CUT_MAGIC = UINT64_C(0x32747563626174); /* "tabcut2" */

/* A cut: this head, then the items of each kind: keys, rows, blocks, cells. */
enum section { SECTION_REMOVED, SECTION_ROWS, SECTION_BLOCKS, SECTION_CELLS, SECTIONS };
struct cut_head {
    uint64_t magic, row_bytes;
    uint64_t rows; /* all rows of the table, in memory and in its cold store */
    uint64_t counts[SECTIONS];
};
static const enum table_item kind_of[SECTIONS] = {TABLE_ITEM_REMOVED, TABLE_ITEM_ROW, TABLE_ITEM_BLOCK,
                                                  TABLE_ITEM_CELL};

/* --- Rows as they are in a cut: key, count, seen, then what predictions read of the payload --- */

enum { ROW_HEAD = offsetof(struct table_row, epoch), STORED_HEAD = offsetof(struct table_row, step) };

/* Bytes that predictions read at the payload's begin. */
static size_t read_first(const struct table *t)
{
    return t->options.read_first + t->options.read_bytes > 0 ? t->options.read_first
                                                             : t->options.payload_bytes;
}

static size_t row_bytes(const struct table *t)
{
    return ROW_HEAD + read_first(t) + t->options.read_bytes;
}

static void store_parts(const struct table *t, const void *head, const void *payload, unsigned char *to)
{
    size_t first = read_first(t);
    memcpy(to, head, ROW_HEAD);
    memcpy(to + ROW_HEAD, payload, first);
    memcpy(to + ROW_HEAD + first, (const char *)payload + t->options.read_at, t->options.read_bytes);
}

static void store_row(const struct table *t, const struct table_row *row, unsigned char *to)
{
    store_parts(t, row, (const char *)row + TABLE_ROW_HEADER, to);
}

static void load_row(const struct table *t, struct table_row *row, const unsigned char *from)
{
    size_t first = read_first(t);
    unsigned char *payload = (unsigned char *)row + TABLE_ROW_HEADER;
    memcpy(row, from, ROW_HEAD);
    memcpy(payload, from + ROW_HEAD, first);
    memcpy(payload + t->options.read_at, from + ROW_HEAD + first, t->options.read_bytes);
}

/* --- Restoring items --- */

size_t table_item_bytes(const struct table *t, enum table_item kind)
{
    return kind == TABLE_ITEM_ROW     ? table_stored_bytes(t)
           : kind == TABLE_ITEM_BLOCK ? sizeof(struct sketch_block)
                                      : sizeof(uint64_t);
}

static uint64_t key_of(const unsigned char *item)
{
    uint64_t key;
    memcpy(&key, item, sizeof(key));
    return key;
}

/* Makes room for the row of a key. Pages split by the hashes of their rows: keys that somebody chose by their hashes
 * would double the directory again and again, which random ones never do. */
static bool make_room(struct table *t, uint64_t key)
{
    uint64_t hash = table_hash(t, key), entries = 4 * (uint64_t)t->rows_used + DIRECTORY_MIN;
    return table_make_slot(t, hash, 63 - (unsigned)__builtin_clzll(entries));
}

static bool restore_item(struct table *t, enum table_item kind, const unsigned char *item)
{
    if (kind == TABLE_ITEM_BLOCK) {
        struct sketch_block block;
        memcpy(&block, item, sizeof(block));
        return sketch_restore(&t->sketch, &block);
    }
    uint64_t key = key_of(item);
    if (kind == TABLE_ITEM_CELL)
        return sketch_set(&t->sketch, key >> 8, (uint8_t)key);
    if (key == 0)
        return false;
    if (kind == TABLE_ITEM_REMOVED)
        table_restore_remove(t, key);
    else if (make_room(t, key))
        table_restore_row(t, item);
    else
        return false;
    return true;
}

bool table_restore_items(struct table *t, enum table_item kind, const void *items, size_t count)
{
    size_t bytes = table_item_bytes(t, kind);
    const unsigned char *item = items;
    for (size_t i = 0; i < count; i++, item += bytes) {
        if (kind < TABLE_ITEM_BLOCK && i + RESTORE_AHEAD < count)
            table_prefetch(t, table_hash(t, key_of(item + RESTORE_AHEAD * bytes)), t->options.is_inline,
                           t->slot_bytes);
        if (!restore_item(t, kind, item))
            return false;
    }
    return true;
}

/* Lines of a row up to the end of what predictions read. */
static void prefetch_row(const struct table *t, const struct table_row *row)
{
    const unsigned char *at = (const unsigned char *)row;
    size_t end = TABLE_ROW_HEADER + MAX(read_first(t), t->options.read_at + t->options.read_bytes);
    for (size_t line = 0; line < MIN(end, (size_t)LINES_MAX * 64); line += 64)
        prefetch_line(at + line);
}

static void prefetch_slot(const struct table *t, uint64_t key)
{
    table_prefetch(t, table_hash(t, key), t->options.is_inline, t->slot_bytes);
}

/* Where a follower's row is to be found soon: its slot is there already. */
static void prefetch_found(const struct table *t, uint64_t key)
{
    const uint64_t *slot = table_slot_of(t, key, table_hash(t, key));
    if (slot != NULL && !t->options.is_inline)
        prefetch_row(t, table_slot_row(t, slot));
}

/* Puts the rows of a cut into a follower's table. First slots are prefetched, then the rows that they name. */
static bool take_rows(struct table *t, const unsigned char *rows, size_t count)
{
    size_t bytes = row_bytes(t);
    for (size_t i = 0; i < MIN(count, (size_t)2 * AHEAD); i++)
        prefetch_slot(t, key_of(rows + i * bytes));
    for (size_t i = 0; i < MIN(count, (size_t)AHEAD); i++)
        prefetch_found(t, key_of(rows + i * bytes));
    for (size_t i = 0; i < count; i++) {
        const unsigned char *from = rows + i * bytes;
        uint64_t key = key_of(from), hash = table_hash(t, key);
        if (i + 2 * AHEAD < count)
            prefetch_slot(t, key_of(from + 2 * AHEAD * bytes));
        if (i + AHEAD < count)
            prefetch_found(t, key_of(from + AHEAD * bytes));
        if (key == 0)
            return false;
        const uint64_t *slot = table_slot_of(t, key, hash);
        if (slot == NULL && !make_room(t, key))
            return false;
        load_row(t, slot != NULL ? table_slot_row(t, slot) : table_add_row(t, key, hash), from);
    }
    return true;
}

/* --- Noting changes --- */

static void begin_epoch(struct table *t, uint32_t closing)
{
    leat_assert(closing >= t->epoch && closing < UINT32_MAX);
    t->epoch = t->sketch.epoch = closing + 1;
}

static void forget(struct table_cut *cut)
{
    cut->changed.count = cut->added.count = cut->removed.count = 0;
    buffer_clear(&cut->moved);
}

static void cut_free(struct table *t)
{
    sketch_note(&t->sketch, false);
    free(t->cut->changed.items);
    free(t->cut->added.items);
    free(t->cut->removed.items);
    buffer_free(&t->cut->moved);
    free(t->cut);
    t->cut = NULL;
}

void table_cut_note(struct table *t, bool is_on, uint32_t closing)
{
    if (t->cut != NULL)
        cut_free(t);
    if (!is_on)
        return;
    begin_epoch(t, closing);
    t->cut = mem_calloc(1, sizeof(*t->cut));
    t->cut->since = closing;
    sketch_note(&t->sketch, true);
}

void table_cut_keep(struct table *t, const struct table_row *row)
{
    struct byte_buffer *moved = &t->cut->moved;
    store_row(t, row, (unsigned char *)buffer_reserve(moved, row_bytes(t)));
    moved->length += row_bytes(t);
}

/* --- The cut --- */

/* Where a noted row is now: of an inline table its slot, NULL if the key has none. */
static struct table_row *noted_row(const struct table *t, uint64_t note)
{
    if (!t->options.is_inline)
        return table_row_at(t, (uint32_t)note);
    const uint64_t *slot = table_slot_of(t, note, table_hash(t, note));
    return slot != NULL ? table_slot_row(t, slot) : NULL;
}

static void prefetch_note(const struct table *t, uint64_t note)
{
    if (t->options.is_inline)
        prefetch_slot(t, note);
    else
        prefetch_row(t, table_row_at(t, (uint32_t)note));
}

/* Appends the noted rows that are there; returns how many. */
static uint64_t append_rows(const struct table *t, const struct table_keys *notes, struct byte_buffer *out)
{
    size_t bytes = row_bytes(t), n = notes->count;
    unsigned char *begin = (unsigned char *)buffer_reserve(out, n * bytes), *to = begin;
    for (size_t i = 0; i < MIN(n, (size_t)AHEAD); i++)
        prefetch_note(t, notes->items[i]);
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            prefetch_note(t, notes->items[i + AHEAD]);
        const struct table_row *row = noted_row(t, notes->items[i]);
        if (row == NULL || row->key == 0)
            continue;
        store_row(t, row, to);
        to += bytes;
    }
    out->length += (size_t)(to - begin);
    return (size_t)(to - begin) / bytes;
}

/* Whether rows have come and gone until there are more notes than rows. Then all rows are looked through instead of the
 * notes, and each that changed is appended once: the cut of a table of rows_max is never larger than the table. */
static bool has_more_notes_than_rows(const struct table *t)
{
    return t->cold == NULL && t->cut->added.count + t->cut->changed.count > t->stats.rows;
}

static uint64_t append_changed(const struct table *t, struct byte_buffer *out)
{
    size_t bytes = row_bytes(t);
    unsigned char *begin = (unsigned char *)buffer_reserve(out, t->stats.rows * bytes), *to = begin;
    for (uint32_t i = 0; i < t->rows_used; i++) {
        const struct table_row *row = table_row_at(t, i);
        if (row->key == 0 || row->epoch <= t->cut->since)
            continue;
        store_row(t, row, to);
        to += bytes;
    }
    out->length += (size_t)(to - begin);
    return (size_t)(to - begin) / bytes;
}

/* Appends the cells that changed, with their counts now, if all were noted. */
static uint64_t append_cells(const struct table *t, struct byte_buffer *out)
{
    const struct sketch *s = &t->sketch;
    size_t count = sketch_has_noted_all(s) ? s->cells_count : 0;
    char *to = buffer_reserve(out, count * sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) {
        uint64_t item = (uint64_t)s->cells[i] << 8 | s->counts[s->cells[i]];
        memcpy(to + i * sizeof(item), &item, sizeof(item));
    }
    out->length += count * sizeof(uint64_t);
    return count;
}

static uint64_t append_blocks(const struct table *t, struct byte_buffer *out)
{
    const struct sketch *s = &t->sketch;
    uint64_t count = 0;
    if (s->counts == NULL || sketch_has_noted_all(s))
        return 0;
    for (size_t i = 0; i < sketch_blocks(s); i++) {
        uint64_t number = i;
        if (s->block_epochs[i] <= t->cut->since)
            continue;
        buffer_append(out, &number, sizeof(number));
        buffer_append(out, s->counts + i * SKETCH_BLOCK, SKETCH_BLOCK);
        count++;
    }
    return count;
}

size_t table_cut_bytes(const struct table *t)
{
    const struct table_cut *cut = t->cut;
    const struct sketch *s = &t->sketch;
    leat_assert(cut != NULL);
    size_t notes = cut->added.count + cut->changed.count,
           rows = (has_more_notes_than_rows(t) ? (size_t)t->stats.rows : notes) * row_bytes(t);
    size_t counts = s->counts == NULL         ? 0
                    : sketch_has_noted_all(s) ? s->cells_count * sizeof(uint64_t)
                                              : sketch_blocks(s) * sizeof(struct sketch_block);
    return sizeof(struct cut_head) + cut->removed.count * sizeof(uint64_t) + cut->moved.length + rows +
           counts;
}

void table_cut(struct table *t, uint32_t closing, struct byte_buffer *out)
{
    struct table_cut *cut = t->cut;
    leat_assert(cut != NULL);
    struct cut_head head = {.magic = CUT_MAGIC, .row_bytes = row_bytes(t), .rows = table_rows(t)};
    size_t at = out->length;
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, cut->removed.items, cut->removed.count * sizeof(uint64_t));
    head.counts[SECTION_REMOVED] = cut->removed.count;
    buffer_append(out, cut->moved.data, cut->moved.length);
    head.counts[SECTION_ROWS] = cut->moved.length / head.row_bytes;
    head.counts[SECTION_ROWS] += has_more_notes_than_rows(t)
                                     ? append_changed(t, out)
                                     : append_rows(t, &cut->added, out) + append_rows(t, &cut->changed, out);
    head.counts[SECTION_BLOCKS] = append_blocks(t, out);
    head.counts[SECTION_CELLS] = append_cells(t, out);
    memcpy(out->data + at, &head, sizeof(head));
    begin_epoch(t, closing);
    cut->since = closing;
    forget(cut);
    sketch_note(&t->sketch, true);
}

void table_cut_put(const struct table *shape, const struct table_keys *removed,
                   const struct byte_buffer *rows, const struct byte_buffer *blocks, uint64_t rows_all,
                   struct byte_buffer *out)
{
    size_t stored = table_stored_bytes(shape), bytes = row_bytes(shape), count = rows->length / stored;
    struct cut_head head = {.magic = CUT_MAGIC,
                            .row_bytes = bytes,
                            .rows = rows_all,
                            .counts = {[SECTION_REMOVED] = removed->count,
                                       [SECTION_ROWS] = count,
                                       [SECTION_BLOCKS] = blocks->length / sizeof(struct sketch_block)}};
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, removed->items, removed->count * sizeof(uint64_t));
    unsigned char *to = (unsigned char *)buffer_reserve(out, count * bytes);
    const char *from = rows->data;
    for (size_t i = 0; i < count; i++, from += stored, to += bytes)
        store_parts(shape, from, from + STORED_HEAD, to);
    out->length += count * bytes;
    buffer_append(out, blocks->data, blocks->length);
}

/* A follower has rows that its trainer has moved to the cold store, where they expire without notice. Where no row
 * is removed by rows_max, whether an expired row is there changes no prediction. */
static void sweep(struct table *t, uint32_t step)
{
    if (t->bucket_counts == NULL && t->expired_before > 0)
        table_sweep(t, SWEEP_ROWS, step);
}

bool table_take_cut(struct table *t, const void *bytes, size_t length, uint32_t step)
{
    struct cut_head head;
    const unsigned char *sections[SECTIONS];
    leat_assert(t->snapshot == NULL && t->cut == NULL);
    if (length < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != CUT_MAGIC || head.row_bytes != row_bytes(t))
        return false;
    const unsigned char *at = (const unsigned char *)bytes + sizeof(head);
    length -= sizeof(head);
    for (enum section s = 0; s < SECTIONS; s++) {
        size_t each = s == SECTION_ROWS ? row_bytes(t) : table_item_bytes(t, kind_of[s]);
        if (head.counts[s] > length / each)
            return false;
        sections[s] = at;
        at += head.counts[s] * each;
        length -= head.counts[s] * each;
    }
    t->lists_removed = false; /* no snapshot will ask for them */
    t->removed.count = 0;
    sweep(t, step);
    bool is_good = length == 0;
    for (enum section s = 0; s < SECTIONS && is_good; s++) {
        table_begin(t); /* memory of rows that were removed may be used again */
        is_good = s == SECTION_ROWS ? take_rows(t, sections[s], head.counts[s])
                                    : table_restore_items(t, kind_of[s], sections[s], head.counts[s]);
    }
    if (t->cold != NULL)
        table_cold_restored(t, head.rows);
    return is_good;
}
