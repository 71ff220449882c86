#!/usr/bin/env python3
"""`leat cluster rebalance` and `move`: key groups and parts with one instance go to other workers, as somebody asks. No row depends on it, and
nothing is executed twice.

    test_moves.py LEAT [--small] [TEST...]
"""

import json
import re
import signal
import subprocess
import sys
import time

import test_changes
import test_cluster
from test_changes import ASKED, is_undisturbed, status
from test_cluster import FAILED, FOLDER, IS_SMALL, LEAT, USAGE, ZIPF, leat_cluster
from etcd import wait_for
from patience import PATIENCE_S, stretched

LASTS = "run.claimed=sleep:20"
# A learner with tables, whose rows need a database of its own; what it says goes to a file, as do its predictions.
LEARNER = """
param data: text = ""
param out: text = ""
param state: text = ""
param every: duration = 10s
job learns { memory: 32MiB, checkpoint: { every: every, dir: state } }
source rows = sequence { count: COUNT, keys: 3000, skew: 1.1, rate: 1000.0, event_time: ts }
learner m = fm from rows { label: value > 0.5, sparse: [key], dense: [id], embedding: { dim: 4, rows_max: 1024 }, metrics_every: 1000 }
learner other = linear from rows { label: value > 0.7, sparse: [key], dense: [id] }
stream some = m.predictions | where hash_mod(id, 50) == 0
sink some = file from some { path: concat(out, "/some.jsonl") }
sink told = null from other.predictions
"""


def make(job, text, count):
    """The job's file, and what a run that is alone makes of it: its files and its summary."""
    job.job = f"{job.folder}/job.leat"
    with open(job.job, "w", encoding="utf-8") as file:
        file.write(text.replace("COUNT", str(count)))
    plain = json.loads(subprocess.run(job.command("--json", f"--set=state={job.folder}/plain"), check=True, stdout=subprocess.PIPE,
                                      text=True).stdout)
    files = test_cluster.sinks(job.out)
    for name in files:
        subprocess.run(["rm", f"{job.out}/{name}"], check=True)
    return files, plain


def is_same(job, files, plain):
    summary = job.summary()
    assert test_cluster.sinks(job.out) == files
    for node, other in zip(summary["nodes"], plain["nodes"]):
        assert node["part"] == other["part"] and node["counts"] == other["counts"] and node["note"] == other["note"], (node, other)
    return summary


def places(job):
    """The worker of each part that has one instance."""
    return {part: place["worker"] for place in status(job)["places"] for part in place["parts"].split(", ")}


def test_rebalance():
    """With --balance=asked nothing moves by itself; asked, groups move until lanes have about as much work; then there is nothing to
    mend."""
    with test_cluster.Job() as job:
        files, plain = make(job, ZIPF, 600000 if IS_SMALL else 4000000)
        workers = [job.start(2, "--balance=asked", lanes=4, failpoints=LASTS) for _ in range(2)]
        job.progress(4)
        done = leat_cluster(job, "rebalance", "--within=1h")
        found = re.match(r"moved (\d+) key groups, with about ([\d.]+) MiB of state, in (\d+) changes and [\d.]+ s: the busiest lane had "
                         r"([\d.]+) times the mean load, and has ([\d.]+)", done.stdout)
        assert found and float(found[2]) > 0 and float(found[4]) > 1.1 >= float(found[5]), done
        assert f"change {found[3]}: {found[1]} key groups so far" in done.stderr, done
        second = leat_cluster(job, "rebalance", "--within=1h")
        assert "nothing to mend: the busiest lane has 1.0" in second.stdout or "moved " in second.stdout, second
        moved = int(found[1]) + int((re.match(r"moved (\d+)", second.stdout) or [0, 0])[1])
        job.ends(*workers)
        assert is_same(job, files, plain)["moved_groups"] == moved


def test_move_groups():
    """All of a worker's groups, a tenth of the state with a change; asked again, they are there."""
    with test_cluster.Job() as job:
        files, plain = make(job, ZIPF, 400000 if IS_SMALL else 2000000)
        workers = [job.start(2, "--balance=asked", lanes=2, failpoints=LASTS) for _ in range(2)]
        job.progress(2)
        done = leat_cluster(job, "move", "0-199, 300", "--to=1", "--within=1h")
        found = re.match(r"moved 201 key groups, with about [\d.]+ MiB of state, in (\d+) changes", done.stdout)
        assert found and 2 < int(found[1]) <= 30, done
        assert "are there already" in leat_cluster(job, "move", "0-100", f"--to={test_changes.workers_of(job)[1]}", "--within=1h").stdout
        job.ends(*workers)
        assert is_same(job, files, plain)["moved_groups"] == 201


def test_move_a_learner():
    """Two learners begin on different workers. One goes to the other's, with the sink behind it, and then the other one goes by
    its sink's name, each at a checkpoint; they stay there when a worker is killed and comes back."""
    with test_changes.Job(every="200ms") as job:
        files, plain = make(job, LEARNER, 500000)
        workers = [job.start("2:3", ASKED, "--nodes-wait=1s") for _ in range(2)]
        job.progress(1)
        begun = places(job)
        assert begun["m"] != begun["other"] and set(begun.values()) == {0, 1}, begun
        to = begun["other"]
        done = leat_cluster(job, "move", "m", f"--to={to}", "--within=1h")
        assert "incarnation 2: m is at 127.0.0." in done.stdout and "incarnation 1 ends at a checkpoint" in done.stderr, done
        assert places(job) == {part: to if worker == begun["m"] else worker for part, worker in begun.items()}, (begun, places(job))
        assert "m is there already" in leat_cluster(job, "move", "m", f"--to={to}", "--within=1h").stdout
        done = leat_cluster(job, "move", "told", f"--to={1 - to}", "--within=1h")
        assert "incarnation 3: told is at" in done.stdout and places(job)["other"] == 1 - to, done
        job.progress(1)
        before = places(job)
        for log in job.logs:
            assert "back to the head" not in job.text(log)
        found = [entry for entry in test_changes.rounds(job) if entry[2] is not None]
        assert len(found) == 2 and all(ended > 0 for _, _, ended in found), found
        _, others = job.leader(workers)
        others[0].kill()
        others[0].wait()
        workers.remove(others[0])
        workers.append(job.start("2:3", ASKED))
        job.says(workers[-1], "this one has number")
        job.progress(1)
        assert places(job) == before, (before, places(job))
        leat_cluster(job, "stop")
        job.ends(*workers)
        workers = [job.start("2:3", ASKED, "--nodes-wait=1s", failpoints="") for _ in range(2)]
        job.says(workers[1], "this one has number")
        job.ends(*workers)
        is_same(job, files, plain)


def test_two_parts():
    """While a part that was asked to move is not taken up, for the leader stands still, nothing else is asked, and who asks is told whose
    turn it is; then the part moves."""
    with test_changes.Job(every="200ms") as job:
        make(job, LEARNER, 500000)
        workers = [job.start(2, ASKED, lease_s=3600) for _ in range(2)]
        job.progress(1)
        to = places(job)["other"]
        assert places(job)["m"] != to
        leader, _ = job.leader(workers)
        leader.send_signal(signal.SIGSTOP)
        command = [LEAT, "cluster", "move", f"etcd://{job.etcd.endpoints()}/{job.name}", "m", f"--to={to}", "--within=1h"]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        job.processes.append(first)
        assert first.stderr.readline().startswith("asked; the leader has not answered")
        for words in (("move", "told", f"--to={1 - to}"), ("move", "0", f"--to={to}"), ("rebalance",)):
            refused = leat_cluster(job, *words, "--within=0s", status=FAILED)
            assert "E0716" in refused.stderr and "`m` was asked to move to 127.0.0.1" in refused.stderr and "hint" in refused.stderr, refused
        leader.send_signal(signal.SIGCONT)
        said, errors = first.communicate(timeout=PATIENCE_S)
        assert "m is at 127.0.0.1" in said and first.returncode == 0, (said, errors)
        assert places(job)["m"] == to
        for process in workers:
            process.kill()


def test_moved_meanwhile():
    """The leader dies when the round ends for a move: the next leader begins a round with it."""
    with test_changes.Job(every="1h") as job:
        files, plain = make(job, LEARNER, 300000)  # many more micro-batches than are on their way at a time: the input has not ended
        workers = []
        for number in range(3):
            points = "run.claimed=sleep:60,head.moved=kill" if number == 0 else ""
            workers.append(job.start("2:3", ASKED, "--nodes-wait=1h", failpoints=points))
            job.says(workers[-1], "joined")
        for process in workers:
            job.says(process, "incarnation 1")
        wait_for("a record", lambda: status(job)["runs"])
        to = next(number for number in (1, 2) if number != places(job)["m"])
        address = test_changes.workers_of(job)[to]
        job.says(workers[1], "incarnation 1: 3 workers")
        leat_cluster(job, "move", "m", f"--to={address}", "--within=1h")
        assert workers[0].wait() == -signal.SIGKILL
        assert test_changes.workers_of(job)[places(job)["m"]] == address
        job.ends(*workers[1:])
        assert test_cluster.sinks(job.out) == files


def test_refused():
    with test_cluster.Job() as job:
        for words in (("move",), ("move", "0-71"), ("move", "0-71", "1", "--to=1"), ("rebalance", "now"), ("rebalance", "--to=1"), ("grow", "--to=1")):
            assert "usage" in leat_cluster(job, *words, status=USAGE).stderr.lower(), words
        assert "E0714" in leat_cluster(job, "rebalance", status=FAILED).stderr
        workers = [job.start("2:3", ASKED, "--nodes-wait=1s", "--balance=no") for _ in range(2)]
        job.progress(1)
        late = job.start("2:3", ASKED, "--balance=no")
        test_changes.waits(job, 1)
        spare = next(member["address"] for member in status(job)["members"] if member["worker"] is None)
        for words, said in ((("rebalance",), "key groups cannot move in this job: the workers were started with --balance=no"),
                            (("move", "0-71", "--to=1"), "started with --balance=no"),
                            (("move", "0-720", "--to=1"), "found `0-720`"), (("move", "5,4-6", "--to=1"), "found `5,4-6`"),
                            (("move", "0", "--to=7"), "expected the number or address of a worker, found `7`"),
                            (("move", "0", f"--to={spare}"), "waits"),
                            (("move", "features/dedup", "--to=1"), "one instance (sink/examples, sink/hourly, sink/late, sink/dead), found"),
                            (("move", "nothing", "--to=1"), "found `nothing`")):
            refused = leat_cluster(job, *words, status=FAILED)
            assert "E0716" in refused.stderr and said in refused.stderr and "hint" in refused.stderr, (words, refused)
        assert status(job)["incarnation"] == 1
        leat_cluster(job, "stop")
        job.ends(*workers, late)
        assert "expected a job that runs" in leat_cluster(job, "rebalance", status=FAILED).stderr
        assert "--cluster" in subprocess.run([LEAT, "run", job.job, "--balance=asked"], capture_output=True, text=True, check=False).stderr


def test_ctrl_c():
    """Who waits no longer leaves what was asked for; a later request takes its place; too few rows, and one that comes too late, say so."""
    with test_cluster.Job(every="1h") as job:
        make(job, ZIPF, 300000)
        workers = [job.start(2, "--balance=asked", lanes=1, failpoints="run.claimed=sleep:1000") for _ in range(2)]
        for process in workers:
            job.says(process, "incarnation 1")
        wait_for("its round", lambda: status(job)["runs"])
        command = [LEAT, "cluster", "rebalance", f"etcd://{job.etcd.endpoints()}/{job.name}", "--within=1h"]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert first.stderr.readline().startswith(("asked", "the leader begins"))
        late = leat_cluster(job, "rebalance", "--within=0s", status=FAILED)
        assert "E0716" in late.stderr and "within 0 s" in late.stderr, late
        assert first.wait() == FAILED and "somebody else has asked for another move" in first.stderr.read()
        third = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert third.stderr.readline().startswith(("asked", "the leader begins"))
        third.send_signal(signal.SIGINT)
        assert "not waiting for that" in third.communicate()[0] and third.returncode == 0
        for process in workers:
            process.kill()


if __name__ == "__main__":
    sys.exit(test_cluster.main(globals()))
