#!/usr/bin/env python3
"""The Kafka of the tests, and their rig, do what they say. Prints TAP."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import install
import rig
from instance import Instance, ask_metadata, process_start

HERE = os.path.dirname(os.path.abspath(__file__))
BROKER = [sys.executable, os.path.join(HERE, "broker.py")]


def test_records_come_back_as_they_were_sent():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-records", partitions=3)
    sent = kafka.produce(topic, rig.numbered(3000, partition=None))
    assert sum(map(len, sent.values())) == 3000 and len(sent) > 1, sent.keys()
    kafka.produce(topic, [{"key": b"gone", "value": None, "partition": 1, "timestamp": 1234,
                           "headers": [("a", b"1"), ("a", b""), ("b", None)]}])
    got = kafka.consume(topic)
    assert sorted(rig.numbers(r for r in got if r.value)) == list(range(3000))
    for record in got[:5]:
        assert record.timestamp == 1_700_000_000_000 + rig.numbers([record])[0], record
    by_key = {}
    for record in got:
        assert by_key.setdefault(record.key, record.partition) == record.partition, record
    tombstone = [r for r in got if r.value is None]
    assert [(r.partition, r.timestamp, r.key, r.headers) for r in tombstone] == [
        (1, 1234, b"gone", [("a", b"1"), ("a", b""), ("b", None)])], tombstone
    assert len(kafka.consume(topic, count=10)) >= 10
    assert kafka.consume(topic, start={1: tombstone[0].offset}) == tombstone


def test_keys_go_where_javas_client_puts_them():
    # Figures of org.apache.kafka.common.utils.Utils.murmur2, from its own test.
    kafka = rig.shared()
    topic = kafka.create_topic("rig-murmur", partitions=100)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
              b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}
    kafka.produce(topic, [{"key": key, "value": b""} for key in hashes])
    found = {r.key: r.partition for r in kafka.consume(topic)}
    assert found == {key: (number & 0x7FFFFFFF) % 100 for key, number in hashes.items()}, found


def test_kcat_reads_the_same():
    kafka = rig.shared()
    if shutil.which("kcat") is None:
        return
    topic = kafka.create_topic("rig-kcat")
    kafka.commit(topic, rig.numbered(100), "rig-kcat")
    result = subprocess.run(["kcat", "-q", "-C", "-e", "-b", kafka.brokers, "-t", topic, "-X",
                             "isolation.level=read_committed", "-f", "%o %k %s\\n"],
                            capture_output=True, text=True, timeout=30, check=False)
    expected = [f"{r.offset} {r.key.decode()} {r.value.decode()}" for r in kafka.consume(topic)]
    assert result.stdout.splitlines() == expected and len(expected) == 100, result


def test_topics_change():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-topic", partitions=2, max_message_bytes=5000)
    assert kafka.topic_config(topic)["max.message.bytes"] == "5000"
    kafka.alter_topic(topic, segment_bytes=2000000)
    rig.wait_for(lambda: kafka.topic_config(topic)["segment.bytes"] == "2000000", "another configuration")
    kafka.produce(topic, rig.numbered(10, partition=0))
    kafka.delete_records(topic, {0: 4})
    assert kafka.offsets(topic) == {0: (4, 10), 1: (0, 0)}, kafka.offsets(topic)
    assert rig.numbers(kafka.consume(topic)) == list(range(4, 10))
    kafka.add_partitions(topic, 5)
    assert kafka.partitions(topic) == [0, 1, 2, 3, 4]
    kafka.delete_topic(topic)
    assert topic not in kafka.topics()
    assert kafka.create_topic(topic, exact=True) == topic
    assert kafka.offsets(topic) == {0: (0, 0)}
    try:
        kafka.produce("rig-never-made", [{"value": b"x"}], message_timeout_ms=2000,
                      topic_metadata_propagation_max_ms=100)
    except rig.Failed as error:
        assert "UNKNOWN_TOPIC" in str(error), error
    else:
        raise AssertionError("a topic was made by a record")


def test_what_is_checked_once():
    def records(*ns):
        return [rig.Record(0, i, 0, b"k%d" % (n % 2), b'{"n":%d}' % n, []) for i, n in enumerate(ns)]

    rig.check_once(records(1, 0, 3, 2), range(4))
    for wrong, expected in (((0, 1, 2), "missing 1 [3], twice 0"), ((0, 1, 2, 3, 3), "twice 1 [3]"),
                            ((0, 1, 2, 3, 4), "foreign 1 [4]"), ((2, 1, 0, 3), "b'k0': 0 after 2")):
        try:
            rig.check_once(records(*wrong), range(4))
        except AssertionError as error:
            assert expected in str(error), error
            continue
        raise RuntimeError(f"accepted: {wrong}")


def test_groups_are_listed():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-group")
    name = topic + "-readers"
    consumer = kafka.consumer(group_id=name, auto_offset_reset="earliest")
    consumer.subscribe([topic])
    rig.wait_for(lambda: consumer.consume(1, 0.05) is not None and consumer.assignment(), "an assignment")
    assert name in kafka.groups()
    consumer.close()


def test_what_was_retained_too_long_is_gone():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-retention", segment_ms=100, retention_ms=200)
    kafka.produce(topic, rig.numbered(10, begin_ms=int(time.time() * 1000) - 60000))
    time.sleep(0.2)
    kafka.produce(topic, rig.numbered(1, first=10, begin_ms=int(time.time() * 1000)))  # rolls the segment
    rig.wait_for(lambda: kafka.offsets(topic)[0][0] >= 10, "old records to be deleted")


# --- transactions ---------------------------------------------------------------------------------------------------
def test_only_what_is_committed_is_read():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-transactions")
    producer = kafka.producer(topic)
    ends = []
    for n, is_committed in enumerate([True, False, True]):
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(100, first=n * 100), producer)
        ends.append((kafka.offsets(topic, read_committed=True)[0][1], kafka.offsets(topic)[0][1]))
        if is_committed:
            producer.commit_transaction(rig.PATIENCE_S)
        else:
            producer.abort_transaction(rig.PATIENCE_S)
    assert ends == [(0, 100), (101, 201), (202, 302)], ends  # an open transaction is beyond the last stable offset
    committed = list(range(100)) + list(range(200, 300))
    assert rig.numbers(kafka.consume(topic)) == committed
    assert rig.numbers(kafka.consume(topic, read_committed=False)) == list(range(300))
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(5, first=300), producer)
    kafka.produce(topic, rig.numbered(5, first=400))  # behind an open transaction
    assert rig.numbers(kafka.consume(topic, beside_open=True)) == committed
    try:
        kafka.consume(topic, seconds=0.5)
        raise RuntimeError("an open transaction was overlooked")
    except AssertionError as error:
        assert "stays open" in str(error), error
    producer.abort_transaction(rig.PATIENCE_S)
    assert rig.numbers(kafka.consume(topic)) == committed + list(range(400, 405))


def test_a_zombie_is_fenced():
    from confluent_kafka import KafkaError, KafkaException

    kafka = rig.shared()
    topic = kafka.create_topic("rig-zombie")
    zombie = kafka.producer(topic)
    zombie.begin_transaction()
    kafka.produce(topic, rig.numbered(10), zombie)
    successor = kafka.producer(topic)
    try:
        zombie.commit_transaction(rig.PATIENCE_S)
    except KafkaException as error:
        assert error.args[0].fatal() and error.args[0].code() == KafkaError._FENCED, error
    else:
        raise AssertionError("two producers of one transactional.id committed")
    successor.begin_transaction()
    kafka.produce(topic, rig.numbered(10, first=10), successor)
    successor.commit_transaction(rig.PATIENCE_S)
    assert rig.numbers(kafka.consume(topic)) == list(range(10, 20))


def test_a_transaction_that_takes_too_long_is_aborted():
    from confluent_kafka import KafkaException

    kafka = rig.shared()
    topic = kafka.create_topic("rig-timeout")
    producer = kafka.producer(topic, transaction_timeout_ms=2000, message_timeout_ms=1500)
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(10), producer)
    kafka.wait_stable(topic)
    try:
        producer.commit_transaction(rig.PATIENCE_S)
        raise AssertionError("an aborted transaction was committed")
    except KafkaException:
        pass
    assert kafka.consume(topic) == []


# --- the proxy ------------------------------------------------------------------------------------------------------
def commit_by(kafka, topic, first, **properties):
    """A transaction of ten records; the error of its commit, or None."""
    from confluent_kafka import KafkaException

    producer = kafka.producer(topic, **properties)
    producer.begin_transaction()
    kafka.produce(topic, rig.numbered(10, first=first), producer)
    try:
        producer.commit_transaction(1)
    except KafkaException as error:
        return error.args[0]
    return None


def test_clients_of_a_proxy_stay_with_it():
    from confluent_kafka.admin import AdminClient

    kafka = rig.shared()
    topic = kafka.create_topic("rig-proxy")
    with kafka.proxied() as one, kafka.proxied() as other:
        assert one.brokers != other.brokers
        through = {"bootstrap.servers": one.brokers}
        assert commit_by(kafka, topic, 0, **through) is None
        for api in ("Metadata", "FindCoordinator", "InitProducerId", "Produce", "EndTxn"):
            assert one.requests[api] > 0, one.requests
        assert not other.requests, other.requests
        client = AdminClient({**kafka.client(), **through})
        client.list_topics(timeout=rig.PATIENCE_S)
        for held in (lambda: one.delay(0.2), lambda: (one.delay(0), one.lose(1, 0.2))):
            held()
            begin = time.monotonic()
            client.list_topics(timeout=rig.PATIENCE_S)
            assert time.monotonic() - begin > 0.4, "nothing was held"
        one.lose(0.2, 0.1)
        kafka.produce(topic, rig.numbered(100, first=10), batch_num_messages=5, **through)
        one.lose(0, 0)
    assert rig.numbers(kafka.consume(topic)) == list(range(110))


def test_a_paused_proxy_holds_all_and_loses_nothing():
    from confluent_kafka import KafkaException

    kafka = rig.shared()
    topic = kafka.create_topic("rig-pause")
    with kafka.proxied() as through:
        producer = kafka.producer(topic, bootstrap_servers=through.brokers)
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(10), producer)
        through.pause()
        try:
            producer.commit_transaction(1)
            raise AssertionError("committed through a network that is down")
        except KafkaException as error:
            assert error.args[0].retriable(), error
        through.resume()
        producer.commit_transaction(rig.PATIENCE_S)
        through.refuse()
        producer.begin_transaction()
        producer.produce(topic, b'{"n":10}')
        assert producer.flush(1) == 1, "delivered through a network that is down"
        through.accept()
        assert producer.flush(rig.PATIENCE_S) == 0
        producer.commit_transaction(rig.PATIENCE_S)
    assert rig.numbers(kafka.consume(topic)) == list(range(11))


def test_a_commit_is_cut_where_the_test_says():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-cut")
    is_committed = {"request": False, "half": False, "answer": True, "half answer": True}
    for n, (place, expected) in enumerate(is_committed.items()):
        with kafka.proxied() as through:
            through.cut_at("EndTxn", place, times=1000)
            error = commit_by(kafka, topic, n * 10, bootstrap_servers=through.brokers)
            assert error is not None and through.cuts > 0, (place, error, through.cuts)
        kafka.producer(topic)  # aborts what is open
        found = set(rig.numbers(kafka.consume(topic)))
        assert (n * 10 in found) == expected, (place, found)
    with kafka.proxied() as through:  # a client that may try again
        through.cut_at("EndTxn", "answer")
        assert commit_by(kafka, topic, 40, bootstrap_servers=through.brokers) is None
        assert through.cuts == 1 and through.requests["EndTxn"] == 2, through.requests
    assert rig.numbers(kafka.consume(topic)) == list(range(20, 50))


# --- security -------------------------------------------------------------------------------------------------------
def why_refused(properties):
    """What the stock client says of a connection that does not come about; "" if it does."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    said = []
    client = AdminClient({**properties, "error_cb": lambda error: said.append(error.str())})
    for _ in range(50):
        try:
            client.list_topics(timeout=0.2)
            return ""
        except KafkaException:
            client.poll(0)
        if said:
            break
    return " ".join(said) or "nothing is said"


def test_who_may_comes_in():
    kafka = rig.shared()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert why_refused(kafka.client("SASL", mechanism=mechanism)) == ""
    assert why_refused(kafka.client("MTLS")) == ""
    bearer = kafka.client("SASL", mechanism="OAUTHBEARER")
    bearer["oauth_cb"] = lambda _: (rig.token("leat"), time.time() + 3600)
    assert why_refused({k: v for k, v in bearer.items() if not k.startswith(("sasl.user", "sasl.pass"))}) == ""


def test_who_may_not_is_refused():
    kafka = rig.shared()
    folder = kafka.certificates
    stranger = {"ssl.certificate.location": f"{folder}/stranger.pem", "ssl.key.location": f"{folder}/stranger.key"}
    no_certificate = {k: v for k, v in kafka.client("MTLS").items() if not k.startswith(("ssl.cert", "ssl.key"))}
    cases = [
        ("wrong password", kafka.client("SASL", password="wrong"), "Authentication failed"),
        ("expired", kafka.client("EXPIRED"), "verify failed"),
        ("other host", kafka.client("OTHERHOST"), "verify failed"),
        ("unknown authority", {**kafka.client("SASL"), "ssl.ca.location": f"{folder}/other-ca.pem"}, "verify failed"),
        ("no client certificate", no_certificate, "certificate"),
        ("stranger", {**kafka.client("MTLS"), **stranger}, "certificate"),
    ]
    for name, properties, expected in cases:
        why = why_refused(properties)
        assert expected in why, (name, why)
    # The stock client does not say why a certificate is bad; Python's TLS does.
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    for listener, expected in (("SASL", None), ("EXPIRED", "has expired"), ("OTHERHOST", "Hostname mismatch")):
        host, port = kafka.address(listener).split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            try:
                context.wrap_socket(connection, server_hostname=host).close()
                why = None
            except ssl.SSLCertVerificationError as error:
                why = error.verify_message
        assert (why is None) if expected is None else expected in (why or ""), (listener, why)


def test_rights_are_given_and_taken():
    kafka = rig.shared()
    topic = kafka.create_topic("rig-rights")
    guest = {"message_timeout_ms": 3000, **kafka.client("SASL", user="guest")}
    for expected in ("TOPIC_AUTHORIZATION_FAILED", None, "TOPIC_AUTHORIZATION_FAILED"):
        try:
            kafka.produce(topic, [{"value": b"x"}], **guest, enable_idempotence=False)
            found = None
        except rig.Failed as error:
            found = str(error)
        assert (found is None) if expected is None else expected in (found or ""), (expected, found)
        if expected:
            kafka.allow("guest", topic, "WRITE", "DESCRIBE")
        else:
            kafka.forbid("guest", topic, "WRITE", "DESCRIBE")
    assert len(kafka.consume(topic)) == 1


# --- brokers --------------------------------------------------------------------------------------------------------
def test_a_broker_is_killed_and_comes_back():
    with rig.own() as kafka:
        topic = kafka.create_topic("rig-kill")
        kafka.commit(topic, rig.numbered(1000), "rig-kill")
        kafka.kill()
        assert not kafka.instance.running()
        kafka.start()
        assert rig.numbers(kafka.consume(topic)) == list(range(1000))
        producer = kafka.producer("rig-kill")
        kafka.stop(1)
        kafka.start(1)
        producer.begin_transaction()
        kafka.produce(topic, rig.numbered(10, first=1000), producer)
        producer.commit_transaction(rig.PATIENCE_S)
        kafka.pause(1)
        try:
            ask_metadata(kafka.instance.ports[0][0])
            raise AssertionError("a stopped process answers")
        except OSError:
            pass
        kafka.resume(1)
        assert rig.numbers(kafka.consume(topic)) == list(range(1010))


def test_two_of_three_brokers_suffice():
    with rig.own(brokers=3) as kafka:
        topic = kafka.create_topic("rig-three", partitions=3)
        kafka.commit(topic, rig.numbered(1000), "rig-three")
        kafka.kill(2)
        assert [broker.number for broker in kafka.instance.running()] == [1, 3]
        kafka.commit(topic, rig.numbered(1000, first=1000), "rig-three")
        rig.check_once(kafka.consume(topic), range(2000))
        kafka.start(2)
        assert len(kafka.instance.running()) == 3


def test_no_process_of_others_is_ended():
    other = subprocess.Popen(["sleep", "60"])
    instance = Instance(f"own-others-{os.getpid()}")
    try:
        instance.create(1)
        broker = instance.broker(1)
        with open(f"/proc/{other.pid}/stat", encoding="utf-8") as file:
            start = file.read().split()[21]
        for text in (f"{other.pid} {start}\n", f"{other.pid} 1\n", "1 1\n", "nonsense", ""):
            with open(broker.pid_file, "w", encoding="utf-8") as file:
                file.write(text)
            assert broker.pid() is None, text
            assert instance.stop() == 0
        assert other.poll() is None
    finally:
        instance.reset()
        other.kill()
        other.wait()


def test_a_broker_ends_with_the_tests():
    endings = {}
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        command = ["sh", "-c", "echo $LEAT_KAFKA; " + ("exec sleep 60" if number else "exit 3")]
        endings[number] = subprocess.Popen([*BROKER, "during", *command], stdout=subprocess.PIPE, text=True,
                                           start_new_session=True)
    for number, during in endings.items():
        name = during.stdout.readline().strip()
        if number:
            pids = [broker.pid() for broker in Instance(name).brokers.values()]
            during.send_signal(number)
        assert during.wait(rig.PATIENCE_S) == (-number if number else 3), (number, during.returncode)
        during.stdout.close()
        if number:
            assert len(pids) == 1 and pids[0] is not None, pids
            rig.wait_for(lambda: process_start(pids[0]) is None, "the broker's end")
        left = os.path.exists(os.path.join(install.HOME, name))
        assert left == (number == signal.SIGKILL), name
        if left:
            os.killpg(during.pid, signal.SIGTERM)  # its command
            Instance(name).reset()


def test_without_java_all_is_skipped():
    code = ("import sys, install, broker; install.JAVA_VERSION_MIN = 999; sys.argv = ['broker.py', *sys.argv[1:]]; "
            "sys.exit(broker.main())")
    how = {"cwd": HERE, "capture_output": True, "text": True, "check": False}
    started = subprocess.run([sys.executable, "-c", code, "start"], **how)
    assert started.returncode == 77 and "skipped: no broker (no Java 999" in started.stdout, started
    test = "import sys, rig\ndef test_one(): raise AssertionError\nsys.exit(rig.run(globals()))"
    during = subprocess.run([sys.executable, "-c", code, "during", sys.executable, "-c", test], **how)
    assert during.returncode == 0 and "ok - test_one # SKIP no broker: no Java 999" in during.stdout, during


if __name__ == "__main__":
    sys.exit(rig.run(globals()))
