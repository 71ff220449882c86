#!/usr/bin/env python3
"""A learner's histories stay in budget: users' entries beyond the memory go to disk and come back, and nothing else changes.

    LEAT=build/release/leat tests/soak/histories.py [--small] [EVENTS]

Full (`./dev soak histories`): 40 million events of 2 million users, who take turns, so that nearly each event meets a
history on disk, in `memory: 512MiB` beside 50,000 items: at most 650 MiB resident. Few events teach, since steps would
take hours; with fewer EVENTS, users have shorter histories. --small (`./dev test`): 8,000 users with memory for a few of
them, stopped on the way and resumed: the same rows, and answers, as with all in memory. Prints TAP lines.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import measured

JOB = """job histories {{ memory: {memory}, checkpoint: {{ every: {every}, dir: "{name}.state" }} }}
source events = sequence {{ count: {count}, keys: {keys}, event_time: ts }}
stream rows = events | with item = int(value * {items}.0), teaches = {teaches}
learner next = sasrec from rows {{ by: key, item: item, learn: teaches, rank_share: {share}, {options} }}
sink out = {sink}
serve answers {{ from: next.top, request: events }}
"""
FULL = {"memory": "512MiB", "every": "5m", "keys": 2_000_000, "items": 50_000, "share": 0.0001, "options": "",
        "teaches": "id < 400000 or id % 1000 == 0", "sink": "null from next.top {}"}
SMALL = {"memory": "256MiB", "every": "1s", "keys": 8_000, "items": 300, "share": 0.2, "count": 100_000,
         "teaches": "id % 8 != 0", "options": "layers: 1, embedding: { dim: 16 }, batch: 512"}
SPILLS = {"LEAT_TEST_STATE": "1000000"}
LIMIT = 650


def learner(summary):
    return {node["kind"]: node for node in json.loads(summary)["nodes"]}["sasrec"]["report"]["run"]


def say(wrong, what):
    print(f"{'not ok' if wrong else 'ok'} - histories: {what}")
    for line in wrong:
        print(f"#   {line}")
    return 1 if wrong else 0


def full(leat, folder, count):
    started = time.monotonic()
    status, peak, out, err = measured.run(leat, folder, "full", JOB.format(name=os.path.join(folder, "full"), count=count, **FULL))
    if status != 0:
        return say([(out + err)[-1000:]], f"status {status}")
    report = learner(out)
    names = ("users", "history_events", "history_cold", "history_bytes", "items", "items_bytes", "steps")
    print(f"# {time.monotonic() - started:.0f} s; {json.dumps({name: report[name] for name in names})}")
    wrong = []
    if peak > LIMIT:
        wrong.append(f"{peak:.0f} MiB resident, more than {LIMIT}")
    if report["history_cold"] < report["users"] / 4:
        wrong.append("no quarter of the users is on disk")
    return say(wrong, f"{count:,} events, {report['users']:,.0f} users: {peak:.0f} MiB resident (limit {LIMIT})")


def small(leat, folder):
    def job(name):
        path = os.path.join(folder, name)
        sink = f'file from next.top {{ path: "{path}.jsonl", format: json, overwrite: true }}'
        return JOB.format(name=path, sink=sink, **SMALL)

    def run(name, *arguments, **environment):
        status, _, out, err = measured.run(leat, folder, name, job(name), *arguments, **environment)
        if status != 0:
            sys.exit(f"not ok - histories: {name}: status {status}: {(out + err)[-1000:]}")
        return out

    whole = run("whole")
    half = run("spilled", "--until", "1970-01-01T00:00:50Z", **SPILLS)
    records = json.loads(half)["records"]
    spilled = run("spilled", **SPILLS)
    with open(os.path.join(folder, "asked.jsonl"), "w", encoding="ascii") as file:
        for key in range(0, SMALL["keys"], 8):
            file.write(json.dumps({"id": key, "key": key, "value": 0.5, "ts": 200_000_000}) + "\n")
    answers = [subprocess.run([leat, "score", os.path.join(folder, f"{name}.leat"), os.path.join(folder, "asked.jsonl")],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
               for name in ("whole", "spilled")]
    print(f"# stopped after {records:,} of {SMALL['count']:,} records")
    wrong = [] if records < 0.6 * SMALL["count"] else ["it was not stopped on its way"]
    with open(os.path.join(folder, "whole.jsonl"), "rb") as left, open(os.path.join(folder, "spilled.jsonl"), "rb") as right:
        rows = left.read()
        if rows != right.read():
            wrong.append("other rows than with all histories in memory")
    if rows.count(b"\n") < SMALL["count"]:
        wrong.append(f"{rows.count(bytes([10])):,} lines are too few")
    if answers[0] != answers[1] or answers[0].count(b'"top":[{') < SMALL["keys"] / 8:
        wrong.append("requests have other answers than with all histories in memory, or no lists")
    cold = [learner(summary)["history_cold"] for summary in (whole, half, spilled)]
    if cold[0] > 0 or min(cold[1:]) < SMALL["keys"] / 10:
        wrong.append(f"{cold} users on disk: with all in memory, when it was stopped, and at the end")
    return say(wrong, "rows with histories on disk, stopped and resumed, and answers equal those with all in memory")


def main():
    leat = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    with tempfile.TemporaryDirectory() as folder:
        if "--small" in sys.argv:
            return small(leat, folder)
        return full(leat, folder, numbers[0] if numbers else 40_000_000)


if __name__ == "__main__":
    sys.exit(main())
