"""Rows of the table: keyed state in memory, beyond its memory, and checkpoints of it."""

import json
import re

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
    """A run with checkpoints every so often, or without: (run, samples after the fill and its checkpoints)."""
    folder = bench.path("checkpoint-state")
    remove(folder)
    run, samples = bench.watch("checkpoint.leat", count=count, filled=FILLED_KEYS, hot=hot,
                               state=folder if every else "", every=every or "10s")
    remove(folder)
    steady = [sample for sample in samples
              if sample.events > 1.5 * FILLED_KEYS and (sample.checkpoint >= 2 or not every)]
    if len(steady) < 3 or (every and steady[-1].checkpoint < steady[0].checkpoint + 2):
        raise Broken("too short for two checkpoints after the first two")
    return run, steady


def rates(samples):
    """Events a second: of wall time, of the busiest thread's CPU time (the lane), of all CPU time."""
    first, last = samples[0], samples[-1]
    events = last.events - first.events
    by_thread = {thread: last.cpu[thread] - first.cpu.get(thread, 0) for thread in last.cpu}
    return events / (last.wall - first.wall), events / max(by_thread.values()), events / sum(by_thread.values())


def found(pattern, run):
    return re.search(pattern, run.output)[1]


def checkpoint_figures(bench, hot, name, stop, loss):
    count, every = bench.size((450_000_000, "10s"), (120_000_000, "3s"))
    losses, runs, taken = [], [], 0
    for i in range(1 if bench.is_quick else 3):
        say(f"{name}, {i + 1}")
        plain, plain_samples = checkpointed(bench, hot, None, count)
        run, samples = checkpointed(bench, hot, every, count)
        same([run], plain, lambda run: found(r"digest ([0-9a-f]{32})", run))
        losses.append([(1 - b / a) * 100 for a, b in zip(rates(plain_samples), rates(samples))])
        runs.append(run)
        taken += samples[-1].checkpoint - samples[0].checkpoint
    wall_loss, lane_loss, cpu_loss = (median([item[i] for item in losses]) for i in range(3))
    checked = "digest of all rows, against a run without checkpoints"
    others = median([run.others for run in runs])
    note = f"{len(runs)} runs, a checkpoint every {every}, {taken} measured, after the fill and its full copy."
    by_cpu = f"by the lane's own CPU time {lane_loss:.1f} %; by CPU time of lane and writer {cpu_loss:.1f} %."
    return [Figure(f"checkpoint, {name} modified: longest stop of a lane", "ms",
                   max(float(found(r"a lane stopped for ([0-9.]+) ms", run)) for run in runs), stop, is_upper=True,
                   runs=runs, checked=checked, note=note + " The longest of all, not p99."),
            Figure(f"checkpoint, {name} modified: throughput lost", "%", wall_loss, loss, is_upper=True, runs=runs,
                   checked=checked,
                   note=f"{note} By wall time, one lane, while other processes had {others:.1f} cores; {by_cpu}")]


def row_checkpoint(bench):
    return (checkpoint_figures(bench, HOT_KEYS, "100 MiB", 10.0, 3.0) +
            checkpoint_figures(bench, FILLED_KEYS, "1 GiB", 50.0, 10.0))


ROWS = {
    "feature": ("`feature` updates, 1 M keys in memory", row_feature),
    "cold-zipf": ("`feature`, state ten times its memory, Zipf keys", row_cold_zipf),
    "cold-uniform": ("`feature`, state ten times its memory, uniform keys", row_cold_uniform),
    "checkpoint": ("checkpoints of 1 GiB of state: stop of a lane, throughput", row_checkpoint),
}
