#!/usr/bin/env python3
"""A disk that is full, at every write: checkpoints, outputs, the order log, sorted copies and state that does not fit into
memory lie on one small file system, whose size grows from run to run, so that each write in turn is the first without room.

    tests/crash/full.py --leat build/release/leat [--steps 40] [--seed 1] [--folder DIR] [--keep]

Each run must end well, or say what is full and end with status 1, or wait for room; it never dies by a signal, and never
ends well with other rows. With room again the job goes on, from its checkpoint or anew, and its files, counts and models are
those of a run that had room all the time, byte for byte. Needs the right to mount; else the test is skipped, and says so.
Prints TAP lines.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time

from crash import compare, outcome
from lives import Failure

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

PATIENCE_SECONDS = 4  # a run that waits for room gets it then
LEAST_KIB, MOST_KIB, ROOM = 64, 40 << 10, "1g"

JOBS = {
    "checkpoints": """
job full { memory: 32MiB, checkpoint: { every: 20ms, dir: state, min_free: 0B, keep: { last: 2 } } }
source impressions = file { path: concat(data, "/impressions.jsonl"), schema: { imp_id: int!, ts: time(ms), user: int, item: int, site: text, cat: text, price: float, pos: float }, event_time: ts, max_delay: 1m }
source clicks = file { path: concat(data, "/clicks.jsonl"), schema: { imp_id: int!, ts: time(ms), item: int }, event_time: ts, max_delay: 1m }
stream features = impressions | dedup by imp_id within 1h
  | feature by item over [1h, 24h] every 1m { imps: count(), spend: sum(price), sites: distinct(site) }
stream examples = features | attribute clicks on imp_id within 1h as clicked
learner model = fm from examples { label: clicked, sparse: [user, item, site], embedding: { dim: 4 }, metrics_every: 5000 }
sink scored = file from model.predictions { path: concat(out, "/scored-{n}.jsonl"), roll_rows: 3000 }
sink packed = file from examples { path: concat(out, "/packed.csv.gz") }
sink dead = file from dead_letters { path: concat(out, "/dead.jsonl") }
""",
    "sorted": """
job full { memory: 32MiB, checkpoint: { every: 20ms, dir: state, min_free: 0B, keep: { last: 2 } } }
source impressions = file { path: concat(data, "/impressions.jsonl"), schema: { imp_id: int!, ts: time(ms), user: int, item: int, price: float }, event_time: ts, max_delay: 1m, order_by: price, sort_dir: concat(out, "/../sort"), sort_memory: 4MiB }
stream features = impressions | with dear = price > 1.0
sink rows = file from features { path: concat(out, "/rows.csv") }
""",
    "no checkpoints": """
job full { memory: 32MiB }
source impressions = file { path: concat(data, "/impressions.jsonl"), schema: { imp_id: int!, ts: time(ms), user: int, item: int, price: float }, event_time: ts, max_delay: 1m }
stream features = impressions | dedup by imp_id within 24h | feature by user over 24h every 1h { seen: count(), spend: sum(price) }
sink rows = file from features { path: concat(out, "/rows.msgpack.zst"), overwrite: true }
""",
}
HEAD = 'param data: text = "."\nparam out: text = "out"\nparam state: text = ""\n'


class Case:
    """A job and the small file system that it writes to."""

    def __init__(self, leat, folder, data, name):
        self.leat, self.data, self.name = leat, data, name
        self.folder = os.path.join(folder, re.sub(r"\W", "_", name))
        self.place = os.path.join(self.folder, "small")
        os.makedirs(self.place, exist_ok=True)
        self.job = os.path.join(self.folder, "full.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(HEAD + JOBS[name])

    def at(self, name):
        return os.path.join(self.place, name)

    def start(self):
        for name in ("out", "tmp", "sort"):
            os.makedirs(self.at(name), exist_ok=True)
        command = [self.leat, "run", self.job, "--json", "--workers", "2", "--set", f"data={self.data}", "--set", f"out={self.at('out')}"]
        if "no " not in self.name:
            command += ["--set", f"state={self.at('state')}", "--record-order", self.at("order")]
        with open(self.folder + "/stdout", "w", encoding="utf-8") as out, open(self.folder + "/stderr", "w", encoding="utf-8") as err:
            return subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, "TMPDIR": self.at("tmp"), "LEAT_TEST_STATE": "4096"})

    def said(self):
        with open(self.folder + "/stderr", encoding="utf-8") as file:
            return file.read()

    def summary(self):
        with open(self.folder + "/stdout", encoding="utf-8") as file:
            return file.read()

    def run(self, when_stuck=lambda: None):
        """Exit status; a run that stands still is given room."""
        process = self.start()
        try:
            return process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            when_stuck()
        try:
            return process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"it still stands, {PATIENCE_S} s after there was room: {self.said()[-1500:]}") from None

    def outcome(self):
        return outcome(self.at("out"), self.summary())


def mount(place, size, more=""):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"{more}size={size}", "leat-test", place], capture_output=True, text=True, check=False)


def is_diagnosed(said):
    return re.search(r"E0[0-9]{3}", said) is not None


def one(case, size_kib, expected):
    """What came of a run in so little room."""
    mounted = mount(case.place, f"{size_kib}k")
    if mounted.returncode != 0:
        raise PermissionError(mounted.stderr.strip())
    try:
        stuck = []
        status = case.run(lambda: stuck.append(mount(case.place, ROOM, "remount,")))
        said = case.said()
        if status not in (0, 1):
            raise Failure(f"with {size_kib} KiB it ended with {status} and said: {said[-1500:]}")
        if status == 1 and not is_diagnosed(said):
            raise Failure(f"with {size_kib} KiB it failed and did not say why: {said[-1500:]}")
        mount(case.place, ROOM, "remount,")
        if status == 1:
            if not os.path.exists(case.at("state")):  # anew: what is there was said to be in the way, or is replaced
                shutil.rmtree(case.at("out"))
            status = case.run()
            if status != 0:
                raise Failure(f"after {size_kib} KiB, with room again, it ended with {status} and said: {case.said()[-2000:]}\nbefore: {said[-1500:]}")
        compare(case.outcome(), expected, f"after {size_kib} KiB; it had said: {said[-800:]}")
        codes = sorted(set(re.findall(r"E0\d{3}", said)))
        return "waited" if stuck else "ended well" if not codes else " ".join(codes)
    finally:
        subprocess.run(["umount", "-l", case.place], check=False)


def run_job(leat, folder, data, name, sizes):
    case = Case(leat, folder, data, name)
    if mount(case.place, ROOM).returncode != 0:
        raise PermissionError("no file system can be mounted here")
    try:
        if case.run() != 0:
            raise Failure(f"with room it failed: {case.said()}")
        expected = case.outcome()
        used = (os.statvfs(case.place).f_blocks - os.statvfs(case.place).f_bfree) * os.statvfs(case.place).f_frsize >> 10
    finally:
        subprocess.run(["umount", "-l", case.place], check=False)
    came, wrong = {}, []
    for size in sizes(max(used, 4 * LEAST_KIB)):
        try:
            what = one(case, size, expected)
            came[what] = came.get(what, 0) + 1
        except Failure as failure:
            wrong.append(f"{failure}")
    return came, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--folder", default="build/full")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder, leat, rng = os.path.abspath(arguments.folder), os.path.abspath(arguments.leat), random.Random(arguments.seed)
    shutil.rmtree(folder, ignore_errors=True)
    data = os.path.join(folder, "data")
    os.makedirs(data)
    subprocess.run([leat, "generate", "ctr", "--events", "60000", "--seed", "3", "--out", data], check=True, stdout=subprocess.DEVNULL)

    def sizes(used_kib):
        """From nothing to more than it needs, evenly, at places of the seed's own."""
        step = used_kib * 2 / arguments.steps
        return [int(LEAST_KIB + (i + rng.random()) * step) for i in range(arguments.steps)]

    status = 0
    for name in JOBS:
        if arguments.only and arguments.only != name:
            continue
        begun = time.monotonic()
        try:
            came, wrong = run_job(leat, folder, data, name, sizes)
        except PermissionError as error:
            print(f"ok - full: {name} # SKIP {error}")
            continue
        except Failure as failure:
            came, wrong = {}, [str(failure)]
        for text in wrong:
            print(f"not ok - full: {name}: {text}", flush=True)
        status |= bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} - full: {name}: {came} in {time.monotonic() - begun:.0f} s", flush=True)
    if status == 0 and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
