#!/usr/bin/env python3
"""Several workers (`leat run --cluster`) between a topic and a topic, of which one does not reach Kafka for a while, though it reaches etcd
and the other workers: rows, model and counts of a run that is alone and that nobody disturbed, each row once. Prints TAP.

    tests/kafka/test_cluster_cut.py PATH_OF_LEAT [--cuts N] [--seed N]

Each worker runs at a place of its own (tests/cluster/network.py), where a proxy stands at the broker's port.
"""

import argparse
import contextlib
import os
import random
import socket
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "cluster")]
import network  # noqa: E402

network.enter()
os.environ.pop("LEAT_KAFKA", None)  # that broker is not seen from here

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import rig  # noqa: E402
import test_cluster as workers  # noqa: E402
from proxy import Proxy  # noqa: E402

WORKERS, LONGEST_S = 3, 13  # longer than a transaction of the job may last
PLACES = []


def listen_at(place, port):
    """A socket that listens at the place's 127.0.0.1, for a thread of this one."""
    found = []

    def listen():
        with open(place.path, "rb") as file:
            assert etcd.LIBC.setns(file.fileno(), 0) == 0
        found.append(socket.create_server(("127.0.0.1", port), backlog=128))
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    return found[0]


class Ways:
    """From each place to the broker."""

    def __init__(self, places):
        port = int(rig.shared().brokers.rpartition(":")[2])
        self.proxies = {place: Proxy(port, port, listen_at(place, port)) for place in places}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for proxy in self.proxies.values():
            proxy.close()

    @contextlib.contextmanager
    def cut(self, place, is_held):
        """is_held: nothing comes through, and nobody is told; else connections break, and new ones, too."""
        proxy = self.proxies[place]
        (proxy.pause if is_held else proxy.refuse)()
        try:
            time.sleep(.1)
            before = proxy.requests.total()
            yield
            assert proxy.requests.total() == before, "it is not cut off"
        finally:
            (proxy.resume if is_held else proxy.accept)()


def test_cut_and_back():
    """The connections of one worker break, and those of another one go silent, for longer than the lease: no round ends for it."""
    with Ways(PLACES) as ways:
        job = workers.Workers(rate=round(1000 / rig.stretched(1)))  # 12 s, and it stands still while a worker is cut off
        there = [job.begin(WORKERS, place=place) for place in PLACES]
        for place, is_held in zip(PLACES[1:], (False, True)):
            job.wait_heads(1, WORKERS)
            assert not job.has_ended(), "the job is too short"
            with ways.cut(place, is_held):
                time.sleep(3)
        rig.wait_for(lambda: not job.live(), "the end")
        begun = [workers.Workers.said(process.err).count("this one has number") for process in there]
        job.end()
        assert begun == [1] * WORKERS, begun


def soak(cuts, seed):
    """Cuts of all lengths, and workers that die meanwhile."""
    rng, done, jobs = random.Random(seed), 0, 0
    with Ways(PLACES) as ways:
        while done < cuts:
            job, jobs = workers.Workers(rate=1000), jobs + 1
            at = {place: job.begin(WORKERS, place=place) for place in PLACES}

            def revive(job=job, at=at):
                for place, process in at.items():
                    if process.poll() not in (None, 0):
                        at[place] = job.begin(WORKERS, place=place)
            while not job.has_ended() and done < cuts:
                job.wait_heads(1, WORKERS)
                place, is_held, seconds = rng.choice(PLACES), rng.random() < .5, rng.choice((.2, 1, 3, LONGEST_S))
                victim = rng.choice(PLACES) if rng.random() < .3 else None
                print(f"# job {jobs}: {place.name} {'held' if is_held else 'refused'} for {seconds} s, "
                      f"{'killed: ' + victim.name if victim else 'nobody killed'}", flush=True)
                with ways.cut(place, is_held):
                    if victim:
                        time.sleep(rng.random())
                        at[victim].kill()
                        at[victim].wait()
                        revive()
                    time.sleep(seconds)
                done += 1
                revive()
            job.end()
    print(f"# {done} cuts in {jobs} jobs, seed {seed}")


def main():
    if etcd.missing() or network.why_not():
        print(f"ok - kafka_cluster_cut # SKIP {etcd.missing() or network.why_not()}")
        return 77
    with tempfile.TemporaryDirectory(prefix="leat-etcd-") as folder, \
            network.Network(["e0", *(f"w{i}" for i in range(WORKERS))]) as net, \
            etcd.Etcd(os.path.join(folder, "etcd"), is_fast=True, places=net.places[:1]) as servers:
        workers.SERVERS.append(servers)
        PLACES.extend(net.places[1:])
        return rig.run({"test_soak": lambda: soak(OPTIONS.cuts, OPTIONS.seed)} if OPTIONS.cuts else globals())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("leat")
    parser.add_argument("--cuts", type=int, default=0, help="so many at random, instead of the test")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    OPTIONS = parser.parse_args()
    sys.exit(main())
