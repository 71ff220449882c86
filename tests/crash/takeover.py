#!/usr/bin/env python3
"""`--take-over` while the process that holds the directory sleeps, and wakes.

    tests/crash/takeover.py --leat build/release/leat [--seed 1] [--moments N] [--only FAILPOINT] [--folder DIR] [--keep]

(`./dev soak takeover` has all moments.)

A sleeper is stopped (SIGSTOP) at a passage of a failpoint, or at a random moment. Its successor starts with
`--take-over`. The sleeper wakes (SIGCONT) when the successor has the lock, when the successor has published a
checkpoint, or when the successor has ended. Whatever the moment:

- the successor goes on and ends well; output files, counts, figures and the model are those of a run that nobody
  disturbed, byte for byte;
- the sleeper ends by itself, with exit status 4, and says E0709 and who has taken over; under `--supervise` nobody starts
  it again;
- no checkpoint that the sleeper published after that is one to go on from: a third start says `finished`.

Prints TAP lines.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from crash import compare, export_models, outcome
from lives import KILL_POINTS, Failure, checkpoints

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

FENCED = 4
WAKES = ("lock", "checkpoint", "end")
# Passed while the sleeper starts: it must have a checkpoint to start from.
AT_THE_START = ("restore.begin", "restore.end", "sink.truncate", "sink.reopen")
SELDOM = ("ckpt.prune", "ckpt.database")  # passed once or twice in a run of this length
CASES_AT_ONCE = 4  # they mostly wait

JOB = """
param data: text = "."
param out: text = "out"
param state: text = ""
param every: duration = 10s
job takeover { memory: 32MiB, checkpoint: { every: every, dir: state, keep: { last: 2 } } }
source impressions = file {
  path: concat(data, "/impressions.jsonl"), event_time: ts, max_delay: 1m
  schema: { imp_id: int!, ts: time(ms), user: int, item: int, site: text, cat: text, price: float, pos: float }
}
source clicks = file {
  path: concat(data, "/clicks.jsonl"), schema: { imp_id: int!, ts: time(ms), item: int }, event_time: ts, max_delay: 1m
}
stream features = impressions
  | dedup by imp_id within 1h
  | feature by item over [1h, 24h] every 1m { imps: count(), spend: sum(price), sites: distinct(site) }
  | feature by user over 24h every 1h { seen: count() }
stream examples = features | attribute clicks on imp_id within 1h as clicked
learner model = fm from examples { label: clicked, sparse: [user, item, site], embedding: { dim: 4 }, metrics_every: 5000 }
sink scored = file from model.predictions { path: concat(out, "/scored-{n}.jsonl"), roll_rows: 2000 }
sink packed = file from examples { path: concat(out, "/packed-{n}.csv.gz"), roll_rows: 7000 }
sink whole = file from model.metrics { path: concat(out, "/metrics.csv") }
sink dead = file from dead_letters { path: concat(out, "/dead.jsonl") }
"""


class Case:
    """One sleeper and its successor."""

    def __init__(self, leat, folder, data, job, name):
        self.leat, self.data, self.job = leat, data, job
        self.folder = os.path.join(folder, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.state, self.out = os.path.join(self.folder, "state"), os.path.join(self.folder, "out")

    def command(self, *arguments, every="20ms"):
        # The order log of the sleeper and the successor is one file: both write to the same name.
        return [self.leat, "run", self.job, "--json", "--workers", "2", "--set", f"data={self.data}", "--set", f"out={self.out}",
                "--set", f"state={self.state}", "--set", f"every={every}", "--record-order", os.path.join(self.folder, "order"), *arguments]

    def start(self, name, *arguments, failpoints="", every="20ms"):
        with open(self.at(f"{name}.out"), "w", encoding="utf-8") as out, open(self.at(f"{name}.err"), "w", encoding="utf-8") as err:
            return subprocess.Popen(self.command(*arguments, every=every), stdout=out, stderr=err,
                                    env={**os.environ, "LEAT_FAILPOINTS": failpoints})

    def at(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        with open(self.at(name), encoding="utf-8") as file:
            return file.read()

    def wait(self, process, name, seconds=PATIENCE_S):
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"the {name} is still there after {seconds} s; it said: {self.text(name + '.err')[-1500:]}") from None

    def outcome(self, summary):
        if os.path.isdir(self.state):
            export_models(self.leat, self.state, self.out)
        return outcome(self.out, summary)


def is_stopped(process):
    """Whether all of it stands still; None: it has ended."""
    if process.poll() is not None:
        return None
    states = []
    for path in glob.glob(f"/proc/{process.pid}/task/*/stat"):
        try:
            with open(path, encoding="utf-8") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        except OSError:
            pass
    return bool(states) and all(state in "Tt" for state in states)


def fall_asleep(case, sleeper, point, rng, count):
    """Until the sleeper stands still where the case wants it, with checkpoints behind it; whether it does."""
    deadline, moment, passed = time.monotonic() + PATIENCE_S, None, 0
    while time.monotonic() < deadline:
        stopped = is_stopped(sleeper)
        if stopped is None:
            return False
        if stopped:
            published = len(checkpoints(case.state))
            passed += published >= 2 or point in AT_THE_START
            if passed > count:
                return True
            sleeper.send_signal(signal.SIGCONT)
        elif point is None and len(checkpoints(case.state)) >= 2:
            moment = moment or time.monotonic() + rng.random() * 0.15
            if time.monotonic() >= moment:
                sleeper.send_signal(signal.SIGSTOP)
        time.sleep(0.0005)
    raise Failure(f"the sleeper does not come to {point}")


def wait_until(condition, what, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.002)


def has_lock(case, process):
    try:
        return f"pid {process.pid} on" in case.text("state/LOCK")
    except OSError:
        return False


def wake_when(case, wake, successor, generation):
    """Returns when the sleeper is to wake."""
    if wake == "lock":
        wait_until(lambda: has_lock(case, successor) or successor.poll() is not None, "the successor's lock")
    elif wake == "checkpoint":
        wait_until(lambda: any(g > generation for g, _ in checkpoints(case.state)) or successor.poll() is not None,
                   "the successor's checkpoint")
    else:
        case.wait(successor, "successor")


def check_sleeper(case, sleeper, successor):
    status = case.wait(sleeper, "sleeper")
    said = case.text("sleeper.err")
    if status == 0 and json.loads(case.text("successor.out"))["records_life"] == 0:
        return  # it slept when everything was done
    if status != FENCED or "E0709" not in said or f"pid {successor.pid} on" not in said:
        raise Failure(f"the sleeper must end with status {FENCED}, say E0709 and who has taken over; it ended with {status} and said: "
                      f"{said[-1500:]}")


def run_case(case, point, wake, rng, expected):
    """Whether the sleeper came to the failpoint."""
    count = rng.randrange(3) if point not in SELDOM + AT_THE_START or point == "sink.reopen" else 0
    failpoints = f"{point}=stop" if point else ""
    if point in AT_THE_START:
        first = case.start("first", failpoints="ckpt.published=kill@3")
        case.wait(first, "first")
    sleeper = case.start("sleeper", failpoints=failpoints)
    try:
        if not fall_asleep(case, sleeper, point, rng, count):
            return False
        generation = max(g for g, _ in checkpoints(case.state))
        successor = case.start("successor", "--take-over", every=rng.choice(["20ms", "200ms", "10s"]))
        try:
            wake_when(case, wake, successor, max(generation, newest_generation(case.state) - (point not in AT_THE_START) + 1))
            sleeper.send_signal(signal.SIGCONT)
            sleeper_goes_on(sleeper)
            status = case.wait(successor, "successor")
        finally:
            successor.kill()
        if status != 0:
            raise Failure(f"the successor ended with {status} and said: {case.text('successor.err')[-2000:]}")
        check_sleeper(case, sleeper, successor)
    finally:
        sleeper.kill()
        sleeper.wait()
    compare(case.outcome(case.text("successor.out")), expected, "of the successor")
    third = case.start("third")
    if case.wait(third, "third") != 0 or "finished" not in case.text("third.out") + case.text("third.err"):
        raise Failure(f"a third start does not find the finished run: {case.text('third.err')[-1500:]}")
    return True


def newest_generation(state):
    return max((int(re.search(r"gen-(\d+)$", path)[1]) for path in glob.glob(os.path.join(state, "gen-*[0-9]"))), default=0)


def sleeper_goes_on(sleeper):
    """Failpoints stop it again and again."""
    def wakes():
        if is_stopped(sleeper):
            sleeper.send_signal(signal.SIGCONT)
        return sleeper.poll() is not None
    wait_until(wakes, "the sleeper's end")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moments", type=int, default=0, help="so many of them, by the seed; 0: each failpoint, and random ones")
    parser.add_argument("--only")
    parser.add_argument("--folder", default="build/takeover")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder, leat, rng = os.path.abspath(arguments.folder), os.path.abspath(arguments.leat), random.Random(arguments.seed)
    shutil.rmtree(folder, ignore_errors=True)
    data = os.path.join(folder, "data")
    os.makedirs(data)
    subprocess.run([leat, "generate", "ctr", "--events", "120000", "--seed", "3", "--out", data, "--duplicates", "0.01", "--late", "0.01",
                    "--malformed", "0.002"], check=True, stdout=subprocess.DEVNULL)
    job = os.path.join(folder, "takeover.leat")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB)
    reference = Case(leat, folder, data, job, "reference")
    if reference.wait(reference.start("successor", every="1h"), "successor") != 0:
        print(f"not ok - takeover: the undisturbed run: {reference.text('successor.err')}")
        return 1
    expected = reference.outcome(reference.text("successor.out"))
    points = [p for p in KILL_POINTS if not arguments.only or p == arguments.only]
    moments = [(p, WAKES[(i + arguments.seed) % len(WAKES)]) for i, p in enumerate(points)]
    if not arguments.only:
        moments += [(None, wake) for wake in WAKES for _ in range(2)]
    if arguments.moments:
        rng.shuffle(moments)
        moments = moments[:arguments.moments]

    def one(i):
        """(moment, whether it was reached, what was wrong)."""
        point, wake = moments[i]
        name, case = f"{point or 'a random moment'} ({wake})", Case(leat, folder, data, job, f"case-{i}")
        try:
            is_reached = run_case(case, point, wake, random.Random(arguments.seed * 1000 + i), expected)
        except Failure as failure:
            return name, True, str(failure)
        if not arguments.keep:
            shutil.rmtree(case.folder)
        return name, is_reached, None

    with concurrent.futures.ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        results = list(pool.map(one, range(len(moments))))
    wrong = [(name, failure) for name, _, failure in results if failure]
    for name, failure in wrong:
        print(f"not ok - takeover: asleep at {name.replace('(', '(awake at the successor: ')}: {failure}", flush=True)
    reached = [name for name, is_reached, _ in results if is_reached]
    status = 1 if wrong or len(reached) < len(moments) * 3 // 4 else 0
    print(f"{'not ok' if status else 'ok'} - takeover: {len(reached)} of {len(moments)} moments: {', '.join(reached)}", flush=True)
    if status == 0 and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
