"""dist/grafana.json as tests read it."""

import json
import math
import os

DIST = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "dist")
KAFKA = "Kafka"  # the row of what only topics of Kafka have
RANGE = "10s"


def read(name):
    with open(os.path.join(DIST, name), encoding="utf-8") as file:
        return file.read()


def panels():
    """[(row, title, description, [query])], with the board's variables filled in."""
    found, row = [], None
    for panel in json.loads(read("grafana.json"))["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        queries = [target["expr"].replace("$__rate_interval", RANGE).replace("$job", ".*").replace("$instance", ".*")
                   for target in panel["targets"]]
        assert queries and not any("$" in query for query in queries), queries
        found.append((row, panel["title"], panel["description"], queries))
    return found


def empty_of(prom, queries):
    """Those that give no finite number now."""
    return [query for query in queries if not any(math.isfinite(value) for _, value in prom.query(query))]
