#include "operators/rows/held.h"

#include "core/describe.h"

/* BLOCK_ROWS: rows packed together, so that their bytes stay in the L1 cache. TAILS_FULL: bytes of texts and
 * lists at which a batch of held rows counts as full. */
enum { BLOCK_ROWS = 32, TAILS_FULL = 4 << 20 };

static bool is_text(const struct type *type)
{
    return type->tag == TYPE_TEXT || type->tag == TYPE_BYTES;
}

static size_t nulls_bytes(const struct held_layout *layout)
{
    return BIT_WORDS((size_t)layout->schema->count) * sizeof(uint64_t);
}

size_t held_column_at(const struct held_layout *layout, uint32_t column)
{
    return sizeof(struct held_head) + nulls_bytes(layout) + column * sizeof(uint64_t);
}

/* --- Packing --- */

/* Rows being packed. tail_at[i]: offset, within the tail of row i, of that row's next text or list. */
struct packing {
    const struct held_layout *layout;
    uint16_t number; /* of the layout */
    const struct batch *batch;
    const uint16_t *rows;
    const size_t *offsets;
    char *out;
    uint32_t *tail_at;
    struct byte_buffer lists;  /* encoded lists, column by column */
    struct text_ref *list_ref; /* each row's place in `lists`, list column by list column */
};

/* Sets tails[i] to the bytes of row i's texts and lists, and encodes the lists into p->lists. */
static void measure_tails(struct packing *p, uint32_t count, size_t *tails, struct arena *scratch)
{
    const struct schema *schema = p->layout->schema;
    uint32_t lists = 0;
    for (uint32_t c = 0; c < schema->count; c++)
        lists += schema->fields[c].type.tag == TYPE_LIST;
    p->list_ref = lists == 0 ? NULL : arena_alloc(scratch, (size_t)lists * count * sizeof(*p->list_ref));
    memset(tails, 0, count * sizeof(*tails));
    struct text_ref *list = p->list_ref;
    for (uint32_t c = 0; c < schema->count; c++) {
        const struct type *type = &schema->fields[c].type;
        const struct column *column = &p->batch->columns[c];
        for (uint32_t i = 0; i < count && is_text(type); i++)
            if (column_is_valid(column, p->rows[i]))
                tails[i] += column->texts[p->rows[i]].length;
        for (uint32_t i = 0; i < count && type->tag == TYPE_LIST; i++, list++) {
            size_t from = p->lists.length;
            if (column_is_valid(column, p->rows[i]))
                row_encode_value(&p->lists, column, type, p->rows[i]);
            leat_assert(p->lists.length <= UINT32_MAX);
            *list = (struct text_ref){(uint32_t)from, (uint32_t)(p->lists.length - from)};
            tails[i] += list->length;
        }
    }
}

static void pack_heads(const struct packing *p, uint32_t first, uint32_t limit)
{
    for (uint32_t i = first; i < limit; i++) {
        uint32_t row = p->rows[i];
        struct row_origin origin = batch_origin(p->batch, row);
        const int64_t *arrival = p->batch->arrival_time;
        struct held_head head = {.event_time = p->batch->event_time[row],
                                 .arrival_time = arrival == NULL ? 0 : arrival[row],
                                 .record = origin.record,
                                 .partition = origin.partition,
                                 .has_arrival = arrival != NULL,
                                 .layout = p->number};
        char *out = p->out + p->offsets[i];
        memcpy(out, &head, sizeof(head));
        memset(out + sizeof(head), 0, nulls_bytes(p->layout));
        p->tail_at[i] = 0;
    }
}

/* Appends bytes to the tail of row i; returns their offset and length within the tail. */
static struct text_ref put_tail(const struct packing *p, uint32_t i, const char *data, uint32_t length)
{
    struct text_ref ref = {p->tail_at[i], length};
    if (length > 0)
        memcpy(p->out + p->offsets[i] + p->layout->fixed_bytes + ref.offset, data, length);
    p->tail_at[i] += length;
    return ref;
}

static uint64_t ref_bits(struct text_ref ref)
{
    uint64_t bits;
    memcpy(&bits, &ref, sizeof(bits));
    return bits;
}

/* Packs column c of rows first .. limit - 1. list: of a list column, each row's place in p->lists. */
static void pack_column(const struct packing *p, uint32_t c, const struct text_ref *list, uint32_t first,
                        uint32_t limit)
{
    const struct column *column = &p->batch->columns[c];
    size_t at = held_column_at(p->layout, c);
    for (uint32_t i = first; i < limit; i++) {
        uint32_t row = p->rows[i];
        char *out = p->out + p->offsets[i];
        uint64_t bits = 0;
        if (unlikely(!column_is_valid(column, row)))
            bit_set((uint64_t *)(void *)(out + sizeof(struct held_head)), c);
        else if (column->tag == TYPE_BOOL)
            bits = column->bools[row];
        else if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES)
            bits =
                ref_bits(put_tail(p, i, column->heap + column->texts[row].offset, column->texts[row].length));
        else if (column->tag == TYPE_LIST)
            bits = ref_bits(put_tail(p, i, p->lists.data + list[i].offset, list[i].length));
        else
            bits = (uint64_t)column->ints[row];
        memcpy(out + at, &bits, sizeof(bits));
    }
}

void held_pack(const struct held_layouts *layouts, const struct batch *batch, const uint16_t *rows,
               uint32_t count, struct arena *scratch, struct byte_buffer *out, size_t *offsets)
{
    leat_assert(count <= BATCH_ROWS);
    const struct held_layout *layout = &layouts->now;
    size_t tails[BATCH_ROWS];
    uint32_t tail_at[BATCH_ROWS];
    struct packing p = {.layout = layout,
                        .number = layouts->current,
                        .batch = batch,
                        .rows = rows,
                        .offsets = offsets,
                        .tail_at = tail_at};
    measure_tails(&p, count, tails, scratch);
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        offsets[i] = bytes;
        bytes += layout->fixed_bytes + ((tails[i] + 7) & ~(size_t)7);
    }
    offsets[count] = bytes;
    buffer_clear(out);
    p.out = buffer_reserve(out, bytes);
    for (uint32_t first = 0; first < count; first += BLOCK_ROWS) {
        uint32_t limit = MIN(first + BLOCK_ROWS, count);
        const struct text_ref *list = p.list_ref;
        pack_heads(&p, first, limit);
        for (uint32_t c = 0; c < layout->schema->count; c++) {
            pack_column(&p, c, list, first, limit);
            list += layout->schema->fields[c].type.tag == TYPE_LIST ? count : 0;
        }
        for (uint32_t i = first; i < limit; i++)
            memset(p.out + offsets[i] + layout->fixed_bytes + tail_at[i], 0,
                   offsets[i + 1] - offsets[i] - layout->fixed_bytes - tail_at[i]);
    }
    out->length += bytes;
    buffer_free(&p.lists);
}

/* --- Unpacking --- */

const struct held_head *held_add(struct held_layouts *layouts, struct held_rows *rows, struct str data)
{
    leat_assert(rows->count < BATCH_ROWS);
    const struct held_layout *layout = &layouts->now;
    data = held_layouts_convert(layouts, data);
    char *fixed = buffer_reserve(&rows->fixed, layout->fixed_bytes);
    if (rows->count == 0)
        rows->tail_at[0] = 0;
    size_t tail = 0;
    if (likely(data.length >= layout->fixed_bytes)) {
        tail = data.length - layout->fixed_bytes;
        memcpy(fixed, data.data, layout->fixed_bytes);
        if (tail > 0)
            memcpy(buffer_reserve(&rows->tails, tail), data.data + layout->fixed_bytes, tail);
    } else {
        memset(fixed, 0, layout->fixed_bytes);
        memset(fixed + sizeof(struct held_head), 0xff, nulls_bytes(layout));
    }
    rows->fixed.length += layout->fixed_bytes;
    rows->tails.length += tail;
    rows->tail_at[++rows->count] = (uint32_t)rows->tails.length;
    return (const struct held_head *)(const void *)fixed;
}

bool held_is_full(const struct held_rows *rows)
{
    return rows->count == BATCH_ROWS || rows->tails.length >= TAILS_FULL;
}

/* One column of the rows being unpacked. */
struct unpacking {
    const struct held_rows *rows;
    const char *fixed; /* the column's 8 bytes of the first row */
    size_t stride;
};

static uint64_t bits_of(const struct unpacking *u, uint32_t row)
{
    uint64_t bits;
    memcpy(&bits, u->fixed + row * u->stride, sizeof(bits));
    return bits;
}

/* Reads the place of a text or list. ref->offset counts from the first byte of rows->tails, not of the row's
 * tail. Returns false, with *ref empty, if the place is outside the row's tail. */
static bool tail_ref(const struct unpacking *u, uint32_t row, struct text_ref *ref)
{
    uint64_t bits = bits_of(u, row);
    memcpy(ref, &bits, sizeof(*ref));
    uint32_t bytes = u->rows->tail_at[row + 1] - u->rows->tail_at[row];
    if (ref->offset > bytes || ref->length > bytes - ref->offset) {
        *ref = (struct text_ref){0, 0};
        return false;
    }
    ref->offset += u->rows->tail_at[row];
    return true;
}

static void unpack_lists(const struct unpacking *u, struct batch *batch, struct column *column,
                         struct type type, const uint64_t *is_null)
{
    struct column_builder builder;
    builder_init(&builder, batch, column, type);
    for (uint32_t row = 0; row < u->rows->count; row++) {
        struct text_ref ref;
        bool is_good = tail_ref(u, row, &ref) && ref.length > 0 && !bit_get(is_null, row);
        const char *at = u->rows->tails.data + ref.offset;
        if (!is_good || !builder_decode(&builder, row, &at, at + ref.length))
            builder_null(&builder, row);
    }
    builder_finish(&builder);
}

static void unpack_column(const struct unpacking *u, struct batch *batch, uint32_t c, const char *heap,
                          const uint64_t *is_null, bool has_nulls)
{
    struct column *column = &batch->columns[c];
    const struct type *type = &batch->schema->fields[c].type;
    uint32_t count = u->rows->count;
    if (type->tag == TYPE_LIST) {
        unpack_lists(u, batch, column, *type, is_null);
        return;
    }
    for (uint32_t row = 0; row < count && has_nulls; row++)
        if (bit_get(is_null, row))
            batch_set_null(batch, column, row);
    if (is_text(type)) {
        column->heap = heap;
        for (uint32_t row = 0; row < count; row++)
            if (!tail_ref(u, row, &column->texts[row]))
                batch_set_null(batch, column, row);
    } else if (type->tag == TYPE_BOOL) {
        for (uint32_t row = 0; row < count; row++)
            column->bools[row] = bits_of(u, row) != 0;
    } else {
        for (uint32_t row = 0; row < count; row++)
            column->ints[row] = (int64_t)bits_of(u, row);
    }
}

static void unpack_heads(const struct held_layout *layout, const struct held_rows *rows, struct batch *batch)
{
    struct row_origin *origins = arena_alloc(&batch->arena, batch->rows * sizeof(*origins));
    int64_t *arrivals = arena_alloc(&batch->arena, batch->rows * sizeof(*arrivals));
    bool has_arrivals = false;
    for (uint32_t row = 0; row < rows->count; row++) {
        struct held_head head;
        memcpy(&head, rows->fixed.data + (size_t)row * layout->fixed_bytes, sizeof(head));
        batch->event_time[row] = head.event_time;
        arrivals[row] = head.arrival_time;
        has_arrivals |= head.has_arrival != 0;
        origins[row] = (struct row_origin){head.partition, head.record};
    }
    batch->origins = origins;
    batch->arrival_time = has_arrivals ? arrivals : NULL;
}

/* The row's null bits of the columns word * 64 to word * 64 + 63. */
static uint64_t nulls_of(const struct held_layout *layout, const struct held_rows *rows, uint32_t row,
                         uint32_t word)
{
    uint64_t bits;
    memcpy(&bits,
           rows->fixed.data + (size_t)row * layout->fixed_bytes + sizeof(struct held_head) +
               word * sizeof(bits),
           sizeof(bits));
    return bits;
}

void held_unpack(const struct held_layouts *layouts, struct held_rows *rows, struct batch *batch)
{
    leat_assert(batch->rows == BATCH_ROWS && rows->count > 0);
    const struct held_layout *layout = &layouts->now;
    unpack_heads(layout, rows, batch);
    const char *heap =
        rows->tails.length == 0 ? "" : arena_copy(&batch->arena, rows->tails.data, rows->tails.length);
    uint64_t somewhere[BIT_WORDS(SCHEMA_FIELDS_MAX)] = {0};
    for (uint32_t row = 0; row < rows->count; row++)
        for (uint32_t word = 0; word < BIT_WORDS(layout->schema->count); word++)
            somewhere[word] |= nulls_of(layout, rows, row, word);
    for (uint32_t c = 0; c < layout->schema->count; c++) {
        uint64_t is_null[BATCH_VALID_WORDS] = {0};
        bool has_nulls = bit_get(somewhere, c);
        for (uint32_t row = 0; row < rows->count && has_nulls; row++)
            if ((nulls_of(layout, rows, row, c / 64) >> c % 64 & 1) != 0)
                bit_set(is_null, row);
        struct unpacking u = {rows, rows->fixed.data + held_column_at(layout, c), layout->fixed_bytes};
        unpack_column(&u, batch, c, heap, is_null, has_nulls);
    }
    rows->count = 0;
    buffer_clear(&rows->fixed);
    buffer_clear(&rows->tails);
}

void held_rows_free(struct held_rows *rows)
{
    buffer_free(&rows->fixed);
    buffer_free(&rows->tails);
}

/* --- Description --- */

void held_describe_columns(const struct schema *schema, const struct batch *batch,
                           struct operator_context *context, struct describe *out)
{
    for (uint32_t k = 0; k < schema->count; k++) {
        const struct field *field = &schema->fields[k];
        describe_value(out, arena_strndup(context->scratch, field->name.data, field->name.length),
                       &batch->columns[k], &field->type, 0);
    }
}

void held_describe(struct held_layouts *layouts, struct str row, struct operator_context *context,
                   struct describe *out)
{
    struct batch *batch = batch_new(context->pool, layouts->now.schema, BATCH_ROWS);
    struct held_rows *rows = arena_new(context->scratch, struct held_rows);
    (void)held_add(layouts, rows, row);
    held_unpack(layouts, rows, batch);
    held_describe_columns(layouts->now.schema, batch, context, out);
    held_rows_free(rows);
    batch_release(batch);
}
