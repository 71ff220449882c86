#!/usr/bin/env python3
"""Memory stays in budget: keyed state far beyond it goes to disk, and the rows stay the same.

    LEAT=build/release/leat tests/soak/memory.py [--small]

Full (`./dev soak memory`): features and dedup over 10 GiB of generated events with 50 million keys in `memory: 1GiB`, at
most 1.3 GiB resident. --small (`./dev test`): 5 million keys in `memory: 128MiB`, at most 260 MiB. Prints TAP lines.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile

JOB = """
job memory {{ memory: {memory} }}
source s = sequence {{ count: {count}, keys: {keys}, rate: 1000000, event_time: ts }}
stream d = s | dedup by key within 1h | feature by key over 1h every 10m {{ n: count() }}
sink n = null from d
"""


def run(leat, folder, memory, count, keys):
    """(MiB resident at the most, summary)."""
    path = os.path.join(folder, "memory.leat")
    with open(path, "w") as f:
        f.write(JOB.format(memory=memory, count=count, keys=keys))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    result = subprocess.run([leat, "run", path, "--json", "--workers", "2"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"not ok - memory: the run failed: {result.stderr[-1000:]}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(peak, before) / 1024, json.loads(result.stdout)


def main():
    leat = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
    is_small = "--small" in sys.argv
    # 10 GiB of events: a record of the sequence stands for about 54 bytes of JSON.
    memory, count, keys, limit = ("128MiB", 5_000_000, 5_000_000, 260) if is_small else ("1GiB", 200_000_000, 50_000_000, 1331)
    with tempfile.TemporaryDirectory() as folder:
        peak, summary = run(leat, folder, memory, count, keys)
    nodes = {n["kind"]: n for n in summary["nodes"]}
    passed = nodes["dedup"]["counts"]["passed"]
    evicted = nodes["dedup"]["report"]["run"].get("state_evicted", 0)
    good = peak <= limit and passed == min(count, keys) and evicted > 0 and re.match(r"\d+ rows", nodes["null"]["note"])
    print(f"{'ok' if good else 'not ok'} - memory: {keys:,} keys in {memory}: {peak:.0f} MiB resident (limit {limit}), "
          f"{passed:,} passed, {evicted:,.0f} entries evicted")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
