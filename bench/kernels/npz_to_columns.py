#!/usr/bin/env python3
"""Decoded columns for bench_learners from the .npz of shared/peers/learners/gen.py: npz_to_columns.py IN.npz OUT.bin

Layout, little-endian: u64 events, fields, dense; then columns: fields x u64 hashed ids, dense x f32, f32 labels,
i64 event time in microseconds, f32 second labels (peers/torch/second_label.py)."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers", "torch"))
from second_label import kept  # noqa: E402


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def main():
    data = np.load(sys.argv[1])
    ids, dense, labels = data["X"], data["D"], data["y"]
    events, fields = ids.shape
    with open(sys.argv[2], "wb") as out, np.errstate(over="ignore"):
        np.array([events, fields, dense.shape[1]], np.uint64).tofile(out)
        for field in range(fields):
            mix(ids[:, field].astype(np.uint64) + np.uint64((field + 1) << 40)).tofile(out)
        for column in range(dense.shape[1]):
            dense[:, column].astype(np.float32).tofile(out)
        labels.astype(np.float32).tofile(out)
        (data["ts"].astype(np.int64) * 1000).tofile(out)
        kept(ids, dense, labels, data["ts"]).astype(np.float32).tofile(out)


if __name__ == "__main__":
    main()
