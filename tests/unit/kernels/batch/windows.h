/* Windows of random lengths for the cases of sequence models: no rows, one, around whole tiles, and any. */
#ifndef LEAT_TESTS_UNIT_KERNELS_BATCH_WINDOWS_H
#define LEAT_TESTS_UNIT_KERNELS_BATCH_WINDOWS_H

#include "trial.h"

/* The host's copy of offsets[windows + 1], an input; no window is longer than `most`. */
static inline uint32_t *trial_windows(struct trial *t, uint32_t windows, uint32_t most)
{
    static const uint32_t some[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129};
    uint32_t *offsets = trial_input(t, "offsets", (windows + 1) * sizeof(*offsets), sizeof(*offsets));
    for (uint32_t w = 0; w < windows; w++) {
        uint32_t rows = trial_below(t, 2) ? some[trial_below(t, 16)] : trial_below(t, most + 1);
        offsets[w + 1] = offsets[w] + (rows < most ? rows : most);
    }
    return offsets;
}

/* Borders of parts of `n` rows or windows, in order, some of them empty: an input of count + 1 numbers. */
static inline uint32_t *trial_parts(struct trial *t, uint32_t n, uint32_t count)
{
    uint32_t *parts = trial_input(t, "parts", (count + 1) * sizeof(*parts), sizeof(*parts));
    for (uint32_t p = 0; p < count; p++)
        parts[p + 1] = p + 1 == count ? n : parts[p] + trial_below(t, 3) * trial_below(t, n / count + 1);
    for (uint32_t p = 0; p < count; p++)
        parts[p] = parts[p] < n ? parts[p] : n;
    return parts;
}

static inline uint64_t *trial_words(struct trial *t, const char *name, uint32_t n)
{
    uint64_t *words = trial_input(t, name, n * sizeof(*words), sizeof(*words));
    for (uint32_t i = 0; i < n; i++)
        words[i] = trial_random(t);
    return words;
}

#endif
