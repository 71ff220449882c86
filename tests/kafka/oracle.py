"""What a test of a fault demands in the end: topic, state, model and counts of a run that nobody disturbed.

    case = oracle.Case(kafka, rows=20000)   # a topic with numbered records; the undisturbed run comes with the first check
    job = case.job()                        # a job on it, to a topic of its own
    job.run(failpoints="kafka.begin=kill@2")
    job.finish()
    job.check()

The job removes duplicates, makes features of two keys, and learns from each event; its rows are what the model said
before it learned, with all features. So each row shows the state at its moment, and the last ones what the faults left
of it: a row that was lost, taken twice or came in another order, a pane or an optimizer's sum that was not restored,
changes some of their bytes.

The order of the records is that of their times, the same in each run: over three partitions for a job that ends, in one
partition for a live one. A job that ends has no state left to compare: all windows have passed."""

import contextlib
import datetime
import glob
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rig

sys.path.insert(2, os.path.join(rig.install.ROOT, "tests", "crash"))
from crash import figures  # noqa: E402

LEAT = os.path.abspath(os.environ.get("LEAT") or (sys.argv[1] if len(sys.argv) > 1 else "build/release/leat"))
STATE_DIGEST = os.path.join(os.path.dirname(LEAT), "tests", "kafka", "state_digest")  # CMake builds it beside leat
STATEFUL = 3  # operators of the job with keyed state
BEGIN_MS, STEP_MS = 1_700_000_000_000, 10

JOB = """job {name} {{ workers: 2, memory: 64MiB, checkpoint: {{ every: {every}, dir: "{state}", keep: {{ last: 5 }} {checkpoint} }} }}
source events = kafka {{
  brokers: "{source_brokers}", topic: "{source}", format: json, start: earliest{until}, event_time: ts, refresh: 1s {source_options}
  schema: {{ n: int!, key: text, ts: time(ms), item: int, x: float, clicked: int, note: text }}
}}
stream features = events
  | dedup by n within 1h
  | feature by key over [10s, 1h] every 1s {{ seen: count(), total: sum(x) }}
  | feature by item over 1h every 1m {{ shown: count() }}
learner model = fm from features {{
  label: clicked, sparse: [key, item], dense: [log1p(seen_10s), log1p(shown)], embedding: {{ dim: 4, optimizer: adagrad {{ rate: 0.05 }} }}
}}
sink out = kafka from model.predictions {{
  brokers: "{sink_brokers}", topic: "{sink}", key: key, outbox: {outbox}, transaction_timeout: 10s, patience: 60s {sink_options}
}}
"""
DEAD = 'sink dead = kafka from dead_letters {{ brokers: "{source_brokers}", topic: "{dead}", outbox: {outbox}, patience: 60s }}\n'


TAKING = "ckpt.lock"  # passed by a process that takes the directory over from one that lives, by no other


def points():
    """Every failpoint that any life of such a job can pass: of checkpoint, outbox, transaction, progress record, restoring."""
    with open(os.path.join(rig.install.ROOT, "engine", "core", "failpoints.def"), encoding="utf-8") as file:
        names = [line.split('"')[1] for line in file if line.startswith("FAILPOINT(")]
    return [name for name in names if name.split(".")[0] in ("ckpt", "kafka", "restore")
            and name not in ("kafka.flush", "ckpt.database", TAKING)]


def places(name):
    """How often a life passes the point before it is killed there. Each shard passes those of transactions at a start,
    too, once (a first start) or twice: the last places are among rows, where shards are out up to different ones."""
    return (1, 5, 9, 14, 20) if name in ("kafka.begin", "kafka.produce", "kafka.progress", "kafka.commit.before",
                                     "kafka.commit.after") else (1, 2)


class Lives:
    """A job file in a folder of its own, and its processes."""

    def __init__(self):
        self.folder, self.lives, self.text = tempfile.mkdtemp(prefix="leat-lives-"), 0, ""
        self.state, self.path = self.at("state"), self.at("job.leat")

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, text):
        self.text = text
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, *arguments, failpoints="", **environment):
        self.lives += 1
        return subprocess.Popen([LEAT, "run", self.path, "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "LEAT_FAILPOINTS": failpoints, **environment})

    def run(self, *arguments, failpoints="", seconds=rig.PATIENCE_S, **environment):
        """Exit status, summary (or None), what it said."""
        return self.end(self.start(*arguments, failpoints=failpoints, **environment), seconds)

    @staticmethod
    def end(process, seconds=rig.PATIENCE_S):
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        try:
            summary = json.loads(out)
        except ValueError:
            summary = None
        return process.returncode, summary, err

    def finish(self, *arguments, **more):
        status, summary, err = self.run(*arguments, **more)
        assert status == 0, (status, summary, err)
        return summary, err

    def refused(self, *says, process=None, seconds=rig.PATIENCE_S):
        """It ends by itself and says all of these; what it said."""
        status, _, err = self.end(process or self.start(), seconds)
        missing = [part for part in says if part not in err]
        assert status == 1 and not missing, (status, missing, err[-1500:])
        return err

    def checkpoints(self):
        """The oldest first. One that is pruned while they are listed is none."""
        found = []
        for path in glob.glob(os.path.join(self.state, "gen-*", "ckpt-*[0-9]")):
            try:
                found.append((os.path.getmtime(path), path))
            except FileNotFoundError:
                pass
        return [path for _, path in sorted(found)]

    def wait_checkpoints(self, process, count):
        rig.wait_for(lambda: len(self.checkpoints()) >= count or process.poll() is not None, f"{count} checkpoints")
        assert process.poll() is None, self.end(process)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Case:
    """A topic of numbered records; the n of `bad` are none. All are there from the beginning; of a live case one part of
    `parts`, and give() brings the next."""

    def __init__(self, kafka, rows=20000, bad=(), is_live=False, parts=1, note_bytes=0, seed=1):
        self.kafka, self.rows, self.is_live = kafka, rows, is_live
        self.bad, self.has_dead = frozenset(bad), bool(bad)
        self.source = kafka.create_topic("fault-in", partitions=1 if is_live else 3)
        self.wanted, self.given, self.part = None, 0, -(-rows // parts)
        self.left = self.records(random.Random(seed), note_bytes)
        self.give()

    def give(self):
        part = list(itertools.islice(self.left, self.part))
        self.kafka.produce(self.source, part, linger_ms=20, queue_buffering_max_messages=1000000)
        self.given += len(part)

    def records(self, rng, note_bytes):
        for n in range(self.rows):
            item = int(rng.paretovariate(0.7)) % 997
            row = {"n": n, "key": f"k{n % 50}", "ts": BEGIN_MS + n * STEP_MS, "item": item, "x": round(rng.random(), 3),
                   "clicked": int(rng.random() < (0.3 if item % 3 else 0.1)), "note": "x" * note_bytes}
            value = b"{bad %d" % n if n in self.bad else json.dumps(row).encode()
            yield {"key": row["key"].encode(), "value": value, "timestamp": row["ts"]}

    def expected(self):
        return [n for n in range(self.rows) if n not in self.bad]

    def job(self, **options):
        return Job(self, **options)

    def undisturbed(self):
        """Its outcome; run once."""
        if self.wanted is None:
            assert self.given == self.rows, (self.given, self.rows)
            job = self.job()
            job.finish()
            self.wanted = job.outcome(job.summary)
            job.close()
        return self.wanted


class Job(Lives):
    """The job on a case's topic. source_options, sink_options: more of theirs, ", name: value"; sink, source: brokers."""

    def __init__(self, case, every="50ms", outbox="1MiB", rate=0, topic=None, partitions=3, checkpoint="", source_options="",
                 sink_options="", sink_brokers=None, source_brokers=None):
        super().__init__()
        self.case, self.kafka = case, case.kafka
        self.topic = topic or self.kafka.create_topic("fault-out", partitions=partitions)
        self.progress = f"{self.topic}.leat-out"
        self.name = "fault_" + re.sub(r"\W", "_", self.topic)  # its producer's id is made of it: of this job alone
        self.dead = self.kafka.create_topic("fault-dead") if case.has_dead else None
        rate = f", max_rate: {rate}" if rate else ""
        self.write((JOB + (DEAD if self.dead else "")).format(
            name=self.name, every=every, state=self.state, checkpoint=checkpoint, source=case.source, sink=self.topic, dead=self.dead,
            until="" if case.is_live else ", until: latest", source_options=rate + source_options, sink_options=sink_options,
            outbox=outbox, source_brokers=source_brokers or self.kafka.brokers, sink_brokers=sink_brokers or self.kafka.brokers))
        self.summary, self.out_count, self.out_next = None, 0, None

    def lock_is_of(self, process):
        """Whether the process has the directory: a LOCK that it has given back says so before its name."""
        with contextlib.suppress(OSError), open(os.path.join(self.state, "LOCK"), encoding="utf-8") as file:
            return file.read().startswith(f"pid {process.pid} on")
        return False

    def finish(self, *arguments, process=None, seconds=rig.PATIENCE_S):
        """To its end, which for a live job is Ctrl-C once all rows are out."""
        status, self.summary, err = self.last_of(process or self.start(*arguments), seconds)
        assert status == 0, (self.folder, status, err[-3000:])

    def last_of(self, process, seconds=rig.PATIENCE_S):
        """As end, for a process that may be killed on the way."""
        deadline = time.monotonic() + seconds
        while self.case.is_live and process.poll() is None and self.count_out() < len(self.case.expected()):
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError((f"{self.out_count} rows are out after {seconds} s", self.end(process)))
            time.sleep(0.05)
        if self.case.is_live and process.poll() is None:
            rig.interrupt(process)
        return self.end(process, seconds)

    def count_out(self):
        """Rows that are out; looks only at what came since the last call."""
        found = self.kafka.consume(self.topic, start=self.out_next, beside_open=True)
        self.out_next = self.out_next or {partition: 0 for partition in self.kafka.partitions(self.topic)}
        self.out_next.update({record.partition: record.offset + 1 for record in found})
        self.out_count += len(found)
        return self.out_count

    def wait_given(self, process, seconds=rig.PATIENCE_S):
        """Until all that the case has given is out, and it lives."""
        rig.wait_for(lambda: process.poll() is not None or self.count_out() >= self.case.given, "rows", seconds)
        assert process.poll() is None, self.end(process)

    def out(self):
        """Rows that are out; transactions may be open."""
        return self.kafka.consume(self.topic, beside_open=True)

    def wait_rows(self, process, count, seconds=rig.PATIENCE_S):
        """Until so many are out, and it lives."""
        found = self.kafka.consume(self.topic, count=count, seconds=seconds)
        assert len(found) >= count and process.poll() is None, (len(found), self.end(process) if process.poll() is not None else "")

    def newest(self):
        """Where the newest checkpoint is."""
        return self.state

    def digest_state(self):
        return state_of(self.state)

    def outcome(self, summary):
        """What must be equal: rows, state, model, counts, figures. Asserts what holds for each run by itself."""
        records = self.kafka.consume(self.topic)
        rig.check_once(records, self.case.expected())
        path = self.at("model.safetensors")
        subprocess.run([LEAT, "model", "export", self.newest(), "--out", path], check=True, capture_output=True)
        with open(path, "rb") as file:
            model = hashlib.sha256(file.read()).hexdigest()
        digest = self.digest_state()
        assert not self.case.is_live or len(digest.splitlines()) == STATEFUL, digest
        off = [(node["name"], node["counts"]) for node in summary["nodes"] if not node["counts"]["balanced"]]
        assert not off, f"counts that do not add up: {off}"
        events = summary["nodes"][0]["counts"]
        assert (events["in"], events["dead"]) == (self.case.rows, len(self.case.bad)), events
        return {"rows": {json.loads(r.value)["n"]: (r.key, r.value) for r in records}, "model": model, "state": digest if self.case.is_live else "",
                "counts": {f"{i} {node['name']} {node['kind']}": node["counts"] for i, node in enumerate(summary["nodes"])},
                "figures": [figures(node["report"]) for node in summary["nodes"] if node["tag"] == "learner"]}

    def check(self):
        """Against the undisturbed run. summary: of the last life."""
        found, wanted = self.outcome(self.summary), self.case.undisturbed()
        for part, value in wanted.items():
            if found[part] == value:
                continue
            assert isinstance(value, dict), f"{part} of an undisturbed run differs: {value}, found {found[part]}"
            names = value
            differ = [(name, value[name], found[part].get(name)) for name in names if found[part].get(name) != value[name]]
            raise AssertionError(f"{part} of an undisturbed run differ, {len(differ)} of {len(names)}: {differ[:2]}")
        if self.dead:
            self.check_dead()

    def check_dead(self):
        """Each bad record once, with where it was and why, and its neighbours untouched."""
        where = {r.value: r for r in self.kafka.consume(self.case.source) if r.value.startswith(b"{bad")}
        found = [json.loads(r.value) for r in self.kafka.consume(self.dead)]
        texts = [row["raw"].encode() for row in found]
        assert sorted(texts) == sorted(where), (len(texts), len(set(texts)), len(where))
        for row in found:
            record = where[row["raw"].encode()]
            assert row["source"] == "events" and row["reason"] and f"{self.case.source}/{record.partition}" in row["place"], row
            assert row["record"] == record.offset, (row, record)


def state_of(folder):
    """Of the newest checkpoint: a line for each operator with keyed state; of what no watermark had passed."""
    shown = subprocess.run([LEAT, "checkpoint", "show", folder], check=True, capture_output=True, text=True).stdout
    marks = [datetime.datetime.fromisoformat(mark.replace("Z", "+00:00")) for mark in re.findall(r"watermark (\S+)", shown)
             if mark != "none"]
    since = [str(max(int(mark.timestamp()) * 1000000 + mark.microsecond for mark in marks))] if marks else []
    return subprocess.run([STATE_DIGEST, folder, *since], check=True, capture_output=True, text=True).stdout


def damage(path):
    """One byte of the checkpoint's largest file is another."""
    largest = max((os.path.join(path, name) for name in os.listdir(path)), key=os.path.getsize)
    copy = largest + ".copy"  # files of checkpoints share inodes
    shutil.copyfile(largest, copy)
    os.replace(copy, largest)
    with open(largest, "r+b") as file:
        file.seek(os.path.getsize(largest) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 255]))


def memory_bytes(process, name="VmRSS"):
    """VmHWM: its peak. None: it has ended."""
    with contextlib.suppress(OSError, TypeError), open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return int(re.search(rf"{name}:\s+(\d+) kB", file.read())[1]) * 1024


def is_stopped(process):
    """By SIGSTOP, all its threads."""
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
    return False


def records_read(job, checkpoint=""):
    """From files and topics, by a checkpoint (`@1-1`), or by the newest one."""
    shown = subprocess.run([LEAT, "checkpoint", "show", job.state + checkpoint], capture_output=True, text=True, check=False)
    return sum(map(int, re.findall(r"^  source .* (\d+) records  (?:next|at) ", shown.stdout, re.M)))


def kill_after(process, seconds):
    """kill -9 then, if it lives so long."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()


def survivor_of_a_takeover(job):
    """(A process that goes on, whether another one was killed as it took the directory over from it.)"""
    holder = job.start()
    rig.wait_for(lambda: job.lock_is_of(holder) or holder.poll() is not None, "the directory's lock")
    holder.send_signal(signal.SIGSTOP)  # so that it does not come to its end meanwhile
    rig.wait_for(lambda: is_stopped(holder) or holder.poll() is not None, "a process that stands still")
    is_held = holder.poll() is None and job.lock_is_of(holder)
    if is_held:
        status, _, err = job.run("--take-over", failpoints=f"{TAKING}=kill")
        assert status == -signal.SIGKILL, (status, err[-1500:])
        assert job.lock_is_of(holder), "the directory is another's, though the takeover failed"
    holder.send_signal(signal.SIGCONT)
    return holder, is_held


def lives_until(kills, rng, new_job, between=lambda: None, report=lambda kills, rounds: None, before_end=lambda: None):
    """Jobs, each killed again and again at failpoints and random moments until it comes to its end; all are checked.
    At the failpoint TAKING it is a second process that dies, and then the first one, at a random moment: two kills.
    between: called before each life; before_end: before a last life that nothing ends, and before a check.
    (kills, jobs, failpoints at which some life died)."""
    done, rounds, passed, moments = 0, 0, set(), []
    while done < kills:
        job, is_through = new_job(), False
        rounds += 1
        while not is_through:
            if done == kills:
                before_end()
                job.finish()
                break
            between()
            if not moments:
                moments = [(name, at) for name in points() for at in places(name)] + [(TAKING, 1)] + [(None, 0)] * 12
                rng.shuffle(moments)
            point, at = moments.pop()
            if point and point.startswith("restore") and not job.checkpoints():
                moments.insert(0, (point, at))  # nothing is restored yet
                point = None
            if point == TAKING and done + 2 > kills:
                point = None  # it makes two
            if point == TAKING:
                process, was_killed = survivor_of_a_takeover(job)
                done += was_killed
                passed |= {TAKING} if was_killed else set()
                point = None
            else:
                process = job.start(failpoints=f"{point}=kill@{at}" if point else "")
            if point is None:
                kill_after(process, 0.15 + rng.random() * 1.2)
            status, job.summary, err = job.last_of(process)
            assert status in (0, -signal.SIGKILL), (point, at, status, err[-1500:])
            is_through = status == 0
            done += not is_through
            passed |= {point} if not is_through and point else set()
            report(done, rounds)
        before_end()
        job.check()
        job.close()
    return done, rounds, passed
