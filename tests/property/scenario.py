"""A scenario: streams, cases, lanes, LEAT_TEST_CUT, _STATE and _PLACEMENT; as files that leat runs, and what came out beside
the models.

A case is {"steps": [{"family", "options"}, ...]}, one step or a short chain of them over the streams `a` and `b`.
"""

import collections
import glob
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys

import history
import shapes

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTS = ["in", "passed", "filtered", "late", "duplicate", "dead", "absorbed", "held", "emitted", "late_updates", "null_keys"]


def load_families():
    """{name: module} of tests/property/cases."""
    families = {}
    for path in sorted(glob.glob(os.path.join(HERE, "cases", "*.py"))):
        name = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(f"cases_{name}", path)
        families[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(families[name])
    return families


def has_late(families, step):
    """Whether the step has an output NAME.late."""
    says = getattr(families[step["family"]], "HAS_LATE", False)
    return says(step["options"]) if callable(says) else says


def sides(families, step):
    """The names of its side outputs."""
    more = getattr(families[step["family"]], "sides", lambda _: [])(step["options"])
    return ["late"] * bool(has_late(families, step)) + more


class Output:
    """What one step makes. A model calls these; what it does not say of itself is in the header of models.py."""

    def __init__(self):
        self.rows, self.lates, self.deads, self.micro_batches = [], [], [], []  # lates: None where the model does not know them
        self.beside = collections.defaultdict(list)  # rows of other side outputs, by name
        self.counts = collections.Counter()
        self.hold = 0  # the watermark behind the step is that before it, less this
        self.order = None  # None: rows come in this very order; else columns: rows with equal ones do
        self.given = []

    @staticmethod
    def duration(text):
        return shapes.duration(text)

    def key(self, row, columns):
        key = tuple(row.values[c] for c in columns)
        self.counts["null_keys"] += None in key
        return key

    def count(self, name, amount=1):
        self.counts[name] += amount

    def passed(self, row, values):
        """The row goes on, perhaps with other columns."""
        self.count("passed")
        self.given.append(row._replace(values=values, input=0))

    def emit(self, values, time):
        """A row that the step makes."""
        self.count("emitted")
        self.given.append(history.Row(0, (math.inf, len(self.given)), time, values, None))

    def late(self, row):
        self.count("late")
        self.lates.append(row.values)

    def side(self, name, row):
        """The row goes to another side output; it is counted by who calls this."""
        self.beside[name].append(row.values)

    def dead(self, row, reason):
        self.count("dead")
        self.deads.append((row.place, str(reason)))

    def end(self, micro_batch):
        self.count("in", sum(row.input == 0 for row in micro_batch.rows))
        before = self.micro_batches[-1].after if self.micro_batches else history.TIME_MIN
        self.micro_batches.append(history.MicroBatch(micro_batch.index, self.given, before, history.add(micro_batch.after, -self.hold)))
        self.rows += [row.values for row in self.given]
        self.given = []


def merged(left, right):
    """Numbers of a chain's step and of a stream: the inputs 0 and 1 of the next step."""
    out, before = [], history.TIME_MIN
    for a, b in zip(left, right):
        rows = sorted([*a.rows, *(row._replace(input=1) for row in b.rows)], key=lambda row: (*row.order, 0)[:3])
        after = min(a.after, b.after)
        out.append(history.MicroBatch(a.index, rows, before, after))
        before = after
    return out


def expect(case, scenario, families, micro_batches):
    """[Output of each step]."""
    outputs, current = [], history.inputs(micro_batches, ["a"])
    for step in case["steps"]:
        if step["options"].get("inputs") == 2:
            current = merged(current, history.inputs(micro_batches, ["b"]))
        output = Output()
        families[step["family"]].model(step["options"], current, output)
        outputs.append(output)
        current = output.micro_batches
    return outputs


# --- as files


def source_time(stream):
    """What else the source says of time."""
    watermark, text = stream.get("watermark") or [""], ""
    if watermark[0] == "per_key":
        text = f"\n  watermark: per_key {{ by: {watermark[1]}, within: {watermark[2]}ms }}"
    if watermark[0] == "punctuation":
        text = f"\n  watermark: punctuation {{ when: b, drop: {str(watermark[1]).lower()} }}"
    return text + (f"\n  max_jump: {stream['jump']}ms" if stream.get("jump") else "")


def job_text(scenario, families):
    lines = ['param data: text = "."', 'param out: text = "."', "job models { memory: 32MiB }"]
    schema = ", ".join(f"{name}: {kind}" for name, kind in history.SCHEMA.items())
    for stream in scenario["streams"]:
        name = stream["name"]
        paths = ", ".join(f'concat(data, "/{name}-{part}-*.jsonl")' for part in range(len(stream["partitions"])))
        lines.append(f"source {name} = file {{\n  path: [{paths}]\n  schema: {{ {schema} }}\n  event_time: ts, max_delay: "
                     f"{stream['delay']}ms{source_time(stream)}\n}}")
    # Read whether a step does or not: what micro-batches there are depends on all sources.
    lines.append('stream none = b | where n < 0\nsink none = file from none { path: concat(out, "/none.jsonl") }')
    for i, case in enumerate(scenario["cases"]):
        before = "a"
        for j, step in enumerate(case["steps"]):
            lines.append(f"stream c{i}_{j} = {before} | {families[step['family']].step(step['options'])}")
            before = f"c{i}_{j}"
        outputs = [("", "")] + [(f".{side}", f"_{side}") for side in sides(families, step)]
        lines += [f'sink c{i}{end} = file from {before}{output} {{ path: concat(out, "/c{i}{end}.jsonl"), times: us }}'
                  for output, end in outputs]
    return "\n".join([*lines, 'sink dead = file from dead_letters { path: concat(out, "/dead.jsonl"), times: us }', ""])


def write(scenario, families, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for stream in scenario["streams"]:
        for part, files in enumerate(stream["partitions"]):
            for micro_batch, records in enumerate(files):
                with open(f"{folder}/{stream['name']}-{part}-{micro_batch}.jsonl", "w", encoding="utf-8") as file:
                    file.writelines(history.line_of(record) + "\n" for record in records)
    with open(f"{folder}/job.leat", "w", encoding="utf-8") as file:
        file.write(job_text(scenario, families))


def knobs(scenario):
    """The environment of a run."""
    return {f"LEAT_TEST_{name.upper()}": str(scenario[name]) for name in ("cut", "state", "placement") if scenario[name]}


def run(leat, scenario, folder):
    """The summary; or a text that says how it failed."""
    command = [leat, "run", f"{folder}/job.leat", "--json", "--workers", str(scenario["workers"]), "--set", f"data={folder}",
               "--set", f"out={folder}"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                env={**os.environ, **knobs(scenario)})
    except subprocess.TimeoutExpired:
        return "leat run does not end"
    return json.loads(result.stdout) if result.returncode == 0 else f"leat run ended with {result.returncode}:\n{result.stdout[:1500]}{result.stderr[-1500:]}"


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# --- compared


def is_same(found, expected):
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(found, float) or isinstance(expected, float):
        is_number = isinstance(found, (int, float)) and isinstance(expected, (int, float))
        return is_number and math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    return type(found) is type(expected) and found == expected


def is_same_row(found, expected):
    return list(found) == list(expected) and all(is_same(found[c], expected[c]) for c in found)


def by_columns(rows, columns):
    """The rows by equal columns, each group in its order."""
    def key(row):  # a float that is whole may be read as an int
        return json.dumps([int(v) if isinstance(v, float) and v.is_integer() else v for v in map(row.get, columns)])
    return sorted(rows, key=key)


def difference(what, found, expected, order=None):
    """A text that says where they differ, or None."""
    if order is not None:
        found, expected = by_columns(found, order), by_columns(expected, order)
    for i in range(max(len(found), len(expected))):
        f, e = found[i] if i < len(found) else None, expected[i] if i < len(expected) else None
        if f is None or e is None or not is_same_row(f, e):
            return (f"{what}: {len(found)} rows, expected {len(expected)}; the first that differs:\n"
                    f"  found:    {json.dumps(f, ensure_ascii=False)}\n  expected: {json.dumps(e, ensure_ascii=False)}")
    return None


def dead_difference(scenario, name, found, output):
    """Dead letters of one step. Places are (stream, n); a dead letter has the file's partition and record."""
    def line(pair):
        return json.dumps(pair[0])
    expected = sorted([[list(place), reason] for place, reason in output.deads], key=line)
    mine = sorted([[list(place), reason] for step, place, reason in found if step == name], key=line)
    for i in range(max(len(mine), len(expected))):
        f, e = mine[i] if i < len(mine) else None, expected[i] if i < len(expected) else None
        if f is None or e is None or f[0] != e[0] or e[1] not in f[1]:
            return f"dead letters of {name}: {len(mine)}, expected {len(expected)}; found {f}, expected {e}"
    return None


def dead_letters(scenario, rows):
    """[(step's name, (stream, n), reason)], of records that are rows; and how many of each stream are none."""
    places, found, broken, fates = {}, [], collections.Counter(), {}
    for stream in scenario["streams"]:
        fates[stream["name"]] = history.fates(stream)
        for part, files in enumerate(stream["partitions"]):
            for i, record in enumerate([record for records in files for record in records]):
                places[stream["name"], part, i] = record
    for row in rows:
        part = int(re.search(r"-(\d+)-[\d*]+\.jsonl", row["place"])[1])
        record = places[row["source"], part, row["record"]]
        if fates[row["source"]][part, row["record"]] == "bad":
            broken[row["source"]] += 1
        else:
            found.append((row["step"].split(":")[0], (row["source"], record["n"]), row["reason"]))
    return found, broken


def check_case(scenario, families, micro_batch, micro_batches, summary, folder, dead):
    """(what is wrong or None, the outputs)"""
    case = scenario["cases"][micro_batch]
    outputs = expect(case, scenario, families, micro_batches)
    nodes = {node["name"]: node["counts"] for node in summary["nodes"] if node["tag"] == "operator"}
    last = outputs[-1]
    wrong = difference("rows", read(f"{folder}/c{micro_batch}.jsonl"), last.rows, last.order)
    for side in sides(families, case["steps"][-1]):
        found = read(f"{folder}/c{micro_batch}_{side}.jsonl")
        expected = last.lates if side == "late" else last.beside[side]
        wrong = wrong or difference(f"{side} rows", found, found if expected is None else expected)
    for j, output in enumerate(outputs):
        name = f"c{micro_batch}_{j}"
        wrong = wrong or dead_difference(scenario, name, dead, output)
        counts = {c: nodes[name][c] for c in COUNTS if nodes[name][c] or output.counts[c]}
        expected = {c: output.counts[c] for c in COUNTS if nodes[name][c] or output.counts[c]}
        if counts != expected or not nodes[name]["balanced"]:
            wrong = wrong or f"counts of {name}: found {counts}, expected {expected}"
    return wrong, outputs


def check(leat, scenario, families, folder):
    """{number of a case: what is wrong}, None standing for all of them; and {micro_batch: outputs}."""
    write(scenario, families, folder)
    summary = run(leat, scenario, folder)
    if isinstance(summary, str):
        return {None: summary}, {}
    micro_batches = history.micro_batches(scenario["streams"], scenario["cut"])
    dead, broken = dead_letters(scenario, read(f"{folder}/dead.jsonl"))
    for stream in scenario["streams"]:
        records = history.all_records(stream)
        fates = collections.Counter(history.fates(stream).values())
        bad = fates["bad"]
        node = next(n["counts"] for n in summary["nodes"] if n["tag"] == "source" and n["name"] == stream["name"])
        if broken[stream["name"]] != bad or (node["in"], node["dead"], node["filtered"]) != (len(records), bad, fates["dropped"]):
            return {None: f"source {stream['name']}: {bad} of {len(records)} records are bad; {broken} dead letters, {node}"}, {}
    if summary["micro_batches"] != len(micro_batches):
        return {None: f"{summary['micro_batches']} micro-batches, expected {len(micro_batches)}"}, {}
    wrong, outputs = {}, {}
    for micro_batch in range(len(scenario["cases"])):
        what, outputs[micro_batch] = check_case(scenario, families, micro_batch, micro_batches, summary, folder, dead)
        if what is not None:
            wrong[micro_batch] = what
    return wrong, outputs
