/* gather_pool: every format, sum and mean, with and without offsets and `indices`, NULL rows; bags written
 * one after another, and bags as columns of a matrix's rows. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

struct gather_shape {
    uint32_t bags, d;
    enum row_format format;
    bool has_indices, has_offsets, is_mean;
    enum fill fill;
    uint32_t fields, gap; /* 0: none; gap: floats between the matrix's rows, which must stay unchanged */
    uint32_t longest;     /* length of the longest bag; 0: 70 */
};

static const char *const format_names[ROW_FORMATS] = {"fp32", "bf16", "fp16", "int8"};

/* Fills offsets of bags: longest 0: bags of 0 .. 5 rows, one in 40 of 70; else of 0 .. longest. Returns how
 * many occurrences the bags have in all. */
static uint32_t fill_offsets(struct trial *t, uint32_t *offsets, uint32_t bags, uint32_t longest)
{
    offsets[0] = 0;
    for (uint32_t b = 0; b < bags; b++) {
        uint32_t length = trial_below(t, 40) == 0 ? 70 : trial_below(t, 6);
        if (longest > 0)
            length = b == 0 ? longest : trial_below(t, longest);
        offsets[b + 1] = offsets[b] + length;
    }
    return offsets[bags];
}

/* Floats from one event's row of outputs to the next. */
static size_t out_stride(const struct gather_shape *s)
{
    return s->fields > 0 ? s->fields * s->d + s->gap : s->d;
}

/* Computes what batch.h demands, float by float, for fp32. before: the output's content before the call,
 * which becomes the expected one; rows: the row of each occurrence. */
static void check_plainly(struct trial *t, const struct gather_shape *s, float *before, const float *out,
                          const float *const *rows, const uint32_t *offsets)
{
    uint32_t events = s->fields > 0 ? s->bags / s->fields : s->bags;
    for (uint32_t b = 0; b < s->bags; b++) {
        uint32_t from = offsets ? offsets[b] : b, to = offsets ? offsets[b + 1] : b + 1;
        float *want = before + b % events * out_stride(s) + (size_t)(b / events) * s->d;
        for (uint32_t i = 0; i < s->d; i++) {
            float sum = 0.0F;
            for (uint32_t p = from; p < to; p++)
                sum += rows[p] != NULL ? rows[p][i] : 0.0F;
            want[i] = s->is_mean && to > from ? sum / (float)(to - from) : sum;
        }
    }
    TRIAL_CHECK(t, same_floats(before, out, events * out_stride(s) * sizeof(*out)));
}

static void build_gather(struct trial *t, const void *arg)
{
    const struct gather_shape *s = arg;
    uint32_t places = s->bags;
    uint32_t *offsets = NULL, *indices = NULL;
    if (s->has_offsets) {
        offsets = trial_input(t, "offsets", ((size_t)s->bags + 1) * sizeof(*offsets), sizeof(*offsets));
        places = fill_offsets(t, offsets, s->bags, s->longest);
    }
    uint32_t pointers = s->has_indices ? places / 2 + 1 : places;
    uint32_t count = pointers / 2 < 3000 ? pointers / 2 + 1 : 3000;
    struct trial_rows rows = trial_rows(t, s->format, s->d, 3, count, s->fill, false);
    void **list = trial_input(t, "list", pointers * sizeof(*list), sizeof(*list));
    const float **pointed = calloc(pointers + 1, sizeof(*pointed));
    const float **placed = calloc(places + 1, sizeof(*placed));
    for (uint32_t i = 0; i < pointers; i++) {
        uint32_t row = trial_below(t, 7) == 0 ? BATCH_NONE : trial_below(t, count);
        list[i] = row == BATCH_NONE ? NULL : trial_row(t, &rows, row);
        pointed[i] = row == BATCH_NONE ? NULL : (const float *)(const void *)(rows.host + row * rows.stride);
    }
    for (uint32_t i = 0; i < places && !s->has_indices; i++)
        placed[i] = pointed[i];
    if (s->has_indices) {
        indices = trial_input(t, "indices", places * sizeof(*indices), sizeof(*indices));
        for (uint32_t i = 0; i < places; i++)
            indices[i] = trial_below(t, 9) == 0 ? BATCH_NONE : trial_below(t, pointers);
        for (uint32_t i = 0; i < places; i++)
            placed[i] = indices[i] == BATCH_NONE ? NULL : pointed[indices[i]];
    }
    uint32_t events = s->fields > 0 ? s->bags / s->fields : s->bags;
    size_t bytes = sizeof(float) * events * out_stride(s);
    float *out = s->gap > 0 ? trial_changed(t, "out", bytes, TRIAL_MATRIX, same_floats)
                            : trial_output(t, "out", bytes, TRIAL_MATRIX, same_floats);
    if (s->gap > 0)
        trial_floats(t, out, bytes / sizeof(*out), FILL_PLAIN);
    float *before = memcpy(malloc(bytes + 1), out, bytes);
    struct batch_gather_pool a = {.rows = (const void *const *)PLACE(t, list),
                                  .indices = indices != NULL ? PLACE(t, indices) : NULL,
                                  .offsets = offsets != NULL ? PLACE(t, offsets) : NULL,
                                  .bags = s->bags,
                                  .d = s->d,
                                  .fields = s->fields,
                                  .stride = s->gap > 0 ? (uint32_t)out_stride(s) : 0,
                                  .format = s->format,
                                  .is_mean = s->is_mean,
                                  .out = PLACE(t, out)};
    TRIAL_CALL(t, gather_pool, &a);
    if (trial_is_scalar(t) && s->format == ROW_FP32)
        check_plainly(t, s, before, out, placed, offsets);
    free(before);
    free(pointed);
    free(placed);
}

static void try_gather(struct suite *suite, struct gather_shape s)
{
    suite_try(suite, build_gather, &s, "%u bags to %u, d %u, %u fields, gap %u, %s%s%s%s%s", s.bags,
              s.longest, s.d, s.fields, s.gap, format_names[s.format], s.has_indices ? ", indices" : "",
              s.has_offsets ? ", offsets" : "", s.is_mean ? ", mean" : "",
              s.fill == FILL_SPECIAL ? ", special" : "");
}

/* An example computed by hand: rows of 1, 2 and 4, and one NULL. */
static void build_known(struct trial *t, const void *arg)
{
    enum { D = 8, ROWS = 3 };
    (void)arg;
    struct trial_rows rows = trial_rows(t, ROW_BF16, D, 0, ROWS, FILL_PLAIN, false);
    static const uint16_t one[ROWS] = {0x3f80, 0x4000, 0x4080}; /* 1, 2, 4 */
    for (uint32_t u = 0; u < ROWS; u++) {
        for (size_t i = 0; i < D; i++)
            memcpy(rows.host + u * rows.stride + i * sizeof(*one), &one[u], sizeof(*one));
    }
    void **list = trial_input(t, "list", 4 * sizeof(*list), sizeof(*list));
    uint32_t *offsets = trial_input(t, "offsets", 4 * sizeof(*offsets), sizeof(*offsets));
    memcpy(offsets, (uint32_t[4]){0, 3, 3, 4}, 4 * sizeof(*offsets));
    list[0] = trial_row(t, &rows, 0), list[1] = NULL;
    list[2] = trial_row(t, &rows, 1), list[3] = trial_row(t, &rows, 2);
    float *out = trial_output(t, "out", sizeof(*out) * 3 * D, TRIAL_MATRIX, same_floats);
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
            try_gather(suite, (struct gather_shape){*n, d, f, false, false, false, fill, 0, 0, 0});
            try_gather(suite, (struct gather_shape){*n, d, f, true, false, true, FILL_PLAIN, 0, 0, 0});
            try_gather(suite, (struct gather_shape){*n, d, f, false, true, true, fill, 0, 0, 0});
            try_gather(suite, (struct gather_shape){*n, d, f, true, true, false, FILL_SPECIAL, 0, 0, 0});
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        try_gather(suite, (struct gather_shape){65, dims[i], (enum row_format)(i % 4), true, i % 2 == 0,
                                                false, FILL_PLAIN, 0, 0, 0});
    static const uint32_t events[] = {0, 1, 2, 33, 257}, fields[] = {1, 3, 26};
    for (uint32_t i = 0; i < 30; i++) { /* each number of events with each number of fields */
        uint32_t f = fields[i % 3];
        try_gather(suite,
                   (struct gather_shape){f * events[i % 5], dims[i % 8], (enum row_format)(i / 3 % 4),
                                         i % 4 < 2, i % 2 == 0, i % 7 < 3, FILL_PLAIN, f, i / 15 * 12, 0});
    }
    for (uint32_t i = 0; i < 4; i++) /* the longest lists that are allowed */
        try_gather(suite, (struct gather_shape){7, dims[2 * i], (enum row_format)i, i < 2, true, true,
                                                FILL_PLAIN, 0, 0, 1024});
    uint32_t huge = suite_huge(suite);
    try_gather(suite, (struct gather_shape){huge, 4, ROW_FP32, true, true, false, FILL_PLAIN, 0, 0, 0});
    try_gather(suite,
               (struct gather_shape){huge / 3 * 3, 8, ROW_FP32, true, false, false, FILL_PLAIN, 3, 4, 0});
}
