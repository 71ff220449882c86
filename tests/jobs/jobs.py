#!/usr/bin/env python3
"""Runs each sample job and compares what it says with a computation of its own.

    tests/jobs/jobs.py --leat build/release/leat [--only NAME] [--folder DIR] [--keep]

Jobs on recordings run as they stand, on the excerpts of tests/data, and where ../shared/data has the whole recordings on
those, too, as RECORDINGS says. The others run on streams made here, some with planted duplicates, late and broken lines.
Prints TAP lines.
"""

import argparse
import base64
import collections
import datetime
import glob
import gzip
import json
import math
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

from common import (DAY, EPOCH, HOUR, JOBS, MINUTE, ROOT, Failure, Test, counts, entropy, expect, expect_logloss, expect_rows,
                    expect_within, generate, good_records, milliseconds_of, read_csv, read_json, seconds_of)
from early import test_ctr_fresh, test_recency
from funnel import test_funnel

# Where a job's recording lies below tests/data, and the whole of it below ../shared/data.
EXCERPTS = os.path.join(ROOT, "tests", "data")
RECORDINGS = os.environ.get("LEAT_RECORDINGS", os.path.normpath(os.path.join(ROOT, "..", "shared", "data")))
OF_JOBS = {
    "wiki_edits": ("wikiticker/wikiticker.jsonl.gz",) * 2,
    "sessions": ("otto/sessions.jsonl",) * 2,
    "baskets": ("otto/sessions.jsonl",) * 2,
    "retail": ("online_retail/2010-12_2011-06.csv.gz",) * 2,
    "movielens": ("ratings/ratings.csv.gz", "ml_latest_small/ratings.csv.gz"),
    "bandit": ("obd_men_random/men.csv.gz",) * 2,
}
EVENTS, CLEAN_EVENTS = 60_000, 20_000
# Published for this recording in Apache Druid's tutorial "Query data" (version 0.13 to 0.22): SUM(deleted) by hour, and the
# ten pages with the most edits.
WIKI_DELETED = [1761, 16208, 14543, 13101, 12040, 6399, 9036, 11409, 11616, 17509, 19406, 16284, 18672, 30520, 18025, 26399,
                24759, 19634, 17345, 19305, 22265, 16394, 16379, 15289]
WIKI_BUSIEST = [
    ("Wikipedia:Vandalismusmeldung", 33), ("User:Cyde/List of candidates for speedy deletion/Subpage", 28),
    ("Jeremy Corbyn", 27), ("Wikipedia:Administrators' noticeboard/Incidents", 21), ("Flavia Pennetta", 20),
    ("Total Drama Presents: The Ridonculous Race", 18), ("User talk:Dudeperson176123", 18),
    ("Wikip\u00e9dia:Le Bistro/12 septembre 2015", 18), ("Wikipedia:In the news/Candidates", 17),
    ("Wikipedia:Requests for page protection", 17),
]
# operators/aggregate/distinct.c: exact up to 512 values, then a standard error of 1.04 / sqrt(4096).
DISTINCT_EXACT, DISTINCT_ERROR = 512, 1.04 / 64


# --- on recordings


def run_on(test, name, path):
    """The job on the whole recording, or, without a word about its data, on the excerpt that it names itself."""
    if path.startswith(EXCERPTS):
        with open(os.path.join(JOBS, name + ".leat"), encoding="utf-8") as file:
            expect(f"{name}.leat: the excerpts that it names", re.findall(r'"(tests/data/[^"]*)"', file.read()),
                   [os.path.relpath(path, ROOT)])
        return test.run(name, at=ROOT)
    return test.run(name, "--set", f"data={path}")


def is_whole(path):
    return not path.startswith(EXCERPTS)


def test_wiki_edits(test, path):
    run_on(test, "wiki_edits", path)
    hours = collections.defaultdict(list)
    channels, pages = collections.defaultdict(lambda: [0, 0]), collections.Counter()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for edit in map(json.loads, file):
            hour = seconds_of(edit["time"]) // HOUR
            hours[hour].append(edit)
            channels[edit["channel"], hour][0] += 1
            channels[edit["channel"], hour][1] += edit["added"]
            pages[edit["page"], hour] += 1
    found = read_json(test.place("wiki_edits", "hourly.jsonl"))
    expect("hours", [seconds_of(row["window_start"]) // HOUR for row in found], sorted(hours))
    expect("number of hours", len(found), 24)
    for row, (hour, edits) in zip(found, sorted(hours.items())):
        per_channel = collections.Counter(e["channel"] for e in edits)
        expected = {
            "edits": len(edits), "added": sum(e["added"] for e in edits), "deleted": sum(e["deleted"] for e in edits),
            "robots": sum(e["isRobot"] is True for e in edits),
            "top": [c for c, _ in sorted(per_channel.items(), key=lambda kv: (-kv[1], kv[0].encode()))[:3]],
        }
        expect_rows(f"hour {hour}", {key: row[key] for key in expected}, expected)
        users = len({e["user"] for e in edits})
        slack = 0 if users <= DISTINCT_EXACT else 4 * DISTINCT_ERROR * users
        expect_within(f"users of hour {hour}", row["users"], users - slack, users + slack)
    rows = read_csv(test.place("wiki_edits", "channels.csv"))
    expect("channel rows", len(rows), len(channels))
    expect_rows("channels", {(r["channel"], seconds_of(r["window_start"]) // HOUR): [int(r["edits"]), int(r["added"])]
                             for r in rows}, channels)
    rows = read_csv(test.place("wiki_edits", "pages.csv"))
    expect_rows("pages", {(r["page"], seconds_of(r["window_start"]) // HOUR): int(r["edits"]) for r in rows},
                {key: count for key, count in pages.items() if count >= 5})
    if is_whole(path):
        expect("published: deleted by hour", [row["deleted"] for row in found], WIKI_DELETED)
    busiest = [(r["page"], int(r["edits"])) for r in read_csv(test.place("wiki_edits", "busiest.csv"))]
    of_day = collections.Counter(edit["page"] for edits in hours.values() for edit in edits)
    expect("busiest pages", busiest, sorted(of_day.items(), key=lambda page: (-page[1], page[0].encode()))[:10])
    if is_whole(path):
        expect("published: busiest pages", busiest, WIKI_BUSIEST)
    return f"{len(found)} hours, {len(channels)} channel hours, {len(rows)} busy pages, the day's ten busiest"


def test_sessions(test, path):
    nodes = run_on(test, "sessions", path)
    expected = collections.defaultdict(collections.Counter)
    for session in read_json(path):
        for event in session["events"]:
            row = expected[event["aid"], event["ts"] // 1000 // DAY]
            row["events"] += 1
            row[event["type"]] += 1
    rows = read_csv(test.place("sessions", "items.csv"))
    expect("rows", len(rows), len(expected))
    kinds = ("events", "clicks", "carts", "orders")
    found = {(int(r["aid"]), seconds_of(r["window_start"]) // DAY): [int(r[k]) for k in kinds] for r in rows}
    expect_rows("items", found, {key: [row[k] for k in kinds] for key, row in expected.items()})
    expect("events", counts(nodes, "events", "unnest")["emitted"], sum(row["events"] for row in expected.values()))
    return f"{len(rows)} items and days"


def slow_acts(acts):
    """(those that go on, those beyond): at most 10 of a session in any minute, [t, t + 1 min), by event time."""
    went_on, kept, beyond = collections.defaultdict(list), [], []
    for act in acts:
        times = sorted([*went_on[act["session"]], act["ts"]])
        if any(sum(t <= other < t + MINUTE * 1000 for other in times) > 10 for t in times):
            beyond.append(act)
        else:
            went_on[act["session"]] = times
            kept.append(act)
    return kept, beyond


def abandoned_carts(acts):
    """{(session, aid, time of the cart): time of the view}, each item of a session by itself: the latest view before a
    cart, within the hour; not if an order follows before the hour after the view is over. Until then nothing begins."""
    found, rows = {}, collections.defaultdict(list)
    for act in acts:
        rows[act["session"], act["aid"]].append((act["ts"], act["type"]))
    for (session, aid), events in rows.items():
        view, waits = None, None  # waits: (view, cart)
        for time, kind in events:
            if waits and time > waits[0] + HOUR * 1000:
                found[session, aid, waits[1]], waits = waits[0], None
            if waits and kind == "orders":
                waits = None
            elif not waits and kind == "clicks":
                view = time
            elif not waits and kind == "carts" and view is not None and time <= view + HOUR * 1000:
                waits, view = (view, time), None
        if waits:
            found[session, aid, waits[1]] = waits[0]
    return found


def test_baskets(test, path):
    run_on(test, "baskets", path)
    acts = [{**event, "session": session["session"]} for session in read_json(path)
            for event in session["events"]]
    kept, beyond = slow_acts(acts)
    rows = read_csv(test.place("baskets", "hasty.csv"))
    expect_rows("hasty", {(int(r["session"]), seconds_of(r["window_start"]) // DAY): int(r["beyond"]) for r in rows},
                collections.Counter((a["session"], a["ts"] // 1000 // DAY) for a in beyond))
    carts = read_csv(test.place("baskets", "abandoned.csv"))
    found = {(int(r["session"]), int(r["aid"]), r["cart_time"]): r["view_time"] for r in carts}
    expected = abandoned_carts(kept)
    expect("abandoned carts", len(carts), len(expected))
    expect_rows("abandoned", {(s, a, milliseconds_of(t)): milliseconds_of(v) for (s, a, t), v in found.items()}, expected)
    days = collections.defaultdict(list)
    for act in kept:
        days[act["type"], act["ts"] // 1000 // DAY].append(act)
    rows = read_csv(test.place("baskets", "days.csv"))
    expect_rows("days", {(r["type"], seconds_of(r["window_start"]) // DAY):
                         tuple(int(r[c]) for c in ("events", "sessions", "items", "latest")) for r in rows},
                {key: (len(acts), len({a["session"] for a in acts}), len({a["aid"] for a in acts}),
                       max(acts, key=lambda a: a["ts"])["aid"]) for key, acts in days.items()})
    return f"{len(carts)} abandoned carts, {len(beyond)} of {len(acts)} acts too fast, {len(rows)} days of a kind"


def retail_invoices(lines):
    """({invoice: the row of its first good line, with features}, good lines) by the rule of operators/window/feature.c: panes
    of an hour by event time; a row reads its own pane and the N before it, as they stand when it comes."""
    history, first, number, out = collections.defaultdict(list), {}, collections.Counter(), {}
    good = 0
    for line in lines:
        if (line["InvoiceNo"].startswith("C") or not line["CustomerID"] or float(line["UnitPrice"]) <= 0
                or int(line["Quantity"]) <= 0):
            continue
        good += 1
        customer, invoice, time = line["CustomerID"], line["InvoiceNo"], seconds_of(line["InvoiceDate"])
        before = history[customer]
        if not (invoice in first and abs(time - first[invoice]) < DAY):
            first[invoice] = time
            number[customer] += 1
            row = {"customer": customer, "time": time, "nth": number[customer], "since": None}
            for days in (7, 30, 90):
                seen = [b for b in before if time // HOUR - days * 24 <= b[0] // HOUR <= time // HOUR]
                row[f"lines_{days}d"] = len(seen)
                row[f"spend_{days}d"] = math.fsum(b[1] for b in seen)
                row[f"goods_{days}d"] = len({b[2] for b in seen})
                row["since"] = (time - max(b[0] for b in seen)) * 1_000_000 if seen else None
            out[invoice, time] = row
        before.append((time, int(line["Quantity"]) * float(line["UnitPrice"]), line["StockCode"]))
    return out, good


def test_retail(test, path):
    nodes = run_on(test, "retail", path)
    lines = read_csv(path)
    expected, good = retail_invoices(lines)
    passed = counts(nodes, "clean_lines", "where")
    expect("lines", counts(nodes, "lines", "file")["passed"], len(lines))
    expect("good lines", (passed["passed"], passed["filtered"]), (good, len(lines) - good))
    unique = counts(nodes, "invoices", "dedup")
    expect("invoices", (unique["passed"], unique["duplicate"]), (len(expected), good - len(expected)))
    times = {(row["customer"], row["nth"]): row["time"] for row in expected.values()}
    found = read_json(test.place("retail", "predictions.jsonl"))
    expect("predictions", len(found), len(expected))
    for row in found:
        key = row["InvoiceNo"], seconds_of(row["InvoiceDate"])
        wanted = dict(expected[key])
        next_time = times.get((wanted["customer"], wanted["nth"] + 1))
        wanted["returned"] = int(next_time is not None and next_time <= wanted["time"] + 28 * DAY)
        for days in (7, 30, 90):
            spend = wanted.pop(f"spend_{days}d")
            expect_within(f"spend_{days}d of {key}", row[f"spend_{days}d"], spend * (1 - 1e-9), spend * (1 + 1e-9))
            if wanted[f"goods_{days}d"] > DISTINCT_EXACT:
                goods = wanted.pop(f"goods_{days}d")
                expect_within(f"goods_{days}d of {key}", row[f"goods_{days}d"], goods * (1 - 4 * DISTINCT_ERROR),
                              goods * (1 + 4 * DISTINCT_ERROR))
        del wanted["customer"], wanted["time"]
        expect_rows(f"invoice {key}", {k: row[k] for k in wanted}, wanted)
    rate = sum(row["returned"] for row in found) / len(found)
    loss = expect_logloss(nodes, "linear", [(row["returned"], row["prediction"]) for row in found], 0.3, entropy(rate))
    return f"{len(found)} invoices of {good} good lines; logloss {loss:.4f}, base rate {entropy(rate):.4f}"


def baseline_rmse(ratings):
    """Progressive: the item's mean so far, drawn to the mean of all by three ratings."""
    total, items, squares = 0.0, collections.defaultdict(lambda: [0.0, 0]), 0.0
    for i, (_, item, rating, _) in enumerate(ratings):
        mean = total / i if i else 3.5
        item_sum, item_count = items[item]
        squares += ((item_sum + 3 * mean) / (item_count + 3) - rating) ** 2
        total += rating
        items[item] = [item_sum + rating, item_count + 1]
    return math.sqrt(squares / len(ratings))


def test_movielens(test, path):
    nodes = run_on(test, "movielens", path)
    ratings = [(int(r["userId"]), int(r["movieId"]), float(r["rating"]), int(r["timestamp"])) for r in read_csv(path)]
    ratings.sort(key=lambda r: r[3])
    rows = read_csv(test.place("movielens", "predictions.csv"))
    found = [(int(r["userId"]), int(r["movieId"]), float(r["rating"]), seconds_of(r["timestamp"])) for r in rows]
    if found != ratings:
        raise Failure(f"{len(found)} predictions are not the {len(ratings)} ratings in order of time, then of the file")
    rmse = math.sqrt(sum((float(r["prediction"]) - float(r["rating"])) ** 2 for r in rows) / len(rows))
    expect_within("rmse in the summary", nodes[("model", "mf")][0]["report"]["run"]["rmse"], rmse - 1e-6, rmse + 1e-6)
    baseline = baseline_rmse(ratings)
    expect_within("rmse", rmse, 0.5, baseline - 0.02)
    return f"{len(rows)} ratings in time order; rmse {rmse:.4f}, of means alone {baseline:.4f}"


def test_next_item(test):
    """Ranks, lists and figures fit each other and the recording; and what is taken next is found more often than by taking
    what is taken most."""
    events = [(int(r["place"]), int(r["user"]), int(r["item"])) for r in read_csv(os.path.join(EXCERPTS, "beauty", "beauty.csv.gz"))]
    nodes = test.run("next_item", at=ROOT)
    rows = read_json(test.place("next_item", "lists.jsonl"))
    expect("events", [(seconds_of(row["place"]), row["user"], row["item"]) for row in rows], events)
    taken, seen, ranked, popular = collections.Counter(), collections.defaultdict(list), [], []
    for row in rows:
        user, item = row["user"], row["item"]
        window = seen[user][-25:]  # `history: 50`: what is surely in it, whichever half has gone
        if not seen[user]:
            expect("rank and list of a user's first event", (row["rank"], row["top"]), (None, None))
        elif row["rank"] is not None and row["rank"] <= 10 and row["rank"] == int(row["rank"]):
            expect("the item at its rank", row["top"][int(row["rank"]) - 1]["item"], item)
        elif row["rank"] is not None and row["rank"] > 11 and item in [one["item"] for one in row["top"]]:
            raise Failure(f"an item of rank {row['rank']} is among ten: {row}")
        if row["top"] is not None:
            scores = [one["score"] for one in row["top"]]
            expect("order of a list", scores, sorted(scores, reverse=True))
            expect("items of the user's own in its list", [one["item"] for one in row["top"] if one["item"] in window], [])
        if seen[user]:
            ranked.append(row["rank"] is not None and row["rank"] <= 10)
            popular.append(item in [best for best, _ in taken.most_common(10 + len(seen[user])) if best not in seen[user]][:10])
        seen[user].append(item)
        taken[item] += 1
    report = nodes[("model", "sasrec")][0]["report"]["run"]
    expect("examples", report["examples"], len(ranked))
    rate, base = sum(ranked) / len(ranked), sum(popular) / len(popular)
    expect_within("HR@10 in the summary", report["hr_10"] - rate, -1e-9, 1e-9)
    half = len(ranked) // 2
    late, late_base = sum(ranked[half:]) / (len(ranked) - half), sum(popular[half:]) / (len(ranked) - half)
    expect_within("HR@10 of the second half", late, late_base * 1.2, 0.5)
    last = read_csv(test.place("next_item", "metrics.csv"))[-1]
    expect_within("HR@10 in the last row of metrics", float(last["hr_10"]) - rate, -1e-9, 1e-9)
    return f"{len(rows)} events; HR@10 {rate:.3f} (popular items {base:.3f}), of the second half {late:.3f} ({late_base:.3f})"


def test_bandit(test, path):
    nodes = run_on(test, "bandit", path)
    found = read_json(test.place("bandit", "predictions.jsonl"))
    recorded = read_csv(path)
    expect("predictions", len(found), len(recorded))
    key = ("item_id", "position", "click")
    expect_rows("clicks by item and position", collections.Counter(tuple(row[k] for k in key) for row in found),
                collections.Counter(tuple(int(row[k]) for k in key) for row in recorded))
    rate = sum(row["click"] for row in found) / len(found)
    loss = expect_logloss(nodes, "ffm", [(row["click"], row["prediction"]) for row in found], 0.7 * entropy(rate),
                          1.2 * entropy(rate))
    return f"{len(found)} impressions; logloss {loss:.4f}, base rate {entropy(rate):.4f}"


# --- on generated streams


def ctr_features(impressions, clicks):
    """{imp_id: what jobs/ctr.leat must know of it}: rows in the order of time, impressions before clicks; panes of a
    minute; only what came before."""
    windows = {"1h": 60, "24h": 1440}
    shown, clicked = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    first, out = {}, {}
    rows = [(order, 0, i, r) for i, (order, r) in enumerate(impressions)]
    rows += [(order, 1, i, r) for i, (order, r) in enumerate(clicks)]
    for _, is_click, _, record in sorted(rows, key=lambda row: row[:3]):
        time, pane = record["ts"], record["ts"] // 60_000
        if is_click:
            clicked[record["item"]][pane] += 1
            continue
        if record["imp_id"] in first and abs(time - first[record["imp_id"]]) < HOUR * 1000:
            continue
        first[record["imp_id"]] = time
        row = out[record["imp_id"]] = {}
        for name, panes in (("imps", shown), ("clicks", clicked)):
            for window, n in windows.items():
                row[f"{name}_{window}"] = sum(k for p, k in panes[record["item"]].items() if pane - n <= p <= pane)
        shown[record["item"]][pane] += 1
    return out


def check_ctr_rows(test, found, truth):
    """Features and labels of the scored rows, and which rows there are."""
    columns = ("imp_id", "ts", "user", "item")
    impressions = good_records(test.place("ctr-data", "impressions.jsonl"), (*columns, "city", "hour"))
    clicks = good_records(test.place("ctr-data", "clicks.jsonl"), columns)
    for records, file in ((impressions, "impressions.jsonl"), (clicks, "clicks.jsonl")):
        expect(f"good lines of {file}", len(records), truth[file]["lines"] - truth[file]["malformed"])
    half = truth["late_ms"] // 2
    late = {r["imp_id"] for order, r in impressions if r["ts"] < order - half}
    in_time = {r["imp_id"]: r["ts"] for order, r in clicks if r["ts"] >= order - half}
    features = ctr_features(impressions, clicks)
    expect("late impressions", len(late), truth["impressions.jsonl"]["late"])
    expect("scored impressions", sorted(row["imp_id"] for row in found), sorted(set(features) - late))
    shown = {r["imp_id"]: r["ts"] for _, r in impressions}
    for row in found:
        wanted = dict(features[row["imp_id"]])
        at = in_time.get(row["imp_id"])
        wanted["clicked"] = int(at is not None and shown[row["imp_id"]] <= at <= shown[row["imp_id"]] + HOUR * 1000)
        wanted["ctr_24h"] = (wanted["clicks_24h"] + 1) / (wanted["imps_24h"] + 20)
        expect_rows(f"impression {row['imp_id']}", {k: row[k] for k in wanted}, wanted)


def check_dead_letters(test, path):
    """Each is JSON, and holds the record as it was, broken bytes too."""
    dead = read_json(path)
    lines = {}
    for name in ("impressions", "clicks"):
        with open(test.place("ctr-data", name + ".jsonl"), "rb") as file:
            lines[name] = file.read().split(b"\n")
    for row in dead:
        raw = row["raw"].encode() if row["raw_bytes"] is None else base64.b64decode(row["raw_bytes"])
        expect(f"record {row['record']} of {row['source']}", raw, lines[row["source"]][row["record"]])
    expect("dead letters that the summary shows", test.dead_examples,
           [f"{row['place']}: record {row['record']}: {row['step']}: {row['reason']}" for row in dead[:5]])


def test_ctr(test):
    truth = generate(test, "ctr-data", EVENTS, "--duplicates", "0.01", "--late", "0.01", "--malformed", "0.002")
    outputs = []
    for workers in (2, 3):
        out = test.place(f"ctr-{workers}")
        nodes = test.run("ctr", "--set", f"data={test.place('ctr-data')}", "--set", f"state={out}/state",
                         workers=workers, out=out)
        outputs.append([open(os.path.join(out, name), "rb").read() for name in ("scored.jsonl", "dead.jsonl")])
        check_dead_letters(test, os.path.join(out, "dead.jsonl"))
    if outputs[0] != outputs[1]:
        raise Failure("two lanes and three wrote different bytes")
    planted, clicks = truth["impressions.jsonl"], truth["clicks.jsonl"]
    for name, lines in (("impressions", planted), ("clicks", clicks)):
        source = counts(nodes, name, "file")
        expect(f"{name} read, broken", (source["in"], source["dead"]), (lines["lines"], lines["malformed"]))
    expect("dead letters", len(outputs[0][1].splitlines()), planted["malformed"] + clicks["malformed"])
    expect("duplicates", counts(nodes, "features", "dedup")["duplicate"], planted["duplicates"])
    join = counts(nodes, "examples", "attribute")
    expect("late impressions, clicks", (join["late"], join["late_updates"]), (planted["late"], clicks["late"]))
    found = [json.loads(line) for line in outputs[0][0].splitlines()]
    check_ctr_rows(test, found, truth)
    bayes, base = truth["bayes_logloss"], truth["base_rate_logloss"]
    loss = expect_logloss(nodes, "deepfm", [(row["clicked"], row["prediction"]) for row in found], bayes, base)
    return f"{len(found)} examples; logloss {loss:.4f} between {bayes} and {base}"


def test_ctr_labels(test):
    """Nothing planted: every click is within the hour, and truth.json knows how many are within half of it."""
    truth = generate(test, "clean-data", CLEAN_EVENTS)
    with open(os.path.join(JOBS, "ctr.leat"), encoding="utf-8") as file:
        text = file.read()
    expect("places of the label join's time", text.count("within 1h as clicked"), 1)
    job = test.place("ctr_30m.leat")
    with open(job, "w", encoding="utf-8") as file:
        file.write(text.replace("within 1h as clicked", "within 30m as clicked"))
    for name, path, clicks in (("an hour", os.path.join(JOBS, "ctr.leat"), truth["clicks"]),
                               ("half an hour", job, truth["clicks_within_30m"])):
        out = test.place("clean-" + name.replace(" ", "-"))
        test.run("ctr", "--set", f"data={test.place('clean-data')}", "--set", f"state={out}/state", job=path, out=out)
        found = read_json(os.path.join(out, "scored.jsonl"))
        expect("examples", len(found), CLEAN_EVENTS)
        expect(f"clicked within {name}", sum(row["clicked"] for row in found), clicks)
    return f"{truth['clicks']} clicks, {truth['clicks_within_30m']} within half an hour"


def labelled_test(name, kind, better_than=None):
    """The test of a job that learns from one file of labelled events; better_than: (job, kind) it must beat."""
    def test_labelled(test):
        data = name + "-data"
        truth = generate(test, data, EVENTS, "--labelled", "--malformed", "0.002", "--duplicates", "0.01")
        out = test.place(name + ".jsonl")
        nodes = test.run(name, "--set", f"data={test.place(data, 'ctr.jsonl')}", out=out)
        planted = truth["ctr.jsonl"]
        source = counts(nodes, "events", "file")
        expect("lines, broken ones", (source["in"], source["dead"]), (planted["lines"], planted["malformed"]))
        found = read_json(out)
        # No dedup here: a row that was written twice is learned twice.
        expect("predictions", len(found), planted["rows"] + planted["duplicates"])
        events = good_records(test.place(data, "ctr.jsonl"), ("ts", "user", "item", "clicked"))
        expect("rows in order", [(row["user"], row["item"], row["clicked"]) for row in found],
               [(r["user"], r["item"], r["clicked"]) for _, r in events])
        bayes, base = truth["bayes_logloss"], truth["base_rate_logloss"]
        if better_than:
            other = test.run(better_than[0], "--set", f"data={test.place(data, 'ctr.jsonl')}", out=out + ".other")
            base = other[("model", better_than[1])][0]["report"]["run"]["logloss"]
        loss = expect_logloss(nodes, kind, [(row["clicked"], row["prediction"]) for row in found], bayes, base)
        return f"{len(found)} events; logloss {loss:.4f} between {bayes} and {base}"
    return test_labelled


def test_ctr_mmoe(test):
    """Two labels: each has its predictions, which beat its own base rate, and its rows of metrics."""
    truth = generate(test, "ctr_mmoe-data", EVENTS, "--labelled")
    out = test.place("ctr_mmoe.jsonl")
    nodes = test.run("ctr_mmoe", "--set", f"data={test.place('ctr_mmoe-data', 'ctr.jsonl')}", out=out)
    found, report = read_json(out), nodes[("model", "mmoe")][0]["report"]["run"]
    expect("predictions", len(found), truth["ctr.jsonl"]["rows"])
    expect("labels", [row["top"] for row in found], [row["clicked"] == 1 and row["pos"] <= 0.5 for row in found])
    losses = []
    for label in ("clicked", "top"):
        values = [(float(row[label]), row["prediction_" + label]) for row in found]
        loss = sum(-math.log(p if y else 1 - p) for y, p in values) / len(values)
        rate = sum(y for y, _ in values) / len(values)
        expect_within(f"reported logloss of {label}", report[label + ".logloss"] - loss, -1e-6, 1e-6)
        expect_within(f"logloss of {label}", loss, 0.01, -rate * math.log(rate) - (1 - rate) * math.log(1 - rate))
        losses.append(f"{label} {loss:.4f}")
    with open(out + ".metrics", encoding="utf-8") as file:
        expect("labels of the metrics", [json.loads(line)["label"] for line in file][:2], ["clicked", "top"])
    check_shared_steps(test)
    return "logloss of " + ", ".join(losses)


def check_shared_steps(test):
    """Steps large enough for two lanes to share: the bytes of one lane."""
    with open(os.path.join(JOBS, "ctr_mmoe.leat"), encoding="utf-8") as file:
        text = file.read()
    expect("batches of the job", text.count("  batch: 128,"), 1)
    job, outputs = test.place("ctr_mmoe-wide.leat"), []
    with open(job, "w", encoding="utf-8") as file:
        file.write(text.replace("  batch: 128,", "  batch: 600,"))
    for workers in (1, 2):
        out = test.place(f"ctr_mmoe-wide-{workers}.jsonl")
        test.run("ctr_mmoe", "--set", f"data={test.place('ctr_mmoe-data', 'ctr.jsonl')}", job=job, workers=workers, out=out)
        with open(out, "rb") as file:
            outputs.append(file.read())
    if outputs[0] != outputs[1]:
        raise Failure("one lane and two wrote different bytes")


def chained_job(test):
    """jobs/ctr_best.leat with a second learner that reads the first one's predictions as a number."""
    with open(os.path.join(JOBS, "ctr_best.leat"), encoding="utf-8") as file:
        text = file.read()
    head, learner = text.split("learner model = fm from events")
    learner, sink = learner.split("sink predictions")
    expect("places of the job's settings", head.count("  workers: 2\n"), 1)
    expect("places of the dense features", learner.count("dense: ["), 1)
    head = head.replace("  workers: 2\n", "  workers: 2\n  checkpoint: { every: 10s, dir: state }\n")
    second = learner.replace("dense: [", "dense: [p, ")
    job = test.place("chained.leat")
    with open(job, "w", encoding="utf-8") as file:
        file.write(f"""param state: text = ""\n{head}
learner first = fm from events{learner}
stream one = first.predictions | with p = log(prediction / (1.0 - prediction)) | drop prediction
learner model = fm from one{second}
sink predictions{sink}""")
    return job


def test_chained(test):
    """A prediction derives from what came before its event, so that another learner may read it; and the two together
    are a function of the records: at any number of lanes, and stopped half way and resumed."""
    generate(test, "chained-data", CLEAN_EVENTS, "--labelled")
    data, job, outputs = test.place("chained-data", "ctr.jsonl"), chained_job(test), []
    with open(data, encoding="utf-8") as file:
        middle = EPOCH + datetime.timedelta(milliseconds=[json.loads(line)["ts"] for line in file][CLEAN_EVENTS // 2])
    for name, workers in (("one", 1), ("three", 3), ("resumed", 2)):
        out = test.place(f"chained-{name}.jsonl")
        settings = ["--set", f"data={data}", "--set", f"state={out}.state"]
        if name == "resumed":
            part = json.loads(test.call("run", job, "--json", "--workers", "1", "--set", f"out={out}", *settings, "--until",
                                        middle.isoformat(timespec="milliseconds") + "Z"))
            expect("finished half way", part["finished"], False)
        nodes = test.run("chained", *settings, job=job, workers=workers, out=out)
        for learner in ("first", "model"):
            expect(f"learned by {learner}", counts(nodes, learner, "fm")["absorbed"], CLEAN_EVENTS)
        with open(out, "rb") as file:
            outputs.append(file.read())
    if outputs[0] != outputs[1] or outputs[0] != outputs[2]:
        raise Failure("one lane, three lanes and a resumed run wrote different bytes")
    return f"{CLEAN_EVENTS} events through two learners, the same at 1 and 3 lanes and resumed"


# --- all jobs as files


def test_files(test):
    paths = sorted(glob.glob(os.path.join(JOBS, "*.leat")))
    tested = [name for name, _ in TESTS] + ["ctr_live"]  # that one by tests/kafka/test_readme.py
    expect("jobs without a test", [path for path in paths if os.path.basename(path)[:-5] not in tested], [])
    for path in paths:
        name = os.path.basename(path)
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        expect(f"{name}: opens with three lines that say what it shows", [line[:2] for line in lines[:4]],
               ["# ", "# ", "# ", ""])
        test.call("check", path)
        test.call("fmt", "--check", path)
        plan = test.call("explain", path)
        for stream in [line.split()[1] for line in lines if line.startswith(("source ", "sink ", "learner "))]:
            if stream not in plan:
                raise Failure(f"leat explain says nothing of `{stream}` of {name}")
        root = ElementTree.fromstring(test.call("explain", "--svg", path))
        expect(f"{name}: the picture", root.tag, "{http://www.w3.org/2000/svg}svg")
    return f"{len(paths)} jobs checked, in their usual form, explained"


TESTS = [
    ("files", test_files),
    ("wiki_edits", test_wiki_edits),
    ("sessions", test_sessions),
    ("baskets", test_baskets),
    ("retail", test_retail),
    ("movielens", test_movielens),
    ("next_item", test_next_item),
    ("funnel", test_funnel),
    ("bandit", test_bandit),
    ("ctr", test_ctr),
    ("ctr_labels", test_ctr_labels),
    ("ctr_fresh", test_ctr_fresh),
    ("recency", test_recency),
    ("ctr_linear", labelled_test("ctr_linear", "linear")),
    ("chained", test_chained),
    ("ctr_afm", labelled_test("ctr_afm", "afm")),
    ("ctr_dcnv2", labelled_test("ctr_dcnv2", "dcnv2")),
    ("ctr_dlrm", labelled_test("ctr_dlrm", "dlrm")),
    ("ctr_mmoe", test_ctr_mmoe),
    ("ctr_best", labelled_test("ctr_best", "fm", ("ctr_linear", "linear"))),
]


def cases(name, function, leat, folder):
    """(what it is called, the test): once, or on the excerpt and on the whole recording, where that is there."""
    if name not in OF_JOBS:
        yield name, lambda: function(Test(leat, folder))
        return
    excerpt, whole = (os.path.join(at, path) for at, path in zip((EXCERPTS, RECORDINGS), OF_JOBS[name]))
    for path, what, place in ((excerpt, "", folder), (whole, " on the whole recording", os.path.join(folder, "whole"))):
        if path == excerpt or os.path.exists(path):
            os.makedirs(place, exist_ok=True)
            yield name + what, lambda path=path, place=place: function(Test(leat, place), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--only", choices=[name for name, _ in TESTS])
    parser.add_argument("--folder", default="build/jobs")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    failed = 0
    wanted = [test for test in TESTS if arguments.only in (None, test[0])]
    for name, test in [case for one in wanted for case in cases(*one, os.path.abspath(arguments.leat), folder)]:
        try:
            print(f"ok - jobs: {name}: {test()}")
        except Failure as failure:
            failed += 1
            print(f"not ok - jobs: {name} (files: {folder}): {failure}")
        sys.stdout.flush()
    if not arguments.keep and not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
