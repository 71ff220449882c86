"""The broker of the rows of Kafka: one of our own for the whole run, as the tests have theirs, with more memory."""

import json
import os
import subprocess
import sys

from harness import ROOT, Broken, Skip

sys.path.insert(0, os.path.join(ROOT, "tests", "kafka"))
import install  # noqa: E402
import rig  # noqa: E402
from instance import Failed  # noqa: E402

# Offsets are told by the broker's clock; what lies in the page cache need not go to the disk meanwhile.
INPUT = {"message_timestamp_type": "LogAppendTime"}
_clusters = []


def cluster():
    """Started by the first row that needs it; dies with this process at the latest."""
    if not _clusters:
        try:
            _clusters.append(rig.own(1, is_large=True))
        except install.Missing as why:
            raise Skip(f"no broker: {why}") from None
        except Failed as why:
            raise Broken(f"the broker: {why}") from None
    return _clusters[0]


def close():
    while _clusters:
        _clusters.pop().close()


def topic(name, partitions=2, **configs):
    return cluster().create_topic(name, partitions=partitions, **{**INPUT, **configs})


def delete(*names):
    """With the progress of its sinks."""
    there = cluster().topics()
    cluster().delete_topic(*[one for one in there for name in names
                             if one == name or one.startswith(name + ".leat-")])


def broker_rss_mb():
    pid = next(iter(cluster().instance.running())).pid()
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def load(bench, name, *arguments):
    """Records into a topic, of lines or made ones: see kafka/kafka_load.c."""
    return json.loads(bench.run([bench.program("kafka", "kafka_load"), cluster().brokers, name,
                                 *map(str, arguments)]).output)


def start(bench, program, name, *arguments):
    """kafka_load or kafka_read beside something else."""
    return subprocess.Popen([bench.program("kafka", program), cluster().brokers, name, *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process, seconds=300, given=None):
    """What it found. given: the rest of its standard input."""
    try:
        out, err = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Broken(f"{' '.join(process.args[3:])}: not within {seconds} s") from None
    if process.returncode != 0:
        raise Broken(f"{os.path.basename(process.args[0])}: {err[-400:]}")
    return json.loads(out)


def read(bench, name, count, *skip):
    """Everything committed in a topic: see kafka/kafka_read.c."""
    return json.loads(bench.run([bench.program("kafka", "kafka_read"), cluster().brokers, name, "all", str(count),
                                 *map(str, skip)]).output)
