#!/usr/bin/env python3
"""FTRL-proximal (McMahan 2013, algorithm 1) in plain Python: writes ftrl_expected.h for test_ftrl.c.

The events come from a generator both sides know (splitmix64's finish of a counter). Prints each event's logit before
it is learned. Run: python3 ftrl_reference.py > ftrl_expected.h"""
import math
from collections import defaultdict

EVENTS, FIELDS, DENSE = 500, 3, 2
ALPHA, BETA, L1, L2 = 0.15, 1.0, 0.05, 0.3
MASK = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def event(i):
    ids = [1 + mix(i * 8 + f) % (5 + 300 * f) for f in range(FIELDS)]
    dense = [(mix(i * 8 + 4 + d) % 2048) / 1024.0 - 1.0 for d in range(DENSE)]  # exact in float
    label = 1.0 if mix(i * 8 + 7) % 100 < 20 + 8 * (ids[0] % 5) + 10 * dense[0] else 0.0
    return ids, dense, label


def weight(z, n):
    if abs(z) <= L1:
        return 0.0
    return -(z - math.copysign(L1, z)) / ((BETA + math.sqrt(n)) / ALPHA + L2)


def main():
    z, n = defaultdict(float), defaultdict(float)
    print("/* Written by ftrl_reference.py. */\nstatic const double ftrl_expected[] = {")
    for i in range(EVENTS):
        ids, dense, label = event(i)
        x = {(f, ids[f]): 1.0 for f in range(FIELDS)}
        x.update({("dense", d): dense[d] for d in range(DENSE)})
        x["bias"] = 1.0
        w = {k: weight(z[k], n[k]) for k in x}
        logit = sum(w[k] * v for k, v in x.items())
        print("    %r," % logit)
        p = 1.0 / (1.0 + math.exp(-logit))
        for k, v in x.items():
            g = (p - label) * v
            sigma = (math.sqrt(n[k] + g * g) - math.sqrt(n[k])) / ALPHA
            z[k] += g - sigma * w[k]
            n[k] += g * g
    print("};")


if __name__ == "__main__":
    main()
