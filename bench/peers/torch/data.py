"""Examples as tensors, and how predictions are scored."""

import numpy as np
import torch

from second_label import FIELDS, kept

BITS = 22  # of a row's number: fields share 2^22 rows, ids are hashed


def load(path, examples, labels, fields):
    """ids int64[n, fields], dense float[n, 4], labels float[n, labels] of gen.py's .npz, and the number of rows.
    `fields` names some of the twelve, or is None."""
    data = np.load(path)
    x, dense, y, ts = (data[name][:examples or None] for name in ("X", "D", "y", "ts"))
    y = np.stack([y, kept(x, dense, y, ts)][:labels], 1)
    hashed = x.astype(np.uint64) + (np.arange(x.shape[1], dtype=np.uint64) << np.uint64(32))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):  # MurmurHash3's finalizer
        hashed ^= hashed >> np.uint64(33)
        hashed *= np.uint64(factor)
    hashed ^= hashed >> np.uint64(33)
    ids = (hashed & np.uint64((1 << BITS) - 1)).astype(np.int64)
    if fields:
        ids = np.ascontiguousarray(ids[:, [FIELDS.index(name) for name in fields]])
    return torch.from_numpy(ids), torch.from_numpy(dense), torch.from_numpy(y.astype(np.float32)), 1 << BITS


def synthetic(examples, tables=26, rows=100_000, dense=13, exponent=1.05):
    """As load() gives them: ids of a Zipf law over each table's rows, popular ones anywhere; labels by chance."""
    random = np.random.default_rng(1)
    share = np.cumsum((np.arange(rows) + 1.0) ** -exponent)
    ids = np.searchsorted(share / share[-1], random.random((examples, tables))).clip(0, rows - 1)
    for table in range(tables):
        ids[:, table] = random.permutation(rows)[ids[:, table]] + table * rows
    numbers = random.random((examples, dense), dtype=np.float32)
    labels = (random.random((examples, 1)) < 0.25).astype(np.float32)
    return torch.from_numpy(ids), torch.from_numpy(numbers), torch.from_numpy(labels), tables * rows


def logloss(p, y):
    p = np.clip(p.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))


def auc(p, y):
    """Share of (positive, negative) in order; ties count half."""
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[place]
    positive = float((y == 1).sum())
    return float((rank[y == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive)))


def scores(p, y):
    """Of the whole run and of its last fifth; p, y: [n, labels]."""
    late, found = int(len(y) * 0.8), {}
    for i, name in enumerate(("", "kept_")[:y.shape[1]]):
        found[name + "logloss"] = round(logloss(p[:, i], y[:, i]), 5)
        found[name + "auc"] = round(auc(p[:, i], y[:, i]), 5)
        found[name + "logloss_last"] = round(logloss(p[late:, i], y[late:, i]), 5)
        found[name + "auc_last"] = round(auc(p[late:, i], y[late:, i]), 5)
    return found
