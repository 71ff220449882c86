#!/usr/bin/env python3
"""`leat produce` against the real broker: recordings, files and dead letters to a topic, each record once, whatever
ends the process in between.

    tests/kafka/test_produce.py PATH_OF_LEAT
"""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
from test_record import Folder, odd_records, result_of  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
POINTS = ["kafka.begin", "kafka.produce", "kafka.progress", "kafka.commit.before", "kafka.commit.after"]


class Place(Folder):
    def write(self, name, text):
        with open(self.at(name), "w" if isinstance(text, str) else "wb") as file:
            file.write(text)
        return self.at(name)

    def start(self, *arguments, failpoints="", command="produce"):
        return self.command(command, *arguments, failpoints=failpoints)

    def run(self, *arguments, **more):
        return result_of(self.start(*arguments, **more))

    def finish(self, *arguments, **more):
        status, summary, said = self.run(*arguments, **more)
        assert status == 0 and summary["finished"], (status, summary, said)
        return summary

    def refused(self, code, says, *arguments):
        status, _, said = self.run(*arguments)
        assert status == 1 and code in said and says in said, (status, said)

    def recording(self, topic, name="rec", *arguments):
        self.finish(topic, "--to", self.at(name), "--until", "latest", *arguments, command="record")
        return self.at(name)


def contents(records):
    """What a record is, wherever it lies."""
    return [(r.partition, r.timestamp, r.key, r.value, r.headers) for r in records]


def test_a_recording_comes_back():
    kafka = rig.shared()
    topic = kafka.create_topic("produce-odd", partitions=3)
    kafka.produce(topic, odd_records(3000))
    sent = kafka.consume(topic)
    with Place(kafka) as place:
        for form in ("jsonl", "msgpack"):
            rec = place.recording(topic, form, "--format", form, "--span-records", "400")
            to = kafka.create_topic("produce-to", partitions=3)
            summary = place.finish(to, rec, "--keep-times")
            assert summary["records"] == 3000, summary
            assert contents(kafka.consume(to)) == contents(sent), form
            again = place.finish(to, rec, "--keep-times")
            assert again["records"] == 0 and again["records_before"] == 3000, again
        assert contents(kafka.consume(to)) == contents(sent)
        place.finish(to, rec, "--name", "more")
        assert len(kafka.consume(to)) == 6000
        # Partitions that are not there; by key they need not be.
        one = kafka.create_topic("produce-one")
        place.refused("E0611", "--repartition", one, rec)
        place.finish(one, rec, "--repartition")
        assert len(kafka.consume(one)) == 3000
        # A recording that has grown is another.
        kafka.produce(topic, rig.numbered(10))
        place.recording(topic, form)
        place.refused("E0604", "have changed", to, rec)
        place.refused("E0611", "--create", "produce-nowhere", rec)
        place.finish(f"produce-made-{os.getpid()}", rec, "--create", "4")
        assert len(kafka.consume(f"produce-made-{os.getpid()}")) == 3010


def test_plain_files():
    kafka = rig.shared()
    with Place(kafka) as place:
        jsonl = place.write("a.jsonl", '{"k":"a","n":1}\n{"n":2,"k":17}\n\n{"n":3}\r\n{"k":null,"n":"\u00e9"}\n{"k":{"b":1}}')
        csv = place.write("a.csv", 'n,k\n1,a\n2,"x,""y"""\n3,\n')
        pack = place.write("a.msgpack", b"\x82\xa1k\xa1a\xa1n\x01\x82\xa1k\x11\xa1n\x02\x81\xa1n\x03")
        cases = [(jsonl, [(b"a", b'{"k":"a","n":1}'), (b"17", b'{"n":2,"k":17}'), (None, b'{"n":3}'),
                          (None, '{"k":null,"n":"\u00e9"}'.encode()), (b'{"b":1}', b'{"k":{"b":1}}')]),
                 (csv, [(b"a", b"1,a"), (b'x,"y"', b'2,"x,""y"""'), (None, b"3,")]),
                 (pack, [(b"a", b"\x82\xa1k\xa1a\xa1n\x01"), (b"17", b"\x82\xa1k\x11\xa1n\x02"), (None, b"\x81\xa1n\x03")])]
        for path, expected in cases:
            topic = kafka.create_topic("produce-plain")
            place.finish(topic, path, "--key", "k")
            assert [(r.key, r.value) for r in kafka.consume(topic)] == expected, path
        # A file that grew: what is new; one that changed: refused.
        with open(jsonl, "a", encoding="utf-8") as file:
            file.write('\n{"n":6}\n')
        topic = kafka.create_topic("produce-grown")
        place.finish(topic, jsonl)
        with open(jsonl, "a", encoding="utf-8") as file:
            file.write('{"n":7}\n')
        assert place.finish(topic, jsonl)["records"] == 1
        place.write("a.jsonl", open(jsonl, encoding="utf-8").read().replace('"n":7', '"n":8'))
        place.refused("E0604", "differ", topic, jsonl)
        # Java's partitioner: as the stock client places them.
        topic, stock = kafka.create_topic("produce-keys", partitions=5), kafka.create_topic("produce-stock", partitions=5)
        keys = [f"user-{n}" for n in range(200)]
        place.finish(topic, place.write("k.jsonl", "".join(json.dumps({"k": k}) + "\n" for k in keys)), "--key", "k")
        kafka.produce(stock, ({"key": k.encode(), "value": b"x"} for k in keys))
        assert {r.key: r.partition for r in kafka.consume(topic)} == {r.key: r.partition for r in kafka.consume(stock)}
        place.refused("E0603", "no key `k`", topic, place.write("bad.jsonl", '{"k":1}\n{k}\n'), "--key", "k")
        place.refused("E1001", "--time", topic, jsonl, "--speed", "2x")
        place.refused("E0602", "no file", topic, place.at("nothing.jsonl"))


def test_times_of_files():
    kafka = rig.shared()
    begin = 1_700_000_000_000
    cases = [("ts", "a.jsonl", "".join(f'{{"ts":{begin + n}}}\n' for n in range(3))),
             ("ts:s", "b.csv", "n,ts\n" + "".join(f"{n},{begin / 1000 + n / 1000:.3f}\n" for n in range(3))),
             ("ts:us", "c.jsonl", "".join(f'{{"ts":{(begin + n) * 1000 + 999}}}\n' for n in range(3))),
             ("at", "d.jsonl", "".join(f'{{"at":"2023-11-14T22:13:20.00{n}Z"}}\n' for n in range(3)))]
    with Place(kafka) as place:
        for column, name, text in cases:
            topic = kafka.create_topic("produce-times")
            place.finish(topic, place.write(name, text), "--time", column, "--keep-times")
            found = [r.timestamp for r in kafka.consume(topic)]
            assert found == [begin, begin + 1, begin + 2], (name, found)
        # Two seconds of it, four times as fast; the records' times are those of sending.
        path = place.write("e.jsonl", "".join(f'{{"ts":{begin + 500 * n}}}\n' for n in range(5)))
        topic, begun = kafka.create_topic("produce-speed"), time.time()
        place.finish(topic, path, "--time", "ts", "--speed", "4x")
        times = [r.timestamp / 1000 for r in kafka.consume(topic)]
        assert 0.4 < times[-1] - times[0] < 5 and times[0] > begun - 1, times
        place.refused("E0603", "`soon` for the time `ts`", topic, place.write("f.jsonl", '{"ts":"soon"}\n'),
                      "--time", "ts", "--keep-times")


def test_killed_at_every_step_each_is_there_once():
    kafka = rig.shared()
    with Place(kafka) as place:
        lines = "".join(json.dumps({"n": n, "key": f"k{n % 10}", "note": "x" * (n % 900)}) + "\n" for n in range(20000))
        path = place.write("in.jsonl", lines)
        topic = kafka.create_topic("produce-killed", partitions=3)
        for point in [f"{point}=kill@{at}" for point in POINTS for at in (2, 1)] + ["kafka.init=kill", "kafka.read=kill"]:
            status, _, said = place.run(topic, path, "--key", "key", "--rate", "10000/s", failpoints=point)
            assert status == -signal.SIGKILL, (point, status, said)
        place.finish(topic, path, "--key", "key")
        rig.check_once(kafka.consume(topic), range(20000))
        # At a moment that nobody chose.
        topic = kafka.create_topic("produce-killed", partitions=3)
        process = place.start(topic, path, "--key", "key", "--rate", "1000/s")  # 20 s: looking may take some of them
        rig.wait_for(lambda: len(kafka.consume(topic, beside_open=True)) > 500, "some of them")
        process.kill()
        process.wait()
        rest = place.finish(topic, path, "--key", "key")
        assert rest["records"] > 0 and rest["records_before"] > 500, rest
        rig.check_once(kafka.consume(topic), range(20000))


def test_ctrl_c_and_pace():
    kafka = rig.shared()
    with Place(kafka) as place:
        path = place.write("in.jsonl", "".join(json.dumps({"n": n}) + "\n" for n in range(1000)))
        topic = kafka.create_topic("produce-pace")
        process = place.start(topic, path, "--rate", "500/s")
        rig.wait_for(lambda: len(kafka.consume(topic, beside_open=True)) > 50, "some of them")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=rig.PATIENCE_S)
        summary = json.loads(out)
        assert process.returncode == 0 and summary["stopped"] and not summary["finished"], (summary, err)
        assert 50 < summary["records"] < 900, summary
        assert len(kafka.consume(topic)) == summary["records"]
        rest = place.finish(topic, path)
        assert rest["records"] + summary["records"] == 1000, rest
        rig.check_once(kafka.consume(topic), range(1000))
        # numbered() has a millisecond between records: 1,000 of them take 1 s, at 5x 0.2 s.
        timed = kafka.create_topic("produce-timed", partitions=2)
        kafka.produce(timed, rig.numbered(1000))
        rec = place.recording(timed)
        for speed, least in (("1x", 0.9), ("5x", 0.15)):
            to = kafka.create_topic("produce-speed", partitions=2)
            begin = time.monotonic()
            place.finish(to, rec, "--speed", speed)
            took = time.monotonic() - begin
            assert took > least, (speed, took)
            rig.check_once(kafka.consume(to), range(1000))


def test_a_broker_that_goes_and_comes_back():
    with rig.own() as kafka, Place(kafka) as place:
        topic = kafka.create_topic("produce-broker", partitions=2)
        path = place.write("in.jsonl", "".join(json.dumps({"n": n, "key": f"k{n % 10}"}) + "\n" for n in range(6000)))
        recorder = place.start(topic, "--to", place.at("rec"), command="record")
        producer = place.start(topic, path, "--key", "key", "--rate", "2000/s")
        rig.wait_for(lambda: len(kafka.consume(topic, beside_open=True)) > 1000, "some of them")
        kafka.kill(1)
        time.sleep(1)
        kafka.start(1)
        out, err = producer.communicate(timeout=rig.PATIENCE_S)
        assert producer.returncode == 0 and json.loads(out)["records"] == 6000, (out, err)
        rig.check_once(kafka.consume(topic), range(6000))
        recorder.send_signal(signal.SIGINT)
        out, err = recorder.communicate(timeout=rig.PATIENCE_S)
        assert recorder.returncode == 0, (out, err)
        place.recording(topic)  # what is left
        to = kafka.create_topic("produce-again", partitions=2)
        place.finish(to, place.at("rec"))
        assert [(r.partition, r.key, r.value) for r in kafka.consume(to)] == [
            (r.partition, r.key, r.value) for r in kafka.consume(topic)]


class Dead:
    """A job that calls some records dead, and its letters."""

    def __init__(self, place, kafka, topic, letters=None):
        self.place = place
        sink = (f'kafka from dead_letters {{ brokers: "{kafka.brokers}", topic: "{letters}" }}' if letters else
                f'file from dead_letters {{ path: "{place.at("dead.jsonl")}", overwrite: true }}')
        place.write("dead.leat", f"""job dead {{ workers: 2, checkpoint: {{ dir: "{place.at('state')}" }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: {json.dumps(topic)}, until: latest, schema: {{ n: int! }} }}
stream rows = s | with product = n * 4611686018427387904
sink out = null from rows
sink dead = {sink}
""")

    def run(self):
        result = subprocess.run([LEAT, "run", self.place.at("dead.leat"), "--fresh", "--json"], capture_output=True, text=True,
                                timeout=rig.PATIENCE_S, check=False)
        assert result.returncode == 0, result.stderr[-2000:]


BAD = [{"key": b"k1", "value": b'{"n":', "headers": [("trace", b"1"), ("trace", None), ("bin", b"\xff")]},
       {"key": None, "value": b"\xff\xfe\n"}, {"key": b"\xfe", "value": b""}, {"key": b"gone", "value": None},
       {"key": b"over", "value": b'{ "n" : 7 }', "headers": [("h", b"v")]},  # overflows, in a later step
       {"key": b"long", "value": b'{"n":1,"x":"' + b"y" * (1 << 20) + b'"}'}]


def bad_records(times):
    for i in range(times):
        for bad in BAD:
            yield {**bad, "partition": i % 2}
        yield {"key": b"good", "value": b'{"n":1}', "partition": i % 2}


def whole(records):
    return sorted((r.partition, repr(r.key), repr(r.value), repr(r.headers)) for r in records)


def test_dead_letters_come_back():
    kafka = rig.shared()
    properties = {"message.max.bytes": 4000000}
    names = [kafka.create_topic("dead-a", partitions=2, **{"max.message.bytes": 4000000}),
             kafka.create_topic("dead-b", partitions=2, **{"max.message.bytes": 4000000})]
    for name in names:
        kafka.produce(name, bad_records(2), **properties)
    before = {name: kafka.consume(name) for name in names}
    with Place(kafka) as place:
        Dead(place, kafka, names).run()
        letters = place.at("dead.jsonl")
        rows = [json.loads(line) for line in open(letters, encoding="utf-8")]
        assert len(rows) == 2 * 2 * len(BAD), len(rows)
        expected = {name: whole([r for r in before[name] if r.key != b"good"]) for name in names}
        # Elsewhere: with one topic for all of them.
        to = kafka.create_topic("dead-to", partitions=2, **{"max.message.bytes": 4000000})
        assert place.finish("--dead-letters", letters, "--topic", to)["records"] == len(rows)
        assert sorted(x[1:] for x in whole(kafka.consume(to))) == sorted(x[1:] for n in names for x in expected[n])
        # Killed in between, and run again: each once, where it came from.
        for point in ("kafka.progress", "kafka.commit.before", "kafka.commit.after"):
            status, _, said = place.run("--dead-letters", letters, failpoints=f"{point}=kill@2")
            assert status == -signal.SIGKILL, (point, status, said)
        place.finish("--dead-letters", letters)
        assert place.finish("--dead-letters", letters)["records"] == 0
        for name in names:
            new = kafka.consume(name)
            old = {(r.partition, r.offset) for r in before[name]}
            assert whole([r for r in new if (r.partition, r.offset) not in old]) == expected[name], name
        place.refused("E0603", "no `reason`", "--dead-letters", place.write("x.jsonl", '{"n":1}\n'))
        # What is nowhere any more.
        kafka.delete_records(names[0], {p: before_end(before[names[0]], p) for p in (0, 1)})
        place.refused("E0612", "--skip-lost", "--dead-letters", letters, "--name", "later")
        lost = place.finish("--dead-letters", letters, "--name", "later", "--skip-lost")["lost"]
        assert lost == 2 * 3, lost  # tombstone, overflow, too long: of each partition


def before_end(records, partition):
    return max(r.offset for r in records if r.partition == partition) + 1


def test_dead_letters_of_a_topic_come_back():
    kafka = rig.shared()
    name = kafka.create_topic("dead-c", partitions=2, **{"max.message.bytes": 4000000})
    letters = kafka.create_topic("dead-letters", partitions=2, **{"max.message.bytes": 4000000})
    expected = []
    with Place(kafka) as place:
        for times in (1, 2):
            kafka.produce(name, bad_records(times), **{"message.max.bytes": 4000000})
            old = {(r.partition, r.offset) for r in kafka.consume(name)}
            start = len(kafka.consume(letters))
            Dead(place, kafka, [name], letters).run()
            count = len(kafka.consume(letters)) - start
            status, _, said = place.run("--dead-letters", "--from-topic", letters, failpoints="kafka.commit.after=kill@2")
            assert status == -signal.SIGKILL, (status, said)
            place.finish("--dead-letters", "--from-topic", letters)
            new = [r for r in kafka.consume(name) if (r.partition, r.offset) not in old]
            assert len(new) == count, (len(new), count)
            assert place.finish("--dead-letters", "--from-topic", letters)["records"] == 0
            expected.append(count)
        assert expected[0] == len(BAD), expected


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=3))
