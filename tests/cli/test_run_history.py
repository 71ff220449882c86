#!/usr/bin/env python3
"""The history of a run with a control API (`GET /api/v1/history`): it goes on through a kill, with a gap; a damaged file, a clock
that is set back and a disk that takes nothing do the run no harm. Prints TAP.

    tests/cli/test_run_history.py PATH_OF_LEAT PATH_OF_JUMPING_CLOCK
"""

import json
import os
import signal
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "clock")]
import jumps  # noqa: E402
import tap  # noqa: E402
import test_run_control as control  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[2])
SLOW = "run.claimed=sleep:250"
HOUR_MS, FILE = 3600 * 1000, "state/history"


def history(run, **query):
    status, body = run.ask("/api/v1/history?" + urllib.parse.urlencode(query))
    assert status == 200, (status, body)
    found = json.loads(body)
    ticks, times, values = found["ticks"], found["times"], found["values"]
    assert len(found["figures"]) == len(values) == 8 and all(len(of) == len(ticks) == len(times) for of in values), found
    assert ticks == sorted(set(ticks)), ticks
    nulls = [i for i in range(len(ticks)) if all(of[i] is None for of in values)]
    assert len(nulls) == found["gaps"], found
    found["gap_at"] = nulls
    found["by_name"] = {figure["name"]: of for figure, of in zip(found["figures"], values)}
    return found


def wait_for(run, points, gaps=0, **query):
    """Until the history has that many gaps, and that many points behind the last."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = history(run, **query)
        if found["gaps"] >= gaps and len(found["ticks"]) - (found["gap_at"][-1] + 1 if found["gap_at"] else 0) >= points:
            return found
        assert time.monotonic() < deadline and run.process.poll() is None, (found, run.said)
        time.sleep(0.2)


def begin(folder, points=SLOW):
    run = control.Run(folder, points=points).__enter__()
    run.wait_until("/readyz")
    return run


def kill(run):
    run.process.kill()
    run.__exit__()
    return "".join(run.said)


def test_figures_of_nodes_and_run():
    with control.place() as folder:
        run = begin(folder)
        try:
            began = time.time()
            found = wait_for(run, 5)
            assert found["node"] is None and found["span"] == "1h" and found["resolution_s"] == 1 and found["is_on_disk"]
            assert abs(found["times"][-1] - time.time() * 1000) < 5000 and found["times"][0] >= began * 1000 - 2000, found
            shares = [found["by_name"][name] for name in ("decode", "process", "wait_for_records", "blocked")]
            known = [sum(of[i] for of in shares) for i in range(len(shares[0])) if shares[0][i] is not None]
            assert known and all(0.5 < share < 1.2 for share in known), known
            stops = [stop for stop in found["by_name"]["checkpoint_stop"] if stop is not None]
            assert stops and min(stops) > 0, stops  # of the last one, also while the next one is taken
            assert max(age for age in found["by_name"]["checkpoint_age"] if age is not None) < 30
            nodes = {node["part"]: node for node in json.loads(run.ask("/api/v1/figures")[1])["nodes"]}
            for part, node in nodes.items():
                of = history(run, node=part)
                assert of["node"] == part and of["ticks"][0] == found["ticks"][0], of
                rows = of["by_name"]["rows_learned" if node["tag"] == "learner" else "rows_in"]
                assert rows.count(None) == 0 and all(rate >= 0 for rate in rows), of
                count = node["counts"]["absorbed" if node["tag"] == "learner" else "in"]
                assert count == 0 or 0.2 < sum(rows) / count < 1.8, (part, rows, node["counts"])
            assert sum(history(run, node="kept/dedup")["by_name"]["rows_out"]) > 100
            learner = history(run, node="model")["by_name"]
            for name, low, high in (("loss", 0, 2), ("auc", 0.2, 1), ("calibration", 0, 10)):
                known = [value for value in learner[name] if value is not None]
                assert known and low < known[-1] < high, (name, known)
            ends = found["times"][2]
            assert history(run, to=ends)["ticks"] == found["ticks"][:2] and history(run, **{"from": ends})["ticks"][0] == found["ticks"][2]
        finally:
            kill(run)


def test_what_is_refused():
    with control.place() as folder:
        run = begin(folder)
        try:
            status, said = run.ask("/api/v1/history?node=nobody")
            assert status == 404 and "kept/dedup\n" in said and "sink/out\n" in said, (status, said)
            for query in ("span=2h", "from=x", "node=%", "spam=1h", "span=1h&span=1h", "from=9&to=8", "&"):
                status, said = run.ask("/api/v1/history?" + query)
                assert status == 400 and said.endswith("\n"), (query, status, said)
            assert "1h, 12h or 30d" in run.ask("/api/v1/history?span=2h")[1]
            assert run.ask("/api/v1/history", "POST")[0] == 405 and run.ask("/api/v1/history/")[0] == 404
        finally:
            kill(run)


def test_kill_and_restart():
    """The hour is there again, with one gap; ten seconds that two lives share are one point."""
    with control.place() as folder:
        run = begin(folder)
        before = wait_for(run, 4, node="kept/dedup")
        said = kill(run)
        assert "history" not in said.replace("/api/v1/history", ""), said
        time.sleep(2)
        run = begin(folder)
        after = wait_for(run, 3, gaps=1, node="kept/dedup")
        count = len(before["ticks"])
        assert after["ticks"][:count] == before["ticks"] and after["times"][:count] == before["times"], (before, after)
        assert [of[:count] for of in after["values"]] == before["values"], (before, after)
        assert len(after["gap_at"]) == 1 and after["gap_at"][0] in (count, count + 1), after  # a row came before the kill
        gap = after["gap_at"][0]
        assert 2 <= after["ticks"][gap + 1] - after["ticks"][gap - 1] <= 10 + PATIENCE_S, after
        tens = wait_for(run, 1, node="kept/dedup", span="12h")
        assert tens["resolution_s"] == 10, tens
        assert run.ask("/api/v1/history?span=30d")[0] == 200
        assert "history" not in kill(run).replace("/api/v1/history", "")


def test_a_damaged_file():
    with control.place() as folder:
        path = os.path.join(folder, FILE)
        run = begin(folder)
        wait_for(run, 4)
        kill(run)
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            row = 32 * (1 + 9)  # a head, the run and eight nodes
            offset = size - (3600 + 4320 + 4320) * row
            assert 0 < offset < 1024, (size, offset)
            file.seek(offset + row + 40)  # in the second row
            file.write(b"\xff\x55\xff\x55")
        run = begin(folder)
        found = history(run)
        said = kill(run)
        assert "leat: WARNING: 1 rows of the run's history are damaged" in said and FILE in said, said
        assert found["gap_at"] == [1], found
        with open(path, "r+b") as file:
            file.write(b"something else")
        run = begin(folder)
        found = wait_for(run, 1)
        assert found["gap_at"] == [] and found["is_on_disk"], found
        assert "leat: WARNING: the run's history begins anew: state/history cannot be used" in kill(run)


def test_a_disk_that_takes_nothing():
    """From the first byte on, and later."""
    for point, there in (("history.write=error:ENOSPC", False), ("history.write=error:ENOSPC@4", True)):
        with control.place() as folder:
            run = begin(folder, points=f"{SLOW},{point}")
            found = wait_for(run, 6)
            assert not found["is_on_disk"] and not found["gap_at"] and os.path.exists(os.path.join(folder, FILE)) == there, found
            run.process.send_signal(signal.SIGINT)
            assert run.process.wait(PATIENCE_S) == 0, run.said
            said = kill(run)
            assert said.count("state/history cannot be written: No space left on device; the run goes on") == 1, said


def test_the_clock_is_set_back():
    """By an hour, in a life and between two."""
    with control.place() as folder, jumps.Clock(LIBRARY) as clock:
        os.environ.update(LD_PRELOAD=clock.library, LEAT_CLOCK=clock.file.name)
        try:
            run = begin(folder)
            before = wait_for(run, 3)
            clock.set(-jumps.HOUR_US)
            back = wait_for(run, len(before["ticks"]) + 3)
            kill(run)
            clock.set(-2 * jumps.HOUR_US)
            run = begin(folder)
            again = wait_for(run, 2, gaps=1)
            said = kill(run)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["LEAT_CLOCK"]
        assert back["gap_at"] == [] and "WARNING" not in said, (back, said)
        falls = [b - a for a, b in zip(back["times"], back["times"][1:]) if b < a]
        assert len(falls) == 1 and abs(falls[0] + HOUR_MS) < 60_000, back
        assert again["ticks"][:len(back["ticks"])] == back["ticks"] and len(again["gap_at"]) == 1, (back, again)
        assert again["times"][-1] < back["times"][-1] - HOUR_MS // 2, again


def test_without_checkpoints():
    with control.place() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(control.JOB.replace(', checkpoint: { every: 500ms, dir: "state" }', ""))
        run = begin(folder)
        found = wait_for(run, 2)
        assert not found["is_on_disk"], found
        assert not any("history" in name for name in os.listdir(folder)), os.listdir(folder)
        assert "WARNING" not in kill(run)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
