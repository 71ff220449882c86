#!/usr/bin/env python3
"""Kills leat again and again, and demands the result of a run that nobody disturbed.

    tests/crash/crash.py --leat build/release/leat [--kills 40] [--seed 1] [--job NAME] [--keep]

For each job of tests/crash/*.leat: a reference run (one lane, no checkpoints), then rounds of lives. A life runs with a
random number of lanes and short checkpoints; once it has published three it is ended by `kill -9` at a random moment,
or by a failpoint at a step of the checkpoint or sink that the seed chose. The next life must begin at the newest whole
checkpoint. When a round is through, output files, counts and models must equal the reference, byte for byte.

Prints TAP lines; the seed and the list of what was done make a failure repeatable.
"""

import argparse
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LANES = [1, 2, 3, 7]
KILL_POINTS = [
    "ckpt.barrier", "ckpt.write", "ckpt.manifest", "ckpt.fsync", "ckpt.fsync_directory", "ckpt.pre_rename",
    "ckpt.rename", "ckpt.post_rename", "ckpt.fsync_parent", "ckpt.published", "ckpt.prune", "ckpt.database",
    "sink.write", "sink.fsync", "sink.rename", "sink.truncate", "state.evict", "restore.begin", "restore.end",
]
LIFE_SECONDS_MAX = 120


class Failure(Exception):
    pass


class Job:
    """One job file with its input, output and state folders."""

    def __init__(self, leat, path, folder, data):
        self.leat, self.path, self.data = leat, path, data
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.folder = os.path.join(folder, self.name)

    def command(self, place, lanes, state, every):
        out = os.path.join(self.folder, place)
        os.makedirs(out, exist_ok=True)
        return [
            self.leat, "run", self.path, "--json", "--workers", str(lanes), "--set", f"data={self.data}",
            "--set", f"out={out}", "--set", f"state={state}", "--set", f"every={every}",
        ]

    def reference(self):
        state = os.path.join(self.folder, "reference-state")
        result = subprocess.run(self.command("reference", 1, state, "1h"), capture_output=True, text=True,
                                timeout=LIFE_SECONDS_MAX)
        if result.returncode != 0:
            raise Failure(f"the reference run failed:\n{result.stderr[-2000:]}")
        return self.outcome("reference", state, result.stdout)

    def outcome(self, place, state, summary):
        """Output files, counts, figures, and the model, if there is one."""
        folder = os.path.join(self.folder, place)
        if any(n["tag"] == "learner" for n in json.loads(summary)["nodes"]):
            result = subprocess.run([self.leat, "model", "export", state, "--out", os.path.join(folder, "model.safetensors")],
                                    capture_output=True, text=True, timeout=LIFE_SECONDS_MAX)
            if result.returncode != 0:
                raise Failure(f"the model cannot be exported:\n{result.stderr[-2000:]}")
        return outcome(folder, summary)


def outcome(folder, summary):
    """What must be equal: digests of all files, counts and reports of all nodes."""
    files = {}
    for path in sorted(glob.glob(os.path.join(folder, "**"), recursive=True)):
        if os.path.isfile(path):
            with open(path, "rb") as f:
                files[os.path.relpath(path, folder)] = hashlib.sha256(f.read()).hexdigest()
    nodes = json.loads(summary)["nodes"]
    counts = {f"{i} {n['name']} {n['kind']}": n["counts"] for i, n in enumerate(nodes)}
    reports = {f"{i} {n['name']}": [figures(n["report"]), n["note"]] for i, n in enumerate(nodes)}
    for name, c in counts.items():
        if not c["balanced"]:
            raise Failure(f"the counts of {name} do not add up: {c}")
    return {"files": files, "counts": counts, "reports": reports}


# What a process did, not what the records make of it: rows that expired but were not swept yet, calls, memory.
PHYSICAL = {"rows", "rows_expired", "rows_evicted", "sightings_waiting", "table_bytes"}


def figures(report):
    return {part: {k: v for k, v in values.items() if k not in PHYSICAL and not k.startswith(("kernel_calls", "state_"))}
            for part, values in report.items()}


def newest_checkpoint(state):
    """(generation, epoch) of the newest published checkpoint, by name alone."""
    found = [(0, 0)]
    for path in glob.glob(os.path.join(state, "gen-*", "ckpt-*")):
        match = re.search(r"gen-(\d+)/ckpt-(\d+)$", path)
        if match:
            found.append((int(match[1]), int(match[2])))
    return max(found)


def newest_epoch(state):
    return newest_checkpoint(state)[1]


class Round:
    """Lives of one job until it is through."""

    def __init__(self, job, rng, number):
        self.job, self.rng = job, rng
        self.place = f"round-{number}"
        self.state = os.path.join(job.folder, f"state-{number}")
        self.kills = 0
        self.log = []
        self.points = set()

    def life(self, kill):
        """One life; True when the job is through."""
        lanes = self.rng.choice(LANES)
        every = self.rng.choice(["10ms", "20ms", "40ms"])
        environment = dict(os.environ)
        point = None
        if kill and self.rng.random() < 0.6:
            point = self.rng.choice(KILL_POINTS)
            passage = 1 if point.startswith("restore.") else self.rng.randint(4, 8)
            environment["LEAT_FAILPOINTS"] = f"{point}=kill@{passage}"
        before = newest_checkpoint(self.state)
        command = self.job.command(self.place, lanes, self.state, every)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        if kill and point is None:
            self.kill_later(process, before[1])
        try:
            out, err = process.communicate(timeout=LIFE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"a life hangs: {self.log}")
        self.check_start(err, before)
        self.log.append((lanes, every, environment.get("LEAT_FAILPOINTS"), process.returncode, newest_checkpoint(self.state)))
        if process.returncode == -signal.SIGKILL:
            self.kills += 1
            if point:
                self.points.add(point)
            return False
        if process.returncode != 0:
            raise Failure(f"a life failed with {process.returncode}:\n{err[-3000:]}\n{self.log}")
        self.summary = out
        return True

    def kill_later(self, process, epoch):
        """After three checkpoints of its own, at a random moment."""
        deadline = time.monotonic() + LIFE_SECONDS_MAX
        while process.poll() is None and newest_epoch(self.state) < epoch + 3 and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self.rng.random() * 0.04)
        if process.poll() is None:
            process.kill()

    def check_start(self, err, before):
        match = re.search(r"resuming from checkpoint (\d+)-(\d+)", err)
        begun = (int(match[1]), int(match[2])) if match else (0, 0)
        # A checkpoint that was renamed but not yet announced counts as well.
        if before != (0, 0) and match and begun != before:
            raise Failure(f"a life began at {begun} although {before} is whole: {self.log}")


def run_job(job, kills, rng, report):
    expected = job.reference()
    done, number, points = 0, 0, set()
    while done < kills:
        number += 1
        round_ = Round(job, rng, number)
        begin = done
        while not round_.life(kill=done - begin < 12 and done < kills):
            done = begin + round_.kills
        done = begin + round_.kills
        points |= round_.points
        found = job.outcome(round_.place, round_.state, round_.summary)
        for part in ("files", "counts", "reports"):
            if found[part] != expected[part]:
                detail = [(k, expected[part].get(k), found[part].get(k))
                          for k in sorted(set(expected[part]) | set(found[part]))
                          if expected[part].get(k) != found[part].get(k)][:4]
                raise Failure(f"{part} differ after {round_.kills} kills: {detail}\n{round_.log}")
        if round_.kills == 0 and number > 3 * kills + 10:
            raise Failure("the job is too short to be killed")
        shutil.rmtree(round_.state, ignore_errors=True)
        shutil.rmtree(os.path.join(job.folder, round_.place), ignore_errors=True)
    report(f"ok - crash: {job.name}: {done} kills in {number} rounds, at {len(points)} failpoints and at random")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200000)
    parser.add_argument("--job")
    parser.add_argument("--folder", default="build/crash")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    data = os.path.join(folder, "data")
    os.makedirs(data)
    leat = os.path.abspath(arguments.leat)
    subprocess.run([leat, "generate", "ctr", "--events", str(arguments.events), "--seed", "3", "--out", data,
                    "--duplicates", "0.01", "--late", "0.01", "--malformed", "0.002"], check=True,
                   stdout=subprocess.DEVNULL)
    paths = sorted(glob.glob(os.path.join(HERE, "*.leat")))
    paths = [p for p in paths if not arguments.job or arguments.job in p]
    status = 0
    for i, path in enumerate(paths):
        rng = random.Random(arguments.seed * 1000 + i)
        job = Job(leat, path, folder, data)
        try:
            run_job(job, max(1, arguments.kills // len(paths)), rng, print)
        except Failure as failure:
            status = 1
            print(f"not ok - crash: {job.name} (seed {arguments.seed}): {failure}")
        sys.stdout.flush()
    if not arguments.keep and status == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
