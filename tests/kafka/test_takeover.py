#!/usr/bin/env python3
"""Two processes and one sink: a sleeper whose directory is taken over and who wakes, a job that is started twice, with two
directories or with a copy of one, and two deployments of one job file. Prints TAP.

    tests/kafka/test_takeover.py PATH_OF_LEAT [--moments N] [--seed N]
"""

import argparse
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

sys.path.insert(2, os.path.join(rig.install.ROOT, "tests", "crash"))
from takeover import WAKES, is_stopped  # noqa: E402

FENCED = 4
MOMENTS = 20  # of the test; `./dev soak takeover` has more

_cases, _making = {}, threading.Lock()


def live_case():
    with _making:
        if "live" not in _cases:
            _cases["live"] = oracle.Case(rig.shared(), is_live=True)
            _cases["live"].undisturbed()
        return _cases["live"]


# --- a sleeper


class Sleeper:
    """A job whose first process sleeps at a failpoint, or at some moment, and whose second one takes over."""

    def __init__(self, case, point, wake, rng):
        self.job, self.point, self.wake, self.rng = case.job(rate=5000), point, wake, rng
        self.passages = rng.randrange(1, 4)

    def fall_asleep(self, process):
        """Whether it sleeps where it should: it may come to the end of the topic before."""
        deadline = time.monotonic() + rig.PATIENCE_S
        moment = None
        while time.monotonic() < deadline and process.poll() is None:
            if self.point is None and len(self.job.checkpoints()) >= 2:
                moment = moment or time.monotonic() + self.rng.random() * 1.5
                if time.monotonic() >= moment:
                    process.send_signal(signal.SIGSTOP)
            if is_stopped(process):
                if self.point is None or len(self.job.checkpoints()) >= 1:
                    self.passages -= 1
                if self.point is None or self.passages < 0 or self.point.startswith("restore"):
                    return True
                process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
            if self.job.count_out() >= self.job.case.rows:
                return False
        return False

    def run(self):
        """Whether it came to its moment."""
        job = self.job
        if self.point and self.point.startswith("restore"):
            job.run(failpoints="ckpt.published=kill@3")
        sleeper = job.start(failpoints=f"{self.point}=stop" if self.point else "")
        try:
            if not self.fall_asleep(sleeper):
                return False
            before = set(job.checkpoints())
            heir = job.start("--take-over")
            try:
                self.wait_to_wake(heir, before)
                self.stay_awake(sleeper, heir)
                job.finish(process=heir)
            finally:
                heir.kill()
        finally:
            sleeper.kill()
        job.check()
        job.close()
        return True

    def wait_to_wake(self, heir, before):
        """lock: as soon as the heir has it, before it has seen Kafka; checkpoint: when it is at work; end: when all is out.
        The heir's checkpoint is a new name, for their number does not grow beyond `keep`; nothing left to read makes none."""
        begun = time.monotonic()
        if self.wake == "lock":
            rig.wait_for(lambda: heir.poll() is not None or self.job.lock_is_of(heir), "the heir's lock")
        elif self.wake == "checkpoint":
            rig.wait_for(lambda: heir.poll() is not None or set(self.job.checkpoints()) - before or self.all_is_out(), "the heir's checkpoint")
        else:
            rig.wait_for(lambda: heir.poll() is not None or self.all_is_out(), "all rows", 90)
        assert heir.poll() is None, (time.monotonic() - begun, self.job.end(heir))

    def all_is_out(self):
        return self.job.count_out() >= len(self.job.case.expected())

    def stay_awake(self, sleeper, heir):
        """Until it has ended, which failpoints hold up."""
        said = {}
        reader = threading.Thread(target=lambda: said.update(zip(("out", "err"), sleeper.communicate())))
        reader.start()
        deadline = time.monotonic() + rig.PATIENCE_S
        while reader.is_alive():
            assert time.monotonic() < deadline, "the sleeper does not end"
            if is_stopped(sleeper):
                sleeper.send_signal(signal.SIGCONT)
            time.sleep(0.002)
        assert sleeper.returncode == FENCED and "E0709" in said["err"] and f"pid {heir.pid} on" in said["err"], (
            sleeper.returncode, said["err"][-1500:])


def sleepers(moments, seed):
    """Each failpoint and as many random moments; a few lives at once, for they mostly wait."""
    case, rng = live_case(), random.Random(seed)
    points = oracle.points() + [None] * 8
    rng.shuffle(points)
    chosen = [(points[i % len(points)], WAKES[(i + seed) % len(WAKES)]) for i in range(moments)]
    wrong, reached = [], []

    def one(place):
        point, wake = chosen[place]
        name = f"{point or 'a random moment'} ({wake})"
        try:
            if Sleeper(case, point, wake, random.Random(seed * 1000 + place)).run():
                reached.append(name)
        except Exception as failure:  # pylint: disable=broad-except
            wrong.append(f"asleep at {name}: {failure!r}"[:1500])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(moments)))
    print(f"# {len(reached)} of {moments} moments: {', '.join(sorted(reached))}", flush=True)
    assert not wrong, (len(wrong), wrong)
    assert len(reached) >= moments * 3 // 4, (len(reached), moments)


def test_sleepers():
    sleepers(ARGUMENTS.moments, ARGUMENTS.seed)


# --- two directories


def ended_job(**options):
    return oracle.Case(rig.shared(), rows=6000).job(**options)


def test_a_second_directory():
    """The job is started with an empty directory where a run has sent rows: refused before anything is sent."""
    job = ended_job()
    job.finish()
    count = len(job.kafka.consume(job.topic))  # also those whose transaction ends a little later
    shutil.rmtree(job.state)
    said = job.refused("E0707", "another run of this job (", "last epoch ", f"already wrote to topic `{job.topic}`", "--fresh")
    assert re.search(r"another run of this job \([0-9a-f]{8}, last epoch \d+, 20\d\d-\d\d-\d\dT[0-9:.]+Z\)", said), said
    assert len(job.out()) == count, "rows went out all the same"
    # A start that was refused leaves nothing that the next one would go on from.
    job.refused("E0707", "already wrote to topic")
    process = job.start("--fresh", failpoints="kafka.committed=stop@1")
    rig.wait_for(lambda: is_stopped(process) or process.poll() is not None, "the new run's first checkpoint")
    os.set_blocking(process.stderr.fileno(), False)
    early = process.stderr.read()
    assert "warning[E0707]" in early and "already wrote to topic" in early, f"said too late: {early}"
    process.send_signal(signal.SIGCONT)
    status, _, err = job.end(process)
    assert status == 0, err
    assert len(job.out()) == 2 * count
    job.close()


def test_fresh_under_a_supervisor():
    """--fresh holds until the first checkpoint: a life that dies before is not refused when it is started again."""
    job = ended_job()
    job.finish()
    process = job.start("--fresh", "--supervise", failpoints="ckpt.pre_rename=exit@1")
    _, _, err = job.end(process)
    assert err.count("warning[E0707]") >= 2 and "error[E0707]" not in err and "giving up" in err, err
    job.close()


def test_two_deployments_of_one_job():
    """Same job, same sink, same brokers; topics and directories of their own: neither fences the other."""
    case = live_case()
    first, second = case.job(rate=4000), case.job(rate=4000)
    second.write(second.text.replace(f"job {second.name} ", f"job {first.name} "))
    processes = [first.start(), second.start()]
    for job, process in zip((first, second), processes):
        status, job.summary, err = job.last_of(process)
        assert status == 0 and "fenced" not in err and "trying again" not in err, (status, err[-1500:])
        job.check()
        sink = next(node for node in job.summary["nodes"] if node["tag"] == "sink")
        assert sink["report"]["run"]["transactions_aborted"] == 0, sink
        job.close()


def copied(job):
    """A job with a copy of the other's directory, for the same topics."""
    copy = job.case.job(rate=3000)
    save = copy.at("save")  # whole, whatever is pruned meanwhile
    subprocess.run([oracle.LEAT, "checkpoint", "save", job.state, "--to", save], check=True, capture_output=True)
    subprocess.run([oracle.LEAT, "checkpoint", "restore", save, "--to", copy.state], check=True, capture_output=True)
    copy.write(job.text.replace(job.state, copy.state))
    copy.topic, copy.progress, copy.name = job.topic, job.progress, job.name
    return copy


def test_an_old_copy_of_the_directory():
    """The run has gone on since: the copy is refused, and the process that is at work does not notice."""
    job = live_case().job(rate=3000)
    process = job.start()
    job.wait_checkpoints(process, 3)
    copy = copied(job)
    job.wait_rows(process, 6000)
    copy.refused("E0707", "ends before micro-batch", "old copy")
    job.finish(process=process)
    job.check()
    job.close()
    copy.close()


def test_a_new_copy_of_the_directory():
    """A run has one process: the second fences the first, which says so and stays away, supervised or not."""
    job = live_case().job(rate=3000)
    process = job.start("--supervise")
    job.wait_checkpoints(process, 3)
    job.wait_rows(process, 500)
    child = int(subprocess.run(["pgrep", "-P", str(process.pid)], check=True, capture_output=True, text=True).stdout)
    os.kill(child, signal.SIGSTOP)
    copy = copied(job)
    heir = copy.start()
    rig.wait_for(lambda: copy.checkpoints()[-1:] != [] and "gen-000002" in copy.checkpoints()[-1] or heir.poll() is not None, "the heir")
    os.kill(child, signal.SIGCONT)
    status, _, err = job.end(process)
    assert status == FENCED and "E0709" in err, (status, err[-2000:])
    assert f"process {heir.pid}" in err and f"process {child}" in err and "restarting from the newest checkpoint" not in err, err[-2000:]
    copy.finish(process=heir)
    copy.check()
    copy.close()
    job.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("leat")
    parser.add_argument("--moments", type=int, default=MOMENTS)
    parser.add_argument("--seed", type=int, default=1)
    ARGUMENTS = parser.parse_args()
    sys.exit(rig.run(globals(), threads=3))
