#!/usr/bin/env python3
"""Very many clients that want the events of a run (`/api/v1/events`) while 32 have them: each is refused at once, the run goes
on, the 32 keep their streams, and descriptors and memory are back when the crowd has gone. Prints TAP.

    tests/cli/test_crowd.py PATH_OF_LEAT [--clients N]     N: 6000; ./dev soak see has 100,000

The crowd comes in waves, whose clients are all there before the first one leaves. A small wave has room in the 256 connections
of the control API: each client is answered 503. Of a large one, as many clients as this process may have descriptors, those
beyond the 256 are closed at once, and the run counts them.
"""

import argparse
import json
import os
import re
import resource
import select
import socket
import statistics
import sys
import tempfile
import threading
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402
from test_run_control import LEAT, Run  # noqa: E402
from test_ui import STREAMS_MAX, Events  # noqa: E402

CLIENTS, SMALL, LARGE = 6_000, 200, 8_000
AT_ONCE_S, RSS_MORE = 2, 24 << 20  # how long the last of a wave waits; what the process may keep for the next crowd
MOMENT_S = 2  # how long the run is measured without a crowd
REQUEST = b"GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n"
# It reads as fast as it can, and does not end.
JOB = """job crowded { workers: 1 }
source s = sequence { count: 100000000000, keys: 1000, rate: 1000000, event_time: ts }
stream counted = s | feature by key over 1h every 1m { n: count() }
sink out = null from counted
"""


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("leat")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    found = parser.parse_args()
    if found.clients < 1:
        parser.error("N is at least 1")
    return found


# --- The crowd ---


def sizes_of(clients):
    """Of the waves. A quarter of the clients come in small ones, so that a short test has both."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    large = min(LARGE, most - 200 if most != resource.RLIM_INFINITY else LARGE)  # the others: streams and files
    for left in range(clients // 4, 0, -SMALL):
        yield min(SMALL, left)
    for left in range(clients - clients // 4, 0, -large):
        yield min(large, left)


class Client:
    """status: of its answer; 0: it was closed without one; None: it waits. seconds: how long it waited."""

    def __init__(self, port, address):
        self.status, self.socket, self.asked = None, socket.socket(), time.monotonic()
        self.socket.bind((address, 0))
        try:
            self.socket.connect(("127.0.0.1", port))
            self.socket.sendall(REQUEST % port)
        except ConnectionError:  # closed before it had asked
            self.finish(0)

    def take(self):
        try:
            answer = self.socket.recv(4096)
        except ConnectionError:
            answer = b""
        self.finish(int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0)

    def finish(self, status):
        self.status, self.seconds = status, time.monotonic() - self.asked


def wave(port, number, size, look):
    """The clients of a wave, who have gone. Calls look() while all are there. An address of its own for each wave, because the
    ports of the one before are not free yet."""
    clients, waiting, poll = [], {}, select.epoll()
    try:
        for _ in range(size):
            clients.append(Client(port, f"127.0.{1 + number // 250 % 250}.{1 + number % 250}"))
            if clients[-1].status is None:
                waiting[clients[-1].socket.fileno()] = clients[-1]
                poll.register(clients[-1].socket, select.EPOLLIN)
        deadline = time.monotonic() + PATIENCE_S
        while waiting:
            for descriptor, _ in poll.poll(1):
                waiting.pop(descriptor).take()
                poll.unregister(descriptor)
            assert time.monotonic() < deadline, f"{len(waiting)} of {size} clients have no answer"
        look()
    finally:
        for one in clients:
            one.socket.close()
        poll.close()
    return clients


# --- The run ---


class Listener:
    """A stream of events that is read all the time; `figures` counts those that came, `why` says why no more come."""

    def __init__(self, run):
        self.events, self.figures, self.why = Events(run), 0, None
        assert self.events.status == 200, self.events.status
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while (found := self.events.next()) is not None:
                self.figures += found.get("event") == "figures"
            self.why = "it ended"
        except (OSError, ValueError) as error:
            self.why = str(error)


def wait_for(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def descriptors(run):
    return len(os.listdir(f"/proc/{run.process.pid}/fd"))


def resident(run):
    with open(f"/proc/{run.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def thread_seconds(run):
    """CPU seconds of each thread."""
    seconds = {}
    for thread in os.listdir(f"/proc/{run.process.pid}/task"):
        with open(f"/proc/{run.process.pid}/task/{thread}/schedstat", encoding="ascii") as file:
            seconds[thread] = int(file.read().split()[0]) / 1e9
    return seconds


class Moment:
    """How far the run is, just after its figures were made anew."""

    def __init__(self, run):
        first = self.figures_of(run)
        wait_for("new figures", lambda: self.figures_of(run)["seconds"] != first["seconds"])
        self.at, self.cpu, self.records = time.monotonic(), thread_seconds(run), self.figures_of(run)["records_life"]

    @staticmethod
    def figures_of(run):
        return json.loads(run.ask("/api/v1/figures")[1])

    def lane_of(self, before):
        """Its one lane is the thread that took the most."""
        return max(self.cpu, key=lambda thread: self.cpu[thread] - before.cpu.get(thread, 0))

    def rates(self, before, lane):
        """Records a second: by the clock, and of CPU time of the lane."""
        records = self.records - before.records
        return records / (self.at - before.at), records / (self.cpu[lane] - before.cpu[lane])


def net_figures(run):
    """Connections accepted, those beyond the limit, open ones, and bytes of requests and answers in work."""
    text = run.ask("/metrics")[1]
    return [int(re.search(rf"^leat_net_{name} (\d+)$", text, re.M)[1])
            for name in ("connections_total", "connections_refused_total", "connections_open", "memory_bytes")]


class Crowd:
    """What the clients were told, and the most that the run had meanwhile."""

    def __init__(self, run, listeners, clients):
        self.run, self.told, self.seconds, self.resident, self.descriptors = run, {503: 0, 0: 0}, [], 0, 0
        free = descriptors(run)
        for number, size in enumerate(sizes_of(clients)):
            found = wave(run.port, number, size, self.look)
            for one in found:
                self.told[one.status] = self.told.get(one.status, 0) + 1
                self.seconds.append(one.seconds)
            assert size > SMALL or self.told[0] == 0, (number, self.told)
            assert self.told[503] > 0 and self.told.keys() == {503, 0}, self.told
            lost = [one.why for one in listeners if one.why is not None]
            assert not lost, (number, lost)
            wait_for("the wave's descriptors closed", lambda: descriptors(run) <= free)
        self.seconds.sort()

    def look(self):
        self.resident, self.descriptors = max(self.resident, resident(self.run)), max(self.descriptors, descriptors(self.run))


def check_crowd(run, listeners, clients):
    """The crowd comes and goes: what it was told, and what the run did meanwhile."""
    first = Moment(run)
    time.sleep(MOMENT_S)
    begun = Moment(run)
    resident_before, open_before, net_before = resident(run), descriptors(run), net_figures(run)
    heard = [one.figures for one in listeners]
    crowd = Crowd(run, listeners, clients)
    waited, told = crowd.seconds, crowd.told
    ended = Moment(run)
    lane = begun.lane_of(first)
    quiet, crowded = begun.rates(first, lane), ended.rates(begun, lane)
    print(f"# {clients:,} clients in {ended.at - begun.at:.1f} s, {crowd.descriptors - open_before} with a connection at once: "
          f"{told[503]:,} answered 503, {told[0]:,} closed, after "
          f"{statistics.median(waited) * 1e3:.1f} ms (median), {waited[len(waited) * 99 // 100] * 1e3:.1f} ms (p99)\n"
          f"# the run: {quiet[0]:,.0f} records/s before, {crowded[0]:,.0f} meanwhile; of CPU time of its lane "
          f"{quiet[1]:,.0f} and {crowded[1]:,.0f} records/s", flush=True)
    assert len(waited) == clients == told[503] + told[0], told
    assert waited[len(waited) * 99 // 100] < stretched(AT_ONCE_S), waited[-3:]
    assert crowded[0] > quiet[0] / 8 and crowded[1] > quiet[1] / 2, (quiet, crowded)
    wait_for("figures for each of the 32", lambda: all(one.figures > was for one, was in zip(listeners, heard, strict=True)))
    net_after = net_figures(run)
    assert net_after[0] - net_before[0] >= clients and net_after[1] - net_before[1] == told[0], (net_before, net_after, told)
    assert net_after[2] == net_before[2] and net_after[3] <= net_before[3], (net_before, net_after)
    return resident_before, crowd.resident


def test_crowd():
    """Each is answered 503 at once; the run, its 32 streams, its descriptors and its memory are as they were before."""
    clients = words().clients
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(JOB)
        with Run(folder, points="") as run:
            run.wait_until("/readyz")
            listeners = [Listener(run) for _ in range(STREAMS_MAX)]
            wait_for("figures for all", lambda: all(one.figures > 0 for one in listeners))
            before, most = check_crowd(run, listeners, clients)
            wait_for(f"at most {RSS_MORE >> 20} MiB more than before", lambda: resident(run) <= before + RSS_MORE)
            print(f"# resident: {before / 2**20:.1f} MiB before, {most / 2**20:.1f} at the most, "
                  f"{resident(run) / 2**20:.1f} afterwards")
        for one in listeners:
            one.thread.join(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
