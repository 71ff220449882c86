#include "operators/expr/letters.h"

/* A range of capital letters, first..last. A small letter is `distance` behind its capital, or next to it. */
struct letter_range {
    uint32_t first, last;
    int32_t distance; /* 0: capitals and small letters alternate, beginning with a capital at `first` */
};

static const struct letter_range ranges[] = {
    {0x00c0, 0x00d6, 32},   {0x00d8, 0x00de, 32}, /* Latin-1 */
    {0x0100, 0x012f, 0},    {0x0132, 0x0137, 0},  {0x0139, 0x0148, 0},  {0x014a, 0x0177, 0},
    {0x0178, 0x0178, -121}, {0x0179, 0x017e, 0}, /* Latin Extended-A; Y with diaeresis is ff */
    {0x0386, 0x0386, 38},   {0x0388, 0x038a, 37}, {0x038c, 0x038c, 64}, {0x038e, 0x038f, 63},
    {0x0391, 0x03a1, 32},   {0x03a3, 0x03ab, 32}, /* Greek */
    {0x0400, 0x040f, 80},   {0x0410, 0x042f, 32}, {0x0460, 0x0481, 0},  {0x048a, 0x04bf, 0},
    {0x04c0, 0x04c0, 15},   {0x04c1, 0x04ce, 0},  {0x04d0, 0x04ff, 0}, /* Cyrillic */
};

uint32_t letter_lower(uint32_t letter)
{
    if (letter < 0x80)
        return letter >= 'A' && letter <= 'Z' ? letter + 32 : letter;
    for (size_t i = 0; i < ARRAY_COUNT(ranges); i++) {
        const struct letter_range *r = &ranges[i];
        if (letter < r->first || letter > r->last)
            continue;
        if (r->distance != 0)
            return (uint32_t)((int32_t)letter + r->distance);
        return (letter - r->first) % 2 == 0 ? letter + 1 : letter;
    }
    return letter;
}

uint32_t letter_upper(uint32_t letter)
{
    if (letter < 0x80)
        return letter >= 'a' && letter <= 'z' ? letter - 32 : letter;
    if (letter == 0x03c2) /* the final sigma */
        return 0x03a3;
    for (size_t i = 0; i < ARRAY_COUNT(ranges); i++) {
        const struct letter_range *r = &ranges[i];
        if (r->distance == 0 && letter >= r->first && letter <= r->last)
            return (letter - r->first) % 2 == 1 ? letter - 1 : letter;
        uint32_t capital = (uint32_t)((int32_t)letter - r->distance);
        if (r->distance != 0 && capital >= r->first && capital <= r->last)
            return capital;
    }
    return letter;
}

/* The letters of `ranges` are U+0080 to U+07FF and map to letters of that range: two bytes each. */
size_t letters_map(struct str text, uint32_t (*map)(uint32_t letter), char *out)
{
    size_t length = 0, i = 0;
    while (i < text.length) {
        unsigned char c = (unsigned char)text.data[i];
        bool is_two =
            c >= 0xc2 && c <= 0xdf && i + 1 < text.length && ((unsigned char)text.data[i + 1] & 0xc0) == 0x80;
        if (!is_two) {
            out[length++] = c < 0x80 ? (char)map(c) : (char)c;
            i++;
            continue;
        }
        uint32_t letter = map(((uint32_t)c & 0x1f) << 6 | ((uint32_t)(unsigned char)text.data[i + 1] & 0x3f));
        leat_assert(letter >= 0x80 && letter < 0x800);
        out[length++] = (char)(0xc0 | letter >> 6);
        out[length++] = (char)(0x80 | (letter & 0x3f));
        i += 2;
    }
    return length;
}
