#!/usr/bin/env python3
"""What keeps a run from going faster: named in progress and in the summary, while the run goes on and at its end. Prints TAP.

    tests/cli/test_bottleneck.py PATH_OF_LEAT
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
SLOW = "sink.write=sleep:200"
NAMED_S = 5
SHARES = re.compile(r"lanes: (\d+) % process, (\d+) % decode, (\d+) % blocked, (\d+) % wait for records")
LINE = '{"id":%d,"ts":%d,"text":"%s"}\n'

LEARNS = """job learns { workers: 2 }
source s = file { path: "data.jsonl", schema: { id: int!, ts: time(ms), a: int, b: int, c: int, clicked: int }, event_time: ts }
stream features = s | feature by a over 1h every 1m { n: count() } | with d = n + b
learner model = ffm from features { label: clicked, sparse: [a, b, c], embedding: { dim: 32 } }
sink out = null from model.predictions {}
"""
WRITES = """job writes { workers: %d }
source s = console { schema: { id: int!, ts: time(ms), text: text }, event_time: ts }
stream t = s | where id >= 0 | with twice = id * 2
sink out = file from t { path: "out.jsonl" }
"""


def run(folder, job, *words, points="", **names):
    with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
        file.write(job)
    return subprocess.Popen([LEAT, "run", "job.leat", *words], cwd=folder, text=True, stderr=subprocess.PIPE,
                            env={**os.environ, "LEAT_FAILPOINTS": points}, **names)


def check_summary(summary):
    shares = summary["lane_time"]
    assert all(share >= 0 for share in shares.values()) and abs(sum(shares.values()) - 1) < 0.001, shares
    nodes = [node["lane_share"] for node in summary["nodes"]]
    assert all(0 <= share < 1.001 for share in nodes), nodes
    return {node["name"]: node["lane_share"] for node in summary["nodes"]}


def test_a_learner():
    """The lane of the learner is full, and the other one waits behind it."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "data.jsonl"), "w", encoding="ascii") as file:
            for i in range(200_000):
                file.write('{"id":%d,"ts":%d,"a":%d,"b":%d,"c":%d,"clicked":%d}\n' %
                           (i, 1700000000000 + i, i * 7 % 1000, i * 11 % 300, i % 50, i % 3 == 0))
        process = run(folder, LEARNS, "--json", stdout=subprocess.PIPE)
        out, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        summary = json.loads(out)
        shares = check_summary(summary)
        assert max(shares, key=shares.get) == "model" and shares["model"] > 0.5, shares
        assert re.match(r"`model` takes \d+ % of lane [12]", summary["bottleneck"]), summary["bottleneck"]
        assert summary["lane_time"]["behind_nodes"] > 0.05 > summary["lane_time"]["behind_sinks"], summary["lane_time"]


class Writer(threading.Thread):
    """Writes records: ten a second, then as many as are taken."""

    def __init__(self, file):
        super().__init__()
        self.file, self.is_fast, self.is_over = file, False, False
        self.start()

    def run(self):
        number, text = 0, "x" * 400
        try:
            while not self.is_over:
                for _ in range(200 if self.is_fast else 1):
                    self.file.write(LINE % (number, 1700000000000 + number, text))
                    number += 1
                self.file.flush()
                if not self.is_fast:
                    time.sleep(0.1)
            self.file.close()
        except (BrokenPipeError, ValueError):  # the run has ended; the pipe is closed
            pass


def follow(workers):
    """An idle run waits for records; when it is no longer idle, its slow sink is named within NAMED_S seconds."""
    with tempfile.TemporaryDirectory() as folder:
        process = run(folder, WRITES % workers, "--progress", "1s", points=SLOW, stdin=subprocess.PIPE,
                      stdout=subprocess.DEVNULL)
        writer, idle, fast_since, named = Writer(process.stdin), 0, None, None
        try:
            for line in process.stderr:
                shares = SHARES.search(line)
                if shares is None:
                    continue
                assert sum(map(int, shares.groups())) <= 102, line
                idle += "the lanes wait for records" in line
                if idle >= 2 and fast_since is None:
                    fast_since, writer.is_fast = time.monotonic(), True
                if "`sink/out` takes" in line:
                    named = time.monotonic() - (fast_since or 0)
                    break
        finally:
            writer.is_over = True
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
            writer.join(PATIENCE_S)
        assert fast_since is not None and named is not None and named < stretched(NAMED_S), (fast_since, named)


def test_idle_then_a_slow_sink():
    follow(1)


def test_idle_then_a_slow_sink_on_two_lanes():
    follow(2)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
