#!/usr/bin/env python3
"""Source `kafka` that goes on for ever, against the real broker: killed and resumed, partitions and topics that come
and go while it runs, brokers that do, how far it is behind.

    tests/kafka/test_live.py PATH_OF_LEAT
"""

import glob
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
import running  # noqa: E402

LEAT = sys.argv[1]


class Live(running.Running):
    """A job that counts and writes the rows of a topic, in lives of its own."""

    def __init__(self, kafka, topic, more="", brokers=None):
        super().__init__("leat-live-")
        self.out, self.job = self.at("out"), self.at("job.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(f"""
job live {{ workers: 2, checkpoint: {{ every: 100ms, dir: "{self.at('state')}" }} }}
source s = kafka {{ brokers: "{brokers or kafka.brokers}", topic: "{topic}", schema: {{ n: int, key: text, p: int, o: int }},
                    meta: {{ partition: p, offset: o }}, refresh: 1s {more} }}
sink out = file from s {{ path: "{self.out}/rows.jsonl" }}
""")

    def start(self, *arguments):
        self.process = subprocess.Popen([LEAT, "run", self.job, "--json", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def stop(self):
        """Ctrl-C; the summary."""
        rig.interrupt(self.process)
        out, err = self.process.communicate(timeout=rig.PATIENCE_S)
        assert self.process.returncode == 0, err[-2000:]
        return json.loads(out)

    def failed(self, *says):
        """It ends by itself, and says this."""
        _, err = self.process.communicate(timeout=rig.PATIENCE_S)
        assert self.process.returncode not in (0, -9), err[-1000:]
        for part in says:
            assert part in err, (part, err[-2000:])

    def rows(self):
        """Those in the file, which is complete or not."""
        for name in ("rows.jsonl", "rows.jsonl.part"):
            path = os.path.join(self.out, name)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    return [json.loads(line) for line in file.read().split("\n")[:-1]]
        return []

    def checkpoints(self):
        return sorted(glob.glob(self.at("state/gen-*/ckpt-*[0-9]")))

    def wait_rows(self, count):
        rig.wait_for(lambda: self.process.poll() is not None or len(self.rows()) >= count, f"{count} rows")
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]

    def check(self, count):
        rows = self.rows()
        assert sorted(row["n"] for row in rows) == list(range(count)), (len(rows), count)
        last = {}
        for row in rows:
            assert row["o"] > last.get(row["p"], -1), row
            last[row["p"]] = row["o"]


def figures(summary):
    node, = [node for node in summary["nodes"] if node["name"] == "s"]
    assert node["counts"]["balanced"], node
    return node["report"]["run"]


def test_killed_again_and_again():
    kafka = rig.shared()
    topic = kafka.create_topic("live-kill", partitions=3)
    producer = kafka.producer()
    ended = threading.Event()

    def produce():
        for first in range(0, 20000, 100):
            kafka.produce(topic, rig.numbered(100, first=first), producer)
            time.sleep(0.02)
        ended.set()

    thread = threading.Thread(target=produce)
    thread.start()
    with Live(kafka, topic) as live:
        for life in range(5):
            live.start()
            time.sleep(0.6 + 0.13 * life)
            live.kill()
        thread.join()
        assert ended.is_set()
        live.start()
        live.wait_rows(20000)
        summary = live.stop()
        live.check(20000)
        assert figures(summary)["lag_records"] == 0, figures(summary)


def test_new_partitions_and_topics():
    kafka = rig.shared()
    topic = kafka.create_topic("live-more", partitions=1)
    with Live(kafka, f"^{topic}.*") as live:
        kafka.produce(topic, rig.numbered(100))
        live.start()
        live.wait_rows(100)
        kafka.add_partitions(topic, 3)
        kafka.produce(topic, rig.numbered(100, first=100, partition=2))
        live.wait_rows(200)
        other = kafka.create_topic(topic + "-b", partitions=1)
        kafka.produce(other, rig.numbered(100, first=200))
        live.wait_rows(300)
        live.kill()
        kafka.produce(topic, rig.numbered(100, first=300, partition=1))
        kafka.add_partitions(other, 2)
        kafka.produce(other, rig.numbered(100, first=400, partition=1))
        live.start()
        live.wait_rows(500)
        live.stop()
        found = [row["n"] for row in live.rows()]
        missing, twice = set(range(500)) - set(found), len(found) - len(set(found))
        assert not missing and not twice, (len(found), sorted(missing)[:5], twice)


def test_topic_deleted():
    kafka = rig.shared()
    topic = kafka.create_topic("live-gone", partitions=2)
    kafka.produce(topic, rig.numbered(100))
    with Live(kafka, topic) as live:
        live.start()
        live.wait_rows(100)
        kafka.delete_topic(topic)
        live.failed("E0611", f"the topic `{topic}` is gone")
    assert topic not in kafka.topics(), "it was made again by asking for it"


def test_broker_goes_and_comes():
    with rig.own() as kafka:
        topic = kafka.create_topic("live-broker", partitions=2)
        kafka.produce(topic, rig.numbered(1000))
        with Live(kafka, topic) as live:
            live.start()
            live.wait_rows(1000)
            kafka.kill()
            time.sleep(0.5)
            checkpoints = live.checkpoints()
            time.sleep(0.7)
            assert live.process.poll() is None
            assert live.checkpoints() == checkpoints, "checkpoints of nothing"
            kafka.start()
            kafka.produce(topic, rig.numbered(1000, first=1000))
            live.wait_rows(2000)
            live.stop()
            live.check(2000)


def test_open_transactions_wait():
    kafka = rig.shared()
    topic = kafka.create_topic("live-transaction")
    producer = kafka.producer(topic)
    with Live(kafka, topic) as live:
        live.start()
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(500), producer)
        time.sleep(1)
        assert live.rows() == []
        producer.commit_transaction(rig.PATIENCE_S)
        live.wait_rows(500)
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(500, first=9000), producer)
        producer.abort_transaction(rig.PATIENCE_S)
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(500, first=500), producer)
        producer.commit_transaction(rig.PATIENCE_S)
        live.wait_rows(1000)
        live.stop()
        live.check(1000)


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
