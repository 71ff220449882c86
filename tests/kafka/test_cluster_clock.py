#!/usr/bin/env python3
"""Windows over arrival of several workers (`leat run --cluster`), of which some have wall clocks that go an hour off while they run: no window
closes before its end by the broker's clock, and each row is in its window, or late, once. Prints TAP.

    tests/kafka/test_cluster_clock.py PATH_OF_LEAT PATH_OF_JUMPING_CLOCK
"""

import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "clock")]
import jumps  # noqa: E402
import oracle  # noqa: E402
import rig  # noqa: E402
import test_cluster as workers  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[2])
KEYS, EVERY_S, WINDOW_MS = 7, .2, 1000
BROKER_TIME = {"message_timestamp_type": "LogAppendTime"}

JOB = """job {name} {{ workers: 1, memory: 64MiB, checkpoint: {{ every: 100ms, dir: "{state}" }} }}
source events = kafka {{
  brokers: "{brokers}", topic: "{source}", start: earliest, refresh: 1s, schema: {{ n: int!, key: text, came: time(ms) }},
  meta: {{ timestamp: came }}, event_time: came
}}
stream windows = events | window by key over tumbling(1s) time arrival {{ n: count() }}
sink out = kafka from windows {{ brokers: "{brokers}", topic: "{sink}", key: key, times: ms, outbox: 1MiB }}
sink late = kafka from windows.late {{ brokers: "{brokers}", topic: "{late}", key: key, times: ms, outbox: 1MiB }}
"""


class Windows(workers.Workers):
    """The job, its workers, each with a clock, and rows that come all the time."""

    def __init__(self, kafka):  # pylint: disable=super-init-not-called
        oracle.Lives.__init__(self)
        self.kafka, self.workers, self.clocks, self.given, self.is_over = kafka, [], {}, 0, threading.Event()
        self.source, self.topic, self.late = (kafka.create_topic(name, partitions=3, **BROKER_TIME) for name in ("clock-in", "clock-out", "clock-late"))
        self.name = "clock_" + re.sub(r"\W", "_", self.topic)
        self.write(JOB.format(name=self.name, state=self.state, brokers=kafka.brokers, source=self.source, sink=self.topic, late=self.late))
        self.thread = threading.Thread(target=self.give)

    def give(self):
        while not self.is_over.wait(EVERY_S):
            self.kafka.produce(self.source, rig.numbered(KEYS, first=self.given, keys=KEYS))
            self.given += KEYS

    def start_worker(self, nodes):
        clock = jumps.Clock(LIBRARY)
        process = self.begin(nodes, **clock.environment())
        self.clocks[process] = clock
        return process

    def cluster(self, *words):
        return subprocess.run([oracle.LEAT, "cluster", words[0], f"etcd://{workers.SERVERS[0].endpoints()}/{self.name}", *words[1:]],
                              check=True, capture_output=True, text=True, timeout=rig.PATIENCE_S).stdout

    def placed(self):
        """Processes of the round, the leader first."""
        told = [one for one in json.loads(self.cluster("status", "--json"))["members"] if one["worker"] is not None]
        at = {re.findall(r"joined the cluster as (\S+)", self.said(process.err))[-1]: process
              for process in self.live() if "joined the cluster as" in self.said(process.err)}
        return [at[one["address"]] for one in sorted(told, key=lambda one: not one["leads"]) if one["address"] in at]

    def wait_placed(self, count):
        return rig.wait_for(lambda: (found := self.placed()) and len(found) == count and found, f"{count} workers")

    def wait_windows(self):
        """Until windows have closed that began after this was called."""
        from_ms = time.time() * 1000
        rig.wait_for(lambda: time.sleep(.3) or any(row["window_start"] > from_ms for _, row in self.rows(self.topic)),
                     lambda: [self.said(process.err)[-1500:] for process in self.workers])

    def rows(self, topic):
        """(when the broker appended it, row)"""
        return [(record.timestamp, json.loads(record.value)) for record in self.kafka.consume(topic, beside_open=True)]

    def check(self):
        came, found = collections.Counter(), collections.Counter()
        for at, row in self.rows(self.source):
            came[row["key"], at // WINDOW_MS * WINDOW_MS] += 1
        closed = {}
        for at, row in self.rows(self.topic):
            which = row["key"], row["window_start"]
            assert at >= row["window_end"], f"closed {row['window_end'] - at} ms early: {row}"
            assert which not in closed, f"twice: {row}"
            closed[which] = at
            found[which] += row["n"]
        for _, row in self.rows(self.late):
            found[row["key"], row["came"] // WINDOW_MS * WINDOW_MS] += 1
        wrong = {which: (came[which], found[which]) for which in closed if came[which] != found[which]}
        assert not wrong, f"rows that came, and that were told: {wrong}"
        return len(closed)

    def close(self):
        self.is_over.set()
        if self.thread.is_alive():
            self.thread.join()
        super().close()
        for clock in self.clocks.values():
            clock.__exit__()


def test_an_hour_off():
    """While rows come, and where a round begins that one leads whose clock is off: ahead at the leader, behind at another one."""
    with contextlib.closing(Windows(rig.shared())) as job:
        for _ in range(3):
            job.start_worker("2:3")
        leader, second, third = job.wait_placed(3)
        job.thread.start()
        job.wait_windows()
        job.clocks[leader].set(jumps.HOUR_US)
        job.clocks[second].set(-jumps.HOUR_US)
        time.sleep(10)  # longer than a step is doubted
        third.kill()
        third.wait()
        assert job.wait_placed(2)[0] is leader
        job.wait_windows()
        for clock in job.clocks.values():
            clock.set(0)
        job.start_worker("2:3")
        job.wait_placed(3)
        job.wait_windows()
        job.cluster("stop")
        rig.wait_for(lambda: not job.live(), "the end")
        assert [one.poll() for one in job.workers].count(0) == 3, [(one.poll(), job.said(one.err)[-900:]) for one in job.workers]
        assert job.check() > 10 * KEYS


if __name__ == "__main__":
    sys.exit(workers.main(globals()))
