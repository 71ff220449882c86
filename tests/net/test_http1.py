#!/usr/bin/env python3
"""engine/net over HTTP/1.1: what it refuses, what it bounds, and that neighbours of bad clients are answered.

    tests/net/test_http1.py PATH_OF_LEAT_ECHO
"""

import os
import re
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import stretched  # noqa: E402
from server import Connection, Server, get, post  # noqa: E402

ECHO = os.path.abspath(sys.argv[1])
MANY = 2000
KIB, MIB = 1 << 10, 1 << 20


def serve(*words, **names):
    return Server(ECHO, *words, **names)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def check_neighbour(server):
    with server.connect() as connection:
        assert connection.ask(post("/echo", b"neighbour")).text == "neighbour"


# --- Answers ---


def test_answers():
    with serve() as server, server.connect() as connection:
        answer = connection.ask(post("/echo", b"hello"))
        assert answer.status == 200 and answer.body == b"hello", answer
        assert answer.fields["content-type"] == "text/plain" and "connection" not in answer.fields, answer
        now, date = time.time(), answer.fields["date"]
        allowed = [time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now - back)) for back in range(3)]
        assert date in allowed, date
        assert connection.ask(post("/slow", b"later")).text == "later"
        assert connection.ask(post("/turn", b"turned")).text == "turned"
        assert connection.ask(get("/close")).fields["connection"] == "close"
        assert connection.is_closed()


def test_what_a_service_sees():
    with serve() as server, server.connect() as connection:
        seen = connection.ask(get("/a%20b/%c3%a4%2f?x=%20&y#"[:-1], "X-One:  1 \t", "x-two:", "X-ONE: again")).text
        assert seen == "GET\n/a b/ä/\nx=%20&y\nhost=localhost\nx-one=1\nx-two=\nx-one=again\n", seen
        seen = connection.ask(get("http://LOCALHOST/p?q", host="localhost")).text
        assert seen.startswith("GET\n/p\nq\n"), seen
        # Fields that http_parser reads in its own way.
        seen = connection.ask(get("/p", "upgrade: h2c", "connection: upgrade, http2-settings")).text
        assert seen.startswith("GET\n/p\n\n"), seen
        assert connection.ask(get("/again")).status == 200


def test_head_requests():
    with serve() as server, server.connect() as connection:
        for _ in range(2):
            answer = connection.ask(get("/large?1000", method="HEAD"), has_body=False)
            assert answer.fields["content-length"] == "1000", answer
        assert connection.ask(get("/large?10")).body == b"abcdefghij"


def test_old_version():
    with serve() as server:
        with server.connect() as connection:
            answer = connection.ask(get("/echo", "connection: keep-alive", host="", version="1.0"))
            assert answer.fields["connection"] == "keep-alive", answer
            assert connection.ask(get("/echo", version="1.0")).fields["connection"] == "close"
            assert connection.is_closed()
        with server.connect() as connection:
            assert connection.ask(get("/echo", "connection: close")).fields["connection"] == "close"
            assert connection.is_closed()


def test_continue():
    with serve("--body", "100") as server:
        with server.connect() as connection:
            request = post("/echo", b"12345", "expect: 100-Continue")
            connection.send(request[:-5])
            assert connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert connection.ask(b"12345").text == "12345"
            # A body that comes at once needs no leave.
            assert connection.ask(request).text == "12345"
        for target, length, status in (("/echo", 101, 413), ("/early", 5, 404)):
            with server.connect() as connection:
                answer = connection.ask(get(target, f"content-length: {length}", "expect: 100-continue", method="POST"))
                assert answer.status == status and answer.fields["connection"] == "close", answer
                assert connection.is_closed()


def test_chunks():
    with serve() as server, server.connect() as connection:
        head = get("/echo", "Transfer-Encoding: Chunked", method="POST")
        body = b"3\r\nabc\r\n5;name=value\r\ndefgh\r\n00A \r\n"
        good = (b"3\r\nabc\r\nA;n=v\r\n0123456789\r\n0\r\nx-trailer: 1\r\nother: 2\r\n\r\n", b"abc0123456789"), \
            (b"0\r\n\r\n", b""), (b"00000001;\ta\r\nx\r\n0;last\r\n\r\n", b"x")
        for body, want in good:
            answer = connection.ask(head + body)
            assert answer.body == want, (body, answer)
        bad = [b"3\nabc\r\n0\r\n\r\n", b"3\r\nabc\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"x\r\n", b"\r\n", b"-1\r\n",
               b"+3\r\nabc\r\n", b"0x3\r\nabc", b" 3\r\nabc\r\n", b"3 \r\nabc\r\n", b"000000001\r\n", b"fffffffff\r\n",
               b"3\rabc", b"0\r\n\n", b"0\r\n a: folded\r\n\r\n", b"0\r\na: \0\r\n\r\n", b"1;\0\r\na\r\n", b"1\r\na\r\r0",
               b"1;" + b"e" * 5000, b"0\r\n" + b"a: b\r\n" * 2000]
        for body in bad:
            with server.connect() as other:
                answer = other.ask(head + body)
                assert answer.status == 400, (body[:40], answer)
                assert other.is_closed(), body[:40]


def answers_to(server, parts, count):
    """What the server answers to bytes that come in parts; without dates."""
    with server.connect() as connection:
        for part in parts:
            connection.send(part)
            if len(parts) > 1:
                time.sleep(0.0008)
        return [(answer.status, answer.body, answer.fields.get("connection")) for answer in
                (connection.answer() for _ in range(count))]


def test_split_anywhere():
    chunked = get("/echo", "transfer-encoding: chunked", method="POST") + chunk(b"ab") + chunk(b"c" * 17) + b"0\r\na: b\r\n\r\n"
    bad = get("/echo", "x : y")
    requests = [(post("/echo", b"hello") + get("/see?a"), 2), (chunked + chunked, 2), (get("/turn") + post("/turn", b"x"), 2),
                (get("/p") + bad, 2), (b"P" + post("/echo", b"y"), 1)]
    with serve() as server:
        for request, count in requests:
            whole = answers_to(server, [request], count)
            assert answers_to(server, [request[i:i + 1] for i in range(len(request))], count) == whole, request
            for at in range(1, len(request)):
                assert answers_to(server, [request[:at], request[at:]], count) == whole, (request, at)


def test_pipelined():
    with serve() as server, server.connect() as connection:
        targets = ["/slow" if i % 40 == 7 else "/turn" if i % 3 == 0 else "/echo" for i in range(120)]
        connection.send(b"".join(post(target, b"%d" % i) for i, target in enumerate(targets)))
        for i in range(120):
            assert connection.answer().body == b"%d" % i, i
        # Each answer waits for a turn of the loop, which comes at once.
        began = time.monotonic()
        connection.send(get("/turn") * 3000)
        for _ in range(3000):
            connection.answer()
        assert time.monotonic() - began < stretched(3), "turns are late"
        # More than one read takes, and more than may wait to be sent.
        count, body = 3000, b"z" * 300
        sender = threading.Thread(target=connection.send, args=(post("/echo", body) * count,))
        sender.start()
        for i in range(count):
            assert connection.answer().body == body, i
        sender.join()


def test_pipelined_large():
    with serve() as server, server.connect() as connection:
        connection.send(get("/large?2000000") * 20)
        time.sleep(0.1)
        peak = server.counters()["memory_peak"]
        assert peak < 5 * MIB, f"answers pile up before they are taken: {peak}"
        for _ in range(20):
            assert len(connection.answer().body) == 2000000


def test_flood():
    """What follows a request whose answer is awaited stays in the socket."""
    flood = post("/echo", b"z" * 1000) * 15000
    with serve() as server, server.connect() as connection:
        sender = threading.Thread(target=connection.send, args=(post("/slow", b"first") + flood,))
        sender.start()
        assert connection.answer().text == "first"
        peak = server.counters()["memory_peak"]
        assert peak < MIB, f"requests pile up: {peak}"
        for _ in range(15000):
            assert len(connection.answer().body) == 1000
        sender.join()


def test_end_of_the_client():
    with serve() as server:
        for rest in (b"", b"GET /"):
            with server.connect() as connection:
                connection.send(get("/large?20000000") + rest)
                connection.socket.shutdown(socket.SHUT_WR)
                time.sleep(0.05)
                assert len(connection.answer().body) == 20000000 and connection.is_closed(), rest
        for part in (b"", b"GET", get("/slow"), post("/echo", b"abc")[:-1], b"PRI * HTTP"):
            with server.connect() as connection:
                connection.send(part)
                time.sleep(0.01)
        deadline = time.monotonic() + 10
        while server.counters()["gone"] == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.counters()["gone"] == 1


# --- Rules ---


def check_refused(server, request, status, closes=True):
    with server.connect() as connection:
        answer = connection.ask(request)
        assert answer.status == status, (request[:80], answer)
        assert len(answer.text) > 10 and answer.fields["content-type"].startswith("text/plain"), (request[:80], answer)
        if closes:
            assert answer.fields.get("connection") == "close", (request[:80], answer)
            assert connection.is_closed(), request[:80]


def test_strict_heads():
    line, host = b"POST /echo HTTP/1.1\r\n", b"host: localhost\r\n"
    bad = {
        "length and coding": line + host + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "coding and length": line + host + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "two lengths": line + host + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "two equal lengths": line + host + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        "sign": line + host + b"content-length: +7\r\n\r\n1234567",
        "negative": line + host + b"content-length: -7\r\n\r\n1234567",
        "list of lengths": line + host + b"content-length: 7, 7\r\n\r\n1234567",
        "hexadecimal": line + host + b"content-length: 0x7\r\n\r\n1234567",
        "empty length": line + host + b"content-length: \r\n\r\n",
        "huge length": line + host + b"content-length: 18446744073709551617\r\n\r\n",
        "space in length": line + host + b"content-length: 1 2\r\n\r\n",
        "two codings": line + host + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "coding of HTTP/1.0": b"POST /echo HTTP/1.0\r\n" + host + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "space before colon": line + host + b"x : y\r\n\r\n",
        "tab before colon": line + b"host\t: localhost\r\n\r\n",
        "no colon": line + host + b"abc\r\n\r\n",
        "empty name": line + host + b": abc\r\n\r\n",
        "name": line + host + b"a(b: abc\r\n\r\n",
        "bare line feed": line + b"host: localhost\n\r\n",
        "bare line feeds": b"GET /echo HTTP/1.1\nhost: localhost\n\n",
        "line feed ends head": line + host + b"\n",
        "bare return": line + host + b"x: a\rb: c\r\n\r\n",
        "folded": line + host + b"x: a\r\n b\r\n\r\n",
        "folded first": line + b" x: a\r\n" + host + b"\r\n",
        "folded by a tab": line + host + b"x: a\r\n\tb\r\n\r\n",
        "NUL in value": line + host + b"x: a\0b\r\n\r\n",
        "NUL in name": line + host + b"x\0: a\r\n\r\n",
        "DEL": line + host + b"x: \x7f\r\n\r\n",
        "no host": line + b"x: y\r\n\r\n",
        "two hosts": line + host + host + b"\r\n",
        "bad host": line + b"host: local host\r\n\r\n",
        "host with a name": line + b"host: a@localhost\r\n\r\n",
        "empty line first": b"\r\n" + line + host + b"\r\n",
        "two spaces": b"GET  /echo HTTP/1.1\r\n" + host + b"\r\n",
        "space behind": b"GET /echo HTTP/1.1 \r\n" + host + b"\r\n",
        "no version": b"GET /echo\r\n" + host + b"\r\n",
        "lower case": b"GET /echo http/1.1\r\n" + host + b"\r\n",
        "tab": b"GET\t/echo\tHTTP/1.1\r\n" + host + b"\r\n",
        "no target": b"GET HTTP/1.1\r\n" + host + b"\r\n",
        "other absolute": b"GET http://other/echo HTTP/1.1\r\n" + host + b"\r\n",
        "asterisk": b"OPTIONS * HTTP/1.1\r\n" + host + b"\r\n",
        "raw UTF-8": b"GET /\xc3\xa4 HTTP/1.1\r\n" + host + b"\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }
    with serve() as server:
        for what, request in bad.items():
            try:
                check_refused(server, request, 400)
            except AssertionError as error:
                raise AssertionError(f"{what}: {error}") from error
        check_refused(server, line + host + b"transfer-encoding: gzip, chunked\r\n\r\n", 501)
        check_refused(server, line + host + b"transfer-encoding: chunked, identity\r\n\r\n", 501)
        check_refused(server, line + host + b"expect: nothing\r\n\r\n", 417)
        check_refused(server, b"GET /echo HTTP/2.0\r\n" + host + b"\r\n", 505)
        check_refused(server, b"GET /echo HTTP/0.9\r\n" + host + b"\r\n", 505)
        assert server.counters()["refused"] == len(bad) + 5


def test_methods():
    with serve() as server:
        for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT"):
            check_refused(server, get("/echo", method=method), 405)
        for method in ("get", "BREW", "PROPFIND", "PRI"):
            check_refused(server, get("/echo", method=method), 501)
        with server.connect() as connection:
            assert connection.ask(get("/see", method="OPTIONS")).text.startswith("OPTIONS\n")


def test_paths():
    with serve() as server:
        for path in ("/a/../b", "/..", "/%2e%2E/x", "/a%2f..%2fb", "/a%00b", "/%ff", "/%c0%80", "/%", "/%4", "/%zz", "/a#b",
                     "/a%0d%0ab", "/%7f"):
            check_refused(server, get(path), 400, closes=True)
        check_refused(server, get("/" + "a" * 2048), 414, closes=False)
        with server.connect() as connection:
            for path, seen in (("/a..b/...", "/a..b/..."), ("/%25%32%65%25", "/%2e%"), ("/" + "a" * 2047, "/" + "a" * 2047),
                               ("//x//", "//x//")):
                assert connection.ask(get(path)).text.split("\n")[1] == seen, path


def test_names():
    with serve() as server:
        for host in ("localhost", "localhost:1", "127.0.0.1", "127.1.2.3:99", "[::1]", "[::1]:80", "LocalHost:65535"):
            with server.connect() as connection:
                assert connection.ask(get("/echo", host=host)).status == 200, host
        for host in ("evil.example", "localhost.evil.example", "1.2.3.4", "[::2]:80", "127.0.0.1.evil.example", "0", "localhost."):
            check_refused(server, get("/echo", host=host), 421, closes=False)
        for host in ("localhost:", "localhost:65536", "[::1", "::1", "localhost:8x", "a,localhost", "[localhost]x"):
            check_refused(server, get("/echo", host=host), 400)
        for origin in ("http://localhost:8000", "https://LOCALHOST:8000"):
            with server.connect() as connection:
                assert connection.ask(get("/echo", f"origin: {origin}", host="localhost:8000")).status == 200, origin
        with server.connect() as connection:
            assert connection.ask(get("/echo", "origin: https://localhost", host="localhost:443")).status == 200
        for origin in ("http://evil.example", "null", "http://localhost:8001", "http://localhost", "http://127.0.0.1:8000",
                       "localhost:8000", "ftp://localhost:8000", "http://localhost:8000/", ""):
            check_refused(server, get("/echo", f"origin: {origin}", host="localhost:8000"), 403, closes=False)
        check_refused(server, get("/echo", "origin: http://localhost", "origin: http://evil"), 403, closes=False)


# --- Streams ---


def parts_of(connection, until=None):
    """The parts of a chunked stream: until its end, or until one ends so."""
    parts = []
    while True:
        length = int(connection.until(b"\r\n"), 16)
        part = connection.take(length)
        assert connection.take(2) == b"\r\n"
        if length == 0:
            return parts
        parts.append(part.decode())
        if until is not None and parts[-1].endswith(until):
            return parts


def streaming(connection, target, *fields):
    connection.send(get(target, *fields))
    head = connection.answer(has_body=False)
    assert head.status == 200 and head.fields["transfer-encoding"] == "chunked" and "content-length" not in head.fields, head
    return head


def test_streams():
    with serve() as server:
        with server.connect() as connection:
            for count in (1, 3):
                streaming(connection, f"/stream?{count}")
                assert parts_of(connection) == [f"part {i + 1}\n" for i in range(count)]
            assert connection.ask(post("/echo", b"behind it")).text == "behind it"
            # A request that comes while a stream goes on waits for its end.
            connection.send(get("/stream?4") + post("/echo", b"waited"))
            assert connection.answer(has_body=False).status == 200
            assert len(parts_of(connection)) == 4 and connection.answer().text == "waited"
            answer = connection.ask(get("/stream?2", method="HEAD"), has_body=False)
            assert answer.fields["transfer-encoding"] == "chunked", answer
            assert connection.ask(post("/echo", b"alive")).text == "alive"
            streaming(connection, "/stream?2", "connection: close")
            assert len(parts_of(connection)) == 2 and connection.is_closed()
        with server.connect() as connection:
            connection.send(get("/stream?3", "connection: keep-alive", version="1.0"))
            head = connection.answer(has_body=False)
            assert "transfer-encoding" not in head.fields and head.fields["connection"] == "close", head
            assert connection.until(b"part 3\n") == b"part 1\npart 2\npart 3\n" and connection.is_closed()
        assert server.counters()["streams_gone"] == 0


def wait_for(server, name, count):
    deadline = time.monotonic() + stretched(30)
    while (figures := server.counters())[name] != count:
        assert time.monotonic() < deadline, (name, count, figures)
        time.sleep(0.02)
    return figures


def test_streams_of_clients_that_go():
    with serve() as server:
        ways = (lambda connection: connection.socket.close(), lambda connection: connection.socket.shutdown(socket.SHUT_WR),
                lambda connection: (connection.send(b"x" * 100000), connection.socket.close()))
        for count, way in enumerate(ways, 1):
            with server.connect() as connection:
                streaming(connection, "/stream?0")
                parts_of(connection, until="part 2\n")
                way(connection)
                wait_for(server, "streams_gone", count)
        check_neighbour(server)


def test_quiet_streams():
    """No deadline ends a stream that is quiet, nor one whose client takes each part late but takes it."""
    with serve("--idle-ms", "100", "--head-ms", "100", "--body-ms", "100", "--write-ms", "100") as server:
        with server.connect() as connection:
            streaming(connection, "/stream?30")
            assert len(parts_of(connection)) == 30


def test_slow_reader_of_a_stream():
    """It is closed; what it has not taken is bounded and counted, parts are left out; its neighbours get all."""
    with serve("--write-ms", "3000") as server:
        with server.connect() as good, Connection(server.port, receive_bytes=4096) as slow:
            streaming(good, "/stream?0,200000")
            slow.send(get("/stream?0,200000"))
            peak, seen = 0, 0
            while (now := server.counters())["streams_gone"] == 0:
                peak, seen = max(peak, now["memory_now"]), seen + 1
                parts_of(good, until="\n")
            assert now["parts_left_out"] > 0 and 250000 < peak < 1000000 and seen > 10, (now, peak)
            assert now["refused"] == 1, now
            assert len(parts_of(good, until="\n")) == 1 and server.counters()["streams_gone"] == 1


def test_late_reader_of_a_stream():
    """It always has something to take, and takes it as fast as it comes: it stays."""
    with serve("--write-ms", "1500") as server, Connection(server.port, receive_bytes=4096) as late:
        late.send(get("/stream?0,20000"))
        time.sleep(0.25)
        until, begun, taken = time.monotonic() + 4, time.monotonic(), 0
        while time.monotonic() < until:
            if taken < (time.monotonic() - begun) * 380000:
                assert late.more(20000), server.counters()
                taken += len(late.take(len(late.bytes)))
            else:
                time.sleep(0.005)
        assert server.counters()["streams_gone"] == 0 and taken > 300000, taken


def test_reader_that_leaves_all_to_the_kernel():
    """Parts that fit into the kernel's buffers are not taken either."""
    with serve("--write-ms", "500") as server, Connection(server.port, receive_bytes=4096) as slow:
        slow.send(get("/stream?0,3000"))
        began = time.monotonic()
        figures = wait_for(server, "streams_gone", 1)
        assert figures["parts_left_out"] == 0 and figures["memory_peak"] < 20000, figures
        assert 0.4 < time.monotonic() - began < stretched(10)


def test_many_streams():
    with serve("--memory", str(4 * MIB)) as server:
        clients = [server.connect() for _ in range(300)]
        try:
            for client in clients:
                client.send(get("/stream?0"))
            for client in clients:
                assert client.answer(has_body=False).status == 200
                parts_of(client, until="part 3\n")
        finally:
            for client in clients:
                client.socket.close()
        wait_for(server, "streams_gone", 300)


def test_streams_end_with_the_loop():
    with serve() as server, server.connect() as first, Connection(server.port, receive_bytes=4096) as stuck:
        streaming(first, "/stream?0")
        stuck.send(get("/stream?0,200000"))
        parts_of(first, until="part 20\n")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        parts_of(first)  # to its end, in order
        assert first.is_closed()
        stuck.socket.close()
        figures = server.stop()
        assert figures["streams_gone"] == 2 and time.monotonic() - began < stretched(5), figures


def test_memory_of_streams():
    """Parts are left out while the loop has no memory for them."""
    with serve("--memory", "100000") as server, server.connect() as connection:
        streaming(connection, "/stream?3,90000")
        assert len(parts_of(connection)) == 3
        streaming(connection, "/stream?3,120000")
        assert not parts_of(connection) and server.counters()["parts_left_out"] == 3


# --- Tokens ---


def test_open_paths():
    with serve("--token", "s3cret") as server, server.connect() as connection:
        for request in (get("/open"), get("/op%65n?x"), get("/open", "authorization: Bearer wrong")):
            assert connection.ask(request).status == 200
        for request in (get("/open/"), get("/open2"), get("/"), post("/open", b""), get("//open"), get("/see?/open")):
            with server.connect() as other:
                assert other.ask(request).status == 401, request
        assert connection.ask(get("/open", "origin: http://evil.example")).status == 403
        assert connection.ask(get("/open", host="evil.example")).status == 421


def test_token():
    with serve("--token", "s3cret") as server:
        with server.connect() as connection:
            for scheme in ("Bearer", "bearer", "BEARER"):
                assert connection.ask(get("/echo", f"authorization: {scheme} s3cret")).status == 200
            for fields in ((), ("authorization: Bearer s3cre",), ("authorization: Bearer s3crets",), ("authorization: s3cret",),
                           ("authorization: Basic s3cret",), ("authorization: Bearer",), ("authorization: Bearer ",),
                           ("authorization: Bearer s3cret", "authorization: Bearer s3cret")):
                answer = connection.ask(get("/echo", *fields))
                assert answer.status == 401 and answer.fields["www-authenticate"] == "Bearer", (fields, answer)
        # A body without the token is not read.
        check_refused(server, get("/echo", "content-length: 100000", method="POST"), 401)
        assert server.stop()["requests_http1"] == 3


# --- Limits ---


def test_large_heads():
    with serve() as server:
        check_refused(server, get("/echo", "x: " + "y" * 100 * KIB), 431)
        check_refused(server, get("/echo", *[f"x{i}: y" for i in range(100)]), 431)
        check_refused(server, b"GET /" + b"a" * 100 * KIB, 431)
        with server.connect() as connection:
            assert connection.ask(get("/echo", *[f"x{i}: y" for i in range(99)])).status == 200
            assert connection.ask(get("/echo", "x: " + "y" * 16200)).status == 200
            size = 16384 - len(get("/echo", "x: "))
            assert connection.ask(get("/echo", "x: " + "y" * size)).status == 200
            assert connection.ask(get("/echo", "x: " + "y" * (size + 1))).status == 431


def test_large_bodies():
    with serve("--body", "1000") as server:
        check_refused(server, get("/echo", f"content-length: {1 << 30}", method="POST"), 413)
        check_refused(server, get("/echo", "content-length: 1001", method="POST"), 413)
        head = get("/echo", "transfer-encoding: chunked", method="POST")
        check_refused(server, head + chunk(b"a" * 600) + chunk(b"a" * 401), 413)
        # The answer reaches a client that goes on sending.
        check_refused(server, post("/echo", b"a" * 16 * MIB), 413)
        with server.connect() as connection:
            assert connection.ask(post("/echo", b"b" * 1000)).body == b"b" * 1000
            assert connection.ask(head + chunk(b"a" * 600) + chunk(b"a" * 400) + b"0\r\n\r\n").body == b"a" * 1000


def test_slow_senders():
    with serve("--head-ms", "150", "--body-ms", "250", "--idle-ms", "30000") as server:
        began = time.monotonic()
        slow = [server.connect() for _ in range(25)]
        parts = [b"G", get("/echo")[:-1], b"PRI * HT", post("/echo", b"abc")[:-1],
                 get("/echo", "transfer-encoding: chunked", method="POST") + b"3\r\nab"]
        for i, connection in enumerate(slow):
            connection.send(parts[i % len(parts)])
        drip = server.connect()
        closed_at = None
        for byte in get("/echo", "x: " + "y" * 300):
            check_neighbour(server)
            try:
                drip.send(bytes([byte]))
            except (BrokenPipeError, ConnectionResetError):
                closed_at = time.monotonic() - began
                break
            time.sleep(0.01)
        assert closed_at is not None, "a head that drips is not cut off"
        for i, connection in enumerate(slow):
            kind = i % len(parts)
            if kind != 2:
                assert connection.answer().status == 408, parts[kind]
            assert connection.is_closed(), parts[kind]
            connection.socket.close()
        drip.socket.close()
        figures = server.counters()
        assert figures["refused"] == 26, figures  # the parts, and the drip


def test_each_wait_has_its_own_end():
    parts = {"head": get("/echo")[:-1], "body": post("/echo", b"abc")[:-1], "idle": b""}
    for short, part in parts.items():
        words = [word for name in parts for word in (f"--{name}-ms", "150" if name == short else "30000")]
        with serve(*words) as server:
            connections = {name: server.connect() for name in parts}
            for name, connection in connections.items():
                connection.send(parts[name])
            if part:
                assert connections[short].answer().status == 408, short
            assert connections[short].is_closed(), short
            for name, connection in connections.items():
                assert name == short or connection.is_silent(0.2), (short, name)
                connection.socket.close()
    with serve("--idle-ms", "150") as server, server.connect() as connection:  # between requests
        assert connection.ask(get("/echo")).status == 200
        assert connection.is_closed()


def test_waiting_for_the_service():
    """What a service takes its time for is not cut off by the deadlines of clients."""
    with serve("--head-ms", "60", "--body-ms", "60", "--idle-ms", "60", "--write-ms", "60") as server:
        with server.connect() as connection:
            for _ in range(2):
                assert connection.ask(post("/slow", b"x")).text == "x"


def test_slow_readers():
    with serve("--write-ms", "1000", "--memory", str(400 * MIB)) as server:
        slow = [Connection(server.port, receive_bytes=4 * KIB) for _ in range(5)]
        for connection in slow:
            connection.send(get("/large?20000000"))
        # One of them reads now and then: as long as it takes bytes it is served.
        reader = Connection(server.port, receive_bytes=MIB)
        reader.send(get("/large?60000000"))
        figures = server.counters()
        while figures["memory_now"] < 140 * MIB and figures["refused"] == 0:  # a slow machine refuses the first before the last is made
            time.sleep(0.01)
            figures = server.counters()
        while figures["refused"] < 5:
            reader.more(256 * KIB)
            check_neighbour(server)
            time.sleep(0.02)
            figures = server.counters()
        assert figures["refused"] == 5 and 50 * MIB < figures["memory_now"] < 70 * MIB, figures
        assert len(reader.answer().body) == 60000000
        for connection in slow + [reader]:
            connection.socket.close()


def test_dripping_reader():
    """A client that takes a little now and then is cut off."""
    with serve("--write-ms", "500", "--memory", str(60 * MIB)) as server:
        drip = Connection(server.port, receive_bytes=4 * KIB)
        drip.send(get("/large?20900000"))
        figures, deadline = server.counters(), time.monotonic() + 60
        while figures["memory_now"] < 15 * MIB and figures["refused"] == 0:
            time.sleep(0.01)
            figures = server.counters()
        while server.counters()["refused"] < 1:
            drip.more(KIB)
            assert time.monotonic() < deadline, "the client is served for ever"
            time.sleep(0.05)
        drip.socket.close()


def test_memory():
    with serve("--memory", str(300 * KIB), "--body", str(MIB)) as server:
        with server.connect() as connection:
            answer = connection.ask(get("/echo", "content-length: 400000", method="POST"))
            assert answer.status == 503 and answer.fields["retry-after"] == "1", answer
        held = []
        for _ in range(2):
            held.append(server.connect())
            held[-1].send(get("/echo", "content-length: 100000", method="POST") + b"x" * 99999)
        while server.counters()["memory_now"] < 199998:
            time.sleep(0.005)
        with server.connect() as connection:
            assert connection.ask(get("/echo", "content-length: 110000", method="POST")).status == 503
        with server.connect() as connection:  # not announced
            head = get("/echo", "transfer-encoding: chunked", method="POST")
            assert connection.ask(head + chunk(b"x" * 65000) + chunk(b"x" * 65000)).status == 503
        check_neighbour(server)
        for connection in held:
            assert len(connection.ask(b"x").body) == 100000
            connection.socket.close()
        assert server.counters()["memory_now"] < 100


def crowd(server, many):
    """Connections that have all asked for a millisecond of work."""
    connections = [server.connect() for _ in range(many)]
    for connection in connections:
        connection.send(get("/spin"))
    return connections


def in_order(connections):
    """Connections in the order in which they get answers."""
    poll = select.poll()
    by_number = {connection.socket.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while by_number:
        for number, _ in poll.poll():
            poll.unregister(number)
            yield by_number.pop(number)


def test_parked():
    """Under overload who asks last is answered before those that wait already; they wait unread, and are answered, too."""
    many, answered_first = 600, 100
    with serve("--pass-us", "10000") as server:
        connections, order, late = crowd(server, many), [], server.connect()
        for connection in in_order([*connections, late]):
            order.append(connection)
            if len(order) == answered_first:
                late.send(get("/spin"))
        assert len(order) == many + 1
        waited = [int(connection.answer().text) for connection in order]
        rank = order.index(late)
        assert rank < answered_first + 300, f"who asked last was answered after {rank} of {many}"
        assert waited[0] == 0 and sum(wait > 50000 for wait in waited) > 100, waited
        place = {connection: number for number, connection in enumerate(order)}
        first, last = (sum(map(place.get, some)) for some in (connections[100:200], connections[-100:]))
        assert last < first, f"who was parked last was not read first: {last / 100}, {first / 100}"
        # Connections are read as ever when there are no more than can be.
        for connection in connections[::2]:
            assert int(connection.ask(get("/spin")).text) == 0
        for connection in order:
            connection.socket.close()


def test_parked_and_gone():
    """Clients that leave while nobody reads what they sent; and a stop meanwhile, before which all that came is read."""
    with serve("--pass-us", "10000", "--grace-ms", "20000") as server:
        connections = crowd(server, 600)
        gone = set(connections[1::3])
        stay = [connection for connection in connections if connection not in gone]
        for _ in zip(range(50), in_order(stay)):
            pass
        for connection in gone:
            connection.socket.close()
        server.process.send_signal(signal.SIGTERM)
        for connection in stay:
            assert connection.answer().status == 200
            connection.socket.close()


def test_parked_too_long():
    """Connections that are closed while they are parked, because their time has passed."""
    with serve("--pass-us", "10000", "--idle-ms", "100") as server:
        connections, closed = crowd(server, 600), 0
        for connection in connections:
            closed += not connection.more()
            connection.socket.close()
        assert 0 < closed < 600, closed
        check_neighbour(server)


def test_many_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = min(hard, 2 * MANY + 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))
    many = min(MANY, want - 100)
    with serve("--connections", str(many)) as server:
        connections = []
        for i in range(many - 1):
            connections.append(server.connect())
            connections[-1].send(b"GET /" if i % 2 else b"")
            if i % 200 == 0:
                check_neighbour(server)
        while server.counters()["connections_now"] < many:
            time.sleep(0.01)
        check_neighbour(server)
        extra = [server.connect() for _ in range(20)]
        # One place is free: the first of them has it, or a neighbour that asked.
        assert sum(connection.is_closed() for connection in extra[1:]) == 19
        extra[0].socket.close()
        for connection in extra[1:]:
            connection.socket.close()
        for connection in connections[::7]:
            assert connection.ask(b"GET /echo HTTP/1.1\r\nhost: localhost\r\n\r\n" if not connections.index(connection) % 2
                                  else b"echo HTTP/1.1\r\nhost: localhost\r\n\r\n").status == 200
        figures = server.counters()
        assert figures["connections_refused"] == 19 == figures["refused"], figures
        for connection in connections:
            connection.socket.close()


def test_figures():
    with serve() as server:
        with server.connect() as connection:
            sent = post("/echo", b"a" * 1000) * 50
            connection.send(sent)
            received = sum(len(connection.answer().body) for _ in range(50))
            assert received == 50000
        figures = server.counters()
        assert figures["requests_http1"] == 51 and figures["connections"] == 2 and figures["refused"] == 0, figures
        assert figures["bytes_in"] == len(sent) + len(get("/counters")) and 50000 < figures["bytes_out"] < 60000, figures
        assert 1000 <= figures["memory_peak"] < 200 * KIB, figures


# --- Ends ---


def test_stop():
    with serve() as server:
        idle, partial, slow, body, reader = (server.connect() for _ in range(5))
        assert idle.ask(get("/echo")).status == 200
        partial.send(b"GET /")
        slow.send(post("/slow", b"begun") + get("/echo"))
        body.send(post("/echo", b"whole")[:-2])
        reader.send(get("/large?20000000"))
        time.sleep(0.05)
        server.process.terminate()
        assert idle.is_closed() and partial.is_closed()
        body.send(b"le")
        for connection, want in ((slow, "begun"), (body, "whole")):
            answer = connection.answer()
            assert answer.text == want and answer.fields["connection"] == "close", answer
            assert connection.is_closed()
        assert len(reader.answer().body) == 20000000
        try:
            server.connect()
            raise AssertionError("a server that stops takes connections")
        except ConnectionRefusedError:
            pass
        for connection in (idle, partial, slow, body, reader):
            connection.socket.close()
        assert server.stop()["requests_http1"] == 4


def test_stop_sends_the_rest():
    with serve("--grace-ms", "60000") as server, server.connect() as reader:
        reader.send(get("/large?30000000"))
        while server.counters()["requests_http1"] < 2:
            time.sleep(0.01)
        server.process.terminate()
        time.sleep(0.3)
        assert len(reader.answer().body) == 30000000 and reader.is_closed()
        reader.socket.close()


def test_stop_has_an_end():
    with serve("--grace-ms", "300") as server:
        stuck = server.connect()
        stuck.send(post("/echo", b"whole")[:-2])
        time.sleep(0.05)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5
        server.figures.update(memory_now=0, connections_now=0)  # it was stopped with a request begun
        stuck.socket.close()


# --- TLS and addresses ---


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("ca", "other"):
        openssl(folder, "req", "-x509", *key, "-days", "3", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name, authority, days in (("server", "ca", "3"), ("expired", "ca", "-1"), ("client", "ca", "3"), ("late", "ca", "-1"),
                                  ("stranger", "other", "3")):
        openssl(folder, "req", *key, "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout",
                f"{name}.key", "-out", f"{name}.csr")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                "-CAcreateserial", "-days", days, "-copy_extensions", "copy", "-out", f"{name}.pem")


class Certificates:
    """A folder with certificates, made once."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        make_certificates(self.folder.name)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def words(self, name="server", authority=None):
        words = ["--certificate", self.path(f"{name}.pem"), "--key", self.path(f"{name}.key")]
        return words + (["--authority", self.path(f"{authority}.pem")] if authority else [])

    def wrap(self, client=None, protocols=(), version=None):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if client:
            context.load_cert_chain(self.path(f"{client}.pem"), self.path(f"{client}.key"))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        if version:
            context.maximum_version = version
        return lambda plain: context.wrap_socket(plain, server_hostname="localhost")


CERTIFICATES = Certificates()


def test_tls():
    with serve(*CERTIFICATES.words()) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with Connection(server.port, CERTIFICATES.wrap(protocols=["http/1.1"], version=version)) as connection:
                assert connection.socket.selected_alpn_protocol() == "http/1.1"
                assert connection.ask(post("/echo", b"secret")).text == "secret"
                assert connection.ask(post("/slow", b"later")).text == "later"
                body = os.urandom(200 * KIB)
                assert connection.ask(post("/echo", body)).body == body
                assert len(connection.ask(get("/large?5000000")).body) == 5000000
                connection.send(post("/turn", b"p" * 1000) * 200)  # pipelined
                assert sum(len(connection.answer().body) for _ in range(200)) == 200000
                assert connection.ask(get("/echo", "connection: close")).status == 200
                assert connection.socket.recv(10) == b""  # with an end that TLS shows
        with Connection(server.port, CERTIFICATES.wrap(protocols=["h2", "http/1.1"])) as connection:
            assert connection.socket.selected_alpn_protocol() == "h2"
        with server.connect() as plain:
            plain.send(get("/echo"))
            while plain.more():
                pass
            assert b"HTTP" not in plain.bytes
        old = subprocess.run(["openssl", "s_client", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-connect", f"127.0.0.1:{server.port}"], input=b"",
                             capture_output=True, check=False)
        assert old.returncode != 0
        check = Connection(server.port, CERTIFICATES.wrap())
        assert check.ask(get("/echo")).status == 200
        check.socket.close()


def test_tls_goes_on():
    """Behind an answer the next request is read, or waited for, as without TLS."""
    with serve(*CERTIFICATES.words(), "--idle-ms", "300") as server:
        with Connection(server.port, CERTIFICATES.wrap()) as connection:
            connection.send(get("/large?400000") * 30)
            time.sleep(0.05)
            for _ in range(30):
                assert len(connection.answer().body) == 400000
            assert connection.ask(get("/echo")).status == 200
            began = time.monotonic()
            assert connection.is_closed() and time.monotonic() - began > 0.1


def test_tls_handshake_has_an_end():
    with serve(*CERTIFICATES.words(), "--head-ms", "150") as server:
        for part in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"):
            with server.connect() as connection:
                connection.send(part)
                began = time.monotonic()
                assert connection.is_closed() and time.monotonic() - began < 5
        assert server.stop()["refused"] == 2


def test_certificates():
    with serve(*CERTIFICATES.words("expired")) as server:
        try:
            Connection(server.port, CERTIFICATES.wrap())
            raise AssertionError("the client takes an expired certificate")
        except ssl.SSLCertVerificationError:
            pass
    with serve(*CERTIFICATES.words(authority="ca")) as server:
        with Connection(server.port, CERTIFICATES.wrap("client")) as connection:
            assert connection.ask(post("/echo", b"known")).text == "known"
        for client in (None, "late", "stranger"):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                try:
                    with Connection(server.port, CERTIFICATES.wrap(client, version=version)) as connection:
                        connection.send(post("/echo", b"unknown"))
                        assert not connection.more(), f"a client with the certificate {client} is answered"
                except (ssl.SSLError, ConnectionError):
                    pass
        figures = server.stop()
        assert figures["requests_http1"] == 1 and figures["refused"] == 6, figures


def check_not_listening(words, code, *texts):
    result = subprocess.run([ECHO, *words], capture_output=True, text=True, check=False, timeout=30)
    assert result.returncode == 3, result
    assert f"[{code}]" in result.stderr, result.stderr
    for text in texts:
        assert text in result.stderr, result.stderr


def test_addresses():
    tls = CERTIFICATES.words()
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        check_not_listening(["--address", address, "--token", "t"], "E0609", "--certificate", "--key")
        check_not_listening(["--address", address, *tls], "E0402", "--token-file", "--clients")
    for address in ("127.0.0.1", "localhost:", ":80", "example.com:80", "127.0.0.1:65536", "[::1]80", "1.2.3:80", ""):
        check_not_listening(["--address", address], "E0618", "127.0.0.1:8000")
    check_not_listening(tls[:2], "E0402", "--certificate and --key")
    check_not_listening(["--authority", tls[1]], "E0402", "--certificate and --key")
    check_not_listening(["--token", "a b"], "E0403")
    check_not_listening(["--token", ""], "E0403")
    check_not_listening(["--certificate", "/dev/null", "--key", tls[3]], "E0601", "/dev/null")
    check_not_listening([*tls[:3], CERTIFICATES.path("client.key")], "E0601", "the key")
    check_not_listening([*tls, "--authority", "/nowhere"], "E0601", "/nowhere")
    with serve() as server:
        check_not_listening(["--address", f"127.0.0.1:{server.port}"], "E0618", "in use")
    with serve("--address", "0.0.0.0:0", "--token", "t", *tls) as server:
        with Connection(server.port, CERTIFICATES.wrap()) as connection:
            assert connection.ask(get("/echo", host="any.example")).status == 401
            assert connection.ask(get("/echo", "authorization: Bearer t", host="any.example")).status == 200


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
