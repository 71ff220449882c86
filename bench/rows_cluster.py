"""Rows of the table: one job on several workers beside the same job in one process.

All workers are on this machine: two cores measure what several workers cost, not what networks do. CPU time is that of all
processes of leat, from start to end, without brokers and etcd. A run of one process with as many lanes does the same work, and
so does one with a lane: both stand beside each figure, because lanes cost something, too."""

import os

import cluster_workers
import kafka_broker as broker
import rows_kafka
from harness import Broken, Figure, Peer, median, rate, remove

WORKERS = (1, 2, 4)
PARTITIONS = 4
CHECKED = "digest of all output records, the same in each run of any number of workers and lanes"
ONE_MACHINE = "Two cores measure what several workers cost, not what networks do."


def in_turns(bench, alone, together):
    """({lanes: results}, {workers: results}), interleaved: noise meets all alike."""
    runs = bench.repeat(*[lambda count=count, which=which: which(count) for count in WORKERS for which in (alone, together)])
    return dict(zip(WORKERS, runs[::2])), dict(zip(WORKERS, runs[1::2]))


def figures(what, events, alone, together, shares, note):
    """One for each number of workers. alone, together: runs by number of lanes or workers; shares: targets, of the run with as many
    lanes."""
    found = []
    for count in WORKERS:
        lanes, one = rate(events, alone[count]), rate(events, alone[1])
        ratios = [a.cpu / b.cpu for a, b in zip(alone[count], together[count])]
        of_one = [a.cpu / b.cpu for a, b in zip(alone[1], together[count])]
        found.append(Figure(
            f"{what}: {count} worker{'s' * (count > 1)}", "M/s/core", rate(events, together[count]), shares[count] * lanes,
            runs=together[count], checked=CHECKED,
            peers=[Peer(f"one process, {count} lane{'s' * (count > 1)}", lanes, "same run")] +
                  ([Peer("one process, 1 lane", one, "same run")] if count > 1 else []),
            note=f"Ratio, median of pairs: {median(ratios):.2f} of as many lanes (target {shares[count]}), from {min(ratios):.2f} to "
                 f"{max(ratios):.2f}; {median(of_one):.2f} of 1 lane. CPU {median([run.cpu for run in together[count]]):.2f} s of all "
                 f"workers, {median([run.cpu for run in alone[count]]):.2f} s alone, {events / 1e6:.0f} M events. {note} "
                 f"{ONE_MACHINE}"))
    return found


# --- From decoded columns --------------------------------------------------------------------------------------------

def batches(bench):
    """(folder of four partitions, number of events)"""
    each = bench.size(4_000_000, 1_500_000)

    def make(folder):
        os.makedirs(folder)
        for i in range(PARTITIONS):
            bench.run_job("cluster_record.leat", count=each, seed=i + 1, out=os.path.join(folder, f"{i}.batches"))

    return bench.made(f"cluster-{each}", make), PARTITIONS * each


def row_batches(bench):
    data, events = batches(bench)
    state = bench.path("cluster-state")

    def measure(run):
        remove(state)
        measured = run()
        remove(state)
        return measured

    alone, together = in_turns(
        bench, lambda lanes: measure(lambda: bench.run_job("cluster_feature.leat", workers=lanes, data=data, state=state)),
        lambda count: measure(lambda: cluster_workers.run(bench, count, "cluster_feature.leat", data=data, state=state)))
    digests = {run.digest("out") for runs in (*alone.values(), *together.values()) for run in runs}
    if len(digests) != 1:
        raise Broken(f"output differs: {digests}")
    return figures("feature from .batches", events, alone, together, {1: 0.97, 2: 0.8, 4: 0.8},
                   "Each row goes to the worker that has its key, and from there to the sink's.")


# --- Topic to topic --------------------------------------------------------------------------------------------------

def events_topic(bench):
    """(topic of four partitions, number of events), made once in a run."""
    count = bench.size(3_000_000, 1_000_000)
    if not hasattr(bench, "cluster_topic"):
        bench.cluster_topic = broker.topic("cluster", partitions=PARTITIONS)
        broker.load(bench, bench.cluster_topic, "events", count, rows_kafka.KEYS, 0, 0)
    return bench.cluster_topic, count


def passed(bench, run_job):
    """run_job(settings): a run. That run; its output, which is read and deleted."""
    name, count = events_topic(bench)
    out, state = broker.topic("cluster-out", partitions=PARTITIONS), bench.path("cluster-state")
    remove(state)
    run = run_job(until="latest", out=out, state=state, **rows_kafka.settings(name))
    run.output = broker.read(bench, out, count)["digest"]
    broker.delete(out)
    remove(state)
    return run


def passed_by_workers(bench, count):
    return passed(bench, lambda **settings: cluster_workers.run(bench, count, "kafka_feature.leat", **settings))


def same_output(runs):
    if len({run.output for run in runs}) != 1:
        raise Broken(f"output differs: {[run.output for run in runs]}")


def row_kafka(bench):
    _, events = events_topic(bench)
    alone, together = in_turns(
        bench, lambda lanes: passed(bench, lambda **settings: bench.run_job("kafka_feature.leat", workers=lanes, **settings)),
        lambda count: passed_by_workers(bench, count))
    same_output([run for runs in (*alone.values(), *together.values()) for run in runs])
    return figures("topic -> feature -> topic exactly once", events, alone, together, {1: 0.97, 2: 0.9, 4: 0.9},
                   "A checkpoint every 1 s; the broker's CPU time is not counted.")


ROWS = {
    "cluster-batches": ("feature from .batches on 1, 2 and 4 workers, beside one process", row_batches),
    "cluster-kafka": ("topic -> feature -> topic, exactly once, on 1, 2 and 4 workers, beside one process", row_kafka),
}
