#!/usr/bin/env python3
"""What builds the web page: Node and the packages that page/package-lock.json names, in page/node_modules.

    tests/page/node.py install    `npm ci` in page/, if the packages there are not those of the lock file
"""

import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "page")
NODE_MIN = 18


def read_json(*names):
    with open(os.path.join(PAGE, *names), encoding="utf-8") as file:
        return json.load(file)


def node_version():
    """The major version; 0: there is no Node."""
    if shutil.which("node") is None:
        return 0
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    major = done.stdout.strip().removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0


def lacks_packages():
    """Whether page/node_modules is not what the lock file says; packages of other systems are not expected."""
    try:
        there = read_json("node_modules", ".package-lock.json")["packages"]
    except (OSError, ValueError, KeyError):
        return True
    wanted = {path: one for path, one in read_json("package-lock.json")["packages"].items() if path}
    is_same = all(wanted.get(path, {}).get("version") == one.get("version") for path, one in there.items())
    return not is_same or any(path not in there for path, one in wanted.items() if not one.get("optional"))


def missing():
    """Why the page cannot be built here; None: it can."""
    if node_version() < NODE_MIN or shutil.which("npm") is None:
        return f"there is no Node {NODE_MIN} or newer with npm"
    return "the packages of page/node_modules are not those of page/package-lock.json: ./dev setup" if lacks_packages() else None


def install():
    if missing() is None:
        return 0
    if node_version() < NODE_MIN or shutil.which("npm") is None:
        print(f"no Node {NODE_MIN} or newer with npm: install `nodejs` and `npm` by hand", file=sys.stderr)
        return 1
    if subprocess.run(["npm", "ci", "--silent"], cwd=PAGE, check=False).returncode != 0:
        print("npm ci in page/: failed", file=sys.stderr)
        return 1
    return 0 if missing() is None else 1


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else __doc__)
