#!/usr/bin/env python3
"""Histograms of /metrics beside those of HdrHistogram, on the same planted times. Prints TAP.

    tests/serve/test_histograms.py PATH_OF_LEAT_FIGURES_ECHO
"""

import math
import os
import random
import re
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import packages  # noqa: E402
import tap  # noqa: E402

ECHO = os.path.abspath(sys.argv[1])
SAMPLE = re.compile(r'^leat_serve_seconds_(bucket|sum|count)\{model="planted",phase="all"(?:,le="([^"]*)")?\} (\S+)$', re.M)
COUNT, LARGEST_NS, DIGITS, TOLERANCE = 50_000, 60 * 10**9, 4, 0.01


def said(values):
    """({upper bound in ns: count}, sum in ns, count) of the metrics of these values."""
    text = "\n".join(map(str, values))
    done = subprocess.run([ECHO], input=text, capture_output=True, text=True, check=True)
    buckets, rest = {}, {}
    for kind, bound, value in SAMPLE.findall(done.stdout):
        if kind == "bucket":
            buckets[float(bound) * 1e9] = int(value)
        else:
            rest[kind] = float(value)
    return buckets, rest["sum"] * 1e9, int(rest["count"])


def planted(name, rng):
    if name == "lognormal":
        return [min(int(rng.lognormvariate(13, 1.7)) + 1, LARGEST_NS) for _ in range(COUNT)]
    if name == "two_modes":
        return [rng.randrange(200_000, 260_000) if rng.random() < 0.97 else rng.randrange(40_000_000, 55_000_000)
                for _ in range(COUNT)]
    if name == "wide":
        return [int(10 ** rng.uniform(2, 10.7)) for _ in range(COUNT)]
    return [1_500_000] * COUNT  # constant


def compare(name):
    if why := packages.missing():
        return why
    packages.use()
    from hdrh.histogram import HdrHistogram
    values = planted(name, random.Random(name))
    hdr = HdrHistogram(1, LARGEST_NS, DIGITS)
    for value in values:
        assert hdr.record_value(value), value
    buckets, total, count = said(values)
    assert count == hdr.get_total_count() == buckets[math.inf], (count, buckets)
    mean = hdr.get_mean_value()
    assert abs(total / count - mean) <= TOLERANCE * mean, (total / count, mean)
    bounds, seen, counted = sorted(buckets)[:-1], 0, 0
    assert len(bounds) >= 20 and [buckets[bound] for bound in bounds] == sorted(buckets[bound] for bound in bounds)
    recorded = iter(sorted((item.value_iterated_to, item.count_added_in_this_iter_step) for item in
                           hdr.get_recorded_iterator()))
    item = next(recorded, None)
    for bound in bounds:
        while item is not None and item[0] <= bound:
            seen, item = seen + item[1], next(recorded, None)
        # Of the values in the bucket at the bound, HdrHistogram does not know on which side they are.
        assert abs(buckets[bound] - seen) <= max(TOLERANCE * count, 1), (name, bound, buckets[bound], seen)
        counted += 0 < buckets[bound] < count
    assert counted >= 1 or name == "constant", buckets
    # A quantile lies between the bounds of the bucket that Prometheus finds it in.
    for quantile in (1, 10, 50, 90, 99, 99.9):
        value = hdr.get_value_at_percentile(quantile)
        rank = quantile / 100 * count
        above = next((bound for bound in bounds if buckets[bound] >= rank), math.inf)
        below = max((bound for bound in bounds if buckets[bound] < rank), default=0)
        assert below * (1 - TOLERANCE) <= value <= above * (1 + TOLERANCE), (name, quantile, below, value, above)
    return None


def test_lognormal():
    return compare("lognormal")


def test_two_modes():
    return compare("two_modes")


def test_wide():
    return compare("wide")


def test_constant():
    return compare("constant")


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
