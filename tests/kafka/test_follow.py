#!/usr/bin/env python3
"""`leat serve` beside a job that reads a topic: a record changes scores soon after it was appended, without a checkpoint,
also when no record follows it; and through a kill of the job.

    tests/kafka/test_follow.py PATH_OF_LEAT
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "serve"))
import rig  # noqa: E402
import running  # noqa: E402
import test_live as live_jobs  # noqa: E402
from server import Server, rows_of, tensors  # noqa: E402

LEAT = sys.argv[1]
BEGIN_MS = 1_700_000_000_000


class Job(live_jobs.Live):
    """A job with features and a model over them; what a Server asks of a place."""

    def __init__(self, kafka, topic, publish="20ms"):
        running.Running.__init__(self, "leat-follow-")
        self.job = self.at("job.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(f"""
job follow {{ workers: 2, checkpoint: {{ every: 1h, dir: "{self.at('state')}" }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int, key: text, ts: time(ms), clicked: int }},
                    event_time: ts, max_delay: 1s, refresh: 1s }}
stream examples = s | feature by key over 1h every 1m {{ seen: count(), newest: max(n) }}
learner model = fm from examples {{ label: clicked, sparse: [key], dense: [seen], embedding: {{ dim: 4 }} }}
serve scores {{ from: model.predictions, request: s, deadline: 1m, publish: {publish} }}
sink out = null from model.predictions
""")

    def path(self, name):
        return self.at(name)

    def settings(self, *_):
        return []


def asked(client, key, at_ms):
    """The answer for a row of that key."""
    status, answer = client.infer("scores", tensors([{"key": key, "ts": at_ms, "n": 0}], ["key", "ts", "n"]),
                                  ["seen", "newest", "prediction"])
    assert status == 200, answer
    row, = rows_of(answer)
    return int(row["seen"]), row["prediction"], answer["parameters"]


def changes(kafka, topic, client, first, count):
    """Appends records of one key, each when the score has taken in the one before; seconds that each took."""
    took, (seen, score, _) = [], asked(client, "probe", BEGIN_MS + first)
    for n in range(first, first + count):
        record = dict(next(rig.numbered(1, first=n, clicked=n % 2)))
        record["value"] = record["value"].replace(f'"key":"k{n % 10}"'.encode(), b'"key":"probe"')
        kafka.produce(topic, [record])
        begin = time.monotonic()
        while True:
            now_seen, now_score, moment = asked(client, "probe", BEGIN_MS + first)
            if now_seen == seen + 1 and now_score != score:
                break
            assert time.monotonic() - begin < rig.stretched(10), (n, seen, now_seen, score, now_score, moment)
        took.append(time.monotonic() - begin)
        seen, score = now_seen, now_score
    return took


def test_a_record_changes_scores():
    kafka = rig.shared()
    topic = kafka.create_topic("follow", partitions=2)
    kafka.produce(topic, rig.numbered(2000, clicked=1))
    with Job(kafka, topic) as job:
        job.start()
        with Server(job) as server:
            server.wait_for("is followed from checkpoint")
            client = server.client()
            took = changes(kafka, topic, client, 2000, 30)
            print(f"# from the append's answer to the changed score: median {sorted(took)[15] * 1e3:.0f} ms, "
                  f"longest {max(took) * 1e3:.0f} ms")
            job.kill()
            job.start()
            server.wait_for("no longer followed")
            before = len([line for line in server.said if line and "is followed from" in line])
            rig.wait_for(lambda: len([line for line in server.said if line and "is followed from" in line]) > before,
                         "the server to follow the job's second life")
            changes(kafka, topic, client, 2030, 10)
            assert asked(client, "probe", BEGIN_MS + 2000)[0] == 40
        job.stop()


def test_the_last_records():
    """What a learner got within `publish`, and nothing after that, is in the answers all the same."""
    kafka = rig.shared()
    topic = kafka.create_topic("follow-last", partitions=2)
    kafka.produce(topic, rig.numbered(200, clicked=1))
    with Job(kafka, topic, publish="700ms") as job:
        job.start()
        with Server(job) as server:
            server.wait_for("is followed from checkpoint")
            client, producer = server.client(), kafka.producer()
            for n in range(12):
                kafka.produce(topic, rig.numbered(1, first=200 + n, clicked=1), producer)
                time.sleep(0.1)
            time.sleep(rig.stretched(2))
            seen, _, moment = asked(client, "k1", BEGIN_MS + 300)
            assert seen >= 20 and int(moment["staleness_ms"]) < rig.stretched(0.5) * 1e3, moment
            assert int(moment["cut"].split("+")[1]) + 1 == int(moment["features"]), moment
        job.stop()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
