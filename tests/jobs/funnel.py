"""Tests of jobs/funnel.leat: what each visit is shown, computed once more from the recording; nothing of it knows what comes
later; a written-off good is in no list; and the same bytes at any number of lanes, replayed, and killed half way."""

import collections
import csv
import gzip
import json
import os
import subprocess

from common import DAY, HOUR, JOBS, ROOT, Failure, counts, expect, expect_rows, expect_within, read_csv, read_json, seconds_of
from patience import PATIENCE_S

DATA = os.path.join(ROOT, "tests", "data", "online_retail", "2010-12_2011-06.csv.gz")
FILES = ("lists.jsonl", "retrieval.csv", "ranking.csv", "candidates.jsonl", "examples.jsonl")
FEATURES = ("recent", "bought", "sold_7d", "sold_30d", "again")
RETRIEVED, SHOWN, RECENT = 200, 10, 20
# What the job keeps to itself.
SINKS = """
stream inside = candidates | select visit, item, recent, bought, sold_7d, sold_30d, again
sink inside = file from inside { path: concat(out, "/candidates.jsonl") }
stream labelled = examples | select visit, item, taken
sink labelled = file from labelled { path: concat(out, "/examples.jsonl") }
"""


def is_sale(line):
    return (not line["InvoiceNo"].startswith("C") and line["CustomerID"] and float(line["UnitPrice"]) > 0
            and int(line["Quantity"]) > 0)


def is_written_off(line):
    return float(line["UnitPrice"]) == 0 and not line["CustomerID"]


def within(panes, day, days):
    return sum(n for pane, n in panes.items() if day - days <= pane <= day)


class Shop:
    """What is known, line by line: of equal times visits come before what they bought."""

    def __init__(self, lines):
        self.lines = lines
        order, self.orders = 0, []
        for line in lines:
            order = max(order, seconds_of(line["InvoiceDate"]))
            self.orders.append(order)
        self.taken = collections.defaultdict(set)
        times = {}
        for line in lines:
            times.setdefault(line["InvoiceNo"], seconds_of(line["InvoiceDate"]))
            if is_sale(line) and 0 <= seconds_of(line["InvoiceDate"]) - times[line["InvoiceNo"]] <= HOUR:
                self.taken[line["InvoiceNo"]].add(line["StockCode"])

    def visits(self):
        """Each visit with what is known when it comes: (visit, its user's features, a function of an item's features, the
        goods that can be had)."""
        bought, sold, again = (collections.defaultdict(collections.Counter) for _ in range(3))
        recent, first, goods, at = collections.defaultdict(list), {}, set(), 0
        for line, order in zip(self.lines, self.orders):
            visit, user, time = line["InvoiceNo"], line["CustomerID"], seconds_of(line["InvoiceDate"])
            if visit.startswith("C") or not user or (visit in first and abs(time - first[visit]) < DAY):
                continue
            first[visit], day = time, time // DAY
            for before in self.lines[at:]:
                if self.orders[at] >= order:
                    break
                at += 1
                item, when = before["StockCode"], seconds_of(before["InvoiceDate"]) // DAY
                (goods.discard if is_written_off(before) else goods.add)(item)
                if is_sale(before):
                    bought[before["CustomerID"]][when] += 1
                    sold[item][when] += 1
                    again[before["CustomerID"], item][when] += 1
                    recent[before["CustomerID"]].append((seconds_of(before["InvoiceDate"]), item))
            latest = [item for when, item in sorted(recent[user], key=lambda one: one[0]) if when // DAY >= day - 90]
            mine = {"recent": latest[-RECENT:], "bought": within(bought[user], day, 90)}
            yield visit, mine, lambda item: {"sold_7d": within(sold[item], day, 7), "sold_30d": within(sold[item], day, 30),
                                             "again": within(again[user, item], day, 90)}, goods


def run(test, name, data=DATA, workers=2, options=(), killed=None):
    """Runs the job with SINKS; its nodes, and the bytes of its files."""
    out, job = test.place("funnel-" + name), test.place("funnel.leat")
    with open(os.path.join(JOBS, "funnel.leat"), encoding="utf-8") as file:
        text = file.read() + SINKS
    with open(job, "w", encoding="utf-8") as file:
        file.write(text)
    settings = ["--set", f"data={data}", "--set", f"state={out}/state", *options]
    if killed:
        done = subprocess.run([test.leat, "run", job, "--quiet", "--set", f"out={out}", "--set", "every=10ms", *settings],
                              env={**os.environ, "LEAT_FAILPOINTS": killed}, capture_output=True, timeout=PATIENCE_S, check=False)
        expect("killed by the failpoint", done.returncode, -9)
    nodes = test.run("funnel", *settings, job=job, workers=workers, out=out)
    contents = {}
    for file in FILES:
        with open(os.path.join(out, file), "rb") as opened:
            contents[file] = opened.read()
    return nodes, contents


def rows_of(contents, name):
    return [json.loads(line) for line in contents[name].splitlines()]


def check_rows(lines, contents):
    """Every candidate's features and label, every list. Returns the visits' precision among ten, and that of the ten most sold."""
    shop, candidates, shown = Shop(lines), collections.defaultdict(list), {}
    for row in rows_of(contents, "candidates.jsonl"):
        candidates[row["visit"]].append(row)
    for row in rows_of(contents, "lists.jsonl"):
        expect(f"lists of visit {row['visit']}", row["visit"] in shown, False)
        shown[row["visit"]] = row["best"]
    labels, found = {(row["visit"], row["item"]): row["taken"] for row in rows_of(contents, "examples.jsonl")}, []
    popular = collections.Counter()
    for visit, mine, of_item, goods in shop.visits():
        rows = candidates.pop(visit, [])
        items = [row["item"] for row in rows]
        expect(f"number of candidates of {visit}", len(set(items)), min(RETRIEVED, len(goods)))
        if set(items) - goods:
            raise Failure(f"visit {visit}: candidates that nobody can buy: {sorted(set(items) - goods)[:5]}")
        for row in rows:
            expect_rows(f"candidate {row['item']} of {visit}", {name: row[name] for name in FEATURES}, {**mine, **of_item(row["item"])})
            expect(f"label of {row['item']} of {visit}", labels.pop((visit, row["item"])), int(row["item"] in shop.taken[visit]))
        best = shown.pop(visit, [])
        scores = [one["prediction"] for one in best]
        expect(f"order of the list of {visit}", scores, sorted(scores, reverse=True))
        expect(f"length of the list of {visit}", len({one["item"] for one in best} & set(items)), min(SHOWN, len(items)))
        mean = [item for item, _ in popular.most_common(SHOWN)]
        found.append((len(shop.taken[visit] & {one["item"] for one in best}), len(shop.taken[visit] & set(mean))))
        popular.update(shop.taken[visit])
    expect("candidates, labels and lists of no visit", (len(candidates), len(labels), len(shown)), (0, 0, 0))
    later = found[len(found) // 2:]
    return [sum(column) / SHOWN / len(later) for column in zip(*later)]


def changed(test, lines):
    """(the place of the first line that is another, the lines, their file): a hundred goods are written off, for good, and what
    comes then is bought by others."""
    place = next(i for i in range(len(lines) // 2, len(lines)) if lines[i]["InvoiceDate"] != lines[i - 1]["InvoiceDate"])
    gone = [item for item, _ in collections.Counter(line["StockCode"] for line in lines[:place]).most_common(100)]
    off = [{**lines[place], "StockCode": item, "CustomerID": "", "UnitPrice": "0.0", "InvoiceNo": "off"} for item in gone]
    users = sorted({line["CustomerID"] for line in lines if line["CustomerID"]})
    other = {user: users[i - 1] for i, user in enumerate(users)}
    after = [{**line, "CustomerID": other.get(line["CustomerID"], "")} for line in lines[place:] if line["StockCode"] not in gone]
    path = test.place("changed.csv.gz")
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines[:place] + off + after)
    return place, set(gone), lines[:place] + off + after, path


def check_future(test, lines, contents):
    """Rows of visits before a moment do not change with what comes then."""
    place, gone, other, path = changed(test, lines)
    _, otherwise = run(test, "changed", data=path)
    before = {line["InvoiceNo"] for line in lines[:place]}
    for name in ("lists.jsonl", "candidates.jsonl"):
        mine, others = ([line for line in one[name].splitlines() if json.loads(line)["visit"] in before] for one in (contents, otherwise))
        expect(f"{name}: rows before the change that are others after it", [a for a, b in zip(mine, others) if a != b][:1], [])
        expect(f"{name}: rows before the change", len(mine), len(others))
        if len(mine) < 50 or contents[name] == otherwise[name]:
            raise Failure(f"{name}: {len(mine)} rows before the change, which shows nothing")
    check_rows(other, otherwise)
    after = {line["InvoiceNo"] for line in other if line["InvoiceDate"] > lines[place]["InvoiceDate"]}  # of its own minute: they come first
    rows = [row["visit"] in after for row in rows_of(otherwise, "candidates.jsonl") if row["item"] in gone]
    expect("written-off goods among the candidates after that", sum(rows), 0)
    expect_within("written-off goods among the candidates before", len(rows), 1000, RETRIEVED * len(before))


def test_funnel(test):
    lines = read_csv(DATA)
    nodes = test.run("funnel", "--set", f"state={test.place('funnel', 'state')}", at=ROOT)
    expect("lists", counts(nodes, "lists", "nest")["emitted"], len(read_json(test.place("funnel", "lists.jsonl"))))
    _, contents = run(test, "one", workers=1, options=("--record-order", test.place("order")))
    with open(test.place("funnel", "lists.jsonl"), "rb") as file:
        expect("lists of the job as it stands, and with sinks for what is inside", file.read() == contents["lists.jsonl"], True)
    for name, arguments in (("three", {"workers": 3}), ("replayed", {"options": ("--order", test.place("order"))}),
                            ("killed", {"killed": "ckpt.published=kill@1"})):
        _, other = run(test, name, **arguments)
        expect(f"files that differ {name}", [file for file in FILES if other[file] != contents[file]], [])
    precision, popular = check_rows(lines, contents)
    expect_within("goods of the lists that are bought, second half", precision, 1.5 * popular, 0.5)
    check_future(test, lines, contents)
    return (f"{len(rows_of(contents, 'lists.jsonl'))} lists; of ten goods {precision:.3f} are bought, of the ten most sold "
            f"{popular:.3f} (second half)")
