#!/usr/bin/env python3
"""Runs that replay an order log: their own, another job's, one that does not fit, and what a fall back does again.

    tests/crash/order.py --leat build/release/leat [--folder DIR] [--only NAME]

Prints TAP lines.
"""

import argparse
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

from crash import export_models, outcome

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LANES = [1, 2, 3, 7]

# Whole batches of one time, so that no number has rows of both sources: which of two sources comes first is then a matter of their places in the job, so that jobs with
# another order of sources make another order of rows. `left` has a feature of `right`, and stands or falls with it.
SOURCES = {name: f'source {name} = file {{ path: concat(data, "/{name}.jsonl"), schema: {{ n: int!, ts: time(ms) }}, event_time: ts }}\n'
           for name in ("left", "right")}
TIED = """
param data: text = "."
param out: text = "out"
param state: text = ""
job tied { checkpoint: { every: 10ms, dir: state } }
"""
REST = """
stream keyed = right | with k = n % 7
stream seen = left | with k = n % 7 | feature from keyed by k over [1h] every 1m { rights: count() } | with side = "left" | select n, k, rights, side
stream others = keyed | with rights = 0, side = "right" | select n, k, rights, side
stream both = seen | union others
sink both = file from both { path: concat(out, "/both.jsonl") }
"""
RECORDS = 60_000
MANY = 400_000  # enough for a few checkpoints
TIES = 3 * 1024


class Failure(Exception):
    pass


def line(n, shift=0):
    return f'{{"n":{n},"ts":{1_700_000_000_000 + n // TIES * 1000 + shift}}}\n'


def write(path, lines):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(lines)


def append(path, data):
    with open(path, "ab") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Place:
    """A folder with the tied sources, and both jobs."""

    def __init__(self, leat, folder, records=RECORDS):
        self.leat, self.folder, self.data = leat, folder, f"{folder}/data"
        self.jobs = {first: f"{folder}/{first}.leat" for first in SOURCES}
        for first, path in self.jobs.items():
            other = "right" if first == "left" else "left"
            write(path, [TIED, SOURCES[first], SOURCES[other], REST])
        for name in SOURCES:
            write(f"{self.data}/{name}.jsonl", (line(n) for n in range(records)))

    def run(self, out, *more, first="left", lanes=2, state="", **environment):
        """The process, ended. Output in a folder of its own, and what it says with it."""
        os.makedirs(f"{self.folder}/{out}", exist_ok=True)
        return subprocess.run(
            [self.leat, "run", self.jobs[first], "--json", "--workers", str(lanes), "--set", f"data={self.data}",
             "--set", f"out={self.folder}/{out}", "--set", f"state={state and self.folder + '/' + state}", *more],
            capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **environment}, check=False)

    def good(self, out, *more, **options):
        result = self.run(out, *more, **options)
        if result.returncode != 0:
            raise Failure(f"{more} {options} failed: {result.stderr[-2000:]}")
        return read(f"{self.folder}/{out}/both.jsonl"), result

    def refused(self, out, what, *more, **options):
        result = self.run(out, *more, **options)
        if result.returncode == 0 or any(text not in result.stderr for text in what):
            raise Failure(f"expected a refusal with {what}, found {result.returncode}:\n{result.stderr[-2000:]}")


def test_own_order(leat, folder):
    """The shipped test jobs replay their own log: files, counts, figures, model; and write the same log again."""
    data = f"{folder}/data"
    os.makedirs(data)
    subprocess.run([leat, "generate", "ctr", "--events", "20000", "--seed", "5", "--out", data, "--duplicates", "0.01",
                    "--late", "0.01", "--late-by", "10m", "--malformed", "0.002"], check=True, stdout=subprocess.DEVNULL)
    for path in sorted(glob.glob(f"{HERE}/*.leat")):
        results = []
        name = os.path.basename(path)[:-5]
        for lanes in [1] + LANES:
            out, log = f"{folder}/{name}-{len(results)}", f"{folder}/{name}-{len(results)}.order"
            os.makedirs(out)
            replay = ["--order", f"{folder}/{name}-0.order"] if results else []
            state = f"{folder}/{name}-state-{len(results)}"
            result = subprocess.run([leat, "run", path, "--json", "--workers", str(lanes), "--set", f"data={data}", "--set",
                                     f"out={out}", "--set", f"state={state}", "--set", "every=1h", "--record-order", log] + replay,
                                    capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            if result.returncode != 0 or (replay and "replaying the order log" not in result.stderr):
                raise Failure(f"{name} at {lanes} lanes: {result.stderr[-2000:]}")
            if any(n["tag"] == "learner" for n in json.loads(result.stdout)["nodes"]):
                export_models(leat, state, out)
            results.append((outcome(out, result.stdout), read(log)))
            if results[-1] != results[0]:
                raise Failure(f"{name} at {lanes} lanes replays its own order and gives something else")


def test_other_order(leat, folder):
    """The order of another job, which merged the same rows otherwise, gives that job's bytes."""
    place = Place(leat, folder)
    left, _ = place.good("left", "--record-order", f"{folder}/left.order", first="left")
    right, _ = place.good("right", "--record-order", f"{folder}/right.order", first="right")
    if sorted(left.splitlines()) == sorted(right.splitlines()):
        raise Failure("the two orders make no difference: the test shows nothing")
    for lanes in LANES:
        for job, order, expected in (("left", "right", right), ("right", "left", left), ("left", "left", left)):
            found, _ = place.good(f"{job}-by-{order}-{lanes}", "--order", f"{folder}/{order}.order", first=job, lanes=lanes)
            if found != expected:
                raise Failure(f"job {job} by the order of {order} at {lanes} lanes gives other rows than job {order}")
    # With checkpoints, killed, and going on at another number of lanes.
    killed = place.run("killed", "--order", f"{folder}/right.order", state="state", lanes=3,
                       LEAT_FAILPOINTS="ckpt.published=kill@2")
    if killed.returncode != -signal.SIGKILL:
        raise Failure(f"the run ended before it could be killed: {killed.stderr}")
    place.refused("killed", ["E0703", "order log", "--fresh"], state="state")
    place.refused("killed", ["E0703", "order log", "--fresh"], "--order", f"{folder}/left.order", state="state")
    found, _ = place.good("killed", "--order", f"{folder}/right.order", state="state", lanes=7)
    if found != right:
        raise Failure("killed and resumed, the order of right gives other rows")


def recording(place, name, order):
    """The source as a recording with a manifest."""
    folder = f"{place.folder}/rec/{name}"
    os.makedirs(folder)
    shutil.copy(f"{place.data}/{name}.jsonl", f"{folder}/0000.jsonl")
    manifest = {"partitions": [{"name": "0", "files": ["0000.jsonl"]}]}
    if order:
        shutil.copy(order, f"{folder}/order.log")
        manifest["order_log"] = "order.log"
    write(f"{folder}/manifest.json", json.dumps(manifest))
    return f"{name}={folder}"


def test_recordings(leat, folder):
    """--replay of recordings follows the log of their manifests; all must have the same."""
    place = Place(leat, folder)
    left, _ = place.good("left", "--record-order", f"{folder}/left.order", first="left")
    right, _ = place.good("right", "--record-order", f"{folder}/right.order", first="right")
    sink = f"both={folder}/replay/both.jsonl"

    def replay(*logs):
        shutil.rmtree(f"{folder}/rec", ignore_errors=True)
        shutil.rmtree(f"{folder}/replay", ignore_errors=True)
        return [a for name, log in zip(SOURCES, logs) for a in ("--replay", recording(place, name, log))] + ["--sink", sink]

    for log, expected in ((f"{folder}/right.order", right), (f"{folder}/left.order", left), (None, left)):
        found, _ = place.good("replay", *replay(log, log))
        if found != expected:
            raise Failure(f"a replay with the order log {log} gives other rows")
    found, _ = place.good("replay", *replay(f"{folder}/right.order", f"{folder}/right.order"), "--order=none")
    if found != left:
        raise Failure("--order=none does not compute the order anew")
    found, _ = place.good("replay", *replay(f"{folder}/left.order", f"{folder}/left.order"), "--order", f"{folder}/right.order")
    if found != right:
        raise Failure("--order does not come before the manifests")
    place.refused("replay", ["E0604", "do not have the same order log", "--order"], *replay(f"{folder}/right.order", None))
    place.refused("replay", ["E0604", "do not have the same order log", "--order"],
                  *replay(f"{folder}/right.order", f"{folder}/left.order"))
    arguments = replay(f"{folder}/right.order", f"{folder}/right.order")
    os.remove(f"{folder}/rec/left/order.log")
    place.refused("replay", ["E0602", "rec/left/order.log", "--order=none"], *arguments)
    write(f"{folder}/rec/left/manifest.json", '{"partitions": [{"name": "0", "files": ["0000.jsonl"]}], "order_log": "../x"}')
    place.refused("replay", ["E0603", "manifest.json", "inside the directory"], *arguments)


def flip(path, at):
    data = bytearray(read(path))
    data[at] ^= 1
    with open(path, "wb") as f:
        f.write(data)


def test_misfits(leat, folder):
    """A log that is damaged, or of other records, stops the run and says where, what was expected, what was found."""
    place = Place(leat, folder)
    log = f"{folder}/log"
    expected, _ = place.good("out", "--record-order", log)
    place.refused("twice", ["E0606", "--record-order"], "--record-order", log)
    good = read(log)

    def expect(*what, data=None):
        shutil.rmtree(f"{folder}/other", ignore_errors=True)
        if data is not None:
            with open(log, "wb") as f:
                f.write(data)
        place.refused("other", [*what, "hint"], "--order", log)

    expect("E0603", "digest", data=good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1:])
    expect("E0603", "ends within", data=good[:-1])
    expect("E0603", "ends within", data=b"")
    expect("E0603", "not an order log", data=b"x" * 100)
    with open(log, "wb") as f:
        f.write(good)
    lines = [line(n) for n in range(RECORDS)]
    changed = [line(n, 1 if n == 40_000 else 0) for n in range(RECORDS)]
    for name, text, what in (("right", changed, ["right.jsonl", "up to order time", "found: records up to"]),
                             ("left", lines[:-10], ["left.jsonl", "the input is shorter"]),
                             ("left", lines + [line(RECORDS)] * 5, ["ends in the log after 60000 records, and has more records"])):
        write(f"{place.data}/{name}.jsonl", text)
        expect("E0604", "does not fit", "--order=none", *what)
        write(f"{place.data}/{name}.jsonl", lines)
    write(place.jobs["left"], [TIED, SOURCES["left"], 'sink both = file from left { path: concat(out, "/both.jsonl") }\n'])
    expect("E0604", "partition 0 of source `right`, which this job does not read")
    third = SOURCES["left"].replace("source left", "source third")
    write(place.jobs["left"], [TIED, SOURCES["left"], SOURCES["right"], third, REST.replace("left | with", "left | union third | with")])
    expect("E0604", "it does not have", "source `third`")
    write(place.jobs["left"], [TIED, SOURCES["left"], SOURCES["right"], REST])
    found, _ = place.good("again", "--order", log)
    if found != expected:
        raise Failure("the log fits again, and gives other rows")


def split(log):
    """Its segments, by their heads; nothing may stand between them or behind the last."""
    segments, next_number = [], 0
    while log:
        epoch, first, following, length = struct.unpack_from("<4Q", log.ljust(40), 8)
        if log[:8] != b"leatord2" or first != next_number or following < first or 56 + length > len(log):
            raise Failure(f"no segment with number {next_number} behind {len(segments)} others (epoch {epoch})")
        segments.append(log[:56 + length])
        log, next_number = log[56 + length:], following
    return segments


def test_stopped(leat, folder):
    """A log that ends before the records do: behind it, the order is computed. Killed runs go on with their file."""
    place = Place(leat, folder, MANY)
    expected, _ = place.good("whole", "--record-order", f"{folder}/whole.order")
    log = f"{folder}/log"
    killed = 0
    for point in ("ckpt.order=kill@2", "ckpt.published=kill@1", "ckpt.pre_rename=kill@2", "sink.fsync=kill@3", ""):
        environment = {"LEAT_FAILPOINTS": point} if point else {}
        result = place.run("parts", "--record-order", log, state="state", lanes=LANES[killed % 4], **environment)
        if result.returncode == -signal.SIGKILL:
            killed += 1
            append(log, b"a segment that the kill left, and whose checkpoint does not count" * 1000)
        if result.returncode not in (0, -signal.SIGKILL):
            raise Failure(f"at {point}: {result.stderr[-2000:]}")
    if killed < 3 or read(f"{folder}/parts/both.jsonl") != expected:
        raise Failure(f"{killed} kills, and the rows differ")
    by_log, result = place.good("by-log", "--order", log, "--record-order", f"{folder}/again")
    if by_log != expected or json.loads(result.stdout)["records"] != 2 * MANY:
        raise Failure("the log of a run that was killed is not that of its rows")
    segments = split(read(log))
    if len(segments) < 2:
        raise Failure("a log of one segment: the test shows nothing")
    with open(f"{folder}/short.order", "wb") as f:
        f.write(segments[0])
    found, _ = place.good("short", "--order", f"{folder}/short.order", "--record-order", f"{folder}/long.order")
    if found != expected or read(f"{folder}/long.order") != read(f"{folder}/whole.order"):
        raise Failure("behind the end of a log the order is not computed as without one")
    # A checkpoint that fails leaves its part of the log to the next.
    place.good("failed", "--record-order", f"{folder}/failed.order", state="failed-state",
               LEAT_FAILPOINTS="ckpt.order=error:ENOSPC@2")
    found, _ = place.good("by-failed", "--order", f"{folder}/failed.order", "--record-order", f"{folder}/failed-2.order")
    if found != expected or read(f"{folder}/failed-2.order") != read(f"{folder}/whole.order"):
        raise Failure("after a checkpoint that failed the log is another")
    shown = subprocess.run([leat, "checkpoint", "verify", f"{folder}/failed-state"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise Failure(shown.stderr)
    # A file that is not of this run, or lacks a part.
    shutil.rmtree(f"{folder}/state")
    shutil.rmtree(f"{folder}/parts")
    place.run("parts", "--record-order", f"{folder}/log-2", state="state", LEAT_FAILPOINTS="ckpt.published=kill@1")
    os.truncate(f"{folder}/log-2", 0)
    place.refused("parts", ["E0603", "resumes at micro-batch", "--record-order"], "--record-order", f"{folder}/log-2", state="state")


def test_directory(leat, folder):
    """A directory of --record-order has the log of all lives, those too that ended before their first checkpoint."""
    place = Place(leat, folder, MANY)
    expected, _ = place.good("whole", "--record-order", f"{folder}/whole.order")
    killed = 0
    for point in ("ckpt.order=kill@1", "ckpt.post_rename=kill@1", "ckpt.order=kill@2", "ckpt.published=kill@1",
                  "sink.fsync=kill@5", ""):
        environment = {"LEAT_FAILPOINTS": point} if point else {}
        result = place.run("parts", "--record-order", f"{folder}/log/", state="state", lanes=LANES[killed % 4], **environment)
        killed += result.returncode == -signal.SIGKILL
        if result.returncode not in (0, -signal.SIGKILL):
            raise Failure(f"at {point}: {result.stderr[-2000:]}")
    lives = {os.path.basename(path)[:8] for path in glob.glob(f"{folder}/log/0*")}
    if killed < 4 or len(lives) < 4 or read(f"{folder}/parts/both.jsonl") != expected:
        raise Failure(f"{killed} kills, lives {lives}, or the rows differ")
    found, _ = place.good("by-log", "--order", f"{folder}/log", "--record-order", f"{folder}/again.order", lanes=3)
    if found != expected or b"".join(split(read(f"{folder}/again.order"))) == b"":
        raise Failure("the log of a run that was killed is not that of its rows")
    place.refused("by-state", ["E0603", "contain the order from micro-batch", "--from", "--record-order DIR/"],
                  "--order", f"{folder}/state")
    place.refused("other", ["E0606", "of another run"], "--record-order", f"{folder}/log/", state="other-state")
    for path in glob.glob(f"{folder}/log/*-{0:020}"):
        os.remove(path)
    place.refused("short", ["E0603", "are missing in the log"], "--order", f"{folder}/log")


def checkpoints(folder):
    return sorted(glob.glob(f"{folder}/state/gen-*/ckpt-*[0-9]"))


def records_at(leat, state, name):
    """Of `left`, as the checkpoint has it."""
    shown = subprocess.run([leat, "checkpoint", "show", f"{state}@{name}"], capture_output=True, text=True, check=False)
    found = re.search(r"source left +(\d+) records", shown.stdout)
    if not found:
        raise Failure(f"no positions of {name}: {shown.stdout} {shown.stderr}")
    return int(found[1])


def test_falls_back(leat, folder):
    """The newest checkpoints are damaged: what they had is done again by their log, also when that is killed."""
    place = Place(leat, folder, MANY)
    expected, _ = place.good("whole")
    result = place.run("out", state="state", LEAT_FAILPOINTS="ckpt.published=kill@3")
    if result.returncode != -signal.SIGKILL or len(checkpoints(folder)) < 3:
        raise Failure(f"the run ended before it could be killed: {result.stderr}")
    row = sum(records_at(leat, f"{folder}/state", name) for name in ("1-1", "1-3")) // 2
    for path in checkpoints(folder)[1:]:
        flip(f"{path}/state.bin", 100)
    template = f"{folder}/template"
    os.makedirs(template)
    for name in ("state", "out"):
        os.rename(f"{folder}/{name}", f"{template}/{name}")
    for point in ("restore.end=kill", "ckpt.order=kill@1", "ckpt.published=kill@1", "ckpt.prune=kill@1"):
        for name in ("state", "out"):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
            shutil.copytree(f"{template}/{name}", f"{folder}/{name}")
        result = place.run("out", state="state", lanes=3, LEAT_FAILPOINTS=point)
        if "are executed again by the order log" not in result.stderr and point != "restore.end=kill":
            raise Failure(f"it does not execute again by the log:\n{result.stderr}")
        found, result = place.good("out", state="state", lanes=7)
        if point in ("restore.end=kill", "ckpt.order=kill@1") and "are executed again" not in result.stderr:
            raise Failure(f"after {point} the rest is not executed again by the log:\n{result.stderr}")
        if found != expected:
            raise Failure(f"after {point} the rows differ")
    # What was read then has changed since, where no mark of the file tells: its log does.
    shutil.rmtree(f"{folder}/state")
    shutil.copytree(f"{template}/state", f"{folder}/state")
    at = sum(len(line(n)) for n in range(row + 1)) - 3
    flip(f"{place.data}/left.jsonl", at)
    place.refused("out", ["E0604", "does not fit", "left.jsonl", "up to order time", "--fresh", "redo-0"], state="state")


TESTS = {"own order": test_own_order, "another order": test_other_order, "recordings": test_recordings,
         "logs that do not fit": test_misfits, "stopped and killed": test_stopped, "falling back": test_falls_back,
         "a directory": test_directory}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--folder", default="build/order-test")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    failed = 0
    for i, (name, test) in enumerate(TESTS.items()):
        if arguments.only not in name:
            continue
        os.makedirs(f"{folder}/{i}")
        try:
            test(leat, f"{folder}/{i}")
            print(f"ok - order: {name}", flush=True)
            shutil.rmtree(f"{folder}/{i}")
        except Failure as failure:
            failed += 1
            print(f"not ok - order: {name}: {failure}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
