"""Rows of the table: steps of whole batches beside PyTorch (peers/torch), which has the same shapes, rates and first sums.

Both learn the same decoded events from memory, one after the other, on one core; leat on two as well. LEAT_TORCH names a
Python with torch and numpy (peers/torch/README.md); without it the row is skipped."""

import json
import os
import subprocess

from harness import ROOT, Figure, Peer, Skip, median
from rows_learn import GENERATOR, columns_of

EVENTS, EVENTS_QUICK = 1_000_000, 100_000
BATCHES = (512, 4096)
TARGETS = {1: 2.0, 2: 4.0}  # by cores: times PyTorch on one
TRAIN = os.path.join(ROOT, "bench", "peers", "torch", "train.py")
ONE_CORE = ["taskset", "-c", "0"]
# What models.py and train.py take: the sum over a batch here is its mean there, whose first sums are divided by batch^2.
FIRST, RATE, INIT = 0.3, 0.05, 0.0173  # uniform within this is as wide as their normal 0.01
# A linear model's bias alone takes a thousand steps to the mean label's logit: here it starts there, as in jobs/*.leat;
# theirs starts at -0.47, by seed.
SHAPES = {
    "linear": ["bias=-1.7"], "fm": ["dim=16", "bias=-1.7"], "ffm": ["dim=8", "bias=-1.7"],
    "mf": ["dim=16", "bias=-1.7"], "deepfm": ["bias=-1.7"], "dcnv2": [], "dlrm": [], "mmoe": [],
}


def torch_python():
    python = os.environ.get("LEAT_TORCH", os.path.join(ROOT, "build", "bench", "torch", "bin", "python"))
    try:
        subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise Skip("no PyTorch: LEAT_TORCH=its Python (bench/peers/torch/README.md)") from None
    return python


def events_of_torch(bench):
    def make(path):
        bench.run([torch_python(), GENERATOR, "--events", str(EVENTS), "--seed", "7", "--npz", "--no-json", "--out", path])
    return os.path.join(bench.made("ctr-seed7-npz", make), "ctr_1m.npz")


def dense_rate(batch):
    return RATE if batch < 2048 else 0.02


def run_torch(bench, model, batch, events):
    """(examples/CPU s, loglosses): the better of its two ways to update rows is `touched` (RESULTS.md)."""
    run = bench.run([*ONE_CORE, torch_python(), TRAIN, model, events_of_torch(bench), "--threads", "1", "--batch",
                     str(batch), "--examples", str(events), "--rows", "touched", "--sum-by", "embedding"])
    found = json.loads(run.output.splitlines()[-1])
    return found["examples_cpu_s_total"], [found[key] for key in ("logloss", "kept_logloss") if key in found]


def run_leat(bench, model, batch, events, cores):
    """By CPU time; on two cores, where another lane helps, by wall time."""
    run = bench.run([*(ONE_CORE if cores == 1 else []), bench.program("kernels", "bench_learners"), columns_of(bench),
                     f"model={model}", *SHAPES[model], f"helper={cores - 1}", f"batch={batch}", f"limit={events}",
                     f"rate={RATE}", f"lrate={RATE}",
                     f"hrate={dense_rate(batch)}", f"acc={FIRST}", f"lacc={FIRST}", f"hacc={FIRST}", f"init={INIT}"])
    lines = run.output.splitlines()
    words = lines[0].split()
    return 1000 * float(words[0]), [float(words[3]), *[float(line.split()[-1]) for line in lines[1:]]]


def figures(bench, model, batch):
    events = bench.size(EVENTS, EVENTS_QUICK)
    theirs, *ours = bench.repeat(lambda: run_torch(bench, model, batch, events),
                                 *(lambda cores=cores: run_leat(bench, model, batch, events, cores) for cores in TARGETS))
    return [figure(model, batch, cores, theirs, mine) for cores, mine in zip(TARGETS, ours, strict=True)]


def figure(model, batch, cores, theirs, ours):
    torch, leat = median([rate for rate, _ in theirs]), median([rate for rate, _ in ours])
    ratios = [mine / other for (mine, _), (other, _) in zip(ours, theirs, strict=True)]
    torch_loss, leat_loss = theirs[0][1], ours[0][1]
    note = (f"Of pairs of runs {min(ratios):.2f} to {max(ratios):.2f} times; loglosses "
            f"{' and '.join(f'{loss:.5f}' for loss in leat_loss)}, PyTorch's {' and '.join(f'{loss:.5f}' for loss in torch_loss)}; "
            f"load of the machine {os.getloadavg()[0]:.1f}.")
    what = "examples by CPU second, one core" if cores == 1 else "examples by second, two cores"
    return Figure(f"{model}, batch {batch}: {what}", "k/s", leat / 1e3, TARGETS[cores] * torch / 1e3,
                  peers=[Peer("PyTorch, one thread", torch / 1e3, "same run")], quality=sum(leat_loss),
                  quality_target=round(sum(torch_loss), 5), note=note,
                  checked="logloss of all predictions, each made before its example was learned; the sum of both labels'")


def row_torch(bench):
    torch_python()
    return [found for model in SHAPES for batch in BATCHES for found in figures(bench, model, batch)]


ROWS = {"learners-torch": ("steps of whole batches beside PyTorch on one core", row_torch)}
