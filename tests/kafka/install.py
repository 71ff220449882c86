"""What the tests' Kafka is made of, fetched once into build/kafka: Java is found, the broker's jars come by Maven, the
Python client by pip. Each is fetched again when its pinned version changes."""

import contextlib
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HOME = os.path.join(ROOT, "build", "kafka")
POM = os.path.join(HERE, "pom.xml")
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
JARS = os.path.join(HOME, "jars")
# A wheel is of one version of Python.
PACKAGES = os.path.join(HOME, "python-%d.%d" % sys.version_info[:2])
JAVA_VERSION_MIN = 17
FETCH_SECONDS_MAX = 300


class Missing(Exception):
    """There can be no broker here; says why."""


_held = [0]


@contextlib.contextmanager
def lock():
    """Tests that begin together fetch once. May be taken again by its holder."""
    if _held[0]:
        yield
        return
    os.makedirs(HOME, exist_ok=True)
    with open(os.path.join(HOME, "lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _held[0] = 1
        try:
            yield
        finally:
            _held[0] = 0


def java_version(program):
    """17 for .../bin/java of some Java 17; 0 where it cannot be told."""
    try:
        release = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "release")
        with open(release, encoding="utf-8") as file:
            found = re.search(r'^JAVA_VERSION="(\d+)', file.read(), re.M)
        return int(found.group(1)) if found else 0
    except OSError:
        return 0


def java():
    """The program: of all that will do the oldest, for which this Kafka was made."""
    programs = glob.glob("/usr/lib/jvm/*/bin/java")
    programs += [os.path.join(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    programs += [shutil.which("java")] if shutil.which("java") else []
    fitting = [(version, program) for program in programs for version in [java_version(program)]
               if version >= JAVA_VERSION_MIN]
    if not fitting:
        raise Missing(f"no Java {JAVA_VERSION_MIN} or newer is installed (./dev setup)")
    return min(fitting)[1]


def digest(*paths):
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            total.update(file.read())
    return total.hexdigest()[:16]


def fetch(folder, version, command, what):
    """Runs the command, which fills the folder, unless that was done for this version."""
    mark = os.path.join(folder, ".version")
    with contextlib.suppress(OSError), open(mark, encoding="utf-8") as file:
        if file.read() == version:
            return
    if shutil.which(command[0]) is None:
        raise Missing(f"{command[0]}, which fetches {what}, is not installed (./dev setup)")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"kafka: fetching {what}", file=sys.stderr, flush=True)
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: not fetched within {FETCH_SECONDS_MAX} s") from None
    if result.returncode != 0 or not os.path.isdir(folder):
        lines = [line for line in (result.stdout + result.stderr).split("\n") if "ERROR" in line] or ["failed"]
        raise Missing(f"{what} could not be fetched: {lines[0][:300]}")
    with open(mark, "w", encoding="utf-8") as file:
        file.write(version)


def jars():
    """The broker's class path."""
    fetch(JARS, digest(POM), ["mvn", "-q", "-B", "-f", POM], "Apache Kafka (Maven)")
    return os.path.join(JARS, "*")


def packages():
    """Puts the Python client into sys.path."""
    fetch(PACKAGES, digest(REQUIREMENTS),
          [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:",
           "--no-deps", "--target", PACKAGES, "-r", REQUIREMENTS], "the Python client (pip)")
    if PACKAGES not in sys.path:
        sys.path.insert(0, PACKAGES)


def everything():
    """Fetches what is missing. Raises Missing."""
    java()
    with lock():
        jars()
        packages()
