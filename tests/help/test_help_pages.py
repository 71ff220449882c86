#!/usr/bin/env python3
"""`leat help types` says what is so: each of its examples is computed; `leat help limits` has each limit that a diagnostic
names, with its value.

    tests/help/test_help_pages.py PATH_OF_LEAT
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
HOUSE = ("engine", "operators", "state", "connectors", "formats", "learners", "kernels")
# Constants that a message names, and that are no limit of what a job may have.
NO_LIMITS = {
    "RENDEZVOUS_WORKERS_MAX": "of a cluster, which no command has yet",
    "ARGUMENTS_MAX": "of a command line", "DROPS_MAX": "of a command line", "TOPICS_MAX": "of a command line",
    "DESCRIBED_MAX": "how much is said", "LABEL_BYTES_MAX": "how much is drawn", "TOP_MAX": "how much is shown",
    "FETCH_BYTES_MAX": "of one fetch", "LINGER_MS_MAX": "librdkafka's", "TOPIC_NAME_MAX": "Kafka's",
    "LOG_STEPS_MAX": "of an option's own", "PLACES_MAX": "of a function's argument", "PARTS_ID_MAX": "of numbers in a checkpoint",
    "SLOTS_MAX": "of a table's size", "STEPS_MAX": "SEQUENCE_STEPS_MAX", "LEARNER_LABELS_MAX": "",
    "ETCD_ENDPOINTS_MAX": "of a cluster, which no command starts yet", "COORDINATION_LEASE_S_MAX": "likewise",
}
TYPES_OF_C = {"INT64_MAX", "INT32_MAX", "UINT32_MAX", "UINT64_MAX", "UINT16_MAX", "SIZE_MAX", "TIME_MAX", "PTRDIFF_MAX"}
SAYS = re.compile(r"\b(?:diag_\w+|argp_error|refuse\w*|fail\w*|bad_\w+|too_\w+)\s*\(([^;]*?)\);", re.S)


def help_page(name):
    done = subprocess.run([LEAT, "help", name], capture_output=True, text=True, check=True)
    return done.stdout


def sources():
    for folder in HOUSE:
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*"), recursive=True):
            if path.endswith((".c", ".h", ".cpp")):
                with open(path, encoding="utf-8") as file:
                    yield path, file.read()


def test_examples_of_types_are_true():
    examples = re.findall(r"^ +true: (.*)$", help_page("types"), re.M)
    assert len(examples) > 30, examples
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "examples.leat")
        with open(path, "w", encoding="utf-8") as file:
            file.write("source s = sequence { count: 1 }\nstream d = s\n")
            file.writelines(f"  | with x{i} = {example}\n" for i, example in enumerate(examples))
            file.write("  | select " + ", ".join(f"x{i}" for i in range(len(examples))) + "\n")
            file.write("sink o = console from d { format: json }\n")
        done = subprocess.run([LEAT, "run", path, "--quiet"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        row = next(line for line in done.stdout.splitlines() if line.startswith("{"))
        wrong = [examples[int(i)] for i, value in re.findall(r'"x(\d+)":([^,}]*)', row) if value != "true"]
        assert row.count('"x') == len(examples) and not wrong, wrong


def test_every_type_and_unit_is_on_the_page():
    text = help_page("types")
    with open(os.path.join(ROOT, "engine/core/option_schema.c"), encoding="utf-8") as file:
        types, units = re.findall(r"const struct type_help option_schema_\w+\[\] = \{(.*?)\n\};", file.read(), re.S)
    for name in re.findall(r'^    \{"(\w+)"', types, re.M):
        assert re.search(rf"^  {name} ", text, re.M), name
    for name in re.findall(r'^    \{"(\w+)"', units, re.M):
        assert f"  time({name}) " in text, name
    with open(os.path.join(ROOT, "engine/core/literal.c"), encoding="utf-8") as file:
        literals = file.read()
    for name in re.findall(r'\{"(\w+)", ', literals):
        assert re.search(rf"^  1{name} ", text, re.M), name


def test_every_limit_that_is_told_is_on_the_page():
    text, told = help_page("limits"), {}
    shown = set(re.findall(r"^  ([A-Z][A-Z0-9_]+) ", text, re.M))
    with open(os.path.join(ROOT, "engine/cli/limits.def"), encoding="utf-8") as file:
        rows = re.findall(r"^LIMIT\((\w+), ", file.read(), re.M)
    assert len(rows) > 50 and set(rows) == shown and len(rows) == len(set(rows)), set(rows) ^ shown
    for path, code in sources():
        for words in SAYS.findall(code):
            for name in re.findall(r"\b([A-Z][A-Z0-9_]*_MAX)\b", words if '"' in words else ""):
                told.setdefault(name, path)
    missing = {name: os.path.relpath(path, ROOT) for name, path in told.items()
               if name not in shown and name not in NO_LIMITS and name not in TYPES_OF_C}
    assert not missing, f"on no page: {missing}"
    assert "SCHEMA_FIELDS_MAX" in told and "FEATURE_WINDOWS_MAX" in told, "the search finds what there is"


def test_values_are_those_of_the_constants():
    text, values = help_page("limits"), {}
    for _, code in sources():
        for name, value in re.findall(r"\b([A-Z][A-Z0-9_]*(?:_MAX|_ROWS))\s*=\s*([0-9(][0-9 ()<*+]*?)\s*[,}\n/]", code):
            values.setdefault(name, set()).add(eval(value))  # numbers, shifts and products alone
    checked = 0
    for name, shown, unit in re.findall(r"^  ([A-Z][A-Z0-9_]+) +([\d,]+)( [KMG]iB| bytes)?: ", text, re.M):
        number = int(shown.replace(",", "")) << {"K": 10, "M": 20, "G": 30}.get(unit.strip()[:1], 0)
        if name in values:
            assert number in values[name], (name, number, values[name])
            checked += 1
    assert checked > 50, checked


def test_bounds_of_options_are_on_the_page():
    text = re.sub(r"\s+", " ", help_page("limits"))
    for said in ("operator dedup within 1ms to 3650d", "max_delay 0s to 365d", "checkpoint.keep.last 1 to 1000",
                 "top 1 to 128 values"):
        assert said in text, said


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
