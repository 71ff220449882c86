"""The jobs that tests of the page look at: one that reads a file slowly, and one that is fed while it runs."""

import contextlib
import os
import re
import sys
import tempfile
import threading
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import live  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

AT = re.compile(r"http://127\.0\.0\.1:(\d+)/")
SLOWLY = "run.claimed=sleep:200"  # some thousand records a second
EVERY_S = 0.02

FED = """job fed {{ workers: 2 }}
source s = console {{ schema: {{ id: int!, ts: time(ms), a: int, b: int, clicked: int }}, event_time: ts }}
{steps}
sink dead = file from dead_letters {{ path: "dead.jsonl" }}
"""
KEPT = 'stream kept = s | where a < 900\nsink out = file from kept { path: "out.jsonl" }'


def begin(folder, points=SLOWLY, port=0, words=(), fed=False):
    return live.Process(folder, AT, "run", "job.leat", "--ui", f"127.0.0.1:{port}", "--quiet", *words, points=points, fed=fed)


@contextlib.contextmanager
def page_of(browser, job=live.JOB, records=400_000, state="", points=SLOWLY, **tab):
    """A live job, and a tab that shows it."""
    with live.place(job, records) as folder, begin(folder, points) as run:
        run.wait_until_ready("/readyz")
        shown = browser.tab(**tab)
        shown.goto(run.port, state)
        shown.wait_for_value("state", "running")
        yield run, shown, folder
        shown.close()


class Feeder(threading.Thread):
    """Gives a job rows that `row(n)` makes, `rows` of them each EVERY_S; `rows` and `row` may change at any time."""

    def __init__(self, stdin):
        super().__init__()
        self.stdin, self.rows, self.number, self.is_over = stdin, 0, 0, False
        self.row = lambda n: record(n)
        self.texts = []  # given as they are, once
        self.start()

    def run(self):
        with contextlib.suppress(OSError, ValueError):
            self.give([record(0)])  # a job that reads stdin is ready once something came
            while not self.is_over:
                lines, self.texts = self.texts, []
                lines += [self.row(self.number + i) for i in range(self.rows)]
                self.number += self.rows
                self.give(lines)
                time.sleep(EVERY_S)

    def give(self, lines):
        if lines:
            self.stdin.write("".join(line + "\n" for line in lines))
            self.stdin.flush()


def record(number, a=1, b="7", clicked=0, ts=None):
    at = 1_700_000_000_000 + number if ts is None else ts
    return '{"id":%d,"ts":%d,"a":%d,"b":%s,"clicked":%d}' % (number, at, a, b, clicked)


@contextlib.contextmanager
def fed(steps=KEPT, points=""):
    """A job that reads what its Feeder gives, nothing at first."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(FED.format(steps=steps))
        with begin(folder, points, fed=True) as run:
            feeder = Feeder(run.process.stdin)
            try:
                run.wait_until_ready("/readyz")
                yield run, feeder
            finally:
                feeder.is_over = True
                run.process.kill()
                feeder.join(PATIENCE_S)
                with contextlib.suppress(OSError):
                    run.process.stdin.close()
