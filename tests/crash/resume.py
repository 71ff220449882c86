#!/usr/bin/env python3
"""What a job may find changed when it goes on, and what it must refuse.

    tests/crash/resume.py --leat build/release/leat [--folder DIR]

Each case: a run over a partition of two files is killed in the second one, something is changed, and the run goes on.
Legitimate changes must give what an undisturbed run over the changed files gives; the others must be refused with the
name of the file and the way out, and go on once they are taken back. Prints TAP lines.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

JOB = """
param data: text = "."
param out: text = "out"
job resume { checkpoint: { every: 10ms, dir: concat(out, "/state") } }
source s = file { path: concat(data, "/part-*.jsonl"), schema: { n: int!, ts: time(ms) }, event_time: ts }
stream t = s | dedup by n within 1h
sink t = file from t { path: concat(out, "/t.jsonl") }
"""
SINK = 'sink also = file from t { path: concat(out, "/also.jsonl") }\n'
RECORDS = 200_000
LINE_BYTES = 34


def line(n):
    return f'{{"n":{n:10d},"ts":{1_700_000_000_000 + n}}}\n'


def write(path, begin, end):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(line(n) for n in range(begin, end))


def overwrite(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        f.write(data)


def append(path, text):
    with open(path, "a", encoding="utf-8") as f:
        f.write(text)


# Changes: called with the folder of the input; what must be said, or None where they are legitimate.
def nothing(_folder):
    pass


def grow(folder):
    append(f"{folder}/part-2.jsonl", "".join(line(n) for n in range(2 * RECORDS, 2 * RECORDS + 5000)))


def come_behind(folder):
    write(f"{folder}/part-3.jsonl", 2 * RECORDS, 2 * RECORDS + 5000)


CASES = [
    ("nothing changes", nothing, None),
    ("the file in work grows", grow, None),
    ("a file comes behind", come_behind, None),
    ("the file in work begins otherwise", lambda d: overwrite(f"{d}/part-2.jsonl", 12, b"7"), "part-2.jsonl` is not the file"),
    ("the file in work ends otherwise", lambda d: overwrite(f"{d}/part-2.jsonl", -5, b"7"), "part-2.jsonl` is not the file"),
    ("the file in work gets shorter", lambda d: os.truncate(f"{d}/part-2.jsonl", RECORDS * LINE_BYTES - LINE_BYTES),
     "part-2.jsonl` is shorter"),
    ("a file that was read is another", lambda d: overwrite(f"{d}/part-1.jsonl", 12, b"7"), "part-1.jsonl` or a file before it"),
    ("a file that was read grows", lambda d: append(f"{d}/part-1.jsonl", line(9)), "part-1.jsonl` or a file before it"),
    ("a file that was read is gone", lambda d: os.remove(f"{d}/part-1.jsonl"), "part-2.jsonl` or a file before it"),
    ("a file comes before", lambda d: write(f"{d}/part-0.jsonl", 0, 10), "part-0.jsonl` or a file before it"),
    ("the file in work is gone", lambda d: os.remove(f"{d}/part-2.jsonl"), "part-*.jsonl` no longer includes the file"),
]


class Failure(Exception):
    pass


def run(leat, job, data, out, **environment):
    os.makedirs(out, exist_ok=True)
    return subprocess.run([leat, "run", job, "--quiet", "--workers", "2", "--set", f"data={data}", "--set", f"out={out}"],
                          capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **environment}, check=False)


def content(out, name="t"):
    with open(f"{out}/{name}.jsonl", "rb") as f:
        return f.read()


def begin(leat, folder, job):
    """A run that was killed while the second file was read: what is left of it."""
    data, out = f"{folder}/data", f"{folder}/out"
    os.makedirs(data)
    write(f"{data}/part-1.jsonl", 0, RECORDS)
    write(f"{data}/part-2.jsonl", RECORDS, 2 * RECORDS)
    for _ in range(60):
        killed = run(leat, job, data, out, LEAT_FAILPOINTS="ckpt.published=kill@1")
        if killed.returncode != -signal.SIGKILL:
            raise Failure(f"the run ended before it could be killed: {killed.stderr}")
        shown = subprocess.run([leat, "checkpoint", "show", f"{out}/state"], capture_output=True, text=True, check=False).stdout
        if "all sources have ended" in shown:  # too quick for this machine: again from the beginning
            shutil.rmtree(out)
        elif "records  at 1, " in shown:
            return data, out
    raise Failure("no checkpoint stands in the second file")


def test_case(leat, folder, change, refusal):
    data, out, job = f"{folder}/moved", f"{folder}/out", f"{folder}/resume.leat"
    os.rename(f"{folder}/data", data)  # another directory is no other input
    with open(job, "w", encoding="utf-8") as f:
        f.write(JOB)
    shutil.copytree(data, f"{folder}/before")
    change(data)
    found = run(leat, job, data, out)
    if refusal is not None:
        if found.returncode == 0 or refusal not in found.stderr or "--fresh" not in found.stderr:
            raise Failure(f"expected a refusal with `{refusal}`, found {found.returncode}:\n{found.stderr}")
        shutil.rmtree(data)
        os.rename(f"{folder}/before", data)
        found = run(leat, job, data, out)
    if found.returncode != 0 or "resuming from checkpoint" not in found.stderr:
        raise Failure(f"it does not go on: {found.returncode}\n{found.stderr}")
    os.rename(out, f"{folder}/resumed")
    fresh = run(leat, job, data, out)
    if fresh.returncode != 0 or content(out) != content(f"{folder}/resumed"):
        raise Failure("the rows are not those of an undisturbed run")


def test_new_sink(leat, folder):
    job = f"{folder}/resume.leat"
    with open(job, "w", encoding="utf-8") as f:
        f.write(JOB.replace("sink t", SINK + "sink t"))
    found = run(leat, job, f"{folder}/data", f"{folder}/out")
    if found.returncode != 0 or "sink `also` is not in the checkpoint" not in found.stderr:
        raise Failure(f"a new sink must begin, and that be said: {found.returncode}\n{found.stderr}")
    rows, all_rows = content(f"{folder}/out", "also"), content(f"{folder}/out")
    if not rows or len(rows) == len(all_rows) or not all_rows.endswith(rows):
        raise Failure(f"the new sink must have the rows after the checkpoint: {len(rows)} bytes of {len(all_rows)}")
    if all_rows.count(b"\n") != 2 * RECORDS or f"in {2 * RECORDS}: {2 * RECORDS} rows" not in found.stdout:
        raise Failure(f"the old sink's rows and counts must be whole:\n{found.stdout}")


def test_changed_sink(leat, folder):
    """Another path or kind under the same name: said, with the ways out; the old one goes on, a new name begins."""
    job, out = f"{folder}/resume.leat", f"{folder}/out"
    for new, what in (('file from t { path: concat(out, "/elsewhere.jsonl") }', "elsewhere.jsonl` now"),
                      ("null from t {}", "was of kind `file`")):
        with open(job, "w", encoding="utf-8") as f:
            f.write(JOB[:JOB.index("sink t")] + f"sink t = {new}\n")
        found = run(leat, job, f"{folder}/data", out)
        if found.returncode == 0 or any(text not in found.stderr for text in (what, "E0707", "another name", "--fresh")):
            raise Failure(f"expected a refusal with `{what}`: {found.returncode}\n{found.stderr}")
    with open(job, "w", encoding="utf-8") as f:
        f.write(JOB)
    found = run(leat, job, f"{folder}/data", out)
    if found.returncode != 0 or content(out).count(b"\n") != 2 * RECORDS:
        raise Failure(f"with its old path it does not go on: {found.stderr}")


BLOCKS = ("t.jsonl.gz", "t.csv.zst", "t.msgpack.lz4", "t.batches")


def test_open_blocks(leat, folder):
    """Outputs of blocks: the open one is in the checkpoint. Of a delta, it is not that of the base as well."""
    data, job = f"{folder}/data", f"{folder}/blocks.leat"
    with open(job, "w", encoding="utf-8") as f:
        f.write(JOB[:JOB.index("sink t")] + "".join(
            f'sink s{i} = file from t {{ path: concat(out, "/{name}") }}\n' for i, name in enumerate(BLOCKS)))
    run(leat, job, data, f"{folder}/whole")
    deltas = 0
    for at in range(1, 6):
        out = f"{folder}/blocks-{at}"
        killed = run(leat, job, data, out, LEAT_FAILPOINTS=f"ckpt.published=kill@{at}")
        newest = subprocess.run([leat, "checkpoint", "list", f"{out}/state"], capture_output=True, text=True,
                                check=False).stdout.partition("\n")[0]
        deltas += killed.returncode == -signal.SIGKILL and "delta" in newest
        found = run(leat, job, data, out)
        if found.returncode != 0:
            raise Failure(f"it does not go on after a kill at checkpoint {at} ({newest}): {found.stderr}")
        for name in BLOCKS:
            with open(f"{out}/{name}", "rb") as f, open(f"{folder}/whole/{name}", "rb") as g:
                if f.read() != g.read():
                    raise Failure(f"{name} has other bytes after a kill at checkpoint {at} ({newest})")
    if deltas == 0:
        raise Failure("no life went on from a delta: the test shows nothing")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--folder", default="build/resume-test")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/resume.leat", "w", encoding="utf-8") as f:
        f.write(JOB)
    template = f"{folder}/template"
    work = f"{folder}/work"  # a checkpoint names its output files: all cases have their turn in one place
    begin(leat, work, f"{folder}/resume.leat")
    os.rename(work, template)
    tests = [(name, lambda at, c=change, r=refusal: test_case(leat, at, c, r)) for name, change, refusal in CASES]
    tests.append(("a sink is new", lambda at: test_new_sink(leat, at)))
    tests.append(("a sink has another path or kind", lambda at: test_changed_sink(leat, at)))
    tests.append(("outputs of blocks", lambda at: test_open_blocks(leat, at)))
    failed = 0
    for name, test in tests:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(template, work)
        try:
            test(work)
            print(f"ok - resume: {name}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"not ok - resume: {name}: {failure}", flush=True)
    if not failed:
        shutil.rmtree(folder)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
