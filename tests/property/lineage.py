#!/usr/bin/env python3
"""Lineage tells the truth: what a column of a source changes in a row derives from that column.

    tests/property/lineage.py --leat build/release/leat [--only NAME] [--folder DIR] [--keep]

`leat check` refuses a learner's input that derives from its label, by the lineage which each operator's `bind` hands on
(`leat explain --lineage` shows it). Where a `bind` forgets a line, a label leaks into a model and nothing else fails. So each
registered operator runs over some records; then one column of one of its sources is changed, and the rows are compared with
those of before. Each column of the output that has another value in a row must name the changed column in its lineage, or the
label that the operator makes; where there are other rows, the rows' lineage must name it. Each function and aggregate is called
with columns in place of its example's constants: its lineage must name them.

By design no part of lineage are what an operator reads of other events of the past, which is known when a model is asked (for
the operators in READS_THE_PAST one event alone is changed, and its own row compared), and event time, which every event has
when it happens. Prints TAP lines.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "crash"))
import operators  # noqa: E402

RECORDS = 300
CHANGED_ALONE = 3  # events, where each is changed by itself
READS_THE_PAST = {"feature"}
CHOSEN_BY, CHOSEN_BELOW = "price", 150.0  # a condition before the operator, in a job of its own
# What neither an operator's example nor STEPS of tests/crash/operators.py has.
MORE = {"feature": ["events | feature by user_id over 1h every 1m including self { spend: sum(price), kinds: distinct(device) }"]}
COLUMNS = [c for c in re.findall(r"(\w+):", operators.SCHEMA.replace("{ aid: int, kind: text }", "")) if c != "ts"]
# For a literal of an example of a function, a column of its type.
LITERALS = [(r'to_time\([^)]*\)|time\("[^"]*"\)', "ts"), (r'\["[^\]]*\]', "tags"), (r"\[[^\]]*\]", "numbers"), (r'"[^"]*"', "device"), (r"-?\d+\.\d+", "price"),
            (r"-?\d+", "position"), (r"null", "rating")]


class Failure(Exception):
    pass


def make_records(name):
    """Few keys and short steps, so that rows meet; every value of a column differs from what `changed` makes of it."""
    rng, rows = random.Random(name), []
    for number in range(RECORDS):
        row = operators.record(rng, number, operators.BEGIN_MS + number * 2000)
        row |= {"event_id": f"event-{number}", "user_id": rng.randrange(30), "item_id": rng.randrange(8),
                "device": rng.choice(["phone", "Tablet ", "desktop"]), "position": rng.randrange(5, 30)}
        rows.append(row)
    return rows


def changed(row, column, rng, is_chosen):
    """Another value of the column's type; is_chosen: one for which the condition before the operator has another answer."""
    value = row[column]
    if is_chosen:
        return value + (200 if value < CHOSEN_BELOW else -CHOSEN_BELOW)
    if column == "tags":
        return [*value, "z"]
    if column == "events":
        return [*value, {"aid": 77, "kind": "gone"}]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return rng.choice([v for v in ("phone", "Tablet ", "desktop", "watch") if v != value]) if column == "device" else value + "x"
    return value + rng.choice([-3, -1, 1, 2])


def write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def roots_of(text):
    """Of `leat explain --lineage`: {column of stream x: its roots, those of its rows too}, and the roots of the stream's rows."""
    block = re.search(r"^x(?:  rows: (.*(?:\n {8,}.*)*))?\n((?:  .*\n)*)", text, re.M)
    columns = {}
    for entry in re.findall(r"^  (\S.*(?:\n {4,}.*)*)", block[2], re.M):
        name, _, roots = " ".join(entry.split()).partition(": ")
        columns[name] = set(re.findall(r"\w+\.\w+|label of \w+", roots))
    return columns, set(re.findall(r"\w+\.\w+|label of \w+", block[1] or ""))


class Case:
    """A step over sources, as a job that writes its rows. is_chosen: of each source only some rows come so far."""

    def __init__(self, leat, folder, name, step, is_chosen):
        self.leat, self.folder, self.name, self.step, self.is_chosen = leat, folder, name, step, is_chosen
        self.sources = operators.names_of([step])
        os.makedirs(folder)
        with open(f"{folder}/items.csv", "w", encoding="utf-8") as file:
            file.write("id,category,brand\n" + "".join(f"{item},kind {item % 3},{item % 5}\n" for item in range(0, 9)))
        sources = operators.sources_of([step])
        if is_chosen:
            sources = re.sub(r"^source (\w+)", r"source \1_source", sources, flags=re.M)
            sources += "".join(f"stream {name} = {name}_source | where {CHOSEN_BY} < {CHOSEN_BELOW}\n" for name in self.sources)
        text = "\n".join([sources, "stream x = " + step.replace('"items.csv"', 'concat(data, "/items.csv")'),
                          'sink x = file from x { path: concat(data, "/out.jsonl"), overwrite: true }', ""])
        self.job = f"{folder}/job.leat"
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(text)
        self.records = {source: make_records(source) for source in self.sources}
        for source, rows in self.records.items():
            write(f"{folder}/{source}.jsonl", rows)
        self.columns, self.rows_lineage = roots_of(self.call("explain", "--lineage"))

    def call(self, *arguments):
        result = subprocess.run([self.leat, *arguments, self.job, "--set", f"data={self.folder}"], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            raise Failure(f"{arguments} of {self.step}:\n{result.stderr[-1500:]}")
        return result.stdout

    def run(self):
        self.call("run", "--json", "--workers", "1")
        with open(f"{self.folder}/out.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def identity_of(rows, changed_column):
    """The columns that tell rows of the output apart and that are not what is changed."""
    have = set(rows[0]) if rows else set()
    for candidate in (("event_id",), ("imp_id",), ("event_id", "imp_id")):
        if set(candidate) <= have and changed_column not in candidate:
            return candidate
    return tuple(sorted(have & {"user_id", "item_id", "device", "window_start", "window_end", "imp_id", "event_id"} - {changed_column}))


def by_identity(rows, identity):
    found = {}
    for row in rows:
        found.setdefault(tuple(json.dumps(row.get(c)) for c in identity), []).append(row)
    return found


def compare(case, source, column, before, after, only, seen):
    """What the lineage lacks. only: identities of the rows that count (None: all)."""
    root = f"{source}{'_source' * case.is_chosen}.{column}"

    def carries(roots):
        return root in roots or any(r.startswith("label of") for r in roots)

    identity = identity_of(before, column)
    left, right = by_identity(before, identity), by_identity(after, identity)
    wrong = set()
    if only is None and {k: len(v) for k, v in left.items()} != {k: len(v) for k, v in right.items()}:
        seen.add("rows")
        if not carries(case.rows_lineage):
            wrong.add("rows")
    for key in left.keys() & right.keys():
        if only is not None and not only & set(key):
            continue
        if len(left[key]) != len(right[key]):
            continue
        for a, b in zip(left[key], right[key]):
            for name in a:
                if a[name] != b[name]:
                    seen.add(name)
                    if not carries(case.columns[name]):
                        wrong.add(name)
    return [f"`{name}` changes with {root}, and its lineage does not say so" for name in sorted(wrong)]


def run_case(case, columns):
    """Faults, and what was seen to change."""
    rng, faults, seen = random.Random(case.name), [], set()
    before = case.run()
    if not before:
        raise Failure(f"no rows: {case.step}")
    for source in case.sources:
        whole = case.records[source]
        for column in columns:
            alone = case.name in READS_THE_PAST
            if alone and source != case.sources[0]:
                continue
            picks = [[i] for i in rng.sample(range(RECORDS // 2, RECORDS), CHANGED_ALONE)] if alone else [[i for i in range(RECORDS) if rng.random() < 0.3]]
            for pick in picks:
                rows = [row | {column: changed(row, column, rng, case.is_chosen)} if i in set(pick) else row for i, row in enumerate(whole)]
                write(f"{case.folder}/{source}.jsonl", rows)
                only = {json.dumps(whole[i][c]) for i in pick for c in ("event_id", "imp_id")} if alone else None
                faults += compare(case, source, column, before, case.run(), only, seen)
            write(f"{case.folder}/{source}.jsonl", whole)
    return sorted(set(faults)), seen


# --- functions and aggregates


def examples(leat):
    """{function or aggregate: the lines of its example}"""
    said = subprocess.run([leat, "help", "functions"], capture_output=True, text=True, check=True).stdout
    found = {}
    for name in re.findall(r"^  (\w+)\(", said, re.M):
        page = subprocess.run([leat, "help", "function", name], capture_output=True, text=True, check=True).stdout
        found[name] = re.findall(r"^  (.*)$", "\n".join(re.findall(r"^example\n((?:  .*\n)+)", page, re.M)), re.M)
    return found


def call_of(text, name):
    """The call of `name` in the text, up to its closing bracket."""
    begin = re.search(rf"\b{name}\(", text).start()
    depth = 0
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0 and text[end] == ")":
            return text[begin:end + 1]
    raise Failure(f"no call of {name} in {text}")


def with_columns(call):
    """The call with a column in place of its first constant, and the column."""
    head, _, inside = call.replace('date_trunc("month", ', "date_trunc(").partition("(")
    found = min((m for pattern, _ in LITERALS if (m := re.search(pattern, inside))), key=lambda m: m.start(), default=None)
    if found is None:
        return call, None
    column = next(column for pattern, column in LITERALS if re.fullmatch(pattern, found[0]))
    unit = '"month", ' if head == "date_trunc" else ""  # which must be a constant
    return f"{head}({unit}{inside[:found.start()]}{column}{inside[found.end():]}", column


def static(leat, folder, text):
    """{column of x: its roots}"""
    os.makedirs(folder)
    path = f"{folder}/job.leat"
    with open(path, "w", encoding="utf-8") as file:
        file.write(operators.sources_of(["events"]).replace("tags: list(text)", "tags: list(text), numbers: list(int)") + text)
    result = subprocess.run([leat, "explain", "--lineage", path], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failure(result.stderr[-1500:])
    return roots_of(result.stdout)[0]


def test_functions(leat, folder):
    """Each function and aggregate, called with columns: whether its lineage names them."""
    functions, aggregates, faults = {}, {}, []
    for name, lines in examples(leat).items():
        calls = [(line, call_of(line, name)) for line in lines if re.search(rf"\b{name}\(", line)]
        if not calls:
            faults.append(f"no call of {name} in its example")
        for line, call in calls:
            if "{" in line and call != "since_last()":
                aggregates[call] = set(re.findall(r"\w+", call)) & set(COLUMNS)
            elif (given := with_columns(call))[1]:
                functions[given[0]] = {given[1]}
    try:
        for calls, step, sign in ((functions, "with %s", " = "), (aggregates, "window by device over tumbling(1h) { %s }", ": ")):
            body = ",\n  ".join(f"f{i}{sign}{call}" for i, call in enumerate(calls))
            roots = static(leat, f"{folder}/functions-{len(calls)}", f"stream x = events | {step % body}\nsink x = null from x {{}}\n")
            faults += [f"{call}: its lineage names {sorted(roots[f'f{i}'])}, and not {column}" for i, (call, columns) in enumerate(calls.items())
                       for column in columns if f"events.{column}" not in roots[f"f{i}"]]
    except Failure as failure:
        faults.append(str(failure))
    for fault in faults:
        print(f"# {fault}")
    print(f"{'not ok' if faults else 'ok'} - lineage: {len(functions)} calls of functions, {len(aggregates)} of aggregates", flush=True)
    return bool(faults)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", required=True)
    parser.add_argument("--only", metavar="NAME", help="this operator")
    parser.add_argument("--folder", default="build/lineage")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    leat, folder = os.path.abspath(arguments.leat), os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    status = 0
    for name in operators.registry.operators():
        if arguments.only not in (None, name):
            continue
        faults, seen = [], set()
        steps = [step.replace(operators.TWICE, "")
                 for step in [operators.example_of(leat, name), *operators.STEPS.get(name, []), *MORE.get(name, [])]]
        # Columns that no step names pass through the first as through the others.
        cases = [(step, False, [c for c in COLUMNS if i == 0 or re.search(rf"\b{c}\b", step)]) for i, step in enumerate(steps)]
        cases += [(step, True, [CHOSEN_BY]) for step in steps]
        for i, (step, is_chosen, columns) in enumerate(cases):
            try:
                found, changes = run_case(Case(leat, f"{folder}/{name}-{i}", name, step, is_chosen), columns)
                faults += [f"{fault}: {step}" for fault in found]
                seen |= changes
            except Failure as failure:
                faults.append(str(failure))
        if not seen:
            faults.append("nothing changes")
        status |= bool(faults)
        for fault in faults:
            print(f"# {fault}")
        print(f"{'not ok' if faults else 'ok'} - lineage: {name}: {len(cases)} jobs, {len(seen)} columns change", flush=True)
    if not arguments.only:
        status |= test_functions(leat, folder)
    if status == 0 and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
