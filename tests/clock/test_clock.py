#!/usr/bin/env python3
"""A job on files while the wall clock jumps by an hour: output, model, counts and checkpoints of a run whose clock goes on, also
through kills. Prints TAP.

    tests/clock/test_clock.py PATH_OF_LEAT PATH_OF_JUMPING_CLOCK
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import jumps  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

LEAT, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
ROWS, KILLS = 150000, 3
LAST, HOURS, DAYS = 3, 2, 1
KEPT_MAX = 20  # what `keep` names, with the chains that these need

JOB = """job clocks {{ workers: 2, memory: 32MiB,
  checkpoint: {{ every: 50ms, dir: "{folder}/state", keep: {{ last: 3, hourly: 2, daily: 1 }} }} }}
source s = file {{ path: "{data}", schema: {{ n: int!, key: text, ts: time(ms), item: int, x: float, clicked: int }}, event_time: ts }}
stream features = s
  | dedup by n within 1h
  | feature by key over [10s, 1h] every 1s {{ seen: count(), total: sum(x) }}
  | feature by item over 1h every 1m {{ shown: count() }}
learner model = fm from features {{
  label: clicked, sparse: [key, item], dense: [log1p(seen_10s), log1p(shown)], embedding: {{ dim: 4, optimizer: adagrad {{ rate: 0.05 }} }}
}}
stream windows = s | window by key over tumbling(1m) {{ n: count(), total: sum(x) }}
sink out = file from model.predictions {{ path: "{folder}/out.jsonl" }}
sink panes = file from windows {{ path: "{folder}/panes.jsonl" }}
"""


def make_data(path):
    rng = random.Random(7)
    with open(path, "w", encoding="utf-8") as file:
        for n in range(ROWS):
            item = int(rng.paretovariate(0.7)) % 997
            row = {"n": n, "key": f"k{n % 50}", "ts": 1_700_000_000_000 + n * 10, "item": item, "x": round(rng.random(), 3),
                   "clicked": int(rng.random() < 0.2)}
            file.write(json.dumps(row) + "\n")


def outcome(folder, summary):
    digests = {}
    subprocess.run([LEAT, "model", "export", f"{folder}/state", "--out", f"{folder}/model"], check=True, capture_output=True)
    for name in ("out.jsonl", "panes.jsonl", "model"):
        with open(os.path.join(folder, name), "rb") as file:
            digests[name] = hashlib.sha256(file.read()).hexdigest()
    assert all(node["counts"]["balanced"] for node in summary["nodes"]), summary
    return digests, [node["counts"] for node in summary["nodes"]], summary["records"]


def lives(folder, data, environment, kills, rng):
    """To its end, by way of so many kills; (summary, seconds)."""
    os.makedirs(folder)
    path = os.path.join(folder, "job.leat")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(folder=folder, data=data))
    begin = time.monotonic()
    while True:
        more = {"LEAT_FAILPOINTS": f"ckpt.published=kill@{rng.randrange(1, 3)}"} if kills > 0 else {}
        done = subprocess.run([LEAT, "run", path, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env={**environment, **more})
        if done.returncode != -signal.SIGKILL:
            break
        kills -= 1
    assert done.returncode == 0 and kills <= 0, (kills, done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout), time.monotonic() - begin


def test_files_while_the_clock_jumps():
    with tempfile.TemporaryDirectory(prefix="leat-clock-") as folder, jumps.Clock(LIBRARY) as clock:
        data = os.path.join(folder, "data.jsonl")
        make_data(data)
        summary, quiet_seconds = lives(f"{folder}/quiet", data, os.environ, 0, random.Random(0))
        wanted = outcome(f"{folder}/quiet", summary)
        for kills in (0, KILLS):
            begun = clock.jumps
            with clock.jumping(random.Random(kills), every=(0.005, 0.02)):  # a fast machine is through within half a second
                summary, seconds = lives(f"{folder}/{kills}", data, clock.environment(), kills, random.Random(3))
            assert clock.jumps - begun > 10 and clock.asked > 0, (clock.jumps, clock.asked)
            assert outcome(f"{folder}/{kills}", summary) == wanted
            assert seconds < stretched(20) + 5 * (kills + 1) * quiet_seconds, (kills, seconds, quiet_seconds)
            assert clock.waits == 0, (clock.waits, clock.longest_seconds)
            verified = subprocess.run([LEAT, "checkpoint", "verify", f"{folder}/{kills}/state"], capture_output=True, text=True, check=False)
            assert verified.returncode == 0, verified.stdout + verified.stderr
            kept = [name for _, names, _ in os.walk(f"{folder}/{kills}/state") for name in names if name.startswith("ckpt-")]
            taken = max(int(name.rpartition("-")[2]) for name in kept)  # by all lives: the last one may find a finished run
            # A life that is killed leaves a checkpoint at least; how many a run without kills takes is up to the disk's speed.
            assert taken >= max(kills, 1) and min(LAST, taken) <= len(kept) <= KEPT_MAX, (summary["checkpoints"], kept)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
