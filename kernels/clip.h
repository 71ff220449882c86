/* The arithmetic of the kernel clip (batch.h), shared by all variants. */
#ifndef LEAT_KERNELS_CLIP_H
#define LEAT_KERNELS_CLIP_H

#include "kernels/num.h"

#include <math.h>

static inline KERNELS_BOTH float clip_scale(const double *squares, uint32_t count, float norm_max)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += squares[i];
    double norm = sqrt(sum);
    if (!(norm - norm == 0.0)) /* infinite, or not a number */
        return 0.0F;
    return norm > (double)norm_max ? (float)((double)norm_max / norm) : 1.0F;
}

#endif
