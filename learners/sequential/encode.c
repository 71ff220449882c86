/* From windows of tokens to queries: the network's input, its forward pass, and the rows of contexts. */
#include "learners/sequential/internal.h"

#include <math.h>

const float *sequential_row(const struct catalogue *catalogue, uint32_t number)
{
    return number > 0 && number <= catalogue_used(catalogue) ? catalogue_rows(catalogue)[number - 1] : NULL;
}

static const float *item_row(const struct sequential *s, struct items_ref ref)
{
    return catalogue_is_live(s->items, ref) ? catalogue_rows(s->items)[ref.number] : NULL;
}

static void prefetch_row(const struct sequential *s, struct items_ref ref)
{
    if (ref.number >= catalogue_used(s->items))
        return;
    const float *row = catalogue_rows(s->items)[ref.number];
    for (uint32_t c = 0; row != NULL && c < s->options.dim; c += 16)
        prefetch_line(row + c);
}

void sequential_put_token(const struct sequential *s, const struct history_entry *token, float *x)
{
    uint32_t dim = s->options.dim;
    float root = sqrtf((float)dim);
    const float *row = sequential_is_mask(token) ? s->masks.row : item_row(s, token->item);
    for (uint32_t c = 0; c < dim; c++)
        x[c] = row != NULL ? root * row[c] : 0.0F;
    for (uint32_t k = 0; k < s->options.sides; k++) {
        row = sequential_row(s->sides[k], token->sides[k]);
        for (uint32_t c = 0; row != NULL && c < dim; c++)
            x[c] += row[c];
    }
}

static void put_tokens(struct sequential *s, const struct history_entry *tokens, uint32_t n, uint32_t row)
{
    enum { AHEAD = 8 };
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            prefetch_row(s, tokens[i + AHEAD].item);
        sequential_put_token(s, &tokens[i], s->rows.in + (size_t)(row + i) * s->net.input->stride);
        s->seconds[row + i] = tokens[i].seconds;
    }
}

uint32_t sequential_pass_fill(struct sequential *s, const struct sequential_windows *w, uint32_t begin,
                              const uint8_t *chosen, struct sequential_pass *pass)
{
    uint32_t window = begin;
    bool is_masked = false;
    *pass = (struct sequential_pass){0};
    s->offsets[0] = 0;
    for (; window < w->count; window++) {
        const struct sequential_window *of = &w->items[window];
        if (of->length == 0 || (chosen != NULL && !chosen[window]))
            continue;
        if (pass->count == s->pass_windows || pass->rows + of->length > s->pass_rows ||
            (pass->count > 0 && of->is_masked != is_masked))
            break;
        is_masked = of->is_masked;
        put_tokens(s, w->tokens + of->first, of->length, pass->rows);
        s->identities[pass->count] = of->identity;
        pass->rows += of->length;
        s->offsets[++pass->count] = pass->rows;
    }
    s->net.windows = (struct net_windows){.offsets = s->offsets,
                                          .count = pass->count,
                                          .seconds = s->seconds,
                                          .identities = s->identities,
                                          .is_both_ways = is_masked};
    return window;
}

void sequential_add_contexts(const struct sequential *s, const struct sequential_window *w, float *query)
{
    for (uint32_t k = 0; k < s->options.contexts; k++) {
        const float *row = sequential_row(s->contexts[k], w->contexts[k]);
        for (uint32_t c = 0; row != NULL && c < s->options.dim; c++)
            query[c] += row[c];
    }
}

void sequential_encode(struct sequential *s, const struct sequential_windows *w, const uint8_t *chosen,
                       float *queries)
{
    size_t dim = s->options.dim, stride = s->net.output->stride;
    for (uint32_t begin = 0, end; begin < w->count; begin = end) {
        struct sequential_pass pass;
        end = sequential_pass_fill(s, w, begin, chosen, &pass);
        sequential_forward(s, &pass);
        uint32_t row = 0;
        for (uint32_t window = begin; window < end; window++) {
            if (w->items[window].length == 0 || !chosen[window])
                continue;
            row += w->items[window].length;
            float *query = queries + (size_t)window * dim;
            memcpy(query, s->rows.out + (row - 1) * stride, dim * sizeof(*query));
            sequential_add_contexts(s, &w->items[window], query);
        }
    }
}
