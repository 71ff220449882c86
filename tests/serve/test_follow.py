#!/usr/bin/env python3
"""`leat serve` beside a job that runs: between checkpoints its answers follow what the job publishes, through kills of
either; the job's output is that of a run that nobody follows.

    tests/serve/test_follow.py PATH_OF_LEAT [--cuda PATH_OF_DEVICE_LIBRARY] [--kills N] [--seed N] [--only TEST]
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import FAILED, LEAT, Place  # noqa: E402
from scores import compare  # noqa: E402
from server import Server, rows_of, tensors  # noqa: E402

COLUMNS = ["id", "ts", "user", "item", "price", "tags", "liked", "clicked"]
ROWS = 3000
FOLLOWED = r"is followed from checkpoint"
ENDED = r"no longer followed: the job has ended"


class Trainer:
    """A job that runs slowly: some milliseconds for each micro-batch, of one row. cut: of so many rows a partition; then
    learners publish by time."""

    def __init__(self, place, *words, workers=2, pause_ms=2, failpoints="", cut=1, **names):
        points = ",".join(filter(None, [failpoints, f"run.claimed=sleep:{pause_ms}" if pause_ms else ""]))
        self.process = subprocess.Popen(
            [LEAT, "run", "--quiet", "--workers", str(workers), *words, place.path("job.leat"), *place.settings(**names)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            env={**os.environ, "LEAT_TEST_CUT": str(cut), "LEAT_FAILPOINTS": points})

    def ends(self):
        """What it has said."""
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said[-900:]
        return said.decode()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def state_of(server, model, asked):
    """The answers, and what the server says of the moment that they are of."""
    status, answer = server.client().infer(model, tensors(asked, COLUMNS))
    assert status == 200, answer
    return rows_of(answer), answer["parameters"]


def model_of(job):
    return "steps" if job is jobs.FEATURES else "scores"


def check_followed(job, workers, cut=1, count=ROWS, pause_ms=2, while_live=lambda server: None):
    """Followed to its end, a job's answers are those of its last checkpoint. The server looks for checkpoints too rarely to
    see the last one before it is asked."""
    with Place(job, count) as place, Server(place, "--look-every", "1500") as server, \
            Trainer(place, workers=workers, cut=cut, pause_ms=pause_ms) as trainer:
        server.wait_for(FOLLOWED)
        while_live(server)
        asked = place.events[-60:]
        trainer.ends()
        server.wait_for(ENDED)
        rows, moment = state_of(server, model_of(job), asked)
        assert "+" in moment["cut"] or model_of(job) == "steps", moment
        assert int(moment["features"]) > count // cut // 4, moment
        assert "+" not in moment["cut"] or int(moment["cut"].split("+")[1]) + 1 == int(moment["features"]), moment
        compare(rows, place.score(asked))


def check_final(server, place):
    """The job has ended: in the end its last checkpoint answers."""
    final = place.score(place.events[-60:])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows, moment = state_of(server, "scores", place.events[-60:])
        try:
            compare(rows, final)
            return
        except AssertionError as differs:
            assert time.monotonic() < deadline, (differs, moment, server.said[-8:])
            time.sleep(0.05)


def test_features():
    check_followed(jobs.FEATURES, 2)


def test_fm():
    check_followed(jobs.learner("fm"), 1)


def test_every_learner():
    """Cuts have all that predictions read, whatever the learner and its optimizers keep of a row."""
    job, names = jobs.every_learner()
    for _ in range(4):  # the server may see the last checkpoint before it is asked
        with Place(job, 1000) as place, Server(place, "--look-every", "1500") as server, Trainer(place, pause_ms=5) as trainer:
            server.wait_for(FOLLOWED)
            asked = place.events[-60:]
            trainer.ends()
            server.wait_for(ENDED)
            answers = [state_of(server, name, asked) for name in names]
            if all("+" in moment["cut"] for _, moment in answers):
                for name, (rows, _) in zip(names, answers):
                    compare(rows, place.score(asked, "--serve", name))
                return
    raise AssertionError("no answer came from what was followed")


def test_deepfm_batch():
    check_followed(jobs.learner("deepfm-batch"), 3)


GPU = jobs.learner("deepfm-batch").replace("batch: 64,", "batch: 64, device: cuda(0),")


@contextlib.contextmanager
def gpu(**more):
    """Jobs that begin meanwhile find the model of a GPU."""
    names = {"LEAT_CUDA_LIBRARY": ARGUMENTS.cuda, **more}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def test_on_a_gpu():
    """Rows of a GPU's tables, put into the server's (test_device_cut compares them bit by bit): cuts are taken, and in the end
    its scores are those of the last checkpoint, by the last cut or by that checkpoint itself."""
    if ARGUMENTS.cuda is None:
        return "no model of a GPU was built"
    with gpu(), Place(GPU, 1500) as place, Server(place, "--look-every", "1500") as server, Trainer(place, cut=8) as trainer:
        server.wait_for(FOLLOWED)
        trainer.ends()
        server.wait_for(ENDED)
        rows, moment = state_of(server, "scores", place.events[-60:])
        assert "+" in moment["cut"], moment
        if int(moment["cut"].split("+")[1]) + 1 == int(moment["features"]):
            compare(rows, place.score(place.events[-60:]))
        check_final(server, place)
    return None


def test_a_gpu_that_fails():
    """The server goes on with what it has, and says how old it is; it follows the job's next life."""
    if ARGUMENTS.cuda is None:
        return "no model of a GPU was built"
    asked = [{"id": 1, "ts": 1, "user": 1, "item": "i1", "price": 1.0, "tags": [1], "liked": 0, "clicked": 0}]
    with Place(GPU.replace("every: 1h", "every: 200ms"), 1500) as place, Server(place) as server:
        with gpu(LEAT_CUDA_FAULT="700@2500"), Trainer(place, cut=8) as trainer:
            server.wait_for(FOLLOWED)
            _, said = trainer.process.communicate(timeout=PATIENCE_S)
            assert trainer.process.returncode == FAILED and b"cudaErrorIllegalAddress" in said, said[-900:]
        server.wait_for("no longer followed: ")
        before, moment = state_of(server, "scores", asked)
        time.sleep(0.3)
        while (after := state_of(server, "scores", asked))[1]["cut"] != moment["cut"]:  # a checkpoint that came meanwhile
            before, moment = after
            time.sleep(0.3)
        after, later = after
        assert before == after and int(later["staleness_ms"]) >= int(moment["staleness_ms"]) + 300, (moment, later)
        with gpu(), Trainer(place, cut=8) as trainer:
            trainer.ends()
        check_final(server, place)
    return None


def test_frozen_and_rejected():
    """A learner that stops learning, and examples whose numbers are not finite: the server goes on."""
    job = jobs.learner("linear-frozen").replace("dense: [price]", "dense: [price / (n - 2)]")
    assert "n - 2" in job
    rejected = []

    def while_live(server):
        rejected.append(server.client().metrics()['leat_follow_live{job="parity"}'])
    check_followed(job, 2, while_live=while_live)
    with Place(job, ROWS) as place:
        learner = [node for node in json.loads(place.leat("run", "--quiet", "--json").stdout)["nodes"] if node["tag"] == "learner"][0]
        assert learner["report"]["run"]["is_frozen"] == 1 and learner["report"]["run"]["rejected"] > 0, learner["report"]
    assert rejected == [1]


def test_labelled():
    check_followed(jobs.LABELLED, 2)


def test_many_rows_at_once():
    """Micro-batches of which each lane has rows."""
    check_followed(jobs.FEATURES, 3, cut=8, count=8000, pause_ms=8)


def test_rare_cuts():
    """What is in no cut yet makes answers stale, also when features are fresh; the last cut comes at the job's end."""
    def while_live(server):
        asked, ages = [{"id": 1, "ts": 1, "user": 1, "item": "i1", "price": 1.0, "tags": [1], "liked": 0, "clicked": 0}], []
        for _ in range(2):
            time.sleep(0.5)
            moment = state_of(server, "scores", asked)[1]
            assert "+" not in moment["cut"] or moment["cut"].endswith("+0"), moment
            ages.append(int(moment["staleness_ms"]))
        assert ages[0] >= 300 and ages[1] >= ages[0] + 300, ages
    job = jobs.learner("fm").replace("deadline: 1m", "deadline: 1m, publish: 1h")
    check_followed(job, 2, cut=8, count=8000, pause_ms=6, while_live=while_live)


def test_dear_cuts():
    """Where a cut takes long, learners are cut seldom: here 20 ms and more, so every second at most."""
    with Place(jobs.learner("fm"), 8000) as place, Server(place) as server, \
            Trainer(place, workers=1, cut=8, pause_ms=5, failpoints="log.write=sleep:20"):
        def figures():
            figures = server.client().metrics().items()
            return [sum(value for key, value in figures if key.startswith(f"leat_follow_{name}")) for name in ("cuts", "features")]
        server.wait_for(FOLLOWED)
        started, (cuts, features) = time.monotonic(), figures()
        time.sleep(2.5)
        later, passed = figures(), time.monotonic() - started
        assert later[1] > features + 10, (features, later)
        assert later[0] - cuts <= 2 + passed, (cuts, later)
        while figures()[0] == cuts:
            assert time.monotonic() - started < PATIENCE_S, (cuts, features, server.said)
            time.sleep(0.05)


def test_a_stall():
    """A single write of the log took 1.5 s: learners are not cut a hundred times as seldom from then on."""
    job = jobs.learner("fm").replace("deadline: 1m", "deadline: 1m, publish: 1ms")
    with Place(job, 2400) as place, Server(place) as server, \
            Trainer(place, workers=1, cut=8, pause_ms=40, failpoints="log.write=sleep:1500@30") as trainer:
        server.wait_for(FOLLOWED)
        while server.client().metrics()['leat_follow_cuts_total{job="parity"}'] < 60:
            assert trainer.process.poll() is None, server.said
            time.sleep(0.05)
        trainer.kill()


def test_joins_late():
    """The newest checkpoint is older than the log: the server waits for another."""
    job = jobs.FEATURES.replace("every: 1h", "every: 500ms, keep: { last: 1 }")
    with Place(job, ROWS) as place, Trainer(place, pause_ms=1) as trainer:
        time.sleep(0.9)
        with Server(place, "--look-every", "1500") as server:
            server.wait_for(FOLLOWED)
            trainer.ends()
            server.wait_for(ENDED)
            compare(state_of(server, "steps", place.events[-60:])[0], place.score(place.events[-60:]))


def test_output_is_the_same():
    """With two followers, of which one is killed, and without."""
    with Place(jobs.learner("ffm"), ROWS) as place:
        with Server(place) as server, Server(place) as other, Trainer(place) as trainer:
            server.wait_for(FOLLOWED)
            other.wait_for(FOLLOWED)
            other.kill()
            trainer.ends()
            server.wait_for(ENDED)
        with Trainer(place, pause_ms=0, state="alone", out="alone.jsonl") as trainer:
            trainer.ends()
        assert place.rows("out.jsonl") == place.rows("alone.jsonl")
        assert not os.path.exists(place.path("alone/log")), "a log that nobody follows"


def test_full_disk():
    """The job goes on without the log; when there is room again it is followed again."""
    with Place(jobs.FEATURES, ROWS) as place, Server(place) as server:
        with Trainer(place, failpoints="log.write=error:ENOSPC@900") as trainer:
            server.wait_for(FOLLOWED)
            server.wait_for("no longer followed: what follows is no longer in the log")
            said = trainer.ends()
            assert said.count("No space left on device; the job goes on") == 1, said
        with Trainer(place, pause_ms=0, state="alone", out="alone.jsonl") as trainer:
            trainer.ends()
        assert place.rows("out.jsonl") == place.rows("alone.jsonl")


def test_no_log():
    """Where no log can be, checkpoints are followed, and both say why."""
    with Place(jobs.learner("fm"), 300) as place:
        os.makedirs(place.path("state"))
        place.write("state/log", "a file")
        with Server(place) as server:
            server.wait_for("job parity is not followed between checkpoints: no file that says who follows can be made in")
            with Trainer(place, pause_ms=0) as trainer:
                trainer.ends()
            server.wait_for("answers from checkpoint")
            assert sum("is not followed between" in (line or "") for line in server.said) == 1, server.said


def test_two_learners():
    """Learners behind each other are cut at different times; answers are no older than that."""
    def while_live(server):
        asked = [{"id": 1, "ts": 1, "user": 1, "item": "i1", "price": 1.0, "tags": [1], "liked": 0, "clicked": 0}]
        ages = []
        for _ in range(6):
            time.sleep(0.2)
            ages.append(int(state_of(server, "scores", asked)[1]["staleness_ms"]))
        assert min(ages[2:]) < 500, ages
    job = jobs.learner("fm").replace("stream scores = model.predictions", """
stream scored = model.predictions | rename first = prediction
learner second = deepfm from scored { label: clicked, sparse: [user, item], dense: [first], hidden: [8],
                                      embedding: { dim: 4 } }
stream scores = second.predictions""")
    check_followed(job, 2, cut=8, count=8000, pause_ms=8, while_live=while_live)


def segments_of(place):
    """Names and sizes of the log's segments; the log goes on meanwhile, and drops its oldest part."""
    found = {}
    for entry in os.scandir(place.path("state/log")):
        with contextlib.suppress(FileNotFoundError):
            if entry.name.startswith("gen-"):
                found[entry.name] = entry.stat().st_size
    return found


def test_log_too_small():
    """A server that was stopped finds that what comes next has gone, begins again, and follows."""
    job = jobs.FEATURES.replace("every: 1h", "every: 1h, log: 512KiB")
    with Place(job, 40_000) as place, Server(place) as server, Trainer(place, pause_ms=1) as trainer:  # ends for no one
        server.wait_for(FOLLOWED)
        server.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(2):  # the server may have what it reads now open
            old = segments_of(place)
            while not old or old.keys() & segments_of(place).keys():
                assert time.monotonic() < deadline and trainer.process.poll() is None
                old = old or segments_of(place)
                time.sleep(0.02)
        server.process.send_signal(signal.SIGCONT)
        server.wait_for("no longer followed: what follows is no longer in the log")
        deadline = time.monotonic() + PATIENCE_S
        while sum(FOLLOWED in (line or "") for line in server.said) < 2:
            assert time.monotonic() < deadline and trainer.process.poll() is None, server.said
            time.sleep(0.02)
        assert sum(segments_of(place).values()) <= 512 * 1024 + 128 * 1024, segments_of(place)


def test_cold_rows():
    """Rows that the job moves to disk stay in the server's memory, so it begins again, from a checkpoint that has them on disk."""
    crosses = ", ".join(f"cross(id, {name})" for name in ("user", "item", "price", "liked"))
    job = jobs.learner("fm").replace("memory: 128MiB", "memory: 32MiB").replace(
        "sparse: [user, item, tags], dense: [price, n], embedding: { dim: 4, admit_after: 3 }",
        f"sparse: [id, user, item, {crosses}], embedding: {{ dim: 256 }}")
    with Place(job, 30000) as place, Server(place) as server, Trainer(place, pause_ms=1) as trainer:  # it is killed long before its end
        server.wait_for(FOLLOWED)
        server.wait_for(r"no longer followed: rows that are new since the checkpoint take \d+ MiB, more than the job's `memory`")
        deadline = time.monotonic() + PATIENCE_S
        while sum(FOLLOWED in (line or "") for line in server.said) < 2:
            assert time.monotonic() < deadline and trainer.process.poll() is None, server.said
            time.sleep(0.02)
        trainer.kill()


class Asking(threading.Thread):
    """Asks without a pause; what it was answered, by the moment that the answer is of."""

    def __init__(self, server, asked):
        super().__init__()
        self.client, self.request, self.is_over = server.client(), tensors(asked, COLUMNS), False
        self.failures, self.moments = [], {}
        self.start()

    def run(self):
        while not self.is_over:
            try:
                status, answer = self.client.infer("scores", self.request, ["prediction", "n"])
            except OSError as failure:
                self.failures.append(repr(failure))
                return
            if status == 200:
                moment = answer["parameters"]
                self.moments.setdefault((moment["cut"], moment["features"]), set()).add(str(answer["outputs"]))
            elif "has no checkpoint yet" not in answer.get("error", ""):
                self.failures.append((status, answer))

    def stop(self):
        self.is_over = True
        self.join(PATIENCE_S)
        assert not self.failures, (len(self.failures), self.failures[:3])


def test_killed_trainer():
    """Numbers beyond the last checkpoint are decided anew by the next life: the server begins again from a checkpoint. In
    the end it has what `leat score` has."""
    rng = random.Random(ARGUMENTS.seed)
    with Place(jobs.learner("fm"), max(ROWS, ROWS * ARGUMENTS.kills // 10)) as place, Server(place) as server:
        asking = Asking(server, place.events[-20:])
        followed = 0
        for kill in range(ARGUMENTS.kills):
            with Trainer(place, workers=rng.choice((1, 2, 3))) as trainer:
                deadline = time.monotonic() + rng.choice((0.3, 0.8, 1.2))
                while time.monotonic() < deadline and trainer.process.poll() is None:
                    time.sleep(0.02)
                followed += server.client().metrics()['leat_follow_live{job="parity"}'] == 1
        with Trainer(place, pause_ms=0) as trainer:
            trainer.ends()
        check_final(server, place)
        asking.stop()
        assert followed >= ARGUMENTS.kills // 3, (followed, server.said)
        live = [moment for moment in asking.moments if "+" in moment[0]]
        assert len(live) > 20, len(live)
        assert all(len(outputs) == 1 for outputs in asking.moments.values()), "two answers of one moment differ"


def test_all_in_one_step():
    """All that the job published, and its end, come at once: the answers say of which moment they are."""
    with Place(jobs.learner("linear"), 48) as place, Server(place, "--look-every", "600") as server, \
            Trainer(place, failpoints="ckpt.published=stop@1", cut=8, pause_ms=150) as trainer:
        server.wait_for("answers from checkpoint 1-1")
        server.process.send_signal(signal.SIGSTOP)
        trainer.process.send_signal(signal.SIGCONT)
        trainer.ends()
        shutil.rmtree(place.path("state/gen-000001"))  # a newer checkpoint would hide what was followed
        server.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE_S
        while "+" not in (moment := state_of(server, "scores", place.events[-5:])[1])["cut"]:
            assert time.monotonic() < deadline, (moment, server.said)
            time.sleep(0.02)
        assert int(moment["features"]) > 1, moment


# New rows in each micro-batch, faster than cuts may be written in a hundredth of the time.
GROWING = """param data: text
param out: text
param state: text
job growing { workers: 1, memory: 512MiB, checkpoint: { every: 1h, dir: state, log: 32MiB } }
source events = ctr { events: 400000, seed: 7, stream: labelled, event_time: ts }
stream examples = events | with a = hash(epoch_ms(ts)), b = epoch_ms(ts)
learner model = fm from examples { label: clicked, sparse: [a, b], embedding: { dim: 64 } }
serve scores { from: model.predictions, request: events, deadline: 1m }
sink all = null from model.predictions {}
"""


def test_cuts_of_much():
    """What has changed grows faster than the wait for it passes: cuts come before the log has no room for them."""
    with Place(GROWING, 1) as place, Server(place) as server, Trainer(place, workers=1, pause_ms=30, cut=1024) as trainer:
        server.wait_for(FOLLOWED)
        deadline = time.monotonic() + PATIENCE_S
        while server.client().metrics()['leat_follow_cuts_total{job="growing"}'] < 2:
            assert time.monotonic() < deadline and trainer.process.poll() is None, server.said
            time.sleep(0.02)
        trainer.kill()


def test_killed_server():
    """It joins a job that runs again and again."""
    with Place(jobs.learner("linear"), ROWS) as place, Trainer(place, pause_ms=3) as trainer:
        for _ in range(3):
            with Server(place) as server:
                server.wait_for(FOLLOWED)
                server.kill()
        assert trainer.process.poll() is None, "the job ended before the third server came"
        trainer.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("leat")
    parser.add_argument("--cuda", type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="test_")
    ARGUMENTS = parser.parse_args()
    sys.exit(tap.run({name: test for name, test in globals().items() if name.startswith(ARGUMENTS.only)}))
