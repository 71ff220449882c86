#!/usr/bin/env python3
"""What a run says and loses: `--log json`, and the control API's log, dead letters and checkpoints. Hostile values stay texts in
all of them. Prints TAP.

    tests/cli/test_run_log.py PATH_OF_LEAT
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import tap  # noqa: E402
import test_run_control as control  # noqa: E402
import live  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
MIB = 1 << 20
SLOW, SLOWER = "run.claimed=sleep:25", "run.claimed=sleep:60"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
IMG, RTL = "<img src=x onerror=alert(1)>", "\u202egnp.exe"
HOSTILE = [IMG.encode(), b'"\\"]}\'`', RTL.encode(), b"\xff\xfe\xed\xa0\x80" * 40, b"\x00\x1b[2J\x07", b"x" * MIB]

# Every second record is no JSON, and two steps reject one in 20, one of them before its own text has a value; the column's name
# is hostile, too.
DEAD = """job dead { workers: 2 }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), `<img onerror>`: text, n: int }, event_time: ts }
stream larger = s | with m = n + 9223372036854775807
sink out = null from larger {}
stream shares = s | feature by n over forever every 1s { newest: last(`<img onerror>`), share: mean(100 / (n - 1)) }
sink all = null from shares {}
"""


def ask(run, path, status=200):
    """The body's object: valid UTF-8, valid JSON, no name twice."""
    def once(pairs):
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)
    found, body = run.ask(path)
    assert found == status, (found, body[:500])
    return json.loads(body, object_pairs_hook=once) if status == 200 else body


def wait_for(run, path, is_there):
    deadline = time.monotonic() + PATIENCE_S
    while not is_there(found := ask(run, path)):
        assert time.monotonic() < deadline and run.process.poll() is None, (found, run.said)
        time.sleep(0.1)
    return found


def is_refused(run, path):
    for query in ("after=", "after=-1", "after=x", "after=1&after=2", "before=1", "after=99999999999999999999", "&", "%"):
        assert "after=N" in ask(run, f"{path}?{query}", 400), query
    assert run.ask(path, "POST")[0] == 405


def said_in_json(words, folder, status=0, stop_at=None, points=""):
    """The lines on stderr, each of which is an object. stop_at: SIGTERM follows on the first line that has this text."""
    process = subprocess.Popen([LEAT, *words, "--log", "json"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={**os.environ, "LEAT_FAILPOINTS": points})
    lines = []
    for line in process.stderr:
        lines.append(json.loads(line.decode()))
        if stop_at is not None and stop_at in lines[-1]["text"]:
            process.send_signal(signal.SIGTERM)
            stop_at = None
    assert process.wait(PATIENCE_S) == status, lines
    process.stderr.close()
    for line in lines:
        assert sorted(line) == ["job", "level", "repeated", "text", "time"] and TIME.match(line["time"]), line
        assert line["level"] in ("info", "warning", "error") and line["repeated"] >= 1, line
        assert abs(time.mktime(time.strptime(line["time"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())) < 3600, line
    return lines


def test_lines_are_objects():
    with control.place() as folder:
        lines = said_in_json(["run", "job.leat", "--control", "127.0.0.1:0", "--progress", "1s"], folder, stop_at="controlled  ", points=SLOW)
        assert {line["job"] for line in lines} == {"controlled"}, lines
        assert lines[0]["text"].startswith("the run's page at http://127.0.0.1:") and lines[0]["level"] == "info", lines[0]
        assert any(line["text"].startswith("stopping") for line in lines), lines
        assert any(line["text"].startswith("controlled  ") for line in lines), lines  # progress
        with open(os.path.join(folder, "bad.leat"), "wb") as file:
            file.write(b'job bad {}\nsource s = fil { path: "a" }\nsink o = null from x {}\nsink p = null from \xff {}\n')
        lines = said_in_json(["run", "bad.leat"], folder, status=3)
        assert lines and all(line["level"] == "error" and line["job"] is None for line in lines), lines
        assert any("\n" in line["text"] and "^~" in line["text"] for line in lines), lines
        plain = subprocess.run([LEAT, "run", "bad.leat"], cwd=folder, capture_output=True, check=False).stderr.decode()
        assert plain == "".join(line["text"] + "\n" for line in lines) and "\\xFF" in plain, (plain, lines)
        done = subprocess.run([LEAT, "run", "job.leat", "--log", "xml"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "--log takes `json` or `text`" in done.stderr, done


def test_a_server_says_objects():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write('job served { checkpoint: { dir: "state" } }\n'
                       'source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), a: int, c: int }, event_time: ts }\n'
                       'learner m = linear from s { label: c, sparse: [a] }\nserve m { from: m.predictions, request: s }\n')
        lines = said_in_json(["serve", "job.leat", "--listen", "127.0.0.1:0"], folder, stop_at="listening")
        assert any("listening on http://127.0.0.1:" in line["text"] for line in lines), lines
        assert all(line["job"] == "served" and not line["text"].startswith("leat") for line in lines), lines


def test_the_log_over_http():
    with control.place() as folder, control.Run(folder, "--log", "text") as run:
        run.wait_until("/readyz")
        found = ask(run, "/api/v1/log")
        assert [line["n"] for line in found["lines"]] == list(range(1, found["next"] + 1)), found
        first = found["lines"][0]
        assert first["text"] + "\n" == run.said[0][len("leat: "):] and first["repeated"] == 1 and first["level"] == "info", first
        assert abs(first["time"] - time.time() * 1000) < 600_000, first
        assert ask(run, f"/api/v1/log?after={found['next']}") == {"next": found["next"], "lines": []}
        assert ask(run, "/api/v1/log?after=123456789") == found  # a number of an earlier process
        is_refused(run, "/api/v1/log")


def write_dead(folder):
    """How many records of which kind there are: all, no JSON, too large a number."""
    records, bad, over = 40_000, 0, 0
    with open(os.path.join(folder, "data.jsonl"), "wb") as file:
        for i in range(records):
            if i % 2 == 1:
                file.write(HOSTILE[i // 2 % 5 if i >= 20 else 5].replace(b"\n", b"") + b"\n")
                bad += 1
            else:
                row = {"id": i, "ts": 1700000000000 + i, "<img onerror>": (IMG, RTL, "\x00\"", "y" * 3000)[i // 2 % 4]}
                row["n"] = 1 if i % 20 == 0 else 0
                over += i % 20 == 0
                file.write(json.dumps(row).encode() + b"\n")
    with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
        file.write(DEAD)
    return records, bad, over


def test_dead_letters():
    with tempfile.TemporaryDirectory() as folder:
        records, bad, over = write_dead(folder)
        with control.Run(folder, points="run.claimed=sleep:100") as run:
            run.wait_until("/readyz")
            seen, newest, total = {}, 0, 0
            while True:
                try:
                    found = ask(run, f"/api/v1/dead-letters?after={newest}")
                    again = ask(run, "/api/v1/dead-letters?after=123456789")["letters"]  # of an earlier process: all
                except OSError:
                    break  # the run has ended
                assert len(found["letters"]) <= 200 and found["total"] >= total, found["total"]
                numbers = [letter["n"] for letter in found["letters"]]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] > newest if numbers else True
                total, newest = found["total"], numbers[-1] if numbers else newest
                seen.update({letter["n"]: letter for letter in found["letters"]})
                assert not newest or (again and again[-1]["n"] >= newest), again[-1:]
                if len(seen) == len(found["letters"]):
                    is_refused(run, "/api/v1/dead-letters")
                time.sleep(0.05)
            summary = run.ends()
        dead = {node["part"]: node["counts"]["dead"] for node in summary["nodes"]}
        assert sum(dead.values()) == bad + 2 * over, dead
        letters = list(seen.values())
        assert {letter["part"] for letter in letters} == {part for part, count in dead.items() if count}, dead
        for letter in letters:
            assert sorted(letter) == ["n", "part", "place", "reason", "record", "record_bytes", "time"], letter
            assert len(letter["record"]) <= 1024 and 0 < len(letter["reason"]) <= 256, letter
            place = re.fullmatch(r"data\.jsonl record (\d+)", letter["place"])
            index = int(place[1])
            assert index < records and (index % 2 == 1) == (letter["part"] == "s"), letter
            if letter["part"] == "s":
                raw = HOSTILE[index // 2 % 5 if index >= 20 else 5]
                assert letter["record_bytes"] == len(raw), letter
                assert letter["record"] == raw[:1024].decode(errors="replace") or "\ufffd" in letter["record"], letter
            else:
                assert letter["record_bytes"] == 0 and letter["record"].startswith(f'{{"id": {index}, "ts": '), letter
                assert ("overflow" if letter["part"] == "larger/with" else "division by zero") in letter["reason"], letter
                if len(letter["record"].encode()) < 1024:
                    assert list(json.loads(letter["record"])) == ["id", "ts", "<img onerror>", "n"], letter
        texts = "".join(letter["record"] for letter in letters)
        assert IMG in texts and RTL in texts and "\ufffd" in texts and "x" * 1024 in texts, len(letters)
        assert any('"<img onerror>"' in letter["record"] for letter in letters)


def test_checkpoints():
    with live.place(control.JOB) as folder:
        with control.Run(folder, points=SLOWER + ",ckpt.order=error:ENOSPC@3") as run:
            run.wait_until("/readyz")
            found = wait_for(run, "/api/v1/checkpoints", lambda found: found["failed"] and len(found["checkpoints"]) >= 2)
            assert len(found["failed"]) == 1 and "No space left" in found["failed"][0]["reason"], found["failed"]
            before = None
            for _ in range(30):  # while checkpoints are taken and pruned
                found = ask(run, "/api/v1/checkpoints")
                ids = [item["id"] for item in found["checkpoints"]]
                assert found["newest"] == ids[0] and found["directory"] == "state" and found["keep"] == 3, found
                assert len(set(ids)) == len(ids), ids
                for item, older in zip(found["checkpoints"], found["checkpoints"][1:]):
                    assert item["micro_batch"] > older["micro_batch"] and item["time"] >= older["time"], (item, older)
                for item in found["checkpoints"]:
                    assert item["kind"] == ("delta" if item["parents"] else "full"), item
                    assert 0 < item["bytes"] and 0 <= item["stop_ms"] and item["duration_ms"] >= 0 and item["total_bytes"] > 0, item
                order = found["order_log"]
                assert order["position"] > 0 and order["micro_batch"] > 0, order
                assert before is None or order["position"] >= before["position"], (before, order)
                before = order
                time.sleep(0.1)
            assert any(item["kind"] == "delta" for item in found["checkpoints"]), found
            run.process.kill()
        listed = subprocess.run([LEAT, "checkpoint", "list", "state"], cwd=folder, capture_output=True, text=True, check=True).stdout
        listed = [line.split()[0] for line in listed.splitlines()]
        with control.Run(folder, points=SLOWER) as run:
            run.wait_until("/readyz")
            found = ask(run, "/api/v1/checkpoints")
            old = [item for item in found["checkpoints"] if item["id"] in listed]
            assert old and found["failed"] == [], found
            assert all(item["duration_ms"] is None and item["stop_ms"] is None and item["bytes"] > 0 for item in old), old
            assert run.ask("/api/v1/checkpoints", "POST")[0] == 405


def test_a_job_without_checkpoints_has_none():
    with tempfile.TemporaryDirectory() as folder:
        write_dead(folder)
        with control.Run(folder, points="run.claimed=sleep:100") as run:
            run.wait_until("/readyz")
            found = ask(run, "/api/v1/checkpoints")
            assert found["checkpoints"] == [] and found["newest"] is None and found["order_log"] is None, found


def test_a_stderr_that_takes_nothing():
    """Who says something waits, here that a checkpoint failed; the run goes on."""
    read, write = os.pipe()
    with control.place() as folder:
        process = subprocess.Popen([LEAT, "run", "job.leat", "--control", "127.0.0.1:0", "--quiet"], cwd=folder, stderr=write,
                                   stdout=subprocess.DEVNULL,
                                   env={**os.environ, "LEAT_FAILPOINTS": "run.claimed=sleep:200,ckpt.write=error:ENOSPC"})
        full = os.open(f"/proc/self/fd/{write}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            said = ""
            while not (at := re.search(control.AT.pattern, said)):
                said += os.read(read, 4096).decode()
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(full, bytes(4096))
            url, records = f"http://127.0.0.1:{at[1]}/api/v1", []
            deadline = time.monotonic() + PATIENCE_S
            while len(records) < 3 or records[-1] <= records[0]:
                assert time.monotonic() < deadline and process.poll() is None, records
                with contextlib.suppress(urllib.error.HTTPError):  # 503 at the beginning
                    with urllib.request.urlopen(f"{url}/checkpoints", timeout=PATIENCE_S) as answer:
                        has_failed = json.load(answer)["failed"] != []
                    with urllib.request.urlopen(f"{url}/figures", timeout=PATIENCE_S) as answer:
                        records += [json.load(answer)["records"]] if has_failed else []
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            for fd in (read, write, full):
                os.close(fd)


def test_secrets_are_in_no_line():
    """A password that a broker never gets, because it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write('job secret {}\nsource s = kafka { brokers: "127.0.0.1:1", topic: "t", patience: 1s, schema: { a: int },\n'
                       '  security: { protocol: sasl_plaintext, mechanism: plain, user: "u", password: env("THE_SECRET") } }\n'
                       "sink out = null from s {}\n")
        for form in ("text", "json"):
            done = subprocess.run([LEAT, "run", "job.leat", "--log", form], cwd=folder, capture_output=True, text=True, check=False,
                                  env={**os.environ, "THE_SECRET": "correct-horse\x01\"battery"}, timeout=PATIENCE_S)
            assert done.returncode != 0 and done.stderr, done
            assert "correct-horse" not in done.stderr + done.stdout and "battery" not in done.stderr + done.stdout, done


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
