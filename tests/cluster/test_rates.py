#!/usr/bin/env python3
"""How fast workers can send to each other: measured when they meet, and told; a worker behind a slow way is named. Prints TAP.

    test_rates.py LEAT

Needs network namespaces (network.py).
"""

import json
import os
import sys

import network

network.enter()

# pylint: disable=wrong-import-position
import etcd  # noqa: E402
import test_cluster as workers  # noqa: E402
from etcd import wait_for  # noqa: E402

WORKERS = 3
SLOW_RATE, SLOW_BYTES_PER_S = "4mbit", 500000
ANOTHER_BYTES_PER_S = 6 * SLOW_BYTES_PER_S  # every other way; a busy machine may not reach that at once
TRIES = 5
SERVERS, PLACES = [], []


def sends(job):
    """{(from, to): what is told of it}, by addresses; None: not all is known yet."""
    told = json.loads(workers.leat_cluster(job, "status", "--json").stdout)["members"]
    found = {(one["address"], rate["to"]): rate for one in told for rate in one["sends"]}
    return found if len(found) == WORKERS * (WORKERS - 1) else None


def is_seen(slow):
    """Whether a slow way was told as one; False: the machine was too busy to measure the others."""
    with workers.Job(SERVERS[0]) as job:
        processes = [job.start(WORKERS, lanes=1, place=place) for place in PLACES]
        found = wait_for("rates of all pairs", lambda: sends(job))
        of_slow = {pair: rate for pair, rate in found.items() if pair[0].startswith(f"{slow.address}:")}
        # An answer to what is sent to it comes the slow way, too.
        others = {pair: rate for pair, rate in found.items() if not any(address.startswith(f"{slow.address}:") for address in pair)}
        assert len(of_slow) == WORKERS - 1, found
        assert all(rate["bytes_per_s"] < 1.5 * SLOW_BYTES_PER_S for rate in of_slow.values()), found
        if min(rate["bytes_per_s"] for rate in others.values()) < ANOTHER_BYTES_PER_S:
            print(f"# the machine is busy: {found}", flush=True)
            return False
        assert all(rate["is_slow"] for rate in of_slow.values()), found
        text = workers.leat_cluster(job, "status").stdout
        assert all(f"slow: {one} to {other}, " in text for one, other in of_slow), text
        leader, _ = job.leader(processes)
        job.says(leader, "workers that send slowly")
        line = next(line for line in job.text(leader.log).splitlines() if "workers that send slowly" in line)
        assert all(f"{one} to {other} " in line for one, other in of_slow), line
        job.progress(1)  # it goes on
    return True


def test_a_slow_way():
    slow = PLACES[1]
    slow.slow(SLOW_RATE)
    assert any(is_seen(slow) for _ in range(TRIES)), "the machine is too busy to send anything quickly"
    slow.mend()


def main():
    if etcd.missing() or network.why_not():
        print(f"ok - rates # SKIP {etcd.missing() or network.why_not()}")
        return 77
    with workers.FOLDER as folder, network.Network(["e0", *(f"w{i}" for i in range(WORKERS))]) as net, \
            etcd.Etcd(os.path.join(folder, "etcd"), is_fast=True, places=net.places[:1]) as servers:
        SERVERS.append(servers)
        PLACES.extend(net.places[1:])
        workers.make_data(f"{folder}/data")
        return workers.tap.run({"test_a_slow_way": test_a_slow_way})


if __name__ == "__main__":
    sys.exit(main())
