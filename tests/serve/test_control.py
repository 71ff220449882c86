#!/usr/bin/env python3
"""The control listener of `leat serve`: models are loaded and unloaded while the server answers, by stock clients and by
plain HTTP. No request of a neighbour fails, every answer is right, the counters add up, and the memory is freed.

    tests/serve/test_control.py PATH_OF_LEAT
"""

import asyncio
import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import install  # noqa: E402
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from patience import PATIENCE_S  # noqa: E402
from place import FAILED, LEAT, ROWS, USAGE, Place, time_text  # noqa: E402
from scores import compare  # noqa: E402
from server import Client, Server, rows_of, tensor, tensors  # noqa: E402

COLUMNS = ["id", "ts", "user", "item", "price", "tags", "liked", "clicked"]
UNTIL = time_text(stream.START_MS + ROWS * stream.STEP_MS // 2)
NOT_SERVED = ("is unloaded", "is loading", "is unloading")
OUTCOMES = ("answered", "filtered", "failed", "refused", "shed", "expired")
UNLOAD = json.dumps({"parameters": {"unload_dependents": False}})  # as tritonclient writes it


class Pair:
    """A server of two jobs: model `scores` of the place's, and model `other`, whose checkpoints lie elsewhere."""

    def __init__(self, *words, other="linear", runs=True, env=None, first="fm"):
        self.place = Place(jobs.learner(first).replace("deadline: 1m }", "deadline: 1m, queue: 1000000 }"))
        text = jobs.learner(other).replace("serve scores", "serve other").replace("job parity", "job other")
        self.other = self.place.write("other.leat", text.replace("dir: state", 'dir: concat(state, "-other")')
                                      .replace("path: out", 'path: concat(out, "-other")'))
        self.place.run("--until", UNTIL)
        if runs:
            self.run_other()
        self.server = Server(self.place, self.other, "--control", "127.0.0.1:0", *words, env=env)
        found = self.server.wait_for(r"models are loaded and unloaded at http://127\.0\.0\.1:(\d+)")
        self.port = int(found.group(1))

    def run_other(self):
        result = subprocess.run([LEAT, "run", "--quiet", "--until", UNTIL, self.other, *self.place.settings()],
                                capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert result.returncode == 0, result.stderr[-900:]

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.server.__exit__(*what)
        self.place.__exit__()

    def ready(self):
        self.server.wait_for("job parity answers from checkpoint")
        self.server.wait_for("job other answers from checkpoint")
        return self

    def change(self, what, model, body=""):
        """Status and error of a request to load or to unload, on a connection of its own."""
        status, _, text = Client(self.port).ask("POST", f"/v2/repository/models/{model}/{what}", body)
        return status, json.loads(text)["error"] if text else ""

    def good(self, what, model):
        answer = self.change(what, model, UNLOAD if what == "unload" else "{}")
        assert answer == (200, ""), (what, model, answer)

    def index(self, only_ready=False):
        """By model: state and reason."""
        body = json.dumps({"ready": True}) if only_ready else ""
        status, _, text = Client(self.port).ask("POST", "/v2/repository/index", body)
        assert status == 200, text
        return {one["name"]: (one["state"], one["reason"]) for one in json.loads(text)}

    def wait_index(self, model, wanted):
        deadline = time.monotonic() + PATIENCE_S
        while self.index()[model] != wanted:
            assert time.monotonic() < deadline, (self.index(), self.server.said[-5:])
            time.sleep(0.01)

    def memory(self):
        """MiB that are resident."""
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def counts_of(figures, model):
    return {name: figures[f'leat_serve_requests_total{{model="{model}",outcome="{name}"}}'] for name in OUTCOMES}


class Asking(threading.Thread):
    """Asks a model without a pause until stopped. Counts what it was answered; failures are anything but the expected scores,
    and, of a model that comes and goes, that it is not loaded."""

    def __init__(self, pair, model, asked, expected, goes):
        super().__init__()
        self.client, self.model, self.request = pair.server.client(), model, tensors(asked, COLUMNS)
        self.expected, self.goes = expected, goes
        self.is_over, self.good, self.away, self.failures = False, 0, 0, []
        self.start()

    def run(self):
        while not self.is_over:
            try:
                status, answer = self.client.infer(self.model, self.request)
                if status == 200:
                    compare(rows_of(answer), self.expected)
                    self.good += 1
                elif status == 503 and self.goes and any(text in answer["error"] for text in NOT_SERVED):
                    self.away += 1
                else:
                    self.failures.append((status, answer))
            except (OSError, AssertionError) as failure:
                self.failures.append(repr(failure))
                return

    def stop(self):
        self.is_over = True
        self.join(PATIENCE_S)
        assert not self.failures, (self.model, len(self.failures), self.failures[:3])


def score_other(pair, asked):
    path = pair.place.write("requests-other.jsonl", "".join(json.dumps(row) + "\n" for row in asked))
    result = subprocess.run([LEAT, "score", pair.other, path, *pair.place.settings()], capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, result.stderr[-900:]
    return [json.loads(line, parse_float=str, parse_int=str) for line in result.stdout.splitlines()]


def test_neighbour():
    """One model is loaded and unloaded again and again while both are asked: every answer is right, none is missing, and the
    memory does not grow."""
    with Pair("--quiet", first="linear", other="fm").ready() as pair:
        asked = pair.place.events[-20:]
        mine, others = pair.place.score(asked), score_other(pair, asked)
        asking = [Asking(pair, "scores", asked, mine, False), Asking(pair, "scores", asked, mine, False),
                  Asking(pair, "other", asked, others, True)]
        memory = []
        for cycle in range(30):
            pair.good("unload", "other")
            assert pair.index()["other"] == ("UNAVAILABLE", "unloaded"), pair.index()
            pair.good("load", "other")
            assert pair.index()["other"] == ("READY", ""), pair.index()
            if cycle >= 9:
                memory.append(pair.memory())
        for one in asking:
            one.stop()
        assert max(memory[10:]) <= min(memory[:10]) * 1.1 + 8, memory
        figures = pair.server.client().metrics()
        for model in ("scores", "other"):
            those = [one for one in asking if one.model == model]
            counts = counts_of(figures, model)
            assert counts["answered"] == sum(one.good for one in those) > 30, (counts, [one.good for one in those])
            assert counts["refused"] == sum(one.away for one in those), (counts, [one.away for one in those])
            assert sum(counts.values()) == counts["answered"] + counts["refused"], counts
        assert figures['leat_serve_control_total{model="other",outcome="loaded"}'] == 30, figures
        assert figures['leat_serve_control_total{model="other",outcome="unloaded"}'] == 30, figures
        assert figures['leat_serve_loaded{model="other"}'] == 1 == figures['leat_serve_loaded{model="scores"}'], figures


def test_queue():
    """What is in the queue when its model is unloaded is answered; what comes later is refused."""
    with Pair(first="deepfm") as pair:
        pair.ready()
        large = json.dumps({"inputs": [tensor("user", [n % 10 for n in range(60000)])], "outputs": [{"name": "prediction"}]})
        clients = [pair.server.client() for _ in range(14)]
        for client in clients:
            client.connection.request("POST", "/v2/models/scores/infer", large)
        watching, deadline, waiting = pair.server.client(), time.monotonic() + PATIENCE_S, 0
        while waiting < 400_000:  # more than is computed before the unload comes
            assert time.monotonic() < deadline, "the queue does not fill"
            figures = watching.metrics()
            waiting = figures['leat_serve_waiting_rows{model="scores"}']
        for _ in range(2):
            left = watching.metrics()['leat_serve_waiting_rows{model="scores"}']
            assert left > 0, "who asks waits for the whole queue"
        queued = figures['leat_serve_requests_total{model="scores",outcome="answered"}'] + waiting / 60000
        pair.good("unload", "scores")
        figures = watching.metrics()
        counts = counts_of(figures, "scores")
        assert counts["answered"] >= queued, (counts, queued)
        assert figures['leat_serve_waiting_rows{model="scores"}'] == 0 == figures['leat_serve_loaded{model="scores"}']
        answered = 0
        for client in clients:
            answer = client.connection.getresponse()
            body = json.loads(answer.read())
            if answer.status == 200:
                assert len(body["outputs"][0]["data"]) == 60000
                answered += 1
            else:
                assert answer.status == 503 and any(text in body["error"] for text in NOT_SERVED), body
        counts = counts_of(watching.metrics(), "scores")
        assert counts["answered"] == answered and counts["refused"] == 14 - answered, (counts, answered)
        assert sum(counts.values()) == 14, counts
        status, answer = pair.server.client().infer("scores", [tensor("user", [7])])
        assert status == 503 and "model `scores` is unloaded" in answer["error"], answer
        assert pair.server.client().infer("other", [tensor("user", [7])])[0] == 200
        assert watching.get("/v2/health/ready")[0] == 200 and watching.get("/v2/models/scores/ready")[0] == 503
        assert pair.index(only_ready=True) == {"other": ("READY", "")}
        assert counts_of(watching.metrics(), "scores")["refused"] == 15 - answered


def test_no_checkpoint():
    """A model whose job has no checkpoint, or a damaged one, cannot be loaded; the answer says why, and the next load finds
    what is there by then."""
    with Pair("--unloaded", runs=False) as pair:
        assert pair.index() == {"scores": ("UNAVAILABLE", "unloaded"), "other": ("UNAVAILABLE", "unloaded")}
        assert pair.server.client().get("/v2/health/ready")[0] == 200
        for _ in range(2):
            status, why = pair.change("load", "other")
            assert status == 503 and "has no checkpoint in" in why and "run the job" in why, (status, why)
            assert pair.index()["other"] == ("UNAVAILABLE", "unloaded")
        pair.good("load", "scores")
        pair.run_other()
        files = [path for path in glob.glob(pair.place.path("state-other/gen-*/ckpt-*/*")) if os.path.isfile(path)]
        assert files
        kept = {}
        for path in files:
            with open(path, "rb") as file:
                kept[path] = file.read()
        for damaged, wanted, text in ((kept, 503, "has no checkpoint in"),
                                      ([path for path in kept if "MANIFEST" not in path], 500, "error[E")):
            for path in damaged:
                with open(path, "wb") as file:
                    file.write(bytes(byte ^ 0xFF for byte in kept[path]))
            for _ in range(2):
                status, why = pair.change("load", "other")
                assert status == wanted and text in why, (status, why, sorted(kept))
            for path, data in kept.items():
                with open(path, "wb") as file:
                    file.write(data)
        pair.good("load", "other")
        asked = pair.place.events[-20:]
        status, answer = pair.server.client().infer("other", tensors(asked, COLUMNS))
        assert status == 200, answer
        compare(rows_of(answer), score_other(pair, asked))
        figures = pair.server.client().metrics()
        assert figures['leat_serve_control_total{model="other",outcome="failed"}'] == 6, figures
        assert figures['leat_serve_control_total{model="other",outcome="loaded"}'] == 1, figures


def abandon(pair, pool, pause_s):
    """A model that loads is unloaded and loaded again. Returns how long that takes: the loader, if it had begun, still opens
    what nobody wants any more, which must not be taken for what is asked now."""
    begin = time.monotonic()
    lost = [pool.submit(pair.change, "load", "other") for _ in range(2)]
    pair.wait_index("other", ("UNAVAILABLE", "loading"))
    time.sleep(pause_s)
    pair.good("unload", "other")
    for one in lost:
        status, why = one.result(PATIENCE_S)
        assert status == 503 and "was unloaded while it was loading" in why, (status, why)
    assert time.monotonic() - begin < 1.8 + pause_s, "unloading waited for a load"
    pair.good("load", "other")
    seconds = time.monotonic() - begin
    assert pair.server.client().infer("other", [tensor("user", [7])])[0] == 200
    pair.good("unload", "other")
    return seconds


def test_while_loading():
    """Loads that come together end together; a model that is unloaded while it loads is not loaded; the next load is good."""
    with Pair("--unloaded", env={"LEAT_FAILPOINTS": "serve.open=sleep:2000"}) as pair, \
            concurrent.futures.ThreadPoolExecutor(8) as pool:
        pair.good("load", "scores")
        together = [pool.submit(pair.change, "load", "other") for _ in range(3)]
        pair.wait_index("other", ("UNAVAILABLE", "loading"))
        status, answer = pair.server.client().infer("other", [tensor("user", [7])])
        assert status == 503 and "model `other` is loading" in answer["error"], answer
        assert pair.server.client().infer("scores", [tensor("user", [7])])[0] == 200
        assert pair.server.client().get("/v2/health/ready")[0] == 200
        assert [one.result(PATIENCE_S) for one in together] == [(200, "")] * 3
        assert pair.server.client().infer("other", [tensor("user", [7])])[0] == 200
        pair.good("load", "other")
        pair.server.wait_for("model other is loaded")
        assert sum("job other answers from" in line for line in pair.server.said) == 1, pair.server.said
        pair.good("unload", "other")
        pair.good("unload", "other")
        seconds = [abandon(pair, pool, pause_s) for pause_s in (0.2, 0.5, 1.0)]
        assert max(seconds) > 3.0, ("abandoned loads were taken", seconds)
        figures = pair.server.client().metrics()
        for outcome, count in (("loaded", 7), ("unloaded", 8), ("failed", 6), ("refused", 0)):
            assert figures[f'leat_serve_control_total{{model="other",outcome="{outcome}"}}'] == count, (outcome, figures)


def test_two_models_of_a_job():
    """They share a checkpoint: it stays while one of them is loaded."""
    with Place(jobs.learner("fm")) as place:
        place.write("job.leat", jobs.learner("fm") + "\nserve second { from: scores, request: events, deadline: 1m }\n")
        place.run("--until", UNTIL)
        with Server(place, "--control", "127.0.0.1:0").ready() as server:
            control = Client(int(server.wait_for(r"unloaded at http://127\.0\.0\.1:(\d+)").group(1)))

            def change(what, model):
                status, _, body = control.ask("POST", f"/v2/repository/models/{model}/{what}", "{}")
                assert status == 200, body

            def answers():
                statuses = [server.client().infer(model, [tensor("user", [7])])[0] for model in ("scores", "second")]
                return [status == 200 for status in statuses]

            change("unload", "scores")
            assert answers() == [False, True]
            change("load", "scores")
            assert answers() == [True, True]
            change("unload", "scores")
            change("unload", "second")
            assert answers() == [False, False]
            assert sum("answers from checkpoint" in (line or "") for line in server.said) == 1, server.said
            change("load", "second")
            assert answers() == [False, True]
            assert sum("answers from checkpoint" in (line or "") for line in server.said) == 2, server.said


def test_named_checkpoint():
    """With --checkpoint the same checkpoint is loaded again; that it is gone is the load's error, not the server's end."""
    with Place(jobs.learner("fm")) as place:
        place.run("--until", UNTIL)
        folder = glob.glob(place.path("state/gen-*/ckpt-*"))[-1]
        name = f"{int(os.path.basename(os.path.dirname(folder))[4:])}-{int(os.path.basename(folder)[5:])}"
        with Server(place, "--checkpoint", name, "--control", "127.0.0.1:0").ready() as server:
            control = Client(int(server.wait_for(r"unloaded at http://127\.0\.0\.1:(\d+)").group(1)))

            def change(what):
                return control.ask("POST", f"/v2/repository/models/scores/{what}", "")[::2]

            for _ in range(2):
                assert change("unload")[0] == 200 and change("load")[0] == 200
                assert server.client().infer("scores", [tensor("user", [7])])[1]["parameters"]["cut"] == name
            assert change("unload")[0] == 200
            os.rename(folder, place.path("away"))
            status, body = change("load")
            assert status == 500 and b"error[E" in body, (status, body)
            os.rename(place.path("away"), folder)
            assert change("load")[0] == 200
            assert server.client().infer("scores", [tensor("user", [7])])[0] == 200


def test_followed():
    """A job that runs is followed again behind each load, and in the end the answers are those of its last checkpoint."""
    job = jobs.learner("fm")
    with Place(job, 3000) as place, Server(place, "--control", "127.0.0.1:0", "--look-every", "1500") as server:
        control = Client(int(server.wait_for(r"unloaded at http://127\.0\.0\.1:(\d+)").group(1)))
        env = {**os.environ, "LEAT_TEST_CUT": "1", "LEAT_FAILPOINTS": "run.claimed=sleep:8"}
        with subprocess.Popen([LEAT, "run", "--quiet", "--workers", "2", place.path("job.leat"), *place.settings()],
                              env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as trainer:
            counters = [f'leat_follow_{of}_total{{job="parity"}}' for of in ("rows", "cuts", "bytes")]
            for count in (1, 2, 3):
                deadline = time.monotonic() + PATIENCE_S
                while sum("is followed from checkpoint" in (line or "") for line in server.said) < count:
                    assert time.monotonic() < deadline and trainer.poll() is None, server.said
                    time.sleep(0.01)
                if count < 3:
                    while (before := server.client().metrics())[counters[0]] == 0:
                        assert time.monotonic() < deadline and trainer.poll() is None, before
                    assert before['leat_follow_live{job="parity"}'] == 1
                    assert control.ask("POST", "/v2/repository/models/scores/unload", UNLOAD)[0] == 200
                    figures = server.client().metrics()
                    assert figures['leat_follow_live{job="parity"}'] == 0 == figures['leat_follow_features{job="parity"}']
                    assert all(figures[name] >= before[name] for name in counters), (before, figures)
                    assert control.ask("POST", "/v2/repository/models/scores/load", "")[0] == 200
            assert trainer.wait(PATIENCE_S) == 0
        server.wait_for("no longer followed: the job has ended")
        asked = place.events[-60:]
        status, answer = server.client().infer("scores", tensors(asked, COLUMNS))
        assert status == 200 and "+" in answer["parameters"]["cut"], answer["parameters"]
        compare(rows_of(answer), place.score(asked))


def test_refused():
    """What the listeners do not take."""
    with Pair().ready() as pair:
        for what in ("load", "unload"):
            status, _, body = pair.server.client().ask("POST", f"/v2/repository/models/other/{what}", "{}")
            assert status == 403 and b"--control" in body, (status, body)
        status, _, body = Client(pair.port).ask("POST", "/v2/models/other/infer", json.dumps({"inputs": [tensor("user", [7])]}))
        assert status == 403 and b"other listener" in body, (status, body)
        for body, status, expected in (('{"parameters":{"config":"{}"}}', 501, "`config` is not taken"),
                                       ('{"parameters":{"file:1/model.bin":"AA"}}', 501, "`file:1/model.bin` is not taken"),
                                       ('{"parameters":{"unload_dependents":false}}', 501, "`unload_dependents` is not taken"),
                                       ('{"parameters":[]}', 400, "`parameters` is not an object"), ("[]", 400, "JSON object"),
                                       ("{", 400, "not valid JSON"), ("\xff", 400, "not valid JSON")):
            found = pair.change("load", "other", body.encode("latin-1"))
            assert found[0] == status and expected in found[1], (body, found)
        assert pair.change("unload", "other", '{"parameters":{"force":true}}')[0] == 501
        status, why = pair.change("load", "none")
        assert status == 404 and "no model `none`" in why, why
        client = Client(pair.port)
        assert client.ask("GET", "/v2/repository/models/other/load")[0] == 405
        assert client.ask("POST", "/v2/repository/models/other/reload")[0] == 404
        assert client.ask("POST", "/v2/repository/index", '{"ready":1}')[0] == 400
        assert client.get("/v2/health/live")[0] == client.get("/v2/models/other/ready")[0] == 200
        paths = set(client.get("/openapi.json")[1]["paths"])
        assert "/v2/repository/models/other/load" in paths and "/v2/models/other/infer" not in paths, paths
        paths = set(pair.server.client().get("/openapi.json")[1]["paths"])
        assert "/v2/repository/models/other/load" not in paths and "/v2/models/other/infer" in paths, paths
        figures = client.metrics()
        assert figures['leat_serve_control_total{model="other",outcome="refused"}'] == 4, figures
        assert figures["leat_serve_unknown_models_total"] == 1, figures
        assert pair.index()["other"] == ("READY", "")
        for words, status, expected in ((["--control", "nowhere"], FAILED, "nowhere"),
                                        (["--control", "0.0.0.0:0"], FAILED, "--certificate"),
                                        (["--control", f"127.0.0.1:{pair.port}"], FAILED, "cannot listen"),
                                        (["--unloaded"], USAGE, "need --control"),
                                        (["--control-token-file", "x"], USAGE, "need --control"),
                                        (["--control", "127.0.0.1:0", "--control-token-file", "none"], FAILED, "none")):
            refused = pair.place.leat("serve", "--listen", "127.0.0.1:0", *words)
            assert refused.returncode == status and expected in refused.stderr, (words, refused.stderr)


def test_tokens():
    """The control listener has a token of its own, or that of the others."""
    with Place(jobs.learner("linear")) as place:
        place.run("--until", UNTIL)
        one, two = place.write("one", "s3cret\n"), place.write("two", "c0ntrol\n")
        for words, good in ((["--control-token-file", two], "c0ntrol"), ([], "s3cret")):
            with Server(place, "--token-file", one, "--control", "127.0.0.1:0", *words).ready() as server:
                port = int(server.wait_for(r"unloaded at http://127\.0\.0\.1:(\d+)").group(1))
                for token in ("s3cret", "c0ntrol"):
                    status = Client(port).ask("POST", "/v2/repository/models/scores/load", "", authorization=f"Bearer {token}")[0]
                    assert status == (200 if token == good else 401), (words, token, status)
                assert Client(port).ask("POST", "/v2/repository/models/scores/load", "")[0] == 401
                assert Client(server.port).ask("GET", "/v2", authorization="Bearer s3cret")[0] == 200


def packages():
    """None, or why the clients are not there."""
    try:
        install.packages()
    except install.Missing as missing:
        return str(missing)
    return None


def refused(call, expected):
    try:
        call()
    except Exception as failure:  # pylint: disable=broad-except
        assert expected in str(failure), (expected, str(failure))
        return
    raise AssertionError(f"not refused: {expected}")


def test_tritonclient():
    """load_model, unload_model, is_model_ready and the index, over HTTP and gRPC."""
    why = packages()
    if why:
        return why
    import tritonclient.grpc as over_grpc  # pylint: disable=import-outside-toplevel
    import tritonclient.http as over_http  # pylint: disable=import-outside-toplevel
    with Pair().ready() as pair:
        for client in (over_http, over_grpc):
            with client.InferenceServerClient(f"127.0.0.1:{pair.port}") as control, \
                    client.InferenceServerClient(f"127.0.0.1:{pair.server.port}") as server:
                def index():
                    found = control.get_model_repository_index()  # pylint: disable=cell-var-from-loop
                    if isinstance(found, list):
                        return {one["name"]: (one["state"], one["reason"]) for one in found}
                    return {one.name: (one.state, one.reason) for one in found.models}

                for _ in range(3):
                    control.unload_model("other")
                    assert not control.is_model_ready("other") and not server.is_model_ready("other")
                    assert index() == {"scores": ("READY", ""), "other": ("UNAVAILABLE", "unloaded")}, index()
                    assert control.is_server_ready() and server.is_server_ready()
                    control.load_model("other")
                    assert control.is_model_ready("other") and server.is_model_ready("other")
                    assert index() == {"scores": ("READY", ""), "other": ("READY", "")}, index()
                control.unload_model("other", unload_dependents=True)
                control.load_model("other")
                refused(lambda: control.load_model("other", config="{}"), "`config` is not taken")  # pylint: disable=cell-var-from-loop
                refused(lambda: control.load_model("none"), "no model `none`")  # pylint: disable=cell-var-from-loop
                refused(lambda: server.load_model("other"), "--control")  # pylint: disable=cell-var-from-loop
                refused(lambda: server.unload_model("other"), "--control")  # pylint: disable=cell-var-from-loop
        with over_grpc.InferenceServerClient(f"127.0.0.1:{pair.port}") as control:
            stub, messages = control._client_stub, over_grpc.service_pb2  # pylint: disable=protected-access
            control.unload_model("other")
            ready = stub.RepositoryIndex(messages.RepositoryIndexRequest(ready=True)).models
            assert [one.name for one in ready] == ["scores"], ready
            refused(lambda: stub.RepositoryModelLoad(messages.RepositoryModelLoadRequest(repository_name="r", model_name="other")),
                    "`repository_name` is not taken")
            refused(lambda: stub.ModelInfer(messages.ModelInferRequest(model_name="scores")), "other listener")
    return None


def test_tritonclient_asyncio():
    why = packages()
    if why:
        return why
    import tritonclient.grpc.aio as over_grpc  # pylint: disable=import-outside-toplevel
    import tritonclient.http.aio as over_http  # pylint: disable=import-outside-toplevel

    async def change(client, address):
        async with client.InferenceServerClient(address) as control:
            for _ in range(3):
                await control.unload_model("other")
                assert not await control.is_model_ready("other")
                await asyncio.gather(*[control.load_model("other") for _ in range(4)])
                assert await control.is_model_ready("other")
                found = await control.get_model_repository_index()
                assert len(found if isinstance(found, list) else found.models) == 2, found

    with Pair().ready() as pair:
        asyncio.run(change(over_http, f"127.0.0.1:{pair.port}"))
        asyncio.run(change(over_grpc, f"127.0.0.1:{pair.port}"))
        assert pair.server.client().infer("other", [tensor("user", [7])])[0] == 200
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
