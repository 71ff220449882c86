#!/usr/bin/env python3
"""`lookup` with `refresh` in a live job: its table is replaced while it runs, is wrong, goes; the job is killed and
resumed; its order log gives the same rows again.

    tests/kafka/test_lookup.py PATH_OF_LEAT
"""

import glob
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
import running  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
KEYS = 10


class Job(running.Running):
    """Rows of a topic, each with what the table said."""

    def __init__(self, kafka, topic):
        super().__init__("leat-lookup-")
        self.kafka, self.topic, self.count = kafka, topic, 0
        self.job = self.at("job.leat")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(f"""
job live {{ workers: 2, checkpoint: {{ every: 100ms, dir: "{self.at('state')}", keep: {{ last: 1000 }} }} }}
source s = kafka {{ brokers: "{kafka.brokers}", topic: "{topic}", schema: {{ n: int, key: text }} }}
stream named = s | lookup "{self.at('items.csv')}" on key refresh 1s {{ name: text }}
sink out = file from named {{ path: "{self.at('rows.jsonl')}" }}
""")

    def table(self, name, more=""):
        """As it is to be done: under another name, then renamed."""
        with open(self.at("new.csv"), "w", encoding="utf-8") as file:
            file.write("key,name\n" + "".join(f"k{i},{name}\n" for i in range(KEYS)) + more)
        os.rename(self.at("new.csv"), self.at("items.csv"))

    def start(self):
        self.log = open(self.at("err.txt"), "a", encoding="utf-8")
        self.process = subprocess.Popen([LEAT, "run", self.job, "--json"], stdout=subprocess.PIPE, stderr=self.log, text=True)

    def said(self):
        with open(self.at("err.txt"), encoding="utf-8") as file:
            return file.read()

    def stop(self):
        rig.interrupt(self.process)
        out, _ = self.process.communicate(timeout=rig.PATIENCE_S)
        assert self.process.returncode == 0, self.said()
        node, = [node for node in json.loads(out)["nodes"] if node["kind"] == "lookup"]
        return node["report"]["run"]

    def rows(self):
        for name in ("rows.jsonl", "rows.jsonl.part"):
            if os.path.exists(self.at(name)):
                with open(self.at(name), encoding="utf-8") as file:
                    return [json.loads(line) for line in file.read().split("\n")[:-1]]
        return []

    def send(self, count=50):
        self.kafka.produce(self.topic, [{"value": json.dumps({"n": n, "key": f"k{n % KEYS}"}).encode(), "key": b"%d" % n}
                                        for n in range(self.count, self.count + count)])
        self.count += count

    def until(self, condition, what):
        rig.wait_for(lambda: self.process.poll() is not None or condition(), what)
        assert self.process.poll() is None, self.said()

    def until_named(self, name):
        """Rows come until the last has the name; all that were sent are out then."""
        def is_there():
            self.send()
            return [row["name"] for row in self.rows()[-1:]] == [name]
        self.until(is_there, f"rows with {name}")
        self.until(lambda: len(self.rows()) == self.count, "the rest")

    def names(self):
        """In the order of the rows, each once; a row is there once."""
        rows, names = self.rows(), []
        assert sorted(row["n"] for row in rows) == list(range(self.count)), (len(rows), self.count)
        for row in rows:
            if not names or names[-1] != row["name"]:
                names.append(row["name"])
        return names


def replay(job, out, workers, *order, status=0):
    shutil.rmtree(job.at("state.replay"), ignore_errors=True)
    done = subprocess.run([LEAT, "run", job.job, "--json", "--replay", f"s={job.at('rec')}", "--sink", f"out={job.at(out)}",
                           "--workers", str(workers), *order], capture_output=True, text=True, timeout=rig.PATIENCE_S)
    assert done.returncode == status, done.stderr[-2000:]
    return done.stderr


def read(path):
    """Finished or not."""
    with open(path if os.path.exists(path) else path + ".part", "rb") as file:
        return file.read()


def test_replaced_killed_and_replayed():
    kafka = rig.shared()
    topic = kafka.create_topic("lookup", partitions=2)
    with Job(kafka, topic) as job:
        job.table("one")
        job.start()
        job.until_named("one")
        job.table("two")
        job.until_named("two")
        job.table("bad", "k1,again\n")  # a key twice: the job goes on with what it has, and says so once
        job.until(lambda: "an earlier record has the same key" in job.said(), "the complaint")
        job.until_named("two")
        job.kill()
        job.table("three")  # while nobody looks: what is resumed has the table of its checkpoint
        job.start()
        job.until_named("three")
        os.unlink(job.at("items.csv"))
        job.until(lambda: "E0602" in job.said(), "the other complaint")
        job.kill()
        job.start()  # without the file: it is kept
        job.until_named("three")
        job.until_named("three")
        job.table("two")  # again
        job.until_named("two")
        figures = job.stop()
        assert figures["table_changes"] == 1 and figures["table_rows"] == KEYS, figures
        assert job.said().count("an earlier record has the same key") == 1, job.said()
        assert job.names() == ["one", "two", "three", "two"], job.names()

        # A fall back to a checkpoint before all of it does the same again, number for number.
        subprocess.run([LEAT, "record", topic, "--to", job.at("rec"), "--until", "latest", "--brokers", kafka.brokers],
                       check=True, capture_output=True, timeout=rig.PATIENCE_S)
        live = read(job.at("rows.jsonl"))
        for workers in (1, 3):
            replay(job, f"again-{workers}.jsonl", workers, "--order", job.at("state"))
            assert read(job.at(f"again-{workers}.jsonl")) == live, workers
        replay(job, "now.jsonl", 2, "--order=none")  # the table of now, from the beginning to the end
        assert {json.loads(line)["name"] for line in read(job.at("now.jsonl")).splitlines()} == {"two"}

        # What was kept goes, and is named.
        kept = glob.glob(job.at("state/tables/*/*/items.csv"))
        assert len(kept) == 3, kept
        os.rename(job.at("state/tables"), job.at("tables"))
        said = replay(job, "none.jsonl", 1, "--order", job.at("state"), status=1)
        assert "E0604" in said and "LOG` does not exist" in said and "remove `refresh`" in said, said


def test_fall_back():
    """Damaged checkpoints: what is executed again has the tables of then, at the numbers of then."""
    kafka = rig.shared()
    topic = kafka.create_topic("lookup", partitions=1)
    with Job(kafka, topic) as job:
        job.table("one")
        job.start()
        job.until_named("one")
        job.until(lambda: glob.glob(job.at("state/gen-*/ckpt-*[0-9]")), "a checkpoint")
        first = sorted(glob.glob(job.at("state/gen-*/ckpt-*[0-9]")))[-1]
        job.send()
        job.until(lambda: len(job.rows()) == job.count, "rows")
        job.table("two")
        job.until_named("two")
        job.kill()
        before = job.rows()
        for path in sorted(glob.glob(job.at("state/gen-*/ckpt-*[0-9]"))):
            if path > first:
                with open(os.path.join(path, "state.bin"), "r+b") as file:
                    file.write(b"damage!!")
        os.unlink(job.at("items.csv"))
        job.start()
        job.until(lambda: len(job.rows()) >= len(before), "what was there")
        job.until_named("two")
        job.stop()
        assert job.rows()[:len(before)] == before
        assert job.names() == ["one", "two"], job.names()


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
