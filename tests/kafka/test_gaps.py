#!/usr/bin/env python3
"""Offsets that no record has: compacted away, deleted by retention, aborted, markers of transactions. A position is the
offset of the next record, whatever lies between: each record that is there and was not read is read once, and nothing
else is missed or asked for.

    tests/kafka/test_gaps.py PATH_OF_LEAT
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402
import test_live as live_jobs  # noqa: E402
import test_source as ended_jobs  # noqa: E402

LEAT = sys.argv[1]
KEYS = 7


class Live(live_jobs.Live):
    """A live job, in lives of its own, with its rows in the order in which they came."""

    def __init__(self, kafka, topic, more=""):
        super().__init__(kafka, topic, more)
        self.state = self.at("state")

    def move(self, out=True):
        """From now on another checkpoint directory; out: and another output."""
        moved = "-2" if out else ""
        self.edit((self.state, self.state + "-2"), (self.out, self.out + moved))
        self.state, self.out = self.state + "-2", self.out + moved

    def edit(self, *replaced):
        """The job's text; pairs of the old part and the new one."""
        with open(self.job, encoding="utf-8") as file:
            text = file.read()
        for old, new in replaced:
            assert old in text, (old, text)
            text = text.replace(old, new)
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(text)

    def rows_of(self, partition):
        return [row["n"] for row in self.rows() if row["p"] == partition]

    def killed_at(self, checkpoint, seconds=rig.PATIENCE_S):
        """Until so many checkpoints are published."""
        result = subprocess.run([LEAT, "run", self.job, "--json"], capture_output=True, text=True, timeout=seconds, check=False,
                                env={**os.environ, "LEAT_FAILPOINTS": f"ckpt.published=kill@{checkpoint}"})
        assert result.returncode in (0, -signal.SIGKILL), (result.returncode, result.stderr[-1500:])

    def replay(self, recording, *arguments):
        """Of this job, to again.jsonl."""
        result = subprocess.run([LEAT, "run", self.job, "--replay", f"s={recording}", "--sink", f"out={self.at('again.jsonl')}",
                                 "--fresh", "--quiet", *arguments], capture_output=True, text=True, timeout=rig.PATIENCE_S, check=False)
        assert result.returncode == 0, result.stderr[-1500:] + result.stdout[-1500:]
        if not os.path.exists(self.at("again.jsonl")):  # where a log ends, a replay can go on
            os.rename(self.at("again.jsonl.part"), self.at("again.jsonl"))

    def bytes(self):
        for name in ("rows.jsonl", "rows.jsonl.part"):
            if os.path.exists(os.path.join(self.out, name)):
                with open(os.path.join(self.out, name), "rb") as file:
                    return file.read()
        return b""

    def positions(self):
        """{partition: offset of the next record}, by the newest checkpoint."""
        shown = subprocess.run([LEAT, "checkpoint", "show", self.state], capture_output=True, text=True, check=False).stdout
        return {int(partition): int(offset) for offset, partition in re.findall(r"next offset (\d+) .*/(\d+)$", shown, re.M)}

    def wait_last(self, numbers):
        """Until these are there."""
        rig.wait_for(lambda: self.process.poll() is not None or set(numbers) <= {row["n"] for row in self.rows()}, "the last rows")
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]

    def read_to(self, ends):
        """Waits until a checkpoint stands at these offsets."""
        rig.wait_for(lambda: self.process.poll() is not None or self.positions() == ends, f"a checkpoint at {ends}")
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]



def keyed(count, partition, first=0, keys=KEYS, begin_ms=1_700_000_000_000):
    """Records of few keys, of which compaction leaves the last ones."""
    return rig.numbered(count, first=first, keys=keys, partition=partition, begin_ms=begin_ms)


def survivors(kafka, topic):
    """{partition: [(offset, n), ...]} of what is there now."""
    found = {}
    for record in kafka.consume(topic):
        found.setdefault(record.partition, []).append((record.offset, json.loads(record.value)["n"]))
    return found


def check_rows(rows, before, after, is_bounded=False):
    """Of one partition: those read before it was compacted, and then each that is left, once. before: all records, in
    order; after: (offset, n) of what is left. is_bounded: through then, it may have ended before it was killed."""
    read = 0
    while read < len(rows) and read < len(before) and rows[read] == before[read][1]:
        read += 1
    if is_bounded and read == len(before) == len(rows):
        return read
    next_offset = before[read][0] if read < len(before) else before[-1][0] + 1
    wanted = [n for offset, n in after if offset >= next_offset]
    assert rows[read:] == wanted, f"{read} read, then {rows[read:][:12]} instead of {wanted[:12]}"
    return read


# --- compaction -------------------------------------------------------------------------------------------------
def test_compacted_while_the_job_was_down():
    """Killed at many places, live and bounded; then all but the last record of each key goes."""
    kafka, count = rig.shared(), 3000
    topic = kafka.compactable_topic("gaps-compacted", partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, keyed(count, partition), batch_num_messages=50)
    before = survivors(kafka, topic)
    with contextlib.ExitStack() as stack:
        jobs = []
        for more, moments in ((", max_rate: 2500", (1, 2, 4, 7, 9, 13)), (", max_rate: 5000, until: latest", (1, 2, 3, 4))):
            for at in moments:
                jobs.append((stack.enter_context(Live(kafka, topic, more)), f"{more}, killed at {at}"))
                jobs[-1][0].killed_at(at)
        after = kafka.compact(topic, KEYS)
        after = {partition: [(r.offset, json.loads(r.value)["n"]) for r in of] for partition, of in after.items()}
        cut_short = 0
        for job, what in jobs:
            job.start()
            if "until" in what:
                assert job.process.wait(60) == 0, job.process.communicate()[1][-1000:]
            else:
                job.wait_last([of[-1][1] for of in after.values()])
                job.stop()
            for partition in (0, 1):
                try:
                    read = check_rows(job.rows_of(partition), before[partition], after[partition], "until" in what)
                except AssertionError as error:
                    raise AssertionError(f"{what}, partition {partition}: {error}") from error
                cut_short += 0 < read < count
        assert cut_short >= 10, cut_short


# --- retention --------------------------------------------------------------------------------------------------
def test_an_idle_topic_that_retention_has_emptied():
    """78 records and two markers, all read; then nothing of them is there any more, and nothing is missed."""
    kafka = rig.shared()
    topic = kafka.create_topic("gaps-emptied")
    for first in (0, 39):
        kafka.commit(topic, rig.numbered(39, first=first), f"gaps-emptied-{topic}")
    rig.wait_for(lambda: kafka.offsets(topic) == {0: (0, 80)}, "the second marker")  # comes behind the answer to the commit
    with Live(kafka, topic) as job:
        job.start()
        job.wait_rows(78)
        job.read_to({0: 80})
        job.kill()
        kafka.delete_records(topic, {0: 80})
        assert kafka.offsets(topic) == {0: (80, 80)}
        job.start()
        kafka.produce(topic, rig.numbered(10, first=78))
        job.wait_rows(88)
        job.stop()
        job.check(88)


def test_what_is_gone_is_named():
    """Those that were not read, and none else; the way out is there."""
    kafka = rig.shared()
    topic = kafka.create_topic("gaps-gone", partitions=2)
    kafka.commit(topic, rig.numbered(50, partition=0), f"gaps-gone-{topic}")
    kafka.produce(topic, rig.numbered(50, first=50, partition=1))
    with Live(kafka, topic) as job:
        job.start()
        job.wait_rows(100)
        job.read_to({0: 51, 1: 50})
        job.kill()
        kafka.produce(topic, rig.numbered(30, first=100, partition=0))
        kafka.delete_records(topic, {0: 61, 1: 50})
        job.start()
        job.failed("E0612", f"the records of `{topic}/0` from offset 51 to 60, which this job has not read, are gone", "now 61",
                   "some of these 10 offsets may", "--drop-state s")
        before = job.state
        job.move(out=False)
        job.start("--from", before, "--drop-state", "s")
        job.wait_rows(120)
        job.stop()
        assert [row["n"] for row in job.rows()] == [*range(100), *range(110, 130)]


# --- transactions -----------------------------------------------------------------------------------------------
class Transactions:
    """A topic of two partitions into which transactions go, of which some are aborted; with markers at every place, and at
    last such as no record follows."""

    def __init__(self, kafka, name, seed):
        self.kafka, self.rng, self.n = kafka, random.Random(seed), 0
        self.topic = kafka.create_topic(name, partitions=2)
        self.producer = kafka.producer(f"gaps-{self.topic}")
        self.committed = {0: [], 1: []}

    def send(self, count):
        """So many transactions."""
        for _ in range(count):
            self.producer.begin_transaction()
            is_good, records = self.rng.random() < 0.6, []
            for _ in range(self.rng.choice((1, 1, 2, 7, 40))):
                records.append(*rig.numbered(1, first=self.n, partition=self.rng.randrange(2)))
                self.n += 1
            self.kafka.produce(self.topic, records, self.producer)
            (self.producer.commit_transaction if is_good else self.producer.abort_transaction)(rig.PATIENCE_S)
            for record in records if is_good else []:
                self.committed[record["partition"]].append(json.loads(record["value"])["n"])

    def end(self):
        """Markers behind the last records of both partitions."""
        for partition in (0, 1):
            self.producer.begin_transaction()
            self.kafka.produce(self.topic, rig.numbered(1, first=10**6, partition=partition), self.producer)
            self.producer.abort_transaction(rig.PATIENCE_S)
        self.kafka.wait_stable(self.topic)

    def count(self):
        return sum(map(len, self.committed.values()))

    def ends(self):
        return {partition: end for partition, (_, end) in self.kafka.offsets(self.topic).items()}

    def check(self, rows):
        for partition, wanted in self.committed.items():
            found = [row["n"] for row in rows if row["p"] == partition]
            assert found == wanted, (partition, len(found), len(wanted), [n for n in wanted if n not in set(found)][:5])


def test_transactions_and_lives():
    """Killed at random checkpoints, while transactions go on; live, and up to where the logs end."""
    kafka = rig.shared()
    for seed, more in enumerate(("", ", until: latest")):
        sent = Transactions(kafka, "gaps-lives", seed)
        with Live(kafka, sent.topic, ", max_rate: 3000" + more) as job:
            for life in range(6):
                if life == 0 or not more:
                    sent.send(200 if more else 40)
                    sent.end()
                with contextlib.suppress(subprocess.TimeoutExpired):  # no further checkpoint has anything to say
                    job.killed_at(1 + sent.rng.randrange(3), seconds=5)
            job.start()
            if more:
                assert job.process.wait(60) == 0, job.process.communicate()[1][-1000:]
            else:
                job.wait_rows(sent.count())
                job.read_to(sent.ends())
                job.stop()
            sent.check(job.rows())
            assert job.positions() == sent.ends(), (job.positions(), sent.ends())


def test_recorded_and_replayed():
    """A recording reaches to the end of the log, markers included; so does a replay, by an order log too. What is recorded
    stays so when retention has emptied the topic, and compaction takes nothing from it."""
    kafka = rig.shared()
    sent = Transactions(kafka, "gaps-record", 7)
    sent.send(60)
    sent.end()
    with Live(kafka, sent.topic, ", until: latest") as ended, Live(kafka, sent.topic) as job:
        order = ["--record-order", job.at("order/")]
        job.start(*order)
        for _ in range(2):
            record(kafka, sent.topic, job.at("rec"))
            manifest = json.load(open(job.at("rec/manifest.json"), encoding="utf-8"))
            assert {p["partition"]: p["next"] for p in manifest["partitions"]} == sent.ends(), manifest
            kafka.delete_records(sent.topic, sent.ends() if _ else {})
            record(kafka, sent.topic, job.at("rec"))  # nothing is missing
            if not _:
                sent.send(60)
                sent.end()
        job.wait_rows(sent.count())
        job.read_to(sent.ends())
        job.stop()
        sent.check(job.rows())
        expected = job.bytes()
        for order in (["--order", job.at("order/")], []):
            ended.replay(job.at("rec"), *order)
            rows = [json.loads(line) for line in open(ended.at("again.jsonl"), encoding="utf-8")]
            sent.check(rows)
            assert not order or open(ended.at("again.jsonl"), "rb").read() == expected
            os.remove(ended.at("again.jsonl"))


def record(kafka, topic, to):
    result = subprocess.run([LEAT, "record", topic, "--to", to, "--until", "latest", "--brokers", kafka.brokers, "--quiet"],
                            capture_output=True, text=True, timeout=rig.PATIENCE_S, check=False)
    assert result.returncode == 0, result.stderr[-1500:] + result.stdout[-1500:]


def test_behind_an_open_transaction():
    """What nobody may read yet is no lag, and is not nothing either."""
    kafka = rig.shared()
    topic = kafka.create_topic("gaps-open")
    kafka.produce(topic, rig.numbered(100))
    producer = kafka.producer(f"gaps-open-{topic}")
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(30, first=100), producer)
    with Live(kafka, topic) as job:
        job.process = subprocess.Popen([LEAT, "run", job.job, "--progress=1s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        begin, said = time.monotonic(), ""
        while "open transaction" not in said and time.monotonic() - begin < rig.PATIENCE_S:
            said = job.process.stderr.readline()
        assert re.search(rf"behind 0 records, 0 s, and 30 more wait behind an open transaction of another producer "
                         rf"\({topic}/0, for [2-9]", said), said
        job.kill()
        job.start()
        job.wait_rows(100)
        time.sleep(rig.stretched(1.2))  # statistics come each second
        run = live_jobs.figures(job.stop())
        assert (run["lag_records"], run["open_transaction_records"]) == (0, 30), run
        assert run["open_transaction_partition"] == f"{topic}/0" and run["open_transaction_seconds"] > 0, run
    with Live(kafka, topic, ", until: latest") as job:
        job.start()
        out, err = job.process.communicate(timeout=rig.PATIENCE_S)
        assert f"`{topic}/0` ends at offset 100 for this job" in err and "up to 30 records behind this offset wait" in err, err
        assert live_jobs.figures(json.loads(out))["open_transaction_records"] == 30
        job.check(100)
    producer.commit_transaction(rig.PATIENCE_S)
    with Live(kafka, topic) as job:
        job.start()
        job.wait_rows(130)
        time.sleep(rig.stretched(1.2))  # statistics come each second
        run = live_jobs.figures(job.stop())
        assert (run["lag_records"], run["open_transaction_records"], run["open_transaction_partition"]) == (0, 0, ""), run


def test_progress():
    """Where there are fewer records than offsets, a job that ends is through all the same, and never beyond that."""
    kafka = rig.shared()
    topic = kafka.compactable_topic("gaps-progress")
    kafka.produce(topic, keyed(20000, 0, keys=5000))
    kafka.compact(topic, 5000)
    with Live(kafka, topic, ", until: latest, max_rate: 1000") as job:
        job.process = subprocess.Popen([LEAT, "run", job.job, "--progress=1s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        _, err = job.process.communicate(timeout=rig.PATIENCE_S)
        shares = [int(share) for share in re.findall(r" (\d+) %(?:  [\d.]+ \w+ left)?  out", err)]
        assert job.process.returncode == 0 and len(job.rows()) == 5001, (len(job.rows()), err[-500:])
        behind = [int(count) for count in re.findall(r"behind at most (\d+) records", err)]
        assert shares == sorted(shares) and shares and shares[-1] >= 60, (shares, err[-1000:])
        assert behind == sorted(behind, reverse=True), behind


# --- batches ------------------------------------------------------------------------------------------------------
def uneven(count, partition, rng):
    """Records whose events are out of order; some runs of them are long, so that batches end by bytes as well."""
    for n, record in enumerate(rig.numbered(count, partition=partition)):
        is_long = n % 1700 > 1500
        value = {**json.loads(record["value"]), "ts": 1_700_000_000_000 + n - rng.randrange(400), "pad": "x" * 12000 * is_long}
        yield {**record, "value": json.dumps(value).encode()}


def test_batches_end_where_they_would_have():
    """A bounded topic, and a recording of one, killed within batches: windows have the rows that they had, and the late ones
    are the same."""
    kafka = rig.shared()
    topic = kafka.create_topic("gaps-batches", partitions=3)
    rng = random.Random(5)
    for partition in range(3):
        kafka.produce(topic, uneven(5000 - 900 * partition, partition, rng))
    steps = ("| window by key over tumbling(100ms) { rows: count(), most: max(n) }", ", event_time: ts, max_delay: 50ms")
    with contextlib.ExitStack() as stack:
        def new_job(more=""):
            job = stack.enter_context(ended_jobs.job(ended_jobs.of(kafka, topic, more)))
            job.write(ended_jobs.of(kafka, topic, more) + steps[1], steps=steps[0],
                      settings=f', checkpoint: {{ every: 10ms, dir: "{job.at("state")}" }}')
            return job

        recording = os.path.join(new_job().folder, "rec")
        record(kafka, topic, recording)
        for arguments in ((), ("--replay", f"s={recording}", "--sink")):
            def run(job, failpoints=""):
                out = (f"out={job.at('out.jsonl')}", "--sink", f"dead={job.at('dead.jsonl')}") if arguments else ()
                return job.run(*arguments, *out, env={"LEAT_FAILPOINTS": failpoints})

            outcomes, kills = [], 0
            for is_killed in (False, True):
                job = new_job(", max_rate: 20000")
                for at in ((1,) * 8 if arguments else (1, 3, 1, 2, 5, 1, 2, 1)) if is_killed else ():
                    kills += run(job, f"ckpt.published=kill@{at}").returncode == -signal.SIGKILL
                result = run(job)
                assert result.returncode == 0, result.stderr[-1500:] + result.stdout[-1500:]
                outcomes.append((open(job.at("out.jsonl"), "rb").read(), ended_jobs.counts(json.loads(result.stdout), "rows")))
            assert outcomes[0][1]["late"] > 100 and kills >= 1, (outcomes[0][1], kills)
            assert outcomes[1] == outcomes[0], (arguments, kills, outcomes[0][1], outcomes[1][1])


# --- executing again --------------------------------------------------------------------------------------------
def test_what_is_compacted_away_is_not_executed_again():
    """By the log of a live run, and after a fall back: that is said at once, and a recording from before still does."""
    kafka = rig.shared()
    topic = kafka.compactable_topic("gaps-again")
    with Live(kafka, topic, ", max_rate: 500") as job:
        job.edit(("every: 100ms,", "every: 100ms, keep: { last: 1000 },"))  # the first stays on the slowest machine, too
        job.start("--record-order", job.at("order/"))
        for first in (0, 300):  # a checkpoint lies between them
            kafka.produce(topic, keyed(300, 0, first=first), batch_num_messages=50)
            job.read_to({0: first + 300})
        job.wait_rows(600)
        job.kill()
        record(kafka, topic, job.at("rec"))
        kafka.compact(topic, KEYS)
        _, *damaged = job.checkpoints()  # by the oldest, not all is read
        for path in damaged:
            oracle.damage(path)
        job.start()
        begin = time.monotonic()
        job.failed("E0612", "have been compacted away", "`backfill`", "--from")
        assert time.monotonic() - begin < rig.stretched(10)
        job.move()
        job.start("--order", job.at("order/"))
        job.failed("E0612", "micro-batch ", "are there now", "the recording that the order log was written for")
        job.replay(job.at("rec"), "--order", job.at("order/"))
        assert [json.loads(line)["n"] for line in open(job.at("again.jsonl"), encoding="utf-8")] == list(range(600))


# --- tracing ----------------------------------------------------------------------------------------------------
def test_traced():
    """Offsets of markers and aborted records, also behind the last record; and what was compacted away."""
    kafka = rig.shared()
    topic = kafka.compactable_topic("gaps-trace")
    kafka.commit(topic, keyed(20, 0), f"gaps-trace-{topic}")  # 0 to 19, and a marker
    producer = kafka.producer(f"gaps-trace-{topic}")
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(1, first=999, partition=0), producer)  # 21
    producer.abort_transaction(rig.PATIENCE_S)  # 22
    with Live(kafka, topic) as job:
        job.start()
        job.wait_rows(20)
        job.read_to({0: 23})
        for offset, words in ((19, None), (20, "marker"), (21, "aborted"), (22, "marker"), (23, "ends before this record")):
            result = subprocess.run([LEAT, "trace", job.job, "s", f"{topic}/0@{offset}"], capture_output=True, text=True,
                                    timeout=rig.PATIENCE_S, check=False)
            if words is None:
                assert result.returncode == 0, (offset, result.stderr)
            else:
                assert result.returncode == 1 and "no record" in result.stderr and words in result.stderr, (offset, result.stderr)
        job.stop()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
