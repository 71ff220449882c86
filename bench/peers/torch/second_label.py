#!/usr/bin/env python3
"""second_label.py DATA/ctr_1m: a second label for learners of two tasks.

Writes `kept` (1: the visitor stayed on the page) beside gen.py's files: STEM.kept.npy (uint8), and with --json
STEM.two.jsonl, the events of STEM.jsonl with `kept` as their last member. It is a function of the row alone: chance
is a hash of the row's ids, its time and its number. It is planted as

  logit = -0.6 + clicked + effects of item, site and (category, device) - 0.3 price + 0.8 (score - 0.4)

with effects uniform by hash of the id, so that `clicked`'s features say something of it, and not all."""

import argparse

import numpy as np

FIELDS = ("user", "item", "adv", "cat", "site", "slot", "dev", "os", "br", "city", "query", "hour")


def mix(x):
    """The finalizer of splitmix64 (Steele 2014)."""
    x = x.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def unit(hashes):
    """[0, 1), of 53 bits"""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def effect(ids, salt, scale):
    return scale * (2 * unit(mix(mix(ids) + np.uint64(salt))) - 1)


def kept(x, dense, y, ts):
    """x: ids int[n, 12], dense: float[n, 4], y: clicked, ts: ms -> uint8[n]"""
    column = {name: x[:, i].astype(np.uint64) for i, name in enumerate(FIELDS)}
    logit = (-0.6 + y + effect(column["item"], 1, 0.8) + effect(column["site"], 2, 0.8)
             + effect(column["cat"] * np.uint64(4096) + column["dev"], 3, 1.2)
             - 0.3 * dense[:, 0] + 0.8 * (dense[:, 3] - 0.4))
    chance = mix(np.arange(len(y)) + 1) ^ ts.astype(np.uint64)
    for ids in column.values():
        chance = mix(chance + ids)
    return (unit(chance) < 1 / (1 + np.exp(-logit))).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stem")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    data = np.load(options.stem + ".npz")
    labels = kept(data["X"], data["D"], data["y"], data["ts"])
    np.save(options.stem + ".kept.npy", labels)
    if options.json:
        with open(options.stem + ".jsonl", encoding="ascii") as lines, \
                open(options.stem + ".two.jsonl", "w", encoding="ascii") as out:
            out.writelines(f'{line.rstrip()[:-1]},"kept":{label}}}\n'
                           for line, label in zip(lines, labels, strict=True))
    print(f"kept: {labels.mean():.4f} of all, {labels[data['y'] == 1].mean():.4f} of the clicked")


if __name__ == "__main__":
    main()
