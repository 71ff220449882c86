#!/usr/bin/env python3
"""`leat trace`: what became of one record. Each fate once; of many records the fates together are what the run
counted; from a checkpoint and from the beginning it says the same; and nothing is changed by it.

    tests/cli/test_trace.py PATH_OF_LEAT
"""

import collections
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GOOD, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
BEGIN_MS = 1_700_000_040_000  # a whole minute

JOB = """
job t { memory: 64MiB, workers: 2, checkpoint: { every: 1h, dir: "state", keep: { last: 1000 } } }
source s = file { path: "s.jsonl", schema: { id: int!, k: int, n: int, ts: time(ms) }, event_time: ts, max_delay: 1s }
source c = file { path: "c.jsonl", schema: { id: int, ts: time(ms) }, event_time: ts, max_delay: 1s }
stream kept = s | where n >= 0 and k != 9 | dedup by id within 1h | with inverse = 100 / n
stream halved = kept | sample 0.5 by id
stream minutes = kept | window by k over tumbling(1m) { rows: count() }
stream labelled = kept | feature by k over 1h every 1m { seen: count() } | attribute c on id within 10s as clicked
learner m = linear from labelled { label: clicked, sparse: [k], dense: [inverse] }
sink o = file from m.predictions { path: "out.jsonl" }
sink h = file from halved { path: "halved.jsonl" }
sink w = file from minutes { path: "minutes.jsonl" }
sink l = file from minutes.late { path: "late.jsonl" }
sink dead = file from dead_letters { path: "dead.jsonl" }
"""


def row(number, **more):
    return {"id": number, "k": number % 3, "n": 1 + number % 7, "ts": BEGIN_MS + number * 1000, **more}


@contextlib.contextmanager
def place(records, clicks=(), job=JOB):
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, lines in (("s.jsonl", records), ("c.jsonl", clicks)):
                with open(name, "w", encoding="utf-8") as file:
                    file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
            with open("job.leat", "w", encoding="utf-8") as file:
                file.write(job)
            yield
        finally:
            os.chdir(before)


def leat(*arguments):
    result = subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return result.returncode, result.stdout, result.stderr


def run(*arguments):
    status, out, errors = leat("run", "job.leat", "--json", *arguments)
    assert status == GOOD, errors
    return json.loads(out)


def trace(source, record, *arguments):
    status, out, errors = leat("trace", "job.leat", source, record, "--json", *arguments)
    assert status == GOOD, errors or out
    return json.loads(out)


def fates(answer):
    """{step: [words of each of its visits]}"""
    found = collections.defaultdict(list)
    for step in answer["steps"]:
        found[step["step"]].extend(step["fate"])
    return dict(found)


def step_of(answer, name, tag="given"):
    step, = [step for step in answer["steps"] if step["step"] == name and step["tag"] == tag]
    return step


def tree():
    """Every file below, by its bytes."""
    found = {}
    for folder, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.join(folder, name)] = hashlib.sha256(file.read()).hexdigest()
    return found


def mixed(count, seed=1):
    """Rows of which some are filtered, duplicate, dead, late; clicks on some of them."""
    pick = random.Random(seed)
    rows, clicks = [], []
    for number in range(count):
        line = row(number)
        what = pick.randrange(12)
        if what == 0:
            line["n"] = pick.choice([-1, None])
        elif what == 1:
            line["n"] = 0
        elif what == 2:
            line = "{bad %d" % number
        elif what == 3 and number > 9:
            line["id"] = number - 9
        elif what == 4:
            line["ts"] -= 90_000
        elif what == 5:
            line["k"] = 9
        rows.append(line)
        if pick.randrange(3) == 0:
            clicks.append({"id": number, "ts": BEGIN_MS + number * 1000 + 2000})
    return rows, clicks


def test_each_fate():
    rows = [row(number) for number in range(2000)]
    rows[10]["n"] = -5
    rows[20]["id"] = 19
    rows[30]["n"] = 0
    rows[40] = '{"id": 40, "k": '
    rows[1500]["ts"] = BEGIN_MS + 1000
    clicks = [{"id": 50, "ts": BEGIN_MS + 53_000}, {"id": 60, "ts": BEGIN_MS + 73_000}]
    with place(rows, clicks):
        run()
        filtered = trace("s", "s.jsonl:11")
        assert fates(filtered) == {"s: file": ["read"], "kept: where": ["filtered"]}, filtered
        step = step_of(filtered, "kept: where")
        assert "n >= 0" in step["settings"] and step["row"]["n"] == -5 and step["rows"] == [], step

        duplicate = step_of(trace("s", "s.jsonl@20"), "kept: dedup")
        assert duplicate["fate"] == ["duplicate"] and duplicate["facts"]["first seen"] == "2023-11-14T22:14:19Z", duplicate

        dead = trace("s", "s.jsonl@30")
        assert step_of(dead, "kept: with")["fate"] == ["dead"] and "division" in step_of(dead, "kept: with")["reason"], dead
        assert fates(dead)["dead: file"] == ["written"], fates(dead)

        bad, = [step for step in trace("s", "s.jsonl@40")["steps"] if step["tag"] == "read"]
        assert bad["fate"] == ["dead"] and bad["reason"] and bad["record"] == rows[40], bad

        late = trace("s", "s.jsonl@1500")
        step = step_of(late, "minutes: window")
        assert step["fate"] == ["late"] and step["facts"]["window end"] == "2023-11-14T22:15:00Z", step
        assert step["watermark"] >= step["facts"]["closes at watermark"] and step["rows"][0]["output"] == 1, step
        assert fates(late)["l: file"] == ["written"], fates(late)

        for number, label in ((50, 1), (60, 0)):
            answer = trace("s", f"s.jsonl:{number + 1}")
            held, later = step_of(answer, "labelled: attribute"), step_of(answer, "labelled: attribute", "later")
            assert held["fate"] == ["held"] and later["rows"][0]["row"]["clicked"] == label, answer
            assert held["facts"]["deadline"].startswith("2023-11-14T22:1"), held
            assert step_of(answer, "minutes: window")["fate"] == ["absorbed"], answer
            learned, = [s for s in answer["steps"] if s["kind"] == "linear"]
            assert learned["fate"] == ["learned"], learned
            with open("out.jsonl", encoding="utf-8") as file:
                written, = [r for r in map(json.loads, file) if r["id"] == number]
            assert step_of(answer, "o: file")["row"] == written, (answer, written)
        click = step_of(trace("c", "c.jsonl:1"), "labelled: attribute")
        assert click["input"] == 1 and click["fate"] == ["taken in"], click
        halved = collections.Counter(tuple(fates(trace("s", f"s.jsonl@{i}"))["halved: sample"]) for i in range(8))
        assert set(halved) == {("passed",), ("filtered",)}, halved


def test_all_together_they_are_what_the_run_counted():
    rows, clicks = mixed(60)
    with place(rows, clicks):
        summary = run()
        found = collections.Counter()
        for source, count in (("s", len(rows)), ("c", len(clicks))):
            for number in range(count):
                answer = trace(source, f"{source}.jsonl@{number}")
                assert answer["record"] == number and answer["held"] == [], answer
                for step in answer["steps"]:
                    for word in step["fate"]:
                        found[(step["step"].split(":")[0], step["kind"], word)] += 1
        words = {"passed": "passed", "filtered": "filtered", "late": "late", "duplicate": "duplicate", "dead": "dead"}
        for node in summary["nodes"]:
            if node["tag"] == "sink":
                expected = {"written": node["counts"]["absorbed"]}
            elif node["tag"] == "source":
                expected = {"read": node["counts"]["passed"], "dead": node["counts"]["dead"]}
            elif node["tag"] == "learner":
                expected = {"learned": node["counts"]["absorbed"]}
            else:
                expected = {word: node["counts"][name] for name, word in words.items()}
            if node["kind"] == "attribute":  # what it held passes later
                expected = {"held": node["counts"]["passed"], "given on": node["counts"]["passed"],
                            "late": node["counts"]["late"]}
            if node["name"] == "w":  # rows of windows are nobody's
                expected = {"written": 0}
            for word, count in expected.items():
                assert found[(node["name"], node["kind"], word)] == count, (node["name"], node["kind"], word, count, found)


def test_from_a_checkpoint_and_from_the_beginning():
    rows, clicks = mixed(60000, seed=2)
    with place(rows, clicks):
        for until in ("2023-11-15T04:00:00Z", "2023-11-15T12:00:00Z"):  # some 20,000 and 49,000 records
            run("--until", until)
        run()
        before = tree()
        os.rename("state", "kept")
        wanted = [59000, 31234, 5]
        whole = {number: trace("s", f"s.jsonl@{number}") for number in wanted}
        os.rename("kept", "state")
        for number in wanted:
            answer = trace("s", f"s.jsonl@{number}")
            assert whole[number]["checkpoint"] is None and answer["order"] in ("log", "records"), answer
            assert (answer["checkpoint"] is None) == (number == 5), answer
            if number != 5:
                assert answer["records_read"] < whole[number]["records_read"] / 2, (number, answer)
            for one in (answer, whole[number]):  # a stop is a number too, and without its log there was none
                for step in one["steps"]:
                    del step["micro_batch"]
            for key in ("steps", "held"):
                assert answer[key] == whole[number][key], (key, answer, whole[number])
        assert tree() == before, "it has changed something"


def test_of_a_run_that_began_with_anothers_checkpoint():
    rows, clicks = mixed(6000, seed=3)
    with place(rows, clicks):
        run("--until", "2023-11-14T22:50:00Z")
        with open("job.leat", encoding="utf-8") as file:
            text = file.read()
        with open("job.leat", "w", encoding="utf-8") as file:
            file.write(text.replace('dir: "state"', 'dir: "other"').replace("n >= 0", "n >= 2"))
        assert run("--from", "state")["nodes"][0]["counts"]["in"] == 6000
        answer = trace("s", "s.jsonl@5000")
        assert answer["checkpoint"] and answer["records_read"] < 6000 and "n >= 2" in step_of(answer, "kept: where")["settings"]
        status, _, errors = leat("trace", "job.leat", "s", "s.jsonl@5")
        assert status == FAILED and "before the checkpoint that this run started from" in errors and "state" in errors, errors


def test_while_the_job_runs_and_before_it_ever_ran():
    rows = [row(number) for number in range(200)]
    with place(rows):
        answer = trace("s", "s.jsonl@7")
        assert not os.path.exists("state") and answer["checkpoint"] is None, os.listdir(".")
        assert sorted(os.listdir(".")) == ["c.jsonl", "job.leat", "s.jsonl"], os.listdir(".")
        process = subprocess.Popen([LEAT, "run", "job.leat", "--quiet"], stdout=subprocess.DEVNULL,
                                   env={**os.environ, "LEAT_FAILPOINTS": "ckpt.manifest=sleep:3000"})
        while not os.path.exists("state/LOCK"):
            assert process.poll() is None
        assert trace("s", "s.jsonl@7")["steps"] == answer["steps"]
        assert process.poll() is None, "the job ended too early for this test"
        process.wait(PATIENCE_S)


def test_interrupted():
    job = """
job t { memory: 64MiB, checkpoint: { every: 1h, dir: "state" } }
source s = sequence { count: 2000000000, keys: 1000, rate: 100000, event_time: ts }
stream d = s | feature by key over 10m every 1m { n: count() }
sink o = null from d { }
"""
    with place([], job=job):
        os.mkdir("tmp")
        process = subprocess.Popen([LEAT, "trace", "job.leat", "s", "sequence@1999999999"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": os.path.abspath("tmp")})
        deadline = time.monotonic() + PATIENCE_S
        while not os.listdir("tmp") and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(stretched(0.2))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == INTERRUPTED and not out and not os.listdir("tmp"), (process.returncode, out)


def test_as_text():
    rows = [row(number) for number in range(20)]
    rows[9]["id"] = 3
    with place(rows):
        status, out, errors = leat("trace", "job.leat", "s", "s.jsonl:10")
        assert status == GOOD and not errors, errors
        for words in ("record 9 of s.jsonl", "from the beginning: ", "kept: where", "passed", "n = 3", "kept: dedup",
                      "duplicate", "first seen 2023-11-14T22:14:03Z"):
            assert words in out, (words, out)


def test_what_is_not_there():
    rows = [row(number) for number in range(20)] + ["", json.dumps(row(99))]
    with place(rows):
        for arguments, words in ((["x", "s.jsonl:1"], "its sources are: s, c"), (["s", "s.jsonl"], "path:line"),
                                 (["s", "other.jsonl:1"], "no file"), (["s", "other.jsonl@1"], "it has: s.jsonl"),
                                 (["s", "s.jsonl:21"], "the line is empty"), (["s", "s.jsonl@21"], "ends before this record"),
                                 (["s", "s.jsonl:4000"], "after the end")):
            status, _, errors = leat("trace", "job.leat", *arguments)
            assert status == FAILED and words in errors and "hint" in errors, (arguments, status, errors)
        assert trace("s", "s.jsonl:22")["record"] == 20
        assert leat("trace", "job.leat", "s")[0] == USAGE
        run()
        status, _, errors = leat("trace", "job.leat", "s", "s.jsonl:1", "--replay=s=s.jsonl")
        assert status == GOOD, errors
        with open("job.leat", "a", encoding="utf-8") as file:
            file.write('stream z = s | where n > 3\nsink zz = null from z { }\n')
        status, _, errors = leat("trace", "job.leat", "s", "s.jsonl:1")
        assert status == FAILED and "E0703" in errors, errors


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
