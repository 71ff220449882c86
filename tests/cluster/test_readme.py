#!/usr/bin/env python3
"""README.md's section "Several machines", run as it stands there: its commands, one after another, in one shell. etcd listens at free
ports.

    test_readme.py LEAT
"""

import os
import re
import subprocess
import sys
import tempfile

import etcd

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LEAT = os.path.abspath(sys.argv[1])
SAME = "the same, byte for byte"


def commands():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.search(r"^## Several machines\n(.*?)^## ", file.read(), re.M | re.S)[1]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1]
    assert block.count("kill -9") == 1 and SAME in block and block.count("2379") == 2, block
    client, peer = etcd.free_ports(2)
    listen = "".join(f" --{name}-client-urls http://127.0.0.1:{client}" for name in ("listen", "advertise"))
    block = block.replace("--data-dir data/etcd", f"--data-dir data/etcd{listen} --listen-peer-urls http://127.0.0.1:{peer}")
    return block.replace("2379", str(client))


def test_several_machines():
    if etcd.missing():
        return etcd.missing()
    with tempfile.TemporaryDirectory(prefix="leat-readme-") as folder:
        os.symlink(os.path.join(ROOT, "jobs"), os.path.join(folder, "jobs"))
        environment = {**os.environ, "PATH": os.path.dirname(LEAT) + os.pathsep + os.environ["PATH"]}
        # A group of its own, so that no process of it is left where a command fails.
        with open(os.path.join(folder, "said"), "w+", encoding="utf-8") as said:
            shell = subprocess.Popen(["bash", "-ec", commands()], cwd=folder, env=environment, stdout=said, stderr=said,
                                     start_new_session=True)
            try:
                shell.wait(timeout=PATIENCE_S)
            finally:
                subprocess.run(["pkill", "-KILL", "-s", str(shell.pid)], check=False)
                shell.wait()
                said.seek(0)
                text = said.read()
        assert shell.returncode == 0 and text.count(SAME) == 1, text[-3000:]
        assert "3 workers" in text and "has gone" in text, text[-3000:]
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
