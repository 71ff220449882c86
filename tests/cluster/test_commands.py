#!/usr/bin/env python3
"""Flags of `leat run` with `--cluster`: they mean for the job what they mean on one machine, through the death of a worker.

    test_commands.py LEAT [TEST...]
"""

import ctypes
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from unittest.mock import ANY

import test_cluster as cluster
from test_cluster import FOLDER, PATIENCE_S, SLOW, Job, refused, sinks, wait_for

TGKILL = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
UNTIL = "--until=2023-11-16T00:00:00Z"  # some way into the rows


def alone(job, *flags, cut=None):
    """Runs the job alone, with files of its own, and returns its summary."""
    environment = {**os.environ, **({"LEAT_TEST_CUT": cut} if cut else {})}
    told = subprocess.run(job.command("--json", *flags), stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(told.stdout)


def through_a_death(job, *flags, leads=True, nodes="2:3", **more):
    """Runs the job on three workers, of which one is killed; the job ends."""
    workers = [job.start(nodes, *flags, **more) for _ in range(3)]
    job.progress()
    leader, others = job.leader(workers)
    dead = leader if leads else others[0]
    dead.kill()
    workers.remove(dead)
    for process in workers:
        job.says(process, "is over")
    job.ends(*workers)


def figures(summary):
    return {key: summary[key] for key in ("good", "finished", "records", "micro_batches", "input_ended")}


def test_until():
    """Up to a time, and on from there without it."""
    with Job() as plain, Job() as job:
        told = alone(plain, UNTIL)
        assert not told["finished"] and 0 < told["records"] < cluster.FIGURES["records"], told
        through_a_death(job, UNTIL)
        assert sinks(job.out) == sinks(plain.out) != cluster.PLAIN
        assert figures(job.summary()) == figures(told)
        job.ends(*[job.start(2, UNTIL, failpoints="") for _ in range(2)])  # as after a death behind the last checkpoint
        assert figures(job.summary()) == figures(told)
        job.ends(*[job.start(2, failpoints="") for _ in range(2)])
        assert sinks(job.out) == cluster.PLAIN


def test_until_with_one_that_waits():
    """It ends with the others."""
    with Job() as job:
        first = job.start(1, UNTIL, failpoints="run.claimed=sleep:100")
        job.progress(1)
        waiting = job.start(1, UNTIL)
        job.says(waiting, "a place: 1 workers run the job")
        job.ends(waiting, first)
        assert "incarnation" not in job.text(waiting.log)


def test_order_log():
    """What three workers have recorded, through the death of the leader, one replays, and the other way round. The replay has other
    cuts, so that only the log tells where micro-batches end."""
    cut, log = "700", f"{FOLDER.name}/three.order/"
    with Job() as job:
        job.environment["LEAT_TEST_CUT"] = cut
        through_a_death(job, f"--record-order={log}")
        recorded = figures(job.summary())
        assert sinks(job.out) == cluster.PLAIN
    assert recorded["micro_batches"] > cluster.FIGURES["micro_batches"]
    assert len(glob.glob(f"{log}0*")) == 2, "a file for each incarnation"
    with Job() as job:
        assert figures(alone(job, f"--order={log}")) == recorded
        assert sinks(job.out) == cluster.PLAIN
    with Job() as plain, Job() as job:
        assert figures(alone(plain, f"--record-order={log}alone", cut=cut)) == recorded
        through_a_death(job, f"--order={log}alone", leads=False)
        assert figures(job.summary()) == recorded
        assert sinks(job.out) == cluster.PLAIN


def test_replay():
    """Sinks count rows; the one that is named writes, and checkpoints lie in a folder of their own."""
    with Job() as job:
        path = f"{job.folder}/examples.jsonl"
        job.ends(*[job.start(2, "--replay", f"--sink=examples={path}", failpoints="") for _ in range(2)])
        with open(path, "rb") as file:
            assert file.read() == cluster.PLAIN["examples.jsonl"]
        assert not sinks(job.out), os.listdir(job.out)
        assert os.listdir(f"{job.state}.replay/cluster/heads")
        assert figures(job.summary()) == figures(cluster.FIGURES)


def test_from():
    """A new job begins with the state of a run that was alone, by its directory; and another one with that of the cluster, by the file
    of its head. State that is dropped is built anew."""
    with Job() as plain, Job() as job:
        for one in (plain, job):
            assert not alone(one, UNTIL)["finished"]
        whole, dropped = f"--from={plain.state}", "--drop-state=hourly/window"
        plain.state = f"{plain.folder}/whole"
        assert figures(alone(plain, whole)) == {**figures(cluster.FIGURES), "micro_batches": ANY}
        assert sinks(plain.out) == cluster.PLAIN
        job.state, flag = f"{job.folder}/whole", f"--from={job.state}"
        through_a_death(job, flag)
        assert sinks(job.out) == cluster.PLAIN
        assert figures(job.summary()) == {**figures(cluster.FIGURES), "micro_batches": ANY}
        again = job.start(1, flag, failpoints="")  # the job has a head, and is at its end
        job.ends(again)
        assert sinks(job.out) == cluster.PLAIN
    with Job() as plain, Job() as job:
        assert not alone(plain, UNTIL)["finished"]
        job.ends(*[job.start(2, UNTIL, failpoints="") for _ in range(2)])
        head, whole = max(glob.glob(f"{job.state}/cluster/heads/head-*")), f"--from={plain.state}"
        plain.state, job.state = f"{plain.folder}/other", f"{job.folder}/other"
        wanted = alone(plain, whole, dropped)
        assert sinks(plain.out) != cluster.PLAIN
        job.ends(*[job.start(3, f"--from={head}", dropped, failpoints="", name=f"{job.name}b") for _ in range(3)])
        assert sinks(job.out) == sinks(plain.out)
        assert figures(job.summary()) == figures(wanted)


def test_alike():
    """A worker with another flag is refused, and the others go on; the order of --set is no difference."""
    with Job() as job:
        leader = job.start("1:2", UNTIL, failpoints=SLOW)
        job.says(leader, "waiting")
        refused(job, ["E0713", "expected `--until=2023-11-16T00:00:00Z`", "found `none`", "leat cluster stop"])
        refused(job, ["E0713", "found `--until=2023-11-16T00:00:00Z --record-order=x`"], UNTIL, "--record-order=x")
        refused(job, ["E0713", "found `--until=2023-11-16T00:00:00Z --balance=no --move=3`"], UNTIL, "--balance=no", "--move=3")
        command = job.command
        job.command = lambda *flags: [word for word in command(*flags) if not word.startswith("--set=")] + list(
            reversed([word for word in command() if word.startswith("--set=")]))
        other = job.start("1:2", UNTIL)
        job.ends(leader, other)
        assert not job.summary()["finished"]


def test_supervise():
    """A worker that is killed is started again by its supervisor, and takes part anew."""
    with Job() as job:
        workers = [job.start("1:2", "--supervise") for _ in range(2)]
        job.progress()
        supervisor = workers[0]
        with open(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children", encoding="ascii") as file:
            os.kill(int(file.read().split()[0]), signal.SIGKILL)
        job.says(supervisor, "restarting from the newest checkpoint")
        job.ends(*workers)
        assert sinks(job.out) == cluster.PLAIN


def url(job, process):
    """Where the worker's control API is, in this incarnation."""
    job.says(process, "figures at http")
    return re.findall(r"figures at (http://[0-9.:]+)/", job.text(process.log))[-1]


def get_any(address, path):
    """Status and text."""
    try:
        with urllib.request.urlopen(address + path, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def get(address, path):
    status, text = get_any(address, path)
    assert status == 200, (address, path, status, text)
    return text


def samples(text, name):
    """{labels: value} of a metric."""
    return {labels: float(value) for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)}


def figures_of_all(job, address):
    """The leader's figures, once all workers have sent theirs."""
    found = {}

    def look():
        found.update(json.loads(get(address, "/api/v1/figures")))
        return found["cluster"]["head"] and all(of["known"] and of["round_trip_ms"] is not None and of["busy"] is not None for of in found["cluster"]["workers"])
    wait_for(f"figures of all workers of {job.name}", look)
    return found


def leat(*words, status=0):
    found = subprocess.run([cluster.LEAT, *words], capture_output=True, text=True, check=False)
    assert found.returncode == status, found
    return found.stdout + (found.stderr if status != 0 else "")


def test_control():
    """The leader's control API shows the whole job, another worker's its own part; `leat ctl` and `leat top` find the leader."""
    with Job() as job:
        workers = [job.start(3, "--ui=127.0.0.1:0", failpoints="run.claimed=sleep:100") for _ in range(3)]
        job.progress(1)
        leader, others = job.leader(workers)
        at = url(job, leader)
        told = figures_of_all(job, at)
        known = told["cluster"]
        assert known["count"] == 3 and known["incarnation"] == 1 and not known["is_part"] and known["head"]["epoch"] >= 1, known
        parts = known["workers"]
        assert len({of["address"] for of in parts}) == 3 and [of["leads"] for of in parts].count(True) == 1
        assert sum(of["records_life"] for of in parts) == told["records_life"] and sum(of["partitions"] for of in parts) == 2
        assert sum(of["groups"] for of in parts) == 720 and sum(of["lanes"] for of in parts) == told["lanes"] == 6
        assert all(of["sent_bytes"] > 0 and of["received_bytes"] > 0 and 0 <= of["busy"] <= 1 for of in parts), parts
        metrics = get(at, "/metrics")
        assert sum(samples(metrics, "leat_worker_records_total").values()) == samples(metrics, "leat_run_records_total")[""]
        assert samples(metrics, "leat_cluster_leads") == {"": 1}
        for process in others:
            own = url(job, process)
            part = json.loads(get(own, "/api/v1/figures"))["cluster"]
            assert part["is_part"] and [of["worker"] for of in part["workers"]] == [part["worker"]], part
            of_part = get(own, "/metrics")
            label = f'worker="{part["worker"]}"'
            assert list(samples(of_part, "leat_run_records_total")) == [label] and samples(of_part, "leat_cluster_leads") == {label: 0}
            assert all(label in labels for labels in samples(of_part, "leat_node_rows_total"))
            assert "takes no savepoint" in leat("ctl", "savepoint", f"{job.state}/cluster/worker-{part['worker']}", status=1)
        user = "features/feature.3"
        answers = [get_any(url(job, process), f"/api/v1/state/{user}/{key}") for key in range(1, 9) for process in workers]
        assert [status for status, _ in answers].count(200) == 8 and {status for status, _ in answers} == {200, 501}, answers
        assert all("has the state of that key" in text for status, text in answers if status == 501), answers
        top = leat("top", "--once", job.state)
        assert "3 workers, incarnation 1, head " in top and " leads 127.0.0.1:" in top and top.count(" key groups ") == 3, top
        leat("ctl", "stop", job.state)
        job.ends(*workers)
        assert not job.summary()["finished"] and job.summary()["cluster"]["count"] == 3
        assert not glob.glob(f"{job.state}/**/CONTROL", recursive=True)


def test_a_page_whose_port_is_taken():
    """While a worker waits it has no page, and says so; once it has a part the port is free, and the page is there."""
    with Job() as job, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = job.start(2, f"--ui=127.0.0.1:{port}", failpoints=SLOW)
        job.says(first, "this worker has no page while it waits: cannot listen")
        job.says(first, "Address already in use")
        taken.close()
        second = job.start(2, failpoints=SLOW)
        job.says(first, f"figures at http://127.0.0.1:{port}/")
        job.ends(first, second)


def test_a_fault_of_any_thread():
    """Whichever thread of a worker has failed (a signal for it alone), the process says so before it ends."""
    number, threads = 0, None
    while threads is None or number < len(threads):
        with Job() as job:
            process = job.start(2)
            job.says(process, "waiting: 1 of 2")
            threads = sorted(map(int, os.listdir(f"/proc/{process.pid}/task")))
            ctypes.CDLL(None).syscall(TGKILL, process.pid, threads[min(number, len(threads) - 1)], signal.SIGSEGV)
            assert process.wait(timeout=PATIENCE_S) == -signal.SIGSEGV
            assert "ended by SIGSEGV. This is a bug" in job.text(process.log), (number, job.text(process.log))
        number += 1
    assert number >= 3, "the main thread, the keeper's and the links' at least"


def test_a_stop_by_control():
    """It is one of all workers, also of those that wait for a place, which would go on with the job otherwise."""
    with Job() as job:
        first = job.start(1, "--ui=127.0.0.1:0", failpoints="run.claimed=sleep:100")
        job.progress(1)
        waiting = job.start(1)
        job.says(waiting, "a place: 1 workers run the job")
        leat("ctl", "stop", job.state)
        job.ends(waiting, first)
        assert "incarnation" not in job.text(waiting.log) and not json.loads(job.text(f"{first.log}.out"))["finished"]


def newest_head_before(job, record):
    """The epoch of the newest head before this record of the impressions; None: there is none."""
    found = [(int(path.split("-")[-1]), re.search(r"source impressions +(\d+) records", leat("checkpoint", "show", path)))
             for path in glob.glob(f"{job.state}/cluster/heads/head-*")]
    return max((epoch for epoch, position in found if int(position[1]) <= record), default=None)


def test_trace():
    """A record of a job on three workers, with the reason why it became a dead letter, or where it went, as of a run that was alone; from the
    newest head before it. Dead letters and late rows are in their sinks (`is_as_plain` of test_cluster.py), and each worker names its own."""
    with Job(every="50ms") as job, Job() as plain:
        told = alone(plain)
        examples = told["dead_examples"]
        job.ends(*[job.start(3) for _ in range(3)])
        assert sinks(job.out) == cluster.PLAIN and job.summary()["dead_examples"] == examples
        record = int(re.findall(r"impressions.jsonl: record (\d+)", examples[-1])[0])
        job.out = plain.out  # where the sinks write is part of the job, and the trace writes nothing
        for number in (record, cluster.IMPRESSIONS - 10000):
            head = newest_head_before(job, number)
            assert (head is None) == (number == record), (number, head)
            words = ["impressions", f"{FOLDER.name}/data/impressions.jsonl:{number + 1}"]
            found, wanted = [json.loads(leat("trace", one.job, *[word for word in one.command() if word.startswith("--set=")],
                                             "--json", *words)) for one in (job, plain)]
            begun = {name: one.pop("checkpoint") for name, one in (("job", found), ("plain", wanted))}
            for one in (found, wanted):
                del one["records_read"], one["order"]
            assert found == wanted, {name: (value, wanted.get(name)) for name, value in found.items() if value != wanted.get(name)}
            assert begun["job"] == (head and f"1-{head}"), (begun, head)
        assert "integer division by zero" in leat("trace", job.job, *[word for word in job.command() if word.startswith("--set=")],
                                                  "impressions", f"{FOLDER.name}/data/impressions.jsonl:{record + 1}")


if __name__ == "__main__":
    sys.exit(cluster.main(globals()))
