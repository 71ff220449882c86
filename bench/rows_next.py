"""Rows of the table: the learner `sasrec` beside SASRec in PyTorch (peers/torch/sasrec.py), on one core.

Both learn the same windows of the recordings ../shared/data/beauty and games, and of made histories that are all of length
200; targets a CPU second count no padding. leat's time is that of the whole process: reading, histories, numbers, passes,
end. LEAT_TORCH names a Python with torch and numpy (peers/torch/README.md); without it the rows are skipped."""

import collections
import csv
import gzip
import json
import math
import os
import random

from harness import ROOT, Figure, Peer, Skip, median
from rows_torch import ONE_CORE, torch_python

PEER = os.path.join(ROOT, "bench", "peers", "torch", "sasrec.py")
DATA = os.path.join(ROOT, "..", "shared", "data")
BEAUTY, GAMES = os.path.join(DATA, "beauty", "beauty.txt.gz"), os.path.join(DATA, "games", "Video.txt.gz")
LONG_USERS, LONG, LONG_ITEMS = 1000, 200, 12_000
LIMIT = 4096  # users whose windows PyTorch learns where its speed alone is asked
SPEEDS = {"beauty": 5.0, "length 200": 2.0}  # times PyTorch
GAMES_PASSES = 8
POPULAR_EVERY = 2000  # events after which the most frequent items are counted again


def pairs_of(path):
    if not os.path.exists(path):
        raise Skip(f"{os.path.relpath(path, ROOT)} is not there")
    with gzip.open(path, "rt") as file:
        return [tuple(map(int, line.split())) for line in file]


def write_events(pairs, path):
    """As JSON lines in the order of places in the histories, merged over users: the place is the time."""
    users = {}
    for user, item in pairs:
        users.setdefault(user, []).append(item)
    with open(path, "w", encoding="ascii") as file:
        for place in range(max(map(len, users.values()))):
            for user, items in users.items():
                if place < len(items):
                    left = len(items) - place
                    part = "train" if left > 2 or len(items) < 3 else "valid" if left == 2 else "test"
                    file.write(json.dumps({"ts": 10**9 + 100 * place, "user": user, "item": items[place], "part": part}) + "\n")


def write_pairs(pairs, path):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{user} {item}\n" for user, item in pairs)


def long_pairs():
    rng = random.Random(3)
    return [(user, rng.randrange(LONG_ITEMS)) for user in range(LONG_USERS) for _ in range(LONG)]


def run_leat(bench, job, events, **settings):
    """The run, and the rows of its metrics by part."""
    out = bench.path("next.csv")
    run = bench.run_job(job, data=events, out=out, **settings)
    with open(out, encoding="utf-8", newline="") as file:
        return run, {row["part"]: row for row in csv.DictReader(file) if row["scope"] == "value"}


def run_torch(bench, pairs, *arguments):
    run = bench.run([*ONE_CORE, torch_python(), PEER, pairs, *arguments])
    return json.loads(run.output.splitlines()[-1])


def speed(bench, name, pairs, history):
    events = bench.made(f"next-{name.replace(' ', '-')}.jsonl", lambda path: write_events(pairs, path))
    plain = bench.made(f"next-{name.replace(' ', '-')}.pairs", lambda path: write_pairs(pairs, path))

    def leat():
        run, _ = run_leat(bench, "next_item.leat", events, history=history, rank_share=0.0001)
        return run, run.learner()["targets"] / run.cpu

    ours, theirs = bench.repeat(leat, lambda: run_torch(
        bench, plain, "--loss", "sampled_softmax", "--window", str(history), "--passes", "1", "--limit", str(LIMIT)))
    value, peer = median([rate for _, rate in ours]), median([found["targets_cpu_s"] for found in theirs])
    return Figure(f"sasrec, 256 negatives, {name}", "k targets/s", value / 1e3, SPEEDS[name] * peer / 1e3,
                  peers=[Peer("PyTorch, one thread", peer / 1e3, "same run")], runs=[run for run, _ in ours],
                  note=f"{value / peer:.1f} times PyTorch; {ours[0][0].learner()['targets']:.0f} targets in a pass.")


def row_next_item(bench):
    torch_python()
    return [speed(bench, "beauty", pairs_of(BEAUTY), 50), speed(bench, "length 200", long_pairs(), LONG)]


def row_games(bench):
    """One training of each: the standard error of HR@10 over the users is 0.0016."""
    torch_python()
    pairs = pairs_of(GAMES)
    events = bench.made("next-games.jsonl", lambda path: write_events(pairs, path))
    run, rows = run_leat(bench, "next_item_all.leat", events, passes=GAMES_PASSES)
    theirs = run_torch(bench, GAMES, "--passes", str(GAMES_PASSES))
    return [Figure(f"sasrec, softmax, games, {what} of the last items", what, float(rows["test"][key]), theirs["test"][name],
                   peers=[Peer("PyTorch", theirs["test"][name], "same run")], runs=[run],
                   note=f"{GAMES_PASSES} passes each; {run.learner()['targets']:.0f} targets, PyTorch {theirs['targets']}; "
                        f"{run.cpu:.0f} CPU s, PyTorch {theirs['cpu_s']:.0f} without reading and ranks.")
            for what, key, name in (("HR@10", "hr_10", "hr@10"), ("NDCG@10", "ndcg_10", "ndcg@10"))]


def ndcg(gains):
    """(mean, standard error) of NDCG@10."""
    mean = sum(gains) / len(gains)
    return mean, math.sqrt((sum(gain * gain for gain in gains) / len(gains) - mean * mean) / len(gains))


def popular_gains(events):
    """NDCG@10 of each event in the last fifth by the most frequent items until then, without those that the user had."""
    counts, seen, popular, gains = collections.Counter(), collections.defaultdict(set), [], []
    with open(events, encoding="ascii") as file:
        rows = [(row["user"], row["item"]) for row in map(json.loads, file)]
    for number, (user, item) in enumerate(rows):
        if number % POPULAR_EVERY == 0:
            popular = [found for found, _ in counts.most_common(400)]
        if number >= len(rows) - len(rows) // 5 and seen[user]:
            best = [found for found in popular if found not in seen[user]][:10]
            gains.append(1 / math.log2(2 + best.index(item)) if item in best else 0.0)
        counts[item] += 1
        seen[user].add(item)
    return gains


def once(bench, events, rehearse):
    out = bench.path(f"next-once-{rehearse}.csv")
    run = bench.run_job("next_item_once.leat", data=events, out=out, rehearse=rehearse)
    with open(out, encoding="utf-8", newline="") as file:
        ranks = [row["rank"] for row in csv.DictReader(file)]
    ranks = [float(rank) for rank in ranks[len(ranks) - len(ranks) // 5:] if rank]
    return run, ndcg([1 / math.log2(1 + rank) if rank <= 10 else 0.0 for rank in ranks])


def row_rehearse(bench):
    events = bench.made("next-beauty.jsonl", lambda path: write_events(pairs_of(BEAUTY), path))
    (_, plain), (run, again) = once(bench, events, 0), once(bench, events, 8)
    popular = ndcg(popular_gains(events))
    better = max(plain[0] + 2 * math.hypot(plain[1], again[1]), popular[0] + 2 * math.hypot(popular[1], again[1]))
    return [Figure("sasrec, one pass over beauty, rehearse: 8", "NDCG@10 of the last fifth", again[0], better, runs=[run],
                   peers=[Peer("rehearse: 0", plain[0], "same run"), Peer("popular items", popular[0], "same run")],
                   note=f"Standard errors {again[1]:.5f}, {plain[1]:.5f}, {popular[1]:.5f}; {run.cpu:.0f} CPU s.")]


ROWS = {"next-item": ("sasrec's targets a second beside PyTorch, on one core", row_next_item),
        "next-item-games": ("sasrec's lists beside PyTorch's, after the same passes", row_games),
        "next-item-rehearse": ("sasrec in one pass, with older windows again and without, beside popular items", row_rehearse)}
