"""What the tests of jobs share: runs `leat`, reads what it wrote, compares."""

import csv
import datetime
import gzip
import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
JOBS = os.path.join(ROOT, "jobs")
EPOCH = datetime.datetime(1970, 1, 1)
MINUTE, HOUR, DAY = 60, 3600, 86400  # in seconds
SEED = 5


class Failure(Exception):
    pass


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: found {found!r}, expected {expected!r}")


def expect_within(what, found, low, high):
    if not low <= found <= high:
        raise Failure(f"{what}: {found} is not in [{low}, {high}]")


def expect_rows(what, found, expected):
    """Two dicts; says which keys differ."""
    wrong = [(k, found.get(k), expected.get(k)) for k in sorted(set(found) | set(expected), key=str)
             if found.get(k) != expected.get(k)]
    if wrong:
        raise Failure(f"{what}: {len(wrong)} of {len(expected)} differ; (key, found, expected): {wrong[:3]}")


class Test:
    def __init__(self, leat, folder):
        self.leat, self.folder = leat, folder
        self.dead_examples = []  # of the latest run

    def call(self, *arguments, at=None):
        result = subprocess.run([self.leat, *arguments], cwd=at or self.folder, capture_output=True, text=True, timeout=PATIENCE_S,
                                check=False)
        if result.returncode != 0:
            raise Failure(f"leat {' '.join(arguments)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
        return result.stdout

    def place(self, *parts):
        return os.path.join(self.folder, *parts)

    def run(self, name, *arguments, job=None, workers=2, out=None, at=None):
        """The summary's nodes, by (name, kind); the counts of all must add up. Output goes to FOLDER/NAME. at: where
        the job is run, if not in the folder."""
        text = self.call("run", job or os.path.join(JOBS, name + ".leat"), "--json", "--workers", str(workers), "--set",
                         f"out={out or self.place(name)}", *arguments, at=at)
        summary = json.loads(text)
        expect("finished", summary["finished"], True)
        self.dead_examples = summary["dead_examples"]
        nodes = {}
        for node in summary["nodes"]:
            if not node["counts"]["balanced"]:
                raise Failure(f"the counts of {node['name']} {node['kind']} do not add up: {node['counts']}")
            nodes.setdefault((node["name"], node["kind"]), []).append(node)
        return nodes


def counts(nodes, name, kind):
    found = nodes.get((name, kind), [])
    expect(f"nodes {name} {kind}", len(found), 1)
    return found[0]["counts"]


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_csv(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def seconds_of(text):
    """Seconds since 1970 of a time as leat writes it, or as the recordings do."""
    time = datetime.datetime.fromisoformat(text.replace("Z", "").replace(" ", "T")) - EPOCH
    return time.days * DAY + time.seconds


def milliseconds_of(text):
    return text and (datetime.datetime.fromisoformat(text.replace("Z", "")) - EPOCH) // datetime.timedelta(milliseconds=1)


def logloss(pairs):
    total = 0.0
    for label, prediction in pairs:
        p = min(max(prediction, 1e-15), 1 - 1e-15)
        total -= math.log(p if label else 1 - p)
    return total / len(pairs)


def entropy(rate):
    return -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)


def expect_logloss(nodes, kind, pairs, low, high):
    """The engine's own figure is that of the predictions it wrote, and lies in the band."""
    loss = logloss(pairs)
    expect_within("logloss", loss, low, high)
    reported = nodes[("model", kind)][0]["report"]["run"]["logloss"]
    expect_within("logloss in the summary", reported, loss - 1e-6, loss + 1e-6)
    return loss


# --- generated streams


def generate(test, name, events, *arguments):
    test.call("generate", "ctr", "--events", str(events), "--seed", str(SEED), "--out", test.place(name), *arguments)
    with open(test.place(name, "truth.json"), encoding="utf-8") as file:
        return json.load(file)


def good_records(path, columns):
    """Records in the order of the file, without broken ones, as (order time, record): the running maximum of ts."""
    out, running = [], 0
    with open(path, "rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if not isinstance(record, dict):
                continue
            if all(type(record.get(c)) is int and abs(record[c]) < 1 << 63 for c in columns):
                running = max(running, record["ts"])
                out.append((running, record))
    return out
