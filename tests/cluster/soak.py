#!/usr/bin/env python3
"""Faults of workers, etcd, ways and machines, by a seed, over jobs of four workers. Each job's files must be those of a run that is alone,
byte for byte, and its counters must add up; how long each fault held back the next head, behind which sinks commit, is shown, and at the
end a table.

    soak.py LEAT [--faults N] [--seed N] [--turn N] [--kind NAME]... [--clock libjumping_clock.so]      (./dev soak cluster ...)

Each job has a few faults, a turn; turn N of a seed has the same ones whenever it is run. Ends at the first job that is wrong or hangs: its
folder stays, and the command that repeats it is told.
"""

import argparse
import base64
import glob
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import network

if "--store" in sys.argv:
    os.environ[network.INSIDE] = "the store is at 127.0.0.1"
elif __name__ == "__main__":
    network.enter()

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("leat")
PARSER.add_argument("--faults", type=int, default=300)
PARSER.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
PARSER.add_argument("--turn", type=int, help="that one alone")
PARSER.add_argument("--kind", action="append", help="of faults, those alone; again for more")
PARSER.add_argument("--state", type=int, default=0, metavar="MIB", help="measures alone: one job, with so much state on each worker")
PARSER.add_argument("--store", action="store_true", help="workers with disks of their own and an object store, and faults of these")
PARSER.add_argument("--keep", action="store_true", help="the folder of a turn that was good, too")
PARSER.add_argument("--clock", help="libjumping_clock.so")
OPTIONS = PARSER.parse_args()
sys.argv = [sys.argv[0], OPTIONS.leat]
if not OPTIONS.state:
    os.environ["LEAT_TEST_CUT"] = "16"  # small micro-batches, so that a head is due every half second

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import faults  # noqa: E402
import store_faults  # noqa: E402
import test_cluster as workers  # noqa: E402
import test_cluster_store as stored  # noqa: E402

sys.path.insert(0, os.path.join(etcd.HERE, "..", "clock"))
import jumps  # noqa: E402

FAULTS = store_faults.ALL if OPTIONS.store else faults.ALL
SLOW = "run.claimed=sleep:8"
WORKERS, LEAST, FAULTS_OF_A_TURN, MEMBERS = 4, 2, 8, 3
LEASE_S = 3  # as where nobody says anything
KEYS = OPTIONS.state * (1 << 20) * WORKERS // 1040
if OPTIONS.state:
    FAULTS_OF_A_TURN, SLOW = OPTIONS.faults, "run.claimed=sleep:100"
HANGS_S = 120
BEGIN = time.monotonic()


def say(text):
    print(f"{time.monotonic() - BEGIN:7.1f} s  {text}", flush=True)


class Seat:
    """Where a worker is started again and again."""

    def __init__(self, place):
        self.place, self.process = place, None
        self.clock = jumps.Clock(OPTIONS.clock) if OPTIONS.clock else None


class Turn:
    """A job with its faults. ways: of the seats to a store; none: there is none."""

    def __init__(self, number, servers, net, kinds, ways=()):
        self.ways = ways
        self.number, self.servers, self.network, self.kinds = number, servers, net, kinds
        self.rng = random.Random(f"{OPTIONS.seed}/{number}")
        self.seats = [Seat(place) for place in net.places[MEMBERS:MEMBERS + WORKERS]]
        self.standby = Seat(net.places[-1])  # of faults that are about one: else nobody is there
        self.job, self.notes, self.began, self.seen, self.found, self.disks = None, [], 0, None, [], []
        # Key groups move by chance in a turn in which one dies at that.
        self.flags = [f"--move={self.rng.randrange(1, 1000)}"] if "mover_killed" in kinds else []

    # --- What faults use ---

    def says(self, note):
        self.notes.append(note)

    def next_of(self, points):
        """One of them by the turn's number, in an order by the seed: so that all come before any comes twice."""
        order = list(points)
        random.Random(OPTIONS.seed).shuffle(order)
        return order[self.number % len(order)]

    def begins(self):
        self.began, self.seen = time.monotonic(), self.record("head")

    def start(self, seat, failpoint=None, is_slow=True, flags=()):
        points = ",".join(([SLOW] if is_slow else []) + ([failpoint] if failpoint else []))
        more = {"LD_PRELOAD": seat.clock.library, "LEAT_CLOCK": seat.clock.file.name} if seat.clock else {}
        fat = [f"--set=keys={KEYS}"] if OPTIONS.state else []
        seat.process = self.job.start(f"{LEAST}:{WORKERS}", *fat, *self.flags, *flags, lanes=1, failpoints=points, place=seat.place,
                                      lease_s=LEASE_S, **self.of_store(seat), **more)

    def of_store(self, seat):
        if not self.ways:
            return {}
        number = (*self.seats, self.standby).index(seat)
        return {"disk": number, **self.ways[number].environment()}

    def disk(self, seat):
        return self.job.disk((*self.seats, self.standby).index(seat))

    def start_standby(self):
        """It has the newest head ready, or the one before."""
        self.start(self.standby, flags=["--standby"])
        def is_ready():
            self.ends_well(self.standby)
            members = json.loads(workers.leat_cluster(self.job, "status", "--json").stdout)["members"]
            return self.has_ended() or any(one["standby"] and one["heads_behind"] in (0, 1) for one in members)
        etcd.wait_for("a standby with a head", is_ready)

    def revive(self):
        for seat in self.seats:
            self.ends_well(seat)
            if seat.process.poll() == faults.KILLED:
                self.start(seat)

    def placed(self):
        """The seats of the newest round, in the order of their numbers, and its leader's."""
        record = self.record("placement")
        if record is None:
            return [], None
        by_address = {seat.place.address: seat for seat in (*self.seats, self.standby)}
        seats = [by_address[worker["address"].rsplit(":", 1)[0]] for worker in record["workers"]]
        return [seat for seat in seats if seat.process.poll() is None], seats[record["leader"]]

    def workers(self):
        return self.placed()[0]

    def leader(self):
        return self.placed()[1]

    def pick_follower(self):
        return self.rng.choice([seat for seat in self.workers() if seat is not self.leader()])

    # --- The record in etcd ---

    def record(self, name):
        """None: there is none, or etcd does not answer."""
        key = base64.b64encode(f"/leat/{self.job.name}/{name}".encode()).decode()
        for member in self.servers.members:
            try:
                found = self.servers.call("kv/range", {"key": key}, member).get("kvs") if member.process else None
            except OSError:
                continue
            if found:
                value = base64.b64decode(found[0]["value"]).decode()
                return json.loads(value[value.index("{"):]) | {"revision": int(found[0]["mod_revision"])}
        return None

    def ends_well(self, seat):
        """Whether the worker's job has ended: also without a last checkpoint, where its end came while a disk was full; check() then starts
        it again. A worker that failed in any other way is an error."""
        status = seat.process.poll()
        if status == workers.FAILED and "the last checkpoint could not be written" in self.job.text(seat.process.log):
            return True
        assert status in (None, faults.KILLED, workers.ENDED), (status, self.job.text(seat.process.log)[-3000:])
        return status == workers.ENDED

    def has_ended(self):
        return any([self.ends_well(seat) for seat in (*self.seats, self.standby) if seat.process])

    def await_heads(self, is_enough, what):
        until = time.monotonic() + HANGS_S
        while not self.has_ended():
            head = self.record("head")
            if head is not None and is_enough(head):
                return
            assert time.monotonic() < until, f"no head came in {HANGS_S} s: {what}"
            time.sleep(.01)

    def recovers(self, how, what):
        """Until the job goes on, as the fault says. Returns the seconds since it began."""
        before = self.seen or {"incarnation": 0, "epoch": 0}
        revisions = set()

        def is_enough(head):
            if how == faults.ROUND:
                return head["incarnation"] > before["incarnation"]
            if head["revision"] != before.get("revision"):
                revisions.add(head["revision"])
            return len(revisions) >= 2

        self.await_heads(is_enough, what)
        return time.monotonic() - self.began

    def settle(self):
        """All processes are there, enough have work, where recovery is measured all of them, and a head comes."""
        self.revive()
        head, least = self.record("head") or {"revision": 0}, WORKERS if OPTIONS.state else LEAST

        asks_at = time.monotonic() + 5

        def is_calm(one):
            """Where recovery is measured, no workers are being taken in either; who was left out of a round is only when somebody asks."""
            nonlocal asks_at
            round_of = self.record("placement") if OPTIONS.state else None
            if OPTIONS.state and len(self.workers()) < least and time.monotonic() > asks_at:
                subprocess.run([OPTIONS.leat, "cluster", "grow", f"etcd://{self.servers.endpoints()}/{self.job.name}", "--within=1s"],
                               check=False, capture_output=True)
                asks_at = time.monotonic() + 5
            return (one["revision"] > head["revision"] and len(self.workers()) >= least
                    and (round_of is None or one["incarnation"] == round_of["incarnation"]))

        self.await_heads(is_calm, "before a fault")

    # --- A turn ---

    def make_disks(self):
        if network.why_not() or OPTIONS.state or self.ways:
            return
        self.disks = [f"{self.job.state}/cluster/worker-{i}" for i in range(WORKERS)]
        for folder in self.disks:
            os.makedirs(folder)
            network.run("mount", "-t", "tmpfs", "-o", f"size={faults.DISK_BYTES}", "none", folder)

    def run(self):
        job = {"job": os.path.join(etcd.HERE, "fat.leat"), "every": "500ms"} if OPTIONS.state else {"every": "200ms"}
        name = f"turn{self.number}"
        with (stored.StoreJob(self.servers, url=f"s3://bucket/{name}", **job) if self.ways else workers.Job(self.servers, **job)) as self.job:
            try:
                self.make_disks()
                if OPTIONS.state:
                    self.fill()
                self.run_faults()
                if not OPTIONS.state:
                    self.check()
                if OPTIONS.keep:
                    self.keep()
            except BaseException as error:
                say(f"turn {self.number} failed: {str(error)[-1500:]}")
                self.keep()
                raise
            finally:
                for folder in self.disks:
                    subprocess.run(["umount", "--lazy", folder], check=False)
        return self.found

    def fill(self):
        """Until each key has its state; then all processes are killed, for they go on more slowly."""
        for seat in self.seats:
            self.start(seat, is_slow=False)
        rows = os.path.join(self.job.out, "rows.csv.part")
        etcd.wait_for("the state", lambda: os.path.exists(rows) and os.path.getsize(rows) > 60 * KEYS)
        for seat in self.seats:
            seat.process.kill()
            seat.process.wait()
        size = subprocess.run(["du", "-sm", *glob.glob(f"{self.job.state}/cluster/worker-*")], capture_output=True, text=True, check=True)
        say("MiB on the disks of the workers: " + ", ".join(line.split()[0] for line in size.stdout.splitlines()))

    def run_faults(self):
        for seat in self.seats:
            self.start(seat)
        for kind in self.kinds:
            self.settle()
            if self.has_ended():
                break
            self.notes = []
            time.sleep(self.rng.random())
            fault = FAULTS[kind](self)
            how = next(fault)
            seconds = self.recovers(how, kind)
            if self.has_ended():
                self.network.mend()
            for _ in fault:
                assert False, "a fault yields once"
            self.found.append((kind, seconds))
            say(f"seed {OPTIONS.seed} turn {self.number}: {kind}{' (' + ', '.join(self.notes) + ')' if self.notes else ''}: {seconds:.2f} s")

    def check(self):
        """What is left of the job, without delay, by so many workers; then its files and counters."""
        for seat in (*self.seats, self.standby):
            if seat.process and seat.process.poll() is None:
                seat.process.kill()
                seat.process.wait()
        count = self.rng.randrange(1, WORKERS + 1)
        lanes = [self.rng.randrange(1, 3) for _ in range(count)]
        self.job.ends(*[self.job.start(count, *self.flags, lanes=lanes[i], failpoints="", place=seat.place, **self.of_store(seat))
                        for i, seat in enumerate(self.seats[:count])])
        self.job.is_as_plain()

    def keep(self):
        for process in self.job.processes:  # else files go while they are copied
            process.kill()
        folder = os.path.abspath(f"build/cluster-soak/{OPTIONS.seed}-{self.number}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.job.folder, folder, symlinks=True, ignore_dangling_symlinks=True)
        say(f"its folder: {folder}; again: ./dev soak cluster --seed {OPTIONS.seed} --turn {self.number}"
            + "".join(f" --kind {kind}" for kind in OPTIONS.kind or []) + (" --store" if OPTIONS.store else ""))


def schedule(names):
    """Kinds of faults for one turn after the other: all of them come equally often."""
    rng, kinds, number = random.Random(OPTIONS.seed), [], 0
    while True:
        while len(kinds) < FAULTS_OF_A_TURN:
            more = sorted(names)
            rng.shuffle(more)
            kinds += more
        yield number, kinds[:FAULTS_OF_A_TURN]
        kinds, number = kinds[FAULTS_OF_A_TURN:], number + 1


def table(found):
    print(f"{'fault':<24} {'count':>5} {'median s':>9} {'most s':>9}")
    for kind in FAULTS:
        seconds = [one for name, one in found if name == kind]
        if seconds:
            print(f"{kind:<24} {len(seconds):>5} {statistics.median(seconds):>9.2f} {max(seconds):>9.2f}")


def run_turn(number, servers, net, kinds):
    if not OPTIONS.store:
        return Turn(number, servers, net, kinds).run()
    with store_faults.Store(WORKERS + 1) as store:
        return Turn(number, servers, net, kinds, store.ways).run()


def main():
    if etcd.missing():
        print(f"ok - cluster faults # SKIP {etcd.missing()}")
        return 77
    names, left_out = (list(FAULTS), {}) if OPTIONS.store else faults.possible(OPTIONS.clock)
    names = [name for name in names if not OPTIONS.kind or name in OPTIONS.kind]
    for name, why in left_out.items():
        say(f"left out: {name}: {why}")
    found, is_good = [], False
    places = [f"e{i}" for i in range(MEMBERS)] + [f"w{i}" for i in range(WORKERS + 1)]
    with workers.FOLDER as folder, network.Network(places) as net:
        with etcd.Etcd(os.path.join(folder, "etcd"), MEMBERS, places=net.places[:MEMBERS]) as servers:
            workers.ETCD.append(servers)
            if not OPTIONS.state:
                (stored if OPTIONS.store else workers).prepare()
            try:
                for number, kinds in schedule(names):
                    if OPTIONS.turn in (None, number):
                        found += run_turn(number, servers, net, kinds)
                    is_good = len(found) >= OPTIONS.faults or OPTIONS.turn == number
                    if is_good:
                        break
            except AssertionError:
                pass
            finally:
                table(found)
    print(f"{'ok' if is_good else 'not ok'} - cluster faults: {len(found)} of seed {OPTIONS.seed}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
