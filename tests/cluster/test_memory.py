#!/usr/bin/env python3
"""Memory of workers, one of which takes nothing for a while (SIGSTOP, within its lease): the others go on as far as they may without it, and
spill what they have for it and for themselves.

    test_memory.py LEAT
"""

import json
import os
import signal
import sys
import time

import test_cluster as workers  # first: its name is another test's, too
import etcd
import test_commands as commands

import tap

COUNT, MEMORY, PARTS = 3, 32 << 20, 4
# What a worker has beside `memory:`: program and libraries, stacks, the control API, what the allocator keeps. Measured: 27 to 41 MiB; 94 MiB
# where frames that nobody takes lie in memory.
BESIDE = 60 << 20
GATHERED = 256 << 10  # what gathers for each link, and the message which one has refused, besides an eighth of `memory:`


def high_water(process):
    """The most bytes of memory that the process ever had."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def figures(job, process):
    """Figures of the worker's part; the leader's: of the job."""
    return json.loads(commands.get(commands.url(job, process), "/api/v1/figures"))


def own(job, process):
    told = figures(job, process)["cluster"]
    return next(of for of in told["workers"] if of["worker"] == told["worker"])


def stands_still(job, leader):
    """Waits until nothing moves any more. (On a slow machine it may be sooner: then less waits.)"""
    seen = []

    def look():
        seen.append(figures(job, leader)["records_life"])
        time.sleep(1)
        return len(seen) > 3 and len(set(seen[-4:])) == 1
    etcd.wait_for("a job that stands still", look)


def wide_job():
    """A job with little memory, of which each record becomes many rows of a kilobyte."""
    path = os.path.join(workers.FOLDER.name, "wide.leat")
    with open(os.path.join(etcd.HERE, "fat.leat"), encoding="utf-8") as file:
        text = file.read()
    for old, new in {"memory: 64MiB": f"memory: {MEMORY >> 20}MiB",
                     "concat(one, other)": f'concat(one, other), part = split("{",".join("abcdefgh"[:PARTS])}", ",") | unnest part'}.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_stalled_reader():
    """What is under way when one stops: 64 micro-batches of 4 MiB at most, of which a third is for it."""
    with workers.Job(job=wide_job(), every="1s") as job:
        processes = [job.start(COUNT, "--set=keys=1000", "--ui=127.0.0.1:0", lanes=1, failpoints="", lease_s=3600) for _ in range(COUNT)]
        job.progress(3)
        leader, others = job.leader(processes)
        stalled = next(process for process in others if own(job, process)["partitions"] == 0)
        going = [process for process in processes if process is not stalled]
        before = [high_water(process) for process in going]
        etcd.stop(stalled)
        stands_still(job, leader)
        after = [high_water(process) for process in going]
        spilled, waiting = ([own(job, process)[key] for process in going] for key in ("spilled_bytes", "waiting_bytes"))
        stalled.send_signal(signal.SIGCONT)
        job.progress(1)
    print(f"# MiB: {[one >> 20 for one in before]}; while one stood still: {[one >> 20 for one in after]}, spilled: {[one >> 20 for one in spilled]}, "
          f"waiting: {[one / (1 << 20) for one in waiting]}")
    assert max(after) < MEMORY + BESIDE, (before, after)
    assert max(waiting) < MEMORY / 8 + GATHERED, waiting
    assert max(spilled) > 0


def main():
    if etcd.missing():
        print(f"ok - memory # SKIP {etcd.missing()}")
        return 77
    with workers.FOLDER as folder, etcd.Etcd(os.path.join(folder, "etcd"), is_fast=True) as one:
        workers.ETCD.append(one)
        return tap.run(globals())


if __name__ == "__main__":
    sys.exit(main())
