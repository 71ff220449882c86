#!/usr/bin/env python3
"""Key groups that move while a job runs: what a lane still has to give and take at a barrier, and that no row changes.
Prints TAP.

    tests/cli/test_moves.py PATH_OF_LEAT
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
GROUPS_LEAST = 150  # one change of the placement moves about 70
SHARE = 5  # at most one byte in so many moves at a barrier
ROWS = 4_000_000

# Each key changes several times between two barriers.
JOB = """
param count: int = 1
job moves { checkpoint: { dir: "state", every: 400ms, keep: { last: 1 } }, workers: 2 }
source load = sequence { count: count, keys: 1000, rate: 100000.0, event_time: ts }
stream keyed = load | with user = hash_mod(id, 400000)
stream counted = keyed | feature by user over 30d every 30d { n: count(), total: sum(value) }
stream some = counted | where hash_mod(id, 500) == 0
sink out = file from some { path: "out.jsonl" }
"""


# The hottest key has a quarter of the rows.
HOT = """
job hot { checkpoint: { dir: "state", every: 100ms, keep: { last: 1 } }, workers: 8 }
source load = sequence { count: 2000000, keys: 5000, skew: 1.3, rate: 100000.0, event_time: ts }
stream counted = load | feature by key over 1h every 1m { n: count() }
sink out = null from counted
"""


def run(place, count, *more):
    """A run in a folder of its own: its rows in order, and its summary."""
    os.mkdir(place)
    with open(os.path.join(place, "job.leat"), "w", encoding="utf-8") as f:
        f.write(JOB)
    done = subprocess.run([LEAT, "run", "job.leat", "--quiet", "--json", f"--set=count={count}", *more], cwd=place, capture_output=True,
                          text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    with open(os.path.join(place, "out.jsonl"), "rb") as f:
        return f.read(), json.loads(done.stdout)


def test_little_is_left_for_the_barrier():
    """All that a group has changes between two barriers: nearly all of it goes ahead of the second one."""
    count = ROWS
    rows, summary = run("moved", count, "--move", "5")
    while summary.get("moved_groups", 0) < GROUPS_LEAST:  # a fast machine is through before there are some moves
        count *= 2
        rows, summary = run(f"moved-{count}", count, "--move", "5")
    moved, left = summary["moved_bytes"], summary["moved_changes"]
    assert 0 < left < moved / SHARE, (moved, left)
    assert rows == run("unmoved", count)[0], "moves change rows"


def test_a_hot_key_is_named():
    """A key with more work than a lane's share is named, once; what else there is moves away from its lane, and no row depends on that."""
    notes = []
    for balance in ("no", "yes"):
        os.mkdir(f"hot-{balance}")
        with open(f"hot-{balance}/job.leat", "w", encoding="utf-8") as f:
            f.write(HOT)
        done = subprocess.run([LEAT, "run", "job.leat", "--quiet", "--json", f"--balance={balance}"], cwd=f"hot-{balance}",
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        notes.append(summary["nodes"][-1]["note"])
        assert done.stderr.count("of the work by key") == (summary["hot_groups"] if balance == "yes" else 0), done.stderr
        assert "mends that: key: 0 (key group" in done.stderr or balance == "no", done.stderr
    assert notes[0] == notes[1], notes
    assert summary["hot_groups"] >= 1 and summary["moved_groups"] > 0 and summary["imbalance"] > 1.1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(tap.run(globals()))
