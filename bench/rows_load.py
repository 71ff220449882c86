"""Rows of the table: `leat serve` at a given rate of requests, and under overload, beside an echo of the same bytes.

Requests come at their times, whether or not earlier ones were answered, and a latency counts from when the request was due
(bench/load). Server and generator have a core each; leat and the echo are asked in turns of a second. On a machine where
others work, a latency tells of them: a turn counts only if the echo's p99 in it was at most 0.5 ms, and a row with too few
such turns is not judged (`machine busy`)."""

import json
import os
import re
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request

from harness import JOBS, ROOT, Broken, Figure, Peer, Skip, busy_cores, median, remove
from rows_follow import LEARNERS, SERVE
from rows_serve import BODIES, GENERATOR_CORE, Server, echo_server, items_body, json_body, later, needs, said_port, trained

QUIET_ECHO_MS = 0.5
TURNS, QUICK_TURNS = 60, 4  # turns that count; half as many more are tried at most
ROWS_EACH = 500
DEADLINE_MS, OVERLOAD_DEADLINE_MS = 100, 20  # of jobs/ctr.leat and jobs/follow.leat, which take the default
TRAINER_PAUSE_MS, MICRO_BATCH = 48, 1024  # a pause before each micro-batch: a trainer at 20 k events/s
TRAINER_RATE = 20_000
LABEL = "clicked"
START_EVENTS, START_EVENTS_EACH_S = 12_300_000, 100_000  # a second of event time (jobs/serve_start.leat)
MEMORY_ROWS, MEMORY_ROWS_FEW, MEMORY_LEARNERS = 1_000_000, 1_000, {  # learners, and bytes of a row's weights
    "linear": ("linear from examples { label: label, sparse: [key] }", 4),
    "deepfm": ("deepfm from examples { label: label, sparse: [key], embedding: { dim: 16 }, hidden: [128, 64], batch: 256 }", 17 * 4),
}
MEMORY_BESIDE = 48  # bytes that a row may take beside its weights
MEMORY_PAUSE_MS = 3  # of the job before each micro-batch, or it has no time to publish
START_ID, START_TIME_US, START_PATIENCE_S = 4242, 124_000_000, 120


def turns_of(bench):
    return bench.turns or bench.size(TURNS, QUICK_TURNS)


def requests_file(bench, name, path, bodies):
    """What http_load sends: whole requests, each behind its length."""
    file_path = bench.path(f"load-{name}.requests")
    with open(file_path, "wb") as file:
        for body in bodies:
            head = (f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\n\r\n")
            request = head.encode() + body.encode()
            file.write(struct.pack("<I", len(request)) + request)
    return file_path


def ask(bench, server, requests, rate, connections):
    """One turn; what http_load prints, latencies in ms."""
    port = server.url.rpartition(":")[2]
    command = ["taskset", "-c", GENERATOR_CORE, bench.program("load", "http_load"), port, requests, str(connections),
               str(rate), str(bench.turn_s)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Broken(result.stderr[-400:])
    figures = json.loads(result.stdout)
    for kind in ("good", "refused", "expired"):
        figures[kind] = {name: value if name == "count" else value / 1e3 for name, value in figures[kind].items()}
    if figures["others"] > 0:
        raise Broken(f"{figures['others']} answers had a status other than 200, 503 and 504")
    return figures


class Pair:
    """`leat serve` and the echo, and what each is sent."""

    def __init__(self, bench, name, bodies, command, cwd, model="ctr"):
        self.bench = bench
        self.for_model = requests_file(bench, name + "-model", f"/v2/models/{model}/infer", bodies)
        self.for_echo = requests_file(bench, name + "-echo", "/echo", bodies)
        self.echo = echo_server(bench)
        try:
            self.scores = Server(command, cwd, said_port, True)
        except BaseException:
            self.echo.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.scores.stop()
        self.echo.stop()

    def turn(self, rate, connections):
        return (ask(self.bench, self.scores, self.for_model, rate, connections),
                ask(self.bench, self.echo, self.for_echo, rate, connections))

    def quiet_turns(self, rate, connections):
        """Turns that count, after one that warms up; skips the row if there are too few of them."""
        wanted, tried, found, all_of = turns_of(self.bench), 0, [], []
        self.turn(rate, connections)
        while len(found) < wanted and tried < wanted * 3 // 2:
            tried += 1
            turn = self.turn(rate, connections)
            all_of.append(turn)
            if turn[1]["good"]["p99"] <= QUIET_ECHO_MS:
                found.append(turn)
        if len(found) < wanted:
            raise Skip(f"machine busy: the echo's p99 was at most {QUIET_ECHO_MS} ms in {len(found)} of {tried} turns, not in "
                       f"{wanted}; not judged: {said(all_of)}" + (f"; in those turns: {said(found)}" if found else ""))
        return found, tried


def turn_p99(turn):
    """Of a turn of leat, ms. Requests without a score count as answered at their deadline, or later."""
    lost = turn["sent"] - turn["good"]["count"]
    return max(turn["good"]["p99"], DEADLINE_MS) if lost * 100 > turn["sent"] else turn["good"]["p99"]


def answered(turns):
    """How the answers were checked."""
    sent, good = (sum(number(one) for one, _ in turns)
                  for number in (lambda one: one["sent"], lambda one: one["good"]["count"]))
    return f"{good} of {sent} requests were answered with a score, the others by 503 or 504"


def p99s(turns):
    """Medians over turns: of leat's p99, of the echo's, and of the difference, ms."""
    leat, echo = [turn_p99(one) for one, _ in turns], [one["good"]["p99"] for _, one in turns]
    return median(leat), median(echo), median([a - b for a, b in zip(leat, echo, strict=True)])


def said(turns):
    leat, echo, more = p99s(turns)
    return f"p99 {leat:.2f} ms, echo's {echo:.2f} ms, difference {more:.2f} ms"


def serve_command(bench, job):
    return [bench.leat, "serve", job, "--listen", "127.0.0.1:0"]


def ctr_bodies(bench, rows_each):
    """One user's rows in each body; a body of several has distinct items."""
    folder = trained(bench)
    if rows_each == 1:
        return [json_body([row]) for row in later(folder, BODIES)]
    return [items_body(folder, rows_each)]


def at_rate(bench, rows_each, rate, connections, target_ms):
    name = f"{rows_each}"
    job = os.path.join(ROOT, "jobs/ctr.leat")
    with Pair(bench, name, ctr_bodies(bench, rows_each), serve_command(bench, job), trained(bench)) as pair:
        turns, tried = pair.quiet_turns(rate, connections)
    leat, echo, more = p99s(turns)
    what = f"HTTP, JSON, {'one row' if rows_each == 1 else f'one user and {rows_each} items'}, {rate} requests/s"
    note = (f"{len(turns)} of {tried} turns of {bench.turn_s} s; p50 {median([one['good']['p50'] for one, _ in turns]):.2f} ms; "
            f"{connections} connections.")
    peers = [Peer("echo of the same bytes", echo, "same run")]
    checked = answered(turns)
    return [Figure(f"{what}: p99", "ms", leat, target_ms, is_upper=True, peers=peers, checked=checked, note=note)], more


def row_rate(bench):
    needs("taskset", "util-linux")
    figures, more = at_rate(bench, 1, 20_000, 64, 1.0)
    figures.append(Figure("the same: p99 above the echo's", "ms", more, 0.3, is_upper=True, checked=figures[0].checked))
    return figures


def row_rate_items(bench):
    needs("taskset", "util-linux")
    return at_rate(bench, ROWS_EACH, 500, 64, 2.0)[0]


# --- Beside a trainer ---

def trainer_data(bench, seconds):
    """(file, last rows): events for a trainer at its rate, and some of the end for requests."""
    count = int(seconds * TRAINER_RATE)

    def make(path):
        remove(path)
        bench.run([bench.leat, "generate", "ctr", "--labelled", "--events", str(count), "--out", path])
    data = os.path.join(bench.made(f"load-{count}", make), "ctr.jsonl")
    rows = []
    with open(data, encoding="ascii") as file:
        for number, line in enumerate(file):
            if number < BODIES * 2:
                row = json.loads(line)
                if all(value is not None for value in row.values()):
                    rows.append(row)
            elif len(rows) >= BODIES // 2:
                break
    return data, rows[:BODIES]


def follow_body(row):
    return json.dumps({"inputs": [
        {"name": name, "shape": [1], "data": [value],
         "datatype": "BYTES" if isinstance(value, str) else "FP64" if isinstance(value, float) else "INT64"}
        for name, value in row.items() if name != LABEL], "outputs": [{"name": "prediction"}]}, separators=(",", ":"))


def figure_of(server, name):
    found = re.search(rf"^leat_follow_{name}{{[^}}]*}} (\S+)$", server.get("/metrics"), re.M)
    return 0.0 if found is None else float(found[1])


def row_trainer(bench):
    """The trainer shares the generator's core; the server, which applies what it publishes, has its own."""
    needs("taskset", "util-linux")
    rate, connections = 20_000, 64
    data, rows = trainer_data(bench, (turns_of(bench) * 3 // 2 + 1) * 2 * (bench.turn_s + 0.2) + 15)
    state, job = bench.path("load-state"), bench.path("load-follow.leat")
    remove(state)
    with open(os.path.join(JOBS, "follow.leat"), encoding="utf-8") as file:
        text = file.read()
    with open(job, "w", encoding="utf-8") as file:
        file.write(text.replace("# LEARNER\n", f"learner model = {LEARNERS['linear']}\n{SERVE}\n"))
    settings = ["--set", f"data={data}", "--set", f"state={state}"]
    trainer = subprocess.Popen(
        ["taskset", "-c", GENERATOR_CORE, bench.leat, "run", job, "--quiet", "--workers", "1", *settings],
        env={**os.environ, "LEAT_FAILPOINTS": f"run.claimed=sleep:{TRAINER_PAUSE_MS}"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    try:
        bodies = [follow_body(row) for row in rows]
        with Pair(bench, "trainer", bodies, [*serve_command(bench, job), *settings], ROOT, "scores") as pair:
            end = time.monotonic() + 60
            while figure_of(pair.scores, "live") == 0 and time.monotonic() < end:
                time.sleep(0.1)
            began, applied = time.monotonic(), figure_of(pair.scores, "rows_total")
            turns, tried = pair.quiet_turns(rate, connections)
            applied = (figure_of(pair.scores, "rows_total") - applied) / (time.monotonic() - began)
            if figure_of(pair.scores, "live") == 0 or trainer.poll() is not None:
                raise Broken("the job was not followed until the end")
    finally:
        trainer.kill()
        trainer.communicate()
        remove(state)
    leat, echo, _ = p99s(turns)
    return [Figure(f"HTTP, JSON, one row, {rate} requests/s, beside a trainer that is followed: p99", "ms", leat, 2.0,
                   is_upper=True, peers=[Peer("echo of the same bytes", echo, "same run")],
                   checked=f"{answered(turns)}; the job was followed to the end",
                   note=f"{len(turns)} of {tried} turns of {bench.turn_s} s. The trainer (linear) learned {applied / 1e3:.1f} k "
                        f"events/s: it pauses {TRAINER_PAUSE_MS} ms before each {MICRO_BATCH} events. It shares the generator's "
                        "core.")]


# --- Overload ---

def resident_mb(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"^VmRSS:\s+(\d+)", file.read(), re.M)[1]) / 1024


def good_rate(answers):
    """Answers a second, until the last one."""
    return answers["good"]["count"] / answers["seconds"]


def overload(bench, rows_each, connections):
    """(turns, whether they count, growth of memory in %). A turn is the server's capacity, when some connections ask again as
    soon as they have an answer; then what it answers to twice as many requests. The echo at 2,000 requests/s says whether
    the turn counts; where too few do, all are returned."""
    with open(os.path.join(ROOT, "jobs/ctr.leat"), encoding="utf-8") as file:
        text = file.read()
    job = bench.path("load-overload.leat")
    with open(job, "w", encoding="utf-8") as file:
        file.write(text.replace("request: impressions }", f"request: impressions, deadline: {OVERLOAD_DEADLINE_MS}ms }}"))
    closed, wanted = 4 if rows_each > 1 else 32, turns_of(bench)
    turns, quiet, memory = [], [], None
    with Pair(bench, f"overload-{rows_each}", ctr_bodies(bench, rows_each), serve_command(bench, job), trained(bench)) as pair:
        ask(bench, pair.scores, pair.for_model, 0, closed)
        while len(quiet) < wanted and len(turns) < wanted * 3 // 2:
            capacity = good_rate(ask(bench, pair.scores, pair.for_model, 0, closed))
            answers = ask(bench, pair.scores, pair.for_model, round(2 * capacity), connections)
            memory = memory or resident_mb(pair.scores)
            turns.append((answers, good_rate(answers) / capacity, capacity))
            if ask(bench, pair.echo, pair.for_echo, 2000, closed)["good"]["p99"] <= QUIET_ECHO_MS:
                quiet.append(turns[-1])
        grown = (resident_mb(pair.scores) / memory - 1) * 100
    return (quiet, True, grown) if len(quiet) >= wanted else (turns, False, grown)


def overload_figures(bench, rows_each, connections):
    found, is_quiet, grown = overload(bench, rows_each, connections)
    what = f"twice the capacity, {'one row' if rows_each == 1 else f'{rows_each} items'} a request"
    p99 = median([turn["good"]["sent_p99"] for turn, _, _ in found])
    due = median([turn["good"]["p99"] for turn, _, _ in found])
    refused = median([turn["refused"]["sent_p99"] for turn, _, _ in found])
    middle = median([turn["refused"]["sent_p50"] for turn, _, _ in found])
    goodput = median([share for _, share, _ in found]) * 100
    expired = median([turn["expired"]["count"] / turn["sent"] for turn, _, _ in found]) * 100
    backlog = max(turn["backlog"] for turn, _, _ in found)
    capacity = median([one for _, _, one in found])
    note = (f"{len(found)} turns of {bench.turn_s} s; capacity {capacity:.0f} requests/s; deadline "
            f"{OVERLOAD_DEADLINE_MS} ms; {connections} connections; at most {backlog} requests that were due found none of them "
            f"idle; accepted from when they were due: p99 {due:.1f} ms; refused: p50 {middle:.2f} ms; {expired:.0f} % of all "
            "waited beyond their deadline (504).")
    if not is_quiet:
        raise Skip(f"machine busy: the echo's p99 was at most {QUIET_ECHO_MS} ms in too few turns; not judged: {what}: "
                   f"accepted p99 {p99:.1f} ms, goodput {goodput:.0f} %, refused p99 {refused:.2f} ms, memory {grown:+.1f} %; "
                   f"{note}")
    checked = "every answer was 200, 503 or 504"
    return [Figure(f"{what}: p99 of accepted ones, from when they were sent", "ms", p99, OVERLOAD_DEADLINE_MS, is_upper=True,
                   checked=checked, note=note),
            Figure(f"{what}: goodput, of capacity", "%", goodput, 90.0, checked=checked),
            Figure(f"{what}: p99 of refusals", "ms", refused, 1.0, is_upper=True, checked=checked),
            Figure(f"{what}: memory after the last turn, above that after the first", "%", grown, 5.0, is_upper=True,
                   checked=checked)]


def row_overload(bench):
    needs("taskset", "util-linux")
    return overload_figures(bench, 1, 4000)


def row_overload_items(bench):
    needs("taskset", "util-linux")
    return overload_figures(bench, ROWS_EACH, 256)


# --- Start ---

def cpu_of(pid):
    """Seconds of the process, with those of threads that have ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_answer(bench, job, settings):
    """From the start of `leat serve` to its first answer, which is checked: seconds, CPU seconds, and cores that other
    processes had."""
    began, busy = time.monotonic(), busy_cores()
    process = subprocess.Popen([bench.leat, "serve", job, *settings], stderr=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)$", process.stderr.readline().strip())[1])
        body = json.dumps({"inputs": [{"name": name, "shape": [1], "datatype": "INT64", "data": [value]}
                                      for name, value in (("id", START_ID), ("ts", START_TIME_US))]}).encode()
        while time.monotonic() - began < START_PATIENCE_S:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/counts/infer", body, timeout=30) as answer:
                    took, outputs = time.monotonic() - began, json.load(answer)["outputs"]
                found = next(one["data"] for one in outputs if one["name"] == "n")
                if found != [1]:
                    raise Broken(f"key {START_ID} was counted {found} times, not once")
                cpu = cpu_of(process.pid)
                return took, cpu, max(0.0, busy_cores() - busy - cpu) / took
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise Broken(f"status {error.code}") from error
                time.sleep(0.005)
        raise Broken(f"no answer within {START_PATIENCE_S} s")
    finally:
        process.kill()
        process.communicate()


def row_start(bench):
    events = bench.size(START_EVENTS, START_EVENTS // 10)
    job = os.path.join(JOBS, "serve_start.leat")

    def make(path):
        remove(path)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(events / START_EVENTS_EACH_S))
        bench.run([bench.leat, "run", job, "--quiet", "--until", until, "--set", f"state={path}"])
    state = bench.made(f"load-start-{events}", make)
    gib = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(state) for name in names) / 2**30
    taken = [first_answer(bench, job, ["--set", f"state={state}"]) for _ in range(bench.repeats)]
    walls = [one[0] for one in taken]
    return [Figure(f"start with a checkpoint of {gib:.2f} GiB to the first answer", "s", median(walls), 5.0, is_upper=True,
                   checked="the answer has the state of its key",
                   note=f"{min(walls):.2f} to {max(walls):.2f} s; {median([one[1] for one in taken]):.2f} s of CPU time; other "
                        f"processes had {median([one[2] for one in taken]):.1f} cores meanwhile; {events / 1e6:.1f} M "
                        "keys.")]


# --- Memory ---

def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def predictions_of(port, keys):
    """The answer's texts."""
    body = json.dumps({"inputs": [{"name": "key", "shape": [len(keys)], "datatype": "INT64", "data": keys}],
                       "outputs": [{"name": "prediction"}]}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/scores/infer", body, timeout=60) as answer:
        return json.load(answer, parse_float=str)["outputs"][0]["data"]


def scored(bench, job, settings, keys):
    """What the job's last checkpoint predicts."""
    requests = bench.path("load-memory.jsonl")
    with open(requests, "w", encoding="ascii") as file:
        file.writelines(json.dumps({"key": key}) + "\n" for key in keys)
    output = bench.run([bench.leat, "score", job, requests, "--columns", "prediction", *settings]).output
    return [json.loads(line, parse_float=str)["prediction"] for line in output.splitlines()]


def followed_memory(bench, job, rows):
    """Bytes that a server has resident, and had at the most, when it has followed a job to its last row: (now, most). The
    job stops itself before its last checkpoint, so that none takes the place of what was followed."""
    state = bench.path("load-memory")
    remove(state)
    settings = ["--set", f"state={state}", "--set", f"keys={rows}", "--set", f"count={MEMORY_ROWS}"]
    server = subprocess.Popen([bench.leat, "serve", job, *settings], stderr=subprocess.PIPE, text=True)
    trainer = None
    try:
        port = int(re.search(r":(\d+)$", server.stderr.readline().strip())[1])
        points = f"run.claimed=sleep:{MEMORY_PAUSE_MS},ckpt.pre_rename=stop@2"
        trainer = subprocess.Popen([bench.leat, "run", "--quiet", job, *settings], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env={**os.environ, "LEAT_FAILPOINTS": points})
        deadline = time.monotonic() + START_PATIENCE_S
        while not is_stopped(trainer.pid):
            if time.monotonic() > deadline or trainer.poll() is not None:
                raise Broken("the job did not come to its last checkpoint")
            time.sleep(0.05)
        time.sleep(2)  # for what it published last
        keys = list(range(0, rows, rows // 50))
        answers = predictions_of(port, keys)
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            text = file.read()
        trainer.send_signal(signal.SIGCONT)
        trainer.wait(START_PATIENCE_S)
        if answers != scored(bench, job, settings, keys):
            raise Broken("the server's answers are not those of the job's last checkpoint")
        return [int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) * 1024 for name in ("VmRSS", "VmHWM")]
    finally:
        for process in filter(None, (trainer, server)):
            process.kill()
            process.communicate()
        remove(state)


def row_memory(bench):
    figures = []
    for name, (learner, weights) in MEMORY_LEARNERS.items():
        job = bench.path(f"load-memory-{name}.leat")
        with open(os.path.join(JOBS, "serve_memory.leat"), encoding="utf-8") as file:
            text = file.read()
        with open(job, "w", encoding="utf-8") as file:
            file.write(text.replace("# LEARNER\n", f"learner model = {learner}\n"))
        taken = [(followed_memory(bench, job, MEMORY_ROWS), followed_memory(bench, job, MEMORY_ROWS_FEW))
                 for _ in range(bench.repeats)]
        now, most = (median([(many[i] - few[i]) / (MEMORY_ROWS - MEMORY_ROWS_FEW) for many, few in taken]) for i in (0, 1))
        figures.append(Figure(f"{name}: memory a row of a server that follows", "B", now, weights + MEMORY_BESIDE, is_upper=True,
                              peers=[Peer("the row's weights alone", weights, "float32")],
                              checked="answers as of the job's last checkpoint",
                              note=f"Resident with {MEMORY_ROWS} rows less with {MEMORY_ROWS_FEW}; at the most, while cuts came, "
                                   f"{most:.0f} B a row."))
    return figures


ROWS = {
    "serve-memory": ("leat serve beside a job: memory a row of its model", row_memory),
    "serve-start": ("leat serve with 1 GiB of checkpoint: start to the first answer", row_start),
    "serve-rate": ("p99 at 20 k requests/s, one row each", row_rate),
    "serve-rate-items": ("p99 at 500 requests/s, 500 rows each", row_rate_items),
    "serve-rate-trainer": ("p99 at 20 k requests/s beside a trainer that is followed", row_trainer),
    "serve-overload": ("twice the capacity, one row a request", row_overload),
    "serve-overload-items": ("twice the capacity, 500 rows a request", row_overload_items),
}
