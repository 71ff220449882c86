#!/usr/bin/env python3
"""Checkpoints in an object store, and a sink's transactions: what is out while the store is away, and what comes after the disk
is lost. Prints TAP."""

import os
import shutil
import signal
import subprocess
import sys

import oracle
import rig


class Store:
    """A directory as a store. `away`: a file in its place."""

    def __init__(self, job):
        self.path, self.kept = job.at("store"), job.at("store.kept")

    def leave(self):
        if os.path.isdir(self.path):
            os.rename(self.path, self.kept)
        with open(self.path, "w", encoding="utf-8"):
            pass

    def come(self):
        os.unlink(self.path)
        if os.path.isdir(self.kept):
            os.rename(self.kept, self.path)


def job_with_store(case, more, **options):
    job = case.job(**options)
    job.write(job.text.replace("keep: { last: 5 }", f'keep: {{ last: 5 }}, store: "file:{job.at("store")}"{more}'))
    return job, Store(job)


def killed_at(job, process, condition):
    rig.wait_for(lambda: condition() or process.poll() is not None, "the moment to kill")
    process.kill()
    assert process.wait() == -signal.SIGKILL, job.end(process)


def test_transactions_wait_for_the_store():
    """While the store is away nothing is out, also after a restart that finds checkpoints on the disk. The outbox holds what waits;
    once it is full the sources wait. When the store is back all comes out, once."""
    case = oracle.Case(rig.shared())
    job, store = job_with_store(case, ", commit: store", outbox="60MiB", rate=5000)
    store.leave()
    for life in (1, 2):
        killed_at(job, job.start(), lambda: sum(f"gen-{life:06}" in path for path in job.checkpoints()) >= 2)
        assert not case.kafka.consume(job.topic, beside_open=True), life
    job.write(job.text.replace("60MiB", "1MiB").replace(", max_rate: 5000", ""))
    process = job.start()
    said = next((line for line in process.stderr if "sinks commit nothing" in line), None)
    assert said is not None and "E0710" in said, job.end(process)
    store.come()
    job.finish(process=process)
    job.check()
    job.close()


def heads(job, path=None):
    """Epochs that the store has."""
    folder = os.path.join(path or job.at("store"), "heads")
    return sorted(int(name.split("-")[1]) for name in os.listdir(folder)) if os.path.isdir(folder) else []


def newest(job):
    return max((int(os.path.basename(path)[5:]) for path in job.checkpoints()), default=0)


def behind(case, rows_more=1500):
    """A life whose store goes away after its first head; one that is killed with epochs that no transaction has sent; and one that
    goes on until the store is five epochs or more behind, and so many more rows are out, and is killed."""
    job, store = job_with_store(case, "", rate=3000)
    process = job.start()
    rig.wait_for(lambda: process.poll() is not None or heads(job), "the first head")
    store.leave()
    stored = heads(job, store.kept)[-1]
    killed_at(job, process, lambda: newest(job) >= stored + 2)
    status, _, err = job.run(failpoints="kafka.begin=kill@15")  # each of three shards passes it twice at the start
    assert status == -signal.SIGKILL, (status, err)
    process, rows = job.start(), len(job.out())
    job.wait_rows(process, rows + rows_more)
    killed_at(job, process, lambda: newest(job) >= stored + 5)
    store.come()
    assert newest(job) >= heads(job)[-1] + 5, (newest(job), heads(job))
    return job


def restore(job):
    shutil.rmtree(job.state)
    result = subprocess.run([oracle.LEAT, "checkpoint", "restore", f"file:{job.at('store')}", "--to", job.state],
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_lost_directory():
    """The store is five epochs behind what is out, and the directory is lost: the same micro-batches again, and each row once;
    also where the life that goes on is killed before its own first checkpoint, and later once more with its directory."""
    case = oracle.Case(rig.shared())
    job = behind(case)
    out = len(job.out())
    restore(job)
    for kill in ("restore.end=kill@1", "ckpt.pre_rename=kill@1", "kafka.commit.after=kill@9"):
        status, _, err = job.run(failpoints=kill)
        assert status == -signal.SIGKILL, (kill, status, err)
        assert len(job.out()) >= out, kill
    status, summary, err = job.run()
    assert status == 0, err[-3000:]
    job.summary = summary
    job.check()
    job.close()


def test_lost_directory_live():
    """The same of a live job, whose micro-batches nobody could form again without the order log that its sink noted."""
    case = oracle.Case(rig.shared(), is_live=True)
    job = behind(case)
    restore(job)
    status, job.summary, err = job.last_of(job.start())
    assert status == 0 and "are executed again by the order log" in err, err[-3000:]
    job.check()
    job.close()


def test_old_copy_is_refused():
    """A copy of the directory, which was not restored from a store, has not what was sent since: as ever."""
    case = oracle.Case(rig.shared())
    job, _ = job_with_store(case, "", rate=3000)
    process = job.start()
    job.wait_checkpoints(process, 2)
    shutil.copytree(job.state, job.at("copy"), ignore_dangling_symlinks=True)
    job.wait_rows(process, len(job.out()) + 3000)
    process.kill()
    process.wait()
    shutil.rmtree(job.state)
    os.rename(job.at("copy"), job.state)
    job.refused("E0707", "old copy")
    job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
