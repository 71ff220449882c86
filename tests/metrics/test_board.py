#!/usr/bin/env python3
"""dist/grafana.json and dist/alerts.yml, against a real Prometheus that reads a live job and its server. Prints TAP.

    tests/metrics/test_board.py PATH_OF_LEAT
"""

import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import live  # noqa: E402
import prometheus  # noqa: E402
import tap  # noqa: E402
from board import DIST, KAFKA, empty_of, panels, read  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

ALERTS = os.path.join(DIST, "alerts.yml")
METRIC = re.compile(r"\b(leat_\w+)\b")


def meant():
    """The metrics that the program knows, with the series of histograms."""
    text = subprocess.run([live.LEAT, "help", "metrics", "--markdown"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.M)
    names = {name for name, kind in rows if kind != "histogram"}
    return names | {name + end for name, kind in rows if kind == "histogram" for end in ("_bucket", "_sum", "_count")}


def test_rules():
    """promtool has nothing to say, each alert has a case that fires, and all metrics are there."""
    rules = read("alerts.yml")
    alerts = re.findall(r"^ +- alert: (\w+)$", rules, re.M)
    cases = read("alerts_test.yml")
    assert len(alerts) >= 10 and all(name in cases for name in alerts), alerts
    used = set(METRIC.findall(rules))
    assert used and used <= meant(), used - meant()
    if why := prometheus.missing():
        return why
    prometheus.promtool("check", "rules", ALERTS)
    prometheus.promtool("test", "rules", os.path.join(DIST, "alerts_test.yml"))
    return None


def test_names():
    """The board asks for metrics that the program has, and marks what only topics of Kafka have."""
    for row, title, what, queries in panels():
        used = set(METRIC.findall(" ".join(queries)))
        assert used and used <= meant(), (title, used - meant())
        assert (row == KAFKA) == what.startswith("Kafka: "), (row, title)


class Asking:
    """Requests to a server, one after the other, until the end of a `with`."""

    def __init__(self, server):
        self.server, self.is_over, self.answered = server, False, 0
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        columns = ("id", "ts", "a", "b", "clicked")
        body = json.dumps({"inputs": [{"name": name, "shape": [1], "datatype": "INT64",
                                       "data": [1700000120000 if name == "ts" else 1 << 30 if name == "id" else 5]}
                                      for name in columns]})
        while not self.is_over:
            status, _, text = self.server.ask("/v2/models/scores/infer", body)
            self.answered += status == 200
            assert status == 200, text
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join(PATIENCE_S)


def test_every_query():
    """Each query of the board gives numbers for a live job and its server; no alert fires."""
    if why := prometheus.missing():
        return why
    wanted = [query for row, _, _, queries in panels() if row != KAFKA for query in queries]
    with live.place() as folder, live.run(folder, 500) as run:
        run.wait_until_ready("/readyz")
        with live.serve(folder) as server:
            server.wait_until_ready("/v2/health/ready")
            with Asking(server) as asking, prometheus.Prometheus({"leat": run.port, "leat-serve": server.port},
                                                                 rules=ALERTS) as prom:
                prom.wait_for("count(up == 1) == 2", run.is_alive)
                left = wanted
                while left := empty_of(prom, left):
                    assert run.is_alive() and server.is_alive(), left
                    time.sleep(0.3)
                groups = prom.ask("rules")["groups"]
                rules = [rule for group in groups for rule in group["rules"]]
                assert len(rules) >= 10 and all(rule["health"] == "ok" for rule in rules), rules
                assert not prom.query('ALERTS{alertstate="firing"}'), prom.query("ALERTS")
                assert asking.answered > 0
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
