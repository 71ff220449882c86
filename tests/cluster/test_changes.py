#!/usr/bin/env python3
"""`leat cluster grow|shrink|drain`, Ctrl-C at one worker, and workers that come: the round ends at a checkpoint, and the next one begins with
that. The sinks get what a run that is alone gives them, and no record is processed twice, unless a worker dies meanwhile.

    test_changes.py LEAT [--small] [TEST...]
"""

import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import test_cluster
from test_cluster import FAILED, KILLED, LEAT, USAGE, leat_cluster
from etcd import wait_for
from patience import PATIENCE_S, stretched

ASKED, SOON = "--grow=asked", "--nodes-wait=1s"
SLOW = "run.claimed=sleep:400"  # each micro-batch: the job lasts for several rounds


class Job(test_cluster.Job):
    def start(self, nodes, *flags, failpoints=SLOW, **more):
        return super().start(nodes, *flags, failpoints=failpoints, **more)


def status(job):
    return json.loads(leat_cluster(job, "status", "--json").stdout)


def waits(job, count):
    wait_for("workers that wait", lambda: status(job)["waiting"] == count)


def workers_of(job):
    """Addresses by number, of the round that goes on."""
    found = {member["worker"]: member["address"] for member in status(job)["members"] if member["worker"] is not None}
    return [found[number] for number in sorted(found)]


def rounds(job, logs=None):
    """Of each incarnation: (number of workers, records done when it began, and when it came to a planned end), as its leader said; None: it
    did not say so."""
    found = {}
    for log in logs or job.logs:
        for part in re.split(r"(?=incarnation \d+: \d+ workers; this one)", job.text(log))[1:]:
            number, count, own, leader = map(int, re.match(
                r"incarnation (\d+): (\d+) workers; this one has number (\d+), number (\d+)", part).groups())
            if own == leader:
                begun = re.search(r"resuming from checkpoint \S+ (\d+) records are done", part)
                ended = re.search(r"ended at a checkpoint: (\d+) records are done", part)
                found[number] = (count, int(begun[1]) if begun else 0, int(ended[1]) if ended else None)
    return [found[number] for number in sorted(found)]


def is_undisturbed(job, *counts):
    """Rounds of so many workers followed each other, each with exactly the records with which the one before ended, and no run failed."""
    found = rounds(job)
    assert tuple(count for count, _, _ in found) == counts, found
    for (_, _, ended), (_, begun, _) in zip(found, found[1:]):
        assert ended == begun and ended > 0, found
    for log in job.logs:
        assert "back to the head" not in job.text(log), job.text(log)[-3000:]
    job.is_as_plain()
    found, plain = (figures["micro_batches"] for figures in (job.summary(), test_cluster.FIGURES))
    assert found == plain, f"a change has made a micro-batch of its own: {found}, alone {plain}"


def test_grow_and_shrink():
    """2 to 3, asked for; to 2 again, and who waits then is not taken in by itself; then all."""
    with Job() as job:
        workers = [job.start("2:3", ASKED, SOON) for _ in range(2)]
        job.says(workers[0], "incarnation 1")
        workers.append(job.start("2:3", ASKED))
        waits(job, 1)
        job.says(workers[2], "waiting: a place: 2 workers run the job; this one takes part when `leat cluster grow` asks")
        job.progress(1)
        grown = leat_cluster(job, "grow")
        assert "incarnation 2: 3 workers, after" in grown.stdout and "incarnation 1" in grown.stderr, grown
        job.progress(1)
        shrunk = leat_cluster(job, "shrink", "2")
        assert "incarnation 3: 2 workers" in shrunk.stdout, shrunk
        known = status(job)
        assert known["waiting"] == 1 and known["asked_for"] == 2 and not known["changes"], known
        job.progress(1)
        assert status(job)["waiting"] == 1 and status(job)["incarnation"] == 3
        assert any("2 workers run the job, as many as `leat cluster shrink` has asked for" in job.text(log) for log in job.logs)
        assert "asked for: 2 workers" in leat_cluster(job, "status").stdout
        leat_cluster(job, "grow", "3")
        job.ends(*workers)
        is_undisturbed(job, 2, 3, 2, 3)


def test_a_worker_that_comes():
    """It is taken in by itself. Workers of the round before keep their numbers."""
    with Job() as job:
        workers = [job.start("1:3") for _ in range(3)][:2]
        job.progress(1)
        before = workers_of(job)
        gone = next(p for p in job.processes if "has number 1" in job.text(p.log))
        workers = [p for p in job.processes if p is not gone]
        gone.send_signal(signal.SIGTERM)
        job.ends(gone)
        job.progress(1)
        workers.append(job.start("1:3"))
        job.says(workers[-1], "3 workers; this one has number 2")
        assert workers_of(job)[:2] == [before[0], before[2]]
        job.ends(*workers)
        is_undisturbed(job, 3, 2, 3)


def test_who_comes_differs():
    """With another table than the leader: it is refused while it waits, and no round ends for it. Who has the same one is taken in."""
    with Job() as job:
        job.job, folder = "inputs.leat", test_cluster.make_inputs(f"{job.folder}/first")
        job.command = lambda *flags: [LEAT, "run", job.job, "--quiet", *flags]
        other = test_cluster.make_inputs(f"{job.folder}/other")
        os.rmdir(f"{other}/out")
        os.symlink(f"{folder}/out", f"{other}/out")
        with open(f"{other}/sites.csv", "a", encoding="utf-8") as file:
            file.write("b,there\n")

        def start(where):
            return job.start("1:3", "--nodes-wait=0s", lanes=1, cwd=where, failpoints="run.claimed=sleep:2000", STATE=job.state)
        leader = start(folder)
        job.progress(1)
        late = start(other)
        job.ends(late, status=FAILED)
        text = job.text(late.log)
        assert all(word in text for word in ("E0715", "worker 0 at 127.0.0.1:", "file `sites.csv`, for `lookup` in `named`")), text
        assert "incarnation" not in text and "incarnation 2" not in job.text(leader.log), text
        same = start(folder)
        job.says(same, "resuming from checkpoint")
        leat_cluster(job, "stop")
        job.ends(leader, same)
        assert rounds(job)[0][2] == rounds(job)[1][1] > 0, rounds(job)
        assert not glob.glob(f"{folder}/out/.leat-*")


def test_drain():
    """A worker, by its number, then the one that leads, by its address: both end well, and another one leads. The waiting one ends, too."""
    with Job() as job:
        workers = [job.start("1:3", ASKED) for _ in range(3)]
        job.progress(1)
        leader, others = job.leader(workers)
        drained = leat_cluster(job, "drain", "1")
        assert "incarnation 2: 2 workers" in drained.stdout, drained
        wait_for("its end", lambda: any(process.poll() is not None for process in others))
        second = next(process for process in others if process.poll() is not None)
        assert "left the cluster" in job.text(second.log)
        job.progress(1)
        leat_cluster(job, "drain", workers_of(job)[0])
        job.ends(leader, second)
        rest = next(process for process in others if process is not second)
        job.progress(1)
        late = job.start("1:3", ASKED)
        waits(job, 1)
        leat_cluster(job, "drain", next(m["address"] for m in status(job)["members"] if m["worker"] is None))
        job.ends(late)
        job.ends(rest)
        is_undisturbed(job, 3, 2, 1)


def test_named_ones_wait():
    with Job() as job:
        workers = [job.start("1:3", ASKED) for _ in range(3)]
        job.progress(1)
        before = workers_of(job)
        refused = leat_cluster(job, "shrink", "2", "0", status=FAILED)
        assert "`0` leads" in refused.stderr and "leat cluster drain" in refused.stderr, refused
        leat_cluster(job, "shrink", "2", before[1])
        assert workers_of(job) == [before[0], before[2]]
        job.ends(*workers)
        is_undisturbed(job, 3, 2)


def test_stop_with_a_spare():
    """`leat cluster stop` ends a worker that has become a spare, too: it leads then, for it is the last one, or because the leader has died
    meanwhile. It begins no round; started again the job goes on."""
    for dies in (False, True):
        with Job() as job:
            workers = [job.start("2:3", ASKED) for _ in range(3)]
            job.progress(1)
            leader, others = job.leader(workers)
            leat_cluster(job, "shrink", "2")
            job.progress(1)
            if dies:
                asks = subprocess.Popen([LEAT, "cluster", "stop", f"etcd://{job.etcd.endpoints()}/{job.name}"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                job.processes.append(asks)
                assert "3 workers are to stop" in asks.stderr.readline()
                leader.kill()
                leader.wait()
                job.ends(*others)
                assert asks.wait(timeout=PATIENCE_S) == 0
            else:
                leat_cluster(job, "stop")
                job.ends(*workers)
            assert not re.search("incarnation [3-9]", "".join(job.text(log) for log in job.logs))
            assert status(job)["members"] == []
            job.ends(*[job.start(2, failpoints="") for _ in range(2)])
            job.is_as_plain()


def test_workers_that_are_no_more():
    """The checkpoints of a worker are removed once no head has named them for long (600 s; here 1 s); asked again, such a worker begins
    anew."""
    with Job() as job:
        # Many micro-batches: the job lasts for minutes, and a head, which comes behind 64 of them, does not.
        job.environment = {"LEAT_TEST_STORE_DELAY": "1000", "LEAT_TEST_CUT": "64"}
        workers = [job.start("2:3", ASKED, failpoints="run.claimed=sleep:40") for _ in range(3)]
        job.progress(1)
        assert os.path.exists(f"{job.state}/cluster/worker-2")
        leat_cluster(job, "shrink", "2")
        wait_for("the parts to go", lambda: not os.path.exists(f"{job.state}/cluster/worker-2"))
        assert {number for number, _ in job.heads()} == {2}, job.heads()
        leat_cluster(job, "grow", "3")
        job.progress(1)
        assert os.path.exists(f"{job.state}/cluster/worker-2") and os.path.exists(f"{job.state}/cluster/worker-0")
        leat_cluster(job, "stop")
        job.ends(*workers)
        job.environment = {}
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


def test_ended_meanwhile():
    """Who has asked for workers is told at once where the job ends before these have come."""
    with Job() as job:
        workers = [job.start("2:3", ASKED, SOON) for _ in range(2)]
        job.says(workers[0], "incarnation 1")
        workers.append(job.start("2:3", ASKED))
        waits(job, 1)
        asks = subprocess.Popen([LEAT, "cluster", "grow", f"etcd://{job.etcd.endpoints()}/{job.name}", "3", "--within=5m"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        job.processes.append(asks)
        assert "incarnation 1: 2 workers" in asks.stderr.readline()
        leat_cluster(job, "stop")
        job.ends(*workers)
        said = asks.stderr.read()
        assert asks.wait(timeout=PATIENCE_S) == FAILED and "the job has ended before the workers had changed" in said, said


def test_ctrl_c_of_two():
    """Two of three at once, the leader among them: one change, or two; nothing is executed again."""
    with Job() as job:
        workers = [job.start("1:3", ASKED) for _ in range(3)]
        job.progress(1)
        leader, others = job.leader(workers)
        leader.send_signal(signal.SIGTERM)
        others[0].send_signal(signal.SIGINT)
        job.ends(leader, others[0])
        job.ends(others[1])
        found = rounds(job)
        is_undisturbed(job, *([3, 1] if len(found) == 2 else [3, 2, 1]))


def test_no_checkpoint_in_time():
    """What a worker has promised to leave at does not come within --drain-within: it leaves all the same, and the others go back."""
    with Job() as job:
        workers = [job.start("1:2", ASKED, "--drain-within=1s",
                             failpoints=f"{SLOW},head.write=sleep:{int(stretched(3) * 1000)}@2") for _ in range(2)]
        wait_for("a head", job.heads)
        leader, others = job.leader(workers)
        others[0].send_signal(signal.SIGTERM)
        job.ends(others[0])
        assert "no checkpoint within 1.0 s" in job.text(others[0].log)
        job.says(leader, "back to the head")
        job.ends(leader)
        job.is_as_plain()


def test_another_one_hangs():
    """The leader is to leave, and all is in the head, but another worker stands still, and its lease lasts: the leader leaves in time."""
    with Job(every="1h") as job:  # no other checkpoint is taken
        workers = [job.start("1:2", ASKED, "--drain-within=5s", lease_s=3600, failpoints=f"{SLOW},head.publish=sleep:1000") for _ in range(2)]
        for process in workers:
            job.says(process, "incarnation 1")
        leader, (other,) = job.leader(workers)
        leader.send_signal(signal.SIGTERM)
        wait_for("the last head", lambda: job.heads() or leader.poll() is not None)
        other.send_signal(signal.SIGSTOP)
        job.ends(leader)
        other.send_signal(signal.SIGCONT)
        job.ends(other)
        job.is_as_plain()


def test_killed_meanwhile():
    """The leader, or another one, dies at the last checkpoint of a planned end, at steps around the head: the others go back to the head,
    whichever that is."""
    lasts = "run.claimed=sleep:100"
    for words, victim, point in ((("shrink", "2"), 0, "head.publish"), (("grow",), 0, "head.moved"), (("drain", "0"), 1, "ckpt.published")):
        with Job(every="1h") as job:  # no other checkpoint is taken
            count, workers = 2 if words[0] == "grow" else 3, []
            for number in range(count):
                flags = ("2:3", ASKED, SOON) if count == 2 else ("1:3", ASKED)
                workers.append(job.start(*flags, failpoints=f"{lasts},{point}=kill" if number == victim else lasts))
                wait_for("its place", lambda number=number: number in (0, count - 1) or len(status(job)["members"]) == number + 1)
                job.says(workers[-1], "joined")
            for process in workers:
                job.says(process, "incarnation 1")
            late = job.start("1:3", ASKED)
            waits(job, 1)
            subprocess.run([LEAT, "cluster", words[0], f"etcd://{job.etcd.endpoints()}/{job.name}", *words[1:], "--within=1s"], check=False,
                           capture_output=True)
            assert workers[victim].wait(timeout=PATIENCE_S) == KILLED
            rest = [process for process in workers if process is not workers[victim] and process is not (workers[0] if words == ("drain", "0") else None)]
            job.ends(*rest, late)
            job.is_as_plain()


def test_stopped_meanwhile():
    """The control API is asked to stop the job while a round comes to its planned end: no other round begins."""
    with Job(every="1h") as job:
        workers = [job.start("1:2", ASKED, "--ui=127.0.0.1:0", "--drain-within=1h", failpoints=f"{SLOW},head.publish=sleep:{int(stretched(3) * 1000)}")
                   for _ in range(2)]
        for process in workers:
            job.says(process, "incarnation 1")
        leader, others = job.leader(workers)
        wait_for("rows", lambda: any(os.path.getsize(path) > 0 for path in glob.glob(f"{job.out}/*")))  # both have begun
        others[0].send_signal(signal.SIGTERM)
        wait_for("the change", lambda: status(job)["changes"])
        subprocess.run([LEAT, "ctl", "stop", job.state], check=True, capture_output=True)
        job.ends(others[0], leader)
        assert "incarnation 2" not in job.text(leader.log) and not job.summary()["finished"], job.text(leader.log)


def test_another_version():
    """It is refused while workers of the old one are there, and goes on from the head when they were stopped: no record is done twice."""
    with Job() as job:
        workers = [job.start("1:2", ASKED) for _ in range(2)]
        job.progress(1)
        test_cluster.refused(job, ["E0713", "expected the version of leat", "found `99`", "leat cluster stop"], LEAT_TEST_VERSION="99")
        begin = time.monotonic()
        leat_cluster(job, "stop")
        job.ends(*workers)
        done = job.summary()["records"]
        workers = [job.start("1:2", ASKED, LEAT_TEST_VERSION="99") for _ in range(2)]
        for process in workers:
            job.says(process, "resuming from checkpoint")
        print(f"# another version: {time.monotonic() - begin:.1f} s from `leat cluster stop` until it goes on")
        assert any("goes on with version 99 of leat, after " in job.text(process.log) for process in workers)
        job.ends(*workers)
        assert rounds(job)[1][1] == done > 0, rounds(job)
        job.is_as_plain()


def test_two_ask():
    """While a request has not been taken up, for the leader stands still, another one is refused, and told whose that is."""
    with Job() as job:
        workers = [job.start("2:3", ASKED, SOON, lease_s=3600) for _ in range(2)]
        job.says(workers[0], "incarnation 1")
        job.progress(1)
        workers.append(job.start("2:3", ASKED, lease_s=3600))
        waits(job, 1)
        leader, _ = job.leader(workers[:2])
        leader.send_signal(signal.SIGSTOP)
        first = subprocess.Popen([LEAT, "cluster", "grow", f"etcd://{job.etcd.endpoints()}/{job.name}", "3"], stdout=subprocess.PIPE, text=True)
        job.processes.append(first)
        wait_for("the request", lambda: status(job)["asked_for"] == 3)
        by = f"`leat cluster grow 3`, pid {first.pid} on {socket.gethostname()}"
        assert status(job)["asked_by"] == by
        for words in (("grow",), ("drain", "1")):
            refused = leat_cluster(job, *words, status=FAILED)
            assert "E0716" in refused.stderr and by in refused.stderr and "hint" in refused.stderr, refused
        leader.send_signal(signal.SIGCONT)
        assert "incarnation 2: 3 workers" in first.communicate(timeout=PATIENCE_S)[0] and first.returncode == 0
        job.ends(*workers)
        is_undisturbed(job, 2, 3)


def test_refused():
    with Job() as job:
        for words in (("shrink",), ("drain",), ("grow", "none"), ("drain", "1", "2"), ("turn",)):
            assert "usage" in leat_cluster(job, *words, status=USAGE).stderr.lower()
        assert "E0714" in leat_cluster(job, "grow", status=FAILED).stderr
        workers = [job.start("2:3", ASKED, SOON) for _ in range(2)]
        job.progress(1)
        for words, said in ((("grow", "9"), "expected 3 to 3 workers, found 9"), (("grow", "2"), "expected 3 to 3 workers, found 2"),
                            (("grow", "3"), "expected workers that wait, found none"),
                            (("shrink", "1"), "at least 2, found 1"), (("shrink", "2"), "fewer than the 2"),
                            (("drain", "7"), "found `7`"), (("drain", "127.0.0.1:1"), "found `127.0.0.1:1`"),
                            (("drain", "1"), "at least 2 workers that are left (--nodes), found 1")):
            refused = leat_cluster(job, *words, status=FAILED)
            assert "E0716" in refused.stderr and said in refused.stderr and "hint" in refused.stderr, refused
        workers.append(job.start("2:3", ASKED))
        waits(job, 1)
        time.sleep(stretched(2.5))
        known = status(job)
        assert known["incarnation"] == 1 and known["waiting"] == 1 and not known["changes"], "nobody has asked"
        leat_cluster(job, "stop")
        job.ends(*workers)
        assert "expected a job that runs" in leat_cluster(job, "grow", status=FAILED).stderr


if __name__ == "__main__":
    sys.exit(test_cluster.main(globals()))
