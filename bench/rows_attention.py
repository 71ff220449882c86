"""Rows of the table: the attention kernels beside PyTorch's scaled_dot_product_attention, causal, on one core.

Both take the same batches and the least CPU time of many repetitions, in turns; LEAT_TORCH names a Python with torch and
numpy (peers/torch/README.md), without it the row is skipped."""

import os

from harness import ROOT, Figure, Peer, median
from rows_torch import ONE_CORE, torch_python

TARGETS = {50: 2.0, 200: 2.0, 2048: 1.1}  # by length: times PyTorch
PEER = os.path.join(ROOT, "bench", "peers", "torch", "attention.py")
SAME = 1e-4  # of the sums of |out| and |dq|, which are of float32


def lines_of(output):
    found = {}
    for line in output.splitlines():
        d, length, *numbers = line.split()
        found[int(d), int(length)] = [float(number) for number in numbers]
    return found


def run_torch(bench):
    return lines_of(bench.run([*ONE_CORE, torch_python(), PEER]).output)


def run_leat(bench):
    return lines_of(bench.run([*ONE_CORE, bench.program("kernels", "bench_attention"), "--rows"]).output)


def figure(d, length, way, theirs, ours):
    """way: 0 forward, 1 forward and backward."""
    flops = d * length * (length + 1) * max(1, 4096 // length) * 2 * (2, 7)[way]
    for key in (2, 3):
        mine, other = ours[0][d, length][key], theirs[0][d, length][key]
        if abs(mine - other) > SAME * other:
            raise SystemExit(f"attention, d {d}, length {length}: sum {mine}, PyTorch has {other}")
    leat, torch = (median([flops / run[d, length][way] / 1e9 for run in runs]) for runs in (ours, theirs))
    what = f"attention, d {d}, length {length}, {('forward', 'forward and backward')[way]}"
    return Figure(what, "GFLOP/s", leat, TARGETS[length] * torch,
                  peers=[Peer("PyTorch, one thread", torch, "same run")], note=f"{leat / torch:.2f} times PyTorch.",
                  checked="sums of |out| and |dq| beside PyTorch's")


def row_attention(bench):
    torch_python()
    theirs, ours = bench.repeat(lambda: run_torch(bench), lambda: run_leat(bench))
    return [figure(d, length, way, theirs, ours) for d in (32, 64) for length in TARGETS for way in (0, 1)]


ROWS = {"attention": ("attention kernels beside PyTorch's, on one core", row_attention)}
