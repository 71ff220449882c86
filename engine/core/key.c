#include "core/key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The top byte of `high` says which kind of key it is; KEY_INLINE has the length in its low bits. */
enum { KEY_SCALAR = 0x01, KEY_INLINE = 0x40, KEY_HASHED = 0x80, KEY_NULL = 0x20 };

enum { KEY_INLINE_BYTES = 15, KEY_SCRATCH_BYTES = 4096 };

static struct key null_key(void)
{
    return (struct key){0, (uint64_t)KEY_NULL << 56};
}

static struct key scalar_key(uint64_t bits, enum type_tag tag)
{
    return (struct key){bits, (uint64_t)KEY_SCALAR << 56 | (uint64_t)tag << 48};
}

static struct key bytes_key(const char *data, size_t length)
{
    if (length <= KEY_INLINE_BYTES) {
        unsigned char bytes[16] = {0};
        if (length > 0)
            memcpy(bytes, data, length);
        struct key key;
        memcpy(&key, bytes, sizeof(key));
        /* The last byte, behind KEY_INLINE_BYTES, is free for the mark and the length. */
        key.high |= (uint64_t)(KEY_INLINE | length) << 56;
        return key;
    }
    XXH128_hash_t hash = XXH3_128bits(data, length);
    return (struct key){hash.low64, (hash.high64 >> 8) | (uint64_t)KEY_HASHED << 56};
}

/* The bits of the value; -0.0 gives those of 0.0. The caller treats NaN as null. */
static uint64_t float_bits(double value)
{
    uint64_t bits;
    value = value == 0 ? 0 : value;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static bool value_is_null(const struct column *column, uint32_t row)
{
    return !column_is_valid(column, row) ||
           (column->tag == TYPE_FLOAT && __builtin_isnan(column->floats[row]));
}

static struct key one_key(const struct column *column, uint32_t row)
{
    switch (column->tag) {
    case TYPE_BOOL: return scalar_key(column->bools[row], TYPE_BOOL);
    case TYPE_INT: return scalar_key((uint64_t)column->ints[row], TYPE_INT);
    case TYPE_TIME: return scalar_key((uint64_t)column->ints[row], TYPE_TIME);
    case TYPE_FLOAT: return scalar_key(float_bits(column->floats[row]), TYPE_FLOAT);
    default: {
        struct str text = column_text(column, row);
        return bytes_key(text.data, text.length);
    }
    }
}

/* Appends tag, length and bytes of one value, so that different tuples have different encodings. Returns
 * the bytes used. */
static size_t encode_value(const struct column *column, uint32_t row, unsigned char *out)
{
    out[0] = (unsigned char)column->tag;
    if (value_is_null(column, row)) {
        out[0] = 0xff;
        return 1;
    }
    if (column->tag == TYPE_BOOL) {
        out[1] = column->bools[row];
        return 2;
    }
    if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES) {
        struct str text = column_text(column, row);
        uint32_t length = (uint32_t)text.length;
        memcpy(out + 1, &length, 4);
        if (length > 0)
            memcpy(out + 5, text.data, length);
        return 5 + text.length;
    }
    uint64_t bits = column->tag == TYPE_FLOAT ? float_bits(column->floats[row]) : (uint64_t)column->ints[row];
    /* Small numbers take few bytes, so that pairs of ids stay exact keys. */
    unsigned used = bits == 0 ? 0 : (unsigned)(64 - __builtin_clzll(bits) + 7) / 8;
    out[0] = (unsigned char)(out[0] | used << 4);
    memcpy(out + 1, &bits, 8);
    return 1 + used;
}

static size_t encoded_bytes_max(const struct batch *batch, const int *columns, uint32_t count, uint32_t row)
{
    size_t bytes = 0;
    for (uint32_t c = 0; c < count; c++) {
        const struct column *column = &batch->columns[columns[c]];
        bool is_text = column->tag == TYPE_TEXT || column->tag == TYPE_BYTES;
        bytes += 13 + (is_text && column_is_valid(column, row) ? column->texts[row].length : 0);
    }
    return bytes;
}

static struct key tuple_key(const struct batch *batch, const int *columns, uint32_t count, uint32_t row)
{
    unsigned char scratch[KEY_SCRATCH_BYTES];
    if (encoded_bytes_max(batch, columns, count, row) <= sizeof(scratch)) {
        size_t length = 0;
        for (uint32_t c = 0; c < count; c++)
            length += encode_value(&batch->columns[columns[c]], row, scratch + length);
        return bytes_key((const char *)scratch, length);
    }
    /* Very long texts: hash each value, then the hashes. */
    struct key parts[SCHEMA_FIELDS_MAX];
    leat_assert(count <= ARRAY_COUNT(parts));
    for (uint32_t c = 0; c < count; c++) {
        const struct column *column = &batch->columns[columns[c]];
        parts[c] = value_is_null(column, row) ? null_key() : one_key(column, row);
    }
    XXH128_hash_t hash = XXH3_128bits_withSeed(parts, count * sizeof(parts[0]), 1);
    return (struct key){hash.low64, (hash.high64 >> 8) | (uint64_t)KEY_HASHED << 56};
}

void key_encode(const struct batch *batch, const int *columns, uint32_t columns_count, struct key *keys,
                bool *has_null)
{
    leat_assert(columns_count > 0);
    const struct column *only = &batch->columns[columns[0]];
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        bool is_null = false;
        for (uint32_t c = 0; c < columns_count; c++)
            is_null |= value_is_null(&batch->columns[columns[c]], row);
        if (has_null != NULL)
            has_null[i] = is_null;
        if (columns_count > 1)
            keys[i] = tuple_key(batch, columns, columns_count, row);
        else
            keys[i] = is_null ? null_key() : one_key(only, row);
    }
}

/* key_hash multiplies two factors and combines the halves of the product by xor. Where the first factor is
 * 1 << rotation, the result is the second factor, rotated to the left by `rotation` bits. The later steps of
 * key_hash can be undone. */
struct key key_of_hash(uint64_t hash, unsigned rotation)
{
    uint64_t multiplier = UINT64_C(0x9fb21c651e98df25), inverse = multiplier;
    for (int i = 0; i < 5; i++)
        inverse *= 2 - multiplier * inverse; /* Newton's method: each step doubles the correct bits */
    uint64_t mixed = hash;
    for (int i = 0; i < 2; i++)
        mixed = hash ^ mixed >> 29;
    mixed *= inverse;
    mixed ^= mixed >> 32;
    uint64_t factor = rotation == 0 ? mixed : mixed >> rotation | mixed << (64 - rotation);
    struct key key = {.low = UINT64_C(1) << rotation ^ UINT64_C(0x9e3779b97f4a7c15)};
    key.high = factor ^ UINT64_C(0xc2b2ae3d27d4eb4f) ^ key.low << 1;
    leat_assert(key_hash(key) == hash);
    return key;
}
