#!/usr/bin/env python3
"""Long proofs of `leat serve` beside a running job: each answer is of one cut, which it names.

    LEAT=build/release/leat tests/soak/serve.py [PART...] [--requests 1e7]

cuts: four threads ask while cuts come, and each answer is checked (tests/serve/test_cuts.py; about 6 minutes).
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


def test(name, *words):
    print(f"# {name} {' '.join(words)}", flush=True)
    return subprocess.run([sys.executable, os.path.join(TESTS, name), *words], check=False).returncode == 0


def cuts(arguments):
    return test("test_cuts.py", LEAT, ASK, "--only", "test_one_cut", "--requests", str(arguments.requests), "--events",
                str(max(100_000, int(arguments.requests * EVENTS_EACH_REQUEST))))


PARTS = {"cuts": cuts}


def main():
    parser = argparse.ArgumentParser(prog="./dev soak serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(PARTS))
    parser.add_argument("--requests", type=lambda text: int(float(text)), default=10_000_000)
    arguments = parser.parse_args()
    if not set(arguments.parts) <= set(PARTS):
        parser.error("the parts are " + ", ".join(PARTS))
    return 0 if all([PARTS[part](arguments) for part in arguments.parts or PARTS]) else 1


if __name__ == "__main__":
    sys.exit(main())
