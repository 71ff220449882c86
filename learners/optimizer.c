#include "learners/options.h"

void optimizer_begin_step(struct optimizer_options *o, uint64_t step)
{
    if (o->kind != OPT_ADAM)
        return;
    double power[2] = {1.0, 1.0}, base[2] = {(double)o->params.beta1, (double)o->params.beta2};
    for (uint64_t t = step + 1; t > 0; t >>= 1) {
        for (int i = 0; i < 2; i++) {
            power[i] *= t & 1 ? base[i] : 1.0;
            base[i] *= base[i];
        }
    }
    o->params.correction1 = (float)(1.0 / (1.0 - power[0]));
    o->params.correction2 = (float)(1.0 / (1.0 - power[1]));
}
