"""An S3 store for tests: a real s3proxy, which checks signatures, behind a proxy that does what networks and stores do wrong; and
the program that calls state/objects (store_tool.c).

    with rig.Store() as store, store.tool("s3://bucket/job", folder) as tool:
        store.fault("torn_answer", method="GET", times=2)
        tool("get", "name", 100, path)
"""

import contextlib
import fcntl
import hashlib
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "kafka")]
import install  # noqa: E402
from patience import PATIENCE_S  # noqa: E402

HOME = os.path.join(ROOT, "build", "s3proxy")
POM = os.path.join(HERE, "pom.xml")
KEY, SECRET, TOKEN = "leat-access-key-7", "leat-secret-key-8", "leat-session-token-9"
REGION = "eu-central-1"
DATE = "%a, %d %b %Y %H:%M:%S GMT"


def class_path():
    """The jars of s3proxy, fetched once. Raises install.Missing."""
    os.makedirs(HOME, exist_ok=True)
    jars = os.path.join(HOME, "jars")
    with open(os.path.join(HOME, "lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        install.fetch(jars, install.digest(POM), ["mvn", "-q", "-B", "-f", POM], "s3proxy (Maven)")
    return os.path.join(jars, "*")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One s3proxy, which keeps objects in memory."""

    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory(prefix="leat-s3-")
        settings = os.path.join(self.folder.name, "settings")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(f"s3proxy.authorization=aws-v2-or-v4\ns3proxy.endpoint=http://127.0.0.1:{self.port}\n"
                       f"s3proxy.identity={KEY}\ns3proxy.credential={SECRET}\ns3proxy.virtual-host=localhost\n"
                       "jclouds.provider=transient\njclouds.identity=none\njclouds.credential=none\n")
        self.log = open(os.path.join(self.folder.name, "log"), "w+b")
        command = [install.java(), "-Xmx1536m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(),
                   "org.gaul.s3proxy.Main", "--properties", settings]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + PATIENCE_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.log.seek(0)
                raise AssertionError("s3proxy did not start: " + self.log.read().decode(errors="replace")[-2000:])
            time.sleep(0.1)

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()


class Fault:
    """What the proxy does to the next `times` requests that fit, after letting `after` of them pass."""

    def __init__(self, kind, method=None, path="", times=1, after=0, **more):
        self.kind, self.method, self.path, self.times, self.after, self.more = kind, method, path, times, after, more
        self.happened = 0

    def fits(self, method, path):
        return (self.method is None or self.method == method) and re.search(self.path, path) is not None


class Handler(http.server.BaseHTTPRequestHandler):
    """A request: read whole, sent on, and its answer sent back, unless a fault says otherwise."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_all(self):
        store = self.server.store
        length = int(self.headers.get("content-length") or 0)
        fault = store.fault_for(self.command, self.path)
        kind = fault.kind if fault else ""
        if kind == "torn_upload":
            self.rfile.read(length // 2)
            return self.cut()
        body = self.rfile.read(length)
        with store.lock:
            store.seen.append((self.command, self.path, dict(self.headers), length))
        if kind == "status":
            return self.reply(fault.more["status"], fault.more.get("headers", {}), fault.more.get("body", "").encode())
        if kind == "echo":  # a server that repeats what it was sent
            text = "".join(f"{name}: {value} " for name, value in self.headers.items())
            return self.reply(403, {}, f"<Error><Code>Odd</Code><Message>{text} {SECRET}</Message></Error>".encode())
        if kind == "slow":
            store.may_go.wait(fault.more["seconds"])
        condition = self.headers["if-none-match"]
        del self.headers["if-none-match"]  # s3proxy's own answer would depend on its version
        if condition and store.honours:
            with store.claims:
                if self.path in store.put:
                    return self.reply(412, {}, b"<Error><Code>PreconditionFailed</Code><Message>It is there.</Message></Error>")
                store.put.add(self.path)
                return self.reply(*self.forward(body))
        if kind == "changed_upload":
            body = bytes([body[0] ^ 1]) + body[1:]
        status, headers, answer = self.forward(body)
        return self.spoil(kind, fault, status, headers, answer)

    def forward(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.store.server.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def spoil(self, kind, fault, status, headers, answer):
        if kind == "lost_answer":
            return self.cut()
        if kind == "changed_answer":
            answer = answer[:-1] + bytes([answer[-1] ^ 1])
        if kind == "changed_header":
            headers = {name: fault.more["value"] if name.lower() == fault.more["name"] else value
                       for name, value in headers.items()}
        if kind == "dripping":  # a piece at a time
            return self.reply(status, headers, answer, pieces=8, pause=0.05)
        if kind == "torn_answer":
            return self.reply(status, headers, answer, most=len(answer) // 2)
        if kind == "rewritten":
            answer = answer.replace(*(text.encode() for text in fault.more["texts"]))
        return self.reply(status, headers, answer)

    def reply(self, status, headers, body, most=None, pieces=1, pause=0):
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = headers.get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
        if status != 204:
            self.send_header("content-length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return None
        step = max(1, len(body) // pieces)
        body = body if most is None else body[:most]
        for at in range(0, len(body), step):
            self.wfile.write(body[at:at + step])
            self.wfile.flush()
            time.sleep(pause)
        return self.cut() if most is not None else None

    def cut(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            super().handle_one_request()
            return
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_all


class Store:
    """s3proxy and its proxy. of: another Store, of which this is one more proxy, with faults of its own."""

    def __init__(self, of=None):
        self.of, self.server = of, of.server if of else Server()
        self.lock, self.faults, self.seen, self.may_go = threading.Lock(), [], [], threading.Event()
        self.honours, self.put, self.claims = True, set(), threading.Lock()  # whether it goes by `if-none-match: *`; what was put by that
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.proxy.daemon_threads = True
        self.proxy.store = self
        self.port = self.proxy.server_address[1]
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.may_go.set()
        self.proxy.shutdown()
        self.proxy.server_close()
        if self.of is None:
            self.server.close()

    def fault(self, kind, **more):
        fault = Fault(kind, **more)
        with self.lock:
            self.faults.append(fault)
        return fault

    def fault_for(self, method, path):
        with self.lock:
            for fault in self.faults:
                if not fault.fits(method, path) or fault.times == 0:
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                fault.happened += 1
                return fault
        return None

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LEAT_"))}
        return {**kept, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL_S3": f"http://localhost:{self.port}", **more}

    def make_bucket(self, name):
        """leat makes no buckets: here a request is signed by hand."""
        path = f"/{name}"
        status, body = sign_and_send(self.server.port, "PUT", path)
        assert status == 200, (status, body)

    def tool(self, program, url, **more):
        return Tool(program, url, self.environment(**more))


def sign_and_send(port, method, path):
    """A request to s3proxy with a signature that Python makes: the second opinion on state/objects/s3_sign.c."""
    import hmac
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(b"").hexdigest()
    headers = {"host": f"localhost:{port}", "x-amz-content-sha256": digest, "x-amz-date": date}
    names = ";".join(headers)
    canonical = "\n".join([method, path, "", *(f"{n}:{v}" for n, v in headers.items()), "", names, digest])
    scope = f"{date[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in (date[:8], REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    return result


class Tool:
    """store_tool.c: a call for each command; keeps all that it said, for the secrets that must not be there."""

    said = []

    def __init__(self, program, url, environment, tries=4, pause_ms=5, stall_s=5, file_bytes_max=None):
        limit = [] if file_bytes_max is None else ["prlimit", f"--fsize={file_bytes_max}"]
        self.process = subprocess.Popen([*limit, program, url, str(tries), str(pause_ms), str(stall_s)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.opened = self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        rest = self.process.stdout.read() + self.process.stderr.read()
        Tool.said.append(rest)
        self.process.stdout.close()
        self.process.stderr.close()
        status = self.process.wait()
        assert status in (0, -9), (status, rest.decode(errors="replace")[-2000:])

    def read(self):
        line = self.process.stdout.readline()
        Tool.said.append(line)
        if line == b"":
            raise EOFError(self.process.stderr.read().decode(errors="replace")[-2000:])
        return json.loads(line)

    def __call__(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()
