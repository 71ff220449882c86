#!/usr/bin/env python3
"""Stock clients of the Open Inference Protocol: tritonclient over HTTP and gRPC, both also with asyncio, for every call
that the server answers. Skipped, saying so, where tritonclient cannot be had.

    tests/serve/test_clients.py PATH_OF_LEAT
"""

import asyncio
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import install  # noqa: E402
import jobs  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from place import ROWS, Place, time_text  # noqa: E402
from server import Server  # noqa: E402

ITEMS = [f"i{n}" for n in range(300)]


class Job:
    """A server with a model of the learner, and the answers that it must give."""

    def __enter__(self):
        self.place = Place(jobs.learner("fm"))
        self.place.run("--until", time_text(stream.START_MS + ROWS * stream.STEP_MS // 2))
        rows = self.place.score([{"user": 7, "item": item, "price": n / 4} for n, item in enumerate(ITEMS)])
        self.expected = [float(row["prediction"]) for row in rows]
        self.server = Server(self.place).ready()
        return self

    def __exit__(self, *what):
        self.server.__exit__(*what)
        self.place.__exit__()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.port}"

    def inputs(self, client, numpy):
        made = [client.InferInput("user", [1], "INT64"), client.InferInput("item", [len(ITEMS)], "BYTES"),
                client.InferInput("price", [len(ITEMS)], "FP64")]
        made[0].set_data_from_numpy(numpy.array([7], dtype=numpy.int64))
        made[1].set_data_from_numpy(numpy.array(ITEMS, dtype=object))
        made[2].set_data_from_numpy(numpy.array([n / 4 for n in range(len(ITEMS))]))
        return made

    def check(self, result):
        got = result.as_numpy("prediction")
        assert list(got) == self.expected, (list(got)[:3], self.expected[:3])
        status = result.as_numpy("_status")
        assert status is None or {one if isinstance(one, bytes) else one.encode() for one in status} <= {b"answered"}, status


def wanted(client, **more):
    return [client.InferRequestedOutput("prediction", **more), client.InferRequestedOutput("_status", **more)]


def refused(call, expected):
    """Whether the call fails with such a text."""
    try:
        call()
    except Exception as failure:  # pylint: disable=broad-except
        assert expected in str(failure), (expected, str(failure))
        return
    raise AssertionError(f"not refused: {expected}")


def packages():
    """None, or why the clients are not there."""
    try:
        install.packages()
    except install.Missing as missing:
        return str(missing)
    return None


def test_http():
    why = packages()
    if why:
        return why
    import numpy  # pylint: disable=import-outside-toplevel
    import tritonclient.http as client  # pylint: disable=import-outside-toplevel
    with Job() as job, client.InferenceServerClient(job.address) as server:
        assert server.is_server_live() and server.is_server_ready() and server.is_model_ready("scores")
        assert not server.is_model_ready("none")
        assert server.get_server_metadata()["name"] == "leat"
        assert server.get_model_metadata("scores")["name"] == "scores"
        inputs = job.inputs(client, numpy)
        job.check(server.infer("scores", inputs))
        job.check(server.infer("scores", inputs, outputs=wanted(client, binary_data=True)))
        job.check(server.infer("scores", inputs, outputs=wanted(client, binary_data=False), request_id="x", timeout=1_000_000))
        for one, values in zip(inputs, ([7], ITEMS, [n / 4 for n in range(len(ITEMS))])):
            one.set_data_from_numpy(numpy.array(values, dtype={"INT64": numpy.int64, "BYTES": object}.get(one.datatype())),
                                    binary_data=False)
        job.check(server.infer("scores", inputs, model_version="1"))
        waiting = [server.async_infer("scores", inputs) for _ in range(5)]
        for one in waiting:
            job.check(one.get_result())
        assert server.get_inference_statistics("scores")["model_stats"][0]["inference_count"] == 9 * len(ITEMS)
        assert server.get_model_repository_index()[0]["name"] == "scores"
        refused(lambda: server.infer("none", inputs), "there is no model `none`")
        refused(lambda: server.infer("scores", inputs[1:2], outputs=[client.InferRequestedOutput("x")]), "x")
        refused(lambda: server.load_model("scores"), "not loaded or unloaded")
    return None


def test_grpc():
    why = packages()
    if why:
        return why
    import numpy  # pylint: disable=import-outside-toplevel
    import tritonclient.grpc as client  # pylint: disable=import-outside-toplevel
    with Job() as job, client.InferenceServerClient(job.address) as server:
        assert server.is_server_live() and server.is_server_ready() and server.is_model_ready("scores")
        assert not server.is_model_ready("none")
        assert server.get_server_metadata().name == "leat"
        about = server.get_model_metadata("scores")
        assert about.name == "scores" and {one.name: one.datatype for one in about.inputs}["item"] == "BYTES"
        inputs = job.inputs(client, numpy)
        answer = server.infer("scores", inputs, request_id="x", client_timeout=60)
        job.check(answer)
        assert answer.get_response().id == "x" and answer.get_response().model_version == "1"
        job.check(server.infer("scores", inputs, outputs=wanted(client), model_version="1"))
        statistics = server.get_inference_statistics("scores").model_stats[0]
        assert statistics.inference_count == 2 * len(ITEMS) and statistics.inference_stats.success.count == 2, statistics
        assert len(server.get_inference_statistics().model_stats) == 1
        assert server.get_model_repository_index().models[0].state == "READY"
        refused(lambda: server.infer("none", inputs), "there is no model `none`")
        refused(lambda: server.infer("scores", inputs, outputs=[client.InferRequestedOutput("x")]), "x")
        refused(lambda: server.load_model("scores"), "not loaded or unloaded")
        refused(lambda: server.get_trace_settings("scores"), "UNIMPLEMENTED")
        refused(lambda: server.infer("scores", inputs, timeout=1), "")
        short = job.inputs(client, numpy)
        short[0]._get_tensor().shape[:] = [2]  # pylint: disable=protected-access
        refused(lambda: server.infer("scores", short), "user")
        large = client.InferInput("item", [300], "BYTES")
        large.set_data_from_numpy(numpy.array(["x" * 1000] * 300, dtype=object))
        refused(lambda: server.infer("scores", [large]), "RESOURCE_EXHAUSTED")
        figures = job.server.client().metrics()
        assert figures['leat_serve_requests_total{model="scores",outcome="refused"}'] == 2, figures
        assert figures["leat_serve_unknown_models_total"] == 1 == figures["leat_net_refused_total"], figures
    return None


def test_asyncio():
    why = packages()
    if why:
        return why
    import numpy  # pylint: disable=import-outside-toplevel
    import tritonclient.grpc.aio as over_grpc  # pylint: disable=import-outside-toplevel
    import tritonclient.http.aio as over_http  # pylint: disable=import-outside-toplevel

    async def ask(client, address, job):
        async with client.InferenceServerClient(address) as server:
            assert await server.is_server_ready() and await server.is_model_ready("scores")
            inputs = job.inputs(client, numpy)
            for result in await asyncio.gather(*[server.infer("scores", inputs) for _ in range(20)]):
                job.check(result)

    with Job() as job:
        asyncio.run(ask(over_http, job.address, job))
        asyncio.run(ask(over_grpc, job.address, job))
    return None


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
