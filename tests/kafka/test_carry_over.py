#!/usr/bin/env python3
"""A new run (`--from`) of a sink `kafka` from the checkpoint of a leat whose sinks had no shards: its outbox goes out
once, under the old run's id, and the progress topic of one partition gets one for each shard. Prints TAP.

`carry_over/` has what that leat left: `sp/`, a savepoint of a run that was killed before it had sent all rows of its
last checkpoint, and `progress.json`: how many rows were out, and the records of its progress topic. Made by

    LEAT=OLD tests/kafka/broker.py during python3 tests/kafka/test_carry_over.py --make
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import oracle
import rig

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "carry_over")
TOPIC, PROGRESS = "carry-over", "carry-over.leat-out"
ROWS, STEP = 1_000_000, 4000  # of the file; each STEP-th goes to the topic, so that several checkpoints are small


class Job(oracle.Lives):
    """A job whose file, topic and names are those of the fixture."""

    def __init__(self, kafka):
        super().__init__()
        self.kafka = kafka
        self.write(f"""job carry_over {{ workers: 2, checkpoint: {{ every: 10ms, dir: "{self.state}" }} }}
source rows = file {{ path: "{self.at("in.jsonl")}", schema: {{ n: int!, key: text }} }}
stream some = rows | where n % {STEP} == 0
sink out = kafka from some {{ brokers: "{kafka.brokers}", topic: "{TOPIC}", key: key, patience: 30s }}
""")
        with open(self.at("in.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(f'{{"n": {n}, "key": "k{n // STEP % 10}"}}\n' for n in range(ROWS))


def clear(kafka):
    there = [topic for topic in (TOPIC, PROGRESS) if topic in kafka.topics()]
    if there:
        kafka.delete_topic(*there)


def make():
    """Makes the fixture anew, with the leat of LEAT."""
    kafka = rig.shared()
    clear(kafka)
    kafka.create_topic(TOPIC, partitions=8, exact=True)
    job = Job(kafka)
    status, _, err = job.run(failpoints="kafka.commit.before=kill@3")
    assert status == -signal.SIGKILL, (status, err)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    subprocess.run([oracle.LEAT, "checkpoint", "save", job.state, "--to", os.path.join(FOLDER, "sp")], check=True)
    out = len(kafka.consume(TOPIC, beside_open=True))
    notes = [{"key": r.key.hex(), "value": r.value and r.value.hex()} for r in kafka.consume(PROGRESS, beside_open=True)]
    with open(os.path.join(FOLDER, "progress.json"), "w", encoding="utf-8") as file:
        file.write(f'{{"out": {out},\n "notes": [' + ",\n  ".join(json.dumps(note) for note in notes) + "]}\n")
    job.close()


def put_back(kafka):
    """Both topics as the old run left them; returns how many rows were out."""
    clear(kafka)
    kafka.create_topic(TOPIC, partitions=8, exact=True)
    kafka.create_topic(PROGRESS, partitions=1, exact=True, cleanup_policy="compact")
    with open(os.path.join(FOLDER, "progress.json"), encoding="utf-8") as file:
        left = json.load(file)
    rows = [{"n": n * STEP, "key": f"k{n % 10}"} for n in range(left["out"])]
    kafka.produce(TOPIC, [{"key": row["key"].encode(), "value": json.dumps(row).encode()} for row in rows])
    kafka.produce(PROGRESS, [{"key": bytes.fromhex(note["key"]), "value": note["value"] and bytes.fromhex(note["value"])}
                             for note in left["notes"]])
    return left["out"]


def check(kafka):
    """Each row is there once; rows of before and of now agree where a key goes."""
    records = kafka.consume(TOPIC)
    rig.check_once(records, list(range(0, ROWS, STEP)))
    where = {}
    for record in records:
        where.setdefault(record.key, set()).add(record.partition)
    assert len(where) == 10 and all(len(partitions) == 1 for partitions in where.values()), where


def test_what_the_old_outbox_held_is_sent_once():
    """Also where the new run dies: before and after it has sent for the old one, and while its shards send."""
    kafka = rig.shared()
    for point in ("", "kafka.commit.before=kill@2", "kafka.commit.after=kill@2", "kafka.commit.after=kill@12"):
        out = put_back(kafka)
        job = Job(kafka)
        status, _, err = job.run("--from", os.path.join(FOLDER, "sp"), failpoints=point)
        assert status == (0 if point == "" else -signal.SIGKILL), (point, status, err)
        assert f"progress topic `{PROGRESS}` had 1 partitions, and gets 8" in err, err
        if point == "kafka.commit.after=kill@2":
            assert out < len(kafka.consume(TOPIC, beside_open=True)) < ROWS // STEP, "the old outbox is out"
        if point != "":
            job.finish(*([] if job.checkpoints() else ["--from", os.path.join(FOLDER, "sp")]))
        check(kafka)
        assert kafka.partitions(PROGRESS) == list(range(8))
        assert all(end > 0 for _, end in kafka.offsets(PROGRESS).values()), "each shard has written its life"
        job.close()


def test_a_lost_progress_topic_is_refused():
    kafka = rig.shared()
    out = put_back(kafka)
    kafka.delete_topic(PROGRESS)
    kafka.create_topic(PROGRESS, partitions=1, exact=True)
    job = Job(kafka)
    status, _, err = job.run("--from", os.path.join(FOLDER, "sp"))
    assert status == 1 and "E0707" in err and "the topic was emptied" in err, err
    assert len(kafka.consume(TOPIC)) == out
    job.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--make"]:
        sys.argv.pop()
        sys.exit(make())
    sys.exit(rig.run(globals()))
