#!/usr/bin/env python3
"""What a live job did, done again: its topics recorded, and its order log, give its output and its model, bit for bit.
And catching up after an hour down, when one topic comes far slower than the other: nothing runs ahead.

    tests/kafka/test_replay.py PATH_OF_LEAT
"""

import atexit
import glob
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

sys.path.insert(2, os.path.join(rig.install.ROOT, "tests", "cluster"))
import etcd  # noqa: E402

LEAT = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join("build", "release", "leat")
CLICKS_WITHIN_MS = 400
FLUSH_MS = 60_000  # so far behind the others that all before is emitted

# Features of both topics, the label join, a window, a model: what order, watermarks and idle partitions show in.
LEARN = """
stream features =
    impressions
  | dedup by imp_id within 1m
  | feature by item over 1m every 1s { imps: count() }
  | feature from clicks by item over 1m every 1s { clicks: count() }
stream examples = features | attribute clicks on imp_id within 2s as clicked
stream minutes = features | window by item over tumbling(500ms) { n: count(), most: max(clicks) }
learner model = fm from examples {
  label: clicked
  sparse: [user, item], dense: [log1p(imps), log1p(clicks)]
  embedding: { dim: 4 }, batch: 64, batch_min: 4
}
sink scored = kafka from model.predictions { brokers: "%(brokers)s", topic: "%(scores)s" }
sink minutes = file from minutes { path: "%(folder)s/minutes.jsonl" }
sink dead = file from dead_letters { path: "%(folder)s/dead.jsonl" }
"""


class Job:
    """A job over two topics, in lives of its own."""

    def __init__(self, kafka, sinks, impressions="", clicks="", brokers=None, every="100ms", keep=100, partitions=(3, 2)):
        self.kafka, self.process = kafka, None
        atexit.register(self.close)  # also where the test fails
        self.folder = tempfile.mkdtemp(prefix="leat-replay-")
        self.impressions = kafka.create_topic("impressions", partitions=partitions[0])
        self.clicks = kafka.create_topic("clicks", partitions=partitions[1])
        self.scores = kafka.create_topic("scores")
        self.path = self.write("job.leat", sinks, impressions, clicks, brokers, every, keep)

    def write(self, name, sinks, impressions="", clicks="", brokers=None, every="100ms", keep=100):
        names = {"brokers": self.kafka.brokers, "scores": self.scores, "folder": self.folder}
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(f"""
job live {{ workers: 2, checkpoint: {{ every: {every}, dir: "{self.at('state')}", keep: {{ last: {keep} }} }} }}
source impressions = kafka {{
  brokers: "{brokers or self.kafka.brokers}", topic: "{self.impressions}", refresh: 1s {impressions}
  schema: {{ imp_id: int!, ts: time(ms), user: int, item: int }}, event_time: ts, max_delay: 200ms, idle_after: 700ms
}}
source clicks = kafka {{
  brokers: "{self.kafka.brokers}", topic: "{self.clicks}", refresh: 1s {clicks}
  schema: {{ imp_id: int!, ts: time(ms), item: int }}, event_time: ts, max_delay: 200ms, idle_after: 700ms
}}
""" + sinks % names)
        return self.at(name)

    def at(self, name):
        return os.path.join(self.folder, name)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *arguments):
        self.process = subprocess.Popen([LEAT, "run", self.path, "--json", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def join(self, servers, nodes, *arguments):
        """Starts one of several workers, and returns its process."""
        err = tempfile.TemporaryFile("w+")
        process = subprocess.Popen([LEAT, "run", self.path, "--json", "--quiet", f"--cluster=etcd://{servers.endpoints()}/live", f"--nodes={nodes}",
                                    "--nodes-wait=1h", "--workers=1", "--listen=127.0.0.1:0", f"--lease={math.ceil(rig.stretched(2))}s", *arguments],
                                   stdout=subprocess.PIPE, stderr=err, text=True,
                                   preexec_fn=lambda: etcd.LIBC.prctl(etcd.DIE_WITH_PARENT, signal.SIGKILL))
        process.err = err
        return process

    def heads(self):
        return sorted(glob.glob(self.at("state/cluster/heads/head-*[0-9]")))

    def kill(self):
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ctrl-C; the summary."""
        rig.interrupt(self.process)
        out, err = self.process.communicate(timeout=rig.PATIENCE_S)
        assert self.process.returncode == 0, err[-2000:]
        return json.loads(out)

    def wait(self, condition, what):
        rig.wait_for(lambda: self.process.poll() is not None or condition(), what)
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]

    def rows(self, name):
        """Of a file sink, finished or not."""
        for path in (self.at(name), self.at(name + ".part")):
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return file.read()
        return b""


def leat(*arguments, status=0, says=()):
    """Runs a command; its summary, if it has one, and what it says."""
    result = subprocess.run([LEAT, *arguments], capture_output=True, text=True, timeout=rig.PATIENCE_S, check=False)
    assert (result.returncode == 0) == (status == 0), (arguments, result.stdout[:500], result.stderr[-2000:])
    for part in says:
        assert part in result.stderr, (part, result.stderr[-2000:])
    return json.loads(result.stdout) if result.stdout.startswith("{") else None, result.stderr


def impression(n, ts, partition):
    return {"key": str(n).encode(), "partition": partition, "timestamp": ts,
            "value": json.dumps({"imp_id": n, "ts": ts, "user": n % 37, "item": n % 11}).encode()}


def click(n, ts, partition):
    return {"key": str(n).encode(), "partition": partition, "timestamp": ts,
            "value": json.dumps({"imp_id": n, "ts": ts, "item": n % 11}).encode()}


class Traffic:
    """Impressions and clicks as they happen: some impressions are late, some come twice, a few are no JSON."""

    def __init__(self, job, seed):
        self.job, self.rng, self.n, self.producer = job, random.Random(seed), 0, job.kafka.producer()
        self.seen = 0  # impressions that can be predicted

    def send(self, seconds, partitions):
        """As long, over so many partitions of the impressions."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = int(time.time() * 1000)
            shown, clicked = [], []
            for _ in range(20):
                n, partition = self.n, self.rng.randrange(partitions)
                late = self.rng.randrange(1500) if self.rng.random() < 0.05 else self.rng.randrange(50)
                record = impression(n, now - late, partition)
                if self.rng.random() < 0.01:
                    record["value"] = b"{no json"
                shown += [record, record] if self.rng.random() < 0.02 else [record]
                if n % 3 == 0:
                    clicked.append(click(n, now + self.rng.randrange(CLICKS_WITHIN_MS), 0))
                self.n += 1
            self.job.kafka.produce(self.job.impressions, shown, self.producer)
            self.job.kafka.produce(self.job.clicks, clicked, self.producer)
            time.sleep(0.01)

    def flush(self, partitions):
        """A last record of each partition, far behind the others."""
        ts = int(time.time() * 1000) + FLUSH_MS
        self.job.kafka.produce(self.job.impressions, [impression(10**9 + p, ts, p) for p in range(partitions)], self.producer)
        self.job.kafka.produce(self.job.clicks, [click(10**9 - 1, ts, 0)], self.producer)


def counts(summary):
    """What all lives together took and gave, by node. Sinks have other kinds in a replay, and say other things."""
    return {node["name"] + "/" + node["tag"] + str(i): node["counts"] for i, node in enumerate(summary["nodes"])}


def model(job, state, name):
    leat("model", "export", state, "--out", job.at(name))
    with open(job.at(name), "rb") as file:
        return file.read()


def replay(job, recording, name, lanes, *more, says=()):
    """The job's files, counts, model and state by a replay in a directory of its own. The recording has the order log; without
    one the topics are read again, by a log that is named."""
    folder = job.at(name)
    os.makedirs(folder)
    path = job.at(name + ".leat")
    with open(job.path, encoding="utf-8") as file, open(path, "w", encoding="utf-8") as out:
        out.write(file.read().replace(f'"{job.at("state")}"', f'"{folder}/state"'))
    arguments = ["run", path, "--json", "--workers", str(lanes), *more]
    if recording:
        arguments += ["--replay", f"impressions={recording}", "--replay", f"clicks={recording}"]
    for sink in ("scored", "minutes", "dead"):
        arguments += ["--sink", f"{sink}={folder}/{sink}.jsonl"]
    summary, _ = leat(*arguments, says=says)
    files = {}
    for sink in ("scored", "minutes", "dead"):
        done = f"{folder}/{sink}.jsonl"
        with open(done if os.path.exists(done) else done + ".part", "rb") as file:
            files[sink] = file.read()
    state = f"{folder}/state" + (".replay" if recording else "")
    return files, counts(summary), (model(job, state, name + ".safetensors"), oracle.state_of(state))


def test_replay_of_a_live_job():
    """Killed twice with -9 while producing goes on, a partition that comes while it runs, one that never has a record:
    recording and order log give its bytes, at any number of lanes."""
    kafka = rig.shared()
    job = Job(kafka, LEARN)
    traffic = Traffic(job, 1)
    order = job.at("rec/order") + "/"
    thread = threading.Thread(target=lambda: traffic.send(1.5, 2))  # nothing in impressions/2, and clicks/1
    thread.start()
    job.start("--record-order", order)
    time.sleep(1.2)
    rig.wait_for(lambda: glob.glob(job.at("state/gen-*/ckpt-*[0-9]")), "a checkpoint")  # a busy machine has none by now
    job.kill()
    thread.join()
    kafka.add_partitions(job.impressions, 4)
    thread = threading.Thread(target=lambda: traffic.send(2.5, 2))
    thread.start()
    job.start("--record-order", order)
    time.sleep(1.3)
    traffic_2 = Traffic(job, 2)
    traffic_2.n = 10**6
    kafka.produce(job.impressions, [impression(2 * 10**6 + n, int(time.time() * 1000), 3) for n in range(50)])
    time.sleep(0.8)
    # Readers see the records of a transaction behind the checkpoint that has them. A busy machine has none by now.
    job.wait(lambda: kafka.consume(job.scores), "a checkpoint behind the first scores")
    job.kill()
    leat("checkpoint", "save", job.at("state"), "--to", job.at("saved"))
    thread.join()
    job.start("--record-order", order)
    traffic.flush(2)
    kafka.produce(job.impressions, [impression(3 * 10**6, int(time.time() * 1000) + FLUSH_MS, 3)])
    job.wait(lambda: len(kafka.consume(job.scores)) > 0.9 * traffic.n and b"\n" in job.rows("minutes.jsonl"), "scores")
    time.sleep(rig.stretched(1))
    expected_counts = counts(job.stop())
    scored = b"".join(record.value + b"\n" for record in kafka.consume(job.scores))
    expected = {"scored": scored, "minutes": job.rows("minutes.jsonl"), "dead": job.rows("dead.jsonl")}
    assert expected["dead"].count(b"no json") > 5 and expected["minutes"].count(b"\n") > 20
    learned = model(job, job.at("state"), "live.safetensors"), oracle.state_of(job.at("state"))
    assert len(learned[1].splitlines()) > 2, learned[1]

    leat("record", job.impressions, job.clicks, "--to", job.at("rec"), "--until", "latest", "--brokers", kafka.brokers)
    for lanes in (1, 2, 3, 0):
        recording, more = (job.at("rec"), []) if lanes else (None, ["--order", order])
        files, found_counts, found = replay(job, recording, f"replay-{lanes}", lanes or 2, *more,
                                            says=["replaying the order log", "the order log ends before micro-batch"])
        for name, content in files.items():
            assert content == expected[name], (name, lanes, len(content), len(expected[name]))
        check_counts(found_counts, expected_counts)
        assert found == learned, f"another model or state at {lanes} lanes: {found[1]} instead of {learned[1]}"
    # From a savepoint on: by the log of the whole job, and by what its checkpoints still have.
    for i, log in enumerate(([], ["--order", job.at("state")])):
        files, found_counts, found = replay(job, job.at("rec"), f"saved-{i}", 2, "--from", job.at("saved"), *log)
        assert 0 < len(files["scored"]) < len(scored) and scored.endswith(files["scored"]), len(files["scored"])
        assert found == learned
        check_counts(found_counts, expected_counts)
    misfits(job, order)
    job.close()


def state_by_key(checkpoint):
    """Digests, whatever the placement (tests/crash/keyed_state.c)."""
    tool = os.path.join(os.path.dirname(LEAT), "tests", "crash", "keyed_state")
    return subprocess.run([tool, checkpoint], check=True, capture_output=True, text=True).stdout


def test_replay_of_workers():
    """Four workers of a live job, of which one is killed while producing goes on, and another one comes: recording and order log give their bytes,
    their state and their model, on one worker and on one lane or three."""
    if etcd.missing():
        return etcd.missing()
    kafka = rig.shared()
    job = Job(kafka, LEARN)
    traffic, order = Traffic(job, 1), job.at("rec/order") + "/"
    with etcd.Etcd(job.at("etcd"), is_fast=True) as servers:
        def start():
            return job.join(servers, "3:4", f"--record-order={order}")

        def go_on(heads):
            """Producing, until there are so many more heads."""
            seen = len(job.heads())
            traffic.send(0.5, 2)
            rig.wait_for(lambda: traffic.send(0.05, 2) or len(set(job.heads())) >= seen + heads, "heads")
        workers = [start() for _ in range(4)]
        rig.wait_for(job.heads, "a head")
        go_on(3)
        dead = workers.pop(random.randrange(4))
        dead.kill()
        dead.wait()
        go_on(3)
        workers.append(start())
        rig.wait_for(lambda: traffic.send(0.05, 2) or "has number" in open(f"/proc/self/fd/{workers[-1].err.fileno()}", encoding="utf-8").read(),
                     "its place")
        go_on(3)
        traffic.flush(2)
        rig.wait_for(lambda: len(kafka.consume(job.scores)) > 0.9 * traffic.n and b"\n" in job.rows("minutes.jsonl"), "scores")
        leat("cluster", "stop", f"etcd://{servers.endpoints()}/live")
        told = [json.loads(process.communicate(timeout=rig.PATIENCE_S)[0]) for process in workers]
    summary = next(one for one in told if "nodes" in one)
    head = max(job.heads())
    assert int(re.search(r"head-(\d+)-", head)[1]) >= 3, job.heads()
    expected = {"scored": b"".join(record.value + b"\n" for record in kafka.consume(job.scores)),
                "minutes": job.rows("minutes.jsonl"), "dead": job.rows("dead.jsonl")}
    learned = model(job, head, "live.safetensors"), state_by_key(head)
    leat("record", job.impressions, job.clicks, "--to", job.at("rec"), "--until", "latest", "--brokers", kafka.brokers)
    for lanes in (1, 3):
        name = f"replay-{lanes}"
        files, found_counts, found = replay(job, job.at("rec"), name, lanes, says=["replaying the order log"])
        for sink, content in files.items():
            assert content == expected[sink], (sink, lanes, len(content), len(expected[sink]))
        check_counts(found_counts, counts(summary))
        assert (found[0], state_by_key(job.at(f"{name}/state.replay"))) == learned, f"another model or state at {lanes} lanes"
    job.close()
    return None


def check_counts(found, expected):
    for name in expected:
        assert "/sink" in name or found[name] == expected[name], (name, found[name], expected[name])


def misfits(job, order):
    """Recordings that are not what the log was written over."""
    names = ["--replay", f"impressions={job.at('rec')}", "--replay", f"clicks={job.at('rec')}"]
    leat("run", job.path, *names, "--order", job.at("nowhere"), status=1, says=["E0602", "nowhere", "--record-order"])
    leat("checkpoint", "prune", job.at("state"), "--last", "1")
    leat("run", job.path, *names, "--order", job.at("state"), status=1,
         says=["E0603", "contain the order from micro-batch", "--from", "--record-order DIR"])
    job.kafka.delete_records(job.impressions, {0: 50})
    leat("record", job.impressions, job.clicks, "--to", job.at("short"), "--until", "latest", "--brokers", job.kafka.brokers)
    names = ["--replay", f"impressions={job.at('short')}", "--replay", f"clicks={job.at('short')}"]
    leat("run", job.path, *names, "--order", order, status=1, says=["E0612", f"{job.impressions}/0", "50"])


# --- Catching up --------------------------------------------------------------------------------------------------------

OWN = """
stream out = impressions | feature from clicks by imp_id over 2h every 1m { own: count() }
                         | feature from clicks by item over 2h every 1m { others: count() }
sink out = file from out { path: "%(folder)s/out.jsonl" }
"""


def hour(job, first, begin_ms, count):
    """Impressions of some seconds, each clicked 3 ms later."""
    times = [(n, begin_ms + 2 * (n - first)) for n in range(first, first + count)]
    job.kafka.produce(job.impressions, [impression(n, ts, n % 3) for n, ts in times])
    job.kafka.produce(job.clicks, [click(n, ts + 3, n % 2) for n, ts in times])


def test_catching_up():
    """An hour down: then impressions come slowly, clicks at once; and the other way round. No impression counts its own
    click, and the result is that of a job that had everything from the beginning, at full speed."""
    kafka = rig.shared()
    begin, count = int(time.time() * 1000) - 7_200_000, 1500
    with kafka.proxied() as proxied:
        for slow in ("impressions", "clicks"):
            limits = {slow: ', max_rate: 2000, queue: 1MiB'}
            job = Job(kafka, OWN, brokers=proxied.brokers if slow == "impressions" else None, **limits)
            hour(job, 0, begin, count)
            job.start()
            job.wait(lambda j=job: j.rows("out.jsonl").count(b"\n") > count / 4, "the first rows")
            job.kill()
            hour(job, count, begin + 3_600_000, count)
            proxied.delay(0.05)
            job.start()
            job.wait(lambda j=job: j.rows("out.jsonl").count(b"\n") >= 2 * count, "all rows")
            job.stop()
            found = job.rows("out.jsonl")
            proxied.delay(0)
            shutil.rmtree(job.at("state"))
            for name in ("out.jsonl", "out.jsonl.part"):
                if os.path.exists(job.at(name)):
                    os.remove(job.at(name))
            job.path = job.write("fast.leat", OWN)
            job.start()
            job.wait(lambda j=job: j.rows("out.jsonl").count(b"\n") >= 2 * count, "all rows")
            job.stop()
            rows = [json.loads(line) for line in found.splitlines()]
            own = [row for row in rows if row["own"]]
            assert not own, (slow, len(own), own[:3])
            assert any(row["others"] for row in rows)
            assert found == job.rows("out.jsonl"), slow
            job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
