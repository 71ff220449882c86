"""Rows of the table: keyed state in memory, beyond its memory, and checkpoints of it."""

import json

from harness import Broken, Figure, Peer, median, rate, remove, same, say
from rows_engine import wall

KEY_BYTES = 110  # of a key's entry and panes in these jobs, as leat reports it
KEYS = 1_000_000
COLD_MEMORY = 64 << 20  # of the job; half of it is the table's
COLD_KEYS = 10 * (COLD_MEMORY // 2) // KEY_BYTES
COLD_SKEW = 0.95  # 80 % of look-ups find their key in memory
FILLED_KEYS = (1 << 30) // KEY_BYTES
HOT_KEYS = (100 << 20) // KEY_BYTES


def state_of(run):
    return next(node for node in run.summary["nodes"] if node["kind"] == "feature")["report"]["run"]


def limit(bench, *arguments):
    return json.loads(bench.run([bench.program("limits", "limits"), *map(str, arguments)]).output)["per_s"] / 1e6


def row_feature(bench):
    count = bench.size(10_000_000, 4_000_000)
    reference = bench.run_job("feature.leat", workers=2, count=count, keys=KEYS)
    runs, limits = bench.repeat(lambda: bench.run_job("feature.leat", count=count, keys=KEYS),
                                lambda: limit(bench, "memory", KEYS * KEY_BYTES, 20_000_000))
    same(runs, reference, lambda run: run.digest("out"))
    state = state_of(runs[0])
    return [Figure("`feature` updates, 1 M keys in memory", "M/s/core", rate(count, runs), 5.0, runs=runs,
                   peers=[Peer("random cache lines, asked for ahead", median(limits), "same run")],
                   checked="digest in each timed run, against a run with 2 workers",
                   note=f"Uniform keys, the whole job (made records, two aggregates, digest), the fill included. "
                        f"{state['state_bytes'] / 2**20:.0f} MiB of state. By wall time {wall(count, runs)}.")]


def rocksdb(bench, count):
    """RocksDB alone with the job's memory, uniform keys."""
    folder = bench.path("rocksdb-alone")
    remove(folder)
    figure = limit(bench, "rocksdb", folder, COLD_KEYS, COLD_MEMORY, count)
    remove(folder)
    return figure


def cold(bench, job, what, target, count, **settings):
    settings |= {"count": count, "keys": COLD_KEYS}
    reference = bench.run_job(job, workers=2, memory=f"{8 << 30}B", **settings)
    if state_of(reference)["state_evicted"]:
        raise Broken(f"{job}: the reference was to stay in memory")
    runs, peers = bench.repeat(lambda: bench.run_job(job, memory=f"{COLD_MEMORY}B", **settings),
                               lambda: rocksdb(bench, bench.size(3_000_000, 1_000_000)))
    same(runs, reference, lambda run: run.digest("out"))
    state = state_of(runs[0])
    hits = 1 - state["state_misses"] / state["state_lookups"]
    return [Figure(what, "M/s/core", rate(count, runs), target, runs=runs,
                   peers=[Peer("RocksDB alone, uniform", median(peers), "same run")],
                   checked="digest in each timed run, against a run with 2 workers that keeps all in memory",
                   note=f"{hits:.0%} of look-ups in memory, {state['state_evicted'] / 1e6:.1f} M evictions, "
                        f"{state['state_loaded'] / 1e6:.1f} M read back; peak RSS "
                        f"{median([run.rss_mb for run in runs]):.0f} MB at `memory: 64MiB`. The fill is included, and "
                        f"RocksDB's own threads. By wall time {wall(count, runs)}.")]


def row_cold_zipf(bench):
    return cold(bench, "feature_zipf.leat", "`feature`, state ten times its memory, Zipf keys", 0.5,
                bench.size(8_000_000, 4_000_000), skew=COLD_SKEW)


def row_cold_uniform(bench):
    return cold(bench, "feature.leat", "`feature`, state ten times its memory, uniform keys", 0.1,
                bench.size(8_000_000, 4_000_000))


# --- Checkpoints -----------------------------------------------------------------------------------------------------

def checkpointed(bench, hot, every, count):
    """A run with checkpoints every so often, or without."""
    folder = bench.path("checkpoint-state")
    remove(folder)
    run = bench.run_job("checkpoint.leat", extra=["--fresh"] if every else [], count=count, filled=FILLED_KEYS, hot=hot,
                        state=folder if every else "", every=every or "10s")
    remove(folder)
    return run


def row_checkpoint(bench):
    count, every = bench.size((100_000_000, "10s"), (30_000_000, "3s"))
    figures = []
    for hot, name, stop, loss in ((HOT_KEYS, "100 MiB", 10.0, 3.0), (FILLED_KEYS, "1 GiB", 50.0, 10.0)):
        runs, plain = [], []
        for i in range(1 if bench.is_quick else 3):
            say(f"{name}, {i + 1}")
            plain.append(checkpointed(bench, hot, None, count))
            runs.append(checkpointed(bench, hot, every, count))
        same(runs, plain[0], lambda run: run.digest("out"))
        taken = [run.summary["checkpoints"] for run in runs]
        if min(taken) < 2:
            raise Broken("fewer than two checkpoints were taken")
        lost = (1 - median([a.wall / b.wall for a, b in zip(plain, runs)])) * 100
        lost_cpu = (1 - median([a.cpu / b.cpu for a, b in zip(plain, runs)])) * 100
        shared = {"runs": runs, "checked": "digest of all rows, against a run without checkpoints",
                  "note": f"{len(runs)} runs, a checkpoint every {every}, {min(taken)} to {max(taken)} a run, the last of "
                          f"{runs[-1].summary['checkpoint_bytes'] / 2**20:.0f} MiB; state "
                          f"{state_of(runs[0])['state_bytes'] / 2**20:.0f} MiB."}
        figures.append(Figure(f"checkpoint, {name} modified: longest stop of a lane", "ms",
                              median([run.summary["checkpoint_stop_max_ms"] for run in runs]), stop, is_upper=True,
                              **shared))
        figures.append(Figure(f"checkpoint, {name} modified: throughput lost", "%", lost, loss, is_upper=True, **shared))
        figures[-1].note += f" By wall time; CPU time, the writer's thread included: {lost_cpu:.1f} %."
    return figures


ROWS = {
    "feature": ("`feature` updates, 1 M keys in memory", row_feature),
    "cold-zipf": ("`feature`, state ten times its memory, Zipf keys", row_cold_zipf),
    "cold-uniform": ("`feature`, state ten times its memory, uniform keys", row_cold_uniform),
    "checkpoint": ("checkpoints of 1 GiB of state: stop of a lane, throughput", row_checkpoint),
}
