#!/usr/bin/env python3
"""A day of the page in an hour, and a job of 256 nodes for five minutes: the browser's memory stays flat. Prints TAP.

    tests/page/soak.py PATH_OF_LEAT [--minutes N]      N: 60, or for a shorter day

The day's time is simulated: a server of this file answers what a real run answered before, and streams figures 24 times a
second, each a second later than the one before, with counts that go on. So the page draws and keeps what it would in a day,
24 times as fast; what a browser does by the clock alone is not made faster.
"""

import contextlib
import http.server
import json
import os
import sys
import threading
import time
import urllib.parse

from browser import PAGE, ROOT, Browser, Stream, missing
from jobs import begin, live

import tap

TIMES = 24
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
ROUTES = ("plan", "history", "checkpoints", "dead-letters", "log", "columns")
VIEWS = ("job", "learning", "data", "checkpoints", "serving", "log")
HOUR_S, VIEW_S, WIDE_S = 3600, 20, 300
HEAP_TIMES, HEAP_MORE = 1.3, 2 << 20


class Recorded:
    """What a real run answered, and the time since the simulated day began."""

    def __init__(self):
        with live.place() as folder, begin(folder) as run:
            run.wait_until_ready("/readyz")
            with Stream(run.port) as stream:
                time.sleep(6)
                self.answers = {route: json.loads(run.ask("/api/v1/" + route)[2]) for route in ROUTES}
                self.parts = {one["part"] for one in stream.figures[-1]["nodes"]}
                self.nodes = {part: json.loads(run.ask("/api/v1/history?node=" + urllib.parse.quote(part, ""))[2])
                              for part in self.parts}
            self.figures, self.hello = stream.figures[-1], stream.hello
        self.began = time.monotonic()
        self.began_ms = int(time.time() * 1000)

    def second(self):
        return int((time.monotonic() - self.began) * TIMES)

    def at(self, second):
        """The figures of that second: all counts of rows rise evenly."""
        figures = json.loads(json.dumps(self.figures))
        figures["seconds"] += second
        figures["now"] = self.began_ms + second * 1000
        figures["records_life"] += 1000 * second
        figures["records"] += 1000 * second
        for node in figures["nodes"]:
            for name in ("in", "passed"):
                node["counts"][name] += 1000 * second
            for report in node["report"].values():
                for name in ("logloss", "auc", "rmse"):
                    if isinstance(report.get(name), float):
                        report[name] *= 1 + (second % 60) / 100
        return figures

    def history(self, node, begin_ms):
        """The rows of the last hour from that time on, as the recorded one has them in turn."""
        answer = dict(self.nodes.get(node, self.answers["history"]))
        now, rows = self.second(), answer["values"]
        first = max(0, now - HOUR_S, -(-(begin_ms - self.began_ms) // 1000))
        answer["ticks"] = list(range(first, now + 1))
        answer["times"] = [self.began_ms + tick * 1000 for tick in answer["ticks"]]
        answer["values"] = [[row[tick % len(row)] if row else None for tick in answer["ticks"]] for row in rows]
        return answer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorded = None

    def log_message(self, *_):
        pass

    def do_GET(self):  # noqa: N802
        url = urllib.parse.urlsplit(self.path)
        route, query = url.path.removeprefix("/api/v1/"), dict(urllib.parse.parse_qsl(url.query))
        with contextlib.suppress(OSError):
            if route == "events":
                self.stream()
            elif route == "history":
                self.json(self.recorded.history(query.get("node"), int(query.get("from", 0))))
            elif route in self.recorded.answers:
                self.json(self.recorded.answers[route])
            else:
                self.file(url.path)

    def file(self, path):
        name = "index.html" if path == "/" else path[1:]
        if name not in os.listdir(os.path.join(PAGE, "bundle")):
            self.send_error(404)
            return
        with open(os.path.join(PAGE, "bundle", name), "rb") as file:
            self.answer(KINDS[os.path.splitext(name)[1]], file.read())

    def json(self, value):
        self.answer("application/json", json.dumps(value).encode())

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(f"event: hello\ndata: {json.dumps(self.recorded.hello)}\n\n".encode())
        told = -1
        while True:
            while (second := self.recorded.second()) == told:
                time.sleep(0.005)
            for one in range(max(told + 1, second - TIMES), second + 1):
                self.wfile.write(f"event: figures\nid: {one}\ndata: {json.dumps(self.recorded.at(one))}\n\n".encode())
            told = second


def check_flat(what, first, last, busy):
    print(f"# {what}: heap {first >> 10} KiB after a tenth, {last >> 10} KiB at the end; main thread {busy:.1%} busy")
    assert 0 < busy < 1, busy
    assert last <= HEAP_TIMES * first + HEAP_MORE, (what, first, last)


def look_around(tab, port, seconds):
    """Goes from view to view, and ends at the first."""
    deadline, turn = time.monotonic() + seconds, 0
    while (left := deadline - time.monotonic()) > 0:
        tab.goto(port, f"#/{VIEWS[turn % len(VIEWS)]}")
        turn += 1
        time.sleep(min(VIEW_S, left))
    tab.goto(port, "#/job")
    time.sleep(1)


def day(browser, seconds):
    Handler.recorded = Recorded()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        port, tab = server.server_address[1], browser.tab()
        tab.goto(port)
        tab.wait_for_value("state", "running")
        look_around(tab, port, seconds / 10)
        first = tab.heap()
        busy = tab.busy_share(seconds * 0.9, lambda some: look_around(tab, port, some))
        shown = float(tab.values()["figures.seconds"]) - Handler.recorded.figures["seconds"]
        assert shown >= 0.9 * seconds * TIMES, f"the page shows second {shown} of {seconds * TIMES}"
        assert not tab.errors(), tab.errors()[:3]
        check_flat(f"{shown / 3600:.1f} h in {seconds / 60:.1f} min", first, tab.heap(), busy)
        tab.shot("soak-day")
        tab.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wide(browser, seconds):
    """A live job of 256 nodes."""
    with live.place(live.wide(253), 400_000) as folder, begin(folder, "run.claimed=sleep:5000") as run:
        run.wait_until_ready("/readyz")
        tab = browser.tab()
        tab.goto(run.port)
        tab.wait_for_value("state", "running")
        time.sleep(seconds / 10)
        first = tab.heap()
        busy = tab.busy_share(seconds * 0.9)
        assert run.is_alive(), run.said
        check_flat(f"256 nodes for {seconds / 60:.1f} min", first, tab.heap(), busy)
        tab.close()


def main():
    words = sys.argv[2:]
    if why := missing():
        print(f"ok - page # SKIP {why}")
        return 0
    if words and (len(words) != 2 or words[0] != "--minutes" or not words[1].isdigit() or int(words[1]) == 0):
        print(__doc__, end="")
        return 2
    seconds = 60 * int(words[1]) if words else 3600
    os.chdir(ROOT)
    with Browser() as browser:
        tests = [("a_day", lambda: day(browser, seconds)), ("many_nodes", lambda: wide(browser, min(WIDE_S, seconds)))]
        return 0 if all([tap.run_one(*one) for one in tests]) else 1


if __name__ == "__main__":
    sys.exit(main())
