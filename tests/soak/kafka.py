#!/usr/bin/env python3
"""Kafka's faults for long, each judged by the oracle of tests/kafka/oracle.py: the topic has every row once, in order per
key, and rows, model and counts are those of a run that nobody disturbed.

    LEAT=build/release/leat tests/soak/kafka.py [--quick] [--seed N] [--part NAME | --kills N]     (./dev soak kafka ...)

kills     200 lives ended by `kill -9`, at every failpoint of checkpoint, outbox, transaction and progress record, as they
          take the directory over from a life that goes on, and at random moments; brokers are stopped, killed and paused
          between and during the lives, connections are slow, lossy and cut
brokers   three brokers in turn stopped and killed while a job runs, then all of them for longer than a transaction lasts
network   latency of 200 ms, loss, and each second or so a connection cut in the middle of some request
stall     the sink's brokers answer nothing for ten minutes: the source waits, neither memory nor disk grows, then it catches
          up

Some 30 minutes on two cores; with --quick, which does a tenth of it, 5. The seed and the part make a failure
repeatable; the folder of the job that failed is named and stays. Prints its progress, and one TAP line at the end.
"""

import argparse
import os
import random
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kafka"))
import oracle  # noqa: E402
import rig  # noqa: E402
from proxy import Cut  # noqa: E402

APIS = ("EndTxn", "Produce", "AddPartitionsToTxn", "Fetch", "Metadata", "InitProducerId", "FindCoordinator")
BEGIN = time.monotonic()
MIB = 1 << 20
KILLS = 200


def say(text):
    print(f"{time.monotonic() - BEGIN:7.1f} s  {text}", flush=True)


class Trouble:
    """Faults of brokers and connections, one at a time, by a seed."""

    def __init__(self, kafka, proxied, rng):
        self.kafka, self.proxied, self.rng = kafka, proxied, rng
        self.away, self.paused, self.counts = None, None, {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def end(self):
        """All is well again."""
        if self.paused:
            self.kafka.resume(self.paused)
        if self.away:
            self.kafka.start(self.away)
        self.paused = self.away = None
        self.proxied.delay(0)
        self.proxied.lose(0, 0)

    def cut(self):
        self.proxied.cut_at(self.rng.choice(APIS), self.rng.choice(Cut.PLACES), skip=self.rng.randrange(4))
        self.count("cuts asked for")

    def step(self):
        """Perhaps another fault, in the place of the one before."""
        if self.rng.random() < 0.3:
            self.cut()
        if self.rng.random() > 0.3:
            return
        was_away = self.away or self.paused
        self.end()
        if was_away:
            return
        number = self.rng.randrange(1, 4)
        what = self.rng.choice(("stopped", "killed", "paused", "slow", "lossy"))
        self.count(what)
        if what == "stopped":
            self.kafka.stop(number)
            self.away = number
        elif what == "killed":
            self.kafka.kill(number)
            self.away = number
        elif what == "paused":
            self.kafka.pause(number)
            self.paused = number
        elif what == "slow":
            self.proxied.delay(0.05)
        else:
            self.proxied.lose(0.02, 0.3)


def part_kills(scale, rng):
    kills, said = round(KILLS * scale), [0]

    def report(done, jobs):
        if done // 10 > said[0]:
            said[0] = done // 10
            say(f"kills: {done} of {kills}, job {jobs}; {trouble.counts}")

    with rig.own(brokers=3) as kafka, kafka.proxied() as proxied:
        case = oracle.Case(kafka, rows=30000)
        case.undisturbed()
        trouble = Trouble(kafka, proxied, rng)

        def new_job():
            trouble.end()  # the rig's own client makes its topics
            return case.job(rate=8000, partitions=rng.choice((3, 8)), sink_brokers=proxied.brokers, source_brokers=proxied.brokers)

        done, jobs, points = oracle.lives_until(kills, rng, new_job, trouble.step, report, trouble.end)
        missing = sorted({*oracle.points(), oracle.TAKING} - points)
        assert scale < 1 or not missing, f"no life was killed at {missing}"
        faults = sum(number for what, number in trouble.counts.items() if what != "cuts asked for")
        return f"{done} kills at {len(points)} failpoints in {jobs} jobs of {case.rows} rows, {faults} faults of brokers and " \
               f"connections, {proxied.cuts} cut"


def part_brokers(scale, rng):
    rounds = max(1, round(4 * scale))
    with rig.own(brokers=3) as kafka:
        case = oracle.Case(kafka, rows=150000 if scale == 1 else 50000)
        case.undisturbed()
        job = case.job(rate=300 if scale == 1 else 1200, every="500ms")
        process = job.start()
        job.wait_rows(process, 1)
        for n in range(rounds):
            for number in rng.sample((1, 2, 3), 3):
                say(f"brokers: round {n + 1} of {rounds}, broker {number}; {len(job.out())} rows out")
                (kafka.stop if rng.random() < 0.5 else kafka.kill)(number)
                job.wait_rows(process, len(job.out()) + 1)
                kafka.start(number)
            kafka.kill()
            time.sleep(12)
            kafka.start()
        job.finish(process=process, seconds=900)
        job.check()
        job.close()
        return f"{rounds} rounds of all brokers, one by one and together"


def part_network(scale, rng):
    with rig.own() as kafka, kafka.proxied() as proxied:
        case = oracle.Case(kafka, rows=100000 if scale == 1 else 20000)
        case.undisturbed()
        job = case.job(rate=500 if scale == 1 else 800, every="500ms", sink_brokers=proxied.brokers,
                       source_brokers=proxied.brokers)
        proxied.delay(0.2)
        process = job.start()
        job.wait_rows(process, 1)
        proxied.lose(0.02, 0.5, seed=rng.randrange(1 << 30))
        asked, asked_at = 0, 0
        while process.poll() is None:
            # Cuts that wait would add up, until no connection could ever be made; but some are of rare requests.
            if proxied.cuts >= asked or time.monotonic() - asked_at > 4:
                proxied.cut_at(rng.choice(APIS), rng.choice(Cut.PLACES))
                asked, asked_at = proxied.cuts + 1, time.monotonic()
            time.sleep(1)
            if rng.random() < 0.05:
                say(f"network: {proxied.cuts} connections cut, {len(job.out())} rows out")
        job.finish(process=process, seconds=900)
        job.check()
        job.close()
        return f"{proxied.cuts} connections cut at 200 ms latency and 2 % loss"


def disk_bytes(folder):
    return int(subprocess.run(["du", "-sb", folder], check=True, capture_output=True, text=True).stdout.split()[0])


def part_stall(scale, rng):
    seconds = 600 * scale if scale == 1 else 20
    with rig.own() as kafka, kafka.proxied() as proxied:
        case = oracle.Case(kafka, rows=100000, note_bytes=400)
        case.undisturbed()
        job = case.job(sink_brokers=proxied.brokers, source_options=", queue: 2MiB", every="1s")
        process = job.start()
        job.wait_rows(process, 1000)
        proxied.pause()
        time.sleep(5)
        memory, disk, read = oracle.memory_bytes(process), disk_bytes(job.state), oracle.records_read(job)
        until, grown, disk_grown = time.monotonic() + seconds, 0, 0
        while time.monotonic() < until:
            time.sleep(min(10, seconds / 2))
            grown = max(grown, oracle.memory_bytes(process) - memory)
            disk_grown = max(disk_grown, disk_bytes(job.state) - disk)
            say(f"stall: {until - time.monotonic():.0f} s left, memory +{grown / MIB:.1f} MiB, disk +{disk_grown / MIB:.1f} MiB")
        assert oracle.records_read(job) == read < case.rows, (read, oracle.records_read(job))
        assert grown < 16 * MIB and disk_grown < 16 * MIB, (grown, disk_grown)
        proxied.resume()
        begin = time.monotonic()
        job.finish(process=process, seconds=900)
        job.check()
        job.close()
        return f"a sink stalled for {seconds:.0f} s: memory +{grown / MIB:.1f} MiB, caught up in {time.monotonic() - begin:.1f} s"


PARTS = {"kills": part_kills, "brokers": part_brokers, "network": part_network, "stall": part_stall}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="runs a tenth of the soak")
    parser.add_argument("--seed", type=int, default=1)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--part", choices=sorted(PARTS), help="runs only this part")
    only.add_argument("--kills", type=int, help=f"runs only the part `kills`, with so many; of {KILLS} and more, each failpoint has one")
    arguments = parser.parse_args()
    if arguments.kills is not None and arguments.kills < 1:
        parser.error("--kills: at least 1")
    scale, figures = 0.1 if arguments.quick else 1, []
    if arguments.kills is not None:
        arguments.part, scale = "kills", arguments.kills / KILLS
    for name, part in PARTS.items():
        if arguments.part not in (None, name):
            continue
        say(f"{name}, seed {arguments.seed}")
        try:
            figures.append(part(scale, random.Random(arguments.seed)))
        except rig.install.Missing as error:
            print(f"ok - soak kafka # SKIP no broker: {error}")
            return 0
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            print(f"not ok - soak kafka: {name} (--seed {arguments.seed}{' --quick' if arguments.quick else ''}{f' --kills {arguments.kills}' if arguments.kills else ''})")
            return 1
        say(figures[-1])
    print(f"ok - soak kafka: {'; '.join(figures)}; {time.monotonic() - BEGIN:,.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
