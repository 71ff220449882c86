"""Rows of the table: parsing, the engine end to end, lanes, start, batches as bytes."""

import json
import os
import subprocess
import time

from harness import JOBS, Broken, Figure, Peer, busy_cores, finish, median, rate, same, say

EVENTS_LINES = 4_000_000
CTR_EVENTS = 1_500_000


def events_file(bench):
    """Lines of 123 bytes and their newline, with 8 fields; those that json_bench makes."""
    lines = bench.size(EVENTS_LINES, EVENTS_LINES // 4)
    path = bench.made(f"events-{lines}.jsonl",
                      lambda path: bench.run([bench.program("json", "json_bench"), "--write", path, str(lines)]))
    return path, lines


def parse_limits(bench):
    """Rates of simdjson alone and of leat's decoder, M lines/s, by shape of the lines; medians of 5 within."""
    output = bench.run([bench.program("json", "json_bench"), "--json"]).output
    return {item["name"]: item for item in map(json.loads, output.splitlines())}


def row_json(bench):
    runs = bench.repeat(lambda: parse_limits(bench))
    figures = []
    for name, target in (("events", 0.6), ("ctr", 0.6)):
        leat, peer = (median([run[name][key] for run in runs]) / 1e6 for key in ("leat_per_s", "peer_per_s"))
        ratio = median([run[name]["leat_per_s"] / run[name]["peer_per_s"] for run in runs])
        shape = runs[0][name]
        figures.append(Figure(
            f"JSON lines of {shape['bytes'] - 1:.0f} B, {shape['fields']} fields, to columns", "M/s", leat,
            target * peer, peers=[Peer(f"simdjson On-Demand ({shape['peer']})", peer, "same run")],
            checked="untimed pass: the sum over all columns is simdjson's",
            note=f"Ratio, median of runs: {ratio:.2f} (target {target})."))
    return figures


def row_where(bench):
    data, events = events_file(bench)
    reference = bench.run_job("where.leat", workers=2, data=data)
    say(f"reference: {reference.digest('kept')}")
    runs, limits = bench.repeat(lambda: bench.run_job("where.leat", data=data), lambda: parse_limits(bench)["events"])
    same(runs, reference, lambda run: run.digest("kept"))
    limit = median([item["peer_per_s"] for item in limits]) / 1e6
    return [Figure("file -> where -> null, end to end", "M/s/core", rate(events, runs), 5.0, runs=runs,
                   peers=[Peer("simdjson alone", limit, "same run")],
                   checked="digest of every column of every row in each timed run, against a run with 2 workers",
                   note=f"By wall time {wall(events, runs)}.")]


def wall(events, runs):
    others = median([run.others for run in runs])
    rate_by_wall = events / median([run.wall for run in runs]) / 1e6
    return f"{rate_by_wall:.2f} M/s, while other processes had {others:.1f} cores"


# --- Lanes -----------------------------------------------------------------------------------------------------------

def ctr_streams(bench):
    """A recorded day of impressions and clicks, whole and as two halves in time."""
    events = bench.size(CTR_EVENTS, CTR_EVENTS // 5)

    def make(path):
        bench.run([bench.leat, "generate", "ctr", "--events", str(events), "--seed", "7", "--out", path])
        with open(os.path.join(path, "impressions.jsonl"), encoding="ascii") as file:
            cut = json.loads(next(line for i, line in enumerate(file) if i == events // 2))["ts"]
        for half in ("a", "b"):
            os.mkdir(os.path.join(path, half))
        for name in ("impressions.jsonl", "clicks.jsonl"):
            with open(os.path.join(path, name), encoding="ascii") as file, \
                 open(os.path.join(path, "a", name), "w", encoding="ascii") as first, \
                 open(os.path.join(path, "b", name), "w", encoding="ascii") as second:
                for line in file:
                    (first if json.loads(line)["ts"] < cut else second).write(line)

    return bench.made(f"ctr-{events}", make), events


def run_pair(bench, job, folders):
    """Two processes at once, each with one lane and half of the input: (wall until the last ends, CPU of both)."""
    started, busy = time.monotonic(), busy_cores()
    processes = [subprocess.Popen(bench.job_command(job, 1, {"data": folder}), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for folder in folders]
    runs = [finish(process, started, busy, "") for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise Broken(f"{job}: one of the two processes failed")
    runs[1].cpu += runs[0].cpu
    runs[1].wall = max(runs[0].wall, runs[1].wall)
    runs[1].others = max(0.0, runs[1].others - runs[0].cpu / runs[1].wall)
    return runs[1]


def row_lanes(bench):
    data, events = ctr_streams(bench)
    halves = [os.path.join(data, half) for half in ("a", "b")]
    reference = bench.run_job("lanes.leat", workers=1, data=data)
    say(f"reference: {reference.digest('examples')}")
    lanes, pairs = bench.repeat(lambda: bench.run_job("lanes.leat", workers=2, data=data),
                                lambda: run_pair(bench, "lanes.leat", halves))
    same(lanes, reference, lambda run: run.digest("examples"))
    by_wall = median([pair.wall / run.wall for pair, run in zip(pairs, lanes)]) * 100
    by_cpu = median([pair.cpu / run.cpu for pair, run in zip(pairs, lanes)]) * 100
    return [Figure("two lanes against two processes, jobs/ctr.leat up to the learner's input", "%", by_wall, 90.0,
                   runs=lanes, peers=[Peer("two processes", 100.0, "same run")],
                   checked="digest of the learner's input, against a run with 1 lane",
                   note=f"Throughput by wall time, in turns; by CPU time {by_cpu:.0f} %. {wall(events, lanes)}; "
                        f"the two processes {wall(events, pairs)}.")]


# --- Start -----------------------------------------------------------------------------------------------------------

def first_output(command, cwd):
    """Milliseconds from the start of the process to the first byte it writes."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd)
    first = os.read(process.stdout.fileno(), 1)
    took = (time.monotonic() - started) * 1e3
    process.stdout.read()
    process.stdout.close()
    if process.wait() != 0 or not first:
        raise Broken(f"{' '.join(command)}: failed")
    return took


def row_start(bench):
    data = bench.made("start.jsonl", lambda path: bench.run(
        [bench.program("json", "json_bench"), "--write", path, "1000"]))

    def start():
        return first_output([bench.leat, "run", os.path.join(JOBS, "start.leat"), "--quiet", "--fresh",
                             "--set", f"data={data}", "--set", f"state={bench.path('start-state')}"], None)

    leat, machine = bench.repeat(start, lambda: first_output(["/bin/echo", "x"], None))
    return [Figure("leat run, start to first event out", "ms", median(leat), 100.0, is_upper=True,
                   peers=[Peer("/bin/echo", median(machine), "same run")],
                   checked="the first byte of the first row on stdout",
                   note="The job has keyed state, a checkpoint directory and a learner.")]


WIRE_NS = 12.0  # CPU to write a row and read it again
WIRE_READ = ("read", "texts")  # rows of a source, in order


def wire_most(name, columns):
    """Bytes a row that rows of a source may take: 1.3 of their columns' and 8; of others: 24 and 32 a column and batch."""
    return 1.3 * columns + 8 if name in WIRE_READ else columns + 24 + 32 * 4 / 1024


def row_wire(bench):
    found = {}
    for run in bench.repeat(lambda: bench.run([bench.program("wire", "bench_wire"), "--rows"])):
        for name, *numbers in (line.split(" ") for line in run.output.splitlines()):
            found.setdefault(name, []).append([float(number) for number in numbers])
    cases = {name: [median(list(column)) for column in zip(*runs)] for name, runs in found.items()}
    write, read, _, _ = cases["read"]
    note = "; ".join(f"{name} {write:.1f} + {read:.1f} ns, {each:.1f} B of which {columns:.0f} are columns"
                     for name, (write, read, each, columns) in cases.items())
    checked = "each batch that was read, with the one that was written"
    share, name = max((each / wire_most(name, columns), name) for name, (_, _, each, columns) in cases.items())
    return [Figure("1,024 rows of a source, 4 columns, to bytes and back", "ns/row", write + read, WIRE_NS, is_upper=True,
                   checked=checked, note=f"Write + read: {note}."),
            Figure(f"bytes a row, of what it may take at most: {name}", "%", 100 * share, 100.0, is_upper=True, checked=checked)]


ROWS = {
    "json": ("JSON lines to columns, against simdjson On-Demand", row_json),
    "where": ("file -> where -> null, end to end", row_where),
    "lanes": ("two lanes against two processes", row_lanes),
    "start": ("leat run, start to first event", row_start),
    "wire": ("batches to bytes of the wire format and back", row_wire),
}
