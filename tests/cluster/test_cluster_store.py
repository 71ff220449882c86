#!/usr/bin/env python3
"""`leat run --cluster` with an object store: workers whose directories are their own, as on machines that share no file system. Heads and
their parts lie in the store; whatever happens, the sinks are those of a run that is alone, byte for byte.

    test_cluster_store.py LEAT [TEST...]
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import test_cluster
import test_commands as commands
from test_cluster import (ENDED, FAILED, FIGURES, FOLDER, JOB, KILLED, LEAT, PLAIN, SLOW, Job, etcd, leat_cluster, make_data,
                          newest_files, refused, sinks, wait_for)



def make_job():
    with open(JOB, encoding="utf-8") as file:
        text = file.read()
    text = text.replace('param every: duration = 10s', 'param every: duration = 10s\nparam store: text = ""')
    text = text.replace("dir: state }", "dir: state, store: store }")
    assert text.count("store") == 3, text
    # State of two stages with one instance, at home on different workers.
    text += """stream sorted = impressions | sort within 6h
stream clicked = clicks | sort within 6h
sink sorted = file from sorted { path: concat(out, "/sorted.jsonl") }
sink clicked = file from clicked { path: concat(out, "/clicked.jsonl") }
"""
    rolling = test_cluster.ROLLING.replace('param every', 'param store: text = ""\nparam every').replace("dir: state }", "dir: state, store: store }")
    for name, job in (("stored", text), ("rolling-stored", rolling)):
        with open(f"{FOLDER.name}/{name}.leat", "w", encoding="utf-8") as file:
            file.write(job)


class StoreJob(Job):
    """Worker N of those that were started has the directory `disks/N`, unless `disk` says which."""

    def __init__(self, servers=None, url=None, environment=None, job="stored", **more):
        super().__init__(servers, job=f"{FOLDER.name}/{job}.leat", **more)
        self.state, self.environment = "state", environment or {}
        self.store = f"{self.folder}/store"
        self.url = f"file:{self.store}" if url is None else url

    def command(self, *flags):
        return [*super().command(*flags), f"--set=store={self.url}"]

    def disk(self, number):
        place = f"{self.folder}/disks/{number}"
        os.makedirs(place, exist_ok=True)
        return place

    def start(self, nodes, *flags, disk=None, **more):
        return super().start(nodes, *flags, cwd=self.disk(len(self.processes) if disk is None else disk), **more)

    def heads(self):
        """(incarnation, epoch) of all manifests in the store."""
        return sorted(tuple(map(int, os.path.basename(path).split("-")[1:])) for path in glob.glob(f"{self.store}/cluster/heads/head-*"))

    def lose_disks(self):
        shutil.rmtree(f"{self.folder}/disks")

    def cluster(self, verb, *words, name=None, status=ENDED):
        told = leat_cluster(self, verb, *words, name=name, status=status)
        return told.stdout + told.stderr

    def leat(self, *words, status=ENDED):
        told = subprocess.run([LEAT, *words], capture_output=True, text=True, check=False, env={**os.environ, **self.environment})
        assert told.returncode == status, (words, told)
        return told.stdout + told.stderr


def test_own_disks():
    with StoreJob() as job:
        job.ends(*[job.start(3, failpoints="") for _ in range(3)])
        job.is_as_plain(lives=1)
        assert job.heads()


def killed_at(step, loses_all):
    """A worker is killed at that step, the other one at once; then the disk of the first, or of all, is lost."""
    with StoreJob() as job:
        workers = [job.start(2, failpoints=f"{step},{SLOW}") for _ in range(2)]
        wait_for(f"a worker that is killed at {step}", lambda: any(process.poll() is not None for process in workers))
        first = next(disk for disk, process in enumerate(workers) if process.poll() is not None)
        for process in workers:
            process.kill()
        job.ends(*workers, status=KILLED)
        if loses_all:
            job.lose_disks()
        else:
            shutil.rmtree(job.disk(first))
        job.ends(*[job.start(2, failpoints="", disk=disk) for disk in range(2)])
        job.is_as_plain()


def test_killed_at_a_part():
    """What has gone up without a head counts for nothing."""
    killed_at("objects.head=kill@3", loses_all=True)
    killed_at("objects.rename=kill@12", loses_all=False)


def test_killed_at_a_head():
    """The same of a manifest; what is the head counts, though nobody was told."""
    for step in ("head.put", "head.publish", "head.moved"):
        killed_at(f"{step}=kill@3", loses_all=step != "head.publish")


def test_a_disk_is_lost():
    """One worker is killed, and comes back with an empty disk; the other one stays."""
    with StoreJob() as job:
        workers = [job.start(2) for _ in range(2)]
        job.progress()
        workers[0].kill()
        job.ends(workers[0], status=KILLED)
        shutil.rmtree(job.disk(0))
        workers[0] = job.start(2, failpoints="", disk=0)
        job.ends(*workers)
        assert came_from_store(job, workers[0]) == (2, 2) and came_from_store(job, workers[1]) == (1, 2)
        job.is_as_plain()


def came_from_store(job, process):
    """How many parts of how many came from the store, where that worker began last."""
    return tuple(map(int, re.findall(r"(\d+) of (\d+) parts of the head come from the store", job.text(process.log))[-1]))


def stop(job, workers):
    job.progress(1)
    job.cluster("stop")
    job.ends(*workers)


def test_disks():
    """With their disks workers begin from there; on empty ones, and fewer, from the store."""
    with StoreJob() as job:
        slow = {"failpoints": "run.claimed=sleep:500"}
        stop(job, [job.start(3, **slow) for _ in range(3)])
        workers = [job.start(3, disk=disk, **slow) for disk in range(3)]
        stop(job, workers)
        assert [came_from_store(job, process) for process in workers] == [(2, 3)] * 3  # its own is there
        job.lose_disks()
        workers = [job.start(2, failpoints="", disk=disk) for disk in range(2)]
        job.ends(*workers)
        assert [came_from_store(job, process) for process in workers] == [(3, 3)] * 2
        job.is_as_plain()


def test_moved_groups():
    """Key groups have moved between workers: as many workers, on empty disks, have them where they were."""
    with StoreJob() as job:
        stop(job, [job.start(3, "--move=7") for _ in range(3)])  # the third is home of no stage with one instance
        job.lose_disks()
        workers = [job.start(3, disk=disk, failpoints="") for disk in range(3)]
        job.ends(*workers)
        assert [came_from_store(job, process) for process in workers] == [(3, 3)] * 3
        job.is_as_plain()


def standbys(job):
    """What `leat cluster status` says of standbys that wait."""
    return [member for member in json.loads(job.cluster("status", "--json"))["members"] if member["standby"] and member["worker"] is None]


def prepares(job):
    wait_for("a standby with a head", lambda: any(member["heads_behind"] is not None for member in standbys(job)))


def test_standby():
    """It has the newest parts of all workers, of which it has got each object once; a worker dies, and it has that one's place at once, with
    nothing from the store and with that one's deltas going on. The death of another standby is nobody's business."""
    with StoreJob() as job:
        workers = [job.start("3:4", "--nodes-wait=0s", failpoints="run.claimed=sleep:200") for _ in range(3)]
        hot, other = (job.start("3:4", "--standby", "--nodes-wait=0s", failpoints="") for _ in range(2))
        prepares(job)
        wait_for("both standbys", lambda: all(member["heads_behind"] is not None for member in standbys(job)) and len(standbys(job)) == 2)
        assert "and 2 are standbys" in job.cluster("status") and "heads and" in job.cluster("status")
        assert "but standbys" in job.cluster("grow", status=FAILED)
        other.kill()
        job.ends(other, status=KILLED)
        job.progress()
        assert not any("incarnation 2" in job.text(process.log) for process in workers)
        _, followers = job.leader(workers)
        number = re.search(r"this one has number (\d)", job.text(followers[0].log))[1]
        followers[0].kill()
        job.ends(followers[0], status=KILLED)
        job.says(hot, f"incarnation 2: 3 workers; this one has number {number}")
        job.progress()
        workers.remove(followers[0])
        assert came_from_store(job, hot) == (0, 3), job.text(hot.log)
        heads, got = map(int, re.search(r"which is prepared.* (\d+) heads so far, with (\d+) bytes", job.text(hot.log)).groups())
        there = sum(os.path.getsize(f"{job.store}/{name}") for name in objects(job) if "/gen-" in name)
        assert heads > 1 and 0 < got <= there, (heads, got, there)
        wait_for("the other parts to go", lambda: len(glob.glob(f"{job.disk(3)}/state/cluster/worker-*")) == 1)
        job.ends(*workers, hot)
        job.is_as_plain()


def test_standby_tries_each_head():
    """What kept one head from being prepared says nothing of the next one, which is tried at once, however many have failed."""
    with StoreJob() as job:
        os.makedirs(f"{job.disk('hot')}/state/cluster")
        obstacle = f"{job.disk('hot')}/state/cluster/worker-0"
        with open(obstacle, "xb"):
            pass
        job.start(1, failpoints="run.claimed=sleep:200")
        hot = job.start(1, "--standby", disk="hot")

        def tried():
            return len(set(re.findall(r"standby: (head-\S+) is not prepared", job.text(hot.log))))
        wait_for("heads that it cannot prepare", lambda: tried() >= 5)
        before = tried()
        job.progress(8)
        assert tried() > before + 1, job.text(hot.log)
        os.unlink(obstacle)
        prepares(job)


def test_damaged_disk():
    """A part that is damaged on the disk comes from the store."""
    with StoreJob() as job:
        stop(job, [job.start(1)])
        for path in glob.glob(f"{job.folder}/disks/0/state/cluster/worker-*/gen-*/ckpt-*/state.bin"):
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                file.write(b"damaged")
        worker = job.start(1, failpoints="", disk=0)
        job.ends(worker)
        assert "is damaged, and comes from the store" in job.text(worker.log) and came_from_store(job, worker) == (1, 1)
        job.is_as_plain()


def test_damaged_store():
    """A byte of a part is wrong in the store: the worker that needs it is refused, and goes on once it is right again."""
    with StoreJob() as job:
        stop(job, [job.start(2) for _ in range(2)])
        job.lose_disks()
        incarnation, epoch = job.heads()[-1]
        paths = glob.glob(f"{job.store}/cluster/gen-{incarnation:06}-*/ckpt-{epoch:012}/state.bin")
        assert len(paths) == 2
        for path in paths:
            with open(path, "r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))
        refused(job, ["E07", "does not match its digest"], disk=0)
        for path in paths:
            with open(path, "r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))
        os.rename(parts := glob.glob(f"{job.store}/cluster/parts/{incarnation:06}-{epoch:012}-*")[0], f"{parts}.away")
        refused(job, ["E0711"], disk=0)
        os.rename(f"{parts}.away", parts)
        refused(job, ["of another cluster", job.name], name="other", disk="other")
        job.ends(*[job.start(2, failpoints="", disk=disk) for disk in range(2)])
        job.is_as_plain()


def rolling_alone():
    """The files of a run of ROLLING that is alone."""
    with StoreJob(url="", job="rolling-stored") as plain:
        subprocess.run(plain.command(), cwd=plain.disk(0), check=True, stdout=subprocess.DEVNULL)
        wanted = sinks(plain.out)
    assert len(wanted) > 200
    return wanted


def test_etcd_says_nothing():
    """While etcd does not say that the incarnation goes on, no worker makes, names or removes a file of a sink, whatever it has to write:
    others may have gone on. Then all do, in the same incarnation."""
    wanted = rolling_alone()
    with etcd.Etcd(os.path.join(FOLDER.name, "silent"), is_fast=True) as servers, StoreJob(servers, job="rolling-stored") as job:
        workers = [job.start(2, "--lease=1h", failpoints="run.claimed=sleep:100") for _ in range(2)]
        job.progress(1)
        etcd.stop(servers.members[0].process)
        seen = [(time.monotonic(), None)]

        def rests():
            names = sorted(os.listdir(job.out))
            if names != seen[-1][1]:
                seen.append((time.monotonic(), names))
            return time.monotonic() - seen[-1][0] > 2
        wait_for("files that nobody touches", rests)
        last = max(int(name.split(".")[0].split("-")[1]) for name in wanted)
        assert all(number < last for number in newest_files(job.out).values()), "all was written before"
        servers.members[0].process.send_signal(signal.SIGCONT)
        job.ends(*workers)
        assert {incarnation for incarnation, _ in job.heads()} == {1} and sinks(job.out) == wanted


def test_sleeper():
    """The last of three is stopped beyond its lease, and the others go on with two: nobody has touched its directory when it wakes, but its
    sinks have moved. It neither removes nor makes a file, and joins anew."""
    wanted = rolling_alone()
    with StoreJob(job="rolling-stored") as job:
        workers = [job.start("2:3", failpoints="run.claimed=sleep:100") for _ in range(3)]
        job.progress(1)
        last = next(process for process in workers if "has number 2" in job.text(process.log))
        etcd.stop(last)
        before = newest_files(job.out)
        for process in workers:
            if process is not last:
                job.says(process, "is over")
        wait_for("the files at which it stood", lambda: all(number >= before[sink] + 2 for sink, number in newest_files(job.out).items()))
        last.send_signal(signal.SIGCONT)
        job.ends(*workers)
        found = sinks(job.out)
        assert found.keys() == wanted.keys() and found == wanted, [name for name in wanted if found.get(name) != wanted[name]][:5]


def objects(job):
    """Names of all objects of the cluster."""
    return {os.path.relpath(path, job.store) for path in glob.glob(f"{job.store}/cluster/**", recursive=True) if os.path.isfile(path)}


def test_deleted():
    """The leader deletes what no kept head has named for a while, also what workers have left that were killed; every head that is there is
    whole, and an older one is, too."""
    with StoreJob() as job:
        quick = {"LEAT_TEST_STORE_DELAY": "500", "failpoints": "run.claimed=sleep:700"}
        workers = [job.start(2, **quick) for _ in range(2)]
        job.progress(3)
        old = objects(job)
        first = job.heads()[0]
        for process in workers:
            process.kill()
        job.ends(*workers, status=KILLED)
        os.makedirs(f"{job.store}/cluster/gen-000001-cafecafe/ckpt-000000009999")
        with open(f"{job.store}/cluster/gen-000001-cafecafe/ckpt-000000009999/state.bin", "wb") as file:
            file.write(b"of a part that was never whole")
        workers = [job.start(2, disk=disk, **quick) for disk in range(2)]
        wait_for("old parts to go", lambda: not any(name in objects(job) for name in old if "/parts/000001-" in name))
        wait_for("an unfinished part to go", lambda: "cluster/gen-000001-cafecafe/ckpt-000000009999/state.bin" not in objects(job))
        job.cluster("stop")
        job.ends(*workers)
        assert first not in job.heads() and len(job.heads()) <= 12, job.heads()
        for head in job.heads()[-2:]:
            assert job.leat("checkpoint", "verify", f"{job.url}@{head[0]}-{head[1]}").count("every byte is as written") == 2
        job.lose_disks()
        job.ends(*[job.start(2, failpoints="", disk=disk) for disk in range(2)])
        assert sinks(job.out) == PLAIN


def test_much_is_deleted():
    """Where there is more to delete than one look removes, the next one follows soon: else a store of many workers, with a checkpoint a second,
    would grow for ever."""
    delay_s = 8
    with StoreJob() as job:
        slow = {"LEAT_TEST_STORE_DELAY": str(delay_s * 1000), "failpoints": "run.claimed=sleep:100"}
        unnamed = f"{job.store}/cluster/gen-000001-cafecafe"
        os.makedirs(unnamed)
        for i in range(1100):  # three looks
            with open(f"{unnamed}/{i}", "wb"):
                pass
        worker = job.start(1, **slow)
        wait_for("the first to go", lambda: len(os.listdir(unnamed)) < 1100)
        begin = time.monotonic()
        wait_for("all to go", lambda: not os.path.exists(unnamed) or not os.listdir(unnamed))
        took = time.monotonic() - begin
        assert took < 1.5 * delay_s, took
        job.cluster("stop")
        job.ends(worker)


def test_page():
    """A worker's page is there while it waits for others, and tells for whom. The store's figures are those of all workers at the leader, and
    say how far the store is behind while it takes nothing."""
    with StoreJob() as job:
        workers = [job.start(2, "--ui=127.0.0.1:0", failpoints="run.claimed=sleep:200")]
        address = commands.url(job, workers[0])
        wait_for("words", lambda: "waiting: 1 of 2" in commands.get_any(address, "/readyz")[1])
        status, text = commands.get_any(address, "/api/v1/figures")
        assert status == 503 and "there is no run yet; waiting: 1 of 2" in text, (status, text)
        commands.get(address, "/metrics")
        workers.append(job.start(2, "--ui=127.0.0.1:0", failpoints="run.claimed=sleep:200"))
        job.progress(2)
        leader, (other,) = job.leader(workers)
        at_leader, at_other = commands.url(job, leader), commands.url(job, other)
        assert address in (at_leader, at_other) and commands.get(address, "/readyz") == "ok\n"

        def figure(where, name):
            return sum(commands.samples(commands.get(where, "/metrics"), f"leat_store_{name}").values())
        wait_for("bytes of both", lambda: figure(at_leader, "sent_bytes_total") > figure(at_other, "sent_bytes_total") > 0)
        for where in (at_leader, at_other):
            wait_for("a store that has all", lambda where=where: figure(where, "checkpoints_behind") == 0)
        os.rename(f"{job.store}/cluster/parts", f"{job.store}/away")
        with open(f"{job.store}/cluster/parts", "xb"):
            pass
        for where in (at_leader, at_other):
            wait_for("a store that is behind", lambda where=where: figure(where, "checkpoints_behind") > 1 and figure(where, "behind_seconds") > 0)
        os.unlink(f"{job.store}/cluster/parts")
        os.rename(f"{job.store}/away", f"{job.store}/cluster/parts")
        for where in (at_leader, at_other):
            wait_for("a store that has all", lambda where=where: figure(where, "checkpoints_behind") == 0)
        other.kill()
        job.ends(other, status=KILLED)
        job.says(leader, "figures at http", times=2)
        wait_for("a page between rounds", lambda: "there is no run yet; waiting: " in commands.get_any(commands.url(job, leader), "/readyz")[1])


def test_commands():
    """`leat checkpoint`, `leat state`, and a run that is alone, of a head in the store."""
    with StoreJob() as job:
        stop(job, [job.start(2) for _ in range(2)])
        newest, older = job.heads()[-1], job.heads()[-2]
        listed = job.leat("checkpoint", "list", job.url)
        assert listed.startswith(f"{newest[0]}-{newest[1]}  ") and "head of 2 workers" in listed, listed
        shown = job.leat("checkpoint", "show", job.url)
        assert f"epoch {newest[1]}" in shown and "worker 1:" in shown and "impressions" in shown, shown
        assert f"epoch {older[1]}" in job.leat("checkpoint", "show", job.url, f"{older[0]}-{older[1]}")
        assert job.leat("checkpoint", "verify", job.url).count("every byte is as written") == 2
        assert "--from" in job.leat("checkpoint", "restore", job.url, "--to", f"{job.folder}/made", status=FAILED)
        assert "no such checkpoint" in job.leat("checkpoint", "show", f"{job.url}@77-1", status=FAILED)
        parts = job.leat("state", "list", job.url)
        assert "dedup" in parts, parts
        alone = subprocess.run([*job.command("--from", job.url), "--json"], cwd=job.disk("alone"), capture_output=True, text=True, check=False)
        assert alone.returncode == ENDED, alone
        assert "a new run, with the state of checkpoint" in alone.stderr + alone.stdout, alone
        assert sinks(job.out) == PLAIN


def test_lost_record():
    """etcd has lost what it knew: nobody may begin anew, and the named command writes the record again, from the newest head."""
    with etcd.Etcd(os.path.join(FOLDER.name, "lost"), is_fast=True) as servers, StoreJob(servers) as job:
        workers = [job.start(2) for _ in range(2)]
        job.progress()
        for process in workers:
            process.kill()
        job.ends(*workers, status=KILLED)
        servers.members[0].lose_data()
        servers.members[0].start()
        servers.wait()
        refused(job, ["E0714", "it has run before", "leat cluster rebuild"])
        newest, older = job.heads()[-1], job.heads()[0]
        assert "not the newest" in job.cluster("rebuild", f"--from={job.url}@{older[0]}-{older[1]}", status=FAILED)
        assert "of another cluster" in job.cluster("rebuild", f"--from={job.url}", name="other", status=FAILED)
        told = job.cluster("rebuild", f"--from={job.url}")
        assert f"head-{newest[0]:06}-{newest[1]:012}" in told, told
        job.lose_disks()
        job.ends(*[job.start(2, failpoints="", disk=disk) for disk in range(2)])
        job.is_as_plain()
        assert "E0713" in job.cluster("rebuild", f"--from={job.url}", status=FAILED)


def test_alone_first():
    """A run that was alone has put its checkpoints into the store; workers go on from there, on empty disks, and need nothing of that once
    they have a head."""
    with StoreJob() as job:
        alone = subprocess.Popen(job.command(), cwd=job.disk("alone"), env={**os.environ, **job.environment, "LEAT_FAILPOINTS": SLOW},
                                 stdout=subprocess.DEVNULL)
        job.processes.append(alone)
        wait_for("a checkpoint in the store", lambda: glob.glob(f"{job.store}/heads/*"))
        alone.send_signal(signal.SIGINT)
        alone.wait()
        workers = [job.start(2, disk=disk) for disk in range(2)]
        stop(job, workers)
        assert came_from_store(job, workers[0]) == (1, 1)
        for name in ("heads", "gen-*", "db", "tables"):
            for path in glob.glob(f"{job.store}/{name}"):
                shutil.rmtree(path)
        job.lose_disks()
        job.ends(*[job.start(2, failpoints="", disk=disk) for disk in range(2)])
        job.is_as_plain()


def test_alone_is_ahead():
    """It has gone further than the store knows: workers that would do that again are refused."""
    with StoreJob() as job:
        alone = subprocess.Popen(job.command(), cwd=job.disk(0), stdout=subprocess.DEVNULL,
                                 env={**os.environ, **job.environment, "LEAT_FAILPOINTS": f"{SLOW},objects.head=kill@2"})
        job.processes.append(alone)
        alone.wait()
        refused(job, ["E0710", "none that is as new", "without --cluster"], disk=0)


def prepare():
    """The data, the jobs, and what a run that is alone makes of the first one."""
    make_data(f"{FOLDER.name}/data")
    make_job()
    with StoreJob(url="") as job:
        told = subprocess.run(job.command("--json"), cwd=job.disk(0), check=True, stdout=subprocess.PIPE, text=True)
        PLAIN.update(sinks(job.out))
        FIGURES.update(json.loads(told.stdout))
    assert len(PLAIN) == 6


if __name__ == "__main__":
    sys.exit(test_cluster.main(globals(), prepare))
