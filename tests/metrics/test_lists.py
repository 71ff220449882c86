#!/usr/bin/env python3
"""The figures of a learner that chooses items, for lists of 5 and of 20, wherever a run shows them. Prints TAP.

    tests/metrics/test_lists.py PATH_OF_LEAT
"""

import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import live  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

FIGURES = ("hr", "ndcg", "mrr", "coverage")
SERIES = re.compile(r'^leat_learner_(\w+)\{node="next",kind="sasrec",over="(run|window)"(?:,k="(\d+)")?\} (\S+)$', re.M)


def report_of(run):
    nodes = json.loads(run.ask("/api/v1/figures")[2])["nodes"]
    return next(node["report"] for node in nodes if node["part"] == "next")


def settled(run, look):
    """What `look` gives between two equal reports."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        before = report_of(run)
        found = look()
        if before == report_of(run) and before["window"].get("hr_20") is not None and before["run"].get("step_loss"):
            return before, found
        assert time.monotonic() < deadline and run.is_alive(), (before, run.said)
        time.sleep(0.1)


def history_of(run, node):
    found = json.loads(run.ask(f"/api/v1/history?node={node}")[2])
    return {figure["name"]: values for figure, values in zip(found["figures"], found["values"])}


def test_prometheus():
    """A series for each figure, length of list and period: the values of the report."""
    with live.place() as folder, live.run(folder, 700) as run:
        run.wait_until_ready("/readyz")
        report, text = settled(run, lambda: run.ask("/metrics")[2])
        found = {(name, over, k): float(value) for name, over, k, value in SERIES.findall(text)}
        for over in ("run", "window"):
            for figure in FIGURES:
                for k in ("5", "20"):
                    wanted = report[over][f"{figure}_{k}"]
                    assert abs(found[figure, over, k] - wanted) <= 1e-9 and 0 <= wanted <= 1, (figure, over, k, wanted, found)
        assert sorted(k for name, _, k in found if name in FIGURES) == sorted(["5", "20"] * 8), found
        assert abs(found["step_loss", "run", ""] / report["run"]["step_loss"] - 1) <= 1e-8 and found["items", "run", ""] > 100, found
        assert not re.search(r'leat_learner_hr\{node="(model|amount)"', text), "of a learner that chooses nothing"


def test_history_and_pictures():
    """History and terminal have the longest list alone; a learner of another sort keeps its own figures."""
    with live.place() as folder, live.run(folder, 700) as run:
        run.wait_until_ready("/readyz")
        deadline = time.monotonic() + PATIENCE_S
        while not any(hr and loss for hr, loss in zip(*(history_of(run, "next")[name] for name in ("hr", "loss")))):
            assert time.monotonic() < deadline and run.is_alive(), run.said
            time.sleep(0.2)
        history = history_of(run, "next")
        assert list(history) == ["rows_learned", "rows_bad", "lane_share", "queue", "loss", "hr", "ndcg", "coverage"], history
        known = {name: [value for value in values if value is not None] for name, values in history.items()}
        assert all(0 < known[name][-1] <= 1 for name in ("hr", "ndcg", "coverage")) and known["loss"][-1] > 1, known
        assert known["hr"][-1] > known["ndcg"][-1], known
        other = history_of(run, "model")
        assert list(other)[4:] == ["table_rows", "loss", "auc", "calibration"], other

        def top():
            return subprocess.run([live.LEAT, "top", f"http://127.0.0.1:{run.port}", "--once"], capture_output=True, text=True,
                                  check=True, timeout=PATIENCE_S).stdout

        report, text = settled(run, top)
        for over, head in (("run", "run:"), ("window", "last window:")):
            line = next(line for line in text.split("\n") if head in line and "hr_20" in line)
            shown = dict(re.findall(r"(\w+) (-?\d\S*)", line))
            wanted = [f"{figure}_20" for figure in FIGURES] + (["step_loss"] if over == "run" else [])
            assert list(shown) == wanted, line
            assert all(abs(float(shown[name]) - report[over][name]) < 1e-5 for name in wanted), (line, report)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
