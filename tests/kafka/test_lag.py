#!/usr/bin/env python3
"""A consumer that falls behind, on the page of its run in a real browser: the lag of the source rises while records come faster
than they are read, falls when no more come, and at each moment is what the API says. Other troubles: tests/page/test_trouble.py.

    tests/kafka/test_lag.py PATH_OF_LEAT
"""

import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "page"))
import rig  # noqa: E402
from browser import Browser, Stream, missing  # noqa: E402
from jobs import begin  # noqa: E402
from shown import is_shown, judge, one_of  # noqa: E402

JOB = """
job lag {{ workers: 2 }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int }}, max_rate: 2000 }}
sink out = null from s
"""
NODE = "#/job/s"
RECORDS, SECONDS = "figures.nodes[s].report.run.lag_records", "figures.nodes[s].report.run.lag_seconds"
LAGS = {RECORDS, SECONDS, "history[s].lag_records", "history[s].lag"}
PER_SECOND, STEP_MS = 3500, 100  # records that are appended; between two of them, by their timestamps
RISES, SECONDS_MAX = 3, 60


class Follower:
    """What the page shows of the lag, as texts: of each second of the run the records, and their seconds (null: not known)."""

    def __init__(self, tab):
        self.tab, self.seen = tab, {}

    def is_new(self):
        """Whether the page shows another second than before."""
        values, count = self.tab.values(), len(self.seen)
        self.seen[float(values["figures.seconds"])] = values[RECORDS], values[SECONDS]
        return len(self.seen) > count

    def records(self):
        """By how many the source lags in the newest second."""
        return float(self.seen[max(self.seen)][0])

    def next(self):
        self.tab.wait("figures of the next second", self.is_new)
        return self.records()


class Appender:
    """Appends records at an even pace."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.producer, self.number = kafka, topic, kafka.producer(), 0
        self.begin, self.begin_ms = time.monotonic(), 1_700_000_000_000

    def append(self):
        """Those that are due."""
        first, self.number = self.number, int((time.monotonic() - self.begin) * PER_SECOND)
        records = enumerate(rig.numbered(self.number - first, first), first)
        self.kafka.produce(self.topic, ({**one, "timestamp": self.begin_ms + n * STEP_MS} for n, one in records), self.producer)


def lags(kafka, topic, tab):
    """Appends faster than the job reads until the page has shown so many rises in turn, and all its values were right meanwhile,
    then nothing until it shows no lag; the records by which the source lagged, second by second, and what the follower saw."""
    follower, appender, shown, rises, bad = Follower(tab), Appender(kafka, topic), [0], 0, ["not looked at"]
    tab.wait_for_value(RECORDS, "0")
    while rises < RISES or bad:
        appender.append()
        if bad and shown[-1] > 0:
            bad, there = judge(tab, NODE)
            bad += sorted(LAGS - set(there))
        if follower.is_new():
            shown.append(follower.records())
            rises = rises + 1 if shown[-1] > shown[-2] else 0
            assert len(shown) < SECONDS_MAX, (shown, bad)
    assert "lag" in tab.text('[data-part="s"]').split(), tab.text('[data-part="s"]')
    tab.shot("lag", whole=True)
    falls = [follower.next(), follower.next()]  # the first may have what was appended after the last rise
    while falls[-1] > 0:
        falls.append(follower.next())
    assert falls[1:] == sorted(falls[1:], reverse=True), falls
    return shown + falls, follower.seen


def test_lag_on_the_page():
    if why := missing():
        return why
    kafka = rig.shared()
    topic = kafka.create_topic("lag")
    with tempfile.TemporaryDirectory(prefix="leat-lag-") as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(JOB.format(kafka=kafka, topic=topic))
        with begin(folder, "") as run, Browser() as browser:
            run.wait_until_ready("/readyz")
            with Stream(run.port) as stream:
                tab = browser.tab(listens=True)
                tab.goto(run.port, NODE)
                tab.wait_for_value("state", "running")
                shown, seen = lags(kafka, topic, tab)
                print(f"# records behind, second by second: {', '.join(f'{one:.0f}' for one in shown)}")
            runs = {figures["seconds"]: one_of(figures["nodes"], "s")["report"]["run"] for figures in stream.figures}
            for second, (records, seconds) in seen.items():
                said = runs[second]["lag_records"], runs[second]["lag_seconds"]
                assert is_shown(records, said[0]) and is_shown(seconds, said[1]), (second, records, seconds, said)
            assert max(runs[second]["lag_seconds"] or 0 for second in seen) > 60, seen
    return None


def test_lag_while_nothing_is_fetched():
    """The source's queue is full of small records, so librdkafka fetches nothing, and its statistics keep the log's old end."""
    kafka = rig.shared()
    topic = kafka.create_topic("lag-full")
    producer = kafka.producer()
    with tempfile.TemporaryDirectory(prefix="leat-lag-") as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(JOB.format(kafka=kafka, topic=topic))
        kafka.produce(topic, rig.numbered(150_000), producer)
        with begin(folder, "") as run:
            run.wait_until_ready("/readyz")
            with Stream(run.port) as stream:
                end, deadline = 150_000, time.monotonic() + SECONDS_MAX
                while sum(one > 0 for one in lag_of(stream)) < 9:
                    kafka.produce(topic, rig.numbered(2500, end), producer)
                    end += 2500
                    time.sleep(0.5)
                    assert time.monotonic() < deadline, lag_of(stream)
            lag = [one for one in lag_of(stream) if one > 0][2:9]
            print(f"# records behind, second by second: {', '.join(f'{one:.0f}' for one in lag)}")
            assert lag == sorted(lag), lag
            assert lag[-1] > lag[0] > 100_000, lag


def lag_of(stream):
    return [one_of(figures["nodes"], "s")["report"]["run"]["lag_records"] or 0 for figures in stream.figures]


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
