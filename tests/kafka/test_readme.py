#!/usr/bin/env python3
"""README.md's section "Live", run as it stands there: its commands, one after another, in one shell.

What is put in their place: `./dev kafka start` is the rig's broker, `leat` the program under test; a loaded machine waits
longer."""

import os
import re
import subprocess
import sys
import tempfile

import rig

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LEAT = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release", "leat")
SAME = "the same, byte for byte"


def commands():
    """The section's first block of shell commands."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.search(r"^## Live\n(.*?)^## ", file.read(), re.M | re.S)[1]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1]
    assert block.count("./dev kafka start") == 1, "the section starts a broker"
    assert "kill -9" in block and SAME in block, "the section kills the job, and compares"
    block = re.sub(r"^\./dev kafka start.*$", ": # the rig's broker", block, flags=re.M)
    return re.sub(r"^sleep (\d+)", lambda wait: f"sleep {rig.stretched(int(wait[1])):.1f}", block, flags=re.M)


def test_live_section():
    with rig.own() as kafka, tempfile.TemporaryDirectory(prefix="leat-readme-") as folder:
        os.symlink(os.path.join(ROOT, "jobs"), os.path.join(folder, "jobs"))
        environment = {**os.environ, "KAFKA_BROKERS": kafka.brokers,
                       "PATH": os.path.dirname(LEAT) + os.pathsep + os.environ["PATH"]}
        result = subprocess.run(["bash", "-ec", commands()], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=rig.PATIENCE_S, check=False)
        print(result.stdout)
        assert result.returncode == 0, f"status {result.returncode}"
        assert result.stdout.count(SAME) == 2, "scores and model are compared"


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
