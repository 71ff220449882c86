#!/usr/bin/env python3
"""How soon key groups are spread evenly: eight workers of one lane, each with a share of the processors, read `.batches` files whose keys follow
Zipf's law with exponent 1.1; from the middle on a fifth of the 200 hottest keys are others. Shows how busy the busiest lane was at each
checkpoint, by the mean, and what each change moved; fails where that is more than 1.1 times the mean behind the third checkpoint of
either half that measured it, or a change of several groups moved more than a tenth of the state.

    balance.py LEAT [--rows N]      (./dev soak cluster balance)
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("leat")
PARSER.add_argument("--rows", type=int, default=16_000_000)
OPTIONS = PARSER.parse_args()
sys.argv = [sys.argv[0], OPTIONS.leat]

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import faults  # noqa: E402
import test_cluster as cluster  # noqa: E402
import test_commands as commands  # noqa: E402

WORKERS, KEYS, HOT, FIRST, MOST, SOON, SHARE = 8, 1_000_000, 200, 17, 1.1, 3, 10

# One file of each worker's; id tells which half a row is of.
DATA = """
param count: int = 1
param seed: int = 1
param out: text
job data {}
source load = sequence { count: count, keys: KEYS, skew: 1.1, rate: 10000.0, seed: seed, event_time: ts }
stream same = load | where id * 2 < count or key >= HOT or key % 5 != 0 | with user = key + FIRST
stream other = load | where id * 2 >= count and key < HOT and key % 5 == 0 | with user = key + FIRST + KEYS
stream all = same | union other | select id, ts, user, value
sink out = file from all { path: out, overwrite: true }
"""
JOB = """
param data: text = ""
param out: text = ""
param state: text = ""
param every: duration = 10s
job balance { memory: 512MiB, checkpoint: { every: every, dir: state, keep: { last: 2 } } }
source rows = file { path: [PATHS], schema: { id: int, ts: time(ms), user: int, value: float }, event_time: ts, max_delay: 1s }
stream counted = rows | feature by user over 30d every 30d { n: count(), total: sum(value), last: last(id) }
sink out = null from counted
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make_data(folder):
    os.makedirs(folder)
    write(f"{folder}/data.leat", DATA.replace("KEYS", str(KEYS)).replace("HOT", str(HOT)).replace("FIRST", str(FIRST)))
    for i in range(WORKERS):
        subprocess.run([OPTIONS.leat, "run", f"{folder}/data.leat", "--quiet", f"--set=count={OPTIONS.rows // WORKERS}",
                        f"--set=seed={i + 1}", f"--set=out={folder}/{i}.batches"], check=True, stdout=subprocess.DEVNULL)


def look(address):
    """(share of the rows that are done, checkpoints, busiest by the mean; None: not measured yet)"""
    text = commands.get(address, "/metrics")
    rows, checkpoints, busiest = (commands.samples(text, f"leat_{name}").get("")
                                  for name in ("run_records_total", "checkpoints_total", "balance_busiest_ratio"))
    return (rows or 0) / OPTIONS.rows, int(checkpoints or 0), busiest


def watch(job, leader):
    """Of each half: (checkpoint, busiest by the mean), for each checkpoint that measured it."""
    address, halves, seen = commands.url(job, leader), ([], []), None
    with contextlib.suppress(urllib.error.URLError, ConnectionError):  # the job has ended
        while leader.poll() is None:
            share, checkpoints, busiest = look(address)
            if busiest and busiest != seen:
                halves[share >= .4].append((checkpoints, busiest))  # the rows are those of a second ago or more
                print(f"  {100 * share:5.1f} % of the rows, checkpoint {checkpoints:3}: the busiest lane has {busiest:.3f} times the mean", flush=True)
                seen = busiest
            time.sleep(.1)
    return halves


def judge(name, measured):
    """Counted from the first checkpoint of the half whose measurement was uneven."""
    uneven = next((i for i, (_, busiest) in enumerate(measured) if busiest > MOST), None)
    if uneven is None:
        print(f"{name}: never more than {MOST} times the mean")
        return len(measured) > 0
    began = measured[uneven][0]
    late = [busiest for checkpoint, busiest in measured if checkpoint - began > SOON]
    settled = next((checkpoint - began for checkpoint, busiest in measured[uneven:] if busiest <= MOST), None)
    print(f"{name}: {measured[uneven][1]:.2f} times the mean; at most {MOST} after {settled} checkpoints; behind the third one "
          f"at most {max(late, default=float('nan')):.3f}, in {len(late)} measurements")
    return len(late) > 0 and max(late) <= MOST


def main():
    if etcd.missing():
        print(f"skipped: {etcd.missing()}")
        return 77
    with cluster.FOLDER, etcd.Etcd(os.path.join(cluster.FOLDER.name, "etcd"), is_fast=True) as one:
        data, path = f"{cluster.FOLDER.name}/rows", f"{cluster.FOLDER.name}/balance.leat"
        make_data(data)
        write(path, JOB.replace("PATHS", ", ".join(f'"{data}/{i}.batches"' for i in range(WORKERS))))
        with cluster.Job(one, path, every="1s") as job, contextlib.ExitStack() as quotas:
            workers = [job.start(WORKERS, "--ui=127.0.0.1:0", lanes=1, failpoints="", lease_s=30) for _ in range(WORKERS)]
            try:
                for i, process in enumerate(workers):
                    quotas.callback(faults.Group(f"leat-balance-{os.getpid()}-{i}", process.pid).end)
                print(f"load {os.getloadavg()[0]:.1f}; {WORKERS} workers, each with a fifth of a processor, in periods of 5 ms")
            except OSError as error:
                print(f"load {os.getloadavg()[0]:.1f}; {WORKERS} workers, without quotas, because control groups cannot be written: {error}")
            for process in workers:
                job.says(process, "incarnation 1")
            leader, _ = job.leader(workers)
            first, second = watch(job, leader)
            job.ends(*workers)
            log, summary = job.text(leader.log), job.summary()
    is_good = judge("first half", first) & judge("second half", second)
    for line in re.findall(r".*of the work by key.*", log):  # where two hot keys share a group, no placement mends that either
        print(f"  {line}")
    for groups, bytes_of, of, before, after in re.findall(
            r"(\d+) key groups move, with about ([\d.]+) of ([\d.]+) MiB of state: the busiest lane had ([\d.]+) times the mean load, "
            r"and gets ([\d.]+)", log):
        print(f"  a change: {groups} key groups, {bytes_of} of {of} MiB, {before} -> {after}")
        is_good &= int(groups) == 1 or float(bytes_of) <= float(of) / SHARE + .01
    print(json.dumps({key: summary.get(key) for key in ("moved_groups", "moved_bytes", "move_stop_ms", "imbalance", "hot_groups")}))
    print(f"load {os.getloadavg()[0]:.1f}; {'good' if is_good else 'NOT GOOD'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
