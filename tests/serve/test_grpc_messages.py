#!/usr/bin/env python3
"""Requests as a public client builds them, read by leat and written as answers whose outputs are the inputs
(grpc_echo.c), which the client's own messages read.

    tests/serve/test_grpc_messages.py PATH_OF_GRPC_ECHO
"""

import os
import random
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import install  # noqa: E402
import tap  # noqa: E402

try:
    install.packages()
except install.Missing as missing:
    print(f"ok - the public messages # SKIP {missing}")
    sys.exit(77)

import numpy  # noqa: E402
import tritonclient.grpc as client  # noqa: E402
from grpc_health.v1 import health_pb2  # noqa: E402
from tritonclient.grpc import service_pb2  # noqa: E402
from tritonclient.grpc._utils import _get_inference_request  # noqa: E402

ECHO = os.path.abspath(sys.argv[1])
REFUSED = 2
SEED = 20
# Numpy's type, and the field of `contents`.
TYPES = {"BOOL": ("?", "bool_contents"), "UINT8": ("B", "uint_contents"), "UINT16": ("H", "uint_contents"),
         "UINT32": ("I", "uint_contents"), "UINT64": ("Q", "uint64_contents"), "INT8": ("b", "int_contents"),
         "INT16": ("h", "int_contents"), "INT32": ("i", "int_contents"), "INT64": ("q", "int64_contents"),
         "FP32": ("f", "fp32_contents"), "FP64": ("d", "fp64_contents"), "BYTES": ("O", "bytes_contents")}


def echo(messages, *arguments):
    """What comes back for each: (is refused, bytes)."""
    body = b"".join(struct.pack(">BI", 0, len(one)) + one for one in messages)
    out = subprocess.run([ECHO, *arguments], input=body, stdout=subprocess.PIPE, check=True).stdout
    answers = []
    while out:
        first, length = struct.unpack(">BI", out[:5])
        answers.append((first == REFUSED, out[5:5 + length]))
        out = out[5 + length:]
    return answers


def some(rng, name, count):
    """An array of any values of the type, the ends of its range among them."""
    kind = TYPES[name][0]
    if name == "BYTES":
        texts = [bytes(rng.randrange(256) for _ in range(rng.randrange(6))) for _ in range(count)]
        return numpy.array(texts, dtype=object)
    if name in ("FP32", "FP64"):
        values = [rng.choice([rng.uniform(-1e9, 1e9), float("inf"), float("nan"), -0.0]) for _ in range(count)]
    elif name == "BOOL":
        values = [rng.random() < 0.5 for _ in range(count)]
    else:
        limits = numpy.iinfo(kind)
        ends = [limits.min, limits.max, 0]
        values = [rng.choice([rng.randint(limits.min, limits.max), *ends]) for _ in range(count)]
    return numpy.array(values, dtype=kind)


def packed(array):
    """As raw contents have it."""
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(one)) + one for one in array.flatten())
    return array.tobytes()


def inputs(rng):
    """[(name, type, array)]"""
    made = []
    for i in range(rng.randrange(1, 8)):
        shape = rng.choice([(1,), (3,), (2, 1), (2, 3), (0,), (1, 1, 2, 2), (200,)])
        kind = rng.choice(list(TYPES))
        name = f"in{i}" + rng.choice(["", "ä", "x" * 200])
        made.append((name, kind, some(rng, kind, int(numpy.prod(shape))).reshape(shape)))
    return made


def raw_request(made):
    """As tritonclient sends it."""
    tensors = []
    for name, kind, array in made:
        tensors.append(client.InferInput(name, list(array.shape), kind))
        tensors[-1].set_data_from_numpy(array)
    return _get_inference_request(
        model_name="echo", inputs=tensors, model_version="", request_id="id-1", sequence_id=0,
        sequence_start=False, sequence_end=False, priority=3, timeout=1000, parameters=None,
        outputs=[client.InferRequestedOutput("p")])


def typed_request(made):
    request = service_pb2.ModelInferRequest(model_name="echo", id="id-1")
    for name, kind, array in made:
        tensor = request.inputs.add(name=name, datatype=kind, shape=array.shape)
        getattr(tensor.contents, TYPES[kind][1]).extend(array.flatten().tolist())
    return request


def check(made, answer):
    is_refused, message = answer
    assert not is_refused, message
    response = service_pb2.ModelInferResponse.FromString(message)
    assert (response.model_name, response.model_version, response.id) == ("echo", "1", "id-1")
    facts = {key: value.string_param or value.int64_param for key, value in response.parameters.items()}
    assert facts == {"cut": "cut-1", "features": 70, "staleness_ms": 12, "late": 1, "filtered": 2}, facts
    assert len(response.outputs) == len(response.raw_output_contents) == len(made)
    result = client.InferResult(response)
    for (name, kind, array), output, raw in zip(made, response.outputs, response.raw_output_contents):
        assert (output.name, output.datatype, tuple(output.shape)) == (name, kind, array.shape), output
        assert raw == packed(array), (kind, raw, array)
        assert result.as_numpy(name).shape == array.shape
        assert packed(result.as_numpy(name)) == packed(array), (kind, array)


def test_typed():
    rng = random.Random(SEED)
    made = [inputs(rng) for _ in range(200)]
    answers = echo([typed_request(one).SerializeToString() for one in made])
    assert len(answers) == len(made)
    for one, answer in zip(made, answers):
        check(one, answer)


def test_raw():
    rng = random.Random(SEED + 1)
    made = [inputs(rng) for _ in range(200)]
    requests = [raw_request(one) for one in made]
    answers = echo([request.SerializeToString() for request in requests])
    assert len(answers) == len(made)
    for one, request, answer in zip(made, requests, answers):
        assert len(request.raw_input_contents) == len(one), "tritonclient sends raw contents of each input"
        check(one, answer)


def test_changed():
    """Bytes of requests are changed: what is read is what Python's protobuf reads; a refusal has a text."""
    rng = random.Random(SEED + 2)
    messages = []
    for _ in range(1500):
        made = inputs(rng)[:3]
        message = bytearray((typed_request if rng.random() < 0.5 else raw_request)(made).SerializeToString())
        for _ in range(rng.randrange(1, 3)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        messages.append(bytes(message))
    answers = echo(messages)
    assert len(answers) == len(messages)
    read = 0
    for message, (is_refused, answer) in zip(messages, answers):
        try:
            request = service_pb2.ModelInferRequest.FromString(message)
        except Exception:  # pylint: disable=broad-except
            continue
        if is_refused:
            assert answer, message
            continue
        read += 1
        response = service_pb2.ModelInferResponse.FromString(answer)
        assert [(one.name, one.datatype, one.shape) for one in response.outputs] == \
               [(one.name, one.datatype, one.shape) for one in request.inputs], message
        if request.raw_input_contents:
            assert response.raw_output_contents == request.raw_input_contents, message
    assert read > 100, read


def test_refused():
    request = service_pb2.ModelInferRequest(model_name="echo")
    request.inputs.add(name="x", datatype="FP16", shape=[1])
    request.raw_input_contents.append(b"12")
    [(is_refused, text)] = echo([request.SerializeToString()])
    assert is_refused and text == b"input `x` has the type FP16, which leat does not read; send FP32", text


def test_messages():
    live, health, server, metadata, statistics, index = [one for _, one in echo([], "messages")]
    assert service_pb2.ServerLiveResponse.FromString(live).live
    assert service_pb2.ModelReadyResponse.FromString(live).ready
    health = health_pb2.HealthCheckResponse.FromString(health)
    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    server = service_pb2.ServerMetadataResponse.FromString(server)
    assert (server.name, server.version) == ("leat", "0.1")
    assert list(server.extensions) == ["statistics", "model_repository"]
    metadata = service_pb2.ModelMetadataResponse.FromString(metadata)
    assert (metadata.name, list(metadata.versions), metadata.platform) == ("echo", ["1"], "leat")
    assert [(one.name, one.datatype, list(one.shape)) for one in metadata.inputs] == \
        [("key", "BYTES", [-1]), ("v", "FP64", [-1]), ("v.lengths", "INT64", [-1])]
    assert [(one.name, one.datatype) for one in metadata.outputs] == [("p", "FP32")]
    [model] = service_pb2.ModelStatisticsResponse.FromString(statistics).model_stats
    assert (model.name, model.version, model.inference_count, model.execution_count, model.last_inference) == \
        ("echo", "1", 1, 2, 11)
    stats = model.inference_stats
    assert (stats.success.count, stats.success.ns, stats.fail.count, stats.fail.ns) == (3, 4, 5, 6)
    assert (stats.queue.ns, stats.compute_input.ns) == (7, 8)
    assert (stats.compute_infer.ns, stats.compute_output.ns) == (9, 10)
    models = service_pb2.RepositoryIndexResponse.FromString(index).models
    assert [(one.name, one.version, one.state, one.reason) for one in models] == \
        [("a", "1", "READY", ""), ("b", "1", "UNAVAILABLE", "unloaded")]


sys.exit(tap.run(globals()))
