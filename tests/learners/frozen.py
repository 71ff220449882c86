#!/usr/bin/env python3
"""A frozen learner goes on predicting for as long as it is frozen: ids that are met stay, whatever `expire_after` says, as
they would if it learned; ids that are not met expire. Nothing else of the model moves.

    tests/learners/frozen.py PATH_OF_LEAT [PATH_OF_LEAT_CUDA_ON_HOST_SO]
"""

import json
import os
import random
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
LIBRARY = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
HOUR = 3600
TAUGHT, FROZEN = 1024, 3000  # the bands are looked at every 1,024 examples
STEP = 10  # seconds from one event to the next: what is taught lasts 2.8 hours, what is not 8.3
STAYS, EXPIRES = 30, 3 * HOUR

JOB = """
job frozen {{ workers: {workers}, checkpoint: {{ every: 10ms, dir: "{place}.state" }} }}
source events = file {{
  path: "{place}.jsonl", schema: {{ ts: time(s), user: int, item: text, tags: list(int), age: float, clicked: bool, w: float }}
  event_time: ts
}}
learner model = {kind} from events {{
  {body}, weight: w, window: 160, freeze: {{ label_mean_max: 0.6, after: 1000 }}, device: {device}
}}
sink predictions = file from model.predictions {{ path: "{place}.out" }}
"""

IDS = "label: clicked, sparse: [user, item, tags], dense: [age]"
PLAIN = "label: clicked, sparse: [user, item], dense: [age]"
FORGETS = "{ expire_after: 3h }"
ROWS = "embedding: { dim: 8, expire_after: 3h }"
KINDS = {
    "linear": ("linear", f"{PLAIN}, optimizer: adagrad, ids: {FORGETS}", False),
    "linear, lists": ("linear", f"{IDS}, ids: {FORGETS}", False),
    "linear, batch": ("linear", f"{IDS}, optimizer: adagrad, batch: 32, ids: {FORGETS}", True),
    "fm": ("fm", f"{PLAIN}, {ROWS}", False),
    "fm, limited": ("fm", f"{IDS}, embedding: {{ dim: 8, expire_after: 3h, rows_max: 128 }}", False),
    "ffm, hidden": ("ffm", f"{IDS}, {ROWS}, hidden: [8]", False),
    "deepfm, batch": ("deepfm", f"{PLAIN}, {ROWS}, hidden: [8], batch: 32", True),
    "dcnv2": ("dcnv2", f"{IDS}, {ROWS}, hidden: [8], batch: 32", True),
    "afm": ("afm", f"{IDS}, {ROWS}, batch: 32", True),
    "mmoe": ("mmoe", f"labels: [clicked], {PLAIN.split(', ', 1)[1]}, {ROWS}, hidden: [32], towers: [16], batch: 16", True),
}


def rows_of(thaws):
    """Users and items of two halves; from where it is frozen the first one alone comes, and the label is always true: it
    stays frozen. thaws: as it was from its middle on, when it learns again."""
    draw = random.Random(5)
    for number in range(TAUGHT + FROZEN):
        is_taught, is_back = number < TAUGHT, thaws and number > TAUGHT + FROZEN // 2
        half = number % 2 if is_taught else 0
        user, item = half * STAYS + draw.randrange(STAYS), half * STAYS + draw.randrange(STAYS)
        is_up = not is_taught or number >= TAUGHT - 160
        label = draw.random() < 0.3 + 0.2 * (user % 2) if is_back or not is_up else True
        yield {"ts": 1_700_000_000 + number * STEP, "user": user, "item": f"i{item}",
               "tags": [half * STAYS + draw.randrange(STAYS) for _ in range(2)], "age": 0.5, "clicked": label, "w": 1.0}


def outcome(folder, name, rows, workers=1, device="cpu"):
    kind, body, _ = KINDS[name]
    place = os.path.join(folder, "frozen")
    rig.write_rows(place + ".jsonl", rows)
    rig.write(place + ".leat", JOB.format(kind=kind, body=body, place=place, workers=workers, device=device))
    environment = {"LEAT_CUDA_LIBRARY": LIBRARY} if device != "cpu" else {}
    summary = json.loads(rig.call(LEAT, "run", place + ".leat", "--json", **environment).stdout)
    rig.call(LEAT, "model", "export", place + ".state", "--out", place + ".safetensors")
    return rig.read_rows(place + ".out"), rig.node(summary, kind)["report"]["run"], rig.safetensors(place + ".safetensors")


def check(name, workers=1, device="cpu"):
    what = f"{name}, {workers} workers, {device}"
    rows = list(rows_of(False))
    with tempfile.TemporaryDirectory() as folder:
        predicted, run, model = outcome(folder, name, rows, workers, device)
    assert run["frozen"] == FROZEN and run["is_frozen"] == 1.0, (what, run)
    # The same question has the same answer, for as long as it is frozen.
    column = "prediction"
    answers, late = {}, 0
    for row in predicted[TAUGHT:]:
        asked = row["user"], row["item"], tuple(row["tags"]) if "tags" in KINDS[name][1] else ()
        late += asked in answers and row["ts"] > predicted[TAUGHT]["ts"]
        assert answers.setdefault(asked, row[column]) == row[column], (what, row, answers[asked])
    assert late > 100 or "tags" in KINDS[name][1], (what, late)
    assert len({round(answer, 9) for answer in answers.values()}) > 20, (what, "rows are gone")
    for feature in ("user", "item"):
        keys = model[feature + ".keys"][1]
        met = {str(row[feature]) for row in rows[TAUGHT:]}
        assert len(keys) == len(met) == STAYS, (what, feature, len(keys), run["rows_expired"])
        seen = model[feature + ".seen_us"][1]
        last = max(row["ts"] for row in rows)
        assert max(seen) == last * 10 ** 6 and min(seen) > (last - HOUR) * 10 ** 6, (what, feature, "last seen")
        # Occurrences that teach: those of a frozen learner are none.
        taught = sum(row["w"] > 0 for row in rows[:TAUGHT] if str(row[feature]) in met)
        assert sum(model[feature + ".count"][1]) == taught, (what, feature, sum(model[feature + ".count"][1]), taught)


def test_kinds():
    for name in KINDS:
        check(name)


def test_lanes():
    check("fm", workers=3)
    check("deepfm, batch", workers=3)


def test_device():
    if LIBRARY is None:
        return "no model of a GPU was built"
    for name, (_, _, learns_there) in KINDS.items():
        if learns_there:
            check(name, device="cuda(0)")
    return None


def test_thaws():
    """It learns on with the rows that it had."""
    for name in ("linear", "fm", "dcnv2"):
        with tempfile.TemporaryDirectory() as folder:
            predicted, run, model = outcome(folder, name, rows_of(True))
        assert run["is_frozen"] == 0.0 and TAUGHT < run["learned"] < TAUGHT + FROZEN / 2, (name, run)
        assert run["frozen"] + run["learned"] == TAUGHT + FROZEN, (name, run)
        counts = dict(zip(model["user.keys"][1], model["user.count"][1], strict=True))
        assert len(counts) == STAYS and sum(counts.values()) > run["learned"] - TAUGHT / 2 - 33, (name, counts)
        assert len({row["prediction"] for row in predicted[-200:]}) > 50, name


def test_others_are_no_occurrences():
    """What would not be learned (weight 0, no label) keeps no row."""
    rows = [row if number < TAUGHT else {**row, "w": 0.0} if number % 2 else {**row, "clicked": None}
            for number, row in enumerate(rows_of(False))]
    for name in ("fm", "linear, batch"):
        with tempfile.TemporaryDirectory() as folder:
            _, run, model = outcome(folder, name, rows)
        assert run["is_frozen"] == 1.0 and run["frozen"] == 0 and run["rejected"] == FROZEN / 2, (name, run)
        assert model["user.keys"][0] == [0] and run["rows"] == 0, (name, run)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
