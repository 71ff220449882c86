#!/usr/bin/env python3
"""Every operator, through replay, kills and accounting.

    tests/crash/operators.py --leat build/release/leat [--kills 12] [--seed 1] [--only NAME] [--folder DIR] [--keep]

For each registered operator: the example of its descriptor (`leat help operator NAME`), over records with the sample
columns, and the lines that STEPS has for it. Some ten of these make a job, each with a sink for its rows and, where it
has them, its late rows. The job must give the same bytes, counts and dead letters at 1, 2, 3 and 7 lanes, with all the
memory and with LITTLE for each operator (what does not fit goes to RocksDB), with checkpoints and without, with key groups
that move; stopped at HALF, after moves, its state by key and its order log must be those of a run without moves
(keyed_state.c); and through lives with little memory that are killed at failpoints and random moments (lives.py). The counts of
each operator add up: in = passed + filtered + late + duplicate + dead + absorbed + held, and its sinks have passed + emitted,
and late rows.

An operator must show something here: it gives ROWS_LEAST rows, and one that keeps state spills some of it, and has some that is
compared after moves. Where its example is too tame for that, a line is missing in STEPS. Prints TAP lines.
"""

import argparse
import collections
import datetime
import json
import os
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import registry  # noqa: E402
from crash import Job, compare, run_rounds
from lives import Failure, Inputs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROWS_LEAST = 1000
STREAMS_A_JOB = 10
LITTLE = {"LEAT_TEST_STATE": "60000"}
SCATTERED = {"LEAT_TEST_PLACEMENT": "5"}
# Milliseconds between micro-batches, of so few rows that there are many more than are on their way at a time: so that a life has a few
# checkpoints on a machine that is busy.
SLOWLY_MS, SMALL = [2, 10, 40], {"LEAT_TEST_CUT": "100"}
RECORDS = {"events": 30_000, "clicks": 12_000}
RECORDS_OTHERWISE = 6_000
BEGIN_MS = 1_700_000_000_000
STEP_MS = 250  # between records, on average: two hours in all
HALF = datetime.datetime.fromtimestamp(BEGIN_MS / 1000 + 4500, datetime.timezone.utc).strftime("%FT%TZ")

# Two exchanges behind a step: rows that have equal places in the order of all rows would come by lane.
TWICE = " | feature by user_id over 1h every 1m { n: count() } | feature by item_id over 1h every 1m { previous: last(event_id) }"
# What is more than the example: richer options, more state, late rows, dead letters.
STEPS = {
    "dedup": ["events | dedup by event_id within 1h", "events | dedup by user_id, item_id within 10m keep last emit on_change",
              "events | dedup by event_id within forever keep last emit final"],
    "feature": ["events | feature by event_id over [10m, 1h] every 1m { n: count(), kinds: distinct(device), often: top(item_id, 2) }",
                "events | feature from clicks by item_id over 1h every 1m { n: count(), latest: last(device) }",
                "events | feature by item_id over [10m, forever] every 1m { n: count(), spend: sum(price), kinds: distinct(device), "
                "often: top(user_id, 2), latest: collect(event_id, 3) }",
                "events | feature from clicks by user_id over forever { n: count(), latest: last(device), middle: quantile(position, 0.5) }"],
    "window": ["events | window by event_id, device over tumbling(5m) lateness 1m { n: count(), far: sum(100 / position), "
               "often: top(item_id, 3), last: last(event_id) }",
               "events | window by user_id, item_id over sliding(10m, 2m) lateness 1m emit on_end { n: count(), last: last(event_id) }",
               "events | window by user_id, device over session(5m) lateness 1m { n: count(), first: first(event_id) }",
               "events | window by device over session(1s) lateness 5m emit every(1m) { event_id: last(event_id), user_id: last(user_id), "
               f"item_id: last(item_id) }} | drop _op{TWICE}",
               "events | window by item_id over cumulating(1h, 10m) emit every(5m) { n: count(), last: last(event_id) }",
               "events | window by user_id over count(4, 2) expire_after 10m { n: sum(price), last: last(event_id) }",
               "events | window by item_id over tumbling(1h) { n: distinct_exact(event_id), users: distinct_exact(user_id), "
               "middle: quantile(price, 0.5), best: argmax(event_id, price), dear: top_n(user_id, 3, price), latest: collect(event_id, 5) }",
               "events | window by user_id over forever emit on_change { n: count(), last: last(event_id) }"],
    "split": ["events | split where 100 / position > 5"],
    "route": ["events | route match all { dear: price > 190.0, odd: 100 / position > 60 }"],
    "rate_limit": ["events | rate_limit 3 per 10m by item_id", "events | rate_limit 1 per 1h by event_id"],
    "pattern": ['events | pattern by item_id within 20m keep event_id, tags { phone: device = "phone", desktop: device = "desktop" }',
                'events | pattern by item_id, device within 20m unless clicked keep event_id { cheap: price < 100.0, dear: price > 90.0 }'],
    "top_n": [f"events | top_n 3 by device order price over tumbling(5m){TWICE}",
              "events | top_n 3 by user_id order desc(price), ts over sliding(10m, 5m) ties all rank place",
              "events | top_n 2 by item_id order price emit on_change rank place",
              "events | top_n 2 by user_id, device order 100 / position emit final"],
    "attribute": [*[f"events | attribute clicks on item_id within 5m as hit {how}{TWICE}" for how in ("take all", "emit at_once")],
                  "events | attribute clicks on user_id, item_id within 20m as was_clicked",
                  "events | attribute clicks on item_id within 5m as clicked_first take first { at: ts, from_device: device }",
                  "events | attribute clicks on user_id within 5m as all_clicks take all { at: ts }",
                  "events | attribute clicks on item_id within 10m as clicked_soon emit at_once { at: ts }",
                  "events | attribute clicks on user_id within 10m as clicked_again emit fake_negative { far: 100 / position }"],
    "lookup": ["events | lookup \"items.csv\" on item_id = id kind inner refresh 1s { category: text }"],
    "enrich": ["events | enrich from clicks on item_id within 10m { clicked_at: ts, far: 100 / position }",
               "events | enrich from clicks on user_id within forever { last: event_id, kinds: tags }"],
    "join": ['events | join clicks on user_id, item_id within [-5m, 10m] kind left take best order desc(price) prefix "c_"',
             'events | join clicks on user_id, item_id within [-10m, 5m] prefix "c_"',
             'events | join clicks on user_id, item_id over tumbling(10m) kind anti',
             'events | join clicks on event_id within forever kind semi unique right',
             "events | join clicks on user_id, item_id within [-5s, 20s] kind left prefix \"click_\"",
             f"events | join clicks on item_id within [-1m, 1m] prefix \"click_\"{TWICE}",
             "events | join clicks on event_id within forever unique both prefix \"click_\"",
             "events | join clicks on item_id, device within [-10s, position * 2s] take best order desc(price), event_id prefix \"click_\""],
    "nest": [f"events | unnest tags | nest tags as tags order tags first 2{TWICE}"],
    "sample": ["events | sample 0.5 by user_id"],
    "sort": ["events | sort within 10m by device"],
    "union": ["events | union clicks, ratings"],
}
# Operators whose example needs no more rows or state than it has, and why.
TAME = {
    "unnest": "its records are sessions, which are few",
}


def example_of(leat, name):
    text = subprocess.run([leat, "help", "operator", name], capture_output=True, text=True, check=True).stdout
    return re.search(r"^example\n((?:  .*\n)+)", text, re.M)[1].replace("\n", " ").strip()


# --- records with the sample columns

SCHEMA = ("{ event_id: text, imp_id: text, user_id: int, item_id: int, device: text, price: float, position: int, clicked: bool, "
          "rating: float, ts: time(ms), tags: list(text), events: list({ aid: int, kind: text }) }")
SOURCES = ["events", "more_events", "sessions", "ratings", "features", "clicks", "impressions", "imps", "examples"]


def record(rng, number, time):
    def skewed(count):  # some are frequent, but none has so many rows that a join of them takes long
        return int(rng.paretovariate(0.5)) % count if rng.random() < 0.05 else rng.randrange(count)

    return {
        "event_id": f"event-{number if rng.random() < 0.95 else rng.randrange(number + 1)}-{'x' * 60}", "imp_id": f"imp-{number}",
        "user_id": None if rng.random() < 0.01 else skewed(3000), "item_id": None if rng.random() < 0.01 else skewed(1000),
        "device": rng.choice(["phone", "Tablet ", "desktop", None]), "price": rng.randrange(0, 20000) / 100,
        "position": rng.randrange(-1, 30), "clicked": rng.random() < 0.2, "rating": rng.randrange(0, 11) / 2, "ts": time,
        "tags": rng.sample(["a", "b", "c", "d"], rng.randrange(4)),
        "events": [{"aid": rng.randrange(900), "kind": rng.choice(["view", "cart", "order"])} for _ in range(rng.randrange(3))],
    }


def write_records(folder, name, seed):
    rng, count = random.Random(f"{seed} {name}"), RECORDS.get(name, RECORDS_OTHERWISE)
    clock, step = BEGIN_MS, STEP_MS * RECORDS["events"] / count
    with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
        for number in range(count):
            clock += int(rng.expovariate(1 / step))
            dice = rng.random()
            time = clock - rng.randrange(10_000) if dice < 0.2 else clock - rng.randrange(2_000_000) if dice < 0.21 else clock
            file.write("{broken\n" if dice > 0.998 else json.dumps(record(rng, number, time)) + "\n")


# --- jobs


def checked(leat, folder, step, output):
    """What `leat check` says of a job that reads this output of the step: None, it is good."""
    path = f"{folder}/one.leat"
    with open(path, "w", encoding="utf-8") as file:
        file.write(sources_of([step]) + f"stream x = {step}\nsink x = file from x{output} {{ path: \"x.jsonl\" }}\n")
    result = subprocess.run([leat, "check", path], capture_output=True, text=True, check=False)
    return result.stdout + result.stderr if result.returncode != 0 else None


def outputs_of(leat, folder, step):
    """The step's outputs NAME.late, NAME.rest and those that its body names; a step that is refused ends the test."""
    said = checked(leat, folder, step, "")
    if said is not None:
        raise Failure(f"`leat check` refuses {step}:\n{said[:1500]}")
    names = ["late", "rest", *re.findall(r"(\w+):", step.partition("{")[2])]
    return [name for name in names if checked(leat, folder, step, f".{name}") is None]


def names_of(steps):
    return [name for name in SOURCES if any(re.search(rf"(^|[^\w{{.]){name}\b(?!\s*[:}}])", strip_body(step)) for step in steps)]


def strip_body(step):
    """The step without its options, and without the column `events`, which has the name of a source."""
    return re.sub(r"\bunnest events\b", "unnest", step.split("{")[0])


def sources_of(steps):
    lines = ['param data: text = "."']
    for name in names_of(steps):
        lines.append(f'source {name} = file {{\n  path: concat(data, "/{name}.jsonl")\n  schema: {SCHEMA}\n  event_time: ts, '
                     'max_delay: 10s\n}')
    return "\n".join([*lines, ""])


class Operators(Job):
    """Some steps as one job. streams: [(stream's name, operator, step, its outputs beside the stream)]"""

    def __init__(self, leat, folder, number, streams):
        data = os.path.join(folder, f"data-{number}")
        os.makedirs(data)
        for name in names_of([step for _, _, step, _ in streams]):
            os.link(f"{folder}/data/{name}.jsonl", f"{data}/{name}.jsonl")
        with open(os.path.join(data, "items.csv"), "w", encoding="utf-8") as file:  # the table of `lookup`
            file.write("id,category,brand\n" + "".join(f"{item},kind {item % 7},{item % 11}\n" for item in range(0, 900, 3)))
        path = os.path.join(folder, f"operators-{number}.leat")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text(streams))
        super().__init__(leat, path, folder, Inputs(data))
        os.makedirs(self.folder)
        self.streams = streams
        self.keyed_state = os.path.join(os.path.dirname(leat), "tests", "crash", "keyed_state")  # CMake builds it beside leat
        self.checkpoints_least = 1  # it is soon through

    @staticmethod
    def text(streams):
        lines = ['param out: text = "out"', 'param state: text = ""', "param every: duration = 10s",
                 "job operators { memory: 64MiB, checkpoint: { every: every, dir: state } }",
                 sources_of([step for _, _, step, _ in streams])]
        for name, _, step, outputs in streams:
            step = step.replace('"items.csv"', 'concat(data, "/items.csv")')
            lines += [f"stream {name} = {step}", f'sink {name} = file from {name} {{ path: concat(out, "/{name}.jsonl") }}']
            lines += [f'sink {name}_{output} = file from {name}.{output} {{ path: concat(out, "/{name}_{output}.jsonl") }}'
                      for output in outputs]
        return "\n".join([*lines, 'sink dead = file from dead_letters { path: concat(out, "/dead.jsonl") }', ""])


def lines_of(path):
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def check_counts(job, place, summary):
    """Those of each operator, against each other and against the sinks."""
    folder = os.path.join(job.folder, place)
    for name, kind, step, outputs in job.streams:
        counts = next(n["counts"] for n in summary["nodes"] if n["name"] == name and n["kind"] == kind)
        out = sum(counts[c] for c in ("passed", "filtered", "late", "duplicate", "dead", "absorbed", "held"))
        if counts["in"] != out or counts["held"] != 0:
            raise Failure(f"{name}: {counts['in']} rows came in, {out} are accounted for: {counts}")
        rows, beside = lines_of(f"{folder}/{name}.jsonl"), {o: lines_of(f"{folder}/{name}_{o}.jsonl") for o in outputs}
        is_good = rows == counts["passed"] + counts["emitted"] and beside.pop("late", counts["late"]) == counts["late"]
        if beside:  # rows that leave by an output of their own are filtered, once each
            is_good &= sum(beside.values()) >= counts["filtered"] if "match all" in step else sum(beside.values()) == counts["filtered"]
        if not is_good:
            raise Failure(f"{name}: its sinks have {rows} rows, and beside it {beside}: {counts}")


def note_figures(job, summary, shown):
    """shown[operator]: the most rows that it gave, and whether it keeps state and spilled some."""
    for name, kind, _, _ in job.streams:
        node = next(n for n in summary["nodes"] if n["name"] == name and n["kind"] == kind)
        figures, counts = node["report"]["run"], node["counts"]
        shown[kind]["rows"] = max(shown[kind]["rows"], min(counts["in"], counts["passed"] + counts["emitted"]))
        shown[kind]["has state"] |= "state_evicted" in figures
        shown[kind]["spilled"] += figures.get("state_evicted", 0)


def state_of(job, place, state, lanes, every, move):
    """Of a run that stops at HALF: [[part of the job or `order`, number and digest of its entries]], and its summary."""
    log = os.path.join(job.folder, f"{place}.order")
    _, summary = job.undisturbed(place, lanes, state, every, move=move, more=["--until", HALF, "--record-order", log])
    result = subprocess.run([job.keyed_state, state, log], capture_output=True, text=True, check=False)
    os.remove(log)
    if result.returncode != 0:
        raise Failure(f"the state at {lanes} lanes cannot be read: {result.stdout}{result.stderr}")
    return [line.split(": ") for line in result.stdout.splitlines()], summary


def drop(job, place, state):
    for path in (state, os.path.join(job.folder, place)):
        shutil.rmtree(path, ignore_errors=True)


def stop_half_way(job, state):
    """The parts of state and order log at HALF in a run with little memory and moves at 3 lanes, and the bytes that moved; again and
    slower where too few checkpoints came for a move."""
    for slowly in SLOWLY_MS:
        drop(job, "halves", state)
        job.environment.update({**SCATTERED, "LEAT_FAILPOINTS": f"run.claimed=sleep:{slowly}"})
        found, summary = state_of(job, "halves", state, 3, "10ms", 3)
        if summary.get("moved_groups", 0) > 0:
            break
    return found, summary.get("moved_groups", 0) and summary["moved_bytes"]


def run_halves(job, expected, shown):
    """Key groups move: half way, state and order log are those of a run in which none do. A second life, at 7 lanes and with all the
    memory, ends it."""
    state = os.path.join(job.folder, "state-halves")
    job.environment.pop(*LITTLE)
    still, _ = state_of(job, "halves", state, 1, "1h", 0)
    job.environment.update(LITTLE)
    found, moved = stop_half_way(job, state)
    if found != still:
        others = [pair for pair in zip(still, found) if pair[0] != pair[1]] or [still, found]
        raise Failure(f"state or order differs at 3 lanes, with {moved} bytes of state that moved: {others}")
    for part, digest in found:
        shown[part.split()[-1]]["compared"] += int(digest.split()[0]) if moved > 0 else 0
    job.environment.pop(*LITTLE)
    outcome, summary = job.undisturbed("halves", 7, state, "10ms", move=7)
    for name in [*SCATTERED, "LEAT_FAILPOINTS"]:
        job.environment.pop(name, None)
    job.environment.update(LITTLE)
    again = summary.get("moved_bytes", 0)
    compare(outcome, expected, f"at 3 and then 7 lanes, with {moved} and {again} bytes of state that moved")
    drop(job, "halves", state)
    shown["moves"].update({3: moved, 7: again})


def run_job(job, kills, rng, shown, report):
    job.environment.update({**LITTLE, **SMALL})
    expected, summary = job.undisturbed("reference", 1, os.path.join(job.folder, "reference-state"), "1h")
    check_counts(job, "reference", summary)
    note_figures(job, summary, shown)
    found, _ = job.undisturbed("lanes-2", 2, "", "10s")
    compare(found, expected, "at 2 lanes, without checkpoints, with little memory")
    drop(job, "lanes-2", "")
    run_halves(job, expected, shown)
    names = ", ".join(sorted({kind for _, kind, _, _ in job.streams}))
    report(f"ok - operators: {names}: the same bytes at 1, 2, 3, 7 lanes, with little memory and with much; the same state after moves")
    run_rounds(job, expected, kills, rng, report)


def check_shown(names, shown, report):
    failed, moves = 0, shown.pop("moves", {})
    for name in names:
        missing = []
        if shown[name]["rows"] < ROWS_LEAST and name not in TAME:
            missing.append(f"gives {shown[name]['rows']} rows of {ROWS_LEAST}")
        if shown[name]["has state"] and not shown[name]["spilled"] and name not in TAME:
            missing.append("keeps state, but none of it goes to disk")
        if shown[name]["has state"] and not shown[name]["compared"]:
            missing.append("keeps state, but none of it was compared with that of a run without moves")
        if missing:
            failed += 1
            report(f"not ok - operators: {name} {', '.join(missing)}: add a line for it to STEPS in tests/crash/operators.py, with "
                   "more keys or longer times (or to TAME, and why)")
    if not failed:
        report(f"ok - operators: all {len(names)} give rows, those with state spill, and have the same state where it moved; "
               f"{sum(moves.values()):,} bytes of state moved")
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="NAME", help="this operator")
    parser.add_argument("--folder", default="build/operators")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/data")
    names = [name for name in registry.operators() if arguments.only in (None, name)]
    status, shown = 0, collections.defaultdict(lambda: {"rows": 0, "has state": False, "spilled": 0, "compared": 0})
    shown["moves"] = collections.Counter()

    def report(line):
        print(line, flush=True)

    try:
        steps = [(name, step) for name in names for step in [example_of(leat, name), *STEPS.get(name, [])]]
        for name in names_of([step for _, step in steps]):
            write_records(f"{folder}/data", name, arguments.seed)
        streams = [(f"x{i}_{name}", name, step, outputs_of(leat, folder, step)) for i, (name, step) in enumerate(steps)]
    except Failure as failure:
        report(f"not ok - operators: {failure}")
        return 1
    jobs = -(-len(streams) // STREAMS_A_JOB)
    for number in range(jobs):
        job = Operators(leat, folder, number, streams[number::jobs])
        try:
            run_job(job, -(-arguments.kills // jobs), random.Random(arguments.seed * 1000 + number), shown, report)
        except Failure as failure:
            status = 1
            report(f"not ok - operators: seed {arguments.seed}, {job.path}: {failure}")
    status |= check_shown(names, shown, report) > 0
    if not arguments.keep and status == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
