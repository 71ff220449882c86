/*
 * Packing of operands for matmul (batch_matmul.inc.h): panels of `width` rows or lanes, [p][width], in the
 * order in which a tile reads them; rounded while packing if precision is bf16 or fp16.
 */

/* An operand. Floats from a row (or lane) to the next: across; from p to p + 1: deep. One of the two is 1. */
struct matmul_side {
    const float *at;
    size_t across, deep;
    float scale; /* factor of the numbers while they are rounded */
};

/* Packs four rows: sixteen p at a time, then four, then one. */
LANES_INLINE void pack_four(float *out, size_t width, const float *const from[4], size_t depth)
{
    size_t p = 0;
    for (; p + 16 <= depth; p += 16) {
        v16 v[4] = {v16_load(from[0] + p), v16_load(from[1] + p), v16_load(from[2] + p),
                    v16_load(from[3] + p)};
        v16_transpose_groups(v);
        for (size_t k = 0; k < 4; k++) {
            float *to = out + (p + k) * width;
            v16_store4x4(to, to + 4 * width, to + 8 * width, to + 12 * width, v[k]);
        }
    }
    for (; p + 4 <= depth; p += 4) {
        float *to = out + p * width;
        v16 turned = v16_transpose(v16_load4x4(from[0] + p, from[1] + p, from[2] + p, from[3] + p));
        v16_store4x4(to, to + width, to + 2 * width, to + 3 * width, turned);
    }
    for (; p < depth; p++) {
        for (size_t k = 0; k < 4; k++)
            out[p * width + k] = from[k][p];
    }
}

/*
 * Rows or lanes with consecutive p (deep is 1), in groups of four; a last, partial group repeats the last
 * row. If the width is no multiple of four, the last group of a panel is packed first: it writes behind the
 * panel's width, and the groups before overwrite that. Else groups go in the order in which memory lies.
 */
LANES_INLINE void pack_turned(float *out, size_t width, const struct matmul_side *s, size_t count,
                              size_t depth)
{
    size_t groups = (count + 3) / 4;
    for (size_t i = 0; i < groups; i++) {
        size_t group = width % 4 == 0 ? i : groups - 1 - i;
        const float *from[4];
        for (size_t k = 0; k < 4; k++) {
            size_t r = group * 4 + k < count ? group * 4 + k : count - 1;
            from[k] = s->at + r * s->across;
        }
        pack_four(out + group * 4, width, from, depth);
    }
}

LANES_INLINE void pack_straight(float *out, size_t width, const struct matmul_side *s, size_t count,
                                size_t depth)
{
    for (size_t p = 0; p < depth; p++) {
        const float *from = s->at + p * s->deep;
        if (count == width) {
            memcpy(out + p * width, from, width * sizeof(*out));
            continue;
        }
        for (size_t l = 0; l < width; l += 16) {
            size_t there = l + 16 <= count ? 16 : l < count ? count - l : 0;
            v16 x = there > 0 ? v16_load_n(from + l, there) : v16_set1(0.0F);
            v16_store_n(out + p * width + l, x, width - l < 16 ? width - l : 16);
        }
    }
}

/* Rounds to nearest in the format, and converts back; each step is a loop of its own, as in round_block. */
LANES_INLINE void round_some(float *x, size_t n, enum row_format format, float scale)
{
    uint32_t bits[ROUND_BLOCK];
    uint16_t rounded[ROUND_BLOCK];
    float back = 1.0F / scale;
    for (size_t k = 0; k < n; k++)
        x[k] *= scale;
    memcpy(bits, x, n * sizeof(*bits));
    for (size_t k = 0; k < n; k++)
        rounded[k] = format == ROW_BF16 ? bf16_of(bits[k], 0, true) : fp16_ieee(bits[k]);
    for (size_t k = 0; k < n; k++)
        x[k] = (format == ROW_BF16 ? float_of_bf16(rounded[k]) : float_of_fp16(rounded[k])) * back;
}

LANES_INLINE void round_all(float *x, size_t n, enum row_format format, float scale)
{
    size_t i = 0;
    for (; i + ROUND_BLOCK <= n; i += ROUND_BLOCK)
        round_some(x + i, ROUND_BLOCK, format, scale);
    round_some(x + i, n - i, format, scale);
}

static void round_packed(float *x, size_t n, enum row_format format, float scale)
{
    if (format == ROW_BF16)
        round_all(x, n, ROW_BF16, 1.0F);
    else
        round_all(x, n, ROW_FP16, scale);
}

/* Packs `count` rows or lanes from `first` on, `depth` p from `from` on, in panels of `width`, a constant. */
LANES_INLINE void pack(float *out, size_t width, const struct matmul_side *s, size_t first, size_t count,
                       size_t from, size_t depth, enum row_format precision)
{
    float *begin = out;
    for (size_t i = 0; i < count; i += width) {
        size_t some = count - i < width ? count - i : width;
        struct matmul_side panel = {s->at + (first + i) * s->across + from * s->deep, s->across, s->deep,
                                    s->scale};
        if (s->across == 1)
            pack_straight(out, width, &panel, some, depth);
        else
            pack_turned(out, width, &panel, some, depth);
        out += width * depth;
    }
    if (precision != ROW_FP32)
        round_packed(begin, (size_t)(out - begin), precision, s->scale);
}

static void pack_rows(float *out, const struct matmul_side *s, size_t first, size_t count, size_t from,
                      size_t depth, enum row_format precision)
{
    pack(out, TILE_ROWS, s, first, count, from, depth, precision);
}

static void pack_lanes(float *out, const struct matmul_side *s, size_t first, size_t count, size_t from,
                       size_t depth, enum row_format precision)
{
    pack(out, TILE_LANES, s, first, count, from, depth, precision);
}
