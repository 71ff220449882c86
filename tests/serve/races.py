#!/usr/bin/env python3
"""The whole of `leat serve` beside jobs that run, under ThreadSanitizer: requests over HTTP and gRPC, checkpoints, cuts, a model
that is loaded and unloaded, and a mirror. Each answer of one model is checked as in test_cuts.py; there is no report of a race.

    tests/serve/races.py PATH_OF_TSAN_LEAT PATH_OF_ASK_CUTS [--seconds N]
"""

import argparse
import contextlib
import glob
import json
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import INTERRUPTED, LEAT  # noqa: E402
from server import Client, Server, tensors  # noqa: E402
from test_cuts import Asking, Counted, Life, body_of, check_moments  # noqa: E402
from test_follow import COLUMNS, FOLLOWED  # noqa: E402

RANDOM_SEED, ROWS = 7, 6
TURN_S = 2  # a turn of h2load; the other model is loaded and unloaded as often
NOT_SERVED = 503
EVENTS_EACH_S = 1000  # at most: micro-batches of 4 events with pauses of 5 ms


def with_reports(folder):
    return {"TSAN_OPTIONS": f"log_path={folder}/race:halt_on_error=0:exitcode=0:second_deadlock_stack=1",
            "LEAT_TEST_CUT": "4"}


class Run:
    """A job under TSan that is drawn on a terminal, as a user has it. Ctrl-C ends it."""

    def __init__(self, place, job, workers, env):
        here, there = pty.openpty()
        self.terminal = here
        self.process = subprocess.Popen([LEAT, "run", "--workers", str(workers), job, *place.settings()], stderr=there,
                                        stdout=subprocess.DEVNULL,
                                        env={**os.environ, **env, "LEAT_FAILPOINTS": "run.claimed=sleep:5", "TERM": "xterm"})
        os.close(there)
        self.drawn = 0
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self):
        with contextlib.suppress(OSError):  # EIO: its end
            while data := os.read(self.terminal, 65536):
                self.drawn += len(data)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        status = self.process.wait(PATIENCE_S)
        assert kind is not None or status in (0, INTERRUPTED), f"the job ended with {status}"


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc_body(inputs, outputs):
    """A ModelInferRequest with raw contents, in its frame."""
    message, raw = field(1, b"scores"), b""
    for one in inputs:
        shape = b"".join(varint(n) for n in one["shape"])
        message += field(5, field(1, one["name"].encode()) + field(2, one["datatype"].encode()) + field(3, shape))
        packer = "<q" if one["datatype"] == "INT64" else "<d"
        raw += field(7, b"".join(struct.pack(packer, value) for value in one["data"]))
    message += b"".join(field(6, field(1, one["name"].encode())) for one in outputs) + raw
    return b"\0" + struct.pack(">I", len(message)) + message


class Repeated(threading.Thread):
    """Does something again and again until stopped; a failure fails the test."""

    def __init__(self, what):
        super().__init__()
        self.what, self.is_over, self.times, self.failure = what, False, 0, None
        self.start()

    def run(self):
        while not self.is_over and self.failure is None:
            try:
                self.what()
                self.times += 1
            except Exception as failure:  # pylint: disable=broad-except
                self.failure = failure

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join(PATIENCE_S)
        assert self.failure is None, repr(self.failure)[:900]


def over_grpc(place, server):
    """One turn of h2load."""
    url = f"http://127.0.0.1:{server.port}/inference.GRPCInferenceService/ModelInfer"
    result = subprocess.run(["h2load", "-p", "h2c", "-c", "2", "-m", "8", "-D", str(TURN_S), "-d", place.path("grpc"), "-H",
                             "content-type: application/grpc", "-H", "te: trailers", url], capture_output=True, text=True,
                            timeout=PATIENCE_S, check=True)
    assert int(re.search(r"(\d+) succeeded", result.stdout)[1]) > 0, result.stdout[-900:]


def ask_other(client, place):
    status, answer = client.infer("other", tensors(place.events[-20:], COLUMNS), ["prediction"])
    assert status in (200, NOT_SERVED), answer


def load_and_unload(control):
    for what in ("unload", "load"):
        status, _, body = control.ask("POST", f"/v2/repository/models/other/{what}", "{}")
        assert status in (200, NOT_SERVED), (what, status, body)
        time.sleep(TURN_S / 2)


def answered(server, model):
    return server.client().metrics().get(f'leat_serve_requests_total{{model="{model}",outcome="answered"}}', 0)


def other_job(place):
    text = jobs.learner("deepfm-batch").replace("serve scores", "serve other").replace("job parity", "job other")
    return place.write("other.leat", text.replace("dir: state", 'dir: concat(state, "-other")').replace("every: 1h", "every: 2s")
                       .replace("path: out", 'path: concat(out, "-other")'))


def load(place, offer, mirror):
    """Asks both servers for that long; returns what was asked, and the moments of the answers that were checked."""
    control = Client(int(offer.wait_for(r"loaded and unloaded at http://127\.0\.0\.1:(\d+)").group(1)))
    clients, asks = (offer.client(), mirror.client()), {}
    with Asking(place, offer) as here, Asking(place, mirror, name="mirrored") as there, contextlib.ExitStack() as stack:
        asks["turns of h2load"] = stack.enter_context(Repeated(lambda: over_grpc(place, offer)))
        asks["loads of the other model"] = stack.enter_context(Repeated(lambda: load_and_unload(control)))
        asks["requests to it"] = stack.enter_context(Repeated(lambda: ask_other(clients[0], place)))
        asks["requests to it in the mirror"] = stack.enter_context(Repeated(lambda: ask_other(clients[1], place)))
        time.sleep(ARGUMENTS.seconds)
        return {name: one.times for name, one in asks.items()}, here.moments(), there.moments()


def is_race(report):
    """libuv closes descriptors by the system call itself, which TSan does not see: when another thread gets the number again,
    TSan takes it for the descriptor that libuv had."""
    found = re.search(r"Location is file descriptor.*?\n((?:    #.*\n)+)", report)
    return "WARNING: ThreadSanitizer" in report and not (found and "libuv.so" in found[1])


def reports(folder):
    """Of all processes."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "race.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            found += filter(is_race, file.read().split("==================\n"))
    return found


def test_races():
    if shutil.which("h2load") is None:
        return "h2load is not installed (package nghttp2-client)"
    rows = EVENTS_EACH_S * (ARGUMENTS.seconds + 60)
    with Counted(rows, every="1s", rows=rows) as place:
        request = json.loads(body_of(random.Random(RANDOM_SEED), ROWS))
        with open(place.path("grpc"), "wb") as file:
            file.write(grpc_body(request["inputs"], request["outputs"]))
        other, env = other_job(place), with_reports(place.folder.name)
        offers = ("--control", "127.0.0.1:0", "--link-listen", "127.0.0.1:0")
        with Server(place, other, *offers, env=env) as offer, Run(place, place.path("job.leat"), 2, env) as counted, \
                Run(place, other, 3, env) as run:
            port = offer.wait_for(r"offering the jobs to mirrors on 127\.0\.0\.1:(\d+)").group(1)
            with Server(place, other, "--link", f"127.0.0.1:{port}", env=env) as mirror:
                for server in (offer, mirror):
                    server.wait_for(f"job counted {FOLLOWED}")
                    server.wait_for(f"job other {FOLLOWED}")
                times, (here, answers), (there, mirrored) = load(place, offer, mirror)
                over = answered(offer, "scores") - answers
                assert counted.process.poll() is None and run.process.poll() is None, "a job ended before the requests"
        cuts = [check_moments(moments, {1: Life(0, 4)}) for moments in (here, there)]
        print(f"# {ARGUMENTS.seconds} s: {answers} answers of {cuts[0]} cuts, {over:.0f} over gRPC; in the mirror {mirrored} of "
              f"{cuts[1]}; " + ", ".join(f"{count} {name}" for name, count in times.items()))
        assert counted.drawn > 0 and run.drawn > 0 and over > 0 and all(times.values()) and min(cuts) > 10, (times, cuts, over)
        found = reports(place.folder.name)
        if found and ARGUMENTS.out:
            with open(ARGUMENTS.out, "w", encoding="utf-8") as file:
                file.write("\n".join(found))
        assert not found, f"{len(found)} reports (--out FILE keeps them): {found[0][:2500]}"
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("leat")
    parser.add_argument("ask")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--out", help="file for the reports")
    ARGUMENTS = parser.parse_args()
    sys.exit(tap.run(globals()))
