/* One column -> one section, in the smallest encoding that keeps every bit; all are cheap to decode. */
#include "formats/batches.h"

#include "core/mem.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

enum { DICTIONARY_MAX = 256, TABLE_SLOTS = 1024, SAMPLE_ROWS = 16 };

const double batches_powers[BATCHES_POWERS] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};

struct batches_packer {
    int64_t *integers; /* one for each row */
    size_t capacity;
    uint16_t table[TABLE_SLOTS];        /* hash table: index in `entries` + 1, 0: free */
    struct str entries[DICTIONARY_MAX]; /* of the dictionary */
    uint64_t hashes[DICTIONARY_MAX];
    uint8_t codes[BATCH_ROWS];
};

struct batches_packer *batches_packer_new(void)
{
    struct batches_packer *packer = mem_calloc(1, sizeof(*packer));
    return packer;
}

void batches_packer_free(struct batches_packer *packer)
{
    if (packer == NULL)
        return;
    free(packer->integers);
    free(packer);
}

static void reserve(struct batches_packer *packer, uint32_t rows)
{
    if (packer->capacity >= rows)
        return;
    packer->capacity = rows;
    packer->integers = mem_realloc(packer->integers, rows * sizeof(int64_t));
}

/* Bytes that an offset of at most `range` takes: 0, 1, 2, 4 or 8. */
static unsigned width_of(uint64_t range)
{
    return range == 0 ? 0 : range <= UINT8_MAX ? 1 : range <= UINT16_MAX ? 2 : range <= UINT32_MAX ? 4 : 8;
}

/* Appends values[i] - base, in `width` bytes each. */
static void put_offsets(struct byte_buffer *out, const int64_t *values, uint32_t rows, int64_t base,
                        unsigned width)
{
    char *to = buffer_reserve(out, (size_t)rows * width);
    for (uint32_t i = 0; i < rows; i++) {
        uint64_t offset = (uint64_t)values[i] - (uint64_t)base;
        memcpy(to + (size_t)i * width, &offset, width);
    }
    out->length += (size_t)rows * width;
}

/* Finds the smallest and the largest value that is not null; nulls then get the smallest. */
static void fill_nulls(const struct column *column, int64_t *values, uint32_t rows, int64_t *low,
                       int64_t *high)
{
    *low = INT64_MAX;
    *high = INT64_MIN;
    for (uint32_t i = 0; i < rows; i++) {
        if (!column_is_valid(column, i))
            continue;
        *low = MIN(*low, values[i]);
        *high = MAX(*high, values[i]);
    }
    if (*low > *high)
        *low = *high = 0;
    if (column->valid == NULL)
        return;
    for (uint32_t i = 0; i < rows; i++)
        if (!column_is_valid(column, i))
            values[i] = *low;
}

static enum batches_encoding pack_ints(struct batches_packer *packer, const struct column *column,
                                       uint32_t rows, struct byte_buffer *out)
{
    int64_t *values = packer->integers, low, high;
    if (rows > 0)
        memcpy(values, column->ints, rows * sizeof(int64_t));
    fill_nulls(column, values, rows, &low, &high);
    unsigned width = width_of((uint64_t)high - (uint64_t)low);
    if (width == 8) {
        buffer_append(out, values, rows * sizeof(int64_t));
        return BATCHES_PLAIN;
    }
    buffer_append(out, &low, sizeof(low));
    put_offsets(out, values, rows, low, width);
    return width == 0   ? BATCHES_OFFSETS_0
           : width == 1 ? BATCHES_OFFSETS_1
           : width == 2 ? BATCHES_OFFSETS_2
                        : BATCHES_OFFSETS_4;
}

/* *integer: value * 10^power, rounded; false if *integer / 10^power does not have the bits of `value`. */
static bool to_decimal(double value, unsigned power, int64_t *integer)
{
    double scaled = nearbyint(value * batches_powers[power]);
    if (!(fabs(scaled) < 0x1p30) || scaled / batches_powers[power] != value || (value == 0 && signbit(value)))
        return false;
    *integer = (int64_t)scaled;
    return true;
}

static bool all_decimal(struct batches_packer *packer, const struct column *column, uint32_t rows,
                        unsigned power)
{
    for (uint32_t i = 0; i < rows; i++) {
        packer->integers[i] = 0;
        if (column_is_valid(column, i) && !to_decimal(column->floats[i], power, &packer->integers[i]))
            return false;
    }
    return true;
}

static enum batches_encoding pack_floats(struct batches_packer *packer, const struct column *column,
                                         uint32_t rows, struct byte_buffer *out)
{
    for (uint32_t power = 0; power < BATCHES_POWERS; power++) {
        if (!all_decimal(packer, column, MIN(rows, SAMPLE_ROWS), power) ||
            !all_decimal(packer, column, rows, power))
            continue;
        int64_t low, high;
        fill_nulls(column, packer->integers, rows, &low, &high);
        unsigned width = MAX(width_of((uint64_t)(high - low)), 1);
        int32_t base = (int32_t)low;
        buffer_append(out, &power, sizeof(power));
        buffer_append(out, &base, sizeof(base));
        put_offsets(out, packer->integers, rows, low, width);
        return width == 1 ? BATCHES_DECIMAL_1 : width == 2 ? BATCHES_DECIMAL_2 : BATCHES_DECIMAL_4;
    }
    char *to = buffer_reserve(out, rows * sizeof(double));
    for (uint32_t i = 0; i < rows; i++) {
        double value = column_is_valid(column, i) ? column->floats[i] : 0;
        memcpy(to + i * sizeof(value), &value, sizeof(value));
    }
    out->length += rows * sizeof(double);
    return BATCHES_PLAIN;
}

static struct str text_at(const struct column *column, uint32_t row)
{
    return column_is_valid(column, row) ? column_text(column, row) : (struct str){"", 0};
}

/* Sets packer->codes for all rows, and returns the number of entries; *bytes: of their texts. Returns 0 where
 * there are more than DICTIONARY_MAX different texts. */
static uint32_t make_dictionary(struct batches_packer *packer, const struct column *column, uint32_t rows,
                                size_t *bytes)
{
    uint32_t count = 0;
    if (rows > BATCH_ROWS)
        return 0;
    memset(packer->table, 0, sizeof(packer->table));
    *bytes = 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct str text = text_at(column, i);
        uint64_t hash = XXH3_64bits(text.data, text.length);
        uint32_t slot = (uint32_t)hash % TABLE_SLOTS;
        for (; packer->table[slot] != 0; slot = (slot + 1) % TABLE_SLOTS) {
            uint32_t entry = packer->table[slot] - 1u;
            if (packer->hashes[entry] == hash && str_equal(packer->entries[entry], text))
                break;
        }
        if (packer->table[slot] == 0) {
            if (count == DICTIONARY_MAX)
                return 0;
            packer->entries[count] = text;
            packer->hashes[count] = hash;
            packer->table[slot] = (uint16_t)++count;
            *bytes += text.length;
        }
        packer->codes[i] = (uint8_t)(packer->table[slot] - 1);
    }
    return count;
}

static void put_dictionary(const struct batches_packer *packer, uint32_t count, uint32_t total, uint32_t rows,
                           struct byte_buffer *out)
{
    buffer_append(out, &count, sizeof(count));
    buffer_append(out, &total, sizeof(total));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = (uint32_t)packer->entries[i].length;
        buffer_append(out, &length, sizeof(length));
    }
    for (uint32_t i = 0; i < count; i++)
        buffer_append(out, packer->entries[i].data, packer->entries[i].length);
    buffer_append(out, packer->codes, rows);
}

static enum batches_encoding pack_texts(struct batches_packer *packer, const struct column *column,
                                        uint32_t rows, struct byte_buffer *out)
{
    uint64_t longest = 0, total = 0;
    for (uint32_t i = 0; i < rows; i++) {
        packer->integers[i] = (int64_t)text_at(column, i).length;
        longest = MAX(longest, (uint64_t)packer->integers[i]);
        total += (uint64_t)packer->integers[i];
    }
    unsigned width = MAX(width_of(longest), 1);
    size_t entries_bytes = 0;
    uint32_t count = make_dictionary(packer, column, rows, &entries_bytes);
    if (count > 0 && count * 4 + entries_bytes + rows < total + (size_t)rows * width) {
        put_dictionary(packer, count, (uint32_t)entries_bytes, rows, out);
        return BATCHES_DICTIONARY;
    }
    uint32_t total32 = (uint32_t)total;
    buffer_append(out, &total32, sizeof(total32));
    put_offsets(out, packer->integers, rows, 0, width);
    for (uint32_t i = 0; i < rows; i++)
        buffer_append(out, text_at(column, i).data, (size_t)packer->integers[i]);
    return width == 1 ? BATCHES_TEXT_1 : width == 2 ? BATCHES_TEXT_2 : BATCHES_TEXT_4;
}

/* The elements must lie one behind the other without gaps, as the encoder collects them. */
static enum batches_encoding pack_lists(struct batches_packer *packer, const struct column *column,
                                        uint32_t rows, struct byte_buffer *out)
{
    buffer_append(out, &column->child_rows, sizeof(column->child_rows));
    for (uint32_t i = 0; i < rows; i++)
        packer->integers[i] = column_is_valid(column, i) ? column->lists[i].length : 0;
    put_offsets(out, packer->integers, rows, 0, 4);
    for (uint32_t i = 0; i < column->children_count; i++)
        batches_pack_column(packer, &column->children[i], column->child_rows, out);
    return BATCHES_LIST;
}

static enum batches_encoding pack_bools(const struct column *column, uint32_t rows, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < rows; i++) {
        char value = (char)(column_is_valid(column, i) ? column->bools[i] : 0);
        buffer_append(out, &value, 1);
    }
    return BATCHES_PLAIN;
}

void batches_pack_column(struct batches_packer *packer, const struct column *column, uint32_t rows,
                         struct byte_buffer *out)
{
    struct batches_section head = {.has_valid = column->valid != NULL};
    size_t begin = out->length;
    buffer_append(out, &head, sizeof(head));
    if (head.has_valid) {
        /* Clear the bits behind the last row: they are no part of the data. */
        size_t words = BIT_WORDS((size_t)rows), at = out->length;
        buffer_append(out, column->valid, words * sizeof(uint64_t));
        uint64_t last;
        if (rows % 64 != 0) {
            char *place = out->data + at + (words - 1) * sizeof(last);
            memcpy(&last, place, sizeof(last));
            last &= (UINT64_C(1) << rows % 64) - 1;
            memcpy(place, &last, sizeof(last));
        }
    }
    reserve(packer, rows);
    switch (column->tag) {
    case TYPE_INT:
    case TYPE_TIME: head.encoding = (uint8_t)pack_ints(packer, column, rows, out); break;
    case TYPE_FLOAT: head.encoding = (uint8_t)pack_floats(packer, column, rows, out); break;
    case TYPE_TEXT:
    case TYPE_BYTES: head.encoding = (uint8_t)pack_texts(packer, column, rows, out); break;
    case TYPE_BOOL: head.encoding = (uint8_t)pack_bools(column, rows, out); break;
    default: head.encoding = (uint8_t)pack_lists(packer, column, rows, out); break;
    }
    head.bytes = (uint32_t)(out->length - begin);
    memcpy(out->data + begin, &head, sizeof(head));
}
