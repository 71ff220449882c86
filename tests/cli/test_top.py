#!/usr/bin/env python3
"""`leat top`: the live view of a run, from another process. Prints TAP.

    tests/cli/test_top.py PATH_OF_LEAT
"""

import contextlib
import copy
import fcntl
import http.client
import http.server
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
FAILED = 1
COLUMNS, ROWS = 110, 40
AT = re.compile(r"leat: figures at http://127\.0\.0\.1:(\d+)/")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
KNOWN = re.compile(r"\x1b\[(H|K|J|7m|0m|\?1049h|\?1049l|\?25l|\?25h|\?7l|\?7h|\d+A)$")
JOB = """job watched { workers: 2 }
source s = console { schema: { id: int!, ts: time(ms), a: int, clicked: int }, event_time: ts }
stream kept = s | where a < 900 | dedup by id within 1h
stream features = kept | feature by a over 1h every 1m { n: count() }
learner model = fm from features { label: clicked, sparse: [a], embedding: { dim: 4 }, window: 500 }
sink out = null from model.predictions
"""
# With checkpoints, beside which the file CONTROL says where the run is.
KEPT = """job kept { workers: 1, checkpoint: { every: 1h, dir: "state" } }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), a: int, clicked: int }, event_time: ts }
sink out = null from s
"""
SLOW = "run.claimed=sleep:150"
ROWS_IN, BAD = 4_000, 40


def rows(count):
    return "".join(
        '{"id":%d,"ts":%d,"a":%d,"clicked":%d}\n' % (i - (i % 50 == 1), 1700000000000 + i, i * 7 % 1000, i % 3 == 0) for i in range(count))


@contextlib.contextmanager
def place(job=JOB):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(job)
        with open(os.path.join(folder, "data.jsonl"), "w", encoding="ascii") as file:
            file.write(rows(100_000))
        yield folder


class Terminal:
    """A program on a terminal of its own; `shown`: all that it wrote there."""

    def __init__(self, folder, *words, stdin=None, size=(ROWS, COLUMNS)):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before, self.slave, self.shown = termios.tcgetattr(slave), slave, ""
        self.process = subprocess.Popen([LEAT, *words], cwd=folder, stdin=slave if stdin is None else stdin, stdout=slave,
                                        stderr=slave, preexec_fn=self.own_terminal if stdin is None else None,
                                        env={**os.environ, "LEAT_FAILPOINTS": SLOW})

    @staticmethod
    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read(self, seconds=0.1):
        if select.select([self.master], [], [], seconds)[0]:
            self.shown += os.read(self.master, 1 << 16).decode("utf-8", "replace")

    def wait_for(self, pattern, since=0):
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.shown[since:])):
            assert time.monotonic() < deadline and self.process.poll() is None, (pattern, self.shown[-3000:])
            self.read()
        return found

    def press(self, key):
        os.write(self.master, key.encode())

    def ends(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self.read()
        self.read()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self.slave)
        os.close(self.master)


class Run(Terminal):
    """The job of the folder on a terminal, with a control API, fed through a pipe."""

    def __init__(self, folder, *words, port=0, size=(ROWS, COLUMNS)):
        read, self.feed = os.pipe()
        super().__init__(folder, "run", "job.leat", "--control", f"127.0.0.1:{port}", *words, stdin=read, size=size)
        os.close(read)
        self.port = int(self.wait_for(AT.pattern)[1])

    def wait_until_ready(self, token=None):
        headers, deadline = {"Authorization": f"Bearer {token}"} if token else {}, time.monotonic() + PATIENCE_S
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            connection.request("GET", "/readyz", headers=headers)
            status = connection.getresponse().status
            connection.close()
            if status == 200:
                return
            assert status == 503 and time.monotonic() < deadline, status
            time.sleep(0.02)

    def give(self):
        """Rows and bad rows."""
        with open(os.dup(self.feed), "w", encoding="ascii") as file:
            file.write(rows(ROWS_IN) + "nonsense\n" * BAD)

    def stands(self):
        """The newest picture, once it no longer changes but for its times."""
        before, since = None, time.monotonic()
        deadline = since + PATIENCE_S
        while time.monotonic() - since < 1.5:
            self.read()
            assert time.monotonic() < deadline, self.shown[-3000:]
            pictures = re.split(r"\x1b\[\d+A\r", self.shown)
            now = nodes_of(pictures[-2]) if len(pictures) > 2 else None  # the last one may not be whole
            if now != before:
                before, since = now, time.monotonic()
        return before

    def __exit__(self, *words):
        os.close(self.feed)
        super().__exit__(*words)


def nodes_of(picture):
    """The lines of the nodes, with what is below them."""
    lines = [line.rstrip() for line in SEQUENCE.sub("", picture).replace("\r", "").split("\n")]
    return [line for line in lines if line.startswith("  ")]


def top(folder, *words, expected=0, says=""):
    done = subprocess.run([LEAT, "top", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == expected and re.search(says, done.stdout + done.stderr), done
    return done.stdout


def test_the_same_picture():
    """A run that stands still looks the same on its own terminal, and from elsewhere."""
    with place() as folder, Run(folder) as run:
        run.give()
        run.wait_for(r"s: console +%d in" % (ROWS_IN + BAD))
        here = run.stands()
        assert any("logloss" in line for line in here) and any("duplicate" in line for line in here), here
        for words in ((f"http://127.0.0.1:{run.port}",), (f"http://127.0.0.1:{run.port}/", "--once")):
            there = top(folder, *words)
            assert "\x1b" not in there and re.match(r"watched  \d.* events  0 /s\n", there), there
            assert [line[:COLUMNS - 1].rstrip() for line in nodes_of(there)] == here, (there, here)


def test_on_a_terminal():
    """It leaves the terminal as it was; the run is killed and begins anew meanwhile."""
    with place() as folder, Run(folder, "--quiet") as run:
        run.give()
        with Terminal(folder, "top", f"http://127.0.0.1:{run.port}") as watch:
            watch.wait_for(r"watched  .* events")
            watch.wait_for(r"s: console +%d in" % (ROWS_IN + BAD))
            assert termios.tcgetattr(watch.slave)[3] & (termios.ICANON | termios.ECHO) == 0
            os.kill(run.process.pid, signal.SIGKILL)
            since = len(watch.shown)
            watch.wait_for(r"figures of \d+ s ago: no answer: ", since)
            since = len(watch.shown)
            with Run(folder, "--quiet", "--fresh", port=run.port):
                watch.wait_for(r"q leaves.*\n.*watched  .*  0 events", since)
                watch.press("q")
                assert watch.ends() == 0, watch.shown[-500:]
            assert termios.tcgetattr(watch.slave)[3] == watch.before[3], "the terminal is not as it was"
            assert watch.shown.rstrip().endswith("\x1b[?25h\x1b[?1049l"), watch.shown[-100:]
            strange = [found for found in SEQUENCE.findall(watch.shown) if not KNOWN.match(found)]
            assert not strange, strange


def check_size(picture, size):
    """Each line of the picture takes one row of the terminal, and the cursor stays on it."""
    rows, columns = size
    assert picture.count("\n") <= rows - 1, (size, picture)
    # What a terminal that does not wrap cuts by itself is cut before: only signs of two columns may be too wide.
    lines = SEQUENCE.sub("", picture).replace("\r", "").split("\n")
    assert all(len(line) <= columns for line in lines), (size, lines)
    assert lines[-1] == "", lines
    return lines


def test_small_terminals():
    """A terminal that is too narrow or too low shows what fits, and does not scroll."""
    for size, is_cut in (((ROWS, 20), False), ((6, 110), True), ((3, 12), True), ((2, 1), False), ((1, 1), False)):
        with place() as folder, Run(folder, size=size) as run:
            run.give()
            if size[1] > 12:
                run.wait_for(r"watched  ")
            deadline = time.monotonic() + PATIENCE_S
            while len(pictures := re.split(r"\x1b\[\d+A\r", run.shown)) < 6:
                assert time.monotonic() < deadline, run.shown
                run.read()
            lines = check_size(pictures[-2].replace("\x1b[?7l", "").replace("\x1b[?7h", ""), (max(size[0], 2), size[1]))
            assert re.match(r"\d+ more lin", lines[-2]) if is_cut else "more lines" not in lines[-2], (size, lines)
            moves = re.findall(r"\x1b\[(\d+)A", run.shown)
            assert max(map(int, moves)) <= max(size[0] - 1, 1), (size, moves)
            with Terminal(folder, "top", f"http://127.0.0.1:{run.port}", size=size) as watch:
                while len(pictures := watch.shown.split("\x1b[H")) < 4:
                    assert time.monotonic() < deadline, watch.shown
                    watch.read()
                check_size(pictures[-2], (max(size[0], 3), size[1]))
                watch.press("q")
                assert watch.ends() == 0, watch.shown[-500:]


def test_interrupted():
    with place(KEPT) as folder, Run(folder, "--quiet") as run:
        run.wait_until_ready()
        with Terminal(folder, "top", "job.leat") as watch:
            watch.wait_for("kept  ")
            watch.press("\x03")
            assert watch.ends() == 0 and termios.tcgetattr(watch.slave)[3] == watch.before[3]
            assert run.process.poll() is None


def test_found_or_not():
    with place(KEPT) as folder:
        top(folder, "job.leat", expected=FAILED, says="start the job with `leat run JOB --control")
        top(folder, "none.leat", expected=3, says="none.leat")
        top(folder, "127.0.0.1:8081", expected=FAILED, says="expected a URL.* found `127.0.0.1:8081`\n.*http://127.0.0.1:8081")
        top(folder, "http://127.0.0.1:1", expected=FAILED, says="no answer: .*\n.*`leat run JOB --control")
        top(folder, "http://127.0.0.1:8081/page", expected=FAILED, says="without path and user")
        top(folder, "http://leat.example:8081", expected=FAILED, says="would not be encrypted")
        top(folder, "https://127.0.0.1:8081", expected=FAILED, says="needs --authority")
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("a-token-of-mine\n")
        with Run(folder, "--quiet", "--control-token-file", "token") as run:
            at = f"http://127.0.0.1:{run.port}"
            top(folder, at, expected=FAILED, says="it wants a token: give --token-file")
            run.wait_until_ready("a-token-of-mine")
            top(folder, at, "--token-file", "token", says="^kept  ")
            top(folder, "job.leat", says="^kept  ")
            top(folder, "state", "--once", says="^kept  ")
    with place() as folder:
        top(folder, "job.leat", expected=FAILED, says="the job has no `checkpoint`")


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers each request with what the server's `status` and `body` are."""

    def do_GET(self):
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answers():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.status = 200
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


def real_figures(folder):
    with Run(folder, "--quiet") as run:
        run.give()
        run.wait_until_ready()
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{run.port}/api/v1/figures", timeout=PATIENCE_S) as answer:
                figures = json.load(answer)
            if figures["records"] >= ROWS_IN:
                return figures
            time.sleep(0.1)


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\u2066\r\b\x7f<img>\ud83d\ude00"


def test_hostile_texts():
    """Texts of the answer write nothing but text to the terminal."""
    with place() as folder, answers() as server:
        figures = real_figures(folder)
        figures["job"] = figures["bottleneck"] = HOSTILE
        for node in figures["nodes"]:
            node["label"] = node["error"] = node["warning"] = node["name"] = HOSTILE
            node["report"]["run"]["hot_key"] = HOSTILE
            node["time"]["held_by"] = HOSTILE
        figures["watermark"] = {"time": "2024-01-01T00:00:00Z", "behind_ms": 1.0, "source": HOSTILE, "partition": HOSTILE}
        server.body = json.dumps(figures).encode()
        shown = top(folder, f"http://127.0.0.1:{server.server_port}")
        assert "<img>" in shown and "hot key" in shown, shown
        bad = [char for char in shown if char != "\n" and (ord(char) < 32 or 0x7f <= ord(char) < 0xa0 or char in "\u202e\u2066")]
        assert not bad, bad
        with Terminal(folder, "top", f"http://127.0.0.1:{server.server_port}") as watch:
            watch.wait_for("hot key")
            watch.press("q")
            assert watch.ends() == 0
            left = SEQUENCE.sub(lambda found: "" if KNOWN.match(found[0]) else found[0], watch.shown)
            assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066]", left), left[:500]


def test_answers_to_leat_ctl():
    """As above; and only a savepoint is said to be one."""
    with answers() as server:
        at = f"http://127.0.0.1:{server.server_port}"
        saved = {"savepoint": f"/{HOSTILE}", "checkpoint": HOSTILE, "bytes": 3000}
        for words, status, body, expected, says in [
                (("savepoint", at), 200, json.dumps(saved), 0, r"savepoint /.*<img>.*: checkpoint .*<img>.*, 2\.9 KiB, every byte checked\n"),
                (("savepoint", at), 200, "[]", FAILED, "what answers is no run of this leat"),
                (("savepoint", at), 200, json.dumps({**saved, "bytes": -1}), FAILED, "what answers is no run of this leat"),
                (("stop", at), 501, "<html>", FAILED, r"what answers is no run of this leat: it answers with status 501\n"),
                (("savepoint", at), 503, HOSTILE, FAILED, r"the run refuses \(503\): .*<img>"),
                (("stop", at, "--no-wait"), 202, HOSTILE + "\n", 0, "<img>.*\n")]:
            server.status, server.body = status, body.encode("utf-8", "replace")
            done = subprocess.run([LEAT, "ctl", *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            said = done.stdout + done.stderr
            assert done.returncode == expected and re.search(says, said), (words, body, done)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", said), (words, body, done)


def changed(value, rng):
    """A value of JSON in whose stead another one may be."""
    if rng.random() < 0.02:
        return rng.choice([None, True, -1, 1e300, -(2**63), 2**63 - 1, "", HOSTILE, [], {}, [[]], {"a": {}}, 0.5])
    if isinstance(value, dict):
        return {name: changed(one, rng) for name, one in value.items() if rng.random() > 0.01}
    if isinstance(value, list):
        return [changed(one, rng) for one in value] * (300 if rng.random() < 0.01 else 1)
    return value


def test_wrong_answers():
    """An answer that is no figures is named so; none ends the program by a signal."""
    with place() as folder, answers() as server:
        at, rng, good = f"http://127.0.0.1:{server.server_port}", random.Random(7), 0
        figures = real_figures(folder)
        for body in (b"", b"{", b"[]", b"null", b'{"job": 1}', b'{"job":"a","records":1,"nodes":[1]}', b"\xff\xfe",
                     b"[" * 100_000):
            server.body = body
            top(folder, at, "--once", expected=FAILED, says="what answers is no run of this leat: ")
        server.status, server.body = 404, b"<html>"
        top(folder, at, expected=FAILED, says="no run of this leat: it answers with status 404\n.*was started with `leat run")
        server.status, processes = 200, []
        for _ in range(40):
            server.body = json.dumps(changed(copy.deepcopy(figures), rng)).encode()
            processes.append(subprocess.Popen([LEAT, "top", "--once", at], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            if len(processes) == 8:
                for process in processes:
                    out, said = process.communicate(timeout=PATIENCE_S)
                    assert process.returncode in (0, FAILED) and b"\x1b" not in out + said, (process.returncode, said)
                    good += process.returncode == 0
                processes = []
        assert good > 10, good


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
