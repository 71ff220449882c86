#!/usr/bin/env python3
"""What the system refuses: address space, file sizes, descriptors, threads, stacks. Whatever the limit, a run ends well, or
with a message that has a code and a way out: never by a signal, an assertion or a library's last words. Prints TAP lines.

    tests/cli/test_limits.py PATH_OF_LEAT [--long]       --long: small steps, every limit
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tap  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
IS_LONG = "--long" in sys.argv
MIB = 1 << 20
EVENTS = 3000
GOOD, REFUSED, NO_LOADER = 0, 71, 127
STACK_LEAST = 64 << 10  # with less than some 40 KiB the loader itself dies
NOBODY = 65534
# The loader's own words: leat has not begun.
LOADER = re.compile(r"error while loading shared libraries|libc.so.6|cannot allocate memory in static TLS|Cannot allocate memory$")
LAST_WORDS = re.compile(r"assertion|terminate called|std::|core dumped|Segmentation|This is a bug in leat", re.I)

SOURCE = """
source events = file { path: "events.csv", schema: { user: int, item: int, clicked: int, price: float, ts: time(ms) }
  event_time: ts, max_delay: 1s }
"""
JOBS = {
    "rows": SOURCE + """
job rows { workers: 2, memory: 32MiB }
sink out = file from events { path: "out/rows.jsonl" }
""",
    "state": SOURCE + """
job state { workers: 2, memory: 32MiB, checkpoint: { every: 20ms, dir: "out/state" } }
stream s = events | dedup by user, item within 1h | feature by user over 1h every 1m { n: count() }
stream w = s | window by item over tumbling(1m) { n: count(), most: max(price) }
sink out = file from w { path: "out/windows.csv" }
""",
    "learner": SOURCE + """
job learner { workers: 2, memory: 64MiB, checkpoint: { every: 50ms, dir: "out/state" } }
learner model = deepfm from events { label: clicked, sparse: [user, item], dense: [price], hidden: [32, 16] }
sink out = file from model.predictions { path: "out/predictions.jsonl" }
""",
    "sorted": SOURCE.replace('"events.csv",', '"events.csv", order_by: ts,') + """
job sorted { workers: 1, memory: 32MiB }
sink out = null from events {}
""",
}
COMMANDS = (["check", "state.leat"], ["explain", "state.leat"], ["help", "window"], ["fmt", "state.leat"],
            ["generate", "ctr", "--events", "2000", "--out", "out"])


def make_events(folder):
    with open(os.path.join(folder, "events.csv"), "w", encoding="ascii") as file:
        file.write("user,item,clicked,price,ts\n")
        for i in range(EVENTS):
            file.write(f"{i * 7919 % 997},{i * 104729 % 499},{int(i % 11 == 0)},{i % 100 / 8},{1700000000000 + i * 137}\n")


def run(folder, name, limits, user=None, goes_on=False, command=None):
    """(status, what it said) under limits: pairs of a resource and a number. goes_on: with what the last one left."""
    out = os.path.join(folder, "out")
    if not goes_on:
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
    if user is not None:
        os.chown(out, user, user)
    with open(os.path.join(folder, name + ".leat"), "w", encoding="ascii") as file:
        file.write(JOBS[name])

    def limit():
        for what, number in limits:
            resource.setrlimit(what, (number, number))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
    program = LEAT if user is None else tap.for_all_users(LEAT, folder)
    done = subprocess.run([program, *(command or ["run", name + ".leat", "--quiet"])], cwd=folder, capture_output=True, text=True, errors="replace",
                          timeout=PATIENCE_S, check=False, preexec_fn=limit)
    return done.returncode, done.stdout + done.stderr


def wrong_with(status, said):
    """What is not as it should be about an end, or None."""
    if status == GOOD:
        return None
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    if status == NO_LOADER and LOADER.search(said):
        return None
    if LAST_WORDS.search(said):
        return "a library's or an assertion's last words"
    if not re.search(r"error\[E\d{4}\]", said):
        return "no error with a code"
    if "hint: " not in said:
        return "no way out"
    return None


def outputs(folder):
    found = {}
    for name in sorted(os.listdir(os.path.join(folder, "out"))):
        path = os.path.join(folder, "out", name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[name] = file.read()
    return found


def sweep(folder, name, what, numbers, user=None, enough=2):
    """Tries the limits until so many were enough, and gave what a run without limits gives; what was wrong."""
    wrong, good, tried = [], 0, []
    run(folder, name, [])
    expected = outputs(folder)
    for number in numbers:
        status, said = run(folder, name, [(what, number)], user)
        tried.append((number, status))
        problem = wrong_with(status, said)
        if problem:
            wrong.append(f"{name} at {number:,}: status {status}: {problem}: {said.strip()[-300:]!r}")
        if status == GOOD and outputs(folder) != expected:
            wrong.append(f"{name} at {number:,}: other rows than without a limit")
        good = good + 1 if status == GOOD else 0
        if good == enough:
            break
    assert good == enough, f"{name}: never enough: {tried}"
    assert not wrong, f"{len(wrong)} of {len(tried)} ends are bad:\n" + "\n".join(wrong[:12])
    return tried


def steps(first, last, factor):
    while first < last:
        yield int(first)
        first *= factor


def with_folder(test):
    def in_folder(*arguments):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            make_events(folder)
            return test(folder, *arguments)
    return in_folder


@with_folder
def address_space(folder, name):
    sweep(folder, name, resource.RLIMIT_AS, steps(70 * MIB, 16 << 30, 1.02 if IS_LONG else 1.1))


@with_folder
def file_size(folder, name):
    sweep(folder, name, resource.RLIMIT_FSIZE, steps(100, 1 << 30, 1.3 if IS_LONG else 3))


@with_folder
def descriptors(folder, name):
    sweep(folder, name, resource.RLIMIT_NOFILE, range(4, 400) if IS_LONG else [4, 5, 7, 9, 12, 16, 22, 30, 45, 90, 200, 400])


@with_folder
def threads(folder, name):
    if os.geteuid() != 0:
        return "only root can become somebody who has no other processes"
    os.chmod(folder, 0o777)
    sweep(folder, name, resource.RLIMIT_NPROC, range(1, 40), user=NOBODY)
    return None


@with_folder
def stack(folder, name):
    sweep(folder, name, resource.RLIMIT_STACK, steps(STACK_LEAST, 16 << 20, 1.3 if IS_LONG else 2.5))


def test_address_space_rows():
    address_space("rows")


def test_address_space_learner():
    address_space("learner")


def test_address_space_sorted():
    address_space("sorted")


def test_file_size_rows():
    file_size("rows")


def test_file_size_state():
    file_size("state")


def test_file_size_learner():
    file_size("learner")


def test_descriptors():
    descriptors("state")


def test_threads():
    return threads("state")


def test_stack():
    stack("state")
    stack("learner")


@with_folder
def refused_and_gone_on(folder):
    status, said = run(folder, "state", [])
    assert status == GOOD, said
    with open(os.path.join(folder, "out", "windows.csv"), "rb") as file:
        expected = file.read()
    refused = 0
    for bytes_ in steps(70 * MIB, 1 << 30, 1.05 if IS_LONG else 1.12):
        status, said = run(folder, "state", [(resource.RLIMIT_AS, bytes_)])
        problem = wrong_with(status, said)
        assert problem is None, f"{bytes_}: {problem}: {said[-300:]}"
        if status == GOOD:
            break
        refused += status == REFUSED
        assert status != REFUSED or "which is 32 MiB" in said or "memory:" not in said, said
        status, said = run(folder, "state", [], goes_on=True)
        assert status == GOOD, f"after {bytes_}: {said}"
        with open(os.path.join(folder, "out", "windows.csv"), "rb") as file:
            assert file.read() == expected, f"after {bytes_}: other rows than undisturbed"
    assert refused > 0, "nothing was refused"


def test_what_was_refused_memory_goes_on():
    """It ends with a status of its own, and the next run goes on from what it had checkpointed."""
    refused_and_gone_on()


@with_folder
def ended_by_a_signal(folder):
    path = os.path.join(folder, "long.leat")
    with open(path, "w", encoding="utf-8") as file:
        file.write("job long { workers: 1 }\nsource a = sequence { count: 1000000000000 }\nsink o = null from a\n")
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
        with subprocess.Popen([LEAT, "run", path, "--progress=1s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            begun = process.stderr.readline()  # of progress
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE_S)
        assert " events " in begun and process.returncode == -number, (begun, process.returncode, said)
        assert f"ended by {number.name}. This is a bug" in said, said
        assert re.search(r"hint: please report these places:( \S+\+0x[0-9a-f]+)* leat\+0x[0-9a-f]+", said), said


def test_a_signal_that_nobody_expects():
    """It is named, with the places in the program."""
    ended_by_a_signal()


@with_folder
def all_commands(folder):
    run(folder, "state", [])
    for command in COMMANDS:
        for bytes_ in steps(70 * MIB, 1 << 30, 1.05 if IS_LONG else 1.15):
            status, said = run(folder, "state", [(resource.RLIMIT_AS, bytes_)], command=command)
            problem = wrong_with(status, said)
            assert problem is None, f"leat {' '.join(command)} at {bytes_}: status {status}: {problem}: {said[-300:]}"
            if status == GOOD:
                break
        assert status == GOOD, f"leat {' '.join(command)}: never enough"


def test_other_commands():
    all_commands()


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=1))
