"""The public clients that the tests of serving use, fetched once into build/serve by pip: tritonclient (Open
Inference Protocol over HTTP and gRPC) and what it needs. They are fetched again when a pinned version changes.

    import install
    install.packages()      puts them into sys.path; raises install.Missing where they cannot be had
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HOME = os.path.join(ROOT, "build", "serve")
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
# A wheel is of one version of Python.
PACKAGES = os.path.join(HOME, "python-%d.%d" % sys.version_info[:2])
FETCH_SECONDS_MAX = 300


class Missing(Exception):
    """The clients cannot be had here; says why."""


@contextlib.contextmanager
def lock():
    """Tests that begin together fetch once."""
    os.makedirs(HOME, exist_ok=True)
    with open(os.path.join(HOME, "lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def version():
    with open(REQUIREMENTS, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def fetch():
    """Fills PACKAGES, unless that was done for these versions."""
    mark = os.path.join(PACKAGES, ".version")
    with contextlib.suppress(OSError), open(mark, encoding="utf-8") as file:
        if file.read() == version():
            return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    print("serve: fetching tritonclient (pip)", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary",
               ":all:", "--no-deps", "--target", PACKAGES, "-r", REQUIREMENTS]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"tritonclient: not fetched within {FETCH_SECONDS_MAX} s") from None
    if result.returncode != 0 or not os.path.isdir(PACKAGES):
        lines = [line for line in (result.stdout + result.stderr).split("\n") if "ERROR" in line] or ["failed"]
        raise Missing(f"tritonclient could not be fetched: {lines[0][:300]}")
    with open(mark, "w", encoding="utf-8") as file:
        file.write(version())


def packages():
    """Puts the clients into sys.path. Raises Missing."""
    with lock():
        fetch()
    if PACKAGES not in sys.path:
        sys.path.insert(0, PACKAGES)


if __name__ == "__main__":
    try:
        packages()
    except Missing as missing:
        sys.exit(f"serve: {missing}")
    print(PACKAGES)
