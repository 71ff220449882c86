#!/usr/bin/env python3
"""Progress where there is no terminal: a line now and then, and at once what changes. Prints TAP lines."""

import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
LINE = re.compile(r"^job  .* events  ", re.M)
JOB = """
job job {{ workers: 1 }}
source s = console {{ schema: {{ id: int!, ts: time(ms) }}, event_time: ts, max_delay: 1s }}
sink out = null from s {{}}
sink dead = null from dead_letters {{}}
"""


def run(seconds, *arguments, record=lambda i: f'{{"id":{i},"ts":{1700000000000 + i * 1000}}}'):
    """What it writes to stderr, with the second of each line, while it reads a record each tenth of a second."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(JOB.format())
        process = subprocess.Popen([LEAT, "run", "job.leat", *arguments], cwd=folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        begin = time.monotonic()
        lines, i = [], 0
        os.set_blocking(process.stderr.fileno(), False)
        while time.monotonic() - begin < seconds:
            process.stdin.write(record(i) + "\n")
            process.stdin.flush()
            i += 1
            time.sleep(0.1)
            for line in iter(process.stderr.readline, ""):
                lines.append((time.monotonic() - begin, line))
        process.stdin.close()
        process.wait(PATIENCE_S)
        lines += [(seconds, line) for line in iter(process.stderr.readline, "")]
        assert process.returncode == 0, lines
    return [(second, line) for second, line in lines if LINE.match(line)]


def test_a_log_gets_a_line_a_minute():
    lines = run(9)
    assert len(lines) <= 1, f"{len(lines)} lines in 9 s: {''.join(line for _, line in lines)}"


def test_every_other_time():
    lines = run(7, "--progress", "2s")
    assert 2 <= len(lines) <= 4, lines
    assert not run(5, "--quiet", "--progress", "1s"), "quiet is quiet"


def test_a_watermark_that_stands_still_is_said_at_once():
    # Times go on for 4 s; then all records have one time.
    lines = run(14, "--progress", "8s", record=lambda i: f'{{"id":{i},"ts":{1700000000000 + min(i, 40) * 1000}}}')
    still = [(second, line) for second, line in lines if "has not moved" in line]
    assert still and 7 <= still[0][0] <= 11, lines
    assert len(lines) <= 4, lines


def test_the_first_dead_letter_is_said_at_once():
    lines = run(9, record=lambda i: "nonsense" if i > 40 else f'{{"id":{i},"ts":{1700000000000 + i * 1000}}}')
    dead = [(second, line) for second, line in lines if re.search(r"dead [1-9]", line)]
    assert dead and 4 <= dead[0][0] <= 6.5, lines
    assert len(lines) <= 2, lines


def test_what_is_no_time_is_refused():
    done = subprocess.run([LEAT, "run", "x.leat", "--progress", "often"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--progress takes a duration like 1m" in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=5))
