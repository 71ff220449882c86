"""What the Kafka tests stand on: a broker, topics, records in and out by a stock client, faults.

    import rig
    def test_something():
        kafka = rig.shared()                  # one secure broker for all tests: make topics, harm nothing
        topic = kafka.create_topic("clicks", partitions=3)
        kafka.produce(topic, rig.numbered(1000))
        assert [r.value for r in kafka.consume(topic)] == ...
    def test_of_a_fault():
        with rig.own(brokers=3) as kafka:     # 1.5 to 4 s; to be stopped, killed, paused by number
            kafka.kill(2)
    if __name__ == "__main__":
        sys.exit(rig.run(globals()))

`./dev test` gives the broker by LEAT_KAFKA (broker.py during); a test that is run by hand starts one.
LEAT_KAFKA=dev takes that of `./dev kafka start --secure`.

The stock client is confluent-kafka's wheel: it carries a librdkafka of its own, far newer than Debian's, which leat
uses, so that one's faults are not the other's; it is imported in 0.1 s, where Java's tools take 1.5 s a call, and does
all that is needed. kcat has Debian's librdkafka; for looking at topics by hand."""

import base64
import collections
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import certificates  # noqa: E402
import install  # noqa: E402
import proxy  # noqa: E402
import settings  # noqa: E402
import tap  # noqa: E402
from instance import Failed, Instance  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402,F401

QUIET = {"log_level": 0, "socket.timeout.ms": 30000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}

Record = collections.namedtuple("Record", "partition offset timestamp key value headers")

_names = itertools.count(1)
_shared = []


def run(module, threads=1):
    """As tap.run, with a broker; where there can be none, each test is skipped. Brokers that a thread starts end with it,
    which is when the last test has ended."""
    try:
        shared()
    except install.Missing as error:
        print(f"skipped: no broker ({error})")
        for name in module:
            if name.startswith("test_"):
                print(f"ok - {name} # SKIP no broker: {error}")
        return 0
    try:
        return tap.run(module, threads)
    finally:
        while _shared:
            _shared.pop().close()


def shared():
    """The Cluster of one broker, with security, that all tests of a run use. Not to be stopped or killed."""
    if _shared:
        return _shared[0]
    name, why = os.environ.get("LEAT_KAFKA", ""), os.environ.get("LEAT_KAFKA_WHY", "")
    if name == "none":
        raise install.Missing(why)
    if name == "failed":
        raise Failed(f"the broker did not start: {why}")
    if name:
        cluster = Cluster(Instance(name))
        if not cluster.instance.running() or not cluster.instance.is_secure:
            raise Failed(f"LEAT_KAFKA={name}: no broker with security runs there")
    else:
        cluster = own(1, is_secure=True)
    _shared.append(cluster)
    return cluster


def own(brokers=1, is_secure=False, is_large=False):
    """A Cluster that only the caller has; close() it, or use `with`. It dies with this process. is_large: to measure
    with."""
    instance = Instance(f"own-{next(_names)}-{os.getpid()}")
    try:
        instance.start(brokers, is_secure, is_large, dies_with_us=True)
    except BaseException:
        instance.reset()
        raise
    return Cluster(instance, is_own=True)


def numbered(count, first=0, keys=10, partition=None, begin_ms=1_700_000_000_000, **more):
    """Records {"n": first, "key": ...}, ... with keys k0, k1, ... in turn, and a millisecond between them."""
    for n in range(first, first + count):
        value = {"n": n, "key": f"k{n % keys}", "ts": begin_ms + n, **more}
        yield {"key": f"k{n % keys}".encode(), "value": json.dumps(value, separators=(",", ":")).encode(),
               "timestamp": begin_ms + n, "partition": partition}


def numbers(records):
    """The n of each record that numbered() made."""
    return [json.loads(record.value)["n"] for record in records]


def check_once(records, expected):
    """Asserts that each n of expected is there once, and none else, those of a key in their order."""
    found = numbers(records)
    counts = collections.Counter(found)
    missing, foreign = sorted(set(expected) - set(counts)), sorted(set(counts) - set(expected))
    twice = sorted(n for n, times in counts.items() if times > 1)
    assert not missing and not foreign and not twice, (
        f"missing {len(missing)} {missing[:5]}, twice {len(twice)} {twice[:5]}, foreign {len(foreign)} {foreign[:5]}")
    last = {}
    for record, n in zip(records, found):
        assert n > last.get(record.key, -1), f"{record.key}: {n} after {last[record.key]}"
        last[record.key] = n


def wait_for(condition, what, seconds=PATIENCE_S):
    """Waits until the condition gives something true, which is returned. what: a text, or a function that gives one."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def interrupt(process):
    """Ctrl-C, as soon as the process handles SIGINT: a signal before then ends the process without its summary."""
    def handles():
        if process.poll() is not None:
            return True
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"^SigCgt:\s*(\w+)", status.read(), re.M).group(1), 16) >> (signal.SIGINT - 1) & 1

    wait_for(handles, "a handler of SIGINT")
    process.send_signal(signal.SIGINT)


def token(user, seconds=3600):
    """An unsigned token for the SASL listener's OAUTHBEARER."""
    now = int(time.time())
    parts = [{"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds}]
    return ".".join([base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts] + [""])


class Cluster:
    """A Kafka, and what a test does with it."""

    def __init__(self, instance, is_own=False):
        self.instance, self.is_own, self.proxies = instance, is_own, []
        self.certificates = certificates.FOLDER
        self.admins, self.retired, self.made_at, self.making = {}, [], 0, threading.Lock()
        install.packages()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for one in self.proxies:
            one.close()
        self.proxies = []
        if self.is_own:
            self.instance.reset()

    # --- where it is --------------------------------------------------------------------------------------------
    @property
    def brokers(self):
        """What a job's `brokers` says: the plain listeners."""
        return self.instance.address()

    def address(self, listener):
        """Of a listener in settings.LISTENERS."""
        return self.instance.address(listener)

    def client(self, listener="PLAIN", user="leat", password=None, mechanism="SCRAM-SHA-256"):
        """The properties with which a stock client connects."""
        common = {**QUIET, "bootstrap.servers": self.address(listener)}
        if listener == "PLAIN":
            return common
        common.update({"security.protocol": "ssl", "ssl.ca.location": f"{self.certificates}/ca.pem"})
        if listener == "SASL":
            common.update({"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism, "sasl.username": user,
                           "sasl.password": password or settings.USERS[user]})
        if listener == "MTLS":
            common.update({"ssl.certificate.location": f"{self.certificates}/client.pem",
                           "ssl.key.location": f"{self.certificates}/client.key"})
        return common

    def admin(self, number=None):
        """An AdminClient, of the cluster or of one broker."""
        from confluent_kafka.admin import AdminClient

        with self.making:
            if number not in self.admins:
                self.made_at = time.monotonic()
                self.admins[number] = AdminClient({**QUIET, "bootstrap.servers": self.instance.address("PLAIN", number)})
            return self.admins[number]

    def renew_admin(self):
        """A new one for the cluster, where the one there is is some seconds old. That stays: others may wait for its
        answers."""
        with self.making:
            if time.monotonic() - self.made_at > 5 and None in self.admins:
                self.retired.append(self.admins.pop(None))

    # --- brokers; only of one's own cluster ---------------------------------------------------------------------
    def own_instance(self):
        assert self.is_own, "this broker is for all tests: use rig.own()"
        return self.instance

    def stop(self, number=None):
        self.own_instance().stop(number)

    def kill(self, number=None):
        self.own_instance().kill(number)

    def start(self, number=None):
        """Returns when it answers."""
        instance = self.own_instance()
        if number is not None:
            instance.start_one(number)
        else:
            instance.start(len(instance.brokers), instance.is_secure, dies_with_us=True)

    def pause(self, number):
        """SIGSTOP: connections stay, nothing is answered."""
        self.own_instance().pause(number)

    def resume(self, number):
        self.own_instance().resume(number)

    def proxied(self):
        """A ProxiedCluster: its `brokers` lead through a proxy before each broker. close() or `with`."""
        for i in range(settings.PROXIES):
            try:
                one = ProxiedCluster(self, i)
            except OSError:
                continue  # another test has these
            self.proxies.append(one)
            return one
        raise Failed(f"{settings.PROXIES} tests use proxies before this broker already")

    def tls_proxied(self):
        """Likewise, before listeners of TLS; one test at a time."""
        one = ProxiedCluster(self, 0, proxy.TlsProxy, settings.TLS_PROXY_BOUND, settings.TLS_PROXY_ADVERTISED)
        self.proxies.append(one)
        return one

    # --- topics -------------------------------------------------------------------------------------------------
    def create_topic(self, name, partitions=1, copies=None, exact=False, **configs):
        """Makes a topic, for this test alone unless exact: a number is added to the name, which is returned when
        every broker knows the topic. configs: as of Kafka, with _ for the dots."""
        from confluent_kafka.admin import NewTopic

        if not exact:
            name = f"{name}-{os.getpid()}-{next(_names)}"
        copies = copies or (3 if len(self.instance.brokers) >= 3 else 1)
        new = NewTopic(name, num_partitions=partitions, replication_factor=copies,
                       config={key: str(value) for key, value in dotted(configs).items()})
        settle(self.admin().create_topics([new], operation_timeout=PATIENCE_S))
        for broker in self.instance.running():
            wait_for(lambda b=broker: self.leaders(name, b.number) == partitions, f"a leader of {name}'s partitions")
        self.offsets(name)  # the leaders know that they lead
        return name

    def leaders(self, topic, number=None):
        """How many partitions of the topic have one."""
        found = self.admin(number).list_topics(topic, timeout=PATIENCE_S).topics.get(topic)
        return sum(p.leader >= 0 for p in found.partitions.values()) if found and not found.error else 0

    def delete_topic(self, *names):
        """Returns when no broker knows it."""
        settle(self.admin().delete_topics(list(names), operation_timeout=PATIENCE_S))
        for broker in self.instance.running():
            wait_for(lambda b=broker: not set(names) & set(self.topics(b.number)), f"{names} gone")

    def topics(self, number=None):
        """All names but those of Kafka itself."""
        found = self.admin(number).list_topics(timeout=PATIENCE_S).topics
        return sorted(name for name in found if not name.startswith("__"))

    def partitions(self, topic):
        return sorted(self.admin().list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)

    def add_partitions(self, topic, total):
        """Returns when there are so many."""
        from confluent_kafka.admin import NewPartitions

        settle(self.admin().create_partitions([NewPartitions(topic, total)]))
        wait_for(lambda: self.leaders(topic) == total, f"{total} partitions of {topic}")

    def alter_topic(self, topic, **configs):
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
                   for name, value in dotted(configs).items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        settle(self.admin().incremental_alter_configs([resource]))

    def topic_config(self, topic):
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in settle(self.admin().describe_configs([resource]))[0].items()}

    def offsets(self, topic, read_committed=False):
        """{partition: (begin, end)}; read_committed: the end before which no transaction is open."""
        from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        partitions, refusals = [], collections.Counter()

        def ask(spec):
            partitions[:] = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
            if not partitions:
                return None  # the broker that was asked does not know the topic yet
            try:
                found = self.admin().list_offsets({p: spec for p in partitions}, isolation_level=isolation)
                return {p.partition: future.result(PATIENCE_S).offset for p, future in found.items()}
            except KafkaException as error:
                if error.args[0].code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
                                            KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH,
                                            KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT):
                    self.renew_admin()  # the leader does not know yet, or this client another one
                    refusals[str(error)] += 1
                    return None
                raise

        def what():
            return f"leaders of {topic}'s {len(partitions)} partitions; said instead: {refusals.most_common(3)}"

        begins = wait_for(lambda: ask(OffsetSpec.earliest()), what)
        ends = wait_for(lambda: ask(OffsetSpec.latest()), what)
        return {partition: (begins[partition], ends[partition]) for partition in begins}

    def wait_stable(self, topic, seconds=PATIENCE_S):
        """Returns when the markers of all transactions are written: a broker writes these after the producer's commit or
        abort has returned, and a reader of what is committed ends before a marker that lacks."""
        wait_for(lambda: self.offsets(topic, read_committed=True) == self.offsets(topic),
                 f"{topic}: a transaction stays open", seconds)

    def delete_records(self, topic, before):
        """before: {partition: offset}; what is before these is gone."""
        from confluent_kafka import TopicPartition

        settle(self.admin().delete_records([TopicPartition(topic, p, offset) for p, offset in before.items()]))

    def compactable_topic(self, name, partitions=1, **configs):
        """A topic in many small segments, for compact()."""
        return self.create_topic(name, partitions, segment_ms=50, **configs)

    def compact(self, topic, keys, later_ms=3_600_000):
        """Now: of each partition the last record of each key is left, of which there are so many, and one more that is
        added, `roll`, so that the others are not in the segment that is written to: {partition: [Record, ...]}."""
        newest = max(record.timestamp for record in self.consume(topic))
        self.produce(topic, [{"key": b"roll", "value": b'{"n":-1}', "timestamp": newest + later_ms, "partition": partition}
                             for partition in self.partitions(topic)])
        self.alter_topic(topic, cleanup_policy="compact", min_cleanable_dirty_ratio=0.001, max_compaction_lag_ms=1,
                         delete_retention_ms=0)

        def left():
            found = {partition: [] for partition in self.partitions(topic)}
            for record in self.consume(topic):
                found[record.partition].append(record)
            return found if all(len(of) == keys + 1 for of in found.values()) else None

        return wait_for(left, f"{topic}: compacted to {keys} keys")

    def groups(self):
        """Names of consumer groups."""
        return sorted(g.group_id for g in self.admin().list_consumer_groups().result(PATIENCE_S).valid)

    def allow(self, user, name, *operations, kind="TOPIC", pattern="LITERAL"):
        """Gives a user of settings.USERS rights on a topic: "READ", "WRITE", "DESCRIBE", ...; "ALL". kind: of what the name
        is, TRANSACTIONAL_ID for example. pattern PREFIXED: of all names that begin so."""
        self.acl("create_acls", user, name, operations, kind, pattern)

    def forbid(self, user, name, *operations, kind="TOPIC"):
        """Takes these rights back."""
        self.acl("delete_acls", user, name, operations, kind, "LITERAL")

    def acl(self, what, user, name, operations, kind, pattern):
        from confluent_kafka import admin

        make = admin.AclBinding if what == "create_acls" else admin.AclBindingFilter
        settle(getattr(self.admin(), what)([
            make(admin.ResourceType[kind], name, admin.ResourcePatternType[pattern], f"User:{user}", "*",
                 admin.AclOperation[operation], admin.AclPermissionType.ALLOW) for operation in operations]))

    # --- records ------------------------------------------------------------------------------------------------
    def producer(self, transactional_id=None, **properties):
        """A Producer of the stock client, idempotent, with Java's partitioner; a transactional one is initialised (and
        fences older ones of its id)."""
        from confluent_kafka import Producer

        settled = {**self.client(), "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 1}
        if transactional_id:
            settled.update({"transactional.id": transactional_id, "transaction.timeout.ms": 60000})
        settled.update(dotted(properties))
        if transactional_id:  # librdkafka demands
            settled["socket.timeout.ms"] = min(settled["socket.timeout.ms"], settled["transaction.timeout.ms"])
        producer = Producer(settled)
        if transactional_id:
            producer.init_transactions(PATIENCE_S)
        return producer

    def produce(self, topic, records, producer=None, **properties):
        """Sends records and waits until the broker has them. Each is a dict: value (bytes; None is a tombstone), and as
        liked key, timestamp (ms), headers ([(name, bytes)]), partition. Returns {partition: [offset, ...]}."""
        own_producer = producer or self.producer(**properties)
        failures, offsets = [], collections.defaultdict(list)

        def delivered(error, message):
            if error:
                failures.append(error)
            else:
                offsets[message.partition()].append(message.offset())

        for record in records:
            more = {name: record[name] for name in ("timestamp", "partition", "headers")
                    if record.get(name) is not None}
            while True:
                try:
                    own_producer.produce(topic, record["value"], record.get("key"), on_delivery=delivered, **more)
                    break
                except BufferError:
                    own_producer.poll(0.1)
            own_producer.poll(0)
        left = own_producer.flush(PATIENCE_S)
        if left or failures:
            raise Failed(f"{left} records of {topic} were not delivered, {len(failures)} refused: {failures[:1]}")
        return dict(offsets)

    def commit(self, topic, records, transactional_id):
        """Sends records in one transaction."""
        producer = self.producer(transactional_id)
        producer.begin_transaction()
        self.produce(topic, records, producer)
        producer.commit_transaction(PATIENCE_S)

    def consumer(self, read_committed=True, **properties):
        from confluent_kafka import Consumer

        isolation = "read_committed" if read_committed else "read_uncommitted"
        return Consumer({**self.client(), "group.id": "rig", "enable.auto.commit": False, "isolation.level": isolation,
                         "enable.partition.eof": True, "auto.offset.reset": "error", "fetch.wait.max.ms": 20,
                         "fetch.error.backoff.ms": 20, "check.crcs": True, **dotted(properties)})

    def consume(self, topic, read_committed=True, start=None, count=None, beside_open=False, seconds=PATIENCE_S):
        """The Records of a topic, in order of each partition, to the end: transactions that are being committed are
        waited for, and it is an error if one stays open, unless beside_open: then what is before it. With count as soon
        as there are so many, or after the seconds those that are there. start: {partition: offset}, else from the
        beginning."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

        if read_committed and count is None and not beside_open:
            self.wait_stable(topic, seconds)
        consumer = self.consumer(read_committed)
        partitions = list(start) if start else self.partitions(topic)
        consumer.assign([TopicPartition(topic, p, start[p] if start else OFFSET_BEGINNING) for p in partitions])
        found, at_end, deadline = [], set(), time.monotonic() + seconds
        try:
            while len(found) < count if count is not None else len(at_end) < len(partitions):
                if time.monotonic() > deadline:
                    if count is not None:
                        break
                    raise Failed(f"{topic} was not read to its end within {seconds} s")
                for message in consumer.consume(10000, 0.05):
                    error = message.error()
                    if error and error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
                    elif error:
                        raise Failed(f"{topic}: {error}")
                    else:
                        found.append(record_of(message))
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))


def record_of(message):
    return Record(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(),
                  message.headers() or [])


class ProxiedCluster:
    """A Proxy before each broker; what is called on this is called on each."""

    def __init__(self, cluster, place, kind=proxy.Proxy, bound=settings.PROXY_BOUND, advertised=settings.PROXY_ADVERTISED):
        """OSError where the place is taken."""
        self.proxies = []
        with contextlib.ExitStack() as undo:
            for ports in cluster.instance.ports:
                one = kind(ports[advertised + place], ports[bound + place])
                undo.callback(one.close)
                self.proxies.append(one)
            undo.pop_all()
        host = settings.host_of("PLAINTEXT" if kind is proxy.Proxy else "SSL")
        self.brokers = ",".join(f"{host}:{one.port}" for one in self.proxies)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for one in self.proxies:
            one.close()
        self.proxies = []

    def __getattr__(self, name):
        if name not in ("lose", "pause", "resume", "cut", "refuse", "accept", "cut_at", "hold_at", "tear"):
            raise AttributeError(name)

        def call_each(*arguments, **more):
            for one in self.proxies:
                getattr(one, name)(*arguments, **more)

        return call_each

    def delay(self, seconds):
        """That each request and each answer takes longer."""
        for one in self.proxies:
            one.latency = seconds

    @property
    def requests(self):
        return sum((one.requests for one in self.proxies), collections.Counter())

    @property
    def cuts(self):
        return sum(one.cuts for one in self.proxies)


def dotted(configs):
    """cleanup_policy="compact" -> {"cleanup.policy": "compact"}; names with dots stay."""
    return {name if "." in name or name in QUIET else name.replace("_", "."): configs[name] for name in configs}


def settle(futures):
    """The results of an AdminClient's call."""
    return [future.result(PATIENCE_S) for future in futures.values()]
