#!/usr/bin/env python3
"""What planned changes cost a job of two and three workers, of one lane each, that reads a topic to which rows come at a steady rate, with
much state: growth, shrinking, and a move of about a tenth of the state. Shows, and fails beyond these:

  - in how many seconds behind `leat cluster grow` and `shrink` no more rows wait than before: all that came meanwhile are read, and rows
    are read as fast as they come (10 s)
  - for how long a lane stood still at most while key groups moved (100 ms)
  - the time from a checkpoint's barrier to its head (median: 200 ms)

    planned.py LEAT [--state MIB] [--rounds N]      (./dev soak cluster planned)
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import threading
import time

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("leat")
PARSER.add_argument("--state", type=int, default=1024, metavar="MIB", help="of all workers together")
PARSER.add_argument("--rounds", type=int, default=3, help="how often the job grows and shrinks")
OPTIONS = PARSER.parse_args()
sys.argv = [sys.argv[0], OPTIONS.leat]

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import test_changes as changes  # noqa: E402
import test_cluster as cluster  # noqa: E402
import test_commands as commands  # noqa: E402

sys.path.insert(0, os.path.join(etcd.HERE, "..", "kafka"))
import rig  # noqa: E402

KEYS = OPTIONS.state * (1 << 20) // 1040
RATE = 10000  # rows a second
PARTITIONS = 4
# A row of each key.
ROWS = """
param count: int = 1
param keys: int = 1
param out: text
job rows {}
source all = sequence { count: count, keys: keys, rate: 10000, event_time: ts }
stream some = all | select key, ts
sink out = file from some { path: out, times: ms }
"""
BACK_S, STOP_MS, HEAD_MS = 10, 100, 200
STEADY_S, LOOK_S = 10, .05
GROUPS, TENTH = 1024, 10
BEGIN = time.monotonic()


class Rate:
    """Rows that the job has read, by the time, as its leader's figures say, until it is left."""

    def __init__(self, job, fed):
        self.fed, self.job, self.workers, self.seen, self.ends, self.before, self.now = fed, job, [], [], False, 0, 0
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()

    def rows(self):
        """As the last time, while nobody leads. A leader counts from where its round began."""
        for process in self.workers:
            with contextlib.suppress(OSError):
                _, text = commands.get_any(commands.url(self.job, process), "/metrics")
                if commands.samples(text, "leat_cluster_leads").get("") == 1:
                    now = commands.samples(text, "leat_run_records_total").get("", 0)
                    self.before += self.now if now < self.now else 0
                    self.now = now
        return self.before + self.now

    def watch(self):
        while not self.ends:
            rows = self.rows()
            self.seen.append((time.monotonic(), rows, self.fed.number - rows))
            time.sleep(LOOK_S)

    def since(self, begin):
        """(time, rows that were read, rows that wait), again and again."""
        return [one for one in self.seen if one[0] >= begin]


class Fed:
    """A job of fat.leat whose rows come from a topic: first one of each key, then more at the rate, until it is left."""

    def __init__(self, job, kafka):
        self.job, self.kafka, self.topic = job, kafka, kafka.create_topic("planned", partitions=PARTITIONS)
        with open(job.job, encoding="utf-8") as file:
            text = file.read()
        job.job = f"{job.folder}/planned.leat"
        fields = "schema: { key: int, ts: time(ms) }, event_time: ts"
        with open(job.job, "w", encoding="utf-8") as file:
            source = f'= kafka {{ brokers: "{kafka.brokers}", topic: "{self.topic}", {fields}, max_delay: 1s }}'
            file.write(re.sub(r"= sequence {.*", source, text))
        with open(f"{job.folder}/rows.leat", "w", encoding="utf-8") as file:
            file.write(ROWS)
        self.ends, self.number, self.thread = False, KEYS, threading.Thread(target=self.feed)

    def __enter__(self):
        path = f"{self.job.folder}/all.jsonl"
        subprocess.run([OPTIONS.leat, "run", f"{self.job.folder}/rows.leat", "--quiet", f"--set=count={KEYS}", f"--set=keys={KEYS}",
                        f"--set=out={path}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([OPTIONS.leat, "produce", "--quiet", f"--brokers={self.kafka.brokers}", self.topic, path, "--key=key"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def feed(self):
        """Rows at the rate, evenly: what leat sends comes by transactions."""
        producer, begin = self.kafka.producer(), time.monotonic()
        while not self.ends:
            while self.number - KEYS < (time.monotonic() - begin) * RATE:
                key = self.number % KEYS
                producer.produce(self.topic, b'{"key":%d,"ts":%d}' % (key, self.number * 1000 // RATE), b"%d" % key)
                self.number += 1
            producer.poll(0)
            time.sleep(.005)
        producer.purge()

    def begin(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends = True
        if self.thread.ident is not None:
            self.thread.join()


def start(job):
    return job.start("2:3", changes.ASKED, changes.SOON, "--balance=asked", "--ui=127.0.0.1:0", lanes=1, failpoints="")


def change(job, rate, most, *words):
    """Whether soon no more rows wait than before."""
    asked = time.monotonic()
    cluster.leat_cluster(job, *words, "--within=1h")
    done = time.monotonic()
    time.sleep(BACK_S + STEADY_S)
    seen = rate.since(asked)
    waited = max(waits for _, _, waits in seen)
    peak = next(when for when, _, waits in seen if waits == waited)
    back = next((when - asked for when, _, waits in seen if when >= peak and waits <= most), None)
    gaps, last = [0.0], asked
    for (_, before, _), (when, rows, _) in zip(seen, seen[1:]):
        if rows > before:
            gaps.append(when - last)
            last = when
    say(f"{' '.join(words)}: done after {done - asked:.1f} s; no row was read for at most {max(gaps):.1f} s; {waited:.0f} rows "
        f"waited; as few as before {'at no time that was watched' if back is None else f'after {back:.1f} s'}")
    return back is not None and back <= BACK_S


def heads(job, workers, seconds):
    """From barrier to head, in ms, of the checkpoints of so many seconds."""
    leader, _ = job.leader(workers)
    address, found, until = commands.url(job, leader), {}, time.monotonic() + seconds
    while time.monotonic() < until:
        text = commands.get(address, "/metrics")
        count, took = (commands.samples(text, name).get("") for name in ("leat_checkpoints_total", "leat_checkpoint_duration_seconds"))
        if took is not None:
            found[count] = 1e3 * took
        time.sleep(.1)
    return list(found.values())


def move(job):
    """Whether key groups with state went to worker 1."""
    done = cluster.leat_cluster(job, "move", f"0-{GROUPS // TENTH}", "--to=1", "--within=1h")
    say(done.stdout.strip().splitlines()[-1])
    return float(re.search(r"with about ([\d.]+) MiB", done.stdout)[1]) > 0


def say(text):
    print(f"{time.monotonic() - BEGIN:7.1f} s  {text}", flush=True)


def main():
    if etcd.missing():
        print(f"skipped: {etcd.missing()}")
        return 77
    is_good = True
    with contextlib.ExitStack() as stack:
        stack.enter_context(cluster.FOLDER)
        one = stack.enter_context(etcd.Etcd(os.path.join(cluster.FOLDER.name, "etcd"), is_fast=True))
        kafka = stack.enter_context(rig.own(1, is_large=True))
        job = stack.enter_context(changes.Job(one, os.path.join(etcd.HERE, "fat.leat"), every="500ms"))
        fed = stack.enter_context(Fed(job, kafka))
        rate = stack.enter_context(Rate(job, fed))
        workers = [start(job) for _ in range(2)]
        rate.workers += workers
        etcd.wait_for("the state", lambda: rate.seen and rate.seen[-1][1] >= KEYS)
        say(f"{KEYS} keys, {OPTIONS.state} MiB of state; load {os.getloadavg()[0]:.1f}")
        fed.begin()
        spare = start(job)
        rate.workers.append(spare)
        changes.waits(job, 1)
        time.sleep(2 * STEADY_S)
        seen = rate.since(time.monotonic() - STEADY_S)
        most, steady = max(waits for _, _, waits in seen), (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
        say(f"two workers read {steady:.0f} rows/s; at most {most:.0f} rows wait")
        took = heads(job, workers, STEADY_S)
        say(f"from barrier to head, {len(took)} checkpoints: median {statistics.median(took):.0f} ms, at most {max(took):.0f} ms")
        is_good &= statistics.median(took) <= HEAD_MS
        is_good &= move(job)
        for _ in range(OPTIONS.rounds):
            is_good &= change(job, rate, most, "grow")
            is_good &= change(job, rate, most, "shrink", "2")
        is_good &= move(job)
        cluster.leat_cluster(job, "stop")
        job.ends(*workers, spare)
        job.ended = [process for process in job.ended if job.text(f"{process.log}.out")]  # not the one that waited at the end
        summary = job.summary()
    say(f"moved in the last round: {summary['moved_groups']} groups, {summary['moved_bytes'] / 2**20:.0f} MiB; a lane stood still for at "
        f"most {summary['move_stop_ms']:.0f} ms")
    is_good &= summary["moved_bytes"] > 0 and summary["move_stop_ms"] <= STOP_MS
    print(f"load {os.getloadavg()[0]:.1f}; {'good' if is_good else 'NOT GOOD'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
