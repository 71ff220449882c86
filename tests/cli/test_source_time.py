#!/usr/bin/env python3
"""What a source may say of time, against computations of its own: jumps ahead, the slowest key, punctuations; the same
bytes at several numbers of workers and through kills; and who holds the watermark back, planned and found.

    tests/cli/test_source_time.py PATH_OF_LEAT
"""

import collections
import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD = 0
BASE, DAY, HOUR, MINUTE = 1_700_000_000_000, 86_400_000, 3_600_000, 60_000

JOB = """
job j {{ workers: {workers}, checkpoint: {{ every: 10ms, dir: "{name}/state" }} }}
source s = file {{ path: [{path}], schema: {{ id: int, k: int, kind: text, ts: time(ms) }}, event_time: ts, {time} }}
stream w = s | window by k over tumbling(1m) {{ n: count(), ids: sum(id) }}
sink rows = file from s {{ path: "{name}/rows.jsonl" }}
sink out = file from w {{ path: "{name}/out.jsonl" }}
sink late = file from w.late {{ path: "{name}/late.jsonl" }}
sink dead = file from dead_letters {{ path: "{name}/dead.jsonl" }}
"""


@contextlib.contextmanager
def place(rows):
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="leat-time-") as folder:
        os.chdir(folder)
        try:
            with open("data.jsonl", "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            yield
        finally:
            os.chdir(before)


def leat(*arguments, env=None):
    return subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**os.environ, **(env or {})})


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def stop_on_the_way():
    """In the middle of batches, so that what follows begins with what a checkpoint has."""
    done = leat("run", "job.leat", "--quiet", env={"LEAT_FAILPOINTS": "ckpt.pre_rename=kill"})
    assert done.returncode == -9, (done.returncode, done.stderr)
    read = 0
    for minutes in (5, 12, 21):
        until = datetime.datetime.fromtimestamp(BASE / 1000 + minutes * 60, datetime.timezone.utc)
        done = leat("run", "job.leat", "--quiet", "--json", "--until", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
        assert done.returncode == GOOD, done.stderr
        before, read = read, json.loads(done.stdout)["records"]
        assert read >= before, (before, read)


def run_all(time, path='"data.jsonl"'):
    """One worker, three, and two that are killed and stopped on the way: the same files. Returns the summary of the first."""
    summary = None
    for name, workers in (("one", 1), ("three", 3), ("stopped", 2)):
        os.mkdir(name)
        with open("job.leat", "w", encoding="utf-8") as file:
            file.write(JOB.format(workers=workers, name=name, time=time, path=path))
        if name == "stopped":
            stop_on_the_way()
        done = leat("run", "job.leat", "--quiet", "--json")
        assert done.returncode == GOOD, done.stderr
        found = json.loads(done.stdout)
        assert all(node["counts"]["balanced"] for node in found["nodes"]), done.stdout
        summary = summary or found
    for file in ("rows", "out", "late", "dead"):
        texts = {open(f"{name}/{file}.jsonl", "rb").read() for name in ("one", "three", "stopped")}
        assert len(texts) == 1, f"{file}.jsonl differs"
    return summary


def steady(count, step=1000):
    return [{"id": i, "k": i % 7, "kind": "row", "ts": BASE + i * step} for i in range(count)]


def ids(path):
    return [row["id"] for row in rows_of(path)]


def test_jumps():
    rows = steady(5000)
    far = {0: 400 * DAY, 1: 300 * DAY, 700: 20 * DAY, 1022: 30 * DAY, 1023: 31 * DAY, 2047: 50 * DAY, 2048: 9 * DAY, 4999: DAY}
    for i, jump in far.items():
        rows[i]["ts"] += jump
    for i in range(3000, 5000):  # a gap of three days in the recording, and it goes on from there
        rows[i]["ts"] += 3 * DAY
    with place(rows):
        run_all("max_jump: 2h")
        # The last one is a day ahead, and nobody behind it agrees.
        assert ids("one/rows.jsonl") == [i for i in range(5000) if i not in far]
        dead = rows_of("one/dead.jsonl")
        assert len(dead) == len(far), len(dead)
        assert all("`max_jump`" in row["reason"] for row in dead) and '"id": 0,' in dead[0]["raw"], dead[0]
        assert rows_of("one/late.jsonl") == [], "what jumped made nobody late"
    with place(rows):
        summary = run_all("max_jump: forever")
        assert len(ids("one/rows.jsonl")) == 5000 and summary["nodes"][0]["counts"]["dead"] == 0
        assert len(rows_of("one/late.jsonl")) > 3000, "without it they do"


def test_two_that_agree_are_not_enough():
    rows = steady(2000)
    for i in (500, 501):
        rows[i]["ts"] += 90 * DAY
    with place(rows):
        run_all("max_jump: 1h")
        assert ids("one/rows.jsonl") == [i for i in range(2000) if i not in (500, 501)]
    rows[502]["ts"] += 90 * DAY
    with place(rows):
        run_all("max_jump: 1h")
        assert len(ids("one/rows.jsonl")) == 2000, "three are"


def drifting(count):
    """Each key in order; keys 5 and 6 minutes behind the others; key 5 is rare, key 6 ends after a third."""
    draw, rows, now = random.Random(3), [], BASE
    for i in range(count):
        now += 300
        k = draw.choice((0, 1, 2, 3, 4, 6))
        if k == 6 and i > count // 3:
            k = 0
        k = 5 if i % 2600 == 700 else k
        rows.append({"id": i, "k": k, "kind": "row", "ts": now - (9 * MINUTE if k == 5 else 4 * MINUTE if k == 6 else 0)})
    return rows


def windows(rows):
    found = collections.defaultdict(lambda: [0, 0])
    for row in rows:
        cell = found[row["k"], row["ts"] // MINUTE]
        cell[0] += 1
        cell[1] += row["id"]
    return {key: tuple(cell) for key, cell in found.items()}


def window_rows(path):
    found = {}
    for row in rows_of(path):
        start = datetime.datetime.fromisoformat(row["window_start"].replace("Z", "+00:00")).timestamp()
        found[row.get("k"), round(start * 1000) // MINUTE] = (row["n"], row["ids"])
    return found


def test_the_slowest_key():
    rows = drifting(12_000)
    with place(rows):
        run_all("watermark: per_key { by: k, within: 30m }")
        assert rows_of("one/late.jsonl") == []
        assert window_rows("one/out.jsonl") == windows(rows)
    with place(rows):
        run_all("watermark: per_key { by: k, within: 5m }")  # the slowest is given up
        late = rows_of("one/late.jsonl")
        assert {row["k"] for row in late} == {5}, collections.Counter(row["k"] for row in late)
    with place(rows):
        run_all("max_delay: 0s")
        assert {row["k"] for row in rows_of("one/late.jsonl")} == {5, 6}


def test_punctuations():
    draw, rows, now, tick = random.Random(5), [], BASE, None
    late, ticks = [], 0
    for i in range(6000):
        now += draw.choice((0, 400, 900))
        row = {"id": i, "k": i % 3, "kind": "row", "ts": now - draw.choice((0, 0, 0, 30_000, 100_000))}
        if draw.random() < 0.02:
            row = {"id": i, "k": i % 3, "kind": "tick", "ts": now - 45_000}
        rows.append(row)
        if row["kind"] == "row" and tick is not None and (row["ts"] // MINUTE + 1) * MINUTE <= tick:
            late.append(i)
        if row["kind"] == "tick":
            ticks += 1
            tick = max(tick or 0, row["ts"])
    with place(rows):
        summary = run_all('watermark: punctuation { when: kind == "tick", drop: true }')
        assert ids("one/late.jsonl") == late and late, (len(ids("one/late.jsonl")), len(late))
        counts = summary["nodes"][0]["counts"]
        assert counts["filtered"] == ticks > 50 and counts["passed"] == 6000 - ticks, counts
        good = [row for row in rows if row["kind"] == "row" and row["id"] not in set(late)]
        assert window_rows("one/out.jsonl") == windows(good)
    with place(rows):
        run_all('watermark: punctuation { when: kind == "tick" }')
        assert ids("one/rows.jsonl") == list(range(6000)), "they are rows as well"


def test_a_partition_waits_for_its_own_punctuation():
    """Those of the second one are rare, and ahead of the first one's: a stop on the way must not forget them."""
    rows = steady(6000)
    for i in range(0, 6000, 10):
        rows[i]["ts"] -= 4 * MINUTE
    for i in range(100, 6000, 100):
        rows[i].update(kind="tick", ts=BASE + i * 1000 - 2 * MINUTE)
    with place(rows):
        with open("other.jsonl", "w", encoding="utf-8") as file:
            for i in range(600):
                row = {"id": 10_000 + i, "k": 1, "kind": "tick" if i % 120 == 24 else "row", "ts": BASE + i * 10_000}
                file.write(json.dumps(row) + "\n")
        run_all('watermark: punctuation { when: kind == "tick" }', '"data.jsonl", "other.jsonl"')
        assert len(ids("one/rows.jsonl")) == 6600 and rows_of("one/late.jsonl") != []


def test_a_punctuation_that_cannot_be_said():
    rows = steady(100)
    rows[50]["kind"] = "zero"
    with place(rows):
        run_all("watermark: punctuation { when: 1 / case when kind == \"zero\" then 0 else 1 end > 3 }")
        dead = rows_of("one/dead.jsonl")
        assert len(dead) == 1 and "division by zero" in dead[0]["reason"] and len(ids("one/rows.jsonl")) == 99, dead


def test_who_holds_it_back():
    with place(steady(3000)):
        with open("job.leat", "w", encoding="utf-8") as file:
            file.write('source a = file { path: "data.jsonl", schema: { id: int, k: int, ts: time(ms) }, event_time: ts, max_delay: 5s }\n'
                       'source b = file { path: "data.jsonl", schema: { id: int, k: int, ts: time(ms) }, event_time: ts, max_delay: 2m,\n'
                       "  watermark: per_key { by: k, within: 10m } }\n"
                       "stream labelled = a | attribute b on id within 1h as seen\n"
                       "stream hourly = labelled | window by k over tumbling(1h) lateness 15m { n: count() }\n"
                       "sink out = null from hourly\n")
        text = leat("explain", "--time", "job.leat").stdout
        for says in ("5s", "max_delay 5s", "up to 12m", "2m behind the slowest k of the last 10m", "waits for b; holds rows for 1h",
                     "lateness 15m: windows stay open that long",
                     "12m by b (its source), 1h by labelled attribute"):
            assert says in text, (says, text)
        picture = leat("explain", "--time", "--svg", "job.leat").stdout
        assert picture.startswith("<svg") and picture.count('class="own"') == 4, picture
        assert leat("explain", "--time", "--dot", "job.leat").returncode == 2
        summary = json.loads(leat("run", "job.leat", "--quiet", "--json", "--until", "2023-11-14T22:45:00Z").stdout)
        held = summary["watermark"]
        assert held["source"] == "b" and 120_000 <= held["behind_ms"] <= 140_000, held
        times = {node["name"] + " " + node["kind"]: node["time"] for node in summary["nodes"]}
        assert 5_000 <= times["a file"]["behind_ms"] <= 20_000 and times["a file"]["newest"].startswith("2023-11-14T22:"), times
        assert times["labelled attribute"]["behind_ms"] >= 3_720_000, times


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
