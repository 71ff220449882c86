#!/usr/bin/env python3
"""The systemd unit and the Kubernetes objects of dist/: they are read by the tools that are there, and their command lines by leat.

    test_dist.py LEAT
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

LEAT, GRACE_S = os.path.abspath(sys.argv[1]), 120
USAGE, UNREADABLE = 2, 3


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def is_taken(arguments):
    """leat takes the command line: it fails for want of the job's file alone, and refuses the line with one more flag that it lacks."""
    assert arguments[0] == "run" and not os.path.exists(arguments[1]), arguments
    for more, status in (((), UNREADABLE), (("--nodes-more=1",), USAGE)):
        found = subprocess.run([LEAT, *arguments, *more], capture_output=True, text=True, timeout=60, check=False)
        assert found.returncode == status, (arguments, found)
    assert "--cluster" in " ".join(arguments) and "--advertise" in " ".join(arguments)


def test_systemd():
    unit, settings = read("dist/leat-worker@.service"), dict(re.findall(r"^(\w+)=(.*)$", read("dist/leat-worker.env"), re.M))
    [start] = re.findall(r"^ExecStart=/usr/bin/leat (.*)$", unit, re.M)
    words = [re.sub(r"\$\{(\w+)\}", lambda name: settings[name[1]], word).replace("%i", "ctr") for word in start.split()]
    is_taken(words)
    assert f"\nTimeoutStopSec={GRACE_S}\n" in unit and "\nKillSignal=SIGTERM\n" in unit and "\nRestart=on-failure\n" in unit
    if shutil.which("systemd-analyze") is None:
        print("# SKIP systemd-analyze is missing")
        return
    with tempfile.TemporaryDirectory(prefix="leat-unit-") as folder:
        for name, text, status in (("good", unit, 0), ("bad", unit.replace("ExecStart=", "ExecBegin="), 1)):
            path = f"{folder}/leat-worker@{name}.service"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/usr/bin/leat", LEAT))
            found = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60, check=False)
            assert found.returncode == status and (status != 0 or path not in found.stderr), found


def test_kubernetes():
    objects = {one["kind"]: one for one in yaml.safe_load_all(read("dist/kubernetes.yml"))}
    assert objects.keys() == {"ConfigMap", "PersistentVolumeClaim", "Service", "StatefulSet"}
    state, pod = objects["StatefulSet"]["spec"], objects["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    arguments = [word.replace("$(POD_IP)", "10.0.0.7") for word in container["args"]]
    assert container["command"] == ["leat"] and container["env"][0]["name"] == "POD_IP"
    is_taken(arguments)
    assert pod["terminationGracePeriodSeconds"] == GRACE_S and state["podManagementPolicy"] == "Parallel"
    labels = state["template"]["metadata"]["labels"]
    assert labels == state["selector"]["matchLabels"] == objects["Service"]["spec"]["selector"]
    assert state["serviceName"] == objects["Service"]["metadata"]["name"] and objects["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    [(name, job)] = objects["ConfigMap"]["data"].items()
    assert f"{mounts['job']}/{name}" == arguments[1] and mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    [directory] = re.findall(r'dir: "([^"]+)"', job)
    assert directory.startswith(mounts["shared"] + "/")
    with tempfile.NamedTemporaryFile("w", suffix=".leat") as file:
        file.write(job)
        file.flush()
        subprocess.run([LEAT, "check", file.name], check=True, capture_output=True)


def test_the_docs_say_so():
    text = read("docs/cluster-operations.md")
    for words in (f"TimeoutStopSec={GRACE_S}", f"terminationGracePeriodSeconds: {GRACE_S}", "leat-worker@", "kubernetes.yml"):
        assert words in text, words


if __name__ == "__main__":
    sys.exit(tap.run({name: test for name, test in list(globals().items()) if name.startswith("test_")}))
