#!/usr/bin/env python3
"""/metrics of `leat run` and `leat serve` as a real Prometheus reads them. Prints TAP.

    tests/metrics/test_scrape.py PATH_OF_LEAT
"""

import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import live  # noqa: E402
import prometheus  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

SAMPLE = re.compile(r'([a-z0-9_]+)(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)$')
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
UNITS = ("seconds", "bytes", "ratio")
STEPS, PARTITIONS, SCRAPE_S, SCRAPE_BYTES, SERIES_MAX = 200, 1_000, 0.010, 1_000_000, 10_000
# Each partition was read, or their series are left out.
ALL_READ = re.compile(r'^leat_source_partition_records_total\{[^}]*partition="other"\} %d$|^leat_metrics_series_left_out [1-9]'
                      % (PARTITIONS - 200), re.M)


def families_of_open(text):
    """{family: type} of a text of OpenMetrics, by its own rules: families once, their samples together, the end last."""
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1, text[-200:]
    families, family, series = {}, None, set()
    for line in text.split("\n")[:-2]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in families and kind in SUFFIXES, line
            families[family] = kind
        elif line.startswith("# UNIT "):
            _, _, name, unit = line.split(" ")
            assert name == family and unit in UNITS and name.endswith("_" + unit), line
        elif line.startswith("# HELP "):
            assert line.split(" ", 3)[2] == family and not re.search(r'["\\]', line), line
        else:
            match = SAMPLE.match(line)
            assert match and match[1] in [family + end for end in SUFFIXES[families[family]]], (family, line)
            assert line.rsplit(" ", 1)[0] not in series, line
            series.add(line.rsplit(" ", 1)[0])
    names = [name + end for name, kind in families.items() for end in SUFFIXES[kind]] + list(families)
    clash = {name for name in names if names.count(name) > 1 and families.get(name) != "gauge"}
    assert not clash, clash
    return families


def names_of_text(text):
    return {name: kind for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)}


def test_formats():
    """Both formats of both programs say the same metrics; promtool finds nothing to say."""
    if why := prometheus.missing():
        return why
    with live.place() as folder, live.run(folder, 200) as run:
        run.wait_until_ready("/readyz")
        with live.serve(folder) as server:
            server.wait_until_ready("/v2/health/ready")
            for process in (run, server):
                status, kind, plain = process.ask("/metrics", Accept="text/plain")
                assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8"), (status, kind)
                prometheus.promtool("check", "metrics", text=plain)
                status, kind, text = process.ask("/metrics", Accept=live.OPEN)
                assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"), (status, kind)
                families = families_of_open(text)
                ends = {"counter": "_total", "info": "_info"}
                wanted = {name + ends.get(kind, ""): "gauge" if kind == "info" else kind for name, kind in families.items()}
                assert wanted == names_of_text(plain) and "leat_build_info" in wanted, wanted
                assert process.ask("/metrics")[1].startswith("text/plain"), "a client that does not say what it reads"
    return None


def resets(prom, name):
    return max((value for _, value in prom.query(f"resets({name}[1h])")), default=0)


def test_scraped():
    """Prometheus asks for OpenMetrics, knows types and units, and no counter falls until the run begins anew."""
    if why := prometheus.missing():
        return why
    with live.place() as folder, live.run(folder, 200) as run:
        run.wait_until_ready("/readyz")
        with live.serve(folder) as server, prometheus.Prometheus({"leat": run.port, "leat-serve": server.port}) as prom:
            both = lambda: run.is_alive() and server.is_alive()  # noqa: E731
            prom.wait_for('count(up == 1) == 2', both)
            prom.wait_for('count_over_time(leat_run_records_total[1h]) >= 6', both)
            prom.wait_for('count_over_time(leat_net_connections_total{job="leat-serve"}[1h]) >= 4', both)
            assert both(), "the run ended before Prometheus had seen enough of it"
            found = prom.ask("metadata")
            said = {name: (one[0]["type"], one[0]["unit"]) for name, one in found.items()}
            assert said["leat_node_rows"] == ("counter", "") and said["leat_node_seconds"] == ("counter", "seconds"), said
            assert said["leat_serve_seconds"] == ("histogram", "seconds"), said
            counters = [name + "_total" for name, (kind, _) in said.items() if kind == "counter" and name.startswith("leat_")]
            there = set(prom.ask("label/__name__/values"))
            fell = [name for name in counters if resets(prom, name)]
            assert len(there.intersection(counters)) > 20 and not fell, (fell, counters)
            assert prom.query("max(leat_run_records_total)")[0][1] > 0
            run.process.kill()
            run.process.wait()
            with live.run(folder, 200, port=run.port) as again:
                prom.wait_for("resets(leat_run_records_total[1h]) == 1", again.is_alive)
                assert resets(prom, "leat_serve_rows_total") == 0
    return None


def wide_run(folder, workers, scrapes):
    """A scrape of a job of many nodes and partitions: its text, and seconds that it took."""
    with live.run(folder, 300) as run:
        run.wait_until_ready("/readyz")
        took = []
        deadline = time.monotonic() + PATIENCE_S
        while len(took) < scrapes or not ALL_READ.search(text):
            begin = time.perf_counter()
            text = run.ask("/metrics", Accept=live.OPEN)[2]
            took.append(time.perf_counter() - begin)
            assert run.is_alive() and time.monotonic() < deadline, run.said[-3:]
        plain = run.ask("/metrics")[2]
        families_of_open(text)
    size = len(text.encode())
    print(f"# {STEPS} steps, {PARTITIONS} partitions, {workers} lanes: {1e3 * statistics.median(took):.1f} ms, {size:,} bytes")
    assert size <= SCRAPE_BYTES and len(plain.encode()) <= SCRAPE_BYTES, (size, len(plain))
    return plain, statistics.median(took)


def test_many_nodes_and_partitions():
    """A scrape of them is small and soon there; partitions beyond the first 200 are one series, which is their sum."""
    with live.place(live.wide(STEPS, PARTITIONS), 20_000) as folder:
        live.write_partitions(folder, PARTITIONS)
        text, seconds = wide_run(folder, 4, 15)
        assert seconds <= stretched(SCRAPE_S), seconds
        nodes = set(re.findall(r'^leat_node_held_rows\{node="([^"]*)"', text, re.M))
        assert len(nodes) >= STEPS, len(nodes)
        found = dict(re.findall(r'^leat_source_partition_records_total\{node="s",kind="file",partition="([^"]*)"\} (\d+)$',
                                text, re.M))
        assert len(found) == 201 and found["part-0199.jsonl"] == "1" and found["other"] == str(PARTITIONS - 200), found
        assert sum(map(int, found.values())) >= PARTITIONS and left_out(text) == 0, found


def left_out(text):
    return int(re.search(r"^leat_metrics_series_left_out (\d+)$", text, re.M)[1])


def test_too_many_series():
    """Nodes times lanes are more than are written: the last ones are left out, counted, and nothing else; and the
    answer is soon there."""
    workers = 64
    with live.place(live.wide(STEPS, PARTITIONS, workers), 20_000) as folder:
        live.write_partitions(folder, PARTITIONS)
        text, seconds = wide_run(folder, workers, 15)
        assert seconds <= stretched(SCRAPE_S), seconds
        common = re.compile(r"^(leat_(?:net_|build_info)|leat_metrics_series_left_out)")
        series = [line for line in text.split("\n") if line and line[0] != "#" and not common.match(line)]
        assert len(series) == SERIES_MAX and left_out(text) > 0, (len(series), left_out(text))
        rows = re.findall(r'^leat_node_rows_total\{', text, re.M)
        own = re.findall(r'^leat_node_seconds_total\{', text, re.M)
        assert len(rows) == 8 * len(set(re.findall(r'^leat_node_held_rows\{node="([^"]*)"', text, re.M))), len(rows)
        assert own and "leat_source_partition_records_total{" not in text


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
