#!/usr/bin/env python3
"""Brokers that are stopped, killed, hang, and are all gone, between a topic and a topic, judged by the oracle (oracle.py).
Each test has brokers of its own. Prints TAP.

    tests/kafka/test_brokers.py PATH_OF_LEAT
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

GONE_SECONDS = 11  # longer than a transaction of the job may last


def test_one_of_three_and_all_three():
    with rig.own(brokers=3) as kafka:
        case = oracle.Case(kafka, rows=20000, is_live=True, parts=5)
        job = case.job(every="200ms")
        process = job.start()
        job.wait_given(process)
        kafka.stop(1)
        case.give()
        job.wait_given(process)
        kafka.start(1)
        kafka.kill(2)
        case.give()
        job.wait_given(process)
        kafka.start(2)
        case.give()
        kafka.kill()  # some of the part is on its way
        time.sleep(GONE_SECONDS)
        assert process.poll() is None, job.end(process)
        kafka.start()
        case.give()
        job.finish(process=process)
        job.check()
        job.close()


def test_a_broker_that_hangs():
    with rig.own() as kafka:
        case = oracle.Case(kafka, rows=20000)
        job = case.job(rate=8000, every="100ms")
        process = job.start()
        job.wait_rows(process, 5000)
        kafka.pause(1)
        time.sleep(GONE_SECONDS)
        kafka.resume(1)
        job.finish(process=process)
        job.check()
        job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=2))
