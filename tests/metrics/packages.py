#!/usr/bin/env python3
"""schemathesis and HdrHistogram for tests, in a folder of their own.

    tests/metrics/packages.py install    has pip fetch them into build/packages, unless they are there in these versions
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
HOME = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "packages")
# A wheel is of one version of Python.
PACKAGES = os.path.join(HOME, "python-%d.%d" % sys.version_info[:2])
MARK = os.path.join(PACKAGES, ".version")
FETCH_SECONDS_MAX = 300


def version():
    with open(REQUIREMENTS, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def missing():
    """Why tests cannot have them; None: they can."""
    with contextlib.suppress(OSError), open(MARK, encoding="ascii") as file:
        if file.read() == version():
            return None
    return "schemathesis and hdrhistogram are not in build/packages: ./dev setup"


def use():
    """Puts them into sys.path, and into that of the programs that the test starts."""
    sys.path.insert(0, PACKAGES)
    os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])


def install():
    os.makedirs(HOME, exist_ok=True)
    with open(os.path.join(HOME, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing() is None:
            return 0
        shutil.rmtree(PACKAGES, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:",
                   "--no-deps", "--target", PACKAGES, "-r", REQUIREMENTS]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            print(f"schemathesis and hdrhistogram: not fetched within {FETCH_SECONDS_MAX} s", file=sys.stderr)
            return 1
        if done.returncode != 0:
            lines = [line for line in (done.stdout + done.stderr).split("\n") if "ERROR" in line or "No module" in line]
            print(f"schemathesis and hdrhistogram could not be fetched: {(lines or ['pip failed'])[0][:300]}", file=sys.stderr)
            return 1
        with open(MARK, "w", encoding="ascii") as file:
            file.write(version())
    return 0


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else __doc__)
