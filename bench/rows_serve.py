"""Rows of the table: `leat serve` on jobs/ctr.leat, beside an echo of the same bytes by the same connection layer.

The server has one core and the generator (wrk, h2load) the other, in turns of one second. The figure is requests, or rows,
per CPU second of the server's process. Requests are of impressions that the model has not seen; each answer counts only
if it was a score (the server's own counters)."""

import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
import urllib.request

from harness import ROOT, Broken, Figure, Peer, Skip, median, remove

COLUMNS = {"ts": "INT64", "user": "INT64", "item": "INT64", "adv": "BYTES", "cat": "BYTES", "site": "BYTES", "slot": "BYTES",
           "dev": "BYTES", "os": "BYTES", "br": "BYTES", "city": "INT64", "query": "BYTES", "hour": "INT64", "price": "FP64",
           "age": "FP64", "pos": "FP64", "score": "FP64"}
BODIES = 500
SERVER_CORE, GENERATOR_CORE = "0", "1"


def needs(program, package):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not there (package {package})")
    if os.cpu_count() < 2:
        raise Skip("server and generator need a core each")


def trained(bench):
    """The folder of a run that --until stopped, with impressions that came later."""
    def make(path):
        remove(path)
        os.makedirs(path)
        bench.run([bench.leat, "generate", "ctr", "--events", str(bench.size(1_000_000, 200_000)), "--out",
                   os.path.join(path, "data/ctr")])
        with open(os.path.join(path, "data/ctr/impressions.jsonl"), encoding="ascii") as file:
            times = [json.loads(line)["ts"] for line in itertools.islice(file, 0, None, 1000)]
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(times[len(times) * 4 // 5] / 1000))
        bench.run([bench.leat, "run", os.path.join(ROOT, "jobs/ctr.leat"), "--quiet", "--until",
                   until], cwd=path)
        with open(os.path.join(path, "until"), "w", encoding="ascii") as file:
            file.write(str(times[len(times) * 4 // 5]))
    return bench.made("serve-quick" if bench.is_quick else "serve", make)


def later(folder, count):
    """Impressions behind the checkpoint."""
    with open(os.path.join(folder, "until"), encoding="ascii") as file:
        until = int(file.read())
    found = []
    with open(os.path.join(folder, "data/ctr/impressions.jsonl"), encoding="ascii") as file:
        for line in file:
            row = json.loads(line)
            if row["ts"] >= until and (row["user"] or -1) >= 0 and (row["pos"] or 2) <= 1:
                found.append(row)
                if len(found) == count:
                    return found
    raise Broken(f"only {len(found)} impressions behind the checkpoint")


def tensors(rows):
    """Inputs of one user's rows: what is equal in all of them goes with every row."""
    inputs = []
    for name, datatype in COLUMNS.items():
        values = [row[name] for row in rows]
        if len(set(values)) == 1:
            values = values[:1]
        inputs.append({"name": name, "shape": [len(values)], "datatype": datatype, "data": values})
    return inputs


def json_body(rows):
    return json.dumps({"inputs": tensors(rows), "outputs": [{"name": "prediction"}]}, separators=(",", ":"))


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc_body(rows):
    """A ModelInferRequest with raw contents, in its frame."""
    message, raw = field(1, b"ctr"), b""
    packers = {"INT64": lambda v: struct.pack("<q", v), "FP64": lambda v: struct.pack("<d", v),
               "BYTES": lambda v: struct.pack("<I", len(v)) + v.encode()}
    for one in tensors(rows):
        shape = b"".join(varint(n) for n in one["shape"])
        message += field(5, field(1, one["name"].encode()) + field(2, one["datatype"].encode()) + field(3, shape))
        raw += field(7, b"".join(packers[one["datatype"]](value) for value in one["data"]))
    message += field(6, field(1, b"prediction")) + raw
    return b"\0" + struct.pack(">I", len(message)) + message


class Server:
    """A process on its own core. has_scores: `leat serve`, else the echo."""

    def __init__(self, command, cwd, port, has_scores):
        """port: a call that tells it of the process, None as long as there is none."""
        self.process = subprocess.Popen(["taskset", "-c", SERVER_CORE, *command], cwd=cwd, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.has_scores, found = has_scores, None
        while found is None:
            if self.process.poll() is not None:
                raise Broken(f"{' '.join(command)}: {self.process.stderr.read()[-400:]}")
            found = port(self.process)
        self.url = f"http://127.0.0.1:{found}"
        while has_scores and self.get("/v2/health/ready") is None:
            time.sleep(0.05)

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def rows(self):
        found = re.search(r'leat_serve_rows_total{model="ctr",outcome="answered"} (\d+)', self.get("/metrics"))
        return int(found[1])

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, generator, requests_of):
        """Requests, and answered rows, per CPU second of one turn."""
        before, cpu = self.rows() if self.has_scores else 0, self.cpu()
        result = subprocess.run(["taskset", "-c", GENERATOR_CORE, *generator], capture_output=True, text=True, check=True)
        spent, requests = self.cpu() - cpu, requests_of(result.stdout)
        return requests / spent, (self.rows() - before) / spent if self.has_scores else 0.0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def said_port(process):
    found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", process.stderr.readline())
    return found and found[1]


def echo_server(bench):
    port_file = bench.path("echo.port")
    echo = os.path.join(os.path.dirname(bench.leat), "tests/net/leat_echo")
    if not os.access(echo, os.X_OK):
        raise Skip(f"{echo} is not built")
    remove(port_file)

    def written_port(_):
        time.sleep(0.05)
        if not os.path.exists(port_file):
            return None
        with open(port_file, encoding="ascii") as file:
            return int(file.read())
    return Server([echo, "--port-file", port_file], bench.folder, written_port, False)


def servers(bench):
    folder, job = trained(bench), os.path.join(ROOT, "jobs/ctr.leat")
    scores = Server([bench.leat, "serve", job, "--listen", "127.0.0.1:0"], folder, said_port, True)
    try:
        return scores, echo_server(bench)
    except BaseException:
        scores.stop()
        raise


def compare(bench, generator, requests_of):
    """Medians of (requests, rows) per CPU second, and of the echo's requests. generator: makes a command for a URL's path."""
    scores, echo = servers(bench)
    try:
        turns = [(scores.measure(generator(scores.url, True), requests_of), echo.measure(generator(echo.url, False), requests_of))
                 for _ in range(bench.size(10, 3))]
    finally:
        scores.stop()
        echo.stop()
    return (median([one[0] for one, _ in turns]), median([one[1] for one, _ in turns]), median([one[0] for _, one in turns]))


def wrk(bench, name, bodies, connections):
    """A command of wrk for one second, with the bodies in turn."""
    script = bench.path(name + ".lua")
    with open(script, "w", encoding="utf-8") as file:
        file.write('wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\nlocal bodies, at = {}, 0\n')
        file.writelines(f"bodies[{n}] = [==[{body}]==]\n" for n, body in enumerate(bodies))
        file.write(f"function request() at = (at + 1) % {len(bodies)} return wrk.format(nil, nil, nil, bodies[at]) end\n")
    return lambda url, is_model: ["wrk", "-t1", f"-c{connections}", "-d1s", "-s", script,
                                  url + ("/v2/models/ctr/infer" if is_model else "/echo")]


def wrk_requests(output):
    if "Non-2xx" in output:
        raise Broken(output)
    return int(re.search(r"(\d+) requests in", output)[1])


def row_http(bench):
    needs("wrk", "wrk")
    bodies = [json_body([row]) for row in later(trained(bench), BODIES)]
    requests, _, echo = compare(bench, wrk(bench, "serve-http", bodies, 16), wrk_requests)
    return [Figure("HTTP, JSON, one row: requests per CPU second", "k/s", requests / 1e3, 50.0,
                   peers=[Peer("echo of the same bytes", echo / 1e3, "same run")], checked="every answer was 2xx",
                   note=f"{BODIES} impressions of {len(bodies[0])} bytes, 17 columns each, over 16 connections.")]


def items_body(folder, count):
    """A request for one user and so many distinct items."""
    rows = list({row["item"]: row for row in later(folder, 5 * count)}.values())[:count]
    if len(rows) < count:
        raise Broken(f"only {len(rows)} items behind the checkpoint")
    return json_body([{**rows[0], "item": row["item"], "adv": row["adv"], "cat": row["cat"]} for row in rows])


def row_items(bench):
    needs("wrk", "wrk")
    bodies = [items_body(trained(bench), 500)]
    requests, answered, echo = compare(bench, wrk(bench, "serve-items", bodies, 2), wrk_requests)
    if abs(answered / requests - 500) > 5:  # requests that wrk did not wait for at its end
        raise Broken(f"{answered / requests:.1f} rows answered a request")
    return [Figure("HTTP, JSON, one user and 500 distinct items: rows per CPU second", "M/s", answered / 1e6, 0.5,
                   peers=[Peer("echo of the same bytes", echo * 500 / 1e6, "same run")], checked="500 rows answered a request",
                   note=f"A body of {len(bodies[0])} bytes; item, adv and cat differ by row.")]


def row_grpc(bench):
    needs("h2load", "nghttp2-client")
    body, count = bench.path("serve-grpc.body"), bench.size(60_000, 20_000)
    with open(body, "wb") as file:
        file.write(grpc_body(later(trained(bench), 1)))

    def generator(url, is_model):
        path = "/inference.GRPCInferenceService/ModelInfer" if is_model else "/echo"
        return ["h2load", "-p", "h2c", "-c", "4", "-m", "16", "-n", str(count), "-d", body, "-H",
                "content-type: application/grpc", "-H", "te: trailers", url + path]

    def requests_of(output):
        found = re.search(r"(\d+) succeeded", output)
        if found is None or int(found[1]) != count:
            raise Broken(output[-800:])
        return count
    requests, answered, echo = compare(bench, generator, requests_of)
    return [Figure("gRPC, one row, 16 streams on each of 4 connections: requests per CPU second", "k/s", requests / 1e3, 100.0,
                   peers=[Peer("echo of the same bytes", echo / 1e3, "same run")],
                   checked=f"{100 * answered / requests:.1f} % of the requests were answered with a score",
                   note=f"One message of {os.path.getsize(body)} bytes, 17 columns. h2load sends it again and again: requests that are "
                        "scored together have equal keys, and share look-ups that other users' requests would not.")]


# --- Loading and unloading beside serving ---

CONTROL_RPS, CONTROL_CLIENTS, CONTROL_SECONDS, LARGE_MIB = 10_000, 4, 5, 100


def with_large(bench):
    """The folder of trained(), with a checkpoint of the job of another model, which is large."""
    folder, large = trained(bench), os.path.join(ROOT, "bench/jobs/serve_large.leat")
    if not os.path.isdir(os.path.join(folder, "state/large")):
        bench.run([bench.leat, "run", large, "--quiet"], cwd=folder)
    files = [os.path.join(at, name) for at, _, names in os.walk(os.path.join(folder, "state/large")) for name in names]
    mib = sum(os.path.getsize(path) for path in files) / (1 << 20)
    if mib < LARGE_MIB:
        raise Broken(f"the large checkpoint has only {mib:.0f} MiB")
    return folder, large, mib


class Cycles(threading.Thread):
    """Loads and unloads the model `large` without a pause until stopped."""

    def __init__(self, url):
        super().__init__()
        self.url, self.is_over, self.seconds, self.failure = url, False, [], None
        self.start()

    def run(self):
        try:
            while not self.is_over:
                for what in ("unload", "load"):
                    begin = time.monotonic()
                    call = urllib.request.Request(f"{self.url}/v2/repository/models/large/{what}", b"{}", method="POST")
                    with urllib.request.urlopen(call, timeout=60):
                        pass
                    if what == "load":
                        self.seconds.append(time.monotonic() - begin)
        except OSError as failure:
            self.failure = failure

    def stop(self):
        self.is_over = True
        self.join()
        if self.failure is not None:
            raise Broken(f"the model large: {self.failure}")


def p99_ms(bench, server, body):
    """Of the requests of some seconds, behind the first half second, and how many came in a second; each was answered with a
    score."""
    log, before = bench.path("serve-control.log"), server.rows()
    remove(log)
    result = subprocess.run(
        ["taskset", "-c", GENERATOR_CORE, "h2load", "-p", "h2c", "-c", str(CONTROL_CLIENTS), "-m", "64", "-D",
         str(CONTROL_SECONDS), f"--rps={CONTROL_RPS // CONTROL_CLIENTS}", f"--log-file={log}", "-d", body, "-H",
         "content-type: application/grpc", "-H", "te: trailers", server.url + "/inference.GRPCInferenceService/ModelInfer"],
        capture_output=True, text=True, check=True)
    with open(log, encoding="ascii") as file:
        rows = [line.split("\t") for line in file]
    found = re.search(r"(\d+) failed, (\d+) errored", result.stdout)
    answered = server.rows() - before
    if found is None or found.groups() != ("0", "0") or {row[1] for row in rows} != {"200"} or answered < len(rows):
        raise Broken(f"{answered} of {len(rows)} requests were answered with a score: {result.stdout[-600:]}")
    if len(rows) < 0.5 * CONTROL_RPS * CONTROL_SECONDS:
        raise Broken(f"{len(rows)} requests in {CONTROL_SECONDS} s: far from {CONTROL_RPS} a second")
    begin = min(int(row[0]) for row in rows) + 500_000
    times = sorted(int(row[2]) for row in rows if int(row[0]) >= begin)
    return times[len(times) * 99 // 100] / 1e3, len(rows) / CONTROL_SECONDS


def row_control(bench):
    needs("h2load", "nghttp2-client")
    folder, large, mib = with_large(bench)
    body = bench.path("serve-control.body")
    with open(body, "wb") as file:
        file.write(grpc_body(later(folder, 1)))
    # A request that waits is to be seen in p99, not shed.
    with open(os.path.join(ROOT, "jobs/ctr.leat"), encoding="utf-8") as file:
        text = file.read().replace("request: impressions }", "request: impressions, deadline: 10s }")
    job = bench.path("serve-control.leat")
    with open(job, "w", encoding="utf-8") as file:
        file.write(text)
    server = Server([bench.leat, "serve", job, large, "--quiet", "--listen", "127.0.0.1:0",
                     "--control", "127.0.0.1:0"], folder, said_port, True)
    url = re.search(r"http://\S+", server.process.stderr.readline())[0]
    turns, loads = [], []
    try:
        p99_ms(bench, server, body)
        for _ in range(bench.size(7, 3)):
            alone = p99_ms(bench, server, body)
            cycles = Cycles(url)
            try:
                beside = p99_ms(bench, server, body)
            finally:
                cycles.stop()
            turns.append((alone, beside))
            loads += cycles.seconds
    finally:
        server.stop()
    alone, beside = median([one[0] for one, _ in turns]), median([one[0] for _, one in turns])
    ratios = sorted(after[0] / before[0] for before, after in turns)
    slowest = min(one[1] for turn in turns for one in turn)
    return [Figure("p99 at 10,000 requests a second while a neighbour is loaded and unloaded, by p99 before", "times",
                   median(ratios), 1.5, is_upper=True, checked="every request was answered with a score",
                   note=f"p99 {alone:.2f} ms before and {beside:.2f} ms beside loads, medians of {len(turns)} turns of "
                        f"{CONTROL_SECONDS} s, of at least {slowest:.0f} requests a second; ratios {ratios[0]:.2f} to {ratios[-1]:.2f}. The neighbour's checkpoint has {mib:.0f} "
                        f"MiB; {len(loads)} loads, {median(loads):.2f} s each. Server and loader share one core.")]


ROWS = {
    "serve-http": ("scores over HTTP, one row a request, beside an echo", row_http),
    "serve-items": ("scores over HTTP, 500 rows a request, beside an echo", row_items),
    "serve-grpc": ("scores over gRPC, one row a request, beside an echo", row_grpc),
    "serve-control": ("p99 of a model while another is loaded and unloaded", row_control),
}
