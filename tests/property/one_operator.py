#!/usr/bin/env python3
"""All that shows an operator beside its unit test: its model, replay and kills, lineage, and that it does not see the future.

    tests/property/one_operator.py --leat build/release/leat [--folder DIR] NAME

It is what `./dev test --fast NAME` runs; the same programs show all operators together in `./dev test`.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = [
    ["models.py", "--cases", "400", "--operator"],
    ["../crash/operators.py", "--kills", "6", "--only"],
    ["lineage.py", "--only"],
    ["future.py", "--seeds", "4", "--only"],
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leat", default="build/release/leat")
    parser.add_argument("--folder", default="build/one-operator")
    parser.add_argument("name")
    arguments = parser.parse_args()
    failed = 0
    for program, *options in PROGRAMS:
        folder = os.path.join(arguments.folder, os.path.basename(program)[:-3])
        command = [sys.executable, os.path.join(HERE, program), "--leat", arguments.leat, "--folder", folder, *options, arguments.name]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
