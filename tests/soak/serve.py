#!/usr/bin/env python3
"""Long proofs of `leat serve` beside a running job: answers of one cut, a trainer that is killed, no races.

    LEAT=build/release/leat tests/soak/serve.py [PART...] [--requests 1e7] [--kills 100] [--seed 1] [--seconds 60]

cuts: four threads ask while cuts come, and each answer is checked (tests/serve/test_cuts.py; about 6 minutes).
kills: the trainer is killed and runs again with other lanes, under three tests.
races: jobs, their server and a mirror under ThreadSanitizer, with all that changes (tests/serve/races.py; 2 minutes).
Without a PART all run. Prints TAP.
"""

import argparse
import os
import subprocess
import sys

TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "serve")
LEAT = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
ASK = os.path.join(os.path.dirname(LEAT), "tests/serve/leat_ask_cuts")
EVENTS_EACH_REQUEST = 0.06  # of the job that is asked: plenty where the server has a core


def test(name, *words, around=()):
    """around: a command that it runs under."""
    print(f"# {name} {' '.join(words)}", flush=True)
    return subprocess.run([*around, sys.executable, os.path.join(TESTS, name), *words], check=False).returncode == 0


def cuts(arguments):
    return test("test_cuts.py", LEAT, ASK, "--only", "test_one_cut", "--requests", str(arguments.requests), "--events",
                str(max(100_000, int(arguments.requests * EVENTS_EACH_REQUEST))))


def kills(arguments):
    words = ["--kills", str(arguments.kills), "--seed", str(arguments.seed), "--only", "test_killed_trainer"]
    return all([test("test_cuts.py", LEAT, ASK, *words), test("test_follow.py", LEAT, *words),
                test("test_serve_faults.py", LEAT, *words)])


def races(arguments):
    around = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], check=False).returncode == 0 else []
    folder = os.path.join(os.path.dirname(os.path.dirname(LEAT)), "tsan")
    return test("races.py", os.path.join(folder, "leat"), ASK, "--seconds", str(arguments.seconds), "--out",
                os.path.join(folder, "races.txt"), around=around)


PARTS = {"cuts": cuts, "kills": kills, "races": races}


def main():
    parser = argparse.ArgumentParser(prog="./dev soak serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(PARTS))
    parser.add_argument("--requests", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--kills", type=int, default=100, help="of each test")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60, help="of races")
    arguments = parser.parse_args()
    if not set(arguments.parts) <= set(PARTS):
        parser.error("the parts are " + ", ".join(PARTS))
    return 0 if all([PARTS[part](arguments) for part in arguments.parts or PARTS]) else 1


if __name__ == "__main__":
    sys.exit(main())
