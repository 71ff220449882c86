"""Rows of the table: Flink's JobManager and two TaskManagers beside leat's two workers. The same topics, the same output byte for byte,
exactly once, a checkpoint every second. What a record costs, and for how long a death holds back the output."""

import os
import time

import cluster_workers
import flink_cluster
import java_peers
import kafka_broker as broker
import rows_cluster
import rows_kafka
from harness import Broken, Figure, Peer, median, rate, remove

WORKERS, PARTITIONS = 2, rows_cluster.PARTITIONS
WARM_UPS = 2  # jobs that a cluster of Flink has run before the one that counts as warm
PACE, PACED_SECONDS, FLOW_SECONDS = 10_000, 20, 2
# Flink's defaults find a death after 10 s and more; these do not depend on luck with connections that break.
SOON = {"heartbeat.interval": "500", "heartbeat.rpc-failure-threshold": "1"}


def load():
    return f"Load of the machine {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."


# --- What a record costs ---------------------------------------------------------------------------------------------

def passed_by_flink(bench, flink):
    name, count = rows_cluster.events_topic(bench)
    out = broker.topic("cluster-out", partitions=PARTITIONS)
    run = flink.passed(name, out)
    run.output = broker.read(bench, out, count)["digest"]
    broker.delete(out)
    return run


def turn(bench):
    """(run of leat, of Flink in fresh JVMs with their start, of Flink in the same JVMs later)"""
    flink = flink_cluster.Flink(bench, WORKERS, WORKERS)
    try:
        fresh = passed_by_flink(bench, flink)
        fresh.cpu = flink.cpu()
        for _ in range(WARM_UPS - 1):
            passed_by_flink(bench, flink)
        ours = rows_cluster.passed_by_workers(bench, WORKERS)
        return ours, fresh, passed_by_flink(bench, flink)
    finally:
        flink.close()


def row_flink(bench):
    java_peers.command(bench, "flink", "Flink")
    _, events = rows_cluster.events_topic(bench)
    ours, fresh, warm = zip(*bench.repeat(lambda: turn(bench)))
    rows_cluster.same_output([*ours, *fresh, *warm])
    ratios = [[b.cpu / a.cpu for a, b in zip(ours, theirs)] for theirs in (warm, fresh)]
    cpu = [median([run.cpu for run in runs]) for runs in (ours, warm, fresh)]
    memory = [median([run.rss_mb for run in runs]) for runs in (ours, warm)]
    return [Figure(
        "topic -> feature -> topic exactly once, 2 workers, beside Flink", "M/s/core", rate(events, ours), 5 * rate(events, warm),
        runs=list(ours), checked="digest of all committed records, the same in each run of leat and of Flink",
        peers=[Peer("Flink, warm", rate(events, warm), "same run"), Peer("Flink, fresh", rate(events, fresh), "same run")],
        note=f"Ratio, median of pairs: {median(ratios[0]):.1f} of Flink warm (target 5), from {min(ratios[0]):.1f} to "
             f"{max(ratios[0]):.1f}; {median(ratios[1]):.1f} of Flink fresh, from {min(ratios[1]):.1f} to {max(ratios[1]):.1f}. CPU "
             f"{cpu[0]:.2f} s of leat's processes from start to end; {cpu[1]:.1f} s of Flink's JVMs for job {WARM_UPS + 1} in them, from "
             f"submission to end; {cpu[2]:.1f} s for their start and the first job. {events / 1e6:.0f} M events; peak RSS {memory[0]:.0f} "
             f"and {memory[1]:.0f} MB. {load()} {rows_cluster.ONE_MACHINE}")]


# --- How long a death holds back the output --------------------------------------------------------------------------

class Leat:
    """Workers of leat, as flink_cluster.Flink is."""

    def __init__(self, bench, count, name, out):
        self.state = bench.path("cluster-state")
        remove(self.state)
        self.workers = cluster_workers.Workers(bench, "kafka_feature.leat", WORKERS, out=out, state=self.state,
                                               **rows_kafka.settings(name))
        for _ in range(count):
            self.replace()

    def victim(self):
        return self.workers.follower()

    def kill(self, one):
        self.workers.kill(one)

    def replace(self):
        self.workers.start()

    def wait(self):
        self.workers.wait()

    def close(self):
        self.workers.close()
        remove(self.state)


class Flink:
    def __init__(self, bench, count, name, out):
        self.flink = flink_cluster.Flink(bench, WORKERS, count, SOON)
        try:
            self.flink.submit(name, out, "never")
        except BaseException:
            self.close()
            raise

    def victim(self):
        return self.flink.busy()

    def kill(self, one):
        self.flink.kill(one)

    def replace(self):
        self.flink.start(flink_cluster.TASKMANAGER)

    def wait(self):
        self.flink.wait()

    def close(self):
        self.flink.close()


def death(bench, system, loads, out, has_spare):
    """Seconds from kill -9 to the first committed record that was sent after it."""
    broker.read(bench, out, loads.count)  # all that came before
    loading = loads.begin(PACE * PACED_SECONDS, loads.keys, PACE)
    reader = broker.start(bench, "kafka_read", out, "first", "-")
    try:
        reader.stdout.readline()  # the first record has come
        time.sleep(FLOW_SECONDS)
        victim, is_paced, killed = system.victim(), loading.poll() is None, rows_kafka.now_us()
        system.kill(victim)
        if not has_spare:
            system.replace()
        if not is_paced:
            raise Broken(f"the machine is too busy: {PACED_SECONDS} s of records had ended before the kill")
        found = broker.end(reader, given=f"{killed}\n")
        loads.add(broker.end(loading))
    finally:
        for process in (reader, loading):
            if process.poll() is None:
                process.kill()
                process.wait()
    if has_spare:
        system.replace()
    system.wait()
    return (found["first_us"] - killed) / 1e6


def digest_alone(bench, name, count):
    """What a run of leat that is alone makes of the same topic."""
    out, state = broker.topic("alone-out", partitions=PARTITIONS), bench.path("alone-state")
    remove(state)
    bench.run_job("kafka_feature.leat", workers=WORKERS, until="latest", out=out, state=state, **rows_kafka.settings(name))
    found = broker.read(bench, out, count)["digest"]
    broker.delete(out)
    remove(state)
    return found


def deaths(bench, system, has_spare):
    """Of one system: the seconds of each death."""
    name, out = (broker.topic(word, partitions=PARTITIONS) for word in ("deaths", "deaths-out"))
    loads = rows_kafka.Loads(bench, name)
    loads.keys = bench.size(1_000_000, 200_000)
    loads.load(loads.keys, 0)  # each user once
    running = system(bench, WORKERS + has_spare, name, out)
    try:
        running.wait()
        seconds = [death(bench, running, loads, out, has_spare) for _ in range(bench.repeats)]
        if broker.read(bench, out, loads.count)["digest"] != digest_alone(bench, name, loads.count):
            raise Broken("deaths: the output is not that of a run that is alone")
    finally:
        running.close()
    broker.delete(name, out)
    return seconds, loads.keys


def row_deaths(bench):
    java_peers.command(bench, "flink", "Flink")  # where it cannot be, the row is skipped at once
    figures = []
    for has_spare, what in ((False, "is started again at once"), (True, "has a spare")):
        (ours, keys), (theirs, _) = (deaths(bench, system, has_spare) for system in (Leat, Flink))
        each = ["; ".join(f"{one:.2f}" for one in seconds) for seconds in (ours, theirs)]
        figures.append(Figure(
            f"kill -9 of a worker that {what}: to the first new record", "s", median(ours), median(theirs), is_upper=True,
            peers=[Peer("Flink", median(theirs), "same run")],
            checked="digest of all committed records of leat and of Flink, that of a run of leat that is alone",
            note=f"From the kill to the first committed record that was sent after it, {PACE // 1000} k records/s, {keys / 1000:.0f} k "
                 f"users, a checkpoint every 1 s. Of each: leat {each[0]} s, Flink {each[1]} s. {load()}"))
    return figures


ROWS = {
    "cluster-flink": ("topic -> feature -> topic, exactly once: 2 workers beside Flink's JobManager and 2 TaskManagers", row_flink),
    "cluster-flink-deaths": ("kill -9 of one of 2 workers, and of one of 2 TaskManagers: time to the first new record", row_deaths),
}
