"""How long a test waits, on machines of any speed and load.

PATIENCE_S is for what hangs: a minute is plenty where nothing else runs, and a loaded machine is up to eight times slower
(LEAT_TEST_LOAD of cmake/leat_tests.cmake). What a test says about speed goes by stretched().
"""

import time

import os
PATIENCE_S = int(os.environ.get("LEAT_PATIENCE", 480))
WORK_S = 0.05  # CPU time of the work that is timed


def stretched(seconds):
    """What takes so long where nothing else runs may take this long here, now: as many times longer as a piece of work
    just took, by the clock and by its CPU time."""
    begin, until = time.monotonic(), time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass
    return seconds * max(1, 2 * (time.monotonic() - begin) / WORK_S)
