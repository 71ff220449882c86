"""torch's scaled_dot_product_attention on the batches of bench/kernels/bench_attention.c --rows, causal, one thread.

One line a batch: d, length, least CPU seconds forward and forward with backward, the sums of |out| and |dq|."""

import time

import numpy
import torch

HEADS, BATCH_ROWS, ROUNDS, ROUND_S = 2, 4096, 5, 0.06


def numbers(count, first):
    """The numbers of fill() in bench_attention.c."""
    bits = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(first)) * numpy.uint64(2654435761) & numpy.uint64(2**32 - 1)
    return (bits >> numpy.uint64(8)).astype(numpy.float32) * numpy.float32(2**-24) - numpy.float32(0.5)


def batch(length, d):
    """q, k, v and the gradient by the output, each [window][head][token][d] and contiguous."""
    windows = max(1, BATCH_ROWS // length)
    shape = (windows, length, 3, HEADS, d)
    qkv = torch.from_numpy(numbers(int(numpy.prod(shape)), 1).reshape(shape))
    dout = torch.from_numpy(numbers(windows * length * HEADS * d, 77).reshape(windows, length, HEADS, d))
    q, k, v = (qkv[:, :, i].transpose(1, 2).contiguous().requires_grad_(True) for i in range(3))
    return q, k, v, dout.transpose(1, 2).contiguous()


def attend(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def repeat(run):
    """Least CPU seconds of all repetitions. The process's clock: autograd may use a thread of its own."""
    least = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        last = begin
        while last - begin < ROUND_S:
            run()
            now = time.process_time()
            least, last = min(least, now - last), now
    return least


def main():
    torch.set_num_threads(1)
    for d in (32, 64):
        for length in (50, 200, 2048):
            q, k, v, dout = batch(length, d)

            def forward(q=q, k=k, v=v):
                with torch.no_grad():
                    return attend(q, k, v)

            def both(q=q, k=k, v=v, dout=dout):
                q.grad = k.grad = v.grad = None
                attend(q, k, v).backward(dout)

            seconds = repeat(forward), repeat(both)
            sums = forward().double().abs().sum().item(), q.grad.double().abs().sum().item()
            print(d, length, *(f"{s:.9f}" for s in seconds), *(f"{s:.6f}" for s in sums))


if __name__ == "__main__":
    main()
