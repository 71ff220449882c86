"""What the tests of learners share: a folder, jobs in it, what `leat` says of them; and models as they are exported."""

import json
import os
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def write_rows(path, rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def call(leat, *arguments, expected=0, **environment):
    done = subprocess.run([leat, *arguments], check=False, capture_output=True, text=True,
                          env={**os.environ, **environment})
    codes = expected if isinstance(expected, tuple) else (expected,)
    assert done.returncode in codes, (arguments, done.returncode, done.stdout[-800:], done.stderr[-2000:])
    return done


def node(summary, kind):
    (found,) = [one for one in summary["nodes"] if one["kind"] == kind]
    assert found["counts"]["balanced"], found
    return found


def safetensors(path):
    """Name -> (dtype, shape, values as one flat list)."""
    data = read(path)
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    codes = {"F32": "f", "U64": "Q", "I64": "q"}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        code = codes[entry["dtype"]]
        count = (end - begin) // struct.calcsize(code)
        tensors[name] = entry["shape"], struct.unpack_from(f"<{count}{code}", data, begin)
    return tensors


def check_same(folder, run, failpoints):
    """Other numbers of lanes, a replay by the order log, and runs that are killed at the failpoints give what the first run gave.
    run(name, *arguments, workers=, failpoints=): runs the job, and returns what has assert_same."""
    order = os.path.join(folder, "order")
    expected = run("one", "--record-order", order)
    run("three", workers=3).assert_same(expected)
    run("replay", "--order", order, workers=2).assert_same(expected)
    for number, failpoint in enumerate(failpoints):
        run(f"killed-{number}", workers=1 + number, failpoints=failpoint).assert_same(expected)
