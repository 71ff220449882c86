/* Random content for trials: follows from the trial's seed, so it is the same for every variant. */
#include "trial_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t trial_random(struct trial *t)
{
    t->random += 0x9e3779b97f4a7c15U;
    return num_mix(t->random);
}

uint32_t trial_below(struct trial *t, uint32_t bound)
{
    return (uint32_t)((trial_random(t) >> 32) * bound >> 32);
}

static float one_float(struct trial *t, enum fill fill)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 1e-40F, 3e38F, -3e38F};
    uint64_t r = trial_random(t);
    if (fill == FILL_SPECIAL && r % 8 == 0)
        return special[r >> 8 & 7];
    float x = (float)(r >> 40) * 0x1p-24F;
    return fill == FILL_POSITIVE ? 0.01F + x * 3.9F : x * 4.0F - 2.0F;
}

void trial_floats(struct trial *t, float *x, size_t n, enum fill fill)
{
    for (size_t i = 0; i < n; i++) {
        float f = one_float(t, fill);
        memcpy((char *)x + i * sizeof(f), &f, sizeof(f));
    }
}

const char *const ids_names[IDS_KINDS] = {"distinct", "one", "zipf", "ends", "half absent", "none"};

void trial_ids(struct trial *t, uint64_t *ids, size_t n, enum ids kind)
{
    static const uint64_t ends[] = {1,          UINT64_MAX,       2,          UINT64_MAX - 1,
                                    1ULL << 63, (1ULL << 63) - 1, UINT32_MAX, 1ULL << 32};
    uint64_t salt = trial_random(t);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = trial_random(t);
        double share = (double)(r >> 11) * 0x1p-53;
        switch (kind) {
        case IDS_DISTINCT: ids[i] = num_mix(salt + i); break;
        case IDS_ONE: ids[i] = salt | 1; break;
        case IDS_ZIPF:
            ids[i] = num_mix(salt + (uint64_t)num_exp(share * num_log((double)n + 1.0))) | 1;
            break;
        case IDS_ENDS: ids[i] = ends[r >> 8 & 7]; break;
        case IDS_ABSENT: ids[i] = r % 2 != 0 ? 0 : 1 + (r >> 32) % (n / 8 + 1); break;
        case IDS_NONE:
        case IDS_KINDS: ids[i] = 0; break;
        }
    }
}

/* Writes each occurrence's dense index, counted by first occurrence; BATCH_NONE for id 0. Returns the number
 * of distinct ids. */
static uint32_t number_ids(const uint64_t *ids, uint32_t n, uint32_t *numbers)
{
    size_t size = 16;
    while (size < 2 * (size_t)n)
        size *= 2;
    uint32_t *slots = malloc(size * sizeof(*slots)), count = 0; /* first occurrences */
    memset(slots, 0xff, size * sizeof(*slots));
    for (uint32_t i = 0; i < n; i++) {
        numbers[i] = BATCH_NONE;
        if (ids[i] == 0)
            continue;
        size_t at = (size_t)num_mix(ids[i]) & (size - 1);
        while (slots[at] != UINT32_MAX && ids[slots[at]] != ids[i])
            at = (at + 1) & (size - 1);
        if (slots[at] == UINT32_MAX)
            slots[at] = i, numbers[i] = count++;
        else
            numbers[i] = numbers[slots[at]];
    }
    free(slots);
    return count;
}

uint32_t trial_segments(struct trial *t, uint32_t n, enum ids kind, struct batch_segments *segments,
                        const uint32_t **host_order, const uint32_t **host_starts)
{
    uint64_t *ids = malloc(n * sizeof(*ids) + 1);
    uint32_t *numbers = malloc(n * sizeof(*numbers) + 1);
    trial_ids(t, ids, n, kind);
    uint32_t m = number_ids(ids, n, numbers);
    uint32_t *order = trial_input(t, "order", n * sizeof(*order), sizeof(*order));
    uint32_t *starts = trial_input(t, "starts", ((size_t)n + 1) * sizeof(*starts), sizeof(*starts));
    uint32_t *count = trial_input(t, "count", sizeof(*count), sizeof(*count));
    uint32_t *next = calloc((size_t)m + 1, sizeof(*next));
    /* Entries behind m + 1 are undefined, as after dedupe. */
    memset(starts, 0xee, ((size_t)n + 1) * sizeof(*starts));
    memset(order, 0xee, n * sizeof(*order));
    for (uint32_t i = 0; i < n; i++) {
        if (numbers[i] != BATCH_NONE)
            next[numbers[i] + 1]++;
    }
    for (uint32_t u = 0; u < m; u++)
        next[u + 1] += next[u];
    memcpy(starts, next, ((size_t)m + 1) * sizeof(*starts));
    for (uint32_t i = 0; i < n; i++) {
        if (numbers[i] != BATCH_NONE)
            order[next[numbers[i]]++] = i;
    }
    *count = m;
    segments->order = PLACE(t, order);
    segments->starts = PLACE(t, starts);
    segments->count = PLACE(t, count);
    segments->n = n;
    if (host_order != NULL)
        *host_order = order;
    if (host_starts != NULL)
        *host_starts = starts;
    free(ids);
    free(numbers);
    free(next);
    return m;
}

const uint32_t *trial_slices(struct trial *t, uint32_t count, struct batch_segments *segments)
{
    uint32_t n = segments->n, events = count * BATCH_SLICE_UNIT * (1 + trial_below(t, 3)), at = 0;
    bool are_places = count % 3 == 1 && n >= count * BATCH_SLICE_UNIT;
    uint32_t *event = trial_input(t, "event", n * sizeof(*event), sizeof(*event));
    for (uint32_t i = 0; i < n; i++) {
        event[i] = are_places ? i : at;
        at += trial_below(t, 2) * trial_below(t, 4 * events / n + 1); /* leaps: some slices may be empty */
        at = at < events ? at : events - 1;
    }
    events = are_places ? n : events;
    segments->slices = batch_slices_of(events, events / count);
    segments->event = are_places ? NULL : PLACE(t, event);
    return event;
}

/* x in 16 bits, not rounded to nearest: bf16 by truncation, fp16 truncated too, NaN kept. In bf16 a NaN may
 * become infinite. */
static uint16_t half_of(float x, enum row_format format)
{
    if (format == ROW_FP16) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        uint32_t sign = bits >> 16 & 0x8000U;
        if (x != x)
            return (uint16_t)(sign | 0x7e00U);
        float size = fabsf(x);
        if (size >= 65536.0F)
            return (uint16_t)(sign | 0x7c00U);
        if (size < 0x1p-14F)
            return (uint16_t)(sign | (uint32_t)(size * 0x1p24F));
        return (uint16_t)(sign | ((bits & 0x7fffffffU) - (112U << 23)) >> 13);
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static void fill_row(struct trial *t, const struct trial_rows *rows, unsigned char *row, enum fill fill)
{
    for (uint32_t i = 0; i < rows->d; i++) {
        float x;
        trial_floats(t, &x, 1, fill);
        uint16_t half = half_of(x, rows->format);
        switch (rows->format) {
        case ROW_FP32: memcpy(row + i * sizeof(x), &x, sizeof(x)); break;
        case ROW_BF16:
        case ROW_FP16: memcpy(row + i * sizeof(half), &half, sizeof(half)); break;
        case ROW_INT8: row[sizeof(float) + i] = (unsigned char)trial_random(t); break;
        case ROW_FORMATS: break;
        }
    }
    if (rows->format == ROW_INT8)
        trial_floats(t, (float *)(void *)row, 1, fill);
    trial_floats(t, (float *)(void *)(row + row_weight_bytes(rows->format, rows->d)), rows->state_floats,
                 FILL_POSITIVE);
}

struct trial_rows trial_rows(struct trial *t, enum row_format format, uint32_t d, size_t state_floats,
                             uint32_t count, enum fill fill, bool is_changed)
{
    struct trial_rows rows = {.format = format,
                              .d = d,
                              .count = count,
                              .state_floats = state_floats,
                              .stride = row_bytes(format, d, state_floats) + 16};
    size_t bytes = rows.stride * count;
    rows.host = is_changed ? trial_changed(t, "rows", bytes, TRIAL_MATRIX, same_bits)
                           : trial_input(t, "rows", bytes, TRIAL_MATRIX);
    memset(rows.host, 0x77, bytes); /* bytes between rows, which no kernel may change */
    for (uint32_t u = 0; u < count; u++)
        fill_row(t, &rows, rows.host + u * rows.stride, fill);
    if (is_changed)
        trial_is_rows(t, &rows);
    return rows;
}

void *trial_row(struct trial *t, const struct trial_rows *rows, uint32_t u)
{
    return trial_place(t, rows->host + u * rows->stride);
}
