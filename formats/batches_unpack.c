/* Sections -> columns. Everything is checked against the section's bytes: a good digest says that nothing was
 * damaged, not that the writer can be trusted. */
#include "formats/batches.h"
#include "formats/rows.h"
#include "formats/text.h"

/* The bytes of a section's payload that have not been read. */
struct payload {
    const char *at, *end;
};

static bool take(struct payload *payload, void *into, size_t bytes)
{
    if ((size_t)(payload->end - payload->at) < bytes)
        return false;
    if (bytes > 0)
        memcpy(into, payload->at, bytes);
    payload->at += bytes;
    return true;
}

/* Returns a pointer to the payload's next `bytes` bytes, without copying; NULL if fewer are left. */
static const char *take_place(struct payload *payload, size_t bytes)
{
    if ((size_t)(payload->end - payload->at) < bytes)
        return NULL;
    payload->at += bytes;
    return payload->at - bytes;
}

/* Functions that widen unsigned numbers of 1, 2 or 4 bytes. Plain loops: the compiler vectorizes them. */
#define WIDEN(name, from, to, expression)                                                                    \
    static void name(to *restrict out, const char *restrict data, uint32_t rows, int64_t base, double scale) \
    {                                                                                                        \
        (void)base;                                                                                          \
        (void)scale;                                                                                         \
        for (uint32_t i = 0; i < rows; i++) {                                                                \
            from value;                                                                                      \
            memcpy(&value, data + i * sizeof(from), sizeof(from));                                           \
            out[i] = expression;                                                                             \
        }                                                                                                    \
    }
WIDEN(offsets_1, uint8_t, int64_t, (int64_t)((uint64_t)base + value))
WIDEN(offsets_2, uint16_t, int64_t, (int64_t)((uint64_t)base + value))
WIDEN(offsets_4, uint32_t, int64_t, (int64_t)((uint64_t)base + value))
WIDEN(decimal_1, uint8_t, double, (double)((int32_t)((uint32_t)base + value)) / scale)
WIDEN(decimal_2, uint16_t, double, (double)((int32_t)((uint32_t)base + value)) / scale)
WIDEN(decimal_4, uint32_t, double, (double)((int32_t)((uint32_t)base + value)) / scale)
WIDEN(lengths_1, uint8_t, uint32_t, value)
WIDEN(lengths_2, uint16_t, uint32_t, value)
WIDEN(lengths_4, uint32_t, uint32_t, value)

static bool unpack_ints(struct payload *payload, unsigned encoding, struct column *column, uint32_t rows)
{
    int64_t base;
    if (encoding == BATCHES_PLAIN)
        return take(payload, column->ints, rows * sizeof(int64_t));
    if (encoding < BATCHES_OFFSETS_0 || encoding > BATCHES_OFFSETS_4 || !take(payload, &base, sizeof(base)))
        return false;
    if (encoding == BATCHES_OFFSETS_0) {
        for (uint32_t i = 0; i < rows; i++)
            column->ints[i] = base;
        return true;
    }
    unsigned width = encoding == BATCHES_OFFSETS_1 ? 1 : encoding == BATCHES_OFFSETS_2 ? 2 : 4;
    const char *data = take_place(payload, (size_t)rows * width);
    if (data == NULL)
        return false;
    (width == 1 ? offsets_1 : width == 2 ? offsets_2 : offsets_4)(column->ints, data, rows, base, 0);
    return true;
}

static bool unpack_floats(struct payload *payload, unsigned encoding, struct column *column, uint32_t rows)
{
    uint32_t power;
    int32_t base;
    if (encoding == BATCHES_PLAIN)
        return take(payload, column->floats, rows * sizeof(double));
    if (encoding < BATCHES_DECIMAL_1 || encoding > BATCHES_DECIMAL_4 ||
        !take(payload, &power, sizeof(power)) || !take(payload, &base, sizeof(base)) ||
        power >= BATCHES_POWERS)
        return false;
    unsigned width = encoding == BATCHES_DECIMAL_1 ? 1 : encoding == BATCHES_DECIMAL_2 ? 2 : 4;
    const char *data = take_place(payload, (size_t)rows * width);
    if (data == NULL)
        return false;
    (width == 1   ? decimal_1
     : width == 2 ? decimal_2
                  : decimal_4)(column->floats, data, rows, base, batches_powers[power]);
    return true;
}

static bool unpack_bools(struct payload *payload, unsigned encoding, struct column *column, uint32_t rows)
{
    if (encoding != BATCHES_PLAIN || !take(payload, column->bools, rows))
        return false;
    uint8_t any = 0;
    for (uint32_t i = 0; i < rows; i++)
        any |= column->bools[i];
    return any <= 1;
}

/* Makes references to texts that lie one behind the other in `heap`. True if they fill it exactly and, where
 * is_text, each is UTF-8. */
static bool set_texts(struct text_ref *texts, const uint32_t *lengths, uint32_t count, const char *heap,
                      uint32_t total, bool is_text)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = (struct text_ref){(uint32_t)offset, lengths[i]};
        offset += lengths[i];
        if (offset > total)
            return false;
    }
    if (offset != total)
        return false;
    if (!is_text)
        return true;
    if (!text_is_utf8(heap, total))
        return false;
    /* The whole heap is well-formed; each text is, too, if none begins inside a sequence. */
    for (uint32_t i = 0; i < count; i++)
        if (texts[i].length > 0 && (heap[texts[i].offset] & 0xc0) == 0x80)
            return false;
    return true;
}

static bool unpack_dictionary(struct batch *batch, struct payload *payload, struct column *column,
                              uint32_t rows)
{
    uint32_t count, total, lengths[256];
    struct text_ref entries[256];
    if (!take(payload, &count, sizeof(count)) || !take(payload, &total, sizeof(total)) || count == 0 ||
        count > 256 || !take(payload, lengths, count * sizeof(uint32_t)))
        return false;
    const char *heap = take_place(payload, total);
    const char *codes = heap == NULL ? NULL : take_place(payload, rows);
    if (codes == NULL || !set_texts(entries, lengths, count, heap, total, column->tag == TYPE_TEXT))
        return false;
    /* A code beyond `count` must not read beyond the entries: it gives entry 0, and the block is bad. */
    for (uint32_t i = count; i < 256; i++)
        entries[i] = entries[0];
    unsigned highest = 0;
    for (uint32_t i = 0; i < rows; i++) {
        unsigned code = (unsigned char)codes[i];
        highest = code > highest ? code : highest;
        column->texts[i] = entries[code];
    }
    column->heap = arena_copy(&batch->arena, heap, total);
    return highest < count || rows == 0;
}

static bool unpack_texts(struct batch *batch, struct payload *payload, unsigned encoding,
                         struct column *column, uint32_t rows)
{
    uint32_t total;
    if (encoding == BATCHES_DICTIONARY)
        return unpack_dictionary(batch, payload, column, rows);
    if (encoding < BATCHES_TEXT_1 || encoding > BATCHES_TEXT_4 || !take(payload, &total, sizeof(total)))
        return false;
    unsigned width = encoding == BATCHES_TEXT_1 ? 1 : encoding == BATCHES_TEXT_2 ? 2 : 4;
    const char *data = take_place(payload, (size_t)rows * width);
    const char *heap = data == NULL ? NULL : take_place(payload, total);
    if (heap == NULL)
        return false;
    uint32_t small[BATCH_ROWS];
    uint32_t *lengths = rows <= BATCH_ROWS ? small : arena_alloc(&batch->arena, rows * sizeof(*lengths));
    (width == 1 ? lengths_1 : width == 2 ? lengths_2 : lengths_4)(lengths, data, rows, 0, 0);
    column->heap = arena_copy(&batch->arena, heap, total);
    return set_texts(column->texts, lengths, rows, heap, total, column->tag == TYPE_TEXT);
}

static bool unpack_lists(struct batch *batch, struct payload *payload, unsigned encoding,
                         struct column *column, const struct type *type, uint32_t rows)
{
    uint32_t elements;
    uint64_t offset = 0;
    /* Constant columns take no bytes, so the payload's length does not bound the elements: check it here. */
    if (encoding != BATCHES_LIST || !take(payload, &elements, sizeof(elements)) ||
        elements > ROWS_LIST_VALUES_MAX)
        return false;
    const char *lengths = take_place(payload, (size_t)rows * sizeof(uint32_t));
    if (lengths == NULL)
        return false;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t length;
        memcpy(&length, lengths + i * sizeof(length), sizeof(length));
        column->lists[i] = (struct list_ref){(uint32_t)offset, length};
        offset += length;
        if (offset > elements)
            return false;
    }
    column->child_rows = elements;
    for (uint32_t i = 0; i < column->children_count; i++) {
        bool is_record = type->element->tag == TYPE_RECORD;
        const struct type *child = is_record ? &type->element->fields->fields[i].type : type->element;
        batch_column_init(batch, &column->children[i], *child, elements);
        size_t used = batches_unpack_column(batch, &column->children[i], child, elements, payload->at,
                                            (size_t)(payload->end - payload->at));
        if (used == 0)
            return false;
        payload->at += used;
    }
    return offset == elements;
}

static void zero_nulls(struct column *column, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        if (!bit_get(column->valid, i)) {
            if (column->tag == TYPE_BOOL)
                column->bools[i] = 0;
            else
                column->ints[i] = 0;
        }
}

size_t batches_unpack_column(struct batch *batch, struct column *column, const struct type *type,
                             uint32_t rows, const char *data, size_t bytes)
{
    struct batches_section head;
    if (bytes < sizeof(head))
        return 0;
    memcpy(&head, data, sizeof(head));
    if (head.bytes < sizeof(head) || head.bytes > bytes)
        return 0;
    struct payload payload = {data + sizeof(head), data + head.bytes};
    column->valid = NULL;
    if (head.has_valid) {
        const char *valid = take_place(&payload, BIT_WORDS((size_t)rows) * sizeof(uint64_t));
        if (valid == NULL)
            return 0;
        column->valid = batch_valid_new(batch, rows);
        memcpy(column->valid, valid, BIT_WORDS((size_t)rows) * sizeof(uint64_t));
    }
    bool is_good;
    switch (type->tag) {
    case TYPE_INT:
    case TYPE_TIME: is_good = unpack_ints(&payload, head.encoding, column, rows); break;
    case TYPE_FLOAT: is_good = unpack_floats(&payload, head.encoding, column, rows); break;
    case TYPE_BOOL: is_good = unpack_bools(&payload, head.encoding, column, rows); break;
    case TYPE_TEXT:
    case TYPE_BYTES: is_good = unpack_texts(batch, &payload, head.encoding, column, rows); break;
    default: is_good = unpack_lists(batch, &payload, head.encoding, column, type, rows); break;
    }
    if (!is_good || payload.at != payload.end)
        return 0;
    if (column->valid != NULL)
        zero_nulls(column, rows);
    return head.bytes;
}
