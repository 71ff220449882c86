#!/usr/bin/env python3
"""What people and scripts see of a job that reads and writes topics: how far it is behind, what it has fetched, what is
not out, how long brokers take; as JSON, and on a terminal.

    tests/kafka/test_figures.py PATH_OF_LEAT
"""

import contextlib
import fcntl
import glob
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])

# The contract: report.run of each node has these names, and no others, in the summary of `leat run --json`.
SOURCE = {"lag_records", "lag_seconds", "lag_worst_partition", "lag_worst_records", "fetched_records", "fetched_bytes",
          "fetched_share", "round_trip_ms", "round_trip_p99_ms", "lag_has_gaps", "open_transaction_records",
          "open_transaction_seconds", "open_transaction_partition"}
DIRECT = {"records_waiting", "bytes_waiting", "outbox_share", "records_sent", "bytes_sent", "round_trip_ms",
          "round_trip_p99_ms"}
EXACT = DIRECT | {"shards", "epochs_waiting", "epochs_apart", "transaction", "transactions", "transactions_aborted"}

JOB = """
job figures {{ workers: 2, checkpoint: {{ every: 200ms, dir: "{folder}/state" }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int, p: int, o: int }},
                   meta: {{ partition: p, offset: o }} {more} }}
sink out = file from s {{ path: "{folder}/rows.jsonl" }}
sink exact = kafka from s {{ brokers: "{kafka.brokers}", topic: "{topic}-out", create: {{ partitions: 1 }} }}
"""
AT_LEAST_ONCE = """
sink direct = kafka from s {{ brokers: "{kafka.brokers}", topic: "{topic}-out", create: {{ partitions: 1 }},
                             delivery: at_least_once }}
"""


@contextlib.contextmanager
def running(kafka, topic, *arguments, more="", job=JOB + AT_LEAST_ONCE, stderr=subprocess.PIPE):
    """The job's process, and the folder that has rows.jsonl."""
    with tempfile.TemporaryDirectory(prefix="leat-figures-") as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="utf-8") as file:
            file.write(job.format(folder=folder, kafka=kafka, topic=topic, more=more))
        process = subprocess.Popen([LEAT, "run", os.path.join(folder, "job.leat"), *arguments], stdout=subprocess.PIPE,
                                   stderr=stderr, text=True)
        try:
            yield process, folder
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def rows(folder):
    for name in ("rows.jsonl", "rows.jsonl.part"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return [json.loads(line) for line in file.read().split("\n")[:-1]]
    return []


def stop(process):
    """Ctrl-C; {name: node} of the summary."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=rig.PATIENCE_S)
    assert process.returncode == 0, err[-2000:]
    return {node["name"]: node for node in json.loads(out)["nodes"]}


def check_types(node):
    assert set(node["report"]) == {"run", "window"} and node["report"]["window"] == {}, node
    for name, value in node["report"]["run"].items():
        wanted = str if name in ("lag_worst_partition", "open_transaction_partition", "transaction") else (float, type(None))
        assert isinstance(value, wanted), (name, value)


def spaced(count, partition, begin_ms, step_ms):
    """Records so far apart by their timestamps."""
    return [{**record, "timestamp": begin_ms + i * step_ms}
            for i, record in enumerate(rig.numbered(count, partition=partition))]


def test_behind():
    kafka = rig.shared()
    topic = kafka.create_topic("figures", partitions=2)
    begin_ms = int(time.time() * 1000) - 3_600_000  # nobody produces now: an hour ago is not an hour behind
    kafka.produce(topic, spaced(20000, 0, begin_ms, 10) + spaced(100, 1, begin_ms, 10))
    with running(kafka, topic, "--json", more=", max_rate: 1000") as (process, folder):
        rig.wait_for(lambda: len(rows(folder)) >= 3500, "rows")
        nodes = stop(process)
        last = max(row["o"] for row in rows(folder) if row["p"] == 0)
    run = nodes["s"]["report"]["run"]
    assert set(run) == SOURCE and set(nodes["exact"]["report"]["run"]) == EXACT, nodes
    assert set(nodes["direct"]["report"]["run"]) == DIRECT, nodes["direct"]
    for name in ("s", "exact", "direct"):
        check_types(nodes[name])
    left = 19999 - last  # what was read ahead of the file's rows counts as read
    assert left - 4000 <= run["lag_worst_records"] <= run["lag_records"] <= left, (left, run)
    assert abs(run["lag_seconds"] - run["lag_worst_records"] / 100) < rig.stretched(12), run  # the log's end is known to the second
    assert run["lag_worst_partition"] == f"{topic}/0", run
    assert run["fetched_records"] > 0 and run["fetched_bytes"] > 0 and 0 < run["fetched_share"] <= 1.2, run
    assert 0 < run["round_trip_ms"] <= run["round_trip_p99_ms"] * 1.01 < 5000, run


def test_caught_up_and_out():
    kafka = rig.shared()
    topic = kafka.create_topic("figures", partitions=2)
    kafka.produce(topic, rig.numbered(5000))
    with running(kafka, topic, "--json") as (process, folder):
        rig.wait_for(lambda: len(rows(folder)) >= 5000, "rows")
        time.sleep(rig.stretched(1.2))  # statistics come each second
        nodes = stop(process)
    run, exact, direct = (nodes[name]["report"]["run"] for name in ("s", "exact", "direct"))
    assert (run["lag_records"], run["lag_seconds"], run["lag_worst_partition"], run["lag_worst_records"]) == (0, 0, "", 0), run
    assert exact["transaction"] == "idle" and exact["transactions"] >= 1, exact
    for sink in (exact, direct):
        assert sink["records_sent"] == 5000 and sink["bytes_sent"] > 5000, sink
        assert sink["records_waiting"] == sink["bytes_waiting"] == sink["outbox_share"] == 0, sink
        assert sink["round_trip_ms"] > 0, sink
    assert exact["epochs_waiting"] == 0 and all(nodes[name]["error"] is None for name in ("s", "exact", "direct")), nodes


def test_nothing_to_send():
    """The transaction that shows rights and brokers at the start leaves no trace in the figures."""
    kafka = rig.shared()
    topic = kafka.create_topic("figures", partitions=1)
    with running(kafka, topic, "--json") as (process, folder):
        rig.wait_for(lambda: glob.glob(os.path.join(folder, "**", "ckpt-*"), recursive=True), "a checkpoint")
        exact = stop(process)["exact"]["report"]["run"]
    assert (exact["transaction"], exact["transactions"], exact["records_sent"]) == ("idle", 0, 0), exact


class Screen:
    """A terminal of 120 columns that leat draws on."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.text, self.thread = b"", threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        with contextlib.suppress(OSError):
            while piece := os.read(self.master, 65536):
                self.text += piece

    def wait(self, pattern):
        """A picture drawn from now on that has it."""
        begin = len(self.text)
        rig.wait_for(lambda: re.search(pattern, self.text[begin:].decode(errors="replace")), pattern)

    def close(self):
        os.close(self.slave)
        os.close(self.master)


def test_on_a_terminal():
    with rig.own() as kafka:
        topic = kafka.create_topic("screen")
        kafka.produce(topic, spaced(1500, 0, int(time.time() * 1000) - 60000, 10))
        screen = Screen()
        with running(kafka, topic, more=", max_rate: 500", stderr=screen.slave) as (process, folder):
            screen.wait(rf"behind \d+ records, \d+\.\d s \({topic}/0: \d+\)  fetched ahead \d[^\n]* \d+ %  round trip \d")
            screen.wait(r"transaction (idle|open|committing)  epochs not out \d+, [^\n]* % of the outbox  round trip")
            screen.wait(r"records not acknowledged \d+, [^\n]* % of the outbox  round trip")
            rig.wait_for(lambda: len(rows(folder)) == 1500, "rows")
            screen.wait(r"behind 0 records, 0 s  fetched ahead 0 B, 0 %")
        with running(kafka, topic, "--fresh", more=", max_rate: 500", job=JOB, stderr=screen.slave) as (process, folder):
            screen.wait(r"transaction idle  epochs not out 0,")
            kafka.pause(1)  # it does not answer
            screen.wait(r"transaction (open|committing)  epochs not out [1-9]\d*, ")
            kafka.resume(1)
            screen.wait(r"transaction idle  epochs not out 0,")
            kafka.kill()
            screen.wait(r"trouble: [^\n]*127\.0\.0\.1")
        screen.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
