/*
 * loss of batch_train.h.
 *
 *   naive          prediction, gradient and rejection by three kernels              not measured
 *   fused          one thread per event: each number is read and written once       not measured
 *   warps count    one atomic addition for the rejected events of a warp, none if   not measured
 *                  there are none
 *
 * The limit is memory bandwidth, fourteen bytes per event, or double arithmetic, 45 operations per event.
 */
#define KERNELS_LANES_CUDA
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/lanes.h"

#include "kernels/logistic.inc.h"

enum { LOSS_BLOCK = 256 };

/* The gradient of the loss of event e by the logit, as batch_loss.inc.h computes it for blocks. */
static __device__ float loss_gradient(const batch_loss &a, size_t e, float logit)
{
    const float label = a.labels[e];
    const bool is_positive = label > 0.5F;
    double weight = a.weights != nullptr ? (double)a.weights[e] : 1.0, p = (double)logit;
    if (!a.is_squared) {
        p = sigmoid_of(p);
        weight *= (double)(is_positive ? a.class_weights[1] : a.class_weights[0]);
        if (a.has_fake_negatives)
            weight *= fake_negative_weight(p, is_positive);
    }
    return (float)((p - (double)label) * weight) * a.scale;
}

static __global__ void __launch_bounds__(LOSS_BLOCK) loss_kernel(batch_loss a)
{
    const size_t e = cuda_thread();
    bool is_rejected = false;
    if (e < a.n) {
        float logit = a.logits[e];
        if (a.more != nullptr)
            logit += a.more[e * a.more_stride];
        const float gradient = loss_gradient(a, e, logit);
        is_rejected = a.is_rejected[e] != 0 || !float_is_finite(logit) || !float_is_finite(gradient);
        if (a.sums != nullptr)
            a.sums[e] = logit;
        a.gradients[e * (a.gradients_stride > 0 ? a.gradients_stride : 1)] = is_rejected ? 0.0F : gradient;
        a.is_rejected[e] = is_rejected;
    }
    const unsigned all = __ballot_sync(WARP_ALL, is_rejected);
    if (all != 0 && a.rejected != nullptr && threadIdx.x % WARP_LANES == 0)
        atomicAdd(a.rejected, (unsigned)__popc(all));
}

void cuda_loss(batch_loss *a, void *stream)
{
    if (a->n == 0)
        return;
    LAUNCH(loss_kernel, cuda_blocks(a->n, LOSS_BLOCK), LOSS_BLOCK, 0, gpu_cuda_stream(stream), *a);
    (void)gpu_launched(stream, "loss");
}
