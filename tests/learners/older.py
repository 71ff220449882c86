#!/usr/bin/env python3
"""A new run goes on, by --from, from a checkpoint of an older format: tests/learners/older.tar.xz, which leat wrote at
format 8. Its predictions are those that the older leat made when it went on itself, older.json, where no id waits for
admission. A run without --from is refused, and told of --from.

    tests/learners/older.py PATH_OF_LEAT [FOLDER]

FOLDER: writes both files there instead, with a leat that writes that format.
"""

import collections
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

# Which learners must go on exactly: not `waits`, whose counts of waiting ids begin anew.
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


def predictions(folder, events):
    """Of each learner: a digest."""
    found = {}
    for name in LEARNERS:
        of_rows = [row["prediction"] for row in rig.read_rows(f"{folder}/{events}.{name}.jsonl")]
        assert len(of_rows) == ROWS and len(set(of_rows)) > ROWS / 4, (name, len(of_rows))
        found[name] = hashlib.sha256(json.dumps(of_rows).encode()).hexdigest()
    return found


def waiting_from_0():
    """Occurrences of `waits` in the new run that come before the third, of ids without a row: counted from its begin."""
    total = 0
    for id_of in (lambda row: row["user"], lambda row: (row["user"], row["item"])):
        before, after = (collections.Counter(map(id_of, rows_of(begin))) for begin in (0, ROWS))
        total += sum(min(count, 2) for one, count in after.items() if before[one] < 3)
    return total


def go_on(folder):
    """A new run from folder/old: its summary, and what it says on stderr."""
    done = rig.call(LEAT, "run", job(folder, "new", "later", ROWS), "--json", "--from", folder + "/old", "--drop-state", "events")
    return json.loads(done.stdout), done.stderr


def test_goes_on():
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(os.path.join(HERE, "older.tar.xz")) as file:
            file.extractall(folder)
        refused = rig.call(LEAT, "run", job(folder, "old", "first", 0), expected=1).stderr
        assert "only from format" in refused and "`--from" in refused, refused
        summary, said = go_on(folder)
        assert "counts begin at 0" in said, said
        expected, found = json.loads(rig.read(os.path.join(HERE, "older.json"))), predictions(folder, "later")
        assert [name for name in LEARNERS if found[name] != expected[name]] == ["waits"], (found, expected)
        (waits,) = [one for one in summary["nodes"] if (one["tag"], one["name"]) == ("learner", "waits")]
        # From 0; a sketch of 8 KiB admits a few early. Old counts in new cells would admit 18 early.
        early = waiting_from_0() - waits["report"]["run"]["occurrences_waiting"]
        assert 0 <= early <= 5, (early, waits["report"]["run"])
        # The new run's own checkpoint is of the new format.
        rig.call(LEAT, "run", job(folder, "new", "later", ROWS))
        for name in ("plain", "waits"):
            for state in ("old", "new"):
                rig.call(LEAT, "model", "export", f"{folder}/{state}", "--learner", name, "--out", f"{folder}/{state}.{name}")


def record(folder):
    work = tempfile.mkdtemp()
    rig.call(LEAT, "run", job(work, "old", "first", 0), "--quiet")
    with tarfile.open(os.path.join(folder, "older.tar.xz"), "w:xz") as file:
        file.add(work + "/old", "old")
    go_on(work)
    rig.write(os.path.join(folder, "older.json"), json.dumps(predictions(work, "later"), indent=1) + "\n")
    shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(record(sys.argv[2]) if len(sys.argv) > 2 else tap.run(globals()))
