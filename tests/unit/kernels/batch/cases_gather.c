/* gather_pool: every format, sum and mean, with and without offsets and numbers, rows that are not there. */
#include "trial.h"

#include <string.h>

struct gather_shape {
    uint32_t bags, d;
    enum row_format format;
    bool has_unique, has_offsets, is_mean;
    enum fill fill;
};

static const char *const format_names[ROW_FORMATS] = {"fp32", "bf16", "fp16", "int8"};

/* Bags of 0 .. 5 places, now and then one of 70; returns how many places. */
static uint32_t fill_offsets(struct trial *t, uint32_t *offsets, uint32_t bags)
{
    offsets[0] = 0;
    for (uint32_t b = 0; b < bags; b++) {
        uint32_t length = trial_below(t, 40) == 0 ? 70 : trial_below(t, 6);
        offsets[b + 1] = offsets[b] + length;
    }
    return offsets[bags];
}

static void build_gather(struct trial *t, const void *arg)
{
    const struct gather_shape *s = arg;
    uint32_t places = s->bags;
    uint32_t *offsets = NULL, *unique = NULL;
    if (s->has_offsets) {
        offsets = trial_input(t, "offsets", ((size_t)s->bags + 1) * sizeof *offsets, sizeof *offsets);
        places = fill_offsets(t, offsets, s->bags);
    }
    uint32_t pointers = s->has_unique ? places / 2 + 1 : places;
    uint32_t count = pointers / 2 < 3000 ? pointers / 2 + 1 : 3000;
    struct trial_rows rows = trial_rows(t, s->format, s->d, 3, count, s->fill, false);
    void **list = trial_input(t, "list", pointers * sizeof *list, sizeof *list);
    for (uint32_t i = 0; i < pointers; i++)
        list[i] = trial_below(t, 7) == 0 ? NULL : trial_row(t, &rows, trial_below(t, count));
    if (s->has_unique) {
        unique = trial_input(t, "unique", places * sizeof *unique, sizeof *unique);
        for (uint32_t i = 0; i < places; i++)
            unique[i] = trial_below(t, 9) == 0 ? BATCH_NONE : trial_below(t, pointers);
    }
    float *out = trial_output(t, "out", sizeof *out * s->bags * s->d, TRIAL_MATRIX, same_floats);
    struct batch_gather_pool a = {.rows = (const void *const *)PLACE(t, list),
                                  .unique = unique ? PLACE(t, unique) : NULL,
                                  .offsets = offsets ? PLACE(t, offsets) : NULL,
                                  .bags = s->bags,
                                  .d = s->d,
                                  .format = s->format,
                                  .is_mean = s->is_mean,
                                  .out = PLACE(t, out)};
    TRIAL_CALL(t, gather_pool, &a);
}

static void try_gather(struct suite *suite, struct gather_shape s)
{
    suite_try(suite, build_gather, &s, "%u bags, d %u, %s%s%s%s%s", s.bags, s.d, format_names[s.format],
              s.has_unique ? ", unique" : "", s.has_offsets ? ", offsets" : "", s.is_mean ? ", mean" : "",
              s.fill == FILL_SPECIAL ? ", special" : "");
}

/* What the rule says, by hand: rows of 1, 2, 4 ... and one that is not there. */
static void build_known(struct trial *t, const void *arg)
{
    enum { D = 8, ROWS = 3 };
    (void)arg;
    struct trial_rows rows = trial_rows(t, ROW_BF16, D, 0, ROWS, FILL_PLAIN, false);
    static const uint16_t one[ROWS] = {0x3f80, 0x4000, 0x4080}; /* 1, 2, 4 */
    for (uint32_t u = 0; u < ROWS; u++) {
        for (size_t i = 0; i < D; i++)
            memcpy(rows.host + u * rows.stride + i * sizeof *one, &one[u], sizeof *one);
    }
    void **list = trial_input(t, "list", 4 * sizeof *list, sizeof *list);
    uint32_t *offsets = trial_input(t, "offsets", 4 * sizeof *offsets, sizeof *offsets);
    memcpy(offsets, (uint32_t[4]){0, 3, 3, 4}, 4 * sizeof *offsets);
    list[0] = trial_row(t, &rows, 0), list[1] = NULL;
    list[2] = trial_row(t, &rows, 1), list[3] = trial_row(t, &rows, 2);
    float *out = trial_output(t, "out", sizeof *out * 3 * D, TRIAL_MATRIX, same_floats);
    struct batch_gather_pool a = {.rows = (const void *const *)PLACE(t, list),
                                  .offsets = PLACE(t, offsets),
                                  .bags = 3,
                                  .d = D,
                                  .format = ROW_BF16,
                                  .is_mean = true,
                                  .out = PLACE(t, out)};
    TRIAL_CALL(t, gather_pool, &a);
    for (size_t i = 0; i < D; i++)
        TRIAL_CHECK(t, out[i] == 1.0F && out[D + i] == 0.0F && out[2 * D + i] == 4.0F);
}

void suite_gather_pool(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 20, 64, 128, 132, 512};
    suite_try(suite, build_known, NULL, "by hand");
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (int format = 0; format < ROW_FORMATS; format++) {
            uint32_t d = dims[(*n + (uint32_t)format) % 8];
            enum row_format f = (enum row_format)format;
            enum fill fill = format % 2 == 0 ? FILL_PLAIN : FILL_SPECIAL;
            try_gather(suite, (struct gather_shape){*n, d, f, false, false, false, fill});
            try_gather(suite, (struct gather_shape){*n, d, f, true, false, true, FILL_PLAIN});
            try_gather(suite, (struct gather_shape){*n, d, f, false, true, true, fill});
            try_gather(suite, (struct gather_shape){*n, d, f, true, true, false, FILL_SPECIAL});
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        try_gather(suite, (struct gather_shape){65, dims[i], (enum row_format)(i % 4), true, i % 2 == 0,
                                                false, FILL_PLAIN});
    try_gather(suite, (struct gather_shape){suite_huge(suite), 4, ROW_FP32, true, true, false, FILL_PLAIN});
}
