#!/usr/bin/env python3
"""`leat ctl savepoint`: a running job takes a checkpoint, and keeps a copy of it that stands alone. Prints TAP.

    tests/cli/test_savepoint_now.py PATH_OF_LEAT
"""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import live  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
FAILED, USAGE = 1, 2
SLOWER = "run.claimed=sleep:200"
RECORDS = 60_000
JOB = """job saved { workers: 2, checkpoint: { every: EVERY, dir: "state", keep: { last: 1 } } }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), a: int, b: int, clicked: int }, event_time: ts }
stream kept = s | where a < 900 | dedup by id within 1h
stream features = kept | feature by a over 1h every 1m { n: count() }
learner model = fm from features { label: clicked, sparse: [a, b], dense: [log1p(n)], embedding: { dim: 4 } }
sink out = file from model.predictions { path: "out.jsonl" }
"""


def place(every="1h", records=RECORDS):
    return live.place(JOB.replace("EVERY", every), records)


class Run(live.Process):
    def __init__(self, folder, *words, points=SLOWER):
        super().__init__(folder, live.RUN_AT, "run", "job.leat", "--control", "127.0.0.1:0", "--quiet", *words, points=points)

    def key(self, folder):
        """The token of the file CONTROL, as soon as it is there."""
        self.wait_until_ready("/readyz")
        with open(os.path.join(folder, "state", "CONTROL"), encoding="ascii") as file:
            return {"Authorization": f"Bearer {file.read().split()[4]}"}

    def records(self):
        return json.loads(self.ask("/api/v1/figures")[2])["records"]

    def kills(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


def leat(folder, *words, expected=0, says="", points=""):
    done = subprocess.run([LEAT, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env={**os.environ, "LEAT_FAILPOINTS": points})
    assert done.returncode == expected and re.search(says, done.stdout + done.stderr), done
    return done.stdout + done.stderr


def content(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def records_of(folder, savepoint):
    """The records that a checkpoint has."""
    sink = f"out=rest-{os.path.basename(savepoint)}.jsonl"
    said = leat(folder, "run", "job.leat", "--from", savepoint, "--quiet", "--sink", sink)
    return int(re.search(r"leat: (\d+) records are done", said)[1])


def test_killed_right_afterwards():
    """A new run from the savepoint makes of the rest what an undisturbed run makes of it, byte for byte."""
    with place() as folder, place() as alone:
        leat(alone, "run", "job.leat", "--quiet")
        with Run(folder) as run:
            run.key(folder)
            while run.records() < RECORDS / 10:
                time.sleep(0.05)
            said = leat(folder, "ctl", "savepoint", "job.leat", "before_change-1")
            run.kills()
        at = re.fullmatch(r"savepoint (/.*/state/savepoints/before_change-1): checkpoint 1-\d+, .*, every byte checked\n", said)
        assert at and os.path.samefile(at[1], os.path.join(folder, "state", "savepoints", "before_change-1")), said
        assert os.listdir(at[1]) == ["gen-000001"] and os.listdir(os.path.dirname(at[1])) == ["before_change-1"]
        os.rename(at[1], os.path.join(folder, "elsewhere"))  # it stands alone
        subprocess.run(["rm", "-r", os.path.join(folder, "state")], check=True)
        done = records_of(folder, "elsewhere")
        assert RECORDS / 10 <= done < RECORDS, done
        whole, rest = content(alone, "out.jsonl"), content(folder, "rest-elsewhere.jsonl")
        assert rest and len(rest) < len(whole) and whole.endswith(rest), (len(rest), len(whole))


def test_all_until_the_request():
    """Also if a checkpoint is in work when it comes, whose barrier was before; of every one of several requests."""
    with place("20ms", 400_000) as folder, Run(folder, points=SLOWER + ",ckpt.fsync=sleep:100") as run:
        run.key(folder)
        asked = {}
        for i in range(5):
            asked[f"s{i}"] = run.records()
            leat(folder, "ctl", "savepoint", "state", f"s{i}", says=f"savepoints/s{i}: checkpoint")
        assert run.is_alive()
        run.kills()
        for name, records in asked.items():
            savepoint = f"state/savepoints/{name}"
            leat(folder, "checkpoint", "verify", savepoint, says="every byte is as written")
            done = records_of(folder, savepoint)
            assert done >= records, (name, done, records)


def test_names():
    with place() as folder, Run(folder) as run:
        key = run.key(folder)
        said = leat(folder, "ctl", "savepoint", "job.leat", says="^savepoint ")
        name = re.search(r"savepoints/(\S+): checkpoint (\S+),", said)
        assert name[1] == name[2], "without a name it is the checkpoint's"
        leat(folder, "ctl", "savepoint", "job.leat", "a", says="^savepoint ")
        leat(folder, "ctl", "savepoint", "job.leat", "a", expected=FAILED, says=r"refuses \(409\): there is a savepoint of that name")
        for bad in ("", "../x", "a/b", ".", "..", "A", "x" * 65, "a%2fb", "é", "a&name=b"):
            leat(folder, "ctl", "savepoint", "job.leat", bad, expected=USAGE, says="a savepoint's name is 1 to 64 of")
        for query in ("name=", "name=..", "name=../x", "name=%2e%2e", "name=A", "name=" + "x" * 65, "name=a&x=1", "x=1", "name"):
            status, _, text = run.ask(f"/api/v1/savepoint?{query}", "", **key)
            assert status == 400 and "a savepoint has a name, and no path" in text, (query, status, text)
        assert sorted(os.listdir(os.path.join(folder, "state", "savepoints"))) == sorted([name[1], "a"])
        leat(folder, "ctl", "savepoint", "job.leat", "b", "c", expected=USAGE, says="give one job only")
        leat(folder, "ctl", "stop", "job.leat", "b", expected=USAGE, says="give one job only")
        leat(folder, "ctl", "savepoint", "job.leat", "--no-wait", expected=USAGE, says="--no-wait goes with")


def test_who_may():
    with place() as folder, Run(folder) as run:
        key = run.key(folder)
        at = f"http://127.0.0.1:{run.port}"
        assert run.ask("/api/v1/savepoint", "")[0] == 401
        assert run.ask("/api/v1/savepoint", "", Authorization="Bearer " + "0" * 64)[0] == 401
        assert run.ask("/api/v1/savepoint", **key)[0] == 405
        assert run.ask("/api/v1/savepoint", "", Origin="http://leat.example", **key)[0] == 403
        leat(folder, "ctl", "savepoint", at, expected=FAILED, says=r"refuses \(401\): it wants a token\n.*third line of CONTROL")
        assert not os.path.exists(os.path.join(folder, "state", "savepoints"))
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("another-token\n")
        leat(folder, "ctl", "savepoint", at, "--token-file", "token", expected=FAILED, says="token-file has another token than the run")
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write(key["Authorization"].split()[1] + "\n")
        leat(folder, "ctl", "savepoint", at, "by-url", "--token-file", "token", says="savepoints/by-url: checkpoint")


class Asking(threading.Thread):
    """Asks for a savepoint, in a thread of its own."""

    def __init__(self, run, key, name):
        super().__init__()
        self.run_, self.key, self.name_, self.found = run, key, name, None
        self.start()

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.found = self.run_.ask(f"/api/v1/savepoint?name={self.name_}", "", **self.key)

    def ends(self):
        self.join(PATIENCE_S)
        return self.found


def test_one_at_a_time():
    """Another one is refused meanwhile; who asks and leaves does no harm; other requests are answered."""
    with place() as folder, Run(folder, points="run.claimed=sleep:400,ckpt.fsync=sleep:300") as run:
        key = run.key(folder)
        connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=PATIENCE_S)
        connection.request("POST", "/api/v1/savepoint?name=left", headers=key)
        time.sleep(0.1)
        connection.close()
        status, _, text = run.ask("/api/v1/savepoint?name=other", "", **key)
        assert status == 429 and "a savepoint is being written" in text, (status, text)
        assert run.ask("/healthz")[0] == 200
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(os.path.join(folder, "state", "savepoints", "left")):
            assert time.monotonic() < deadline and run.is_alive()
            time.sleep(0.02)
        leat(folder, "checkpoint", "verify", "state/savepoints/left")


def test_a_full_disk():
    """The reason is said, nothing half is left, and the run goes on."""
    with place(records=300_000) as folder, Run(folder, points=SLOWER + ",ckpt.write=error:ENOSPC@1") as run:
        run.key(folder)
        leat(folder, "ctl", "savepoint", "job.leat", "a", expected=FAILED,
             says=r"refuses \(503\): no checkpoint can be written: .*No space left on device")
        deadline = time.monotonic() + PATIENCE_S
        while True:  # until a checkpoint was taken again
            status = subprocess.run([LEAT, "ctl", "savepoint", "job.leat", "a"], cwd=folder, capture_output=True, check=False).returncode
            if status == 0:
                break
            assert status == FAILED and time.monotonic() < deadline and run.is_alive()
            time.sleep(0.5)
    with place() as folder, Run(folder, points=SLOWER + ",ckpt.rename=error:ENOSPC@3") as run:
        key = run.key(folder)
        status, _, text = run.ask("/api/v1/savepoint?name=a", "", **key)
        assert status == 503 and re.search(r"E0708: the copy cannot be written: .*No space left on device; free some", text), (status, text)
        assert os.listdir(os.path.join(folder, "state", "savepoints")) == [], "half a copy"
        assert run.ask("/api/v1/savepoint?name=a", "", **key)[0] == 200


def test_the_run_ends_meanwhile():
    """A copy in work is finished; who waits for a checkpoint that does not come is told so."""
    with place() as folder, Run(folder, points=SLOWER + ",ckpt.rename=sleep:4000@3") as run:
        asking = Asking(run, run.key(folder), "a")
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(os.path.join(folder, "state", "savepoints", "a.tmp")):
            assert time.monotonic() < deadline and run.is_alive(), asking.ends()
            time.sleep(0.01)
        run.process.terminate()
        assert run.process.wait(PATIENCE_S) == 0, run.said
        assert asking.ends()[0] == 200, asking.found
        leat(folder, "checkpoint", "verify", "state/savepoints/a")


def test_killed_meanwhile():
    """Of a copy that was not whole nothing is left when the next run has begun; whole ones stay."""
    with place() as folder:
        savepoints = os.path.join(folder, "state", "savepoints")
        with Run(folder, points=SLOWER + ",ckpt.rename=sleep:60000@5") as run:
            key = run.key(folder)
            assert run.ask("/api/v1/savepoint?name=whole", "", **key)[0] == 200
            asking = Asking(run, key, "half")
            deadline = time.monotonic() + PATIENCE_S
            while not os.path.exists(os.path.join(savepoints, "half.tmp")):
                assert time.monotonic() < deadline and run.is_alive(), asking.ends()
                time.sleep(0.01)
            run.kills()
        asking.ends()
        assert sorted(os.listdir(savepoints)) == ["half.tmp", "whole"]
        with Run(folder) as run:
            run.wait_until_ready("/readyz")
            assert os.listdir(savepoints) == ["whole"], os.listdir(savepoints)
            leat(folder, "ctl", "savepoint", "job.leat", "half", says="savepoints/half: checkpoint")
            run.kills()
        subprocess.run(["rm", "-r", savepoints], check=True)
        with open(savepoints, "w", encoding="ascii"):
            pass  # a run that cannot look for copies says so, and begins
        with Run(folder) as run:
            key = run.key(folder)
            assert run.ask("/api/v1/savepoint?name=a", "", **key)[0] == 503
            assert any("that are not whole cannot be removed" in line for line in run.said), run.said


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
