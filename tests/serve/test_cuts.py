#!/usr/bin/env python3
"""A request sees one cut, and its answer names it. The weights of a model all hold the number of events that it has learned
from, so each part of an answer tells from which cut it came; four threads ask while cuts come, and each answer is checked.
So it is while the job is killed and runs again: each number was counted once.

    tests/serve/test_cuts.py PATH_OF_LEAT PATH_OF_ASK_CUTS [--requests N] [--kills N] [--seed N] [--only TEST]
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import Place  # noqa: E402
from server import Server, tensor  # noqa: E402
from test_follow import FOLLOWED, Trainer  # noqa: E402
from test_serve_faults import POINTS  # noqa: E402

ASK = os.path.abspath(sys.argv[2])
IDS = 48  # weights of each feature: each event has all of them
LINE = 512  # bytes of an event: a divisor of what is read at once, so that each micro-batch has the same number of events
THREADS, CONNECTIONS = 4, 4  # connections of each thread
SMALL, LARGE = 6, 2000  # rows of requests; large ones take several turns of the server
REQUESTS, LARGE_EACH = 512, 64
EACH = (2, 4, 8)  # events of a micro-batch, in one life of the job or another
START_MS, REQUEST_MS = 1_700_000_000_000, 1_800_000_000_000
ENDLESS = 2**63

# A label that is out of reach: with each event each weight that it has moves by `step_max`, which is 1.
JOB = f"""param data: text
param out: text
param state: text

job counted {{ workers: 1, memory: 128MiB, checkpoint: {{ every: EVERY, dir: state }} }}
source events = file {{
  path: concat(data, "/counted.jsonl"), event_time: ts, max_delay: 5s
  schema: {{ ts: time(ms), one: int, ids: list(int), others: list(int), x: float, label: float! }}
}}
stream examples = events | feature by one over [forever] every 1m including self {{ n: count() }}
learner model = linear from examples {{
  label: label, sparse: [ids, others], dense: [x], loss: squared, optimizer: sgd {{ rate: 1.0, step_max: 1.0 }}
}}
serve scores {{ from: model.predictions, request: events, deadline: 1m, queue: 1000000, publish: 1ms }}
sink all = null from model.predictions {{}}
"""


class Counted(Place):
    """A folder with the job and its events, and with requests of which each row should be answered alike."""

    def __init__(self, events, every="1h", rows=1):
        """rows: of the other streams."""
        super().__init__(JOB.replace("EVERY", every), rows)
        ids = list(range(IDS))
        rest = json.dumps({"one": 1, "ids": ids, "others": ids, "x": 1.0, "label": 1e9}, separators=(",", ":"))[1:]
        with open(self.path("counted.jsonl"), "w", encoding="ascii") as file:
            file.writelines(f'{{"ts":{START_MS + number},{rest}'.ljust(LINE - 1) + "\n" for number in range(events))
        with open(self.path("requests"), "wb") as file:
            rng = random.Random(5)
            for number in range(REQUESTS):
                rows = LARGE if number % LARGE_EACH == 0 else SMALL
                body = body_of(rng, rows)
                head = (f"POST /v2/models/scores/infer HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                        f"content-length: {len(body)}\r\n\r\n")
                request = head.encode() + body.encode()
                file.write(struct.pack("<II", len(request), rows) + request)


def body_of(rng, rows):
    """Each row has the bias and one more weight: of `ids`, of `others`, or the dense one. They stand in turn, so also behind
    each other in the batches of a large request."""
    lists = {name: [[rng.randrange(IDS)] if row % 3 == place else [] for row in range(rows)]
             for place, name in enumerate(("ids", "others"))}
    inputs = [tensor("ts", [REQUEST_MS]), tensor("one", [1]), tensor("x", [float(row % 3 == 2) for row in range(rows)])]
    for name, values in lists.items():
        flat = [element for value in values for element in value]
        inputs += [{"name": name, "shape": [len(flat)], "datatype": "INT64", "data": flat},
                   tensor(f"{name}.lengths", [len(value) for value in values])]
    return json.dumps({"inputs": inputs, "outputs": [{"name": "prediction"}, {"name": "n"}]}, separators=(",", ":"))


class Asking:
    """leat_ask_cuts, beside the rest."""

    def __init__(self, place, server, count=ENDLESS, name="moments"):
        self.began = time.monotonic()
        self.out = open(place.path(name), "w+", encoding="ascii")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen([ASK, str(server.port), place.path("requests"), str(THREADS), str(CONNECTIONS), str(count)],
                                        stdin=subprocess.PIPE, stdout=self.out, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.out.close()

    def is_over(self):
        return self.process.poll() is not None

    def moments(self):
        """Ends it. {(cut, features): (prediction, n)}, and the number of answers."""
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said[-2500:]
        self.seconds = time.monotonic() - self.began
        found, answers = {}, 0
        self.out.seek(0)
        for line in self.out:
            cut, features, prediction, n, count = line.split()
            key, values = (cut, int(features)), (float(prediction), int(n))
            assert found.setdefault(key, values) == values, f"two answers of {key} differ: {found[key]}, {values}"
            answers += int(count)
        return found, answers


class Life:
    """Of a job: before its micro-batch number m it has had first + each * m events."""

    def __init__(self, first, each):
        self.first, self.each = first, each

    def events(self, micro_batches):
        return self.first + self.each * micro_batches


def check_moments(moments, lives):
    """lives: by generation. Each answer's features have the events of the micro-batches below `features`. Its weights hold
    those up to the micro-batch that `cut` names, or those of the checkpoint. Returns how many cuts there were."""
    learned = {}
    for (cut, features), (prediction, n) in moments.items():
        life, what = lives[int(cut.split("-")[0])], f"cut {cut}, features {features}: prediction {prediction}, n {n}"
        assert n == life.events(features) + 1, f"{what}: the features have {life.events(features)} events"
        assert learned.setdefault(cut, prediction) == prediction, f"{what}: the cut had prediction {learned[cut]}"
        if "+" in cut:
            events = life.events(int(cut.split("+")[1]) + 1)  # that micro-batch is in it
            assert prediction == 2 * events, f"{what}: the cut has {events} events"
        else:
            events = prediction / 2
            assert life.first <= events <= life.events(features) and (events - life.first) % life.each == 0, what
    return sum("+" in cut for cut in learned)


def test_one_cut():
    with Counted(ARGUMENTS.events) as place, Server(place) as server, Trainer(place, workers=2, cut=4, pause_ms=5) as trainer:
        server.wait_for(FOLLOWED)
        with Asking(place, server, ARGUMENTS.requests) as asking:
            while not asking.is_over():
                assert trainer.process.poll() is None, "the job ended before the requests: give more --events"
                time.sleep(0.05)
            moments, answers = asking.moments()
        trainer.kill()
        cuts = check_moments(moments, {1: Life(0, 4)})
        print(f"# {answers} answers of {cuts} cuts and {len(moments)} moments in {asking.seconds:.0f} s; no mix")
        assert answers >= ARGUMENTS.requests and cuts > 50, (answers, cuts)


def newest(place):
    """Of the newest checkpoint: its generation, and its events by the features and by the weights, which are compared."""
    result = place.leat("score", "-", "--columns", "n,prediction", text=json.dumps({"ts": REQUEST_MS, "one": 1, "x": 1.0}) + "\n")
    assert result.returncode == 0, result.stderr[-900:]
    row, events = json.loads(result.stdout), json.loads(result.stdout)["n"] - 1
    assert row["prediction"] == 2 * events, row
    return int(re.search(r"^checkpoint (\d+)-", result.stderr, re.M)[1]), events


def newest_generation(place):
    return max((int(name[4:]) for name in os.listdir(place.path("state")) if re.fullmatch(r"gen-\d+", name)), default=0)


def wait_for(is_so, what):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def life_from(place, lives, rng):
    """Of a run that begins with the newest checkpoint. Its micro-batches are not the same as those before, and end where
    what is read at once does."""
    if not lives:
        return Life(0, rng.choice(EACH))
    generation, events = newest(place)
    before = lives[generation]
    micro_batches, rest = divmod(events - before.first, before.each)
    assert rest == 0, (events, before.first, before.each)
    each = rng.choice([each for each in EACH if events % each == 0])
    return Life(events - each * micro_batches, each)


def test_killed_trainer():
    """Killed at any moment, or in the middle of a checkpoint, and started again with other lanes. A micro-batch may have
    another number of events in the next life, so what the numbers beyond the last checkpoint stood for is decided anew."""
    rng = random.Random(ARGUMENTS.seed)
    lives, followed, asking = {}, 0, None
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Counted(2500 * ARGUMENTS.kills + 5000, every="300ms"))
        os.makedirs(place.path("state"))
        server = stack.enter_context(Server(place))
        for _ in range(ARGUMENTS.kills):
            life, before = life_from(place, lives, rng), newest_generation(place)
            point = f"{rng.choice(POINTS)}=kill@{rng.randrange(2, 5)}" if asking and rng.random() < 0.5 else ""
            with Trainer(place, workers=rng.choice((1, 2, 3)), cut=life.each, pause_ms=4, failpoints=point) as trainer:
                wait_for(lambda: newest_generation(place) > before, "the job does not begin")  # pylint: disable=cell-var-from-loop
                lives[newest_generation(place)] = life
                if asking is None:
                    server.ready()
                    asking = stack.enter_context(Asking(place, server))
                followed += lives_for(trainer, server, rng.uniform(0.2, 1.2))
        moments, answers = asking.moments()
        cuts = check_moments(moments, lives)
        print(f"# {len(lives)} lives, followed in {followed}: {answers} answers of {cuts} cuts and {len(moments)} moments; each "
              "event counted once")
        assert followed >= ARGUMENTS.kills // 3, (followed, server.said)
        assert cuts > 20, cuts


def lives_for(trainer, server, seconds):
    """Whether the job was followed until then, or until it killed itself."""
    deadline, was_followed = time.monotonic() + seconds, False
    while time.monotonic() < deadline and trainer.process.poll() is None:
        was_followed = server.client().metrics()['leat_follow_live{job="counted"}'] == 1
        time.sleep(0.02)
    assert trainer.process.poll() in (None, -signal.SIGKILL), f"the job ended by {trainer.process.returncode}, not by a kill"
    return was_followed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("leat")
    parser.add_argument("ask")
    parser.add_argument("--requests", type=lambda text: int(float(text)), default=250_000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="test_")
    ARGUMENTS = parser.parse_args()
    sys.exit(tap.run({name: test for name, test in globals().items() if name.startswith(ARGUMENTS.only)}))
