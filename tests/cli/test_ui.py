#!/usr/bin/env python3
"""The page of `leat run --ui` and what it reads: its files, events, the plan, and the OpenAPI document; and who may read
them. Prints TAP.

    tests/cli/test_ui.py PATH_OF_LEAT
"""

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "metrics")]
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from test_run_control import FAILED, JOB, LEAT, SLOWER, Run, digest, place, refuse  # noqa: E402

BUNDLE = os.path.join(os.path.dirname(TESTS), "page", "bundle")
FILES = {"/": ("index.html", "text/html; charset=utf-8"), "/app.js": ("app.js", "text/javascript; charset=utf-8"),
         "/app.css": ("app.css", "text/css; charset=utf-8")}
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'")
READ = ["/api/v1/events", "/api/v1/plan", "/api/v1/openapi.json"]
STREAMS_MAX = 32


def ask(run, path, method="GET", **headers):
    """The status, the fields, and the body as bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=PATIENCE_S)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


class Events:
    """A stream of events. next(): the next event's fields, or {"comment": text}; None: the stream has ended."""

    def __init__(self, run, **headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=PATIENCE_S)
        self.connection.request("GET", "/api/v1/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def next(self):
        fields = {}
        while line := self.answer.readline().decode():
            if line == "\n":
                return fields
            if line.startswith(":"):
                fields["comment"] = line[1:].strip()
                continue
            name, value = line[:-1].split(": ", 1)
            assert name in ("event", "id", "data") and name not in fields, line
            fields[name] = json.loads(value) if name == "data" else value
        return None

    def until(self, event):
        while (found := self.next()) is None or found.get("event") != event:
            assert found is not None, f"the stream ended before {event}"
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


def test_methods():
    """Monitors ask with HEAD whether a server is there; who asks with a wrong method is told which are right."""
    with place() as folder, Run(folder, points=SLOWER) as run:
        run.wait_until("/readyz")
        paths = json.loads(ask(run, "/api/v1/openapi.json")[2])["paths"]
        assert len(paths) >= 20, paths
        for path, methods in paths.items():
            path = {"/api/v1/state/{rest}": "/api/v1/state/kept/dedup/1",
                    "/api/v1/model/{rest}": "/api/v1/model/model?field=a&value=1"}.get(path, path)
            for method in ("HEAD", "POST" if "get" in methods else "OPTIONS"):
                status, fields, body = ask(run, path, method)
                if method == "HEAD" and "get" in methods:
                    assert status == (204 if path == "/favicon.ico" else 200) and body == b"", (path, status, body)
                    assert ("content-length" in fields) == (path not in ("/api/v1/events", "/favicon.ico")), (path, fields)
                else:
                    assert status == 405 and fields["allow"] == ("GET, HEAD" if "get" in methods else "POST"), (path, fields)
        assert run.ask("/healthz")[0] == 200 and run.process.poll() is None


# --- The page's files ---


def test_files():
    with place() as folder, Run(folder, points=SLOWER) as run:
        for path, (name, kind) in FILES.items():
            with open(os.path.join(BUNDLE, name), "rb") as file:
                text = file.read()
            status, fields, body = ask(run, path)
            assert status == 200 and body == text and fields["content-type"] == kind, (path, fields)
            assert fields["content-security-policy"] == CSP and fields["x-content-type-options"] == "nosniff", fields
            assert fields["referrer-policy"] == "no-referrer" and fields["vary"] == "accept-encoding", fields
            assert "content-encoding" not in fields and fields["cache-control"] == "no-cache", fields
            for accepts in ("gzip", "br, gzip;q=0.5", "deflate , gzip ; q=1"):
                status, zipped, body = ask(run, path, accept_encoding=accepts)
                assert zipped["content-encoding"] == "gzip" and gzip.decompress(body) == text, (accepts, zipped)
                assert zipped["etag"] != fields["etag"] and zipped["content-security-policy"] == CSP
            for accepts in ("br", "gzip;q=0", "gzip;q=0.000", "xgzip", ""):
                assert "content-encoding" not in ask(run, path, accept_encoding=accepts)[1], accepts
            for has in (fields["etag"], f'"other", {fields["etag"]}', f'W/{fields["etag"]}', "*"):
                status, known, body = ask(run, path, if_none_match=has)
                assert status == 304 and not body and known["etag"] == fields["etag"], (has, known)
            assert ask(run, path, if_none_match='"other"')[0] == 200
            assert ask(run, path, if_none_match=zipped["etag"])[0] == 200, "it has another coding"
            assert ask(run, path, "POST")[0] == 405
        assert ask(run, "/favicon.ico")[0] == 204 and ask(run, "/index.html")[0] == 404 and ask(run, "/../app.js")[0] == 400
        for said in run.said:
            assert "token" not in said
        assert f"leat: the run's page at http://127.0.0.1:{run.port}/\n" in run.said, run.said


def test_names_and_origins():
    """DNS that points at this machine, and pages of others, see nothing."""
    with place() as folder, Run(folder, points=SLOWER) as run:
        for path in [*FILES, *READ]:
            assert ask(run, path, host="leat.example")[0] == 421, path
            assert ask(run, path, origin="http://leat.example")[0] == 403, path
            assert ask(run, path, origin="null")[0] == 403, path
        assert ask(run, "/api/v1/plan", origin=f"http://127.0.0.1:{run.port}")[0] == 200


def test_token():
    """The page's files are nobody's secret; what it shows is."""
    with place() as folder:
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("a-token-of-mine\n")
        with Run(folder, "--control-token-file", "token", points=SLOWER) as run:
            for path in FILES:
                assert ask(run, path)[0] == 200 and ask(run, path, "POST")[0] == 401, path
            for path in [*READ, "/api/v1/figures", "/metrics", "/healthz", "/app.js/", "/x"]:
                assert ask(run, path)[0] == 401, path
            for path in READ[1:]:
                assert ask(run, path, authorization="Bearer a-token-of-mine")[0] == 200, path
            with Events(run, Authorization="Bearer a-token-of-mine") as events:
                assert events.next()["event"] == "hello"


# --- Events ---


def test_events():
    with place() as folder:
        lives = []
        for is_first in (True, False):
            with Run(folder, points=SLOWER) as run, Events(run) as events, Events(run) as others:
                fields = dict(events.answer.getheaders())
                assert fields["content-type"] == "text/event-stream" and fields["cache-control"] == "no-store", fields
                hello = events.next()
                assert hello["event"] == "hello" and hello["data"]["job"] == "controlled", hello
                assert others.next()["data"]["life"] == hello["data"]["life"]
                lives.append(hello["data"]["life"])
                before = None
                for _ in range(4):
                    found, other = events.until("figures"), others.until("figures")
                    assert found == other or before is None, "a body of a second is everybody's"
                    data = found["data"]
                    assert abs(data.pop("now") - time.time() * 1000) < PATIENCE_S * 1000
                    assert before is None or (data["records_life"] >= before["data"]["records_life"] and
                                              int(found["id"]) > int(before["id"])), (before["id"], found["id"])
                    before = found
                figures = json.loads(ask(run, "/api/v1/figures")[2])
                assert figures.keys() == data.keys() and figures["records_life"] >= data["records_life"]
                assert hello["data"]["fingerprint"] == figures["fingerprint"]
                assert figures["state"] == "running" and figures["good"], figures
                if is_first:
                    run.process.send_signal(signal.SIGINT)
                    check_last(run, events, "stopped")
        assert lives[0] != lives[1], lives


def check_last(run, events, state):
    """The last figures of the stream are those of the summary."""
    last = None
    while (found := events.next()) is not None:
        last = found if found.get("event") == "figures" else last
    summary = run.ends()
    assert last is not None and last["data"].pop("now") > 0
    assert last["data"] == summary and summary["state"] == state, (last, summary)


def test_end_of_a_run():
    with place() as folder, Run(folder) as run, Events(run) as events, Events(run) as others:
        threads = [threading.Thread(target=others.until, args=("hello",))]
        threads[0].start()
        check_last(run, events, "finished")
        threads[0].join(PATIENCE_S)


def test_bottleneck_node():
    """The node that the sentence is about, or none."""
    with place() as folder, Run(folder, points="sink.write=sleep:400") as run, Events(run) as events:
        while (found := events.until("figures")["data"])["bottleneck_node"] is None:
            assert found["bottleneck"] is None or "`" not in found["bottleneck"], found
        assert f"`{found['bottleneck_node']}`" in found["bottleneck"], found
        assert found["bottleneck_node"] in [node["part"] for node in found["nodes"]], found


# --- Lines of the log ---


STEPS, LINES_MAX = 60, 50


def write_bad_steps(folder):
    """A job that says a warning for each of its steps, because they reject all rows."""
    steps = [f"""stream s{i} = s | with y{i} = a / (a - a) + {i}
sink k{i} = null from s{i}
""" for i in range(STEPS)]
    source = next(line for line in JOB.split("\n") if line.startswith("source"))
    with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
        file.write("job controlled { workers: 1 }\n" + source + "\n" + "".join(steps))


def test_lines_of_the_log():
    """What is said while somebody reads comes as /api/v1/log has it; of very many lines the number alone."""
    with place() as folder:
        write_bad_steps(folder)
        with Run(folder, points="run.claimed=sleep:1500") as run, Events(run) as events:
            came, left_out, of_second = [], 0, [0]
            while left_out + len(came) < STEPS:
                found = events.next()
                assert found is not None, (came, run.said)
                if found.get("event") != "log":
                    of_second.append(0)
                    continue
                line = found["data"]
                if "left_out" in line:
                    assert line["left_out"] > 0 and f"{line['left_out']} lines are left out here" in line["text"], line
                    left_out += line["left_out"]
                    continue
                came.append(line)
                of_second[-1] += 1
            assert max(of_second) <= LINES_MAX, of_second
            kept = {line["n"]: line for line in json.loads(ask(run, "/api/v1/log")[2])["lines"]}
            assert len({line["n"] for line in came}) == len(came)
            for line in came:
                assert kept[line["n"]] == line, (kept[line["n"]], line)
            assert sum("records are dead letters" in line["text"] for line in came) > 0, came


def test_many_events():
    """At most 32 streams; one that is closed makes room for another."""
    with place() as folder, Run(folder, points=SLOWER) as run, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Events(run)) for _ in range(STREAMS_MAX)]
        for stream in streams:
            assert stream.next()["event"] == "hello"
        with Events(run) as more:
            assert more.status == 503, more.status
        for stream in streams:
            stream.until("figures")
        streams[7].connection.sock.shutdown(socket.SHUT_RDWR)
        streams[7].connection.close()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with Events(run) as more:
                if more.status == 200:
                    assert more.until("figures")["data"]["job"] == "controlled"
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_events_of_a_run_that_is_restored():
    """There are no figures yet: the stream is quiet, and says so after a while."""
    with place() as folder:
        with Run(folder, points=SLOWER) as run, Events(run) as events:
            while events.until("figures")["data"]["checkpoints"] == 0:
                pass
            run.process.kill()
        with Run(folder, points=f"restore.begin=sleep:18000,{SLOWER}") as run, Events(run) as events:
            assert events.next()["event"] == "hello"
            began = time.monotonic()
            found = events.next()
            assert found == {"comment": "quiet"} and time.monotonic() - began > 13, found
            assert json.loads(ask(run, "/api/v1/plan")[2])["lanes"] == 0
            events.until("figures")
            assert json.loads(ask(run, "/api/v1/plan")[2])["lanes"] == 2


def test_changes_nothing():
    """The output of a run with pages open, and of one that nobody can ask."""
    with place() as seen, place() as alone:
        with Run(seen) as run:
            def look():
                with contextlib.suppress(OSError, http.client.HTTPException), Events(run) as events:
                    while events.next() is not None:
                        ask(run, "/api/v1/plan")
            threads = [threading.Thread(target=look) for _ in range(3)]
            for thread in threads:
                thread.start()
            run.ends()
            for thread in threads:
                thread.join(PATIENCE_S)
        subprocess.run([LEAT, "run", "job.leat", "--quiet"], cwd=alone, check=True, stdout=subprocess.DEVNULL)
        assert digest(seen) == digest(alone)


# --- The plan ---


def numbers(match):
    return tuple(float(number) for number in match)


def test_plan():
    """The picture is that of `leat explain --svg`; the nodes are those of the figures."""
    with place() as folder, Run(folder, points=SLOWER) as run:
        run.wait_until("/readyz")
        plan = json.loads(ask(run, "/api/v1/plan")[2])
        figures = json.loads(ask(run, "/api/v1/figures")[2])
        svg = subprocess.run([LEAT, "explain", "--svg", "job.leat"], cwd=folder, check=True, capture_output=True, text=True).stdout
        place_of = r'x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="([\d.]+)"'
        sides = ("x", "y", "width", "height")

        def check_places(kind, things):
            drawn = [numbers(found) for found in re.findall(f'class="{kind}" {place_of}', svg)]
            assert len(drawn) == len(things) >= 3, (drawn, things)
            for one, thing in zip(drawn, things):
                assert all(abs(number - thing[side]) < 0.051 for number, side in zip(one, sides)), (one, thing)
        check_places("box", plan["stages"])
        check_places("label", [arrow["label"] for arrow in plan["arrows"]])
        assert re.findall(r'class="wire" d="([^"]+)"', svg) == [arrow["path"] for arrow in plan["arrows"]]
        assert re.findall(r'<g class="(\w+)"', svg) == [stage["sort"] for stage in plan["stages"]]
        for stage in plan["stages"]:
            assert 0 <= stage["x"] and stage["x"] + stage["width"] <= plan["width"] + 0.1, (stage, plan["width"])
            assert 0 <= stage["y"] and stage["y"] + stage["height"] <= plan["height"] + 0.1, (stage, plan["height"])
        for node in plan["nodes"]:
            stage = plan["stages"][node["stage"]]
            assert stage["x"] < node["x"] and node["x"] + node["width"] < stage["x"] + stage["width"], node
            assert stage["y"] < node["y"] and node["y"] + node["height"] < stage["y"] + stage["height"], node
        for name in ("part", "name", "tag", "kind"):
            assert [node[name] for node in plan["nodes"]] == [node[name] for node in figures["nodes"]], name
        parts = {node["part"]: place for place, node in enumerate(plan["nodes"])}
        assert plan["nodes"][parts["model"]]["inputs"] == [parts["model/with"]], plan["nodes"]
        assert plan["nodes"][parts["model/with"]]["inputs"] == [parts["features/feature"]], plan["nodes"]
        assert plan["nodes"][parts["sink/dead"]]["inputs"] == [] and plan["nodes"][parts["s"]]["inputs"] == []
        assert {part for part in parts if plan["nodes"][parts[part]]["has_state"]} >= {"kept/dedup", "features/feature", "model"}
        assert (plan["job"], plan["fingerprint"], plan["lanes"]) == ("controlled", figures["fingerprint"], 2), plan


# --- The OpenAPI document ---


def test_openapi():
    """Every route is in it, and every answer has a status and a type that it knows."""
    with place() as folder, Run(folder, points=SLOWER) as run:
        run.wait_until("/readyz")
        document = json.loads(ask(run, "/api/v1/openapi.json")[2])
        assert document["openapi"].startswith("3.0."), document["openapi"]
        routes = re.findall(r"^(GET|POST) (/\S*)$", ask(run, "/none")[2].decode(), re.M)
        known = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert known == {(method, path.replace("*", "{rest}")) for method, path in routes} and len(known) > 10, known
        tried = 0
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                assert operation["summary"], path
                for query in ("", *(f"?{one['name']}=%FF%22" for one in operation["parameters"] if one["in"] == "query"),
                              "?unknown=1", "?%"):
                    if path == "/api/v1/events":
                        with Events(run) as events:
                            status, kind = events.status, events.answer.getheader("content-type")
                    else:
                        status, fields, _ = ask(run, path.replace("{rest}", "x") + query, method.upper())
                        kind = fields.get("content-type")
                    answer = operation["responses"].get(str(status))
                    assert answer is not None and status < 500, (method, path, query, status)
                    assert "content" not in answer or kind.split(";")[0] in answer["content"], (path, status, kind)
                    tried += 1
        assert tried > 25, tried


# --- Where it listens ---


def write_job(folder, ui):
    text = JOB.replace("workers: 2,", f"workers: 2, ui: {ui},")
    assert text != JOB
    with open(os.path.join(folder, "job.leat"), "w", encoding="ascii") as file:
        file.write(text)


class Plain(Run):
    """A run with the words that are given alone."""

    def __init__(self, folder, *words):
        self.said, self.port = [], None
        self.process = subprocess.Popen([LEAT, "run", "job.leat", "--json", *words], cwd=folder, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "LEAT_FAILPOINTS": SLOWER})
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.match(r"leat: the run's page at http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                break
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr))
        self.reader.start()


def test_flags_and_options():
    with place() as folder, socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        for words in (("--ui", "127.0.0.1:0"), ("--ui=127.0.0.1:0",)):
            with Plain(folder, *words) as run:
                assert ask(run, "/")[0] == 200
        refuse(folder, "--ui", taken, says=r"Address already in use")
        refuse(folder, "--ui", taken, says=r"choose another\s+port .*--ui")
        refuse(folder, "--ui", "0.0.0.0:0", says="--control-certificate, --control-key")
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("a-token-of-mine\n")
        write_job(folder, '{ listen: "127.0.0.1:0", token_file: "token" }')
        for words in ((), ("--ui",)):
            with Plain(folder, *words) as run:
                assert ask(run, "/")[0] == 200 and ask(run, "/api/v1/plan")[0] == 401
                assert ask(run, "/api/v1/plan", authorization="Bearer a-token-of-mine")[0] == 200
        write_job(folder, f'{{ listen: "{taken}" }}')
        refuse(folder, says=r"`listen` of the `serve` or\s+`ui`")
        with Plain(folder, "--ui", "127.0.0.1:0") as run:
            assert ask(run, "/api/v1/plan")[0] == 200
        replay = subprocess.run([LEAT, "run", "job.leat", "--replay", "s=data.jsonl"], cwd=folder, capture_output=True, text=True,
                                check=False)
        assert replay.returncode == 0 and "page at" not in replay.stderr, replay


def check(folder, says):
    done = subprocess.run([LEAT, "check", "job.leat"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and re.search(says, done.stderr), done


def test_checks_of_the_job():
    with place() as folder:
        write_job(folder, '{ listen: "nonsense" }')
        check(folder, r"job.leat:1:\d+: error\[E0618\]: expected an address with a port, found `nonsense`")
        write_job(folder, '{ listen: "127.0.0.1:1", key: "key.pem" }')
        check(folder, "has only one of `certificate` and `key`")
        write_job(folder, '{ lisden: "127.0.0.1:1" }')
        check(folder, "lisden")
        write_job(folder, '{ listen: "127.0.0.1:0", token_file: "none" }')
        refuse(folder, says="`token_file` of `ui`: `none` cannot be read")
        said = subprocess.run([LEAT, "help", "job"], capture_output=True, text=True, check=True).stdout
        assert "token_file" in said and "127.0.0.1:8081" in said, said


def test_default_address():
    """Where something listens there already, the error says so."""
    with place() as folder:
        run = Plain(folder, "--ui")
        try:
            if run.port is None:
                run.process.wait(PATIENCE_S)
                run.reader.join(PATIENCE_S)
                assert run.process.returncode == FAILED and "cannot listen on `127.0.0.1:8081`" in "".join(run.said), run.said
            else:
                assert run.port == 8081
        finally:
            run.__exit__()


if __name__ == "__main__":
    sys.exit(tap.run(globals(), threads=4))
