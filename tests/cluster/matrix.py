#!/usr/bin/env python3
"""Each job on each number of workers and lanes, with checkpoints of each interval: N does not show. Sinks, counts and figures are those of a
run that is alone with one lane; half way, so are the state by key, the models, and the order log by its entries.

    matrix.py LEAT [--jobs=q5,operators] [--shapes=3x1,8x1] [--every=100ms] [--seed=N] [--minutes=N] [--passed=FILE]
    (./dev soak cluster matrix ...)

A run has two lives: the first one stops in the midst of the records, and its head and order log are compared; the second one goes on to the
end. In a share of the runs, by the seed, workers come or go meanwhile (`leat cluster grow`, `shrink`), or key groups move. Breadth first: each
job at 3x1 and 100 ms, then the other shapes, then the other intervals. `--every=off`: no checkpoint but the last one of each life, for
there is no cluster without a directory for heads. Goes on behind a run that differs, whose folder stays; a table is last, also
behind Ctrl-C. With --passed a later call goes on where this one ends.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("leat")
PARSER.add_argument("--jobs", help="ctr_live, q0 to q22, nexmark (all of these), operators, operators-N; with commas between")
PARSER.add_argument("--shapes", help="WORKERSxLANES, with commas between")
PARSER.add_argument("--every", help="off, 100ms, 10s")
PARSER.add_argument("--change", choices=["none", "grow", "shrink", "move"], help="in each run, in place of what the seed chooses")
PARSER.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
PARSER.add_argument("--minutes", type=float, default=1e9, help="from the first run on, after which no further one begins")
PARSER.add_argument("--passed", metavar="FILE", help="runs that were the same with this very program: they are not run again, others are added")
PARSER.add_argument("--threads", type=int, default=3, help="runs at once")
PARSER.add_argument("--keep", action="store_true", help="the folders of all runs")
OPTIONS = PARSER.parse_args()
sys.argv = [sys.argv[0], OPTIONS.leat]

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import matrix_jobs  # noqa: E402
import test_cluster as workers  # noqa: E402

SHAPES = ["3x1", "8x1", "2x2", "1x1", "4x1", "1x3", "2x1", "5x1"]
INTERVALS = {"100ms": "100ms", "off": "1h", "10s": "10s"}
SLOWLY_MS = {"100ms": 10, "off": 10, "10s": 80}  # each micro-batch of a run with a change, so that there is time, or a checkpoint, for it
SLOWLY_MOST_MS = 320
CHANGED_SHARE = 0.5
LEASE_S = 120  # nobody dies
BEGIN, IS_OVER, TOLD = time.monotonic(), threading.Event(), threading.Lock()


def say(text):
    with TOLD:
        print(f"{time.monotonic() - BEGIN:7.1f} s  {text}", flush=True)


class Passed:
    """The file of --passed. A line has the program's digest, a run's name, its mark and its seed."""

    def __init__(self):
        with open(OPTIONS.leat, "rb") as file:
            self.program, self.marks = hashlib.sha256(file.read()).hexdigest()[:16], {}
        if OPTIONS.passed and os.path.exists(OPTIONS.passed):
            with open(OPTIONS.passed, encoding="ascii") as file:
                lines = [line.split() for line in file]
            self.marks = {" ".join(words[1:4]): words[4] for words in lines if words[0] == self.program}

    def add(self, run):
        if OPTIONS.passed:
            with TOLD, open(OPTIONS.passed, "a", encoding="ascii") as file:
                file.write(f"{self.program} {run.name} {run.mark} {OPTIONS.seed}\n")


class Job(workers.Job):
    """The workers of one run."""

    running = set()

    def __init__(self, subject, every):
        super().__init__(job=subject.path, every=every)
        self.subject, self.place = subject, self.state
        self.state = subject.state.format(state=self.place)  # where heads lie
        self.environment = subject.environment
        Job.running.add(self)

    def command(self, *flags):
        return [*self.subject.command(workers.LEAT, self.out, self.place, self.every), *flags]

    def __exit__(self, *_):
        super().__exit__(None)
        Job.running.discard(self)

    def until(self, processes, speakers, words):
        """Until one of the speakers says so, or a process has ended."""
        etcd.wait_for(f"`{words}`", lambda: any(words in self.text(one.log) for one in speakers)
                      or any(one.poll() is not None for one in processes))

    def told(self):
        """The summary of the worker that led last."""
        texts = [self.text(f"{process.log}.out") for process in self.ended]
        whole = [one for one in (json.loads(text) for text in texts if text) if "nodes" in one]
        assert len(whole) == 1, texts
        return whole[0]


class TooLate(Exception):
    """The job came to its end before the change."""


class Run:
    """One job at one shape with one interval."""

    def __init__(self, subject, shape, every, passed):
        self.subject, self.shape, self.every, self.passed = subject, shape, every, passed
        self.count, self.lanes = map(int, shape.split("x"))
        self.rng = random.Random(f"{OPTIONS.seed}/{subject.name}/{shape}/{every}")
        self.name = f"{subject.name} {shape} {every}"
        self.change, self.notes, self.mark, self.slowly_ms = self.choose_change(), [], passed.marks.get(self.name, "."), 0

    def choose_change(self):
        can = ["grow"] + ["shrink"] * (self.count > 1) + ["move"] * (self.count * self.lanes > 1 and self.every != "off")
        change = self.rng.choice(can) if self.rng.random() < CHANGED_SHARE else None
        if OPTIONS.change is not None:
            change = OPTIONS.change if OPTIONS.change in can else None
        return change

    def again(self):
        return (f"./dev soak cluster matrix --jobs={self.subject.name} --shapes={self.shape} --every={self.every} --seed={OPTIONS.seed}"
                + (f" --change={OPTIONS.change}" if OPTIONS.change else ""))

    def life(self, job, *flags):
        """Its summary."""
        moves = [f"--move={self.rng.randrange(1, 10**6)}"] if self.change == "move" else []
        begins = [] if self.change == "shrink" else ["--nodes-wait=0s"]  # with MOST, or with LEAST
        nodes = f"{self.count - (self.change == 'shrink')}:{self.count + (self.change == 'grow')}"

        def start():
            return job.start(nodes, *flags, *begins, *moves, "--grow=asked", lanes=self.lanes, form=None, lease_s=LEASE_S,
                             failpoints=f"run.claimed=sleep:{self.slowly_ms}" if self.change else "")
        processes = [start() for _ in range(self.count)]
        if self.change in ("grow", "shrink"):
            self.change_workers(job, processes, start)
        job.ends(*processes)
        told = job.told()
        if self.change in ("grow", "shrink"):
            ended = re.findall(r"ended at a checkpoint: (\d+) records", "".join(job.text(process.log) for process in processes))
            self.must_have_come(any(int(records) < told["records"] for records in ended), self.change)
        elif self.change == "move":
            self.must_have_come(told.get("moved_groups", 0) > 0, f"{told.get('moved_groups', 0)} groups moved")
        return told

    def must_have_come(self, is_so, note):
        if not is_so:
            raise TooLate
        self.notes.append(note)

    def change_workers(self, job, processes, start):
        """At a moment by the seed. The job may come to its end before that. A job that has shrunk begins its next life with as many
        workers, and grows."""
        is_back = self.change == "shrink" and self.notes
        most, words = self.count + (self.change == "grow"), "grow" if is_back else self.change
        job.until(processes, processes, "incarnation ")
        if self.change == "grow":
            processes.append(start())
        if words == "grow":
            job.until(processes, processes, "waiting: a place")
        time.sleep(self.rng.random())
        subprocess.run([workers.LEAT, "cluster", words, f"etcd://{job.etcd.endpoints()}/{job.name}",
                        str(most if words == "grow" else most - 1)], capture_output=True, check=False)

    def run(self):
        """More slowly where the change came too late; in the end without it."""
        begin, self.slowly_ms = time.monotonic(), SLOWLY_MS[self.every]
        while self.mark == "." and not IS_OVER.is_set():
            self.notes = []
            with Job(self.subject, INTERVALS[self.every]) as job:
                try:
                    self.compare(job)
                    self.mark = self.change[0] if self.change else "="
                    self.passed.add(self)
                    say(f"{self.name}{', ' + ', '.join(self.notes) if self.notes else ''}: the same, {time.monotonic() - begin:.1f} s")
                    if OPTIONS.keep:
                        self.keep(job)
                except TooLate:
                    self.slowly_ms *= 4
                    if self.slowly_ms > SLOWLY_MOST_MS:
                        say(f"{self.name}: {self.change} comes too late, however slow the job is; without it")
                        self.change = None
                except Exception as error:  # pylint: disable=broad-except
                    if not IS_OVER.is_set():
                        self.differs(job, error)
                shutil.rmtree(job.folder, ignore_errors=True)

    def compare(self, job):
        outcome, state = self.subject.reference(workers.LEAT, workers.FOLDER.name)
        if self.change == "move" and len(state["state and order half way"]) == 1:  # the order alone
            self.change = None
        log = f"{job.folder}/order/"
        half = self.life(job, f"--until={self.subject.until}", f"--record-order={log}")
        head = max(glob.glob(f"{job.state}/cluster/heads/head-*"))
        matrix_jobs.must_be(matrix_jobs.state_of(workers.LEAT, head, sorted(glob.glob(f"{log}0*")), half, job.folder), state)
        matrix_jobs.must_be(matrix_jobs.outcome(job.out, self.life(job)), outcome)

    def differs(self, job, error):
        self.mark = "X"
        say(f"{self.name} ({self.change}) differs: {type(error).__name__}: {str(error)[-3000:]}\n  its folder: {self.keep(job)}\n"
            f"  again: {self.again()}")

    def keep(self, job):
        folder = os.path.abspath(f"build/cluster-matrix/{OPTIONS.seed}-{self.name.replace(' ', '-')}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(job.folder, folder, symlinks=True, ignore_dangling_symlinks=True)
        return folder


def schedule(subjects):
    """Breadth first."""
    passed = Passed()
    shapes = OPTIONS.shapes.split(",") if OPTIONS.shapes else SHAPES
    intervals = OPTIONS.every.split(",") if OPTIONS.every else list(INTERVALS)
    return [Run(subject, shape, every, passed) for every in intervals for shape in shapes for subject in subjects]


def table(runs, subjects):
    shapes = sorted({run.shape for run in runs}, key=lambda shape: [int(word) for word in shape.split("x")])
    intervals = [every for every in INTERVALS if any(run.every == every for run in runs)]
    marks = {(run.subject.name, run.shape, run.every): run.mark for run in runs}
    print(f"\n{'workers x lanes':<16}" + "".join(f"{shape:>5}" for shape in shapes))
    for subject in subjects:
        cells = ["".join(marks[subject.name, shape, every] for every in intervals) for shape in shapes]
        print(f"{subject.name:<16}" + "".join(f"{cell:>5}" for cell in cells))
    print(f"a mark for each of {', '.join(intervals)}; =: the same; g, s, m: the same, while workers came, went, groups moved; X: it differs; "
          ".: not run")
    for run in runs:
        if run.mark == "X":
            print(f"differs: {run.name}; again: {run.again()}")


def run_all(runs):
    """Until all are through, or Ctrl-C."""
    until = time.monotonic() + OPTIONS.minutes * 60

    def one(run):
        if not IS_OVER.is_set() and time.monotonic() < until:
            run.run()
    with concurrent.futures.ThreadPoolExecutor(OPTIONS.threads) as pool:
        try:
            concurrent.futures.wait([pool.submit(one, run) for run in runs])
        except KeyboardInterrupt:
            IS_OVER.set()
            say("interrupted: what runs is ended")
            for job in list(Job.running):
                for process in job.processes:
                    process.kill()


def main():
    if etcd.missing():
        print(f"ok - cluster matrix # SKIP {etcd.missing()}")
        return 77
    with workers.FOLDER as folder, etcd.Etcd(os.path.join(folder, "etcd"), is_fast=True) as servers:
        workers.ETCD.append(servers)
        say(f"seed {OPTIONS.seed}; records are made")
        subjects = matrix_jobs.subjects(workers.LEAT, folder, OPTIONS.jobs.split(",") if OPTIONS.jobs else None)
        runs = schedule(subjects)
        say(f"{len(runs)} runs of {len(subjects)} jobs")
        run_all(runs)
        table(runs, subjects)
    wrong, done = [run for run in runs if run.mark == "X"], [run for run in runs if run.mark != "."]
    is_good = done and not wrong
    print(f"{'ok' if is_good else 'not ok'} - cluster matrix: {len(done)} of {len(runs)} runs of seed {OPTIONS.seed}, {len(wrong)} differ")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
