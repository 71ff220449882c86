"""Faults of a cluster, one function each, for the soak (soak.py). A fault is a generator: it does harm, says with `turn.begins()` when
recovery begins, and yields how the job must go on; what follows the yield mends. What it yields:

ROUND   workers begin another incarnation, and that one has a head
HEADS   two more heads, of whatever incarnation
"""

import os
import signal
import subprocess
import threading
import time

import etcd
import network
from etcd import wait_for

ROUND, HEADS = "round", "heads"
SLEPT_S = 4  # of a process or a way: beyond the lease
KILLED = -signal.SIGKILL

# Where a worker may be killed: steps of a part, of a manifest, of a head, and of what follows.
POINTS_OF_ALL = ("ckpt.barrier", "ckpt.write", "ckpt.manifest", "ckpt.fsync", "ckpt.fsync_directory", "ckpt.pre_rename",
                 "ckpt.rename", "ckpt.post_rename", "ckpt.fsync_parent", "ckpt.published", "ckpt.database", "ckpt.prune")
POINTS_OF_LEADER = ("ckpt.order", "head.write", "head.fsync", "head.rename", "head.fsync_directory", "head.publish", "head.answer", "head.moved",
                    "head.prune")
# Steps of a move of key groups: of the leader, of who gives, of who takes.
POINTS_OF_MOVE = ("move.announce", "move.base", "move.give", "move.given", "move.take_base", "move.take", "move.taken")


# --- Deaths ---

def kill(turn, victims, returns):
    turn.begins()
    for seat in victims:
        seat.process.kill()
    for seat in victims:
        seat.process.wait()
        if returns:
            turn.start(seat)


def killed_and_back(turn):
    """A worker is killed, and its process is there again at once."""
    kill(turn, [turn.pick_follower()], returns=True)
    yield ROUND


def killed(turn):
    """A worker is killed; the others go on without it."""
    kill(turn, [turn.pick_follower()], returns=False)
    yield ROUND


def killed_with_standby(turn):
    """A worker is killed, and a standby has its place."""
    turn.start_standby()
    kill(turn, [turn.pick_follower()], returns=False)
    yield ROUND
    assert turn.has_ended() or turn.standby in turn.workers(), "the standby has no place"
    turn.standby.process.kill()
    turn.standby.process.wait()


def standby_killed(turn):
    """A standby that waits is killed, or one that takes a place: the others wait for that as for any worker."""
    turn.start_standby()
    if turn.rng.random() < .5:
        before = turn.record("placement")
        are_all_there = len(turn.workers()) == len(turn.seats) and not before["changes"]  # else others may come, too
        kill(turn, [turn.standby], returns=False)
        yield HEADS
        after = turn.record("placement")
        assert turn.has_ended() or not are_all_there or after["revision"] == before["revision"], "it touched the job"
    else:
        kill(turn, [turn.pick_follower()], returns=False)
        time.sleep(turn.rng.uniform(0, 1))
        kill(turn, [turn.standby], returns=False)
        yield ROUND


def two_killed(turn):
    kill(turn, turn.rng.sample(turn.workers(), 2), returns=turn.rng.random() < .5)
    yield ROUND


def leader_killed(turn):
    kill(turn, [turn.leader()], returns=turn.rng.random() < .5)
    yield ROUND


def all_begin_anew(turn, armed, failpoint):
    for seat in turn.seats:
        seat.process.kill()
        seat.process.wait()
    for seat in turn.seats:
        turn.start(seat, failpoint if seat in armed else None)


def die_at(turn, point, armed):
    """All begin anew, and one of the armed dies at that step; then the other ones, which would die there later."""
    passage = turn.rng.randrange(1, 4)
    turn.says(f"{point} {passage}")
    all_begin_anew(turn, armed, f"{point}=kill@{passage}")
    until = time.monotonic() + 30
    while all(seat.process.poll() is None for seat in armed) and time.monotonic() < until:
        time.sleep(.01)
    turn.begins()
    if all(seat.process.poll() is None for seat in armed):
        turn.says("it was not passed")
    for seat in armed:
        assert seat.process.poll() in (None, KILLED), turn.job.text(seat.process.log)[-2000:]
    for seat in armed:
        seat.process.kill()
        seat.process.wait()
    turn.revive()
    yield ROUND


def killed_at_a_step(turn):
    """At a step of a checkpoint; of the leader's steps: who leads. Each step before any twice."""
    point = turn.next_of(POINTS_OF_ALL + POINTS_OF_LEADER)
    yield from die_at(turn, point, [turn.rng.choice(turn.seats)] if point in POINTS_OF_ALL else turn.seats)


def mover_killed(turn):
    """At a step of a move of key groups: who leads, gives or takes."""
    yield from die_at(turn, turn.next_of(POINTS_OF_MOVE), turn.seats)


# --- Sleepers ---

def stopped(turn, seat):
    turn.begins()
    etcd.stop(seat.process)
    yield ROUND
    seat.process.send_signal(signal.SIGCONT)


def worker_stopped(turn):
    """Stopped beyond its lease; it wakes when the others have gone on."""
    yield from stopped(turn, turn.pick_follower())


def leader_stopped(turn):
    yield from stopped(turn, turn.leader())


def stopped_at_a_step(turn):
    """Of a checkpoint, as it writes its part; it wakes later."""
    seat = turn.pick_follower()
    point = turn.rng.choice(("ckpt.write", "ckpt.pre_rename", "ckpt.post_rename", "ckpt.published", "sink.write"))
    turn.says(point)
    seat.process.kill()
    seat.process.wait()
    turn.start(seat, f"{point}=stop@{turn.rng.randrange(1, 3)}")
    until = time.monotonic() + 20
    while not is_stopped(seat.process) and time.monotonic() < until:
        time.sleep(.02)
    turn.begins()
    is_passed = is_stopped(seat.process)
    yield ROUND if is_passed else HEADS
    seat.process.send_signal(signal.SIGCONT)


def is_stopped(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


# --- etcd ---

def etcd_member_killed(turn):
    member = turn.rng.choice(turn.servers.members)
    turn.begins()
    member.kill()
    yield HEADS
    member.start()
    turn.servers.wait([member])


def no_quorum(turn):
    """Nothing is a head while it lasts, and the job goes on behind it."""
    away = turn.rng.sample(turn.servers.members, 2)
    for member in away:
        member.kill()
    time.sleep(turn.rng.choice((1, 3, 6, 30)))
    for member in away:
        member.start()
    turn.begins()
    yield HEADS
    turn.servers.wait(away)


def head_answer_lost(turn):
    """A head has moved, and its leader does not hear of it."""
    all_begin_anew(turn, turn.seats, f"head.answer=error:EIO@{turn.rng.randrange(1, 4)}")
    turn.begins()
    yield ROUND


# --- Frames ---


def frames(turn, failpoint):
    """What a worker sends, once it is there again."""
    seat = turn.pick_follower()
    turn.says(failpoint)
    turn.begins()
    seat.process.kill()
    seat.process.wait()
    turn.start(seat, failpoint)
    yield ROUND


def frames_twice(turn):
    yield from frames(turn, "link.twice=error:EIO")


def frames_late(turn):
    """A tenth of a second, each."""
    yield from frames(turn, "link.late=error:EIO")


def frame_cut(turn):
    """In its midst, and the connection with it; in another one the workers begin again."""
    yield from frames(turn, f"link.cut=error:EIO@{turn.rng.randrange(20, 400)}")


def frame_damaged(turn):
    yield from frames(turn, f"link.damaged=error:EIO@{turn.rng.randrange(20, 400)}")


# --- Ways ---

def cut(turn, seat, others, both, expects=ROUND):
    turn.begins()
    seat.place.block(others)
    for other in others if both else []:
        other.block([seat.place])
    yield expects
    turn.network.mend()


def peers_of(turn, seat):
    return [one.place for one in turn.seats if one is not seat]


def cut_from_peers(turn):
    """All other workers, not etcd."""
    seat = turn.pick_follower()
    yield from cut(turn, seat, peers_of(turn, seat), both=True)


def leader_cut_from_peers(turn):
    seat = turn.leader()
    yield from cut(turn, seat, peers_of(turn, seat), both=True)


def cut_from_one(turn):
    """One other worker alone."""
    seat, other = turn.rng.sample(turn.workers(), 2)
    yield from cut(turn, seat, [other.place], both=True)


def cut_one_way(turn):
    """What it sends to the other workers is lost."""
    seat = turn.rng.choice(turn.workers())
    yield from cut(turn, seat, peers_of(turn, seat), both=False)


def cut_from_etcd(turn):
    """Not from the other workers."""
    seat = turn.rng.choice(turn.workers())
    yield from cut(turn, seat, [member.place for member in turn.servers.members], both=turn.rng.random() < .5)


def unplugged(turn):
    """From all."""
    seat = turn.rng.choice(turn.workers())
    turn.begins()
    seat.place.unplug()
    yield ROUND
    turn.network.mend()


def slow_way(turn):
    seat = turn.rng.choice(turn.workers())
    turn.begins()
    seat.place.slow("2mbit")
    yield HEADS
    turn.network.mend()


# --- Machines ---

def full_disk(turn):
    """The disk of one worker's checkpoints has no room for a while: none is taken, and the sources wait."""
    number = turn.rng.randrange(len(turn.workers()))
    folder = turn.disks[number]
    used = int(subprocess.run(["df", "--block-size=1", "--output=used", folder], check=True, capture_output=True, text=True).stdout.split()[1])
    subprocess.run(["mount", "-o", f"remount,size={used + (64 << 10)}", folder], check=True)
    time.sleep(turn.rng.uniform(1, 4))
    subprocess.run(["mount", "-o", f"remount,size={DISK_BYTES}", folder], check=True)
    turn.begins()
    yield HEADS


DISK_BYTES = 1 << 30


def slow_worker(turn):
    """A tenth of a CPU."""
    seat = turn.rng.choice(turn.workers())
    group = Quota.make(f"leat-{os.getpid()}", seat.process.pid)
    turn.begins()
    yield HEADS
    group.end()


class Quota:
    """A tenth of a CPU for a process: by a control group, or where this may make none, by stopping and waking it in turn."""

    @staticmethod
    def make(name, pid):
        try:
            return Group(name, pid)
        except OSError:
            return Duty(pid)


class Group:
    PERIOD_US = 5000  # with the default of 100 ms a process stands still for 90

    def __init__(self, name, pid):
        one = "/sys/fs/cgroup/cpu"
        self.path = os.path.join(one if os.path.isdir(one) else "/sys/fs/cgroup", name)
        os.mkdir(self.path)
        try:
            if os.path.isdir(one):
                self.write("cpu.cfs_period_us", self.PERIOD_US)
                self.write("cpu.cfs_quota_us", self.PERIOD_US // 5)  # of the smallest that is allowed
            else:
                self.write("cpu.max", f"{self.PERIOD_US // 5} {self.PERIOD_US}")
            self.write("cgroup.procs", pid)
        except OSError:
            os.rmdir(self.path)
            raise
        self.pid = pid

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def end(self):
        if os.path.exists(f"/proc/{self.pid}"):
            with open(os.path.join(os.path.dirname(self.path), "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(self.pid))
        wait_for("the end of a control group", self.is_removed)

    def is_removed(self):
        try:
            os.rmdir(self.path)
            return True
        except OSError:
            return False


class Duty:
    def __init__(self, pid):
        self.pid, self.is_over = pid, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.is_over.wait(.005):
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(.045)
            os.kill(self.pid, signal.SIGCONT)

    def end(self):
        self.is_over.set()
        self.thread.join()


def clock_off(turn):
    """One worker's clock goes an hour off, and comes back."""
    seat = turn.rng.choice(turn.workers())
    turn.begins()
    seat.clock.set(turn.rng.choice((1, -1)) * 3600 * 1000000)
    yield HEADS
    seat.clock.set(0)


ALL = {fault.__name__: fault for fault in (
    killed_and_back, killed, killed_with_standby, standby_killed, two_killed, leader_killed, killed_at_a_step, mover_killed, worker_stopped,
    leader_stopped, stopped_at_a_step, etcd_member_killed, no_quorum, head_answer_lost, frames_twice, frames_late, frame_cut, frame_damaged,
    cut_from_peers, leader_cut_from_peers, cut_from_one, cut_one_way, cut_from_etcd, unplugged, slow_way,
    full_disk, slow_worker, clock_off)}
NEED_NETWORK = {"cut_from_peers", "leader_cut_from_peers", "cut_from_one", "cut_one_way", "cut_from_etcd", "unplugged", "slow_way", "full_disk"}


def possible(library):
    """Names of the faults that this machine allows, and why the others are left out."""
    left_out = {name: network.why_not() for name in NEED_NETWORK if network.why_not()}
    if library is None:
        left_out["clock_off"] = "there is no libjumping_clock.so"
    return [name for name in ALL if name not in left_out], left_out
