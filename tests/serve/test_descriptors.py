#!/usr/bin/env python3
"""The messages that engine/serve/*.proto declare are those of the public protocol: compared with the
descriptors of tritonclient and of gRPC's health package.

    tests/serve/test_descriptors.py FOLDER      FOLDER: the build's descriptors, inference.pb and health.pb
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import install  # noqa: E402
import tap  # noqa: E402

try:
    install.packages()
except install.Missing as missing:
    print(f"ok - the public descriptors # SKIP {missing}")
    sys.exit(77)

from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: E402
from grpc_health.v1 import health_pb2  # noqa: E402
from tritonclient.grpc import service_pb2  # noqa: E402

FOLDER = sys.argv[1]


def own(name):
    """The file of ours, in a pool of its own."""
    files = descriptor_pb2.FileDescriptorSet()
    with open(os.path.join(FOLDER, name + ".pb"), "rb") as file:
        files.ParseFromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return pool.FindFileByName(name + ".proto")


def fields(message):
    """What the wire, JSON and a reader's code know of each field."""
    return {field.name: (field.number, field.type, field.is_repeated, field.has_presence, field.is_packed,
                         field.message_type.full_name if field.message_type else None,
                         field.enum_type.full_name if field.enum_type else None,
                         field.containing_oneof.name if field.containing_oneof else None)
            for field in message.fields}


def values(enum):
    return [(value.name, value.number) for value in enum.values]


def compare_message(ours, theirs):
    """Number of messages that were compared."""
    assert ours.full_name == theirs.full_name
    assert fields(ours) == fields(theirs), f"{ours.full_name}: {fields(ours)} is not {fields(theirs)}"
    assert ours.GetOptions().map_entry == theirs.GetOptions().map_entry, ours.full_name
    assert set(ours.nested_types_by_name) == set(theirs.nested_types_by_name), ours.full_name
    assert {e.name: values(e) for e in ours.enum_types} == {e.name: values(e) for e in theirs.enum_types}
    return 1 + sum(compare_message(nested, theirs.nested_types_by_name[name])
                   for name, nested in ours.nested_types_by_name.items())


def compare_file(ours, theirs):
    assert ours.package == theirs.package
    return sum(compare_message(message, theirs.message_types_by_name[name])
               for name, message in ours.message_types_by_name.items())


def compare_service(ours, theirs):
    assert ours.full_name == theirs.full_name
    for method in ours.methods:
        other = theirs.methods_by_name[method.name]
        assert [method.input_type.full_name, method.output_type.full_name, method.client_streaming,
                method.server_streaming] == \
               [other.input_type.full_name, other.output_type.full_name, other.client_streaming,
                other.server_streaming], method.full_name
    return {method.name for method in ours.methods}


def test_inference_messages():
    compared = compare_file(own("inference"), service_pb2.DESCRIPTOR)
    assert compared == 43, compared


def test_inference_calls():
    ours = own("inference").services_by_name["GRPCInferenceService"]
    calls = compare_service(ours, service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"])
    assert calls >= {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer",
                     "ModelStreamInfer", "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad",
                     "RepositoryModelUnload"}, calls


def test_health():
    ours = own("health")
    assert compare_file(ours, health_pb2.DESCRIPTOR) == 2
    theirs = health_pb2.DESCRIPTOR.services_by_name["Health"]
    assert compare_service(ours.services_by_name["Health"], theirs) == {"Check", "Watch"}


sys.exit(tap.run(globals()))
