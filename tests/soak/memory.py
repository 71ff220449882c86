#!/usr/bin/env python3
"""Memory stays in budget: keyed state far beyond it goes to disk and is read back, and the rows stay the same.

    LEAT=build/release/leat tests/soak/memory.py [--small]

Full (`./dev soak memory`): features and dedup over 10 GiB of generated events with 50 million keys in `memory: 1GiB`, at
most 1.3 GiB resident. --small (`./dev test`): 2.5 million keys in `memory: 64MiB`, at most 196 MiB. The rows are checked
by the digest of a job without state: keys take turns, so that what dedup lets through and what the feature counts can be
computed from a record's number. Prints TAP lines.
"""

import json
import os
import sys
import tempfile
import time

import measured

SOURCE = "source s = sequence {{ count: {count}, keys: {keys}, rate: 1000000, event_time: ts }}\n"
# Each group of the feature is met twice, `half` records apart.
JOB = "job memory {{ memory: {memory} }}\n" + SOURCE + """
stream d = s | dedup by key within 1h | with pair = key % {half} | feature by pair over 1h every 10m {{ n: count() }}
sink n = null from d {{}}
"""
EXPECTED = "job expected {{ }}\n" + SOURCE + """
stream d = s | with pair = key % {half}, n = id / {half}
sink n = null from d {{}}
"""


def run(leat, folder, name, text):
    """(MiB resident at the most, seconds, summary)."""
    started = time.monotonic()
    status, peak, out, err = measured.run(leat, folder, name, text)
    if status != 0:
        sys.exit(f"not ok - memory: {name}: status {status}: {(out + err)[-1000:]}")
    return peak, time.monotonic() - started, json.loads(out)


def check(leat, folder, memory, count, keys, limit):
    settings = {"memory": memory, "keys": keys, "half": keys // 2}
    peak, took, summary = run(leat, folder, "memory", JOB.format(count=count, **settings))
    _, _, expected = run(leat, folder, "expected", EXPECTED.format(count=keys, **settings))
    nodes = {node["kind"]: node for node in summary["nodes"]}
    note, expected_note = nodes["null"]["note"], {n["kind"]: n for n in expected["nodes"]}["null"]["note"]
    dedup, feature = (nodes[kind]["report"]["run"] for kind in ("dedup", "feature"))
    print(f"# {took:.0f} s; dedup {json.dumps(dedup)}; feature {json.dumps(feature)}")
    wrong = []
    if peak > limit:
        wrong.append(f"{peak:.0f} MiB resident, more than {limit}")
    if note != expected_note:
        wrong.append(f"{note}, where a job without state has {expected_note}")
    for name, state in (("dedup", dedup), ("feature", feature)):
        if not state["state_evicted"] or not state["state_loaded"]:
            wrong.append(f"{name}: nothing went to disk and came back")
    print(f"{'not ok' if wrong else 'ok'} - memory: {keys:,} keys in {memory}: {peak:.0f} MiB resident (limit {limit}), "
          f"{note}")
    for line in wrong:
        print(f"#   {line}")
    return 1 if wrong else 0


def main():
    leat = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
    with tempfile.TemporaryDirectory() as folder:
        if "--small" in sys.argv:
            return check(leat, folder, "64MiB", 2_600_000, 2_500_000, 196)
        # 10 GiB of events: a record of the sequence stands for about 54 bytes of JSON.
        return check(leat, folder, "1GiB", 200_000_000, 50_000_000, 1331)


if __name__ == "__main__":
    sys.exit(main())
