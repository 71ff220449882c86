#!/usr/bin/env python3
"""A spill file whose bytes change on the disk, or go away, ends the run with an error that says where and what to do.

    tests/cli/test_spill.py PATH_OF_LEAT
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
FAILED, WRITES = 1, 4  # the spill's write at which the run is stopped
JOB = """job spill { workers: 1, memory: 32MiB }
source s = sequence { count: 60000, keys: 60000, rate: 1000000, event_time: ts }
stream w = s | window by key over tumbling(1d) { n: count() }
stream x = w | dedup by n within 1h
sink w = null from w
sink x = null from x
"""


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def spill_files(pid, folder):
    """The process's files without a name below the folder, opened for writing."""
    paths = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    found = [path for path in paths if os.readlink(path).startswith(folder) and os.readlink(path).endswith("(deleted)")]
    return [open(path, "r+b") for path in found if os.stat(path).st_size > 0]


def run(change):
    """(status, what it said) of a run; change(file) while it is stopped, of each of its spill files."""
    with tempfile.TemporaryDirectory(prefix="leat-spill-") as folder:
        path = os.path.join(folder, "job.leat")
        with open(path, "w", encoding="ascii") as file:
            file.write(JOB)
        environment = os.environ | {"TMPDIR": folder, "LEAT_FAILPOINTS": f"spill.write=stop@{WRITES}"}
        with subprocess.Popen([LEAT, "run", path, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=environment) as process:
            try:
                end = time.monotonic() + PATIENCE_S
                while not is_stopped(process.pid):
                    assert process.poll() is None and time.monotonic() < end, "the run did not come to its spill file"
                    time.sleep(0.01)
                files = spill_files(process.pid, folder)
                assert files
                for file in files:
                    with file:
                        change(file)
                process.send_signal(signal.SIGCONT)
                _, said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        return process.returncode, said.replace(folder, "TMPDIR")


def test_as_written():
    status, said = run(lambda file: None)
    assert (status, said) == (0, "leat: stopped at spill.write\n"), (status, said)


def check(change):
    status, said = run(change)
    assert status == FAILED, (status, said)
    for words in ("error[E0603]", "from byte 0 on", "spill file", "TMPDIR", "`memory:`"):
        assert words in said, (words, said)


def write(file, offset, data):
    file.seek(offset)
    file.write(data)
    file.flush()


def test_changed_bytes():
    check(lambda file: write(file, 0, b"\xff\xff"))  # the count of rows


def test_zeros():
    check(lambda file: write(file, 0, bytes(4096)))


def test_bytes_of_rows():
    check(lambda file: write(file, 6, b"\x47"))  # the form of the first sequence


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
