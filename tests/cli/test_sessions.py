#!/usr/bin/env python3
"""Many sessions that close at one watermark: the same rows in little memory as in much, however many they are, and none of
them is read from the disk by itself.

    tests/cli/test_sessions.py PATH_OF_LEAT [--sessions N]
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
SESSIONS = int(sys.argv[3]) if sys.argv[2:3] == ["--sessions"] else 600000
GROWTH_MIB = 14  # of resident memory, from a quarter of the sessions to all
TIMERS_BYTES = 2 << 20

JOB = """job sessions {{ workers: 1, memory: {memory} }}
source s = sequence {{ count: {count}, keys: {keys}, rate: 1000000, event_time: ts }}
stream w = s | window by key over session(1m) {emit} {{ n: count(), last: last(id) }}
sink rows = null from w {{}}
"""


def run(memory, count, keys=None, emit=""):
    """(digest of the rows, figures of the window, MiB resident at the most)"""
    with tempfile.TemporaryDirectory(prefix="leat-sessions-") as folder:
        path = os.path.join(folder, "job.leat")
        with open(path, "w", encoding="ascii") as file:
            file.write(JOB.format(memory=memory, count=count, keys=keys or count, emit=emit))
        with open(os.path.join(folder, "out"), "w+", encoding="utf-8") as out, \
             subprocess.Popen([LEAT, "run", path, "--json"], stdout=out, stderr=subprocess.DEVNULL,
                              env=os.environ | {"TMPDIR": folder}) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            text = out.read()
    assert process.returncode == 0, f"status {process.returncode}: {text[-500:]}"
    nodes = {node["name"]: node for node in json.loads(text)["nodes"]}
    assert all(node["counts"]["balanced"] for node in nodes.values())
    return nodes["rows"]["note"], nodes["w"]["report"]["run"], usage.ru_maxrss / 1024


def test_memory_is_bounded():
    few, _, few_mib = run("32MiB", SESSIONS // 4)
    many, figures, many_mib = run("32MiB", SESSIONS)
    print(f"# {SESSIONS // 4} sessions: {few_mib:.0f} MiB, {SESSIONS}: {many_mib:.0f} MiB, {figures}")
    assert few != many
    assert figures["state_evicted"] > SESSIONS / 4, "the sessions did not go to the disk"
    assert figures["state_loaded"] <= SESSIONS / 1000, f"{figures['state_loaded']:.0f} were read one by one"
    assert figures["state_timer_bytes"] <= TIMERS_BYTES, figures
    assert many_mib - few_mib <= GROWTH_MIB, f"{few_mib:.0f} MiB grew to {many_mib:.0f} MiB"


def test_rows_are_those_of_much_memory():
    for emit in ("", "emit final", "emit on_end"):
        for count, keys in ((SESSIONS // 4, None), (SESSIONS // 4, SESSIONS // 8)):
            little, figures, _ = run("32MiB", count, keys, emit)
            much, others, _ = run("2GiB", count, keys, emit)
            assert little == much, f"{emit or 'emit on_close'}, {keys} keys: {little}, not {much}"
            assert keys or figures["state_evicted"] > others["state_evicted"] == 0


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
