#!/usr/bin/env python3
"""Predictions from `leat model export`, `leat hash` and the job alone are those that the learner made: by plain Python
here, and by the numpy of docs/model.md, where some Python of this machine has it.

    tests/learners/export.py PATH_OF_LEAT
"""

import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
TAUGHT, ASKED = 900, 120
PAGE = os.path.join(rig.ROOT, "docs", "model.md")
TOLERANCE = 2e-5

JOB = """
job exported {{ workers: 1, checkpoint: {{ every: 1h, dir: "{place}.state" }} }}
source events = file {{
  path: "{place}.jsonl"
  schema: {{ ts: time(ms), user: int, item: text, tags: list(int), dense: int, price: float, clicked: bool, w: float }}
  event_time: ts
}}
learner model = {kind} from events {{ {body}, weight: w }}
sink predictions = file from model.predictions {{ path: "{place}.out" }}
"""

IDS = 'label: clicked, sparse: [user, item, tags, dense, cross(user, item)], dense: [price, log1p(price)]'
PLAIN = "label: clicked, sparse: [user, item, dense], dense: [price]"
# kind, body, features of `sparse`, of `wide`, how many numbers, by batches, c
SPARSE = ["user", "item", "tags", "dense", "cross(user, item)"]
FEW = ["user", "item", "dense"]
KINDS = {
    "linear": ("linear", f"{IDS}, ids: {{ admit_after: 2 }}", SPARSE, [], 2, False, 0.0),
    "linear, bias": ("linear", f"{PLAIN}, optimizer: adagrad, bias: -0.5", FEW, [], 1, False, 0.0),
    "linear, classes": ("linear", f"{IDS}, batch: 32, positive_weight: 3.0, keep_negatives: 0.5", SPARSE, [], 2, True,
                        -math.log(3 / 0.5)),
    "fm": ("fm", f"{IDS}, wide: [tags], embedding: {{ dim: 12, admit_after: 2 }}".replace("user, item, tags, ", "user, item, "),
           ["user", "item", "dense", "cross(user, item)"], ["tags"], 2, False, 0.0),
    "fm, pairs": ("fm", f"{IDS}, pairs: [[user, tags], [item, dense], [user, item]], pair_weights: sgd {{ rate: 0.05 }}, "
                  "embedding: { dim: 8 }", SPARSE, [], 2, False, 0.0),
    "fm, batch": ("fm", f"{IDS}, batch: 32, embedding: {{ dim: 8, admit_after: 2 }}", SPARSE, [], 2, True, 0.0),
    "ffm": ("ffm", f"{IDS}, embedding: {{ dim: 8, admit_after: 2 }}", SPARSE, [], 2, False, 0.0),
    "ffm, four": ("ffm", "label: clicked, sparse: [user, item, tags, dense], wide: [cross(user, item)], "
                  "embedding: { dim: 4 }, pair_weights: sgd { rate: 0.05 }", SPARSE[:4], SPARSE[4:], 0, False, 0.0),
    "ffm, batch": ("ffm", f"{IDS}, batch: 32, embedding: {{ dim: 4, init: 0.2 }}", SPARSE, [], 2, True, 0.0),
    "mf": ("mf", "label: price, user: user, item: item", ["user", "item"], [], 0, False, None),
    "mf, a list": ("mf", "label: price, user: user, item: tags, bias: 0.4, embedding: { admit_after: 2 }", ["user", "tags"], [], 0,
                   False, None),
    "deepfm": ("deepfm", f"{IDS}, hidden: [12, 7], embedding: {{ dim: 8 }}", SPARSE, [], 2, False, 0.0),
    "deepfm, batch": ("deepfm", f"{PLAIN}, hidden: [12], batch: 32", FEW, [], 1, True, 0.0),
    "ffm, hidden": ("ffm", f"{IDS}, hidden: [9], embedding: {{ dim: 4 }}", SPARSE, [], 2, False, 0.0),
}


def rows_of():
    """Some that teach, then some of weight 0, which the model predicts as it is in the end: most with the ids of a row
    that taught, some with others."""
    draw, taught = random.Random(11), []
    for number in range(TAUGHT + ASKED):
        is_asked = number >= TAUGHT
        user, item = draw.randrange(33 if is_asked else 30), f"item {draw.randrange(22 if is_asked else 20)}" * draw.choice([1, 1, 30])
        price = draw.random() * 3
        row = {"ts": 1_700_000_000_000 + number * 1000, "user": None if draw.random() < 0.05 else user, "item": item,
               "tags": [draw.randrange(40) for _ in range(draw.choice([0, 1, 2, 5, 90]))], "dense": draw.randrange(-3, 3),
               "price": None if draw.random() < 0.03 else price, "clicked": draw.random() < 0.2 + 0.15 * (user % 4) + 0.1 * (price > 1),
               "w": 0.0 if is_asked else 1.0}
        if is_asked and draw.random() < 0.7:
            row |= {name: value for name, value in draw.choice(taught).items() if name in ("user", "item", "tags", "dense")}
        taught += [] if is_asked else [row]
        yield row


# --- what the page says, in plain Python


def mix(value):
    value %= 2 ** 64
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9 % 2 ** 64
    value = (value ^ value >> 27) * 0x94d049bb133111eb % 2 ** 64
    return value ^ value >> 31


def int_key(value):
    return 0x6e756c6c6e756c6c if value is None else mix(value + 0x9e3779b97f4a7c15) or 1


class Keys:
    """Of ints by the page's rule, of texts and crosses by `leat hash`: the same for all learners."""

    known = {}

    def __init__(self, job):
        self.job = job

    def ask(self, feature, row):
        if feature == "tags":
            return [int_key(tag) for tag in (row["tags"] or [])[:64]]
        if feature in ("user", "dense"):
            return [int_key(row[feature])]
        words = [f"item={row['item']}"] + ([f"user={json.dumps(row['user'])}"] if feature != "item" else [])
        asked = (feature, *words)
        if asked not in self.known:
            found = json.loads(rig.call(LEAT, "hash", self.job, "model", "--json", *words).stdout)
            (self.known[asked],) = [[int(key, 16) for key in one["keys"]] for one in found["features"] if one["feature"] == feature]
        return self.known[asked]


def forward(model, name, row, keys):
    kind, _, sparse, wide, numbers, by_batches, _ = KINDS[name]
    price = row["price"]
    dense = [] if numbers == 0 else [price or 0.0] + ([math.log1p(price) if price is not None else 0.0] if numbers > 1 else [])
    z, vectors = sum(w * x for w, x in zip(model["dense.weights"][1], [*dense, 1.0], strict=True)), []
    for feature in sparse + wide:
        table, ids = model["tables"][feature], keys.ask(feature, row)
        rows = [table[one] for one in ids if one in table]
        z += sum(one[0] for one in rows) / max(len(ids), 1)
        count = max(len(ids) if by_batches else len(rows), 1)
        vectors.append([sum(column) / count for column in zip(*rows)][1:] or None)
    n, products = len(sparse) if kind != "linear" else 0, []
    b = (n + 3) // 4 * 4
    for f, g in itertools.combinations(range(n), 2):
        v, w = vectors[f], vectors[g]
        if v is None or w is None:
            products.append(0.0)
        elif kind == "ffm":
            products.append(sum(v[i // 4 * 4 * b + 4 * g + i % 4] * w[i // 4 * 4 * b + 4 * f + i % 4] for i in range(len(v) // b)))
        else:
            products.append(sum(x * y for x, y in zip(v, w, strict=True)))
    pairs = model["pairs"][1] if "pairs" in model else [1.0] * len(products)
    z += sum(x * y for x, y in zip(products, pairs, strict=True))
    if "hidden.0.weights" not in model:
        return z
    dim = model["hidden.0.weights"][0][1]
    inputs = products if kind == "ffm" else [x for v in vectors[:n] for x in (v or [0.0] * ((dim - numbers) // n))]
    return z + layers(model, inputs + dense)


def layers(model, inputs):
    for number in itertools.count():
        (outputs, width), weights = model[f"hidden.{number}.weights"]
        biases = model[f"hidden.{number}.bias"][1]
        assert width == len(inputs), (number, width, len(inputs))
        inputs = [biases[o] + sum(weights[o * width + i] * x for i, x in enumerate(inputs)) for o in range(outputs)]
        if f"hidden.{number + 1}.weights" not in model:
            return inputs[0]
        inputs = [max(x, 0.0) for x in inputs]


def load(path):
    model, tables = rig.safetensors(path), {}
    for name in [name for name in model if name.endswith(".keys")]:
        feature = name[:-len(".keys")]
        (rows, width), weights = model[feature + ".weights"]
        keys = model[name][1]
        assert list(keys) == sorted(set(keys)) and len(keys) == rows, name
        tables[feature.removeprefix("table.")] = {key: weights[i * width:(i + 1) * width] for i, key in enumerate(keys)}
    return {**model, "tables": tables}


class Exported:
    def __init__(self, folder, name):
        kind, body = KINDS[name][:2]
        place = os.path.join(folder, "exported")
        self.name, self.job, self.path = name, place + ".leat", place + ".safetensors"
        rig.write_rows(place + ".jsonl", rows_of())
        rig.write(self.job, JOB.format(kind=kind, body=body, place=place))
        rig.call(LEAT, "run", self.job, "--quiet")
        rig.call(LEAT, "model", "export", place + ".state", "--out", self.path)
        self.rows = rig.read_rows(place + ".out")[TAUGHT:]
        assert len(self.rows) == ASKED
        self.tables = load(self.path)["tables"]
        self.keys = Keys(self.job)

    def has_rows(self, row):
        """Whether the tables have all ids of the row."""
        _, _, sparse, wide, *_ = KINDS[self.name]
        return all(key in self.tables[feature] for feature in sparse + wide for key in self.keys.ask(feature, row))

    def compare(self, logits):
        kind, _, _, _, _, by_batches, c = KINDS[self.name]
        spread, knows_all = set(), not by_batches and kind != "linear"
        for row, z in zip(self.rows, logits, strict=True):
            if kind == "mf" and row["price"] is None:
                continue  # no label: rejected
            if knows_all and not self.has_rows(row):
                continue  # such a learner gives a new id its initial vector, which is not exported
            expected = z if c is None else 1 / (1 + math.exp(-(z + c)))
            spread.add(round(expected, 3))
            assert abs(row["prediction"] - expected) <= TOLERANCE * max(1.0, abs(expected)), (self.name, row, expected)
        assert len(spread) > 20, (self.name, "hardly anything was learned", spread)


def test_plain_python():
    for name in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            exported = Exported(folder, name)
            model = load(exported.path)
            exported.compare([forward(model, name, row, exported.keys) for row in exported.rows])


ASK = """
import sys
model, asked = load(sys.argv[1]), json.load(open(sys.argv[2]))
assert key(17) == {int} and key(None) == {null}
print(json.dumps([float(predict(model, asked["kind"], asked["sparse"], asked["wide"], ids, numbers, asked["by_batches"]))
                  for ids, numbers in asked["rows"]]))
"""


def python_with_numpy():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import numpy"], check=False, capture_output=True).returncode == 0:
            return python
    return None


def test_numpy_of_the_page():
    python = python_with_numpy()
    if python is None:
        return "no Python here has numpy"
    with open(PAGE, encoding="utf-8") as file:
        code = file.read().split("```python\n")[1].split("```")[0]
    assert 25 <= sum(line.strip() != "" for line in code.splitlines()) <= 40, "thirty lines"
    for name, (kind, _, sparse, wide, numbers, by_batches, _) in KINDS.items():
        if "hidden:" in KINDS[name][1]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            exported = Exported(folder, name)
            script = rig.write(os.path.join(folder, "page.py"), code + ASK.format(int=int_key(17), null=int_key(None)))
            rows = []
            for row in exported.rows:
                price = row["price"] or 0.0
                ids = {feature: exported.keys.ask(feature, row) for feature in sparse + wide}
                rows.append([{("table." if f == "dense" else "") + f: k for f, k in ids.items()},
                             [price, math.log1p(price)][:numbers]])
            names = [[("table." if f == "dense" else "") + f for f in features] for features in (sparse, wide)]
            asked = {"kind": kind, "sparse": names[0], "wide": names[1], "by_batches": by_batches, "rows": rows}
            done = subprocess.run([python, script, exported.path, rig.write(os.path.join(folder, "asked.json"), json.dumps(asked))],
                                  check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            exported.compare(json.loads(done.stdout))
    return None


# --- `leat hash`


HASHED = """
source events = file {
  path: "e.jsonl"
  schema: { ts: time(ms), user: int, site: text, cat: text, tags: list(text), ages: list(int), price: float, new: bool, clicked: bool
            seen: list({ id: int, what: text }) }
  event_time: ts
}
learner ids = linear from events {
  label: clicked
  sparse: [user, site, tags, ages, price, new, ts, seen.id, cross(site, cat), hour_of_day(ts), user * 2, cross(user, null_if(site, "x"))]
}
learner other = mf from events { label: price, user: user, item: site }
sink predictions = null from ids.predictions {}
sink others = null from other.predictions {}
"""


def hashes(folder, *words, learner="ids", expected=0):
    job = rig.write(os.path.join(folder, "hashed.leat"), HASHED)
    done = rig.call(LEAT, "hash", job, learner, *words, expected=expected)
    if expected != 0:
        return done.stderr
    found = {}
    for line in done.stdout.splitlines():
        *name, key, decimal = line.split()
        assert int(key, 16) == int(decimal) and len(key) == 16, line
        found.setdefault(" ".join(name), []).append(int(decimal))
    again = json.loads(rig.call(LEAT, "hash", job, learner, *words, "--json").stdout)
    assert {one["feature"]: [int(key, 16) for key in one["keys"]] for one in again["features"] if one["keys"]} == found
    return found


def test_hash():
    # Of XXH3 64, from its own documentation and test vectors.
    empty, abc = 0x2D06800538D394C2, 0x78AF5F94892F3950
    with tempfile.TemporaryDirectory() as folder:
        assert hashes(folder, "site=abc", "tags=abc,,abc") == {"site": [abc], "tags": [abc, empty, abc]}
        assert hashes(folder, "user=-7") == {"user": [int_key(-7)], "user * 2": [int_key(-14)]}
        assert hashes(folder, "ages=1, 2,null")["ages"] == [int_key(1), int_key(2), int_key(None)]
        assert hashes(folder, "ages=" + ",".join(map(str, range(3000))))["ages"] == [int_key(age) for age in range(3000)]
        assert hashes(folder, "price=-0.0") == hashes(folder, "price=0") == {"price": [mix(0xf10a7)]}
        assert hashes(folder, "new=true") == {"new": [mix(0xb002)]} and hashes(folder, "new=null") == {"new": [int_key(None)]}
        noon = 1_714_564_800_000_000
        assert hashes(folder, "ts=2024-05-01T12:00:00Z") == {"ts": [int_key(noon)], "hour_of_day(ts)": [int_key(12)]}
        assert hashes(folder, "seen.id=3,4") == {"seen.id": [int_key(3), int_key(4)]}
        crossed = hashes(folder, "site=x", "cat=y")
        assert set(crossed) == {"site", "cross(site, cat)"} and hashes(folder, "site=x", "cat=z")["cross(site, cat)"] != crossed["cross(site, cat)"]
        assert 'cross(user, null_if(site, "x"))' in hashes(folder, "user=1", "site=x")
        assert hashes(folder, "user=5", "site=abc", learner="other") == {"user": [int_key(5)], "site": [abc]}
        for words, learner, what in ((("user=x",), "ids", "is not of type int"), (("usr=1",), "ids", "did you mean `user`"),
                                     (("clicked=true",), "ids", "no feature of learner `ids`"), (("user=1",), "none", "it has: ids, other"),
                                     (("seen=1",), "ids", "is not of type list"), (("user=9223372036854775807",), "ids", "integer overflow")):
            said = hashes(folder, *words, learner=learner, expected=1)
            assert what in said and "E1001" in said, (words, said)


def test_keys_are_the_table_s():
    """Every value that was met is in the table under the key that `leat hash` gives."""
    with tempfile.TemporaryDirectory() as folder:
        exported = Exported(folder, "ffm, batch")
        tables = load(exported.path)["tables"]
        rows = list(rows_of())[:TAUGHT]
        for feature in SPARSE:
            met = {key for row in (rows if feature != "cross(user, item)" else rows[:60]) for key in exported.keys.ask(feature, row)}
            assert met and (met == set(tables[feature]) or (feature == "cross(user, item)" and met < set(tables[feature]))), feature


# --- what is written


def test_several_learners():
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "both")
        rig.write_rows(place + ".jsonl", rows_of())
        text = JOB.format(kind="fm", body=KINDS["fm"][1], place=place)
        text += "learner other = linear from events { label: clicked, sparse: [user] }\nsink none = null from other.predictions {}\n"
        rig.call(LEAT, "run", rig.write(place + ".leat", text), "--quiet")
        said = rig.call(LEAT, "model", "export", place + ".state", "--out", place, expected=1).stderr
        assert "2 learners" in said and "--learner: model, other" in said and not os.path.exists(place), said
        said = rig.call(LEAT, "model", "show", place + ".state", "--learner", "mode", expected=1).stderr
        assert "no learner `mode`" in said, said
        rig.call(LEAT, "model", "export", place + ".state", "--out", place, "--learner", "other")
        assert "user.weights" in rig.safetensors(place) and "item.weights" not in rig.safetensors(place)
        rig.call(LEAT, "model", "export", place + ".state", "--out", place + ".csv", "--csv", "--learner", "model")
        assert "other" not in rig.call(LEAT, "model", "show", place + ".state", "--learner", "model").stdout


def test_names():
    """A name that is long, one that is another tensor's, and the same rows in CSV."""
    long = " + ".join(["user"] * 60)
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "names")
        rig.write_rows(place + ".jsonl", rows_of())
        body = f"label: clicked, sparse: [dense, {long}, {long} + 1], dense: [price]"
        rig.call(LEAT, "run", rig.write(place + ".leat", JOB.format(kind="linear", body=body, place=place)), "--quiet")
        rig.call(LEAT, "model", "export", place + ".state", "--out", place + ".safetensors")
        rig.call(LEAT, "model", "export", place + ".state", "--out", place + ".csv", "--csv")
        model = rig.safetensors(place + ".safetensors")
        lines = rig.read(place + ".csv").decode().splitlines()
    assert model["dense.weights"][0] == [1, 2] and model["table.dense.weights"][0] == [6, 1], sorted(model)
    assert long + ".keys" in model and long + " + 1.keys" in model, sorted(model)
    for feature in ("dense", long, long + " + 1"):
        keys = [line.split(",")[2] for line in lines if line.startswith(f'row,"{feature}",')]
        assert keys == [str(key) for key in model[("table." if feature == "dense" else "") + feature + ".keys"][1]], feature


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
