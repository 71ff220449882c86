#!/usr/bin/env python3
"""Every way to run a step gives the same predictions and weights: sparse gradients, touched rows by their number and
by static shapes, either way to sum; on a GPU also eager steps and the CUDA graph. Made-up examples, some seconds."""

import sys

import torch

import train
from models import MODELS

FIELDS, DENSE, ROWS, BATCH, STEPS = 12, 4, 500, 64, 8


def examples(labels, fields):
    torch.manual_seed(2)
    n = BATCH * STEPS
    ids = (torch.rand(n, fields) ** 3 * ROWS).long()  # some are in many examples of a batch
    return ids, torch.randn(n, DENSE), torch.randint(0, 2, (n, labels)).float()


def run(model, tensors, *arguments, is_static=False):
    options = train.parse([model, "unread.npz", "--batch", str(BATCH), *arguments])
    torch.manual_seed(1)
    eager = train.Step(options, tensors[0].shape[1], DENSE, ROWS)
    step = eager
    if options.device == "cuda":
        tensors = [tensors[0].int().pin_memory(), *(t.pin_memory() for t in tensors[1:])]
    elif is_static:
        eager.table.is_static = True
    if options.cuda_graphs:
        step = train.GraphedStep(eager, *(t[:BATCH] for t in tensors))
    out = torch.empty(tensors[2].shape, device=options.device)
    train.learn(step, eager, tensors, out, options)
    return [out.cpu(), *(t.cpu()[:ROWS] if t.dim() == 2 else t.cpu() for t in eager.state())]


def differs(ours, wanted):
    """By more than sums in another order explain. AdaGrad's first step is +-rate by the gradient's sign alone: where
    that is 0 but for rounding, a weight may differ by twice the rate; one in a thousand may."""
    off = [((a - b).abs() > 1e-3 * (1 + b.abs())).float().mean() for a, b in zip(ours, wanted, strict=True)]
    return max(off) > 1e-3


def main():
    bad = 0
    ways = [(), ("--sum-by", "embedding")]
    gpu = [("--device", "cuda", *how, *graphs) for how in ways for graphs in ((), ("--cuda-graphs",))]
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        gpu = []
    for model, (kind, _) in MODELS.items():
        tensors = examples(getattr(kind, "labels", 1), len(getattr(kind, "fields", "x" * FIELDS)))
        wanted = run(model, tensors)
        for is_static, way in ([(static, ("--rows", "touched", *how)) for how in ways for static in (False, True)]
                               + [(True, way) for way in gpu]):
            found = run(model, tensors, *way, is_static=is_static)
            is_off = differs(found, wanted)
            bad += is_off
            print("not ok" if is_off else "ok", "-", model, *way, "static" if is_static else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
