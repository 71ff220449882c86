#!/usr/bin/env python3
"""./dev demo: makes a click stream with planted truth, runs jobs/ctr.leat over it, and draws what was learned.

    LEAT=build/release/leat jobs/demo.py FOLDER [EVENTS]

Ends with status 1 unless, over the last fifth of the events, a third of the gap in logloss between a model that
knows the click-through rate alone and one that knows each probability is closed. Every prediction was made
before its label was learned.
"""

import json
import math
import os
import shutil
import subprocess
import sys

EVENTS = 500_000
BUCKETS = 60
ROWS = 14
WANTED_SHARE = 1 / 3


def losses(lines, label="clicked"):
    """(label, loss) of each scored event."""
    for line in lines:
        row = json.loads(line)
        p = min(max(row["prediction"], 1e-7), 1 - 1e-7)
        y = int(row[label])
        yield y, -math.log(p if y else 1 - p)


def base_loss(labels):
    """Logloss of a model that knows the rate of these labels alone."""
    rate = sum(labels) / len(labels)
    return 0.0 if rate in (0.0, 1.0) else -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


def evaluate(scored, bayes):
    """What the last fifth of the events says, and the mean loss of BUCKETS equal parts of the run."""
    parts = [scored[i * len(scored) // BUCKETS : (i + 1) * len(scored) // BUCKETS] for i in range(BUCKETS)]
    last = scored[len(scored) - len(scored) // 5 :]
    loss = sum(x for _, x in last) / len(last)
    base = base_loss([y for y, _ in last])
    return {
        "curve": [sum(x for _, x in part) / len(part) for part in parts if part],
        "loss": loss, "base": base, "bayes": bayes, "share": (base - loss) / (base - bayes),
    }


def draw(result, events):
    """The learning curve as text: one column a part of the run, between the two limits."""
    low, high = result["bayes"] - 0.005, max(result["base"], max(result["curve"][1:] or [0])) + 0.005

    def row_of(loss):
        return round((high - min(max(loss, low), high)) / (high - low) * (ROWS - 1))

    base, bayes = row_of(result["base"]), row_of(result["bayes"])
    lines = []
    for row in range(ROWS):
        empty = "-" if row in (base, bayes) else " "
        cells = "".join("o" if row_of(loss) == row else empty for loss in result["curve"])
        name = " knows the rate alone" if row == base else " knows each probability" if row == bayes else ""
        lines.append(f"{high - (high - low) * row / (ROWS - 1):8.4f} |{cells}{name}")
    lines.append(f"{'':8} +{'-' * BUCKETS}")
    lines.append(f"{'logloss':>8}  0{f'{events:,} events':>{BUCKETS - 1}}")
    return "\n".join(lines)


def main():
    leat = os.path.abspath(os.environ.get("LEAT", "build/release/leat"))
    job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ctr.leat")
    folder = sys.argv[1]
    events = int(sys.argv[2]) if len(sys.argv) > 2 else EVENTS
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for command in ([leat, "generate", "ctr", "--events", str(events), "--seed", "7", "--out", "data/ctr"],
                    [leat, "run", job]):
        print("$ " + " ".join(["leat", *command[1:]]), flush=True)
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:
            print("demo: this command failed", file=sys.stderr)
            return 1
    with open(os.path.join(folder, "data/ctr/truth.json"), encoding="utf-8") as file:
        truth = json.load(file)
    with open(os.path.join(folder, "out/scored.jsonl"), encoding="utf-8") as file:
        scored = list(losses(file))
    result = evaluate(scored, truth["last_fifth"]["bayes_logloss"])
    print("\nhow well each event was predicted before its label was known:\n")
    print(draw(result, len(scored)))
    print(f"\nlast fifth: logloss {result['loss']:.4f}; {result['base']:.4f} knowing the rate alone, "
          f"{result['bayes']:.4f} knowing each probability: {result['share']:.0%} of the gap is closed")
    return 0 if result["share"] >= WANTED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
