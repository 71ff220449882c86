/*
 * Learning from behaviour without labels (`also: masked`): of each window that a step learns, a share of the items is hidden,
 * and predicted by the learner's own loss from what stands on both sides of them (the cloze task of BERT4Rec, Sun et al.
 * 2019, section 3.5 and 3.6). Such a window is encoded by itself, by attention that goes both ways; windows of the next item
 * stay causal, and so are all that are predicted, asked for or kept in a cache.
 *
 * One learned row stands for all hidden items. It enters the network as an item's row does, and makes steps by the same
 * optimizer. What stood beside a hidden item is hidden, too, for it may tell the item.
 *
 * Which items are hidden is chance by the window's identity, which is that of the record, or of step and place for older
 * windows: `share` of them on average, at least one, at most the share rounded up, so that a step's targets are bounded. An
 * item may be hidden if it is still there and its event teaches, with a label or without.
 */
#include "learners/sequential/internal.h"
#include "learners/sequential/values.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <stdlib.h>

/* What chance is for: (seed ^ use, window, place). */
static const uint64_t CHANCE_WINDOW = UINT64_C(0x3a5c), CHANCE_SHARE = UINT64_C(0x3a5d),
                      CHANCE_PLACE = UINT64_C(0x3a5e);

/* The number of a hidden item's token, which no item has. */
enum { MASK_NUMBER = UINT32_MAX };
_Static_assert(ITEMS_NUMBERS_MAX < UINT32_MAX, "a number is left over");

/* --- The row --- */

static size_t state_floats(const struct sequential_options *o)
{
    return opt_state_floats(o->rows.kind, o->dim);
}

void sequential_masks_make(struct sequential *s)
{
    const struct sequential_options *o = &s->options;
    struct sequential_masks *m = &s->masks;
    if (o->masked_share == 0.0)
        return;
    m->row_bytes = row_bytes(ROW_FP32, o->dim, state_floats(o));
    m->row = mem_aligned(64, (m->row_bytes + 63) / 64 * 64);
    memset(m->row, 0, m->row_bytes);
    o->kernels->init_uniform(m->row, num_mix(o->seed ^ CHANCE_WINDOW), o->init, o->dim);
    float *state = (float *)(void *)((unsigned char *)m->row + row_weight_bytes(ROW_FP32, o->dim));
    for (size_t i = 0; i < state_floats(o); i++)
        state[i] = opt_state_init(o->rows.kind, o->rows.accumulator);
}

void sequential_masks_free(struct sequential *s)
{
    free(s->masks.row);
    free(s->masks.places);
}

bool sequential_is_mask(const struct history_entry *token)
{
    return token->item.number == MASK_NUMBER;
}

void sequential_masks_update(struct sequential *s)
{
    const struct sequential_windows *w = &s->pending;
    values_begin(s->values, s->masks.count);
    for (uint32_t i = 0; i < s->masks.count; i++) {
        const struct sequential_place *place = &s->masks.places[i];
        values_add(s->values, 1, (uint32_t)w->items[place->window].first + place->position);
    }
    s->rows_refused += values_update_row(s->values, s->masks.row, s->token_gradients,
                                         sqrtf((float)s->options.dim), &s->options.rows);
}

/* --- What is hidden --- */

uint32_t sequential_masked_targets(const struct sequential_options *o)
{
    if (o->masked_share == 0.0)
        return 0;
    return MIN((uint32_t)(o->masked_share * o->history) + 1, o->history);
}

static bool may_hide(const struct sequential *s, const struct history_entry *token)
{
    return (!s->options.marks || token->sides[s->options.sides] != MARK_TEACHES_NOT) &&
           catalogue_is_live(s->items, token->item);
}

/* How many of `all` items are hidden: the share, rounded up or down by chance. */
static uint32_t hidden_of(const struct sequential *s, uint64_t identity, uint32_t all)
{
    double chance = (double)(num_chance(s->options.seed ^ CHANCE_SHARE, identity, 0) >> 11) * 0x1p-53;
    uint32_t count = (uint32_t)(s->options.masked_share * all + chance);
    return MIN(MAX(count, 1U), all);
}

static struct sequential_place *add_place(struct sequential_masks *m)
{
    if (m->count == m->room) {
        m->room = m->room == 0 ? 256 : 2 * m->room;
        m->places = mem_realloc(m->places, m->room * sizeof(*m->places));
    }
    return &m->places[m->count++];
}

/* Hides items of a pending window, each with equal chance (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): of
 * those that are left a place is taken with the chance wanted / left. */
static void hide(struct sequential *s, uint32_t window)
{
    const struct sequential_window *of = &s->pending.items[window];
    struct history_entry *tokens = s->pending.tokens + of->first;
    uint32_t left = 0;
    for (uint32_t p = 0; p < of->length; p++)
        left += may_hide(s, &tokens[p]);
    uint32_t wanted = hidden_of(s, of->identity, left);
    for (uint32_t p = 0; p < of->length && wanted > 0; p++) {
        if (!may_hide(s, &tokens[p]))
            continue;
        uint64_t chance = num_chance(s->options.seed ^ CHANCE_PLACE, of->identity, p) >> 32;
        if (chance * left-- >> 32 >= wanted)
            continue;
        wanted--;
        *add_place(&s->masks) = (struct sequential_place){window, p, tokens[p].item};
        tokens[p] = (struct history_entry){.item = {.number = MASK_NUMBER}, .seconds = tokens[p].seconds};
    }
}

/* Adds a window of `from` to the pending ones, with hidden items; one that has none to hide is left out. */
static void add_window(struct sequential *s, const struct sequential_windows *from, uint32_t number)
{
    const struct sequential_window of = from->items[number];
    bool is_any = false;
    for (uint32_t p = 0; p < of.length && !is_any; p++)
        is_any = may_hide(s, &from->tokens[of.first + p]);
    if (!is_any)
        return;
    struct sequential_window *added = windows_add(&s->pending);
    added->is_masked = true;
    added->length = of.length;
    added->identity = num_chance(s->options.seed ^ CHANCE_WINDOW, of.identity, 0);
    struct history_entry *to =
        windows_room(&s->pending, of.length); /* `from` may be the pending ones, which move */
    memcpy(to, from->tokens + of.first, of.length * sizeof(*to));
    s->pending.tokens_count += of.length;
    hide(s, s->pending.count - 1);
}

void sequential_add_masked(struct sequential *s)
{
    uint32_t count = s->pending.count;
    s->masks.count = 0;
    if (s->options.masked_share == 0.0)
        return;
    for (uint32_t i = 0; i < count; i++)
        add_window(s, &s->pending, i);
    for (uint32_t i = 0; i < s->unlabelled.count; i++)
        add_window(s, &s->unlabelled, i);
}
