#include "operators/join/joined.h"

#include "core/mem.h"

#include <stdlib.h>

enum { TAILS_FULL = 4 << 20 };

struct joined *joined_new(struct batch_pool *pool, const struct schema *output,
                          struct held_layouts *const layouts[2], int *const columns[2], int window_column)
{
    struct joined *joined = mem_calloc(1, sizeof(*joined));
    joined->pool = pool;
    joined->output = output;
    joined->window_column = window_column;
    joined->output_serial = 1;
    for (int side = 0; side < 2; side++) {
        joined->sides[side].layouts = layouts[side];
        joined->sides[side].columns = columns[side];
    }
    return joined;
}

void joined_free(struct joined *joined)
{
    if (joined == NULL)
        return;
    struct batch *batch;
    while ((batch = ready_take(&joined->ready)) != NULL)
        batch_release(batch);
    for (int side = 0; side < 2; side++) {
        buffer_free(&joined->sides[side].fixed);
        buffer_free(&joined->sides[side].tails);
    }
    arena_free(&joined->scratch);
    free(joined);
}

/* --- Noting rows --- */

static const char *fixed_of(const struct joined_side *side, int32_t kept)
{
    return side->fixed.data + (size_t)kept * side->layouts->now.fixed_bytes;
}

/* Copies a packed row; returns the index of the copy. Bytes too short for the layout become nulls. */
static int32_t copy_kept(struct joined_side *side, struct str packed)
{
    const struct held_layout *layout = &side->layouts->now;
    struct str data = held_layouts_convert(side->layouts, packed);
    char *fixed = buffer_reserve(&side->fixed, layout->fixed_bytes);
    if (side->kept_count == 0)
        side->tail_at[0] = 0;
    if (likely(data.length >= layout->fixed_bytes)) {
        memcpy(fixed, data.data, layout->fixed_bytes);
        if (data.length > layout->fixed_bytes)
            buffer_append(&side->tails, data.data + layout->fixed_bytes, data.length - layout->fixed_bytes);
    } else {
        memset(fixed, 0, sizeof(struct held_head));
        memset(fixed + sizeof(struct held_head), 0xff, layout->fixed_bytes - sizeof(struct held_head));
    }
    side->fixed.length += layout->fixed_bytes;
    side->tail_at[++side->kept_count] = (uint32_t)side->tails.length;
    return side->kept_count - 1;
}

static int32_t find_kept(struct joined *joined, struct joined_side *side, const struct joined_from *from)
{
    uint64_t id = from->kept->id;
    struct joined_cached *cached =
        &side->cache[(key_hash(from->key) ^ id * UINT64_C(0x9e3779b97f4a7c15)) % JOINED_CACHE];
    if (cached->output_serial != joined->output_serial || cached->id != id ||
        !key_equal(cached->key, from->key))
        *cached = (struct joined_cached){from->key, id, joined->output_serial,
                                         copy_kept(side, key_row_packed(from->kept))};
    return cached->at;
}

static void note_side(struct joined *joined, struct joined_side *side, const struct joined_from *from)
{
    uint32_t at = joined->count;
    if (from->batch != NULL) {
        side->kept_at[at] = JOINED_GIVEN;
        side->batches[at] = from->batch;
        side->rows[at] = (uint16_t)from->row;
        side->has_several |= side->given > 0 && side->only != from->batch;
        side->only = from->batch;
        side->given++;
    } else if (from->kept != NULL) {
        side->kept_at[at] = find_kept(joined, side, from);
    } else {
        side->kept_at[at] = JOINED_NONE;
        side->has_none = true;
    }
}

/* Notes the arrival time (of both sides' the later one) and the origin (the left row's). */
static void note_place(struct joined *joined, const struct joined_row *row)
{
    uint32_t at = joined->count;
    joined->arrivals[at] = 0;
    for (int k = 0; k < 2; k++) {
        const struct joined_side *side = &joined->sides[k];
        const struct joined_from *from = &row->sides[k];
        struct held_head head = {.partition = PARTITION_NONE};
        if (from->batch != NULL) {
            struct row_origin origin = batch_origin(from->batch, from->row);
            head.partition = origin.partition;
            head.record = origin.record;
            head.has_arrival = from->batch->arrival_time != NULL;
            head.arrival_time = head.has_arrival ? from->batch->arrival_time[from->row] : 0;
        } else if (from->kept != NULL) {
            memcpy(&head, fixed_of(side, side->kept_at[at]), sizeof(head));
        }
        if (k == 0)
            joined->origins[at] = (struct row_origin){head.partition, head.record};
        if (head.has_arrival) {
            joined->arrivals[at] =
                joined->arrivals[at] == 0 ? head.arrival_time : MAX(joined->arrivals[at], head.arrival_time);
            joined->has_arrivals = true;
        }
    }
}

static void finish(struct joined *joined);

void joined_add(struct joined *joined, const struct joined_row *row)
{
    uint32_t at = joined->count;
    note_side(joined, &joined->sides[0], &row->sides[0]);
    note_side(joined, &joined->sides[1], &row->sides[1]);
    note_place(joined, row);
    joined->orders[at] = row->order;
    joined->times[at] = row->time;
    joined->window_starts[at] = row->window_start;
    joined->window_ends[at] = row->window_end;
    joined->count++;
    if (joined->count == BATCH_ROWS || joined->sides[0].tails.length >= TAILS_FULL ||
        joined->sides[1].tails.length >= TAILS_FULL)
        finish(joined);
}

/* --- Columns --- */

static void set_null(struct batch *out, struct column *to, uint32_t row)
{
    batch_set_null(out, to, row);
    if (to->tag == TYPE_BOOL)
        to->bools[row] = 0;
    else
        to->ints[row] = 0; /* all other types have 8 bytes */
}

/* Where all rows of the side come from one batch: copies the values; texts and lists stay in that batch. */
static void gather_given(const struct joined *joined, const struct joined_side *side, uint32_t c,
                         struct batch *out, struct column *to)
{
    const struct column *from = &side->only->columns[c];
    void *data = to->data;
    *to = *from;
    to->data = data;
    to->valid = NULL;
    if (from->tag == TYPE_BOOL)
        for (uint32_t i = 0; i < joined->count; i++)
            to->bools[i] = from->bools[side->rows[i]];
    else
        for (uint32_t i = 0; i < joined->count; i++)
            to->ints[i] = from->ints[side->rows[i]];
    for (uint32_t i = 0; i < joined->count && from->valid != NULL; i++)
        if (!bit_get(from->valid, side->rows[i]))
            batch_set_null(out, to, i);
}

/* One column of the kept rows' copies. bits: 8 bytes each; of a text or list its place in `tails`. */
struct kept_column {
    uint64_t *bits;
    uint64_t *nulls; /* a bit for each copy; NULL: no nulls */
};

/* Reads the place of a text or list of copy `kept` from *bits, and writes it back with an offset that counts
 * from the first byte of side->tails. Returns false if the place is outside the row's tail. */
static bool kept_tail(const struct joined_side *side, uint32_t kept, uint64_t *bits)
{
    struct text_ref ref;
    memcpy(&ref, bits, sizeof(ref));
    uint32_t bytes = side->tail_at[kept + 1] - side->tail_at[kept];
    if (ref.offset > bytes || ref.length > bytes - ref.offset)
        return false;
    ref.offset += side->tail_at[kept];
    memcpy(bits, &ref, sizeof(ref));
    return true;
}

static struct kept_column read_kept(const struct joined_side *side, uint32_t c, bool has_tails,
                                    struct arena *scratch)
{
    uint32_t count = (uint32_t)side->kept_count, stride = side->layouts->now.fixed_bytes;
    const char *values = side->fixed.data + held_column_at(&side->layouts->now, c);
    const char *nulls = side->fixed.data + sizeof(struct held_head) + c / 64 * sizeof(uint64_t);
    struct kept_column column = {.bits = arena_alloc(scratch, MAX(count, 1) * sizeof(*column.bits))};
    for (uint32_t k = 0; k < count; k++) {
        uint64_t word;
        memcpy(&word, nulls + (size_t)k * stride, sizeof(word));
        memcpy(&column.bits[k], values + (size_t)k * stride, sizeof(column.bits[k]));
        bool is_null = (word >> c % 64 & 1) != 0;
        if (likely(!is_null && (!has_tails || kept_tail(side, k, &column.bits[k]))))
            continue;
        if (column.nulls == NULL)
            column.nulls = arena_calloc(scratch, BIT_WORDS((size_t)count), sizeof(*column.nulls));
        bit_set(column.nulls, k);
        column.bits[k] = 0;
    }
    return column;
}

/* Column c of the batch that the side of output row i comes from. */
static inline const struct column *given_column(const struct joined_side *side, uint32_t i, uint32_t c)
{
    return &side->batches[i]->columns[c];
}

/* Sets the nulls of a column whose rows may be given, kept or missing; values are set already. */
static void gather_nulls(const struct joined *joined, const struct joined_side *side, uint32_t c,
                         const struct kept_column *kept, struct batch *out, struct column *to)
{
    for (uint32_t i = 0; i < joined->count; i++) {
        int32_t at = side->kept_at[i];
        bool is_null = at == JOINED_NONE;
        if (at >= 0)
            is_null = kept->nulls != NULL && bit_get(kept->nulls, (size_t)at);
        else if (at == JOINED_GIVEN)
            is_null = !column_is_valid(given_column(side, i, c), side->rows[i]);
        if (is_null)
            set_null(out, to, i);
    }
}

/* Sets numbers, bools and times of a column whose rows may be given, kept or missing. */
static void gather_numbers(const struct joined *joined, const struct joined_side *side, uint32_t c,
                           const struct kept_column *kept, struct column *to)
{
    for (uint32_t i = 0; i < joined->count && to->tag == TYPE_BOOL; i++) {
        int32_t at = side->kept_at[i];
        to->bools[i] = at >= 0              ? kept->bits[at] != 0
                       : at == JOINED_GIVEN ? given_column(side, i, c)->bools[side->rows[i]]
                                            : 0;
    }
    for (uint32_t i = 0; i < joined->count && to->tag != TYPE_BOOL; i++) {
        int32_t at = side->kept_at[i];
        if (at >= 0)
            to->ints[i] = (int64_t)kept->bits[at];
        else
            to->ints[i] = at == JOINED_GIVEN ? given_column(side, i, c)->ints[side->rows[i]] : 0;
    }
}

/* Whether the given row is the same as in the output row before: then its texts are copied already. */
static bool is_repeated(const struct joined_side *side, uint32_t i)
{
    return i > 0 && side->kept_at[i - 1] == JOINED_GIVEN && side->batches[i - 1] == side->batches[i] &&
           side->rows[i - 1] == side->rows[i];
}

static bool is_text(const struct type *type)
{
    return type->tag == TYPE_TEXT || type->tag == TYPE_BYTES;
}

/* Makes the heap for the side's texts: the tails of the kept rows, then room for texts of given rows. */
static char *new_heap(const struct joined *joined, const struct joined_side *side, struct batch *out)
{
    const struct schema *schema = side->layouts->now.schema;
    size_t bytes = side->tails.length;
    for (uint32_t c = 0; c < schema->count && side->given > 0; c++) {
        if (side->columns[c] < 0 || !is_text(&schema->fields[c].type))
            continue;
        for (uint32_t i = 0; i < joined->count; i++)
            if (side->kept_at[i] == JOINED_GIVEN && !is_repeated(side, i))
                bytes += side->batches[i]->columns[c].texts[side->rows[i]].length;
    }
    leat_assert(bytes <= UINT32_MAX);
    char *heap = arena_alloc(&out->arena, bytes);
    if (side->tails.length > 0)
        memcpy(heap, side->tails.data, side->tails.length);
    return heap;
}

/* Sets the texts of a column whose rows may be given, kept or missing. *used: bytes used of the heap. */
static void gather_texts(const struct joined *joined, const struct joined_side *side, uint32_t c,
                         const struct kept_column *kept, struct column *to, char *heap, size_t *used)
{
    to->heap = heap;
    for (uint32_t i = 0; i < joined->count; i++) {
        int32_t at = side->kept_at[i];
        if (at >= 0) {
            memcpy(&to->texts[i], &kept->bits[at], sizeof(to->texts[i]));
        } else if (at == JOINED_NONE || !column_is_valid(given_column(side, i, c), side->rows[i])) {
            to->texts[i] = (struct text_ref){0, 0};
        } else if (is_repeated(side, i)) {
            to->texts[i] = to->texts[i - 1];
        } else {
            const struct column *from = given_column(side, i, c);
            struct text_ref ref = from->texts[side->rows[i]];
            if (ref.length > 0)
                memcpy(heap + *used, from->heap + ref.offset, ref.length);
            to->texts[i] = (struct text_ref){(uint32_t)*used, ref.length};
            *used += ref.length;
        }
    }
}

/* Sets the lists of a column whose rows may be given, kept or missing: encodes and decodes them. */
static void gather_lists(const struct joined *joined, const struct joined_side *side, uint32_t c,
                         const struct kept_column *kept, struct batch *out, struct column *to)
{
    const struct type *type = &side->layouts->now.schema->fields[c].type;
    struct byte_buffer encoded = {0};
    struct column_builder builder;
    builder_init(&builder, out, to, *type);
    for (uint32_t i = 0; i < joined->count; i++) {
        int32_t k = side->kept_at[i];
        struct text_ref ref = {0, 0};
        const char *at = NULL;
        if (k >= 0) {
            memcpy(&ref, &kept->bits[k], sizeof(ref));
            at = side->tails.data + ref.offset;
        } else if (k == JOINED_GIVEN) {
            buffer_clear(&encoded);
            row_encode_value(&encoded, given_column(side, i, c), type, side->rows[i]);
            at = encoded.data;
            ref.length = (uint32_t)encoded.length;
        }
        if (ref.length == 0 || !builder_decode(&builder, i, &at, at + ref.length))
            builder_null(&builder, i);
    }
    builder_finish(&builder);
    buffer_free(&encoded);
}

/* Whether a row may be null in column c. */
static bool may_be_null(const struct joined_side *side, uint32_t c, const struct kept_column *kept)
{
    if (kept->nulls != NULL || side->has_several || side->has_none)
        return true;
    return side->given > 0 && side->only->columns[c].valid != NULL;
}

/* Sets one column of a side whose rows do not all come from one given batch. */
static void gather_column(struct joined *joined, const struct joined_side *side, uint32_t c,
                          struct batch *out, char *heap, size_t *used)
{
    const struct type *type = &side->layouts->now.schema->fields[c].type;
    struct column *to = &out->columns[side->columns[c]];
    bool has_tails = is_text(type) || type->tag == TYPE_LIST;
    struct kept_column kept = read_kept(side, c, has_tails, &joined->scratch);
    if (type->tag == TYPE_LIST) {
        gather_lists(joined, side, c, &kept, out, to);
        return;
    }
    if (is_text(type))
        gather_texts(joined, side, c, &kept, to, heap, used);
    else
        gather_numbers(joined, side, c, &kept, to);
    if (may_be_null(side, c, &kept))
        gather_nulls(joined, side, c, &kept, out, to);
}

static void build_side(struct joined *joined, int k, struct batch *out)
{
    const struct joined_side *side = &joined->sides[k];
    bool is_one_batch = side->given == joined->count && !side->has_several;
    char *heap = is_one_batch ? NULL : new_heap(joined, side, out);
    size_t used = side->tails.length;
    for (uint32_t c = 0; c < side->layouts->now.schema->count; c++) {
        if (side->columns[c] < 0)
            continue;
        if (is_one_batch)
            gather_given(joined, side, c, out, &out->columns[side->columns[c]]);
        else
            gather_column(joined, side, c, out, heap, &used);
    }
    if (is_one_batch) {
        out->parents[k] = side->only;
        batch_hold(side->only);
    }
    arena_reset(&joined->scratch);
}

static void clear_side(struct joined_side *side)
{
    buffer_clear(&side->fixed);
    buffer_clear(&side->tails);
    side->kept_count = 0;
    side->given = 0;
    side->only = NULL;
    side->has_several = side->has_none = false;
}

/* Makes a batch of the noted rows and appends it to `ready`. */
static void finish(struct joined *joined)
{
    uint32_t count = joined->count;
    struct batch *out = batch_new(joined->pool, joined->output, count);
    build_side(joined, 0, out);
    build_side(joined, 1, out);
    memcpy(out->event_time, joined->times, count * sizeof(joined->times[0]));
    if (joined->window_column >= 0) {
        struct column *starts = &out->columns[joined->window_column], *ends = starts + 1;
        memcpy(starts->ints, joined->window_starts, count * sizeof(joined->window_starts[0]));
        memcpy(ends->ints, joined->window_ends, count * sizeof(joined->window_ends[0]));
    }
    if (joined->has_arrivals)
        out->arrival_time = arena_copy(&out->arena, joined->arrivals, count * sizeof(joined->arrivals[0]));
    out->orders = arena_copy(&out->arena, joined->orders, count * sizeof(joined->orders[0]));
    out->origins = arena_copy(&out->arena, joined->origins, count * sizeof(joined->origins[0]));
    clear_side(&joined->sides[0]);
    clear_side(&joined->sides[1]);
    joined->count = 0;
    joined->output_serial++;
    joined->has_arrivals = false;
    ready_add(&joined->ready, out);
}

struct batch *joined_take(struct joined *joined, bool is_last)
{
    if (joined->ready.first == NULL && is_last && joined->count > 0)
        finish(joined);
    return ready_take(&joined->ready);
}
