#!/usr/bin/env python3
"""`leat run --cluster`: processes that run one job together, with a real etcd, killed and stopped and cut off. Whatever happens, the
files of the job's sinks are those of a run that is alone, byte for byte, and its counters are, in the summary of the worker that leads.

    test_cluster.py LEAT [--small] [TEST...]

--small: fewer rows, for a program with sanitizers.
"""

import base64
import contextlib
import glob
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import etcd
from etcd import wait_for

sys.path[:0] = [TESTS := os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.join(TESTS, "clock")]
import jumps  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

LEAT = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
IS_SMALL, CHOSEN = "--small" in sys.argv, [word for word in sys.argv[2:] if word != "--small"]
JOB = os.path.abspath("tests/crash/features.leat")
FOLDER = tempfile.TemporaryDirectory(prefix="leat-workers-")
NAMES = iter(range(10**9))
IMPRESSIONS = 40000 if IS_SMALL else 240000
SLOW = "run.claimed=sleep:40"  # each micro-batch, so that the job lasts
ENDED, FAILED, USAGE, INTERRUPTED, KILLED = 0, 1, 2, 130, -signal.SIGKILL
ETCD = []


def make_data(folder):
    os.makedirs(folder)
    r, ts = random.Random(3), 1700000000000
    with open(f"{folder}/impressions.jsonl", "w", encoding="utf-8") as rows, \
            open(f"{folder}/clicks.jsonl", "w", encoding="utf-8") as clicks:
        for i in range(IMPRESSIONS):
            ts += r.randrange(2000)
            row = {"imp_id": i - (r.random() < .05), "ts": ts, "user": r.randrange(3000), "item": r.randrange(500),
                   "site": r.choice("abcdef"), "cat": r.choice("xyz"), "price": round(3 * r.random(), 3), "pos": r.random()}
            rows.write(json.dumps(row) + "\n")
            if r.random() < .2:
                clicks.write(json.dumps({"imp_id": i, "ts": ts + r.randrange(600000), "item": row["item"]}) + "\n")


def sinks(folder):
    """What all sinks wrote, by file name."""
    found = {}
    for path in sorted(glob.glob(f"{folder}/*")):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


class Job:
    """One job of the cluster `name`, and the processes that were started for it. Use it in a `with`."""

    def __init__(self, servers=None, job=JOB, every="100ms"):
        self.etcd, self.job, self.every = servers or ETCD[0], job, every
        self.name = f"c{next(NAMES)}"
        self.folder = os.path.join(FOLDER.name, self.name)
        self.out, self.state = f"{self.folder}/out", f"{self.folder}/state"
        os.makedirs(self.out)
        self.environment, self.processes, self.logs, self.ended = {}, [], [], []  # ended: those with which `ends` was called last

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if kind is not None:
            for log in self.logs:
                print(f"# --- {log}\n# " + self.text(log)[-3000:].replace("\n", "\n# "))

    def command(self, *flags):
        return [LEAT, "run", self.job, f"--set=data={FOLDER.name}/data", f"--set=out={self.out}", f"--set=state={self.state}",
                f"--set=every={self.every}", "--quiet", *flags]

    def start(self, nodes, *flags, lanes=2, failpoints=SLOW, name=None, form="--json", lease_s=None, place=None, cwd=None, **environment):
        """Starts a worker, and returns its process. lease_s: None: as long as the machine's load needs. place: where it runs
        (network.py); None: at 127.0.0.1. cwd: its directory. environment: more of it."""
        log = f"{self.folder}/worker{len(self.processes)}.log"
        cluster = [f"--cluster=etcd://{self.etcd.endpoints()}/{name or self.name}", f"--nodes={nodes}",
                   f"--listen={place.address if place else '127.0.0.1'}:0",
                   f"--workers={lanes}", "--nodes-wait=1h", f"--lease={lease_s or math.ceil(stretched(2))}s",
                   *([form] if form else []), *flags]
        environment = {**os.environ, "LEAT_FAILPOINTS": failpoints, **self.environment, **environment}
        with open(log, "wb") as file, open(f"{log}.out", "wb") as out:
            process = subprocess.Popen([*(place.prefix if place else []), *self.command(*cluster)], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=file, env=environment, cwd=cwd,
                                       preexec_fn=lambda: etcd.LIBC.prctl(etcd.DIE_WITH_PARENT, signal.SIGKILL))
        process.log, process.place = log, place
        self.processes.append(process)
        self.logs.append(log)
        return process

    @staticmethod
    def text(log):
        with open(log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def says(self, process, words, times=1):
        def look():
            text = self.text(process.log)
            assert process.poll() is None or text.count(words) >= times, f"it ended with {process.returncode} before it said: {words}"
            return text.count(words) >= times
        wait_for(f"`{words}` of a worker", look)

    def heads(self):
        """(incarnation, epoch) of all manifests."""
        return sorted(tuple(map(int, os.path.basename(path).split("-")[1:])) for path in glob.glob(f"{self.state}/cluster/heads/head-*")
                      if ".tmp" not in path)

    def progress(self, heads=2):
        """Waits for so many more heads."""
        seen = self.heads()

        def look():
            lives = any(process.poll() is None for process in self.processes)
            are_there = len(set(self.heads()) - set(seen)) >= heads
            assert lives, "the job has ended: it is too short for this test"
            return are_there
        wait_for("heads", look)

    def leader(self, processes):
        """The process that leads the newest incarnation, and the others."""
        found = [process for process in processes
                 if re.search(r"has number (\d+), number \1 at", self.text(process.log).rsplit("incarnation ", 1)[-1])]
        assert len(found) == 1, [self.text(process.log) for process in processes]
        return found[0], [process for process in processes if process is not found[0]]

    def ends(self, *processes, status=ENDED):
        for process in processes:
            assert process.wait(timeout=PATIENCE_S) == status, f"status {process.returncode}: {self.text(process.log)[-3000:]}"
        self.ended = processes

    def summary(self):
        """The job's: of one of the workers that have ended; the others say that it has it, but for those without work."""
        told = [json.loads(self.text(f"{process.log}.out")) for process in self.ended
                if "there is no work for this worker" not in self.text(process.log)]
        whole, parts = [one for one in told if "nodes" in one], [one for one in told if "nodes" not in one]
        assert len(whole) == 1 and whole[0].get("workers", 1) == len(told), told
        for part in parts:
            assert part["is_part"] and part["good"] and part["workers"] == len(told), part
            assert part["worker"] != part["leader"] and part["leader_address"].startswith(("127.0.0.", "10.")), part
        assert len({part["worker"] for part in parts}) == len(parts) and len({part["leader_address"] for part in parts}) <= 1
        assert sum(part["records_life"] for part in parts) <= whole[0]["records_life"] <= whole[0]["records"]
        return whole[0]

    def is_as_plain(self, lives=2):
        """lives: 1: none of the workers was away, so that figures of one life are as plain, too."""
        assert sinks(self.out) == PLAIN, {name: (len(data), len(sinks(self.out).get(name, b""))) for name, data in PLAIN.items()}
        summary, plain = self.summary(), FIGURES
        keys, of_nodes = ["good", "finished", "records", "input_ended"], ["part", "counts", "note", "error", "warning"]
        if summary["records_life"] > 0:  # else the job had ended, and nothing is read
            keys.append("share_done")
            of_nodes.append("time")
        keys += ["records_life", "micro_batches", "dead_examples", "warnings"] if lives == 1 else []
        assert {key: summary[key] for key in keys} == {key: plain[key] for key in keys}
        assert len(summary["nodes"]) == len(plain["nodes"])
        for node, other in zip(summary["nodes"], plain["nodes"]):
            for key in of_nodes:
                if key == "time" and lives > 1 and set(node[key].values()) == {None}:
                    continue  # of a source that was read to its end before this life
                assert node[key] == other[key], (node["part"], key, node[key], other[key])
            assert node["counts"]["balanced"], node
            assert node["report"]["run"].keys() == other["report"]["run"].keys(), node
            is_same = lives == 1 and summary.get("moved_groups", 0) == 0
            for name, value in other["report"]["run"].items() if is_same else []:  # but what depends on memory
                assert name != "state_lookups" or node["report"]["run"][name] == value, (node["part"], name)


PLAIN, FIGURES = {}, {}  # sinks and summary of a run that is alone


def test_two_and_five():
    for count, lanes in ((1, 3), (2, 1), (2 if IS_SMALL else 5, 2)):
        with Job() as job:
            job.ends(*[job.start(count, lanes=lanes, failpoints="") for _ in range(count)])
            job.is_as_plain(lives=1)
            assert job.heads()
            assert job.summary()["lanes"] == count * lanes


def test_text():
    """One worker tells the summary, the others one line."""
    with Job() as job:
        workers = [job.start(3, failpoints="", form=None) for _ in range(3)]
        job.ends(*workers)
        leader, others = job.leader(workers)
        text = job.text(f"{leader.log}.out")
        assert f"{FIGURES['records']} records" in text and "6 lanes of 3 workers" in text, text
        assert "ADD UP" not in text and f"in {FIGURES['nodes'][0]['counts']['in']}," in text, text
        for process in others:
            line = job.text(f"{process.log}.out")
            assert line.count("\n") == 1 and "the job's summary is that of worker 0 at 127.0.0.1:" in line, line


def test_a_worker_is_killed():
    """The others go back to the head without it; it comes back, and all begin again."""
    with Job() as job:
        workers = [job.start("2:3") for _ in range(3)]
        job.progress()
        _, others = job.leader(workers)
        others[0].kill()
        workers.remove(others[0])
        for process in workers:
            job.says(process, "is over")
        job.progress()
        workers.append(job.start("2:3", failpoints=""))
        job.ends(*workers)
        job.is_as_plain()


def test_state_is_read_in_vain():
    """A worker dies while another one still reads its state: that one reads no more of it, and all begin again."""
    with Job() as job:
        workers = [job.start("2:3") for _ in range(3)]
        job.progress()
        leader, others = job.leader(workers)
        others[0].kill()
        slow = job.start("2:3", failpoints="restore.begin=sleep:3000@1")
        job.says(slow, "this one has number")
        others[1].kill()
        job.says(slow, "it reads no more of it")
        job.ends(leader, slow, job.start("2:3", failpoints=""))
        job.is_as_plain()


def test_the_leader_is_killed():
    with Job() as job:
        workers = [job.start("2:3") for _ in range(3)]
        job.progress()
        leader, others = job.leader(workers)
        leader.kill()
        for process in others:
            job.says(process, "is over")
        job.progress()
        job.ends(*others)
        job.is_as_plain()


def test_a_standby():
    """On a directory that all see: a worker is killed, and a standby has its place at once, though the others would wait for a return for
    longer; another standby, that is killed then, is missed by nobody. Started with other workers it does not begin."""
    with Job() as job:
        hot, other = (job.start("3:3", "--standby", failpoints="") for _ in range(2))
        job.says(hot, "a standby does not")
        workers = [job.start("3:3") for _ in range(3)]
        job.progress()
        job.says(hot, "this one is a standby")
        wait_for("a head that it has prepared", lambda: "0 heads and 0.0 s behind" in leat_cluster(job, "status").stdout)
        leader, (gone, last) = job.leader(workers)
        gone.kill()
        workers = [leader, last]
        wait_for("a standby in its place", lambda: any("incarnation 2: 3 workers" in job.text(one.log) for one in (hot, other)))
        if "incarnation 2" in job.text(other.log):
            hot, other = other, hot
        job.says(hot, "standby: takes part with")
        assert "which is prepared" in job.text(hot.log), job.text(hot.log)
        job.progress(1)
        other.kill()
        job.ends(other, status=KILLED)
        job.progress(1)
        assert not any("incarnation 2 is over" in job.text(one.log) for one in (hot, *workers))
        job.ends(hot, *workers)
        job.is_as_plain()


def test_all_are_killed():
    """Others go on, more of them, then fewer."""
    with Job() as job:
        for count in (2, 3):
            workers = [job.start(count) for _ in range(count)]
            job.progress(1 if IS_SMALL else 2)
            for process in workers:
                process.kill()
            job.ends(*workers, status=KILLED)
        job.ends(job.start(1, lanes=3, failpoints=""))
        job.is_as_plain()


def test_killed_around_a_head():
    """At each step of a head: what was written and is no head counts for nothing; what is the head counts, though nobody was told."""
    for point in ("head.write", "head.fsync@3", "head.rename@1", "head.publish@1", "head.answer@3", "head.moved@3", "ckpt.published@1", "head.prune@1"):
        point, passage = point.split("@") if "@" in point else (point, "2")
        with Job() as job:
            workers = [job.start(2, failpoints=f"{SLOW},{point}=kill@{passage}") for _ in range(2)]
            wait_for("a death", lambda workers=workers: any(process.poll() is not None for process in workers))
            for process in workers:
                process.kill()
                process.wait()
            assert KILLED in [process.returncode for process in workers]
            count = 1 if passage == "1" else 2  # the sinks' homes move
            job.ends(*[job.start(count, failpoints="") for _ in range(count)])
            job.is_as_plain()


def test_groups_move():
    """Key groups move from worker to worker, by chance, and a worker is killed at each step of that; the other one goes back to the head,
    with one that is killed at the next step."""
    points = ("move.announce", "move.base", "move.take_base", "move.give", "move.given", "move.take", "move.taken")
    with Job(every="50ms") as job:
        survivor = job.start(2, "--move=7")
        for i, point in enumerate(points):
            dies = job.start(2, "--move=7", failpoints=f"{SLOW},{point}=kill@{2 + i % 2}")
            wait_for("a death", lambda dies=dies: dies.poll() is not None)
            assert dies.returncode == KILLED, job.text(dies.log)[-3000:]
        last = job.start(2, "--move=7", failpoints=SLOW)
        job.progress()
        job.ends(survivor, last)
        job.is_as_plain()
        assert job.summary()["moved_groups"] > 0


ZIPF = """
param data: text = ""
param out: text = ""
param state: text = ""
param every: duration = 10s
job zipf { memory: 512MiB, checkpoint: { every: every, dir: state } }
source rows = sequence { count: COUNT, keys: 200000, skew: 1.0, rate: 100000.0, event_time: ts }
stream seen = rows | feature by key over 1h every 1m { n: count(), before: last(id) }
sink seen = null from seen
"""


def test_balance():
    """Keys by Zipf's law: groups move until eight lanes of two workers have about as much work; no row depends on that."""
    path = f"{FOLDER.name}/zipf.leat"
    with open(path, "w", encoding="utf-8") as file:
        file.write(ZIPF.replace("COUNT", str(400000 if IS_SMALL else 2000000)))
    with Job(job=path, every="100ms") as job:
        plain = json.loads(subprocess.run(job.command("--json", f"--set=state={job.folder}/plain"), check=True, stdout=subprocess.PIPE,
                                          text=True).stdout)
        for balance in ("no", "yes"):
            job.name, job.state = f"{job.name}{balance}", f"{job.state}{balance}"
            job.ends(*[job.start(2, f"--balance={balance}", lanes=4, failpoints="run.claimed=sleep:10") for _ in range(2)])
            summary = job.summary()
            assert summary["nodes"][-1]["note"] == plain["nodes"][-1]["note"]
            assert summary.get("moved_groups", 0) == 0 if balance == "no" else summary["moved_groups"] > 0
            assert summary.get("imbalance", 0) <= 1.1, summary["imbalance"]


def test_a_worker_leaves():
    """Ctrl-C at one worker: it leaves behind a head, the others go on; another one comes. At the last one: the job stops, and goes on
    later."""
    with Job() as job:
        workers = [job.start("1:2") for _ in range(2)]
        job.progress()
        leader, others = job.leader(workers)
        for process, rest in ((others[0], leader), (leader, None)):
            process.send_signal(signal.SIGINT)
            job.ends(process)
            if rest is not None:
                job.says(rest, "is over")
                job.progress()
        assert sinks(job.out) != PLAIN
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


def leat_cluster(job, *words, name=None, status=ENDED):
    address = f"etcd://{job.etcd.endpoints()}/{name or job.name}"
    found = subprocess.run([LEAT, "cluster", words[0], address, *words[1:]], capture_output=True, text=True, check=False)
    assert found.returncode == status, found
    return found


def test_status_and_stop():
    """`leat cluster stop`: all workers end behind a checkpoint, and who waits for a place, too; started again they go on."""
    with Job() as job:
        missing = leat_cluster(job, "status", status=FAILED)
        assert "E0714" in missing.stderr and "hint" in missing.stderr, missing
        workers = [job.start(2) for _ in range(2)]
        job.progress()
        waiting = job.start(2)
        job.says(waiting, "waiting: a place: 2 workers run the job, as many as --nodes allows")
        wait_for("its place", lambda: len(json.loads(leat_cluster(job, "status", "--json").stdout)["members"]) == 3)
        known = json.loads(leat_cluster(job, "status", "--json").stdout)
        assert known["runs"] and not known["has_ended"] and known["incarnation"] == 1 and known["head"]["epoch"] >= 2, known
        assert sorted(str(member["worker"]) for member in known["members"]) == ["0", "1", "None"], known
        assert [member["leads"] for member in known["members"]].count(True) == 1 and {m["lanes"] for m in known["members"]} == {2}
        text = leat_cluster(job, "status").stdout
        assert "2 workers of 2 lanes" in text and "3 members" in text and "waits" in text and " leads" in text, text
        told = leat_cluster(job, "stop")
        assert "the job goes on from the head head-000001-" in told.stdout and "3 workers are to stop" in told.stderr, told
        job.ends(*workers, waiting)
        assert sinks(job.out) != PLAIN
        assert "has ended" in leat_cluster(job, "status").stdout
        assert "no worker runs" in leat_cluster(job, "stop").stdout
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


def test_a_worker_is_stopped():
    """Stopped beyond its lease, the leader and another one: the others go on, and the one that wakes up changes nothing."""
    for leads in (False, True):
        with Job() as job:
            workers = [job.start("2:3") for _ in range(3)]
            job.progress()
            leader, others = job.leader(workers)
            stopped = leader if leads else others[0]
            rest = [process for process in workers if process is not stopped]
            etcd.stop(stopped)
            for process in rest:
                job.says(process, "is over")
            job.progress()
            stopped.send_signal(signal.SIGCONT)
            job.ends(*workers)
            job.is_as_plain()


ROLLING = """param data: text = "."
param out: text = "out"
param state: text = ""
param every: duration = 10s
job rolling { memory: 32MiB, checkpoint: { every: every, dir: state } }
source impressions = file {
  path: concat(data, "/impressions.jsonl")
  schema: { imp_id: int!, ts: time(ms), user: int, item: int, site: text, cat: text, price: float, pos: float }
  event_time: ts, max_delay: 1m
}
stream kept = impressions | dedup by imp_id within 1h
sink a = file from kept { path: concat(out, "/a.jsonl"), roll_rows: 3000 }
sink b = file from kept { path: concat(out, "/b.jsonl"), roll_rows: 3000 }
sink c = file from kept { path: concat(out, "/c.jsonl"), roll_rows: 3000 }
"""


def newest_files(folder):
    """The highest number of a file of each sink."""
    found = {}
    for path in glob.glob(f"{folder}/*-*"):
        sink, number = os.path.basename(path).split(".")[0].split("-")
        found[sink] = max(found.get(sink, 0), int(number))
    return found


def test_a_sleeper_whose_place_is_gone():
    """The last of three is stopped, and the others go on with two: no other process has its directory when it wakes, but its sinks have
    moved. The file with which its lane would go on is open elsewhere; it neither removes nor makes one."""
    path = os.path.join(FOLDER.name, "rolling.leat")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ROLLING)
    with Job(job=path) as plain:
        subprocess.run(plain.command(), check=True, stdout=subprocess.DEVNULL)
        wanted = sinks(plain.out)
    assert len(wanted) > 200
    with Job(job=path) as job:
        first = job.start(1, failpoints="run.claimed=sleep:100")  # in the lives behind its head a file of an earlier life may be replaced
        job.progress(1)
        first.kill()
        job.ends(first, status=KILLED)
        workers = [job.start("2:3", failpoints="run.claimed=sleep:100") for _ in range(3)]
        job.progress(1)
        last = next(process for process in workers if "has number 2" in job.text(process.log))
        etcd.stop(last)
        before = newest_files(job.out)
        rest = [process for process in workers if process is not last]
        for process in rest:
            job.says(process, "is over")
        wait_for("the files at which it stood", lambda: all(number >= before[sink] + 2 for sink, number in newest_files(job.out).items()))
        last.send_signal(signal.SIGCONT)
        job.ends(*workers)
        found = sinks(job.out)
        assert found.keys() == wanted.keys() and found == wanted, [name for name in wanted if found.get(name) != wanted[name]][:5]


def test_etcd_is_away():
    """Nothing is published and nothing begun anew while it is; then the job goes on, in the same incarnation if leases have lived."""
    with etcd.Etcd(os.path.join(FOLDER.name, "away"), count=3) as servers, Job(servers) as job:
        workers = [job.start(2, "--lease=1h") for _ in range(2)]
        job.progress()
        for member in servers.members[:2]:
            member.kill()
        time.sleep(stretched(.3))
        before = job.heads()
        time.sleep(stretched(1))
        assert len(job.heads()) <= len(before) + 1, "a manifest was written before the one before was the head"
        for member in servers.members[:2]:
            member.start()
        job.ends(*workers)
        assert {incarnation for incarnation, _ in job.heads()} == {1}
        job.is_as_plain()


def refused(job, words, *flags, status=FAILED, **more):
    process = job.start("1", *flags, failpoints="", **more)
    job.ends(process, status=status)
    text = job.text(process.log) + job.text(f"{process.log}.out")
    for word in words:
        assert word in text, (word, text)


def test_refused():
    with Job() as job:
        refused(job, ["--nodes takes LEAST:MOST"], "--nodes=3:2", status=USAGE)
        refused(job, ["--resume is for a run that is alone"], "--resume", status=USAGE)
        alone = subprocess.run(job.command("--standby"), capture_output=True, text=True, check=False)
        assert alone.returncode == USAGE and "--standby needs --cluster" in alone.stderr, alone
        refused(job, ["etcd://"], "--cluster=http://127.0.0.1/a")
        refused(job, ["cannot listen"], "--listen=192.0.2.1:7400")
        refused(job, ["takes no checkpoints", "dir:"], "--set=state=")
        refused(job, ["E0620", "`nowhere.invalid:7400`", "cannot be resolved"], "--advertise=nowhere.invalid:7400")
        refused(job, ["E0620", "`0.0.0.0:7400`", "all interfaces"], "--advertise=0.0.0.0:7400")
        refused(job, ["E0620", "--listen without --advertise", "with --advertise=10.0.0.7:7400"], "--listen=0.0.0.0:0")
        job.ends(job.start(1, failpoints=""))
        job.is_as_plain()
        refused(job, ["of another cluster", job.name], name="other")
        alone = subprocess.run(job.command(), capture_output=True, text=True, check=False)
        assert alone.returncode == FAILED and "a cluster goes on" in alone.stderr and "--cluster" in alone.stderr, alone
        refused(job, ["expected the job"], "--set=every=1s")
        job.ends(job.start(1, failpoints=""))  # the job has ended: nothing is left to do
        assert sinks(job.out) == PLAIN


def test_heads_that_are_none():
    """A manifest of another head, a directory that was removed: refused, and told what is expected; with the right one the job goes on."""
    with Job() as job:
        workers = [job.start(2) for _ in range(2)]
        job.progress(2)
        leat_cluster(job, "stop")
        job.ends(*workers)
        heads = sorted(glob.glob(f"{job.state}/cluster/heads/head-*"))
        kept = f"{job.folder}/kept"
        shutil.copytree(job.state, kept)
        with Job() as other:  # one of another cluster, with the same name
            foreign = f"{other.state}/cluster/heads/{os.path.basename(heads[-1])}"
            other.start(1)
            wait_for("its head", lambda: os.path.exists(foreign))
            shutil.copy(foreign, heads[-1])
        refused(job, ["E0702", heads[-1], "is not the head: etcd names", "same checkpoint directory"])
        shutil.rmtree(job.state)
        refused(job, ["E0705", f"the head `{os.path.basename(heads[-1])}`, as etcd says", "begin the job anew as a cluster of another name"])
        shutil.rmtree(job.state)
        shutil.move(kept, job.state)
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


def test_times_of_parts():
    """The parts of a checkpoint have the leader's time, whatever the clocks of the others: `keep` goes by it, and all keep the same ones."""
    with Job() as job:
        with shifted_clock(3) as environment:
            workers = [job.start(2), job.start(2, **environment)]
            job.progress(2)
            leat_cluster(job, "stop")
            job.ends(*workers)
        lists = [subprocess.run([LEAT, "checkpoint", "list", f"{job.state}/cluster/worker-{i}"], check=True, capture_output=True, text=True).stdout
                 for i in range(2)]
        times = [{line.split()[0]: re.findall(r"[0-9]{4}-[0-9-]+[T ][0-9:.]+", line) for line in text.split("\n") if re.match(r"[0-9]+-", line)}
                 for text in lists]
        common = times[0].keys() & times[1].keys()
        assert common and all(times[0][name] == times[1][name] != [] for name in common), lists


def test_lost_record():
    """etcd has lost what it knew of a cluster that has run: nobody may begin anew."""
    with etcd.Etcd(os.path.join(FOLDER.name, "lost"), is_fast=True) as servers, Job(servers) as job:
        worker = job.start(1)
        job.progress()
        worker.kill()
        worker.wait()
        servers.members[0].lose_data()
        servers.members[0].start()
        servers.wait()
        refused(job, ["E0714", "it has run before"])


def test_goes_on_alone_first():
    """A run that was alone goes on as a cluster."""
    with Job() as job:
        alone = subprocess.Popen(job.command(), env={**os.environ, "LEAT_FAILPOINTS": SLOW}, stdout=subprocess.DEVNULL)
        job.processes.append(alone)
        wait_for("checkpoints", lambda: len(glob.glob(f"{job.state}/gen-*/ckpt-*")) > 1)
        alone.kill()
        alone.wait()
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        job.is_as_plain()


INPUTS = """job inputs { memory: 32MiB, checkpoint: { every: 100ms, dir: env("STATE") } }
source rows = file {
  path: "rows-*.jsonl", schema: { id: int!, ts: time(ms), site: text }, event_time: ts, max_delay: 1m
}
stream named = rows | lookup "sites.csv" on site { place: text }
sink all = file from named { path: "out/all.jsonl" }
"""


def make_inputs(folder):
    """What the job INPUTS needs, in a folder of its own."""
    os.makedirs(f"{folder}/out")
    texts = {"inputs.leat": INPUTS, "sites.csv": "site,place\na,here\n"}
    for i in range(2):
        texts[f"rows-{i}.jsonl"] = "".join(json.dumps({"id": k, "ts": 10**12 + k * 1000 + i, "site": "a"}) + "\n" for k in range(30000))
    for name, text in texts.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def record(job):
    """All that etcd has of the job's cluster, as one text."""
    key = f"/leat/{job.name}/".encode()
    ask = {"key": base64.b64encode(key).decode(), "range_end": base64.b64encode(key[:-1] + b"0").decode()}
    with urllib.request.urlopen(f"http://{job.etcd.endpoints()}/v3/kv/range", json.dumps(ask).encode(), timeout=PATIENCE_S) as answer:
        found = json.load(answer).get("kvs", [])
    return {base64.b64decode(kv["key"])[len(key):].decode(): base64.b64decode(kv["value"]).decode() for kv in found}


def test_inputs_differ():
    """A worker whose files or directories are others than the leader's is told which, and the leader goes on."""
    with Job() as job:
        first = make_inputs(f"{job.folder}/first")
        job.job = "inputs.leat"
        job.command = lambda *flags: [LEAT, "run", job.job, "--quiet", *flags]

        def start(folder, **more):
            return job.start(2, lanes=1, cwd=folder, STATE=job.state, **more)
        beside = f"{first}/out/.leat-{job.name}-0-0000000005-{'ab' * 16}"  # of another cluster, and one that a killed leader has left
        old = f"{first}/out/.leat-{job.name}-0000000000-{'ab' * 16}"
        for path in (beside, old):
            with open(path, "xb"):
                pass
        leader = start(first)
        job.says(leader, "joined")
        for i, (name, cut, words) in enumerate((
                (None, 0, ["the directory `out` of sink `all`", "`.leat-", "is missing here"]),
                ("sites.csv", -2, ["file `sites.csv`, for `lookup` in `named`", "18 bytes of digest", "this worker 16 bytes of digest"]),
                ("rows-1.jsonl", -9, ["file `rows-1.jsonl` of a source", "this worker has "]))):
            other = make_inputs(f"{job.folder}/other{i}")
            if name is not None:
                os.rmdir(f"{other}/out")
                os.symlink(f"{first}/out", f"{other}/out")
                with open(f"{other}/{name}", "r+", encoding="utf-8") as file:
                    file.truncate(os.path.getsize(file.name) + cut)
            late = start(other)
            job.ends(late, status=FAILED)
            assert all(word in job.text(late.log) for word in ["E0715", "worker 0 at 127.0.0.1:", *words]), job.text(late.log)
        assert os.path.exists(beside) and not os.path.exists(old)
        os.unlink(beside)
        assert len(glob.glob(f"{first}/out/.leat-*")) <= 1
        job.ends(leader, start(first))
        alone = make_inputs(f"{job.folder}/alone")
        subprocess.run(job.command(), cwd=alone, env={**os.environ, "STATE": f"{job.folder}/alone-state"}, check=True, stdout=subprocess.DEVNULL)
        assert sinks(f"{first}/out") == sinks(f"{alone}/out") and not glob.glob(f"{first}/out/.leat-*")


def test_no_secret_in_etcd():
    """Secrets are read by each worker, and are not in etcd: neither they nor their digests."""
    with Job() as job:
        secret, path = "hunter2-4711", f"{job.folder}/secret.leat"
        with open(path, "w", encoding="utf-8") as file:
            file.write(INPUTS.replace('"rows-', f'"{make_inputs(f"{job.folder}/data")}/rows-').replace('"sites', f'"{job.folder}/data/sites')
                       + 'sink more = kafka from named { brokers: "127.0.0.1:1", topic: "t", security: { protocol: sasl_plaintext, mechanism: plain, '
                         'user: env("PLACE"), password: env("SECRET") } }\n')
        job.job = path
        job.command = lambda *flags: [LEAT, "run", path, "--quiet", *flags]
        for _ in range(2):
            job.start(2, STATE=job.state, SECRET=secret, PLACE="here", cwd=job.folder)
        wait_for("a round", lambda: "inputs" in record(job).get("placement", ""))
        found = record(job)
        inputs = json.loads(json.loads(found["placement"].split("\n", 1)[1])["inputs"])
        assert secret not in "".join(found.values()) and len(inputs["inputs"]) == 3, found  # a table, STATE and PLACE


@contextlib.contextmanager
def shifted_clock(seconds):
    """Environment of a process whose wall clock is off by so many seconds."""
    with jumps.Clock(f"{os.path.dirname(LEAT)}/tests/clock/libjumping_clock.so") as clock:
        clock.set(seconds * 1000000)
        yield {"LD_PRELOAD": clock.library, "LEAT_CLOCK": clock.file.name}


def test_unfit_workers():
    """Refused, and told why, while the job goes on undisturbed: a worker with another one's address, one whose clock is off."""
    with Job() as job, shifted_clock(-60) as behind, shifted_clock(60) as ahead:
        port = etcd.free_ports(1)[0]
        worker = job.start("1:4", f"--listen=127.0.0.1:{port}", "--nodes-wait=0s", failpoints="run.claimed=sleep:80")  # outlasts the 10 s
        job.progress(1)
        same = job.start("1:4", f"--advertise=127.0.0.1:{port}")
        late = {"behind": job.start("1:4", **behind), "ahead of": job.start("1:4", **ahead)}
        for where, process in late.items():
            job.ends(process, status=FAILED)
            text, words = job.text(process.log), ["E0715", "the clock of this worker, on ", f"127.0.0.1:{port}", "NTP"]
            assert re.search(f"is at least [56][0-9] s {where}", text), text
            assert all(word in text for word in words), text
        job.says(same, f"waiting: the worker on {socket.gethostname()} has the address 127.0.0.1:{port}, too")
        job.ends(same, status=FAILED)
        assert all(word in job.text(same.log) for word in ["E0715", f"has the address 127.0.0.1:{port}, too", "--advertise"])
        assert job.text(worker.log).count("incarnation ") == 1, "the job was disturbed"
        job.ends(worker)
        job.is_as_plain(lives=1)


def test_beside_a_run_that_is_alone():
    """A cluster and a run that is alone never work in one directory: the later one is refused, and told who is there."""
    with Job() as job:
        waits = job.start("1:2", f"--nodes-wait={math.ceil(stretched(2))}s", failpoints="")
        job.says(waits, "waiting: 1 of 1 to 2 workers")
        alone = subprocess.Popen(job.command(), env={**os.environ, "LEAT_FAILPOINTS": "run.claimed=sleep:400"}, stdout=subprocess.DEVNULL)
        job.processes.append(alone)
        wait_for("checkpoints", lambda: len(glob.glob(f"{job.state}/gen-*/ckpt-*")) > 1)
        holder = ["E0706", "is used by another process", f"pid {alone.pid} on {socket.gethostname()}", "is alone: stop it"]
        refused(job, holder)
        assert "joined" not in job.text(job.logs[-1])
        job.ends(waits, status=FAILED)  # when its round begins
        assert all(word in job.text(waits.log) for word in holder), job.text(waits.log)
        assert alone.poll() is None and not os.path.exists(f"{job.state}/cluster"), "the run that is alone goes on"
        alone.kill()
        alone.wait()
        workers = [job.start(2) for _ in range(2)]
        job.progress()
        pids = [f"worker {i} is pid" for i in range(2)] + [f"pid {process.pid} on {socket.gethostname()}" for process in workers]
        late = subprocess.run(job.command(), capture_output=True, text=True, check=False)
        assert late.returncode == FAILED and all(word in late.stderr for word in [f"`{job.name}`", *pids]), late
        job.ends(*workers)
        job.is_as_plain()


def prepare():
    """The data, and what a run that is alone makes of it."""
    make_data(f"{FOLDER.name}/data")
    with Job() as job:
        told = subprocess.run(job.command("--json"), check=True, stdout=subprocess.PIPE, text=True)
        PLAIN.update(sinks(job.out))
        FIGURES.update(json.loads(told.stdout))
    assert len(PLAIN) == 4


def main(tests, prepares=prepare):
    """Runs the tests among these names of a module."""
    if etcd.missing():
        print(f"ok - cluster # SKIP {etcd.missing()}")
        return 77
    chosen = {name: test for name, test in tests.items()
              if name.startswith("test_") and callable(test) and (not CHOSEN or name in CHOSEN)}
    with FOLDER, etcd.Etcd(os.path.join(FOLDER.name, "etcd"), is_fast=True) as one:
        ETCD.append(one)
        prepares()
        return tap.run(chosen, threads=3)


if __name__ == "__main__":
    sys.exit(main(globals()))
