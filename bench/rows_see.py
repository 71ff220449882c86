"""Row of the table: what it costs a job to be looked at (`leat run --ui`), and how fast it tells what is stored for a key.

The job has one core, reads as fast as it can, and who looks the other core. Other work on the machine moves a run's CPU time
by a tenth and more, so what is compared lies close together: while one job reads on, phases of PHASE_S follow each other, in
which nobody looks, three pages and a scraper look, or a thousand keys a second are asked for besides, in an order that turns.
Of each phase counts the CPU time of the process for what it has read meanwhile, by the positions of its files; each phase is
compared with that of its own turn in which nobody looks, and the figure is the median with its 95 % interval. Cores share
caches and units: whoever does not look at the job has as much work with a neighbour, the same job at rest. What the page costs
that nobody looks at is by pairs of short runs. Their predictions have the same digest, as those of a run that is looked at."""

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

ALONE, SEEN, ASKED = HOWS = range(3)  # nobody looks; pages and a scraper; keys are asked for, too
SETTLE_S, PHASE_S, COPIES = 1.2, 2, 240  # before a phase counts; a phase; how often the job has the events, so that they last
FIGURES = re.compile(r"figures at http://127\.0\.0\.1:(\d+)/")
# Several askers come to that many requests, too, where an answer takes long.
KEYS, REQUESTS_A_SECOND, ASKERS = 10, 100, 4
PAIRS, QUICK_PAIRS, TURNS, QUICK_TURNS = 9, 3, 24, 6
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
    """Three pages, each a stream of events and the other answers now and then; a scraper; and who asks for keys. look_at() says
    at which port; latencies and statuses are those of `counted`."""

    def __init__(self, port, counted=None):
        self.port, self.asked_port, self.counted, self.is_over = port, port, counted, False
        self.latencies, self.statuses = [], {}
        works = [self.follow for _ in PAGES] + [lambda one=one: self.poll(*one) for one in ((("/metrics",), 1), *PAGES)]
        works += [lambda seed=seed: self.ask(seed) for seed in range(ASKERS)]
        self.threads = [threading.Thread(target=work) for work in works]
        for thread in self.threads:
            thread.start()

    def look_at(self, port, asked_port):
        self.port, self.asked_port = port, asked_port

    def connected(self, port_of, work):
        """Does the work with a connection to the port, and with another when the port is another."""
        while not self.is_over:
            port = port_of()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection):
                try:
                    work(connection, lambda port=port: not self.is_over and port_of() == port)
                except (OSError, http.client.HTTPException):
                    if not self.is_over:  # the job has ended, or a fault: looked at below
                        self.statuses["lost"] = self.statuses.get("lost", 0) + 1
                        return

    def get(self, connection, path):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def follow(self):
        def work(connection, goes_on):
            connection.request("GET", "/api/v1/events")
            answer = connection.getresponse()
            while goes_on() and answer.readline():
                pass
        self.connected(lambda: self.port, work)

    def poll(self, paths, every_s):
        def work(connection, goes_on):
            while goes_on():
                for path in paths:
                    self.get(connection, path.replace("NOW", str(int((time.time() - 2) * 1000))))
                time.sleep(every_s)
        self.connected(lambda: self.port, work)

    def ask(self, seed):
        numbers = random.Random(seed)

        def work(connection, goes_on):
            due = time.monotonic()
            while goes_on():
                keys = "&".join(f"key={numbers.randrange(100_000)}" for _ in range(KEYS))
                begun = time.monotonic()
                status = self.get(connection, f"/api/v1/state/examples/feature?{keys}")
                if connection.port == self.counted:
                    self.statuses[status] = self.statuses.get(status, 0) + 1
                    self.latencies += [time.monotonic() - begun] if status == 200 else []
                due = max(due + ASKERS / REQUESTS_A_SECOND, begun)
                time.sleep(max(0, due - time.monotonic()))
        self.connected(lambda: self.asked_port, work)

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


def run_once(bench, has_page, beside, is_looked_at=False):
    """(run, digest, watchers or None)."""
    data, _ = events_of(bench)
    state, out = bench.path("see-state"), bench.path("see-out")
    remove(state)
    words = ("--quiet", "--ui=127.0.0.1:0") if has_page else ("--quiet",)
    command = ["taskset", "-c", "0", *bench.job_command(job_of(bench), 1, {"data": data, "state": state}, words)]
    with open(out, "wb") as file:
        started, busy = time.monotonic(), busy_cores()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True)
        port = next(int(found[1]) for line in process.stderr if (found := FIGURES.search(line))) if has_page else beside
        watchers = Watchers(port, port) if is_looked_at else None
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


# --- Phases ---


def bytes_read(pid, data):
    """Of the input, by the positions of the files that are open: all of them, until the job has read one to its end."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{name}").startswith(data):
            with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                total += int(re.search(r"^pos:\s+(\d+)", file.read(), re.M)[1])
    return total


def thread_ns(pid):
    """CPU time of each thread in nanoseconds."""
    taken = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            taken[thread] = int(file.read().split()[0])
    return taken


class Phase:
    """What the process took for a byte of input: all its threads, and those other than its lane, which takes most. A lane gives
    at most 1 % of its time to keys; what others take is measured well even where noise hides the whole."""

    def __init__(self, pid, data):
        time.sleep(SETTLE_S)
        before, began = thread_ns(pid), bytes_read(pid, data)
        time.sleep(PHASE_S)
        after, ended = thread_ns(pid), bytes_read(pid, data)
        if ended <= began:
            raise Broken("the job has read nothing in a phase, or all that there is")
        taken = [after[thread] - before.get(thread, 0) for thread in after]
        self.all, self.others = sum(taken) / (ended - began), (sum(taken) - max(taken)) / (ended - began)


@contextlib.contextmanager
def endless(bench):
    """(pid, port, data) of the job with its page, which reads copies of the events for as long as it is let."""
    events, _ = events_of(bench)
    state, data = bench.path("see-state"), bench.path("see-data-")
    paths = [f"{data}{i}.jsonl" for i in range(COPIES)]
    for path in paths:
        remove(path)
        os.link(events, path)
    remove(state)
    with open(job_of(bench), encoding="utf-8") as file:
        text = file.read().replace("path: data\n", f"path: {json.dumps(paths)}\n").replace("param data: text\n", "")
    job = bench.path("see-endless.leat")  # its partitions are read beside each other, or all but the first would be late
    with open(job, "w", encoding="utf-8") as file:
        file.write(text)
    command = bench.job_command(job, 1, {"state": state}, ("--quiet", "--ui=127.0.0.1:0"))
    process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(found[1]) for line in process.stderr if (found := FIGURES.search(line)))
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield process.pid, port, data
    finally:
        process.kill()
        process.wait()
        for path in (*paths, state):
            remove(path)


def turns_of(bench, beside, count):
    """Of each turn its phases by how they were looked at; and the watchers."""
    turns = []
    with endless(bench) as (pid, port, data):
        ports = {ALONE: (beside, beside), SEEN: (port, beside), ASKED: (port, port)}
        watchers = Watchers(beside, port)
        try:
            time.sleep(3)
            for number in range(count):
                turn = {}
                for how in (*HOWS[number % 3:], *HOWS[:number % 3]):
                    watchers.look_at(*ports[how])
                    turn[how] = Phase(pid, data)
                turns.append(turn)
        finally:
            watchers.end()
    return turns, watchers


def interval(values):
    """The median, and the order statistics between which the true one lies with 95 %: those of a binomial distribution."""
    values = sorted(values)
    skip = max(0, int((len(values) - 1.96 * len(values) ** 0.5) / 2))
    return median(values), values[skip], values[-1 - skip]


def row_see(bench):
    _, count = events_of(bench)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})  # the threads of Watchers, too; taskset gives the job its core
    try:
        with neighbour(bench) as beside:
            pairs = [[run_once(bench, has_page, beside) for has_page in (turn % 2 == 0, turn % 2 != 0)]
                     for turn in range(bench.size(PAIRS, QUICK_PAIRS))]
            looked_at = run_once(bench, True, beside, is_looked_at=True)
            turns, watchers = turns_of(bench, beside, bench.size(TURNS, QUICK_TURNS))
    finally:
        os.sched_setaffinity(0, before)
    if len({digest for pair in (*pairs, [looked_at]) for _, digest, _ in pair}) != 1:
        raise Broken("predictions differ")
    # Answers come between two micro-batches, and those of COPIES partitions are long: latencies are those of one file.
    answered, times = len(watchers.latencies), sorted(looked_at[2].latencies)
    if not times or not answered or "lost" in watchers.statuses:
        raise Broken(f"no key was answered, or a connection was lost: {watchers.statuses}")
    refused = watchers.statuses.get(429, 0) / sum(watchers.statuses.values())
    keys_a_second = answered * KEYS / (len(turns) * (SETTLE_S + PHASE_S))

    def cost(what, ratios, most, note=""):
        middle, low, high = ((ratio - 1) * 100 for ratio in interval(ratios))
        return Figure(what, "%", middle, most, is_upper=True, note=f"95 %: {low:.1f} to {high:.1f} % of {len(ratios)}" + note,
                      checked="predictions as of the run without a page")

    def phases(how):
        more = [100 * (turn[how].others - turn[ALONE].others) / turn[ALONE].all for turn in turns]
        return ([turn[how].all / turn[ALONE].all for turn in turns],
                " turns; of that, threads other than the lane: {:.1f} % ({:.1f} to {:.1f})".format(*interval(more)))
    page = [pair[turn % 2][0].cpu / pair[1 - turn % 2][0].cpu for turn, pair in enumerate(pairs)]
    alone = median([pair[1 - turn % 2][0].cpu for turn, pair in enumerate(pairs)])
    each = f" pairs; {count} events, {alone / count * 1e9:.0f} ns each without a page"
    seen, asked = phases(SEEN), phases(ASKED)
    return [cost("a page that nobody looks at: cost", page, 1, each),
            cost("three pages and a scraper, by a page that nobody looks at: cost", seen[0], 1, seen[1]),
            cost("the same, and 1,000 keys a second: cost", asked[0], 2, asked[1]),
            Figure("a request of 10 keys: p99", "ms", times[len(times) * 99 // 100] * 1e3, 20, is_upper=True,
                   note=f"p50 {times[len(times) // 2] * 1e3:.1f} ms of {len(times)}; of the turns {answered} answered, "
                        f"{keys_a_second:.0f} keys a second, {refused:.0%} refused (429)")]


ROWS = {"see": ("what a page, a scraper and questions for keys cost a job", row_see)}
