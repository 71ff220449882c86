#!/usr/bin/env python3
"""The generator and the queries of Nexmark: jobs/nexmark on 200,000 events of seed 1.

    tests/nexmark/nexmark.py --leat build/release/leat [--only q5,q9] [--seed 1] [--folder DIR] [--keep]

Each job runs at 1, 2 and 5 workers, and at 2 with checkpoints, killed (kill -9) at random moments and resumed; the four
files must be the same, byte for byte, and their rows those of answers.py. The generator's bytes are compared with digests, and with
gen.c of ../shared/peers/nexmark where that and a compiler are there. Prints TAP lines.
"""

import argparse
import csv
import glob
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time

from answers import ANSWERS, ORACLE

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
JOBS = os.path.join(ROOT, "jobs", "nexmark")
GEN = os.path.join(ROOT, "..", "shared", "peers", "nexmark", "gen.c")
EVENTS, KILLS = 200_000, 2

# sha256 of what `leat generate nexmark` writes.
FILES = {
    "--events 200000 --seed 1": "8d478eaf417abcb4b6b91079f2c8b85c65460fef93877e6dc097e6b407c2b119",
    "--events 50000 --seed 2 --tps 1000 --person-size 0 --auction-size 0 --bid-size 0":
        "e23f93353109181878bc3bb9627f85db5e6c610ec11584e759b86c71f080ffec",
    "--events 30000 --seed 77 --tps 7 --person-size 2000 --auction-size 4000 --bid-size 4000":
        "f0b57e9c9064a7b5aa2b1917a08c3d5ccd86fabef72dcc2fadd25f13f69557c5",
}
OTHER = "--events 12345 --seed 9223372036854775807 --tps 333333 --part 2/3"


class Failure(Exception):
    pass


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: found {found!r}, expected {expected!r}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Test:
    def __init__(self, leat, folder, seed):
        self.leat, self.folder, self.rng = leat, folder, random.Random(seed)
        self.events, self.kills = None, 0

    def place(self, *parts):
        return os.path.join(self.folder, *parts)

    def call(self, *arguments):
        result = subprocess.run([self.leat, *arguments], capture_output=True, timeout=PATIENCE_S, check=False)
        if result.returncode != 0:
            raise Failure(f"leat {' '.join(arguments)} ended with {result.returncode}: {result.stderr.decode()[-2000:]}")
        return result.stdout

    def data(self):
        path = self.place("events.jsonl")
        if not os.path.exists(path):
            self.call("generate", "nexmark", "--events", str(EVENTS), "--seed", "1", "--out", path)
        return path

    def command(self, query, out, workers, *settings):
        words = [self.leat, "run", os.path.join(JOBS, query + ".leat"), "--json", "--workers", str(workers), "--set",
                 f"data={self.data()}", "--set", f"out={self.place(out)}"]
        if query == "q13":
            words += ["--set", f"side={JOBS}/side_input.csv"]
        for setting in settings:
            words += ["--set", setting]
        return words

    def output(self, query, out):
        with open(self.place(out, query + ".csv"), "rb") as file:
            return file.read()

    def whole_run(self, query, out, workers):
        summary = json.loads(self.call(*self.command(query, out, workers)[1:]))
        expect(f"{query} finished", summary["finished"], True)
        for node in summary["nodes"]:
            expect(f"the counts of {node['name']} add up", node["counts"]["balanced"], True)
            expect(f"dead rows of {node['name']}", node["counts"]["dead"], 0)
        return self.output(query, out)

    def killed_run(self, query, seconds):
        """Lives with 2 workers; all but the last are killed before they would be through."""
        command = self.command(query, "killed", 2, f"checkpoints={self.place('state', query)}", "every=20ms")
        for _ in range(KILLS):
            life = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.rng.uniform(0.1, 0.9) * seconds)
            life.kill()
            if life.wait() == 0:
                return self.output(query, "killed")
            self.kills += 1
        self.call(*command[1:])
        return self.output(query, "killed")

    def oracle(self, query):
        """(rows, digest)"""
        if self.events is None:
            with open(self.data(), encoding="ascii") as file:
                self.events = [json.loads(line) for line in file]
        with open(os.path.join(JOBS, "side_input.csv"), encoding="ascii", newline="") as file:
            side = {int(row["key"]): row["value"] for row in csv.DictReader(file)}
        lines = sorted(",".join(map(str, row)) + "\n" for row in ORACLE[query](self.events, side))
        return len(lines), sha256("".join(lines).encode())


def test_query(test, query):
    job = os.path.join(JOBS, query + ".leat")
    test.call("fmt", "--check", job)
    test.call("explain", job)
    started = time.monotonic()
    one = test.whole_run(query, "one", 1)
    seconds = time.monotonic() - started
    lines = one.splitlines(keepends=True)
    expect("rows and digest", (len(lines), sha256(b"".join(sorted(lines)))), ANSWERS.get(query) or test.oracle(query))
    for workers in (2, 5):
        if test.whole_run(query, f"of-{workers}", workers) != one:
            raise Failure(f"{workers} workers wrote other bytes than 1")
    if test.killed_run(query, seconds) != one:
        raise Failure("killed and resumed, it wrote other bytes")
    return f"{len(lines)} rows"


def test_generator(test):
    for options, digest in FILES.items():
        expect(options, sha256(test.call("generate", "nexmark", *options.split())), digest)
    parts = [test.call("generate", "nexmark", "--events", "30000", "--part", f"{p}/3") for p in range(3)]
    whole = test.call("generate", "nexmark", "--events", "30000")
    expect("lines of three parts", sorted(b"".join(parts).splitlines()), sorted(whole.splitlines()))
    path = test.place("forced.jsonl")
    test.call("generate", "nexmark", "--events", "100", "--out", path)
    refused = subprocess.run([test.leat, "generate", "nexmark", "--events", "100", "--out", path], capture_output=True, check=False)
    expect("an existing file is refused", (refused.returncode != 0, b"E0606" in refused.stderr), (True, True))
    test.call("generate", "nexmark", "--events", "200", "--out", path, "--force")
    expect("parts left behind", glob.glob(path + "*"), [path])
    compiler = shutil.which("cc")
    if not compiler or not os.path.exists(GEN):
        return "digests alone: there is no gen.c, or no compiler"
    subprocess.run([compiler, "-O2", "-o", test.place("gen"), GEN, "-lm"], check=True)
    for options in [*FILES, OTHER]:
        expected = subprocess.run([test.place("gen"), *options.split()], capture_output=True, check=True).stdout
        expect(options, sha256(test.call("generate", "nexmark", *options.split())), sha256(expected))
    return "digests, and the bytes of gen.c"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--only", help="names of queries, or `generator`")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of killing")
    parser.add_argument("--folder", default="build/nexmark")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    test, failed = Test(os.path.abspath(arguments.leat), folder, arguments.seed), 0
    queries = sorted((os.path.basename(path)[:-5] for path in glob.glob(os.path.join(JOBS, "*.leat"))),
                     key=lambda name: (int("".join(filter(str.isdigit, name))), name))
    tests = {"generator": test_generator, **{query: lambda test, query=query: test_query(test, query) for query in queries}}
    for name in arguments.only.split(",") if arguments.only else tests:
        try:
            print(f"ok - nexmark: {name}: {tests[name](test)}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            failed += 1
            print(f"not ok - nexmark: {name} (files: {folder}): {failure}", flush=True)
    if not arguments.only:
        is_enough = test.kills >= len(queries)
        failed += not is_enough
        print(f"{'ok' if is_enough else 'not ok'} - nexmark: {test.kills} kills in {len(queries)} jobs", flush=True)
    if not arguments.keep and not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
