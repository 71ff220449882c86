#!/usr/bin/env python3
"""The row `Kafka` of dist/grafana.json: each query gives numbers for a live job that is behind its topic, read by a real
Prometheus. The other rows: tests/metrics/test_board.py.

    tests/kafka/test_board.py PATH_OF_LEAT
"""

import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402

sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "metrics"))
import board  # noqa: E402
import live  # noqa: E402
import prometheus  # noqa: E402

JOB = """
job board {{ workers: 2, checkpoint: {{ every: 200ms, dir: "state" }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int }}, max_rate: 200 }}
sink out = kafka from s {{ brokers: "{kafka.brokers}", topic: "{topic}-out", create: {{ partitions: 1 }} }}
"""


def test_kafka_row():
    if why := prometheus.missing():
        return why
    kafka = rig.shared()
    topic = kafka.create_topic("board", partitions=2)
    kafka.produce(topic, rig.numbered(20000))
    left = [query for row, _, _, queries in board.panels() if row == board.KAFKA for query in queries]
    assert len(left) >= 5, left
    with tempfile.TemporaryDirectory(prefix="leat-board-") as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(JOB.format(kafka=kafka, topic=topic))
        with live.run(folder, 0) as run, prometheus.Prometheus({"leat": run.port}) as prom:
            run.wait_until_ready("/readyz")
            prom.wait_for("up == 1", run.is_alive)
            deadline = time.monotonic() + rig.PATIENCE_S
            while left := board.empty_of(prom, left):
                assert run.is_alive() and time.monotonic() < deadline, (left, run.said)
                time.sleep(0.3)
            assert prom.query("max(leat_source_lag_records) > 0"), "the job is behind its topic"
    return None


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
