"""A job that runs slowly with its control API, and a server that follows it: what monitoring sees of both."""

import contextlib
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from patience import PATIENCE_S  # noqa: E402

LEAT = os.path.abspath(sys.argv[1])
RUN_AT = re.compile(r"leat: figures at http://127\.0\.0\.1:(\d+)/")
SERVE_AT = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"

SOURCE = 'source s = file { path: PATH, schema: { id: int!, ts: time(ms), a: int, b: int, clicked: int }, event_time: ts }'
DATA = '"data.jsonl"'
JOB = f"""job live {{ workers: 2, checkpoint: {{ every: 500ms, dir: "state" }} }}
{SOURCE.replace("PATH", DATA)}
stream kept = s | where a < 900 | dedup by id within 1h
stream features = kept | feature by a over 1h every 1m {{ n: count() }}
learner model = fm from features {{ label: clicked, sparse: [a, b], dense: [log1p(n)], embedding: {{ dim: 4 }}, window: 1000 }}
learner amount = linear from features {{ label: b, loss: squared, sparse: [a], window: 1000 }}
learner next = sasrec from features {{ by: a, item: b, layers: 1, embedding: {{ dim: 16 }}, window: 1000, metrics_at: [5, 20] }}
stream scores = model.predictions
serve scores {{ from: scores, request: s, deadline: 1m }}
sink out = file from scores {{ path: "out.jsonl" }}
sink amounts = null from amount.predictions
sink lists = null from next.top
sink dead = file from dead_letters {{ path: "dead.jsonl" }}
"""


def wide(steps, partitions=1, workers=4):
    """A job of many nodes, which reads many partitions: of the first comes data.jsonl, of the others one record each."""
    filters = "".join(f" | where a != {1_000 + i}" for i in range(steps))
    paths = ", ".join([DATA] + [f'"part-{i:04}.jsonl"' for i in range(1, partitions)])
    source = SOURCE.replace("PATH", f"[{paths}]" if partitions > 1 else DATA)
    return f'job wide {{ workers: {workers} }}\n{source}\nstream kept = s{filters}\nsink out = null from kept\n'


def write_partitions(folder, partitions):
    """The files of `wide`, but the first."""
    for i in range(1, partitions):
        with open(os.path.join(folder, f"part-{i:04}.jsonl"), "w", encoding="ascii") as file:
            file.write('{"id":%d,"ts":1700000000000,"a":1,"b":1,"clicked":0}\n' % -i)


@contextlib.contextmanager
def place(job=JOB, records=400_000):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
            file.write(job)
        with open(os.path.join(folder, "data.jsonl"), "w", encoding="ascii") as file:
            for i in range(records):
                file.write('{"id":%d,"ts":%d,"a":%d,"b":%d,"clicked":%d}\n' %
                           (i - (i % 50 == 1), 1700000000000 + i, i * 7 % 1000, i * 11 % 300, i % 3 == 0))
                if i % 1000 == 0:
                    file.write("nonsense\n")
        yield folder


class Process:
    """`leat` with these words, which says at which port it listens. fed: its stdin is `process.stdin`."""

    def __init__(self, folder, at, *words, points="", fed=False):
        self.said, self.port = [], None
        self.process = subprocess.Popen([LEAT, *words], cwd=folder, text=True, stdout=subprocess.DEVNULL,
                                        stdin=subprocess.PIPE if fed else None,
                                        stderr=subprocess.PIPE, env={**os.environ, "LEAT_FAILPOINTS": points})
        for line in self.process.stderr:
            self.said.append(line)
            if at.search(line):
                self.port = int(at.search(line)[1])
                break
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr))
        self.reader.start()

    def is_alive(self):
        return self.process.poll() is None

    def ask(self, path, body=None, **headers):
        """Status, content-type, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.getheader("content-type"), text

    def wait_until_ready(self, path):
        deadline = time.monotonic() + PATIENCE_S
        while self.ask(path)[0] != 200:
            assert time.monotonic() < deadline and self.is_alive(), self.said
            time.sleep(0.05)

    def __enter__(self):
        assert self.port is not None, self.said
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stderr.close()


def run(folder, pause_ms, port=0):
    """The job of the folder, with a pause before each piece of input."""
    return Process(folder, RUN_AT, "run", "job.leat", "--control", f"127.0.0.1:{port}", "--quiet",
                   points=f"run.claimed=sleep:{pause_ms}" if pause_ms else "")


def serve(folder):
    return Process(folder, SERVE_AT, "serve", "job.leat", "--listen", "127.0.0.1:0", "--look-every", "20")
