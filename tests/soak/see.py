#!/usr/bin/env python3
"""Ten minutes of requests made from each OpenAPI document; 100,000 clients; a day of the page in an hour.

    ./dev soak see [SECONDS] [--minutes N]

schemathesis (./dev setup fetches it) asks the control API of a run, and `leat serve`, good requests and bad ones, for SECONDS
each (600): none may be answered 5xx but as documented, or by what the document does not know (tests/metrics/test_openapi.py).
100,000 clients want the events of a run that has 32 readers, and are refused (tests/cli/test_crowd.py). Then a browser shows
the page for N minutes (60), a day of a job's time, and a job of 256 nodes: its memory stays flat (tests/page/soak.py). Prints
TAP.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS, CLIENTS, MINUTES = 600, 100_000, 60


def main():
    parser = argparse.ArgumentParser(prog="./dev soak see", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=int, default=SECONDS)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    words = parser.parse_args()
    if words.seconds < 1 or words.minutes < 1:
        parser.error("SECONDS and N are at least 1")
    tests, leat = os.path.dirname(HERE), os.environ.get("LEAT", "build/release/leat")
    parts = [("metrics/test_openapi.py", "--seconds", words.seconds), ("cli/test_crowd.py", "--clients", CLIENTS),
             ("page/soak.py", "--minutes", words.minutes)]
    return max([subprocess.run([sys.executable, os.path.join(tests, file), leat, option, str(value)], check=False).returncode
                for file, option, value in parts])


if __name__ == "__main__":
    sys.exit(main())
