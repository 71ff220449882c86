#!/usr/bin/env python3
"""What is said, and how soon, where something is not as it should be: brokers that are away or just starting, a start or an
end that is told to stop, records that a topic refuses, a topic that is gone, records of which none is good.

    tests/kafka/test_patience.py PATH_OF_LEAT
"""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
import running  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
INTERRUPTED = 130
NUMBERS = itertools.count(os.getpid() * 100)  # jobs of one name would send as one


class Job(running.Running):
    """A job file in a folder of its own; its processes, and what they said by when."""

    def __init__(self, text, rows=100):
        super().__init__("leat-patience-")
        with open(self.at("in.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(f'{{"n":{n}}}\n' for n in range(rows))
        with open(self.at("job.leat"), "w", encoding="utf-8") as file:
            file.write(f'job patient_{next(NUMBERS)} {{ workers: 1, checkpoint: {{ every: 100ms, dir: "{self.at("state")}" }} }}\n'
                       + text.replace("FOLDER", self.folder.name))
        self.said, self.begin = [], 0

    def start(self, *arguments, command=None):
        self.said, self.begin = [], time.monotonic()
        self.process = subprocess.Popen(command or [LEAT, "run", self.at("job.leat"), "--json", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.out = []
        self.threads = [threading.Thread(target=self.listen, args=(stream, lines), daemon=True)
                        for stream, lines in ((self.process.stderr, self.said), (self.process.stdout, self.out))]
        for thread in self.threads:
            thread.start()

    def listen(self, stream, lines):
        for line in stream:
            lines.append((time.monotonic() - self.begin, line))

    def records_read(self):
        """By the newest checkpoint."""
        shown = subprocess.run([LEAT, "checkpoint", "show", self.at("state")], capture_output=True, text=True, check=False).stdout
        return sum(map(int, re.findall(r"(\d+) records  next", shown)))

    def hears(self, *words, within):
        """Waits until it has said these in one line, at most so many seconds from its start; when that was."""
        def found():
            return [at for at, line in list(self.said) if all(word in line for word in words)]

        within = rig.stretched(within)
        with contextlib.suppress(AssertionError):
            rig.wait_for(lambda: found() or self.process.poll() is not None, words, within + 5)
        assert found() and found()[0] <= within, (words, within, self.said)
        return found()[0]

    def ends(self, status):
        """With this status; (seconds from now, all that it said, stdout)."""
        begin = time.monotonic()
        assert self.process.wait(rig.PATIENCE_S) == status, (self.process.returncode, self.said)
        for thread in self.threads:
            thread.join()
        return time.monotonic() - begin, "".join(line for _, line in self.said), "".join(line for _, line in self.out)


def to_topic(kafka, topic, more="", brokers=None):
    return (f'source s = file {{ path: "FOLDER/in.jsonl", schema: {{ n: int }} }}\n'
            f'sink out = kafka from s {{ brokers: "{brokers or kafka.brokers}", topic: "{topic}" {more} }}\n')


def from_topic(kafka, topic, more="", brokers=None):
    return (f'source s = kafka {{ brokers: "{brokers or kafka.brokers}", topic: "{topic}", schema: {{ n: int }} {more} }}\n'
            'sink out = file from s { path: "FOLDER/rows.jsonl" }\n')


class Starting:
    """A broker as a proxy or a container shows it before it is up: connections are taken, and ended at once, until begin();
    a port where nobody listens, until open()."""

    def __init__(self, address, is_open):
        host, port = address.split(",")[0].rsplit(":", 1)
        self.target, self.is_up, self.is_ending = (host, int(port)), False, False
        self.server = socket.socket()
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.server.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        if is_open:
            self.open()

    def open(self):
        self.server.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                if not self.is_up:
                    client.close()
                    continue
                there = socket.create_connection(self.target)
                for one, other in ((client, there), (there, client)):
                    threading.Thread(target=self.pipe, args=(one, other), daemon=True).start()

    @staticmethod
    def pipe(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.close()


# --- starting ---------------------------------------------------------------------------------------------------
def check_starting(is_open, words):
    """Of a source, of a sink and of `leat record`, of which none gives up before the broker is up, 12 s later."""
    kafka = rig.shared()
    topic, sent = kafka.create_topic("patience-in"), kafka.create_topic("patience-out")
    kafka.produce(topic, rig.numbered(100))
    broker = Starting(kafka.brokers, is_open)
    with Job(from_topic(kafka, topic, ", until: latest", broker.address)) as source, \
            Job(to_topic(kafka, sent, brokers=broker.address)) as sink, Job("") as recorder:
        source.start()
        sink.start()
        recorder.start(command=[LEAT, "record", topic, "--to", recorder.at("rec"), "--until", "latest", "--brokers", broker.address,
                                "--quiet"])
        for job, who in ((source, "source `s`"), (sink, "sink `out`"), (recorder, "leat: ")):
            job.hears(who, words, "waiting for brokers", "s more at most (`patience`)", within=4)
        time.sleep(max(0, 12 - (time.monotonic() - source.begin)))
        assert all(job.process.poll() is None for job in (source, sink, recorder)), (source.said, sink.said, recorder.said)
        if not is_open:
            broker.open()
        broker.is_up = True
        for job in (source, sink, recorder):
            job.ends(0)
        assert len(kafka.consume(sent)) == 100
        with open(source.at("rows.jsonl"), encoding="utf-8") as file:
            assert len(file.readlines()) == 100
    broker.close()


def test_a_broker_that_is_just_starting():
    check_starting(True, "ends the connection at once: it is starting, or does not speak this protocol")


def test_a_broker_that_is_not_there_yet():
    check_starting(False, "no process listens at this port")


def test_patience_is_over():
    """When it says, and not before; what it waited for is said at once, and again at the end."""
    broker = Starting("127.0.0.1:1", True)
    for text, code in ((from_topic(None, "any", ", patience: 4s", broker.address), "E0610"),
                       (to_topic(None, "any", ", patience: 4s", broker.address), "E0605")):
        with Job(text) as job:
            job.start()
            job.hears("it is starting, or does not speak this protocol", "waiting for brokers", within=3)
            job.ends(1)
            took = time.monotonic() - job.begin
            assert 3.5 < took < rig.stretched(8), took
            assert f"error[{code}]" in "".join(line for _, line in job.said), job.said
    broker.close()


def test_told_to_stop_while_it_starts():
    """The first Ctrl-C is enough, and nothing is left that a next start would stumble over."""
    kafka = rig.shared()
    broker = Starting(kafka.brokers, True)
    topic, sent = kafka.create_topic("patience-stop"), kafka.create_topic("patience-stopped")
    kafka.produce(topic, rig.numbered(100))
    for text in (from_topic(kafka, topic, ", until: latest", broker.address), to_topic(kafka, sent, brokers=broker.address)):
        broker.is_up = False
        with Job(text) as job:
            job.start()
            job.hears("waiting for brokers", within=4)
            job.process.send_signal(signal.SIGINT)
            took, said, _ = job.ends(INTERRUPTED)
            assert took < rig.stretched(5) and "stopping before the run has begun" in said and "error[" not in said, (took, said)
            broker.is_up = True
            job.start()
            job.ends(0)
    broker.close()


def test_fenced_by_nobody():
    """A broker stands still for longer than a transaction may last, and than the start is patient, while the start's own
    transaction is open. Its first answer is that it has ended that: the start makes another."""
    kafka = rig.shared()
    topic = kafka.create_topic("patience-ended")
    with kafka.proxied() as proxied:
        for api in ("EndTxn", "AddPartitionsToTxn"):
            proxied.hold_at(api, 8)
            with Job(to_topic(kafka, topic, ", transaction_timeout: 2s, patience: 2s", proxied.brokers)) as job:
                job.start("--fresh")
                _, said, _ = job.ends(0)
                assert "fenced" not in said, said
    assert len(kafka.consume(topic)) == 200


def leader(kafka, topic, partition=0):
    return kafka.admin().list_topics(topic, timeout=rig.PATIENCE_S).topics[topic].partitions[partition].leader


def test_a_start_while_a_leader_hangs():
    """Another broker leads soon, and the start asks for it: the leader of a progress partition is connected, and does not
    answer. (librdkafka's own question for the ends of a partition waited for it without limit.)"""
    with rig.own(brokers=3) as kafka:
        topic = kafka.create_topic("patience-hangs", partitions=3)
        with Job(to_topic(kafka, topic)) as job:
            job.start()
            job.ends(0)
            hanging = leader(kafka, f"{topic}.leat-out")
            kafka.pause(hanging)
            job.start()
            _, said, _ = job.ends(0)
            took = time.monotonic() - job.begin
            assert took < rig.stretched(30), (took, said)
            kafka.resume(hanging)
        assert len(kafka.consume(topic)) == 100


def test_patience_with_a_leader_that_hangs():
    """Where no other broker can lead, the start says what it waits for, ends with Ctrl-C, and when its patience is over."""
    with rig.own(brokers=3) as kafka:
        topic = kafka.create_topic("patience-alone", partitions=3)
        progress = kafka.create_topic(f"{topic}.leat-out", partitions=3, copies=1, exact=True, cleanup_policy="compact")
        with Job(to_topic(kafka, topic, ", patience: 5s")) as job:
            job.start()
            job.ends(0)
            hanging = leader(kafka, progress, 1)
            kafka.pause(hanging)
            job.start()
            job.hears("sink `out`: ", f"(the leader of `{progress}`, partition ", "s more at most (`patience`)", within=5)
            job.process.send_signal(signal.SIGINT)
            took, said, _ = job.ends(INTERRUPTED)
            assert took < rig.stretched(5) and "error[" not in said, (took, said)
            job.start()
            _, said, _ = job.ends(1)
            took = time.monotonic() - job.begin
            assert took < rig.stretched(10), (took, said)
            assert "error[E0605]" in said and f"progress topic `{progress}`, partition 1: " in said, said
            kafka.resume(hanging)


def test_told_to_stop_in_its_first_transaction():
    """The record of the start is on its way, and no answer comes, to no try."""
    kafka = rig.shared()
    topic = kafka.create_topic("patience-first")
    kafka.commit(topic, rig.numbered(1), f"patience-{os.getpid()}")  # the coordinator is there
    for api in ("Produce", "EndTxn"):
        with kafka.proxied() as proxied, Job(to_topic(kafka, topic, brokers=proxied.brokers)) as job:
            proxied.hold_at(api, 60, times=10)
            job.start()
            job.hears("sink `out`: ", f"(the leader of `{topic}.leat-out`, partition 0, to take a record)", within=20)
            job.process.send_signal(signal.SIGINT)
            took, said, _ = job.ends(INTERRUPTED)
            assert took < rig.stretched(5) and "error[" not in said, (took, said)


# --- stopping ---------------------------------------------------------------------------------------------------
def test_a_record_that_is_too_large():
    """It is named soon, however many rows wait around it, whether or not the job is told to stop meanwhile. (Once each of the
    100,000 rows was sent alone before, which took a minute.)"""
    kafka = rig.shared()
    topic = kafka.create_topic("patience-large", max_message_bytes=1_000_000)
    source = kafka.create_topic("patience-large-in")
    around, large = [{"value": b"x" * 80} for _ in range(50_000)], [{"value": os.urandom(900_000)} for _ in range(2)]
    for wait in (0.2, 3):
        with Job(from_topic(kafka, source, ", format: raw").replace("n: int", "n: bytes").replace(
                'file from s { path: "FOLDER/rows.jsonl" }', f'kafka from s {{ brokers: "{kafka.brokers}", topic: "{topic}" }}')) as job:
            job.start()
            kafka.produce(source, around[:1])
            rig.wait_for(lambda job=job: job.records_read() > 0, "a checkpoint")
            kafka.produce(source, [*around, *large, *around])
            time.sleep(wait)
            job.process.send_signal(signal.SIGINT)
            took, said, _ = job.ends(1)
            assert took < rig.stretched(12), took
            assert re.search(rf"topic `{topic}`, partition 0: a record of \d+ bytes, computed from record \d+ .*too large", said), said


def test_told_to_stop_while_brokers_are_away():
    """What it waits for, for how long, and why that comes. What is not out then comes at the next start."""
    kafka = rig.shared()
    for delivery, said_last in (
            ("exactly_once", "brokers did not take all rows within 5 s (`patience`)"),
            ("at_least_once", "brokers did not acknowledge all rows within 5 s (`patience`)")):
        topic, source = kafka.create_topic("patience-away"), kafka.create_topic("patience-away-in")
        with kafka.proxied() as proxied, Job(from_topic(kafka, source).replace(
                'file from s { path: "FOLDER/rows.jsonl" }',
                f'kafka from s {{ brokers: "{proxied.brokers}", topic: "{topic}", patience: 5s, delivery: {delivery} }}')) as job:
            job.start()
            rig.wait_for(lambda at=job.at("state"): os.path.exists(at), "a start")
            kafka.produce(source, rig.numbered(10))
            kafka.consume(topic, count=10)
            proxied.refuse()
            kafka.produce(source, rig.numbered(10, first=10))
            time.sleep(1)
            job.process.send_signal(signal.SIGINT)
            stopped = time.monotonic() - job.begin
            job.hears("sink `out`", "10 records are not delivered yet: waiting for brokers, 5 s (`patience`) at most", within=stopped + 4)
            took, said, _ = job.ends(1)
            assert took < rig.stretched(10) and said_last in said, (delivery, took, said)
            proxied.accept()
            job.start()
            assert set(rig.numbers(kafka.consume(topic, count=20))) == set(range(20))
            job.process.send_signal(signal.SIGINT)
            job.ends(0)


def test_told_to_stop_while_brokers_hang():
    """Connections stay, and nothing comes, as from a broker that is stopped, for longer than a transaction may last. (The producer waited
    for its abort without limit, and the process with it.)"""
    kafka = rig.shared()
    topic, source = kafka.create_topic("patience-hang"), kafka.create_topic("patience-hang-in")
    with kafka.proxied() as proxied, Job(from_topic(kafka, source).replace(
            'file from s { path: "FOLDER/rows.jsonl" }',
            f'kafka from s {{ brokers: "{proxied.brokers}", topic: "{topic}", transaction_timeout: 2s, patience: 6s }}')) as job:
        job.start()
        rig.wait_for(lambda: os.path.exists(job.at("state")), "a start")
        kafka.produce(source, rig.numbered(10))
        kafka.consume(topic, count=10)
        proxied.pause()
        kafka.produce(source, rig.numbered(10, first=10))
        rig.wait_for(lambda: job.records_read() == 20, "a checkpoint")
        time.sleep(3)
        job.process.send_signal(signal.SIGINT)
        took, said, _ = job.ends(1)
        assert took < rig.stretched(12) and "brokers did not take all rows within 6 s (`patience`)" in said, (took, said)
        proxied.resume()
        job.start()
        assert set(rig.numbers(kafka.consume(topic, count=20))) == set(range(20))
        job.process.send_signal(signal.SIGINT)
        job.ends(0)


# --- what is gone, and what is no good ----------------------------------------------------------------------------
def test_an_output_topic_that_is_gone():
    """It is made at the first start, which is said; not again, when rows went there."""
    kafka = rig.shared()
    topic, source = f"patience-made-{os.getpid()}", kafka.create_topic("patience-made-in")
    for delivery in ("exactly_once", "at_least_once"):
        with Job(from_topic(kafka, source).replace('file from s { path: "FOLDER/rows.jsonl" }',
                 f'kafka from s {{ brokers: "{kafka.brokers}", topic: "{topic}", delivery: {delivery}, '
                 f'create: {{ partitions: 2 }} }}')) as job:
            job.start()
            job.hears(f"sink `out`: topic `{topic}` did not exist, and is created with 2 partitions", within=15)
            kafka.produce(source, rig.numbered(10))
            rig.wait_for(lambda: topic in kafka.topics() and len(kafka.consume(topic)) >= 10, "rows")
            rig.wait_for(lambda: any("ckpt-" in name for _, names, _ in os.walk(job.at("state")) for name in names), "a checkpoint")
            job.process.send_signal(signal.SIGINT)
            job.ends(0)
            kafka.delete_topic(topic)
            job.start()
            _, said, _ = job.ends(1)
            assert f"topic `{topic}` does not exist any more" in said and "the rows that it had sent to the topic are gone" in said, said
            assert topic not in kafka.topics()
            kafka.create_topic(topic, exact=True)
            job.start()
            kafka.produce(source, rig.numbered(10, first=10))
            rig.wait_for(lambda: job.process.poll() is not None or len(kafka.consume(topic)) >= 10, "rows")
            job.process.send_signal(signal.SIGINT)
            job.ends(0)
            assert sorted(rig.numbers(kafka.consume(topic))) == list(range(10, 20))
            kafka.delete_topic(topic)
            source = kafka.create_topic("patience-made-in")
            if delivery == "exactly_once":
                kafka.delete_topic(f"{topic}.leat-out")


def test_records_of_which_none_is_good():
    """While it runs, also where they come slowly, and when they become bad later; and at the end. The exit code is what it
    was."""
    kafka = rig.shared()
    topic = kafka.create_topic("patience-dead")
    kafka.produce(topic, [{"value": b"no json %d" % n} for n in range(5000)])
    with Job(from_topic(kafka, topic)) as job:
        job.start()
        job.hears("WARNING: s: kafka: ", " records are dead letters; for example", f"{topic}/0: record ", "begins with `{`",
                  "check that `format` and `schema` match its records", within=15)
        rig.wait_for(lambda: job.records_read() == 5000, "all of them")
        job.process.send_signal(signal.SIGINT)
        _, _, out = job.ends(0)
        assert len(json.loads(out)["warnings"]) == 1 and "5000 of 5000 records are dead letters" in json.loads(out)["warnings"][0], out
        job.start()
        kafka.produce(topic, rig.numbered(3000))
        rig.wait_for(lambda: os.path.exists(job.at("rows.jsonl.part")) and os.path.getsize(job.at("rows.jsonl.part")) > 3000, "rows")
        assert not job.said or "WARNING" not in str(job.said), job.said
        time.sleep(1)
        kafka.produce(topic, [{"value": b"no json"} for n in range(12)])
        job.hears("WARNING: s: kafka: 12 of the last 12 records", within=30)
        job.process.send_signal(signal.SIGINT)
        job.ends(0)


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=2))
