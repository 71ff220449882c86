#!/usr/bin/env python3
"""Jobs between topics while the wall clock of leat jumps by an hour, both ways, judged by the oracle: rows, state, model and
counts of an undisturbed run, nothing stands still, and no thread waits by that clock. Prints TAP.

    tests/kafka/test_clock.py PATH_OF_LEAT PATH_OF_JUMPING_CLOCK
"""

import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import oracle  # noqa: E402
import rig  # noqa: E402

sys.path.insert(2, os.path.join(rig.install.ROOT, "tests", "clock"))
import jumps  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[2])
PARTS = 6


def test_a_live_job():
    """Parts come while it jumps; each is out soon. Killed between them, and ended while it jumps."""
    case = oracle.Case(rig.shared(), rows=12000, is_live=True, parts=PARTS)
    job = case.job(every="100ms")
    with jumps.Clock(LIBRARY) as clock:
        for part in range(PARTS):
            if part > 0:
                case.give()
            process = job.start(**clock.environment())
            with clock.jumping(random.Random(part)):
                begin = time.monotonic()
                job.wait_given(process)
                took = time.monotonic() - begin
            assert took < rig.PATIENCE_S, (part, took)
            if part < PARTS - 1:
                process.kill()
                process.wait()
        with clock.jumping(random.Random(7)):
            time.sleep(1)
            begin = time.monotonic()
            job.finish(process=process)
            assert time.monotonic() - begin < rig.PATIENCE_S
        assert clock.jumps > 50 and clock.asked > 0, (clock.jumps, clock.asked)
        assert clock.waits == 0, (clock.waits, clock.longest_seconds)
    job.check()
    job.close()


def test_a_job_that_ends():
    """Set back by an hour for good, at once in the middle: that is where waits by the wall clock stand still."""
    case = oracle.Case(rig.shared(), rows=12000)
    for ahead_us in (-jumps.HOUR_US, jumps.HOUR_US):
        job = case.job(rate=4000, every="100ms")
        with jumps.Clock(LIBRARY) as clock:
            process = job.start(**clock.environment())
            job.wait_rows(process, 1000)
            clock.set(ahead_us)
            begin = time.monotonic()
            job.finish(process=process, seconds=rig.PATIENCE_S)
            assert time.monotonic() - begin < rig.PATIENCE_S, time.monotonic() - begin
            assert clock.waits == 0, (clock.waits, clock.longest_seconds)
        job.check()
        job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
