/* add_rows, relu_mask and clip of batch_train.h: the parts of a network besides matrix products. */
#include "kernels/clip.h"

static void batch_add_rows(struct batch_add_rows *a, void *stream)
{
    (void)stream;
    size_t columns = a->columns, x_stride = matrix_stride(a->x_stride, columns);
    size_t y_stride = matrix_stride(a->y_stride, columns);
    for (size_t e = 0; e < a->n; e++) {
        float *x = a->x + e * x_stride;
        const float *y = a->y + e * y_stride;
        for (size_t c = 0; c < columns; c++)
            x[c] += y[c];
    }
}

static void batch_relu_mask(struct batch_relu_mask *a, void *stream)
{
    (void)stream;
    size_t columns = a->columns, stride = matrix_stride(a->stride, columns);
    size_t y_stride = matrix_stride(a->y_stride, columns);
    for (size_t e = 0; e < a->n; e++) {
        float *x = a->x + e * stride;
        const float *y = a->y + e * y_stride;
        for (size_t c = 0; c < columns; c++)
            x[c] = y[c] > 0.0F ? x[c] : 0.0F;
    }
}

static void batch_clip(struct batch_clip *a, void *stream)
{
    (void)stream;
    a->scale[0] = clip_scale(a->squares, a->count, a->norm_max);
}
