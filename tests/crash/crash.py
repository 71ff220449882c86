#!/usr/bin/env python3
"""Kills leat again and again, and demands the result of a run that nobody disturbed.

    tests/crash/crash.py --leat build/release/leat [--kills 40] [--seed 1] [--job NAME] [--device LIBRARY [--only]] [--keep]

For each job of tests/crash/*.leat a reference run (one lane), then:

- undisturbed runs with checkpoints off, every 100 ms and every 10 s, with each LEAT_KERNELS that this CPU has, at 2, 3 and
  7 lanes: each of these once, for kernels know nothing of checkpoints; from 200 kills on each with each, but for jobs whose
  learners spill, and these must have spilled. The report's calls by variant say which kernels really ran. With --device,
  learners that say `device: cpu` run on `cuda(0)` as well, every 100 ms and every 10 s, by that library (auto: the one
  beside leat); so may each life of a round below. --only: all do, the reference, too: a GPU sums in
  another order than a CPU (its model on the host does not).
- rounds of lives (lives.py). A life runs with a random number of lanes and short checkpoints; once it has published
  a checkpoint, and the round three, and a job that spills has evicted state to RocksDB and read some of it back, it is
  stopped at a passage of the failpoint that the seed chose, or at a random moment, and ended by `kill -9` there. The
  next life must begin at the newest whole checkpoint.

- where there are learners: a run in which these move between databases (leat run --move), and lives that are killed at each step.

Output files, counts, figures and models must equal the reference, byte for byte; what all lives have read is at most all
records in each round, and the longest epoch for each kill, by what was read from a checkpoint until the next one began.

Prints TAP lines; the seed and the list of what was done make a failure repeatable.
"""

import argparse
import glob
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys

from lives import CHECKPOINTS_LEAST, KILL_POINTS, LANES, MOVE_POINTS, WHOLE_POINTS, Failure, Inputs, Round

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROUND_KILLS_MAX = 12
KILLS_FOR_ALL_POINTS = 200  # with fewer the seed and the machine's pace decide which are reached; and runs are each with each
SPILLING = {"features", "cold", "tiers"}  # jobs whose state does not fit into their memory
SLOW = {"tiers"}  # jobs that are killed half as often, for a model of a GPU takes its time for wide rows
INTERVALS = ["off", "100ms", "10s"]
SLOWLY_MS = [2, 10, 50, 400]  # between micro-batches, so that checkpoints come, and learners move
MOVES_LEAST = 3  # of learners, in a run of such a job
MOVE_ROUNDS = 4  # to be killed at each step, for each of SLOWLY_MS: a busy machine's lives may have few moves
KERNELS = {"scalar": None, "avx2": "avx2", "avx512": "avx512f"}


class Job:
    """One job file with its input, output and state folders."""

    def __init__(self, leat, path, folder, inputs, library=None, is_only=False):
        self.leat, self.path, self.inputs = leat, path, inputs
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.folder = os.path.join(folder, self.name)
        self.never_passed = set()  # failpoints that this job does not come to
        self.points_seen = set()  # those that it did come to
        self.spills = self.name in SPILLING
        self.checkpoints_least = CHECKPOINTS_LEAST
        self.devices = ["cpu"]
        self.environment = dict(os.environ)
        if library and self.write_for_gpu():
            self.devices = ["gpu"] if is_only else ["cpu", "gpu"]
            if library != "auto":
                self.environment["LEAT_CUDA_LIBRARY"] = os.path.abspath(library)

    def path_on(self, device):
        return self.path if device == "cpu" else os.path.join(self.folder, os.path.basename(self.path))

    def write_for_gpu(self):
        """Whether some of its learners may learn on a GPU."""
        with open(self.path, encoding="utf-8") as f:
            text = f.read()
        os.makedirs(self.folder, exist_ok=True)
        with open(self.path_on("gpu"), "w", encoding="utf-8") as f:
            f.write(text.replace("device: cpu\n", "device: cuda(0)\n"))
        return "device: cpu\n" in text

    def command(self, place, lanes, state, every, device="cpu", move=0, more=()):
        """move: seed of moves of key groups between lanes; 0: none move. more: arguments."""
        out = os.path.join(self.folder, place)
        os.makedirs(out, exist_ok=True)
        return [
            self.leat, "run", self.path_on(device), "--json", "--workers", str(lanes), "--set", f"data={self.inputs.folder}",
            "--set", f"out={out}", "--set", f"state={state}", "--set", f"every={every}",
            *(["--move", str(move)] if move else []), *more,
        ]

    def undisturbed(self, place, lanes, state, every, kernels=None, device="cpu", move=0, more=()):
        """The outcome of a whole run, and its summary."""
        environment = dict(self.environment, LEAT_KERNELS=kernels) if kernels else self.environment
        result = subprocess.run(self.command(place, lanes, state, every, device, move, more), capture_output=True, text=True,
                                timeout=PATIENCE_S, env=environment)
        if result.returncode != 0:
            raise Failure(f"an undisturbed run failed:\n{result.stderr[-2000:]}")
        return self.outcome(place, state, result.stdout), json.loads(result.stdout)

    def outcome(self, place, state, summary):
        """Output files, counts, figures, and the models, if there are any."""
        folder = os.path.join(self.folder, place)
        if state and any(n["tag"] == "learner" for n in json.loads(summary)["nodes"]):
            export_models(self.leat, state, folder)
        return outcome(folder, summary)


def export_models(leat, state, folder):
    """Of each learner of the newest checkpoint, into FOLDER/models."""
    models = os.path.join(folder, "models")
    os.makedirs(models, exist_ok=True)
    result = subprocess.run([os.path.abspath(leat), "model", "export", os.path.abspath(state)], cwd=models, capture_output=True,
                            text=True, timeout=PATIENCE_S)
    if result.returncode != 0:
        raise Failure(f"the models cannot be exported:\n{result.stderr[-2000:]}")


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


# What a process did, not what the records make of it: rows that expired but were not swept yet or lie on disk, calls,
# memory.
PHYSICAL = {"rows", "rows_of_a_key_max", "rows_cold", "rows_loaded", "rows_expired", "rows_evicted", "occurrences_waiting", "table_bytes",
            "history_bytes", "history_cold", "items_bytes"}


def figures(report):
    return {part: {k: v for k, v in values.items() if k not in PHYSICAL and not k.startswith(("kernel_calls", "state_", "hot_key", "device_"))}
            for part, values in report.items()}


def compare(found, expected, what, but=()):
    for part in ("files", "counts", "reports"):
        names = sorted(name for name in set(expected[part]) | set(found[part]) if not name.startswith(but))
        detail = [(k, expected[part].get(k), found[part].get(k)) for k in names
                  if expected[part].get(k) != found[part].get(k)][:4]
        if detail:
            raise Failure(f"{part} differ {what}: {detail}")


def kernel_calls(summary):
    """{variant: calls} of all learners together."""
    calls = {}
    for node in summary["nodes"]:
        for key, value in node["report"].get("run", {}).items():
            if key.startswith("kernel_calls_"):
                calls[key[len("kernel_calls_"):]] = calls.get(key[len("kernel_calls_"):], 0) + value
    return calls


def check_tiers(summary, device, what):
    """Rows lay on disk and came back; a GPU was held by a checkpoint for whose rows staging had no room."""
    reports = [node["report"]["run"] for node in summary["nodes"] if node["tag"] == "learner"]
    found = {name: sum(report.get(name, 0) for report in reports)
             for name in ("rows_cold", "rows_loaded") + ("device_held",) * (device == "gpu")}
    if not all(found.values()):
        raise Failure(f"rows stayed in memory {what}: {found}")


def variants_here():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = set(f.read().split())
    return [name for name, flag in KERNELS.items() if flag is None or flag in flags]


def run_variants(job, expected, has_learner, is_thorough, report):
    """Checkpoints off, now and then, hardly ever; each set of kernels: the same bytes."""
    variants = variants_here() if has_learner and "cpu" in job.devices else [None]
    runs, lanes = 0, LANES[1:] + LANES[:1]
    is_thorough &= not job.spills
    pairs = [(variants[i % len(variants)], every) for i, every in enumerate(INTERVALS)]
    if is_thorough:
        pairs = list(itertools.product(variants, INTERVALS))
    runs_of = [(kernels, every, job.devices[0]) for kernels, every in pairs]
    intervals = ["100ms"] if job.spills else INTERVALS if is_thorough else INTERVALS[1:]
    runs_of += [(None, every, device) for device in job.devices[1:] for every in intervals]
    for kernels, every, device in runs_of:
        place, state = f"variant-{runs}", "" if every == "off" else os.path.join(job.folder, f"variant-state-{runs}")
        found, summary = job.undisturbed(place, lanes[runs % len(lanes)], state, "10s" if every == "off" else every, kernels,
                                         device)
        what = f"on a {device} with LEAT_KERNELS={kernels} and checkpoints {every} at {lanes[runs % len(lanes)]} lanes"
        compare(found, expected, what, but=() if state else ("models/",))
        if has_learner and job.spills and every != "off":
            check_tiers(summary, device, what)
        calls = kernel_calls(summary)
        others = [name for name, count in calls.items() if count > 0 and name != kernels]
        if kernels and (calls.get(kernels, 0) == 0 or others):
            raise Failure(f"kernels of another kind ran {what}: {calls}")
        runs += 1
        shutil.rmtree(state, ignore_errors=True)
        shutil.rmtree(os.path.join(job.folder, place), ignore_errors=True)
    kinds = f", kernels {', '.join(v or 'of any kind' for v in variants)}, on {' and '.join(job.devices)}" if has_learner else ""
    report(f"ok - crash: {job.name}: the same bytes in {runs} runs: checkpoints off, 100 ms, 10 s{kinds}")


def run_moving(job, expected):
    """A run whose learners go from database to database with every second checkpoint. Returns how often one did."""
    state = os.path.join(job.folder, "moving-state")
    found, summary = job.undisturbed("moving", 3, state, "10ms", device=job.devices[0], move=1)
    moved = summary.get("moved_operators", 0)
    compare(found, expected, f"where learners moved {moved} times")
    shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(os.path.join(job.folder, "moving"), ignore_errors=True)
    return moved


def run_move_kills(job, expected, rng, slowly):
    """Kills at each step of a learner's move, more slowly from round to round until each step has had one. Returns the steps."""
    points = set()
    for number in range(MOVE_ROUNDS * len(slowly)):
        job.environment["LEAT_FAILPOINTS"] = f"run.claimed=sleep:{slowly[number // MOVE_ROUNDS]}"
        left = [point for point in WHOLE_POINTS if point not in points]
        if not left:
            break
        round_ = Round(job, rng, f"moves-{number}")
        while not round_.life(left[0] if left else None, bool(left)):
            points |= round_.points
            left = [point for point in left if point not in points]
        compare(job.outcome(round_.place, round_.state, round_.summary), expected, f"after kills while learners moved, {round_.log}")
        shutil.rmtree(round_.state, ignore_errors=True)
        shutil.rmtree(os.path.join(job.folder, round_.place), ignore_errors=True)
    return points


def run_moves(job, expected, rng, report):
    """Learners move: undisturbed, and killed at each step of it. Returns the steps."""
    least, job.checkpoints_least = job.checkpoints_least, 1
    for i, slowly in enumerate(SLOWLY_MS):
        job.environment["LEAT_FAILPOINTS"] = f"run.claimed=sleep:{slowly}"
        moved = run_moving(job, expected)
        if moved >= MOVES_LEAST:
            break
    points = run_move_kills(job, expected, rng, SLOWLY_MS[i:])
    del job.environment["LEAT_FAILPOINTS"]
    job.checkpoints_least = least
    job.never_passed -= points
    is_good = moved > 0 and points == set(WHOLE_POINTS)
    report(f"{'ok' if is_good else 'not ok'} - crash: {job.name}: the same bytes where learners moved {moved} times; killed at "
           f"{', '.join(sorted(points))}")
    return points


def run_more_slowly(job, round_, slowly_ms):
    """Where a round had too few checkpoints for a kill, the next one waits longer between micro-batches. Returns for how long."""
    if round_.kills == 0 and round_.published <= 2 * job.checkpoints_least:
        slowly_ms = max(1, min(2 * slowly_ms, SLOWLY_MS[-1]))
        job.environment["LEAT_FAILPOINTS"] = f"run.claimed=sleep:{slowly_ms}"
    return slowly_ms


def run_rounds(job, expected, kills, rng, report):
    done, number, points, read, epoch_max, slowly_ms = 0, 0, set(), 0, 0, 0
    # Every failpoint before any twice, in an order of the seed's own; None: a random moment.
    moments = []
    while done < kills:
        number += 1
        round_ = Round(job, rng, number)
        is_through = False
        while not is_through:
            is_wanted = round_.kills < ROUND_KILLS_MAX and done + round_.kills < kills
            if is_wanted and not moments:
                moments = [p for p in KILL_POINTS + MOVE_POINTS if p not in job.never_passed]
                moments += [None] * (len(moments) // 3)
                rng.shuffle(moments)
            is_through = round_.life(moments.pop() if is_wanted else None, is_wanted)
        done += round_.kills
        points |= round_.points
        read += round_.read
        epoch_max = max(epoch_max, round_.epoch_max)
        compare(job.outcome(round_.place, round_.state, round_.summary), expected,
                f"after {round_.kills} kills, {round_.log}")
        slowly_ms = run_more_slowly(job, round_, slowly_ms)
        if round_.kills == 0 and number > 3 * kills + 10:
            raise Failure("the job is too short to be killed")
        shutil.rmtree(round_.state, ignore_errors=True)
        shutil.rmtree(os.path.join(job.folder, round_.place), ignore_errors=True)
    job.environment.pop("LEAT_FAILPOINTS", None)
    allowed = number * job.inputs.total + done * epoch_max
    if read > allowed and job.checkpoints_least == CHECKPOINTS_LEAST:  # of a short job much is read ahead
        raise Failure(f"{number} rounds with {done} kills made leat read {read:,} records; all of them in each round, and an "
                      f"epoch a kill (at most {epoch_max:,}) are {allowed:,}")
    report(f"ok - crash: {job.name}: {done} kills in {number} rounds, at random and at {', '.join(sorted(points))}; read "
           f"{read:,} records where {allowed:,} are allowed")
    return points


def run_job(job, kills, kills_of_all, rng, report):
    expected, summary = job.undisturbed("reference", 1, os.path.join(job.folder, "reference-state"), "1h", device=job.devices[0])
    if summary["records"] != job.inputs.total:
        raise Failure(f"the reference read {summary['records']} records of {job.inputs.total}")
    has_learner = any(n["tag"] == "learner" for n in summary["nodes"])
    run_variants(job, expected, has_learner, kills_of_all >= KILLS_FOR_ALL_POINTS, report)
    points = run_moves(job, expected, rng, report) if has_learner and kills > 0 else set()
    return points | run_rounds(job, expected, kills, rng, report)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200000)
    parser.add_argument("--job")
    parser.add_argument("--device")
    parser.add_argument("--only", action="store_true")
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
    inputs = Inputs(data)
    paths = sorted(glob.glob(os.path.join(HERE, "*.leat")))
    paths = [p for p in paths if not arguments.job or arguments.job in p]
    status, points = 0, set()
    for i, path in enumerate(paths):
        rng = random.Random(arguments.seed * 1000 + i)
        job = Job(leat, path, folder, inputs, arguments.device, arguments.only)
        try:
            share = len(paths) * (2 if job.name in SLOW and len(paths) > 1 else 1)
            points |= run_job(job, -(-arguments.kills // share), arguments.kills, rng, lambda line: print(line, flush=True))
        except Failure as failure:
            status = 1
            print(f"not ok - crash: {job.name} (seed {arguments.seed}): {failure}", flush=True)
    missing = sorted({*KILL_POINTS, *MOVE_POINTS} - points)
    if arguments.kills >= KILLS_FOR_ALL_POINTS and len(paths) > 1 and status == 0:
        status = 1 if missing else 0
        print(f"{'not ok' if missing else 'ok'} - crash: killed at every failpoint" + "".join(f", but {m}" for m in missing))
    if not arguments.keep and status == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
