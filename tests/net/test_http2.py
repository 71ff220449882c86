#!/usr/bin/env python3
"""HTTP/2 over real sockets: frames by hand against a server that echoes, honest clients beside dishonest ones, and the
clients of nghttp2 where they are installed.

    tests/net/test_http2.py PATH_OF_LEAT_ECHO
"""

import contextlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import http2_frames as h2  # noqa: E402
import tap  # noqa: E402
from http2_frames import Client, frame, literal  # noqa: E402
from server import PATIENCE_S, Server  # noqa: E402

ECHO = os.path.abspath(sys.argv[1])


def serve(*words):
    return Server(ECHO, *words)


def until(server, is_so):
    """The counters, once they are so."""
    end = time.monotonic() + PATIENCE_S
    while not is_so(now := server.counters()):
        assert time.monotonic() < end, now
        time.sleep(0.02)
    return now


@contextlib.contextmanager
def attacked(*words):
    """A server with a neighbour connection, which is served before, during and after; afterwards no memory is held."""
    with serve(*words) as server:
        with Client(server.port) as neighbour:
            assert neighbour.ask(1).body == b"hello"
            yield server
            assert neighbour.ask(3).body == b"hello"
        now = until(server, lambda now: now["connections_now"] == 1 and now["waiting"] == 0)
        assert now["memory_now"] < 2000, now  # of the connection that asks


def ended(client, error):
    """The server has said why it ends the connection, and has ended it."""
    client.take()
    assert client.goaway is not None and client.goaway[1] == error, client.goaway


# --- Requests ---


def test_echo():
    with serve() as server, Client(server.port) as client:
        answer = client.ask(1, body=b"x" * 1000)
        assert answer.status == 200 and answer.body == b"x" * 1000
        assert answer.field("content-length") == "1000" and answer.field("date").endswith("GMT")
        assert client.settings == {3: 128, 4: 262144, 6: 16384, 8: 0, 9: 1}, client.settings
        client.send(*(client.get(stream, "/see?q=%41") for stream in range(3, 259, 2)))
        answer = client.take(*range(3, 259, 2))
        assert answer.body.split(b"\n")[:3] == [b"GET", b"/see", b"q=%41"], answer.body
        assert server.counters()["requests_http2"] == 129


def test_late_answers():
    with serve() as server, Client(server.port) as client:
        for stream, path in ((1, "/slow"), (3, "/turn"), (5, "/echo")):
            client.send(client.head(stream, path), client.data(stream, path.encode()))
        assert client.take(5).body == b"/echo"
        assert not client.answers[1].heads
        assert client.take(1, 3).body == b"/turn" and client.answers[1].body == b"/slow"


def test_answers_of_a_turn():
    """Those that are given in one turn of the loop leave in one write."""
    with serve() as server, Client(server.port) as client:
        client.ask(1)
        for first, path in ((3, "/turn"), (101, "/echo")):
            client.send(*(client.get(stream, path) for stream in range(first, first + 32, 2)))
            client.bytes = client.socket.recv(1 << 16)
            while client.bytes:
                client.read_frame()
            assert sum(answer.is_ended for answer in client.answers.values()) == 17 + (first > 3) * 16


def test_trailers():
    with serve() as server, Client(server.port) as client:
        answer = client.ask(1, "/trailers", more=literal("te", "trailers") + literal("content-type", "application/grpc"))
        assert answer.body == b"hello" and len(answer.heads) == 2
        assert answer.heads[1] == [("grpc-status", "0"), ("grpc-message", "")], answer.heads
        client.send(client.get(3, "/trailers"))
        answer = client.take(3)
        assert len(answer.heads) == 1 and answer.field("grpc-status") == "0" and not answer.body
        # Trailers of a request are dropped.
        client.send(client.head(5), client.data(5, b"hello", False),
                    frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 5, literal("x-sum", "7")))
        assert client.take(5).body == b"hello"


def test_streams():
    with serve() as server, Client(server.port) as client:
        for stream, count in ((1, 1), (3, 4)):
            client.send(client.get(stream, f"/stream?{count}"))
        assert client.take(1).body == b"part 1\n" and client.take(3).body == b"part 1\npart 2\npart 3\npart 4\n"
        assert client.answers[3].field("content-length") is None
        client.send(client.head(5, "/stream?2", "HEAD", True))
        assert client.take(5).status == 200 and not client.answers[5].body
        client.send(client.get(7, "/stream?0"), client.get(9, "/stream?3"))
        assert client.take(9).body.count(b"part") == 3
        client.send(frame(h2.RST_STREAM, 0, 7, h2.u32(h2.CANCEL)))
        until(server, lambda now: now["streams_gone"] == 1)
        assert client.ask(11).body == b"hello"
    with serve() as server:
        with Client(server.port) as client:
            client.send(*(client.get(stream, "/stream?0") for stream in range(1, 201, 2)))
            while any(client.answers[stream].body.count(b"part") < 3 for stream in range(1, 201, 2)):
                assert client.read_frame()
        until(server, lambda now: now["streams_gone"] == 100)


def test_slow_reader_of_a_stream():
    """A client that opens its window no more is closed; a quiet stream, and one whose window is open, are not."""
    with serve("--write-ms", "3000", "--idle-ms", "300", "--head-ms", "300", "--body-ms", "300") as server:
        with Client(server.port) as quiet, Client(server.port) as slow:
            quiet.send(quiet.get(1, "/stream?60"))
            slow.send(slow.get(1, "/stream?0,20000"))
            peak = 0
            while (now := server.counters())["streams_gone"] == 0:
                peak = max(peak, now["memory_now"])
                time.sleep(0.02)
            assert now["parts_left_out"] > 0 and 250000 < peak < 400000, (now, peak)
            assert quiet.take(1).body.count(b"part") == 60
            slow.take()
            assert len(slow.answers[1].body) == 65535


def test_streams_end_with_the_loop():
    with serve() as server, Client(server.port) as client:
        client.send(client.get(1, "/stream?0"), client.get(3, "/stream?0"))
        while client.answers[3].body.count(b"part") < 2:
            assert client.read_frame()
        server.process.send_signal(signal.SIGTERM)
        client.take(1, 3)
        client.take()
        assert client.goaway[1] == h2.NO_ERROR and client.answers[1].is_ended and client.answers[3].reset is None
        assert server.stop()["streams_gone"] == 2


def test_large_answer():
    with serve() as server, Client(server.port) as client:
        client.send(client.get(1, "/large?3000000"))
        while not client.answers[1].is_ended:
            before = len(client.answers[1].body)
            assert client.read_frame()
            more = len(client.answers[1].body) - before
            if more:
                client.send(frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(more)), frame(h2.WINDOW_UPDATE, 0, 1, h2.u32(more)))
        assert client.answers[1].body == bytes(ord("a") + i % 23 for i in range(3000000))


def test_rules():
    with serve("--token", "secret", "--body", "100") as server, Client(server.port) as client:
        token = literal("authorization", "Bearer secret")
        assert client.ask(1, more=token).status == 200
        answer = client.ask(3)
        assert answer.status == 401 and answer.field("www-authenticate") == "Bearer"
        assert client.ask(5, authority="evil.example", more=token).status == 421
        assert client.ask(7, more=token + literal("origin", "http://evil.example")).status == 403
        assert client.ask(9, more=token + literal("host", "localhost")).status == 400
        assert client.ask(11, authority="", more=token + literal("host", "localhost")).status == 200
        assert client.ask(13, authority="", more=token).reset == h2.PROTOCOL_ERROR
        assert client.ask(15, path="/a/../b", more=token).status == 400
        assert client.ask(17, path="/" + "a" * 3000, more=token).status == 414
        assert client.ask(19, more=token + literal("X-Upper", "1")).reset == h2.PROTOCOL_ERROR
        assert client.ask(21, more=token + literal("connection", "close")).reset == h2.PROTOCOL_ERROR
        assert client.ask(23, more=token + literal("x-long", "v" * 16150)).status == 431
        assert client.ask(25, method="PUT", more=token).status == 405
        # The body is refused as soon as it is known to be too long, and the client need not send the rest.
        client.send(client.head(27, more=token + literal("content-length", "101")))
        assert client.take(27).status == 413
        client.send(client.head(29, more=token), client.data(29, b"x" * 101, False))
        assert client.take(29).status == 413
        assert client.ask(31, more=token).status == 200
        assert client.answers[27].reset == client.answers[29].reset == h2.NO_ERROR
        assert client.ask(33, "/early", more=token).status == 404
        client.send(client.head(35, method="HEAD", is_end=True, path="/see", more=token))
        answer = client.take(35)
        assert answer.status == 200 and not answer.body and int(answer.field("content-length")) > 10


def test_tls():
    if shutil.which("openssl") is None:
        return "openssl is not installed"
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", certificate], check=True,
                       capture_output=True)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with serve("--certificate", certificate, "--key", key, "--head-ms", "60000", "--body-ms", "60000", "--write-ms",
                   "60000") as server:
            with Client(server.port, context=context) as client:
                assert client.socket.selected_alpn_protocol() == "h2"
                assert client.ask(1, body=b"x" * 16000).body == b"x" * 16000
                client.send(*(client.get(stream, "/turn") for stream in range(3, 203, 2)))
                assert client.take(*range(3, 203, 2)).status == 200
            # No deadline is near that would wake a connection which has forgotten to go on.
            with Client(server.port, h2.setting(h2.WINDOW_SIZE, 1 << 24), context=context) as client:
                client.send(frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(1 << 24)))
                client.send(*(client.get(stream, "/large?500000") for stream in range(1, 17, 2)))
                client.take(*range(1, 17, 2))
                assert all(len(client.answers[stream].body) == 500000 for stream in range(1, 17, 2))
    return None


# --- Deadlines ---


def test_deadlines():
    with serve("--head-ms", "200", "--body-ms", "300", "--idle-ms", "400", "--write-ms", "500") as server:
        with Client(server.port, preface=h2.PREFACE[:10]) as client:
            client.take()  # neither protocol yet
        with Client(server.port) as client:  # idle
            client.ask(1)
            ended(client, h2.NO_ERROR)
        with Client(server.port) as client:  # a head without an end
            client.ask(1)
            client.send(frame(h2.HEADERS, h2.END_STREAM, 3, literal(":method", "GET")))
            ended(client, h2.ENHANCE_YOUR_CALM)
        with Client(server.port) as client:  # a body without one
            client.send(client.head(1), client.data(1, b"hel", False))
            assert client.take(1).status == 408
        with Client(server.port, h2.setting(h2.WINDOW_SIZE, 0)) as client:  # a window that does not open
            begin = time.monotonic()
            client.send(client.head(1), client.data(1, b"hello"))
            client.take()
            assert client.answers[1].status == 200 and not client.answers[1].is_ended
            assert time.monotonic() - begin >= 0.4
        now = until(server, lambda now: now["connections_now"] == 1)
        assert now["refused"] == 4, now  # all but the idle one


def test_stop():
    with serve() as server, Client(server.port) as client:
        client.send(client.head(1, "/slow"), client.data(1, b"hello"), client.head(3, "/slow"))
        until(server, lambda now: now["waiting"] == 1)
        server.process.send_signal(signal.SIGTERM)
        while client.goaway is None:
            assert client.read_frame()
        assert client.goaway == (3, h2.NO_ERROR), client.goaway
        client.send(client.data(3, b"world"), client.head(5), client.data(5, b"late"))
        assert client.take(1, 3).body == b"world" and client.answers[1].body == b"hello"
        client.take()
        assert not client.answers[5].heads


# --- Abuse ---


def resets(client, first, count, path="/slow"):
    return (client.get(stream, path) + frame(h2.RST_STREAM, 0, stream, h2.u32(h2.CANCEL))
            for stream in range(first, first + 2 * count, 2))


def test_rapid_resets():
    with attacked() as server, Client(server.port) as client:
        client.send(*resets(client, 1, 3000))
        ended(client, h2.ENHANCE_YOUR_CALM)
        assert server.counters()["requests_http2"] < 150
    with attacked() as server, Client(server.port) as client:
        client.send(*resets(client, 1, 90))
        assert client.ask(5001).status == 200


def floods():
    ping = frame(h2.PING, 0, 0, b"12345678")
    head = Client.head
    bomb = literal("x-bomb", "v" * 3900, b"\x40") + b"\xbe" * 9000
    return {
        "ping": [ping] * 50000,
        "settings": [frame(h2.SETTINGS, 0, 0, h2.setting(h2.WINDOW_SIZE, 65535))] * 50000,
        "priority": [frame(h2.PRIORITY, 0, 1, b"\0\0\0\3\1")] * 50000,
        "window": [frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(1))] * 50000,
        "empty data": [head(None, 1)] + [frame(h2.DATA, 0, 1)] * 50000,
        "continuation": [frame(h2.HEADERS, 0, 1, literal(":method", "GET"))] + [frame(h2.CONTINUATION, 0, 1)] * 50000,
        "long continuation": [frame(h2.HEADERS, 0, 1, literal(":method", "GET"))] +
                             [frame(h2.CONTINUATION, 0, 1, literal("x", "v" * 16000))] * 200,
        "bomb": [head(None, stream, more=bomb, is_end=True) for stream in (1, 3, 5, 7)],
    }


def test_floods():
    for name, frames in floods().items():
        with attacked() as server, Client(server.port) as client:
            client.send(*frames)
            ended(client, h2.ENHANCE_YOUR_CALM)
            now = server.counters()
            assert now["refused"] == 1 and now["told_refused"] == 1, (name, now)
            assert now["memory_peak"] < 4_000_000, (name, now)


def test_many_streams():
    with attacked() as server, Client(server.port) as client:
        client.send(*(client.get(stream, "/slow") for stream in range(1, 1001, 2)))
        client.take(*range(1, 1001, 2))
        good = [stream for stream, answer in client.answers.items() if answer.status == 200]
        assert len(good) >= 128 and all(one.status == 200 or one.reset == h2.REFUSED_STREAM
                                        for stream, one in client.answers.items() if stream), len(good)
        # The limit is known by now.
        client.send(*(client.get(stream, "/slow") for stream in range(1001, 2001, 2)))
        ended(client, h2.PROTOCOL_ERROR)


def test_deaf_client():
    """Asks for 500 MB and reads nothing: what waits is bounded, and the connection ends."""
    with attacked("--write-ms", "700") as server:
        with Client(server.port, h2.setting(h2.WINDOW_SIZE, (1 << 31) - 1)) as client:
            client.send(frame(h2.WINDOW_UPDATE, 0, 0, h2.u32((1 << 31) - 65536)))
            for i in range(500):
                if not client.send(client.get(2 * i + 1, "/large?1000000")):
                    break
            now = until(server, lambda now: now["connections_now"] == 2)
            assert now["memory_peak"] < 5_000_000, now


def test_bad_beginnings():
    with attacked() as server:
        for preface in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", b"PRI / HTTP/2.0\r\nhost: a\r\n\r\n"):
            with Client(server.port, preface=preface) as client:
                assert re.match(rb"HTTP/1.1 (400|405|505) ", client.refusal()), preface
        with Client(server.port) as client:
            client.send(frame(h2.DATA, 0, 1, b"x" * 16385))
            ended(client, h2.FRAME_SIZE_ERROR)


def test_gone_clients():
    with attacked() as server:
        for _ in range(20):
            with Client(server.port) as client:
                client.send(*(client.get(stream, "/slow") for stream in range(1, 101, 2)))
                client.send(client.head(101), client.data(101, b"hel", False))
                client.ask(103)
        assert until(server, lambda now: now["waiting"] == 0)["gone"] == 1000


# --- Other clients ---


def test_nghttp():
    if shutil.which("nghttp") is None:
        return "nghttp is not installed"
    with serve() as server, tempfile.NamedTemporaryFile() as body:
        body.write(b"hello" * 10000)
        body.flush()
        got = subprocess.run(["nghttp", "-v", "-d", body.name, f"http://127.0.0.1:{server.port}/trailers"],
                             capture_output=True, timeout=PATIENCE_S, check=True).stdout
        text = re.sub(rb"\x1b\[[0-9;]*m", b"", got)
        assert b":status: 200" in text and b"grpc-status: 0" in text and text.count(b"hello" * 1000) > 0, text[-2000:]
    return None


def test_h2load():
    if shutil.which("h2load") is None:
        return "h2load is not installed"
    with serve() as server, tempfile.NamedTemporaryFile() as body:
        body.write(b"hello" * 20)
        body.flush()
        for path in ("echo", "turn", "large?100000"):
            got = subprocess.run(["h2load", "-c", "4", "-m", "32", "-n", "2000", "-d", body.name,
                                  f"http://127.0.0.1:{server.port}/{path}"], capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=True).stdout
            assert "2000 succeeded, 0 failed, 0 errored" in got and "2000 2xx" in got, got
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
