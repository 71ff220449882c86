#!/usr/bin/env python3
"""Makes the files of this folder again: excerpts of recordings that somebody else made, and ratings that nobody gave.

    tests/data/excerpts.py RECORDINGS      a folder with the whole recordings, as tests/data/README.md names them

What is taken depends on the records alone, so the rows come out the same.
"""

import collections
import csv
import gzip
import io
import json
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b|\b[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{0,4}){4,}\b")
WIKI_COLUMNS = ("time", "channel", "page", "user", "added", "deleted", "delta", "isRobot", "isNew", "namespace")
WIKI_BUSY, WIKI_ONE_IN = 15, 40  # edits of a page of which all are taken; of the others so many
RETAIL_ONE_IN, RETAIL_NOBODY_ONE_IN = 30, 400  # customers; lines without one
BANDIT_ROWS = 3000
BEAUTY_ITEMS, BEAUTY_EVENTS = 300, 5  # the busiest items; events of a user whose events are taken
USERS, ITEMS, RATINGS, TASTES, SEED = 60, 200, 8000, 3, 20 # of the ratings


def write(name, text, compressed=True):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = text.encode()
    if compressed:
        out = io.BytesIO()
        with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
            file.write(data)
        data = out.getvalue()
    with open(path, "wb") as file:
        file.write(data)
    print(f"{name}: {len(data):,} bytes, {text.count(chr(10)):,} lines")


def wikiticker(folder):
    with gzip.open(os.path.join(folder, "wikiticker", "wikiticker.jsonl.gz"), "rt", encoding="utf-8") as file:
        edits = [json.loads(line) for line in file]
    edits = [e for e in edits if not e["isAnonymous"] and not ADDRESS.search(e["page"] + " " + e["user"])]
    pages = collections.Counter(e["page"] for e in edits)
    taken = [e for i, e in enumerate(edits) if pages[e["page"]] >= WIKI_BUSY or i % WIKI_ONE_IN == 0]
    write("wikiticker/wikiticker.jsonl.gz", "".join(
        json.dumps({c: e[c] for c in WIKI_COLUMNS}, ensure_ascii=False, separators=(",", ":")) + "\n" for e in taken))


def online_retail(folder):
    out = io.StringIO()
    with gzip.open(os.path.join(folder, "online_retail", "2010-12_2011-06.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(next(rows))
        for i, row in enumerate(rows):
            customer = row[6].split(".")[0]
            if (int(customer) % RETAIL_ONE_IN == 0) if customer else i % RETAIL_NOBODY_ONE_IN == 0:
                writer.writerow(row)
    write("online_retail/2010-12_2011-06.csv.gz", out.getvalue())


def obd_men_random(folder):
    out = io.StringIO()
    with gzip.open(os.path.join(folder, "obd_men_random", "men.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        writer = csv.writer(out, lineterminator="\n")
        names = next(rows)
        kept = [i for i, name in enumerate(names) if not name.startswith("user-item_affinity")]
        writer.writerow([names[i] for i in kept])
        for _, row in zip(range(BANDIT_ROWS), rows):
            writer.writerow([row[i] for i in kept])
    write("obd_men_random/men.csv.gz", out.getvalue())


def otto(folder):
    with open(os.path.join(folder, "otto", "sessions.jsonl"), encoding="utf-8") as file:
        write("otto/sessions.jsonl", file.read(), compressed=False)


def beauty(folder):
    """The recording has the users one behind the other, without times. Here they come side by side: first the first event of
    each, then the second of each; the place in its user's history stands for the time."""
    histories = collections.defaultdict(list)
    with gzip.open(os.path.join(folder, "beauty", "beauty.txt.gz"), "rt", encoding="ascii") as file:
        for line in file:
            user, item = map(int, line.split())
            histories[user].append(item)
    items = collections.Counter(item for events in histories.values() for item in events)
    busy = set(sorted(items, key=lambda item: (-items[item], item))[:BEAUTY_ITEMS])
    kept = {user: [item for item in events if item in busy] for user, events in histories.items()}
    rows = sorted((place, user, item) for user, events in kept.items() if len(events) >= BEAUTY_EVENTS
                  for place, item in enumerate(events))
    write("beauty/beauty.csv.gz", "place,user,item\n" + "".join(f"{place},{user},{item}\n" for place, user, item in rows))


def ratings():
    """Users with tastes rate items with traits: what a factorization finds. By user, then item, as ratings are stored."""
    rng = random.Random(SEED)
    users = [(rng.gauss(0, 0.8), [rng.gauss(0, 0.7) for _ in range(TASTES)]) for _ in range(USERS)]
    items = [(rng.gauss(0, 0.5), [rng.gauss(0, 0.7) for _ in range(TASTES)]) for _ in range(ITEMS)]
    given = {}
    while len(given) < RATINGS:
        user, item = rng.randrange(USERS), int(ITEMS * rng.random() ** 2)
        (own, tastes), (quality, traits) = users[user], items[item]
        stars = 3.4 + own + quality + sum(a * b for a, b in zip(tastes, traits)) + rng.gauss(0, 0.3)
        given[user, item] = (min(max(round(stars * 2) / 2, 0.5), 5.0), 1_600_000_000 + rng.randrange(60 * 86400))
    write("ratings/ratings.csv.gz", "userId,movieId,rating,timestamp\n" + "".join(
        f"{user + 1},{item + 1},{stars},{time}\n" for (user, item), (stars, time) in sorted(given.items())))


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    wikiticker(sys.argv[1])
    online_retail(sys.argv[1])
    obd_men_random(sys.argv[1])
    otto(sys.argv[1])
    beauty(sys.argv[1])
    ratings()


if __name__ == "__main__":
    main()
