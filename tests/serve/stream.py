"""Two streams of events with all that makes answers differ: nulls, lists, new ids, duplicates, rows out of order and
late ones, and midnight in their middle."""

import json
import os
import random

START_MS = 1_700_006_400_000 - 40 * 60_000  # 40 minutes before midnight, UTC
STEP_MS = 2_000

SCHEMA = """schema: {
    id: int!, ts: time(ms), user: int, item: text, price: float, tags: list(int), liked: int, clicked: int
  }"""
CLICKS = "schema: { id: int, ts: time(ms), user: int, item: text }"
RATINGS = "schema: { ts: time(ms), item: text, stars: int }"


def maybe(rng, value, share=0.06):
    return None if rng.random() < share else value


def item_of(rng):
    """A few popular items, and ever new ones."""
    return f"i{int(rng.paretovariate(0.7)) % 4000}"


def when(rng, number):
    """Mostly in order; some rows are late, a few by more than any window."""
    late = rng.choice([0, 0, 0, 0, 0, 0, 1_500, 9_000, 70_000, 5_000_000])
    return START_MS + number * STEP_MS - late


def event(rng, number):
    number -= rng.random() < 0.05  # a duplicate id
    return {"id": number, "ts": when(rng, number), "user": maybe(rng, int(rng.paretovariate(0.8)) % 500),
            "item": maybe(rng, item_of(rng)), "price": maybe(rng, round(rng.uniform(0.0, 30.0), 2)),
            "tags": maybe(rng, [rng.randrange(40) for _ in range(rng.randrange(5))]),
            "liked": int(rng.random() < 0.3), "clicked": int(rng.random() < 0.2)}


def write(folder, count, seed):
    """Writes events.jsonl, clicks.jsonl, ratings.jsonl and table.csv. Returns the events."""
    rng = random.Random(seed)
    events = [event(rng, number) for number in range(count)]
    clicks = [{"id": e["id"], "ts": e["ts"] + 3_000, "user": e["user"], "item": e["item"]} for e in events if e["clicked"]]
    ratings = [{"ts": START_MS + number * 9_000, "item": item_of(rng), "stars": rng.randrange(1, 6)}
               for number in range(count // 4)]
    for name, rows in (("events", events), ("clicks", clicks), ("ratings", ratings)):
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="ascii") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    with open(os.path.join(folder, "table.csv"), "w", encoding="ascii") as file:
        file.write("item,cat\n" + "".join(f"i{n},c{n % 7}\n" for n in range(0, 200, 2)))
    return events
