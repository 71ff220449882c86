"""Faults of object stores and of disks, in the form of faults.py: workers whose directories are their own, each with a way of its own to one
store (tests/objects/rig.py)."""

import contextlib
import glob
import os
import shutil
import sys
import time

from faults import HEADS, ROUND, killed_and_back

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "objects"))
import rig  # noqa: E402

ALL_REQUESTS = 10**9
OF_PARTS = "/bucket/.*/cluster/"


class Store:
    """A store, and a way to it for each seat. Use it in a `with`."""

    def __init__(self, seats):
        self.stack = contextlib.ExitStack()
        self.store = self.stack.enter_context(rig.Store())
        self.store.make_bucket("bucket")
        self.ways = [self.stack.enter_context(rig.Store(of=self.store)) for _ in range(seats)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()


def fault_of(turn, ways, kind, for_s, **more):
    """For so long. No head is made while parts do not come into the store."""
    found = [way.fault(kind, times=ALL_REQUESTS, **more) for way in ways]
    time.sleep(for_s)
    for way, fault in zip(ways, found):
        fault.times = 0
        way.may_go.set()
    turn.says(f"{sum(fault.happened for fault in found)} requests")
    turn.begins()
    yield HEADS
    for way in ways:
        way.may_go.clear()


def store_fails(turn):
    """With 500 or 503, for all workers."""
    yield from fault_of(turn, turn.ways, "status", turn.rng.uniform(1, 6), status=turn.rng.choice((500, 503)))


def cut_from_store(turn):
    """One worker: its connections break."""
    yield from fault_of(turn, [turn.rng.choice(turn.ways)], "lost_answer", turn.rng.uniform(1, 6))


def store_hangs(turn):
    """One worker's requests get no answer."""
    yield from fault_of(turn, [turn.rng.choice(turn.ways)], "slow", turn.rng.uniform(1, 4), seconds=60)


def store_slow(turn):
    """Each request takes a while, and heads come all the same."""
    found = [way.fault("slow", times=ALL_REQUESTS, seconds=.2) for way in turn.ways]
    turn.begins()
    yield HEADS
    for fault in found:
        fault.times = 0


def uploads_torn(turn):
    """In the midst; answers that are lost or torn, bytes that are changed on their way."""
    for way in turn.ways:
        for kind in ("torn_upload", "lost_answer", "torn_answer", "changed_upload"):
            way.fault(kind, method="PUT" if "upload" in kind else None, path=OF_PARTS, times=turn.rng.randrange(1, 4), after=turn.rng.randrange(10))
    turn.begins()
    yield HEADS


def leader_and_disk_lost(turn):
    """The leader is killed, its disk is empty, and on another one the newest parts are damaged."""
    seat = turn.leader()
    others = [one for one in turn.seats if one is not seat]
    seat.process.kill()
    seat.process.wait()
    shutil.rmtree(turn.disk(seat))
    other = turn.rng.choice(others)
    other.process.kill()
    other.process.wait()
    for path in sorted(glob.glob(f"{turn.disk(other)}/**/gen-*/ckpt-*/state.bin", recursive=True))[-2:]:
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            file.seek(size // 2)
            byte = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte[0] ^ 1]) if byte else b"x")
        turn.says(os.path.relpath(path, turn.disk(other))[-40:])
    turn.begins()
    turn.start(seat)
    turn.start(other)
    yield ROUND


ALL = {fault.__name__: fault for fault in (
    store_fails, cut_from_store, store_hangs, store_slow, uploads_torn, leader_and_disk_lost, killed_and_back)}
