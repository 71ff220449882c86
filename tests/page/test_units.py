#!/usr/bin/env python3
"""The parts of the page that need no browser: units.mjs. Prints TAP.

    tests/page/test_units.py
"""

import os
import subprocess
import sys

from node import missing

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "units.mjs")


if __name__ == "__main__":
    why = missing()
    if why:
        print(f"ok - units # SKIP {why}")
        sys.exit(0)
    sys.exit(subprocess.run(["node", UNITS], check=False).returncode)
