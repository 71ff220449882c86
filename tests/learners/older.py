#!/usr/bin/env python3
"""A new run goes on, by --from, from checkpoints of an older format: tests/learners/older.tar.xz, which leat wrote at
format 9. Its predictions are those that the older leat made when it went on itself, older.json. A run without --from is
refused, and told of --from.

    tests/learners/older.py PATH_OF_LEAT [FOLDER]

FOLDER: writes both files there instead, with a leat that writes that format.
"""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 1500

LEARNERS = {
    "plain": "linear from events { label: clicked, sparse: [user, item], dense: [price], optimizer: adagrad }",
    "lists": "fm from events { label: clicked, sparse: [user, tags], embedding: { dim: 4 } }",
    "bounded": "ffm from events { label: clicked, sparse: [user, item], embedding: { dim: 4, rows_max: 60 } }",
    "deep": "deepfm from events { label: clicked, sparse: [user, item], dense: [price], hidden: [8], embedding: { dim: 4 } }",
    "batches": "dcnv2 from events { label: clicked, sparse: [user, item], hidden: [8], batch: 64, embedding: { dim: 4 } }",
    "waits": "fm from events { label: clicked, sparse: [user, cross(user, item)], embedding: { dim: 4, admit_after: 3, sketch: 8KiB } }",
}
JOB = """job older {{ workers: 1, checkpoint: {{ every: 1h, dir: "{folder}/{state}" }} }}
source events = file {{
  path: "{folder}/{events}.jsonl", event_time: ts
  schema: {{ ts: time(ms), user: int, item: text, tags: list(int), price: float, clicked: bool }}
}}
"""

# Rows that do not teach wait for the passes, in columns of every type.
HELD_JOB = """job held {{ workers: 1, checkpoint: {{ every: 1h, dir: "{folder}/{state}" }} }}
source events = file {{
  path: "{folder}/{events}.jsonl", event_time: ts
  schema: {{ ts: time(ms), number: int, user: int, item: text, tags: list(int), price: float, clicked: bool }}
}}
learner next = sasrec from events {{
  by: user, item: item, learn: clicked, history: 8, layers: 1, embedding: {{ dim: 16 }}, batch: 16, passes: 2, top: 3
  loss: sampled_softmax {{ negatives: 8 }}
}}
sink {events}_top = file from next.top {{ path: "{folder}/{events}.top.jsonl" }}
"""


def mix(value):
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9 % 2 ** 64
    value = (value ^ value >> 27) * 0x94d049bb133111eb % 2 ** 64
    return value ^ value >> 31


def rows_of(begin):
    for number in range(begin, begin + ROWS):
        drawn = mix(number + 1)
        yield {"ts": 1_700_000_000_000 + 1000 * number, "user": drawn % 60, "item": f"item {drawn // 64 % 90}",
               "tags": [drawn // 2 ** (8 + k) % 40 for k in range(drawn % 4)], "price": drawn // 2 ** 40 % 100 / 10,
               "clicked": drawn % 7 < 2 + drawn % 60 % 3}


def job(folder, state, events, begin):
    rig.write_rows(os.path.join(folder, events + ".jsonl"), rows_of(begin))
    text = JOB.format(folder=folder, state=state, events=events)
    for name, learner in LEARNERS.items():
        text += f'learner {name} = {learner}\nsink {events}_{name} = file from {name}.predictions {{ path: "{folder}/{events}.{name}.jsonl" }}\n'
    return rig.write(os.path.join(folder, "older.leat"), text)


def held_job(folder, state, events, begin):
    rows = [{**row, "number": begin + at, "price": None if at % 5 == 0 else row["price"]} for at, row in enumerate(rows_of(begin))]
    rig.write_rows(os.path.join(folder, events + ".jsonl"), rows)
    return rig.write(os.path.join(folder, events + ".leat"), HELD_JOB.format(folder=folder, state=state, events=events))


def predictions(folder, events):
    """Of each learner: a digest."""
    found = {}
    for name in LEARNERS:
        of_rows = [row["prediction"] for row in rig.read_rows(f"{folder}/{events}.{name}.jsonl")]
        assert len(of_rows) == ROWS and len(set(of_rows)) > ROWS / 4, (name, len(of_rows))
        found[name] = hashlib.sha256(json.dumps(of_rows).encode()).hexdigest()
    return found


def go_on(folder):
    """New runs from folder/old and folder/held."""
    for old, begun in (("old", job(folder, "new", "later", ROWS)), ("held", held_job(folder, "held-new", "later_held", ROWS))):
        rig.call(LEAT, "run", begun, "--quiet", "--from", f"{folder}/{old}", "--drop-state", "events")
    found = predictions(folder, "later")
    lists = rig.read_rows(f"{folder}/later_held.top.jsonl")
    before = [row for row in lists if row["number"] < ROWS]  # they have waited in the checkpoint
    assert len(before) > 50 and len(lists) - len(before) > 50, (len(before), len(lists))
    assert {row["price"] is None for row in before} == {True, False} and any(row["tags"] for row in before), before[:3]
    return {**found, "held": hashlib.sha256(rig.read(f"{folder}/later_held.top.jsonl")).hexdigest()}


def test_goes_on():
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(os.path.join(HERE, "older.tar.xz")) as file:
            file.extractall(folder)
        refused = rig.call(LEAT, "run", job(folder, "old", "first", 0), expected=1).stderr
        assert "only from format" in refused and "`--from" in refused, refused
        expected, found = json.loads(rig.read(os.path.join(HERE, "older.json"))), go_on(folder)
        assert found == expected, (found, expected)
        # The new run's own checkpoint is of the new format.
        rig.call(LEAT, "run", job(folder, "new", "later", ROWS))
        for name in ("plain", "waits"):
            for state in ("old", "new"):
                rig.call(LEAT, "model", "export", f"{folder}/{state}", "--learner", name, "--out", f"{folder}/{state}.{name}")


def record(folder):
    work = tempfile.mkdtemp()
    rig.call(LEAT, "run", job(work, "old", "first", 0), "--quiet")
    # Stopped before its input ends, while rows wait for the passes.
    rig.call(LEAT, "run", held_job(work, "held", "first_held", 0), "--quiet", "--until", "2023-11-14T22:23:20Z")
    with tarfile.open(os.path.join(folder, "older.tar.xz"), "w:xz") as file:
        for state in ("old", "held"):
            file.add(f"{work}/{state}", state)
    rig.write(os.path.join(folder, "older.json"), json.dumps(go_on(work), indent=1) + "\n")
    shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(record(sys.argv[2]) if len(sys.argv) > 2 else tap.run(globals()))
