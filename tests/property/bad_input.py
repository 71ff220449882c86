#!/usr/bin/env python3
"""Bad input, from the record to the disk: what is said, where, the way out, and that nothing else is lost.

    tests/property/bad_input.py --leat build/release/leat [--folder DIR]

Tables of bad records (each between good ones, which must all come through, while it goes to dead letters with its
record number and reason), of bad files and directories, of full disks during output and during a checkpoint, and of bad
checkpoints. Prints TAP lines.
"""

import argparse
import glob
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

MIB = 1 << 20
GOOD = 2000
NOBODY = 65534

JOB = """
param data: text = "."
param out: text = "out"
param limit: int = 1000000000
param min_free: bytes = 0B
job bad { checkpoint: { every: 10ms, dir: concat(out, "/state"), min_free: min_free } }
source s = file { path: concat(data, "/%s"), schema: { n: int!, x: float, t: text } }
stream good = s | where n < limit
sink good = file from good { path: concat(out, "/good.jsonl") }
sink dead = file from dead_letters { path: concat(out, "/dead.jsonl") }
"""


class Failure(Exception):
    pass


def row(n):
    return b'{"n":%d,"x":0.5,"t":"good"}' % n


# name, a record of JSON lines, what the reason has; None: the record is good as it is
JSON_RECORDS = [
    ("a malformed line", b'{"n":7,"x":', "ends"),
    ("no JSON at all", b"hello", ""),
    ("two documents in a line", b'{"n":7}{"n":8}', ""),
    ("an unclosed brace", b'{"n":7,"t":{"a":1}', ""),
    ("bad UTF-8", b'{"n":7,"t":"\xff\xfe"}', "UTF-8"),
    ("bad UTF-8 in a field nobody reads", b'{"n":7,"z":"\xc3("}', "UTF-8"),
    ("a wrong type", b'{"n":"seven"}', "n"),
    ("a wrong type: an object", b'{"n":7,"x":{"y":1}}', "x"),
    ("a number out of range", b'{"n":9223372036854775808}', "n"),
    ("a float out of range", b'{"n":7,"x":1e999}', "x"),
    ("a required key that is missing", b'{"x":1.5}', "n"),
    ("a required key that is null", b'{"n":null}', "n"),
    ("a duplicate key", b'{"n":7,"n":8}', "n"),
    ("NaN as a number", b'{"n":7,"x":NaN}', ""),
    ("NaN as text", b'{"n":7,"x":"NaN"}', "x"),
    ("100,000 levels", b'{"n":7,"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
    ("a record above 1 MiB", b'{"n":7,"t":"' + b"y" * MIB + b'"}', ""),
    ("a NUL byte", b'{"n":7,"t":"\x00"}', ""),
    ("a field of nearly 1 MiB", b'{"n":900000,"t":"' + b"y" * (MIB - 100) + b'"}', None),
    ("keys that are left out", b'{"n":900000}', None),
]
CSV_RECORDS = [
    ("csv: a wrong type", b"seven,1.5,t", "n"),
    ("csv: too few fields", b"7", ""),
    ("csv: too many fields", b"7,1.5,t,more", ""),
    ("csv: bytes behind a quote", b'7,1.5,"t"x', ""),
    ("csv: bad UTF-8", b"7,1.5,\xff", "UTF-8"),
    ("csv: a quoted newline", b'900000,1.5,"two\nlines"', None),
]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


class Place:
    """A job with its folders, and what a run of it gives."""

    def __init__(self, leat, folder, files="in.jsonl", job=JOB):
        self.leat, self.folder = leat, folder
        self.data, self.out, self.job = f"{folder}/data", f"{folder}/out", f"{folder}/bad.leat"
        os.makedirs(self.data)
        os.makedirs(self.out)
        write(self.job, (job % files).encode())

    def run(self, *options, prepare=None, user=None, **environment):
        return subprocess.run([self.leat, "run", self.job, "--json", "--workers", "2", "--set", f"data={self.data}", "--set",
                               f"out={self.out}", *options], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, **environment}, preexec_fn=prepare, user=user)

    def rows(self, name="good"):
        with open(f"{self.out}/{name}.jsonl", "rb") as f:
            return [json.loads(line) for line in f.read().decode("utf-8", "replace").splitlines()]

    def demand_good(self, count):
        found = [r["n"] for r in self.rows() if r["n"] != 900_000]
        if found != list(range(count)):
            raise Failure(f"{len(found)} good rows of {count} came through")


def demand(result, code, *words):
    """A refusal that says these words and a way out."""
    said = result.stderr
    missing = [w for w in (*words, "hint") if w not in said]
    if result.returncode != code or missing:
        raise Failure(f"ended with {result.returncode} instead of {code}, without {missing}:\n{said[-1500:]}")


def demand_run(result):
    if result.returncode != 0:
        raise Failure(f"ended with {result.returncode}:\n{result.stderr[-1500:]}")


# --- records


def test_record(leat, folder, suffix, header, good, record, reason):
    place = Place(leat, folder, f"in.{suffix}")
    lines = [good(n) for n in range(GOOD)]
    write(f"{place.data}/in.{suffix}", header + b"\n".join([*lines[:1500], record, *lines[1500:]]) + b"\n")
    result = place.run()
    demand_run(result)
    place.demand_good(GOOD)
    dead = place.rows("dead")
    if reason is None:
        if dead or len(place.rows()) != GOOD + 1:
            raise Failure(f"the record is good, but: {str(dead)[:500]}")
        return
    if len(dead) != 1 or dead[0]["record"] != 1500 or reason not in dead[0]["reason"] or not dead[0]["reason"]:
        raise Failure(f"expected record 1500 with `{reason}`, found {str(dead)[:500]}")
    if f"in.{suffix}" not in dead[0]["place"]:
        raise Failure(f"the dead letter does not name its file: {str(dead[0])[:500]}")


def test_torn_quote(leat, folder):
    """It swallows what follows, up to the limit of a record, and is one dead letter; what came before is whole."""
    place = Place(leat, folder, "in.csv")
    write(f"{place.data}/in.csv", b"n,x,t\n" + b"".join(b"%d,0.5,good\n" % n for n in range(GOOD)) + b'7,0.5,"torn\n')
    demand_run(place.run())
    place.demand_good(GOOD)
    dead = place.rows("dead")
    if len(dead) != 1 or dead[0]["record"] != GOOD:
        raise Failure(f"expected one dead letter, found {str(dead)[:500]}")


# --- files


def good_lines(count=GOOD):
    return b"".join(row(n) + b"\n" for n in range(count))


def test_truncated_gzip(leat, folder):
    place = Place(leat, folder, "in.jsonl.gz")
    write(f"{place.data}/in.jsonl.gz", gzip.compress(good_lines(200_000))[:-2000])
    demand(place.run(), 1, "in.jsonl.gz", "E0603", "is truncated", "at byte")


def test_empty(leat, folder):
    place = Place(leat, folder)
    write(f"{place.data}/in.jsonl", b"")
    demand_run(place.run())
    place.demand_good(0)


def test_no_file(leat, folder):
    demand(Place(leat, folder).run(), 1, "in.jsonl", "E0602")


def stopped(place, count):
    """The job, stopped in the middle of its input: at its first checkpoint."""
    write(f"{place.data}/in.jsonl", good_lines(count))
    process = subprocess.Popen([place.leat, "run", place.job, "--json", "--workers", "1", "--set", f"data={place.data}", "--set",
                                f"out={place.out}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "LEAT_FAILPOINTS": "ckpt.barrier=stop@1"})
    os.waitpid(process.pid, os.WUNTRACED)
    return process


def go_on(process):
    os.kill(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def test_grows(leat, folder):
    place = Place(leat, folder)
    process = stopped(place, 300_000)
    with open(f"{place.data}/in.jsonl", "ab") as f:
        f.write(row(300_000) + b"\n")
    result = go_on(process)
    demand_run(result)
    place.demand_good(300_000)
    demand(result, 0, "in.jsonl", "grew while it was read", "bytes added since the job began were not read")


def test_shrinks(leat, folder):
    place = Place(leat, folder)
    process = stopped(place, 300_000)
    os.truncate(f"{place.data}/in.jsonl", 5000)
    demand(go_on(process), 1, "in.jsonl", "E0604", "shorter")


def test_vanishes(leat, folder):
    """Open files stay readable; one that comes later in the partition is missed by name."""
    place = Place(leat, folder, "in*.jsonl")
    write(f"{place.data}/in2.jsonl", row(300_000) + b"\n")
    process = stopped(place, 300_000)
    os.remove(f"{place.data}/in2.jsonl")
    demand(go_on(process), 1, "in2.jsonl", "E0601", "No such file")


def test_unreadable(leat, _):
    """Root may read everything, so root runs it as nobody."""
    with tempfile.TemporaryDirectory(prefix="leat-bad-input-") as folder:
        place = Place(tap.for_all_users(leat, folder), folder, "closed/*.jsonl")
        write(f"{place.data}/closed/in.jsonl", good_lines())
        os.chmod(f"{place.data}/closed", 0)
        user = NOBODY if os.geteuid() == 0 else None
        if user is not None:
            os.chown(place.out, NOBODY, NOBODY)
        demand(place.run(user=user), 1, "closed", "E0601", "Permission denied")
        os.chmod(f"{place.data}/closed", 0o755)


# --- full disks


def test_small_disk(leat, folder, kib, *words):
    """A file system of its own for the output and the checkpoints, too small; then a larger one: the run goes on."""
    place = Place(leat, folder)
    write(f"{place.data}/in.jsonl", good_lines(200_000))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "leat-test", place.out], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        return f"no file system can be mounted here: {mounted.stderr.strip()}"
    try:
        demand(place.run(), 1, *words)
        subprocess.run(["mount", "-o", "remount,size=256m", place.out], check=True)
        demand_run(place.run())
        place.demand_good(200_000)
    finally:
        subprocess.run(["umount", "-l", place.out], check=False)
    return None


def test_file_limit(leat, folder):
    """A limit on the size of files, as a full disk that needs no rights."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

    place = Place(leat, folder)
    write(f"{place.data}/in.jsonl", good_lines(200_000))
    demand(place.run(prepare=limit), 1, "good.jsonl", "File too large", "E0605")
    demand_run(place.run())
    place.demand_good(200_000)


def run_to(place, failpoint, has_come):
    """A run that comes to the failpoint: there are as many rows as that takes on this machine. The result, and the rows."""
    count = 200_000
    while True:
        write(f"{place.data}/in.jsonl", good_lines(count))
        result = place.run(LEAT_FAILPOINTS=failpoint)
        if count > 10_000_000 or has_come(result):
            return result, count
        demand_run(result)
        shutil.rmtree(place.out)
        os.makedirs(place.out)
        count *= 2


def test_failing_step(leat, folder, step, is_fatal, *words):
    """ENOSPC at one step. Of a checkpoint: it is abandoned, said, and the job goes on."""
    place = Place(leat, folder)
    result, count = run_to(place, step, lambda result: words[0] in result.stderr)
    said = result.stderr
    missing = [w for w in words if w not in said]
    if missing or (is_fatal is not None and (result.returncode != 0) != is_fatal):
        raise Failure(f"ended with {result.returncode}, without {missing}:\n{said[-1500:]}")
    if result.returncode != 0:  # the last checkpoint is not abandoned: without it the end would not count
        demand_run(place.run())
    place.demand_good(count)


def test_small_disk_for_checkpoints(leat, folder):
    """The output has room, the checkpoints have none: said, with the way out; with room the run goes on."""
    place = Place(leat, folder)
    write(f"{place.data}/in.jsonl", good_lines(200_000))
    state = f"{place.out}/state"
    os.makedirs(state)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "leat-test", state], capture_output=True, text=True,
                             check=False)
    if mounted.returncode != 0:
        return f"no file system can be mounted here: {mounted.stderr.strip()}"
    try:
        demand(place.run(), 1, "E0708", "No space left on device", "free")
        subprocess.run(["mount", "-o", "remount,size=256m", state], check=True)
        demand_run(place.run())
        place.demand_good(200_000)
    finally:
        subprocess.run(["umount", "-l", state], check=False)
    return None


def test_low_disk(leat, folder):
    """Less free space than `min_free`: the sources pause and say so, and go on by themselves once there is more."""
    place = Place(leat, folder)
    write(f"{place.data}/in.jsonl", good_lines(200_000))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "leat-test", place.out], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        return f"no file system can be mounted here: {mounted.stderr.strip()}"
    try:
        write(f"{place.out}/ballast", b"x" * (40 << 20))
        with open(f"{folder}/said", "wb") as said:
            process = subprocess.Popen([leat, "run", place.job, "--set", f"data={place.data}", "--set", f"out={place.out}",
                                        "--set", "min_free=32MiB"], stdout=said, stderr=said)
        until, pauses = time.monotonic() + PATIENCE_S, b"less than `min_free` (32 MiB): the sources pause"
        while process.poll() is None and pauses not in read(f"{folder}/said") and time.monotonic() < until:
            time.sleep(0.01)
        if process.poll() is not None or pauses not in read(f"{folder}/said"):
            process.kill()
            raise Failure(f"it does not pause: {process.wait()} {read(f'{folder}/said')}")
        os.unlink(f"{place.out}/ballast")
        freed = time.monotonic()
        if process.wait(timeout=PATIENCE_S) != 0 or b"the sources continue" not in read(f"{folder}/said"):
            raise Failure(f"it does not go on: {read(f'{folder}/said')}")
        if time.monotonic() - freed > 10:
            raise Failure(f"it took {time.monotonic() - freed:.1f} s to go on and end")
        place.demand_good(200_000)
    finally:
        subprocess.run(["umount", "-l", place.out], check=False)
    return None


# --- checkpoints


def killed(place):
    """A run that was killed with two checkpoints: the newest one's directory, and how many rows there are."""
    result, count = run_to(place, "ckpt.published=kill@2", lambda result: result.returncode == -signal.SIGKILL)
    if result.returncode != -signal.SIGKILL:
        raise Failure(f"it should have been killed: {result.returncode}\n{result.stderr}")
    return max(glob.glob(f"{place.out}/state/gen-*/ckpt-*")), count


def test_torn_checkpoint(leat, folder, name, change):
    """The newest is skipped, by file and offset; the one before is taken, and the result is whole."""
    place = Place(leat, folder)
    newest, count = killed(place)
    change(f"{newest}/{name}")
    result = place.run()
    demand_run(result)
    if name not in result.stderr or "skipped" not in result.stderr or "resuming from checkpoint 1-1" not in result.stderr:
        raise Failure(f"the torn checkpoint must be named and skipped:\n{result.stderr}")
    place.demand_good(count)


def test_no_whole_checkpoint(leat, folder):
    place = Place(leat, folder)
    killed(place)
    for path in glob.glob(f"{place.out}/state/gen-*/ckpt-*/MANIFEST"):
        os.truncate(path, 10)
    demand(place.run(), 1, "E0705", "--fresh")


def test_other_job(leat, folder):
    place = Place(leat, folder)
    killed(place)
    demand(place.run("--set", "limit=5"), 1, "E0703", "another job", "--fresh")


def flip(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))


def cases(leat):
    for name, record, reason in JSON_RECORDS:
        yield name, lambda at, r=record, w=reason: test_record(leat, at, "jsonl", b"", row, r, w)
    for name, record, reason in CSV_RECORDS:
        yield name, lambda at, r=record, w=reason: test_record(leat, at, "csv", b"n,x,t\n", lambda n: b"%d,0.5,good" % n, r, w)
    yield "csv: a torn quote", lambda at: test_torn_quote(leat, at)
    for name, test in (("a truncated gzip", test_truncated_gzip), ("an empty file", test_empty), ("no file", test_no_file),
                       ("a file that grows", test_grows), ("a file that shrinks", test_shrinks),
                       ("a file that vanishes", test_vanishes), ("an unreadable directory", test_unreadable),
                       ("a limit on files", test_file_limit), ("a checkpoint of another job", test_other_job),
                       ("no whole checkpoint", test_no_whole_checkpoint)):
        yield name, lambda at, t=test: t(leat, at)
    yield "a full disk during output", lambda at: test_small_disk(leat, at, 2048, "E0608", "good.jsonl", "the disk is full", "free some space")
    yield "a disk with less space than min_free", lambda at: test_low_disk(leat, at)
    yield "a full disk during a checkpoint", lambda at: test_small_disk_for_checkpoints(leat, at)
    yield "no space for output", lambda at: test_failing_step(leat, at, "sink.write=error:ENOSPC@1", True, "good.jsonl", "the disk is full", "hint")
    for point in ("ckpt.write@1", "ckpt.order@1", "ckpt.manifest@2", "ckpt.fsync@2", "ckpt.pre_rename@1", "ckpt.rename@2"):
        step = point.replace("@", "=error:ENOSPC@")
        yield f"no space at {point}", lambda at, s=step: test_failing_step(leat, at, s, None, "E0708", "free",
                                                                           "No space left on device")
    for name in ("MANIFEST", "state.bin", "order.log"):
        yield f"a flipped bit in {name}", lambda at, n=name: test_torn_checkpoint(leat, at, n, flip)
        yield f"a torn {name}", lambda at, n=name: test_torn_checkpoint(leat, at, n, lambda p: os.truncate(p, os.path.getsize(p) // 2))
        yield f"a lost {name}", lambda at, n=name: test_torn_checkpoint(leat, at, n, os.remove)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--folder", default="build/bad-input")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    failed = 0
    for i, (name, test) in enumerate(cases(leat)):
        if arguments.only not in name:
            continue
        try:
            skipped = test(f"{folder}/{i}")
            print(f"ok - bad input: {name}" + (f" # SKIP {skipped}" if isinstance(skipped, str) else ""), flush=True)
            if os.path.exists(f"{folder}/{i}"):  # a test may have a folder of its own elsewhere
                shutil.rmtree(f"{folder}/{i}")
        except Failure as failure:
            failed += 1
            print(f"not ok - bad input: {name}: {failure}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
