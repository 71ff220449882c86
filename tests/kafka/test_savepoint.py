#!/usr/bin/env python3
"""New runs from old checkpoints with the sink `kafka`: what the old run had promised goes out once, under its name; what
comes behind the checkpoint is the new run's, and comes again. Prints TAP."""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile

import rig
from oracle import LEAT
from test_sink import Job

# Three shards have written their lives when the first of them sends rows.
POINTS = ["kafka.committed=kill@2", "kafka.commit.before=kill@4", "kafka.commit.after=kill@4"]


def save(job, name):
    subprocess.run([LEAT, "checkpoint", "save", job.state, "--to", os.path.join(job.folder, name)], check=True,
                   capture_output=True)
    return os.path.join(job.folder, name)


def counts(job):
    return collections.Counter(rig.numbers(job.kafka.consume(job.topic)))


def killed(job, failpoint):
    status, _, err = job.run(failpoints=failpoint)
    assert status == -signal.SIGKILL, (failpoint, status, err)


def test_a_new_run_sends_what_the_other_had_promised():
    for point in POINTS:
        job = Job(rig.shared())
        killed(job, point)
        savepoint = save(job, "sp")
        # It dies while it sends for the other; then it begins there again, by itself.
        status, _, err = job.run("--from", savepoint, failpoints="kafka.commit.after=kill@4")
        assert status in (0, -signal.SIGKILL), (point, status, err)
        if status != 0:
            job.finish()
        job.check()
        job.close()


def test_what_comes_behind_an_old_savepoint_comes_again():
    job = Job(rig.shared())
    killed(job, "ckpt.published=kill@1")
    savepoint = save(job, "sp")
    job.finish()
    job.check()
    for again in range(2):
        _, err = job.finish("--from", savepoint)
        assert "has rows behind the checkpoint, of the micro-batches" in err, err
        assert "sends again" in err, err
        found = counts(job)
        assert sorted(found) == job.expected(), len(found)
        # The order of rows is that of the file: up to some row each is there once, from there on once a run.
        first = min((n for n in found if found[n] > 1), default=job.rows)
        assert 0 < first < job.rows, first
        assert all(found[n] == (1 if n < first else 2 + again) for n in found), (first, again)
    job.close()


def test_another_topic_is_said_and_left_by_name():
    job = Job(rig.shared())
    killed(job, "kafka.commit.before=kill@4")
    savepoint = save(job, "sp")
    other = job.kafka.create_topic("sink", partitions=2)
    job.write(job.text.replace(f'topic: "{job.topic}"', f'topic: "{other}"'))
    status, _, err = job.run("--from", savepoint)
    assert status == 1 and "`sink/out` does not match: topic: the checkpoint has" in err, err
    assert "--drop-state sink/out" in err, err
    _, err = job.finish("--from", savepoint, "--drop-state", "sink/out")
    assert "`sink/out`: its state in the checkpoint is dropped" in err, err
    found = collections.Counter(rig.numbers(job.kafka.consume(other)))
    assert found and max(found.values()) == 1 and sorted(found) == job.expected()[-len(found):], len(found)
    job.close()


def test_progress_that_was_emptied_is_refused():
    job = Job(rig.shared())
    killed(job, "kafka.commit.before=kill@4")
    savepoint = save(job, "sp")
    job.kafka.delete_topic(job.progress)
    job.kafka.create_topic(job.progress, exact=True)
    before = len(job.kafka.consume(job.topic, beside_open=True))
    status, _, err = job.run("--from", savepoint)
    assert status == 1 and "progress topic" in err and "--drop-state" in err, err
    assert len(job.kafka.consume(job.topic)) == before
    job.close()


def test_a_source_goes_on_by_the_names_of_its_partitions():
    kafka = rig.shared()
    one, two = kafka.create_topic("from-a", partitions=2), kafka.create_topic("from-b")
    kafka.produce(one, rig.numbered(500))
    with tempfile.TemporaryDirectory(prefix="leat-from-") as folder:
        job, out = os.path.join(folder, "job.leat"), os.path.join(folder, "rows.jsonl")

        def write(topics, more="", step=""):
            with open(job, "w", encoding="utf-8") as file:
                file.write(f"""
job from_test {{ workers: 2, checkpoint: {{ every: 50ms, dir: "{folder}/state" }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: {topics}, schema: {{ n: int, key: text }} {more} }}
stream rows = s {step}
sink out = file from rows {{ path: "{out}" }}
""")

        def rows():
            with open(out if os.path.exists(out) else f"{out}.part", encoding="utf-8") as file:
                return [json.loads(line)["n"] for line in file.read().split("\n")[:-1]]

        def run(*arguments):
            return subprocess.run([LEAT, "run", job, *arguments], capture_output=True, text=True, check=False, timeout=rig.PATIENCE_S)

        write(f'"{one}"')
        live = subprocess.Popen([LEAT, "run", job, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rig.wait_for(lambda: os.path.exists(f"{out}.part") and len(rows()) >= 500, "rows")
        live.send_signal(signal.SIGINT)
        live.communicate(timeout=rig.PATIENCE_S)
        subprocess.run([LEAT, "checkpoint", "save", f"{folder}/state", "--to", f"{folder}/sp"], check=True, capture_output=True)
        kafka.produce(one, rig.numbered(300, first=500))
        kafka.produce(two, rig.numbered(200, first=800))
        write(f'["{two}", "{one}"]', ", until: latest", "| where n >= 0 | with more = n + 1")
        done = run("--from", f"{folder}/state")
        assert done.returncode == 0, done.stderr
        assert sorted(rows()) == list(range(1000)), len(rows())
        write(f'"{two}"', ", until: latest")
        done = run("--from", f"{folder}/sp")
        assert done.returncode == 1 and f"`{one}/0` of source `s`" in done.stderr, done.stderr
        assert "--drop-state s" in done.stderr, done.stderr
        os.remove(out)
        done = run("--from", f"{folder}/sp", "--drop-state", "s", "--drop-state", "sink/out")
        assert done.returncode == 0 and "`s` has no position in the checkpoint" in done.stderr, done.stderr
        assert sorted(rows()) == list(range(800, 1000)), len(rows())


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
