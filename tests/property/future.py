#!/usr/bin/env python3
"""No row sees the future: changes what comes after a moment, and demands the same rows up to it, byte for byte.

    tests/property/future.py --leat build/release/leat [--seeds 20] [--seed 1] [--only NAME] [--folder DIR] [--keep]

For each seed: impressions and two partitions of clicks as JSON lines, with equal times, clicks in the millisecond and
in the batch span of their own impression, bursts, nulls, duplicates, broken lines, rows out of order within
`max_delay`, and densities far apart. Then three perturbations: values; drops, copies and new records; or everything
gone, or a flood. A cut is either a time T (all records whose order time, the running maximum of the event times of
their partition, is later) or one impression (all that comes after it in the one order: time, then partition, then
place). What is changed stays after the cut. Rows of records before it must not change, at any number of lanes.

For temporal joins (TEMPORAL) a fourth changes what has a later event time, wherever it stands.

That of the features is one job; beside it each operator is shown by its lines in POINT_IN_TIME, or by its example, and these
rows must not change either; or it says in AHEAD what it may see of what comes later.

Every fourth seed has rows far later than its `max_delay`. They read what the watermark has left, and where a file ends
has no part in that either.

So that this means something: the rows are compared with a computation in Python, and the test must fail on rows after
the cut and on a job whose feature is fed by the joined label. Prints TAP lines.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "crash")]
import operators  # noqa: E402
import registry  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

BASE_MS = 1_700_000_000_000
DELAY_MS = 3000
LATE_MS = 200_000  # far beyond max_delay and all windows
WITHIN_MS = 60_000
WINDOWS_MS = {"10s": 10_000, "2m": 120_000}
PANE_MS = 1000
PERTURBATIONS = 3
SHOWN_MAX = 3

JOB = """
param data: text = "."
param out: text = "out"
param delay: duration = 3s

job future {
  memory: 64MiB
}

source impressions = file {
  path: concat(data, "/impressions.jsonl")
  schema: { n: int!, imp_id: int, ts: time(ms), user: int, item: int, price: float }
  event_time: ts, max_delay: delay
}

source clicks = file {
  path: [concat(data, "/clicks-a.jsonl"), concat(data, "/clicks-b.jsonl")]
  schema: { n: int!, imp_id: int, ts: time(ms), item: int, value: float }
  event_time: ts, max_delay: delay
}

stream features =
    impressions
  | where price is null or price < 90.0
  | dedup by imp_id within 1m
  | feature by item over [10s, 2m] every 1s {
      imps: count(), spend: sum(price), dearest: max(price), users: distinct(user)
    }
  | feature from clicks by item over [10s, 2m] every 1s {
      clicks: count(), value: sum(value), latest: last(value), often: top(value, 2)
    }
  | feature by user over 2m every 10s { seen: count(), since: since_last() }
  | feature by user over 2m every 10s including self { me: count() }
  | enrich from clicks on item within 2m { last_click: n, last_value: value }
  | lookup concat(data, "/items.csv") on item { shop: text }
  | with ctr = (clicks_2m + 1.0) / (imps_2m + 20.0), second = ts

stream examples = features | attribute clicks on imp_id within 30s as clicked

%s
stream leaky = examples | feature by item over 2m every 1s including self { known: sum(clicked) }

sink features = file from features { path: concat(out, "/features.jsonl") }
sink leaky = file from leaky { path: concat(out, "/leaky.jsonl") }
"""
FILES = ["impressions", "clicks-a", "clicks-b"]
SHOPS = {item: f"shop {item % 3}" for item in range(9)}

# Of operators: steps over `impressions` (n, imp_id, ts, user, item, price) whose rows keep `n`; `clicks` (imp_id, ts, item, value)
# may be the other stream. An operator that is not here, nor in AHEAD, is shown by the example of its descriptor.
POINT_IN_TIME = {
    "where": ["where price > 20.0"],
    "with": ["with half = price / 2.0"],
    "select": ["select n, cents = int(price * 100.0)"],
    "drop": ["drop price"],
    "rename": ["rename buyer = user"],
    "cast": ["cast user = text"],
    "clean": ["clean { price: clamp(0, 50) }"],
    "fill_forward": ["fill_forward price, item by user within 30s"],
    "dedup": ["dedup by user, item within 30s"],
    "split": ["split where price > 20.0"],
    "route": ["route { dear: price > 50.0, cheap: price < 20.0 }"],
    "rate_limit": ["rate_limit 2 per 10s by user"],
    "pattern": ["pattern by user within 30s { dear: price > 50.0, cheap: price < 60.0 }"],  # without `unless`
    "feature": [],  # in the job above, in all its forms
    "sort": ["sort within 5s", "sort within 1s by user"],
    "enrich": ["enrich from clicks on item within 2m { click: n, value }",
               "enrich from clicks on imp_id within forever { clicked_at: ts }"],
    "lookup": ['lookup concat(data, "/items.csv") on item { shop: text }'],
    "union": ["select n, ts, item | union other"],
    "sample": ["sample 0.5 by user"],
    "bucketize": ["bucketize price at [10, 50] as bucket"],
    "hash": ["hash user into 10 as bucket"],
    "cross": ["cross user, item as pair"],
    "unnest": [],  # by row; impressions have no lists
    "nest": ['with parts = split(text(user), "1") | unnest parts | feature from clicks by item over 2m every 1s { known: count() } '
             "| nest parts, known as all order desc(known), parts first 2"],
}
# What the examples of descriptors read: the sample columns, made from the impressions.
EVENTS = """stream events = impressions | with event_id = text(n), user_id = user, item_id = item, device = text(item), position = user,
  clicked = price > 60.0, rating = price / 20.0, tags = split(text(user), "1")
"""
# Of these, nothing of a later event time may show either, though it came before.
TEMPORAL = {"enrich"}
# What the others may see of later records, on purpose.
AHEAD = {
    "attribute": "a label: what comes within its time",
    "join": "what matches within its bounds, before and after",
    "top_n": "a better row",
    "window": "a window's row: what comes until it closes",
}
OTHER = "stream other = clicks | select n = n + 1000000, ts, item\n"


class Failure(Exception):
    pass


def take_examples(leat):
    """Operators that say nothing here are shown by the example of their descriptor."""
    for name in registry.operators():
        if name not in POINT_IN_TIME and name not in AHEAD:
            POINT_IN_TIME[name] = [operators.example_of(leat, name)]


def sinks():
    """{sink: the step behind it}, of POINT_IN_TIME."""
    return {f"p_{name}_{i}": step for name, steps in POINT_IN_TIME.items() for i, step in enumerate(steps)}


def job_text():
    lines = [OTHER, EVENTS]
    for sink, step in sinks().items():
        step = step if step.startswith("events |") else f"impressions | {step}"
        lines.append(f'stream {sink} = {step}\nsink {sink} = file from {sink} {{ path: concat(out, "/{sink}.jsonl") }}')
    return JOB % "\n".join(lines)


# --- streams: a record is a dict, or a text that is no record


def time_of(record):
    """Its event time; None where it is a bad record."""
    return record["ts"] if isinstance(record, dict) else None


def order_times(records):
    times, running = [], -1
    for record in records:
        time = time_of(record)
        if time is not None and time > running:
            running = time
        times.append(running)
    return times


def any_impression(rng, time, ids):
    return {
        "imp_id": None if rng.random() < 0.02 else rng.randrange(ids), "ts": time,
        "user": None if rng.random() < 0.03 else rng.randrange(20),
        "item": None if rng.random() < 0.05 else int(rng.paretovariate(1.0)) % 12,
        "price": None if rng.random() < 0.05 else rng.randrange(0, 10000) / 100,
    }


def any_click(rng, time, ids, impression=None):
    like = impression or any_impression(rng, time, ids)
    return {"imp_id": like["imp_id"], "ts": time, "item": like["item"],
            "value": None if rng.random() < 0.1 else rng.randrange(9) / 4}


def spoil(rng, records):
    """Broken lines, and records without a time."""
    for i in range(len(records)):
        dice = rng.random()
        if dice < 0.005:
            records[i] = '{"n": 1, "ts": tomorrow'
        elif dice < 0.01 and isinstance(records[i], dict):
            records[i] = {**records[i], "ts": None}
    return records


def make_streams(rng, seed, delay_ms):
    count = rng.choice([150, 400, 1100, 2600])
    click_share, noise = [(0.01, 0.0), (0.3, 0.3), (0.5, 4.0)][seed % 3]
    clock, impressions, arriving = BASE_MS, [], []
    for i in range(count):
        dice = rng.random()
        clock += 0 if dice < 0.35 else rng.randrange(1, 4) if dice < 0.6 else int(rng.expovariate(count / 300_000))
        time = clock - rng.randrange(delay_ms + 1) if rng.random() < 0.15 else clock
        impression = any_impression(rng, time, count)
        if rng.random() < 0.95:
            impression["imp_id"] = i
        impressions.append(impression)
        if rng.random() < 0.05:
            impressions.append({**rng.choice(impressions[-50:])})
            impressions[-1]["ts"] = max(impressions[-1]["ts"], clock - delay_ms)
        if rng.random() < click_share:
            at = time + rng.choice([0, 0, 0, 1, 2, 30, 900, 5000, 29_999, 30_000, 30_001])
            arriving.append((at, any_click(rng, at, count, impression)))
    for _ in range(int(count * noise)):
        at = rng.randrange(BASE_MS, clock + 1)
        arriving.append((at, any_click(rng, at, count)))
    arriving = [(at + (rng.randrange(delay_ms + 1) if rng.random() < 0.2 else 0), rng.random(), click)
                for at, click in arriving]
    clicks = [click for _, _, click in sorted(arriving, key=lambda a: a[:2])]
    parts = [[], []]
    for click in clicks:
        parts[rng.random() < 0.3].append(click)
    return [spoil(rng, impressions), spoil(rng, parts[0]), spoil(rng, parts[1])]


# --- perturbations


def cut_streams(rng, streams, at_time):
    """(how many records of each file stay, the least order time of what is new)."""
    orders = [order_times(s) for s in streams]
    place = rng.randrange(len(orders[0]) // 5, len(orders[0]) * 9 // 10)
    moment = orders[0][place]
    if at_time:
        return [sum(t <= moment for t in times) for times in orders], moment + 1
    return [place + 1] + [sum(t < moment for t in times) for times in orders[1:]], moment


def change(rng, record, maker, ids):
    if not isinstance(record, dict) or record["ts"] is None:
        return record
    new = maker(rng, record["ts"] + rng.randrange(-2000, 2000), ids)
    return {key: new[key] if rng.random() < 0.5 else record[key] for key in record}


def perturb_records(rng, kind, records, maker, ids):
    """New records in place of those after the cut."""
    if kind == "gone":
        return []
    out = []
    if kind == "flood" and records:
        times = [t for t in map(time_of, records) if t is not None] or [BASE_MS]
        out = [maker(rng, times[0] + rng.randrange(3), ids) for _ in range(rng.choice([30, 1500]))]
    for record in records:
        dice = rng.random()
        if kind != "mixed":
            out.append(change(rng, record, maker, ids) if dice < 0.7 else record)
        elif dice < 0.3:
            continue
        else:
            out.append(record)
            if dice < 0.45:
                out.append(dict(record) if isinstance(record, dict) else record)
            elif dice < 0.7:
                out.append(maker(rng, (time_of(record) or BASE_MS) + rng.randrange(-500, 500), ids))
    return spoil(rng, [dict(r) if isinstance(r, dict) else r for r in out])


def mend_times(before, after, least, delay_ms):
    """Keeps what is new after the cut, and no later than delay_ms."""
    running = max(order_times(before)[-1] if before else -1, least)
    is_first = True
    for record in after:
        if time_of(record) is None:
            continue
        record["ts"] = max(record["ts"], least if is_first else running - delay_ms)
        is_first = False
        running = max(running, record["ts"])
    return after


def perturb(rng, streams, number, delay_ms):
    """(the number of impressions before the cut, the streams with something else after it)"""
    stay, least = cut_streams(rng, streams, at_time=number < 2)
    kinds = [["values"], ["mixed"], ["gone", "flood", "mixed", "values"]][number]
    ids = len(streams[0])
    touched = rng.choice([(0,), (1, 2), (0, 1, 2), (0, 1, 2)])
    out = []
    for i, records in enumerate(streams):
        before, after = records[:stay[i]], records[stay[i]:]
        if i in touched:
            maker = any_impression if i == 0 else any_click
            new = perturb_records(rng, rng.choice(kinds), after, maker, ids)
            after = mend_times(before, new, least, delay_ms)
        out.append(before + after)
    return stay[0], out


def change_later(rng, streams):
    """(a time, the streams with other values in the clicks whose event time is later, wherever they stand)"""
    times = [time for time in map(time_of, streams[0]) if time is not None]
    moment, ids = sorted(times)[len(times) * rng.randrange(2, 8) // 10], len(streams[0])
    later = [[{**any_click(rng, record["ts"], ids), "ts": record["ts"]} if (time_of(record) or 0) > moment else record
              for record in records] for records in streams[1:]]
    return moment, [streams[0], *later]


# --- running


def write_streams(folder, streams):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "items.csv"), "w", encoding="utf-8") as file:
        file.write("item,shop\n" + "".join(f"{item},{shop}\n" for item, shop in SHOPS.items()))
    for name, records in zip(FILES, streams):
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as file:
            for n, record in enumerate(records):
                file.write((json.dumps({"n": n, **record}) if isinstance(record, dict) else record) + "\n")


def run(leat, folder, streams, workers, is_late):
    """{sink: [(n, line)]} in the order of the file."""
    shutil.rmtree(folder, ignore_errors=True)
    write_streams(folder, streams)
    with open(os.path.join(folder, "future.leat"), "w", encoding="utf-8") as file:
        file.write(job_text())
    result = subprocess.run([leat, "run", os.path.join(folder, "future.leat"), "--quiet", "--set", f"data={folder}",
                             "--set", f"out={folder}", "--set", f"delay={'0s' if is_late else '3s'}", "--workers",
                             str(workers)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if result.returncode != 0:
        raise Failure(f"leat run ended with {result.returncode}:\n{result.stderr[-2000:]}")
    out = {}
    for sink in ("features", "leaky", *sinks()):
        with open(os.path.join(folder, sink + ".jsonl"), "rb") as file:
            out[sink] = [(int(re.match(rb'\{"n":(\d+)[,}]', line)[1]), line) for line in file.read().splitlines()]
    return out


def rows(found, sink, begin, end):
    return [line for n, line in found[sink] if begin <= n < end]


def first_differences(left, right):
    pairs = [(a, b) for a, b in zip(left, right) if a != b][:SHOWN_MAX]
    shown = "".join(f"\n  before: {a.decode()}\n  after:  {b.decode()}" for a, b in pairs)
    return f"{len(left)} and {len(right)} rows{shown}"


# --- the same in Python


def deduplicated(impressions):
    """Numbers of the impressions that pass `where` and `dedup`."""
    first = {}
    for n, record in enumerate(impressions):
        time = time_of(record)
        if time is None or (record["price"] is not None and record["price"] >= 90.0):
            continue
        identity = record["imp_id"]
        if identity is None or identity not in first or time >= first[identity] + WITHIN_MS:
            if identity is not None:
                first[identity] = time
            yield n
        elif time <= first[identity] - WITHIN_MS:
            yield n


def window_count(panes, pane, window_ms):
    return sum(panes[p] for p in range(pane - window_ms // PANE_MS, pane + 1) if p in panes)


def as_of(versions, record):
    """The number of the click that `enrich` finds: the newest by event time that is not after the impression's, of
    those that had come; the later one of equal times."""
    found = [(time, came, n) for came, (time, n) in enumerate(versions[record["item"]])
             if record["ts"] - WINDOWS_MS["2m"] <= time <= record["ts"]]
    return max(found)[2] if found and record["item"] is not None else None


def reference(streams):
    """{n: the count features of impression n, and what it is joined with}, from the one order: time, then partition,
    then place."""
    merged = [(time, part, place) for part, records in enumerate(streams)
              for place, time in enumerate(order_times(records))]
    passing = set(deduplicated(streams[0]))
    imps, clicks = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    versions = collections.defaultdict(list)
    out = {}
    for _, part, place in sorted(merged):
        record = streams[part][place]
        time = time_of(record)
        if time is None or (part == 0 and place not in passing):
            continue
        pane = time // PANE_MS
        if part > 0:
            clicks[record["item"]][pane] += 1
            versions[record["item"]].append((time, place))
            continue
        out[place] = {f"{name}_{w}": window_count(panes[record["item"]], pane, ms)
                      for name, panes in (("imps", imps), ("clicks", clicks)) for w, ms in WINDOWS_MS.items()}
        out[place] |= {"last_click": as_of(versions, record), "shop": SHOPS.get(record["item"])}
        imps[record["item"]][pane] += 1
    return out


def check_reference(streams, found):
    """The number of rows whose window has clicks."""
    expected = reference(streams)
    numbers = [n for n, _ in found["features"]]
    if numbers != sorted(expected):
        raise Failure(f"{len(numbers)} rows, expected {len(expected)} in the order of their records")
    with_clicks = 0
    for n, line in found["features"]:
        row = json.loads(line)
        if any(row[key] != value for key, value in expected[n].items()):
            raise Failure(f"expected {expected[n]}, found {line.decode()}")
        with_clicks += row["clicks_2m"] > 0
    return with_clicks


# --- the test


def test_seed(leat, folder, seed, totals):
    rng = random.Random(seed)
    is_late = seed % 4 == 0
    delay_ms = LATE_MS if is_late else DELAY_MS
    streams = make_streams(rng, seed, delay_ms)
    base = run(leat, os.path.join(folder, "base"), streams, 1, is_late)
    if not is_late:
        totals["rows with clicks"] += check_reference(streams, base)
    if run(leat, os.path.join(folder, "base-3"), streams, 3, is_late) != base:
        raise Failure("three lanes give other rows than one")
    check_temporal(leat, folder, rng, streams, base, totals, is_late)
    for number in range(PERTURBATIONS):
        cut, perturbed = perturb(rng, streams, number, delay_ms)
        workers = 1 if (seed + number) % 2 else 3
        found = run(leat, os.path.join(folder, f"perturbed-{number}"), perturbed, workers, is_late)
        earlier, same = rows(base, "features", 0, cut), rows(found, "features", 0, cut)
        if earlier != same:
            raise Failure(f"perturbation {number}: rows before record {cut} changed: "
                          f"{first_differences(earlier, same)}")
        for sink, step in sinks().items():
            earlier_rows, same_rows = sorted(rows(base, sink, 0, cut)), sorted(rows(found, sink, 0, cut))
            if earlier_rows != same_rows:
                raise Failure(f"perturbation {number}: `impressions | {step}`: rows before record {cut} changed: "
                              f"{first_differences(earlier_rows, same_rows)}")
            totals[sink] += len(earlier_rows)
        totals["earlier rows"] += len(earlier)
        totals["changed later"] += rows(base, "features", cut, 1 << 60) != rows(found, "features", cut, 1 << 60)
        totals["leaks seen"] += sorted(rows(base, "leaky", 0, cut)) != sorted(rows(found, "leaky", 0, cut))


def check_temporal(leat, folder, rng, streams, base, totals, is_late):
    """Rows of temporal joins up to a time, when only what has a later event time is another."""
    moment, perturbed = change_later(rng, streams)
    found = run(leat, os.path.join(folder, "later"), perturbed, 2, is_late)
    for sink in (sink for sink in sinks() if any(sink.startswith(f"p_{name}_") for name in TEMPORAL)):
        before, after = (sorted(line for n, line in out[sink] if streams[0][n]["ts"] <= moment) for out in (base, found))
        if before != after:
            raise Failure(f"`{sinks()[sink]}`: rows up to {moment} depend on later event times: {first_differences(before, after)}")
        totals["temporal rows"] += len(before)
        totals["temporal changes"] += sorted(base[sink]) != sorted(found[sink])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="NAME", help="this operator, beside the features")
    parser.add_argument("--folder", default="build/future")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    totals = collections.Counter()
    failed = 0
    take_examples(leat)
    if arguments.only in AHEAD:
        print(f"ok - future: `{arguments.only}` may see what comes later: {AHEAD[arguments.only]}")
        return 0
    for name in set(POINT_IN_TIME) - {arguments.only} if arguments.only else ():
        POINT_IN_TIME[name] = []
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        place = os.path.join(folder, f"seed-{seed}")
        try:
            test_seed(leat, place, seed, totals)
        except Failure as failure:
            failed += 1
            print(f"not ok - future: seed {seed} (its files: {place}): {failure}")
        else:
            print(f"ok - future: seed {seed}")
            if not arguments.keep:
                shutil.rmtree(place, ignore_errors=True)
        sys.stdout.flush()
    runs = PERTURBATIONS * arguments.seeds
    wanted = {sink: 20 * runs for sink in sinks()}
    wanted |= {"earlier rows": 100 * runs, "rows with clicks": 20 * arguments.seeds, "changed later": runs // 2, "leaks seen": runs // 4}
    if arguments.only in (None, *TEMPORAL):
        wanted |= {"temporal rows": 50 * arguments.seeds, "temporal changes": arguments.seeds // 2}
    for what, least in wanted.items():
        failed += totals[what] < least
        print(f"{'ok' if totals[what] >= least else 'not ok'} - future: the test can fail: {what}: {totals[what]}, "
              f"at least {least}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
