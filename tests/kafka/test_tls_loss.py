#!/usr/bin/env python3
"""Three brokers under TLS, and a network that loses, tears, stalls and parts, while a job between two topics runs exactly once, is
killed, and goes on; judged by the oracle: rows, state, model and counts of an undisturbed run. Prints TAP.

    tests/kafka/test_tls_loss.py PATH_OF_LEAT [--lives N] [--seed N]
"""

import argparse
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("leat")
parser.add_argument("--lives", type=int, default=6)
parser.add_argument("--seed", type=int, default=1)
OPTIONS = parser.parse_args()
ROWS = 12000
STEP_SECONDS = (0.2, 1.0)


def tls(kafka):
    return f', security: {{ protocol: ssl, ca: "{kafka.certificates}/ca.pem" }}'


class Weather:
    """What the network does to one broker at a time, in the background; `did` counts each."""

    def __init__(self, network, rng):
        self.network, self.rng, self.is_over = network, rng, threading.Event()
        self.did = dict.fromkeys(("cut", "refuse", "pause", "tear", "lose"), 0)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.network.tear(0)
        self.network.lose(0, 0)

    def run(self):
        undo = {"refuse": "accept", "pause": "resume"}
        while not self.is_over.is_set():
            what, one = self.rng.choice(list(self.did)), self.rng.choice(self.network.proxies)
            self.did[what] += 1
            if what == "tear":
                one.tear(0.03, self.rng.randrange(1000))
            elif what == "lose":
                one.lose(0.05, 0.4, self.rng.randrange(1000))
            else:
                getattr(one, what)()
            self.is_over.wait(self.rng.uniform(*STEP_SECONDS))
            if what in undo:
                getattr(one, undo[what])()
            elif what == "tear":
                one.tear(0)
            elif what == "lose":
                one.lose(0, 0)


def test_a_network_that_loses_under_tls():
    rng = random.Random(OPTIONS.seed)
    with rig.own(brokers=3, is_secure=True) as kafka:
        case = oracle.Case(kafka, rows=ROWS, is_live=True, parts=OPTIONS.lives)
        with kafka.tls_proxied() as network:
            network.delay(0.005)
            job = case.job(every="200ms", source_brokers=network.brokers, sink_brokers=network.brokers,
                           source_options=tls(kafka), sink_options=tls(kafka))
            process, did = None, {}
            for life in range(OPTIONS.lives):
                process = process or job.start()
                with Weather(network, rng) as weather:
                    if life > 0:
                        case.give()
                    if life < OPTIONS.lives - 1 and life % 2 == 0:  # amid its rows, or when they are out
                        time.sleep(rng.uniform(0.5, 4))
                    else:
                        job.wait_given(process, 120)
                assert process.poll() is None, job.end(process)
                did = {what: did.get(what, 0) + times for what, times in weather.did.items()}
                if life < OPTIONS.lives - 1:
                    process.kill()
                    process.wait()
                    process = None
            job.finish(process=process)
            assert sum(did.values()) >= OPTIONS.lives and network.cuts > 0, (did, network.cuts)
        job.check()
        job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
