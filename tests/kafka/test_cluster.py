#!/usr/bin/env python3
"""Several workers (`leat run --cluster`) between a topic and a topic, killed and stopped: rows, model and counts of a run that is alone
and that nobody disturbed, each row once. Prints TAP.

    tests/kafka/test_cluster.py PATH_OF_LEAT [--kills N] [--seed N]
"""

import argparse
import glob
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

sys.path.insert(2, os.path.join(rig.install.ROOT, "tests", "cluster"))
import etcd  # noqa: E402
from patience import stretched  # noqa: E402

KILLS = 6  # of the test
POINTS = ("kafka.begin", "kafka.produce", "kafka.progress", "kafka.commit.before", "kafka.commit.after", "ckpt.published", "head.publish",
          "head.moved", None, None)
_cases, SERVERS = {}, []


def case():
    if not _cases:
        _cases["bounded"] = oracle.Case(rig.shared(), rows=12000)
        _cases["bounded"].undisturbed()
    return _cases["bounded"]


class Workers(oracle.Job):
    """A job, and the processes that run it as workers of one cluster."""

    def __init__(self, rate=4000, **options):
        super().__init__(case(), rate=rate, **options)
        self.workers = []

    def begin(self, nodes, failpoints="", place=None, **environment):
        """Starts a worker. place: where it runs (tests/cluster/network.py); None: at 127.0.0.1. environment: more of it."""
        out = open(self.at(f"out{self.lives}"), "w+b")
        err = open(self.at(f"err{self.lives}"), "w+b")
        self.lives += 1
        process = subprocess.Popen(
            [*(place.prefix if place else []), oracle.LEAT, "run", self.path, "--json", "--quiet",
             f"--cluster=etcd://{SERVERS[0].endpoints()}/{self.name}", f"--nodes={nodes}", "--nodes-wait=1h",
             f"--listen={place.address if place else '127.0.0.1'}:0", f"--lease={math.ceil(stretched(2))}s"],
            stdout=out, stderr=err, env={**os.environ, "LEAT_FAILPOINTS": failpoints, **environment},
            preexec_fn=lambda: etcd.LIBC.prctl(etcd.DIE_WITH_PARENT, signal.SIGKILL))
        process.out, process.err = out, err
        self.workers.append(process)
        return process

    @staticmethod
    def said(file):
        file.flush()
        file.seek(0)
        return file.read().decode(errors="replace")

    def heads(self):
        return sorted(glob.glob(os.path.join(self.state, "cluster", "heads", "head-*[0-9]")))

    def newest(self):
        return self.heads()[-1]

    def digest_state(self):
        return ""  # a job that ends has none

    def live(self):
        return [one for one in self.workers if one.poll() is None]

    def has_ended(self):
        """At one of them; then it has at all that live."""
        return any(one.poll() == 0 for one in self.workers)

    def wait_heads(self, more, least):
        """Until there are so many more, or fewer than `least` workers live."""
        seen = set(self.heads())
        rig.wait_for(lambda: len(set(self.heads()) - seen) >= more or len(self.live()) < least, "heads")

    def end(self):
        """All that live, which must end well; the job's summary is that of the last one that led."""
        self.summary = None
        for process in self.workers:
            status = process.wait(timeout=rig.PATIENCE_S)
            assert status in (0, -signal.SIGKILL), (status, self.said(process.err)[-3000:])
            text = self.said(process.out)
            if status == 0 and text and not json.loads(text).get("is_part"):
                self.summary = json.loads(text)
        assert self.summary, [self.said(process.err)[-800:] for process in self.workers]
        self.check()
        for process in self.workers:
            process.out.close()
            process.err.close()
        self.close()

    def close(self):
        for process in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait()
        super().close()


def test_undisturbed():
    for count in (1, 3):
        job = Workers(rate=0)
        for _ in range(count):
            job.begin(count)
        job.end()


def test_kills():
    """Workers that die at steps of checkpoints and transactions, and at random moments; each comes back."""
    rng, kills, rounds = random.Random(OPTIONS.seed), 0, 0
    while kills < OPTIONS.kills:
        job, rounds = Workers(), rounds + 1
        for _ in range(3):
            point = rng.choice(POINTS)
            job.begin(3, f"{point}=kill@{rng.randrange(1, 9)}" if point else "")
        while kills < OPTIONS.kills:
            job.wait_heads(1, 3)
            time.sleep(rng.random())
            if job.has_ended():
                break
            if len(job.live()) == 3:
                victim = rng.choice(job.live())
                victim.kill()
                victim.wait()
            while len(job.live()) < 3 and not job.has_ended():
                kills += 1
                job.begin(3)
        while not job.has_ended():  # those that die by their failpoints come back, too
            job.wait_heads(1, 3)
            while len(job.live()) < 3 and not job.has_ended():
                kills += 1
                job.begin(3)
        job.end()
    print(f"# {kills} kills in {rounds} jobs, seed {OPTIONS.seed}")


def test_sleeper():
    """One that is stopped beyond its lease, as it sends, and wakes when others have gone on: nothing of it is added."""
    for point in ("kafka.produce", "kafka.commit.before"):
        job = Workers()
        sleepers = [job.begin("2:3", f"{point}=stop@4") for _ in range(1)]
        for _ in range(2):
            job.begin("2:3")
        rig.wait_for(lambda job=job: any(oracle.is_stopped(one) for one in sleepers) or sleepers[0].poll() is not None, "a sleeper")
        if sleepers[0].poll() is None:
            job.wait_heads(2, 3)
            sleepers[0].send_signal(signal.SIGCONT)
        job.end()


def main(module):
    """Runs the module's tests, with an etcd."""
    if etcd.missing():
        print(f"ok - kafka_cluster # SKIP {etcd.missing()}")
        return 77
    with tempfile.TemporaryDirectory(prefix="leat-etcd-") as folder, etcd.Etcd(os.path.join(folder, "etcd"), is_fast=True) as servers:
        SERVERS.append(servers)
        return rig.run(module)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("leat")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    OPTIONS = parser.parse_args()
    sys.exit(main(globals()))
