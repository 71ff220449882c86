#!/usr/bin/env python3
"""`leat run --cluster` with a real s3proxy that is away, slow, or tears what comes and goes (tests/objects/rig.py): the sinks are those of a run
that is alone, and nobody waits for ever.

    test_cluster_s3.py LEAT [TEST...]
"""

import functools
import glob
import os
import subprocess
import sys
import time

import test_cluster
from test_cluster import FAILED, INTERRUPTED, KILLED, LEAT, etcd, refused, sinks, stretched, wait_for
from test_cluster_store import StoreJob, prepare

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "objects"))
import rig  # noqa: E402


def with_store(test):
    """A test of a store with an empty bucket; where s3proxy cannot be had, it is skipped, and says so."""
    @functools.wraps(test)
    def with_one():
        try:
            store = rig.Store()
        except rig.install.Missing as missing:
            return str(missing)
        with store:
            store.make_bucket("bucket")
            test(store)
        return None
    return with_one


@with_store
def test_s3(store):
    """With S3: a bucket that is not there, a key that has expired; requests that are torn; then the store is away: the job goes on, no head is
    made, and that is said, until it is back, also where a worker dies meanwhile."""
    with StoreJob(url="s3://nowhere/job", environment=store.environment()) as job:
        refused(job, ["E0710", "nowhere", "bucket"])
    with StoreJob(url="s3://bucket/job", environment=store.environment(AWS_SECRET_ACCESS_KEY="wrong")) as job:
        refused(job, ["E0710"])
    with StoreJob(url="s3://bucket/job", environment=store.environment()) as job:
        for kind in ("torn_upload", "torn_answer", "lost_answer", "changed_upload", "changed_answer"):
            store.fault(kind, method="PUT" if "upload" in kind else None, path="/bucket/job/cluster/", times=3, after=5)
        workers = [job.start("1:2", failpoints="run.claimed=sleep:400") for _ in range(2)]  # it lasts as long as the store is away
        for process in workers:
            job.says(process, "incarnation 1")

        def count():
            return len({path for method, path, *_ in store.seen if method == "PUT" and "/cluster/heads/" in path})

        wait_for("heads", lambda: count() > 1)
        away = store.fault("status", status=503, path="/bucket/job/cluster/", times=10**9)
        before = count()
        job.says(workers[0], "E0710")
        assert "incarnation 2" not in job.text(workers[0].log)
        workers[1].kill()
        job.ends(workers[1], status=KILLED)
        job.says(workers[0], "incarnation 2: 1 workers")
        job.says(workers[0], "incarnation 3: 1 workers")  # it could not read the head, and tries again
        assert count() == before
        away.times = 0
        job.cluster("stop")
        job.ends(workers[0])
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


@with_store
def test_s3_hangs(store):
    """The last checkpoint, of `leat cluster stop`, goes into a store that does not answer, when a worker dies: the other one does not wait for
    that."""
    with StoreJob(url="s3://bucket/job", environment=store.environment(), every="10ms") as job:
        # Each checkpoint lasts for so long that the last one is under way when the store hangs.
        workers = [job.start("1:2", failpoints="objects.head=sleep:1500,run.claimed=sleep:200") for _ in range(2)]

        def await_head():
            before = len(store.seen)
            wait_for("a head", lambda: any(seen[0] == "PUT" and "/cluster/heads/" in seen[1] for seen in store.seen[before:]))

        for process in workers:
            job.says(process, "incarnation 1: 2 workers")
        await_head()
        stopper = subprocess.Popen([LEAT, "cluster", "stop", f"etcd://{job.etcd.endpoints()}/{job.name}"], stderr=subprocess.PIPE, text=True)
        job.processes.append(stopper)
        assert "are to stop" in stopper.stderr.readline()
        hangs = store.fault("slow", seconds=1000, method="PUT", path="/bucket/job/cluster/", times=10**9)
        wait_for("a part that hangs", lambda: hangs.happened > 1)
        workers[1].kill()
        job.ends(workers[1], status=KILLED)
        begin = time.monotonic()
        job.ends(workers[0])
        took = time.monotonic() - begin
        assert took < stretched(15) and "incarnation 1 is over" in job.text(workers[0].log), took
        hangs.times = 0
        store.may_go.set()
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


@with_store
def test_s3_hangs_when_one_leaves(store):
    """The checkpoint at which a worker is to leave goes into a store that does not answer: it leaves without, when --drain-within is over."""
    with StoreJob(url="s3://bucket/job", environment=store.environment(), every="1h") as job:
        workers = [job.start("1:2", "--drain-within=2s") for _ in range(2)]
        for process in workers:
            job.says(process, "incarnation 1: 2 workers")
        wait_for("rows", lambda: any(os.path.getsize(path) > 0 for path in glob.glob(f"{job.out}/*")))
        hangs = store.fault("slow", seconds=1000, method="PUT", path="/bucket/job/cluster/", times=10**9)
        workers[1].terminate()
        job.ends(workers[1])
        assert "no checkpoint within 2.0 s (--drain-within)" in job.text(workers[1].log), job.text(workers[1].log)
        assert hangs.happened <= 2, "it left when its part was given up"
        hangs.times = 0
        store.may_go.set()
        job.ends(workers[0])
        job.is_as_plain()


@with_store
def test_s3_hangs_at_deleting(store):
    """What the leader looks for in the store, to delete it, is not answered: heads go on, and sinks are told of them."""
    hangs = store.fault("slow", seconds=1000, method="GET", path="prefix=job%2Fcluster%2Fheads", times=10**9)
    with StoreJob(url="s3://bucket/job", environment=store.environment(LEAT_TEST_STORE_DELAY="1"), every="10ms") as job:
        worker = job.start(1)

        def heads():
            return len({seen[1] for seen in store.seen if seen[0] == "PUT" and "/cluster/heads/" in seen[1]})
        wait_for("a look that hangs", lambda: hangs.happened > 0)
        for _ in range(10):  # a look is given up at some time, on a busy machine before two heads
            looks, before = hangs.happened, heads()
            wait_for("two more heads", lambda looks=looks, before=before: heads() > before + 1 or hangs.happened > looks)
            if hangs.happened == looks:
                break
        assert hangs.happened == looks, "heads come when a look is given up, and only then"
        job.ends(worker)
        job.is_as_plain(lives=1)


@with_store
def test_two_clusters_claim(store):
    """Two clusters begin in one empty store at one time: one has it, and the other is told whose it is; also where the store goes by no condition,
    and the later one's claim is written over the earlier one's."""
    for honours in (True, False):
        store.honours = honours
        url, environment = f"s3://bucket/{honours}", store.environment()
        held = store.fault("slow", seconds=1000, method="PUT", path="/cluster/NAME", times=2)
        with StoreJob(url=url, environment=environment) as one, StoreJob(url=url, environment=environment) as other:
            jobs = {job.start(1, failpoints=""): job for job in (one, other)}
            wait_for("two claims", lambda: held.happened == 2)
            store.may_go.set()
            wait_for("a refusal", lambda: any(process.poll() == FAILED for process in jobs))
            loser, = [process for process in jobs if process.poll() == FAILED]
            winner, = [process for process in jobs if process is not loser]
            jobs[winner].ends(winner)
            text = jobs[loser].text(loser.log)
            assert "E0701" in text and f"expected `{jobs[loser].name}`, found `{jobs[winner].name}`" in text, text
            jobs[winner].is_as_plain(lives=1)
        store.may_go.clear()


@with_store
def test_s3_hangs_at_a_start(store):
    """Workers whose disks are lost get their parts from a store that does not answer: one dies, and the other one begins the next round; then
    that one is interrupted, and ends. Neither waits for the store."""
    with StoreJob(url="s3://bucket/job", environment=store.environment()) as job:
        workers = [job.start(2) for _ in range(2)]
        wait_for("a head", lambda: any(seen[0] == "PUT" and "/cluster/heads/" in seen[1] for seen in store.seen))
        job.cluster("stop")
        job.ends(*workers)
        job.lose_disks()
        hangs = store.fault("slow", seconds=1000, method="GET", path="/bucket/job/cluster/gen-", times=10**9)
        workers = [job.start("1:2", disk=i) for i in range(2)]
        wait_for("parts that hang", lambda: hangs.happened > 1)
        begin = time.monotonic()
        workers[1].kill()
        job.says(workers[0], "incarnation 3: 1 workers")
        before = hangs.happened
        wait_for("a part that hangs", lambda: hangs.happened > before)
        workers[0].terminate()
        job.ends(workers[1], status=KILLED)
        job.ends(workers[0], status=INTERRUPTED)
        took = time.monotonic() - begin
        assert took < stretched(25), took
        hangs.times = 0
        store.may_go.set()
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


if __name__ == "__main__":
    sys.exit(test_cluster.main(globals(), prepare))
