/* Entries as bytes: varints of seven bits a byte, the lowest first (LEB128). */
#include "learners/histories/internal.h"

#include <string.h>

static size_t write_varint(unsigned char *out, uint32_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (unsigned char)(value | 0x80);
    out[n++] = (unsigned char)value;
    return n;
}

/* Reads a varint from eight bytes at once, without a branch that depends on its length, which is hard to predict. */
static inline bool read_fast(struct history_view *view, uint32_t *value)
{
    uint64_t bytes;
    memcpy(&bytes, view->at, sizeof(bytes));
    uint64_t last = ~bytes & UINT64_C(0x8080808080); /* the highest bit of bytes that end a varint */
    if (unlikely(last == 0))
        return false;
    bytes &= last ^ (last - 1); /* up to the first of them */
    *value = (uint32_t)((bytes & 0x7f) | (bytes >> 1 & 0x3f80) | (bytes >> 2 & 0x1fc000) |
                        (bytes >> 3 & 0xfe00000) | (bytes >> 4 & 0xf0000000));
    view->at += ((unsigned)__builtin_ctzll(last) + 1) / 8;
    return true;
}

/* Reads a varint; false: the bytes end before it does, or it has more than VARINT_MAX bytes. */
static inline bool read_varint(struct history_view *view, uint32_t *value)
{
    if (likely(view->end - view->at >= (ptrdiff_t)sizeof(uint64_t)))
        return read_fast(view, value);
    const unsigned char *at = view->at;
    uint32_t result = 0;
    for (unsigned i = 0; i < VARINT_MAX && at < view->end; i++) {
        unsigned char byte = *at++;
        result |= (uint32_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            view->at = at;
            *value = result;
            return true;
        }
    }
    return false;
}

size_t entry_write(const struct history_entry *entry, uint32_t previous, uint32_t sides, unsigned char *out)
{
    uint32_t number = entry->item.number, delta = entry->seconds - previous;
    leat_assert(number <= ITEMS_NUMBERS_MAX);
    size_t n = write_varint(out, number << 1 | (entry->item.generation != 0));
    if (entry->item.generation != 0)
        n += write_varint(out + n, entry->item.generation);
    /* Steps back are as short as steps ahead: the sign becomes the lowest bit. All modulo 2^32. */
    n += write_varint(out + n, delta << 1 ^ (0 - (delta >> 31)));
    for (uint32_t i = 0; i < sides; i++)
        n += write_varint(out + n, entry->sides[i]);
    return n;
}

bool history_next(struct history_view *view, struct history_entry *entry)
{
    uint32_t number, generation = 0, delta;
    *entry = (struct history_entry){0};
    bool is_good = read_varint(view, &number) && (!(number & 1) || read_varint(view, &generation)) &&
                   read_varint(view, &delta);
    for (uint32_t i = 0; i < view->sides && is_good; i++)
        is_good = read_varint(view, &entry->sides[i]);
    if (!is_good) {
        view->at = view->end;
        return false;
    }
    entry->item = (struct items_ref){number >> 1, (uint16_t)generation};
    entry->seconds = view->seconds += delta >> 1 ^ (0 - (delta & 1));
    return true;
}
