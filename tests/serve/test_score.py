#!/usr/bin/env python3
"""`leat score`: answers from a checkpoint equal what training goes on to make of the row; requests with wrong, missing
or unknown columns are answered as such, and their neighbours are untouched.

    tests/serve/test_score.py PATH_OF_LEAT
"""

import csv
import datetime
import json
import os
import select
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import FAILED, GOOD, INTERRUPTED, LEAT, ROWS, USAGE, Place, first_from, time_text  # noqa: E402


def check_goes_on(job, parts):
    with Place(job) as place:
        place.run(state="whole", out="whole.jsonl")
        trained = {row["id"]: row for row in reversed(place.rows("whole.jsonl"))}
        equal = 0
        for part in range(1, parts):
            until = stream.START_MS + ROWS * stream.STEP_MS * part // parts
            place.run("--until", time_text(until), state=f"s{part}", out=f"o{part}.jsonl")
            event = place.events[first_from(place.events, until)]
            answer = place.score([event], state=f"s{part}")[0]
            row = trained.get(str(event["id"]))
            if row is None or "_status" in answer or row["ts"] != answer["ts"]:
                continue  # left out, or a duplicate of an earlier row
            late = answer.pop("_late", None)
            assert late in (None, True), late
            for name, value in answer.items():
                assert row[name] == value, f"part {part}, `{name}`: answered {value}, trained {row[name]}"
            equal += 1
        assert equal >= parts // 3, f"only {equal} of {parts - 1} rows were compared"


def test_goes_on_features():
    check_goes_on(jobs.FEATURES, 20)


def test_goes_on_model():
    check_goes_on(jobs.learner("fm"), 6)
    check_goes_on(jobs.learner("deepfm-batch"), 6)


def served(place):
    place.run()
    return {"id": 1, "user": 7, "item": "i3", "price": 2.5}


def test_requests():
    """Missing, unknown and wrong columns; each request is answered on its own."""
    with Place(jobs.learner("linear")) as place:
        good = served(place)
        assert "the input had ended" in place.leat("score", "-", text="").stderr
        answers = place.score([good, {"user": "x"}, "{", {**good, "more": 1}, {"user": None}, {"price": 1e400}, good, "[]",
                               {"user": 7, "ts": stream.START_MS}, "null", good])
        assert answers[0] == answers[6] == answers[10] == answers[3], answers
        assert 0.0 < float(answers[0]["prediction"]) < 1.0 and "clicked" not in answers[0], answers[0]
        assert answers[4] == {"_status": "filtered", "_step": "examples: where"}, answers[4]
        assert answers[8]["_late"] is True, answers[8]
        for number in (1, 2, 5, 7, 9):
            assert answers[number]["_status"] == "failed" and answers[number]["_reason"], answers[number]


def test_times():
    """The time of a request without one: --at, else the clock; the future beyond max_jump is refused."""
    with Place(jobs.learner("linear").replace("max_delay: 5s }", "max_delay: 5s, max_jump: 1h }")) as place:
        good = served(place)
        at = "2024-02-01T00:00:00Z"
        assert place.score([good], "--at", at)[0]["ts"] == at
        now = place.score([good])[0]["ts"]
        assert now[:10] == datetime.datetime.now(datetime.timezone.utc).isoformat()[:10], now
        far = place.score([{**good, "ts": 4_000_000_000_000}, good])
        assert "max_jump" in far[0]["_reason"] and "prediction" in far[1], far


def test_inputs():
    """Standard input, CSV, columns; and many requests at a time."""
    job = jobs.learner("mf").replace("tags: list(int), ", "").replace(" | drop tags", "")
    with Place(job) as place:
        good = served(place)
        typed = place.leat("score", "-", "--columns", "item,prediction", text=json.dumps(good) + "\n")
        assert typed.returncode == GOOD and list(json.loads(typed.stdout)) == ["item", "prediction"], typed.stderr
        assert "answered 1 (late 0)" in typed.stderr, typed.stderr
        with open(place.path("r.csv"), "w", encoding="ascii", newline="") as file:
            csv.writer(file).writerows([["user", "item", "price"], [7, "i3", 2.5]])
        from_csv = place.leat("score", place.path("r.csv"), "--columns", "item,prediction")
        assert from_csv.stdout == typed.stdout, from_csv.stderr
        many = place.score([{**good, "user": n % 300} for n in range(5000)])
        assert len(many) == 5000 and many[300] == many[0] and many[7]["user"] == "7"
        empty = place.leat("score", "-", text="")
        assert empty.returncode == GOOD and empty.stdout == "", empty.stderr


def test_typed():
    """A request on standard input is answered at once; Ctrl-C ends."""
    with Place(jobs.learner("linear")) as place:
        good = json.dumps(served(place)) + "\n"
        with subprocess.Popen([LEAT, "score", place.path("job.leat"), "-", *place.settings()], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                for _ in range(2):
                    process.stdin.write(good)
                    process.stdin.flush()
                    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "no answer"
                    assert "prediction" in json.loads(process.stdout.readline())
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE_S) == INTERRUPTED, process.stderr.read()
            finally:
                process.kill()


def test_refused():
    with Place(jobs.learner("linear")) as place:
        none = place.leat("score", "-", text="")
        assert none.returncode == FAILED and "no checkpoint" in none.stderr, none.stderr
        served(place)
        for words, expected in ((["--columns", "predicton"], "did you mean `prediction`"),
                                (["--columns", "clicked"], "derives from the label"),
                                (["--columns", "item,item"], "named twice"), (["--serve", "x"], "has no `serve x`"),
                                (["--checkpoint", "x"], "not the name of a checkpoint"),
                                (["--checkpoint", "9-9"], "gen-000009")):
            refused = place.leat("score", "-", *words, text="")
            assert refused.returncode == FAILED and expected in refused.stderr, (words, refused.stderr)
        usage = place.leat("score", "-", "--at", "tomorrow", text="")
        assert usage.returncode == USAGE and "--at takes a time" in usage.stderr, usage.stderr
        missing = place.leat("score", place.path("none.jsonl"))
        assert missing.returncode == FAILED and "none.jsonl" in missing.stderr, missing.stderr
        place.write("job.leat", jobs.learner("linear").replace("over 1h", "over 2h"))
        other = place.leat("score", "-", text="")
        assert other.returncode == FAILED and "another version of this job" in other.stderr, other.stderr
        place.write("job.leat", jobs.learner("linear").replace("serve scores", "# serve scores"))
        nothing = place.leat("score", "-", text="")
        assert nothing.returncode == FAILED and "serves nothing" in nothing.stderr, nothing.stderr


def test_changes_nothing():
    """Scoring leaves the checkpoints as they are, and the run goes on as if nobody had asked."""
    with Place(jobs.FEATURES) as place:
        place.run(state="whole", out="whole.jsonl")
        place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 2))
        before = files_of(place.path("state"))
        place.score(place.events)
        assert files_of(place.path("state")) == before, "scoring wrote into the checkpoints"
        place.run()
        assert place.rows("out.jsonl") == place.rows("whole.jsonl"), "the run went on otherwise"


def test_alone():
    """An answer does not depend on the requests around it."""
    for job in (jobs.FEATURES, jobs.learner("fm")):
        with Place(job) as place:
            place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS * 3 // 4))
            requests = place.events[-1200:] + [{**place.events[-1], "ts": e["ts"]} for e in place.events[-300:]]
            forward, backward = place.score(requests), place.score(requests[::-1])
            assert forward == backward[::-1], [pair for pair in zip(forward, backward[::-1]) if pair[0] != pair[1]][0]
            assert sum("_status" not in answer for answer in forward) > 800


def files_of(folder):
    return {path: (os.path.getsize(path), os.stat(path).st_mtime_ns)
            for root, _, names in os.walk(folder) for path in (os.path.join(root, name) for name in names)}


def test_readme():
    """README.md's section "Scores", from its own text."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        commands = file.read().split("\n## Scores\n")[1].split("```sh\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(root, "jobs"), os.path.join(folder, "jobs"))
        env = {**os.environ, "PATH": os.path.dirname(LEAT) + ":" + os.environ["PATH"]}
        result = subprocess.run(["bash", "-ec", commands], cwd=folder, capture_output=True, text=True, check=False,
                                timeout=PATIENCE_S, env=env)
        assert result.returncode == GOOD, result.stderr[-900:]
        assert "had ended" not in result.stderr, result.stderr
        score = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"item"')]
        assert len(score) == 1 and score[0]["item"] == 10196 and score[0]["imps_24h"] > 0, result.stdout
        assert 0.0 < score[0]["prediction"] < 1.0, result.stdout
        assert "serve ctr: a request of impressions" in result.stdout, result.stdout


def test_explain():
    """Also a column that decides alone which rows there are is needed."""
    with Place(jobs.learner("fm").replace("where user >= 0", "where user >= 0 and liked >= 0")) as place:
        shown = place.leat("explain", "--serve")
        assert shown.returncode == GOOD, shown.stderr
        text = " ".join(shown.stdout.split())
        for part in ("serve scores: a request of events becomes a row of scores", "(reads its state)", "(predicts)",
                     "request user: int", "liked: int optional id: int", "prediction: float"):
            assert part in text, (part, shown.stdout)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
