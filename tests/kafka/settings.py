"""The properties of the tests' brokers, and their ports.

Ports lie below those that the system gives to outgoing connections: a client that tries again and again to reach a
broker which is down would else one day be given the broker's port, and talk to itself.

Each broker has sixteen ports: of its listeners, then what its PROXYn listeners tell clients to connect to. A test puts
a proxy there (proxy.py); one for TLS where TLSPROXY tells them to."""

import hashlib
import os
import socket

import certificates

# name: (place among the broker's ports, protocol, needs --secure)
LISTENERS = {
    "PLAIN": (0, "PLAINTEXT", False),
    "CONTROLLER": (1, "PLAINTEXT", False),
    "SASL": (2, "SASL_SSL", True),  # SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (unsigned tokens)
    "MTLS": (3, "SSL", True),  # asks for a client certificate
    "EXPIRED": (4, "SSL", True),  # its certificate has expired
    "OTHERHOST": (5, "SSL", True),  # its certificate is of another host
}
# Between clients and the TLS listener of proxies, of clusters with --secure: bound, and what it tells clients.
TLS_PROXY_BOUND, TLS_PROXY_ADVERTISED = 6, 7
PROXIES = 4
PROXY_BOUND, PROXY_ADVERTISED = 8, 12
PORTS_EACH = 16
PORTS_FIRST, PORTS_END, PORTS_BLOCK = 20000, 32000, 64
DEV_PORT = 9092  # of `./dev kafka start`, if nobody has it; the next brokers have the next

# By SCRAM. guest and visitor may nothing until a test allows it; each test of rights has one of its own.
USERS = {"leat": "leat-secret", "guest": "guest-secret", "visitor": "visitor-secret"}
CLUSTER_ID = "bGVhdC10ZXN0cy1rYWZrYQ"

COMMON = """
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
auto.create.topics.enable=false
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# Records of tests have timestamps of long ago; a topic that is to forget has retention.ms of its own.
log.retention.ms=-1

# What a test would wait for.
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
transaction.max.timeout.ms=900000
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=1000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=3000
controlled.shutdown.max.retries=1

# Small.
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=8388608
metric.reporters=
"""

SECURE = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:leat;User:CN=leat
ssl.keystore.type=PEM
ssl.truststore.type=PEM
ssl.truststore.location={certificates}/ca.pem
listener.name.sasl.ssl.keystore.location={certificates}/server-chain.pem
listener.name.sasl.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
listener.name.tlsproxy.ssl.keystore.location={certificates}/server-chain.pem
listener.name.mtls.ssl.keystore.location={certificates}/server-chain.pem
listener.name.mtls.ssl.client.auth=required
listener.name.expired.ssl.keystore.location={certificates}/expired-chain.pem
listener.name.otherhost.ssl.keystore.location={certificates}/other-host-chain.pem
"""


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_ports(folder, brokers, prefers_dev):
    """The list of ports of each broker; of instances in other folders probably others, and none that is taken. And a
    claim on them, which stands until it is closed: who stops its brokers finds their ports free again."""
    blocks = (PORTS_END - PORTS_FIRST) // PORTS_BLOCK
    first = int.from_bytes(hashlib.sha256(folder.encode()).digest()[:4], "big")
    for i in range(blocks):
        base = PORTS_FIRST + (first + i) % blocks * PORTS_BLOCK
        claim = socket.socket(socket.AF_UNIX)
        ports = [list(range(base + n * PORTS_EACH, base + (n + 1) * PORTS_EACH)) for n in range(brokers)]
        try:
            claim.bind(f"\0leat-kafka-{base}")
        except OSError:
            ports = []
        if not ports or not all(is_free(port) for of_one in ports for port in of_one):
            claim.close()
            continue
        if prefers_dev and all(is_free(DEV_PORT + n) for n in range(brokers)):
            for n in range(brokers):
                ports[n][0] = DEV_PORT + n
        return ports, claim
    raise OSError("no free ports on 127.0.0.1")


def host_of(protocol):
    """Certificates are of localhost."""
    return "127.0.0.1" if protocol == "PLAINTEXT" else "localhost"


def properties(folder, number, ports, is_secure):
    """The text of server.properties. number: 1, 2, ... ports: of all brokers."""
    own = ports[number - 1]
    listeners, advertised, protocols = [], [], []
    for name, (place, protocol, needs_secure) in LISTENERS.items():
        if needs_secure and not is_secure:
            continue
        listeners.append(f"{name}://127.0.0.1:{own[place]}")
        protocols.append(f"{name}:{protocol}")
        if name != "CONTROLLER":
            advertised.append(f"{name}://{host_of(protocol)}:{own[place]}")
    lines = [COMMON]
    for i in range(PROXIES):
        listeners.append(f"PROXY{i + 1}://127.0.0.1:{own[PROXY_BOUND + i]}")
        advertised.append(f"PROXY{i + 1}://127.0.0.1:{own[PROXY_ADVERTISED + i]}")
        protocols.append(f"PROXY{i + 1}:PLAINTEXT")
        lines.append(f"listener.name.proxy{i + 1}.num.network.threads=1")
    copies, copies_min = (3, 2) if len(ports) >= 3 else (1, 1)
    if is_secure:
        listeners.append(f"TLSPROXY://127.0.0.1:{own[TLS_PROXY_BOUND]}")
        advertised.append(f"TLSPROXY://localhost:{own[TLS_PROXY_ADVERTISED]}")
        protocols.append("TLSPROXY:SSL")
    voters = ",".join(f"{n}@127.0.0.1:{p[1]}" for n, p in enumerate(ports, 1))
    lines += [
        f"node.id={number}",
        f"log.dirs={os.path.join(folder, 'data')}",
        f"controller.quorum.voters={voters}",
        f"listeners={','.join(listeners)}",
        f"advertised.listeners={','.join(advertised)}",
        f"listener.security.protocol.map={','.join(protocols)}",
        f"default.replication.factor={copies}",
        f"min.insync.replicas={copies_min}",
        f"offsets.topic.replication.factor={copies}",
        f"transaction.state.log.replication.factor={copies}",
        f"transaction.state.log.min.isr={copies_min}",
        f"share.coordinator.state.topic.replication.factor={copies}",
        f"share.coordinator.state.topic.min.isr={copies_min}",
        # That which all tests share is never restarted, and a busy disk may hold its heartbeats back.
        f"broker.session.timeout.ms={60000 if is_secure and len(ports) == 1 else 3000}",
    ]
    if is_secure:
        lines.append(SECURE.format(certificates=certificates.FOLDER))
    return "\n".join(lines) + "\n"
