/*
 * cross of batch_train.h: element by element. Forward reads twelve bytes and writes four per element, for one
 * operation; backward reads 20 and writes 12. The limit is memory bandwidth.
 *
 *   naive          one thread per element, and a division to find its row         not measured
 *   sixteen bytes  16 bytes per lane, one group of lanes per row: whole cache     not measured
 *                  lines, one division per thread, all of a thread's loads in
 *                  flight
 *   one pass       forward and backward read x0 and z once                        not measured
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/parts.cuh"

enum { BLOCK = 256 };

/* Four columns of an event. */
static __device__ void cross_four(const batch_cross &a, size_t event, uint32_t column)
{
    const uint32_t columns = a.columns;
    const v16 x0 = matrix_load(a.x0 + event * a.x0_stride, column, columns, true);
    const v16 z = matrix_load(a.z + event * a.z_stride, column, columns, true);
    if (a.out != nullptr) {
        const v16 x = matrix_load(a.x + event * a.x_stride, column, columns, true);
        matrix_store(a.out + event * a.out_stride, column, columns, true, v16_fma(x0, z, x));
    }
    if (a.out_gradients == nullptr)
        return;
    const v16 out_gradients =
        matrix_load(a.out_gradients + event * a.out_gradients_stride, column, columns, true);
    float *x0_gradients = a.x0_gradients + event * a.x0_stride;
    v16 before = matrix_load(x0_gradients, column, columns, true);
    matrix_store(a.z_gradients + event * a.z_stride, column, columns, true, v16_mul(out_gradients, x0));
    if (a.x_gradients == a.x0_gradients) {
        before = v16_add(out_gradients, before);
    } else {
        float *x_gradients = a.x_gradients + event * a.x_stride;
        const v16 kept = a.adds ? matrix_load(x_gradients, column, columns, true) : out_gradients;
        matrix_store(x_gradients, column, columns, true,
                     a.adds ? v16_add(kept, out_gradients) : out_gradients);
    }
    matrix_store(x0_gradients, column, columns, true, v16_fma(out_gradients, z, before));
}

/* The strides of `a` are not 0. */
static __global__ void __launch_bounds__(BLOCK) cross_kernel(batch_cross a, unsigned lanes)
{
    const size_t event = cuda_thread() / lanes;
    if (event >= a.n)
        return;
    for (uint32_t column = threadIdx.x % lanes * 4; column < a.columns; column += lanes * 4)
        cross_four(a, event, column);
}

void cuda_cross(batch_cross *a, void *stream)
{
    if (a->n == 0 || a->columns == 0)
        return;
    const unsigned lanes = matrix_lanes(a->columns, 1);
    batch_cross of = *a;
    of.x0_stride = matrix_stride(a->x0_stride, a->columns);
    of.x_stride = matrix_stride(a->x_stride, a->columns);
    of.z_stride = matrix_stride(a->z_stride, a->columns);
    of.out_stride = matrix_stride(a->out_stride, a->columns);
    of.out_gradients_stride = matrix_stride(a->out_gradients_stride, a->columns);
    LAUNCH(cross_kernel, cuda_blocks((size_t)a->n * lanes, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), of,
           lanes);
    (void)gpu_launched(stream, "cross");
}
