#include "learners/train/scale.h"

#include "learners/train/train.h"

#include <math.h>
#include <string.h>

bool scale_set(struct train *t, struct train_scale scale)
{
    int exponent;
    if (!(scale.scale >= SCALE_MIN && scale.scale <= SCALE_MAX) || frexpf(scale.scale, &exponent) != 0.5F)
        return false;
    t->scale = scale;
    t->net.scale = scale.scale;
    return true;
}

/* If gradients leave the range of fp16 even at the least scale, the kernels skip the values that are not
 * finite, and the next step begins with the scale `first` again instead of the least one. */
bool scale_judge(struct train *t, float first, bool *is_again, struct gpu_error *error)
{
    struct train_scale *s = &t->scale;
    size_t rows = net_gradient_rows(&t->net);
    net_check(&t->net);
    train_copy(&t->device, t->host_finite, t->net.is_finite, rows);
    if (!train_wait(&t->device, error))
        return false;
    bool is_finite = memchr(t->host_finite, 0, rows) == NULL;
    *is_again = !is_finite && s->scale > SCALE_MIN;
    if (!is_finite) {
        s->scale = *is_again ? s->scale * 0.5F : first;
        s->lowered += *is_again, s->good = 0;
    } else if (++s->good >= SCALE_GROWS_AFTER && s->scale < SCALE_MAX) {
        s->scale *= 2.0F, s->good = 0;
    }
    t->net.scale = s->scale;
    return true;
}
