"""A real etcd for the tests: 1 or 3 members on 127.0.0.1 or in namespaces (network.py), a proxy that loses answers, and servers that are no etcd.

Data and logs lie in the test's own folder; all processes are this one's children, die with it, and are ended by their pid.
Members write with fsync unless `is_fast` says otherwise.
"""

import base64
import contextlib
import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.append(os.path.join(os.path.dirname(HERE), "kafka"))
import certificates  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

PROGRAM = shutil.which("etcd")
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
LIBC = ctypes.CDLL(None)


def missing():
    """Why there can be no etcd; None: there can."""
    return None if PROGRAM else "etcd is not installed (./dev setup)"


def free_ports(count):
    """Below those that the kernel gives to connections: a member that is down for a while finds its port free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        below = min(int(file.read().split()[0]), 32768)
    found = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10000, below)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


def wait_for(what, condition):
    """Waits until the condition gives something, and returns it. Where the condition takes long, a program that it starts, it is asked more
    seldom: at most a fifth of the time goes into it."""
    until = time.monotonic() + PATIENCE_S
    while True:
        begin = time.monotonic()
        found = condition()
        now = time.monotonic()
        if found:
            return found
        assert now < until, f"never came: {what}"
        time.sleep(max(0.02, 4 * (now - begin)))


def stop(process):
    """Stops a child, and returns once all its threads have stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def make_certificates(folder):
    """ca, other-ca, server for 127.0.0.1, client, in the folder."""
    certificates.make_authority(folder, "ca")
    certificates.make_authority(folder, "other-ca")
    certificates.make_signed(folder, "server", "localhost", "DNS:localhost,IP:127.0.0.1")
    certificates.make_signed(folder, "named", "leat")
    # With a common name etcd's gateway takes none, once authentication is on.
    certificates.make_signed(folder, "client", "leat", attribute="O")


class Member:
    """One process. place: where it runs (network.py); None: at 127.0.0.1."""

    def __init__(self, cluster, number, client, peer, place=None):
        self.cluster, self.number, self.client, self.peer = cluster, number, client, peer
        self.place = place
        self.address, self.prefix = (place.address, place.prefix) if place else ("127.0.0.1", [])
        self.folder = os.path.join(cluster.folder, f"member{number}")
        self.process = None

    def start(self):
        scheme = "https" if self.cluster.is_secure else "http"
        url, peer = f"{scheme}://{self.address}:{self.client}", f"http://{self.address}:{self.peer}"
        members = ",".join(f"m{one.number}=http://{one.address}:{one.peer}" for one in self.cluster.members)
        options = ["--name", f"m{self.number}", "--data-dir", self.folder, "--listen-client-urls", url,
                   "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", members, "--initial-cluster-token", os.path.basename(self.cluster.folder),
                   "--logger", "zap", "--log-level", "error", *self.cluster.options]
        with open(f"{self.folder}.log", "ab") as log:
            self.process = subprocess.Popen([*self.prefix, PROGRAM, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=lambda: LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL))

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self):
        stop(self.process)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def lose_data(self):
        self.kill()
        shutil.rmtree(self.folder)


class Etcd:
    """A cluster of members. Use it in a `with`. places: where each one runs (network.py); None: all at 127.0.0.1."""

    def __init__(self, folder, count=1, is_fast=False, is_secure=False, options=(), places=None):
        self.folder, self.is_secure, self.token = folder, is_secure, None
        os.makedirs(folder, mode=0o700)
        self.options = [*(["--unsafe-no-fsync"] if is_fast else []), *options]
        if is_secure:
            make_certificates(folder)
            at = lambda name: os.path.join(folder, name)  # noqa: E731
            self.options += ["--cert-file", at("server.pem"), "--key-file", at("server.key"), "--client-cert-auth",
                             "--trusted-ca-file", at("ca.pem")]
        ports = free_ports(2 * count)
        self.members = [Member(self, i, ports[2 * i], ports[2 * i + 1], places[i] if places else None) for i in range(count)]

    def __enter__(self):
        for member in self.members:
            member.start()
        self.wait()
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def endpoints(self):
        return ",".join(f"{member.address}:{member.client}" for member in self.members)

    def wait(self, members=None):
        """Until each of the members (None: all) answers a linearizable read."""
        for member in members or self.members:
            wait_for("etcd", lambda member=member: self.answers(member))

    def answers(self, member):
        assert member.process.poll() is None, open(f"{member.folder}.log", encoding="utf-8").read()[-2000:]
        try:
            self.call("kv/range", {"key": "AA==", "limit": "1"}, member)
            return True
        except urllib.error.HTTPError as error:
            text = error.read()
            return b"user name is empty" in text or b"permission denied" in text
        except OSError:
            return False

    def call(self, path, request, member=None):
        """The gateway, by Python's own client."""
        context = None
        if self.is_secure:
            context = ssl.create_default_context(cafile=os.path.join(self.folder, "ca.pem"))
            context.load_cert_chain(os.path.join(self.folder, "client.pem"), os.path.join(self.folder, "client.key"))
        to = member or self.members[0]
        url = f"{'https' if self.is_secure else 'http'}://{to.address}:{to.client}/v3/{path}"
        headers = {"authorization": self.token} if self.token else {}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode(), headers), timeout=60,
                                    context=context) as answer:
            return json.load(answer)

    def enable_auth(self, root, user, password):
        """`root` with that password may do all; the user only what is below /leat/."""
        prefix = {"key": base64.b64encode(b"/leat/").decode(), "range_end": base64.b64encode(b"/leat0").decode()}
        self.call("auth/user/add", {"name": "root", "password": root})
        self.call("auth/role/add", {"name": "root"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        self.call("auth/role/add", {"name": "leat"})
        self.call("auth/role/grant", {"name": "leat", "perm": {"permType": "READWRITE", **prefix}})
        self.call("auth/user/add", {"name": user, "password": password})
        self.call("auth/user/grant", {"user": user, "role": "leat"})
        self.call("auth/enable", {})


class Tool:
    """etcd_tool.c: a call for each command; keeps all that it said, for the secrets that must not be there."""

    said = []

    def __init__(self, program, endpoints, name="job", **options):
        words = [f"{key}={value}" for key, value in options.items()]
        address = endpoints if endpoints.startswith("etcd:") or name is None else f"etcd://{endpoints}/{name}"
        # LeakSanitizer, which stops a process at its end, now and then never goes on: the tracer waits for a thread that spins.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.process = subprocess.Popen([program, address, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, "ASAN_OPTIONS": sanitizer},
                                        preexec_fn=lambda: LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL))
        self.opened = self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        rest = self.process.stdout.read() + self.process.stderr.read()
        Tool.said.append(rest)
        self.process.stdout.close()
        self.process.stderr.close()
        status = self.process.wait()
        assert status in (0, -9), (status, rest.decode(errors="replace")[-3000:])

    def read(self):
        line = self.process.stdout.readline()
        Tool.said.append(line)
        if line == b"":
            raise EOFError(self.process.stderr.read().decode(errors="replace")[-3000:])
        return json.loads(line)

    def send(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words).encode() + b"\n")
        self.process.stdin.flush()

    def __call__(self, *words):
        self.send(*words)
        return self.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        stop(self.process)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)


class Server:
    """A thread for each connection to a port of its own. Use it in a `with`."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.is_over = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.listener.close()

    def accept(self):
        while not self.is_over.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.guarded, args=(client,), daemon=True).start()

    def guarded(self, client):
        try:
            with client:
                self.serve(client)
        except OSError:
            pass

    def endpoint(self):
        return f"127.0.0.1:{self.port}"


def read_request(client):
    """(path, all its bytes); None: the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
    while len(body) < length:
        more = client.recv(65536)
        if not more:
            return None
        body += more
    return head.split()[1].decode(), head + b"\r\n\r\n" + body


class Proxy(Server):
    """Hands requests on to a port. fault(kind, path, times): what befalls the next requests of that path:

    swallow   it is handed on, its answer is not, and the connection is closed
    hang      likewise, but the connection stays open, silent
    late      it is handed on when `release` is set; the connection stays open, silent
    close     it is not handed on; the connection is closed
    """

    def __init__(self, port):
        self.to, self.faults, self.release, self.seen = port, [], threading.Event(), []
        self.handed_on = threading.Event()  # a late request
        self.clients = []
        super().__init__()

    def fault(self, kind, path="kv/txn", times=1):
        self.faults += [(kind, path)] * times

    def take_fault(self, path):
        for fault in self.faults:
            if path == f"/v3/{fault[1]}":
                self.faults.remove(fault)
                self.seen.append(fault[0])
                return fault[0]
        return None

    def cut(self):
        """All connections."""
        for client in self.clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self.clients.clear()

    def serve(self, client):
        self.clients.append(client)
        with socket.create_connection(("127.0.0.1", self.to)) as server:
            while True:
                request = read_request(client)
                if request is None:
                    return
                kind = self.take_fault(request[0])
                if kind == "close":
                    return
                if kind == "late":
                    self.release.wait(PATIENCE_S)
                server.sendall(request[1])
                if kind is None:
                    if not self.relay(client, server):
                        return
                    continue
                server.recv(65536)
                self.handed_on.set()
                if kind == "swallow":
                    return
                self.is_over.wait(PATIENCE_S)

    @staticmethod
    def relay(client, server):
        """An answer, up to the next request. False: one side has gone."""
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if client in ready and not client.recv(1, socket.MSG_PEEK):
                return False
            if server in ready:
                data = server.recv(65536)
                if not data:
                    return False
                client.sendall(data)
            elif client in ready:
                return True


class Fake(Server):
    """Answers each request with `answer(path)`: bytes, or pieces of bytes, until the client has gone."""

    def __init__(self, answer):
        self.answer = answer
        super().__init__()

    def serve(self, client):
        while True:
            request = read_request(client)
            if request is None:
                return
            answer = self.answer(request[0])
            for piece in [answer] if isinstance(answer, bytes) else answer:
                client.sendall(piece)
            if not isinstance(answer, bytes):
                return
