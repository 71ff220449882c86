"""A server of tests/net/echo.c, and connections to it that send what a test says."""

import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE_S = 60


class Server:
    """Runs leat_echo. As it ends by itself, what it held must be given back and its figures must agree."""

    def __init__(self, program, *words, expects=0):
        self.folder = tempfile.TemporaryDirectory()
        self.expects = expects
        port_file = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen([program, "--port-file", port_file, *words], stdout=subprocess.PIPE, text=True)
        self.figures = {}
        until = time.monotonic() + PATIENCE_S
        while not os.path.exists(port_file):
            assert self.process.poll() is None and time.monotonic() < until, "the server has not started"
            time.sleep(0.005)
        with open(port_file, encoding="utf-8") as file:
            self.port = int(file.read())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is None:
            figures = self.figures
            assert figures["memory_now"] == 0, f"{figures['memory_now']} bytes are still held"
            assert figures["connections_now"] == 0 and figures["waiting"] == figures["parked"] == 0, figures
            assert figures["refused"] == figures["told_refused"], figures

    def stop(self):
        """Ends it, and reads the figures that it prints."""
        if self.figures:
            return self.figures
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self.folder.cleanup()
        assert self.process.returncode == self.expects, f"the server ended with {self.process.returncode}"
        self.figures = figures_of(out)
        return self.figures

    def connect(self):
        return Connection(self.port)

    def counters(self):
        with self.connect() as connection:
            return figures_of(connection.ask(get("/counters")).text)


def figures_of(text):
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.M)}


def get(target, *fields, method="GET", host="localhost", version="1.1"):
    lines = [f"{method} {target} HTTP/{version}"] + ([f"host: {host}"] if host else []) + list(fields)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(target, body, *fields):
    return get(target, f"content-length: {len(body)}", *fields, method="POST") + body


class Answer:
    """A status, fields and a body."""

    def __init__(self, status, fields, body):
        self.status = status
        self.fields = fields
        self.body = body
        self.text = body.decode("utf-8", "replace")

    def __repr__(self):
        return f"{self.status} {self.fields} {self.body[:80]}"


class Connection:
    """A socket, and what was read of it and not used yet."""

    def __init__(self, port, wrap=None, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", port))
        if wrap:
            self.socket = wrap(self.socket)
        self.bytes = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self, most=1 << 18):
        """Reads; False at the end."""
        try:
            data = self.socket.recv(most)
        except ConnectionResetError:
            data = b""
        self.bytes += data
        return bool(data)

    def until(self, mark):
        while mark not in self.bytes:
            assert self.more(), f"the server has closed; it sent {bytes(self.bytes[:200])}"
        return self.take(self.bytes.index(mark) + len(mark))

    def take(self, count):
        while len(self.bytes) < count:
            assert self.more(), f"the server has closed; {count - len(self.bytes)} bytes are missing"
        part = bytes(self.bytes[:count])
        del self.bytes[:count]
        return part

    def answer(self, has_body=True):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        status = int(lines[0].split(" ")[1])
        body = self.take(int(fields.get("content-length", 0))) if has_body else b""
        return Answer(status, fields, body)

    def ask(self, request, has_body=True):
        self.send(request)
        return self.answer(has_body)

    def is_closed(self):
        """Waits for the server to close."""
        while self.more():
            pass
        return not self.bytes

    def is_silent(self, seconds):
        return not select.select([self.socket], [], [], seconds)[0]
