#!/usr/bin/env python3
"""What learning without labels is for, on a small planted set: of each item two others follow mostly. One user in ten has
labels; the behaviour of the others is there all the same. NDCG@10 over users whom the learner has not seen, by the labels alone,
and with `also: masked` and the others as `unlabelled`; the difference must be beyond two standard errors.

    tests/learners/unlabelled.py PATH_OF_LEAT
"""

import json
import math
import os
import random
import statistics
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
USERS, TESTED, EVENTS, ITEMS = 400, 120, 16, 200
BEGIN, STEP = 1_700_000_000_000, 1000

JOB = """
source events = file {{
  path: "{data}", format: json, schema: {{ ts: time(ms), user: int, item: int, part: text }}, event_time: ts
}}
stream known = events | where part != "others"
stream others = events | where part = "others" | drop part
learner model = {kind} from known {{
  by: user, item: item, learn: part = "labelled", {also}
  history: 16, layers: 1, embedding: {{ dim: 32, optimizer: adam {{ rate: 0.003 }} }}, hidden_optimizer: adam {{ rate: 0.003 }}
  loss: softmax {{}}, batch: 32, passes: {passes}, seen: kept
}}
sink top = file from model.top {{ path: "{out}", format: json, overwrite: true }}
"""
ALSO = {"by labels alone": "", "and hidden items of the labelled": "also: masked {}, ",
        "and hidden items of all": "also: masked { share: 0.3, weight: 1.0 }, unlabelled: others,"}


def write(path):
    draw, rows = random.Random(3), []
    after = [draw.sample(range(ITEMS), 2) for _ in range(ITEMS)]
    for user in range(USERS + TESTED):
        part = "tested" if user >= USERS else "labelled" if user % 10 == 0 else "others"
        item = draw.randrange(ITEMS)
        for number in range(EVENTS):
            rows.append({"ts": BEGIN + (number * (USERS + TESTED) + user) * STEP, "user": user, "item": item, "part": part})
            item = draw.choice(after[item]) if draw.random() < 0.8 else draw.randrange(ITEMS)
    rig.write_rows(path, sorted(rows, key=lambda row: row["ts"]))


def ndcg_of(folder, kind, also, passes):
    """The mean of each tested user."""
    job = rig.write(os.path.join(folder, "job.leat"), JOB.format(
        kind=kind, also=ALSO[also], passes=passes, data=os.path.join(folder, "events"), out=os.path.join(folder, "top")))
    rig.call(LEAT, "run", job, "--quiet")
    users = {}
    for row in rig.read_rows(os.path.join(folder, "top")):
        if row["part"] == "tested" and row["rank"] is not None:
            users.setdefault(row["user"], []).append(1.0 / math.log2(1.0 + row["rank"]) if row["rank"] <= 10 else 0.0)
    return [statistics.fmean(users[user]) for user in sorted(users)]


def check(kind, passes=40):
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "events"))
        found = {also: ndcg_of(folder, kind, also, passes) for also in ALSO}
    for also, users in found.items():
        print(f"# {kind}: NDCG@10 {statistics.fmean(users):.4f} {also}", flush=True)
    alone, *_, all_of = found.values()
    gains = [b - a for a, b in zip(alone, all_of)]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    print(f"# {kind}: gain {statistics.fmean(gains):.4f}, standard error {error:.4f}", flush=True)
    assert len(gains) == TESTED and statistics.fmean(gains) > 2.0 * error, json.dumps(found)


def test_an_event_in_both_streams():
    """Is predicted before the copy without a label joins the history: no user has one when the first event comes."""
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "events"))
        job = rig.write(os.path.join(folder, "job.leat"), JOB.format(
            kind="sasrec", also="also: masked {}, unlabelled: copies,", passes=0, data=os.path.join(folder, "events"),
            out=os.path.join(folder, "top")).replace("stream others", 'stream copies = known | drop part\nstream others'))
        figures = rig.node(json.loads(rig.call(LEAT, "run", job, "--json").stdout), "sasrec")["report"]["run"]
    users = TESTED + USERS // 10
    assert figures["without_history"] == users and figures["unlabelled"] == users * EVENTS, figures


def test_sasrec():
    check("sasrec")


def test_hstu():
    check("hstu")


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
