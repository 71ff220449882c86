"""Workers of the rows of clusters: processes of `leat run --cluster` on this machine, and one etcd for all of them."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from harness import ROOT, Broken, Skip, busy_cores, finish

sys.path.append(os.path.join(ROOT, "tests", "cluster"))
import etcd  # noqa: E402

START_SECONDS = 300
_servers, _names = [], itertools.count()


def servers():
    """An etcd with one member, started by the first row that needs it; dies with this process at the latest."""
    if not _servers:
        if etcd.missing():
            raise Skip(f"no etcd: {etcd.missing()}")
        folder = tempfile.mkdtemp(prefix="leat-bench-etcd-")
        _servers.append((folder, etcd.Etcd(os.path.join(folder, "etcd")).__enter__()))
    return _servers[0][1]


def close():
    while _servers:
        folder, one = _servers.pop()
        one.__exit__()
        shutil.rmtree(folder, ignore_errors=True)


@dataclasses.dataclass
class Worker:
    process: subprocess.Popen
    log: str


class Workers:
    """Processes that run one job together, with one lane each."""

    def __init__(self, bench, job, nodes, **settings):
        self.bench, self.job, self.nodes, self.settings = bench, job, nodes, settings
        self.name, self.all, self.logs = f"bench-{next(_names)}", [], itertools.count()
        self.started, self.busy = time.monotonic(), busy_cores()

    def start(self):
        flags = ["--quiet", f"--cluster=etcd://{servers().endpoints()}/{self.name}", f"--nodes={self.nodes}", "--nodes-wait=1h",
                 "--listen=127.0.0.1:0", "--lease=10s"]
        log = self.bench.path(f"worker-{next(self.logs)}")
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            process = subprocess.Popen(self.bench.job_command(self.job, 1, self.settings, flags), stdout=out, stderr=err)
        self.all.append(Worker(process, log))
        return self.all[-1]

    def kill(self, worker):
        worker.process.kill()
        worker.process.wait()
        self.all.remove(worker)

    def members(self):
        """{pid of a worker: what `leat cluster status` says of it}; None: not all have joined yet, or one that died is still named."""
        found = subprocess.run([self.bench.leat, "cluster", "status", f"etcd://{servers().endpoints()}/{self.name}", "--json"],
                               capture_output=True, text=True, check=False)
        told = {one["address"]: one for one in json.loads(found.stdout).get("members", [])} if found.returncode == 0 else {}
        by_worker = {}
        for worker in self.all:
            with open(f"{worker.log}.err", encoding="utf-8", errors="replace") as file:
                address = re.findall(r"joined the cluster as (\S+)", file.read())
            if address and address[-1] in told:
                by_worker[worker.process.pid] = told[address[-1]]
        return by_worker if len(by_worker) == len(told) == len(self.all) else None

    def wait(self):
        """members(), once as many take part as shall, and the others wait for a place."""
        until, found = time.monotonic() + START_SECONDS, None
        while not found or sum(one["worker"] is not None for one in found.values()) != self.nodes:
            if any(worker.process.poll() is not None for worker in self.all) or time.monotonic() > until:
                raise Broken(f"{self.job}: the workers did not begin: {found}")
            time.sleep(0.05)
            found = self.members()
        return found

    def follower(self):
        """One that takes part, and does not lead."""
        found = self.wait()
        return next(worker for worker in self.all if found[worker.process.pid]["worker"] is not None and
                    not found[worker.process.pid]["leads"])

    def close(self):
        for worker in list(self.all):
            if worker.process.returncode is None:
                self.kill(worker)

    def end(self):
        """Waits for all; one run: the CPU time and the memory of all of them, and the job's summary."""
        runs = [finish(worker.process, self.started, self.busy, "") for worker in self.all]
        run, cpu = runs[-1], sum(one.cpu for one in runs)
        run.wall = max(one.wall for one in runs)
        run.others = max(0.0, (busy_cores() - self.busy - cpu) / max(run.wall, 1e-3))
        run.cpu, run.rss_mb = cpu, sum(one.rss_mb for one in runs)
        for worker in self.all:
            with open(f"{worker.log}.out", encoding="utf-8", errors="replace") as file:
                out = file.read()
            if worker.process.returncode != 0:
                with open(f"{worker.log}.err", encoding="utf-8", errors="replace") as file:
                    raise Broken(f"{self.job}: a worker ended with status {worker.process.returncode}: {file.read()[-800:]}")
            summary = json.loads(out)
            run.summary = summary if "nodes" in summary else run.summary
        if not run.summary or not run.summary["good"] or not run.summary["finished"]:
            raise Broken(f"{self.job}: several workers did not finish")
        return run


def run(bench, count, job, **settings):
    """`count` workers from start to end."""
    workers = Workers(bench, job, count, **settings)
    try:
        for _ in range(count):
            workers.start()
        return workers.end()
    finally:
        workers.close()
