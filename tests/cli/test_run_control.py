#!/usr/bin/env python3
"""The control API of `leat run --control`: figures of a run that goes on, which equal those of its summary, and change
nothing; and `leat ctl`, which tells it to take a checkpoint, or to stop. Prints TAP.

    tests/cli/test_run_control.py PATH_OF_LEAT
"""

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
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
FAILED = 1
AT = re.compile(r"leat: figures at http://127\.0\.0\.1:(\d+)/api/v1/figures and /metrics")
SAMPLE = re.compile(r'([a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')
SLOW, SLOWER = "run.claimed=sleep:25", "run.claimed=sleep:300"
RECORDS = 120_000

JOB = """job controlled { workers: 2, checkpoint: { every: 500ms, dir: "state" } }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), a: int, b: int, clicked: int }, event_time: ts }
stream kept = s | where a < 900 | dedup by id within 1h
stream features = kept | feature by a over 1h every 1m { n: count() }
learner model = fm from features { label: clicked, sparse: [a, b], dense: [log1p(n)], embedding: { dim: 4 } }
sink out = file from model.predictions { path: "out.jsonl" }
sink dead = file from dead_letters { path: "dead.jsonl" }
"""


def place():
    return live.place(JOB, RECORDS)


class Run:
    """A run with a control API at a port of its own; `said`: its lines on stderr."""

    def __init__(self, folder, *words, points=SLOW, **environment):
        self.said, self.port = [], None
        self.process = subprocess.Popen([LEAT, "run", "job.leat", "--control", "127.0.0.1:0", "--json", *words], cwd=folder,
                                        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "LEAT_FAILPOINTS": points, **environment})
        for line in self.process.stderr:
            self.said.append(line)
            if AT.match(line):
                self.port = int(AT.match(line)[1])
                break
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr))
        self.reader.start()

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    def wait_until(self, path, status=200):
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.ask(path))[0] != status:
            assert time.monotonic() < deadline and self.process.poll() is None, (found, self.said)
            time.sleep(0.02)
        return found[1]

    def ends(self):
        out = self.process.stdout.read()
        assert self.process.wait(PATIENCE_S) == 0, self.said
        self.reader.join(PATIENCE_S)
        return json.loads(out)

    def __enter__(self):
        assert self.port is not None, self.said
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()


def parse(text):
    """{(name, labels): value}, and types by name. Each metric has its HELP and TYPE before its samples, once."""
    assert text.endswith("\n")
    samples, types, now = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            now = line.split(" ", 3)[2]
            assert now not in types and line.split(" ", 3)[3], line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == now and kind in ("counter", "gauge"), line
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match and match[1] == now and now in types, line
            key = (now, frozenset(LABEL.findall(match[2] or "")))
            assert key not in samples, line
            samples[key] = float(match[3])
            assert (types[now] == "counter") == now.endswith("_total"), line
    return samples, types


def value(samples, name, **labels):
    return samples[(name, frozenset(labels.items()))]


def test_figures_of_a_checkpoint_belong_together():
    """Those of the last one stay as they are while the next one is written."""
    with place() as folder, Run(folder, points=SLOWER + ",ckpt.manifest=sleep:1000") as run:
        run.wait_until("/readyz")
        found, deadline = {}, time.monotonic() + PATIENCE_S
        while len(found) < 4:
            figures = json.loads(run.ask("/api/v1/figures")[1])
            told = (figures["checkpoint_bytes"], figures["checkpoint_stop_ms"], figures["checkpoint_duration_ms"])
            found.setdefault(figures["checkpoint_epoch"], set()).add(told)
            assert time.monotonic() < deadline and run.process.poll() is None, (found, run.said)
            time.sleep(0.05)
        assert all(len(told) == 1 for told in found.values()), found


def test_figures():
    """Counters rise alone, and rows add up in each answer; figures and summary say the same in the end."""
    with place() as folder, Run(folder) as run:
        run.wait_until("/readyz")
        before, scrapes, last = {}, 0, 0
        while True:
            try:
                samples, types = parse(run.ask("/metrics")[1])
                figures = json.loads(run.ask("/api/v1/figures")[1])
            except (OSError, http.client.HTTPException):
                break  # the run has ended
            fell = [key for key, count in before.items() if types[key[0]] == "counter" and samples[key] < count]
            assert not fell, fell
            assert figures["records_life"] >= last, figures["records_life"]
            before, last, scrapes = samples, figures["records_life"], scrapes + 1
            time.sleep(0.1)
        summary = run.ends()
        assert scrapes >= 5 and 0 < last <= RECORDS + RECORDS / 1000, (scrapes, last)
        assert value(before, "leat_run_records_total") <= summary["records_life"] and summary["good"], summary
        assert {node["part"] for node in summary["nodes"]} == {
            dict(labels)["node"] for name, labels in before if name == "leat_node_rows_total"}, before
        for node in summary["nodes"]:
            counts, kind = node["counts"], node["kind"]
            for rows in ("in", "passed", "duplicate", "dead", "absorbed"):
                found = value(before, "leat_node_rows_total", node=node["part"], kind=kind, rows=rows)
                assert counts[rows] * 0.3 <= found <= counts[rows], (node["part"], rows, found, counts)
        assert value(before, "leat_learner_rows", node="model", kind="fm", over="run") > 0
        assert value(before, "leat_checkpoints_total") >= 1 and value(before, "leat_checkpoint_bytes") > 0
        lanes = sum(count for (name, _), count in before.items() if name == "leat_lane_seconds_total")
        assert lanes <= 2 * value(before, "leat_run_seconds") + 2, (lanes, value(before, "leat_run_seconds"))


def digest(folder):
    with open(os.path.join(folder, "out.jsonl"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def test_changes_nothing():
    """The output of a run that is asked all the time, and of one that nobody can ask."""
    with place() as asked, place() as alone:
        with Run(asked) as run:
            with contextlib.suppress(OSError, http.client.HTTPException):
                while True:
                    run.ask("/metrics")
            run.ends()
        subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=alone, check=True, stdout=subprocess.DEVNULL)
        assert digest(asked) == digest(alone)


def test_ready_after_the_restore():
    with place() as folder:
        with Run(folder) as run:
            run.wait_until("/readyz")
            deadline = time.monotonic() + PATIENCE_S
            while value(parse(run.ask("/metrics")[1])[0], "leat_checkpoints_total") == 0:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            run.process.kill()
        with Run(folder, points=f"restore.begin=sleep:1500,{SLOW}") as run:
            assert run.ask("/healthz") == (200, "ok\n")
            status, said = run.ask("/readyz")
            assert (status, said) == (503, "the run is being restored\n"), said
            assert run.ask("/api/v1/figures")[0] == 503
            samples, _ = parse(run.ask("/metrics")[1])
            names = {name for name, _ in samples}
            assert names and all(name.startswith(("leat_net_", "leat_build_info")) for name in names), names
            run.wait_until("/readyz")
            run.process.kill()
            run.reader.join(PATIENCE_S)
            assert "resuming from checkpoint" in "".join(run.said), run.said


def test_what_is_refused():
    with place() as folder, Run(folder) as run:
        run.wait_until("/readyz")
        assert run.ask("/nothing")[0] == 404 and run.ask("/metrics/")[0] == 404 and run.ask("/api/v1/../figures")[0] in (400, 404)
        assert run.ask("/metrics", "POST")[0] == 405
        assert run.ask("/metrics", Host="leat.example")[0] >= 400, "a name that an attacker's DNS gives"
        assert run.ask("/metrics", Origin="http://leat.example")[0] >= 400
        answer = http.client.HTTPConnection("127.0.0.1", run.port, timeout=PATIENCE_S)
        answer.request("GET", "/metrics")
        headers = dict(answer.getresponse().getheaders())
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store", headers
        answer.close()
        taken = subprocess.run([LEAT, "run", "job.leat", "--control", f"127.0.0.1:{run.port}", "--set", "x=1"], cwd=folder,
                               capture_output=True, text=True, check=False)
        assert taken.returncode != 0, taken
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(PATIENCE_S) == 0, run.said


def ctl(folder, *words, expected=0, says=""):
    done = subprocess.run([LEAT, "ctl", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == expected and re.search(says, done.stdout + done.stderr), done
    return done


def test_ctl():
    """A run is told to take a checkpoint, and to stop; it goes on from there, as if it had never stopped."""
    with place() as folder, place() as alone:
        text = JOB.replace("every: 500ms", "every: 1h")
        assert text != JOB
        for where in (folder, alone):
            with open(os.path.join(where, "job.leat"), "w", encoding="ascii") as file:
                file.write(text)
        with Run(folder, points=SLOWER) as run:
            run.wait_until("/readyz")
            key = os.path.join(folder, "state", "CONTROL")
            assert os.stat(key).st_mode & 0o777 == 0o600
            ctl(folder, "checkpoint", "job.leat", says=r"^checkpoint 1 is written$")
            ctl(folder, "checkpoint", "job.leat", says=r"^checkpoint 2 is written$")
            ctl(folder, "stop", "job.leat", says="the run has stopped, after ")
            summary = run.ends()
            assert not summary["finished"] and summary["checkpoints"] == 3, summary
            assert "as the control API was asked to" not in "".join(run.said), "--json says no progress"
            assert not os.path.exists(key)
        ctl(folder, "stop", "job.leat", expected=FAILED, says="no run with a control API uses `state`")
        for where in (folder, alone):
            subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=where, check=True, stdout=subprocess.DEVNULL)
        assert digest(folder) == digest(alone)


def test_who_may_act():
    """The token of CONTROL alone, also on loopback; that of readers is not enough."""
    for words, reader in (((), {}), (("--control-token-file", "token"), {"Authorization": "Bearer readers-token"})):
        with place() as folder:
            with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
                file.write("readers-token\n")
            with Run(folder, *words, points=SLOWER) as run:
                deadline = time.monotonic() + PATIENCE_S
                while run.ask("/readyz", **reader)[0] != 200:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                with open(os.path.join(folder, "state", "CONTROL"), encoding="ascii") as file:
                    first, address, token, certificate = file.read().split("\n")[:4]
                assert (first, address, certificate) == ("leat control 1", f"127.0.0.1:{run.port}", ""), (first, address)
                wrong = {"Authorization": "Bearer " + token[:-1] + ("0" if token[-1] != "0" else "1")}
                for path in ("/api/v1/stop", "/api/v1/checkpoint", "/api/v1/savepoint"):
                    assert run.ask(path, "POST")[0] == 401 and run.ask(path, "POST", **wrong)[0] == 401
                    assert run.ask(path, "POST", **reader)[0] == 401, "readers may not act"
                    assert run.ask(path, **{"Authorization": f"Bearer {token}"})[0] == 405
                assert run.ask("/api/v1/stop", "POST", Origin="http://leat.example", Authorization=f"Bearer {token}")[0] == 403
                assert run.process.poll() is None
                assert run.ask("/metrics", Authorization=f"Bearer {token}")[0] == 200
                assert token not in run.ask("/api/v1/figures", Authorization=f"Bearer {token}")[1]
                ctl(folder, "stop", "job.leat", "--no-wait", says="the run stops after a checkpoint")
                assert not run.ends()["finished"]


def test_ctl_finds_no_run():
    with place() as folder:
        ctl(folder, "stop", expected=2, says="tell which job")
        ctl(folder, "dance", "job.leat", expected=2, says="`checkpoint`, `savepoint` or `stop`, not `dance`")
        ctl(folder, "stop", "job.leat", expected=FAILED, says="start the job with `leat run JOB --control")
        with Run(folder, points=SLOWER) as run:
            run.wait_until("/readyz")
            run.process.kill()
        ctl(folder, "stop", "job.leat", expected=FAILED, says="the run does not answer: .*\n.*run the job again")
        with open(os.path.join(folder, "state", "CONTROL"), "w", encoding="ascii") as file:
            file.write("leat control 1\n127.0.0.1:1\nshort\n\n")
        ctl(folder, "stop", "job.leat", expected=FAILED, says="is damaged, or of another version")
        subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(JOB.replace(', checkpoint: { every: 500ms, dir: "state" }', ""))
        ctl(folder, "stop", "job.leat", expected=FAILED, says="the job has no `checkpoint`")
        os.remove(os.path.join(folder, "out.jsonl"))
        os.remove(os.path.join(folder, "dead.jsonl"))
        with Run(folder, points=SLOWER) as run:
            run.wait_until("/readyz")
            assert run.ask("/api/v1/stop", "POST", Authorization="Bearer x")[0] == 403


def refuse(folder, *words, says):
    done = subprocess.run([LEAT, "run", "job.leat", *words], cwd=folder, capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S)
    assert done.returncode in (FAILED, 2) and re.search(says, done.stderr), done


def test_addresses_and_tokens():
    with place() as folder, socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        refuse(folder, "--control", f"127.0.0.1:{busy.getsockname()[1]}", says="Address already in use")
        refuse(folder, "--control", f"127.0.0.1:{busy.getsockname()[1]}", says="--listen or --control")
        refuse(folder, "--control", "0.0.0.0:0", says="certificate|TLS|plaintext")
        refuse(folder, "--control", "nonsense", says="HOST:PORT|address")
        refuse(folder, "--control-token-file", "x", says="need --ui, --control or `ui`")
        refuse(folder, "--control", "127.0.0.1:0", "--control-token-file", "none", says="`none` cannot be read")
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("a-token-of-mine\n")
        with Run(folder, "--control-token-file", "token") as run:
            assert run.ask("/healthz")[0] == 401 and run.ask("/metrics", Authorization="Bearer a-token-of-mina")[0] == 401
            assert run.ask("/healthz", Authorization="Bearer a-token-of-mine")[0] == 200


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
