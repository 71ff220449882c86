"""Row of the table: what it costs a job to be looked at (`leat run --ui`), and how fast it tells what is stored for a key.

The job has one core, reads as fast as it can, and who looks the other core. Each turn runs the job with the page and without
it: nobody looks, three pages and a scraper look, and a thousand keys a second are asked for besides; the figure is user and
system time of the job's process. Cores share caches and units: where the job has no page, who looks has as much work, with a
neighbour, the same job at rest. The digest of the job's predictions is the same in all runs."""

import contextlib
import http.client
import json
import os
import random
import re
import subprocess
import threading
import time

from harness import JOBS, Broken, Figure, busy_cores, finish, median, remove
from rows_follow import LEARNERS, events_of

ALONE, SEEN, ASKED = range(3)  # nobody looks; pages and a scraper; keys are asked for, too
FIGURES = re.compile(r"figures at http://127\.0\.0\.1:(\d+)/")
KEYS, REQUESTS_A_SECOND = 10, 100
# What a page asks for beside its stream, and how often in seconds: its views of the job, of data and of checkpoints.
PAGES = ((("/api/v1/history?span=1h&from=NOW",), 1), (("/api/v1/columns", "/api/v1/dead-letters"), 2),
         (("/api/v1/checkpoints",), 2))


def job_of(bench):
    with open(os.path.join(JOBS, "follow.leat"), encoding="utf-8") as file:
        text = file.read().replace("# LEARNER\n", f"learner model = {LEARNERS['linear']}\n")
    path = bench.path("see.leat")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Watchers:
    """Three pages, each a stream of events and the other answers now and then; a scraper; and who asks for keys."""

    def __init__(self, port, does_ask):
        self.port, self.is_over, self.latencies, self.statuses = port, False, [], {}
        self.threads = [threading.Thread(target=self.follow) for _ in PAGES]
        self.threads += [threading.Thread(target=self.poll, args=one) for one in ((("/metrics",), 1), *PAGES)]
        self.threads += [threading.Thread(target=self.ask)] * does_ask
        for thread in self.threads:
            thread.start()

    def get(self, connection, path):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def guarded(self, work):
        try:
            work()
        except (OSError, http.client.HTTPException):
            if not self.is_over:
                self.statuses["lost"] = self.statuses.get("lost", 0) + 1  # the job has ended, or a fault: looked at below

    def follow(self):
        def work():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", "/api/v1/events")
            answer = connection.getresponse()
            while not self.is_over and answer.readline():
                pass
        self.guarded(work)

    def poll(self, paths, every_s):
        def work():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            while not self.is_over:
                for path in paths:
                    self.get(connection, path.replace("NOW", str(int((time.time() - 2) * 1000))))
                time.sleep(every_s)
        self.guarded(work)

    def ask(self):
        def work():
            connection, numbers = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), random.Random(1)
            due = time.monotonic()
            while not self.is_over:
                keys = "&".join(f"key={numbers.randrange(100_000)}" for _ in range(KEYS))
                begun = time.monotonic()
                status = self.get(connection, f"/api/v1/state/examples/feature?{keys}")
                self.statuses[status] = self.statuses.get(status, 0) + 1
                if status == 200:
                    self.latencies.append(time.monotonic() - begun)
                due = max(due + 1 / REQUESTS_A_SECOND, begun)
                time.sleep(max(0, due - time.monotonic()))
        self.guarded(work)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(60)


@contextlib.contextmanager
def neighbour(bench):
    """The port of the same job, which takes a record now and then."""
    state = bench.path("see-neighbour")
    remove(state)
    words = ("--quiet", "--ui=127.0.0.1:0")
    process = subprocess.Popen(bench.job_command(job_of(bench), 1, {"data": events_of(bench)[0], "state": state}, words),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "LEAT_FAILPOINTS": "run.claimed=sleep:500"})
    try:
        yield next(int(found[1]) for line in process.stderr if (found := FIGURES.search(line)))
    finally:
        process.kill()
        process.communicate()
        remove(state)


def run_once(bench, how, has_page, beside):
    """(run, digest, watchers)."""
    data, _ = events_of(bench)
    state, out = bench.path("see-state"), bench.path("see-out")
    remove(state)
    words = ("--quiet", "--ui=127.0.0.1:0") if has_page else ("--quiet",)
    command = ["taskset", "-c", "0", *bench.job_command(job_of(bench), 1, {"data": data, "state": state}, words)]
    with open(out, "wb") as file:
        started, busy = time.monotonic(), busy_cores()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True)
        port = next(int(found[1]) for line in process.stderr if (found := FIGURES.search(line))) if has_page else beside
        watchers = Watchers(port, how == ASKED) if how != ALONE else None
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        run = finish(process, started, busy, "")
        reader.join()
    if watchers is not None:
        watchers.end()
    if process.returncode != 0:
        raise Broken(f"status {process.returncode}")
    with open(out, encoding="utf-8") as file:
        digest = next(node["note"] for node in json.load(file)["nodes"] if node["name"] == "out")
    remove(state)
    return run, digest, watchers


def row_see(bench):
    _, count = events_of(bench)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})  # the threads of Watchers, too; taskset gives the job its core
    try:
        with neighbour(bench) as beside:
            turns = [[[run_once(bench, how, has_page, beside) for has_page in (False, True)] for how in (ALONE, SEEN, ASKED)]
                     for _ in range(bench.repeats)]
    finally:
        os.sched_setaffinity(0, before)
    if len({digest for turn in turns for pair in turn for _, digest, _ in pair}) != 1:
        raise Broken("predictions differ")
    asked = [turn[ASKED][1][2] for turn in turns]
    times = sorted(time_s for one in asked for time_s in one.latencies)
    if not times:
        raise Broken("no key was answered")
    refused = sum(one.statuses.get(429, 0) for one in asked) / sum(sum(one.statuses.values()) for one in asked)

    def cost(what, how, most, note=""):
        ratios = sorted(turn[how][1][0].cpu / turn[how][0][0].cpu for turn in turns)
        spread = f"{(ratios[0] - 1) * 100:.1f} to {(ratios[-1] - 1) * 100:.1f} % in {len(ratios)} turns"
        return Figure(what, "%", (median(ratios) - 1) * 100, most, is_upper=True, note=spread + note,
                      checked="predictions as of the run without a page")
    each = f"; {count} events, {median([turn[ALONE][0][0].cpu for turn in turns]) / count * 1e9:.0f} ns each without a page"
    return [cost("a page that nobody looks at: cost", ALONE, 1, each),
            cost("three pages and a scraper: cost", SEEN, 2),
            cost("the same, and 1,000 keys a second: cost", ASKED, 3),
            Figure("a request of 10 keys: p99", "ms", times[len(times) * 99 // 100] * 1e3, 20, is_upper=True,
                   note=f"p50 {times[len(times) // 2] * 1e3:.1f} ms; {len(times)} answered, {refused:.0%} refused (429)")]


ROWS = {"see": ("what a page, a scraper and questions for keys cost a job", row_see)}
