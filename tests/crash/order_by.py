#!/usr/bin/env python3
"""`order_by`, against Python's own stable sort: sizes beyond every buffer, every format and compression, kills.

    tests/crash/order_by.py --leat build/release/leat [--folder DIR] [--records N] [--kills N] [--seed N]

Files hold records in no order of their keys, bad lines, empty lines, lines that are too long, both line ends, and a
last line without one. What must come out is known here: good records stably sorted, bad ones behind the record before
them. Each run is compared row by row, at several lanes; then runs are killed while they sort (at random, and at each
kind of write), while they read the copy, and with a full disk. Nothing may stay behind in the place for the copy, and
the next start gives the same. Prints TAP lines.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

RECORD_BYTES_MAX = 1 << 20
KEYS = 4000
PARAMETERS = 'param data: text = "."\nparam out: text = "out"\nparam copies: text = "."\n'
JOB = PARAMETERS + """
job sorted { %s }
source s = file { path: %s, schema: { t: int, n: int, s: text }, order_by: t, sort_memory: 4MiB, sort_dir: copies%s }
stream numbers = s | drop s
sink rows = file from numbers { path: concat(out, "/rows.csv"), header: false, overwrite: true }
sink dead = file from dead_letters { path: concat(out, "/dead.jsonl"), overwrite: true }
"""
CHECKPOINTS = 'checkpoint: { every: 20ms, dir: concat(out, "/state") }'


class Failure(Exception):
    pass


def expect(is_so, what):
    if not is_so:
        raise Failure(what)


# --- files

def pack(value):
    """MessagePack of what is needed here."""
    if isinstance(value, int):
        return struct.pack(">Bq", 0xd3, value)
    data = value.encode()
    return struct.pack(">BI", 0xdb, len(data)) + data


ENCODE = {
    "jsonl": lambda t, n, s: json.dumps({"t": t, "n": n, "s": s}).encode() + b"\n",
    "csv": lambda t, n, s: f"{t},{n},{s}\n".encode(),
    "msgpack": lambda t, n, s: b"\x83" + b"".join(pack(v) for pair in (("t", t), ("n", n), ("s", s)) for v in pair),
}


class Recording:
    """One file, and what must come out of it."""

    def __init__(self, rng, form, records, lengths, has_bad):
        self.form, self.items, pieces = form, [], [b"t,n,s\n"] if form == "csv" else []
        has_lines, key = form != "msgpack", -(1 << 62)
        for n in range(records):
            draw = rng.random()
            if has_lines and has_bad and draw < 0.01:
                length = RECORD_BYTES_MAX + rng.randrange(1, 1 << 20) if draw < 0.00005 else rng.randrange(1, 90)
                pieces.append(b"?" * length + b"\n")
                self.items.append((key, n, "?" * min(length, RECORD_BYTES_MAX + 1)))
                continue
            key = rng.randrange(KEYS) - KEYS // 2
            line = ENCODE[form](key, n, "x" * lengths(rng))
            if has_lines and draw > 0.8:
                line = line[:-1] + b"\r\n"
            if has_lines and draw > 0.98:
                line += rng.choice([b"\n", b"\r\n"]) * rng.randrange(1, 40)
            pieces.append(line)
            self.items.append((key, n, None))
        self.data = b"".join(pieces)
        if has_lines and has_bad:
            self.data = self.data.rstrip(b"\r\n")

    def rows(self):
        return "".join(f"{key},{n}\n" for key, n, bad in sorted(self.items, key=lambda i: i[:2]) if bad is None)

    def dead(self):
        return [bad for key, n, bad in sorted(self.items, key=lambda i: i[:2]) if bad is not None]


def tiny(rng):
    return rng.randrange(3)


def usual(rng):
    return rng.randrange(6000 if rng.random() < 0.01 else 60)


def wide(rng):
    return rng.randrange(1000000 if rng.random() < 0.02 else 3000)


# --- runs

def command(leat, job, place, out, lanes):
    return [leat, "run", job, "--quiet", "--workers", str(lanes), "--set", f"data={place}", "--set", f"out={out}",
            "--set", f"copies={place}/copies"]


def run(leat, job, place, out, lanes=2, **environment):
    os.makedirs(f"{place}/copies", exist_ok=True)
    return subprocess.run(command(leat, job, place, out, lanes), capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**os.environ, **environment}, check=False)


def write_job(place, path, checkpoints="", more=""):
    os.makedirs(place, exist_ok=True)
    with open(f"{place}/job.leat", "w", encoding="utf-8") as f:
        f.write(JOB % (checkpoints, path, more))
    return f"{place}/job.leat"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def check(result, out, recording, what):
    """A run that is through has every row and every dead letter, in order, and its counts say so."""
    expect(result.returncode == 0, f"{what}: ended with {result.returncode}:\n{result.stderr[-2000:]}")
    rows, expected = read(f"{out}/rows.csv"), recording.rows()
    if rows != expected:
        got, want = rows.splitlines(), expected.splitlines()
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise Failure(f"{what}: {len(got)} rows, expected {len(want)}; row {at} is {got[at:at + 1]}, expected {want[at:at + 1]}")
    dead = [json.loads(line)["raw"] for line in read(f"{out}/dead.jsonl").splitlines()]
    wanted = recording.dead()
    expect(len(dead) == len(wanted) and all(a == b or (len(b) > 65536 and b.startswith(a[:60000]))
                                            for a, b in zip(dead, wanted)), f"{what}: other dead letters")
    total = len(recording.items)
    expect(f"in {total}, passed {total - len(wanted)}" in result.stdout, f"{what}: the summary does not count {total}:\n{result.stdout}")


def nothing_left(place, what):
    expect(os.listdir(f"{place}/copies") == [], f"{what}: left behind: {os.listdir(f'{place}/copies')}")


def convert(leat, place, source, target):
    """A file in another format, by leat itself."""
    with open(f"{place}/convert.leat", "w", encoding="utf-8") as f:
        f.write(f'job convert {{}}\nsource s = file {{ path: "{source}", schema: {{ t: int, n: int, s: text }} }}\n'
                f'sink t = file from s {{ path: "{target}" }}\n')
    subprocess.run([leat, "run", f"{place}/convert.leat", "--quiet"], check=True, capture_output=True)


def test_forms(arguments, place):
    """Every format and compression, at one lane, two and three."""
    rng = random.Random(arguments.seed)
    cases = [("jsonl", usual, True), ("csv", usual, True), ("msgpack", usual, False), ("jsonl", wide, True),
             ("csv", tiny, False), ("msgpack", wide, False)]
    for number, (form, lengths, has_bad) in enumerate(cases):
        folder = f"{place}/{number}"
        os.makedirs(folder)
        recording = Recording(rng, form, arguments.records * 4 if lengths is tiny else arguments.records // (10 if lengths is wide else 1), lengths, has_bad)
        names = [f"a.{form}", f"a.{form}.gz"]
        with open(f"{folder}/a.{form}", "wb") as f:
            f.write(recording.data)
        with gzip.open(f"{folder}/a.{form}.gz", "wb", compresslevel=1) as f:
            f.write(recording.data)
        if not has_bad:
            names += ["b.batches", "b.msgpack.zst", "b.jsonl.lz4"]
            for name in names[2:]:
                convert(arguments.leat, folder, f"{folder}/a.{form}", f"{folder}/{name}")
        for at, name in enumerate(names):
            job = write_job(folder, f'"{folder}/{name}"')
            for lanes in (1, 2, 3) if at == 0 else ((number + at) % 3 + 1,):
                result = run(arguments.leat, job, folder, f"{folder}/out", lanes)
                check(result, f"{folder}/out", recording, f"{name} ({lengths.__name__}), {lanes} lanes")
                nothing_left(folder, name)
        shutil.rmtree(folder)


class Killed:
    """A job that sorts two partitions of some ten runs each, and how long that takes undisturbed."""

    def __init__(self, arguments, place, checkpoints):
        rng = random.Random(arguments.seed + 1)
        self.leat, self.place, self.out, self.rng = arguments.leat, place, f"{place}/out", rng
        self.recording = Recording(rng, "jsonl", 2 * arguments.records, usual, True)
        os.makedirs(place)
        with open(f"{place}/a.jsonl", "wb") as f:
            f.write(self.recording.data)
        self.job = write_job(place, 'concat(data, "/a.jsonl")', checkpoints)
        begin = time.monotonic()
        result = self.run()
        self.seconds = time.monotonic() - begin
        check(result, self.out, self.recording, "undisturbed")

    def run(self, **environment):
        return run(self.leat, self.job, self.place, self.out, self.rng.choice([1, 2, 3]), **environment)

    def fresh(self):
        shutil.rmtree(self.out)

    def kill_after(self, seconds):
        process = subprocess.Popen(command(self.leat, self.job, self.place, self.out, 2), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.kill()
        return process.wait() == -signal.SIGKILL


def test_kills_while_sorting(arguments, place):
    """Nothing stays behind, and the next start is right: begun anew without checkpoints, gone on with them."""
    for name, checkpoints in (("without", ""), ("with", CHECKPOINTS)):
        kills_while_sorting(arguments, f"{place}/{name}", checkpoints)


def kills_while_sorting(arguments, place, checkpoints):
    killed, kills = Killed(arguments, place, checkpoints), 0
    killed.fresh()

    def came(was_killed, what):
        nothing_left(place, what)
        if not was_killed:  # it was through before: all is there
            check_whole(killed, what)
            killed.fresh()
        return was_killed

    for passage in (1, 2, 5, 9, 14, 20):  # runs, then the copy
        result = killed.run(LEAT_FAILPOINTS=f"spill.write=kill@{passage}")
        expect(result.returncode in (0, -signal.SIGKILL), f"write {passage}: {result.returncode}: {result.stderr[-2000:]}")
        kills += came(result.returncode == -signal.SIGKILL, f"killed at write {passage}")
    expect(kills >= 4, f"{kills} kills at writes")
    for n in range(arguments.kills):
        kills += came(killed.kill_after(killed.rng.random() * killed.seconds), f"killed at random, {n}")
    expect(kills >= 4 + arguments.kills // 2, f"{kills} kills")
    result = killed.run()
    expect(result.returncode == 0, f"after all kills: {result.returncode}: {result.stderr[-2000:]}")
    check_whole(killed, "after all kills")


def test_full_disk_while_sorting(arguments, place):
    killed = Killed(arguments, place, "")
    for passage in (1, 7, 14):
        result = killed.run(LEAT_FAILPOINTS=f"spill.write=error:ENOSPC@{passage}")
        expect(result.returncode == 1 and "E0608" in result.stderr and "sort_dir" in result.stderr,
               f"write {passage}: {result.returncode}: {result.stderr}")
        nothing_left(place, f"a full disk at write {passage}")
    check(killed.run(), killed.out, killed.recording, "with room again")


def test_kills_in_the_copy(arguments, place):
    """A checkpoint's place is in the copy, which the next life makes again."""
    killed, kills, resumed = Killed(arguments, place, CHECKPOINTS), 0, 0
    killed.fresh()
    for life in range(40):
        result = killed.run(LEAT_FAILPOINTS=f"ckpt.published=kill@{1 + life % 2}")
        resumed += "resuming from checkpoint" in result.stderr
        nothing_left(place, "killed in the copy")
        if result.returncode != -signal.SIGKILL:
            break
        kills += 1
    expect(kills >= 2 and resumed >= 2, f"{kills} kills, {resumed} lives went on")
    result = killed.run()
    expect(result.returncode == 0, result.stderr)
    check_whole(killed, "after kills in the copy")


def check_whole(killed, what):
    expect(read(f"{killed.out}/rows.csv") == killed.recording.rows(), f"{what}: other rows")
    expect(len(read(f"{killed.out}/dead.jsonl").splitlines()) == len(killed.recording.dead()), f"{what}: other dead letters")


def test_changed_files(arguments, place):
    """With `order_by` a file that has grown is another order: refused, and right again once it is as it was."""
    killed = Killed(arguments, place, CHECKPOINTS)
    killed.fresh()
    result = killed.run(LEAT_FAILPOINTS="ckpt.published=kill@1")
    expect(result.returncode == -signal.SIGKILL, "not killed")
    with open(f"{place}/a.jsonl", "ab") as f:
        f.write(b'\n{"t":0,"n":0,"s":""}\n')
    result = killed.run()
    expect(result.returncode == 1 and "E0604" in result.stderr and "order_by" in result.stderr, result.stderr)
    os.truncate(f"{place}/a.jsonl", len(killed.recording.data))
    expect(killed.run().returncode == 0, "it does not go on")
    check_whole(killed, "after the file is as it was")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--folder", default="build/order_by-test")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    arguments.leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (arguments.only and arguments.only not in name):
            continue
        try:
            test(arguments, f"{folder}/{name}")
            print(f"ok - {name}", flush=True)
            shutil.rmtree(f"{folder}/{name}")
        except Failure as failure:
            failed += 1
            print(f"not ok - {name}\n#   " + str(failure).replace("\n", "\n#   "), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
