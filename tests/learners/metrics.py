#!/usr/bin/env python3
"""Rows of `metrics`: one at each multiple of `metrics_every` examples, and a last one of all when the input has ended, with
the figures that the summary has; the same at any number of lanes, and through kills.

    tests/learners/metrics.py PATH_OF_LEAT
"""

import json
import os
import random
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])

JOB = """
job figures {{ workers: {workers}, checkpoint: {{ every: 10ms, dir: "{place}.state" }} }}
source events = file {{
  path: "{place}.jsonl", schema: {{ ts: time(s), user: int, clicked: bool, liked: bool, w: float }}, event_time: ts
}}
learner model = {kind} from events {{ {body}, weight: w, metrics_every: {every} }}
sink figures = file from model.metrics {{ path: "{place}.metrics", overwrite: true }}
sink predictions = null from model.predictions {{}}
"""
ONE, TWO = "label: clicked, sparse: [user]", "labels: [clicked, liked], sparse: [user], hidden: [4], towers: [4], batch: 8"


def rows_of(count):
    draw = random.Random(2)
    return [{"ts": 1_700_000_000 + i * 60, "user": draw.randrange(9), "clicked": draw.random() < 0.4, "liked": draw.random() < 0.3,
             "w": 1.0} for i in range(count)]


def figures(folder, rows, every, kind="fm", body=ONE, workers=1, failpoints=None):
    """The rows of metrics, and what the summary says."""
    place = os.path.join(folder, "figures")
    rig.write_rows(place + ".jsonl", rows)
    job = rig.write(place + ".leat", JOB.format(place=place, every=every, kind=kind, body=body, workers=workers))
    first = ["--fresh"]
    if failpoints:
        rig.call(LEAT, "run", job, *first, expected=(-9, 0), LEAT_FAILPOINTS=failpoints)  # 0: fewer checkpoints were taken
        first = []
    summary = json.loads(rig.call(LEAT, "run", job, "--json", *first).stdout)
    found = rig.read_rows(place + ".metrics")
    return found, rig.node(summary, kind)["report"]["run"] if summary["nodes"] else None


def test_short_runs():
    with tempfile.TemporaryDirectory() as folder:
        for count, every, expected in ((1, 1000, [1]), (10, 1000, [10]), (10, 4, [4, 8, 10]), (8, 4, [4, 8]), (4000, 1500, [1500, 3000, 4000]),
                                       (0, 4, [])):
            rows = rows_of(count)
            found, run = figures(folder, rows, every)
            assert [row["examples"] for row in found] == expected, (count, every, found)
            if found:
                last = found[-1]
                assert last["logloss"] == run["logloss"] and last["rmse"] == run["rmse"], (last, run)
                assert last["time"].startswith("2023-11-") and found == sorted(found, key=lambda row: row["time"]), found


def test_several_labels():
    with tempfile.TemporaryDirectory() as folder:
        found, run = figures(folder, rows_of(30), 1000, "mmoe", TWO)
    assert [(row["label"], row["examples"]) for row in found] == [("clicked", 30), ("liked", 30)], found
    assert found[1]["logloss"] == run["liked.logloss"], (found, run)


def test_weight_0():
    """Examples of weight 0 behind the last one that counts are no more than any others."""
    rows = rows_of(10)
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = figures(folder, rows, 4)
        others = [{**row, "w": 0.0, "ts": rows[-1]["ts"]} for row in rows]
        assert figures(folder, rows + others, 4)[0] == expected
        assert figures(folder, others, 4)[0] == []


def test_lanes_and_kills():
    rows = rows_of(40000)
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = figures(folder, rows, 17000)
        assert [row["examples"] for row in expected] == [17000, 34000, 40000], expected
        assert figures(folder, rows, 17000, workers=3)[0] == expected
        for at in (1, 2, 4):
            assert figures(folder, rows, 17000, failpoints=f"ckpt.pre_rename=kill@{at}")[0] == expected, at


def test_kills_at_the_end():
    """The last checkpoint has the row; what is killed behind it does not give another one."""
    rows = rows_of(10)
    with tempfile.TemporaryDirectory() as folder:
        for at in ("sink.rename=kill@1", "ckpt.published=kill@1", "ckpt.post_rename=kill@1", "ckpt.write=kill@1"):
            found, _ = figures(folder, rows, 4, failpoints=at)
            assert [row["examples"] for row in found] == [4, 8, 10], (at, found)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
