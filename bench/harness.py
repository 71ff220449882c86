"""What the rows of bench/run.py share: running leat and taking its times, made input, results."""

import csv
import dataclasses
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
JOBS = os.path.join(HERE, "jobs")
NUMPY_PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's numpy


class Skip(Exception):
    """The row cannot be measured here; says why."""


class Broken(Exception):
    """The row was measured, but its output is not what it must be."""


@dataclasses.dataclass
class Run:
    """One process, from start to end."""

    wall: float
    cpu: float  # user + system, all threads
    rss_mb: float
    others: float  # cores that other processes had meanwhile
    summary: dict  # of `leat run --json`, else {}
    output: str

    def node(self, name):
        return next(node for node in self.summary["nodes"] if node["name"] == name)

    def learner(self):
        return next(node for node in self.summary["nodes"] if node["tag"] == "learner")["report"]["run"]

    def digest(self, sink):
        """(rows, digest) that a `null` sink tells."""
        return self.node(sink)["note"]


SAMPLE_EVERY = "2s"


@dataclasses.dataclass
class Sample:
    """What a line of progress says, and what the process had taken by then."""

    wall: float
    cpu: dict  # seconds by thread
    events: int
    checkpoint: int


@dataclasses.dataclass
class Peer:
    name: str
    figure: float  # in the row's unit
    origin: str  # "same run", or where the constant is from


@dataclasses.dataclass
class Figure:
    """One line of the table."""

    what: str
    unit: str  # "M/s", "%", "ms"
    value: float
    target: float
    is_upper: bool = False  # the target is the most it may be
    peers: list = dataclasses.field(default_factory=list)
    quality: float = None  # logloss
    quality_target: float = None
    runs: list = dataclasses.field(default_factory=list)
    checked: str = ""  # how the output was checked
    note: str = ""

    def is_reached(self):
        is_good = self.value <= self.target if self.is_upper else self.value >= self.target
        if self.quality_target is not None:
            is_good = is_good and self.quality <= self.quality_target
        return is_good

    def as_json(self):
        item = dataclasses.asdict(self)
        item["reached"] = self.is_reached()
        for run in item["runs"]:
            del run["summary"], run["output"]
        return item


def busy_cores():
    """Seconds that all cores together were busy since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid):
    seconds = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        seconds[thread] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def process_seconds(pid):
    """User and system time of all threads, also of those that have ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_rss_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


PROGRESS = re.compile(r" s  (\d+) events .*?(?:   checkpoint (\d+):|$)")


def finish(process, started, busy, output):
    """Waits for the process; what it took."""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    others = max(0.0, (busy_cores() - busy - cpu) / max(wall, 1e-3))
    return Run(wall, cpu, usage.ru_maxrss / 1024, others, {}, output)


class Bench:
    """The folders, and how often things are measured."""

    def __init__(self, leat, is_quick, turns=None, turn_s=1.0):
        """turns: how many turns of a latency must count; None: the row says. turn_s: how long each is."""
        self.leat = os.path.abspath(leat)
        self.programs = os.path.join(os.path.dirname(self.leat), "bench")
        self.folder = os.path.join(ROOT, "build", "bench")
        self.is_quick, self.turns, self.turn_s = is_quick, turns, turn_s
        self.repeats = 3 if is_quick else 5
        os.makedirs(self.folder, exist_ok=True)
        if not os.access(self.leat, os.X_OK):
            raise Skip(f"{leat} is not there: ./dev build")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def program(self, *names):
        path = os.path.join(self.programs, *names)
        if not os.access(path, os.X_OK):
            raise Skip(f"{path} is not built")
        return path

    def size(self, whole, quick):
        return quick if self.is_quick else whole

    def run(self, command, cwd=None, env=None):
        started, busy = time.monotonic(), busy_cores()
        out, err = self.path("stdout"), self.path("stderr")
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
            run = finish(process, started, busy, "")
        with open(out, encoding="utf-8", errors="replace") as file:
            run.output = file.read()
        if process.returncode != 0:
            with open(err, encoding="utf-8", errors="replace") as file:
                text = file.read()
            raise Broken(f"{' '.join(command)}: status {process.returncode}: {text[-800:]}{run.output[-400:]}")
        return run

    def job_command(self, job, workers, settings, extra=()):
        command = [self.leat, "run", job if os.path.isabs(job) else os.path.join(JOBS, job), "--json", "--workers",
                   str(workers), *extra]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def watch(self, job, workers=1, extra=(), **settings):
        """(run, samples): with a sample for each line of progress; `output` is the summary as text."""
        command = [word for word in self.job_command(job, workers, settings, ("--progress", SAMPLE_EVERY, *extra))
                   if word != "--json"]
        started, busy, samples = time.monotonic(), busy_cores(), []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            found = PROGRESS.search(line.rstrip())
            if found:
                samples.append(Sample(time.monotonic() - started, thread_seconds(process.pid), int(found[1]),
                                      int(found[2] or 0)))
        output = process.stdout.read()
        run = finish(process, started, busy, output)
        process.stdout.close()
        process.stderr.close()
        if process.returncode != 0:
            raise Broken(f"{job}: status {process.returncode}: {output[-800:]}")
        return run, samples

    def run_job(self, job, workers=1, extra=(), env=None, **settings):
        run = self.run(self.job_command(job, workers, settings, extra), env=env)
        run.summary = json.loads(run.output)
        if not run.summary["good"] or not run.summary["finished"]:
            raise Broken(f"{job}: did not finish")
        for node in run.summary["nodes"]:
            if not node["counts"]["balanced"]:
                raise Broken(f"{job}: the counts of {node['name']} do not add up")
        return run

    def repeat(self, *measures):
        """Calls each in turns, so that noise meets all alike; the runs of each."""
        runs = [[] for _ in measures]
        for _ in range(self.repeats):
            for i, measure in enumerate(measures):
                runs[i].append(measure())
        return runs if len(measures) > 1 else runs[0]

    def made(self, name, make):
        """A file of the benchmarks' input, made once."""
        path = self.path(name)
        if not os.path.exists(path):
            say(f"making {os.path.relpath(path, ROOT)}")
            make(path + ".tmp")
            os.rename(path + ".tmp", path)
        return path


def say(text):
    print(f"    {text}", file=sys.stderr, flush=True)


def median(values):
    return statistics.median(values)


def same(runs, reference, what):
    """Every timed run's output is that of the reference."""
    for run in runs:
        if what(run) != what(reference):
            raise Broken(f"output differs: {what(run)} here, {what(reference)} in the untimed run")


def rate(events, runs):
    """M events a second of CPU time."""
    return events / median([run.cpu for run in runs]) / 1e6


def wall_rate(events, runs):
    return events / median([run.wall for run in runs]) / 1e6


def logloss(path, labels):
    """Of a column `prediction` in a CSV file."""
    loss, count = 0.0, 0
    with open(path, encoding="ascii", newline="") as file:
        for row, label in zip(csv.DictReader(file), labels, strict=True):
            p = min(max(float(row["prediction"]), 1e-15), 1 - 1e-15)
            loss -= math.log(p if label else 1 - p)
            count += 1
    return loss / count


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)
