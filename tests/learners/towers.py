#!/usr/bin/env python3
"""Learners that choose items for a query, over a planted catalogue: each user likes one of some groups of items, which the
features of items tell. Their counts, rows without an item, items that nobody has chosen yet, items that were removed, an
empty catalogue, other numbers of lanes, kills, replay by an order log, and what people see of them.

    tests/learners/towers.py PATH_OF_LEAT
"""

import collections
import json
import os
import random
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
EVENTS, TESTS, ITEMS, GROUPS, USERS, REMOVED_AT = 12_000, 900, 400, 20, 100, 9000
BEGIN, STEP = 1_700_000_000_000, 1000

JOB = """
param every: duration = 10s
job shop {{ workers: {workers}, checkpoint: {{ every: every, dir: "{place}.state" }} }}
source events = file {{
  path: "{data}.events", format: json
  schema: {{ ts: time(ms), user: int, item: text, recent: list(text), kind: text, group: int }}, event_time: ts
}}
source catalogue = file {{
  path: "{data}.items", format: json, schema: {{ ts: time(ms), item: text, brand: text, tags: list(int), _op: text }}, event_time: ts
}}
stream rows = events | where {where}
stream asked = events | where kind = "cold" | select ts, user, recent
learner model = {kind} from rows {{ {body}, item: item, learn: kind = "train", top: 40, metrics_at: [40], metrics_every: 5000 }}
sink top = file from model.top {{ path: "{place}.top", format: json, overwrite: true }}
sink metrics = file from model.metrics {{ path: "{place}.metrics", format: json, overwrite: true }}
"""
LISTS = """sink lists = file from model.scores {{ path: "{place}.lists", format: json, overwrite: true }}
"""
ADAM = "optimizer: adam { rate: 0.02 }"
KINDS = {
    "two_tower": "query: [user, recent], items: catalogue, item_features: [brand, tags], score: asked, seen: dropped, towers: [32, 16], refresh: 30, "
                 "loss: sampled_softmax { negatives: 1, in_batch: true, temperature: 0.1 }, "
                 f"batch: 128, embedding: {{ dim: 16, {ADAM} }}, hidden_optimizer: adam {{ rate: 0.01 }}",
    "mf_rank": f"user: user, batch: 64, embedding: {{ dim: 16, {ADAM}, expire_after: 1h }}, refresh: 7, loss: bpr {{ negatives: 8 }}, metrics_by: kind",
    "item2vec": "by: user, like: first(recent), items: catalogue, score: asked, seen: dropped, history: 8, negatives: 5, "
                f"subsample: 0.003, batch: 200, embedding: {{ dim: 16, {ADAM} }}",
}
EVENTS_OF_STEP = {"two_tower": 128, "mf_rank": 64}


def group_of(item):
    return item // 10 % GROUPS


def item_row(item, ts, op="insert"):
    return {"ts": ts, "item": f"i{item}", "brand": f"b{group_of(item) // 2}", "tags": [group_of(item) % 2, 10 + item % 3], "_op": op}


COLD = [item for item in range(ITEMS) if item % 10 == 3]  # nobody chooses them before the tests
REMOVED = [item for item in range(ITEMS) if item % 10 == 4]


def events_of():
    draw, rows = random.Random(5), []
    warm = [[i for i in range(ITEMS) if group_of(i) == g and i not in COLD] for g in range(GROUPS)]
    for number in range(EVENTS + 2 * TESTS):
        user = draw.randrange(USERS)
        kind = "train" if number < EVENTS else "cold" if number % 2 else "warm"
        mine = [i for i in COLD if group_of(i) == user % GROUPS] if kind == "cold" else warm[user % GROUPS]
        mine = [i for i in mine if number < REMOVED_AT or i not in REMOVED]
        row = {"ts": BEGIN + (number + 1) * STEP, "user": user, "item": f"i{mine[int(draw.random() ** 2 * len(mine))]}",
               "recent": [f"i{draw.choice(warm[user % GROUPS])}" for _ in range(draw.randrange(3))], "kind": kind, "group": user % GROUPS}
        gap = draw.choice([{"item": None}, {"user": None}, {"recent": None}]) if draw.random() < 0.03 else {}
        rows.append({**row, **gap})
    return rows


def write(folder, rows, items=range(ITEMS)):
    data = os.path.join(folder, "data")
    rig.write_rows(data + ".events", rows)
    catalogue = [item_row(item, BEGIN) for item in items]
    if catalogue:
        catalogue += [{**item_row(0, BEGIN + 5), "item": None}, {**item_row(ITEMS, BEGIN + 6), "_op": "remove"}]
        catalogue += [item_row(item, BEGIN + (REMOVED_AT + 1) * STEP - 1, "delete") for item in REMOVED]
        catalogue += [item_row(item, BEGIN + (REMOVED_AT + 2) * STEP, "update") for item in range(50) if item not in REMOVED]
    rig.write_rows(data + ".items", catalogue)
    return data


class Run:
    """A run of a job over the data: its summary, its rows, its model."""

    def __init__(self, folder, kind, name, *arguments, workers=1, failpoints=None, where="true"):
        has_lists = "score:" in KINDS[kind]
        self.place, self.names = os.path.join(folder, f"{kind}-{name}"), ["top", "metrics"] + ["lists"] * has_lists
        text = JOB + LISTS * has_lists
        self.job = rig.write(self.place + ".leat", text.format(
            workers=workers, where=where, place=self.place, data=os.path.join(folder, "data"), kind=kind, body=KINDS[kind]))
        if failpoints:
            rig.call(LEAT, "run", self.job, "--quiet", "--set", "every=10ms", *arguments, expected=(-9, 0), LEAT_FAILPOINTS=failpoints)
        done = rig.call(LEAT, "run", self.job, "--json", "--set", f"every={'10ms' if failpoints else '1h'}", *arguments)
        self.node = rig.node(json.loads(done.stdout), kind)
        self.figures = self.node["report"]["run"]
        self.rows = {name: rig.read(f"{self.place}.{name}") for name in self.names}
        rig.call(LEAT, "model", "export", self.place + ".state", "--out", self.place + ".model")
        self.model = rig.read(self.place + ".model")

    def assert_same(self, other):
        for name, rows in self.rows.items():
            assert rows == other.rows[name], (self.place, other.place, name)
        figures = [{name: value for name, value in one.figures.items() if name not in ("table_bytes", "rows", "history_bytes") and "kernel" not in name}
                   for one in (self, other)]
        assert figures[0] == figures[1], figures
        assert self.model == other.model, (self.place, other.place)


def recall(rows, kind):
    ranks = [row["rank"] for row in rows if row["kind"] == kind and row["item"] is not None]
    return sum(rank is not None and rank <= 40 for rank in ranks) / len(ranks)


def test_catalogue():
    """What the towers find: chosen items, items that nobody has chosen, and never one that was removed."""
    with tempfile.TemporaryDirectory() as folder:
        events = events_of()
        write(folder, events)
        run = Run(folder, "two_tower", "all")
        top, lists, figures = rig.read_rows(run.place + ".top"), rig.read_rows(run.place + ".lists"), run.figures
        warm, cold = recall(top, "warm"), recall(top, "cold")
        print(f"# recall of 40 of {ITEMS}: chosen items {warm:.3f}, items that nobody has chosen {cold:.3f}")
        assert warm > 0.8 and cold > 0.5 * warm, (warm, cold)
        gone = {f"i{item}" for item in REMOVED}
        before = sum(entry["item"] in gone for row in top[:REMOVED_AT] for entry in row["top"] or [])
        after = [entry["item"] for row in top[REMOVED_AT:] + lists for entry in row["top"] or []]
        assert before > 1000 and len(after) > 100_000 and not gone & set(after), before
        assert all(len(row["top"]) == 40 for row in top[:100] if row["item"] is not None)  # encoded before the first step
        for row in top:  # seen: dropped
            assert not {entry["item"] for entry in row["top"] or []} & set(row["recent"] or []), row
        assert figures["removed"] == len(REMOVED) and figures["catalogued"] == ITEMS + len(REMOVED) + 45, figures
        assert figures["items"] == ITEMS - len(REMOVED) and figures["items_unsearchable"] == figures["unnumbered"] == 0, figures
        nulls, removed = sum(row["item"] is None for row in events), sum(row["item"] in gone for row in events[REMOVED_AT:])
        assert figures["rejected"] == nulls + 2 and nulls > 50 and figures["unlisted"] == removed == 0, figures


def check_counts(kind):
    with tempfile.TemporaryDirectory() as folder:
        events = events_of()
        write(folder, events)
        run = Run(folder, kind, "all")
        figures, counts, top = run.figures, run.node["counts"], rig.read_rows(run.place + ".top")
        needed = ("item", "user") if kind == "item2vec" else ("item",)
        gaps = [any(row[name] is None for name in needed) for row in events]
        taught = sum(row["kind"] == "train" and not gap for row, gap in zip(events, gaps))
        assert figures["learned"] == taught == counts["absorbed"], (figures, taught)
        assert figures["learned"] + figures["predicted"] + sum(gaps) == len(events), figures
        assert counts["dead"] == figures["rejected"] == sum(gaps) + 2 * ("items:" in KINDS[kind]), (counts, figures)
        assert figures["targets_rejected"] == figures["rows_refused"] == figures["ids_cut"] == 0, figures
        # item2vec: pairs of items that went while the pairs waited are no targets
        steps = taught // EVENTS_OF_STEP[kind] if kind in EVENTS_OF_STEP else -(-figures["targets"] // 200)
        assert figures["steps"] == steps, figures
        assert len(top) == len(events) and all(row["rank"] is None and row["top"] is None for row, gap in zip(top, gaps) if gap)
        assert recall(top, "warm") > 0.8, recall(top, "warm")
        # the neighbours of rows that lack something are as they are without them
        alone = Run(folder, kind, "alone", where=" and ".join(f"{name} is not null" for name in needed))
        assert [row for row, gap in zip(top, gaps) if not gap] == rig.read_rows(alone.place + ".top")
        assert run.model == alone.model and run.rows["metrics"] == alone.rows["metrics"]


def check_sameness(kind):
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of())
        rig.check_same(folder, lambda *words, **more: Run(folder, kind, *words, **more), ("ckpt.pre_rename=kill@3", "ckpt.published=kill@4"))


def test_lists_that_nobody_reads():
    """Are not made, which changes no figure, also where some events are not ranked."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of()[:3000])
        found = []
        for name in ("read", "unread"):
            place = os.path.join(folder, name)
            text = JOB.format(workers=1, where="true", place=place, data=os.path.join(folder, "data"), kind="two_tower",
                              body=KINDS["two_tower"] + ", rank_share: 0.3")
            job = rig.write(place + ".leat", text if name == "read" else text.replace("sink top", "# sink top"))
            figures = rig.node(json.loads(rig.call(LEAT, "run", job, "--json").stdout), "two_tower")["report"]["run"]
            found.append((figures, rig.read(place + ".metrics")))
        assert found[0] == found[1] and 0.2 * 3000 < found[0][0]["examples"] < 0.4 * 3000, found


def test_alike():
    """What item2vec finds: the groups, for users and for single items that `like` asks about."""
    with tempfile.TemporaryDirectory() as folder:
        events = events_of()
        write(folder, events)
        run = Run(folder, "item2vec", "alike")
        top, lists, figures = rig.read_rows(run.place + ".top"), rig.read_rows(run.place + ".lists"), run.figures
        counts = collections.Counter(row["item"] for row in events if row["kind"] == "train" and row["item"] is not None)
        popular = {item for item, _ in counts.most_common(40)}
        warm = [row["item"] for row in events if row["kind"] == "warm" and row["item"] is not None]
        by_count, found = sum(item in popular for item in warm) / len(warm), recall(top, "warm")
        print(f"# recall of 40 of {ITEMS}: {found:.3f}, of the 40 most popular {by_count:.3f}")
        assert found > 0.8 and found > 2 * by_count, (found, by_count)
        shares, gone = [], {f"i{item}" for item in REMOVED}
        for row in lists:
            items = [entry["item"] for entry in row["top"] or []]
            scores = [entry["score"] for entry in row["top"] or []]
            assert all(-1.001 <= score <= 1.001 for score in scores) and scores == sorted(scores, reverse=True)
            assert not gone & set(items) and not {f"i{item}" for item in COLD} & set(items)  # without a pair there is no vector
            if row["recent"] and row["recent"][0] not in gone:  # `like`: of this item
                assert len(items) == 40 and row["recent"][0] not in items, row
                shares.append(sum(group_of(int(item[1:])) == group_of(int(row["recent"][0][1:])) for item in items[:8]) / 8)
        print(f"# {len(shares)} items asked about: {sum(shares) / len(shares):.3f} of the 8 most alike are of their group")
        assert len(shares) > 300 and sum(shares) / len(shares) > 0.9, shares
        assert figures["users"] == len({row["user"] for row in events if row["user"] is not None}), figures
        assert figures["items_unsearchable"] == len(COLD), figures
        first = set()
        for row, out in zip(events, top):  # `without_history` counts each user's first event
            if row["item"] is None or row["user"] is None:
                continue
            if row["user"] not in first and not row["recent"]:
                assert out["rank"] is None and out["top"] is None, out
            first.add(row["user"])
        assert figures["without_history"] == len(first), (figures, len(first))
        state = run.place + ".state"

        def get(*words):
            return json.loads(rig.call(LEAT, "state", "get", state, "model", *words, "--json").stdout)
        item, user = get("item", "i7"), get("7")
        assert item["item"] == "i7" and len(item["row"]) == len(item["encoded"]) == 16, item
        length = sum(x * x for x in item["row"]) ** 0.5
        assert all(abs(x / length - y) < 1e-5 for x, y in zip(item["row"], item["encoded"])), item
        mine = [row["item"] for row in events if row["user"] == 7 and row["item"] is not None]
        assert user["history"] == get("user", "7")["history"] and user["events"] == len(mine), user
        assert [entry["item"] for entry in user["history"]] == mine[len(mine) - len(user["history"]):] and 4 <= len(user["history"]) <= 8
        assert "give `user VALUE` for a user's last items, or `item VALUE` for an item" in rig.call(
            LEAT, "state", "get", state, "model", "brand", "b4", expected=(1, 2, 3)).stderr
        assert {"item.weights", "neighbour.item.weights"} <= set(rig.safetensors(run.place + ".model"))


def test_kernels():
    """Equal bits by each variant of the kernels."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of()[:3000])
        expected = Run(folder, "item2vec", "widest")
        os.environ["LEAT_KERNELS"] = "scalar"
        try:
            Run(folder, "item2vec", "scalar").assert_same(expected)
        finally:
            del os.environ["LEAT_KERNELS"]


def test_empty():
    """Without a catalogue nothing can be chosen or learned; nothing fails."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of()[:500], items=())
        for kind, needed in (("two_tower", ("item",)), ("item2vec", ("item", "user"))):
            run = Run(folder, kind, "empty")
            whole = sum(all(row[name] is not None for name in needed) for row in events_of()[:500])
            assert run.figures["unlisted"] == run.figures["predicted"] == whole > 450, run.figures
            assert run.figures["misses"] == (whole if kind == "two_tower" else 0), run.figures  # without a history nothing is ranked
            assert run.figures["steps"] == run.figures["items"] == run.figures["learned"] == 0, run.figures
            assert all(row["top"] in (None, []) for row in rig.read_rows(run.place + ".top"))


def test_seen():
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of()[:2000])
        run = Run(folder, "two_tower", "seen")
        state = run.place + ".state"

        def get(*words, expected=0):
            done = rig.call(LEAT, "state", "get", state, "model", *words, "--json", expected=expected)
            return json.loads(done.stdout) if expected == 0 else done.stderr
        item, brand = get("item", "i7"), get("item.brand", "b4")
        assert item["item"] == "i7" and len(item["row"]) == len(item["encoded"]) == 16, item
        assert abs(sum(x * x for x in item["encoded"]) - 1.0) < 1e-5, item  # lengths of 1
        assert len(brand["row"]) == 16 and brand["occurrences"] > 10 and len(get("query.user", "7")["row"]) == 16
        get("item", "nothing", expected=1)
        said = rig.call(LEAT, "trace", run.job, "catalogue", f"{os.path.join(folder, 'data')}.items:3").stdout
        assert "taken into the catalogue" in said, said
        assert "give `item VALUE` for an item, `query.user VALUE` for what the query reads" in get("brand", "b4", expected=(1, 2, 3))
        tensors = rig.safetensors(run.place + ".model")
        assert {"item.weights", "item.brand.weights", "item.tags.weights", "query.user.weights", "query.recent.weights"} <= set(tensors)
        assert any(name.startswith("query.layer") for name in tensors) and any(name.startswith("item.layer") for name in tensors)
        assert "the largest step" in " ".join(rig.call(LEAT, "explain", run.job).stdout.split())


for each in KINDS:
    globals()[f"test_{each}_counts"] = lambda kind=each: check_counts(kind)
    globals()[f"test_{each}_sameness"] = lambda kind=each: check_sameness(kind)

if __name__ == "__main__":
    sys.exit(tap.run(globals()))
