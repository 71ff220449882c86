#!/usr/bin/env python3
"""Faults between a topic and a topic, each judged by the oracle (oracle.py): kills, networks, records and rights that are
gone, poison, a sink that stands still, a full disk, a directory that somebody else has. test_brokers.py has those of the
brokers themselves, test_sink.py what the sink does by itself. Prints TAP.

    tests/kafka/test_faults.py PATH_OF_LEAT
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402
import rig  # noqa: E402

KILLS = 15
FENCED = 4  # exit status of a process that another one has replaced


_cases, _making = {}, threading.Lock()


def case_of(is_live):
    """One of each for all threads."""
    with _making:
        if is_live not in _cases:
            _cases[is_live] = oracle.Case(rig.shared(), is_live=is_live)
            _cases[is_live].undisturbed()
        return _cases[is_live]


def ended_case():
    return case_of(False)


def live_case():
    return case_of(True)


def test_killed_fifteen_times():
    case = live_case()
    done, _, passed = oracle.lives_until(KILLS, random.Random(4), lambda: case.job(rate=8000))
    assert done == KILLS and len(passed) > 5, (done, passed)


def test_a_takeover_that_dies():
    """The process from which the directory was to be taken goes on with it."""
    job = live_case().job(rate=8000)
    survivor, was_killed = oracle.survivor_of_a_takeover(job)
    assert was_killed, "no process came to the takeover"
    job.finish(process=survivor)
    job.check()
    job.close()


def test_a_network_that_is_slow_and_loses():
    case = ended_case()
    with case.kafka.proxied() as proxied:
        job = case.job(source_brokers=proxied.brokers, sink_brokers=proxied.brokers, rate=8000, every="200ms")
        proxied.delay(0.2)
        process = job.start()
        job.wait_rows(process, 1)
        proxied.delay(0.02)
        proxied.lose(0.03, 0.7)
        for place in ("request", "half", "answer", "half answer"):
            cuts = proxied.cuts
            proxied.cut_at("EndTxn", place)
            rig.wait_for(lambda: proxied.cuts > cuts or process.poll() is not None, f"an EndTxn that is cut: {place}")
        for api in ("Produce", "AddPartitionsToTxn"):
            proxied.cut_at(api, "answer")
        proxied.lose(0, 0)
        job.finish(process=process)
        assert proxied.cuts >= 4, proxied.cuts
        job.check()
        job.close()


def test_offsets_that_go_while_the_job_runs():
    """Retention overtakes a job that stands still: it says so, and no row of what comes behind the gap is sent."""
    kafka = rig.shared()
    case = oracle.Case(kafka, rows=6000, is_live=True, note_bytes=1000)
    job = case.job(rate=6000, source_options=", queue: 1MiB")
    process = job.start()
    job.wait_checkpoints(process, 3)
    process.send_signal(signal.SIGSTOP)
    kafka.delete_records(case.source, {0: 5990})
    process.send_signal(signal.SIGCONT)
    job.refused("E0612", f"the records of `{case.source}/0` from offset", "the oldest is now 5990", "--fresh", process=process)
    job.refused("E0612", "the oldest is now 5990", "--fresh")
    records = job.out()  # one shard may have sent an epoch more than another: of each partition, the first rows are out
    places = {record.key: record.partition for record in records}
    for partition in set(places.values()):
        found = sorted(rig.numbers(record for record in records if record.partition == partition))
        wanted = [n for n in range(5990) if places[f"k{n % 50}".encode()] == partition]
        assert found == wanted[:len(found)] and len(found) < len(wanted), (partition, len(found), found[-3:])
    job.close()


def test_a_topic_that_is_made_again():
    """While the job stands still, and is longer than before: no record of it is taken for one of the old topic."""
    kafka = rig.shared()
    case = oracle.Case(kafka, rows=500, is_live=True)
    job = case.job()
    process = job.start()
    job.wait_given(process)
    process.send_signal(signal.SIGSTOP)
    kafka.delete_topic(case.source)
    kafka.create_topic(case.source, exact=True)
    kafka.produce(case.source, rig.numbered(1000, first=5000))
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    says = ("E0611", f"`{case.source}/0`", "differs from the record read before", "--fresh")
    job.refused(*says, process=process)
    job.refused(*says)
    assert sorted(rig.numbers(job.out())) == list(range(500))
    job.close()


def test_poison():
    """One record in a hundred is bad, and some come one behind the other; killed in between."""
    rng = random.Random(2)
    bad = {n for n in range(20000) if rng.random() < 0.01} | set(range(7000, 7040))
    case = oracle.Case(rig.shared(), rows=20000, bad=bad)
    job = case.job(rate=10000)
    for point in ("kafka.commit.after=kill@7", "kafka.commit.before=kill@10"):
        status, _, err = job.run(failpoints=point)
        assert status == -signal.SIGKILL, (status, err)
    job.finish()
    job.check()
    job.close()


def test_nothing_but_poison():
    """All records are bad: each in dead letters once, in memory that does not depend on how many there are."""
    kafka, peaks = rig.shared(), []
    for rows in (30000, 100000):
        case = oracle.Case(kafka, rows=rows, bad=range(rows))
        job = case.job(source_options=", queue: 2MiB")
        process = job.start()
        peak = 0
        while process.poll() is None:
            peak = max(peak, oracle.memory_bytes(process, "VmHWM") or 0)
            time.sleep(0.01)
        status, _, err = job.end(process)
        assert status == 0 and not job.out(), (status, err[-1500:])
        job.check_dead()
        job.close()
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 32 << 20, peaks


def test_no_rights():
    """Taken while it runs and before it starts; each is named, and with them it goes on."""
    kafka, case = rig.shared(), live_case()
    topic = kafka.create_topic("fault-rights")
    progress = kafka.create_topic(f"{topic}.leat-out", exact=True, cleanup_policy="compact")
    job = case.job(topic=topic, rate=4000, every="200ms", sink_brokers=kafka.address("SASL"))
    with open(job.at("token"), "w", encoding="utf-8") as file:
        file.write(rig.token("guest"))
    job.write(job.text.replace("outbox: 1MiB", f"""outbox: 1MiB, security: {{
      protocol: sasl_ssl, mechanism: oauthbearer, token_file: "{job.at('token')}", ca: "{kafka.certificates}/ca.pem" }}"""))
    for name, operations in ((topic, ("DESCRIBE", "WRITE")), (progress, ("DESCRIBE", "READ", "WRITE"))):
        job.refused(f"`{name}`", "author")
        kafka.allow("guest", name, *operations)
    job.refused("ransactional", "author")  # the id of its transactions
    kafka.allow("guest", f"leat.{job.name}.out.", "WRITE", "DESCRIBE", kind="TRANSACTIONAL_ID", pattern="PREFIXED")
    process = job.start()
    job.wait_rows(process, 1000)
    kafka.forbid("guest", topic, "WRITE")
    job.refused(f"`{topic}`", "author", process=process)
    job.refused(f"`{topic}`", "author")
    kafka.allow("guest", topic, "WRITE")
    job.finish()
    job.check()
    job.close()


def test_the_topic_is_deleted():
    """The job stops and names it; rows that were not out when it went go to the one that is made in its place."""
    kafka, case = rig.shared(), ended_case()
    job = case.job(rate=8000)
    process = job.start(failpoints="kafka.begin=stop@12")  # between two transactions
    rig.wait_for(lambda: oracle.is_stopped(process) or process.poll() is not None, "the twelfth transaction")
    kafka.wait_stable(job.topic)
    before = job.out()
    assert before
    kafka.delete_topic(job.topic)
    process.send_signal(signal.SIGCONT)
    job.refused(f"`{job.topic}`", process=process)
    job.refused("E0605", f"topic `{job.topic}` does not exist")
    kafka.create_topic(job.topic, partitions=3, exact=True)
    job.finish()
    rig.check_once(before + kafka.consume(job.topic), case.expected())
    job.close()


def test_a_refusal_in_a_lull():
    """Nothing follows the rows that cannot be sent: it is said at once all the same."""
    kafka = rig.shared()
    case = oracle.Case(kafka, rows=100, is_live=True)
    job = case.job(every="4s", partitions=1, sink_options=", partition: clicked")
    job.refused(f"`{job.topic}`, partition 1", "computed from record", "nknown partition")
    late = time.time() - max(os.path.getmtime(path) for path in job.checkpoints())
    assert late < rig.stretched(2.5), f"said {late:.1f} s after the checkpoint"
    assert not job.out()
    kafka.add_partitions(job.topic, 2)
    job.write(job.text.replace("every: 4s", "every: 100ms"))
    job.finish()
    assert sorted(rig.numbers(kafka.consume(job.topic))) == list(range(100))
    job.close()


def test_a_sink_that_stands_still():
    """For longer than a transaction may last: the source waits, memory stays, and all comes when it goes on."""
    case = oracle.Case(rig.shared(), rows=40000, note_bytes=400)
    with case.kafka.proxied() as proxied:
        job = case.job(sink_brokers=proxied.brokers, source_options=", queue: 2MiB", rate=8000)
        process = job.start()
        job.wait_rows(process, 1000)
        proxied.pause()
        time.sleep(rig.stretched(2))
        memory, read = oracle.memory_bytes(process), oracle.records_read(job)
        time.sleep(9)
        grown, more = oracle.memory_bytes(process) - memory, oracle.records_read(job) - read
        assert 0 < read < 30000 and more == 0 and grown < 8 << 20, (read, more, grown)
        proxied.resume()
        job.finish(process=process)
        job.check()
        job.close()


def fill(folder):
    """Leaves no byte free."""
    with open(os.path.join(folder, "ballast"), "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return file.name


def test_a_full_disk():
    """No checkpoint can be written, so nothing is sent; with room it goes on by itself, within 10 s."""
    case = live_case()
    job = case.job(rate=2000, every="500ms", checkpoint=", min_free: 0B")
    os.makedirs(job.state)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "leat-test", job.state], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        return f"no file system can be mounted here: {mounted.stderr.strip()}"
    try:
        process = job.start()
        job.wait_rows(process, 1000)
        ballast = fill(job.state)
        time.sleep(rig.stretched(1))  # what was on its way
        count = len(job.out())
        time.sleep(3)
        assert process.poll() is None and len(job.out()) == count, (count, len(job.out()), job.end(process))
        os.unlink(ballast)
        freed = time.monotonic()
        job.wait_rows(process, count + 1)
        assert time.monotonic() - freed < rig.stretched(10), f"rows again after {time.monotonic() - freed:.1f} s"
        job.finish(process=process)
        job.check()
    finally:
        subprocess.run(["umount", "-l", job.state], check=False)
        job.close()
    return None


def test_a_directory_that_is_in_use():
    case = ended_case()
    job = case.job(rate=2000)  # longer than the two wait for the lock
    process = job.start()
    job.wait_checkpoints(process, 1)
    for _ in range(2):
        job.refused("E0706", f"pid {process.pid} on {os.uname().nodename}", "--take-over")
    job.finish(process=process)
    job.check()
    job.close()


def test_a_zombie():
    """It sleeps, a second one takes over, and it wakes: its commit is fenced, its checkpoint found by nobody."""
    case = live_case()
    job = case.job(rate=4000)
    zombie = job.start()
    job.wait_checkpoints(zombie, 3)
    zombie.send_signal(signal.SIGSTOP)
    heir = job.start("--take-over")
    out = job.count_out()
    rig.wait_for(lambda: job.count_out() > out + 1000 or heir.poll() is not None, "rows of the second")
    zombie.send_signal(signal.SIGCONT)
    status, _, err = job.end(zombie)
    assert status == FENCED and "E0709" in err and f"pid {heir.pid} on" in err, (status, err)
    job.finish(process=heir)
    job.check()
    job.close()


def test_falls_back():
    """The newest checkpoints are damaged after their epochs went out: they are executed again, and not sent."""
    case, again = live_case(), 0
    for lost in (1, 2):
        job = case.job(rate=8000)
        status, _, err = job.run(failpoints=f"kafka.commit.after=kill@{9 + 3 * lost}")
        assert status == -signal.SIGKILL, (status, err)
        for path in job.checkpoints()[-lost:]:
            oracle.damage(path)
        if lost == 2:  # and it dies while rows are made again
            job.run(failpoints="ckpt.published=kill@1")
        job.finish()
        again += "computed again and not sent" in json.dumps(job.summary)
        job.check()
        job.close()
    assert again > 0, "no row was made again"


def test_another_transaction_on_the_progress_topic():
    """What is out may lie behind it: a start waits until that can be read."""
    case = live_case()
    progress = case.kafka.create_topic("progress", cleanup_policy="compact")
    job = case.job(rate=8000, sink_options=f', progress_topic: "{progress}"')
    process = job.start(failpoints="kafka.begin=sleep:200,kafka.commit.after=kill@10")
    job.wait_checkpoints(process, 2)
    other = case.kafka.producer(f"other-{os.getpid()}")
    other.begin_transaction()
    other.produce(progress, b"somebody's value", b"somebody's key")
    other.flush()
    status, _, err = job.end(process)
    assert status == -signal.SIGKILL, (status, err)
    process = job.start()
    time.sleep(2)
    assert process.poll() is None
    other.abort_transaction()
    job.finish(process=process)
    job.check()
    job.close()


def test_progress_that_was_cut():
    """The topic is made again with its first records only, as an unclean election leaves it."""
    kafka, case = rig.shared(), ended_case()
    job = case.job(rate=8000)
    status, _, err = job.run(failpoints="kafka.commit.after=kill@18")
    assert status == -signal.SIGKILL, (status, err)
    count, records = len(job.out()), kafka.consume(job.progress)
    kafka.delete_topic(job.progress)
    kafka.create_topic(job.progress, partitions=3, exact=True, cleanup_policy="compact")
    notes = [[{"key": r.key, "value": r.value, "partition": p} for r in records if r.partition == p] for p in range(3)]
    kafka.produce(job.progress, [note for of_shard in notes for note in of_shard[:2]])
    job.refused("E0707", "the topic's end was cut off", "--fresh")
    assert len(job.out()) == count
    kafka.produce(job.progress, [note for of_shard in notes for note in of_shard[2:]])
    job.finish()
    job.check()
    job.close()


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=3))
