#!/usr/bin/env python3
"""Ten minutes of requests made from each OpenAPI document.

    ./dev soak see [SECONDS]

schemathesis (./dev setup fetches it) asks the control API of a run, and `leat serve`, good requests and bad ones: none may be
answered 5xx but as documented, or by what the document does not know (tests/metrics/test_openapi.py). Prints TAP.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 600


def main():
    words = sys.argv[1:]
    if len(words) > 1 or not all(word.isdigit() and int(word) > 0 for word in words):
        print(__doc__, end="")
        return 0 if words in (["--help"], ["-h"]) else 2
    test = os.path.join(os.path.dirname(HERE), "metrics", "test_openapi.py")
    leat = os.environ.get("LEAT", "build/release/leat")
    return subprocess.run([sys.executable, test, leat, "--seconds", words[0] if words else str(SECONDS)],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
