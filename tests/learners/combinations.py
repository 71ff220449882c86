#!/usr/bin/env python3
"""What `leat check` accepts runs: random options of every learner kind, as `leat help` lists them, over few events. A
job that check calls good ends with exit code 0; one that it refuses, run refuses, too. Of a refused job options are left
out, one after the other, until it is good.

    tests/learners/combinations.py PATH_OF_LEAT [JOBS_OF_A_KIND [SEED]]
"""

import os
import random
import re
import subprocess
import sys
import tempfile

import rig
import tap

LEAT = os.path.abspath(sys.argv[1])
JOBS = int(sys.argv[2]) if len(sys.argv) > 2 else 12
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
KINDS = ("linear", "fm", "ffm", "mf", "deepfm", "dcnv2", "dlrm", "mmoe", "afm")
OF_ITEMS = ("sasrec", "hstu")  # they choose items, and have no label
EVENTS = 300

JOB = """job combination {{}}
source events = file {{
  path: "{events}", schema: {{ ts: time(ms), a: int, b: text, c: list(int), x: float, y: float, liked: bool, rated: float, w: float }}
  event_time: ts
}}
learner m = {kind} from events {{ {options} }}
sink out = null from m.{output} {{}}
"""
IDS = ("a", "b", "c", 'concat(b, "x")', "a % 7")
NUMBERS = ("x", "y", "x * y")
# What the reference has no values for; without a value here an option is left out.
OWN = {"label": ("liked", "liked", "rated", "x"), "labels": ("[liked, rated]", "[liked, y, rated]"), "weight": ("w", "1.5"),
       "also": ("masked", "masked { share: 0.5, weight: 2.0 }"), "unlabelled": ("events",), "by": ("w", "liked", "a"), "learn": ("liked", "x > 0.2", "x"), "score": (), "metrics_by": ("b", "x"),
       "with": ("[b]", "[b, a % 7, liked]", "[c]"), "context": ("[liked]", "[x, rated, w]", "[b]"),
       "loss": ("softmax", "softmax { temperature: 0.2 }", "sampled_softmax { negatives: 3 }", "sampled_softmax { negatives: 0 }",
                "sampled_softmax { negatives: 2, in_batch: true }", "bce", "gbce { negatives: 5 }", "bpr", "warp { tries: 4 }"),
       "user": ("a", "b"), "item": ("b", "a % 7"), "known_early": (), "export": (), "freeze": (), "from": ()}


def options_of(kind):
    """Name -> (text of its type, whether it must be given, options of its block)."""
    text = subprocess.run([LEAT, "help", "learner", kind], capture_output=True, text=True, check=True).stdout
    found, block = {}, None
    for line in text.split("\noptions\n")[1].splitlines():
        part = re.match(r"( {2}| {6})([a-z_]+)  (\S.*)$", line)
        if not part:
            continue
        indent, name, what = len(part[1]), part[2], part[3]
        if indent == 2:
            found[name] = block = (what, "required" in what, {})
        elif block[0].startswith("{") and re.match(r"(int|float|size|duration|optimizer|name|bool|[a-z0-9]+\|)", what):
            block[2][name] = (what, False, {})
    return found


def number(random_of, what):
    bounds = re.search(r"; (\S+) to (\S+?)(;|$)", what) or re.search(r"; (\S+) or (more)", what)
    least, most = (float(b) if re.match(r"^[-\d.e]+$", b) else 1e9 for b in bounds.groups()[:2]) if bounds else (0.0, 10.0)
    if what.startswith("int"):
        return str(int(random_of.choice((least, least + 1, min(most, 4), min(most, 8), min(most, random_of.randint(1, 64))))))
    return f"{random_of.choice((least, max(least, min(most, 0.5)), min(most, 1.0), max(least, min(most, 0.01)))):.6f}"


def some(random_of, names, least):
    return "[" + ", ".join(random_of.sample(names, random_of.randint(least, len(names)))) + "]"


def value(random_of, name, option):
    """A value for an option; None: there is none."""
    what, _, block = option
    if name in OWN and (name != "loss" or what.startswith("optimizer")):
        return random_of.choice(OWN[name]) if OWN[name] else None
    if what.startswith("{"):
        inner = [f"{n}: {v}" for n, o in block.items() if random_of.random() < 0.4 and (v := value(random_of, n, o))]
        return "{ " + ", ".join(inner) + " }"
    if "list of expressions" in what:
        return some(random_of, NUMBERS if name == "dense" else IDS, 0 if name in ("dense", "wide") else 1)
    if what.startswith("list of ints"):
        return "[" + ", ".join(random_of.choice(("1", "4", "8", "20")) for _ in range(random_of.randint(0, 2))) + "]"
    if what.startswith("optimizer"):
        kind = random_of.choice(("sgd", "momentum", "adagrad", "adagrad_row", "adagrad_block", "adam", "ftrl", "newton"))
        return kind + random_of.choice(("", " { rate: 0.02 }"))
    if re.match(r"^[a-z0-9_]+(\|[a-z0-9_]+)+", what):
        return random_of.choice(re.match(r"^[a-z0-9_|]+", what)[0].split("|"))
    if what.startswith("duration"):
        return random_of.choice(("0s", "1m", "1h"))
    if what.startswith("size"):
        return random_of.choice(("4KiB", "64KiB"))
    if what.startswith(("int", "float")):
        return number(random_of, what)
    return random_of.choice(("true", "false")) if what.startswith("bool") else None


def drawn(random_of, options):
    """Options with values: (text, whether it must be given)."""
    must = {name for name, option in options.items() if option[1] or name == "sparse"}
    return [(f"{name}: {v}", name in must) for name, option in options.items()
            if (name in must or random_of.random() < 0.3) and (v := value(random_of, name, option))]


def write_events(path):
    random_of = random.Random(7)
    rig.write_rows(path, [{"ts": 1000 * i, "a": random_of.randint(0, 40), "b": random_of.choice("pqrst"),
                           "c": [random_of.randint(1, 9) for _ in range(random_of.randint(0, 4))], "x": random_of.random(),
                           "y": random_of.gauss(0, 1), "liked": random_of.random() < 0.4, "rated": random_of.random(),
                           "w": random_of.choice((0, 1, 2))} for i in range(EVENTS)])


def verdict(command, path):
    """The exit code of leat, which is 0 for a good job and 3 for a refused one."""
    done = subprocess.run([LEAT, *command, path], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), (rig.read(path).decode(), command, done.returncode, done.stderr[-2000:])
    return done.returncode


def check_job(random_of, kind, given, events, path):
    """Leaves options out, one after the other, until check accepts the job. Returns whether it does."""
    is_first = True
    while True:
        output, options = "top" if kind in OF_ITEMS else "predictions", ", ".join(text for text, _ in given)
        rig.write(path, JOB.format(kind=kind, output=output, events=events, options=options))
        code = verdict(["check"], path)
        if code == 0 or is_first:
            assert verdict(["run", "--quiet"], path) == code, rig.read(path).decode()
        is_first = False
        optional = [one for one in given if not one[1]]
        if code == 0 or not optional:
            return code == 0
        given.remove(random_of.choice(optional))


def check_kind(kind):
    random_of, options = random.Random(f"{SEED} {kind}"), options_of(kind)
    assert "label" in options or "labels" in options or kind in OF_ITEMS, options
    with tempfile.TemporaryDirectory() as folder:
        events = os.path.join(folder, "events.jsonl")
        write_events(events)
        good = sum(check_job(random_of, kind, drawn(random_of, options), events, os.path.join(folder, f"{i}.leat"))
                   for i in range(JOBS))
    assert good >= JOBS * 2 // 3, f"{kind}: only {good} of {JOBS} jobs became good"


def make(kind):
    return lambda: check_kind(kind)


if __name__ == "__main__":
    sys.exit(tap.run({f"test_{kind}": make(kind) for kind in KINDS + OF_ITEMS}))
