#!/usr/bin/env python3
"""Learners of a user's next item: their counts, rows without a user or an item, other numbers of lanes, kills, replay by an
order log, and what people see of them.

    tests/learners/sequential.py PATH_OF_LEAT
"""

import json
import os
import random
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
EVENTS, REQUESTS, VIEWS = 2400, 160, 900

JOB = """
param every: duration = 10s
job shop {{ workers: {workers}, checkpoint: {{ every: every, dir: "{place}.state" }} }}
source events = file {{
  path: "{data}.events", format: json, schema: {{ ts: time(ms), user: int, item: text, device: text, part: bool }}, event_time: ts
}}
source views = file {{ path: "{data}.views", format: json, schema: {{ ts: time(ms), user: int, item: text, device: text }}, event_time: ts }}
source asked = file {{ path: "{data}.asked", format: json, schema: {{ ts: time(ms), user: int, device: text }}, event_time: ts }}
stream rows = events | where {where}
learner model = {kind} from rows {{
  by: user, item: item, score: asked, top: 5, metrics_every: 500, history: 12, batch: 24, learn: part, {body}
}}
sink top = file from model.top {{ path: "{place}.top", format: json, overwrite: true }}
sink lists = file from model.scores {{ path: "{place}.lists", format: json, overwrite: true }}
sink metrics = file from model.metrics {{ path: "{place}.metrics", format: json, overwrite: true }}
"""
KINDS = {
    "sasrec": "with: [device], context: [device], rehearse: 1, loss: sampled_softmax { negatives: 12 }, "
              "embedding: { dim: 32, expire_after: 20m }, heads: 2, metrics_by: device, seen: dropped",
    "hstu": "with: [device], loss: softmax {}, also: masked { share: 0.3 }, unlabelled: views, embedding: { dim: 16, optimizer: adagrad {} }, layers: 1",
}


def events_of():
    draw, rows = random.Random(5), []
    for number in range(EVENTS):
        late = 3_000_000 if draw.random() < 0.02 else 0
        row = {"ts": 1_700_000_000_000 + number * 4000 - late, "user": int(draw.paretovariate(0.8)) % 60,
               "item": f"i{int(draw.paretovariate(0.7)) % 200}", "device": draw.choice(["phone", "desk", None]),
               "part": draw.random() < 0.85}
        gap = draw.choice(["user", "item"]) if draw.random() < 0.06 else None
        rows.append({**row, gap: None} if gap else row)
    return rows


def write(folder, rows):
    data, draw = os.path.join(folder, "data"), random.Random(6)
    rig.write_rows(data + ".events", rows)
    rig.write_rows(data + ".asked", [
        {"ts": 1_700_000_000_000 + number * EVENTS // REQUESTS * 4000 + 1, "user": draw.randrange(70) if draw.random() < 0.95 else None,
         "device": draw.choice(["phone", "new one", None])} for number in range(REQUESTS)])
    rig.write_rows(data + ".views", [
        {"ts": 1_700_000_000_000 + number * EVENTS // VIEWS * 4000 + 2, "user": draw.choice([None, *range(60)]) if draw.random() < 0.1 else draw.randrange(60),
         "item": f"i{int(draw.paretovariate(0.7)) % 200}" if draw.random() < 0.95 else None, "device": draw.choice(["phone", "desk", None])}
        for number in range(VIEWS)])
    return data


class Run:
    """A run of a job over the data: its summary, its rows, its model."""

    def __init__(self, folder, kind, name, *arguments, workers=1, failpoints=None, where="true"):
        self.place, self.kind = os.path.join(folder, f"{kind}-{name}"), kind
        self.job = rig.write(self.place + ".leat", JOB.format(
            workers=workers, where=where, place=self.place, data=os.path.join(folder, "data"), kind=kind, body=KINDS[kind]))
        if failpoints:
            rig.call(LEAT, "run", self.job, "--quiet", "--set", "every=10ms", *arguments, expected=(-9, 0), LEAT_FAILPOINTS=failpoints)
        done = rig.call(LEAT, "run", self.job, "--json", "--set", f"every={'10ms' if failpoints else '1h'}", *arguments)
        self.node = rig.node(json.loads(done.stdout), kind)
        self.figures = self.node["report"]["run"]
        self.rows = {name: rig.read(f"{self.place}.{name}") for name in ("top", "lists", "metrics")}
        rig.call(LEAT, "model", "export", self.place + ".state", "--out", self.place + ".model")
        self.model = rig.read(self.place + ".model")

    def outcome(self):
        life = ("history_bytes", "history_cold", "items_bytes", "kernel_calls", "device_busy")  # they depend on how often a run began
        return self.rows, self.model, {name: value for name, value in self.figures.items() if not name.startswith(life)}

    def assert_same(self, other):
        for name in self.rows:
            assert self.rows[name] == other.rows[name], (self.place, other.place, name)
        assert self.outcome()[2] == other.outcome()[2], (self.outcome()[2], other.outcome()[2])
        assert self.model == other.model, (self.place, other.place)


def check_counts(kind):
    with tempfile.TemporaryDirectory() as folder:
        events = events_of()
        write(folder, events)
        run = Run(folder, kind, "all")
        gaps = [row["user"] is None or row["item"] is None for row in events]
        asked, figures, counts = rig.read_rows(os.path.join(folder, "data.asked")), run.figures, run.node["counts"]
        lists, top = rig.read_rows(run.place + ".lists"), rig.read_rows(run.place + ".top")
        nobody = sum(row["user"] is None for row in asked)
        views = rig.read_rows(os.path.join(folder, "data.views")) if kind == "hstu" else []
        good = sum(row["user"] is not None and row["item"] is not None for row in views)
        assert figures["rejected"] == sum(gaps) + nobody + len(views) - good and nobody > 0 and sum(gaps) > 50, figures
        assert figures["learned"] == sum(row["part"] for row, gap in zip(events, gaps) if not gap), figures
        assert figures["learned"] + figures["predicted"] + sum(gaps) == EVENTS and figures["scored"] == REQUESTS - nobody, figures
        assert counts["in"] == EVENTS + REQUESTS + len(views) and counts["emitted"] == EVENTS + REQUESTS == len(lists) + len(top), counts
        assert (counts["absorbed"], counts["dead"]) == (figures["learned"] + good, figures["rejected"]), (counts, figures)
        if views:  # all rows have one fate
            fates = ("learned", "predicted", "rejected", "scored", "unlabelled")
            assert figures["unlabelled"] == good > VIEWS // 2 and sum(figures[fate] for fate in fates) == counts["in"], figures
            assert 100 < figures["targets_masked"] < figures["targets"] and 0 < figures["masked_loss"] < 20, figures
            others = Run(folder, kind, "others", where="false").figures  # without labels hidden items alone are learned
            assert others["targets"] == others["targets_masked"] > 100 and others["step_loss"] is None and others["learned"] == 0, others
        else:
            assert not {"unlabelled", "targets_masked", "masked_loss"} & set(figures), figures
        for row, gap in zip(top, gaps):
            assert not gap or row["rank"] is None and row["top"] is None, row
        assert sum(row["top"] is not None for row in top) > EVENTS // 2 and sum(len(row["top"] or []) == 5 for row in lists) > REQUESTS // 2
        assert figures["steps"] > 50 and figures["targets_rejected"] == figures["rows_refused"] == 0 and figures["items_unsearchable"] == 0, figures
        # the neighbours of rows without a user or an item are as they are without them
        alone = Run(folder, kind, "alone", where="user is not null and item is not null")
        assert [row for row, gap in zip(top, gaps) if not gap] == rig.read_rows(alone.place + ".top")
        assert run.model == alone.model and run.rows["metrics"] == alone.rows["metrics"]


def check_sameness(kind):
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events_of())
        rig.check_same(folder, lambda *words, **more: Run(folder, kind, *words, **more), ("ckpt.pre_rename=kill@2", "ckpt.published=kill@3", "ckpt.write=kill@4"))


def check_seen(kind):
    with tempfile.TemporaryDirectory() as folder:
        events = events_of()
        data = write(folder, events)
        run = Run(folder, kind, "seen")
        state = run.place + ".state"
        user = json.loads(rig.call(LEAT, "state", "get", state, "model", "7", "--json").stdout)
        mine = [row for row in events if row["user"] == 7 and row["item"] is not None]
        seen = [row for row in rig.read_rows(data + ".views") if row["user"] == 7 and row["item"] is not None] if kind == "hstu" else []
        assert user["events"] == len(mine) + len(seen) and (kind == "hstu") == bool(seen), user
        last = max((mine[-1], *seen[-1:]), key=lambda row: row["ts"])
        assert 0 < len(user["history"]) <= 12 and user["history"][-1]["item"] == last["item"], user
        item = json.loads(rig.call(LEAT, "state", "get", state, "model", "item", "i1", "--json").stdout)
        assert item["item"] == "i1" and len(item["row"]) == (32 if kind == "sasrec" else 16), item
        rig.call(LEAT, "state", "get", state, "model", "123456", expected=1)
        said = rig.call(LEAT, "state", "get", state, "model", "device", "phone", expected=(1, 2, 3)).stderr
        assert "give `user VALUE` for a user's history, or `item VALUE` for an item" in said, said
        shown = rig.call(LEAT, "model", "show", state).stdout
        assert "positions" in shown and "with.device" in shown and ("context.device" in shown) == (kind == "sasrec"), shown
        tensors = rig.safetensors(run.place + ".model")
        assert ("masked" in tensors) == (kind == "hstu") == ("masked" in shown), shown
        assert kind == "sasrec" or tensors["masked"][0] == [1, 16], tensors["masked"]
        assert tensors["item.weights"][0][1] == len(item["row"]) and len(tensors["with.device.keys"][1]) == 2, list(tensors)
        rig.call(LEAT, "model", "top", state)
        assert "the largest step" in " ".join(rig.call(LEAT, "explain", run.job).stdout.split())
        number = next(n for n, row in enumerate(events) if row["item"] is None)
        said = rig.call(LEAT, "trace", run.job, "events", f"{data}.events:{number + 1}").stdout
        assert any(line.split() == ["model:", kind, "rejected"] for line in said.splitlines()) and "rank = null" in said, said


def check_label(kind):
    """Nothing that is read of an event before it is predicted may derive from its item; what is kept beside it may."""
    with tempfile.TemporaryDirectory() as folder:
        for options, is_good in (("by: user, context: [kind]", False), ("by: kind", False), ("by: user, context: [device, item]", False),
                                 ("by: user, context: [device], with: [kind, item], learn: kind > 0", True)):
            job = rig.write(os.path.join(folder, "job.leat"), f"""
source events = file {{ path: "x.jsonl", schema: {{ ts: time(ms), user: int, item: int, device: text }}, event_time: ts }}
stream rows = events | with kind = item % 7
learner model = {kind} from rows {{ item: item, {options} }}
sink top = null from model.top
""")
            said = rig.call(LEAT, "check", job, expected=0 if is_good else 3).stderr
            assert ("E0502" in said) != is_good, (options, said)


def add(kind):
    globals()[f"test_{kind}_counts"] = lambda: check_counts(kind)
    globals()[f"test_{kind}_sameness"] = lambda: check_sameness(kind)
    globals()[f"test_{kind}_seen"] = lambda: check_seen(kind)
    globals()[f"test_{kind}_label"] = lambda: check_label(kind)


for each in KINDS:
    add(each)

if __name__ == "__main__":
    sys.exit(tap.run(globals()))
