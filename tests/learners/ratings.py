#!/usr/bin/env python3
"""mf without an option: its bias is the mean of the labels so far, what it learns is what they are beside it, and its rates
rate no worse than the factorization that River has (reco.BiasedMF of 0.26, Koren 2009), which is written out below: plain SGD
at its default rate, and at the best of those that its documentation and we tried on the recording.

    tests/learners/ratings.py PATH_OF_LEAT [PATH_OF_LEAT_CUDA_ON_HOST_SO]

The recording is ml_latest_small (GroupLens) of ../shared/data or LEAT_RECORDINGS; where it is missing, tests/data has ratings.
"""

import csv
import gzip
import json
import math
import os
import random
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
LIBRARY = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
RECORDINGS = os.environ.get("LEAT_RECORDINGS", os.path.join(rig.ROOT, "..", "shared", "data"))
WHOLE = os.path.join(RECORDINGS, "ml_latest_small", "ratings.csv.gz")
EXCERPT = os.path.join(rig.ROOT, "tests", "data", "ratings", "ratings.csv.gz")
SLACK = 1e-5

JOB = """
job rated {{ workers: {workers}, checkpoint: {{ every: 10ms, dir: "{place}.state" }} }}
source ratings = file {{
  path: "{place}.jsonl", schema: {{ ts: time(s), user: int, item: int, rating: float, rest: float, w: float }}, event_time: ts
}}
learner model = mf from ratings {{ label: {label}, user: user, item: item, weight: w{options} }}
sink predictions = file from model.predictions {{ path: "{place}.out", overwrite: true }}
"""
STILL = ", linear: sgd { rate: 0.0 }, embedding: { init: 0.0, optimizer: sgd { rate: 0.0 } }"


def made(count, seed=3):
    """A scale of its own, users and items that rate and are rated higher or lower, four tastes, and noise."""
    draw = random.Random(seed)
    users = [(draw.gauss(0, 0.6), [draw.gauss(0, 0.5) for _ in range(4)]) for _ in range(300)]
    items = [(draw.gauss(0, 0.6), [draw.gauss(0, 0.5) for _ in range(4)]) for _ in range(400)]
    for _ in range(count):
        user, item = int(draw.random() ** 2 * len(users)), int(draw.random() ** 2 * len(items))
        b, p = users[user]
        c, q = items[item]
        yield user, item, 7.0 + b + c + sum(x * y for x, y in zip(p, q, strict=True)) + draw.gauss(0, 0.7)


def rows_of(count):
    """Some of weight 0, of other weights, and without a label."""
    draw = random.Random(4)
    return [{"ts": 1_700_000_000 + number, "user": user, "item": item, "rating": None if draw.random() < 0.05 else rating,
             "w": draw.choice([1.0, 1.0, 1.0, 0.0, 0.5, 3.0])} for number, (user, item, rating) in enumerate(made(count))]


def means_of(rows, start=0.0):
    """Of each row the mean before and with it."""
    total = weight = 0.0
    for row in rows:
        before = total / weight if weight else start
        if row["rating"] is not None and row["w"] > 0:
            total, weight = total + row["w"] * row["rating"], weight + row["w"]
        yield before, total / weight if weight else start


def run(folder, rows, options="", workers=1, label="rating", failpoints=None, device=False):
    place = os.path.join(folder, "rated")
    rig.write_rows(place + ".jsonl", rows)
    options += ', device: cuda(0)' if device else ""
    job = rig.write(place + ".leat", JOB.format(place=place, options=options, workers=workers, label=label))
    environment = {"LEAT_CUDA_LIBRARY": LIBRARY} if device else {}
    first = ["--fresh"]
    if failpoints:
        rig.call(LEAT, "run", job, *first, expected=(-9, 0), LEAT_FAILPOINTS=failpoints, **environment)
        first = []
    summary = json.loads(rig.call(LEAT, "run", job, "--json", *first, **environment).stdout)
    predictions = [row["prediction"] for row in rig.read_rows(place + ".out")]
    return predictions, rig.node(summary, "mf")["report"]["run"] if summary["nodes"] else None


def expect_near(what, found, expected, slack):
    assert len(found) == len(expected), (what, len(found), len(expected))
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours is None if theirs is None else abs(ours - theirs) <= slack, (what, number, ours, theirs)


def test_the_mean():
    """Nothing else learns: predictions are the mean before each label."""
    rows = rows_of(3000)
    with tempfile.TemporaryDirectory() as folder:
        for options, start in (("", 0.0), (", bias: 6.5", 6.5), (", batch: 32", 0.0), (", seed: 5, bias: -1.0, batch: 7", -1.0)):
            expected = [None if row["rating"] is None else before
                        for row, (before, _) in zip(rows, means_of(rows, start), strict=True)]
            for workers in (1, 3):
                found, _ = run(folder, rows, STILL + options, workers)
                expect_near((options, workers), found, expected, 1e-6)


def test_the_rest():
    """What it learns is what a learner without the mean learns of labels from which the mean was taken."""
    rows = rows_of(4000)
    means = list(means_of(rows))
    for row, (_, mean) in zip(rows, means, strict=True):
        row["rest"] = None if row["rating"] is None else row["rating"] - mean
    cases = [("", 1, False), ("", 3, False), (", batch: 32", 1, False), (", linear: newton, embedding: { optimizer: newton }", 1, False),
             (", embedding: { admit_after: 2 }, clip_norm: 0.5", 1, False)]
    if LIBRARY:
        cases.append((", batch: 32", 1, True))
    with tempfile.TemporaryDirectory() as folder:
        for options, workers, device in cases:
            found, _ = run(folder, rows, options, workers, device=device)
            rest, _ = run(folder, rows, options + ", mean_bias: false", workers, "rest", device=device)
            expected = [None if x is None else x + before for x, (before, _) in zip(rest, means, strict=True)]
            expect_near((options, workers, device), found, expected, 2e-6)


def test_kills():
    """The sums go through checkpoints."""
    rows = rows_of(30000)
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = run(folder, rows)
        for at in ("ckpt.pre_rename=kill@2", "ckpt.published=kill@1", "ckpt.published=kill@3"):
            assert run(folder, rows, workers=2, failpoints=at)[0] == expected, at


def test_frozen():
    """The mean stays where it is."""
    rows = [{"ts": 1_700_000_000 + i, "user": 1, "item": 2, "rating": 2.0 if i < 864 else 9.0, "w": 1.0} for i in range(2000)]
    with tempfile.TemporaryDirectory() as folder:
        found, report = run(folder, rows, STILL + ", window: 160, freeze: { label_mean_max: 5.0, after: 1000 }")
    assert report["frozen"] == 2000 - 1024, report
    assert set(found[1024:]) == {sum(row["rating"] for row in rows[:1024]) / 1024}, found[1020:1030]


def test_logistic():
    """A share has no such mean: its bias is learned, whatever `mean_bias` says."""
    rows = [{**row, "rating": float((row["rating"] or 0) > 7)} for row in rows_of(2000)]
    with tempfile.TemporaryDirectory() as folder:
        found, _ = run(folder, rows, ", loss: logistic")
        assert found == run(folder, rows, ", loss: logistic, mean_bias: false")[0]


# --- The peer --------------------------------------------------------------------------------------------------

DEFAULT = {"bias_rate": 0.01, "rate": 0.01, "bias_l2": 0.0, "l2": 0.0}
TRIED = {"bias_rate": 0.05, "rate": 0.025, "bias_l2": 0.01, "l2": 0.05}


def biased_mf(ratings, bias_rate, rate, bias_l2, l2, factors=10):
    """The RMSE of River's reco.BiasedMF, each rating predicted before it is learned."""
    draw = random.Random(73)
    users, items = {}, {}
    total = count = squares = 0.0
    for user, item, label in ratings:
        one = users.get(user) or users.setdefault(user, [0.0, [draw.gauss(0, 0.1) for _ in range(factors)]])
        two = items.get(item) or items.setdefault(item, [0.0, [draw.gauss(0, 0.1) for _ in range(factors)]])
        p, q = one[1], two[1]
        known = one[0] + two[0] + sum(a * b for a, b in zip(p, q, strict=True))
        squares += ((total / count if count else 0.0) + known - label) ** 2
        total, count = total + label, count + 1
        gradient = 2 * (total / count + known - label)
        one[0] -= bias_rate * (gradient + bias_l2 * one[0])
        two[0] -= bias_rate * (gradient + bias_l2 * two[0])
        one[1], two[1] = ([a - rate * (gradient * b + l2 * a) for a, b in zip(p, q, strict=True)],
                          [b - rate * (gradient * a + l2 * b) for a, b in zip(p, q, strict=True)])
    return math.sqrt(squares / count)


def compare(name, ratings):
    rows = [{"ts": 1_700_000_000 + i, "user": user, "item": item, "rating": rating, "w": 1.0}
            for i, (user, item, rating) in enumerate(ratings)]
    with tempfile.TemporaryDirectory() as folder:
        _, report = run(folder, rows)
    default, tried = biased_mf(ratings, **DEFAULT), biased_mf(ratings, **TRIED)
    print(f"# {name}: {len(rows)} ratings, RMSE of mf {report['rmse']:.4f}, of BiasedMF {default:.4f}, at other rates {tried:.4f}")
    assert report["rmse"] <= min(default, tried) + SLACK, (name, report["rmse"], default, tried)


def test_made_ratings():
    compare("made", list(made(40000)))


def test_recording():
    with gzip.open(WHOLE if os.path.exists(WHOLE) else EXCERPT, "rt", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["timestamp"]))
    compare("recorded", [(int(row["userId"]), int(row["movieId"]), float(row["rating"])) for row in rows])


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
