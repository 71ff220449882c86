#!/usr/bin/env python3
"""Bursts stay in budget: one number that makes a million rows costs disk, not memory, and blocks nobody.

    LEAT=build/release/leat tests/soak/bursts.py

A window that closes a million rows at once, and an `unnest` that makes a thousand rows of each, go through two more
exchanges in the smallest `memory:`, with three lanes; `attribute` holds a million rows of one microsecond back and lets
them go at once. What is resident is measured, the rows are compared with a run that has room for all of them, and each
burst has a limit of time: a ring of full rings would stand still. Prints TAP lines.
"""

import json
import os
import subprocess
import sys
import tempfile

MEMORY = "32MiB"
RESIDENT_MAX = 130  # MiB: the program with its libraries and RocksDB's files, 32 MiB of budget, batches in hand
TIMEOUT = 240

# The window's rows go on by another key, to two steps that keep state.
WINDOW = """
job bursts {{ memory: {memory} }}
source s = sequence {{ count: 1000000, keys: 1000000, rate: 1000000, event_time: ts }}
stream w = s | window by key over tumbling(1d) {{ n: count(), total: sum(value) }} | with half = key % 500000
stream x = w | feature by half over 2d every 1d {{ seen: count() }} | with third = key % 333333
stream y = x | dedup by third within 2d
sink x = null from x {{}}
sink y = null from y {{}}
"""
UNNEST = """
job bursts {{ memory: {memory} }}
source s = file {{ path: "{folder}/lists.jsonl", schema: {{ id: int, ts: time(ms), items: list(int) }}, event_time: ts }}
stream u = s | unnest items | feature by items over 1h every 1m {{ seen: count() }} | with half = items % 500
stream x = u | feature by half over 1h every 1m {{ again: count() }}
sink u = null from u {{}}
sink x = null from x {{}}
"""
# Every row is held until the one deadline; a half of them are answered.
HELD = """
job bursts {{ memory: {memory} }}
source s = sequence {{ count: 1000000, keys: 1000000, rate: 1000000000000, event_time: ts }}
source answers = sequence {{ count: 500000, keys: 500000, rate: 1000000000000, event_time: ts }}
stream h = s | attribute answers on key within 1h as hit
sink h = null from h {{}}
"""


def write_lists(folder):
    with open(os.path.join(folder, "lists.jsonl"), "w", encoding="ascii") as file:
        for row in range(1000):
            items = ",".join(str((row * 7919 + i * 104729) % 65536) for i in range(1000))
            file.write(f'{{"id":{row},"ts":{1700000000000 + row},"items":[{items}]}}\n')


def run(leat, folder, job, memory):
    """(MiB resident at the most, summary); ends the process when it stands still."""
    path = os.path.join(folder, "bursts.leat")
    with open(path, "w", encoding="ascii") as file:
        file.write(job.format(memory=memory, folder=folder))
    command = [leat, "run", path, "--json", "--workers", "3"]
    with open(os.path.join(folder, "out"), "w+", encoding="utf-8") as out:
        process = subprocess.Popen(["timeout", str(TIMEOUT), *command], stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode == 124:
        return usage.ru_maxrss / 1024, f"stood still for {TIMEOUT} s"
    if process.returncode != 0:
        return usage.ru_maxrss / 1024, f"status {process.returncode}: {text[-600:]}"
    return usage.ru_maxrss / 1024, json.loads(text)


def check(leat, folder, name, job):
    wrong = []
    peak, summary = run(leat, folder, job, MEMORY)
    room, expected = run(leat, folder, job, "8GiB")
    notes = ""
    if isinstance(summary, str) or isinstance(expected, str):
        wrong.append(f"{summary if isinstance(summary, str) else expected}")
    else:
        notes, wanted = ([node["note"] for node in s["nodes"] if node["kind"] == "null"] for s in (summary, expected))
        if notes != wanted:
            wrong.append(f"{notes}, with room for all {wanted}")
        wrong += [f"{node['name']}: counts do not add up" for node in summary["nodes"] if not node["counts"]["balanced"]]
    if peak > RESIDENT_MAX:
        wrong.append(f"{peak:.0f} MiB resident, more than {RESIDENT_MAX}")
    if room < peak:
        wrong.append(f"with room for all it took {room:.0f} MiB, less: the burst is too small to show anything")
    print(f"{'not ok' if wrong else 'ok'} - {name}: {peak:.0f} MiB resident in {MEMORY} (limit {RESIDENT_MAX}), {room:.0f} MiB "
          f"with room for all; {notes}")
    for line in wrong:
        print(f"#   {line}")
    return not wrong


def main():
    leat = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
    with tempfile.TemporaryDirectory() as folder:
        write_lists(folder)
        good = check(leat, folder, "bursts: a window closes a million rows", WINDOW)
        good &= check(leat, folder, "bursts: unnest makes a thousand rows of each", UNNEST)
        good &= check(leat, folder, "bursts: attribute holds a million rows of one microsecond", HELD)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
