#!/usr/bin/env python3
"""`leat serve` over HTTP: its scores equal those of `leat score` from the same checkpoint; it follows checkpoints while
clients ask; requests that are wrong, too many or too late are answered as such, and the counters add up.

    tests/serve/test_serve.py PATH_OF_LEAT
"""

import collections
import concurrent.futures
import fcntl
import glob
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import BAD_JOB, FAILED, LEAT, ROWS, USAGE, Place, first_from, time_text  # noqa: E402
from scores import compare  # noqa: E402
from server import Client, Server, rows_of, tensor, tensors  # noqa: E402

COLUMNS = ["id", "ts", "user", "item", "price", "tags", "liked", "clicked"]


def half(place, part=0.5, **names):
    place.run("--until", time_text(stream.START_MS + int(ROWS * stream.STEP_MS * part)), **names)


def check_equal(job, model):
    with Place(job) as place:
        half(place, 0.75)
        asked = place.events[-1100:]
        scored = place.score(asked)
        with Server(place).ready() as server:
            client = server.client()
            status, answer = client.infer(model, tensors(asked, COLUMNS))
            assert status == 200, answer
            compare(rows_of(answer), scored)
            # In pieces, over several connections at once: batches of other requests' rows.
            pieces, rng, at = [], random.Random(1), 0
            while at < len(asked):
                count = rng.choice([1, 1, 2, 5, 40])
                pieces.append((at, min(at + count, len(asked))))
                at += count

            def ask(some):
                connection = server.client()
                for begin, end in some:
                    status, answer = connection.infer(model, tensors(asked[begin:end], COLUMNS))
                    if all(row.get("_status") == "failed" for row in scored[begin:end]):
                        assert status == 422 and scored[begin]["_reason"] in answer["error"], answer
                        continue
                    assert status == 200, answer
                    compare(rows_of(answer), scored[begin:end])

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(ask, [pieces[n::8] for n in range(8)]))
            figures = client.metrics()
            rows = sum(figures[f'leat_serve_rows_total{{model="{model}",outcome="{name}"}}']
                       for name in ("answered", "filtered", "failed"))
            assert rows == 2 * len(asked), (rows, len(asked))


def test_equal_features():
    check_equal(jobs.FEATURES, "steps")


def test_equal_models():
    check_equal(jobs.learner("fm"), "scores")
    check_equal(jobs.learner("deepfm-batch"), "scores")
    check_equal(jobs.learner("mmoe"), "scores")


def test_shapes():
    """One user and many items; outputs by name; null, validity and lengths; more rows than a batch has."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        items = [f"i{n}" for n in range(2500)]
        with Server(place).ready() as server:
            client = server.client()
            one = [tensor("user", [7]), {**tensor("items", items), "name": "item"}]
            status, answer = client.infer("scores", one, ["prediction", "user"], id="a-1")
            assert status == 200 and answer["id"] == "a-1" and answer["model_name"] == "scores", answer
            assert [output["name"] for output in answer["outputs"]] == ["prediction", "user"], answer
            assert answer["outputs"][0]["shape"] == [2500] and answer["outputs"][1]["data"] == [7] * 2500
            assert answer["parameters"]["cut"].startswith("1-") and answer["parameters"]["staleness_ms"] >= 0, answer
            status, again = client.infer("scores", [tensor("user", [7] * 2500), {**tensor("item", items)}], ["prediction"])
            assert again["outputs"][0]["data"] == answer["outputs"][0]["data"]
            scored = place.score([{"user": 7, "item": item} for item in items])
            assert [row["prediction"] for row in scored] == answer["outputs"][0]["data"]
            # A null user is left out by the job's `where`.
            status, answer = client.infer("scores", [tensor("user", [None, 7]), tensor("item", ["i1", "i2"])])
            rows = rows_of(answer)
            assert rows[0]["_status"] == "filtered" and "prediction" not in rows[0] and "prediction" in rows[1], rows
            assert answer["parameters"]["filtered"] == 1, answer
            one = [tensor("user", [5, 7]), tensor("user.valid", [False, True])]
            status, answer = client.infer("scores", one, ["prediction", "_status"])
            assert [row["_status"] for row in rows_of(answer)] == ["filtered", "answered"], answer


def test_lists():
    """A list of records is a list for each of their fields; one request goes through a whole funnel."""
    with Place(jobs.FUNNEL) as place:
        half(place)
        asked = place.events[-200:]
        scored = place.score(asked)
        with Server(place).ready() as server:
            status, model = server.client().get("/v2/models/lists")
            outputs = {one["name"]: one["datatype"] for one in model["outputs"]}
            assert outputs["best.item"] == "BYTES" and outputs["best.prediction"] == "FP64" and "best" not in outputs, outputs
            status, answer = server.client().infer("lists", tensors(asked, COLUMNS))
            assert status == 200, answer
        columns, at, lists = {output["name"]: output["data"] for output in answer["outputs"]}, 0, 0
        assert columns["best.item.lengths"] == columns["best.prediction.lengths"] and len(columns["id"]) == len(scored)
        for row, length in zip(scored, columns["best.item.lengths"]):
            found = [{"item": item, "prediction": score} for item, score in
                     zip(columns["best.item"][at:at + length], columns["best.prediction"][at:at + length])]
            assert found == (row.get("best") or []), (found, row)
            at, lists = at + length, lists + (length == 7)
        assert lists > 150, lists


def test_calls():
    """The calls beside inference."""
    with Place(jobs.learner("linear")) as place, Server(place) as server:
        client = server.client()
        assert client.get("/v2/health/live")[0] == 200
        assert client.get("/v2/health/ready")[0] == 503
        status, answer = client.infer("scores", [tensor("user", [7])])
        assert status == 503 and "no checkpoint yet" in answer["error"], answer
        server.wait_for("has no checkpoint in .* yet")
        half(place)
        server.ready()
        assert client.get("/v2/health/ready")[0] == client.get("/v2/models/scores/ready")[0] == 200
        assert client.infer("scores", [tensor("user", [7])])[0] == 200
        status, about = client.get("/v2")
        assert status == 200 and about["name"] == "leat" and "binary_tensor_data" in about["extensions"], about
        status, model = client.get("/v2/models/scores/versions/1")
        assert status == 200 and model["name"] == "scores" and model["versions"] == ["1"], model
        inputs = {one["name"]: one["datatype"] for one in model["inputs"]}
        assert inputs["tags"] == inputs["tags.lengths"] == "INT64", inputs
        assert inputs["user"] == "INT64" and inputs["item"] == "BYTES" and inputs["price"] == "FP64", inputs
        assert {"name": "prediction", "datatype": "FP64", "shape": [-1]} in model["outputs"], model
        status, index = client.ask("POST", "/v2/repository/index", "{}")[::2]
        assert status == 200 and json.loads(index)[0]["state"] == "READY", index
        assert client.ask("POST", "/v2/repository/models/scores/unload", "{}")[0] == 403
        status, figures = client.get("/v2/models/scores/stats")
        assert status == 200 and figures["model_stats"][0]["inference_count"] == 1, figures
        status, document = client.get("/openapi.json")
        assert status == 200 and {"/v2/models/scores/infer", "/v2/models/scores/ready", "/v2/repository/index"} <= set(
            document["paths"]), document
        for path in ("/", "/v3", "/v2/models/none", "/v2/models/scores/versions/2", "/v2/models/scores/x", "/v2/health/x"):
            assert client.get(path)[0] == 404, path
        assert client.get("/v2/models/scores/infer")[0] == 405


def test_follows():
    """A newer checkpoint takes its place while clients ask, and what the job publishes between them is applied: no request
    fails, and each answer is of one moment."""
    with Place(jobs.learner("fm")) as place:
        half(place, 0.4)
        asked = place.events[-40:]
        # Many batches: checkpoints come while requests are computed in part.
        large = [tensor("ts", [place.events[-1]["ts"]]), tensor("user", [n % 400 for n in range(20000)])]
        with Server(place).ready() as server:
            stop, cuts = [], {}

            def ask(_):
                client, answers = server.client(), []
                while not stop or len(answers) < 20:
                    status, answer = client.infer("scores", large, ["prediction"])
                    assert status == 200, answer
                    moment = answer["parameters"]
                    answers.append(((moment["cut"], moment["features"]), json.dumps(answer["outputs"])))
                return answers

            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                waiting = [pool.submit(ask, n) for n in range(3)]
                for part in (0.6, 0.8):
                    half(place, part)
                    newest = max(name for name in os.listdir(place.path("state")) if name.startswith("gen-"))
                    server.wait_for(rf"answers from checkpoint {int(newest[4:])}-")
                stop.append(True)
                for one in waiting:
                    for cut, outputs in one.result(PATIENCE_S):
                        cuts.setdefault(cut, set()).add(outputs)
            assert len(cuts) >= 3, cuts.keys()
            taken = [line for line in server.said if line and "answers from checkpoint" in line]
            assert len(taken) == len(set(taken)), taken
            assert all(len(outputs) == 1 for outputs in cuts.values()), "two answers of one moment differ"
            cut = "+"
            while "+" in cut:  # the last checkpoint is yet to come
                status, last = server.client().infer("scores", large, ["prediction"])
                cut = last["parameters"]["cut"]
            compare(rows_of(server.client().infer("scores", tensors(asked, COLUMNS))[1]), place.score(asked))
        with Server(place, "--checkpoint", cut).ready() as server:
            status, answer = server.client().infer("scores", large, ["prediction"])
            assert status == 200 and answer["outputs"] == last["outputs"], answer


BAD = [
    ([], "how many rows"),
    ([tensor("usr", [7])], "did you mean `user`"),
    ([tensor("user", ["x"])], "user"),
    ([tensor("user", [7]), tensor("user", [8])], "user"),
    ([tensor("user", [7, 8]), tensor("item", ["a", "b", "c"])], "item"),
    ([{**tensor("user", [7]), "shape": [2]}], "user"),
    ([{**tensor("user", [7]), "shape": [-1]}], "user"),
    ([{**tensor("user", [7]), "shape": [1 << 40, 1 << 40]}], "user"),
    ([{**tensor("user", [7]), "datatype": "INT65"}], "INT65"),
    ([{**tensor("user", [7]), "datatype": "FP16"}], "FP16"),
    ([{**tensor("user", [1.5]), "datatype": "INT64"}], "user"),
    ([tensor("user", [7]), {**tensor("item", ["a"]), "datatype": "INT64", "data": [1]}], "item"),
    ([tensor("user", [7]), tensor("tags", [1, 2]), tensor("tags.lengths", [3])], "tags"),
]


def test_bad():
    """Each wrong request is answered 4xx, says which input, and its neighbours are untouched."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        with Server(place).ready() as server:
            client = server.client()
            good = [tensor("user", [7]), tensor("item", ["i3"])]
            first = client.infer("scores", good, ["prediction"])[1]["outputs"]
            for inputs, expected in BAD:
                status, answer = client.infer("scores", inputs)
                assert 400 <= status < 502 and status != 500 and expected in answer["error"], (inputs, status, answer)
                assert client.infer("scores", good, ["prediction"])[1]["outputs"] == first
            for body in (b"", b"{", b"[]", b"null", b'{"inputs":[{}]}', b"\xff", b'{"inputs":' + b"[" * 5000):
                status, _, text = client.ask("POST", "/v2/models/scores/infer", body)
                assert status == 400 and "error" in json.loads(text), (body[:20], status, text)
            status, answer = client.infer("scores", good, ["predicton"])
            assert status == 400 and "did you mean `prediction`" in answer["error"], answer
            status, answer = client.infer("scores", good, ["clicked"])
            assert status == 400 and "clicked" in answer["error"], answer
            status, _, text = client.ask("POST", "/v2/models/scores/infer", b"x" * (300 << 10))
            assert status == 413, (status, text)
            client = server.client()
            status, answer = client.infer("scores", good, parameters={"timeout": 1})
            assert status in (503, 504), (status, answer)
            status, _, text = client.ask("POST", "/v2/models/scores/infer", b"{}", content_encoding="gzip")
            assert status == 501, (status, text)
            status, answer = client.infer("none", good)
            assert status == 404, answer
            figures = client.metrics()
            counts = {name: figures[f'leat_serve_requests_total{{model="scores",outcome="{name}"}}']
                      for name in ("answered", "filtered", "failed", "refused", "shed", "expired")}
            assert counts["answered"] == 1 + len(BAD) and counts["refused"] == len(BAD) + 7 + 2 + 1, counts
            assert counts["shed"] + counts["expired"] == 1 and counts["failed"] == counts["filtered"] == 0, counts
            assert figures["leat_serve_unknown_models_total"] == 1, figures


def test_too_much():
    """Beyond what the queue may hold, requests are shed at once with Retry-After; all counters add up."""
    seen = flood("queue: 1024, deadline: 1m, body: 4MiB }")
    assert seen.get(503, 0) > 0 and 504 not in seen, seen


def test_too_late():
    """Likewise requests that would wait beyond their deadline."""
    seen = flood("queue: 1000000, deadline: 4ms, body: 4MiB }")
    assert seen.get(503, 0) > 0, seen


def test_view():
    """On a terminal: what each model did in the last second, by phases, on a line that is drawn again."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        theirs, ours = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        process = subprocess.Popen([LEAT, "serve", place.path("job.leat"), "--listen", "127.0.0.1:0", *place.settings()], stderr=ours)
        os.close(ours)
        try:
            seen, deadline, client = "", time.monotonic() + PATIENCE_S, None
            wanted = (r"scores +requests \d+ /s  rows \d+ /s  p50 [\d.]+ ms  p99 [\d.]+ \(read [\d.]+, queue [\d.]+, compute [\d.]+, "
                      r"write [\d.]+\)  refused \d+  [\d.]+ s old\x1b\[K\r\n\x1b\[1A\r")
            while not re.search(wanted, seen):
                assert time.monotonic() < deadline and process.poll() is None, seen[-900:]
                if select.select([theirs], [], [], 0.05)[0]:
                    seen += os.read(theirs, 65536).decode()
                if client is None and "answers from checkpoint" in seen:
                    client = Client(int(re.search(r"listening on http://127\.0\.0\.1:(\d+)", seen)[1]))
                if client is not None:
                    assert client.infer("scores", [tensor("user", [7])])[0] == 200
                    assert client.ask("POST", "/v2/models/scores/infer", "{")[0] == 400
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
            os.close(theirs)


def test_shed_unread():
    """A request that is shed is not read: what is in its body does not matter."""
    seen = flood("queue: 1024, body: 4MiB }", others=["{"])
    assert seen.get(503, 0) > 0 and seen["{", 503] > 0, seen


def flood(limits, others=()):
    """How many requests had each status, of clients that ask for more than the server can do. others: bodies that each client
    sends behind each request, counted by themselves."""
    with Place(jobs.learner("deepfm").replace("deadline: 1m }", limits)) as place:
        half(place)
        rows = tensors([{"user": n % 300, "item": f"i{n}"} for n in range(4000)], ["user", "item"])
        request = json.dumps({"inputs": rows})
        with Server(place).ready() as server:
            seen, sent = {}, 0

            def ask(_):
                client, statuses = server.client(), []
                for _ in range(15):
                    status, headers, body = client.ask("POST", "/v2/models/scores/infer", request)
                    assert status in (200, 503, 504), (status, body)
                    assert status != 503 or headers["Retry-After"] == "1", headers
                    statuses.append(status)
                    statuses += [(other, client.ask("POST", "/v2/models/scores/infer", other)[0]) for other in others]
                return statuses

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for statuses in pool.map(ask, range(8)):
                    sent += len(statuses)
                    for status in statuses:
                        seen[status] = seen.get(status, 0) + 1
            figures = server.client().metrics()
            counts = {name: figures[f'leat_serve_requests_total{{model="scores",outcome="{name}"}}']
                      for name in ("answered", "filtered", "failed", "refused", "shed", "expired")}
            assert sum(counts.values()) == sent, (counts, seen)
            shed = seen.get(503, 0) + sum(seen.get((other, 503), 0) for other in others)
            assert counts["answered"] == seen.get(200, 0) > 0 and counts["shed"] == shed, (counts, seen)
            assert figures['leat_serve_waiting_rows{model="scores"}'] == 0, figures
    return seen


def test_large_answer():
    """An answer that would be too large is refused, and the next is good."""
    with Place(jobs.learner("linear").replace("deadline: 1m }", "deadline: 1m, body: 1MiB }")) as place:
        half(place)
        with Server(place).ready() as server:
            client = server.client()
            status, answer = client.infer("scores", [tensor("user", list(range(20000))), tensor("item", ["\x01" * 300])])
            assert status == 413 and "the answer has more than 16 MiB" in answer["error"], (status, str(answer)[:200])
            assert client.metrics()['leat_serve_rows_total{model="scores",outcome="answered"}'] == 0
            assert client.infer("scores", [tensor("user", [7])])[0] == 200


def test_slow_body():
    """The deadline begins when the whole request is there: how long its client takes to send it is the client's affair."""
    with Place(jobs.learner("linear").replace("deadline: 1m }", "deadline: 1s }")) as place:
        half(place)
        body = json.dumps({"inputs": [tensor("user", [7])]}).encode()
        with Server(place).ready() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"POST /v2/models/scores/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
            client.sendall(body[:9])
            time.sleep(1.2)
            client.sendall(body[9:])
            client.settimeout(PATIENCE_S)
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 "), answer


def test_stop():
    """SIGTERM: what has been asked is answered, and the process ends well."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        with Server(place).ready() as server:
            clients = [server.client() for _ in range(20)]
            body = json.dumps({"inputs": [tensor("user", [7])]})
            # They come while the process stands still, and so does the signal.
            server.process.send_signal(signal.SIGSTOP)
            for client in clients:
                client.connection.request("POST", "/v2/models/scores/infer", body)
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGCONT)
            for client in clients:
                assert client.connection.getresponse().status == 200
            assert server.process.wait(PATIENCE_S) == 0
            server.process.returncode = 0


def test_refused():
    """What cannot be served is said at once."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        for words, status, expected in ((["--listen", "nowhere"], FAILED, "nowhere"),
                                        (["--listen", "0.0.0.0:0"], FAILED, "--certificate"),
                                        (["--certificate", "x"], USAGE, "go together"),
                                        (["--token-file", place.path("none")], FAILED, "none"),
                                        (["--checkpoint", "x"], FAILED, "not the name of a checkpoint"),
                                        (["--checkpoint", "1-9"], FAILED, "ckpt-000000000009"),
                                        (["--look-every", "1"], USAGE, "milliseconds")):
            refused = place.leat("serve", *words)
            assert refused.returncode == status and expected in refused.stderr, (words, refused.stderr)
        none = place.leat("serve", "--checkpoint", "1-1", state="none")
        assert none.returncode == FAILED and "there is no checkpoint in" in none.stderr, none.stderr
        twice = subprocess.run([LEAT, "serve", place.path("job.leat"), place.path("job.leat"), *place.settings()],
                               capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert twice.returncode == FAILED and "two jobs have a `serve scores`" in twice.stderr, twice.stderr
        place.write("job.leat", jobs.learner("linear").replace("serve scores", "# serve scores"))
        nothing = place.leat("serve")
        assert nothing.returncode == FAILED and "serves nothing" in nothing.stderr, nothing.stderr
        place.write("job.leat", jobs.learner("linear") + "nonsense")
        assert place.leat("serve").returncode == BAD_JOB


def test_other_job():
    """Another version's checkpoint is refused, with the reason, and the server waits for a right one."""
    with Place(jobs.learner("linear")) as place:
        half(place)
        place.write("job.leat", jobs.learner("linear").replace("over 1h", "over 2h"))
        with Server(place) as server:
            server.wait_for("another version of this job")
            assert server.client().infer("scores", [tensor("user", [7])])[0] == 503


def logged(place):
    rows = []
    for path in sorted(glob.glob(place.path("log/served-*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            rows += [json.loads(line, parse_float=str) for line in file]
    return rows


def test_log():
    """The log has each answered row with its features; `leat skew` compares it with what the rows became in training."""
    with Place(jobs.learner("fm")) as place:
        log = f'deadline: 1m, log: {{ path: "{place.path("log/served")}", rotate: 16KiB, keep: 3 }} }}'
        place.write("job.leat", jobs.learner("fm").replace("deadline: 1m }", log))
        half(place, out="all.jsonl")
        first = first_from(place.events, stream.START_MS + ROWS * stream.STEP_MS // 2)
        ids = collections.Counter(event["id"] for event in place.events)
        asked = [event for event in place.events[first:] if ids[event["id"]] == 1][:60]
        with Server(place).ready() as server:
            client = server.client()
            answers = []
            for n in range(0, 60, 20):
                status, answer = client.infer("scores", tensors(asked[n:n + 20], COLUMNS), id=f"r{n}")
                assert status == 200, answer
                answers += rows_of(answer)
            wanted = [row for row in answers if row.get("_status", "answered") in ("answered", "late")]
            deadline = time.monotonic() + PATIENCE_S
            while client.metrics()['leat_serve_log_lines_total{model="scores",outcome="written"}'] < len(wanted):
                assert time.monotonic() < deadline
                time.sleep(0.02)
        rows = logged(place)
        assert [row["prediction"] for row in rows] == [row["prediction"] for row in wanted]
        numbers = [n % 20 for n, row in enumerate(answers) if row.get("_status", "answered") in ("answered", "late")]
        assert [row["_row"] for row in rows] == numbers
        assert rows[0]["_id"] == "r0" and rows[0]["_cut"].startswith("1-") and rows[0]["_time"].endswith("Z"), rows[0]
        assert "n" in rows[0] and "clicked" not in rows[0], rows[0]
        place.run(out="all.jsonl")
        skew = place.leat("skew", place.path("log/served-*.jsonl"), place.path("all.jsonl"), "--on", "id", "--json")
        assert skew.returncode == 0, skew.stderr
        found = json.loads(skew.stdout)
        columns = {column["name"]: column for column in found["columns"]}
        assert found["served"] == len(wanted) == found["matched"] and found["served_left_out"] == 0, found
        assert columns["item"]["differ"] == columns["item"]["only_served"] == 0, columns
        trained = {row["id"]: row for row in reversed(place.rows("all.jsonl"))}
        for name in ("n", "prediction", "price"):
            same_rows = sum(str(trained[str(row["id"])].get(name)) == str(row.get(name)) for row in rows)
            assert columns[name]["equal"] == same_rows, (name, columns[name], same_rows)
        assert columns["prediction"]["differ"] > 0 and columns["prediction"]["largest"] > 0.0, columns
        text = place.leat("skew", place.path("log/served-*.jsonl"), place.path("all.jsonl"), "--on", "id")
        assert f"{len(wanted)} served rows, {len(wanted)} of them trained" in text.stdout, text.stdout
        for words, expected in ((["--on", "idd"], "did you mean `id`"), (["--on", "clicked"], "no column `clicked`")):
            refused = place.leat("skew", place.path("log/served-*.jsonl"), place.path("all.jsonl"), *words)
            assert refused.returncode == FAILED and expected in refused.stderr, refused.stderr
        place.write("odd.jsonl", '{"id":"x"}\n{"id":null}\n')
        odd = place.leat("skew", place.path("odd.jsonl"), place.path("all.jsonl"), "--on", "id", "--json")
        assert json.loads(odd.stdout)["served_left_out"] == 2 and "odd.jsonl: a line cannot be compared" in odd.stderr, odd.stderr
        place.write("strange.jsonl", '{"id":987654321}\n')
        strange = place.leat("skew", place.path("log/served-*.jsonl"), place.path("strange.jsonl"), "--on", "id")
        assert strange.returncode == FAILED and "no two have the same `id`" in strange.stderr, strange.stderr
        missing = place.leat("skew", place.path("none.jsonl"), place.path("all.jsonl"), "--on", "id")
        assert missing.returncode == FAILED and "none.jsonl" in missing.stderr, missing.stderr


def test_log_rows():
    """The log numbers the rows of a request that takes two batches."""
    with Place(jobs.learner("linear")) as place:
        log = f'deadline: 1m, log: {{ path: "{place.path("log/served")}" }} }}'
        place.write("job.leat", jobs.learner("linear").replace("deadline: 1m }", log))
        half(place)
        with Server(place).ready() as server:
            assert server.client().infer("scores", [tensor("user", list(range(1100)))], ["user"])[0] == 200
        assert [(row["_row"], row["user"]) for row in logged(place)] == [(n, n) for n in range(1100)]


def test_log_sample():
    with Place(jobs.learner("linear")) as place:
        log = f'deadline: 1m, log: {{ path: "{place.path("log/served")}", sample: 0.3 }} }}'
        place.write("job.leat", jobs.learner("linear").replace("deadline: 1m }", log))
        half(place)
        with Server(place).ready() as server:
            client = server.client()
            for _ in range(300):
                client.infer("scores", [tensor("user", [7])])
        assert 60 <= len(logged(place)) <= 120, len(logged(place))
        wrong = 'deadline: 1m, log: { path: "/proc/x" } }'
        place.write("job.leat", jobs.learner("linear").replace("deadline: 1m }", wrong))
        refused = place.leat("serve")
        assert refused.returncode == FAILED and "the log" in refused.stderr, refused.stderr


def test_stale():
    with Place(jobs.learner("linear").replace("deadline: 1m }", "deadline: 1m, max_staleness: 1s }")) as place:
        half(place)
        with Server(place).ready() as server:
            client = server.client()
            deadline = time.monotonic() + PATIENCE_S
            while client.infer("scores", [tensor("user", [7])])[0] == 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            status, answer = client.infer("scores", [tensor("user", [7])])
            assert status == 503 and "max_staleness" in answer["error"], answer
            assert client.get("/v2/health/ready")[0] == 503


def test_token():
    with Place(jobs.learner("linear")) as place:
        half(place)
        with Server(place, "--token-file", place.write("token", "s3cret\n")).ready() as server:
            client = Client(server.port)
            assert client.ask("GET", "/v2")[0] == 401
            assert Client(server.port).ask("GET", "/v2", authorization="Bearer s3creT")[0] == 401
            assert Client(server.port).ask("GET", "/v2", authorization="Bearer s3cret")[0] == 200


def test_readme():
    """README.md's section "Serve", from its own text, at a free port, behind the first lines of "Scores"."""
    if shutil.which("curl") is None:
        return "there is no curl"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        text = file.read()
    first = text.split("\n## Scores\n")[1].split("```sh\n")[1].split("\n")[0]
    commands = text.split("\n## Serve\n")[1].split("```sh\n")[1].split("```")[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "sleep 2;" in commands  # enough at rest; here as long as it takes until the server has the new checkpoint
    commands = commands.replace("sleep 2;", "while curl -s -d @request.json 127.0.0.1:8000/v2/models/ctr/infer | grep -q '\"1-1\"'; do "
                                            "sleep 0.2; done;")
    commands = commands.replace("8000", str(port)).replace("leat serve", f"leat serve --listen 127.0.0.1:{port}")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(root, "jobs"), os.path.join(folder, "jobs"))
        env = {**os.environ, "PATH": os.path.dirname(LEAT) + ":" + os.environ["PATH"]}
        result = subprocess.run(["bash", "-ec", f"{first}\nset -m\n{commands}\nwait %1"], cwd=folder, capture_output=True,
                                text=True, check=False, timeout=PATIENCE_S, env=env)
        assert result.returncode == 0, result.stderr[-900:]
        answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"model_name"')]
        assert len(answers) == 2 and answers[0]["parameters"]["cut"] != answers[1]["parameters"]["cut"], result.stdout
        for answer in answers:
            assert answer["outputs"][0]["data"] == [10196, 10199, 11213], answer
            assert all(0.0 < score < 1.0 for score in answer["outputs"][1]["data"]), answer
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
