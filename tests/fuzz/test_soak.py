#!/usr/bin/env python3
"""`./dev soak fuzz`: what it counts, through kills, Ctrl-C and starts anew, and what becomes of findings. Its targets here
are scripts that say what libFuzzer would say. Prints TAP lines."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S, stretched  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

CORPUS = 70  # inputs that each run reads in before it fuzzes
STEP = 100  # executions between two lines

# One input: broken unless it says good. Else a run: `breaks` and `shakes` leave an input and fail.
TARGET = f"""#!/bin/bash
name=$(basename "$0"); seconds=1; prefix=; input=
for argument in "$@"; do
    case $argument in
    -max_total_time=*) seconds=${{argument#*=}} ;;
    -artifact_prefix=*) prefix=${{argument#*=}} ;;
    -*) ;;
    *) [ ! -f "$argument" ] || input=$argument ;;
    esac
done
echo "INFO: Seed: 1"
if [ -n "$input" ]; then
    [ "$name" = breaks ] && [ ! -e "$(dirname "$0")/mended" ] || exit 0
    echo "fuzz: not so: a bound holds"
    exit 77
fi
printf '#{CORPUS}\\tINITED cov: 5 ft: 6\\n'
case $name in
breaks | shakes) echo bad >"${{prefix}}crash-1"; printf '#{CORPUS + STEP}\\tNEW\\nfuzz: not so: a bound holds\\n'; exit 77 ;;
fails) echo "cannot begin"; exit 3 ;;
esac
trap 'exit 72' INT
n={CORPUS}; end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ]; do n=$((n + {STEP})); printf '#%d\\tNEW    cov: 7\\n' $n; sleep 0.05; done
printf '#%d\\tDONE\\nstat::number_of_executed_units: %d\\n' $n $n
"""


def make(folder, *names):
    programs = os.path.join(folder, "built")
    os.makedirs(programs, exist_ok=True)
    for name in names:
        with open(os.path.join(programs, name), "w", encoding="ascii") as file:
            file.write(TARGET)
        os.chmod(os.path.join(programs, name), 0o755)
    return programs


def command(folder, *more):
    return [os.path.join(ROOT, "tests", "soak", "fuzz.py"), "--folder", os.path.join(folder, "soak"), "--programs",
            os.path.join(folder, "built"), "--slice", "1", "--nice", "0", *more]


def soak(folder, *more):
    return subprocess.run(command(folder, *more), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def counts(folder):
    with open(os.path.join(folder, "soak", "counts.json"), encoding="utf-8") as file:
        return json.load(file)


def in_logs(folder):
    """What the logs say that are there: the last of each target, and one that is being written."""
    total = 0
    for path in glob.glob(os.path.join(folder, "soak", "*.log")):
        with open(path, encoding="utf-8") as file:
            numbers = [int(n) for n in re.findall(r"^#(\d+)", file.read(), re.M)]
        total += max(numbers) - CORPUS if numbers else 0
    return total


def wait_for(what):
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)


def processes_in(folder):
    """Programs of the folder that run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if os.path.join(folder, "soak", "programs").encode() in file.read():
                    found.append(path)
        except OSError:
            pass
    return found


def test_executions_add_up_over_runs():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "one", "two")
        first = soak(folder, "--until", "1")
        assert first.returncode == 0, first.stderr[-400:]
        after_first = sum(t["executions"] for t in counts(folder)["targets"].values())
        assert after_first == in_logs(folder) > 0 and after_first % STEP == 0, f"{after_first}, {in_logs(folder)} in logs"
        second = soak(folder, "--until", str(after_first + 1000), "--processes", "2")
        after_second = sum(t["executions"] for t in counts(folder)["targets"].values())
        assert second.returncode == 0 and after_second >= after_first + 1000, second.stdout
        assert f"{after_second:,} of" in second.stdout, second.stdout
        turns = [t["slices"] for t in counts(folder)["targets"].values()]
        assert min(turns) > 0, f"a target had no turn: {turns}"
        shown = soak(folder, "--show")
        assert shown.returncode == 0 and re.search(rf"^all +{after_second:,}$", shown.stdout, re.M), shown.stdout


def test_a_killed_soak_loses_nothing_and_leaves_nobody():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "one")
        process = subprocess.Popen(command(folder, "--slice", "30"), stdout=subprocess.DEVNULL)
        log = os.path.join(folder, "soak", "one.0.log")
        wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 200)
        process.kill()
        process.wait()
        wait_for(lambda: not processes_in(folder))
        shown, written = counts(folder), in_logs(folder)
        assert shown["targets"]["one"]["executions"] == 0 and shown["open"], "what runs is not counted yet"
        assert written > 0
        text = soak(folder, "--show").stdout
        assert re.search(rf"^one +{written:,} ", text, re.M), f"{written}: {text}"
        again = soak(folder, "--until", str(written + 1))
        assert again.returncode == 0, again.stdout + again.stderr
        with open(os.path.join(folder, "soak", "one.log"), encoding="utf-8") as file:
            second = max(int(n) for n in re.findall(r"^#(\d+)", file.read(), re.M)) - CORPUS
        assert counts(folder)["targets"]["one"]["executions"] == written + second, (counts(folder), written, second)


def test_an_interrupted_soak_ends_and_counts():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "one")
        process = subprocess.Popen(command(folder, "--slice", "30"), stdout=subprocess.PIPE, text=True)
        log = os.path.join(folder, "soak", "one.0.log")
        wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 200)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and time.monotonic() - begin < stretched(8), f"{process.returncode}: {out}"
        assert counts(folder)["targets"]["one"]["executions"] == in_logs(folder) > 0 and not counts(folder)["open"], out
        assert not processes_in(folder)


def test_a_finding_is_kept_until_it_is_mended():
    with tempfile.TemporaryDirectory() as folder:
        programs = make(folder, "breaks", "one")
        first = soak(folder, "--until", "500")
        path = os.path.join(folder, "soak", "found", "breaks", "crash-1")
        assert first.returncode == 1 and "FOUND  breaks: not so: a bound holds" in first.stdout, first.stdout
        again = re.search(r"again: (\S+) (\S+)", first.stdout)
        assert again and again.group(2) == path, first.stdout
        assert subprocess.run(again.groups(), capture_output=True, check=False).returncode == 77
        assert counts(folder)["targets"]["one"]["executions"] >= 400, "the others go on"
        assert counts(folder)["targets"]["breaks"]["slices"] == 1, "a broken target is set aside"
        alone = soak(folder, "--targets", "breaks", "--until", "1e9")
        assert alone.returncode == 1 and "every target is set aside" in alone.stdout, alone.stdout
        # Mended: its program no longer breaks; here so for every input.
        with open(os.path.join(folder, "soak", "programs", "mended"), "w", encoding="ascii"):
            pass
        os.rename(os.path.join(programs, "one"), os.path.join(programs, "breaks"))
        last = soak(folder, "--targets", "breaks", "--until", "1")
        assert last.returncode in (0, 1) and "mended: not so: a bound holds" in last.stdout, last.stdout
        assert os.path.exists(os.path.join(folder, "soak", "corpus", "breaks", "crash-1")), "its input joins the corpus"


def test_what_does_not_break_again_is_no_finding():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "shakes")
        done = soak(folder, "--until", "1")
        assert done.returncode == 0 and "not repeated, so kept aside" in done.stdout, done.stdout
        assert os.path.exists(os.path.join(folder, "soak", "unrepeated", "shakes", "crash-1"))


def test_a_program_that_cannot_run_is_said():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "fails")
        done = soak(folder, "--until", "1")
        assert done.returncode == 1 and "fails: status 3, without an input" in done.stdout, done.stdout


def test_one_soak_at_a_time():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "one")
        process = subprocess.Popen(command(folder, "--slice", "30"), stdout=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(os.path.join(folder, "soak", "one.0.log")))
        other = soak(folder)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        assert other.returncode != 0 and "another soak is at work" in other.stderr, other.stderr


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=4))
