#!/usr/bin/env python3
"""Rows of weight 0 teach nothing: a learner that is given any number of them, anywhere between the others, has the model,
the rows of `metrics` and the predictions of the others that it has where they are filtered before it, byte for byte. So
has a learner that is given them as the stream of `score`, without labels; its scores are their predictions, byte for byte.

    tests/learners/weightless.py PATH_OF_LEAT [PATH_OF_LEAT_CUDA_ON_HOST_SO]
"""

import json
import os
import random
import re
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
LIBRARY = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
ROWS = 2400

JOB = """
job weightless {{ workers: {workers}, checkpoint: {{ every: 1h, dir: "{place}.state" }} }}
source events = file {{
  path: "{place}.jsonl"
  schema: {{ ts: time(ms), number: int, user: int, item: text, tags: list(int), age: float, clicked: bool, liked: bool, w: float }}
  event_time: ts
}}
stream examples = events{filtered}{others}
learner model = {kind} from examples {{
  {body}, weight: w, window: 400, metrics_every: 300{score}
}}
sink predictions = file from model.predictions {{ path: "{place}.out" }}
sink figures = file from model.metrics {{ path: "{place}.metrics" }}
"""
TEACH = " | where w != 0.0"
# Without the columns that only learning reads, and with the features' columns at other places.
OTHERS = """
stream others = events | where w = 0.0 | select ts, tags, more = 1, age, item, number, user"""
SCORES = """sink scores = file from model.scores {{ path: "{place}.scores" }}
"""

IDS = "label: clicked, sparse: [user, item, tags], dense: [age]"
PLAIN = "label: clicked, sparse: [user, item], dense: [age]"
BANDS = "freeze: { label_mean_min: 0.4, after: 300 }"
BY_ADAM = "embedding: { dim: 8, optimizer: adam { rate: 0.01, l2: 0.1, warmup: 900 }, admit_after: 2 }"
BY_MOMENTUM = "embedding: { dim: 8, optimizer: momentum { rate: 0.01, halve_every: 300 }, expire_after: 5m }"
# What teaches, and whether on a GPU, too.
KINDS = {
    "linear, ftrl": ("linear", f"{IDS}, optimizer: ftrl {{ l1: 0.01, l2: 0.1 }}", False),
    "linear, adam": ("linear", f"{PLAIN}, optimizer: adam {{ l2: 0.1, warmup: 1100 }}, ids: {{ admit_after: 2 }}", False),
    "linear, adagrad": ("linear", f"{PLAIN}, optimizer: adagrad {{ l2: 0.1, decay: 0.99 }}, ids: {{ rows_max: 60 }}", False),
    "linear, batch": ("linear", f"{IDS}, batch: 32, {BANDS}, optimizer: momentum {{ l2: 0.1 }}", True),
    "fm": ("fm", f"label: clicked, sparse: [cross(user, item), user, item], dense: [log1p(age), age], {BY_ADAM}", False),
    "fm, frozen at times": ("fm", f"{IDS}, {BY_MOMENTUM}, {BANDS}, keep_negatives: 0.7", False),
    "ffm": ("ffm", f"{PLAIN}, {BY_MOMENTUM}, linear: adam {{ rate: 0.01 }}", False),
    "ffm, hidden": ("ffm", f"{IDS}, {BY_ADAM}, hidden: [8]", False),
    "mf": ("mf", f"label: age, user: user, item: item, {BY_ADAM}", False),
    "mf as it is": ("mf", "label: age, user: user, item: item", False),
    "deepfm": ("deepfm", f"{IDS}, hidden: [8], {BY_ADAM}", False),
    "deepfm, batch": ("deepfm", f"{IDS}, hidden: [8], batch: 32, {BY_MOMENTUM}", True),
    "dcnv2": ("dcnv2", f"{IDS}, hidden: [8], batch: 32, accumulate: 2, {BY_ADAM}", True),
    "dcnv2, auto": ("dcnv2", f"{PLAIN}, hidden: [8], batch: 32, precision: auto, precision_trial: 700", False),
    "dlrm": ("dlrm", f"{IDS}, hidden: [8], bottom: [4], batch: 32, {BY_MOMENTUM}", True),
    "dlrm, batch of one": ("dlrm", f"{PLAIN}, hidden: [8], bottom: [4], batch: 1, "
                                   "embedding: { dim: 16, optimizer: adagrad_row { rate: 0.05, l2: 0.1 } }", False),
    "afm": ("afm", f"{IDS}, batch: 32, {BY_MOMENTUM}", True),
    "mmoe": ("mmoe", f"labels: [clicked, liked], {IDS.split(', ', 1)[1]}, hidden: [8], towers: [4], batch: 32, {BY_ADAM}", True),
}


def rows_of():
    """The rows that teach, and others of weight 0 between them: with ids of theirs and with new ones."""
    draw, between = random.Random(7), random.Random(8)
    for number in range(ROWS):
        user, item = draw.randrange(60), f"i{draw.randrange(40)}"
        rate = 0.2 + 0.6 * ((user + int(item[1:])) % 3 == 0) + (-0.5 if 500 < number < 1100 else 0.1)
        row = {"ts": 1_700_000_000_000 + number * 1000, "number": number, "user": user, "item": item,
               "tags": [draw.randrange(30) for _ in range(draw.randrange(4))], "age": draw.random(),
               "clicked": draw.random() < rate, "liked": draw.random() < rate / 2, "w": draw.choice([0.5, 1.0, 1.0, 3.0])}
        for _ in range(200 if number in (0, 700) else between.choice([0, 0, 0, 1, 5])):
            other = {**row, "number": -1, "w": 0.0, "age": between.random() * 50, "clicked": between.random() < 0.5}
            yield other if between.random() < 0.5 else {**other, "user": between.randrange(10 ** 9), "item": "new", "tags": [1, 99]}
        yield row


def outcome(folder, kind, body, what, workers, device):
    """What the model, its figures and its predictions are, and what the summary says. what: of the rows of weight 0,
    "without" them, "with" them, or "scored" them."""
    place = os.path.join(folder, what)
    rig.write_rows(place + ".jsonl", rows_of())
    body += f", device: {device}"
    score = {"score": "", "others": ""} if what != "scored" else {"score": ", score: others", "others": OTHERS}
    text = JOB + (SCORES if what == "scored" else "")
    rig.write(place + ".leat", text.format(kind=kind, body=body, place=place, workers=workers,
                                           filtered="" if what == "with" else TEACH, **score))
    environment = {"LEAT_CUDA_LIBRARY": LIBRARY} if device != "cpu" else {}
    summary = json.loads(rig.call(LEAT, "run", place + ".leat", "--json", "--fresh", **environment).stdout)
    rig.call(LEAT, "model", "export", place + ".state", "--out", place + ".safetensors")
    predictions = rig.read_rows(place + ".out")
    others = rig.read_rows(place + ".scores") if what == "scored" else [row for row in predictions if row["number"] < 0]
    for row in others:
        assert what != "scored" or ("clicked" not in row and row.pop("more") == 1), row
    return {"model": rig.read(place + ".safetensors"), "metrics": rig.read(place + ".metrics"),
            "predictions": [row for row in predictions if row["number"] >= 0]}, rig.node(summary, kind), others


def check_scores(name, predicted, scores, figures):
    """The scores are the predictions of the rows of weight 0, and are counted."""
    assert len(scores) == len(predicted) > 1500, (name, len(scores), len(predicted))
    for place, (one, other) in enumerate(zip(scores, predicted)):
        assert one == {key: other[key] for key in one} and any("prediction" in key for key in one), (name, place, one, other)
    assert figures["report"]["run"]["scored"] == len(scores), (name, figures["report"])


def check(name, workers=1, device="cpu"):
    kind, body, _ = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        expected, before, _ = outcome(folder, kind, body, "without", workers, device)
        found, after, others_predicted = outcome(folder, kind, body, "with", workers, device)
        scored, figures, scores = outcome(folder, kind, body, "scored", workers, device)
    assert len(expected["predictions"]) == ROWS and expected["metrics"].count(b"\n") >= ROWS // 300, name
    for what, value in expected.items():
        assert found[what] == value, f"{name}, {workers} workers, {device}: rows of weight 0 change the {what}"
        assert scored[what] == value, f"{name}, {workers} workers, {device}: rows to score change the {what}"
    check_scores(name, others_predicted, scores, figures)
    run, plain = after["report"]["run"], before["report"]["run"]
    others = after["counts"]["in"] - ROWS
    assert others > 1500 and run["weightless"] == others and plain["weightless"] == 0, (name, others, run)
    for counted in ("learned", "sampled_out", "frozen", "rejected", "rows", "occurrences_waiting", "logloss", "rmse"):
        assert run.get(counted) == plain.get(counted), (name, counted, run[counted], plain[counted])
    assert plain["rows"] > 30, (name, plain)
    assert "frozen at times" not in name or 0 < plain["frozen"] < ROWS, plain


def test_kinds():
    for name in KINDS:
        check(name)


def test_lanes():
    for name in ("fm", "deepfm", "deepfm, batch"):
        check(name, workers=3)


def test_counts_go_on():
    """Through a checkpoint, whose job reads the same rows again."""
    kind, body, _ = KINDS["fm"]
    with tempfile.TemporaryDirectory() as folder:
        _, before, _ = outcome(folder, kind, body, "with", 1, "cpu")
        place, state = os.path.join(folder, "again"), os.path.join(folder, "with.state")
        text = JOB.format(kind=kind, body=body, place=place, workers=1, filtered="", others="", score="").replace(place + ".jsonl", f"{folder}/with.jsonl")
        text = text.replace("sink ", "sink other_")
        summary = rig.call(LEAT, "run", rig.write(place + ".leat", text), "--json", "--from", state, "--drop-state", "events").stdout
    after = rig.node(json.loads(summary), kind)
    assert after["report"]["run"]["weightless"] == 2 * before["report"]["run"]["weightless"] > 3000, after


def test_scored_go_on():
    """Rows to score, too, are counted through a checkpoint; and `leat trace` follows one to its score."""
    kind, body, _ = KINDS["fm"]
    with tempfile.TemporaryDirectory() as folder:
        _, before, _ = outcome(folder, kind, body, "scored", 2, "cpu")
        job, state = os.path.join(folder, "scored.leat"), os.path.join(folder, "scored.state")
        line = next(number for number, row in enumerate(rows_of(), 1) if row["w"] == 0.0 and number > 40)
        said = rig.call(LEAT, "trace", job, "events", f"{folder}/scored.jsonl:{line}").stdout
        assert re.search(r"model: fm +scored\n(.*\n)*? +-> prediction = 0\.[0-9]+\n +scores: file +written\n", said), said
        text = rig.read(job).decode().replace("scored.out", "again.out").replace("scored.metrics", "again.metrics")
        text = text.replace("scored.scores", "again.scores").replace("scored.state", "again.state").replace("sink ", "sink other_")
        summary = rig.call(LEAT, "run", rig.write(job, text), "--json", "--from", state, "--drop-state", "events").stdout
    after = rig.node(json.loads(summary), kind)["report"]["run"]
    assert after["scored"] == 2 * before["report"]["run"]["scored"] > 3000, after


def test_device():
    if LIBRARY is None:
        return "no model of a GPU was built"
    for name, (_, _, learns_there) in KINDS.items():
        if learns_there:
            check(name, device="cuda(0)")
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
