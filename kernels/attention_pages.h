/*
 * Causal attention of a window's last rows, whose keys and values lie in pages: attention_*_pages of kernels.def,
 * for a cache of keys and values (learners/train/kv_cache.h). Each query has the bits that attention_softmax_forward
 * or attention_silu_forward (attention.h, without dropout) gives it in a pass over the whole window.
 *
 * A page has the keys and values of ATTENTION_PAGE rows of the window, of one or more layers. A layer's part begins
 * `from` elements behind the page's first, and is attention_page_elements(heads * d) long:
 *
 *   keys   [heads * d][ATTENTION_PAGE]   turned, so that sixteen scores are a vector
 *   values [ATTENTION_PAGE][heads * d]
 *
 * Elements are floats, or bf16 (as uint16_t). Rows behind the last query may hold anything.
 */
#ifndef LEAT_KERNELS_ATTENTION_PAGES_H
#define LEAT_KERNELS_ATTENTION_PAGES_H

#include "kernels/attention.h"
#include "kernels/rounding.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_PAGE = 16 }; /* rows of a page; a tile of ATTENTION_KEYS keys is whole pages */

struct attention_pages {
    const void *const *pages; /* [first + queries, in pages] */
    bool is_bf16;
    size_t from;
    uint32_t first,
        queries; /* position in the window of the first query; the others are at the rows behind */
    uint32_t heads, d;
    float scale;
    struct attention_in q; /* [queries] rows; overlaps no output */
    struct attention_out out;
    float weight_scale; /* SiLU */
    /* SiLU; may be NULL. query_seconds is by row of q, key_seconds by position in the window. */
    const struct attention_bias *bias;
};

/* Elements of a layer's part of a page; width: heads * d. */
static inline size_t attention_page_elements(size_t width)
{
    return 2 * width * ATTENTION_PAGE;
}

/* Puts keys and values, [width] each, of the window's row `row` at its place in its page; bf16: rounded to
 * nearest. */
static inline void attention_page_put(void *page, bool is_bf16, size_t from, size_t row, const float *keys,
                                      const float *values, size_t width)
{
    size_t place = row % ATTENTION_PAGE, keys_at = from + place;
    size_t values_at = from + width * ATTENTION_PAGE + place * width;
    for (size_t i = 0; i < width && is_bf16; i++) {
        ((uint16_t *)page)[keys_at + i * ATTENTION_PAGE] = bf16_of(float_bits(keys[i]), 0, true);
        ((uint16_t *)page)[values_at + i] = bf16_of(float_bits(values[i]), 0, true);
    }
    for (size_t i = 0; i < width && !is_bf16; i++) {
        ((float *)page)[keys_at + i * ATTENTION_PAGE] = keys[i];
        ((float *)page)[values_at + i] = values[i];
    }
}

#ifdef __cplusplus
}
#endif
#endif
