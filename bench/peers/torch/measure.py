#!/usr/bin/env python3
"""measure.py DATA/ctr_1m.npz [MODEL...]: the table of RESULTS.md, on a CPU.

Speed: medians of three runs of 100,000 examples, both ways of updating rows in turns, examples by CPU second (user +
system; with two threads by wall), each run's median over its windows. Logloss and AUC: one run of the whole file."""

import os
import statistics
import sys

import torch

import train

MODELS = ["linear", "fm", "ffm", "mf", "deepfm", "dcnv2", "dlrm", "mmoe"]
REPEATS, SHORT = 3, 100_000
RUNS = [(1, 512), (1, 4096)]


def cut(tensors, count):
    return [t[:count] for t in tensors]


def row(model, path, threads, batch, tensors, rows):
    """Prints one line of the table."""
    def options(way):
        given = ["--rows", "touched", "--sum-by", "embedding"] if way == "touched" else ["--rows", way]
        return train.parse([model, path, "--threads", str(threads), "--batch", str(batch), *given])

    is_made_up = model == "dlrm-small"
    runs = {"sparse": [], "touched": []}
    for _ in range(REPEATS):
        for way, found in runs.items():
            found.append(train.run(options(way), tensors if is_made_up else cut(tensors, SHORT), rows)[0])

    def median(way, key):
        return f"{statistics.median(run[key] for run in runs[way]):,.0f}"

    whole = runs["touched"][-1] if is_made_up else train.run(options("touched"), tensors, rows)[0]
    quality = ["", "", ""] if is_made_up else [
        f"{whole['logloss']:.5f}" + (f" + {whole['kept_logloss']:.5f}" if "kept_logloss" in whole else ""),
        f"{whole['auc']:.4f}", f"{whole['logloss_last']:.5f}"]
    shares = " ".join(f"{share * 100:.0f}" for share in whole["split"].values())
    cells = [model, batch, threads, median("sparse", "examples_cpu_s"), median("touched", "examples_cpu_s"),
             f"{median('sparse', 'examples_s')}, {median('touched', 'examples_s')}", *quality, shares,
             f"{whole['rate']:g}, {whole['dense_rate']:g}"]
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def main():
    path, *models = sys.argv[1:]
    print(f"torch {torch.__version__}; load of the machine {os.getloadavg()[0]:.1f}; split: gather, forward, "
          "backward, update of `touched`")
    print("| model | batch | threads | sparse, examples/CPU s | touched, examples/CPU s | by wall, both | logloss "
          "| AUC | logloss, last fifth | split % | rates |\n|" + "---|" * 11)
    for model in models or [*MODELS, "dlrm-small"]:
        batches = [(1, 2048)] if model == "dlrm-small" else RUNS + [(2, 512), (2, 4096)] * (model == "deepfm")
        tensors, rows = train.examples_of(train.parse([model, path, "--batch", "2048"]))
        for threads, batch in batches:
            row(model, path, threads, batch, tensors, rows)


if __name__ == "__main__":
    main()
