#!/usr/bin/env python3
"""Option `backfill`: what a recording has, and then the topic, is what the whole topic is.

    tests/kafka/test_backfill.py PATH_OF_LEAT
"""

import glob
import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
from test_replay import OWN, Job, click, hour, impression, leat  # noqa: E402

COUNT = 1500
# What is late in these windows depends on where watermarks advance.
WINDOWS = """
stream closed = impressions | window by item over tumbling(20ms) { n: count(), most: max(imp_id) }
stream others = clicks | window by item over tumbling(20ms) { n: count(), most: max(imp_id) }
stream both = closed | union others
sink out = file from both { path: "%(folder)s/out.jsonl" }
"""


def record(job, name):
    leat("record", job.impressions, job.clicks, "--to", job.at(name), "--until", "latest", "--brokers", job.kafka.brokers)
    return f', backfill: "{job.at(name)}"'


def inode(path):
    return os.stat(path).st_ino if os.path.exists(path) else None


def read_all(job, path):
    """The rows of a job that nobody disturbs; nothing of it is left behind."""
    job.path = path
    killed = inode(job.at("out.jsonl.part"))  # a slow kill leaves all rows there, more than its last checkpoint has
    job.start()
    job.wait(lambda: inode(job.at("out.jsonl.part")) != killed and job.rows("out.jsonl").count(b"\n") >= 2 * COUNT, "all rows")
    job.stop()
    rows = job.rows("out.jsonl")
    shutil.rmtree(job.at("state"))
    for name in ("out.jsonl", "out.jsonl.part"):
        if os.path.exists(job.at(name)):
            os.remove(job.at(name))
    return rows


def test_recording_then_topic():
    """The topic has lost most of what the recording has. Killed on either side of the seam, and at it."""
    job = Job(rig.shared(), OWN)
    begin = int(time.time() * 1000) - 7_200_000
    hour(job, 0, begin, COUNT)
    backfill = record(job, "rec")
    hour(job, COUNT, begin + 3_600_000, COUNT)
    expected = read_all(job, job.path)
    for topic, partitions in ((job.impressions, 3), (job.clicks, 2)):
        job.kafka.delete_records(topic, {p: COUNT // partitions - 20 for p in range(partitions)})
    slow = backfill + ", max_rate: 1500"
    job.path = job.write("slow.leat", OWN, slow, slow)
    for at in (0.3, 0.97, 1.02, 1.3, 1.7):
        job.start()
        job.wait(lambda rows=at * COUNT: job.rows("out.jsonl").count(b"\n") >= rows, f"{at}")
        job.kill()
    found = read_all(job, job.path)
    assert found == expected, (found.count(b"\n"), expected.count(b"\n"))
    # A partition that the recording does not have, and one that comes while it runs, begin as ever.
    job.path = job.write("other.leat", OWN, backfill, backfill)
    job.kafka.add_partitions(job.impressions, 4)
    job.kafka.produce(job.impressions, [impression(10**6, begin, 3)])
    job.start()
    job.wait(lambda: b"1000000" in job.rows("out.jsonl"), "the new partition's row")
    job.kafka.add_partitions(job.impressions, 5)
    job.kafka.produce(job.impressions, [impression(10**6 + 1, begin, 4)])
    job.wait(lambda: b"1000001" in job.rows("out.jsonl"), "the newest partition's row")
    job.stop()
    assert len(job.rows("out.jsonl").splitlines()) == 2 * COUNT + 2
    job.close()


def test_recording_goes_on_meanwhile():
    """Retention takes what comes behind the recording's end before the job is there; the recording has gone on, too. It
    also helps a job that had none."""
    job = Job(rig.shared(), OWN)
    begin = int(time.time() * 1000) - 7_200_000
    hour(job, 0, begin, COUNT)
    slow = record(job, "rec") + ", max_rate: 1500"
    hour(job, COUNT, begin + 3_600_000, COUNT)
    expected = read_all(job, job.path)
    job.path = job.write("slow.leat", OWN, slow, slow)
    job.start()
    job.wait(lambda: job.rows("out.jsonl") and glob.glob(job.at("state/gen-*/ckpt-*[0-9]")), "rows, and a checkpoint")
    job.kill()
    shutil.copytree(job.at("rec"), job.at("short"))
    record(job, "rec")
    for topic, partitions in ((job.impressions, 3), (job.clicks, 2)):
        job.kafka.delete_records(topic, {p: 2 * COUNT // partitions for p in range(partitions)})
    short = slow.replace(job.at("rec"), job.at("short"))
    leat("run", job.write("short.leat", OWN, short, short), status=1, says=["E0612", "are gone"])
    leat("run", job.write("bare.leat", OWN), status=1, says=["E0612", "are gone", "name the recording in the source's `backfill`"])
    found = read_all(job, job.path)
    assert found == expected, (found.count(b"\n"), expected.count(b"\n"))
    job.close()


def out_of_order(job, first, begin, count, seed):
    """Records whose event times are up to half a second before the broker's."""
    rng = random.Random(seed)
    for topic, make, partitions in ((job.impressions, impression, 3), (job.clicks, click, 2)):
        records = []
        for n in range(first, first + count):
            record_of_n = make(n, begin + n - rng.randrange(500), n % partitions)
            records.append({**record_of_n, "timestamp": begin + n})
        job.kafka.produce(topic, records)


def test_bounded_is_bit_for_bit():
    """With `until: latest` watermarks advance at the same records, wherever these lie."""
    job = Job(rig.shared(), WINDOWS)
    begin = int(time.time() * 1000) - 7_200_000
    out_of_order(job, 0, begin, 4000, 1)
    backfill = record(job, "rec")
    out_of_order(job, 4000, begin, 7000, 2)
    results = []
    for i, more in enumerate(("", backfill)):
        path = job.write(f"{i}.leat", WINDOWS.replace("out.jsonl", f"out-{i}.jsonl"), ", until: latest" + more, ", until: latest" + more)
        shutil.rmtree(job.at("state"), ignore_errors=True)
        summary, _ = leat("run", path, "--json")
        late = {node["name"] + str(k): node["counts"]["late"] for k, node in enumerate(summary["nodes"])}
        results.append((late, job.rows(f"out-{i}.jsonl")))
    assert sum(results[0][0].values()) > 300 and results[0] == results[1], (results[0][0], results[1][0])
    job.close()


def test_what_does_not_meet():
    """Records between are gone; it is another topic."""
    job = Job(rig.shared(), OWN, partitions=(1, 1))
    begin = int(time.time() * 1000) - 7_200_000
    hour_of_one = [(n, begin + n) for n in range(300)]
    job.kafka.produce(job.impressions, [impression(n, ts, 0) for n, ts in hour_of_one])
    job.kafka.produce(job.clicks, [click(n, ts, 0) for n, ts in hour_of_one])
    backfill = record(job, "rec")
    job.kafka.produce(job.impressions, [impression(n + 300, ts, 0) for n, ts in hour_of_one])
    path = job.write("gap.leat", OWN, backfill)
    job.kafka.delete_records(job.impressions, {0: 310})
    leat("run", path, status=1, says=["E0612", "ends before offset 300", "the topic begins with offset 310", "leat record"])
    path = job.write("both.leat", OWN, backfill + ", start: latest")
    leat("check", path, status=1, says=["E0407", "with `backfill`"])
    path = job.write("none.leat", OWN, f', backfill: "{job.at("rec")}/{job.clicks}"')
    leat("run", path, status=1, says=["E0602", "no partition of this source's topics"])
    # Made again: shorter, and then as long, with other records.
    job.kafka.delete_topic(job.clicks)
    job.kafka.create_topic(job.clicks, exact=True)
    job.kafka.produce(job.clicks, [click(n, begin, 0) for n in range(299)])
    path = job.write("other.leat", OWN, "", backfill)
    leat("run", path, status=1, says=["E0611", "goes up to offset 299, and the topic up to 298"])
    job.kafka.produce(job.clicks, [click(n, begin, 0) for n in range(299, 310)])
    leat("run", path, status=1, says=["E0611", f"{job.clicks}/0", "differs from the record read before"])
    job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
