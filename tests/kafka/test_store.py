#!/usr/bin/env python3
"""Checkpoints in an object store, and a sink's transactions: what is out while the store is away, and what comes after the disk
is lost. Prints TAP."""

import os
import signal
import sys

import oracle
import rig


class Store:
    """A directory as a store. `away`: a file in its place."""

    def __init__(self, job):
        self.path, self.kept = job.at("store"), job.at("store.kept")

    def leave(self):
        if os.path.isdir(self.path):
            os.rename(self.path, self.kept)
        with open(self.path, "w", encoding="utf-8"):
            pass

    def come(self):
        os.unlink(self.path)
        if os.path.isdir(self.kept):
            os.rename(self.kept, self.path)


def job_with_store(case, more, **options):
    job = case.job(**options)
    job.write(job.text.replace("keep: { last: 5 }", f'keep: {{ last: 5 }}, store: "file:{job.at("store")}"{more}'))
    return job, Store(job)


def killed_at(job, process, condition):
    rig.wait_for(lambda: condition() or process.poll() is not None, "the moment to kill")
    process.kill()
    assert process.wait() == -signal.SIGKILL, job.end(process)


def test_transactions_wait_for_the_store():
    """While the store is away nothing is out, also after a restart that finds checkpoints on the disk. The outbox holds what waits;
    once it is full the sources wait. When the store is back all comes out, once."""
    case = oracle.Case(rig.shared())
    job, store = job_with_store(case, ", commit: store", outbox="60MiB", rate=5000)
    store.leave()
    for life in (1, 2):
        killed_at(job, job.start(), lambda: sum(f"gen-{life:06}" in path for path in job.checkpoints()) >= 2)
        assert not case.kafka.consume(job.topic, beside_open=True), life
    job.write(job.text.replace("60MiB", "1MiB").replace(", max_rate: 5000", ""))
    process = job.start()
    said = next((line for line in process.stderr if "sinks commit nothing" in line), None)
    assert said is not None and "E0710" in said, job.end(process)
    store.come()
    job.finish(process=process)
    job.check()
    job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
