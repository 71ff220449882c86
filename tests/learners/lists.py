#!/usr/bin/env python3
"""Features that are lists: the first `list_max` ids of each are read, whatever learns; what is left out is counted, by
learner and feature, and said when the job is checked where the plan knows how long a list can be.

    tests/learners/lists.py PATH_OF_LEAT [PATH_OF_LEAT_CUDA_ON_HOST_SO]
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
ROWS, LONGEST, DEFAULT = 60, 1500, 64

JOB = """
job lists {{ workers: 1, checkpoint: {{ every: 1h, dir: "{place}.state" }} }}
source events = file {{
  path: "{place}.jsonl"
  schema: {{ ts: time(ms), number: int, user: int, seen: list(int), words: list(text), age: float, clicked: bool }}
  event_time: ts
}}
learner model = {kind} from events {{
  {body}
}}
stream scored = model.predictions | select number, prediction
sink predictions = file from scored {{ path: "{place}.out", overwrite: true }}
"""

IDS = "label: clicked, sparse: [user, seen, words]"
KINDS = {
    "linear": ("linear", IDS, False),
    "linear, batch": ("linear", f"{IDS}, batch: 32, optimizer: adagrad", True),
    "fm": ("fm", f"{IDS}, embedding: {{ dim: 4 }}", False),
    "fm, pairs": ("fm", f"{IDS}, embedding: {{ dim: 4 }}, pairs: [[user, seen], [seen, words]]", False),
    "fm, batch": ("fm", f"{IDS}, embedding: {{ dim: 4 }}, batch: 32", True),
    "ffm": ("ffm", f"{IDS}, embedding: {{ dim: 4 }}", False),
    "ffm, hidden": ("ffm", f"{IDS}, embedding: {{ dim: 4 }}, hidden: [8]", False),
    "mf": ("mf", "label: age, user: user, item: seen, embedding: { dim: 4 }", False),
    "deepfm": ("deepfm", f"{IDS}, embedding: {{ dim: 4 }}, hidden: [8]", False),
    "dcnv2": ("dcnv2", f"{IDS}, embedding: {{ dim: 4 }}, hidden: [8], batch: 32", True),
    "dlrm": ("dlrm", f"{IDS}, dense: [age], embedding: {{ dim: 4 }}, hidden: [8], bottom: [4], batch: 1", False),
    "dlrm, accumulate": ("dlrm", f"{IDS}, dense: [age], embedding: {{ dim: 4 }}, hidden: [8], bottom: [4], batch: 16, accumulate: 2",
                         True),
    "afm": ("afm", f"{IDS}, embedding: {{ dim: 4 }}, attention: 4, batch: 32", True),
    "mmoe": ("mmoe", f"labels: [clicked], {IDS.split(', ', 1)[1]}, embedding: {{ dim: 4 }}, hidden: [8], towers: [4], batch: 32", True),
}


def rows_of(longest=LONGEST):
    draw = random.Random(3)
    lengths = [length for length in (0, 1, 2, 5, 63, 64, 65, 255, 256, 257, 300, 1023, 1024, 1025, LONGEST) if length <= longest]
    for number in range(ROWS):
        # Few ids, so that they are met again and again: one taken for another shows.
        seen, words = ([draw.randrange(most) for _ in range(draw.choice(lengths))] for most in (2000, 50))
        yield {"ts": 1_700_000_000_000 + number * 1000, "number": number, "user": draw.randrange(20), "seen": seen,
               "words": [f"w{word}" for word in words], "age": draw.random(), "clicked": draw.random() < 0.2 + 0.5 * (7 in seen)}


def outcome(folder, name, rows, more="", device="cpu"):
    """Predictions, and the node of the summary."""
    kind, body, _ = KINDS[name]
    place = os.path.join(folder, "lists")
    rig.write_rows(place + ".jsonl", rows)
    rig.write(place + ".leat", JOB.format(kind=kind, body=f"{body}{more}, device: {device}", place=place))
    environment = {"LEAT_CUDA_LIBRARY": LIBRARY} if device != "cpu" else {}
    summary = json.loads(rig.call(LEAT, "run", place + ".leat", "--json", "--fresh", **environment).stdout)
    return rig.read(place + ".out"), rig.node(summary, kind)


def check(name, most, device="cpu"):
    """Reading the first `most` is reading a file that has no more of each list."""
    rows = list(rows_of())
    short = [{**row, "seen": row["seen"][:most], "words": row["words"][:most]} for row in rows]
    more = "" if most == DEFAULT else f", list_max: {most}"
    with tempfile.TemporaryDirectory() as folder:
        found, node = outcome(folder, name, rows, more, device)
        expected, whole = outcome(folder, name, short, ", list_max: 1024", device)
    assert found == expected, f"{name}, list_max {most}, {device}: not the predictions of the shorter lists"
    for feature in ("seen", "words") if name != "mf" else ("seen",):
        lists = sum(len(row[feature]) > most for row in rows)
        ids = sum(max(len(row[feature]) - most, 0) for row in rows)
        run, none = node["report"]["run"], whole["report"]["run"]
        assert lists > 0 and (run[f"lists_cut.{feature}"], run[f"ids_cut.{feature}"]) == (lists, ids), (name, most, run)
        assert none[f"lists_cut.{feature}"] == none[f"ids_cut.{feature}"] == 0, (name, none)
    assert "lists_cut.user" not in node["report"]["run"], node


def test_kinds():
    for name in KINDS:
        for most in (DEFAULT, 1024) if name not in ("ffm", "dcnv2") else (DEFAULT, 1, 300, 1024):
            check(name, most)


def test_device():
    if LIBRARY is None:
        return "no model of a GPU was built"
    for name, (_, _, learns_there) in KINDS.items():
        if learns_there:
            check(name, 1024, "cuda(0)")
    return None


def test_room_alone_changes_nothing():
    """Lists that are short are read alike, however long they may be."""
    rows = list(rows_of(DEFAULT))
    with tempfile.TemporaryDirectory() as folder:
        for name in KINDS:
            narrow, wide = (outcome(folder, name, rows, more)[0] for more in ("", ", list_max: 1024"))
            assert narrow == wide, name


def test_counts_go_on():
    """Through a checkpoint, in the middle of a batch, to a job that reads fewer ids: the batch in progress, too."""
    for name in ("fm", "fm, batch", "deepfm", "ffm, hidden"):
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "lists")
            _, before = outcome(folder, name, rows_of(), ", list_max: 300")
            with open(place + ".leat", encoding="utf-8") as file:
                text = file.read().replace("list_max: 300", "list_max: 10").replace("sink ", "sink other_")
            again = rig.write(place + ".again.leat", text.replace(".out", ".other").replace(".state", ".later"))
            done = rig.call(LEAT, "run", again, "--json", "--from", place + ".state", "--drop-state", "events")
        run = rig.node(json.loads(done.stdout), KINDS[name][0])["report"]["run"]
        cut = sum(max(len(row["seen"]) - 10, 0) for row in rows_of())
        assert run["ids_cut.seen"] == before["report"]["run"]["ids_cut.seen"] + cut, (name, run)
        assert "list_max" in done.stderr, done.stderr


def test_summary():
    with tempfile.TemporaryDirectory() as folder:
        outcome(folder, "fm", rows_of())
        text = rig.call(LEAT, "run", os.path.join(folder, "lists.leat"), "--fresh").stdout
    assert "lists_cut.seen" in text and "ids_cut.words" in text, text


CHECKED = """
job checked { workers: 1 }
source events = file { path: "e.jsonl", schema: { ts: time(ms), user: int, item: int, clicked: bool, ids: list(int) }, event_time: ts }
stream other = events | feature by user over 1d { history: collect(item, 30) }
stream features = events | feature by user over 1d { history: collect(item, %d) }%s
learner model = linear from features { label: clicked, sparse: [user, history, ids]%s }
sink predictions = null from model.predictions {}
"""


def said(folder, length, step="", more=""):
    done = rig.call(LEAT, "check", rig.write(os.path.join(folder, "checked.leat"), CHECKED % (length, step, more)))
    return done.stderr


def test_check():
    with tempfile.TemporaryDirectory() as folder:
        text = said(folder, 100)
        assert "warning[E0905]: a list of `history` has up to 100 ids, but this learner reads only the first 64" in text, text
        assert "checked.leat:6:71" in text and "list_max: 100" in text, text
        assert "list_max: 900" in said(folder, 900), "the hint names what reads them all"
        assert "up to 100 ids" in said(folder, 100, " | rename thing = item | where user > 0"), "a step between"
        assert "up to 100 ids" in said(folder, 100, " | union other"), "one of two streams"
        for length, step, more in ((64, "", ""), (100, "", ", list_max: 100"), (65, "", ", list_max: 1000"),
                                   (100, " | drop history | with history = ids", ""), (100, " | drop history | with history = split(text(user), \",\")", "")):
            text = said(folder, length, step, more)
            assert "E0905" not in text, (length, step, more, text)
        big = (CHECKED % (60, "", ", list_max: 1024, batch: 65536")) 
        assert rig.call(LEAT, "check", rig.write(os.path.join(folder, "big.leat"), big)).returncode == 0
        lists = ", ".join(f"split(text(user), \"{i}\")" for i in range(17))
        many = big.replace("[user, history, ids]", f"[{lists}]")
        refused = rig.call(LEAT, "check", rig.write(os.path.join(folder, "many.leat"), many), expected=3).stderr
        assert "E0901" in refused and "list_max" in refused, refused


def test_explain():
    """What the memory plan says follows."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for most in (64, 1024):
            text = (CHECKED % (60, "", f", list_max: {most}, batch: 1024")).replace("linear", "fm")
            said_of = rig.call(LEAT, "explain", rig.write(os.path.join(folder, "explained.leat"), text)).stdout
            (line,) = [line for line in said_of.splitlines() if "input" in line and "iB" in line][:1]
            sizes.append(line)
        assert sizes[0] != sizes[1], sizes


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
