#!/usr/bin/env python3
"""The log of what was served, in a topic: the lines of a log in files, each at most once, and all of them counted, through
brokers that go and come back, topics that are missing, logins and kills; `leat skew` reads a recording of the topic.

    tests/kafka/test_served.py PATH_OF_LEAT
"""

import collections
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "serve"))
import jobs  # noqa: E402
import rig  # noqa: E402
import settings  # noqa: E402
import stream  # noqa: E402
import test_source as sources  # noqa: E402
from place import FAILED, LEAT, ROWS, Place, time_text  # noqa: E402
from server import Server, tensor, tensors  # noqa: E402

COLUMNS = ["id", "ts", "user", "item", "price", "tags", "liked", "clicked"]
LOG = 'leat_serve_log_lines_total{model="scores",outcome="%s"}'
WAITING = 'leat_serve_log_lines_waiting{model="scores"}'
GONE_SECONDS = 11  # longer than a line waits for brokers (connectors/kafka/line_log.c)
SERVE = "serve scores { from: scores, request: events, deadline: 1m }"


class Logged(Place):
    """A place whose job logs to a topic, and a checkpoint at half of its events."""

    def __init__(self, kafka, topic, more="", brokers=None):
        super().__init__(jobs.learner("linear"))
        self.job(f'log: {{ topic: "{topic}", brokers: "{brokers or kafka.brokers}" {more} }}')
        self.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 2), out="all.jsonl")

    def job(self, log, more=""):
        """Writes it with that log; more: other declarations."""
        served = SERVE if log is None else SERVE.replace(" }", f", {log} }}")
        text = jobs.learner("linear")
        assert SERVE in text
        self.write("job.leat", text.replace(SERVE, served + more))


def ask(client, ids, model="scores"):
    """A request of one row for each id."""
    for name in ids:
        status, answer = client.infer(model, [tensor("user", [7])], id=str(name))
        assert status == 200, answer


def counts(client):
    """(written, lost)"""
    metrics = client.metrics()
    return int(metrics[LOG % "written"]), int(metrics[LOG % "lost"])


def wait_settled(client, lines):
    """Waits until so many lines are written or lost; (written, lost)."""
    rig.wait_for(lambda: sum(counts(client)) >= lines, f"{lines} lines written or lost")
    found = counts(client)
    assert sum(found) == lines, (found, lines)
    return found


def lines_in(kafka, topic):
    return [json.loads(record.value, parse_float=str) for record in kafka.consume(topic)]


def check_ids(found, asked, least):
    """No id twice, none that was not asked; at least so many."""
    ids = collections.Counter(line["_id"] for line in found)
    twice = [name for name, times in ids.items() if times > 1]
    assert not twice, f"twice: {twice[:5]}"
    assert set(ids) <= set(map(str, asked)), sorted(set(ids) - set(map(str, asked)))[:5]
    assert len(ids) >= least, (len(ids), least)


def test_lines_are_those_of_files():
    """The same requests to two models of one way, of which one logs to files; `leat skew` finds the same in both."""
    kafka = rig.shared()
    topic = kafka.create_topic("served", partitions=3)
    with Logged(kafka, topic) as place:
        plain = SERVE.replace("serve scores", "serve files").replace(" }", f', log: {{ path: "{place.path("log/served")}" }} }}')
        place.job(f'log: {{ topic: "{topic}", brokers: "{kafka.brokers}" }}', "\n" + plain)
        asked = place.events[-240:]
        with Server(place).ready() as server:
            client = server.client()
            for n in range(0, len(asked), 8):
                for model in ("scores", "files"):
                    status, answer = client.infer(model, tensors(asked[n:n + 8], COLUMNS), id=f"r{n}")
                    assert status == 200, answer
        records = kafka.consume(topic)
        lines = []
        for path in sorted(glob.glob(place.path("log/served-*.jsonl"))):
            with open(path, encoding="utf-8") as file:
                lines += file.read().splitlines()

        def plain_line(text):
            assert "\n" not in text
            return re.sub(r'"_time":"[^"]*"', "", text)

        assert len(lines) > 200, len(lines)
        assert sorted(map(plain_line, lines)) == sorted(plain_line(record.value.decode()) for record in records)
        assert all(record.key is None and not record.headers for record in records)
        check_skew(kafka, topic, place, len(lines))


def check_skew(kafka, topic, place, lines):
    place.run(out="all.jsonl")
    recorded = subprocess.run([LEAT, "record", topic, "--brokers", kafka.brokers, "--to", place.path("rec"), "--until",
                               "latest", "--quiet"], capture_output=True, text=True, timeout=rig.PATIENCE_S, check=False)
    assert recorded.returncode == 0, recorded.stderr
    found = []
    for served in (place.path("rec"), place.path("log/served-*.jsonl")):
        skew = place.leat("skew", served, place.path("all.jsonl"), "--on", "id", "--serve", "scores", "--json")
        assert skew.returncode == 0, skew.stderr
        found.append(json.loads(skew.stdout))
    by_topic, by_files = found
    assert by_topic["served"] == by_files["served"] == lines and by_topic["served_left_out"] == 0, found
    assert by_topic["matched"] == by_files["matched"] > lines * 0.8, found
    for one, other in zip(by_topic["columns"], by_files["columns"]):
        assert one == other, (one, other)
    assert sum(column["equal"] for column in by_topic["columns"]) > lines, by_topic


def test_no_part_of_the_job():
    """The log changes neither the plan nor the fingerprint, and a job goes on from its checkpoint with another log."""
    kafka = rig.shared()
    with Logged(kafka, "any") as place:
        said = []
        for log in (None, f'log: {{ path: "{place.path("log/served")}" }}',
                    f'log: {{ topic: "any", brokers: "{kafka.brokers}", sample: 0.5, properties: {{ linger_ms: 1 }} }}'):
            place.job(log)
            explained = place.leat("explain")
            assert explained.returncode == 0 and "fingerprint" in explained.stdout, explained.stderr
            said.append(explained.stdout)
        assert said[0] == said[1] == said[2], said
        place.run(out="all.jsonl")


def test_sample():
    kafka = rig.shared()
    topic = kafka.create_topic("served-sample")
    with Logged(kafka, topic, ", sample: 0.3") as place:
        with Server(place).ready() as server:
            client = server.client()
            ask(client, range(300))
            time.sleep(0.5)
            written, lost = counts(client)
        found = lines_in(kafka, topic)
        assert 60 <= len(found) <= 120 and lost == 0 and written <= len(found), (len(found), written, lost)
        check_ids(found, range(300), 60)


def test_the_end_waits():
    """What was asked just before the server ends is in the topic."""
    kafka = rig.shared()
    topic = kafka.create_topic("served-end")
    with Logged(kafka, topic) as place:
        with Server(place).ready() as server:
            ask(server.client(), range(50))
        check_ids(lines_in(kafka, topic), range(50), 50)
        assert not any(line and "lost" in line for line in server.said), server.said


class Asking:
    """A client that asks one row after another until it is stopped; a request's id is its number."""

    def __init__(self, client, first=0, pause=0.002):
        self.client, self.next, self.pause, self.must_stop, self.error = client, first, pause, False, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.must_stop:
                ask(self.client, [self.next])
                self.next += 1
                time.sleep(self.pause)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def stop(self):
        self.must_stop = True
        self.thread.join()

    def stop_well(self):
        """The number of requests, all answered."""
        self.stop()
        assert self.error is None, repr(self.error)
        return self.next


def test_brokers_go_and_come_back():
    """Scoring goes on while the broker is killed for a moment, and stopped for longer than lines wait for it."""
    with rig.own() as kafka:
        topic = kafka.create_topic("served-brokers", partitions=2)
        with Logged(kafka, topic) as place, Server(place).ready() as server:
            client = server.client()
            asking = Asking(server.client())
            rig.wait_for(lambda: counts(client)[0] > 100, "lines written")
            kafka.kill()
            time.sleep(1)
            kafka.start()
            before = counts(client)[0]
            rig.wait_for(lambda: counts(client)[0] > before + 100, "lines written after a kill")
            kafka.stop()
            time.sleep(GONE_SECONDS)
            said = server.wait_for(rf"leat: the log of model scores: (\d+) lines are lost so far: cannot write to topic "
                                   rf"`{topic}` at {kafka.brokers}: \w.*; \w")
            assert int(said.group(1)) > 0
            kafka.start()
            before = counts(client)[0]
            rig.wait_for(lambda: counts(client)[0] > before + 100, "lines written after a stop")
            asked = asking.stop_well()
            written, lost = wait_settled(client, asked)
            assert lost > 0, (written, lost)
            answered = client.metrics()['leat_serve_requests_total{model="scores",outcome="answered"}']
            assert answered == asked, (answered, asked)
            found = lines_in(kafka, topic)
            check_ids(found, range(asked), written)
            assert len(found) <= asked
            print(f"# {asked} lines: {written} written, {lost} lost, {len(found)} in the topic")


def test_lost_answers():
    """Connections break while lines are on their way: the brokers may have a line that counts as lost, never twice."""
    kafka = rig.shared()
    topic = kafka.create_topic("served-answers")
    with kafka.proxied() as proxied, Logged(kafka, topic, brokers=proxied.brokers) as place, Server(place).ready() as server:
        client = server.client()
        asking = Asking(server.client())
        for cuts, where in enumerate(("request", "half", "answer", "answer")):
            written = counts(client)[0]
            rig.wait_for(lambda: counts(client)[0] > written + 50, "lines written")
            proxied.cut_at("Produce", where)
            rig.wait_for(lambda: proxied.cuts > cuts, f"a connection cut at the {where}")
        asked = asking.stop_well()
        written, lost = wait_settled(client, asked)
        found = lines_in(kafka, topic)
        check_ids(found, range(asked), written)
        assert lost > 0 and proxied.cuts == 4 and written < len(found) < written + lost, (proxied.cuts, written, len(found), lost)


def test_a_missing_topic():
    kafka = rig.shared()
    name = f"served-missing-{os.getpid()}"
    with Logged(kafka, name) as place, Server(place).ready() as server:
        client = server.client()
        ask(client, range(20))
        server.wait_for(rf"the log of model scores: 20 lines are lost so far: cannot write to topic `{name}` at "
                        rf"{kafka.brokers}: the topic does not exist; create the topic, or correct `topic`")
        assert counts(client) == (0, 20)
        kafka.create_topic(name, exact=True)
        asked, deadline = 20, time.monotonic() + rig.PATIENCE_S
        while counts(client)[0] == 0:  # once the client of Kafka has asked again
            assert time.monotonic() < deadline, counts(client)
            ask(client, [asked])
            asked += 1
            time.sleep(0.1)
        written, _ = wait_settled(client, asked)
        check_ids(lines_in(kafka, name), range(20, asked), written)


def test_a_line_too_long():
    kafka = rig.shared()
    topic = kafka.create_topic("served-long")
    with Logged(kafka, topic, ", properties: { message_max_bytes: 1000 }") as place, Server(place).ready() as server:
        client = server.client()
        ask(client, range(3))
        assert client.infer("scores", [tensor("user", [7]), tensor("item", ["x" * 2000])], id="3")[0] == 200
        ask(client, range(4, 6))
        server.wait_for("1 lines are lost so far: .*Message size too large; raise the topic's `max.message.bytes`")
        assert wait_settled(client, 6) == (5, 1) and client.metrics()[WAITING] == 0
        check_ids(lines_in(kafka, topic), (0, 1, 2, 4, 5), 5)


def test_a_compacted_topic():
    """It refuses records without keys; once it is no longer compacted, lines go on."""
    kafka = rig.shared()
    topic = kafka.create_topic("served-compacted", cleanup_policy="compact")
    with Logged(kafka, topic) as place, Server(place).ready() as server:
        client = server.client()
        ask(client, range(3))
        server.wait_for("3 lines are lost so far: .*; lines have no keys, which a compacted topic refuses: set its "
                        "`cleanup.policy` to `delete`")
        kafka.alter_topic(topic, cleanup_policy="delete")
        asked = 3
        while counts(client)[0] == 0:  # a broker may hear of the new setting behind its answer: lines are lost until then
            assert asked < 3 + 10 * rig.PATIENCE_S, counts(client)
            ask(client, [asked])
            asked += 1
            wait_settled(client, asked)
            time.sleep(0.1)
        taken = asked - 1  # the first line that the topic took
        ask(client, range(asked, asked + 3))
        assert wait_settled(client, asked + 3) == (4, taken)
        check_ids(lines_in(kafka, topic), range(taken, asked + 3), 4)


def test_no_broker_at_all():
    """The server begins, answers, and ends soon; at its end it says what was lost."""
    kafka = rig.shared()
    with Logged(kafka, "served", brokers="127.0.0.1:1") as place:
        with Server(place).ready() as server:
            client = server.client()
            ask(client, range(30))
            assert counts(client) == (0, 0) and client.metrics()[WAITING] == 30
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.wait_for(r"the log of model scores: 30 lines are lost so far: cannot write to topic `served` at 127\.0\.0\.1:1: "
                            r".*no process listens at this port .*; start the broker, or correct `brokers`")
            assert server.process.wait(rig.PATIENCE_S) == 0
            assert time.monotonic() - begin < rig.stretched(6)


def test_kills():
    """No line is there twice, whatever a killed server had sent; those that counted as written are there."""
    kafka = rig.shared()
    topic = kafka.create_topic("served-kills", partitions=2)
    with Logged(kafka, topic) as place:
        first = written = 0
        for _ in range(4):
            with Server(place).ready() as server:
                client = server.client()
                asking = Asking(server.client(), first, pause=0)
                rig.wait_for(lambda: counts(client)[0] > 200, "lines written")
                written += counts(client)[0]
                server.kill()
                asking.stop()
                first = asking.next + 1
        check_ids(lines_in(kafka, topic), range(first), written)


def test_logins():
    """TLS and a login, by the options of the connectors; a wrong password is said, and nobody waits."""
    kafka = rig.shared()
    topic = kafka.create_topic("served-login")
    security = f"security: {{ {sources.login(kafka)} }}"
    os.environ["LEAT_TEST_PASSWORD"] = "unused"  # by what does not log in
    with Logged(kafka, topic, ", " + security, kafka.address("SASL")) as place:
        with sources.newer_library(settings.USERS["leat"]) as newer, Server(place, env=newer).ready() as server:
            ask(server.client(), range(40))
        check_ids(lines_in(kafka, topic), range(40), 40)
        with sources.newer_library("not-the-password") as newer, Server(place, env=newer).ready() as server:
            client = server.client()
            ask(client, range(40, 60))
            server.wait_for(r"20 lines are lost so far: cannot write to topic .*the password is wrong.*; correct `user` and `password`")
            assert counts(client) == (0, 20)
        assert not any("not-the-password" in line for line in server.said if line), server.said
        assert len(lines_in(kafka, topic)) == 40
        place.job(f'log: {{ topic: "{topic}", brokers: "{kafka.address("SASL")}", {security.replace("ca.pem", "none.pem")} }}')
        refused = place.leat("serve")
        assert refused.returncode == FAILED and "none.pem` of `security` cannot be read" in refused.stderr, refused.stderr


if __name__ == "__main__":
    sys.exit(rig.run(globals(), threads=2))
