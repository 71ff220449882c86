#!/usr/bin/env python3
"""`./dev cluster` (rig.py): places, etcd, a job by two workers, a way that is cut, and what is left after the rig has crashed: nothing.

    test_rig.py LEAT
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

import etcd
import rig
from etcd import wait_for

sys.path.insert(0, os.path.dirname(etcd.HERE))
import tap  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
SLOW = "run.claimed=sleep:100"  # each micro-batch, so that the job lasts until it is stopped
JOB = """param out: text = "out"
param state: text = ""
job j { memory: 32MiB, checkpoint: { every: 200ms, dir: state } }
source a = sequence { count: 20000, keys: 50, rate: 900, event_time: ts }
stream f = a | feature by key over 1h { n: count() }
sink c = file from f { path: concat(out, "/rows.csv") }
"""


class Rig:
    """A rig in a folder of its own. Use it in a `with`."""

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="leat-rig-")
        self.folder = os.path.join(self.temporary.name, "rig")
        self.environment = {**os.environ, rig.MARK: self.folder, "LEAT": LEAT}
        return self

    def __exit__(self, *_):
        self.call("stop")
        self.temporary.cleanup()

    def words(self, *words):
        return [sys.executable, os.path.join(etcd.HERE, "rig.py"), *words]

    def call(self, *words, status=0):
        """What it says. status: what it must end with; None: whatever it likes."""
        found = subprocess.run(self.words(*words), capture_output=True, text=True, check=False, env=self.environment)
        assert status in (None, found.returncode), found
        return found.stdout + found.stderr

    def state(self):
        with open(f"{self.folder}/state.json", encoding="utf-8") as file:
            return json.load(file)

    def processes(self):
        mark, found = f"{rig.MARK}={self.folder}".encode(), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    found += [pid] if mark in file.read().split(b"\0") else []
            except OSError:
                continue
        return found


def run_job(one, workers):
    """Starts them, and returns their processes and the folder of the job."""
    folder = os.path.join(one.temporary.name, f"job{workers}")
    os.makedirs(f"{folder}/out")
    with open(f"{folder}/job.leat", "w", encoding="utf-8") as file:
        file.write(JOB)
    settings = [f"--set=out={folder}/out", f"--set=state={folder}/state", "--quiet"]
    command = [LEAT, "run", f"{folder}/job.leat", *settings] if workers == 0 else None
    return [subprocess.Popen(command or one.words("run", str(i), f"{folder}/job.leat", f"--nodes={workers}:{workers}", *settings),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=one.environment)
            for i in range(max(workers, 1))], folder


def test_job():
    with Rig() as one:
        told = one.call("start", "--workers", "2", "--etcd", "1")
        assert "dev cluster run 1 JOB" in told and "etcd at" in told, told
        assert "runs already" in one.call("start", status=1)
        rows = []
        for workers in (0, 2):
            processes, folder = run_job(one, workers)
            for process in processes:
                _, said = process.communicate(timeout=etcd.PATIENCE_S)
                assert process.returncode == 0, said
            with open(f"{folder}/out/rows.csv", "rb") as file:
                rows.append(file.read())
        assert rows[0] and rows[0] == rows[1]
        assert "there is no place w7" in one.call("run", "7", "job", status=1)
        told = one.call("exec", "hub", LEAT, "cluster", "status", f"etcd://{one.state()['endpoints']}/rig")
        assert "has ended" in told, told


def test_objects():
    """A store that all places reach: two workers with directories of their own begin with what two others have left there."""
    try:
        rig.objects_rig().class_path()
    except rig.objects_rig().install.Missing as missing:
        return str(missing)
    with Rig() as one:
        assert "s3://rig/JOB" in one.call("start", "--workers", "2", "--etcd", "1", "--s3")
        job = f"{one.temporary.name}/job.leat"
        with open(job, "w", encoding="utf-8") as file:
            # All have the same job: a directory is a worker's own by where it runs.
            file.write(JOB.replace("dir: state }", 'dir: "state", store: "s3://rig/job" }').replace("count: 20000", "count: 1000000"))
        os.makedirs(f"{one.temporary.name}/out")
        for life, slow in (("a", {"LEAT_FAILPOINTS": SLOW}), ("b", {})):
            disks = [f"{one.temporary.name}/{life}{i}" for i in range(2)]
            for disk in disks:
                os.makedirs(disk)
            settings = ["--nodes=2:2", f"--set=out={one.temporary.name}/out", "--quiet"]
            workers = [subprocess.Popen(one.words("run", str(i), job, *settings), cwd=disk, env={**one.environment, **slow},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i, disk in enumerate(disks)]
            if life == "a":
                status = ["exec", "hub", LEAT, "cluster", "status", f"etcd://{one.state()['endpoints']}/rig"]

                def has_head(workers=workers, status=status):
                    ended = [process.communicate() for process in workers if process.poll() is not None]
                    assert not ended, ended
                    return "head: head-" in one.call(*status, status=None)
                wait_for("a head", has_head)
                one.call(*[word if word != "status" else "stop" for word in status])
            for process in workers:
                _, said = process.communicate(timeout=etcd.PATIENCE_S)
                assert process.returncode == 0, said
        assert "2 of 2 parts of the head come from the store" in said, said
        assert "head of 2 workers" in one.call("exec", "w1", LEAT, "checkpoint", "list", "s3://rig/job")
        return None


def test_ways():
    """What is cut is cut, and mended."""
    with Rig() as one:
        one.call("start", "--workers", "2", "--etcd", "1")
        if one.state()["why_not"]:
            assert "cannot be touched" in one.call("cut", "0", status=1)
            return one.state()["why_not"]
        address, port = one.state()["endpoints"].split(":")
        knock = f"import socket; socket.create_connection(('{address}', {port}), 1)"
        for cut in (["cut", "0", "etcd"], ["cut", "0"]):
            one.call("exec", "w0", sys.executable, "-c", knock)
            one.call(*cut)
            one.call("exec", "w0", sys.executable, "-c", knock, status=1)
            one.call("exec", "w1", sys.executable, "-c", knock)
            one.call("mend")
        one.call("cut", "0", "peers")
        one.call("slow", "0")
        one.call("exec", "w0", sys.executable, "-c", knock)
        return None


def test_crash():
    """The rig is killed while a worker runs: `status` says so, `stop` ends what is left."""
    with Rig() as one:
        one.call("start", "--workers", "1", "--etcd", "1")
        assert "pid" in one.call("status")
        sleeper = subprocess.Popen(one.words("exec", "w0", "sleep", "1000"), env=one.environment)
        wait_for("the worker's place", lambda: os.path.basename(os.readlink(f"/proc/{sleeper.pid}/exe")) == "sleep")
        os.kill(one.state()["pid"], signal.SIGKILL)
        wait_for("the end of the rig", lambda: rig.instance.process_start(one.state()["pid"]) is None)
        assert "has crashed" in one.call("status", status=1)
        assert "runs already, or a part of it" in one.call("start", status=1)
        assert "stopped" in one.call("stop")
        assert sleeper.wait(timeout=etcd.PATIENCE_S) < 0
        assert one.processes() == [] and not os.path.exists(one.folder)
        assert "nothing runs" in one.call("status", status=1)


if __name__ == "__main__":
    if etcd.missing():
        print(f"ok - rig # SKIP {etcd.missing()}")
        sys.exit(77)
    sys.exit(tap.run(globals()))
