"""Row of the table: what `correct` (logQ) gains, and what items get that nobody has chosen, in a planted catalogue.

100,000 items, chosen by Zipf's law with exponent 1.1, in groups that their brand and category tell together. Each of 5,000
users likes a group, and takes nine of ten items from it. One item in 50 is never chosen before the tests. In the tests half
of the items are such ones. Recall@100 is hr_100: one item is right for an event."""

import bisect
import csv
import json
import os
import random

from harness import Figure, Peer

ITEMS, USERS, EVENTS, TESTS, GROUP, ZIPF, OWN = 100_000, 5_000, 400_000, 10_000, 144, 1.1, 0.9
GROUPS = ITEMS // GROUP
BRANDS = 26  # brand and category: about as many of each
GAIN, COLD = 1.1, 0.5  # what must be reached: recall beside that without `correct`; of items never chosen, beside chosen ones


class World:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        weights = [1 / (place + 1) ** ZIPF for place in range(ITEMS)]
        self.rng.shuffle(weights)
        self.items = {True: [], False: []}  # by whether they are never chosen: the items of each group, their sums of weights
        for group in range(GROUPS):
            for is_cold in (True, False):
                items = [item for item in range(group * GROUP, (group + 1) * GROUP) if (item % 50 == 7) == is_cold]
                sums, total = [], 0.0
                for item in items:
                    total += weights[item]
                    sums.append(total)
                self.items[is_cold].append((items, sums))
        self.likes = [self.rng.randrange(GROUPS) for _ in range(USERS)]

    def draw(self, user, is_cold):
        group = self.likes[user] if self.rng.random() < OWN else self.rng.randrange(GROUPS)
        items, sums = self.items[is_cold][group]
        return items[min(bisect.bisect(sums, self.rng.random() * sums[-1]), len(items) - 1)]

    def write_views(self, path, events):
        recent = [[] for _ in range(USERS)]
        with open(path, "w", encoding="ascii") as file:
            for number in range(events + 2 * TESTS):
                user, is_test = self.rng.randrange(USERS), number >= events
                part = ("warm", "cold")[number % 2] if is_test else "train"
                item = self.draw(user, part == "cold")
                row = {"ts": 1000 + number, "user": user, "item": item, "recent": recent[user], "part": part}
                file.write(json.dumps(row) + "\n")
                if not is_test:
                    recent[user] = (recent[user] + [item])[-5:]


def write_catalogue(path):
    with open(path, "w", encoding="ascii") as file:
        for item in range(GROUPS * GROUP):
            group = item // GROUP
            file.write(json.dumps({"ts": 999, "item": item, "brand": group % BRANDS, "cat": group // BRANDS}) + "\n")


def recalls(bench, views, catalogue, is_corrected):
    out = bench.path("towers.csv")
    run = bench.run_job("towers.leat", viewed=views, items=catalogue, out=out, correct="true" if is_corrected else "false")
    with open(out, encoding="utf-8", newline="") as file:
        found = {row["part"]: float(row["hr_100"]) for row in csv.DictReader(file) if row["scope"] == "value"}
    os.remove(out)
    return run, found


def row_planted(bench):
    views = bench.made("towers-views.jsonl", lambda path: World(11).write_views(path, EVENTS))
    catalogue = bench.made("towers-catalogue.jsonl", write_catalogue)
    run, found = recalls(bench, views, catalogue, True)
    _, plain = recalls(bench, views, catalogue, False)
    note = f"Without: {plain['warm']:.3f} and {plain['cold']:.3f}; {run.cpu:.0f} CPU s."
    return [Figure("two_tower, planted catalogue, with `correct`", "recall@100", found["warm"], GAIN * plain["warm"], runs=[run],
                   peers=[Peer("without `correct`", plain["warm"], "same run")], note=note),
            Figure("two_tower, planted catalogue, items that nobody chose", "recall@100", found["cold"], COLD * found["warm"],
                   peers=[Peer("items that were chosen", found["warm"], "same run")], note=note)]


ROWS = {"towers-planted": ("two towers over a planted catalogue: what `correct` gains, and items never chosen", row_planted)}
