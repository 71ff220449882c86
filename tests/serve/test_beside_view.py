#!/usr/bin/env python3
"""`leat run --serve` shows what the server beside it does: on a terminal, in lines of progress, and in the summary; also of a
server that an earlier run started, and of one that is stopped or killed.

    tests/serve/test_beside_view.py PATH_OF_LEAT
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import LEAT, Place  # noqa: E402
from server import Client, tensor  # noqa: E402

JOB = jobs.learner("linear").replace("every: 1h", "every: 50ms").replace("deadline: 1m }", 'deadline: 1m, listen: "127.0.0.1:0" }')
SLOW = "run.claimed=sleep:20"
LINE = (r"  serve scores +requests [\d.]+ k?/s  rows [\d.]+ k?/s  p50 [\d.]+ ms  p99 [\d.]+ \(read [\d.]+, queue [\d.]+, "
        r"compute [\d.]+, write [\d.]+\)")


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)


class Beside:
    """A slow run with a server beside it. columns: of the terminal that its messages go to; None: they go to a pipe."""

    def __init__(self, place, *words, columns=None):
        self.place, self.text = place, ""
        ours, theirs = os.pipe() if columns is None else pty.openpty()
        if columns is not None:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        self.process = subprocess.Popen(
            [LEAT, "run", place.path("job.leat"), "--serve", *words, *place.settings()], stdout=subprocess.PIPE,
            stderr=theirs, text=True, env={**os.environ, "LEAT_TEST_CUT": "1", "LEAT_FAILPOINTS": SLOW})
        os.close(theirs)
        self.thread = threading.Thread(target=self.read, args=(ours,))
        self.thread.start()

    def read(self, descriptor):
        with contextlib.suppress(OSError):  # a terminal whose other side is closed
            while piece := os.read(descriptor, 65536):
                self.text += piece.decode(errors="replace")
        os.close(descriptor)

    def wait(self, pattern):
        """A match in what is shown from now on."""
        begin = len(self.text)
        wait_for(lambda: re.search(pattern, self.text[begin:]), lambda: (pattern, self.text[-1500:]))

    def holder(self):
        wait_for(lambda: "serves" in self.text, lambda: self.text)
        with open(self.place.path("state/SERVE"), encoding="ascii") as file:
            return int(file.read().split()[0])

    def end(self, number=signal.SIGINT):
        """Ends the run; what it wrote to stdout."""
        self.process.send_signal(number)
        out = self.process.stdout.read()
        self.process.wait(PATIENCE_S)
        self.thread.join(PATIENCE_S)
        return out


@contextlib.contextmanager
def beside(place, *words, columns=None):
    run = Beside(place, *words, columns=columns)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()
        run.thread.join(PATIENCE_S)
        run.process.stdout.close()
        with contextlib.suppress(OSError, ValueError, IndexError):
            os.kill(run.holder(), signal.SIGKILL)


class Asker:
    """Asks without a pause until stopped; counts what was answered."""

    def __init__(self, place):
        with open(place.path("state/serve.log"), encoding="utf-8") as file:
            port = int(re.findall(r"listening on http://127.0.0.1:(\d+)", file.read())[-1])
        self.client, self.is_stopped, self.statuses = Client(port), False, []
        wait_for(lambda: self.client.get("/v2/health/ready")[0] == 200, "the server is not ready")
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        with contextlib.suppress(OSError):
            while not self.is_stopped:
                self.statuses.append(self.client.infer("scores", [tensor("user", [7])])[0])
                time.sleep(0.002)

    def stop(self):
        self.is_stopped = True
        self.thread.join(PATIENCE_S)
        return self.statuses.count(200)


def test_on_a_terminal():
    """A line with rates and times; one that says why there are none; and a warning, once, when the server has ended."""
    with Place(JOB, rows=30000) as place, beside(place, columns=220) as run:
        server, asker = run.holder(), None
        try:
            asker = Asker(place)
            run.wait(LINE + r"[^\n]*  [\d.]+ s old\x1b\[K\r\n\x1b\[\?7h\x1b\[J\x1b\[\d+A\r")
            os.kill(server, signal.SIGSTOP)
            run.wait(r"  serve  the server has not answered for [4-9]\.\d s\x1b\[K")
            os.kill(server, signal.SIGCONT)
            run.wait(LINE)
            os.kill(server, signal.SIGKILL)
            run.wait(r"leat: WARNING: the server beside the run has ended[^\n]*serve\.log")
            run.wait(r"  serve  the server has ended\x1b\[K")
        finally:
            if asker is not None:
                asker.stop()
        assert "serve scores: " in run.end(), run.text[-900:]
        assert run.process.returncode == 0 and run.text.count("WARNING: the server beside") == 1, run.text[-900:]


def test_narrow():
    """No line is wider than the terminal: with the slowest phase alone, or cut."""
    for columns, wanted in ((80, r"  serve scores  [^\n]*[\d.]+ k?/s  p50 [\d.]+ ms  p99 [\d.]+ \((read|queue|compute|write) [\d.]+\)"),
                            (40, r"  serve scores  [^\n]*[\d.]+ k?/s  p50 ")):
        with Place(JOB, rows=30000) as place, beside(place, columns=columns) as run:
            run.holder()
            asker = Asker(place)
            try:
                run.wait(wanted)
            finally:
                asker.stop()
            run.end()
            pictures = [line for line in run.text.replace("\r", "").split("\n") if line.endswith("\x1b[K")]
            shown = [re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", line) for line in pictures]
            assert len(shown) > 10 and max(map(len, shown)) < columns, max(shown, key=len)


def answered_by_now(run):
    """What the control API of a run knows of its server."""
    port = int(re.search(r"the run's page at http://127\.0\.0\.1:(\d+)/", run.text)[1])
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/figures", timeout=PATIENCE_S) as answer:
            return sum(served["answered"] for served in json.load(answer)["serves"] if served["name"] == "scores")
    except urllib.error.HTTPError:  # the run is being restored
        return 0


def test_an_earlier_server():
    """A run that is killed leaves its server; the next run shows that one's figures, and counts all that it answered."""
    with Place(JOB, rows=30000) as place:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(beside(place, "--progress", "1s"))
            server = first.holder()
            asker = Asker(place)
            try:
                first.wait(r"parity  [^\n]*    serve scores +requests [\d.]+ k?/s  rows [\d.]+ k?/s  p50")
                assert "\x1b" not in first.text, first.text
                first.end(signal.SIGKILL)
                second = stack.enter_context(beside(place, "--json", "--progress", "1s", "--ui", "127.0.0.1:0"))
                assert second.holder() == server and "serves already" in second.text, second.text
                some_more = len(asker.statuses) + 100
                wait_for(lambda: len(asker.statuses) > some_more, "nobody is answered")
                wait_for(lambda: answered_by_now(second) > 100, "the control API does not count what is answered")
            finally:
                answered = asker.stop()
            [served] = json.loads(second.end())["serves"]
            refused = len(asker.statuses) - answered
            assert served == {"name": "scores", "requests": answered + refused, "answered": answered, "filtered": 0, "failed": 0,
                              "refused": refused, "shed": 0, "expired": 0}, (served, answered, refused)


def test_two_runs():
    """A second run of another version of the job is refused, and leaves the first run's server alone."""
    with Place(JOB, rows=30000) as place, beside(place, columns=150) as run:
        server = run.holder()
        run.wait(r"  serve scores ")
        place.write("job.leat", JOB.replace("deadline: 1m", "deadline: 2m"))
        second = place.leat("run", "--serve", "--quiet")
        assert second.returncode == 1 and "is used by another process" in second.stderr, second.stderr
        assert run.holder() == server and "version of the job ends" not in second.stderr, second.stderr
        run.wait(r"  serve scores [^\n]* old")
        run.end()


def test_without_a_file():
    """A server that cannot write its figures says so in its log, once, and goes on."""
    with Place(JOB, rows=30000) as place, beside(place, columns=150) as run:
        run.holder()
        asker = Asker(place)
        try:
            run.wait(LINE)
            os.mkdir(place.path("state/serve.figures.tmp"))
            run.wait(r"  serve  the server has not answered for")
            with open(place.path("state/serve.log"), encoding="utf-8") as file:
                assert file.read().count("figures cannot be written to") == 1
            before = len(asker.statuses)
            wait_for(lambda: len(asker.statuses) > before + 10, "nobody is answered")
            os.rmdir(place.path("state/serve.figures.tmp"))
            run.wait(LINE)
            with open(place.path("state/serve.figures"), "w", encoding="ascii") as file:
                file.write("leat serve figures 1 5 1\nscores nonsense\n")
            run.wait(LINE)
        finally:
            asker.stop()
        run.end()


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
