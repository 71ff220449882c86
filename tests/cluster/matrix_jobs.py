"""The jobs of matrix.py, each with its records and what a run that is alone makes of them: ctr_live from recorded files, the queries of
Nexmark, and the operators of tests/crash/operators.py, some ten in a job."""

import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import threading

import etcd

sys.path[:0] = [TESTS := os.path.dirname(etcd.HERE), os.path.join(TESTS, "crash")]
import crash  # noqa: E402
import operators  # noqa: E402
import registry  # noqa: E402

ROOT = os.path.dirname(TESTS)
QUERIES = os.path.join(ROOT, "jobs", "nexmark")
IMPRESSIONS, EVENTS = 30_000, 40_000  # less have too few late ones of an hour, or no auction that ends
RECORDS, RECORDS_OTHERWISE = {"events": 12_000, "clicks": 5_000}, 2_500
CUT, CUT_OF_OPERATORS = "100", "25"  # records of a micro-batch, so that there are far more than are formed ahead


class Subject:
    """A job file, and how it is run. words: of the command line, with the places {out}, {state} and {every}. until: a time in the midst of
    its records. state: where its checkpoints lie."""

    def __init__(self, group, name, path, words, until, state="{state}"):
        self.group, self.name, self.path, self.words, self.until, self.state = group, name, path, words, until, state
        self.environment = {"LEAT_TEST_CUT": CUT}
        self.lock, self.plain = threading.Lock(), None

    def command(self, leat, out, state, every):
        return [leat, "run", self.path, "--json", "--quiet", *[word.format(out=out, state=state, every=every) for word in self.words]]

    def alone(self, leat, folder, name, *flags):
        """The sinks' folder, the state's, and the summary of a run that is alone, with one lane."""
        out, state = f"{folder}/{name}-out", f"{folder}/{name}-state"
        os.makedirs(out)
        told = subprocess.run([*self.command(leat, out, state, "1h"), "--workers=1", *flags], capture_output=True, text=True,
                              env={**os.environ, **self.environment}, check=False)
        assert told.returncode == 0, f"{self.name}, alone: {told.stderr[-3000:]}"
        return out, self.state.format(state=state), json.loads(told.stdout)

    def reference(self, leat, folder):
        """What must come of each run: (outcome() at its end, state_of() half way)."""
        with self.lock:
            if self.plain is None:
                folder = f"{folder}/alone-{self.name}"
                log = f"{folder}/order"
                out, _, whole = self.alone(leat, folder, "whole")
                _, state, half = self.alone(leat, folder, "half", f"--until={self.until}", f"--record-order={log}")
                assert 0 < half["records"] < whole["records"], (self.name, half["records"], whole["records"])
                self.plain = outcome(out, whole), state_of(leat, state, [log], half, folder)
            return self.plain


def outcome(out, summary):
    """What must be equal of a run that has ended."""
    return {**crash.outcome(out, json.dumps(summary)),
            "figures": {key: summary[key] for key in ("good", "finished", "records", "input_ended")}}


def state_of(leat, checkpoint, logs, summary, folder):
    """Of a run that stopped: digests of its state by key and of its order log's entries (keyed_state.c), and of its models."""
    joined = f"{folder}/joined-order"
    with open(joined, "wb") as file:
        for log in logs:
            with open(log, "rb") as part:
                file.write(part.read())
    tool = os.path.join(os.path.dirname(leat), "tests", "crash", "keyed_state")
    told = subprocess.run([tool, checkpoint, joined], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-500:] + told.stderr[-2000:]
    state, models = {f"{i} {name}": sums for i, (name, sums) in enumerate(line.split(": ") for line in told.stdout.splitlines())}, {}
    if any(node["tag"] == "learner" for node in summary["nodes"]):
        crash.export_models(leat, checkpoint, folder)
        for path in sorted(glob.glob(f"{folder}/models/*")):
            with open(path, "rb") as file:
                models[os.path.basename(path)] = hashlib.sha256(file.read()).hexdigest()
        assert models
    return {"state and order half way": state, "models half way": models, "records half way": {"all": summary["records"]}}


def must_be(found, expected):
    """Both are parts, each of names with values."""
    for part, wanted in expected.items():
        others = [(name, wanted.get(name), found[part].get(name)) for name in sorted({*wanted, *found[part]})
                  if wanted.get(name) != found[part].get(name)]
        assert not others, f"{part} (what, alone, found): {others[:4]}"


# --- The jobs ---


def time_text(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%FT%T.%fZ")


def middle(path, column):
    """Of the times of the file's records, as a text."""
    with open(path, encoding="utf-8", errors="replace") as file:
        times = sorted(int(found[1]) for found in (re.search(rf'"{column}":\s*(\d{{13}})', line) for line in file) if found)
    return time_text(times[len(times) // 2])


def call(leat, *words):
    subprocess.run([leat, *words], check=True, stdout=subprocess.DEVNULL)


def ctr_live(leat, folder):
    call(leat, "generate", "ctr", "--events", str(IMPRESSIONS), "--seed", "3", "--out", f"{folder}/ctr", "--duplicates", "0.01",
         "--late", "0.01", "--malformed", "0.002")
    words = ["--set=state={state}", "--set=every={every}", *[f"--sink={name}={{out}}/{name}.jsonl" for name in ("scored", "dead")],
             *[f"--replay={name}={folder}/ctr/{name}.jsonl" for name in ("impressions", "clicks")]]
    path = os.path.join(ROOT, "jobs", "ctr_live.leat")
    return [Subject("ctr_live", "ctr_live", path, words, middle(f"{folder}/ctr/impressions.jsonl", "ts"), "{state}.replay")]


def nexmark(leat, folder):
    data = f"{folder}/nexmark.jsonl"
    call(leat, "generate", "nexmark", "--events", str(EVENTS), "--seed", "1", "--out", data)
    words = ["--set=out={out}", "--set=checkpoints={state}", "--set=every={every}", f"--set=data={data}"]
    names = sorted((os.path.basename(path)[:-5] for path in glob.glob(f"{QUERIES}/*.leat")), key=lambda name: (int(re.sub(r"\D", "", name)), name))
    side = [f"--set=side={QUERIES}/side_input.csv"]
    return [Subject("nexmark", name, f"{QUERIES}/{name}.leat", words + (side if name == "q13" else []), middle(data, "date_time")) for name in names]


def of_operators(leat, folder, is_chosen):
    """Those that keep state by key write it to disk all the time. Only what the chosen ones need is made."""
    operators.STEP_MS *= operators.RECORDS["events"] / RECORDS["events"]  # in the same time
    operators.RECORDS, operators.RECORDS_OTHERWISE = RECORDS, RECORDS_OTHERWISE
    all_steps = [(name, step) for name in registry.operators() for step in [operators.example_of(leat, name), *operators.STEPS.get(name, [])]]
    steps = [(f"x{i}_{name}", name, step) for i, (name, step) in enumerate(all_steps)]
    count, found = -(-len(steps) // operators.STREAMS_A_JOB), []
    numbers = [number for number in range(count) if is_chosen("operators", f"operators-{number}")]
    os.makedirs(f"{folder}/data")
    for name in operators.names_of([step for number in numbers for *_, step in steps[number::count]]):
        operators.write_records(f"{folder}/data", name, 1)
    for number in numbers:
        streams = [(*one, operators.outputs_of(leat, folder, one[2])) for one in steps[number::count]]
        job = operators.Operators(leat, folder, number, streams)
        words = ["--set=out={out}", "--set=state={state}", "--set=every={every}", f"--set=data={job.inputs.folder}"]
        found.append(Subject("operators", f"operators-{number}", job.path, words, operators.HALF))
        found[-1].environment.update({"LEAT_TEST_CUT": CUT_OF_OPERATORS, **operators.LITTLE})
    return found


def subjects(leat, folder, chosen):
    """Those of these names or groups; None: all."""
    def is_chosen(group, name):
        return chosen is None or group in chosen or name in chosen
    found = []
    for make, group in ((ctr_live, "ctr_live"), (nexmark, "nexmark")):
        if chosen is None or any(name.startswith(group) or group == "nexmark" and name[0] == "q" for name in chosen):
            found += make(leat, folder)
    if chosen is None or any(name.startswith("operators") for name in chosen):
        found += of_operators(leat, folder, is_chosen)
    return [one for one in found if is_chosen(one.group, one.name)]
