#!/usr/bin/env python3
"""What the columns of a run hold (`GET /api/v1/columns`): equal to the rows where all were looked at; a column that turns null
shows; hostile names and values are JSON; looking changes no byte of the output. Prints TAP.

    tests/cli/test_columns.py PATH_OF_LEAT
"""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import tap  # noqa: E402
import test_run_control as control  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
MEMBERS = {"name", "type", "rows", "nulls", "null_share_recent", "null_share_before", "is_sketched", "distinct", "measure",
           "min", "max", "mean", "mean_recent", "mean_before", "not_finite", "histogram", "top"}
ROWS_ALL = 100  # so few rows of a batch are all looked at
SKETCHED = 256
AT_ITS_END = "run.claimed=sleep:500,sink.rename=sleep:480000"  # when all rows are through, the process can still be asked
EVIL = ["<img src=x onerror=alert(1)>", 'a"b\\c', "\u202eright to left", "'; drop table", "{{7*7}}", "\u00e4\U0001f600"]


@contextlib.contextmanager
def place(job, rows):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(job)
        with open(os.path.join(folder, "data.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        yield folder


def job(schema, steps="", more="", options=""):
    return (f'job looked_at {{ workers: 2{options} }}\nsource s = file {{ path: "data.jsonl", schema: {{ {schema} }} }}\n'
            f'stream kept = s{steps}\nsink out = file from kept {{ path: "out.jsonl" }}\n{more}')


def columns(run):
    """{part: {name: column}} of an answer, whose numbers fit together."""
    status, body = run.ask("/api/v1/columns")
    assert status == 200, (status, body)
    nodes = json.loads(body)["nodes"]
    for node in nodes:
        for column in node["columns"]:
            assert set(column) == MEMBERS, column
            check(column)
    return {node["part"]: {column["name"]: column for column in node["columns"]} for node in nodes}


def check(column):
    assert 0 <= column["nulls"] <= column["rows"], column
    for share in [column["null_share_recent"], column["null_share_before"], *[one["share"] for one in column["top"]]]:
        assert share is None or 0 <= share <= 1, column
    shares = [one["share"] for one in column["top"]]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-9 and len(shares) <= 10, column
    ends = [end for one in column["histogram"] for end in (one["from"], one["to"])]
    assert ends == sorted(ends) and len(column["histogram"]) <= 64, column
    if column["histogram"]:
        count = sum(one["count"] for one in column["histogram"])
        assert count + column["not_finite"] == column["rows"] - column["nulls"], column
        assert ends[0] >= column["min"] and ends[-1] >= column["max"], column


def shares(column):
    found = {one["value"]: round(one["share"], 9) for one in column["top"]}
    assert len(found) == len(column["top"]), column
    return found


def wait_for(run, is_there):
    deadline = time.monotonic() + PATIENCE_S
    run.wait_until("/readyz")
    while not is_there(found := columns(run)):
        assert time.monotonic() < deadline and run.process.poll() is None, (found, run.said)
        time.sleep(0.2)
    return columns(run)  # an answer reads one column after another: those before the one that is_there looked at may be older


def test_equal_to_the_rows():
    """Every row is looked at, so every answer can be computed."""
    rows = [{"i": i % 7 if i % 5 else None, "f": i / 8, "t": 1700000000000 + i, "x": "ab"[i % 2] * (i % 3), "o": i % 4 == 0,
             "l": list(range(i % 3)), "r": [{"a": 1}] * (i % 2), "m": "\u00e4" * 100} for i in range(ROWS_ALL)]
    schema = "i: int, f: float, t: time(ms), x: text, o: bool, l: list(int), r: list({ a: int }), m: text"
    with place(job(schema, " | where f < 5.0"), rows) as folder, control.Run(folder, points=AT_ITS_END) as run:
        found = wait_for(run, lambda found: found.get("s", {}).get("f", {}).get("rows") == ROWS_ALL)
        here = found["s"]
        assert list(here) == ["i", "f", "t", "x", "o", "l", "r", "m"] and set(found) == {"s", "sink/out"}, found
        assert here["i"]["type"] == "int" and here["l"]["type"] == "list(int)", here
        assert here["i"]["nulls"] == 20 and here["i"]["null_share_recent"] == 0.2 and here["f"]["nulls"] == 0, here
        assert all(column["null_share_before"] is None for column in here.values()), here
        ints = [row["i"] for row in rows if row["i"] is not None]
        assert [(one["from"], one["to"], one["count"]) for one in here["i"]["histogram"]] == [
            (i, i + 1, ints.count(i)) for i in range(7)], here["i"]
        assert (here["i"]["min"], here["i"]["max"], here["i"]["mean"]) == (0, 6, sum(ints) / len(ints)), here["i"]
        assert (here["f"]["min"], here["f"]["max"], here["f"]["mean"]) == (0, 99 / 8, 99 / 16), here["f"]
        assert abs(here["f"]["distinct"] - 100) < 10 and here["f"]["mean_recent"] == 99 / 16, here["f"]
        assert (here["t"]["min"], here["t"]["max"]) == (1700000000000, 1700000000099), here["t"]
        texts = [row["x"] for row in rows]
        assert shares(here["x"]) == {
            text: texts.count(text) / ROWS_ALL for text in set(texts)}, here["x"]
        assert here["x"]["measure"] == "length" and here["x"]["max"] == 2, here["x"]
        assert here["o"]["top"] == [{"value": "false", "share": 0.75}, {"value": "true", "share": 0.25}], here["o"]
        assert shares(here["l"]) == {"0": round(2 / 3, 9), "1": round(1 / 3, 9)}, here["l"]
        assert here["l"]["max"] == 2 and here["r"]["mean"] == 0.5 and here["r"]["top"] == [] and here["r"]["distinct"] is None, here
        assert here["m"]["top"] == [{"value": "\u00e4" * 32 + "\u2026", "share": 1}], here["m"]
        assert found["sink/out"]["f"]["rows"] == 40 and found["sink/out"]["f"]["max"] == 39 / 8, found["sink/out"]["f"]


def test_values_that_are_not_finite():
    """They are counted, and in no mean."""
    rows = [{"f": 1e300 if i % 4 else float(i)} for i in range(ROWS_ALL)]
    with place(job("f: float", " | with g = f * 1e10"), rows) as folder, control.Run(folder, points=AT_ITS_END) as run:
        here = wait_for(run, lambda found: found.get("sink/out", {}).get("g", {}).get("rows") == ROWS_ALL)["sink/out"]["g"]
        assert here["not_finite"] == 75 and here["max"] == 96e10 and here["mean"] == 48e10, here
        assert here["mean_recent"] == here["mean"] and here["mean_before"] is None, here


def test_hostile_names_and_values():
    names = [evil.replace("`", "") for evil in EVIL]
    schema = ", ".join(f"`{name}`: text" for name in names) + ", b: bytes, long: text, cut: text, n: float"
    wrong = b"\xff\xfe<script>\xc3"
    rows = [{**{name: EVIL[(i + k) % len(EVIL)] for k, name in enumerate(names)}, "b": base64.b64encode(wrong).decode(),
             "long": "z" * (1000 * 1000), "cut": "x" * 63 + "\u20ac" * 9, "n": 1e308 if i % 2 else -1e308} for i in range(12)]
    with place(job(schema), rows) as folder, control.Run(folder, points=AT_ITS_END) as run:
        here = wait_for(run, lambda found: found.get("s", {}).get("b", {}).get("rows") == 12)["s"]
        assert list(here) == names + ["b", "long", "cut", "n"], list(here)
        for name in names:
            assert here[name]["distinct"] == len(EVIL), here[name]
            assert shares(here[name]) == dict.fromkeys(EVIL, round(2 / 12, 9)), here[name]
        assert here["b"]["top"] == [{"value": "\ufffd\ufffd<script>\ufffd", "share": 1}], here["b"]
        assert here["long"]["top"] == [{"value": "z" * 64 + "\u2026", "share": 1}] and here["long"]["max"] == 1e6, here["long"]
        assert here["cut"]["top"] == [{"value": "x" * 63 + "\u2026", "share": 1}], here["cut"]
        assert here["n"]["max"] == 1e308 and abs(here["n"]["mean"]) < 1e300, here["n"]


def test_many_columns():
    """The first 256 columns of the job have sketches, of the others nulls are counted."""
    names = [f"c{k}" for k in range(SKETCHED + 40)]
    rows = [{name: k for k, name in enumerate(names) if (i + k) % 2} for i in range(10)]
    with place(job(", ".join(f"{name}: int" for name in names)), rows) as folder, control.Run(folder, points=AT_ITS_END) as run:
        found = wait_for(run, lambda found: found.get("sink/out", {}).get("c0", {}).get("rows") == 10)
        for part in ("s", "sink/out"):
            assert all(column["nulls"] == 5 and column["rows"] == 10 for column in found[part].values()), found[part]
        assert [name for name, column in found["s"].items() if column["is_sketched"]] == names[:SKETCHED]
        assert not any(column["is_sketched"] for column in found["sink/out"].values())
        assert found["s"]["c3"]["max"] == 3 and found["s"][names[-1]]["max"] is None


def test_a_column_turns_null():
    """At first no `v` is null, later all are: of the last minute some, of the ten minutes before none."""
    turns = 80 * 1024
    rows = ({"i": i, "v": None if i >= turns else i % 10} for i in range(400 * 1024))
    text = job("i: int!, v: int").replace("workers: 2", "workers: 1")
    with place(text, rows) as folder, control.Run(folder, points="run.claimed=sleep:500") as run:
        found = wait_for(run, lambda found: found.get("s", {}).get("v", {}).get("null_share_before") is not None and
                         found["s"]["v"]["nulls"] > 0)
        for part in ("s", "sink/out"):
            here = found[part]["v"]
            assert here["null_share_before"] == 0 and 0 < here["null_share_recent"] < 1, here
            assert here["mean_before"] is not None and found[part]["i"]["null_share_recent"] == 0, found[part]
            assert found[part]["i"]["mean_recent"] > found[part]["i"]["mean_before"], found[part]["i"]


def results(folder):
    """Bytes of the output and of the model."""
    subprocess.run([LEAT, "model", "export", "state", "--out", "model.safetensors"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found = {}
    for name in ("out.jsonl", "predictions.jsonl", "model.safetensors"):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def test_changes_nothing():
    schema = "i: int!, ts: time(ms), a: int, t: text, l: list(int), y: int"
    rows = [{"i": i, "ts": 1700000000000 + i, "a": i * 7 % 1000 if i % 9 else None, "t": f"user {i * 31 % 1009}", "l": [i % 3] * (i % 4),
             "y": i % 2} for i in range(60_000)]
    more = ("learner model = fm from kept { label: y, sparse: [a, t], embedding: { dim: 4 } }\n"
            'sink p = file from model.predictions { path: "predictions.jsonl" }\n')
    text = job(schema, " | dedup by i within 1h", more, ', checkpoint: { every: 1h, dir: "state" }').replace(
        " } }\nstream", " }, event_time: ts }\nstream")
    assert "event_time" in text
    with place(text, rows) as asked, place(text, rows) as alone:
        answers = 0
        with control.Run(asked, points="run.claimed=sleep:20") as run:
            with contextlib.suppress(OSError, http.client.HTTPException):
                while True:
                    status, body = run.ask("/api/v1/columns")
                    answers += status == 200 and json.loads(body)["nodes"][0]["rows"] > 0
            run.ends()
        subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=alone, check=True, stdout=subprocess.DEVNULL)
        assert answers >= 3, answers
        assert results(asked) == results(alone), (results(asked), results(alone))


def test_only_reading():
    with place(job("i: int"), [{"i": 1}]) as folder, control.Run(folder, points=AT_ITS_END) as run:
        run.wait_until("/readyz")
        assert run.ask("/api/v1/columns", "POST")[0] == 405 and run.ask("/api/v1/columns/")[0] == 404


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=3))
