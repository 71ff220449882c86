"""A process whose wall clock jumps (jumping_clock.c).

    with jumps.Clock(library) as clock:
        process = subprocess.Popen(..., env=clock.environment())
        with clock.jumping(rng):        # forward, back, to and fro, by an hour
            process.wait()
        clock.waits, clock.longest_seconds
"""

import contextlib
import mmap
import os
import struct
import tempfile
import threading

HOUR_US = 3600 * 1000000
PLACES = (0, HOUR_US, -HOUR_US)  # of the clock, ahead of the real one


class Clock:
    def __init__(self, library):
        self.library, self.jumps = os.path.abspath(library), 0
        self.file = tempfile.NamedTemporaryFile(prefix="leat-clock-")
        self.file.truncate(mmap.PAGESIZE)
        self.page = mmap.mmap(self.file.fileno(), mmap.PAGESIZE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()
        self.file.close()

    def environment(self, **more):
        return {**os.environ, "LD_PRELOAD": self.library, "LEAT_CLOCK": self.file.name, **more}

    def set(self, ahead_us):
        self.page[:8] = struct.pack("q", ahead_us)
        self.jumps += 1

    def figure(self, place):
        return struct.unpack_from("Q", self.page, 8 * place)[0]

    @property
    def asked(self):
        """How often somebody asked the wall clock."""
        return self.figure(1)

    @property
    def waits(self):
        """How many waits had a limit of the wall clock."""
        return self.figure(2)

    @property
    def longest_seconds(self):
        """Of these, once they ended."""
        return self.figure(3) / 1e6

    @contextlib.contextmanager
    def jumping(self, rng, every=(0.02, 0.1)):
        """In the background, until the block ends, which sets it right."""
        is_over, place = threading.Event(), [0]

        def jump():
            while not is_over.wait(rng.uniform(*every)):
                place[0] = rng.choice([p for p in PLACES if p != place[0]])
                self.set(place[0])

        thread = threading.Thread(target=jump, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self.set(0)
