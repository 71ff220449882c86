#!/usr/bin/env python3
"""The sink `kafka` against a real broker: rows that a stock client reads are there once, in order per key, whatever
happens to leat, to its checkpoints and to the progress topic. Prints TAP."""

import json
import os
import random
import re
import signal
import sys
import time

import oracle
import rig

ROWS = 20000  # of an ordinary job: some 15 MB, fifteen times what its outbox may hold
POINTS = ["kafka.outbox", "kafka.committed", "kafka.init", "kafka.read", "kafka.begin", "kafka.produce", "kafka.progress",
          "kafka.commit.before", "kafka.commit.after", "ckpt.barrier", "ckpt.pre_rename", "ckpt.post_rename",
          "ckpt.published"]
# Each of three shards writes its life in a transaction: a first start passes these points 3 times, a later one 6 times.
SENDS = ["kafka.begin", "kafka.produce", "kafka.progress", "kafka.commit.before", "kafka.commit.after"]


class Job(oracle.Lives):
    """A job from a file to a topic."""

    def __init__(self, kafka, rows=ROWS, partitions=3, every="50ms", topic=None, bad=0, job="", source="", **options):
        super().__init__()
        self.kafka, self.rows = kafka, rows
        self.topic = topic or kafka.create_topic("sink", partitions=partitions)
        self.progress = f"{self.topic}.leat-out"
        self.bad = set(range(7, rows, rows // bad)) if bad else set()
        with open(self.at("in.jsonl"), "w", encoding="utf-8") as file:
            for n in range(rows):
                row = {"n": n, "key": f"k{n % 10}", "ts": 1_700_000_000_000 + n, "note": "x" * (n % 1200)}
                file.write("{bad %d\n" % n if n in self.bad else json.dumps(row) + "\n")
        more = "".join(f", {name}: {value}" for name, value in {"outbox": "1MiB", "transaction_timeout": "10s",
                                                                 "patience": "30s", **options}.items())
        name = "sink_" + re.sub(r"\W", "_", self.topic)  # its producer's id is made of it
        self.write(f"""job {name} {{ workers: 2, checkpoint: {{ every: {every}, dir: "{self.state}", keep: {{ last: 5 }} }} {job} }}
source rows = file {{
  path: "{self.folder}/in.jsonl", schema: {{ n: int!, key: text, ts: time(ms), note: text }}, event_time: ts {source}
}}
stream good = rows | where n >= 0
sink out = kafka from good {{ brokers: "{kafka.brokers}", topic: "{self.topic}", key: key {more} }}
""")

    def expected(self):
        return [n for n in range(self.rows) if n not in self.bad]

    def check(self):
        rig.check_once(self.kafka.consume(self.topic), self.expected())


def from_kafka(job, topic):
    """The job's text with a topic in place of its file."""
    return job.text.replace(f"""file {{
  path: "{job.folder}/in.jsonl", """, f"""kafka {{
  brokers: "{job.kafka.brokers}", topic: "{topic}", format: json, start: earliest, """)


def kill_when(process, condition):
    """kill -9 as soon as the condition holds; whether it lived until then."""
    while process.poll() is None and not condition():
        time.sleep(0.005)
    process.kill()
    return process.wait() == -signal.SIGKILL


def test_killed_at_every_step():
    kafka = rig.shared()
    rng = random.Random(1)
    left = [(point, at) for point in POINTS for at in ((8, 5, 2) if point in SENDS else (2, 1))]
    rng.shuffle(left)
    while left:
        job = Job(kafka)
        while left:
            point, at = left[-1]
            status, _, err = job.run(failpoints=f"{point}=kill@{at}")
            assert status in (0, -signal.SIGKILL), (point, status, err)
            if status == 0:  # it came to the end before
                assert job.lives > 1 or at > 1, f"{point} is never passed"
                if job.lives == 1:
                    left.pop()
                break
            left.pop()
            if rng.random() < 0.3 and job.checkpoints():
                kill_when(job.start(), lambda t=time.monotonic() + rng.random() / 2: time.monotonic() > t)
        else:
            job.finish()
        job.check()
        job.close()


def test_a_finished_job_sends_what_is_left():
    for point in ("kafka.committed=kill@1", "kafka.commit.before=kill@4"):
        job = Job(rig.shared(), rows=200, every="10s")
        status, _, err = job.run(failpoints=point)  # the only checkpoint is the last
        assert status == -signal.SIGKILL, (status, err)
        assert not job.kafka.consume(job.topic, beside_open=True)
        job.finish()
        job.check()
        job.close()


def test_from_topic_to_topic():
    """Live: killed after what it read was sent, some checkpoints lost, bad records among the good ones."""
    kafka = rig.shared()
    source, dead = kafka.create_topic("live-in", partitions=3), kafka.create_topic("live-dead")
    job = Job(kafka, rows=0)
    job.write(from_kafka(job, source)
              + f'sink dead = kafka from dead_letters {{ brokers: "{kafka.brokers}", topic: "{dead}" }}\n')
    for life in range(4):
        process = job.start(failpoints=f"kafka.commit.{'after' if life % 2 else 'before'}=kill@11")
        while process.poll() is None:
            kafka.produce(source, [*rig.numbered(500, first=job.rows), {"value": b"{bad %d" % job.rows}])
            job.rows += 500
        assert process.wait() == -signal.SIGKILL, job.end(process)
        if life % 2 and len(job.checkpoints()) > 1:
            oracle.damage(job.checkpoints()[-1])
    process = job.start()
    rig.wait_for(lambda: process.poll() is not None
                 or len(kafka.consume(job.topic, beside_open=True)) >= job.rows, "all rows")
    process.send_signal(signal.SIGINT)
    status, _, err = job.end(process)
    assert status == 0, err
    job.check()
    found = sorted(json.loads(r.value)["raw"] for r in kafka.consume(dead))
    assert found == sorted("{bad %d" % n for n in range(0, job.rows, 500)), found[:5]
    job.close()


def test_progress_that_was_emptied_is_refused():
    kafka = rig.shared()
    job = Job(kafka)
    status, summary, err = job.run(failpoints="kafka.commit.after=kill@8")
    assert status == -signal.SIGKILL, (status, summary, err)
    before = len(kafka.consume(job.topic, beside_open=True))
    kafka.delete_topic(job.progress)
    status, _, err = job.run()
    assert status == 1 and "E0707" in err and "is gone" in err and "--fresh" in err, err
    kafka.create_topic(job.progress, exact=True)
    status, _, err = job.run()
    assert status == 1 and "E0707" in err and "the topic was emptied" in err, err
    assert len(kafka.consume(job.topic, beside_open=True)) == before
    # A new run says that there is one before it, once there is progress of both.
    job.finish("--fresh")
    _, _, err = job.run("--fresh")
    assert "already wrote to topic" in err and "warning" in err, err
    job.close()


def test_topics_that_refuse():
    kafka = rig.shared()
    job = Job(kafka, rows=100, topic=f"nowhere-{os.getpid()}")
    status, _, err = job.run()
    assert status == 1 and "E0605" in err and "does not exist" in err and "create:" in err, err
    job.write(job.text.replace("key: key", "key: key, create: { partitions: 2 }"))
    job.finish()
    assert kafka.partitions(job.topic) == [0, 1]
    job.check()
    job.close()
    # One record is too large for the topic: the job stops, says which, and loses nothing.
    topic = kafka.create_topic("small", max_message_bytes=2000)
    job = Job(kafka, rows=100, topic=topic)
    with open(job.at("in.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps({"n": 100, "key": "k0", "ts": 0, "note": os.urandom(3000).hex()}) + "\n")
    job.rows = 101
    status, _, err = job.run()
    assert status == 1 and f"`{topic}`" in err and "computed from record 100" in err and "too large" in err, err
    kafka.alter_topic(topic, max_message_bytes=100000)
    rig.wait_for(lambda: job.run()[0] == 0, "the broker takes the record")
    job.check()
    job.close()


def test_topics_of_small_batches():
    """Batches are no larger than the topic takes, also if it takes smaller ones from some moment on."""
    kafka = rig.shared()
    for delivery in ("exactly_once", "at_least_once"):
        topic = kafka.create_topic("small-batches", partitions=3, max_message_bytes=20_000)
        job = Job(kafka, topic=topic, delivery=delivery, compression="none")
        status, _, err = job.run()
        assert status == 0 and "smaller" not in err, (delivery, err)
        job.check()
        job.close()
    job, source = Job(kafka, rows=0, compression="none"), kafka.create_topic("small-batches-in")
    job.write(from_kafka(job, source))
    process = job.start()
    for most in (None, 5000):
        if most is not None:
            kafka.alter_topic(job.topic, max_message_bytes=most)
        kafka.produce(source, rig.numbered(5000, first=job.rows))
        job.rows += 5000
        rig.wait_for(lambda: process.poll() is not None or len(kafka.consume(job.topic, beside_open=True)) >= job.rows, "all rows")
    process.send_signal(signal.SIGINT)
    status, _, err = job.end(process)
    assert status == 0 and f"topic `{job.topic}` refuses batches of this size: smaller batches are tried" in err, (status, err)
    job.check()
    job.close()


def test_records_have_keys_headers_partitions():
    kafka = rig.shared()
    job = Job(kafka, rows=500, partitions=7, headers="[key, n]", properties="{ linger_ms: 20ms }")
    job.finish()
    job.check()
    where = {}
    for record in kafka.consume(job.topic):
        row = json.loads(record.value)
        assert record.key.decode() == row["key"]
        assert record.headers == [("key", row["key"].encode()), ("n", str(row["n"]).encode())], record
        assert not record.value.endswith(b"\n")
        where.setdefault(record.key, set()).add(record.partition)
    other = kafka.create_topic("java", partitions=7)
    kafka.produce(other, [{"key": key, "value": b""} for key in where])
    assert {r.key: {r.partition} for r in kafka.consume(other)} == where
    job.close()
    job = Job(kafka, rows=500, partitions=4, format="csv")
    job.write(job.text.replace("where n >= 0", "with p = n % 4, gone = case when n % 3 == 0 then null else key end")
              .replace("key: key", "key: gone, partition: p"))
    job.finish()
    for record in kafka.consume(job.topic):
        fields = record.value.decode().split(",")
        assert record.partition == int(fields[0]) % 4 and len(fields) == 6, record
        assert record.key == (None if int(fields[0]) % 3 == 0 else fields[1].encode()), record
    job.close()


def test_changes_are_upserts_and_tombstones():
    """The last record of each key is what stands, whatever was killed."""
    kafka = rig.shared()
    job = Job(kafka, rows=3000, partitions=3)
    job.write(job.text.replace("where n >= 0", "with worth = (n * 7919) % 1009 | top_n 40 by key order desc(worth) emit on_change")
              .replace("key: key", "key: n"))
    for at in (5, 8):
        job.run(failpoints=f"kafka.commit.after=kill@{at}")
    job.finish()
    records, stands = kafka.consume(job.topic), {}
    for record in records:
        if record.value is None:
            del stands[record.key]  # a delete is of what is there
        else:
            row = json.loads(record.value)
            assert record.key == str(row["n"]).encode() and record.key not in stands and "_op" not in row, record
            stands[record.key] = row["worth"]
    best = []
    for key in range(10):
        best += sorted(range(key, 3000, 10), key=lambda n: (-(n * 7919 % 1009), n))[:40]
    assert sorted(int(key) for key in stands) == sorted(best)
    assert any(record.value is None for record in records) and len(records) < 3000
    job.close()


def test_dead_letters():
    kafka = rig.shared()
    dead = kafka.create_topic("dead")
    job = Job(kafka, rows=20000, bad=40)
    job.write(job.text + f'sink dead = kafka from dead_letters {{ brokers: "{kafka.brokers}", topic: "{dead}" }}\n')
    for at in (6, 11):
        job.run(failpoints=f"kafka.commit.before=kill@{at}")
    job.finish()
    job.check()
    found = [json.loads(r.value) for r in kafka.consume(dead)]
    assert [row["raw"] for row in found] == ["{bad %d" % n for n in sorted(job.bad)], found[:3]
    for row in found:
        assert row["record"] == int(row["raw"][5:]) and row["source"] == "rows" and "in quotes" in row["reason"], row
        assert row["place"].endswith("in.jsonl"), row
    job.close()


def test_at_least_once():
    kafka = rig.shared()
    job = Job(kafka, delivery="at_least_once")
    job.finish()
    job.check()
    job.close()
    job = Job(kafka, delivery="at_least_once")
    for _ in range(2):
        status, summary, err = job.run(failpoints="kafka.flush=kill@1")
        assert status == -signal.SIGKILL, (status, summary, err)
    job.finish()
    assert set(rig.numbers(kafka.consume(job.topic))) == set(job.expected())
    job.close()


def test_shards_end_at_different_places():
    """Of eight shards some are out further than others when the job is killed; then checkpoints are damaged, too: each
    shard compares what it has sent, and sends the rest."""
    kafka, apart, again = rig.shared(), 0, 0
    for point, lost in (("kafka.commit.after=kill@21", 0), ("kafka.commit.after=kill@27", 1), ("kafka.commit.before=kill@33", 2)):
        job = Job(kafka, partitions=11, every="30ms")
        job.write(job.text.replace("key: key", "key: n"))
        status, _, err = job.run(failpoints=point)
        assert status == -signal.SIGKILL, (point, status, err)
        assert kafka.partitions(job.progress) == list(range(8))
        ends = [end for _, end in kafka.offsets(job.progress).values()]
        apart += len(set(ends)) > 1
        for path in job.checkpoints()[len(job.checkpoints()) - lost:]:
            oracle.damage(path)
        again += "computed again" in json.dumps(job.finish()[0])
        job.check()
        job.close()
    assert apart > 0 and again > 0, (apart, again)


def test_the_topic_gets_partitions():
    """The count of partitions changes at a barrier, and is said; what was sent by the old count is compared by it."""
    kafka = rig.shared()
    source = kafka.create_topic("more-in")
    job = Job(kafka, rows=0, partitions=2, properties="{ topic_metadata_refresh_interval_ms: 300ms }")
    job.write(from_kafka(job, source))
    said = f"topic `{job.topic}` had 2 partitions, and has 5 now"

    def send(process, rows):
        kafka.produce(source, rig.numbered(rows, first=job.rows))
        job.rows += rows
        rig.wait_for(lambda: process.poll() is not None
                     or len(kafka.consume(job.topic, beside_open=True)) >= job.rows, "all rows")

    process = job.start()
    send(process, 500)
    kafka.add_partitions(job.topic, 5)
    time.sleep(rig.stretched(2.5))  # the client's refresh, and its statistics, which come each second
    send(process, 500)
    time.sleep(0.3)
    send(process, 500)
    process.kill()
    _, _, err = job.end(process)
    assert said in err, err
    assert kafka.partitions(job.progress) == [0, 1], "the number of shards is the run's"
    for path in job.checkpoints()[1:]:  # back to where two partitions were known
        oracle.damage(path)
    process = job.start()
    send(process, 500)
    process.send_signal(signal.SIGINT)
    status, summary, err = job.end(process)
    assert status == 0 and "computed again" in json.dumps(summary), (status, summary, err)
    records = kafka.consume(job.topic)
    assert sorted(rig.numbers(records)) == job.expected(), len(records)
    for key in {r.key for r in records}:  # in order, up to the change in one partition, from there on in one again
        rows = sorted((r.partition, json.loads(r.value)["n"]) for r in records if r.key == key)
        assert rows == [(r.partition, json.loads(r.value)["n"]) for r in records if r.key == key], key
        before, after = ({p for p, n in rows if n < 500}, {p for p, n in rows if n >= 1000})
        assert len(before) == len(after) == 1, (key, before, after)
    new = [json.loads(r.value)["n"] for r in records if r.partition > 1]
    assert new and min(new) >= 500, new[:3]
    job.close()


def threads_ms(process, name):
    """CPU time of librdkafka's threads whose names begin so, or None where the kernel does not count it."""
    total = 0
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        try:
            with open(f"/proc/{process.pid}/task/{thread}/comm", encoding="utf-8") as comm, \
                    open(f"/proc/{process.pid}/task/{thread}/schedstat", encoding="utf-8") as spent:
                total += int(spent.read().split()[0]) / 1e6 if comm.read().startswith(name) else 0
        except FileNotFoundError:
            if not os.path.exists("/proc/self/schedstat"):
                return None
    return total


def test_small_transactions_are_cheap():
    """librdkafka's main thread sleeps through the timers of a transaction: it spent 1 to 1.4 ms on each before."""
    kafka = rig.shared()
    source = kafka.create_topic("cheap-in")
    job = Job(kafka, rows=0, partitions=8, every="50ms")
    job.write(from_kafka(job, source).replace("key: key", "key: n"))
    process, before, producer = job.start(), 0, kafka.producer()
    for part in range(61):
        time.sleep(0.06)
        kafka.produce(source, rig.numbered(100, first=job.rows), producer)
        job.rows += 100
        if part in (0, 60):
            rig.wait_for(lambda: process.poll() is not None
                         or len(kafka.consume(job.topic, beside_open=True)) >= job.rows, "rows")
        if part == 0:
            before = threads_ms(process, "rdk:main")
    spent = threads_ms(process, "rdk:main")
    process.send_signal(signal.SIGINT)
    status, summary, err = job.end(process)
    assert status == 0, err
    transactions = int(re.search(r"in (\d+) transactions", json.dumps(summary)).group(1))
    print(f"# {transactions} transactions, {spent - before:.0f} ms" if spent is not None else "# no schedstat", flush=True)
    assert transactions > 100 and (spent is None or spent - before < 0.7 * transactions), (transactions, before, spent)
    job.close()


def test_a_broker_that_answers_late():
    """While records wait for those in flight, the thread of the broker sleeps: it spent all of the time on polls before."""
    kafka = rig.shared()
    with kafka.proxied() as proxied:
        proxied.delay(.1)
        job = Job(kafka, partitions=1, outbox="32MiB", every="500ms")
        job.write(job.text.replace(kafka.brokers, proxied.brokers))
        process, began, spent = job.start(), time.monotonic(), 0
        while process.poll() is None:
            spent = threads_ms(process, "rdk:broker") or spent
            time.sleep(.01)
        took = (time.monotonic() - began) * 1000
        status, _, err = job.end(process)
        assert status == 0, err
        print(f"# {spent:.0f} ms of {took:.0f} ms", flush=True)
        assert spent < took / 12, (spent, took)
        job.close()


def make_again(job, partitions):
    job.kafka.delete_topic(job.topic)
    job.kafka.create_topic(job.topic, partitions=partitions, exact=True)


def test_the_topic_is_made_again_with_fewer_partitions():
    """All rows of the next start go to the partitions that there are."""
    kafka = rig.shared()
    source = kafka.create_topic("fewer-in")
    job = Job(kafka, rows=0, partitions=2, every="2s")  # rows come before the start's first barrier
    job.write(from_kafka(job, source))
    for life, partitions in enumerate((2, 1)):
        if life > 0:
            make_again(job, partitions)
        kafka.produce(source, rig.numbered(100, first=100 * life))
        process = job.start()
        rig.wait_for(lambda p=process: p.poll() is not None or len(kafka.consume(job.topic, beside_open=True)) >= 100, "rows")
        process.send_signal(signal.SIGINT)
        status, _, err = job.end(process)
        assert status == 0 and (f"topic `{job.topic}` had 2 partitions, and has 1 now" in err) == (life > 0), (status, err)
        rig.check_once(kafka.consume(job.topic), range(100 * life, 100 * life + 100))
    job.close()


def killed_among_rows():
    """A killed job with its first checkpoint alone, and rows behind that. On a busy machine a first checkpoint may have
    all rows: then another job is tried."""
    for _ in range(6):
        job = Job(rig.shared(), partitions=2)
        status, _, err = job.run(failpoints="kafka.commit.after=kill@6")
        assert status == -signal.SIGKILL, (status, err)
        for path in job.checkpoints()[1:]:
            oracle.damage(path)
        if 0 < oracle.records_read(job, "@1-1") < job.rows:
            return job
        job.close()
    raise AssertionError("no job was killed among its rows")


def killed_with_rows_in_its_checkpoint():
    job = Job(rig.shared(), rows=200, partitions=2, every="10s")
    status, _, err = job.run(failpoints="kafka.committed=kill@1")
    assert status == -signal.SIGKILL, (status, err)
    return job


def test_rows_that_are_left_need_their_partitions():
    """Those that a checkpoint holds, and those that are made again: they do not go elsewhere."""
    for job, is_again in ((killed_with_rows_in_its_checkpoint(), False), (killed_among_rows(), True)):
        make_again(job, 1)
        job.refused("E0707", f"topic `{job.topic}` had 2 partitions, and has 1 now", "give the topic 2 partitions")
        job.kafka.add_partitions(job.topic, 2)
        job.finish()
        if not is_again:
            job.check()
        job.close()


def test_rows_without_a_key():
    """Their partition is the micro-batch's number modulo the count: the same in each life."""
    job = Job(rig.shared(), rows=3000, partitions=4)
    job.write(job.text.replace(", key: key", ""))
    for at in (8, 12):
        job.run(failpoints=f"kafka.commit.after=kill@{at}")
    job.finish()
    records = job.kafka.consume(job.topic)
    assert sorted(rig.numbers(records)) == job.expected(), len(records)
    assert len({r.partition for r in records}) > 1
    job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=2))
