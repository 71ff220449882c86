#!/usr/bin/env python3
"""`leat trace` of records of a topic, while the job runs on it: by offset, from a checkpoint, in the order in which the
live run merged its partitions.

    tests/kafka/test_trace.py PATH_OF_LEAT
"""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
import running  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])

JOB = """
job traced {{ workers: 2, checkpoint: {{ every: 100ms, dir: "{folder}/state", keep: {{ last: 1000 }} }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int!, key: text, ts: time(ms), p: int, o: int }},
                   meta: {{ partition: p, offset: o }}, event_time: ts, max_delay: 1h, idle_after: 1d }}
stream once = s | where n % 7 != 3 | dedup by n within 1h
stream held = once | attribute s on key within 1h as answered
sink out = kafka from once {{ brokers: "{kafka.brokers}", topic: "{topic}-out", create: {{ partitions: 1 }} }}
sink late = null from held {{ }}
sink dead = file from dead_letters {{ path: "{folder}/dead.jsonl" }}
"""


class Traced(running.Running):
    def __init__(self, kafka, topic):
        super().__init__("leat-trace-")
        self.job = self.at("job.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(JOB.format(folder=self.folder.name, kafka=kafka, topic=topic))
        self.process = subprocess.Popen([LEAT, "run", self.job, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

    def ask(self, record, *arguments):
        result = subprocess.run([LEAT, "trace", self.job, "s", record, *arguments], capture_output=True, text=True,
                                check=False, timeout=rig.PATIENCE_S)
        return result.returncode, result.stdout, result.stderr

    def trace(self, record):
        status, out, errors = self.ask(record, "--json")
        assert status == 0, (errors, out)
        return json.loads(out)


def fates(answer):
    """Of each step, where it was the row and not an answer to others."""
    return {step["step"]: step["fate"] for step in answer["steps"] if step["tag"] != "later" and step["input"] == 0}


def test_while_it_runs():
    kafka = rig.shared()
    topic = kafka.create_topic("trace", partitions=2)
    kafka.create_topic(topic + "-out", exact=True)
    now = int(time.time() * 1000)
    kafka.produce(topic, rig.numbered(3000, partition=0, begin_ms=now - 10000))
    kafka.produce(topic, rig.numbered(3000, first=3000, partition=1, begin_ms=now - 10000))
    kafka.produce(topic, [*rig.numbered(1, first=18, partition=1, begin_ms=now - 2000), {"value": b"{bad", "partition": 1}])
    with Traced(kafka, topic) as job:
        rig.wait_for(lambda: job.process.poll() is None and len(kafka.consume(topic + "-out")) >= 5142, "rows")
        time.sleep(rig.stretched(0.5))
        kept = job.trace(f"{topic}/0@2998")
        assert fates(kept)["once: where"] == ["passed"] and fates(kept)["out: kafka"] == ["written"], kept
        assert kept["offset"] == 2998 and kept["order"] == "log", kept
        read, = [step for step in kept["steps"] if step["tag"] == "read"]
        assert read["rows"][0]["row"]["n"] == 2998 and read["rows"][0]["row"]["o"] == 2998, read
        assert kept["held"] == ["held: attribute"] and fates(kept)["held: attribute"] == ["held"], kept
        filtered = job.trace(f"{topic}/1@13")
        assert fates(filtered)["once: where"] == ["filtered"] and filtered["steps"][1]["row"]["n"] == 3013, filtered
        twice = job.trace(f"{topic}/1@3000")
        assert fates(twice)["once: dedup"] == ["duplicate"], twice
        bad = job.trace(f"{topic}/1@3001")
        assert fates(bad) == {"s: kafka": ["dead"], "dead: file": ["written"]} and bad["steps"][0]["record"] == "{bad", bad
        kafka.produce(topic, rig.numbered(10, first=9000, partition=0, begin_ms=now))
        rig.wait_for(lambda: len(kafka.consume(topic + "-out")) >= 5142 + 8, "the newer rows")
        time.sleep(rig.stretched(0.5))
        newer = job.trace(f"{topic}/0@3002")
        assert newer["checkpoint"] and newer["records_read"] < 2000 and fates(newer)["once: where"] == ["passed"], newer
        for record, words in ((f"{topic}/0@99999", "ends before this record"), (f"{topic}/7@0", f"it has: {topic}/0, {topic}/1"),
                              (f"{topic}/0:5", "offsets")):
            status, _, errors = job.ask(record)
            assert status == 1 and words in errors, (record, errors)
        assert job.process.poll() is None
        job.process.send_signal(signal.SIGINT)
        out, err = job.process.communicate(timeout=rig.PATIENCE_S)
        assert job.process.returncode == 0 and json.loads(out)["good"], err


def test_offsets_that_no_record_has():
    kafka = rig.shared()
    topic = kafka.create_topic("trace-gap")
    kafka.create_topic(topic + "-out", exact=True)
    producer = kafka.producer(topic)
    for first, is_good in ((0, True), (100, False), (200, True)):
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(50, first=first), producer)
        (producer.commit_transaction if is_good else producer.abort_transaction)(rig.PATIENCE_S)
    with Traced(kafka, topic) as job:
        rig.wait_for(lambda: len(kafka.consume(topic + "-out")) >= 80, "rows")
        found = job.trace(f"{topic}/0@102")  # behind a commit marker, 50 aborted ones and another marker
        assert found["steps"], found
        assert found["steps"][0]["rows"][0]["row"]["n"] == 200 and found["record"] == 50, found
        for offset in (50, 60, 101):
            status, _, errors = job.ask(f"{topic}/0@{offset}")
            assert status == 1 and "no record" in errors and "marker" in errors, (offset, errors)


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
