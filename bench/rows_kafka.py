"""Rows of the table: from Kafka, to Kafka, each record once; latency, restart, and Kafka Streams beside it.

The broker runs on the same cores, and so do the producer and the reader of a row that has them at the same time."""

import dataclasses
import json
import os
import signal
import subprocess
import time

import java_peers
import kafka_broker as broker
from harness import Broken, Figure, Peer, busy_cores, finish, median, rate, remove, same, say
from rows_engine import events_file, parse_limits

LINES = 4_000_000
KEYS = 200_000
CHECKPOINT_MS = 1000  # of jobs/kafka_feature.leat
STATE_KEYS = (1 << 30) // 132  # of a key, its panes and the room beside them
JAVA = ["-Xms768m", "-Xmx768m"]  # peers/kafka_streams/README.md says why


def settings(name, **more):
    return {"brokers": broker.cluster().brokers, "topic": name, **more}


# --- Source ----------------------------------------------------------------------------------------------------------

def plain(bench, name):
    """A plain consumer: M records per second of its CPU time."""
    found = json.loads(bench.run([bench.program("limits", "limit_kafka"), broker.cluster().brokers, name]).output)
    if found["records"] != LINES:
        raise Broken(f"the plain consumer read {found['records']} records of {LINES}")
    return found["per_cpu_s"] / 1e6


def lines_topic(bench):
    """The lines of row `where`, which have 122 bytes; made once in a run."""
    if not hasattr(bench, "lines_topic"):
        data, _ = events_file(bench)
        bench.lines_topic = broker.topic("lines")
        broker.load(bench, bench.lines_topic, "lines", data, LINES)
        plain(bench, bench.lines_topic)  # its first reader fills the broker's caches
    return bench.lines_topic


def checked_rows(bench, job, name):
    """How many rows come to the sink; one lane and two give the same, column by column."""
    one, two = (bench.run_job(job, workers=workers, **settings(name)) for workers in (1, 2))
    same([one], two, lambda run: run.digest("kept"))
    return one.node("kept")["counts"]["in"]


def source_figure(bench, job, what, limit_of, target, limit_name):
    name = lines_topic(bench)
    kept = checked_rows(bench, job, name)
    runs, limits = bench.repeat(lambda: bench.run_job(job, digest="false", **settings(name)),
                                lambda: limit_of(bench, name))
    for run in runs:
        if run.node("kept")["counts"]["in"] != kept:
            raise Broken(f"{job}: {run.node('kept')['counts']['in']} rows instead of {kept}")
    ratios = [LINES / run.cpu / 1e6 / limit for run, limit in zip(runs, limits)]
    digested = [bench.run_job(job, **settings(name)) for _ in range(3)]
    return [Figure(what, "M/s/core", rate(LINES, runs), target * median(limits), runs=runs,
                   peers=[Peer(limit_name, median(limits), "same run")],
                   checked="rows counted in each timed run; digest of every column of every row in two untimed ones, "
                           "with 1 worker and with 2",
                   note=f"Ratio, median of pairs: {median(ratios):.2f} (target {target}), from {min(ratios):.2f} to "
                        f"{max(ratios):.2f}. The timed sink counts, as the plain consumer does; with its digest "
                        f"{rate(LINES, digested):.2f} M/s/core.")]


def row_raw(bench):
    return source_figure(bench, "kafka_raw.leat", "topic -> where -> null, raw payloads of 122 B", plain, 0.9,
                         "plain librdkafka consumer")


def raw_and_parsed(bench, name):
    return 1 / (1 / plain(bench, name) + 1e6 / parse_limits(bench)["events"]["peer_per_s"])


def row_json(bench):
    return source_figure(bench, "kafka_json.leat", "topic -> where -> null, JSON of 8 fields to columns",
                         raw_and_parsed, 0.6, "1 / (1/plain consumer + 1/simdjson)")


# --- Topic to topic --------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Passed:
    """One run of a program from topic to topic."""

    run: object
    out: dict  # what kafka_read says of the output
    rate: float  # M records a second, from the start of the process to its end


def events_topic(bench):
    """(topic, events), made once in a run."""
    count = bench.size(3_000_000, 1_000_000)
    if not hasattr(bench, "events_topic"):
        bench.events_topic = broker.topic("events")
        broker.load(bench, bench.events_topic, "events", count, KEYS, 0, 0)
    return bench.events_topic, count


def passed_by_leat(bench, delivery, **more):
    name, count = events_topic(bench)
    out, state = broker.topic("out"), bench.path("kafka-state")
    remove(state)
    run = bench.run_job("kafka_feature.leat", workers=2, until="latest", out=out, state=state, delivery=delivery,
                        **settings(name, **more))
    passed = Passed(run, broker.read(bench, out, count), count / run.wall / 1e6)
    broker.delete(out)
    remove(state)
    return passed


def same_output(runs):
    for one in runs:
        if one.out["digest"] != runs[0].out["digest"]:
            raise Broken(f"output differs: {one.out['digest']} here, {runs[0].out['digest']} there")


def row_feature(bench):
    exact, direct = bench.repeat(lambda: passed_by_leat(bench, "exactly_once"),
                                 lambda: passed_by_leat(bench, "at_least_once"))
    same_output(exact + direct)
    _, count = events_topic(bench)
    ratios = [a.rate / b.rate for a, b in zip(exact, direct)]
    cpu = [median([one.run.cpu for one in runs]) for runs in (exact, direct)]
    at_least_once = median([one.rate for one in direct])
    return [Figure("topic -> feature -> topic exactly once, checkpoint every 1 s", "M/s",
                   median([one.rate for one in exact]), 0.6 * at_least_once, runs=[one.run for one in exact],
                   peers=[Peer("the same, at least once", at_least_once, "same run")],
                   checked="digest of all output records, the same for both deliveries in each run",
                   note=f"Ratio, median of pairs: {median(ratios):.2f} (target 0.6). By wall time of the whole "
                        f"process, 2 workers, {count / 1e6:.0f} M events of {KEYS} keys, broker on the same cores; by "
                        f"CPU time of leat {count / cpu[0] / 1e6:.2f} and {count / cpu[1] / 1e6:.2f} M/s/core.")]


# --- Latency ---------------------------------------------------------------------------------------------------------

class Live:
    """leat on a job that goes on for ever."""

    def __init__(self, bench, **more):
        self.bench, self.more, self.started, self.busy = bench, more, 0, 0
        self.start()

    def start(self):
        command = self.bench.job_command("kafka_feature.leat", 2, self.more)
        self.started, self.busy = time.monotonic(), busy_cores()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def stop(self):
        """Ctrl-C; its run, with the summary."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.stdout.read(), self.process.stderr.read()
        run = finish(self.process, self.started, self.busy, out)
        if self.process.returncode != 0:
            raise Broken(f"leat: status {self.process.returncode}: {err[-800:]}")
        run.summary = json.loads(out)
        return run


RATE = 100_000
WARM_SECONDS = 4


def latency(bench, delivery):
    """(what kafka_read says, what kafka_load says, run) at 100 k records/s."""
    seconds = bench.size(10, 5)
    count, skip = RATE * (WARM_SECONDS + seconds), RATE * WARM_SECONDS
    name, out, state = broker.topic("paced"), broker.topic("paced-out"), bench.path("kafka-state")
    remove(state)
    live = Live(bench, out=out, state=state, delivery=delivery, **settings(name))
    reader = broker.start(bench, "kafka_read", out, "all", count, skip)
    time.sleep(1)
    try:
        loaded = broker.end(broker.start(bench, "kafka_load", name, "events", count, KEYS, RATE, 0))
        found = broker.end(reader)
        run = live.stop()
    finally:
        for process in (reader, live.process):
            if process.poll() is None:
                process.kill()
                process.wait()
    if found["ids"] != loaded["ids"]:
        raise Broken("latency: what came out is not what went in")
    broker.delete(name, out)
    remove(state)
    return found, loaded, run


def latency_figures(delivery, measured, targets):
    runs = [run for _, _, run in measured]
    late = max(loaded["behind_ms"] for _, loaded, _ in measured)

    def of(clock, part):
        return median([found[clock][part] for found, _, _ in measured])

    return [Figure(f"{delivery} at 100 k records/s: {part}", "ms", of("append_ms", part), target, is_upper=True,
                   runs=runs, checked="every record once, by the sum over their numbers",
                   note=f"From the broker's append (whole ms, so up to 1 ms too long) to a read_committed consumer; "
                        f"from the producer's call {of('send_ms', part):.1f} ms. p99.9 {of('append_ms', 'p999'):.1f}, "
                        f"worst of a run {of('append_ms', 'max'):.1f} ms. Of each run: "
                        f"{', '.join(format(found['append_ms'][part], '.1f') for found, _, _ in measured)}. leat took "
                        f"{median([run.cpu / run.wall for run in runs]):.2f} cores, everything else "
                        f"{median([run.others for run in runs]):.2f} of {os.cpu_count()}; the producer was late by "
                        f"{late:.0f} ms at most.") for part, target in targets]


def row_latency(bench):
    direct, exact = bench.repeat(lambda: latency(bench, "at_least_once"), lambda: latency(bench, "exactly_once"))
    return (latency_figures("at least once", direct, [("p50", 5.0), ("p99", 50.0)]) +
            latency_figures("exactly once", exact, [("p99", CHECKPOINT_MS + 200.0)]))


# --- Restart ---------------------------------------------------------------------------------------------------------

def now_us():
    return time.time_ns() // 1000


class Loads:
    """What went into a topic."""

    def __init__(self, bench, name):
        self.bench, self.name, self.count, self.ids = bench, name, 0, 0

    def add(self, loaded):
        self.count += loaded["sent"]
        self.ids = (self.ids + loaded["ids"]) % (1 << 64)

    def load(self, count, keys):
        self.add(broker.load(self.bench, self.name, "events", count, keys, 0, self.count))

    def begin(self, count, keys, per_second):
        return broker.start(self.bench, "kafka_load", self.name, "events", count, keys, per_second, self.count)


def touch(bench):
    """Seconds that the machine takes for a GiB of new memory. A virtual one whose host takes back what is free may need
    long; it is then at hand for a while."""
    command = [bench.program("limits", "limits"), "touch", str(2 << 30)]
    return json.loads(bench.run(command).output)["seconds"] / 2


def restart(bench, live, loads, out, is_memory_there):
    """After kill -9: seconds from the start of leat to the first output of a record that was sent after the kill, to
    the first output of all, and touch() where it was called before."""
    loading = loads.begin(50_000, STATE_KEYS, 10_000)
    time.sleep(2.5)
    live.kill()
    reader = broker.start(bench, "kafka_read", out, "first", now_us())
    touched = touch(bench) if is_memory_there else None
    time.sleep(0.5)  # the reader stands at the end of the topic
    begin = now_us()
    live.start()
    found = broker.end(reader)
    loads.add(broker.end(loading))
    return (found["first_us"] - begin) / 1e6, (found["any_us"] - begin) / 1e6, touched


def restarts(bench, live, loads, out):
    """Of each turn one as it comes, and one with memory at hand."""
    loads.load(STATE_KEYS, 0)
    reader = broker.start(bench, "kafka_read", out, "first", now_us())
    time.sleep(0.5)
    loads.load(1, STATE_KEYS)  # what comes before it is in the state when this one comes out
    broker.end(reader, 300)
    return bench.repeat(lambda: restart(bench, live, loads, out, False), lambda: restart(bench, live, loads, out, True))


def row_restart(bench):
    name, out, state = broker.topic("filled"), broker.topic("filled-out"), bench.path("kafka-state")
    remove(state)
    loads = Loads(bench, name)
    live = Live(bench, out=out, state=state, memory="4GiB", **settings(name))
    try:
        taken = restarts(bench, live, loads, out)
        run = live.stop()
    finally:
        if live.process.poll() is None:
            live.process.kill()
            live.process.wait()
    found = broker.read(bench, out, loads.count)
    if found["ids"] != loads.ids:
        raise Broken("restart: what came out is not what went in, once each")
    held = next(node for node in run.summary["nodes"] if node["kind"] == "feature")["report"]["run"]["state_bytes"]
    broker.delete(name, out)
    remove(state)
    peers = [Peer("1 GiB of new memory from this machine", median([one[2] for one in taken[1]]), "same run")]
    figures = []
    for what, times in zip(("", ", memory at hand"), taken):
        each, earliest = [one[0] for one in times], [one[1] for one in times]
        figures.append(Figure(
            f"kill -9 with 1 GiB of state: start to the first output{what}", "s", median(each), 5.0, is_upper=True,
            peers=peers, runs=[run], checked=f"{loads.count} records came out once each, over all kills",
            note=f"{held / 2**30:.2f} GiB of state, {STATE_KEYS / 1e6:.1f} M keys, exactly once with a checkpoint "
                 f"every 1 s, 10 k records/s meanwhile; the first output of a record that was sent after the kill, "
                 f"committed. Of each: {', '.join(f'{one:.1f}' for one in each)} s; the first of any record "
                 f"{median(earliest):.1f} s."))
    return figures


# --- Kafka Streams ---------------------------------------------------------------------------------------------------

def streams_program(bench):
    java, *path = java_peers.command(bench, "kafka_streams", "Kafka Streams")
    return [java, *JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *path, "Feature"]


def passed_by_streams(bench, command):
    name, count = events_topic(bench)
    out, state = broker.topic("out"), bench.path("kafka-streams-state")
    remove(state)
    run = bench.run([*command, broker.cluster().brokers, name, out, state, out, "2", str(count)])
    found = broker.read(bench, out, count)
    broker.delete(out, f"{out}-totals-changelog")
    remove(state)
    return Passed(run, found, count / run.wall / 1e6)


def row_peer(bench):
    """Both by the last two thirds of their output: neither the start of a process nor Java's warm-up counts."""
    command = streams_program(bench)
    ours, theirs = bench.repeat(lambda: passed_by_leat(bench, "exactly_once"),
                                lambda: passed_by_streams(bench, command))
    same_output(ours + theirs)
    _, count = events_topic(bench)
    steady, peer = ([one.out["steady_per_s"] / 1e6 for one in runs] for runs in (ours, theirs))
    ratios = [a / b for a, b in zip(steady, peer)]
    memory = [median([one.run.rss_mb for one in runs]) for runs in (ours, theirs)]
    cpu = [count / median([one.run.cpu for one in runs]) / 1e6 for runs in (ours, theirs)]
    whole = [median([one.rate for one in runs]) for runs in (ours, theirs)]
    checked = "digest of all output records: theirs are ours, byte for byte"
    note = (f"2 workers and 2 stream threads, commit and checkpoint every 1 s, {count / 1e6:.0f} M events of {KEYS} "
            f"keys; by CPU time {cpu[0]:.2f} and {cpu[1]:.3f} M/s/core.")
    return [Figure("topic -> feature -> topic exactly once: records/s", "M/s", median(steady), 5 * median(peer),
                   runs=[one.run for one in ours], peers=[Peer("Kafka Streams", median(peer), "same run")],
                   checked=checked,
                   note=f"Ratio, median of pairs: {median(ratios):.1f} (target 5), from {min(ratios):.1f} to "
                        f"{max(ratios):.1f}. By the last two thirds of the output, as the broker appended it; from "
                        f"the start of the process to its end {whole[0]:.2f} and {whole[1]:.3f} M/s. {note}"),
            Figure("the same: memory", "MB", memory[0], memory[1] / 4, is_upper=True, runs=[one.run for one in ours],
                   peers=[Peer("Kafka Streams", memory[1], "same run")], checked=checked,
                   note=f"Peak RSS of the process, Java with {' '.join(JAVA)}. {note}")]


ROWS = {
    "kafka-raw": ("topic -> where -> null, raw payloads, beside a plain consumer", row_raw),
    "kafka-json": ("topic -> where -> null, JSON to columns", row_json),
    "kafka-feature": ("topic -> feature -> topic, exactly once beside at least once", row_feature),
    "kafka-latency": ("the same at 100 k records/s: latency of both", row_latency),
    "kafka-restart": ("kill -9 with 1 GiB of state: first output", row_restart),
    "kafka-peer": ("the same as Kafka Streams: rate and memory", row_peer),
}
