#!/usr/bin/env python3
"""`leat record` against the real broker, and `--replay` of what it wrote: as live, byte for byte; killed at every step,
stopped, started again; topics that are not what they were.

    tests/kafka/test_record.py PATH_OF_LEAT
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
ODD = [None, b"", b"null", b" {\"n\":1}", b'{ "n" :\t1e0, "key": "caf\xc3\xa9" }', b'{"n":1}\n', b'{"n":1', b"\xff\xfe", b"\0",
       b'{"n":1}{"n":2}', b"x" * 3000]
POINTS = ["record.write", "record.fsync", "record.rename", "record.manifest"]


class Folder:
    """A folder, and commands beside a broker."""

    def __init__(self, kafka):
        self.kafka, self.folder = kafka, tempfile.mkdtemp(prefix="leat-record-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, name):
        return os.path.join(self.folder, name)

    def command(self, *arguments, failpoints=""):
        return subprocess.Popen([LEAT, *arguments, "--brokers", self.kafka.brokers, "--json"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, "LEAT_FAILPOINTS": failpoints})


def result_of(process):
    """Exit status, summary (None: none), what it said."""
    out, err = process.communicate(timeout=rig.PATIENCE_S)
    lines = out.splitlines()
    return process.returncode, json.loads(lines[0]) if lines and lines[0].startswith('{"f') else None, err + out


class Place(Folder):
    """With recordings, and a job over the topic."""

    def __init__(self, kafka, topic, schema="n: int, key: text, ts: time(ms)", meta="", steps=""):
        super().__init__(kafka)
        self.topic = topic
        self.job = self.at("job.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(f"""job rec {{ workers: 2 }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", until: latest, schema: {{ {schema} }} {meta} }}
stream rows = s {steps}
sink out = file from rows {{ path: "{self.at('live.jsonl')}", overwrite: true }}
sink dead = file from dead_letters {{ path: "{self.at('live-dead.jsonl')}", overwrite: true }}
""")

    def start(self, *arguments, to="rec", topics=None, failpoints=""):
        return self.command("record", *(topics or [self.topic]), "--to", self.at(to), *arguments, failpoints=failpoints)

    def run(self, *arguments, until="latest", **more):
        return result_of(self.start(*arguments, *(["--until", until] if until else []), **more))

    def record(self, *arguments, **more):
        status, summary, said = self.run(*arguments, **more)
        assert status == 0 and summary["finished"], (status, summary, said)
        return summary

    def refused(self, code, *says, **more):
        status, _, said = self.run(**more)
        assert status == 1 and code in said, (status, said)
        for part in says:
            assert part in said, (part, said)

    def leat(self, *arguments):
        result = subprocess.run([LEAT, "run", self.job, "--json", *arguments], capture_output=True, text=True, timeout=rig.PATIENCE_S,
                                check=False)
        assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-1000:]
        return json.loads(result.stdout)

    def live(self):
        self.leat()
        return [open(self.at(name), "rb").read() for name in ("live.jsonl", "live-dead.jsonl")]

    def replay(self, rec="rec", workers="2"):
        self.leat("--workers", workers, "--replay", f"s={self.at(rec)}", "--sink", f"out={self.at('r.jsonl')}", "--sink",
                  f"dead={self.at('rd.jsonl')}")
        found = [open(self.at(name), "rb").read() for name in ("r.jsonl", "rd.jsonl")]
        os.remove(self.at("r.jsonl"))
        os.remove(self.at("rd.jsonl"))
        return found

    def manifest(self, rec="rec"):
        with open(os.path.join(self.at(rec), "manifest.json"), encoding="utf-8") as file:
            return json.load(file)


def odd_records(count):
    """Among ordinary ones: tombstones, what is not UTF-8, headers."""
    for n, record in enumerate(rig.numbered(count)):
        if n % 5 == 0:
            record["value"] = ODD[n // 5 % len(ODD)]
        if n % 7 == 0:
            record["key"] = [None, b"", b"\xfe"][n // 7 % 3]
        if n % 3 == 0:
            record["headers"] = [("trace", b"t%d" % n), ("trace", b"last \xc3\xa9"), ("none", None), ("", b"\xff")][:n % 5]
        yield record


def test_a_replay_is_what_live_was():
    kafka = rig.shared()
    topic = kafka.create_topic("record-odd", partitions=3)
    meta = ', meta: { key: k, partition: p, offset: o, timestamp: at, topic: t, headers: { trace: "trace" } }'
    schema = "n: int, key: text, ts: time(ms), k: bytes, p: int, o: int, at: time, t: text, trace: text"
    producer = kafka.producer("record-odd")
    records = list(odd_records(3000))
    for i in range(0, 3000, 1000):  # markers between; a transaction that is aborted
        producer.begin_transaction()
        kafka.produce(topic, records[i:i + 1000], producer)
        producer.commit_transaction(30)
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(10, first=10**6), producer)
        producer.abort_transaction(30)
    kafka.wait_stable(topic)
    with Place(kafka, topic, schema, meta, "| with twice = n * 3080000000000000") as place:
        expected = place.live()
        assert expected[0].count(b"\n") > 2000 and expected[1].count(b"\n") > 200
        for form in ("jsonl", "msgpack"):
            summary = place.record("--format", form, "--span-records", "250", to=form)
            assert summary["records"] == 3000 and 12 <= summary["files"] <= 15 and summary["partitions"] == 3, summary
            for workers in ("1", "3"):
                assert place.replay(form, workers) == expected, (form, workers)
        # Of each other's rest, in one.
        assert place.replay("[jm]*") == expected
        # Dead letters say where from, and what of.
        dead = [json.loads(line) for line in expected[1].splitlines()]
        sent = {(r.partition, r.offset): r for r in kafka.consume(topic)}
        for row in dead:
            record = sent[row["partition"], row["offset"]]
            assert row["job"] == "rec" and row["topic"] == topic and row["place"] == f"{topic}/{row['partition']}", row
            assert row["time"] is not None, row
            if row["step"] == "s" and row["raw"] is not None:
                key = None if record.key is None else record.key.decode("utf-8", "replace").replace("\ufffd", "?")
                assert row["key"] == key, (row, record)
                headers = [] if row["headers"] is None else json.loads(row["headers"])
                assert [h[0] for h in headers] == [h[0] for h in record.headers], (row, record)


def test_plain_files_take_its_place_as_before():
    kafka = rig.shared()
    with Place(kafka, "record-nowhere") as place:
        with open(place.at("plain.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"n":1}\n{"n":2}\n')
        place.leat("--replay", f"s={place.at('plain.jsonl')}", "--sink", f"out={place.at('r.jsonl')}")
        assert [json.loads(line)["n"] for line in open(place.at("r.jsonl"), encoding="utf-8")] == [1, 2]


def test_killed_at_every_step_it_goes_on():
    kafka = rig.shared()
    topic = kafka.create_topic("record-killed", partitions=2)
    kafka.produce(topic, rig.numbered(2000))
    with Place(kafka, topic) as place:
        expected = place.live()
        for point in POINTS:
            lives = 0
            for at in (1, 2, 7):
                status, _, said = place.run("--span-records", "150", to=point, failpoints=f"{point}=kill@{at}")
                lives += status == -signal.SIGKILL
                assert status in (0, -signal.SIGKILL), (point, status, said)
            assert lives >= 2, point
            place.record("--span-records", "150", to=point)
            spans = [s for p in place.manifest(point)["partitions"] for s in p["spans"]]
            assert 14 <= len(spans) <= 16 + lives * 2 and all(s["records"] <= 150 for s in spans), (point, spans)
            assert sum(p["records"] for p in place.manifest(point)["partitions"]) == 2000, point
            assert not glob.glob(place.at(f"{point}/*/*.part")), point
            assert place.replay(point) == expected, point
        # At a moment that nobody chose.
        process = place.start("--span-records", "150", to="moment")
        rig.wait_for(lambda: glob.glob(place.at("moment/*/*.zst*")), "a span")
        process.kill()
        process.communicate()
        place.record(to="moment")
        assert place.replay("moment") == expected
        # The disk is full, then it is not.
        for point in POINTS[:2]:
            status, _, said = place.run("--span-records", "150", to="full", failpoints=f"{point}=error:ENOSPC@3")
            assert status == 1 and "E0608" in said and "continues behind them" in said, said
        place.record(to="full")
        assert place.replay("full") == expected


def test_stopped_and_started_again():
    kafka = rig.shared()
    name = f"record-live-{os.getpid()}-"
    topic = kafka.create_topic(name + "a", partitions=1, exact=True)
    kafka.produce(topic, rig.numbered(500))
    with Place(kafka, topic) as place:
        process = place.start("--span-time", "200ms", topics=["^" + name])
        rig.wait_for(lambda: glob.glob(place.at("rec/*/*.zst")), "a span")
        status, _, said = place.run()
        assert status == 1 and "another process" in said, said
        kafka.add_partitions(topic, 2)  # and a topic that comes later
        other = kafka.create_topic(name + "b", partitions=1, exact=True)
        kafka.produce(other, rig.numbered(70))
        kafka.produce(topic, rig.numbered(30, first=500, partition=1))
        rig.wait_for(lambda: len(place.manifest()["partitions"]) == 3 and
                     sum(p["records"] for p in place.manifest()["partitions"]) == 600, "all of it", 20)
        kafka.produce(topic, rig.numbered(20, first=530))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=rig.PATIENCE_S)
        summary = json.loads(out)
        assert process.returncode == 0 and summary["stopped"], (summary, err)
        kafka.produce(topic, rig.numbered(50, first=550))
        more = place.record()
        assert summary["records"] + more["records"] == 670 and more["records_before"] == summary["records"], (summary, more)
        assert place.record()["records"] == 0
        assert place.replay() == place.live()
        before = os.stat(place.at("rec/manifest.json")).st_ino
        process = place.start(topics=["^" + name])
        rig.wait_for(lambda: os.stat(place.at("rec/manifest.json")).st_ino != before, "that it has begun")
        kafka.delete_topic(other)
        out, err = process.communicate(timeout=rig.PATIENCE_S)
        assert process.returncode == 1 and "E0611" in err and f"`{other}` is gone: it was deleted while" in err, (out, err)


def test_from_and_until():
    kafka = rig.shared()
    topic = kafka.create_topic("record-from", partitions=2)
    for p in (0, 1):
        kafka.produce(topic, rig.numbered(100, partition=p))
    cases = {("--from", "latest"): 0, ("--from", "90,40"): 70, ("--from", "2023-11-14T22:13:20.070Z"): 60}
    with Place(kafka, topic) as place:
        for i, (arguments, records) in enumerate(cases.items()):
            assert place.record(*arguments, to=f"rec{i}")["records"] == records, arguments
        assert place.record(until="2023-11-14T22:13:20.025Z")["records"] == 50
        assert place.record()["records"] == 150
        assert place.replay() == place.live()
        # Without what one of its offsets needs it says so.
        place.refused("E0612", "no offset 101", to="rec9", until="latest", topics=[topic, "--from", "101,0"])


def test_security_of_a_jobs_source():
    kafka = rig.shared()
    topic = kafka.create_topic("record-secure")
    kafka.produce(topic, rig.numbered(10))
    folder = kafka.certificates
    with Place(kafka, topic) as place:
        with open(place.job, "w", encoding="utf-8") as file:
            file.write(f"""job secure {{ workers: 1 }}
source s = kafka {{ brokers: "{kafka.address('MTLS')}", topic: "{topic}", schema: {{ n: int }},
  security: {{ protocol: ssl, ca: "{folder}/ca.pem", certificate: "{folder}/client.pem",
              key: env("RECORD_KEY", "{folder}/client.key") }} }}
sink out = null from s
""")

        def run(source, **env):
            return subprocess.run([LEAT, "record", "--to", place.at("rec"), "--until", "latest", "--source", source],
                                  capture_output=True, text=True, timeout=rig.PATIENCE_S, check=False, env={**os.environ, **env})

        result = run(f"{place.job}:s", RECORD_KEY="nowhere")
        assert result.returncode == 1 and "`nowhere` of `security` cannot be read" in result.stderr, result.stderr
        result = run(f"{place.job}:t")
        assert result.returncode == 3 and "no source or sink `t`" in result.stderr, result.stderr
        result = run(f"{place.job}:out")
        assert result.returncode == 3 and "not of kind kafka" in result.stderr, result.stderr
        result = run(f"{place.job}:s")
        assert result.returncode == 0 and "10 records" in result.stdout, (result.stdout, result.stderr)


def test_an_order_log_beside_it_is_replayed():
    kafka = rig.shared()
    topic = kafka.create_topic("record-order", partitions=3)
    kafka.produce(topic, rig.numbered(3000))
    with Place(kafka, topic) as place:
        place.leat("--record-order", place.at("rec/order/"))
        expected = open(place.at("live.jsonl"), "rb").read()
        place.record()
        assert place.manifest()["order_log"] == "order", place.manifest().keys()
        place.record()
        assert place.manifest()["order_log"] == "order"
        result = subprocess.run([LEAT, "run", place.job, "--replay", f"s={place.at('rec')}", "--sink",
                                 f"out={place.at('r.jsonl')}"], capture_output=True, text=True, check=False)
        assert result.returncode == 0 and "replaying the order log" in result.stderr, result.stderr
        assert open(place.at("r.jsonl"), "rb").read() == expected


def test_topics_that_are_not_what_they_were():
    kafka = rig.shared()
    topic = kafka.create_topic("record-gone")
    kafka.produce(topic, rig.numbered(100))
    with Place(kafka, topic) as place:
        place.refused("E0611", "did you mean", topics=[topic + "x"])
        place.record()
        kafka.produce(topic, rig.numbered(100, first=100))
        kafka.delete_records(topic, {0: 150})
        place.refused("E0612", "from offset 100 to 149, which are not recorded, are gone", "holes")
        kafka.delete_topic(topic)
        kafka.create_topic(topic, exact=True)
        kafka.produce(topic, rig.numbered(50, first=1))
        place.refused("E0611", "ends at offset 50")
        kafka.produce(topic, rig.numbered(150, first=1))
        place.refused("E0611", "the topic's last recorded record differs from the recording")
        with open(place.at("rec2"), "w", encoding="utf-8"):
            pass
        place.refused("E0605", to="rec2")
        os.mkdir(place.at("rec3"))
        with open(place.at("rec3/mine"), "w", encoding="utf-8"):
            pass
        place.refused("E0606", to="rec3")
        # A recording of another topic, or for another kind of source, is told apart.
        text = open(place.job, encoding="utf-8").read()
        for source, says in ((text.replace(f'topic: "{topic}"', 'topic: "other"'), "has no topic `other`"),
                             ('source s = file { path: "%s", schema: { n: int } }\nsink out = null from s\n' % place.at("rec"),
                              "is a recording of Kafka's topics")):
            with open(place.job, "w", encoding="utf-8") as file:
                file.write(source)
            replay = ["--replay", f"s={place.at('rec')}"] if "kafka" in source else []
            result = subprocess.run([LEAT, "run", place.job, *replay], capture_output=True, text=True, check=False)
            assert result.returncode == 1 and "E0602" in result.stderr and says in result.stderr, result.stderr


def test_a_replay_that_was_stopped_goes_on():
    kafka = rig.shared()
    topic = kafka.create_topic("record-resume", partitions=2)
    kafka.produce(topic, rig.numbered(5000))
    with Place(kafka, topic) as place:
        place.record("--span-records", "700")
        text = open(place.job, encoding="utf-8").read()
        with open(place.job, "w", encoding="utf-8") as file:
            file.write(text.replace("workers: 2", 'workers: 2, checkpoint: { dir: "%s" }' % place.at("state")))
        replay = ["--replay", f"s={place.at('rec')}", "--sink", f"out={place.at('r.jsonl')}"]
        place.leat(*replay, "--until", "2023-11-14T22:13:22Z")
        assert not os.path.exists(place.at("r.jsonl"))
        summary = place.leat(*replay, "--resume")
        assert summary["finished"], summary
        assert [json.loads(line)["n"] for line in open(place.at("r.jsonl"), encoding="utf-8")] == list(range(5000))


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
