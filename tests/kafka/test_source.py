#!/usr/bin/env python3
"""Source `kafka` against the real broker, up to where the log ends: records, formats, transactions, where it begins and
goes on, what it refuses and says. test_live.py has what goes on for ever.

    tests/kafka/test_source.py PATH_OF_LEAT
"""

import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import install  # noqa: E402
import rig  # noqa: E402

LEAT = sys.argv[1]
SCHEMA = "{ n: int, key: text, ts: time(ms) }"


class Job:
    """A job over one source, with rows to out.jsonl and bad records to dead.jsonl."""

    def __init__(self, folder, source, steps="", settings="", schema=SCHEMA):
        self.folder = folder
        self.path = self.at("job.leat")
        self.write(source, steps, settings, schema)

    def write(self, source, steps="", settings="", schema=SCHEMA):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(f"""
job test {{ workers: 2 {settings} }}
source s = kafka {{ {source}, schema: {schema} }}
stream rows = s {steps}
sink out = file from rows {{ path: "{self.at('out.jsonl')}", overwrite: true }}
sink dead = file from dead_letters {{ path: "{self.at('dead.jsonl')}", overwrite: true }}
""")

    def at(self, name):
        return os.path.join(self.folder, name)

    def run(self, *arguments, env=None, seconds=rig.PATIENCE_S):
        return subprocess.run([LEAT, "run", self.path, "--json", *arguments], capture_output=True, text=True,
                              timeout=seconds, check=False, env={**os.environ, **(env or {})})

    def finish(self, *arguments, **more):
        """Runs it to its end; the summary."""
        result = self.run(*arguments, **more)
        assert result.returncode == 0, result.stderr[-2000:]
        return json.loads(result.stdout)

    def refused(self, code, *says, **more):
        """Runs it and wants this error; what was said."""
        result = self.run(**more)
        assert result.returncode != 0 and f"error[{code}]" in result.stderr, result.stderr[-2000:] + result.stdout[-500:]
        for part in says:
            assert part in result.stderr, (part, result.stderr[-2000:])
        return result.stderr

    def rows(self, name="out.jsonl"):
        with open(self.at(name), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


@contextlib.contextmanager
def job(source, **more):
    with tempfile.TemporaryDirectory(prefix="leat-kafka-") as folder:
        yield Job(folder, source, **more)


def of(kafka, topic, more=""):
    return f'brokers: "{kafka.brokers}", topic: "{topic}", until: latest{more}'


def counts(summary, name="s"):
    node, = [node for node in summary["nodes"] if node["name"] == name]
    assert node["counts"]["balanced"], node
    return node["counts"]


# --- records ----------------------------------------------------------------------------------------------------
def test_all_records_once_and_the_same_again():
    kafka = rig.shared()
    topic = kafka.create_topic("source-all", partitions=3)
    kafka.produce(topic, rig.numbered(20000))
    meta = ", meta: { key: key, partition: p, offset: o, timestamp: at, topic: t }"
    schema = "{ n: int, key: text, ts: time(ms), p: int, o: int, at: time, t: text }"
    outputs = []
    for workers in ("1", "3"):
        with job(of(kafka, topic, meta), schema=schema) as one:
            summary = one.finish("--workers", workers)
            rows = one.rows()
            outputs.append(open(one.at("out.jsonl"), "rb").read())
        assert counts(summary)["in"] == 20000 and summary["finished"], summary
    assert outputs[0] == outputs[1]
    # Merged by the broker's time, which is n's.
    assert [row["n"] for row in rows] == list(range(20000))
    sent = {json.loads(r.value)["n"]: r for r in kafka.consume(topic)}
    for row in rows:
        record = sent[row["n"]]
        assert (row["p"], row["o"], row["t"]) == (record.partition, record.offset, topic), row
        assert row["key"] == record.key.decode() and row["at"].startswith("2023-11-14T22:13:"), row


def test_formats():
    kafka = rig.shared()
    rows = [{"a": 1, "b": "x,y"}, {"a": 2, "b": "\u00e9"}, {"a": None, "b": "z"}]
    payloads = {
        "json": [json.dumps(row).encode() for row in rows] + [b'{\n  "a": 4,\n  "b": "lines"\n}'],
        "csv": ['1,"x,y"'.encode(), "2,\u00e9".encode(), b",z", b'4,lines'],
        "msgpack": [b"\x82\xa1a\x01\xa1b\xa3x,y", b"\x82\xa1a\x02\xa1b\xa2\xc3\xa9", b"\x81\xa1b\xa1z",
                    b"\x82\xa1a\x04\xa1b\xa5lines"],
    }
    rows.append({"a": 4, "b": "lines"})
    for name, values in payloads.items():
        topic = kafka.create_topic("source-format")
        kafka.produce(topic, [{"value": value} for value in values])
        with job(of(kafka, topic, f", format: {name}"), schema="{ a: int, b: text }") as one:
            one.finish()
            assert one.rows() == rows, (name, one.rows())
    topic = kafka.create_topic("source-raw")
    kafka.produce(topic, [{"value": value, "key": b"k"} for value in (b"", b"one\ntwo", b"\xff\x00", None)])
    with job(of(kafka, topic, ", format: raw, meta: { key: k }"), schema="{ value: bytes, k: text }") as one:
        one.finish()
        assert [row["value"] for row in one.rows()] == ["", "b25lCnR3bw==", "/wA=", None]
    with job(of(kafka, topic, ", format: raw"), schema="{ value: text }") as one:
        assert counts(one.finish())["dead"] == 2  # no UTF-8; no payload
        assert [row["value"] for row in one.rows()] == ["", "one\ntwo"]


def test_bad_records_hurt_no_neighbours():
    kafka = rig.shared()
    topic = kafka.create_topic("source-bad", partitions=2)
    good = list(rig.numbered(1000))
    records = []
    for n, record in enumerate(good):
        records.append(record)
        if n % 100 == 50:
            records.append({"key": b"bad", "value": b'{"n": oops%d}' % n, "timestamp": record["timestamp"]})
        if n % 100 == 70:
            records.append({"key": b"gone", "value": None, "timestamp": record["timestamp"]})
    kafka.produce(topic, records)
    with job(of(kafka, topic)) as one:
        summary = one.finish()
        assert [row["n"] for row in one.rows()] == list(range(1000))
        dead = one.rows("dead.jsonl")
    assert counts(summary)["dead"] == 20 and len(dead) == 20, counts(summary)
    assert sum("tombstone" in row["reason"] for row in dead) == 10, dead[0]
    with job(of(kafka, topic, ", meta: { key: k }"), schema="{ n: int, k: text }") as one:
        assert counts(one.finish())["dead"] == 10
        assert sum(row["n"] is None and row["k"] == "gone" for row in one.rows()) == 10


def test_long_records():
    kafka = rig.shared()
    topic = kafka.create_topic("source-long", max_message_bytes=4_000_000)
    sizes = [10, 600_000, 600_000, 1_048_576, 1_048_577, 3_000_000, 10]
    kafka.produce(topic, [{"value": b"x" * size} for size in sizes], message_max_bytes=4_000_000)
    with job(of(kafka, topic, ", format: raw, queue: 1MiB"), steps="| select size = length(value)",
             schema="{ value: text }") as one:
        summary = one.finish()
        assert [row["size"] for row in one.rows()] == [size for size in sizes if size <= 1 << 20]
        assert counts(summary)["dead"] == 2
        assert all("longer than 1 MiB" in row["reason"] for row in one.rows("dead.jsonl"))


def test_headers():
    kafka = rig.shared()
    topic = kafka.create_topic("source-headers")
    kafka.produce(topic, [{"value": b'{"n":1}', "headers": [("trace", b"old"), ("trace", b"t1"), ("x", b"\xff")]},
                          {"value": b'{"n":2}'}, {"value": b'{"n":3}', "headers": [("trace", None)]}])
    meta = ', meta: { headers: { trace: "trace", other: "x" } }'
    with job(of(kafka, topic, meta), schema="{ n: int, trace: text, other: bytes }") as one:
        one.finish()
        assert one.rows() == [{"n": 1, "trace": "t1", "other": "/w=="}, {"n": 2, "trace": None, "other": None},
                              {"n": 3, "trace": None, "other": None}]
    meta = ', meta: { all_headers: all, headers: { trace: "trace" } }'
    with job(of(kafka, topic, meta), schema="{ n: int, trace: text, all: list({ key: text, value: bytes }) }") as one:
        one.finish()
        old, new, other, null = ({"key": key, "value": value} for key, value in
                                 (("trace", "b2xk"), ("trace", "dDE="), ("x", "/w=="), ("trace", None)))
        assert [(row["trace"], row["all"]) for row in one.rows()] == [("t1", [old, new, other]), (None, []), (None, [null])]


def test_compressed():
    kafka = rig.shared()
    for kind in ("gzip", "snappy", "lz4", "zstd"):
        topic = kafka.create_topic("source-" + kind)
        kafka.produce(topic, rig.numbered(3000), compression_type=kind, linger_ms=50)
        with job(of(kafka, topic)) as one:
            one.finish()
            assert [row["n"] for row in one.rows()] == list(range(3000)), kind


# --- transactions -----------------------------------------------------------------------------------------------
def test_what_is_not_committed_is_not_read():
    kafka = rig.shared()
    topic = kafka.create_topic("source-committed")
    producer = kafka.producer(topic)
    for n, is_committed in enumerate((True, False, True)):
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(1500, first=n * 1500), producer)
        if is_committed:
            producer.commit_transaction(rig.PATIENCE_S)
        else:
            producer.abort_transaction(rig.PATIENCE_S)
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(100, first=9000), producer)  # stays open
    expected = list(range(1500)) + list(range(3000, 4500))
    with job(of(kafka, topic)) as one:
        one.finish()
        assert [row["n"] for row in one.rows()] == expected
    producer.commit_transaction(rig.PATIENCE_S)
    kafka.wait_stable(topic)
    with job(of(kafka, topic)) as one:
        one.finish()
        assert [row["n"] for row in one.rows()] == expected + list(range(9000, 9100))


# --- where it begins and goes on --------------------------------------------------------------------------------
def test_start():
    kafka = rig.shared()
    topic = kafka.create_topic("source-start", partitions=2)
    kafka.produce(topic, rig.numbered(100, partition=0))
    kafka.produce(topic, rig.numbered(50, first=100, partition=1))
    kafka.delete_records(topic, {0: 10})
    for start, expected in (("earliest", range(10, 150)), ("latest", []), ("offsets(20, 40)", [*range(20, 100),
                            *range(140, 150)]), ('time("2023-11-14T22:13:20.030Z")', range(30, 150)),
                            ('time("2023-11-14T22:13:20.0991Z")', range(100, 150)),
                            ('time("2100-01-01T00:00:00Z")', [])):
        with job(of(kafka, topic, f", start: {start}")) as one:
            one.finish()
            assert [row["n"] for row in one.rows()] == list(expected), (start, one.rows()[:3])
    with job(of(kafka, topic, ", start: offsets(5, 0)")) as one:
        one.refused("E0612", f"`{topic}/0` has no offset 5: it has 10 to 100")


def test_topics_by_list_and_pattern():
    kafka = rig.shared()
    names = [kafka.create_topic("source-many") for _ in range(2)]
    for n, name in enumerate(names):
        kafka.produce(name, rig.numbered(100, first=n * 100))
    listed = f'brokers: "{kafka.brokers}", until: latest, topic: ["{names[1]}", "{names[0]}"]'
    pattern = of(kafka, f"^{names[0][:-1]}[0-9]+$")
    for source in (listed, pattern):
        with job(source) as one:
            one.finish()
            assert sorted(row["n"] for row in one.rows()) == list(range(200))


def resumable(one):
    return f', checkpoint: {{ every: 20ms, dir: "{one.at("state")}" }}'


def killed(one):
    """Runs until some checkpoint stands, and is killed; a resume has something to do."""
    result = one.run(env={"LEAT_FAILPOINTS": "ckpt.published=kill@2"})
    assert result.returncode == -9, (result.returncode, result.stderr[-1000:])


def test_killed_and_resumed():
    kafka = rig.shared()
    topic = kafka.create_topic("source-resume", partitions=3)
    kafka.produce(topic, rig.numbered(30000))
    with job(of(kafka, topic, ", max_rate: 50000")) as one:
        one.write(of(kafka, topic, ", max_rate: 50000"), settings=resumable(one))
        killed(one)
        summary = one.finish()
        assert [row["n"] for row in one.rows()] == list(range(30000))
        assert summary["records_life"] < 30000, summary


def test_another_topic_of_that_name():
    kafka = rig.shared()
    topic = kafka.create_topic("source-again", partitions=1)
    kafka.produce(topic, rig.numbered(30000))
    with job(of(kafka, topic)) as one:
        one.write(of(kafka, topic, ", max_rate: 50000"), settings=resumable(one))
        killed(one)
        kafka.delete_topic(topic)
        one.refused("E0611", f"has no topic `{topic}`")
        kafka.create_topic(topic, exact=True)
        one.refused("E0611", f"`{topic}/0` is not the partition that this job has read", "--fresh")
        kafka.produce(topic, rig.numbered(30000, begin_ms=1_700_000_001_000))
        one.refused("E0611", "differs from the record read before")
        assert counts(one.finish("--fresh"))["in"] == 30000


def test_gone():
    kafka = rig.shared()
    topic = kafka.create_topic("source-gone", partitions=1)
    kafka.produce(topic, rig.numbered(30000))
    with job(of(kafka, topic)) as one:
        one.write(of(kafka, topic, ", max_rate: 50000"), settings=resumable(one))
        killed(one)
        kafka.delete_records(topic, {0: 29000})
        one.refused("E0612", f"the records of `{topic}/0` from offset", "the oldest is now 29000", "--fresh")


@contextlib.contextmanager
def newer_library(password):
    """An environment where leat finds the stock client's librdkafka: SCRAM of those before 2.6.1 is refused by brokers
    of Kafka 4."""
    with tempfile.TemporaryDirectory(prefix="leat-kafka-") as folder:
        library, = glob.glob(os.path.join(install.PACKAGES, "confluent_kafka.libs", "librdkafka*.so.1"))
        os.symlink(library, os.path.join(folder, "librdkafka.so.1"))
        yield {"LEAT_TEST_PASSWORD": password, "LD_LIBRARY_PATH": folder}


# --- what it refuses, and says ------------------------------------------------------------------------------------
def test_unknown_topic():
    kafka = rig.shared()
    topic = kafka.create_topic("source-known")
    with job(of(kafka, topic[:-1] + "x")) as one:
        one.refused("E0611", "has no topic", f"did you mean `{topic}`?")
    assert topic[:-1] + "x" not in kafka.topics()


def refused(brokers, security, *says, code="E0610", env=None):
    with job(f'brokers: "{brokers}", topic: "any", until: latest, patience: 5s, security: {{ {security} }}') as one:
        begin = time.monotonic()
        text = one.refused(code, *says, env=env)
        return time.monotonic() - begin, text


def login(kafka, user="leat", mechanism="scram_sha_256"):
    return (f'protocol: sasl_ssl, mechanism: {mechanism}, user: "{user}", password: env("LEAT_TEST_PASSWORD"), '
            f'ca: "{kafka.certificates}/ca.pem"')


def test_nobody_there():
    seconds, _ = refused("127.0.0.1:1", "protocol: plaintext", "no process listens at this port", "127.0.0.1:1")
    assert seconds < rig.stretched(20)
    refused("no-such-host.invalid:9092", "protocol: ssl", "no such host is known", "no-such-host.invalid:9092")


def test_secure_ways_in():
    kafka = rig.shared()
    topic = kafka.create_topic("source-secure")
    kafka.produce(topic, rig.numbered(10))
    with tempfile.TemporaryDirectory(prefix="leat-kafka-") as folder:
        token = os.path.join(folder, "token")
        with open(token, "w", encoding="utf-8") as file:
            file.write(rig.token("leat") + "\n")
        ca = f'ca: "{kafka.certificates}/ca.pem"'
        ways = [("SASL", login(kafka)), ("SASL", login(kafka, mechanism="scram_sha_512")),
                ("SASL", f'protocol: sasl_ssl, mechanism: oauthbearer, token_file: "{token}", {ca}'),
                ("MTLS", f'protocol: ssl, certificate: "{kafka.certificates}/client.pem", '
                         f'key: "{kafka.certificates}/client.key", {ca}')]
        for listener, security in ways:
            source = (f'brokers: "{kafka.address(listener)}", topic: "{topic}", until: latest, '
                      f"security: {{ {security} }}")
            with newer_library("leat-secret") as newer, job(source) as one:
                one.finish(env=newer if "user" in security else None)
                assert len(one.rows()) == 10, security


def test_doors_that_stay_shut():
    kafka = rig.shared()
    secret = {"LEAT_TEST_PASSWORD": "not-the-password"}
    ca = f'protocol: ssl, ca: "{kafka.certificates}/ca.pem"'
    with newer_library("not-the-password") as newer:
        seconds, text = refused(kafka.address("SASL"), login(kafka), "the user or the password is wrong", env=newer)
    assert seconds < rig.stretched(8) and "not-the-password" not in text, text
    refused(kafka.address("EXPIRED"), ca, "certificate has expired")
    refused(kafka.address("OTHERHOST"), ca, "is for another host name")
    refused(kafka.address("MTLS"), ca, "certificate")
    refused(kafka.address("MTLS"), "protocol: ssl", "not signed by a trusted authority")
    refused(kafka.address("SASL"), "protocol: plaintext", "does not speak this protocol")
    refused(kafka.brokers, ca, "does not speak TLS")
    refused(kafka.address("SASL"), login(kafka, mechanism="plain"), "does not offer this mechanism", env=secret)
    with tempfile.TemporaryDirectory(prefix="leat-kafka-") as folder:
        token = os.path.join(folder, "token")
        security = (f'protocol: sasl_ssl, mechanism: oauthbearer, token_file: "{token}", '
                    f'ca: "{kafka.certificates}/ca.pem"')
        refused(kafka.address("SASL"), security, token, "cannot be read")
        for content, why in (("none", "not a JSON web token"), (rig.token("leat", -5), "it has expired")):
            with open(token, "w", encoding="utf-8") as file:
                file.write(content)
            refused(kafka.address("SASL"), security, why)


def test_rights():
    kafka = rig.shared()
    topic = kafka.create_topic("source-rights")
    kafka.produce(topic, rig.numbered(10))
    source = (f'brokers: "{kafka.address("SASL")}", topic: "{topic}", until: latest, '
              f"security: {{ {login(kafka, 'visitor')} }}")
    with newer_library("visitor-secret") as env, job(source) as one:
        one.refused("E0611", "has no topic", "none that this user may see", env=env)
        kafka.allow("visitor", topic, "DESCRIBE")
        one.refused("E0610", "not authorized", env=env)
        kafka.allow("visitor", topic, "READ")
        one.finish(env=env)
        assert len(one.rows()) == 10


def test_secrets_are_not_shown():
    kafka = rig.shared()
    topic = kafka.create_topic("source-secret")
    kafka.produce(topic, rig.numbered(2000))
    source = (f'brokers: "{kafka.address("SASL")}", topic: "{topic}", until: latest, '
              f"security: {{ {login(kafka)} }}")
    with newer_library("leat-secret") as newer, job(source) as one:
        env = {**os.environ, **newer}
        one.write(source, settings=resumable(one))
        for command in (["check"], ["explain"], ["explain", "--dot"], ["fmt"], ["run", "--json"]):
            result = subprocess.run([LEAT, command[0], one.path, *command[1:]], capture_output=True, env=env,
                                    timeout=rig.PATIENCE_S, check=False)
            assert result.returncode == 0, result.stderr
            assert b"leat-secret" not in result.stdout + result.stderr, command
        found = 0
        for place, _, names in os.walk(one.at("state")):
            for name in names:
                with open(os.path.join(place, name), "rb") as file:
                    assert b"leat-secret" not in file.read(), name
                found += 1
        assert found > 0
        one.write(source.replace('env("LEAT_TEST_PASSWORD")', '"leat-secret"'))
        result = one.run()
        assert result.returncode != 0 and "E0408" in result.stdout, result


# --- speed ------------------------------------------------------------------------------------------------------
def test_a_small_queue_is_filled_again():
    """Where a queue was full its broker's thread sleeps, for a second each time: it is woken."""
    kafka = rig.shared()
    topic = kafka.create_topic("source-small", partitions=2)
    kafka.produce(topic, ({"value": b"x" * 100} for _ in range(400000)),
                  kafka.producer(linger_ms=20, queue_buffering_max_messages=1000000))
    took = {}
    for queue in ("64MiB", "2MiB"):
        with job(of(kafka, topic, f", format: raw, queue: {queue}"), schema="{ value: text }",
                 steps="| where length(value) < 0") as one:
            begin = time.monotonic()
            assert counts(one.finish())["in"] == 400000
            took[queue] = time.monotonic() - begin
    assert took["2MiB"] < 2 * took["64MiB"] + 2, took


# --- memory -------------------------------------------------------------------------------------------------------
def peak_bytes(command):
    """Peak memory of a child."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        return usage.ru_maxrss * 1024


def test_memory_is_bounded():
    kafka = rig.shared()
    small, large = kafka.create_topic("source-memory", partitions=4), kafka.create_topic("source-memory", partitions=4)
    producer = kafka.producer(linger_ms=20, queue_buffering_max_messages=1000000)
    kafka.produce(small, [{"value": b"x" * 100} for _ in range(100)], producer)
    kafka.produce(large, ({"value": b"x" * 100} for _ in range(600000)), producer)
    peaks = {}
    for topic in (small, large):
        with job(of(kafka, topic, ", format: raw, queue: 8MiB, max_rate: 400000"), schema="{ value: text }",
                 steps="| where length(value) < 0") as one:
            peaks[topic] = peak_bytes([LEAT, "run", one.path])
    # What is fetched ahead, and as much again for what one fetch brings, buffers that are in use by halves, and raw
    # batches; without a limit these records would take 300 MB.
    assert peaks[large] - peaks[small] < 48 << 20, peaks


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=2))
