#!/usr/bin/env python3
"""jobs/demo.py with a stand-in for leat whose predictions are known: figures, curve, exit status. Prints TAP."""

import os
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "jobs", "demo.py")
# 1000 events, every second clicked: base rate ln 2 = 0.6931, Bayes 0.2. With p = 0.9 for clicks and 0.5 for the rest
# the loss is (0.1054 + 0.6931) / 2 = 0.3993, so 60 % of the gap; with 0.55 it is 0.6455, 10 %.
LEAT = """#!/bin/sh
set -e
case $1 in
generate)
    mkdir -p data/ctr out
    echo '{"last_fifth": {"bayes_logloss": 0.2}}' >data/ctr/truth.json ;;
run)
    for i in $(seq 500); do
        echo '{"clicked":1,"prediction":GOOD}'
        echo '{"clicked":0,"prediction":0.5}'
    done >out/scored.jsonl ;;
esac
"""
# prediction for clicked events, exit status, what must be printed
ROWS = [
    ("a model that learned", "0.9", 0, "60 percent"),
    ("a model that did not", "0.55", 1, "10 percent"),
    ("a run that fails", "$(exit 3)", 1, ""),
]


def run(prediction):
    with tempfile.TemporaryDirectory(prefix="leat-demo-") as folder:
        leat = os.path.join(folder, "leat")
        with open(leat, "w", encoding="utf-8") as file:
            text = LEAT.replace("GOOD", prediction)
            file.write(text.replace("run)\n", "run)\n    exit 3\n") if "exit" in prediction else text)
        os.chmod(leat, stat.S_IRWXU)
        return subprocess.run([sys.executable, DEMO, os.path.join(folder, "demo"), "1000"], capture_output=True,
                              text=True, check=False, env={**os.environ, "LEAT": leat})


def main():
    failed = 0
    for name, prediction, status, wanted in ROWS:
        result = run(prediction)
        text = result.stdout.replace("%", " percent")
        is_right = result.returncode == status and f"{wanted} of the gap" in text if wanted else result.returncode == status
        if wanted and text.count("o") < 60:
            is_right = False
        print(f"{'ok' if is_right else 'not ok'} - {name}")
        if not is_right:
            failed += 1
            print("\n".join("#   " + line for line in (result.stdout + result.stderr).split("\n")))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
