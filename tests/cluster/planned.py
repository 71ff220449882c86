#!/usr/bin/env python3
"""What planned changes cost a job of two and three workers, of one lane each, with much state: growth, shrinking, and a move of about a
tenth of the state. Each micro-batch takes a while, so that the rate does not depend on what else the machine does; the rate is that of
the bytes that the sink writes. Shows, and fails beyond what issue 28 asks for:

  - in how many seconds behind `leat cluster grow` and `shrink` the rate is 95 % of that of two workers again, and stays so (10 s)
  - for how long a lane stood still at most while key groups moved (100 ms)
  - the time from a checkpoint's barrier to its head (median: 200 ms)

    planned.py LEAT [--state MIB] [--rounds N]      (./dev soak cluster planned)
"""

import argparse
import glob
import os
import re
import statistics
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

KEYS = OPTIONS.state * (1 << 20) // 1040
SLOW = "run.claimed=sleep:50"
BACK, BACK_S, STOP_MS, HEAD_MS = .95, 10, 100, 200
STEADY_S, WINDOW_S, LOOK_S = 10, 2, .05
GROUPS, TENTH = 1024, 10
BEGIN = time.monotonic()


class Rate:
    """Bytes that the sink has written, by the time, until it ends."""

    def __init__(self, folder):
        self.folder, self.seen, self.ends = folder, [], False
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()

    def size(self):
        """Parts get other names with each incarnation, and rows move between files meanwhile: a file that has gone counts as nothing."""
        total = 0
        for path in glob.glob(f"{self.folder}/*"):
            try:
                total += os.path.getsize(path)
            except FileNotFoundError:
                pass
        return total

    def watch(self):
        while not self.ends:
            self.seen.append((time.monotonic(), self.size()))
            time.sleep(LOOK_S)

    def at(self, when):
        return next(size for time_of, size in reversed(self.seen) if time_of <= when)

    def of(self, begin, end):
        """Bytes in a second."""
        return (self.at(end) - self.at(begin)) / (end - begin)


def flags():
    return [f"--set=keys={KEYS}", changes.ASKED, changes.SOON, "--balance=asked", "--ui=127.0.0.1:0"]


def fill(job):
    """Until each key has its state; then all are killed, for they go on more slowly."""
    workers = [job.start("2:3", *flags(), lanes=1, failpoints="") for _ in range(2)]
    etcd.wait_for("the state", lambda: sum(map(os.path.getsize, glob.glob(f"{job.out}/*"))) > 60 * KEYS)
    for process in workers:
        process.kill()
        process.wait()


def back_after(rate, asked, steady):
    """Seconds from the request to the begin of the first window from which on no window is slower than BACK of the rate; None: there is none
    within the time that was watched."""
    last = time.monotonic() - WINDOW_S - LOOK_S
    slow = [at for at in (asked + i * LOOK_S for i in range(int((last - asked) / LOOK_S))) if rate.of(at, at + WINDOW_S) < BACK * steady]
    if not slow:
        return 0.0
    return slow[-1] + LOOK_S - asked if slow[-1] + 2 * LOOK_S < last else None


def change(job, rate, steady, *words):
    asked = time.monotonic()
    cluster.leat_cluster(job, *words, "--within=1h")
    done = time.monotonic()
    time.sleep(BACK_S + STEADY_S)
    seconds = back_after(rate, asked, steady)
    stood = max(gap for gap in stands(rate, asked))
    say(f"{' '.join(words)}: done after {done - asked:.1f} s, no row for at most {stood:.1f} s, back at {BACK:.0%} after "
          f"{'more than it was watched' if seconds is None else f'{seconds:.1f} s'}")
    return seconds is not None and seconds <= BACK_S


def stands(rate, begin):
    """How long the sink wrote nothing, again and again."""
    since, size = begin, rate.at(begin)
    for when, now in rate.seen:
        if when > begin and now != size:
            yield when - since
            since, size = when, now


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
    """Whether no lane stood still for long while groups went from worker 0 to 1."""
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
    with cluster.FOLDER, etcd.Etcd(os.path.join(cluster.FOLDER.name, "etcd"), is_fast=True) as one:
        with changes.Job(one, os.path.join(etcd.HERE, "fat.leat"), every="500ms") as job, Rate(job.out) as rate:
            fill(job)
            say(f"{KEYS} keys, {OPTIONS.state} MiB of state; load {os.getloadavg()[0]:.1f}")
            workers = [job.start("2:3", *flags(), lanes=1, failpoints=SLOW) for _ in range(2)]
            for process in workers:
                job.says(process, "figures at http")
            job.progress(4)
            spare = job.start("2:3", *flags(), lanes=1, failpoints=SLOW)
            changes.waits(job, 1)
            time.sleep(STEADY_S)
            now = time.monotonic()
            steady = rate.of(now - STEADY_S, now)
            say(f"two workers write {steady / 1e3:.0f} KB/s")
            took = heads(job, workers, STEADY_S)
            say(f"from barrier to head, {len(took)} checkpoints: median {statistics.median(took):.0f} ms, at most {max(took):.0f} ms")
            is_good &= statistics.median(took) <= HEAD_MS
            is_good &= move(job)
            for _ in range(OPTIONS.rounds):
                is_good &= change(job, rate, steady, "grow")
                is_good &= change(job, rate, steady, "shrink", "2")
            is_good &= move(job)
            cluster.leat_cluster(job, "stop")
            job.ends(*workers, spare)
            job.ended = [process for process in job.ended if job.text(f"{process.log}.out")]  # not the one that waited at the end
            summary = job.summary()
    say(f"moved in the last round: {summary['moved_groups']} groups, {summary['moved_bytes'] / 2**20:.0f} MiB; a lane stood still for at most "
          f"{summary['move_stop_ms']:.0f} ms")
    is_good &= summary["moved_bytes"] > 0 and summary["move_stop_ms"] <= STOP_MS
    print(f"load {os.getloadavg()[0]:.1f}; {'good' if is_good else 'NOT GOOD'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
